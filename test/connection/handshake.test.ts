/** Services that open their channel, take heartbeats or talk in a way of their own, and the settings that bring a device online. */
import fs from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { EIO } from '../base/lossy-files.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { ask } from '../local-api/local-asking.ts';

const TOKEN = 'tr-0123456789abcdef';

interface OtherService {
	readonly baseUrl: string;
	/** Messages that the device has sent, in order. */
	untilMessage(fits: (text: string) => boolean): Promise<string>;
	/** Other than handshakes. */
	readonly requests: readonly IncomingMessage[];
	messages(): readonly string[];
	/** Ends the open channel without a word. */
	cut(): void;
	send(text: string | Buffer): void;
}

/** @param accepts whether an upgrade is let in, by its URL, headers and subprotocols. */
async function givenOtherService(
	accepts: (url: URL, headers: Readonly<Record<string, unknown>>) => boolean,
	subprotocol?: string,
	registersAt = '/api/device/connection',
	upgradeHeader?: () => string,
): Promise<OtherService> {
	const requests: IncomingMessage[] = [];
	const server = createServer((request, response) => {
		requests.push(request);
		request.resume();
		if (request.url !== registersAt) return void response.writeHead(404).end();
		response.setHeader('content-type', 'application/json').end(JSON.stringify({ token: TOKEN }));
	});
	const sockets = new WebSocketServer({
		server,
		verifyClient: ({ req }: { req: IncomingMessage }) => accepts(new URL(req.url ?? '', 'http://x'), req.headers),
		handleProtocols: (offered) => (subprotocol !== undefined && offered.has(subprotocol) ? subprotocol : false),
	});
	sockets.on('headers', (headers) => {
		if (upgradeHeader) headers.push(upgradeHeader());
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
		requests,
		messages: () => messages,
		cut: () => open?.terminate(),
		send: (text) => open?.send(text),
	};
}

async function givenDevice(service: OtherService, settings: object, more: object = {}) {
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', 'ak-0123456789abcdef');
	return givenAgent({
		home,
		settings: {
			baseUrl: service.baseUrl,
			workflowId: 'check-in',
			credential: { apiKeyFile },
			service: settings,
			...more,
		},
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

	test('at a path and with a query that name the device and its workflow [F495]', async () => {
		const service = await givenOtherService(
			(url, headers) =>
				inHeader(url, headers) && url.pathname === '/d/KIOSK%2F0%201/ws' && url.search === '?w=check-in&v=2',
		);
		const device = await givenDevice(
			service,
			{ channelPath: '/d/{deviceId}/ws?w={workflowId}&v=2' },
			{ deviceId: 'KIOSK/0 1' },
		);
		await device.untilState('online');
	});

	test('with a query of its own beside the credential', async () => {
		const service = await givenOtherService((url) => url.search === `?v=2&authorization=Connection+${TOKEN}`);
		const device = await givenDevice(service, { channelPath: '/ws?v=2', channelAuth: 'query' });
		await device.untilState('online');
		expect(device.logText()).not.toContain(TOKEN);
	});

	test('at an address of its own', async () => {
		const events = await givenOtherService((url, headers) => inHeader(url, headers) && url.pathname === '/stream');
		const service = await givenOtherService(() => false);
		const device = await givenDevice(service, { channelPath: `${events.baseUrl.replace('http', 'ws')}/stream` });
		await device.untilState('online');
		events.send('{"type":"session.started"}');
		await device.untilEvent(({ kind }) => kind === 'session.started');
	});

	test('with headers of the settings, secret ones from a file, on every request to the service [F498]', async () => {
		const wanted = (headers: Readonly<Record<string, unknown>>) =>
			headers['x-tenant'] === 'north' && headers['x-gate-key'] === 'gate-0123456789abcdef';
		const service = await givenOtherService((url, headers) => inHeader(url, headers) && wanted(headers));
		const home = await givenHome();
		const headersFile = await home.secretFile('headers', '# the gate\nX-Gate-Key: gate-0123456789abcdef\n');
		const device = await givenDevice(service, { headers: ['X-Tenant: north'], headersFile });
		await device.untilState('online');
		await ask(device, '/v1/service/api/v1/sessions', { headers: { 'x-tenant': 'south' } });
		expect(service.requests.map(({ url, headers }) => [url, wanted(headers)])).toEqual([
			['/api/device/connection', true],
			['/api/v1/sessions', true],
		]);
		expect(device.logText()).not.toContain('gate-0123456789abcdef');
	});

	test.each(['registration', 'channel'])(
		'words of a %s that repeat the key or a secret header do not show them [F1612]',
		async (where) => {
			const words = 'no: gate-0123456789abcdef by ak-0123456789abcdef';
			const server = createServer((_, response) => {
				const body = where === 'channel' ? { token: TOKEN } : { error: { message: words } };
				response.writeHead(where === 'channel' ? 200 : 403, { 'content-type': 'application/json' });
				response.end(JSON.stringify(body));
			});
			const sockets = new WebSocketServer({ server });
			sockets.on('connection', (socket) => socket.close(4003, words));
			await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
			onTestFinished(() => void server.closeAllConnections());
			onTestFinished(() => void server.close());
			const home = await givenHome();
			const headersFile = await home.secretFile('headers', 'X-Gate-Key: gate-0123456789abcdef\n');
			const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
			const device = await givenDevice({ baseUrl } as OtherService, { headersFile });
			const status = await device.untilStatus(({ problem }) => problem !== null);
			expect(status.problem?.message).toContain('no: [secret] by [secret]');
			expect(JSON.stringify(status) + device.logText()).not.toMatch(/gate-01|ak-01/);
		},
	);

	test('with secret headers also at the service from before, while another address is tried and once it is refused, over a restart [F908]', async () => {
		const wanted = (headers: Readonly<Record<string, unknown>>) => headers['x-gate-key'] === 'gate-0123456789abcdef';
		const service = await givenOtherService((url, headers) => inHeader(url, headers) && wanted(headers));
		const home = await givenHome();
		const headersFile = await home.secretFile('headers', 'X-Gate-Key: gate-0123456789abcdef\n');
		const apiKeyFile = await home.secretFile('key', 'ak-0123456789abcdef');
		const good = {
			...{ baseUrl: service.baseUrl, workflowId: 'check-in', credential: { apiKeyFile }, service: { headersFile } },
			fleet: { changeLimitSeconds: 20 },
		};
		const device = await givenAgent({ home, settings: good });
		await device.untilState('online');
		await home.writeSettings({ ...good, baseUrl: 'https://127.0.0.1:1' });
		await device.daemon.reload();
		await device.untilStatus(({ problem }) => problem !== null);
		const comesBack = async () => {
			const lost = device.untilState('offline');
			service.cut();
			await lost;
			await device.passWait();
			await device.untilState('online');
		};
		await comesBack();
		device.clock.advance(20_000);
		await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code === 'settings-not-followed'));
		await comesBack();
		await device.stop();
		const again = await givenAgent({ home });
		expect(await again.untilState('online')).toMatchObject({ baseUrl: service.baseUrl });
	});

	test('after a registration at another path, which no application may ask for', async () => {
		const service = await givenOtherService(() => true, undefined, '/v2/devices/KIOSK-0001?register=1');
		const device = await givenDevice(service, { registrationPath: '/v2/devices/{deviceId}?register=1' });
		await device.untilState('online');
		const { status } = await ask(device, '/v1/service/v2/devices/KIOSK-0001', { method: 'POST' });
		expect(status).toBe(403);
		expect(service.requests).toHaveLength(1);
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

	test('a ping without a kind where notifications have theirs is answered with its own number', async () => {
		const service = await givenOtherService(() => true);
		const pong = { pingKind: 'PING', pongBody: { cmd: 'PONG', n: '{id}' } };
		const device = await givenDevice(service, { ...pong, kindPointer: '/code', notificationIdPointer: '/nr' });
		await device.untilState('online');
		service.send('{"cmd":"PING","n":20}');
		expect(JSON.parse(await service.untilMessage((text) => text.includes('PONG')))).toEqual({ cmd: 'PONG', n: 20 });
		service.send('{"cmd":"NOTIFY","code":101,"nr":1,"about":"PING"}');
		service.send('{"about":"PING"}');
		await device.untilEvent(({ kind }) => kind === 'unknown');
		expect((await device.events()).map(({ kind }) => kind)).toEqual(expect.arrayContaining(['101', 'unknown']));
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
		expect(text).toMatch(/^idv_agent_ignored_messages_total\{device="[^"]+"\} 3$/m);
	});

	test('kinds that are ignored are known at the usual place, too, where notifications have theirs elsewhere [F1080]', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, {
			kindPointer: '/data/type',
			ignoreKinds: ['heartbeat_ack', 'pong', 'idle', '6', '11'],
			ackBody: { ack: '{id}' },
		});
		await device.untilState('online');
		for (const text of ['{"event":"heartbeat_ack","id":"h"}', '{"cmd":"pong"}', ' idle\n', '{"type":6}', '{"op":11}'])
			service.send(text);
		service.send('{"event":"notification","id":"n","data":{"type":"session.started"}}');
		service.send('{"event":"pong","id":"p","data":{"type":"session.ended"}}');
		await service.untilMessage((text) => text === '{"ack":"p"}');
		const kept = (await device.events()).filter(({ type }) => type === 'notification');
		expect(kept.map(({ kind }) => kind)).toEqual(['session.started', 'session.ended']);
		expect(service.messages()).not.toContain('{"ack":"h"}');
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

describe('a channel on which the device says something first', () => {
	const firstMessages = [
		{ op: 'auth', token: '{token}' },
		{ op: 'subscribe', device: '{deviceId}', n: '{sequence}' },
	];

	test('is online once the message came that confirms it, which is no notification [F496]', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { firstMessages, confirmKind: 'subscribed', kindPointer: '/op' });
		const said = [
			await service.untilMessage(() => true),
			await service.untilMessage((text) => text.includes('subscribe')),
		];
		expect(said.map((text) => JSON.parse(text))).toEqual([
			{ op: 'auth', token: TOKEN },
			{ op: 'subscribe', device: 'KIOSK-0001', n: 2 },
		]);
		service.send('{"op":"early"}');
		await device.untilEvent(({ kind }) => kind === 'early');
		device.clock.advance(5000);
		expect(device.agent.status().state).not.toBe('online');
		service.send('{"op":"subscribed"}');
		await device.untilState('online');
		expect((await device.events()).map(({ kind }) => kind)).not.toContain('subscribed');
		expect(device.logText()).not.toContain(TOKEN);
	});

	test('is opened again where that message does not come, and the problem names the setting', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { firstMessages, confirmKind: 'subscribed' });
		await service.untilMessage((text) => text.includes('subscribe'));
		device.clock.advance(10_000);
		const { problem } = await device.untilStatus(({ problem }) => problem?.code === 'handshake-timeout');
		expect(problem?.message).toContain('no message "subscribed" came (service.confirmKind)');
	});
});

describe('a Connection that opens one channel only', () => {
	test.each([
		['in a header of the upgrade', 'header:X-Next'],
		['in a message, which is no notification', '/data/next'],
	])('is followed by the one %s, also after a restart [F499]', async (_what, nextConnection) => {
		let valid = TOKEN;
		let handed = 0;
		const next = () => {
			handed += 1;
			valid = `next-connection-000${handed}`;
			return valid;
		};
		const isInHeader = nextConnection.startsWith('header');
		const service = await givenOtherService(
			(_, { authorization }) => authorization === `Connection ${valid}`,
			undefined,
			undefined,
			isInHeader ? () => `X-Next: Connection ${next()}` : undefined,
		);
		const tell = () => isInHeader || service.send(JSON.stringify({ type: 'next', data: { next: next() } }));
		const device = await givenDevice(service, { nextConnection });
		await device.untilState('online');
		tell();
		service.send('{"type":"session.started"}');
		await device.untilEvent(({ kind }) => kind === 'session.started');
		service.cut();
		await device.untilState('offline');
		device.clock.advance(60_000);
		await device.untilState('online');
		tell();
		service.send('{"type":"session.ended"}');
		await device.untilEvent(({ kind }) => kind === 'session.ended');
		const kinds = (await device.events()).map(({ kind }) => kind);
		expect(kinds).not.toContain('next');
		await device.daemon.stop();
		const later = await givenAgent({ home: device.home });
		await later.untilState('online');
		expect(service.requests).toHaveLength(1);
		expect(device.logText()).not.toMatch(/next-connection-0/);
	});
});

describe('acknowledgements', () => {
	test('each stored notification is acknowledged under its id as it was written, also one that came before [F497]', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { ackBody: { ack: '{id}' }, ignoreKinds: ['chatter'] });
		await device.untilState('online');
		service.send('{"type":"chatter","id":"c-1"}');
		service.send('{"type":"nameless"}');
		for (const id of ['"n-1"', '7', '"n-1"']) service.send(`{"type":"session.started","id":${id}}`);
		service.send('{"type":"end","id":"e"}');
		await service.untilMessage((text) => text === '{"ack":"e"}');
		const acks = service.messages().filter((text) => text.includes('ack'));
		expect(acks).toEqual(['{"ack":"n-1"}', '{"ack":7}', '{"ack":"n-1"}', '{"ack":"e"}']);
		expect((await device.events()).filter(({ kind }) => kind === 'session.started')).toHaveLength(2);
	});
});

