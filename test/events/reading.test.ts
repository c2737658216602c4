/** Reading ends: pages of the feed over a real store against a list, whatever id a reader names. */
import { once } from 'node:events';
import fs from 'node:fs';
import { connect, createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createCounters } from '../../src/base/counters.ts';
import { ofSession } from '../../src/events/erasure.ts';
import { type Entry, neededEpochs, sizeOf } from '../../src/events/event.ts';
import { createEventsFeed, type EventsFeed } from '../../src/events/feed.runner.ts';
import { createEventStore, type DurableEventStore } from '../../src/events/store.edge.ts';
import { streamEvents } from '../../src/local-api/event-routes.runner.ts';
import { readAll } from '../harness/read-all.ts';

const AT = '2030-01-01T00:00:00.000Z';
const DAY = 86_400_000;
const FOREIGN = ['other-3', 'other-00', 'zz9-999999999999999', 'run0-1'];

let root: string;
let directory: string;
let run = 0;
let store: DurableEventStore;
let feed: EventsFeed;

beforeEach(() => {
	root = fs.mkdtempSync(path.join(os.tmpdir(), 'reading-'));
	directory = path.join(root, 'first');
	fs.mkdirSync(directory);
});

afterEach(async () => {
	await store.close();
	fs.rmSync(root, { recursive: true, force: true });
});

const bounds = { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: DAY };

/** The next run of the agent. */
function start(limits = bounds): void {
	run += 1;
	store = createEventStore({ directory, epoch: `run${run}`, bounds: limits });
	feed = createEventsFeed(store, createCounters());
}

/** Another start, over what a process that was killed now would leave. */
async function kill(limits = bounds): Promise<void> {
	const next = path.join(root, `${run}`);
	fs.cpSync(directory, next, { recursive: true });
	await store.close();
	fs.rmSync(directory, { recursive: true });
	directory = next;
	start(limits);
}

async function append(content = '1'): Promise<Entry> {
	const own = { at: AT, type: 'notification', kind: 'a', workflowId: null, format: 'json', serviceId: null } as const;
	const entry = store.append({ ...own, content: JSON.stringify(content) });
	await store.settled();
	return entry ?? expect.fail('a duplicate');
}

const isGap = ({ type }: Entry) => type === 'gap';

/** Reads to the end by pages, and checks what holds for every reader. */
function walk(since: string | null, limit: number): Entry[] {
	const seen: Entry[] = [];
	const most = store.count + 3;
	let last = since;
	for (let pages = 0; ; pages += 1) {
		expect(pages, `pages after ${since}`).toBeLessThan(most);
		const { entries, missed } = feed.after(last, limit);
		if (pages > 0) expect(missed, `${last} is known`).toBeNull();
		if (entries.length === 0) break;
		seen.push(...entries);
		last = entries.at(-1)?.id ?? null;
	}
	const numbers = seen.map(({ number }) => number);
	expect(numbers, `after ${since}`).toEqual([...new Set(numbers)].sort((a, b) => a - b));
	expect(seen.findLastIndex(isGap), 'a gap comes first').toBeLessThan(1);
	return seen;
}

const step = fc.record({
	do: fc.constantFrom(
		'append',
		'append',
		'append',
		'stop',
		'kill',
		'acknowledge',
		'erase',
		'remember',
		'lose',
		'forget',
	),
	n: fc.nat(20),
	limit: fc.integer({ min: 1, max: 7 }),
});

