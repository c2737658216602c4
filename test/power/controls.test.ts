/** The suite can fail: with a fault planted in the sources, cuts of the same kind lose what was said to be done. */
import { beforeAll, expect, test } from 'vitest';
import { cutWhileStoring } from './events.ts';
import { type LossyDisk, mountLossyDisk } from './lossy-disk.ts';
import { cutWhileMoving } from './moves.ts';
import { cutWhileNotified } from './notifications.ts';
import { cutWhilePairing } from './pairing.ts';
import { type Cut, cutOf } from './plan.ts';
import type { Planted } from './programs.ts';

/** Cuts until the fault must have been seen. */
const ENOUGH = 120;

let disk: LossyDisk;
beforeAll(async () => {
	const undo: (() => Promise<void>)[] = [];
	disk = await mountLossyDisk((act) => undo.push(act));
	return async () => {
		for (const act of undo) await act();
	};
});

type Run = (disk: LossyDisk, cut: Cut, program: Planted) => Promise<void>;

test.for<[Planted, string, Run]>([
	['the state file is not flushed', 'pairing', cutWhilePairing],
	['the directory of the state is not flushed', 'moves', cutWhileMoving],
	['the newest events are not flushed', 'notifications', cutWhileNotified],
	['the name of a new file is not flushed', 'storing', cutWhileStoring],
])('planted: %s is noticed by cuts during %s', { timeout: 600_000 }, async ([planted, name, run]) => {
	for (let number = 0; number < ENOUGH; number += 1) {
		const failure = await run(disk, cutOf(number), planted).catch((error: Error) => error);
		if (!(failure instanceof Error)) continue;
		expect(failure.message, 'it must be noticed by what is lost').not.toMatch(/ms\. Now:|did not start/);
		console.log(`Planted: ${planted}; noticed at cut ${number + 1} during ${name}.`);
		return;
	}
	throw new Error(`${ENOUGH} cuts did not notice it.`);
});
