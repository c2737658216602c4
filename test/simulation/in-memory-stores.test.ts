import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Entry, type Incoming, isEventId } from '../../src/events/event.ts';
import type { EventWriter } from '../../src/events/event-store-types.ts';
import { createEventBuffer } from '../../src/simulation/in-memory-stores.ts';

const ROOM = { maxCount: 100, maxBytes: 1_000_000 };

function incoming(content: string, serviceId: string | null = null): Incoming {
	const at = '2026-03-01T10:00:00.000Z';
	return { at, type: 'notification', kind: 'session.created', workflowId: 'w1', format: 'json', content, serviceId };
}
function filled(count: number, bounds = ROOM): EventWriter {
	const inbox = createEventBuffer('e1', bounds);
	for (let number = 1; number <= count; number += 1) inbox.append(incoming(`${number}`));
	return inbox;
}
const numbers = ({ entries }: { entries: readonly Entry[] }) => entries.map(({ number }) => number);

describe('an event', () => {
	test('gets the epoch and the next number as its id, and keeps everything else', () => {
		const inbox = createEventBuffer('e1', ROOM);
		expect(inbox.newest()).toBeNull();
		expect(inbox.append(incoming('one'))).toEqual({ ...incoming('one'), id: 'e1-1', number: 1 });
		expect(inbox.append(incoming('two'))?.id).toBe('e1-2');
		expect(inbox.newest()).toBe('e1-2');
		expect(inbox.count).toBe(2);
	});

	test('that the service sends twice is kept once and uses up no number', () => {
		const inbox = createEventBuffer('e1', ROOM);
		inbox.append(incoming('one', 's-1'));
		expect(inbox.append(incoming('one', 's-1'))).toBeNull();
		expect(inbox.append(incoming('one again', 's-1'), true)).toBeNull();
		expect(inbox.append(incoming('two', 's-2'))?.id).toBe('e1-2');
	});

	test('without an id of the service is never a duplicate', () => {
		const inbox = createEventBuffer('e1', ROOM);
		inbox.append(incoming('same'));
		expect(inbox.append(incoming('same'))?.number).toBe(2);
	});

	test('is known as a duplicate even when the first one is not kept any more', () => {
		const inbox = createEventBuffer('e1', { maxCount: 1, maxBytes: 1_000_000 });
		inbox.append(incoming('one', 's-1'));
		inbox.append(incoming('two', 's-2'));
		expect(inbox.append(incoming('one', 's-1'))).toBeNull();
	});

	test('is forgotten as a duplicate after 2,048 others, so that memory stays bounded', () => {
		const inbox = createEventBuffer('e1', ROOM);
		for (let number = 0; number <= 2048; number += 1) inbox.append(incoming('', `s-${number}`));
		expect(inbox.append(incoming('', 's-1025'))).toBeNull();
		expect(inbox.append(incoming('', 's-0'))?.number).toBe(2050);
	});
});

describe('the bounds', () => {
	test('by count let the oldest go first', () => {
		const inbox = filled(5, { maxCount: 3, maxBytes: 1_000_000 });
		expect(numbers(inbox.after(null, 10))).toEqual([3, 4, 5]);
	});

	test('by bytes let the oldest go first and count what is left', () => {
		const inbox = createEventBuffer('e1', { maxCount: 100, maxBytes: 1000 });
		for (let number = 1; number <= 4; number += 1) inbox.append(incoming('x'.repeat(200)));
		expect(numbers(inbox.after(null, 10))).toEqual([3, 4]);
		expect(inbox.bytes).toBeGreaterThan(400);
		expect(inbox.bytes).toBeLessThanOrEqual(1000);
	});

	test('never cost the newest event, however large it is', () => {
		const inbox = createEventBuffer('e1', { maxCount: 100, maxBytes: 1000 });
		inbox.append(incoming('small'));
		inbox.append(incoming('x'.repeat(5000)));
		expect(numbers(inbox.after(null, 10))).toEqual([2]);
	});
});