test('whatever id is named, reading ends: at most one gap, then each kept event once, and only known ids [F460]', async () => {
	const few = { ...bounds, maxCount: 8 };
	await fc.assert(
		fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
			directory = path.join(root, `life${run}`);
			fs.mkdirSync(directory);
			start(few);
			let kept: Entry[] = [];
			/** Ids that were handed on and are not lost, with their numbers; and those that are. */
			let named = new Map<string, number>();
			const lost = new Set<string>();
			let remembered: { kept: Entry[]; named: typeof named; at: string; reader: number | null; done: number } | null =
				null;
			let reader: number | null = null;
			/** The newest event that was acknowledged. */
			let done = 0;
			for (const { do: name, n, limit } of steps) {
				if (name === 'append') {
					const entry = await append(`s${n % 3}`);
					kept.push(entry);
					named.set(entry.id, entry.number);
				} else if (name === 'stop') {
					await store.close();
					start(few);
				} else if (name === 'kill') await kill(few);
				else if (name === 'acknowledge') {
					const id = [...named.keys()].at(-1 - n);
					if (id) expect(store.acknowledge('kiosk', id)).toBe(true);
					if (id) reader = Math.max(reader ?? 0, named.get(id) ?? 0);
					done = Math.max(done, reader ?? 0);
				} else if (name === 'forget') {
					store.forget('kiosk');
					reader = null;
				} else if (name === 'erase') {
					await feed.erase(ofSession(`s${n % 3}`));
					kept = kept.filter(({ content }) => content !== `"s${n % 3}"`);
				} else if (name === 'remember') {
					remembered = { kept, named: new Map(named), at: path.join(root, `at${run}`), reader, done };
					fs.cpSync(directory, remembered.at, { recursive: true });
				} else if (remembered) {
					// A disk that loses what it has confirmed.
					await store.close();
					for (const id of named.keys()) if (!remembered.named.has(id)) lost.add(id);
					({ kept, reader, done } = remembered);
					named = new Map(remembered.named);
					fs.rmSync(directory, { recursive: true });
					fs.cpSync(remembered.at, directory, { recursive: true });
					start(few);
				}
				await store.settled();
				const acknowledged = reader ?? -1;
				kept = kept.filter(({ number }) => number > acknowledged).slice(-few.maxCount);
				const first = walk(null, limit);
				const newest = Math.max(0, ...named.values());
				// A new reader is told of what no application has processed.
				expect(first.some(isGap)).toBe((kept[0]?.number ?? newest + 1) > done + 1);
				expect(first.filter((entry) => !isGap(entry)).map(({ id }) => id)).toEqual(kept.map(({ id }) => id));
				const oldest = kept[0]?.number ?? Number.POSITIVE_INFINITY;
				for (const since of [...[...named.keys()].slice(-12), ...[...lost].slice(-4), ...FOREIGN, `run${run}-999`]) {
					const [gap, ...rest] = walk(since, limit);
					const found = gap && !isGap(gap) ? [gap, ...rest] : rest;
					const isKnown = named.has(since);
					const from = named.get(since) ?? 0;
					const expected = kept.filter(({ number }) => number > from);
					// A reader of what is lost has read what is left of that run.
					const left = lost.has(since) ? kept.slice(kept.length - found.length) : expected;
					expect(
						found.map(({ id }) => id),
						since,
					).toEqual(left.map(({ id }) => id));
					if (isKnown && from + 1 >= oldest) expect(gap && isGap(gap), since).not.toBe(true);
					if (FOREIGN.includes(since)) expect(gap && isGap(gap), since).toBe(true);
					if (!gap || !isGap(gap)) continue;
					// The gap's own id begins after it, as an answer and as an acknowledgement.
					expect(walk(gap.id, limit)).toEqual(found);
				}
			}
			await store.close();
		}),
		{ numRuns: 60 },
	);
});

test('a reader that comes after events made room gets a gap first, also a consumer that has acknowledged nothing [F601]', async () => {
	const few = { ...bounds, maxCount: 3 };
	start(few);
	await append('1');
	store.join('kiosk');
	for (const content of ['2', '3', '4', '5']) await append(content);
	for (const isRestarted of [false, true]) {
		if (isRestarted) await kill(few);
		for (const since of [null, store.positionOf('kiosk')])
			expect(walk(since, 10).map(({ type, content }) => [type, content].join(' '))).toEqual([
				`gap ${JSON.stringify({ from: null, to: AT })}`,
				...['3', '4', '5'].map((content) => `notification "${content}"`),
			]);
	}
	store.acknowledge('kiosk', store.newest() ?? '');
	await store.settled();
	expect(walk(null, 10), 'of what an application has processed nothing is missing').toEqual([]);
	store.forget('kiosk');
	await kill(few);
	expect(walk(null, 10), 'also when that application is gone').toEqual([]);
});

