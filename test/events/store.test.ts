import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Failure } from '../../src/base/errors.ts';
import { MAX_CONSUMERS } from '../../src/events/consumers.ts';
import { ofSession } from '../../src/events/erasure.ts';
import type { Entry, Incoming } from '../../src/events/event.ts';
import { createEventStore, type DurableEventStore, type EventStoreOptions } from '../../src/events/store.edge.ts';
import { createEventBuffer } from '../../src/simulation/in-memory-stores.ts';
import { EIO } from '../base/lossy-files.ts';
import { linesOf, writerProcesses } from '../fixtures/writer-processes.ts';
import { readAll } from '../harness/read-all.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const WRITER = path.join(import.meta.dirname, 'event-store-writer.ts');
const DAY = 86_400_000;
const SECRET = 'passport-L01X00T47';

let directory: string;
let run = 0;
const stores = new Set<DurableEventStore>();
const writers = writerProcesses(WRITER);

beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'event-store-'));
});

afterEach(async () => {
	for (const store of stores) await store.close();
	stores.clear();
	vi.restoreAllMocks();
	await writers.killAll();
	fs.rmSync(directory, { recursive: true, force: true });
});

type Notices = [string, Failure | null][];

/** One run of the agent, with an epoch of its own. */
function open(options: Partial<EventStoreOptions> = {}): DurableEventStore & { notices: Notices } {
	const notices: Notices = [];
	run += 1;
	const store = createEventStore({
		directory,
		epoch: `run${run}`,
		bounds: { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: 7 * DAY },
		onNotice: (topic, notice) => notices.push([topic, notice]),
		...options,
	});
	stores.add(store);
	return Object.assign(store, { notices });
}

async function reopen(store: DurableEventStore, options: Partial<EventStoreOptions> = {}) {
	await store.close();
	return open(options);
}

const incoming = (content: string, more: Partial<Incoming> = {}): Incoming => ({
	at: '2026-11-21T05:00:00.000Z',
	type: 'notification',
	kind: 'session.started',
	workflowId: 'onboarding',
	format: 'json',
	content: JSON.stringify(content),
	serviceId: null,
	...more,
});

/** Appends and waits until all are stored. */
async function add(store: DurableEventStore, ...contents: string[]): Promise<string[]> {
	const ids = contents.map((content) => store.append(incoming(content))?.id ?? 'duplicate');
	await store.settled();
	return ids;
}

const all = (store: DurableEventStore, since: string | null = null) => readAll(store, since);
const contents = (entries: readonly Entry[]) => entries.map(({ content }) => JSON.parse(content));
const at = (name: string) => path.join(directory, name);
const filesWith = (text: string) =>
	fs.readdirSync(directory).filter((name) => fs.readFileSync(at(name)).includes(text));

