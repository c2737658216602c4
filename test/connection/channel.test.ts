import { createHash } from 'node:crypto';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer as createTcpServer, Socket } from 'node:net';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { idleClock } from '../../src/base/clock.edge.ts';
import {
	type Channel,
	type ChannelEvent,
	type ChannelOptions,
	openChannel,
} from '../../src/connection/channel.edge.ts';
import { createNetwork, type NetworkSettings } from '../../src/connection/network.edge.ts';
import { MAX_FRAME_BYTES } from '../../src/protocol/channel.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import {
	connectProxy,
	ENDLESS,
	endlessServer,
	fixture,
	identity,
	listen,
	rawServer,
	refusedPort,
} from './network-peers.ts';

const TOKEN = 'connection-0123456789';
type EventType = ChannelEvent['type'];
type EventOf<Type extends EventType> = Extract<ChannelEvent, { type: Type }>;

interface Opened {
	readonly channel: Channel;
	readonly events: readonly ChannelEvent[];
	readonly types: () => EventType[];
	readonly until: <Type extends EventType>(type: Type, times?: number) => Promise<EventOf<Type>>;
}

/** Opens a channel and keeps its events; when the test ends, the channel has ended once and said nothing afterwards. */
function open(url: string, more: Partial<ChannelOptions> = {}, onEvent?: (event: ChannelEvent) => void): Opened {
	const events: ChannelEvent[] = [];
	const waiting = new Set<() => void>();
	const channel = openChannel(
		{
			url: new URL(url),
			authorization: `Connection ${TOKEN}`,
			userAgent: 'idv-agent/test',
			handshakeMs: 5000,
			proveAfterMs: 5000,
			pingIntervalMs: 5000,
			silenceLimitMs: 0,
			...more,
		},
		(event) => {
			events.push(event);
			onEvent?.(event);
			for (const look of waiting) look();
		},
	);
	const until = <Type extends EventType>(type: Type, times = 1) =>
		new Promise<EventOf<Type>>((resolve) => {
			const look = () => {
				const found = events.filter((event): event is EventOf<Type> => event.type === type)[times - 1];
				if (!found) return;
				waiting.delete(look);
				resolve(found);
			};
			waiting.add(look);
			look();
		});
	onTestFinished(async () => {
		channel.terminate();
		await until('ended');
		expect(events.filter((event) => event.type === 'ended')).toHaveLength(1);
		expect(events.at(-1)?.type).toBe('ended');
	});
	return { channel, events, types: () => events.map(({ type }) => type).filter((type) => type !== 'answered'), until };
}

interface Service {
	readonly url: string;
	readonly port: number;
	readonly upgrades: {
		readonly url: string;
		readonly authorization: string | undefined;
		readonly agent: string | undefined;
	}[];
}

/** A WebSocket service; `greet` gets each new peer. */
async function service(
	greet: (peer: WebSocket) => void = () => {},
	options: { server?: HttpServer; autoPong?: boolean } = {},
): Promise<Service> {
	const { server = createHttpServer(), autoPong = true } = options;
	const upgrades: Service['upgrades'] = [];
	const sockets = new WebSocketServer({ server, autoPong, maxPayload: 4 * 1024 * 1024 });
	sockets.on('connection', (peer, request) => {
		const { authorization, 'user-agent': agent } = request.headers;
		upgrades.push({ url: request.url ?? '', authorization, agent });
		peer.on('error', () => {});
		greet(peer);
	});
	const port = await listen(server);
	return { url: `ws://127.0.0.1:${port}/ws/device`, port, upgrades };
}