test('after 150 kills with unread events each of them comes once, and a place that a consumer remembers is still known [F461]', async () => {
	start();
	const ids: string[] = [];
	for (let number = 0; number < 130; number += 1) ids.push((await append()).id);
	store.acknowledge('slow', ids[4] ?? '');
	await store.settled();
	for (let kills = 0; kills < 150; kills += 1) {
		await kill();
		ids.push((await append()).id);
	}
	expect(walk(null, 100).map(({ id }) => id)).toEqual(ids.slice(5));
	expect(walk(store.positionOf('slow'), 100).map(({ id }) => id)).toEqual(ids.slice(5));
	for (const id of ids.slice(5)) expect(feed.after(id, 1).missed).toBeNull();
	// Nothing of the first runs is kept any more, but the consumer's place.
	await kill({ ...bounds, maxCount: 3 });
	ids.push((await append()).id);
	await kill({ ...bounds, maxCount: 3 });
	expect(store.positionOf('slow')).toBe(ids[4]);
	const [gap, ...rest] = walk(store.positionOf('slow'), 2);
	expect([gap?.type, ...rest.map(({ id }) => id)]).toEqual(['gap', ...ids.slice(-3)]);
});

test('an epoch is known while an event or a place of a consumer is in it, and as one of the newest 128', () => {
	const epochs = Array.from({ length: 300 }, (_, at) => ({ first: at * 10 + 1, epoch: `e${at}` }));
	const needed = (oldest: number, positions: readonly number[]) =>
		neededEpochs(epochs, oldest, positions).map(({ epoch }) => Number(epoch.slice(1)));
	const from = (first: number) => Array.from({ length: 300 - first }, (_, at) => first + at);
	expect(needed(2995, [])).toEqual(from(172));
	expect(needed(1000, [])).toEqual(from(99));
	expect(needed(1001, [])).toEqual(from(100));
	expect(needed(2995, [0, 11, 40, 41])).toEqual([1, 3, 4, ...from(172)]);
});

test('an id that is not known gets its gap also where nothing is kept, and the next event follows without another', async () => {
	start();
	const [gap] = walk('other-7', 10);
	expect(JSON.parse(gap?.content ?? '')).toMatchObject({ from: null });
	expect(walk('other-7', 10)).toHaveLength(1);
	expect(fs.readdirSync(directory), 'a look writes nothing').toEqual([]);
	const entry = await append();
	expect(walk(gap?.id ?? '', 10)).toEqual([{ ...entry }]);
	store.acknowledge('kiosk', entry.id);
	await store.settled();
	const [end] = walk('other-7', 10);
	expect([end?.type, end?.at]).toEqual(['gap', AT]);
	await kill();
	const next = await append();
	expect(walk(end?.id ?? '', 10).map(({ id }) => id)).toEqual([next.id]);
});

test('what is read at once is bounded by its size, and a reader that does not take it gets no more [F463]', async () => {
	start();
	for (let number = 0; number < 40; number += 1) await append('x'.repeat(60_000));
	const pieces = [...Array(8)].map((_, at) => store.after(at === 0 ? null : `run${run}-${at * 5}`).entries);
	expect(pieces.map((piece) => piece.length)).toEqual(Array(8).fill(5));
	for (const piece of pieces)
		expect(piece.slice(0, -1).reduce((sum, each) => sum + sizeOf(each), 0)).toBeLessThan(262_144);
	expect(readAll(store).entries).toHaveLength(40);
	const { sent, sink, taken } = recordingSink();
	const leave = streamEvents({ events: feed } as never, null, sink);
	for (let count = 2; count <= 40; count += 2) {
		await taken();
		expect(sent.join('').match(/^id: /gm)).toHaveLength(count);
	}
	leave();
});

