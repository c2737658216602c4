/** True power cuts: the real agent on a disk that loses what was not flushed. plan.ts says which; run.ts starts it. */
import { beforeAll, describe, test } from 'vitest';
import { replayable } from './bed.ts';
import { cutWhileStoring } from './events.ts';
import { type LossyDisk, mountLossyDisk } from './lossy-disk.ts';
import { cutWhileMoving } from './moves.ts';
import { cutWhileNotified } from './notifications.ts';
import { cutWhilePairing } from './pairing.ts';
import { cutsOf } from './plan.ts';
import { cutWhileProvisioning } from './provisioning.ts';

const HERE = ['pairing', 'moves', 'notifications', 'events', 'provisioning'] as const;

// A replay may be of a cut that another file makes.
describe.skipIf(HERE.every((scenario) => cutsOf(scenario).length === 0))('power cuts', () => {
	let disk: LossyDisk;
	beforeAll(async () => {
		const undo: (() => Promise<void>)[] = [];
		disk = await mountLossyDisk((act) => undo.push(act));
		return async () => {
			for (const act of undo) await act();
		};
	});

	test.for(cutsOf('pairing'))(
		'pairing: what was said is paired, else a code pairs it: cut $number, model $model [F180]',
		(cut) => replayable(cut, (cut) => cutWhilePairing(disk, cut)),
	);

	test.for(cutsOf('moves'))(
		'moves: what was said is done, and the device is online: cut $number, model $model [F181]',
		(cut) => replayable(cut, (cut) => cutWhileMoving(disk, cut)),
	);

	test.for(cutsOf('notifications'))(
		'notifications: none that was shown is lost: cut $number, model $model [F182]',
		(cut) => replayable(cut, (cut) => cutWhileNotified(disk, cut)),
	);

	test.for(cutsOf('events'))(
		'events: none that was handed on is lost while the disk is tidied up: cut $number, model $model [F187]',
		(cut) => replayable(cut, (cut) => cutWhileStoring(disk, cut)),
	);

	test.for(cutsOf('provisioning'))(
		'provisioning: the next start completes it: cut $number, model $model [F183]',
		(cut) => replayable(cut, (cut) => cutWhileProvisioning(disk, cut)),
	);
});
