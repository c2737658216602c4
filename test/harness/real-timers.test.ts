import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.edge.ts';
import { watchRealTimers } from './real-timers.ts';

test('a real timer that is left behind is named by the place that set it, until it is cleared', async () => {
	const left = watchRealTimers();
	const cancel = systemClock.schedule(60_000, () => {});
	const soon = systemClock.schedule(1, () => {});
	expect(left()).toEqual([
		expect.stringMatching(/^src\/base\/clock\.edge\.ts:\d+/),
		expect.stringMatching(/^src\/base\/clock\.edge\.ts:\d+/),
	]);
	await expect.poll(() => left().length).toBe(1);
	soon();
	cancel();
	await expect.poll(left).toEqual([]);
});
