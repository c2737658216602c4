import { expect, test } from 'vitest';
import { untilSettled } from '../../src/pairing/pairing.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

/** Somebody who waits; `isSettled` is looked at after each `tell`. */
function given(isSettled = false) {
	const clock = createSteppedClock();
	const listeners = new Set<() => void>();
	const now = { isSettled };
	let settledAtMs: number | null = null;
	const startedMs = clock.monotonicMs();
	const subscribe = (listener: () => void) => {
		listeners.add(listener);
		return () => listeners.delete(listener);
	};
	const settled = untilSettled(clock, subscribe, () => now.isSettled).then(() => {
		settledAtMs = clock.monotonicMs() - startedMs;
	});
	return {
		clock,
		now,
		tell() {
			for (const listener of listeners) listener();
		},
		/** When it was settled and what was left behind: listeners and timers. */
		async left() {
			await Promise.race([settled, new Promise(setImmediate)]);
			return [settledAtMs, listeners.size, clock.pending];
		},
	};
}

test('a device that has settled already is not waited for', async () => {
	expect(await given(true).left()).toEqual([0, 0, 0]);
});

test('the first news of a device that has settled ends the wait, and leaves nothing behind', async () => {
	const { clock, now, tell, left } = given();
	clock.advance(3000);
	tell();
	expect(await left()).toEqual([null, 1, 1]);
	now.isSettled = true;
	tell();
	expect(await left()).toEqual([3000, 0, 0]);
});

test('a device that does not settle is waited for 10 s, and leaves nothing behind', async () => {
	const { clock, left } = given();
	clock.advance(9999);
	expect(await left()).toEqual([null, 1, 1]);
	clock.advance(1);
	expect(await left()).toEqual([10_000, 0, 0]);
});