describe('keeping events', () => {
	test('hands an event on only when it is stored, in order, with what came in', async () => {
		const store = open();
		const seen: Entry[] = [];
		store.subscribe((entries) => {
			seen.push(...entries);
			expect(all(store).entries.at(-1)?.number).toBeGreaterThanOrEqual(entries.at(-1)?.number ?? Infinity);
		});
		const first = store.append(incoming('a', { serviceId: 's1' }));
		store.append(incoming('b', { format: 'text', workflowId: null }));
		expect(seen).toEqual([]);
		expect(store.newest()).toBeNull();
		await store.settled();
		expect(seen[0]).toEqual(first);
		expect(all(store).entries).toEqual(seen);
		expect(store.newest()).toBe(seen[1]?.id);
		expect(first?.id).toMatch(/^run\d+-1$/);
	});

	test('what is read while the disk falls behind is not handed on once more [F1345]', async () => {
		const store = open({ bounds: { maxCount: 1000, maxBytes: 1e8, maxAgeMs: DAY } });
		const long = 'x'.repeat(40_000);
		while (store.notices.length === 0) store.append(incoming(long));
		const read = all(store).entries.at(-1)?.number;
		const seen: number[] = [];
		store.subscribe((entries) => seen.push(...entries.map(({ number }) => number)));
		const next = store.append(incoming('next'))?.number;
		await store.settled();
		expect([read, seen]).toEqual([(next ?? 0) - 1, [next]]);
	});

	test('what waits for the disk is bounded: beyond that events are handed on from memory, with a warning, until it has caught up', async () => {
		const store = open({ bounds: { maxCount: 1000, maxBytes: 1e8, maxAgeMs: DAY } });
		const long = 'x'.repeat(40_000);
		for (let number = 0; number < 300; number += 1) store.append(incoming(long));
		expect(all(store).entries.length).toBeGreaterThan(100);
		expect(store.notices).toMatchObject([['events', { code: 'state-unwritable' }]]);
		await store.recover();
		expect(store.notices.at(-1)).toEqual(['events', null]);
		expect(all(await reopen(store, { bounds: { maxCount: 1000, maxBytes: 1e8, maxAgeMs: DAY } })).entries).toHaveLength(
			300,
		);
	});

	test('a later run has the events under their old ids and goes on with the numbers under a new epoch', async () => {
		const before = open();
		const ids = await add(before, 'a', 'b');
		const after = await reopen(before);
		expect(all(after).entries.map(({ id }) => id)).toEqual(ids);
		expect(all(after, ids[0])).toMatchObject({ missed: false, entries: [{ id: ids[1] }] });
		const [next = ''] = await add(after, 'c');
		expect(next).toMatch(/-3$/);
		expect(next.split('-')[0]).not.toBe(ids[0]?.split('-')[0]);
		expect(contents(all(after).entries)).toEqual(['a', 'b', 'c']);
		expect(all(after, ids[1])).toMatchObject({ missed: false, entries: [{ id: next }] });
	});

	test('a reader ahead of a store that lost the newest events goes on with those of the next run, and gets none again [F433]', async () => {
		const before = open();
		const [, id = ''] = await add(before, 'a', 'b');
		const after = await reopen(before);
		const lost = id.replace(/2$/, '4');
		expect(all(after, lost)).toEqual({ missed: false, entries: [] });
		expect(after.acknowledge('kiosk', lost)).toBe(true);
		expect(after.positionOf('kiosk')).toBe(id);
		const [next = ''] = await add(after, 'c', 'd', 'e');
		expect(all(after, lost)).toMatchObject({ missed: false, entries: [{ id: next }, {}, {}] });
		expect(all(after, next.replace(/3$/, '9'))).toMatchObject({ missed: true });
		expect(after.acknowledge('kiosk', next.replace(/3$/, '9'))).toBe(false);
	});

	test('the place before the first event of a run can be named, as a gap before it is', async () => {
		const before = open();
		const [old = ''] = await add(before, 'a');
		const after = await reopen(before);
		const [id = ''] = await add(after, 'b');
		expect(all(after, id.replace(/2$/, '1'))).toMatchObject({ missed: false, entries: [{ id }] });
		expect(all(after, old.replace(/1$/, '0'))).toMatchObject({ missed: false, entries: [{ id: old }, { id }] });
	});

	test('drops duplicates by the id of the service, also after a restart and after the event is gone', async () => {
		let store = open({ bounds: { maxCount: 1, maxBytes: 1e6, maxAgeMs: DAY } });
		store.append(incoming('a', { serviceId: 's1' }));
		expect(store.append(incoming('a', { serviceId: 's1' }))).toBeNull();
		await add(store, 'b');
		store = await reopen(store);
		expect(store.append(incoming('a', { serviceId: 's1' }))).toBeNull();
		expect(contents(all(store).entries)).toEqual(['b']);
	});

	test('two messages are the same only if id, kind and content are; while channels overlap, id and kind', async () => {
		let store = open();
		const isNew = (content: string, kind: string, overlaps = false) =>
			store.append(incoming(content, { serviceId: 's1', kind }), overlaps) !== null;
		expect([isNew('a', 'one'), isNew('b', 'one'), isNew('a', 'two')]).toEqual([true, true, true]);
		await store.settled();
		for (let restarts = 0; restarts < 2; restarts += 1) {
			expect([isNew('a', 'one'), isNew('b', 'one'), isNew('a', 'two')]).toEqual([false, false, false]);
			expect([isNew('c', 'one', true), isNew('c', 'two', true)]).toEqual([false, false]);
			store = await reopen(store);
		}
		expect([isNew('c', 'three', true), isNew('c', 'one')]).toEqual([true, true]);
	});

	test('behaves as the inbox in memory does, whatever happens', async () => {
		const step = fc.oneof(
			fc.record({ type: fc.constant('append'), size: fc.nat(300), id: fc.option(fc.nat(40)) }),
			fc.record({ type: fc.constant('read'), back: fc.nat(30), limit: fc.integer({ min: 1, max: 20 }) }),
			fc.record({ type: fc.constant('restart') }),
		);
		await fc.assert(
			fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
				fs.rmSync(directory, { recursive: true });
				fs.mkdirSync(directory);
				const bounds = { maxCount: 12, maxBytes: 1e6, maxAgeMs: DAY };
				const model = createEventBuffer('m', bounds);
				let store = open({ bounds });
				const ids = new Map<string, string>();
				for (const one of steps) {
					if (one.type === 'restart') store = await reopen(store, { bounds });
					else if ('size' in one) {
						const event = incoming('x'.repeat(one.size), { serviceId: one.id === null ? null : `s${one.id}` });
						const expected = model.append(event);
						const entry = store.append(event);
						expect(entry?.number).toBe(expected?.number);
						if (entry && expected) ids.set(expected.id, entry.id);
						await store.settled();
					} else if ('back' in one) {
						const since = [...ids.keys()].at(-one.back - 1) ?? null;
						const expected = model.after(since, one.limit);
						const found = store.after(since === null ? null : (ids.get(since) ?? ''), one.limit);
						expect(found.entries.map(({ id }) => id)).toEqual(expected.entries.map(({ id }) => ids.get(id)));
						expect(found.missed !== null).toBe(expected.missed !== null);
					}
					expect(store.count).toBe(model.count);
				}
				await store.close();
				stores.delete(store);
			}),
			{ numRuns: 30 },
		);
	});
});

describe('kept in memory only', () => {
	const memory = { durable: false } as const;

	test('behaves as the inbox does, and leaves nothing on the disk', async () => {
		const step = fc.record({ size: fc.nat(300), id: fc.option(fc.nat(40)), back: fc.nat(30) });
		await fc.assert(
			fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
				const bounds = { maxCount: 12, maxBytes: 1e6, maxAgeMs: DAY };
				const store = open({ ...memory, bounds });
				const model = createEventBuffer(`run${run}`, bounds);
				for (const { size, id, back } of steps) {
					const event = incoming('x'.repeat(size), { serviceId: id === null ? null : `s${id}` });
					expect(store.append(event)).toEqual(model.append(event));
					await store.settled();
					const since = model.after(null, 100).entries.at(-back - 1)?.id ?? null;
					expect(store.after(since, 5)).toEqual(model.after(since, 5));
					expect([store.count, store.newest()]).toEqual([model.count, model.newest()]);
				}
				await store.close();
				stores.delete(store);
			}),
			{ numRuns: 30 },
		);
		expect(fs.readdirSync(directory)).toEqual([]);
	});

	test('a consumer gets again what it has not acknowledged, and what all have acknowledged goes', async () => {
		const store = open(memory);
		store.join('kiosk');
		const ids = await add(store, 'a', 'b', 'c');
		store.acknowledge('kiosk', ids[1] ?? '');
		await store.settled();
		expect(store.positionOf('kiosk')).toBe(ids[1]);
		expect(contents(all(store).entries)).toEqual(['c']);
		expect(await store.recover()).toBe(false);
		expect(store.notices).toEqual([]);
	});

	test('what an earlier run has left on the disk is taken over, under the same ids, and deleted there', async () => {
		const before = open();
		before.join('kiosk');
		const ids = await add(before, SECRET, 'b');
		before.acknowledge('kiosk', ids[0] ?? '');
		fs.writeFileSync(at('events.db.corrupt-2026-11-20T00:00:00.000Z'), SECRET);
		const after = await reopen(before, memory);
		expect(all(after).entries.map(({ id }) => id)).toEqual(ids.slice(1));
		expect(after.positionOf('kiosk')).toBe(ids[0]);
		expect(fs.readdirSync(directory)).toEqual([]);
		const [next = ''] = await add(after, 'c');
		expect(next).toMatch(/-3$/);
		expect(all(after, ids[1])).toMatchObject({ missed: false, entries: [{ id: next }] });
	});

	test('a damaged file is deleted as well', async () => {
		fs.writeFileSync(at('events.db'), 'no database'.repeat(1000));
		const store = open(memory);
		expect(await add(store, 'a')).toHaveLength(1);
		expect(fs.readdirSync(directory)).toEqual([]);
	});
});

