/** Many applications at once, and some that do not read: nobody is slowed by another, nobody loses an event. */
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { createEventStreamParser, type ServerSentEvent } from '../../src/client/agent-socket.edge.ts';
import { createConsumers, MAX_CONSUMERS } from '../../src/events/consumers.ts';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { type Held, holdFlushes } from '../fixtures/held-flushes.ts';
import { givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { addressOf, ask } from '../local-api/local-asking.ts';
import { givenService } from '../service/fixture.ts';

const isNumbered = ({ event }: ServerSentEvent) => event === 'notification';
const numberIn = ({ data }: ServerSentEvent): number => JSON.parse(data).data.number;
const upTo = (count: number) => Array.from({ length: count }, (_, index) => index);

/** Opens a stream; nothing of it is read until somebody asks for its data. */
async function openStream(device: RunningAgent, since?: string): Promise<IncomingMessage> {
	const headers = { accept: 'text/event-stream', ...(since && { 'last-event-id': since }) };
	const asking: ClientRequest = request({
		...addressOf(device, 'agent'),
		path: LOCAL_ROUTES.events,
		agent: false,
		headers,
	});
	onTestFinished(() => void asking.destroy());
	asking.on('error', () => {});
	asking.end();
	const [response] = (await once(asking, 'response')) as [IncomingMessage];
	response.on('error', () => {});
	return response;
}

/** Reads until so many notifications are there, or the stream is over. */
async function readNumbers(stream: IncomingMessage, count: number): Promise<ServerSentEvent[]> {
	const parse = createEventStreamParser();
	const events: ServerSentEvent[] = [];
	for await (const chunk of stream) {
		events.push(...parse(chunk));
		if (events.filter(isNumbered).length >= count) break;
	}
	return events;
}

test('a hundred consumers get every event, in order, each under its own name', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const streams = await Promise.all(upTo(100).map(() => openStream(device)));
	const reading = streams.map((stream) => readNumbers(stream, 30));
	for (const number of upTo(30)) service.notify({ type: 'n', number });
	for (const events of await Promise.all(reading)) expect(events.filter(isNumbered).map(numberIn)).toEqual(upTo(30));
	const { newestEventId } = device.agent.status();
	const acknowledged = await Promise.all(
		upTo(100).map((number) =>
			ask(device, LOCAL_ROUTES.ack, { method: 'POST', body: { consumer: `kiosk-${number}`, id: newestEventId } }),
		),
	);
	for (const { json } of acknowledged) expect(json).toMatchObject({ position: newestEventId });
	expect(await device.events()).toEqual([]);
});

test('events that shared one flush are no reason to call a consumer slow, however many they are', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const stream = await openStream(device);
	const { held, next } = holdFlushes((file) => /^events-.*\.log$/.test(file));
	const filler = 'x'.repeat(40_000);
	let flush: Held | null = null;
	let sent = 0;
	// The second group is more than the kernel takes and less than may wait; the third is more than that.
	for (const size of [1, 10, 30]) {
		for (const _ of upTo(size)) service.notify({ type: 'n', number: sent++, filler });
		// One gap came before them.
		await vi.waitFor(() => expect(device.agent.events.appendedId).toMatch(new RegExp(`-${sent + 1}$`)));
		flush?.release();
		flush = await next();
	}
	flush?.release();
	let isSettled = false;
	void device.agent.events.settled().then(() => (isSettled = true));
	while (!isSettled) {
		held.shift()?.release();
		await new Promise(setImmediate);
	}
	const events = await readNumbers(stream, sent);
	expect(events.filter(isNumbered).map(numberIn)).toEqual(upTo(sent));
	expect(events.map(({ event }) => event)).not.toContain('closed');
});

