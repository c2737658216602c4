import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createCounters } from '../../src/base/counters.ts';
import { type Entry, gapEvent, type Incoming } from '../../src/events/event.ts';
import { createEventsFeed, type EventsFeed, formatEvent, newEpoch } from '../../src/events/feed.runner.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { eventSchema } from '../../src/protocol/local-answers.ts';

const AT = '2030-01-01T00:00:00.000Z';
const incoming = (content: string, format: Incoming['format'] = 'json'): Incoming => ({
	at: AT,
	type: 'notification',
	kind: 'some.kind',
	workflowId: 'check-in',
	format,
	content,
	serviceId: null,
});

/** Halves of characters, control characters and line ends as well. */
const anyText = fc
	.array(fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.constantFrom(0, 10, 13, 34, 92, 0x2028, 0xd800, 0xdfff)))
	.map((units) => String.fromCharCode(...units));

/** A feed on a store of its own, and what removes both. */
function openFeed(maxCount: number) {
	const directory = mkdtempSync(join(tmpdir(), 'feed-'));
	const bounds = { maxCount, maxBytes: 1_000_000, maxAgeMs: 3_600_000 };
	const store = createEventStore({ directory, epoch: 'e', bounds });
	const close = () => {
		store.close();
		rmSync(directory, { recursive: true });
	};
	return { feed: createEventsFeed(store, createCounters()), close };
}

describe('an event as applications read it', () => {
	const entryOf = (event: Incoming): Entry => ({ ...event, id: 'e-1', number: 1 });
	const read = (event: Incoming) => {
		const line = formatEvent(entryOf(event));
		expect(line).not.toMatch(/[\r\n]/);
		return eventSchema.parse(JSON.parse(line));
	};

	test('carries any JSON as it is, however it was written, on one line', () => {
		fc.assert(
			fc.property(fc.jsonValue(), fc.constantFrom(0, 1, '\t'), (value, space) => {
				const text = JSON.stringify(value, null, space).replaceAll('\n', '\r\n');
				expect(read(incoming(text)).data).toEqual(JSON.parse(text));
			}),
		);
	});

	test('carries numbers and keys that a program would spoil', () => {
		const text = '{"id":12345678901234567890,"__proto__":{"a":1},"a":1.0,"a":2}';
		expect(formatEvent(entryOf(incoming(text)))).toContain(`"data":${text}}`);
	});

	test('carries any text and any kind', () => {
		fc.assert(
			fc.property(anyText, anyText, (text, kind) => {
				const event = read({ ...incoming(text, 'text'), kind });
				expect(event).toMatchObject({ data: text, kind, format: 'text' });
			}),
		);
	});
});

describe('what is read after an id', () => {
	const filled = async (count: number, maxCount = 100) => {
		const { feed, close } = openFeed(maxCount);
		onTestFinished(close);
		for (let number = 1; number <= count; number += 1) feed.append(incoming(String(number)));
		await feed.settled();
		return feed;
	};
	const idsAfter = (feed: EventsFeed, since: string | null, limit = 100) =>
		feed.after(since, limit).entries.map(({ id, type }) => (type === 'gap' ? `gap ${id}` : id));

	test('is what came later, and everything for a reader who is not known', async () => {
		const feed = await filled(3);
		expect(idsAfter(feed, 'e-1')).toEqual(['e-2', 'e-3']);
		expect(idsAfter(feed, null)).toEqual(['e-1', 'e-2', 'e-3']);
		expect(idsAfter(feed, 'e-3')).toEqual([]);
		expect(idsAfter(feed, 'old-9')).toEqual(['gap e-00', 'e-1', 'e-2', 'e-3']);
	});

	test('begins with a gap where events had to make room, told once, under an id that no event ever had [F434]', async () => {
		const feed = await filled(10, 3);
		expect(idsAfter(feed, 'e-2')).toEqual(['gap e-07', 'e-8', 'e-9', 'e-10']);
		expect(idsAfter(feed, 'e-07')).toEqual(['e-8', 'e-9', 'e-10']);
		expect(idsAfter(feed, 'e-7')).toEqual(['e-8', 'e-9', 'e-10']);
		expect(idsAfter(feed, 'e-8')).toEqual(['e-9', 'e-10']);
		expect(idsAfter(feed, 'e-2', 2)).toEqual(['gap e-07', 'e-8']);
		const gap = feed.after('e-2', 1).entries[0] ?? expect.fail('no gap');
		expect(eventSchema.parse(JSON.parse(formatEvent(gap)))).toMatchObject({ data: { from: null, to: AT } });
	});

	test.each([
		[AT, ['gap e-02', 'gap e-3', 'e-4']],
		[null, ['gap e-3', 'e-4']],
	])(
		'begins with a gap also where another is the oldest that is left, unless that one has no beginning [%s]',
		async (from, expected) => {
			const feed = await filled(2, 2);
			feed.append({ ...incoming(JSON.stringify({ from, to: AT })), type: 'gap', kind: 'gap' });
			feed.append(incoming('4'));
			await feed.settled();
			expect(idsAfter(feed, 'e-1')).toEqual(expected);
		},
	);
});

test('a gap is kept with what comes after it, or as soon as somebody reads', async () => {
	const gap: Incoming = { ...incoming('{}'), type: 'gap', kind: 'gap' };
	for (const reads of [true, false]) {
		const { feed, close } = openFeed(10);
		onTestFinished(close);
		feed.append(gap);
		expect(feed.count).toBe(0);
		if (reads) feed.after(null, 1);
		else feed.append(incoming('1'));
		await feed.settled();
		expect(feed.after(null, 10).entries.map(({ type }) => type)).toEqual(reads ? ['gap'] : ['gap', 'notification']);
		expect(feed.newestAt()).toBe(AT);
		feed.append(gap);
		await feed.settled();
		expect(feed.after(null, 10).entries.at(-1)?.type).toBe('gap');
	}
});

test('of many outages before the first event the newest 64 are kept [F1871]', async () => {
	const { feed, close } = openFeed(1000);
	onTestFinished(close);
	for (let number = 1; number <= 70; number += 1)
		feed.append({ ...incoming(JSON.stringify({ from: `${number}`, to: AT })), type: 'gap', kind: 'gap' });
	feed.append(incoming('1'));
	await feed.settled();
	const begins = feed.after(null, 100).entries.map(({ type, content }) => type === 'gap' && JSON.parse(content).from);
	expect(begins).toEqual([...Array.from({ length: 64 }, (_, at) => `${at + 7}`), false]);
});

test('a gap that began by a clock that was set back since begins at a time that is not known [F787]', () => {
	const [earlier, later] = ['2026-11-26T17:15:00.000Z', '2026-11-26T18:14:00.000Z'];
	const data = (from: string | null, to: string) =>
		JSON.parse(gapEvent(from, to, { at: to, workflowId: null }).content);
	expect(data(later, earlier)).toEqual({ from: null, to: earlier });
	expect(data(earlier, later)).toEqual({ from: earlier, to: later });
	expect(data(null, earlier)).toEqual({ from: null, to: earlier });
});

test('an epoch is letters and digits and differs with the time and with chance', () => {
	expect(newEpoch(0, () => 0)).toMatch(/^[0-9a-z]{1,32}$/);
	const epochs = [newEpoch(1e12, () => 0.1), newEpoch(1e12, () => 0.2), newEpoch(1.1e12, () => 0.1)];
	expect(new Set(epochs).size).toBe(3);
	// Time and chance together are told apart by their lengths: no short number moves the border between them.
	expect(newEpoch(1e12, () => 0)).toHaveLength(newEpoch(1e12, () => 0.999).length);
});
