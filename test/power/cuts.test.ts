/** True power cuts: the real agent on a disk that loses what was not flushed. plan.ts says which; run.ts starts it. */
import { beforeAll, describe, test } from 'vitest';
import { replayable } from './bed.ts';
import { type LossyDisk, mountLossyDisk } from './lossy-disk.ts';
import { cutWhileMoving } from './moves.ts';
import { cutWhileNotified } from './notifications.ts';
import { cutWhilePairing } from './pairing.ts';
import { cutsOf } from './plan.ts';
import { cutWhileProvisioning } from './provisioning.ts';

let disk: LossyDisk;
beforeAll(async () => {
	const undo: (() => Promise<void>)[] = [];
	disk = await mountLossyDisk((act) => undo.push(act));
	return async () => {
		for (const act of undo) await act();
	};
});

const SCENARIOS = {
	pairing: cutWhilePairing,
	moves: cutWhileMoving,
	notifications: cutWhileNotified,
	provisioning: cutWhileProvisioning,
} as const;

describe.for(Object.entries(SCENARIOS))('a power cut during %s', ([name, run]) => {
	test.for(cutsOf(name as keyof typeof SCENARIOS))(
		'loses nothing that was said to be done: cut $number, model $model',
		(cut) => replayable(cut, (cut) => run(disk, cut)),
	);
});
