import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createExpiringMap } from '../../src/service/expiring-map.ts';

test('what is remembered stays until its time and within its bound, whatever is added', () => {
	const step = fc.record({
		key: fc.integer({ min: 0, max: 300 }).map(String),
		forgetAfter: fc.integer({ min: 1, max: 50 }),
		pass: fc.integer({ min: 0, max: 3 }),
	});
	fc.assert(
		fc.property(fc.integer({ min: 1, max: 100 }), fc.array(step, { maxLength: 400 }), (limit, steps) => {
			let nowMs = 0;
			const remembered = createExpiringMap<number>(limit, () => nowMs);
			const due = new Map<string, number>();
			for (const { key, forgetAfter, pass } of steps) {
				nowMs += pass;
				const living = [...due.values()].filter((at) => at > nowMs).length;
				const added = remembered.add(key, nowMs, nowMs + forgetAfter);
				if (living < limit) expect(added).toBe(true);
				if (added) due.set(key, nowMs + forgetAfter);
				expect(remembered.size).toBeLessThanOrEqual(limit);
			}
			for (const [key, at] of due) if (at > nowMs) expect(remembered.get(key)).toBeTypeOf('number');
		}),
		{ numRuns: 100 },
	);
});

test('one that is full still takes another value for what it knows', () => {
	const full = createExpiringMap<number>(1, () => 0);
	expect([full.add('a', 1, 10), full.add('a', 2, 10), full.add('b', 3, 10)]).toEqual([true, true, false]);
	expect([full.get('a'), full.get('b')]).toEqual([2, undefined]);
});