/** A peer that accepts the upgrade by hand and then has the bare socket. */
async function rawService(afterUpgrade: (socket: Socket) => void): Promise<string> {
	const { port } = await rawServer((socket, head) => {
		const key = /sec-websocket-key: (.*)\r\n/i.exec(head)?.[1] ?? '';
		const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
		socket.write(
			`HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
		);
		afterUpgrade(socket);
	});
	return `ws://127.0.0.1:${port}/ws/device`;
}

const answering = (text: string) => rawServer((socket) => socket.end(text));

async function agentFor(url: string, settings: NetworkSettings): Promise<Partial<ChannelOptions>> {
	const network = await createNetwork(settings, {});
	onTestFinished(() => network.close());
	return { agent: network.channelAgent(new URL(url)), proxy: network.proxyName(new URL(url)) };
}

describe('opening', () => {
	test('presents the credential and the user agent, and is proved by the first pong', async () => {
		const { url, upgrades } = await service();
		const opened = open(url);
		await opened.until('confirmed');
		expect(opened.types()).toEqual(['opened', 'confirmed']);
		expect(upgrades).toEqual([{ url: '/ws/device', authorization: `Connection ${TOKEN}`, agent: 'idv-agent/test' }]);
	});

	test('lets the kernel ask now and then whether the other side is there', async () => {
		const { url } = await service();
		const asked = vi.spyOn(Socket.prototype, 'setKeepAlive');
		onTestFinished(() => asked.mockRestore());
		await open(url).until('opened');
		expect(asked.mock.calls).toContainEqual([true, 60_000]);
	});

	test('leaves the header out when the query carries the credential', async () => {
		const { url, upgrades } = await service();
		await open(`${url}?authorization=Connection%20${TOKEN}`, { authorization: null }).until('opened');
		expect(upgrades[0]?.authorization).toBeUndefined();
		expect(upgrades[0]?.url).toContain(TOKEN);
	});

	test('tells how far the clock is off', async () => {
		const server = createHttpServer();
		const { url } = await service(() => {}, { server });
		server.removeAllListeners('upgrade');
		const sockets = new WebSocketServer({ noServer: true });
		sockets.on('headers', (headers) => headers.push(`date: ${new Date(Date.now() + 3_600_000).toUTCString()}`));
		server.on('upgrade', (request, socket, head) => sockets.handleUpgrade(request, socket, head, () => {}));
		const { clockSkewMs } = await open(url).until('opened');
		expect(clockSkewMs).toBeLessThan(-3_590_000);
		expect(clockSkewMs).toBeGreaterThan(-3_610_000);
	});

	test('is proved by a frame from a service that answers no ping', async () => {
		const { url } = await service((peer) => peer.send('hello'), { autoPong: false });
		const opened = open(url);
		await opened.until('frame');
		expect(opened.types()).toEqual(['opened', 'confirmed', 'frame']);
	});

	test('is proved by staying open with a service that says nothing', async () => {
		const { url } = await service(() => {}, { autoPong: false });
		const opened = open(url, { proveAfterMs: 50 });
		await opened.until('confirmed');
		expect(opened.types()).toEqual(['opened', 'confirmed']);
	});

	test('is proved by its age alone where neither a pong nor a frame is enough', async () => {
		const { url } = await service((peer) => peer.send('hello'));
		const opened = open(url, { proveAfterMs: 50, provesByAge: true });
		await opened.until('answered');
		await opened.until('confirmed');
		expect(opened.types().indexOf('confirmed')).toBeGreaterThan(opened.types().indexOf('frame'));
	});

	test('is not proved by a service that accepts and closes', async () => {
		const { url } = await service((peer) => peer.close(1011, 'no room'), { autoPong: false });
		const opened = open(url);
		const ended = await opened.until('ended');
		expect(opened.types()).toEqual(['opened', 'ended']);
		expect(ended).toMatchObject({ closeCode: 1011, timedOut: false, failure: { code: 'connection-lost' } });
	});

	test('that stops within TLS is told from a host that is away', async () => {
		const { port } = await rawServer(() => {});
		const url = new URL(`wss://127.0.0.1:${port}/ws/device`);
		const network = await createNetwork({}, {});
		onTestFinished(() => network.close());
		const ended = await open(url.href, { handshakeMs: 300, agent: network.channelAgent(url) }).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'tls-failed', params: { reason: 'stalled' } }, timedOut: true });
	});

	test('never tells anything before the call has returned', async () => {
		let returned = false;
		const seen: boolean[] = [];
		const broken = open('ws://127.0.0.1:1/#fragment', {}, () => seen.push(returned));
		returned = true;
		const ended = await broken.until('ended');
		expect(seen).toEqual([true]);
		expect(ended.failure.code).toBe('internal');
		expect(broken.channel.sendText('x')).toBe(false);
	});

	test('ends the channel at once when the listener wants it', async () => {
		const { url } = await service();
		const opened = open(url, {}, (event) => {
			if (event.type === 'opened') queueMicrotask(() => opened.channel.terminate());
		});
		expect((await opened.until('ended')).failure.code).toBe('connection-lost');
	});
});

