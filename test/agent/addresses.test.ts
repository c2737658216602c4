/** A name whose first address is a bad one: it takes connections, and what comes of them is no service. */
import dns from 'node:dns';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
import { createServer, type Server, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { fixture } from '../connection/network-peers.ts';
import { givenAgent, givenHome, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const BAD = '127.0.0.2';
const LIVE = '127.0.0.1';
const [key, cert, ca] = [fixture('server.key'), fixture('server.pem'), fixture('ca.pem')];
const text = (path: string) => readFileSync(path, 'utf8');

/** Has `localhost` at these addresses until the test ends. */
function givenName(): { addresses: string[] } {
	const name = { addresses: [LIVE] };
	const real = dns.lookup;
	const lookup = (host: string, options: { family: number }, done: (...found: unknown[]) => void) => {
		if (host !== 'localhost') return real(host, options as never, done as never);
		const found = name.addresses.map((address) => ({ address, family: 4 }));
		if (options.family === 4) done(null, found);
		else done(Object.assign(new Error('none'), { code: 'ENOTFOUND' }), []);
	};
	dns.lookup = lookup as unknown as typeof dns.lookup;
	syncBuiltinESMExports();
	onTestFinished(() => {
		dns.lookup = real;
		syncBuiltinESMExports();
	});
	return name;
}

/** @returns how many connections it took. */
async function listenBeside(server: Server, port: number, address = BAD): Promise<() => number> {
	const sockets = new Set<Socket>();
	let taken = 0;
	server.on('connection', (socket: Socket) => {
		taken += 1;
		sockets.add(socket.on('error', () => {}));
	});
	await new Promise<void>((resolve) => server.listen(port, address, resolve));
	onTestFinished(async () => {
		const closed = new Promise((resolve) => server.close(resolve));
		for (const socket of sockets) socket.destroy();
		await closed;
	});
	return () => taken;
}

const answers =
	(status: number, headers: Record<string, string> = {}): RequestListener =>
	(_request, response) =>
		response.writeHead(status, headers).end('{}');

function ending(): Server {
	const server = createHttpServer();
	const channels = new WebSocketServer({ server });
	channels.on('connection', (channel) => channel.close(1011, 'no room'));
	onTestFinished(() => channels.close());
	return server;
}

const BEFORE_A_LIVE_ONE: Readonly<Record<string, { readonly isTls?: boolean; readonly make: () => Server }>> = {
	'shows the certificate of another': {
		isTls: true,
		make: () => createHttpsServer({ key: text(fixture('portal.key')), cert: text(fixture('portal.pem')) }),
	},
	'resets within TLS': {
		isTls: true,
		make: () => createServer((socket) => void socket.once('data', () => socket.resetAndDestroy())),
	},
	'speaks no TLS': { isTls: true, make: () => createHttpServer() },
	'answers 404': {
		make: () =>
			createHttpServer(answers(404)).on('upgrade', (_r, socket) => socket.end('HTTP/1.1 404 Not Found\r\n\r\n')),
	},
	'leads to a sign-in': { make: () => createHttpServer(answers(302, { location: 'https://login.example/' })) },
	'answers 503': { make: () => createHttpServer(answers(503)) },
	'answers 503 for 10 min': { make: () => createHttpServer(answers(503, { 'retry-after': '600' })) },
	'resets a request': {
		make: () => createServer((socket) => void socket.once('data', () => socket.resetAndDestroy())),
	},
	'ends each channel at once': { make: ending },
};

async function givenBoth(kind: string) {
	const { isTls = false, make } = BEFORE_A_LIVE_ONE[kind] ?? { make: () => createServer() };
	const name = givenName();
	const service = await givenService(isTls ? { tls: { key: text(key), cert: text(cert) } } : {});
	const taken = await listenBeside(make(), service.port);
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = {
		...{ baseUrl: `http${isTls ? 's' : ''}://localhost:${service.port}` },
		...{ credential: { apiKeyFile }, network: { caFile: ca } },
	};
	// On a busy machine the end of a channel that is ended at once takes longer than 20 ms.
	const setup = { home, settings, countsAfterMs: 500 };
	return { name, service, taken, setup };
}

async function untilBack(device: RunningAgent, fromMs: number, atMost = 4): Promise<void> {
	for (let waits = 0; waits < atMost; waits += 1) {
		const { state } = await device.untilStatus(
			(status) => status.state === 'online' || status.channel.nextAttemptAt !== null,
		);
		if (state === 'online') break;
		await device.passWait();
		await device.untilStatus(({ channel }) => channel.nextAttemptAt === null);
	}
	await device.untilState('online');
	expect(device.clock.monotonicMs() - fromMs).toBeLessThanOrEqual(60_000);
}

test.each(Object.keys(BEFORE_A_LIVE_ONE))(
	'of two addresses of a name the first one, which %s, is passed over from then on [F559]',
	async (kind) => {
		const { name, service, taken, setup } = await givenBoth(kind);
		const device = await givenAgent(setup);
		await device.agent.setWorkflow('check-in');
		await device.untilLive('check-in');
		name.addresses = [BAD, LIVE];
		const fromMs = device.clock.monotonicMs();
		service.dropSockets();
		await device.untilStatus(({ state }) => state !== 'online');
		await untilBack(device, fromMs);
		expect(taken()).toBeGreaterThan(0);
		const before = taken();
		await device.agent.setWorkflow('boarding');
		await device.untilLive('boarding');
		service.dropSockets();
		await device.untilStatus(({ state }) => state !== 'online');
		await device.passWait();
		await device.untilState('online');
		expect(taken()).toBe(before);
	},
);

test.each(Object.keys(BEFORE_A_LIVE_ONE).filter((kind) => kind !== 'ends each channel at once'))(
	'at a first start, too: the first of two addresses, which %s, costs an attempt, and no person is needed [F567]',
	async (kind) => {
		const { name, taken, setup } = await givenBoth(kind);
		name.addresses = [BAD, LIVE];
		const device = await givenAgent({ ...setup, settings: { ...setup.settings, workflowId: 'check-in' } });
		const { problem } = await device.untilStatus(({ channel }) => channel.nextAttemptAt !== null);
		expect(problem).toMatchObject({ recovers: true });
		await untilBack(device, device.clock.monotonicMs());
		expect(device.statuses.map(({ state }) => state)).not.toContain('blocked');
		expect(taken()).toBe(1);
	},
);

test.each(['resets a request', 'answers 503', 'shows the certificate of another'])(
	'seven addresses of a name, each of which %s, stand before the live one for less than a minute [F1602]',
	async (kind) => {
		const { name, service, setup } = await givenBoth(kind);
		const others = ['127.0.0.3', '127.0.0.4', '127.0.0.5', '127.0.0.6', '127.0.0.7', '127.0.0.8'];
		const { make = () => createServer() } = BEFORE_A_LIVE_ONE[kind] ?? {};
		const all = await Promise.all(others.map((address) => listenBeside(make(), service.port, address)));
		const device = await givenAgent(setup);
		await device.agent.setWorkflow('check-in');
		await device.untilLive('check-in');
		name.addresses = [BAD, ...others, LIVE];
		const fromMs = device.clock.monotonicMs();
		service.dropSockets();
		await device.untilStatus(({ state }) => state !== 'online');
		await untilBack(device, fromMs, 10);
		expect(all.map((taken) => taken() > 0)).toEqual(others.map(() => true));
	},
);

test.each(['resets a request', 'answers 503'])(
	'a Connection that is revoked is replaced at the address that says so, and not at one before it that %s [F1611]',
	async (kind) => {
		const { name, service, setup } = await givenBoth(kind);
		const device = await givenAgent(setup);
		await device.agent.setWorkflow('check-in');
		await device.untilLive('check-in');
		// Its channel has counted.
		device.clock.advance(4000);
		name.addresses = [BAD, LIVE];
		const fromMs = device.clock.monotonicMs();
		service.dropSockets();
		service.revoke(device.agent.status().deviceId ?? '');
		await device.untilStatus(({ state }) => state !== 'online');
		await untilBack(device, fromMs, 6);
	},
);

test.each([
	['untrusted as well', LIVE],
	['dead', '127.0.0.3'],
])(
	'an answer that asks for a person does so when the other address of the name, which is %s, was tried once [F568]',
	async (_how, other) => {
		const { name, setup } = await givenBoth('shows the certificate of another');
		name.addresses = [BAD, other];
		const settings = { ...setup.settings, network: {}, workflowId: 'check-in' };
		const device = await givenAgent({ home: setup.home, settings });
		const { state } = await device.untilStatus(({ channel }) => channel.nextAttemptAt !== null);
		expect(state).toBe('connecting');
		await device.passWait();
		expect((await device.untilState('blocked')).problem).toMatchObject({ code: 'certificate-untrusted' });
	},
);

test('a pairing that met a bad address of the name is made with the next one', async () => {
	const { name, service, taken, setup } = await givenBoth('shows the certificate of another');
	name.addresses = [BAD, LIVE];
	const device = await givenAgent({ settings: { network: { caFile: ca } }, home: setup.home });
	const code = service.createPairingCode('check-in').url.replace(`//${LIVE}:`, '//localhost:');
	await expect(device.pair(code)).rejects.toMatchObject({ code: 'certificate-untrusted' });
	expect(await device.pair(code)).toMatchObject({ online: true });
	expect(taken()).toBe(1);
});