describe('what stays on the disk', () => {
	test('nothing is made before the first event, and looking writes nothing', async () => {
		const idle = open();
		expect([all(idle).entries, idle.newest(), idle.count, idle.consumers()]).toEqual([[], null, 0, []]);
		await idle.close();
		expect(fs.readdirSync(directory)).toEqual([]);

		const store = open();
		await add(store, 'a');
		store.join('kiosk');
		await store.settled();
		const before = fs.readdirSync(directory).map((name) => [name, fs.statSync(at(name), { bigint: true }).mtimeNs]);
		all(store);
		store.newest();
		store.positionOf('kiosk');
		store.join('kiosk');
		await store.settled();
		expect(fs.readdirSync(directory).map((name) => [name, fs.statSync(at(name), { bigint: true }).mtimeNs])).toEqual(
			before,
		);
	});

	test('is readable for its owner only', async () => {
		await add(open(), 'a');
		expect(fs.readdirSync(directory).map((name) => fs.statSync(at(name)).mode & 0o777)).toEqual([0o600]);
	});

	test('contents are in no file any more soon after all consumers have acknowledged them', async () => {
		const store = open({ cleanAfterMs: 1 });
		store.join('kiosk');
		store.join('printer');
		const ids = await add(store, SECRET, `${SECRET} ${'long '.repeat(5000)}`, 'the next one');
		store.acknowledge('kiosk', ids[1] ?? '');
		await store.settled();
		expect(filesWith(SECRET)).not.toEqual([]);

		const watcher = fs.watch(directory);
		store.acknowledge('printer', ids[1] ?? '');
		while (filesWith(SECRET).length > 0) await once(watcher, 'change');
		watcher.close();
		expect(contents(all(store).entries)).toEqual(['the next one']);
		expect(all(store, ids[1])).toMatchObject({ missed: false });
		expect(all(store, ids[0])).toMatchObject({ missed: true });
	});

	test('contents are in no file any more soon after they are too old, without any further event', async () => {
		const store = open({ cleanAfterMs: 1, bounds: { maxCount: 10, maxBytes: 1e6, maxAgeMs: 50 } });
		const watcher = fs.watch(directory);
		await add(store, SECRET);
		while (store.count > 0 || filesWith(SECRET).length > 0) await once(watcher, 'change');
		watcher.close();
		expect(all(store).entries).toEqual([]);
		expect(store.newest()).toMatch(/-1$/);
	});

	test('a clock that is set while events are kept makes none of them older', async () => {
		let wall = 5000;
		let monotonic = 0;
		const clock = { wallMs: () => wall, monotonicMs: () => monotonic };
		let store = open(clock);
		await add(store, 'kept in 1970');
		wall = Date.UTC(2026, 10, 21);
		monotonic += 60_000;
		await add(store, 'after the clock was set');
		expect(store.count).toBe(2);
		wall += 6 * DAY;
		monotonic += 6 * DAY;
		await add(store, 'six days later');
		expect(store.count).toBe(3);
		wall += 2 * DAY;
		monotonic += 2 * DAY;
		await add(store, 'another two days later');
		expect(contents(all(store).entries)).toEqual(['six days later', 'another two days later']);

		wall = 6000;
		store = await reopen(store, clock);
		await add(store, 'in 1970 again');
		wall = Date.UTC(2026, 10, 30);
		store = await reopen(store, clock);
		await add(store, 'and set before the start');
		expect(contents(all(store).entries)).toContain('in 1970 again');
	});

	describe('over a start whose clock may be wrong', () => {
		const RIGHT = Date.UTC(2026, 10, 21);
		const now = { wall: RIGHT, monotonic: 0 };
		const clock = { wallMs: () => now.wall, monotonicMs: () => now.monotonic, believesClock: false };
		const kept = (store: DurableEventStore) => contents(all(store).entries);
		beforeEach(() => Object.assign(now, { wall: RIGHT, monotonic: 0 }));
		/** One event of a minute ago, and a start with a clock that is so far ahead. */
		async function givenAhead(ms: number) {
			const before = open(clock);
			await add(before, 'unread');
			return later(before, 60_000 + ms);
		}
		/** A start after so long without an agent, by the clock. */
		async function later(before: DurableEventStore, ms: number, options: Partial<EventStoreOptions> = clock) {
			await before.close();
			now.wall += ms;
			return open(options);
		}

		test.each(['the service has told the time', 'the clock was set'])(
			'events are as old as they are, and in the runs that follow, once %s [F1384]',
			async (how) => {
				const ahead = 365 * DAY;
				let store = await givenAhead(ahead);
				await add(store, 'of the wrong clock');
				const setRight = () => {
					now.wall -= ahead;
					store.lookAtClock(null);
				};
				if (how === 'the clock was set') setRight();
				store.lookAtClock(now.wall - RIGHT - 60_000);
				await add(store, 'once it was told');
				if (how !== 'the clock was set') setRight();
				const three = ['unread', 'of the wrong clock', 'once it was told'];
				expect(kept(store)).toEqual(three);
				store = await reopen(store, clock);
				store.lookAtClock(0);
				expect(kept(store)).toEqual(three);
				store = await later(store, 8 * DAY);
				expect(kept(store)).toEqual(three);
				store.lookAtClock(0);
				expect(kept(store)).toEqual([]);
			},
		);

		test('a service whose clock is months ahead makes no event older [F1384]', async () => {
			const store = await givenAhead(0);
			store.lookAtClock(-300 * DAY);
			expect(kept(store)).toEqual(['unread']);
		});

		test('events that came before the clock was set forward are no older, also if the agent ends at once [F1385]', async () => {
			now.wall = RIGHT - 8 * DAY;
			const before = open(clock);
			await add(before, 'unread');
			now.wall = RIGHT;
			const store = await reopen(before, clock);
			store.lookAtClock(0);
			expect(kept(store)).toEqual(['unread']);
		});

		test.each([-8 * DAY, -400 * DAY, 9 * DAY])(
			'a clock that is set by %i ms while the agent runs, and is right again at a start, makes no event older [F1393]',
			async (ms) => {
				let store = open(clock);
				store.lookAtClock(0);
				await add(store, 'before');
				now.wall += ms;
				store.lookAtClock(null);
				await add(store, 'meanwhile');
				store = await later(store, -ms);
				store.lookAtClock(0);
				await add(store, 'right again');
				expect(kept(store)).toEqual(['before', 'meanwhile', 'right again']);
				store = await later(store, 6 * DAY);
				store.lookAtClock(0);
				expect(kept(store)).toEqual(['before', 'meanwhile', 'right again']);
				store = await later(store, 8 * DAY);
				store.lookAtClock(0);
				expect(kept(store)).toEqual([]);
			},
		);

		test.each([0, 9 * DAY])(
			'a start %i ms ahead after a run that was behind makes no event older [F1393]',
			async (ahead) => {
				now.wall = RIGHT - 8 * DAY;
				let store = open(clock);
				store.lookAtClock(-8 * DAY);
				await add(store, 'behind');
				store = await later(store, 8 * DAY + ahead);
				store.lookAtClock(ahead);
				expect(kept(store)).toEqual(['behind']);
				store = await later(store, 7 * DAY);
				store.lookAtClock(ahead);
				expect(kept(store)).toEqual([]);
			},
		);

		test('the clock is believed after ten minutes in which neither has happened [F1384]', async () => {
			const stepped = createSteppedClock();
			const before = open(clock);
			await add(before, 'unread');
			const wallMs = () => now.wall + stepped.monotonicMs();
			const store = await later(before, 8 * DAY, { ...stepped, wallMs, believesClock: false });
			expect(kept(store)).toEqual(['unread']);
			stepped.advance(9 * 60_000);
			expect(kept(store)).toEqual(['unread']);
			stepped.advance(60_000);
			expect(kept(store)).toEqual([]);
		});
	});
});