describe('frames', () => {
	test('come as text and as bytes, in order', async () => {
		const { url } = await service((peer) => {
			peer.send('{"type":"a"}');
			peer.send(Buffer.from([0, 255]));
			peer.send('größer');
		});
		const opened = open(url);
		await opened.until('frame', 3);
		const frames = opened.events.flatMap((event) => (event.type === 'frame' ? [event.frame] : []));
		expect(
			frames.map((frame) => (frame.type === 'binary' ? [...frame.bytes] : frame.type === 'text' ? frame.text : frame)),
		).toEqual(['{"type":"a"}', [0, 255], 'größer']);
	});

	test('are taken up to the limit', async () => {
		const { url } = await service((peer) => peer.send('x'.repeat(MAX_FRAME_BYTES)));
		const { frame } = await open(url).until('frame');
		expect(frame.type === 'text' && frame.text.length).toBe(MAX_FRAME_BYTES);
	});

	test('beyond the limit are poison [F027]', async () => {
		const { url } = await service((peer) => peer.send('x'.repeat(MAX_FRAME_BYTES + 1)));
		const ended = await open(url).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'poison-message' }, closeCode: null });
	});

	test('of invalid UTF-8 are poison [F028]', async () => {
		const url = await rawService((socket) => socket.end(Buffer.from([0x81, 0x02, 0xc3, 0x28])));
		const ended = await open(url).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'poison-message' }, closeCode: null });
	});

	test.each([
		[1006, [0x03, 0xee]],
		[1015, [0x03, 0xf7]],
		[2000, [0x07, 0xd0]],
	])(
		'a close code that never goes over the wire (%i) is told as the end of the channel [F1644]',
		async (code, bytes) => {
			const url = await rawService((socket) => socket.end(Buffer.from([0x88, 0x02, ...bytes])));
			const { failure: told } = await open(url).until('ended');
			expect(told.code).toBe('connection-lost');
			expect(told.message).toMatch(new RegExp(`closed the channel with ${code}`));
		},
	);

	test('are sent while the channel is open', async () => {
		const heard = Promise.withResolvers<string>();
		const { url } = await service((peer) => peer.on('message', (data) => heard.resolve(String(data))));
		const opened = open(url);
		expect(opened.channel.sendText('too early')).toBe(false);
		await opened.until('opened');
		expect(opened.channel.sendText('{"type":"heartbeat"}')).toBe(true);
		expect(await heard.promise).toBe('{"type":"heartbeat"}');
		opened.channel.terminate();
		await opened.until('ended');
		expect(opened.channel.sendText('too late')).toBe(false);
	});

	test('of a megabyte are taken, and none that is a byte longer', async () => {
		const { url } = await service();
		for (const [text, isTaken] of [
			['x'.repeat(1024 * 1024), true],
			['x'.repeat(1024 * 1024 + 1), false],
			[`${'é'.repeat(512 * 1024)}x`, false],
		] as const) {
			const opened = open(url);
			await opened.until('opened');
			expect(opened.channel.sendText(text)).toBe(isTaken);
		}
	});

	test('are refused when a megabyte waits to be sent', async () => {
		const { url } = await service((peer) => peer.pause());
		const opened = open(url);
		await opened.until('opened');
		const text = 'x'.repeat(256 * 1024);
		let taken = 0;
		while (taken < 200 && opened.channel.sendText(text)) taken += 1;
		expect(taken).toBeGreaterThan(0);
		expect(taken).toBeLessThan(200);
		expect(opened.channel.bufferedAmount).toBeLessThanOrEqual(1024 * 1024 + 100);
	});
});

