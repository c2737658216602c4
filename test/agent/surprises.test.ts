/** What a device that was online does when something else answers for its service for a moment. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Status } from '../../src/protocol/local-api.ts';
import type { FailedAnswer } from '../../src/service/faults.ts';
import { fixture } from '../connection/network-peers.ts';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent, registrations } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const CERTIFICATE = readFileSync(fixture('server.pem'), 'utf8');
const PAGE = { headers: { 'content-type': 'text/html' }, body: '<!doctype html><title>Welcome</title>' };
const SURPRISES: readonly FailedAnswer[] = [
	...[400, 402, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 417, 418, 421, 422, 423, 425, 426, 428, 431, 451],
	...[200, 204, 300, 304, 402, 407, 499, 501, 502, 599],
]
	.map((status): FailedAnswer => ({ status }))
	.concat([
		{ status: 302, headers: { location: 'https://login.example/' } },
		{ status: 307, headers: { location: '/elsewhere' } },
		{ status: 200, ...PAGE },
		{ status: 403, ...PAGE },
		{ status: 404, ...PAGE },
		{ status: 404, headers: { 'retry-after': '3600' } },
		{ status: 403, headers: { 'retry-after': '3600' } },
		{ status: 307, headers: { location: '/elsewhere', 'retry-after': '90' } },
	]);

/** How long it was away, in seconds of its clock, and what it said meanwhile. */
async function untilBack(device: RunningAgent, answers: number) {
	const fromMs = device.clock.monotonicMs();
	await device.untilState('offline');
	const seen = [];
	for (let left = answers; left >= 0; left -= 1) {
		const waits = (status: Status) => status.channel.nextAttemptAt !== null;
		const { channel: before } = await device.untilStatus(waits);
		await device.passWait();
		const { state, problem } = await device.untilStatus(
			(status) => status.state === 'online' || (waits(status) && status.channel.nextAttemptAt !== before.nextAttemptAt),
		);
		seen.push({ state, code: problem?.code, recovers: problem?.recovers, remedy: problem?.remedy });
		if (state === 'online') break;
	}
	return { awaySeconds: (device.clock.monotonicMs() - fromMs) / 1000, seen };
}

describe('something else that answers twice with', () => {
	test.each(SURPRISES)('$status ($headers) keeps no device away for more than a minute [F476]', async (answer) => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.failNext({}, answer, 2);
		service.dropSockets();
		const { awaySeconds, seen } = await untilBack(device, 2);
		expect(seen.map(({ state }) => state)).toEqual(['offline', 'offline', 'online']);
		// What answers twice may ask for two waits: none is longer than a minute.
		expect(awaySeconds).toBeLessThanOrEqual(answer.headers?.['retry-after'] ? 120 : 60);
		expect(seen.slice(0, -1).every(({ recovers }) => recovers)).toBe(true);
	});
});

/** A device that registers so, and whose channel has counted. */
async function givenCounted(by: string) {
	const service = await givenService({ selfRegistration: true });
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const credential = by === 'API key' ? { apiKeyFile } : { selfRegistration: true };
	const device = await givenAgent({ home, settings: { baseUrl: service.url, workflowId: 'check-in', credential } });
	await device.untilState('online');
	const before = registrations(service).length;
	device.clock.advance(4000);
	return { service, device, before };
}

test.each([
	['API key', 500],
	['API key', 503],
	['self-registration', 500],
	['self-registration', 404],
])(
	'one refusal of the channel while a registration by %s gets %i: the Connection is shown again [F1331]',
	async (by, status) => {
		const { service, device, before } = await givenCounted(by);
		service.failNext({ path: '/ws/device' }, { status: 401 });
		service.failNext({ method: 'POST' }, { status }, 50);
		service.dropSockets();
		const { awaySeconds, seen } = await untilBack(device, 6);
		expect(seen.at(-1)?.state).toBe('online');
		expect(awaySeconds).toBeLessThanOrEqual(60);
		expect(
			registrations(service)
				.slice(before)
				.every((answer) => answer === status),
		).toBe(true);
	},
);