describe('consumers', () => {
	test.each([true, false])(
		'leave behind when the newest event came, when all have dealt with everything (durable: %s)',
		async (durable) => {
			const store = open({ durable });
			expect(store.newestAt()).toBeNull();
			store.join('kiosk');
			store.append(incoming('a', { at: '2026-11-21T05:00:00.123Z' }));
			const last = store.append(incoming('b', { at: '2026-11-21T05:00:01.457Z' }));
			await store.settled();
			expect(store.newestAt()).toBe('2026-11-21T05:00:01.457Z');
			store.acknowledge('kiosk', last?.id ?? '');
			await store.settled();
			expect(store.count).toBe(0);
			expect(store.newestAt()).toBe('2026-11-21T05:00:01.457Z');
			if (durable) expect((await reopen(store)).newestAt()).toBe('2026-11-21T05:00:01.457Z');
		},
	);

	test('what was not acknowledged is delivered again after a restart', async () => {
		let store = open();
		store.join('kiosk');
		expect(store.positionOf('kiosk')).toBeNull();
		const ids = await add(store, 'a', 'b', 'c');
		expect(store.acknowledge('kiosk', ids[0] ?? '')).toBe(true);
		await store.settled();
		store = await reopen(store);
		expect(store.positionOf('kiosk')).toBe(ids[0]);
		expect(contents(all(store, store.positionOf('kiosk')).entries)).toEqual(['b', 'c']);
		expect(store.consumers()).toMatchObject([{ name: 'kiosk', position: ids[0] }]);
	});

	test('a position never goes back and never beyond what is stored', async () => {
		const store = open();
		const ids = await add(store, 'a', 'b');
		store.acknowledge('kiosk', ids[1] ?? '');
		expect(store.acknowledge('kiosk', ids[0] ?? '')).toBe(true);
		expect(store.positionOf('kiosk')).toBe(ids[1]);
		expect(store.acknowledge('kiosk', ids[1]?.replace(/2$/, '3') ?? '')).toBe(false);
		expect(store.acknowledge('kiosk', 'nonsense')).toBe(false);
		expect(store.positionOf('kiosk')).toBe(ids[1]);
	});

	test('a mistaken acknowledgement makes no consumer that contents would be kept for', async () => {
		const store = open();
		const ids = await add(store, 'a');
		expect(store.acknowledge('mistaken', 'nonsense-1')).toBe(false);
		store.acknowledge('kiosk', ids[0] ?? '');
		await store.settled();
		expect(store.consumers().map(({ name }) => name)).toEqual(['kiosk']);
		expect(store.count).toBe(0);
	});

	test('one that is gone for good keeps contents until it is forgotten', async () => {
		const store = open();
		store.join('gone');
		const ids = await add(store, 'a', 'b');
		store.acknowledge('kiosk', ids[1] ?? '');
		await store.settled();
		expect(store.count).toBe(2);
		expect(store.forget('gone')).toBe(true);
		expect(store.forget('gone')).toBe(false);
		await store.settled();
		expect(store.count).toBe(0);
	});

	test('names and their number are bounded; one that was silent for the retention time makes room', () => {
		let wall = Date.UTC(2026, 10, 21);
		const store = open({ wallMs: () => wall });
		for (const name of ['', 'a/b', 'ü', 'x'.repeat(65)])
			expect(() => store.join(name)).toThrow(/name of a consumer is not valid/);
		for (let number = 0; number < MAX_CONSUMERS; number += 1) {
			store.join(`c${number}`);
			wall += 1000;
		}
		expect(() => store.join('one-more')).toThrow(`${MAX_CONSUMERS} consumers already`);
		wall += 7 * DAY;
		store.join('one-more');
		expect(store.consumers().map(({ name }) => name)).not.toContain('c0');
	});
});