describe('a refused upgrade', () => {
	const rows: [number, string, string?, string?][] = [
		[200, 'channel-rejected'],
		[200, 'captive-portal', 'content-type: text/html\r\n'],
		[302, 'captive-portal', 'location: http://portal.test/?mac=1\r\n'],
		[307, 'redirect-refused', 'location: /other\r\n'],
		[400, 'channel-rejected'],
		[401, 'credential-refused'],
		[403, 'access-forbidden'],
		[404, 'channel-not-found'],
		[407, 'proxy-refused'],
		[426, 'channel-rejected'],
		[429, 'service-overloaded', 'retry-after: 7\r\n'],
		[500, 'service-failed'],
		[503, 'service-overloaded', 'retry-after: 7\r\n'],
	];
	test('with a date to wait for and none of the answer is reckoned by the clock of this device', async () => {
		const asked = new Date(Date.now() + 3_600_000).toUTCString();
		const { port } = await answering(`HTTP/1.1 503 Answer\r\nretry-after: ${asked}\r\ncontent-length: 0\r\n\r\n`);
		const { failure } = await open(`ws://127.0.0.1:${port}/ws/device`).until('ended');
		expect(Math.round((failure.retryAfterMs ?? 0) / 3_600_000)).toBe(1);
	});

	test.each(rows)('with %i is %s [F020]', async (status, code, header = '') => {
		const { port, heads } = await answering(`HTTP/1.1 ${status} Answer\r\n${header}content-length: 0\r\n\r\n`);
		const opened = open(`ws://127.0.0.1:${port}/ws/device`);
		const ended = await opened.until('ended');
		expect(ended).toMatchObject({ failure: { code }, closeCode: null, timedOut: false });
		if (header.startsWith('retry-after')) expect(ended.failure.retryAfterMs).toBe(7000);
		expect(opened.types()).toEqual(['ended']);
		expect(heads).toHaveLength(1);
	});

	test('does not carry the credential to where a redirect points', async () => {
		const elsewhere = await service();
		const { port } = await answering(
			`HTTP/1.1 302 Found\r\nlocation: ws://localhost:${elsewhere.port}/steal\r\ncontent-length: 0\r\n\r\n`,
		);
		expect((await open(`ws://127.0.0.1:${port}/ws/device`).until('ended')).failure.code).toBe('captive-portal');
		expect(elsewhere.upgrades).toEqual([]);
	});

	test('says what the service says, without the credential', async () => {
		const body = `{"detail":"Connection ${TOKEN} has ended"}`;
		const { port } = await answering(`HTTP/1.1 401 No\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
		const { failure } = await open(`ws://127.0.0.1:${port}/ws/device`).until('ended');
		expect(failure.message).toContain('401: Connection [secret] has ended.');
	});

	test('keeps a credential of the query out of the message', async () => {
		const { port } = await answering(`HTTP/1.1 401 No\r\ncontent-length: ${TOKEN.length}\r\n\r\n${TOKEN}`);
		const url = `ws://127.0.0.1:${port}/ws/device?authorization=Connection%20${TOKEN}`;
		const { failure } = await open(url, { authorization: null }).until('ended');
		expect(JSON.stringify(failure)).not.toContain(TOKEN);
	});

	test('reads only the beginning of a body that goes on and on', async () => {
		const { port } = await rawServer((socket) => {
			socket.write('HTTP/1.1 401 No\r\ncontent-length: 52428800\r\n\r\n');
			const pour = () => {
				while (!socket.destroyed && socket.write(Buffer.alloc(65_536, 'x')));
			};
			socket.on('drain', pour);
			pour();
		});
		const { failure } = await open(`ws://127.0.0.1:${port}/ws/device`).until('ended');
		expect(failure.code).toBe('credential-refused');
	});

	test('keeps its status under a head of up to 64 KiB [F1599]', async () => {
		const head = `x-long: ${'a'.repeat(60_000)}\r\n`;
		const { port } = await answering(`HTTP/1.1 403 No\r\n${head}content-length: 0\r\n\r\n`);
		const { failure } = await open(`ws://127.0.0.1:${port}/ws/device`).until('ended');
		expect(failure.code).toBe('access-forbidden');
	});

	test.each(ENDLESS)('is not waited for while %s come without end in its place [F1599]', async (_, text) => {
		const { port, sent } = await endlessServer(text);
		const { failure } = await open(`ws://127.0.0.1:${port}/ws/device`, { handshakeMs: 3_600_000 }).until('ended');
		expect(failure.code).toBe('bad-response');
		expect(await sent).toBeLessThan(16 * 1024 * 1024);
	});

	test('stands two seconds later when the body does not end, however long a handshake may take', async () => {
		const { port } = await rawServer((socket) => socket.write('HTTP/1.1 503 No\r\ncontent-length: 9\r\n\r\nbusy'));
		const clock = createSteppedClock();
		const startedMs = clock.monotonicMs();
		const opened = open(`ws://127.0.0.1:${port}/`, { clock, handshakeMs: 3_600_000 });
		const types = () => {
			clock.advance(2000);
			return opened.types();
		};
		await expect.poll(types).toEqual(['ended']);
		expect(clock.monotonicMs() - startedMs).toBeLessThan(3_600_000);
	});

	test('stands when the body breaks off, does not come, or drips past the deadline', async () => {
		const head = 'HTTP/1.1 403 No\r\ncontent-length: 500\r\n\r\nnot here';
		const broken = await rawServer((socket) => socket.end(head));
		const stuck = await rawServer((socket) => socket.write(head));
		const dripping = await rawServer((socket) => {
			socket.write(head);
			const drip = setInterval(() => socket.write(' '), 20);
			socket.on('close', () => clearInterval(drip));
		});
		for (const { port } of [broken, stuck, dripping]) {
			const startedMs = performance.now();
			const ended = await open(`ws://127.0.0.1:${port}/ws/device`, { handshakeMs: 200 }).until('ended');
			expect(ended).toMatchObject({ timedOut: false, failure: { code: 'access-forbidden' } });
			expect(ended.failure.message).toContain('not here');
			expect(performance.now() - startedMs).toBeLessThan(6000);
		}
	});

	test('that is no proper upgrade is rejected', async () => {
		const { port } = await rawServer((socket) =>
			socket.write(
				'HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n',
			),
		);
		const { failure } = await open(`ws://127.0.0.1:${port}/ws/device`).until('ended');
		expect(failure).toMatchObject({
			code: 'channel-rejected',
			message: expect.stringContaining('Sec-WebSocket-Accept'),
		});
	});
});

describe('a handshake that fails', () => {
	test('because nobody listens', async () => {
		const ended = await open(`ws://127.0.0.1:${await refusedPort()}/`).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'service-unreachable' }, closeCode: null, timedOut: false });
	});

	test('because the name can not be resolved', async () => {
		expect((await open('ws://no-such-host.invalid/').until('ended')).failure.code).toBe('dns-failed');
	});

	test('because the connection is cut', async () => {
		const { port } = await rawServer((socket) => socket.destroy());
		expect((await open(`ws://127.0.0.1:${port}/`).until('ended')).failure.code).toBe('connection-lost');
	});

	test('because what answers is no HTTP', async () => {
		const { port } = await answering('SSH-2.0-OpenSSH_9\r\n\r\n');
		expect((await open(`ws://127.0.0.1:${port}/`).until('ended')).failure.code).toBe('bad-response');
	});

	test('because nothing comes before the deadline', async () => {
		const port = await listen(createTcpServer());
		const ended = await open(`ws://127.0.0.1:${port}/`, { handshakeMs: 100 }).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'handshake-timeout' }, timedOut: true, closeCode: null });
	});

	test('because its head drips past the deadline [F042]', async () => {
		const { port } = await rawServer((socket) => {
			socket.write('HTTP/1.1 101 Switching\r\n');
			const drip = setInterval(() => socket.write('x-drip: 1\r\n'), 20);
			socket.on('close', () => clearInterval(drip));
		});
		const ended = await open(`ws://127.0.0.1:${port}/`, { handshakeMs: 150 }).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'handshake-timeout' }, timedOut: true });
	});

	test('because it is given up', async () => {
		const port = await listen(createTcpServer());
		const opened = open(`ws://127.0.0.1:${port}/`);
		opened.channel.close(1000, 'done');
		expect(await opened.until('ended')).toMatchObject({ failure: { code: 'connection-lost' }, timedOut: false });
	});
});

