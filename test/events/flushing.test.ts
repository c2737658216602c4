/** Flushes of the events beside the main thread. A flush is held open where `node:fs` begins it, as a disk does that needs a second for it. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { allBut } from '../../src/events/erasure.ts';
import type { Entry } from '../../src/events/event.ts';
import { createEventStore, type DurableEventStore, type EventStoreOptions } from '../../src/events/store.edge.ts';
import { startService } from '../../src/service/embedded-service.ts';
import { type Held, holdFlushes } from '../fixtures/held-flushes.ts';
import { givenPairedAgent } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const EIO = Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' });
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
const kept = (store: DurableEventStore) => contents(store.after(null, 1000).entries);
const append = (store: DurableEventStore, content: string) =>
	store.append({
		...{ at: '2026-11-21T05:00:00.000Z', type: 'notification', kind: 'k', workflowId: null, format: 'text', content },
		serviceId: null,
	})?.id ?? '';

/** A store with a tail and a database, whose flushes are held from now on. */
async function givenHeld(options: Partial<EventStoreOptions> = {}) {
	const store = open(options);
	store.join('kiosk');
	append(store, 'before');
	await store.settled();
	store.handedOn.length = 0;
	return { store, ...holdFlushes() };
}

/** Lets every flush end that is held from now on, until all events are stored. */
async function releaseUntilSettled(store: DurableEventStore, held: Held[]): Promise<void> {
	let isSettled = false;
	void store.settled().then(() => {
		isSettled = true;
	});
	while (!isSettled) {
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
		expect(first.file).toBe('events.db-tail');
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
		expect(fs.readFileSync(path.join(directory, 'events.db-tail'), 'utf8')).toContain('["setConsumers",[["kiosk"');
		expect(kept(store)).toEqual(['a']);
	});

	test('an id that is not flushed cannot be acknowledged', async () => {
		const { store, next } = await givenHeld();
		const id = append(store, 'a');
		const first = await next();
		expect(store.acknowledge('kiosk', id)).toBe(false);
		first.release();
	});

	test('a stop completes it, and what waits for the next one', async () => {
		const { store, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		store.close();
		first.release();
		expect(store.handedOn).toEqual([['a'], ['b']]);
		expect(kept(open())).toEqual(['before', 'a', 'b']);
	});

	test('an erasure takes along what is under way', async () => {
		const { store, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		expect(store.erase(allBut(new Set()))).toBe(3);
		first.release();
		await store.settled();
		expect([kept(store), store.handedOn]).toEqual([[], [['a'], ['b']]]);
		for (const name of fs.readdirSync(directory))
			expect(fs.readFileSync(path.join(directory, name)).includes('before'), name).toBe(false);
	});

	test('a disk that is full or broken at its end: everything continues in memory, in order, once', async () => {
		const { store, next } = await givenHeld();
		append(store, 'a');
		const first = await next();
		append(store, 'b');
		first.release(EIO);
		await store.settled();
		expect([store.handedOn, kept(store)]).toEqual([
			[['a'], ['b']],
			['before', 'a', 'b'],
		]);
		expect(store.notices).toEqual(['events state-unwritable']);
		expect(store.recover()).toBe(true);
		store.close();
		expect(kept(open())).toEqual(['before', 'a', 'b']);
	});
});

