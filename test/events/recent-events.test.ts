import { expect, test } from 'vitest';
import { createRecentEvents } from '../../src/events/recent-events.ts';

test('rows of deleted events are bounded, and the newest are not among those that go', () => {
	const recent = createRecentEvents();
	for (let number = 1; number <= 10_000; number += 1) {
		const entry = { at: '2026-11-21T05:00:00.000Z', number, id: `e-${number}`, serviceId: null } as never;
		recent.perform(['add', { number, size: 1, keptMs: 1, epoch: 'e', key: null, entry }]);
		recent.perform(['remove', number, number, number - 1024]);
		recent.clear(false);
		expect(recent.newest?.number).toBe(number);
	}
	const numbers = recent.changes().map((change) => change[0] === 'add' && change[1].number);
	expect(numbers.length).toBeLessThan(2 * 1024 + 1);
	expect(numbers.slice(-1024)).toEqual(Array.from({ length: 1024 }, (_, index) => 10_000 - 1023 + index));
});