describe('TLS', () => {
	const rows = [
		['expired', 'certificate-expired'],
		['not-yet-valid', 'clock-wrong'],
		['wrong-host', 'certificate-wrong-host'],
	] as const;
	test.each(rows)('with the certificate %s is %s', async (name, code) => {
		const { port } = await service(() => {}, { server: createHttpsServer(identity(name)) });
		const url = `wss://localhost:${port}/ws/device`;
		const opened = open(url, await agentFor(url, { caFile: fixture('ca.pem') }));
		expect((await opened.until('ended')).failure.code).toBe(code);
	});

	test('of an unknown authority is untrusted [F049]', async () => {
		const { port, upgrades } = await service(() => {}, { server: createHttpsServer(identity('server')) });
		expect((await open(`wss://localhost:${port}/`).until('ended')).failure.code).toBe('certificate-untrusted');
		expect(upgrades).toEqual([]);
	});

	test('of the own authority is trusted, and bytes are heard through it', async () => {
		const { port } = await service((peer) => peer.send('secret'), { server: createHttpsServer(identity('server')) });
		const url = `wss://localhost:${port}/ws/device`;
		const { frame } = await open(url, await agentFor(url, { caFile: fixture('ca.pem') })).until('frame');
		expect(frame).toEqual({ type: 'text', text: 'secret' });
	});

	test('without the client certificate that is asked for says so; with it all is well', async () => {
		const server = createHttpsServer({ ...identity('server'), requestCert: true, rejectUnauthorized: true });
		const { port } = await service(() => {}, { server });
		const url = `wss://localhost:${port}/ws/device`;
		const without = open(url, await agentFor(url, { caFile: fixture('ca.pem') }));
		expect((await without.until('ended')).failure.remedy).toContain('network.clientCertificateFile');
		const settings = {
			caFile: fixture('ca.pem'),
			clientCertificateFile: fixture('client.pem'),
			clientKeyFile: fixture('client.key'),
		};
		await open(url, await agentFor(url, settings)).until('confirmed');
	});

	test('on a port that does not speak it has failed', async () => {
		const port = await listen(createTcpServer((socket) => socket.end('220 mail.test ESMTP\r\n')));
		expect((await open(`wss://127.0.0.1:${port}/`).until('ended')).failure.code).toBe('tls-failed');
	});
});

