/** Flushes of the events beside the main thread. A flush is held open where `node:fs` begins it, as a disk does that needs a second for it. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { allBut } from '../../src/events/erasure.ts';
import { type Entry, ownEvent } from '../../src/events/event.ts';
import { planSafety } from '../../src/events/safety.ts';
import { createEventStore, type DurableEventStore, type EventStoreOptions } from '../../src/events/store.edge.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { EIO } from '../base/lossy-files.ts';
import { type Held, holdFlushes } from '../fixtures/held-flushes.ts';
import { givenPairedAgent } from '../harness/harness.ts';
import { readAll } from '../harness/read-all.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

let directory: string;
beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'event-flushing-'));
	return () => fs.rmSync(directory, { recursive: true, force: true });
});

let run = 0;
function open(options: Partial<EventStoreOptions> = {}) {
	run += 1;
	const notices: string[] = [];
	const store = createEventStore({
		directory,
		epoch: `run${run}`,
		bounds: { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: 86_400_000 },
		onNotice: (topic, notice) => notices.push(`${topic} ${notice?.code ?? 'over'}`),
		...options,
	});
	onTestFinished(() => store.close());
	const handedOn: string[][] = [];
	store.subscribe((entries) => handedOn.push(contents(entries)));
	return Object.assign(store, { handedOn, notices });
}

const contents = (entries: readonly Entry[]) => entries.map(({ content }) => content);
const kept = (store: DurableEventStore) => contents(readAll(store).entries);
const append = (store: DurableEventStore, content: string, serviceId: string | null = null) =>
	store.append({
		...{ at: '2026-11-21T05:00:00.000Z', type: 'notification', kind: 'k', workflowId: null, format: 'text', content },
		serviceId,
	})?.id ?? '';
const isLog = (file: string) => file.endsWith('.log');

/** A store with a file, whose flushes are held from now on. */
async function givenHeld(options: Partial<EventStoreOptions> = {}) {
	const store = open(options);
	store.join('kiosk');
	append(store, 'before');
	await store.settled();
	store.handedOn.length = 0;
	return { store, ...holdFlushes() };
}

/** Lets every flush end that is held from now on, until a promise is kept. */
async function releaseUntil(done: Promise<unknown>, held: Held[]): Promise<void> {
	let isDone = false;
	void done.finally(() => {
		isDone = true;
	});
	while (!isDone) {
		held.shift()?.release();
		await new Promise(setImmediate);
	}
}