test('what is read at once is bounded in bytes, also of characters that have several [F1177]', async () => {
	start();
	for (const character of ['x', 'é', '€', '😀']) {
		const bytes = Buffer.byteLength(character);
		const before = store.newest();
		for (let count = 0; count < 20; count += 1) await append(character.repeat(Math.floor(60_000 / bytes)));
		const { entries } = store.after(before);
		expect(entries).toHaveLength(5);
		expect(Buffer.byteLength(entries.map(({ content }) => content).join(''))).toBeGreaterThan(262_144);
	}
});

test('100 readers who come back at once share each reading, and lose nothing of what arrives meanwhile [F665]', async () => {
	start();
	for (let number = 0; number < 20; number += 1) await append('x'.repeat(40_000));
	const places: unknown[] = [];
	const counting = createEventsFeed(
		{
			...store,
			after(since, ...more) {
				places.push(since);
				return store.after(since, ...more);
			},
		},
		createCounters(),
	);
	const agent = { events: counting } as never;
	const readers = Array.from({ length: 100 }, () => {
		const got: string[] = [];
		const sink = {
			...{ send: () => true, close() {}, isBehind: false, drained: () => Promise.resolve() },
			sendAll: (...frames: Buffer[]) => got.push(frames.join('')) > 0,
			sendPart: () => false,
		};
		return { got, leave: streamEvents(agent, null, sink) };
	});
	await Promise.all(['y', 'z'].map(append));
	const ids = () => readers.map(({ got }) => got.join('').match(/(?<=^id: ).*/gm)?.length);
	await expect.poll(ids).toEqual(Array(100).fill(22));
	await append('y');
	expect(ids()).toEqual(Array(100).fill(23));
	for (const { leave } of readers) leave();
	// Who finds nothing more looks again alone, which costs nothing.
	const shared = [...new Set(places)].slice(0, -1).map((place) => places.filter((one) => one === place).length);
	expect(shared).toEqual(Array(11).fill(1));
});

test('before events are read for one reader the callers who wait are let in [F666]', async () => {
	start();
	await append();
	const server = createServer();
	let accepted = 0;
	server.on('connection', (socket) => {
		accepted += 1;
		socket.destroy();
	});
	const socketPath = path.join(directory, 'waiting.sock');
	await once(server.listen(socketPath), 'listening');
	const found = Promise.withResolvers<number>();
	const looking = createEventsFeed(
		{
			...store,
			after(...where) {
				found.resolve(accepted);
				return store.after(...where);
			},
		},
		createCounters(),
	);
	const callers = Array.from({ length: 12 }, () => connect(socketPath).on('error', () => {}));
	const leave = streamEvents({ events: looking } as never, null, recordingSink().sink);
	expect(await found.promise).toBe(12);
	leave();
	for (const caller of callers) caller.destroy();
	server.close();
});

test('a stream that would send again what it has sent ends with a reason [F464]', async () => {
	start();
	await append();
	const { sent, closed, sink, taken } = recordingSink();
	// A store that answers each id with the same events.
	const circling = createEventsFeed({ ...store, after: () => store.after(null) }, createCounters());
	streamEvents({ events: circling } as never, null, sink);
	await taken();
	await taken();
	expect([sent.length, closed]).toEqual([1, ['no-progress']]);
});

/** A reader that takes what it was sent when `taken` is called, which waits until it was sent something or the stream is over. */
function recordingSink() {
	const [sent, closed] = [[] as string[], [] as string[]];
	let [take, offered] = [() => {}, Promise.withResolvers<void>()];
	const sink = {
		send: () => true,
		sendAll: (frames: Buffer) => sent.push(frames.toString()) > 0,
		sendPart: () => false,
		close(reason = 'finished') {
			closed.push(reason);
			offered.resolve();
		},
		isBehind: false,
		drained() {
			if (sent.length === 0) return Promise.resolve();
			return new Promise<void>((resolve) => {
				take = resolve;
				offered.resolve();
			});
		},
	};
	const taken = async () => {
		take();
		await offered.promise;
		offered = Promise.withResolvers();
	};
	return { sent, closed, sink, taken };
}
