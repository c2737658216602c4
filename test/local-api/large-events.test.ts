/** Events that are larger than what an agent holds for one reader, over real sockets. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { createEventStreamParser } from '../../src/client/agent-socket.edge.ts';
import { createClient } from '../../src/client/client.runner.ts';
import { pageOfEvents, streamEvents } from '../../src/local-api/event-routes.runner.ts';
import { LOCAL_ROUTES, LOCAL_SOCKETS } from '../../src/protocol/local-api.ts';
import { givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { ask } from './local-asking.ts';

const KIB = 1024;
/** More than a piece for each reader, in JSON: the bound that docs/kiosk-software.md names. */
const ONE_READER = 144 * KIB;

async function givenDevice(set: Readonly<Record<string, string>> = {}) {
	const device = await givenPairedAgent(await givenService(), {
		settings: { events: { maxBytes: 64 * KIB * KIB } },
		...set,
	});
	const append = async (format: 'text' | 'json', content: string) => {
		const own = {
			at: new Date(0).toISOString(),
			type: 'notification',
			kind: 'large',
			workflowId: null,
			serviceId: null,
		} as const;
		device.agent.events.append({ ...own, format, content });
		await device.agent.events.settled();
		return device.agent.events.newest() ?? '';
	};
	return { device, append, start: await append('json', '"small"') };
}

/** The socket of one who asks for a stream. */
function openStream(device: RunningAgent, since: string) {
	const socket = connect(join(device.home.paths.runDir, LOCAL_SOCKETS.agent));
	onTestFinished(() => void socket.destroy());
	socket.write(`GET ${LOCAL_ROUTES.eventStream}?since=${since} HTTP/1.0\r\nHost: agent\r\n\r\n`);
	return socket;
}

test('a large event reaches streams and pages as it came, wherever its characters are cut', async () => {
	const { device, append, start } = await givenDevice();
	const texts = [
		'\u0001'.repeat(100 * KIB),
		...['', 'x', 'xy', 'xyz'].map((before) => `${before}${'\u{1f600}ü\ufeff"\\\u2028'.repeat(7000)}`),
	];
	const socket = openStream(device, start);
	const parse = createEventStreamParser();
	const streamed: unknown[] = [];
	socket.on('data', (bytes: Buffer) => streamed.push(...parse(bytes).map(({ data }) => JSON.parse(data).data)));
	const json = `[${texts.map((text) => JSON.stringify(text)).join(',\n')}]`;
	for (const text of texts) await append('text', text);
	await append('json', json);
	await expect.poll(() => streamed.length).toBe(texts.length + 1);
	// Of unequal ones a megabyte would be printed.
	const isSame = (found: readonly unknown[]) => isDeepStrictEqual(found, [...texts, texts]);
	expect(isSame(streamed)).toBe(true);
	const paged: unknown[] = [];
	for (let since = start; paged.length <= texts.length; ) {
		const { json: page, status } = await ask(device, `${LOCAL_ROUTES.events}?since=${since}`);
		expect(status).toBe(200);
		paged.push(...page.events.map(({ data }: { data: unknown }) => data));
		since = page.next;
	}
	expect(isSame(paged)).toBe(true);
	const { status, headers } = await ask(device, `${LOCAL_ROUTES.events}?since=${start}`, { method: 'HEAD' });
	expect([status, headers['content-type'], headers['content-length']]).toEqual([200, 'application/json', undefined]);
});

test('a byte order mark at the beginning of a content reaches streams, pages and the client [F782]', async () => {
	const { device, append, start } = await givenDevice();
	const texts = ['\ufeffplain', '\ufeff', '\ufeff{"type":"t"}', `\ufeff\ufeff${'x'.repeat(100 * KIB)}`];
	const parse = createEventStreamParser();
	const streamed: unknown[] = [];
	openStream(device, start).on('data', (bytes: Buffer) => {
		streamed.push(...parse(bytes).map(({ data }) => JSON.parse(data).data));
	});
	for (const text of texts) await append('text', text);
	await expect.poll(() => streamed).toEqual(texts);
	const { json } = await ask(device, `${LOCAL_ROUTES.events}?since=${start}`);
	expect(json.events.map(({ data }: { data: unknown }) => data)).toEqual(texts);
	const client = createClient({ socketPath: join(device.home.paths.runDir, LOCAL_SOCKETS.agent) });
	expect((await client.eventPage({ since: start })).events.map(({ text }) => text)).toEqual(texts);
});

test('one who takes nothing holds one piece of an event, whatever its characters become in JSON [F757]', async () => {
	const { device, append, start } = await givenDevice();
	await append('text', '\u0001'.repeat(4 * KIB * KIB));
	let bytes = 0;
	const take = (...parts: readonly (Buffer | boolean)[]) => {
		for (const part of parts) if (typeof part !== 'boolean') bytes += part.length;
		return true;
	};
	const offered = Promise.withResolvers<void>();
	const leave = streamEvents(device.agent, start, {
		...{ send: () => true, sendAll: take, sendPart: take, close() {}, isBehind: false },
		drained: () => (bytes === 0 ? Promise.resolve() : new Promise(() => offered.resolve())),
	});
	await offered.promise;
	leave();
	expect(bytes).toBeLessThan(ONE_READER);
	const request = { query: new URLSearchParams(), signal: AbortSignal.abort(), application: null };
	const { json } = await pageOfEvents(device.agent, device.clock, start, request as never);
	let whole = 0;
	for await (const { length } of json) {
		expect(length).toBeLessThan(ONE_READER);
		whole += length;
	}
	expect(whole).toBeGreaterThan(6 * 4 * KIB * KIB);
});

test('an event that is erased while it is read ends its stream and its page, and never arrives in part', async () => {
	const { device, append, start } = await givenDevice();
	await append('text', '\u0001'.repeat(4 * KIB * KIB));
	const socket = openStream(device, start);
	let text = '';
	socket.on('data', (bytes: Buffer) => {
		text += bytes;
	});
	while (!text.includes('data: {')) await once(socket, 'data');
	socket.pause();
	await device.agent.events.erase(() => true);
	socket.resume();
	await once(socket, 'close');
	expect(text).toContain('event: notification\ndata: {');
	expect(text).not.toContain('closed');
	expect(createEventStreamParser()(Buffer.from(text.slice(text.indexOf('\r\n\r\n') + 4)))).toEqual([]);
	const { json } = await ask(device, `${LOCAL_ROUTES.events}?since=${start}`);
	expect(json.events.map(({ type }: { type: string }) => type)).toEqual(['gap']);
});

test('a page of an event that goes while it is read is cut off, which is no fault of the agent [F1536]', async () => {
	const { device, append, start } = await givenDevice();
	await append('text', '\u0001'.repeat(4 * KIB * KIB));
	const socket = connect(join(device.home.paths.runDir, LOCAL_SOCKETS.agent));
	onTestFinished(() => void socket.destroy());
	socket.write(`GET ${LOCAL_ROUTES.events}?since=${start} HTTP/1.0\r\nHost: agent\r\n\r\n`);
	const [first] = await once(socket, 'data');
	socket.pause();
	await device.agent.events.erase(() => true);
	let text = String(first);
	socket.on('data', (bytes: Buffer) => {
		text += bytes;
	});
	socket.resume();
	await once(socket, 'close');
	expect(text).toMatch(/^HTTP\/1\.[01] 200/);
	expect(text.length).toBeLessThan(20 * KIB * KIB);
	expect(device.log.filter(({ level }) => level === 'error')).toEqual([]);
});