describe('while a flush is under way', () => {
	test('an event is neither handed on nor shown before its flush has ended, and what arrives meanwhile shares the next one', async () => {
		const { store, held, next } = await givenHeld();
		const newest = store.newest();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		await new Promise(setImmediate);
		append(store, 'c');
		await new Promise(setImmediate);
		expect([store.handedOn, kept(store), store.newest(), store.count]).toEqual([[], ['before'], newest, 1]);
		expect(held).toEqual([]);

		first.release();
		const second = await next();
		expect([store.handedOn, kept(store)]).toEqual([[['a']], ['before', 'a']]);
		const settled = store.settled();
		second.release();
		await settled;
		expect([store.handedOn, kept(store)]).toEqual([
			[['a'], ['b', 'c']],
			['before', 'a', 'b', 'c'],
		]);
		expect(store.after(null, 10).entries.map(({ number }) => number)).toEqual([1, 2, 3, 4]);
		expect(held).toEqual([]);
	});

	test('an acknowledgement waits its turn, and is answered when it is written', async () => {
		const { store, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		expect(store.acknowledge('kiosk', store.newest() ?? '')).toBe(true);
		const order: string[] = [];
		store.subscribe(() => order.push('a is handed on'));
		const settled = store.settled().then(() => order.push('acknowledged'));
		first.release();
		await settled;
		expect(order).toEqual(['a is handed on', 'acknowledged']);
		expect(kept(store)).toEqual(['a']);
	});

	test('an id that is not flushed cannot be acknowledged', async () => {
		const { store, held, next } = await givenHeld();
		const id = append(store, 'a');
		const first = await next();
		expect(store.acknowledge('kiosk', id)).toBe(false);
		first.release();
		await releaseUntil(store.settled(), held);
	});

	test('a stop completes it, and what waits for the next one', async () => {
		const { store, held, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		const closed = store.close();
		first.release();
		await releaseUntil(closed, held);
		expect(store.handedOn).toEqual([['a'], ['b']]);
		expect(kept(open())).toEqual(['before', 'a', 'b']);
	});

	test('an erasure takes along what is under way', async () => {
		const { store, held, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		const erased = store.erase(allBut(new Set()));
		first.release();
		await releaseUntil(erased, held);
		expect(await erased).toBe(3);
		expect([kept(store), store.handedOn]).toEqual([[], [['a'], ['b']]]);
		for (const name of fs.readdirSync(directory))
			expect(fs.readFileSync(path.join(directory, name)).includes('before'), name).toBe(false);
	});

	test('a flush that fails once costs nothing: the group goes to another file, in order, and no one is warned', async () => {
		const { store, held, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		first.release(EIO);
		await releaseUntil(store.settled(), held);
		expect([store.handedOn, kept(store), store.notices]).toEqual([[['a'], ['b']], ['before', 'a', 'b'], []]);
		expect(fs.readdirSync(directory)).toHaveLength(2);
		await releaseUntil(store.close(), held);
		expect(kept(open())).toEqual(['before', 'a', 'b']);
	});

	test('what has made room before all applications had it, or the disk came back, is not safe [F1696]', async () => {
		const { store, held, next } = await givenHeld({
			bounds: { maxCount: 2, maxBytes: 4_194_304, maxAgeMs: 86_400_000 },
		});
		const told: string[] = [];
		const wait = (content: string) => {
			append(store, content);
			void store.safe().then(() => told.push(content));
		};
		wait('a');
		(await next()).release(EIO);
		(await next()).release(EIO);
		await releaseUntil(store.settled(), held);
		for (const content of ['b', 'c', 'd']) wait(content);
		await store.settled();
		store.acknowledge('kiosk', store.newest() ?? '');
		await new Promise(setImmediate);
		expect(told).toEqual(['c', 'd']);
		told.length = 0;
		for (const content of ['e', 'f', 'g']) wait(content);
		await store.settled();
		await releaseUntil(store.recover(), held);
		await releaseUntil(store.safe(), held);
		expect(kept(store)).toEqual(['f', 'g']);
		expect(told).toEqual(['f', 'g']);
	});

	test('a disk that is full or broken: everything continues in memory, in order, once; what was stored then is safe [F1690]', async () => {
		const { store, held, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		first.release(EIO);
		(await next()).release(EIO);
		await releaseUntil(store.settled(), held);
		expect([store.handedOn, kept(store)]).toEqual([[['a', 'b']], ['before', 'a', 'b']]);
		expect(store.notices).toEqual(['events state-unwritable']);
		const safe = store.safe();
		expect(await Promise.race([safe.then(() => 'safe'), new Promise(setImmediate)])).not.toBe('safe');
		const recovered = store.recover();
		await releaseUntil(recovered, held);
		expect(await recovered).toBe(true);
		await safe;
		await releaseUntil(store.close(), held);
		expect(kept(open())).toEqual(['before', 'a', 'b']);
	});
});

describe('what was never on the disk and is gone', () => {
	const bounds = { maxCount: 1000, maxBytes: 262_144, maxAgeMs: 86_400_000 };
	const large = 'x'.repeat(30_000);

	/** In memory only: an event `lost`, behind one that is on the disk. */
	async function givenInMemory(options: Partial<EventStoreOptions>) {
		const given = await givenHeld(options);
		const { store, held, next } = given;
		const stored = append(store, 'stored', 'stored');
		await releaseUntil(store.settled(), held);
		append(store, 'lost', 'lost');
		for (let tries = 0; tries < 2; tries += 1) (await next()).release(EIO);
		await releaseUntil(store.settled(), held);
		return { ...given, stored };
	}

	/** As after a restart. */
	async function reopened(store: DurableEventStore, held: Held[], options: Partial<EventStoreOptions>) {
		await releaseUntil(store.close(), held);
		return open(options);
	}

	const ways = [
		[
			'too many',
			{ ...bounds, maxCount: 2 },
			(store: DurableEventStore) => ['b', 'c'].map((id) => append(store, id, id)),
		],
		['too large', { ...bounds, maxBytes: 50_000 }, (store) => ['b', 'c'].map((id) => append(store, large, id))],
		['too old', bounds, (_, clock) => clock.advance(90_000_000)],
	] as const satisfies readonly (readonly [
		string,
		typeof bounds,
		(store: DurableEventStore, clock: ReturnType<typeof createSteppedClock>) => unknown,
	])[];
	test.for(ways.flatMap(([name, ...way]) => [true, false].map((isRestarted) => [name, isRestarted, ...way] as const)))(
		'because events are %s is new when the service gives it again, after a restart: %s; what is on the disk is not [F1757]',
		async ([, isRestarted, within, lose]) => {
			const clock = createSteppedClock();
			const options = { ...clock, bounds: within };
			const { stored, ...given } = await givenInMemory(options);
			let { store } = given;
			lose(store, clock);
			await releaseUntil(store.settled(), given.held);
			expect(kept(store)).not.toContain('lost');
			if (isRestarted) {
				await releaseUntil(store.recover(), given.held);
				store = await reopened(store, given.held, options);
			}
			const { entries, missed } = readAll(store, stored);
			expect(missed || entries.some(({ type }) => type === 'gap')).toBe(true);
			expect([append(store, 'stored', 'stored'), append(store, 'lost', 'lost')]).toEqual([
				'',
				expect.stringMatching('-'),
			]);
			await releaseUntil(store.recover(), given.held);
			await releaseUntil(store.settled(), given.held);
			expect(kept(store).at(-1)).toBe('lost');
			store = await reopened(store, given.held, options);
			expect([kept(store).at(-1), append(store, 'lost', 'lost')]).toEqual(['lost', '']);
		},
	);

	test('that had to make room while it was written is new when the service gives it again after a restart [F1759]', async () => {
		const options = { bounds: { ...bounds, maxCount: 2 } };
		const { store, held, next } = await givenInMemory(options);
		const recovered = store.recover();
		const flush = await next();
		for (const id of ['b', 'c']) append(store, id, id);
		await new Promise(setImmediate);
		expect(kept(store)).toEqual(['b', 'c']);
		flush.release();
		await releaseUntil(recovered, held);
		const later = await reopened(store, held, options);
		expect(kept(later)).toEqual(['b', 'c']);
		expect(['b', 'lost'].map((id) => append(later, id, id))).toEqual(['', expect.stringMatching('-')]);
		await releaseUntil(later.close(), held);
	});

	test('is not called safe when a younger one is stored; what comes again is safe when its own event is [F1761]', async () => {
		const { store, held } = await givenInMemory({ bounds: { ...bounds, maxCount: 3 } });
		const told: string[] = [];
		const wait = async (id: string, then = () => {}) => {
			append(store, id, id);
			then();
			void store.safe().then(() => told.push(id));
			await store.settled();
			await new Promise(setImmediate);
		};
		await wait('stored');
		expect(told).toEqual(['stored']);
		const arrival = { at: '2026-11-21T05:00:00.000Z', workflowId: null };
		await wait('starts a session', () => store.append(ownEvent('session', { sessionId: 's' }, arrival)));
		for (const id of ['starts a session', 'a', 'b', 'a']) await wait(id);
		await releaseUntil(store.recover(), held);
		expect([told, kept(store)]).toEqual([
			['stored', 'a', 'b', 'a'],
			['{"sessionId":"s"}', 'a', 'b'],
		]);
		await releaseUntil(store.close(), held);
	});

	test('is safe once all applications have acknowledged it and what the agent has made of it [F1762]', async () => {
		const safety = planSafety(10);
		safety.disk(null);
		const told: number[] = [];
		for (const number of [1, 3]) void safety.until(number, number + 1, Promise.resolve()).then(() => told.push(number));
		const seen: number[][] = [];
		for (const [upTo, from] of [
			[1, 1],
			[2, 2],
			[4, 4],
		] as const) {
			await new Promise(setImmediate);
			safety.acknowledged(upTo, () => [1, 2, 3, 4].slice(from - 1).map((number) => ({ number })));
			await new Promise(setImmediate);
			seen.push([...told]);
		}
		expect(seen).toEqual([[], [1], [1]]);
	});

	test('with a process that was killed behind a new file is new when the service gives it again [F1760]', async () => {
		const { store, held, next } = await givenHeld({ bounds });
		for (const id of ['a', 'b', 'c']) append(store, large, id);
		const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'event-flushing-'));
		onTestFinished(() => fs.rmSync(copy, { recursive: true, force: true }));
		while (fs.readdirSync(copy).length < 2) {
			const flush = await next();
			fs.cpSync(directory, copy, { recursive: true });
			flush.release();
		}
		await releaseUntil(store.settled(), held);
		const later = open({ directory: copy });
		expect(kept(later)).toHaveLength(3);
		expect(['a', 'b', 'c'].map((id) => append(later, large, id) !== '')).toEqual([false, false, true]);
		await releaseUntil(later.close(), held);
	});
});

describe('clean-up', () => {
	test('flushes what is declared erased, and then what was written over it', async () => {
		const clock = createSteppedClock();
		const { store, held, next } = await givenHeld({ ...clock });
		store.acknowledge('kiosk', store.newest() ?? '');
		await store.settled();
		const [name = ''] = fs.readdirSync(directory);
		const holds = () => fs.readFileSync(path.join(directory, name)).includes('before');
		clock.advance(30_000);
		const seen: unknown[] = [];
		for (let flushes = 0; flushes < 2; flushes += 1) {
			const flush = await next();
			seen.push([isLog(flush.file), holds()]);
			flush.release();
		}
		expect(seen).toEqual([
			[true, true],
			[true, false],
		]);
		append(store, 'later');
		await releaseUntil(store.settled(), held);
		expect(kept(store)).toEqual(['later']);
	});

	test('an event that arrives meanwhile follows it, and survives what comes after', async () => {
		const clock = createSteppedClock();
		const { store, held, next } = await givenHeld({ ...clock });
		for (const round of ['one', 'two', 'three']) {
			store.acknowledge('kiosk', store.newest() ?? '');
			await store.settled();
			clock.advance(30_000);
			const flush = await next();
			append(store, round);
			flush.release();
			await releaseUntil(store.settled(), held);
			expect([kept(store), store.handedOn.at(-1)]).toEqual([[round], [round]]);
			const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'event-flushing-'));
			onTestFinished(() => fs.rmSync(copy, { recursive: true, force: true }));
			fs.cpSync(directory, copy, { recursive: true });
			expect(kept(open({ directory: copy }))).toEqual([round]);
		}
	});

	test('one that fails is tried again, and leaves what arrived meanwhile', async () => {
		const clock = createSteppedClock();
		const { store, held, next } = await givenHeld({ ...clock });
		store.acknowledge('kiosk', store.newest() ?? '');
		append(store, 'stays');
		await releaseUntil(store.settled(), held);
		clock.advance(30_000);
		const flush = await next();
		append(store, 'meanwhile');
		flush.release(EIO);
		await releaseUntil(store.settled(), held);
		expect([kept(store), store.handedOn]).toEqual([
			['stays', 'meanwhile'],
			[['stays'], ['meanwhile']],
		]);
		const holds = () =>
			fs.readdirSync(directory).some((name) => fs.readFileSync(path.join(directory, name)).includes('before'));
		expect(holds()).toBe(true);
		clock.advance(60_000);
		while (holds()) {
			held.shift()?.release();
			await new Promise(setImmediate);
		}
		await releaseUntil(store.close(), held);
		expect(kept(open())).toEqual(['stays', 'meanwhile']);
	});
});

test('heartbeats, pings and the local interface keep their time while a flush does not end [F188]', async () => {
	const service = await startService({ workflows: ['check-in'] });
	onTestFinished(() => service.close());
	const device = await givenPairedAgent(service, { settings: { heartbeatCadence: 10 } });
	// Its flush is over: the one that is held is that of the notification.
	await device.untilEvent(({ kind }) => kind === 'gap');
	const { next } = holdFlushes(isLog);
	const handedOn: string[] = [];
	device.agent.events.subscribe((entries) => handedOn.push(...entries.map(({ kind }) => kind)));
	service.notify({ type: 'slow', id: '1' });
	const flush = await next();
	for (let count = 0; count < 6; count += 1) {
		const heard = service.waitFor('heartbeat');
		device.clock.advance(10_000);
		await heard;
		expect(await device.client.request('agent', 'GET', '/v1/status')).toMatchObject({ state: 'online' });
	}
	expect(handedOn).toEqual([]);
	expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	flush.release();
	await device.untilEvent(({ kind }) => kind === 'slow');
	expect(handedOn.filter((kind) => kind !== 'gap')).toEqual(['slow']);
});