describe('through a proxy', () => {
	const url = 'wss://service.test/ws/device';
	const through = (port: number, userinfo = '') =>
		agentFor(url, { proxy: `http://${userinfo}127.0.0.1:${port}`, caFile: fixture('ca.pem') });

	test('the channel opens with user and password', async () => {
		const { port, upgrades } = await service(() => {}, { server: createHttpsServer(identity('server')) });
		const proxy = await connectProxy({ targetPort: port, password: 'kiosk:p@ss' });
		await open(url, await through(proxy.port, 'kiosk:p%40ss@')).until('confirmed');
		expect(proxy.heads[0]).toMatch(/^CONNECT service\.test:443 /);
		expect(proxy.heads.join()).not.toContain(TOKEN);
		expect(upgrades[0]?.authorization).toBe(`Connection ${TOKEN}`);
	});

	const statuses = [
		[401, 'proxy-refused'],
		[403, 'proxy-refused'],
		[407, 'proxy-refused'],
		[502, 'proxy-failed'],
		[503, 'proxy-failed'],
	] as const;
	test.each(statuses)("the proxy's own %i is never the service's: %s", async (status, code) => {
		const proxy = await connectProxy({ status });
		const { failure } = await open(url, await through(proxy.port)).until('ended');
		expect(failure).toMatchObject({ code, message: expect.stringContaining(String(status)) });
	});

	test("the service's own 401 is the service's", async () => {
		const server = createHttpsServer(identity('server'));
		server.on('upgrade', (_request, socket) => socket.end('HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n'));
		const proxy = await connectProxy({ targetPort: await listen(server) });
		expect((await open(url, await through(proxy.port)).until('ended')).failure.code).toBe('credential-refused');
	});

	test('a proxy that is not there or hangs up has failed', async () => {
		const gone = await refusedPort();
		const dropping = await connectProxy({ behaviour: 'drop' });
		for (const port of [gone, dropping.port])
			expect((await open(url, await through(port)).until('ended')).failure.code).toBe('proxy-failed');
	});

	test('a proxy that does not answer is left at the deadline', async () => {
		const proxy = await connectProxy({ behaviour: 'hang' });
		const ended = await open(url, { ...(await through(proxy.port)), handshakeMs: 150 }).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'handshake-timeout' }, timedOut: true });
		await proxy.abandoned;
	});

	test('the certificate of the service is checked all the same', async () => {
		const proxy = await connectProxy({ targetPort: await listen(createHttpsServer(identity('wrong-host'))) });
		expect((await open(url, await through(proxy.port)).until('ended')).failure.code).toBe('certificate-wrong-host');
	});
});

describe('the end of an open channel', () => {
	const rows: [number, string][] = [
		[1000, 'connection-lost'],
		[1001, 'connection-lost'],
		[1002, 'connection-lost'],
		[1003, 'connection-lost'],
		[1007, 'connection-lost'],
		[1008, 'credential-refused'],
		[1009, 'connection-lost'],
		[1010, 'connection-lost'],
		[1011, 'connection-lost'],
		[1012, 'connection-lost'],
		[1013, 'connection-lost'],
		[4401, 'credential-refused'],
		[4403, 'credential-refused'],
		[4409, 'connection-replaced'],
	];
	test.each(rows)('with %i is %s [F024]', async (code, expected) => {
		const { url } = await service((peer) => peer.close(code, 'because'));
		const ended = await open(url).until('ended');
		expect(ended).toMatchObject({ closeCode: code, timedOut: false, failure: { code: expected } });
		expect(ended.failure.message).toContain('because');
	});

	test('without a code has none', async () => {
		const { url } = await service((peer) => peer.close());
		expect(await open(url).until('ended')).toMatchObject({ closeCode: null, failure: { code: 'connection-lost' } });
	});

	test('by a cut has no code', async () => {
		const { url } = await service((peer) => peer.terminate());
		expect(await open(url).until('ended')).toMatchObject({ closeCode: null, failure: { code: 'connection-lost' } });
	});

	test('by this side is told to the service, and its last frames still come', async () => {
		const told = Promise.withResolvers<[number, string]>();
		const { url } = await service((peer) => {
			peer.send('one');
			peer.on('close', (code, reason) => told.resolve([code, String(reason)]));
		});
		const opened = open(url, {}, (event) => {
			if (event.type === 'confirmed') opened.channel.close(1000, 'moving on');
		});
		expect(await opened.until('ended')).toMatchObject({ closeCode: null, failure: { code: 'connection-lost' } });
		expect(await told.promise).toEqual([1000, 'moving on']);
		expect(opened.types()).toEqual(['opened', 'confirmed', 'frame', 'ended']);
	});

	test('comes even when the service does not answer the goodbye', async () => {
		const url = await rawService(() => {});
		const opened = open(url, { closeMs: 100 });
		await opened.until('opened');
		opened.channel.close(1000, 'moving on');
		expect((await opened.until('ended')).failure.code).toBe('connection-lost');
	});
});