describe('a consumer that does not read', () => {
	/** More than the kernel and its queue hold, and less than is kept. */
	const COUNT = 20;
	const filler = 'x'.repeat(150_000);
	const notifyAll = (service: EmbeddedService, count = COUNT, text = filler) => {
		for (const number of upTo(count)) service.notify({ type: 'n', number, filler: text });
	};

	test.each([
		['large', COUNT, filler],
		['many', 900, 'x'.repeat(4000)],
	])('slows nobody, and gets everything once and in order when it reads again: %s', async (_name, count, text) => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const stuck = await openStream(device);
		const quick = readNumbers(await openStream(device), count);
		notifyAll(service, count, text);
		expect((await quick).filter(isNumbered).map(numberIn)).toEqual(upTo(count));
		expect((await ask(device, LOCAL_ROUTES.status)).json).toMatchObject({ state: 'online' });
		service.notify({ type: 'n', number: count });
		const seen = await readNumbers(stuck, count + 1);
		expect(seen.filter(isNumbered).map(numberIn)).toEqual(upTo(count + 1));
	});

	test('during a long replay holds only itself up', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		notifyAll(service);
		await device.untilEvent(({ content }) => content.includes(`"number":${COUNT - 1}`));
		const slow = await openStream(device);
		const quick = await openStream(device);
		for (const stream of [quick, slow])
			expect((await readNumbers(stream, COUNT)).filter(isNumbered).map(numberIn)).toEqual(upTo(COUNT));
	});

	test('goes on by number, without loss or repetition, wherever its connection broke', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const stuck = await openStream(device);
		notifyAll(service);
		const read = (await readNumbers(stuck, 3)).filter(isNumbered);
		stuck.destroy();
		const rest = await readNumbers(await openStream(device, read.at(-1)?.id ?? ''), COUNT - read.length);
		expect([...read, ...rest.filter(isNumbered)].map(numberIn)).toEqual(upTo(COUNT));
		expect(rest.some(({ event }) => event === 'gap')).toBe(false);
	});
});

test('one that was forgotten is not taken up again from a store that does not know it yet', () => {
	const consumers = createConsumers(
		() => 0,
		() => 1,
	);
	const stored = { kiosk: { number: 1, seenMs: 0 } };
	consumers.load(stored, 1);
	consumers.forget('kiosk');
	consumers.load(stored, 1);
	expect([...consumers.positions]).toEqual([]);
	consumers.join('kiosk');
	expect([...consumers.positions.keys()]).toEqual(['kiosk']);
});

test('a new one takes the place of the one that was silent longest, once that is as long as events are kept [F1872]', () => {
	let nowMs = 0;
	const consumers = createConsumers(
		() => nowMs,
		() => 1000,
	);
	for (const number of upTo(MAX_CONSUMERS)) consumers.join(`program-${number}`);
	nowMs = 500;
	consumers.join('program-1');
	nowMs = 999;
	expect(() => consumers.join('one-more')).toThrow(`${MAX_CONSUMERS} consumers already`);
	nowMs = 1000;
	consumers.join('one-more');
	expect(Object.keys(consumers.takeChanges()).at(-1)).toBe('one-more');
	expect(consumers.positions.has('program-1')).toBe(true);
	expect(consumers.positions.has('program-0')).toBe(false);
});

test('consumers of programs on agent.sock, however many, leave each application of the file its own [F1175]', () => {
	const consumers = createConsumers(
		() => 0,
		() => 1,
	);
	for (const number of upTo(MAX_CONSUMERS)) consumers.join(`program-${number}`);
	expect(() => consumers.join('one-more')).toThrow(`${MAX_CONSUMERS} consumers already`);
	for (const application of upTo(16)) {
		for (const number of upTo(6)) consumers.join(`app-${application}:${number}`);
		expect(() => consumers.join(`app-${application}:7`)).toThrow('This application has 6 consumers already');
	}
	// Those of lines that were taken out of the file are not asked for any more, and make room in time.
	expect(() => consumers.join('new:1')).toThrow('96 consumers already');
	expect(() => consumers.join('program-0')).not.toThrow();
});