test('on a disk that takes nothing a notification is acknowledged once all applications have it [F1691]', async () => {
	const service = await givenOtherService(() => true);
	const device = await givenDevice(service, { ackBody: { ack: '{id}' } });
	await device.untilState('online');
	device.agent.events.join('kiosk');
	await device.agent.events.settled();
	const write = vi
		.spyOn(fs, 'write')
		.mockImplementation(((...given: Parameters<typeof fs.write>) =>
			(given.at(-1) as (error: Error) => void)(EIO)) as never);
	onTestFinished(() => write.mockRestore());
	for (const id of ['n-1', 'n-2']) service.send(`{"type":"session.started","id":"${id}"}`);
	await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code === 'state-unwritable'));
	const first = await device.untilEvent(({ serviceId }) => serviceId === 'n-1');
	await device.untilEvent(({ serviceId }) => serviceId === 'n-2');
	device.agent.events.acknowledge('kiosk', first.id);
	const acknowledged = () => service.messages().filter((text) => text.includes('ack'));
	await service.untilMessage((text) => text === '{"ack":"n-1"}');
	expect(acknowledged()).toEqual(['{"ack":"n-1"}']);
});

test('what a device sends besides heartbeats is numbered where a template asks for it [F1348]', async () => {
	const service = await givenOtherService(() => true);
	const device = await givenDevice(service, { firstMessages: ['hello {sequence}'], ackBody: 'ack {sequence} {id}' });
	await device.untilState('online');
	for (const id of ['n-1', 'n-2']) service.send(`{"type":"session.started","id":"${id}"}`);
	await service.untilMessage((text) => text.includes('n-2'));
	expect(service.messages()).toEqual(['hello 1', 'ack 2 n-1', 'ack 3 n-2']);
});