describe('clean-up', () => {
	test('flushes the log before the tail and the database, the database before the log is cut, the cut before anything else', async () => {
		const clock = createSteppedClock();
		const { store, held, next } = await givenHeld({ ...clock });
		store.acknowledge('kiosk', store.newest() ?? '');
		append(store, 'stays');
		(await next()).release();
		await store.settled();
		const sizeOf = (name: string) => fs.statSync(path.join(directory, name)).size;
		const [tailBytes, databaseBytes] = [sizeOf('events.db-tail'), sizeOf('events.db')];
		const seen: unknown[] = [];
		clock.advance(30_000);
		for (let flushes = 0; flushes < 5; flushes += 1) {
			const flush = await next();
			await new Promise(setImmediate);
			const isTailWhole = sizeOf('events.db-tail') === tailBytes;
			const isDatabaseAsBefore = sizeOf('events.db') === databaseBytes;
			const isLogEmpty = sizeOf('events.db-wal') === 0;
			seen.push([flush.file, { isTailWhole, isDatabaseAsBefore, isLogEmpty }]);
			expect([held, kept(store)]).toEqual([[], ['stays']]);
			flush.release();
		}
		const whole = { isTailWhole: true, isDatabaseAsBefore: true, isLogEmpty: false };
		expect(seen).toEqual([
			// What this process has found, and its name.
			['events.db-wal', whole],
			[path.basename(directory), whole],
			['events.db-wal', whole],
			['events.db', { isTailWhole: false, isDatabaseAsBefore: false, isLogEmpty: false }],
			['events.db-wal', { isTailWhole: false, isDatabaseAsBefore: false, isLogEmpty: true }],
		]);
	});

	test('holds no event up: what arrives meanwhile waits for its own flush, and survives what comes after', async () => {
		const clock = createSteppedClock();
		const { store, held, next } = await givenHeld({ ...clock });
		const fileOf = (name: string) => fs.readFileSync(path.join(directory, name), 'utf8');
		for (const [index, file] of ['events.db-tail2', 'events.db-tail', 'events.db-tail2'].entries()) {
			store.acknowledge('kiosk', store.newest() ?? '');
			await store.settled();
			clock.advance(30_000);
			const isFirst = index === 0;
			// What this process has found is flushed before its first commit.
			if (isFirst) for (const _ of ['log', 'its name']) (await next()).release();
			const log = await next();
			expect(log.file).toBe('events.db-wal');

			append(store, `meanwhile ${index}`);
			// The name of the other file, once.
			if (isFirst) (await next()).release();
			const tail = await next();
			expect(tail.file).toBe(file);
			const settled = store.settled();
			tail.release();
			await settled;
			expect([kept(store), store.handedOn.at(-1)]).toEqual([[`meanwhile ${index}`], [`meanwhile ${index}`]]);
			expect(held).toEqual([]);

			log.release();
			const isHeldUp = isFirst ? ['events.db', 'events.db-wal'] : [];
			for (const name of isHeldUp) {
				const flush = await next();
				expect(flush.file).toBe(name);
				flush.release();
			}
			const others = ['events.db-tail', 'events.db-tail2'].filter((name) => name !== file);
			for (const name of others) while (fileOf(name) !== '') await new Promise(setImmediate);
			expect(fileOf(file)).toContain(`meanwhile ${index}`);
			const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'event-flushing-'));
			onTestFinished(() => fs.rmSync(copy, { recursive: true, force: true }));
			fs.cpSync(directory, copy, { recursive: true });
			expect(kept(open({ directory: copy }))).toEqual([`meanwhile ${index}`]);
		}
	});

	test('that does not end is waited for, not asked about: no timer meanwhile, and the next clean-up follows it', async () => {
		const clock = createSteppedClock();
		let timers = 0;
		const schedule: typeof clock.schedule = (...timer) => {
			timers += 1;
			return clock.schedule(...timer);
		};
		const { store, held, next } = await givenHeld({ ...clock, schedule });
		store.acknowledge('kiosk', store.newest() ?? '');
		await store.settled();
		clock.advance(30_000);
		for (const _ of ['log', 'its name']) (await next()).release();
		const log = await next();
		append(store, 'meanwhile');
		await releaseUntilSettled(store, held);
		store.acknowledge('kiosk', store.newest() ?? '');
		await store.settled();
		timers = 0;
		clock.advance(60_000);
		expect([timers < 10, held]).toEqual([true, []]);
		log.release();
		for (const file of ['events.db', 'events.db-wal', 'events.db-wal']) {
			const flush = await next();
			expect(flush.file).toBe(file);
			flush.release();
		}
	});

	test('before the first commit of a process events wait, so that none is in what that empties', async () => {
		const clock = createSteppedClock();
		const { store, held, next } = await givenHeld({ ...clock });
		store.acknowledge('kiosk', store.newest() ?? '');
		await store.settled();
		clock.advance(30_000);
		const found = await next();
		append(store, 'early');
		await new Promise(setImmediate);
		await new Promise(setImmediate);
		expect(held).toEqual([]);
		found.release();
		await releaseUntilSettled(store, held);
		expect([kept(store), store.handedOn]).toEqual([['early'], [['early']]]);
	});

	test('one that fails leaves what arrived meanwhile, and what it was about, in memory', async () => {
		const clock = createSteppedClock();
		const { store, next } = await givenHeld({ ...clock });
		store.acknowledge('kiosk', store.newest() ?? '');
		append(store, 'stays');
		(await next()).release();
		await store.settled();
		clock.advance(30_000);
		for (const _ of ['log', 'its name']) (await next()).release();
		const log = await next();
		append(store, 'meanwhile');
		await next();
		append(store, 'and later');
		log.release(EIO);
		await store.settled();
		expect([kept(store), store.handedOn]).toEqual([
			['stays', 'meanwhile', 'and later'],
			[['stays'], ['meanwhile'], ['and later']],
		]);
		expect(store.notices).toEqual(['events state-unwritable']);
		expect(store.recover()).toBe(true);
		store.close();
		expect(kept(open())).toEqual(['stays', 'meanwhile', 'and later']);
	});
});

test('heartbeats, pings and the local interface keep their time while a flush does not end [F188]', async () => {
	const service = await startService({ workflows: ['check-in'] });
	onTestFinished(() => service.close());
	const device = await givenPairedAgent(service, { settings: { heartbeatCadence: 10 } });
	const { next } = holdFlushes((file) => file === 'events.db-tail');
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