test.each(['API key', 'self-registration'])(
	'a new Connection by %s that the channel refuses twice is shown again, and no other one is made [F1590]',
	async (by) => {
		const { service, device, before } = await givenCounted(by);
		service.revoke('KIOSK-0001');
		service.failNext({ path: '/ws/device' }, { status: 401 }, 2);
		service.dropSockets();
		const { awaySeconds } = await untilBack(device, 6);
		expect(awaySeconds).toBeLessThanOrEqual(60);
		expect(registrations(service).slice(before)).toEqual([201]);
	},
);

test('something else that answers after a start is an outage as well: the saved Connection has worked [F478]', async () => {
	const service = await givenService();
	const first = await givenPairedAgent(service);
	await first.stop();
	service.failNext({}, { status: 404 }, 2);
	const device = await givenAgent({ home: first.home });
	const fromMs = device.clock.monotonicMs();
	const { problem, state } = await device.untilStatus((status) => status.channel.nextAttemptAt !== null);
	expect({ state, recovers: problem?.recovers }).toEqual({ state: 'connecting', recovers: true });
	await device.passWait();
	await device.untilStatus(({ channel }) => channel.nextAttemptAt !== null && device.clock.monotonicMs() > fromMs);
	await device.passWait();
	await device.untilState('online');
	expect(device.clock.monotonicMs() - fromMs).toBeLessThanOrEqual(60_000);
});

test('a device that never was online is told at once what a person has to do', async () => {
	const service = await givenService();
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	service.failNext({}, { status: 409 });
	const device = await givenAgent({
		home,
		settings: { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } },
	});
	const { problem } = await device.untilState('blocked');
	expect(problem).toMatchObject({ code: 'request-rejected' });
	expect(problem).not.toHaveProperty('recovers');
});

test('a device that another certificate is shown to is back within a minute, says whose it is and whose it was, and is not told to trust it first [F477]', async () => {
	const service = await givenService({ tls: { key: readFileSync(fixture('server.key'), 'utf8'), cert: CERTIFICATE } });
	const device = await givenPairedAgent(service, { settings: { network: { caFile: fixture('ca.pem') } } });
	const portal = createServer({ key: readFileSync(fixture('portal.key')), cert: readFileSync(fixture('portal.pem')) });
	const gone = Promise.withResolvers<void>();
	const back = service.restart({ hard: true, until: gone.promise });
	await device.untilState('offline');
	await once(portal.listen(service.port, '127.0.0.1'), 'listening');
	await device.passWait();
	const { problem } = await device.untilStatus((status) => status.problem?.code === 'certificate-untrusted');
	expect(problem?.recovers).toBe(true);
	expect(problem?.remedy).toMatch(/^Wait.+ Sign in to this network .+ network\.caFile/);
	expect(problem?.message).toMatch(
		/ It is of "[^"]+", signed by "[^"]+"\. The one that was trusted last is of "[^"]+", signed by "[^"]+"\.$/,
	);
	expect(problem?.params).toMatchObject({ subject: expect.any(String), issuer: expect.any(String) });
	const fromMs = device.clock.monotonicMs();
	portal.close();
	gone.resolve();
	await back;
	await device.passWait();
	await device.untilState('online');
	expect(device.clock.monotonicMs() - fromMs).toBeLessThanOrEqual(60_000);
});