test('a service that answers acknowledgements with the same id is not acknowledged without end, with and without an id [F1250]', async () => {
	for (const [ackBody, ask, answer, acknowledged] of [
		[{ ack: '{id}' }, '{"type":"session.started","id":"n-1"}', '{"type":"ack.ok","id":"n-1"}', '{"ack":"n-1"}'],
		['ACK', '{"type":"session.started"}', 'OK', 'ACK'],
	] as const) {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { ackBody });
		await device.untilState('online');
		service.send(ask);
		await service.untilMessage((text) => text === acknowledged);
		for (let times = 0; times < 50; times += 1) service.send(answer);
		service.send('{"type":"end","id":"e"}');
		await expect.poll(async () => (await device.events()).some(({ kind }) => kind === 'end')).toBe(true);
		await expect.poll(() => service.messages().filter((text) => text === acknowledged).length).toBeGreaterThan(5);
		expect(service.messages().filter((text) => text === acknowledged).length).toBeLessThan(10);
		await device.daemon.stop();
	}
});

describe('messages of protocols of others', () => {
	test('arrays, records that end with a separator, and queries with braces of their own are said as they are written [F1082]', async () => {
		const service = await givenOtherService(() => true);
		const query = 'subscription { notifications { id } }';
		const device = await givenDevice(service, {
			firstMessages: [
				['1', '{sequence}', 'device:{deviceId}', 'phx_join', {}],
				'{"protocol":"json","version":1}\x1e',
				{ id: '1', type: 'subscribe', payload: { query } },
			],
			ackBody: [null, '{id}', 'ack'],
		});
		await device.untilState('online');
		service.send('{"type":"a","id":"n-1"}\x1e{"type":"b","id":"n-2"}\x1e');
		service.send('{"type":"c","id":"n-3"}\x1e');
		await service.untilMessage((text) => text === '[null,"n-3","ack"]');
		expect(service.messages().slice(0, 3)).toEqual([
			`["1",1,"device:${device.agent.status().deviceId}","phx_join",{}]`,
			'{"protocol":"json","version":1}\x1e',
			JSON.stringify({ id: '1', type: 'subscribe', payload: { query } }),
		]);
		const kept = (await device.events()).filter(({ type }) => type === 'notification');
		expect(kept.map(({ kind, content }) => [kind, content.at(-1)])).toEqual([
			['a', '}'],
			['b', '}'],
			['c', '}'],
		]);
	});
});

