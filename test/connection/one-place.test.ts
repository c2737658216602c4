/** A service that permits one channel of a device and ends the old one for each new one, while settings are changed. */
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Status } from '../../src/protocol/local-api.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';

interface Rules {
	/** By which the old channel is ended. */
	readonly code: number;
	/** Whether a registration takes the Connection before it away. */
	readonly revokes?: boolean;
	/** Whether several channels of a device stay open, */
	readonly permitsMore?: boolean;
	/** or another one is refused. */
	readonly refusesMore?: boolean;
}

async function givenOnePlace({ code, revokes = false, permitsMore = false, refusesMore = false }: Rules) {
	const tokens = new Set<string>();
	let registrations = 0;
	/** What the device has asked for, and what became of its channels. */
	let steps = 0;
	let place: WebSocket | null = null;
	const server = createServer(async (request, response) => {
		if (request.method === 'GET') return void response.end();
		const { workflowId } = (await json(request)) as { workflowId: string };
		registrations += 1;
		steps += 1;
		if (workflowId !== 'check-in') return void response.writeHead(404).end('{"error":"workflow"}');
		const token = `tr-${String(registrations).padStart(16, '0')}`;
		if (revokes) {
			tokens.clear();
			if (!refusesMore) place?.close(code);
		}
		tokens.add(token);
		response.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify({ token }));
	});
	const sockets = new WebSocketServer({
		server,
		verifyClient: ({ req }: { req: IncomingMessage }, answer) => {
			steps += 1;
			if (!req.url?.startsWith('/ws/device')) return answer(false, 404);
			const isKnown = tokens.has(req.headers.authorization?.replace('Connection ', '') ?? '');
			if (isKnown && refusesMore && place?.readyState === place?.OPEN && place) return answer(false, 409);
			answer(isKnown, 401);
		},
		handleProtocols: () => false,
	});
	sockets.on('connection', (socket) => {
		socket.once('close', () => {
			steps += 1;
		});
		if (!permitsMore) place?.close(code);
		place = socket;
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(() => {
		for (const socket of sockets.clients) socket.terminate();
		server.closeAllConnections();
		server.close();
	});
	const home = await givenHome();
	const good = {
		baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
		workflowId: 'check-in',
		credential: { apiKeyFile: await home.secretFile('key', 'ak-0123456789abcdef') },
		fleet: { changeLimitSeconds: 300 },
	};
	const device = await givenAgent({ home, settings: good });
	await device.untilState('online');
	return { home, good, device, registrations: () => registrations, steps: () => steps };
}

/** So often: a registration, a Connection that is saved, and two handshakes may follow each other. */
const STEPS = 4;
/**
 * Waits for work like that of the device, a file that is flushed beside a request: as long as that takes on this machine. Once where the
 * device is online and does nothing.
 */
async function settled({ home, good, device, steps }: Awaited<ReturnType<typeof givenOnePlace>>, before: number) {
	for (let step = 0; step < STEPS; step += 1) {
		await Promise.all([
			writeFile(join(home.directory, 'beside'), 'x', { flush: true }),
			fetch(good.baseUrl, { headers: { connection: 'close' } }).then((answer) => answer.text()),
		]);
		if (steps() === before && device.agent.status().state === 'online') return;
	}
}

/** Seconds of so many of the device's in which it was not online. */
async function secondsOffline(given: Awaited<ReturnType<typeof givenOnePlace>>, seconds: number): Promise<number> {
	const { clock, agent } = given.device;
	let offline = 0;
	for (let second = 0, before = 0; second < seconds; second += 1) {
		clock.advance(1000);
		await settled(given, before);
		before = given.steps();
		if (agent.status().state !== 'online') offline += 1;
	}
	return offline;
}

const refused = ({ warnings }: Status) => warnings.some(({ message }) => message.includes('was not online with'));

test.each([
	[4409, { confirmKind: 'never' }],
	[1000, { subprotocol: 'x.y' }],
])(
	'where each new channel ends the old one (%i), %j costs the place once, and is refused then [F1613]',
	async (code, service) => {
		const given = await givenOnePlace({ code });
		const { home, good, device } = given;
		await home.writeSettings({ ...good, service });
		await device.daemon.reload();
		const offline = await secondsOffline(given, 400);
		expect.soft(offline).toBeLessThan(45);
		expect(refused(device.agent.status())).toBe(true);
		expect(device.agent.status().state).toBe('online');
	},
);

test.each([4409, 1000, 1008])(
	'where each new channel ends the old one (%i), a good change is in force soon [F1613]',
	async (code) => {
		const given = await givenOnePlace({ code });
		const { home, good, device } = given;
		await home.writeSettings({ ...good, service: { heartbeatMode: 'ping' } });
		await device.daemon.reload();
		const offline = await secondsOffline(given, 100);
		expect.soft(offline).toBeLessThan(20);
		expect(device.agent.ways.runtime().resolved.settings.service.heartbeatMode).toBe('ping');
		expect(device.agent.status()).toMatchObject({ state: 'online', warnings: [] });
	},
);

test.each([
	[1000, { tokenPointer: '/nowhere' }],
	[1008, { confirmKind: 'never' }],
])(
	'where a registration takes the Connection before it away (%i), %j is refused after one try [F1614]',
	async (code, service) => {
		const given = await givenOnePlace({ code, revokes: true });
		const { home, good, device, registrations } = given;
		await home.writeSettings({ ...good, service });
		await device.daemon.reload();
		const offline = await secondsOffline(given, 400);
		// Where an answer takes seconds of this clock, the old settings and the new ones take turns for a minute: 55 and 8 were seen.
		expect.soft(offline).toBeLessThan(90);
		expect.soft(registrations()).toBeLessThan(12);
		expect(refused(device.agent.status())).toBe(true);
		expect(device.agent.status().state).toBe('online');
	},
);

test('where each new channel ends the old one, a good change is in force beside a workflow that is refused [F1645]', async () => {
	const given = await givenOnePlace({ code: 4409, revokes: true });
	const { home, good, device, registrations } = given;
	await home.writeSettings({ ...good, workflowId: 'nope', service: { channelPath: '/ws/device?v=2' } });
	await device.daemon.reload();
	const offline = await secondsOffline(given, 400);
	expect.soft(offline).toBeLessThan(45);
	expect.soft(registrations()).toBeLessThan(30);
	const { state, workflow, problem } = device.agent.status();
	expect([state, workflow.live, workflow.wanted]).toEqual(['online', 'check-in', 'nope']);
	expect(problem?.params).toMatchObject({ status: 404, workflowId: 'nope' });
	expect(device.agent.ways.runtime().resolved.settings.service.channelPath).toBe('/ws/device?v=2');
});

test('where a registration takes the Connection before it away, a wrong path beside another cadence costs seconds [F1646]', async () => {
	const given = await givenOnePlace({ code: 1008, revokes: true, permitsMore: true });
	const { home, good, device } = given;
	await home.writeSettings({ ...good, heartbeatCadence: 7, service: { channelPath: '/nope' } });
	await device.daemon.reload();
	const offline = await secondsOffline(given, 400);
	expect.soft(offline).toBeLessThan(20);
	const { state, channel, warnings } = device.agent.status();
	expect([state, channel.heartbeatCadence]).toEqual(['online', 7]);
	expect(warnings.some(({ message }) => message.startsWith('service.channelPath:'))).toBe(true);
});

test('where another channel is refused, and a registration takes the Connection away, a wrong path beside another cadence costs seconds [F1647]', async () => {
	const given = await givenOnePlace({ code: 1000, revokes: true, refusesMore: true });
	const { home, good, device, registrations } = given;
	await home.writeSettings({ ...good, heartbeatCadence: 7, service: { channelPath: '/nope' } });
	await device.daemon.reload();
	const offline = await secondsOffline(given, 400);
	expect.soft(offline).toBeLessThan(20);
	expect.soft(registrations()).toBeLessThan(20);
	const { state, channel, warnings } = device.agent.status();
	expect([state, channel.heartbeatCadence]).toEqual(['online', 7]);
	expect(warnings.some(({ message }) => message.startsWith('service.channelPath:'))).toBe(true);
});