test('pings leave at their times, and once after a stall, also one that ends as another is due', async () => {
	const heard: string[] = [];
	const { url } = await service((peer) => {
		peer.on('ping', () => heard.push('ping'));
		peer.on('message', (text) => {
			heard.push(String(text));
			peer.send('');
		});
	});
	const clock = createSteppedClock();
	const opened = open(url, { clock });
	await opened.until('confirmed');
	/** What the service has heard since it was last asked. */
	const since = async () => {
		await new Promise(setImmediate);
		opened.channel.sendText('asked');
		await opened.until('frame', opened.types().filter((type) => type === 'frame').length + 1);
		return heard.splice(0);
	};
	// The first frame moves them to its own time.
	await since();
	await since();
	clock.advance(3999);
	expect(await since()).toEqual(['asked']);
	clock.advance(1);
	expect(await since()).toEqual(['ping', 'asked']);
	clock.advance(4999);
	expect(await since()).toEqual(['asked']);
	clock.stall(12_001);
	expect(await since()).toEqual(['ping', 'asked']);
	clock.advance(3000);
	expect(await since()).toEqual(['ping', 'asked']);
	clock.stall(10_000);
	expect(await since()).toEqual(['ping', 'asked']);
	expect(clock.pending).toBe(1);
	opened.channel.terminate();
	expect(clock.pending).toBe(0);
});

test('a channel that is proved by time alone is not pinged for that', async () => {
	const heard: string[] = [];
	const asked = Promise.withResolvers<string[]>();
	const { url } = await service(
		(peer) => {
			peer.on('ping', () => heard.push('ping'));
			peer.on('message', () => asked.resolve([...heard]));
		},
		{ autoPong: false },
	);
	const clock = createSteppedClock();
	const opened = open(url, { clock, proveAfterMs: 3000 });
	await opened.until('opened');
	clock.advance(3000);
	await opened.until('confirmed');
	opened.channel.sendText('asked');
	expect(await asked.promise).toEqual(['ping']);
});

describe('a silent channel', () => {
	test('is ended after the limit', async () => {
		const { url } = await service((peer) => peer.pause(), { autoPong: false });
		const ended = await open(url, { pingIntervalMs: 30, silenceLimitMs: 1500 }).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'channel-silent' }, closeCode: null, timedOut: false });
		expect(ended.failure.params?.['seconds']).toBe(2);
	});

	test('that has answered a ping is not told as that of a service that answers none', async () => {
		const { url } = await service((peer) => peer.once('ping', () => setImmediate(() => peer.pause())));
		const ended = await open(url, { pingIntervalMs: 30, silenceLimitMs: 150 }).until('ended');
		expect(ended).toMatchObject({ failure: { code: 'channel-silent', remedy: expect.stringMatching(/^Pings were/) } });
	});

	test('is left alone without a limit', async () => {
		const pings = Promise.withResolvers<void>();
		const { url } = await service(
			(peer) => {
				let count = 0;
				peer.on('ping', () => {
					count += 1;
					if (count === 5) pings.resolve();
				});
			},
			{ autoPong: false },
		);
		const opened = open(url, { pingIntervalMs: 20, silenceLimitMs: 0 });
		await pings.promise;
		expect(opened.types()).not.toContain('ended');
	});

	test('is pinged with its first heartbeat, and then a moment before each, so that both share a wakeup', async () => {
		const order: string[] = [];
		const heard = Promise.withResolvers<void>();
		const { url } = await service((peer) => {
			peer.on('ping', () => order.push('ping'));
			peer.on('message', () => {
				if (order.push('frame') >= 4) heard.resolve();
			});
		});
		const delays: number[] = [];
		const schedule: typeof idleClock.schedule = (delayMs, callback) => {
			delays.push(delayMs);
			return idleClock.schedule(delayMs, callback);
		};
		// A busy machine takes milliseconds for each step.
		const clock = { ...idleClock, schedule, monotonicMs: () => 0 };
		const opened = open(url, { pingIntervalMs: 30_000, silenceLimitMs: 0, clock });
		await opened.until('confirmed');
		delays.length = 0;
		opened.channel.sendText('heartbeat');
		expect(delays).toEqual([29_000]);
		opened.channel.sendText('heartbeat');
		await heard.promise;
		expect([order, delays]).toEqual([['ping', 'frame', 'ping', 'frame'], [29_000]]);
	});

	test('is not one whose service answers pings', async () => {
		const pings = Promise.withResolvers<void>();
		const { url } = await service((peer) => {
			let count = 0;
			peer.on('ping', () => {
				count += 1;
				if (count === 10) pings.resolve();
			});
		});
		const opened = open(url, { pingIntervalMs: 40, silenceLimitMs: 200 });
		await pings.promise;
		expect(opened.types()).toEqual(['opened', 'confirmed']);
		expect(opened.events.filter(({ type }) => type === 'answered').length).toBeGreaterThan(3);
	});

	test('is not one on which a large frame is still coming in', async () => {
		const url = await rawService((socket) => {
			socket.write(Buffer.from([0x81, 126, 40_000 >> 8, 40_000 & 0xff]));
			drip(socket, { pieces: 40, bytes: 1000 });
		});
		const { frame } = await open(url, { pingIntervalMs: 5000, silenceLimitMs: 150 }).until('frame');
		expect(frame).toEqual({ type: 'text', text: 'x'.repeat(40_000) });
	});

	test('is one on which single bytes of a frame come in; what is missing since the newest whole frame is known [F1694]', async () => {
		const url = await rawService((socket) => {
			socket.write(Buffer.from([0x81, 2, 0x68, 0x69, 0x81, 126, 40_000 >> 8, 40_000 & 0xff]));
			drip(socket, { pieces: 1000, bytes: 1 });
		});
		const opened = open(url, { pingIntervalMs: 5000, silenceLimitMs: 150 });
		const { failure, line } = await opened.until('ended');
		expect([failure.code, opened.types().includes('frame')]).toEqual(['channel-silent', true]);
		expect(line?.inboundSilenceMs).toBeLessThan(line?.sinceFrameMs ?? 0);
		expect(line?.sinceFrameMs).toBeGreaterThanOrEqual(150);
	});

	function drip(socket: Socket, { pieces, bytes }: { readonly pieces: number; readonly bytes: number }): void {
		let sent = 0;
		const timer = setInterval(() => {
			socket.write('x'.repeat(bytes));
			sent += 1;
			if (sent === pieces) clearInterval(timer);
		}, 10);
		socket.on('close', () => clearInterval(timer));
	}

	test('is not one that this process was too busy to hear', async () => {
		let speaker: WebSocket | undefined;
		const { url } = await service((peer) => {
			speaker = peer;
		});
		const opened = open(url, { pingIntervalMs: 20, silenceLimitMs: 100 });
		await opened.until('confirmed');
		speaker?.send('said in time');
		const untilMs = performance.now() + 250;
		while (performance.now() < untilMs);
		await opened.until('frame');
		expect(opened.types()).not.toContain('ended');
	});
});