test('a Connection that the service ends with a private close code is replaced by one fresh registration [F480]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const device = await givenAgent({
		home,
		settings: { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } },
	});
	await device.untilState('online');
	device.clock.advance(60_000);
	// Until the device has another Connection, each of its channels is accepted and ended.
	const expire = () => registrations(service).length === 1 && service.closeChannels(4003, 'session over');
	service.on('device-online', () => setImmediate(expire));
	expire();
	while (registrations(service).length === 1) {
		await device.untilStatus(({ channel }) => channel.nextAttemptAt !== null);
		await device.passWait();
		await device.untilLogged(({ msg, attempt }) => (msg === 'wait' || msg === 'register') && Number(attempt) > 0);
		if (device.log.some(({ msg, attempt }) => msg === 'register' && Number(attempt) > 1)) break;
	}
	await device.untilState('online');
	expect(registrations(service)).toEqual([201, 201]);
	expect(service.requests.filter(({ path }) => path === '/ws/device').length).toBeLessThanOrEqual(4);
});

test('answers that alternate for ten minutes, while the clock jumps, keep no device away for more than another minute [F624]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const trueMs = device.clock.wallMs();
	const answers = [
		{ status: 404 },
		{ status: 401 },
		{ status: 502 },
		{ status: 200, ...PAGE },
		{ status: 302, headers: { location: '/' } },
	];
	const jumps = [-3 * 86_400_000, 10 * 365 * 86_400_000, -trueMs, 0, 3_600_000];
	const fromMs = device.clock.monotonicMs();
	service.failNext({}, answers[0] as FailedAnswer);
	service.dropSockets();
	await device.untilState('offline');
	let attempt = 0;
	for (let turn = 1; device.clock.monotonicMs() - fromMs < 10 * 60_000; turn += 1) {
		const waits = await device.untilLogged(({ msg, attempt: its }) => msg === 'wait' && Number(its) > attempt);
		attempt = Number(waits['attempt']);
		if (turn > 1) service.failNext({}, answers[turn % answers.length] as FailedAnswer);
		device.clock.setWall(trueMs + (jumps[turn % jumps.length] ?? 0));
		device.clock.advance(30_000);
	}
	await device.untilLogged(({ msg, attempt: its }) => msg === 'wait' && Number(its) > attempt);
	expect(device.statuses.map(({ state }) => state)).not.toContain('blocked');
	device.clock.advance(60_000);
	await device.untilState('online');
	expect(registrations(service)).toEqual([201]);
});

test('64 uploads of applications that drip keep no device away, before a cut and after it [F694]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const head = 'POST /v1/service/api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{';
	const uploads = await Promise.all(
		Array.from({ length: 64 }, async () => {
			const socket = connect(join(device.home.paths.runDir, 'agent.sock')).on('error', () => {});
			onTestFinished(() => void socket.destroy());
			await once(socket, 'connect');
			socket.write(head);
			return socket;
		}),
	);
	for (let cut = 0; cut < 3; cut += 1) {
		const fromMs = device.clock.monotonicMs();
		for (const socket of uploads) socket.write(' ');
		service.dropSockets();
		await device.untilState('offline');
		await device.passWait();
		await device.untilState('online');
		expect(device.clock.monotonicMs() - fromMs).toBeLessThanOrEqual(60_000);
		expect(await device.client.request('agent', 'GET', '/v1/status')).toMatchObject({ state: 'online' });
	}
});

test.each(['API key', 'self-registration'])(
	'a device that has registered again by %s while its channel is away believes over a restart what has worked [F1615]',
	async (by) => {
		const service = await givenService({ selfRegistration: true });
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const credential = by === 'API key' ? { apiKeyFile } : { selfRegistration: true };
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential };
		const device = await givenAgent({ home, settings });
		await device.untilState('online');
		device.clock.advance(4000);
		service.failNext({ path: '/ws/device' }, { status: 404 }, 1000);
		service.dropSockets();
		await device.untilState('offline');
		while (registrations(service).length < 2) await device.passWait();
		await device.passWait();
		await device.stop();
		const again = await givenAgent({ home, settings });
		const { state, problem } = await again.untilStatus((status) => status.problem !== null);
		expect([state, problem?.code, problem?.recovers]).toEqual(['connecting', 'channel-not-found', true]);
		expect(problem?.remedy).toMatch(/^Wait a few minutes: this device was online lately/);
	},
);
