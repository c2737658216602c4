/** Services that open their channel, take heartbeats or talk in a way of their own, and the settings that bring a device online. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { ask } from '../local-api/local-asking.ts';

const TOKEN = 'tr-0123456789abcdef';

interface OtherService {
	readonly baseUrl: string;
	/** Messages that the device has sent, in order. */
	untilMessage(fits: (text: string) => boolean): Promise<string>;
	send(text: string | Buffer): void;
}

/** @param accepts whether an upgrade is let in, by its URL, headers and subprotocols. */
async function givenOtherService(
	accepts: (url: URL, headers: Readonly<Record<string, unknown>>) => boolean,
	subprotocol?: string,
): Promise<OtherService> {
	const server = createServer((request, response) => {
		request.resume();
		response.setHeader('content-type', 'application/json').end(JSON.stringify({ token: TOKEN }));
	});
	const sockets = new WebSocketServer({
		server,
		verifyClient: ({ req }: { req: IncomingMessage }) => accepts(new URL(req.url ?? '', 'http://x'), req.headers),
		handleProtocols: (offered) => (subprotocol !== undefined && offered.has(subprotocol) ? subprotocol : false),
	});
	const messages: string[] = [];
	let listeners: (() => void)[] = [];
	let open: WebSocket | null = null;
	sockets.on('connection', (socket) => {
		open = socket;
		socket.on('message', (data) => {
			messages.push(String(data));
			for (const listener of listeners) listener();
		});
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(() => {
		for (const socket of sockets.clients) socket.terminate();
		sockets.close();
		server.closeAllConnections();
		server.close();
	});
	return {
		baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
		untilMessage: (fits) =>
			new Promise((resolve) => {
				const look = () => {
					const found = messages.find(fits);
					if (found === undefined) return;
					listeners = listeners.filter((one) => one !== look);
					resolve(found);
				};
				listeners.push(look);
				look();
			}),
		send: (text) => open?.send(text),
	};
}

async function givenDevice(service: OtherService, settings: object) {
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', 'ak-0123456789abcdef');
	return givenAgent({
		home,
		settings: { baseUrl: service.baseUrl, workflowId: 'check-in', credential: { apiKeyFile }, service: settings },
	});
}

describe('a channel that is opened in another way', () => {
	const inHeader = (_: URL, { authorization }: Readonly<Record<string, unknown>>) =>
		authorization === `Connection ${TOKEN}`;

	test.each([
		['by a parameter of another name', { channelAuth: 'query', queryName: 'auth' }, { auth: `Connection ${TOKEN}` }],
		['by the token alone', { channelAuth: 'queryToken', queryName: 'access_token' }, { access_token: TOKEN }],
	])('%s', async (_what, settings, expected) => {
		const [[name, value] = ['', '']] = Object.entries(expected);
		const service = await givenOtherService(
			(url, { authorization }) => authorization === undefined && url.searchParams.get(name) === value,
		);
		const device = await givenDevice(service, settings);
		await device.untilState('online');
		expect(device.logText()).not.toContain(TOKEN);
	});

	test('with a subprotocol', async () => {
		const service = await givenOtherService(
			(url, headers) => inHeader(url, headers) && headers['sec-websocket-protocol'] === 'device.v2',
			'device.v2',
		);
		const device = await givenDevice(service, { subprotocol: 'device.v2' });
		await device.untilState('online');
	});
});

describe('messages in another shape', () => {
	test('heartbeats as the settings write them', async () => {
		const service = await givenOtherService(() => true);
		const heartbeatBody = { op: 'beat', n: '{sequence}', who: 'id-{deviceId}', at: '{sentAtMs}' };
		const device = await givenDevice(service, { heartbeatBody });
		await device.untilState('online');
		const onlineMs = device.clock.wallMs();
		// The first comes at any moment of the cadence.
		device.clock.advance(30_000);
		const sent = JSON.parse(await service.untilMessage((text) => text.includes('beat')));
		expect(sent).toMatchObject({ op: 'beat', n: 1, who: 'id-KIOSK-0001' });
		expect(sent.at).toBeGreaterThanOrEqual(onlineMs);
		expect(sent.at).toBeLessThanOrEqual(device.clock.wallMs());
	});

	test('a ping of the application is answered with its id, and is no notification', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { pingKind: 'hello', pongBody: { type: 'hi', re: '{id}' } });
		await device.untilState('online');
		service.send('{"type":"hello","id":"p-7"}');
		expect(JSON.parse(await service.untilMessage((text) => text.includes('"hi"')))).toEqual({ type: 'hi', re: 'p-7' });
		service.send('{"type":"session.started"}');
		await device.untilEvent(({ kind }) => kind === 'session.started');
		expect((await device.events()).map(({ kind }) => kind)).not.toContain('hello');
	});

	test('kinds that are ignored are counted, and neither kept nor handed on', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { ignoreKinds: ['ack'] });
		await device.untilState('online');
		for (let count = 0; count < 3; count += 1) service.send('{"type":"ack"}');
		service.send('{"type":"session.started"}');
		await device.untilEvent(({ kind }) => kind === 'session.started');
		expect((await device.events()).filter(({ kind }) => kind === 'ack')).toEqual([]);
		const { text } = await ask(device, LOCAL_ROUTES.metrics);
		expect(text).toMatch(/^idv_agent_ignored_messages_total\{device="[^"]+",version="[^"]+"\} 3$/m);
	});

	test('a message over the limit becomes an event with its size, and the channel stays open', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { maxMessageBytes: 2000 });
		await device.untilState('online');
		service.send(JSON.stringify({ type: 'photo', data: 'x'.repeat(5000) }));
		service.send('{"type":"after"}');
		const { content } = await device.untilEvent(({ kind }) => kind === 'oversized');
		expect(JSON.parse(content)).toEqual({ bytes: 5026, limitBytes: 2000 });
		await device.untilEvent(({ kind }) => kind === 'after');
		expect(device.agent.status().state).toBe('online');
	});

	test('a message above 16 MiB ends the channel, and the limit is named', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, {});
		await device.untilState('online');
		service.send(Buffer.alloc(17 * 1024 * 1024));
		const { problem } = await device.untilStatus(({ problem }) => problem?.code === 'poison-message');
		expect(problem?.message).toContain('larger than 16 MiB');
	});
});
