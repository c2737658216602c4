/** What a property leaves behind that its limit has stopped. */
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, test } from 'vitest';

test('a property that its limit has stopped ends only when its last run has put back what it changed', async () => {
	let [runs, isChanged] = [0, false];
	const property = fc.asyncProperty(fc.integer(), async () => {
		runs += 1;
		isChanged = true;
		// The second run takes longer than the limit, whatever else the machine does.
		for (const endMs = performance.now() + (runs > 1 ? 200 : 0); performance.now() < endMs; ) await setImmediate();
		isChanged = false;
	});
	await fc.assert(property, { interruptAfterTimeLimit: 100, numRuns: 2 });
	expect(isChanged).toBe(false);
	expect(runs).toBe(2);
});