describe('frames that hold several messages, or JSON as bytes', () => {
	const lines = (count: number) => Array.from({ length: count }, (_, n) => `{"type":"line","n":${n}}`).join('\n');
	const cases: readonly [string, object, (string | Buffer)[], readonly string[]][] = [
		['64 lines with an object each are 64 messages', {}, [lines(64)], new Array<string>(64).fill('line')],
		['65 lines are one text', {}, [lines(65)], ['text']],
		['an array is one message', {}, ['[{"type":"a"},{"type":"b"}]'], ['unknown']],
		['lines of other text are one text', {}, ['one\ntwo'], ['text']],
		[
			'body: the JSON behind headers is the message, and a frame without is one text',
			{ frameContents: 'body' },
			['MESSAGE\nid:1\n\n{"type":"a"}\0', 'MESSAGE\r\n\r\n{"type":"b"}\n\0\n', 'CONNECTED\n\n\0', '{"type":"c"}'],
			['a', 'b', 'text', 'c'],
		],
		['one: lines are never taken apart', { frameContents: 'one' }, [lines(2)], ['text']],
		[
			'lines: each line is a message',
			{ frameContents: 'lines' },
			[`${lines(70)}\n\nword\n`],
			[...new Array<string>(70).fill('line'), 'text'],
		],
		[
			'array: each element is a message',
			{ frameContents: 'array' },
			['[{"type":"a","x":"],["},{"type":"b"}]', '[]', '{"type":"c"}'],
			['a', 'b', 'c'],
		],
		[
			'a pointer: each element of the array there is a message, whatever stands beside it',
			{ frameContents: '/of/the~1day' },
			[
				'{ "no": 1, "of": { "x": ["}"], "the/day" : [ {"type":"a","x":"],"} , {"type":"b"} ] } }',
				'{"type":"c","of":{"the/day":[]}}',
				'{"type":"d","of":{"the/day":"none"}}',
				'{"of":{"the/day":[{"type":"no"}],"the\\u002fday":[{"type":"e"}]}}',
				'[{"type":"f"}]',
			],
			['a', 'b', 'c', 'd', 'e', 'unknown'],
		],
		[
			'a pointer: an object with a kind beside the array is a message as well, and so is each in another array [F1624]',
			{ frameContents: '/data/events', kindPointer: '/head/kind' },
			[
				'{"alert": {"id":1, "type":"x"} ,"data":{"more":[{"type":"y"}],"events":[{"type":"a"}],"seq":7,"page":{"of":2}}}',
				'{"data":{"events":[]},"note":{"head":{"kind":"z"}},"other":[{"type":"no"},{}],"none":[]}',
			],
			['a', 'x', 'y', 'z'],
		],
		['bytes are kept as bytes', {}, [Buffer.from('{"type":"a"}')], ['binary']],
		[
			'JSON in a binary frame where a setting says so',
			{ jsonInBinary: true },
			[Buffer.from('{"type":"a"}'), Buffer.from([0xff, 0]), Buffer.from('word')],
			['a', 'binary', 'binary'],
		],
		['kinds may be numbers; a word comes first', {}, ['{"type":7}', '{"type":1,"event":"word"}'], ['7', 'word']],
	];

	test.each(cases)('%s', async (_what, settings, frames, kinds) => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, settings);
		await device.untilState('online');
		for (const frame of frames) service.send(frame);
		service.send('{"type":"end"}');
		await device.untilEvent(({ kind }) => kind === 'end');
		const notifications = (await device.events()).filter(({ type }) => type === 'notification');
		expect(notifications.map(({ kind }) => kind)).toEqual([...kinds, 'end']);
	});

	test('the elements of an array are kept as they were written', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { frameContents: 'array' });
		await device.untilState('online');
		service.send('[ {"type":"big", "n":12345678901234567890} , [1,[2]], "s,]" ]');
		service.send('{"type":"end"}');
		await device.untilEvent(({ kind }) => kind === 'end');
		const notifications = (await device.events()).filter(({ type }) => type === 'notification');
		expect(notifications.map(({ content }) => content).slice(0, -1)).toEqual([
			'{"type":"big", "n":12345678901234567890}',
			'[1,[2]]',
			'"s,]"',
		]);
	});

	test('what stands beside an array is kept as it was written [F1624]', async () => {
		const service = await givenOtherService(() => true);
		const device = await givenDevice(service, { frameContents: '/events' });
		await device.untilState('online');
		service.send('{"alert" : {"type":"big", "n":12345678901234567890} , "events":[ {"type":"a", "x":"}"} ]}');
		service.send('{"type":"end"}');
		await device.untilEvent(({ kind }) => kind === 'end');
		const notifications = (await device.events()).filter(({ type }) => type === 'notification');
		expect(notifications.map(({ content }) => content).slice(0, -1)).toEqual([
			'{"type":"a", "x":"}"}',
			'{"type":"big", "n":12345678901234567890}',
		]);
	});
});