describe('a machine that was suspended', () => {
	test('has its channel ended when the next ping is due, although nobody is silent', async () => {
		let sleptMs = 60_000;
		const { url } = await service();
		const opened = open(url, { pingIntervalMs: 20, silenceLimitMs: 0, sleptMs: () => sleptMs });
		await opened.until('confirmed');
		sleptMs += 7_200_000;
		const ended = await opened.until('ended');
		expect(ended).toMatchObject({ failure: { code: 'connection-lost' }, closeCode: null, timedOut: false });
		expect(ended.failure.message).toContain('slept for 7200 s');
	});

	test('for a moment keeps it', async () => {
		let sleptMs = 0;
		const pings = Promise.withResolvers<void>();
		const { url } = await service((peer) => {
			let count = 0;
			peer.on('ping', () => {
				count += 1;
				sleptMs = 5000;
				if (count === 5) pings.resolve();
			});
		});
		const opened = open(url, { pingIntervalMs: 20, silenceLimitMs: 0, sleptMs: () => sleptMs });
		await pings.promise;
		expect(opened.types()).not.toContain('ended');
	});
});

describe('what an ended channel says of its line', () => {
	test('how long it lived, how long it was silent, and that nothing said goodbye', async () => {
		const { url } = await service((peer) => setTimeout(() => peer.terminate(), 300));
		const { line } = await open(url).until('ended');
		expect(line).toMatchObject({ withoutCloseFrame: true, saidGoodbye: false, sleptMs: 0 });
		expect(line?.lifeMs).toBeGreaterThanOrEqual(250);
		expect(line?.silenceMs).toBeGreaterThanOrEqual(200);
		expect(line?.inboundSilenceMs).toBeLessThanOrEqual(line?.lifeMs ?? 0);
		expect(line?.longestSilenceMs).toBeLessThan(200);
	});

	test('a close frame is a goodbye, of either side', async () => {
		const closing = await service((peer) => peer.close(1000));
		expect((await open(closing.url).until('ended')).line).toMatchObject({
			withoutCloseFrame: false,
			saidGoodbye: true,
		});
		const { url } = await service();
		const opened = open(url);
		await opened.until('opened');
		opened.channel.close(1000, '');
		expect((await opened.until('ended')).line).toMatchObject({ withoutCloseFrame: false, saidGoodbye: true });
	});

	test('nothing, when it was never open', async () => {
		expect((await open(`ws://127.0.0.1:${await refusedPort()}/`).until('ended')).line).toBeNull();
	});
});