describe('a disk that fails', () => {
	test('a directory that is missing: kept in memory, said so, and stored under the same ids when it is there', async () => {
		fs.rmSync(directory, { recursive: true });
		const store = open();
		const seen: string[] = [];
		store.subscribe((entries) => seen.push(...entries.map(({ id }) => id)));
		const ids = await add(store, 'a', 'b');
		expect(seen).toEqual(ids);
		expect(store.notices).toMatchObject([['events', { code: 'state-unwritable' }]]);
		expect(await store.recover()).toBe(false);

		fs.mkdirSync(directory);
		expect(await store.recover()).toBe(true);
		expect(store.notices.at(-1)).toEqual(['events', null]);
		ids.push(...(await add(store, 'c')));
		const later = await reopen(store);
		expect(all(later).entries.map(({ id }) => id)).toEqual(ids);
	});

	test.each(['before', 'after'])(
		'events are as old as before when the clock is set %s the disk fails',
		async (when) => {
			let [wall, monotonic] = [Date.UTC(2026, 9, 1), 0];
			const clock = { wallMs: () => wall, monotonicMs: () => monotonic, recoverEveryMs: DAY };
			const before = open(clock);
			await add(before, 'a');
			const store = await reopen(before, clock);
			const { write } = fs;
			let isBroken = true;
			const addWithoutDisk = () => {
				vi.spyOn(fs, 'write').mockImplementation(((...given: Parameters<typeof write>) =>
					isBroken ? (given.at(-1) as (error: Error) => void)(EIO) : write(...given)) as never);
				return add(store, 'b');
			};
			const setClock = () => ([wall, monotonic] = [wall + 30 * DAY, monotonic + 60_000]);
			expect(store.count).toBe(1);
			if (when === 'after') await addWithoutDisk();
			setClock();
			if (when === 'before') await addWithoutDisk();
			await add(store, 'c');
			expect(store.notices).toMatchObject([['events', { code: 'state-unwritable' }]]);
			isBroken = false;
			expect(await store.recover()).toBe(true);
			await add(store, 'd');
			expect(contents(all(store).entries)).toEqual(['a', 'b', 'c', 'd']);
		},
	);

	test('it is tried again by itself', async () => {
		fs.rmSync(directory, { recursive: true });
		const back = Promise.withResolvers<void>();
		const store = open({
			recoverEveryMs: 1,
			onNotice: (_topic, notice) => {
				if (notice === null) back.resolve();
			},
		});
		await add(store, 'a');
		fs.mkdirSync(directory);
		await back.promise;
		expect(fs.readdirSync(directory)).toHaveLength(1);
		expect(store.count).toBe(1);
	});

	test('a file that could not be opened at the start comes before what arrived meanwhile', async () => {
		const before = open();
		const ids = await add(before, 'a', 'b');
		await before.close();
		const [name = ''] = fs.readdirSync(directory);
		fs.renameSync(at(name), at('elsewhere'));
		fs.mkdirSync(at(name));
		const store = open();
		ids.push(...(await add(store, 'c', 'd')));
		expect(store.notices).toMatchObject([
			[
				'events-damaged',
				{ code: 'state-corrupt', message: expect.stringContaining(`${name}: there is a directory in its place`) },
			],
		]);
		expect(all(store, ids[1])).toMatchObject({ missed: true });
		await store.close();
		fs.rmdirSync(at(name));
		fs.renameSync(at('elsewhere'), at(name));
		const later = open();
		expect(all(later).entries.map(({ id }) => id)).toEqual(ids);
		expect(contents(all(later, ids[0]).entries)).toEqual(['b', 'c', 'd']);
	});

	test('an erasure takes along what was put in the place of a file, or beside it, while the agent ran [F1799]', async () => {
		const store = open();
		await add(store, 'visit-1');
		const [name = ''] = fs.readdirSync(directory);
		const older = fs.readFileSync(at(name));
		await add(store, 'visit-2');
		fs.writeFileSync(at('older'), older);
		fs.renameSync(at('older'), at(name));
		fs.writeFileSync(at(name.replace(/-\d{8}-/, '-00000009-')), older);
		expect(await store.erase(ofSession('visit-1'))).toBe(1);
		expect(filesWith('visit-1')).toEqual([]);
		await store.close();
		expect(contents(all(open()).entries)).not.toContain('visit-1');
	});

	test('an erasure says so where what was put among the files cannot be removed [F1806]', async () => {
		const store = open();
		await add(store, 'visit-1');
		const [name = ''] = fs.readdirSync(directory);
		fs.copyFileSync(at(name), at(name.replace(/-\d{8}-/, '-00000009-')));
		const denied = Object.assign(new Error('EPERM: operation not permitted, unlink'), { code: 'EPERM' });
		const unlink = vi.spyOn(fs, 'unlinkSync').mockImplementation(() => {
			throw denied;
		});
		await expect(store.erase(ofSession('visit-1'))).rejects.toMatchObject({ code: 'state-unwritable' });
		unlink.mockRestore();
		await store.erase(ofSession('visit-1'));
		expect(filesWith('visit-1')).toEqual([]);
	});

	test('an erasure takes the contents of a copied file along, which no later start serves [F1798]', async () => {
		const before = open();
		await add(before, 'visit-1', 'visit-2');
		await before.close();
		const [name = ''] = fs.readdirSync(directory);
		fs.copyFileSync(at(name), at(name.replace(/-\d{8}-/, '-00000007-')));
		const store = open();
		expect(await store.erase(ofSession('visit-1'))).toBe(1);
		expect(filesWith('visit-1')).toEqual([]);
		await store.close();
		expect(contents(all(open()).entries)).toEqual(['visit-2']);
	});

	test('an erasure that nothing matches needs no disk, and one that failed is not forgotten [F788]', async () => {
		const store = open({ schedule: () => () => {} });
		await add(store, 'visit-1', 'visit-2');
		const full = Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' });
		const broken = vi
			.spyOn(fs, 'write')
			.mockImplementation(((...given: unknown[]) => (given.at(-1) as (error: Error) => void)(full)) as typeof fs.write);
		expect(await store.erase(ofSession('visit-3'))).toBe(0);
		const why = `Events cannot be erased in ${directory}: the disk is full (ENOSPC).`;
		for (const [erased, more] of [
			[1, ' No application gets the 1 that were meant; on the disk they may still be.'],
			[0, ''],
		])
			await expect(store.erase(ofSession('visit-1'))).rejects.toMatchObject({
				code: 'state-unwritable',
				message: `${why}${more}`,
				failure: { params: { erased } },
			});
		broken.mockRestore();
		expect(await store.erase(ofSession('visit-1'))).toBe(0);
		expect([filesWith('visit-1'), filesWith('visit-2').length]).toEqual([[], 1]);
	});

	test.runIf(process.geteuid?.() === 0)(
		'on a disk without a free byte acknowledged contents are erased in time, and no start hands them on again (needs root) [F850]',
		async () => {
			execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k,mode=0700', 'tmpfs', directory]);
			try {
				const clock = createSteppedClock();
				const store = open(clock);
				store.join('kiosk');
				await add(store, `${SECRET} one`);
				const bytes = () => fs.statSync(at(fs.readdirSync(directory)[0] ?? '')).size;
				const [before, ids] = [bytes(), await add(store, `${SECRET} two`)];
				const next = 2 * bytes() - before;
				await add(store, 'three'.padEnd(SECRET.length + 4 + ((4096 - (next % 4096)) % 4096)));
				expect(bytes() % 4096).toBe(0);
				const filler = fs.openSync(at('filler'), 'w');
				expect(() => {
					for (;;) fs.writeSync(filler, Buffer.alloc(1024));
				}).toThrow('ENOSPC');
				fs.closeSync(filler);
				expect(store.acknowledge('kiosk', ids.at(-1) ?? '')).toBe(true);
				await store.settled();
				clock.advance(30_000);
				await vi.waitUntil(() => filesWith(SECRET).length === 0);
				// What a kill leaves.
				const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'event-store-'));
				onTestFinished(() => fs.rmSync(copy, { recursive: true }));
				for (const name of fs.readdirSync(directory).filter((each) => each !== 'filler'))
					fs.copyFileSync(at(name), path.join(copy, name));
				const { entries } = all(open({ directory: copy }));
				expect(contents(entries).map((content) => String(content).trim())).toEqual(['three']);
			} finally {
				execFileSync('umount', ['-l', directory]);
			}
		},
	);

	test.runIf(process.geteuid?.() === 0)(
		'on a full disk hundreds of acknowledgements are on it within a second, and are erased together (needs root) [F1293]',
		async () => {
			execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=0700', 'tmpfs', directory]);
			try {
				const clock = createSteppedClock();
				const store = open(clock);
				store.join('kiosk');
				const ids = await add(store, ...Array.from({ length: 900 }, (_, index) => `${SECRET} ${index}`), 'the last');
				const filler = fs.openSync(at('filler'), 'w');
				expect(() => {
					for (;;) fs.writeSync(filler, Buffer.alloc(1024));
				}).toThrow('ENOSPC');
				fs.closeSync(filler);
				const flushes = vi.spyOn(fs, 'fdatasync');
				for (const id of ids.slice(0, -1)) expect(store.acknowledge('kiosk', id)).toBe(true);
				await vi.waitUntil(() => store.notices.length > 0);
				clock.advance(1000);
				await vi.waitUntil(() => filesWith(SECRET).length === 0);
				expect(flushes.mock.calls.length).toBeLessThan(10);
				flushes.mockRestore();
				// What a kill leaves.
				const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'event-store-'));
				onTestFinished(() => fs.rmSync(copy, { recursive: true }));
				for (const name of fs.readdirSync(directory).filter((each) => each !== 'filler'))
					fs.copyFileSync(at(name), path.join(copy, name));
				expect(contents(all(open({ directory: copy })).entries)).toEqual(['the last']);
				// Nothing is left to erase: the disk is only tried again in its time.
				const timers = clock.pending;
				clock.advance(5000);
				expect(clock.pending).toBe(timers);
			} finally {
				execFileSync('umount', ['-l', directory]);
			}
		},
	);

	test('ruined files are told by their names, the newest as well [F783]', async () => {
		for (const count of [1, 2]) {
			if (count === 1) {
				const before = open();
				await add(before, 'a', 'b');
				await before.close();
			}
			const files = fs.readdirSync(directory);
			expect(files).toHaveLength(count);
			for (const file of files) fs.writeFileSync(at(file), Buffer.alloc(fs.statSync(at(file)).size));
			const store = open();
			expect(contents(all(store).entries.filter(({ type }) => type !== 'gap'))).toEqual([]);
			const [told, ...others] = store.notices;
			expect([told?.[0], told?.[1]?.code, others]).toEqual(['events-damaged', 'state-corrupt', []]);
			for (const file of files) expect(told?.[1]?.message).toContain(file);
			await add(store, 'c');
			await store.close();
		}
	});

	test('one damaged record is told, and is one gap at its place: in pages, from every place, and by its own id [F515]', async () => {
		let store = open();
		const ids = await add(store, 'a', 'b', 'c', 'd');
		const [name = ''] = fs.readdirSync(directory);
		const bytes = fs.readFileSync(at(name));
		bytes.writeUInt8(0x78, bytes.indexOf('"c"') + 1);
		fs.writeFileSync(at(name), bytes);
		for (const isRestarted of [false, true]) {
			if (isRestarted) store = await reopen(store);
			const one = store;
			const { entries } = all(one);
			expect(entries.map(({ id }) => id)).toEqual(ids);
			expect(entries.map(({ type, content }) => (type === 'gap' ? 'gap' : JSON.parse(content)))).toEqual([
				'a',
				'b',
				'gap',
				'd',
			]);
			expect(Object.keys(JSON.parse(entries[2]?.content ?? ''))).toEqual(['from', 'to']);
			// A content is looked at when it is read.
			expect(one.notices).toMatchObject([['events-damaged', { code: 'state-corrupt' }]]);
			expect(all(one, ids[2]).entries.map(({ id }) => id)).toEqual(ids.slice(3));
		}
	});

	test('a header with damage costs one event, and the warning ends when the file is gone', async () => {
		const bounds = { maxCount: 1000, maxBytes: 65_536, maxAgeMs: DAY };
		const before = open({ bounds });
		const ids = await add(before, 'a', 'b', 'c');
		await before.close();
		const [name = ''] = fs.readdirSync(directory);
		const bytes = fs.readFileSync(at(name));
		bytes.writeUInt8(0x78, bytes.lastIndexOf('["run', bytes.indexOf('"b"')) - 50);
		fs.writeFileSync(at(name), bytes);
		const store = open({ bounds, cleanAfterMs: 0 });
		expect(all(store).entries.filter(({ type }) => type === 'gap').length).toBeLessThan(2);
		expect(store.notices).toMatchObject([['events-damaged', { code: 'state-corrupt' }]]);
		for (let count = 0; count < 100 && store.notices.at(-1)?.[1] !== null; count += 1) {
			await add(store, 'x'.repeat(2000));
			store.acknowledge('kiosk', store.newest() ?? '');
		}
		expect(store.notices.at(-1)).toEqual(['events-damaged', null]);
		expect(ids).toHaveLength(3);
	});

	test.each([0, 1, 2, 3])(
		'a content that is in a file twice, or in two files, costs no event, old or new, and is told (%i) [F1344]',
		async (kind) => {
			const bounds = { maxCount: 500, maxBytes: 400_000, maxAgeMs: DAY };
			const before = open({ bounds });
			const texts = Array.from({ length: 495 }, (_, index) => `${index}${'x'.repeat(300)}`);
			await add(before, ...texts);
			for (const text of texts.slice(0, 200)) await add(before, text.slice(0, 9));
			const kept = contents(all(before).entries);
			await before.close();
			const names = fs.readdirSync(directory).sort();
			const [name = ''] = names.slice(kind > 1 ? -1 : 1);
			const copied = fs.readFileSync(at(name));
			const moved = name.replace(/-\d{8}-/, (found) => found.replace(/\d+/, '00000099'));
			if (kind % 2 === 0) fs.appendFileSync(at(name), copied);
			else fs.writeFileSync(at(moved), copied);
			const store = open({ bounds });
			const found = contents(all(store).entries.filter(({ type }) => type !== 'gap'));
			expect([found, store.count]).toEqual([kept, 500]);
			expect(store.notices).toMatchObject([['events-damaged', { code: 'state-corrupt' }]]);
			await add(store, 'new', 'newer');
			const later = contents(all(store).entries.filter(({ type }) => type !== 'gap'));
			expect(later.slice(-3)).toEqual([kept.at(-1), 'new', 'newer']);
		},
	);

	test('a full disk: everything goes on in memory, and to the disk when there is room', async () => {
		const child = writers.start(['limited', directory, '0', 'full'], 6);
		const said: string[] = [];
		for await (const line of linesOf(child)) {
			said.push(line);
			if (line !== 'full') continue;
			execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited']);
			child.stdin?.write('go on\n');
		}
		const stored = said.filter((line) => line.startsWith('stored')).map((line) => line.split(' ')[1]);
		expect(said).toContain('notice events state-unwritable');
		expect(said.slice(-2)).toEqual(['notice events over', 'recovered true']);
		expect(stored).toHaveLength(40);
		const store = open({ bounds: { maxCount: 1000, maxBytes: 1e7, maxAgeMs: DAY } });
		expect(all(store).entries.map(({ id }) => id)).toEqual(stored);
	});
});

