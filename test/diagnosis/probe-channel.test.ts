import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { checkChannel, checkHeartbeat } from '../../src/diagnosis/probe-channel.runner.ts';
import { askDaemon, type DaemonWord } from '../../src/diagnosis/probe-device.runner.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { DEVICE_ID, givenAgent, givenHome, givenLine, givenPairedAgent, type Home } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { examine, expectProblem, expectSkipped } from './examine.ts';

type Answering = Exclude<DaemonWord, { kind: 'notRunning' }>;

async function wordOf({ paths }: Home): Promise<Extract<DaemonWord, { kind: 'runs' }>> {
	const word = await askDaemon(paths.runDir, paths.stateDir);
	if (word.kind !== 'runs') throw new Error(`The agent does not answer: ${JSON.stringify(word)}`);
	return word;
}

/** A device that was paired and online; its agent has ended and its Connection is saved. */
async function givenStopped(): Promise<{ service: EmbeddedService; home: Home }> {
	const service = await givenService();
	const { home, stop } = await givenPairedAgent(service);
	await home.savedToken();
	await stop();
	return { service, home };
}

const upgrades = ({ requests }: EmbeddedService) => requests.filter(({ path }) => path === '/ws/device').length;

describe('beside an agent that is online', () => {
	test('its word is taken: no channel is opened, no credential is sent, every check on the way is well', async () => {
		const service = await givenService();
		const { home, clock } = await givenPairedAgent(service);
		// Less than two cadences, and more than what a heartbeat may be late.
		clock.advance(14_000);
		const before = service.requests.length;
		const { checks, exitStatus, first } = await examine({ home, clock }, 'heartbeat', 'clock', 'pairing', 'state');
		expect({ exitStatus, first }).toEqual({ exitStatus: 0, first: null });
		expect(checks.channel).toMatchObject({
			status: 'ok',
			message: expect.stringMatching(/^The agent is online since 2/),
		});
		expect(checks.heartbeat).toMatchObject({ status: 'ok' });
		expect(checks.state?.message).toMatch(/can be read and written; the agent has it in use\.$/);
		expect(checks.pairing?.message).toMatch(
			new RegExp(`^Belongs to ${service.url}, since \\d{4}-\\d\\d-\\d\\dT[\\d:]+Z\\.$`),
		);
		const asked = service.requests.slice(before).map(({ method, path }) => `${method} ${path}`);
		expect(asked.toSorted()).toEqual(['GET /api/device/connection', 'HEAD /']);
	});

	test('while another address is tried in vain the device is online: a warning names the setting at once, and nothing has failed [F1449]', async () => {
		const service = await givenService();
		const { home, clock, daemon, untilStatus, agent } = await givenPairedAgent(service);
		await home.writeSettings({ baseUrl: 'http://127.0.0.1:1', workflowId: 'check-in' });
		await daemon.reload();
		await untilStatus(({ problem }) => problem !== null);
		await untilStatus(({ warnings }) => warnings.length > 0);
		expect(agent.status()).toMatchObject({ state: 'online', summary: { code: 'online-moving-service' } });
		const { checks, exitStatus } = await examine({ home, clock }, 'heartbeat', 'settings');
		expect(exitStatus).toBe(0);
		expect(checks.channel).toMatchObject({ status: 'ok' });
		expect(checks.settings).toMatchObject({
			status: 'warning',
			message: expect.stringMatching(/^baseUrl: the changed/),
		});
	});

	test('what is slow on the way to the service is a warning, and the channel is told by the agent [F1300]', async () => {
		const service = await givenService();
		const line = await givenLine(service);
		const { home, clock, pair, untilLive } = await givenAgent();
		await pair(service.createPairingCode('check-in').url.replace(service.url, line.url));
		await untilLive('check-in');
		line.holdAnswers();
		const { checks, exitStatus } = await examine({ home, clock }, 'heartbeat');
		expectProblem(checks.http, 'warning', 'request-timeout', /did not answer in time/);
		expect(checks.http).toMatchObject({ remedy: expect.stringMatching(/^The agent is still online/) });
		expect([checks.channel?.status, checks.heartbeat?.status, exitStatus]).toEqual(['ok', 'ok', 0]);
	});

	test('heartbeats are late after two cadences and ten seconds, and not before', async () => {
		const running = await givenPairedAgent(await givenService());
		const word = await wordOf(running.home);
		const nowMs = Date.parse(word.status.channel.lastHeartbeatAt ?? word.status.channel.since ?? '');
		const later = (ms: number) => checkHeartbeat(word, { mode: 'frame', cadenceMs: 60_000, nowMs: nowMs + ms });
		expect(later(130_000)).toMatchObject({ status: 'ok' });
		expectProblem(later(130_001), 'failed', 'channel-silent', /^The last heartbeat was sent 2 min ago\.$/);
	});

	test('heartbeats are not late right after an outage that was longer than that [F1113]', async () => {
		const { status, ...running } = await wordOf((await givenPairedAgent(await givenService())).home);
		const sinceMs = Date.parse(status.channel.since ?? '');
		const channel = { ...status.channel, lastHeartbeatAt: new Date(sinceMs - 600_000).toISOString() };
		const word = { ...running, status: { ...status, channel } };
		const later = (ms: number) => checkHeartbeat(word, { mode: 'frame', cadenceMs: 60_000, nowMs: sinceMs + ms });
		expect(later(500)).toMatchObject({ status: 'ok' });
		expectProblem(later(130_001), 'failed', 'channel-silent', /heartbeat was sent/);
	});

	test('heartbeats that are pings, switched off, or without a channel are not checked', async () => {
		const running = await givenPairedAgent(await givenService());
		const word = await wordOf(running.home);
		const inMode = (mode: 'ping' | 'off', said: Answering = word) =>
			checkHeartbeat(said, { mode, cadenceMs: 1, nowMs: Number.MAX_SAFE_INTEGER });
		expect(inMode('ping').message).toBe('Heartbeats are pings (service.heartbeatMode).');
		expect(inMode('off').message).toBe('Heartbeats are switched off (service.heartbeatMode).');
		const offline: Answering = { ...word, status: { ...word.status, state: 'offline' } };
		for (const said of [offline, { kind: 'unknown', failure: word.status.problem } as unknown as Answering])
			expect(inMode('off', said)).toEqual({ status: 'skipped', message: 'No channel is open.', blockedBy: null });
	});
});

