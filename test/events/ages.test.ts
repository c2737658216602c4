import { expect, test } from 'vitest';
import { keepAges } from '../../src/events/ages.ts';

const NOW = Date.parse('2026-11-21T06:00:00.000Z');
const DAY = 86_400_000;

test('an event of an earlier run counts from when it was found if its time is of 1970 or from the future, and only then [F1995]', () => {
	const ages = keepAges({ wallMs: () => NOW, monotonicMs: () => 0 }, true);
	ages.load([], 3, NOW, null);
	expect([0, NOW - DAY, NOW + DAY].map((timeMs) => ages.keptSince(3, timeMs))).toEqual([NOW, NOW - DAY, NOW]);
	expect(ages.keptSince(4, NOW + DAY)).toBe(NOW + DAY);
});