describe('killed at any moment', () => {
	/** `EVENT_STORE_KILLS=50` for the whole test; a shorter one by default. */
	const kills = Number(process.env['EVENT_STORE_KILLS'] ?? 12);

	test('every event that was handed on is there, in order, and none under a second id', async () => {
		const reported: string[] = [];
		const perRun = Math.ceil(10_000 / kills);
		for (let life = 0; life < kills; life += 1) {
			const child = writers.start(['append', directory, String(life * 1_000_000), `life${life}`]);
			const patience = 1 + Math.floor(Math.random() * perRun * 2);
			let heard = 0;
			let last = '';
			for await (const line of linesOf(child)) {
				// The last line may be cut off by the kill.
				if (last !== '') reported.push(last);
				last = line;
				heard += 1;
				if (heard === patience) child.kill('SIGKILL');
			}
			if (/^life\d+-\d+ \d+$/.test(last)) reported.push(last);
		}
		const store = open({ bounds: { maxCount: 100_000, maxBytes: 1e9, maxAgeMs: DAY } });
		const stored = all(store).entries.map(({ id, content }) => `${id} ${content}`);
		expect(store.notices).toEqual([]);
		expect(reported.length).toBeGreaterThan(kills);
		const present = new Set(stored);
		expect(reported.filter((line) => !present.has(line))).toEqual([]);
		const wasReported = new Set(reported);
		expect(stored.filter((line) => wasReported.has(line))).toEqual(reported);
		const numbers = stored.map((line) => Number(line.split(' ')[1]));
		expect(new Set(numbers).size).toBe(numbers.length);
		expect(numbers.toSorted((a, b) => a - b)).toEqual(numbers);
		expect(new Set(stored.map((line) => line.split(' ')[0])).size).toBe(stored.length);
	}, 120_000);
});