describe('beside an agent that is not online', () => {
	test('its problem is the problem of the channel, and heartbeats are not checked', async () => {
		const service = await givenService();
		const running = await givenPairedAgent(service);
		service.failNext('/ws/device', { status: 403 }, 1000);
		service.failNext('/api/device/connection', { status: 403 }, 1000);
		service.dropSockets();
		const { problem } = await running.untilStatus(({ state, problem }) => state !== 'online' && problem !== null);
		const report = await examine({ home: running.home, clock: running.clock }, 'heartbeat');
		// The endpoint answers, without a credential as well: the way is well, the channel is not.
		expect(report.checks.http).toMatchObject({ status: 'ok' });
		const { recovers: _, message, ...said } = problem ?? {};
		expect(report.checks.channel).toMatchObject({ status: 'failed', ...said });
		expect(report.checks.channel?.message).toContain(message);
		expectSkipped(report, 'channel', 'heartbeat');
	});

	test('one whose Connection was revoked while its API key is good registers again, and when is told [F1142]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings: { ...settings, service: { actOnMessages: true } } });
		await device.untilState('online');
		device.clock.advance(4000);
		service.revoke(device.agent.status().deviceId ?? '', { announce: true });
		const { channel } = await device.untilStatus((now) => now.channel.nextAttemptAt !== null);
		const { checks } = await examine({ home, clock: device.clock }, 'heartbeat');
		expect(checks.channel).toMatchObject({ status: 'failed', code: 'connection-revoked' });
		expect(checks.channel?.message).toContain(`The next try is at ${channel.nextAttemptAt}.`);
		expect(JSON.stringify(checks.channel)).toMatch(/At its next try this device registers again/);
		expect(JSON.stringify(checks.channel)).not.toMatch(/Pair this device/);
	});

	test('one whose move is refused is told when that is tried again [F1567]', async () => {
		const service = await givenService({ workflows: ['check-in'] });
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		await home.writeSettings({ ...settings, workflowId: 'no-such' });
		await device.daemon.reload();
		const isRefused = ({ problem, channel }: Status) => problem !== null && channel.nextAttemptAt !== null;
		const { channel } = await device.untilStatus(isRefused);
		const { checks } = await examine({ home, clock: device.clock }, 'channel');
		expect(checks.channel?.message).toContain('does not succeed: ');
		expect(checks.channel?.message).toContain(`The next try is at ${channel.nextAttemptAt}.`);
	});

	test('one that was never paired has no channel to check, and no service on the way', async () => {
		const { home, clock } = await givenAgent();
		const report = await examine({ home, clock }, 'heartbeat', 'pairing', 'clock');
		expectSkipped(report, null, 'dns', 'tcp', 'proxy', 'tls', 'http', 'channel', 'heartbeat', 'clock');
		expect(report.checks.channel?.message).toBe('Not paired yet.');
		expect(report.checks.dns?.message).toBe('No service is named yet.');
		expectProblem(report.checks.pairing, 'warning', 'unpaired', /^This device is not paired yet\.$/);
	});

	test('offline without a problem is a failure in the words of the agent', async () => {
		const running = await givenPairedAgent(await givenService());
		const word = await wordOf(running.home);
		const status = { ...word.status, state: 'connecting', sentence: 'Connecting.', problem: null } as const;
		expectProblem(checkChannel({ ...word, status }), 'failed', 'connection-lost', /^Connecting\.$/);
	});
});

