import { spawn } from 'node:child_process';
import { ADDRCONFIG } from 'node:dns';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer, connect as netConnect, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { type ChannelEvent, openChannel } from '../../src/connection/channel.edge.ts';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { type Lookup, race } from '../../src/connection/race.edge.ts';
import { connectProxy, fixture, identity, refusedPort } from './network-peers.ts';

const DEAD = [2, 3, 4, 5, 6, 7, 8].map((last) => `127.0.0.${last}`);
const LIVE = '127.0.0.9';

/** The addresses of each family that a name has; a family that is not named is never answered for. */
function names(known: { readonly 4?: readonly string[]; readonly 6?: readonly string[] }): Lookup {
	return (_host, { family }, done) => {
		const addresses = known[family];
		if (addresses === undefined) return;
		if (addresses.length > 0)
			return done(
				null,
				addresses.map((address) => ({ address, family })),
			);
		done(Object.assign(new Error('none'), { code: 'ENOTFOUND' }), []);
	};
}

async function listenAt(server: Server, host: string, port = 0): Promise<number> {
	const sockets = new Set<Socket>();
	server.on('connection', (socket: Socket) => sockets.add(socket));
	await new Promise<void>((resolve) => server.listen(port, host, resolve));
	onTestFinished(async () => {
		const closed = new Promise((resolve) => server.close(resolve));
		for (const socket of sockets) socket.destroy();
		await closed;
	});
	return (server.address() as { port: number }).port;
}

/**
 * Addresses that answer no SYN: a process listens on them and is stopped, and its queues are full.
 * @returns what lets it run again: then it takes the connections, and ends them.
 */
async function deadAddresses(hosts: readonly string[], port: number): Promise<() => void> {
	const child = spawn(
		process.execPath,
		[
			'-e',
			`let left = ${hosts.length};
			for (const host of ${JSON.stringify(hosts)})
				require('node:net').createServer((socket) => socket.on('error', () => {}).resume())
					.listen({ host, port: ${port}, backlog: 1 }, () => --left || process.stdout.write('ready'));`,
		],
		{ stdio: ['ignore', 'pipe', 'inherit'] },
	);
	const ended = once(child, 'exit');
	const waiting: Socket[] = [];
	onTestFinished(async () => {
		for (const socket of waiting) socket.destroy();
		child.kill('SIGKILL');
		await ended;
	});
	await once(child.stdout, 'data');
	child.kill('SIGSTOP');
	for (const host of hosts)
		for (let queued = 0; queued < 2; queued += 1) {
			const socket = netConnect(port, host);
			socket.on('error', () => {});
			waiting.push(socket);
			await once(socket, 'connect');
		}
	return () => child.kill('SIGCONT');
}

const DEAD_AND_LIVE = names({ 4: [...DEAD, LIVE], 6: [] });
const get = (url: URL) => ({
	method: 'GET',
	url,
	headers: {},
	body: null,
	idleMs: 3000,
	signal: AbortSignal.timeout(3000),
});

test('of a name with seven dead addresses and a live one, registration, channel and forwarded requests reach the live one within 3 s [F580]', async () => {
	const server = createHttpsServer(identity('server'), (_request, response) => response.end('live'));
	const sockets = new WebSocketServer({ server });
	onTestFinished(() => sockets.close());
	const port = await listenAt(server, LIVE);
	await deadAddresses(DEAD, port);
	const network = await createNetwork({ caFile: fixture('ca.pem') }, {}, DEAD_AND_LIVE);
	onTestFinished(() => network.close());
	const [url, channelUrl] = [new URL(`https://service.test:${port}/`), new URL(`wss://service.test:${port}/`)];
	const limits = { handshakeMs: 3000, pingIntervalMs: 0, silenceLimitMs: 0 };
	const agent = network.channelAgent(channelUrl);
	const opened = new Promise<ChannelEvent>((resolve) => {
		const options = { url: channelUrl, agent, authorization: null, userAgent: 'test', ...limits };
		const channel = openChannel(options, resolve);
		onTestFinished(() => channel.terminate());
	});
	const { resolved, connected } = network.reach(url, 3000);
	const answers = await Promise.all([network.ask(get(url)), network.ask({ ...get(url), keeps: 1000 })]);
	expect(await Promise.all(answers.map((answer) => text(answer)))).toEqual(['live', 'live']);
	expect(await opened).toMatchObject({ type: 'opened', localAddress: expect.stringMatching(/^127\./) });
	expect(await resolved).toEqual([...DEAD, LIVE]);
	expect(await connected).toEqual({ address: LIVE });
});