describe('asking for the events after an id', () => {
	const inbox = filled(5, { maxCount: 3, maxBytes: 1_000_000 });

	test.each<[string, string | null, number[], boolean]>([
		['nothing: all that is kept, and that others made room', null, [3, 4, 5], true],
		['a kept id: what came later', 'e1-4', [5], false],
		['the newest id: nothing yet', 'e1-5', [], false],
		['the id just before the oldest kept one: nothing is missed', 'e1-2', [3, 4, 5], false],
		['an older id: something is missed', 'e1-1', [3, 4, 5], true],
		['the number 0: something is missed', 'e1-0', [3, 4, 5], true],
		['a number of the future: all, and missed', 'e1-6', [3, 4, 5], true],
		['an id of another epoch: all, and missed', 'e0-4', [3, 4, 5], true],
		['no id at all: all, and missed', 'garbage', [3, 4, 5], true],
		['an empty text: all, and missed', '', [3, 4, 5], true],
	])('%s', (_, since, expected, missed) => {
		const answer = inbox.after(since, 10);
		expect(numbers(answer)).toEqual(expected);
		expect(answer.missed !== null).toBe(missed);
	});

	test('gives no more than was asked for, oldest first', () => {
		expect(numbers(inbox.after(null, 2))).toEqual([3, 4]);
		expect(numbers(inbox.after('e1-3', 1))).toEqual([4]);
	});

	test('in an empty inbox finds nothing, and says so of an id that is not ours', () => {
		const empty = createEventBuffer('e2', ROOM);
		expect(empty.after(null, 10)).toEqual({ entries: [], missed: null });
		expect(empty.after('e1-5', 10)).toMatchObject({ entries: [], missed: { id: 'e2-00' } });
		expect(empty.after('e2-00', 10)).toEqual({ entries: [], missed: null });
	});

	test('knows its own ids in any letters', () => {
		const inbox = createEventBuffer('Aa9', ROOM);
		const id = inbox.append(incoming('one'))?.id ?? '';
		expect(isEventId(id)).toBe(true);
		expect(inbox.after(id, 10)).toEqual({ entries: [], missed: null });
	});
});

test.each([
	['e1-1', true],
	['0abc-999999999999999', true],
	['', false],
	['e1', false],
	['e1-', false],
	['-1', false],
	['e1--1', false],
	['e1-1.5', false],
	['e1-1 ', false],
	['e_1-1', false],
	['e1-1000000000000000', false],
	[`${'e'.repeat(33)}-1`, false],
])('%j is an event id: %s', (text, is) => {
	expect(isEventId(text)).toBe(is);
});

test('whatever arrives, the inbox answers like a list that is cut at its bounds', () => {
	const arriving = fc.record({
		length: fc.oneof(fc.constant(7), fc.nat({ max: 300 })),
		serviceId: fc.option(fc.constantFrom('s-1', 's-2', 's-3', 's-4')),
	});
	const bounds = fc.record({ maxCount: fc.integer({ min: 1, max: 6 }), maxBytes: fc.integer({ min: 200, max: 2000 }) });
	const asked = fc.record({ since: fc.option(fc.nat({ max: 20 })), limit: fc.integer({ min: 1, max: 8 }) });
	fc.assert(
		fc.property(
			fc.array(arriving, { maxLength: 15 }),
			bounds,
			asked,
			(events, { maxCount, maxBytes }, { since, limit }) => {
				const inbox = createEventBuffer('e1', { maxCount, maxBytes });
				const seen = new Set<string>();
				const all: string[] = [];
				for (const { length, serviceId } of events) {
					const message = `${serviceId}: ${length}`;
					const isNew = serviceId === null || !seen.has(message);
					if (serviceId !== null) seen.add(message);
					const entry = inbox.append(incoming('x'.repeat(length), serviceId));
					expect(entry?.id ?? null).toBe(isNew ? `e1-${all.length + 1}` : null);
					if (isNew) all.push('x'.repeat(length));
					if (inbox.count > 1) expect(inbox.bytes).toBeLessThanOrEqual(maxBytes);
				}
				const kept = inbox.after(null, 100).entries;
				expect(kept.map(({ content }) => content)).toEqual(all.slice(all.length - inbox.count));
				expect(inbox.count).toBe(Math.min(inbox.count, maxCount));
				expect(inbox.count > 0).toBe(all.length > 0);

				const { entries, missed } = inbox.after(since === null ? null : `e1-${since}`, limit);
				const isOurs = since !== null && since <= all.length;
				expect(entries).toEqual(kept.filter(({ number }) => !isOurs || number > since).slice(0, limit));
				expect(missed !== null).toBe(!(since === null || isOurs) || (since ?? 0) < all.length - inbox.count);
			},
		),
	);
});