describe('without an agent, the saved Connection', () => {
	test('opens a channel, gets its ping answered, and closes it; nothing is registered or saved', async () => {
		const { service, home } = await givenStopped();
		const saved = await home.untilSaved();
		const before = service.requests.length;
		const closed = service.waitFor('channel-closed');
		const { checks } = await examine({ home }, 'heartbeat');
		expect(checks.channel?.message).toMatch(/^Opened with the saved Connection in \d+ ms\.$/);
		expect(checks.heartbeat?.message).toMatch(/^A ping was answered, \d+ ms after the start\.$/);
		expect(await closed).toMatchObject({ code: 1000 });
		expect(service.requests.slice(before).filter(({ method }) => method === 'POST')).toEqual([]);
		expect(await home.untilSaved()).toEqual(saved);
	});

	test('of another service is not shown to this one', async () => {
		const { home } = await givenStopped();
		const file = join(home.paths.stateDir, 'state.json');
		const saved = JSON.parse(await readFile(file, 'utf8'));
		const other = { ...saved.connections[0], baseUrl: 'https://other.example', token: 'of.another.service' };
		await writeFile(file, JSON.stringify({ ...saved, connections: [...saved.connections, other] }));
		expect((await examine({ home }, 'channel')).checks.channel).toMatchObject({ status: 'ok' });
	});

	test('that is refused though it has worked is waited for before the device is paired again, and no heartbeat is looked for [F1529]', async () => {
		const { service, home } = await givenStopped();
		service.revoke(DEVICE_ID);
		const report = await examine({ home }, 'heartbeat');
		expectProblem(report.checks.channel, 'failed', 'credential-refused', /answered 401/);
		const remedy = /^Wait a few minutes: this device was online lately, .+ If it lasts: Pair/;
		expect(report.checks.channel).toHaveProperty('remedy', expect.stringMatching(remedy));
		expect(report).toMatchObject({ exitStatus: 77, first: 'channel' });
		expectSkipped(report, 'channel', 'heartbeat');
	});

	test('that is refused on the open channel is told as one that is refused at once [F1529]', async () => {
		const { service, home } = await givenStopped();
		service.on('device-online', () => setImmediate(() => service.closeChannels(1008, 'no')));
		const { checks } = await examine({ home }, 'heartbeat');
		const found = [checks.channel, checks.heartbeat].find((check) => check?.status === 'failed');
		expect(found).toMatchObject({
			remedy: expect.stringMatching(/^Wait a few minutes: this device was online lately/),
		});
	});

	test('that meets an overload says for how long to wait [F1568]', async () => {
		const { service, home } = await givenStopped();
		service.failNext({ path: '/ws/device' }, { status: 503, headers: { 'retry-after': '900' } });
		const { checks } = await examine({ home }, 'channel');
		expect(checks.channel).toMatchObject({
			code: 'service-overloaded',
			message: expect.stringContaining('It asks to wait for 15 min.'),
		});
	});

	test('that is refused is only a warning where a credential can register again', async () => {
		const service = await givenService();
		const { stop, home, untilState } = await givenAgent({
			settings: { baseUrl: service.url, workflowId: 'check-in' },
			sets: [],
		});
		await untilState('unpaired');
		await stop();
		const apiKeyFile = await home.secretFile('api-key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const request = { deviceId: DEVICE_ID, workflowId: 'check-in' };
		const refused = { baseUrl: service.url, request, credentialId: '', token: 'long.gone', obtainedAt: '' };
		await writeFile(
			join(home.paths.stateDir, 'state.json'),
			JSON.stringify({ ...EMPTY_STATE, connections: [refused] }),
		);
		const { checks } = await examine({ home, settings }, 'heartbeat');
		expect(checks.channel).toMatchObject({
			status: 'warning',
			code: 'credential-refused',
			remedy: 'Nothing to do: the agent registers again with its credential when it starts.',
		});
		expect(checks.heartbeat?.message).toBe('No channel is open.');
	});

	test('meets a service that opens the channel and then says nothing: its heartbeat fails', async () => {
		const { service, home } = await givenStopped();
		service.goSilent(true);
		const { checks } = await examine({ home }, 'heartbeat');
		expect(checks.channel).toMatchObject({ status: 'ok' });
		expectProblem(checks.heartbeat, 'failed', 'channel-silent', /has said nothing on the channel for 3 s\.$/);
		service.goSilent(false);
	});

	test('is not asked for a ping that the service need not answer', async () => {
		const { service, home } = await givenStopped();
		service.goSilent(true);
		const { checks } = await examine({ home, settings: { service: { silenceLimitSeconds: 0 } } }, 'heartbeat');
		expect(checks.heartbeat?.message).toMatch(/need not answer a ping/);
		service.goSilent(false);
	});

	test('is not there yet: the agent will register, or is not paired', async () => {
		const service = await givenService();
		const first = await examine({ settings: { baseUrl: service.url } }, 'heartbeat');
		expectSkipped(first, null, 'channel', 'heartbeat');
		expect(first.checks.channel?.message).toBe('Not paired yet.');
		const { paths, ...home } = await givenAgent().then(async ({ home: made, stop }) => {
			await stop();
			return made;
		});
		const apiKeyFile = await home.secretFile('api-key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, credential: { apiKeyFile } };
		const second = await examine({ home: { ...home, paths }, settings }, 'heartbeat');
		expect(second.checks.channel?.message).toBe('No Connection is saved yet: the agent registers when it starts.');
		expect(upgrades(service)).toBe(0);
	});

	test('is left alone while another process uses the state', async () => {
		const service = await givenService();
		const { home, clock } = await givenPairedAgent(service);
		const before = upgrades(service);
		const elsewhere = { ...home, paths: { ...home.paths, runDir: join(home.directory, 'elsewhere') } };
		const report = await examine({ home: elsewhere, clock }, 'heartbeat', 'local-socket');
		expectProblem(report.checks['local-socket'], 'failed', 'state-in-use', /./);
		expectSkipped(report, null, 'channel', 'heartbeat');
		expect(report.checks.channel?.message).toMatch(/left alone\.$/);
		expect(upgrades(service)).toBe(before);
	});
});