test('the address of IPv4 is asked for first, and a question about IPv6 that is not answered is not asked again meanwhile [F1022]', async () => {
	const port = await listenAt(createServer(), LIVE);
	const known = names({ 4: [LIVE] });
	const asked: number[] = [];
	const hints = new Map<number, number | undefined>();
	const lookup: Lookup = (host, options, done) => {
		asked.push(options.family);
		hints.set(options.family, options.hints);
		known(host, options, done);
	};
	for (let count = 0; count < 3; count += 1) (await race({ host: 'service.test', port }, lookup).won).destroy();
	expect(asked).toEqual([4, 6, 4, 4]);
	// A host with loopback alone has no IPv4 by that hint.
	expect([hints.get(4), hints.get(6)]).toEqual([0, ADDRCONFIG]);
});

test('a proxy with seven dead addresses and a live one is reached within 3 s', async () => {
	const target = await listenAt(
		createHttpServer((_request, response) => response.end('behind')),
		'127.0.0.1',
	);
	const relay = await connectProxy({ targetPort: target });
	const port = await listenAt(
		createServer((near) => {
			const far = netConnect(relay.port, '127.0.0.1');
			near.on('error', () => {}).pipe(far);
			far.on('error', () => {}).pipe(near);
		}),
		LIVE,
	);
	await deadAddresses(DEAD, port);
	const network = await createNetwork({ proxy: `http://proxy.test:${port}` }, {}, DEAD_AND_LIVE);
	onTestFinished(() => network.close());
	expect(await text(await network.ask(get(new URL('http://service.test/'))))).toBe('behind');
});

test('what is doubted is the address that the newest connection went to, whatever asks for the name', async () => {
	const [bad = ''] = DEAD;
	const answering = (words: string) => createHttpServer((_request, response) => response.end(words));
	const port = await listenAt(answering('bad'), bad);
	await listenAt(answering('live'), LIVE, port);
	const network = await createNetwork({}, {}, names({ 4: [bad, LIVE], 6: [] }));
	onTestFinished(() => network.close());
	const url = new URL(`http://service.test:${port}/`);
	const asked = async () => text(await network.ask(get(url)));
	expect([await asked(), await asked()]).toEqual(['bad', 'bad']);
	expect(network.doubt(new URL(`ws://service.test:${port}/ws/device`))).toBe(true);
	expect([await asked(), await asked()]).toEqual(['live', 'live']);
	expect([network.doubt(url), network.doubt(url)]).toEqual([false, false]);
	expect(await asked()).toBe('bad');
	network.doubt(new URL('http://other.test/'));
	expect(await asked()).toBe('bad');
});

