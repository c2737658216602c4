/** A note that is damaged takes a consumer with it: what is deleted meanwhile without its acknowledgement is a gap to it. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createEventsFeed } from '../../src/events/feed.runner.ts';
import { createEventStore, type EventStoreOptions } from '../../src/events/store.edge.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const DAY = 86_400_000;
const newDirectory = () => {
	const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'lost-notes-'));
	onTestFinished(() => fs.rmSync(directory, { recursive: true, force: true }));
	return directory;
};
let runs = 0;

function open(directory: string, options: Partial<EventStoreOptions> = {}) {
	const told: string[] = [];
	runs += 1;
	const store = createEventStore({
		...{ directory, epoch: `run${runs}`, bounds: { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: 7 * DAY } },
		onNotice: (_topic, notice) => told.push(notice?.message ?? ''),
		...options,
	});
	onTestFinished(() => store.close());
	const counters = { notifications: 0, duplicates: 0, gaps: 0, ignored: 0 };
	return { store, told, feed: createEventsFeed(store, counters) };
}

type Opened = ReturnType<typeof open>;
const event = (number: number) => ({
	...{ at: new Date().toISOString(), type: 'notification' as const, kind: 'k', workflowId: 'w' },
	...{ format: 'json' as const, content: `"event-${number}"`, serviceId: null },
});

/** What a consumer reads. */
function reads({ store, feed }: Opened, consumer: string) {
	store.join(consumer);
	return feed
		.after(store.positionOf(consumer))
		.entries.map(({ type, number }) => (type === 'gap' ? `gap to ${number}` : number));
}
const from = (first: number, last = 20) => Array.from({ length: last + 1 - first }, (_, index) => first + index);

/** Of 20 events, z has acknowledged 5 and then k 15, each in a note of its own; killed. */
async function killed() {
	const directory = newDirectory();
	const { store } = open(directory);
	const ids: string[] = [];
	for (const number of from(1)) ids.push(store.append(event(number))?.id ?? '');
	await store.settled();
	const [name = ''] = fs.readdirSync(directory);
	const file = path.join(directory, name);
	const places: number[] = [];
	for (const [consumer, number] of [
		['z', 5],
		['k', 15],
	] as const) {
		places.push(fs.statSync(file).size);
		store.acknowledge(consumer, ids[number - 1] ?? '');
		await store.settled();
	}
	const bytes = fs.readFileSync(file);
	const [ofZ = 0, ofK = 0] = places;
	/** Another directory with one wrong bit. */
	const withBit = (place: number | null) => {
		const copy = newDirectory();
		const damaged = Buffer.from(bytes);
		if (place !== null) damaged.writeUInt8((damaged[place] ?? 0) ^ 4, place);
		fs.writeFileSync(path.join(copy, name), damaged);
		return copy;
	};
	return { withBit, name, ofZ, ofK, end: bytes.length };
}

test('a wrong bit in the only note of one consumer, or of the other: each gets every event or a gap, and the file is named [F1531]', async () => {
	const { withBit, name, ofZ, ofK, end } = await killed();
	const whole = open(withBit(null));
	expect([reads(whole, 'z'), reads(whole, 'k'), whole.told]).toEqual([from(6), from(16), []]);
	for (let place = ofZ; place < end; place += 5) {
		const next = open(withBit(place));
		const isOfZ = place < ofK;
		// Of a header at the very end, the place of a record is a gap as well.
		const known = (each: string | number) => each !== 'gap to 21';
		expect([place, reads(next, 'z').filter(known), reads(next, 'k').filter(known)]).toEqual([
			place,
			isOfZ ? ['gap to 15', ...from(16)] : from(6),
			isOfZ ? from(16) : ['gap to 5', ...from(6)],
		]);
		// Nothing tells that it was not a cut of power.
		if (place < ofK || place >= ofK + 56) expect(next.told.join()).toContain(name);
	}
});

test('the gap comes also after further starts, is over once it is acknowledged, and is given for as long as events are kept [F1533]', async () => {
	const { withBit, ofZ } = await killed();
	const directory = withBit(ofZ + 60);
	const clock = createSteppedClock();
	let next = open(directory, clock);
	next.store.append(event(21));
	await next.store.settled();
	await next.store.close();
	next = open(directory, clock);
	const [gap] = next.feed.after(null).entries;
	expect(gap).toMatchObject({ type: 'gap', content: expect.stringContaining('"from":null') });
	next.store.acknowledge('z', gap?.id ?? '');
	expect(reads(next, 'z')).toEqual(from(16, 21));
	// A hook is a consumer as well: it may have been known.
	next.store.join('hooks', true);
	expect(reads(next, 'hooks')[0]).toBe('gap to 15');
	clock.advance(6 * DAY);
	expect(reads(next, 'new')[0]).toBe('gap to 15');
	clock.setWall(clock.wallMs() + 20_000 * DAY);
	next.store.lookAtClock(null);
	expect(reads(next, 'newer')[0]).toBe('gap to 15');
	const newest = next.store.newest() ?? '';
	for (const { name } of next.store.consumers()) next.store.acknowledge(name, newest);
	expect(reads(next, 'latest')).toEqual(['gap to 21']);
	next.store.acknowledge('latest', newest);
	clock.advance(DAY);
	expect(reads(next, 'last')).toEqual([]);
});

test('a file that is filled with zeros while the agent runs: the gap begins at no known time, not at the end of the run [F1534]', async () => {
	const { withBit, name } = await killed();
	const directory = withBit(null);
	const running = open(directory);
	const file = path.join(directory, name);
	expect(reads(running, 'z')).toEqual(from(6));
	const zeroed = fs.openSync(file, 'r+');
	fs.writeSync(zeroed, Buffer.alloc(fs.statSync(file).size), 0);
	fs.closeSync(zeroed);
	const newest = running.store.append(event(21));
	await running.store.settled();
	running.store.acknowledge('k', newest?.id ?? '');
	await running.store.close();
	const next = open(directory);
	const start = '{"from":"2026-11-29T12:00:00.000Z","to":"2026-11-29T12:01:00.000Z"}';
	next.store.append({ ...event(22), type: 'gap', content: start });
	await next.store.settled();
	next.store.join('z');
	const contents = next.feed.after(next.store.positionOf('z')).entries.map(({ content }) => content);
	expect(contents).toEqual([expect.stringContaining('"from":null'), start]);
});