describe('a process that is killed', () => {
	/** What a process leaves that is killed now, opened by the next one. */
	function killed(cutBytes = 0): DurableEventStore {
		const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'event-store-'));
		fs.cpSync(directory, copy, { recursive: true });
		const [name = ''] = fs.readdirSync(copy);
		if (cutBytes > 0) fs.truncateSync(path.join(copy, name), fs.statSync(path.join(copy, name)).size - cutBytes);
		onTestFinished(() => fs.rmSync(copy, { recursive: true, force: true }));
		return open({ directory: copy });
	}

	test('after any steps, a process that is killed has lost nothing that was handed on [F366]', async () => {
		const step = fc.oneof(
			{ weight: 4, arbitrary: fc.record({ do: fc.constant('append' as const), size: fc.nat(3000) }) },
			{ weight: 3, arbitrary: fc.record({ do: fc.constant('acknowledge' as const), back: fc.nat(3) }) },
			{ weight: 1, arbitrary: fc.record({ do: fc.constantFrom('clean' as const, 'kill' as const) }) },
		);
		await fc.assert(
			fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
				fs.rmSync(directory, { recursive: true });
				fs.mkdirSync(directory);
				const clock = createSteppedClock();
				const store = open({ ...clock });
				store.join('kiosk');
				let acknowledged = 0;
				const ids: string[] = [];
				for (const one of steps) {
					if (one.do === 'append') ids.push(...(await add(store, 'x'.repeat(one.size))));
					else if (one.do === 'clean') clock.advance(30_000);
					else if (one.do === 'acknowledge') {
						acknowledged = Math.max(acknowledged, ids.length - one.back);
						if (acknowledged > 0) store.acknowledge('kiosk', ids[acknowledged - 1] ?? '');
						await store.settled();
					} else {
						const next = killed();
						expect(all(next).entries.map(({ id }) => id)).toEqual(ids.slice(acknowledged));
						expect(next.positionOf('kiosk')).toBe(acknowledged === 0 ? null : ids[acknowledged - 1]);
						const [id = ''] = await add(next, 'one more');
						expect(id.split('-')[1]).toBe(String(ids.length + 1));
						await next.close();
						stores.delete(next);
					}
				}
				await store.close();
				stores.delete(store);
			}),
			{ numRuns: 25 },
		);
	});

	test('a consumer that was forgotten stays so when the process is killed', async () => {
		const store = open();
		store.join('kiosk');
		store.join('gone');
		await add(store, 'a');
		expect(store.forget('gone')).toBe(true);
		await store.settled();
		expect(
			killed()
				.consumers()
				.map(({ name }) => name),
		).toEqual(['kiosk']);
	});

	test('where the power took an acknowledgement and left what is erased by it, the application is told of no gap', async () => {
		const clock = createSteppedClock();
		const store = open({ ...clock });
		store.join('kiosk');
		const ids = await add(store, 'a', 'b', 'c');
		const [name = ''] = fs.readdirSync(directory);
		const size = fs.statSync(at(name)).size;
		store.acknowledge('kiosk', ids[0] ?? '');
		await store.settled();
		store.acknowledge('kiosk', ids[1] ?? '');
		await store.settled();
		clock.advance(30_000);
		while (filesWith('"b"').length > 0) await new Promise(setImmediate);
		const bytes = fs.readFileSync(at(name));
		// The notes are in the part that was not flushed.
		fs.writeFileSync(at(name), bytes.subarray(0, size));
		const next = open({ ...clock });
		expect(next.positionOf('kiosk')).toBeNull();
		expect(all(next, ids[1])).toMatchObject({ missed: false, entries: [{ id: ids[2] }] });
		expect(next.acknowledge('kiosk', ids[0] ?? '')).toBe(true);
	});

	test('where the end of the newest file is cut off, the newest event that is left says up to when nothing was missed [F790]', async () => {
		const store = open();
		const times = ['2026-11-21T05:00:00.000Z', '2026-11-21T05:01:00.000Z', '2026-11-21T05:02:00.000Z'];
		for (const at of times) store.append(incoming('x'.repeat(300), { at }));
		await store.settled();
		for (const cut of [1, 20, 200]) expect(killed(cut).newestAt()).toBe(times[1]);
		expect(killed(0).newestAt()).toBe(times[2]);
	});

	test('an event that was cut off on the way to the disk is a gap, and those before it are there', async () => {
		const store = open();
		const ids = await add(store, 'a');
		await add(store, 'b');
		for (const cut of [2, 10, 50]) {
			const { entries } = all(killed(cut));
			expect(entries.map(({ id, type }) => (type === 'gap' ? type : id))).toEqual([...ids, 'gap']);
		}
	});
});