describe('a race of addresses', () => {
	const liveAt = (host: string) => listenAt(createServer(), host);
	const winner = async (port: number, lookup: Lookup, doubted: readonly string[] = []) => {
		const socket = await race({ host: 'service.test', port }, lookup, 3000, doubted).won;
		onTestFinished(() => void socket.destroy());
		return socket.remoteAddress;
	};

	test('passes an IPv6 that leads nowhere, and an IPv4 that does', async () => {
		const port = await liveAt(LIVE);
		await deadAddresses(['::1'], port);
		expect(await winner(port, names({ 4: [LIVE], 6: ['::1'] }))).toBe(LIVE);
		const other = await liveAt('::1');
		await deadAddresses([LIVE], other);
		expect(await winner(other, names({ 4: [LIVE], 6: ['::1'] }))).toBe('::1');
	});

	test('waits for no name server that is silent about one family [F581]', async () => {
		const port = await liveAt(LIVE);
		expect(await winner(port, names({ 4: [LIVE] }))).toBe(LIVE);
		const other = await liveAt('::1');
		expect(await winner(other, names({ 6: ['::1'] }))).toBe('::1');
	});

	test('prefers IPv6, also where IPv4 is known a moment sooner', async () => {
		const port = await liveAt('::1');
		await listenAt(createServer(), LIVE, port);
		const later: Lookup = (host, options, done) => {
			if (options.family === 6) setImmediate(() => names({ 6: ['::1'] })(host, options, done));
			else names({ 4: [LIVE] })(host, options, done);
		};
		expect(await winner(port, later)).toBe('::1');
	});

	test('does not give up an address that is slow: it may be the only one that answers [F582]', async () => {
		const port = await liveAt('127.0.0.1');
		const [slow = '', dead = ''] = DEAD;
		const begins = await deadAddresses([slow], port);
		await deadAddresses([dead], port);
		const run = race({ host: 'service.test', port }, names({ 4: [slow, dead], 6: [] }));
		// The first SYN is lost; by its second, the next address is under way.
		await turn();
		begins();
		const socket = await run.won;
		expect(socket.remoteAddress).toBe(slow);
		socket.destroy();
	});

	test('takes the addresses that a name has now, not those that it had [F583]', async () => {
		const port = await liveAt(LIVE);
		await deadAddresses(DEAD.slice(0, 1), port);
		const known = { 4: DEAD.slice(0, 1), 6: [] as string[] };
		const lookup: Lookup = (host, options, done) => names(known)(host, options, done);
		const before = race({ host: 'service.test', port }, lookup);
		const lost = expect(before.won).rejects.toThrow();
		before.cancel();
		await lost;
		known[4] = [LIVE];
		expect(await winner(port, lookup)).toBe(LIVE);
	});

	test('tries an address that has disappointed last, of several the one first that did so longest ago', async () => {
		const port = await liveAt('::1');
		for (const address of [DEAD[0], LIVE]) await listenAt(createServer(), address ?? '', port);
		const known = names({ 4: [...DEAD.slice(0, 1), LIVE], 6: ['::1'] });
		const next = (...doubted: string[]) => winner(port, known, doubted);
		expect(await next()).toBe('::1');
		expect(await next('::1')).toBe(DEAD[0]);
		expect(await next('::1', DEAD[0] ?? '')).toBe(LIVE);
		expect(await next(LIVE, '::1', DEAD[0] ?? '')).toBe(LIVE);
	});

	test('waits for the other family before an address that has disappointed, and takes that where nothing else answers', async () => {
		const port = await liveAt('::1');
		const later: Lookup = (host, options, done) => {
			if (options.family === 4) setImmediate(() => names({ 4: [LIVE] })(host, options, done));
			else names({ 6: ['::1'] })(host, options, done);
		};
		expect(await winner(port, later, ['::1'])).toBe('::1');
		await listenAt(createServer(), LIVE, port);
		expect(await winner(port, later, ['::1'])).toBe(LIVE);
		const other = await liveAt(LIVE);
		await deadAddresses(DEAD, other);
		expect(await winner(other, DEAD_AND_LIVE, [LIVE])).toBe(LIVE);
	});

	test('that no address wins says what each has said', async () => {
		const port = await refusedPort();
		const error: unknown = await race({ host: 'service.test', port }, names({ 4: DEAD, 6: [] })).won.catch(
			(thrown: unknown) => thrown,
		);
		expect((error as AggregateError).errors.map(({ code }: NodeJS.ErrnoException) => code)).toEqual(
			DEAD.map(() => 'ECONNREFUSED'),
		);
		await expect(race({ host: LIVE, port }, names({})).won).rejects.toMatchObject({ code: 'ECONNREFUSED' });
		await expect(race({ host: 'none.test', port }, names({ 4: [], 6: [] })).won).rejects.toMatchObject({
			code: 'ENOTFOUND',
		});
	});

	test('that has no answer within its limit tells a name server from an address', async () => {
		const port = await refusedPort();
		await expect(race({ host: 'service.test', port }, names({}), 1).won).rejects.toMatchObject({ code: 'EAI_AGAIN' });
		const [dead = ''] = DEAD;
		await deadAddresses([dead], port);
		await expect(race({ host: dead, port }, names({}), 1).won).rejects.toMatchObject({ code: 'ETIMEDOUT' });
	});
});
