import { X509Certificate } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import type { SettingsReport } from '../../src/protocol/local-api.ts';
import { readCredentials } from '../../src/settings/credentials.runner.ts';
import { givenHome as givenShell } from '../cli/command.ts';
import { fixture } from '../connection/network-peers.ts';
import { examine } from '../diagnosis/examine.ts';
import { DEVICE_ID, givenAgent, givenHome, givenPairedAgent, registrations, watchOffline } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService, registerDevice, send } from '../service/fixture.ts';

const schemesOf = (service: { requests: readonly { path: string; authorizationScheme: string | null }[] }) =>
	service.requests
		.filter(({ path }) => path === '/api/device/connection')
		.map(({ authorizationScheme }) => authorizationScheme);

describe('a device goes online without a person', () => {
	test('with an API key', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		expect(await device.untilLive('check-in')).toMatchObject({ workflow: { source: 'file' }, pairedAt: null });
		expect(schemesOf(service)).toEqual(['ApiKey']);
		// The one that has worked is kept for the day on which another one is refused (docs/threat-model.md), and nowhere else.
		await home.untilSaved(({ workedCredential }) => workedCredential !== null);
		const names = await home.filesWith(service.credentials.apiKey);
		expect(names).toContain('state.json');
		expect(names.filter((name) => !name.startsWith('state.json'))).toEqual([]);
		await device.stop();
		await (await givenAgent({ home })).untilLive('check-in');
		expect(schemesOf(service)).toEqual(['ApiKey']);
	});

	test('with user name and password', async () => {
		const service = await givenService({ basicUsers: [{ username: 'operator', password: 'pass:word' }] });
		const home = await givenHome();
		const basicFile = await home.secretFile('basic', 'basic operator:pass:word');
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { basicFile } };
		await (await givenAgent({ home, settings })).untilLive('check-in');
		expect(schemesOf(service)).toEqual(['Basic']);
	});

	test.each(['', ':password', 'operator'])(
		'with %j, which names no user or no password, by no file [F1894]',
		async (pair) => {
			const files = { apiKeyFile: null, basicFile: '/b', connectionFile: null, selfRegistration: false };
			await expect(readCredentials(files, async () => pair)).rejects.toMatchObject({ code: 'credential-unreadable' });
		},
	);

	test('with a Connection that an operator has made for it: nothing is registered', async () => {
		const service = await givenService();
		const home = await givenHome();
		const token = await registerDevice(service, DEVICE_ID, 'check-in');
		const connectionFile = await home.secretFile('connection', `Connection ${token}`);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { connectionFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		await device.stop();
		await (await givenAgent({ home })).untilLive('check-in');
		expect(schemesOf(service)).toEqual(['ApiKey']);
	});

	test('that says no life of its own is renewed at once, and where it renews nothing, its end is told and no refusal [F1776]', async () => {
		const service = await givenService({
			acceptConnectionForRegistration: false,
			dialect: { connectionForm: 'opaque' },
		});
		const home = await givenHome();
		const connectionFile = await home.secretFile('connection', await registerDevice(service, DEVICE_ID, 'check-in'));
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { connectionFile } };
		const device = await givenAgent({ home, settings: { ...settings, service: { connectionLifeSeconds: 1000 } } });
		await device.untilLive('check-in');
		device.clock.advance(15_000);
		const { warnings, ...status } = await device.untilStatus((one) => one.warnings.length > 0);
		expect(schemesOf(service)).toEqual(['ApiKey', 'Connection']);
		const [warning] = warnings;
		expect(status).toMatchObject({
			state: 'online',
			problem: null,
			summary: { params: { problem: 'credential-ending' } },
		});
		expect(warning).toMatchObject({ code: 'credential-ending', params: { days: 0 } });
		expect(status.sentence).toMatch(
			/does not succeed: The Connection of this device may end at .*new pairing code.*apiKeyFile/,
		);
	});

	test('with the Connection that has worked, while the file holds one that never did, over a restart [F964]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const token = await registerDevice(service, DEVICE_ID, 'check-in');
		const connectionFile = await home.secretFile('connection', token);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { connectionFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		await home.untilSaved(({ connections }) => connections[0]?.worked === true);
		await home.secretFile('connection', `${token.slice(0, -20)}${'x'.repeat(20)}`);
		await device.daemon.reload();
		await device.untilStatus(({ state, problem }) => state === 'online' && problem?.code === 'credential-refused');
		await device.stop();
		const again = await givenAgent({ home });
		await again.untilStatus(({ state, problem }) => state === 'online' && problem?.code === 'credential-refused');
		await home.secretFile('connection', await registerDevice(service, DEVICE_ID, 'check-in'));
		await again.daemon.reload();
		await again.untilStatus(({ state, problem }) => state === 'online' && problem === null);
	});

	test('by registering itself, where both sides have that switched on', async () => {
		const service = await givenService({ selfRegistration: true });
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { selfRegistration: true } };
		await (await givenAgent({ settings })).untilLive('check-in');
		expect(schemesOf(service)).toEqual([null]);
	});

	test('and where another kind of credential takes its place and is refused, both settings say so [F1253]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const basicFile = await home.secretFile('basic', 'operator:wrong');
		const settings = { baseUrl: service.url, workflowId: 'check-in' };
		const device = await givenAgent({ home, settings: { ...settings, credential: { apiKeyFile } } });
		await device.untilLive('check-in');
		await home.writeSettings({ ...settings, credential: { basicFile } });
		await device.daemon.reload();
		await device.untilStatus(({ problem, warnings }) =>
			[problem, ...warnings].some((one) => one?.code === 'credential-refused'),
		);
		const report = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		const rows = report.settings.filter(({ path }) => /^credential\.(?:apiKey|basic)File$/.test(path));
		expect(rows).toMatchObject([{ refused: expect.any(String) }, { refused: expect.any(String) }]);
		for (const row of rows) expect(row).not.toHaveProperty('waitsFor');
	});

	test('but never registers itself unasked [F095]', async () => {
		const service = await givenService({ selfRegistration: true });
		const device = await givenAgent({ settings: { baseUrl: service.url, workflowId: 'check-in' } });
		expect(device.agent.status()).toMatchObject({ state: 'unpaired', baseUrl: service.url });
		device.clock.advance(3_600_000);
		expect(service.requests).toEqual([]);
	});

	test('with a key that is refused it says so, and goes online when another one is set [F075]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const wrong = await home.secretFile('wrong', 'ak-wrong-wrong-wrong');
		const settings = { baseUrl: service.url, workflowId: 'check-in' };
		const device = await givenAgent({ home, settings: { ...settings, credential: { apiKeyFile: wrong } } });
		const refused = await device.untilStatus(({ problem }) => problem !== null);
		expect(refused).toMatchObject({ state: 'connecting', problem: { code: 'credential-refused' } });
		const right = await home.secretFile('right', service.credentials.apiKey);
		await home.writeSettings({ ...settings, credential: { apiKeyFile: right } });
		await device.daemon.reload();
		await device.untilLive('check-in');
		expect(registrations(service)).toEqual([401, 201]);
	});
});

describe('a device with an API key', () => {
	test('moves to another service with its settings, and shows no Connection to a stranger', async () => {
		const apiKeys = [{ name: 'fleet', permissions: ['ephemeral_device:write'], token: 'ak-for-both-services' }];
		const [from, to] = [await givenService({ apiKeys }), await givenService({ apiKeys })];
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', 'ak-for-both-services');
		const settings = { workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings: { ...settings, baseUrl: from.url } });
		await device.untilLive('check-in');
		const order: string[] = [];
		to.on('device-online', () => order.push('online at the new service'));
		from.on('device-offline', () => order.push('offline at the old one'));
		const before = device.statuses.length;
		const left = from.waitFor('device-offline');
		await home.writeSettings({ ...settings, baseUrl: to.url });
		await device.daemon.reload();
		await left;
		expect(order).toEqual(['online at the new service', 'offline at the old one']);
		expect(device.statuses.slice(before).filter(({ state }) => state !== 'online')).toEqual([]);
		expect(device.agent.status()).toMatchObject({ state: 'online', baseUrl: to.url });
		expect(schemesOf(to)).toEqual(['ApiKey']);
	});

	test('gives a registration up that is not wanted any more', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		const release = service.hold('/api/device/connection');
		await home.writeSettings({ ...settings, workflowId: 'boarding' });
		await device.daemon.reload();
		await release.received;
		await home.writeSettings(settings);
		await device.daemon.reload();
		// A request of later: by its answer the service has seen the end of the first one.
		await send(service.url, { path: '/mobile' });
		const cut = service.waitFor('request');
		release();
		expect(await cut).toMatchObject({ path: '/api/device/connection', status: null });
		expect(device.agent.status()).toMatchObject({ workflow: { live: 'check-in' }, problem: null });
	});

	test('that is unpaired forgets its Connection and registers anew', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		const token = await home.savedToken();
		await device.agent.unpair();
		await device.untilLive('check-in');
		expect(schemesOf(service)).toEqual(['ApiKey', 'ApiKey']);
		expect(await home.filesWith(token)).toEqual([]);
	});
});

describe('renewal', () => {
	test('begins at 80 % of the life of a Connection, and nobody sees the device offline', async () => {
		const service = await givenService({ connectionTtlSeconds: 1000 });
		const device = await givenPairedAgent(service);
		const offline = watchOffline(service);
		const before = device.statuses.length;
		const old = await device.home.savedToken();
		device.clock.advance(799_000);
		expect(registrations(service)).toEqual([201]);
		const closed = service.waitFor('channel-closed');
		// One half of the spread of 5 % comes on top.
		device.clock.advance(26_000);
		expect(await closed).toMatchObject({ code: 1000 });
		await device.untilLive('check-in');
		expect(schemesOf(service)).toEqual(['Token', 'Connection']);
		expect(offline).toEqual([]);
		expect(device.statuses.slice(before).filter(({ state }) => state !== 'online')).toEqual([]);
		expect(device.agent.status().channel.reconnects).toBe(0);
		const closedAgain = service.waitFor('channel-closed');
		device.clock.advance(825_000);
		await closedAgain;
		expect(registrations(service)).toEqual([201, 201, 201]);
		await device.stop();
		expect((await device.home.untilSaved()).connections).toHaveLength(1);
		expect(await device.home.filesWith(old)).toEqual([]);
	});

	test('takes the time that passed while the agent was off into account', async () => {
		let nowMs = Date.now();
		const service = await givenService({ connectionTtlSeconds: 1000, now: () => nowMs });
		const first = await givenPairedAgent(service, { clock: createSteppedClock(nowMs) });
		await first.stop();
		nowMs += 900_000;
		const again = await givenAgent({ home: first.home, clock: createSteppedClock(nowMs) });
		await again.untilLive('check-in');
		const closed = service.waitFor('channel-closed');
		again.clock.advance(0);
		await closed;
		expect(schemesOf(service)).toEqual(['Token', 'Connection']);
	});

	test('counts the age that a Connection from a file already has', async () => {
		let nowMs = Date.now();
		const service = await givenService({ connectionTtlSeconds: 1000, now: () => nowMs });
		const home = await givenHome();
		const connectionFile = await home.secretFile('connection', await registerDevice(service, DEVICE_ID));
		nowMs += 900_000;
		const device = await givenAgent({
			home,
			settings: { baseUrl: service.url, workflowId: 'check-in', credential: { connectionFile } },
			clock: createSteppedClock(nowMs),
		});
		await device.untilLive('check-in');
		const closed = service.waitFor('channel-closed');
		device.clock.advance(0);
		await closed;
		expect(schemesOf(service)).toEqual(['ApiKey', 'Connection']);
	});

	test('that is refused leaves the device online and says what is missing', async () => {
		const service = await givenService({ connectionTtlSeconds: 1000, acceptConnectionForRegistration: false });
		const device = await givenPairedAgent(service);
		device.clock.advance(830_000);
		const status = await device.untilStatus(({ warnings }) => warnings.length > 0);
		expect(status).toMatchObject({ state: 'online', problem: null, warnings: [{ code: 'credential-ending' }] });
		expect(status.sentence).toMatch(/renewing the Connection does not succeed: .*new pairing code.*apiKeyFile/);
	});

	test('that is refused for a moment is tried once more before the Connection ends [F1740]', async () => {
		const service = await givenService({ connectionTtlSeconds: 120 });
		const device = await givenPairedAgent(service);
		const offline = watchOffline(service);
		service.failNext({ path: '/api/device/connection' }, { status: 401, body: { error: 'unauthorized' } }, 2);
		const first = await device.home.savedToken();
		for (let second = 0; second < 118; second += 1) {
			device.clock.advance(1000);
			await fetch(service.url).then((answer) => answer.text());
		}
		await device.home.untilSaved(({ connections }) => connections.at(-1)?.token !== first);
		expect([device.agent.status().state, offline]).toEqual(['online', []]);
	});

	test('that the service asks to leave for a while is left, also shortly before the Connection ends [F1741]', async () => {
		const service = await givenService({ connectionTtlSeconds: 120 });
		const device = await givenPairedAgent(service);
		service.failNext({ path: '/api/device/connection' }, { status: 429, headers: { 'Retry-After': '30' } }, 2);
		for (let second = 0; second < 118; second += 1) {
			device.clock.advance(1000);
			await fetch(service.url).then((answer) => answer.text());
		}
		expect(schemesOf(service)).toHaveLength(2);
	});

	test('that is refused with 401 opens no other channel with the Connection that there is, and is tried again later [F1695]', async () => {
		const service = await givenService({ connectionTtlSeconds: 10_000 });
		const device = await givenPairedAgent(service);
		service.failNext({ path: '/api/device/connection' }, { status: 401, body: { error: 'unauthorized' } }, 100);
		device.clock.advance(8_500_000);
		await device.untilStatus(({ warnings }) => warnings[0]?.code === 'credential-ending');
		for (let minute = 0; minute < 5; minute += 1) {
			device.clock.advance(60_000);
			// Twice as long as a registration and a handshake take.
			for (let turn = 0; turn < 4; turn += 1) await fetch(service.url).then((answer) => answer.text());
		}
		expect(service.requests.filter(({ path }) => path.startsWith('/ws/'))).toHaveLength(1);
		expect(schemesOf(service).length).toBeLessThan(8);
	});
});

describe('when a credential is gone', () => {
	test('a Connection registers where the API key is refused', async () => {
		let nowMs = Date.now();
		const service = await givenService({
			apiKeys: [{ name: 'short', permissions: ['ephemeral_device:write'], token: 'ak-short-lived-key', ttl: 60 }],
			now: () => nowMs,
		});
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', 'ak-short-lived-key');
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		nowMs += 61_000;
		const offline = watchOffline(service);
		await home.writeSettings({ ...settings, workflowId: 'boarding' });
		await device.daemon.reload();
		await device.untilLive('boarding');
		expect(schemesOf(service)).toEqual(['ApiKey', 'ApiKey', 'Connection']);
		expect(registrations(service)).toEqual([201, 401, 201]);
		expect(offline).toEqual([]);
	});

	test('the device starts with what it obtained by it, and warns', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		await device.stop();
		await rm(apiKeyFile);
		const again = await givenAgent({ home });
		const status = await again.untilLive('check-in');
		const [warning] = status.warnings;
		expect(warning?.code).toBe('credential-unreadable');
		expect(warning?.message).toContain(apiKeyFile);
		expect(warning?.message).toContain('The agent goes on with what has worked before');
		expect(registrations(service)).toEqual([201]);
		await home.secretFile('key', service.credentials.apiKey);
		await again.daemon.reload();
		expect(again.agent.status().warnings).toEqual([]);
	});
});

test('a key that says when it ends is told of 30 days before, and no more when another one is in its place [F629]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const claims = (days: number) => ({ exp: Math.floor(Date.now() / 1000) + days * 86_400 });
	const key = (days: number) => `a.${Buffer.from(JSON.stringify(claims(days))).toString('base64url')}.0123456789abcdef`;
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = {
		baseUrl: service.url,
		workflowId: 'check-in',
		credential: { apiKeyFile },
		local: { metricsPort: 0 },
	};
	const device = await givenAgent({ home, settings });
	await device.untilLive('check-in');
	const isTold = () => device.agent.status().warnings.filter(({ code }) => code === 'credential-ending');
	await home.secretFile('key', key(29));
	await device.daemon.reload();
	expect(isTold()).toMatchObject([{ message: expect.stringContaining(`The API key in ${apiKeyFile} ends at`) }]);
	const text = await (await fetch(new URL('/metrics', device.daemon.addresses.metrics ?? ''))).text();
	const metric = /^idv_agent_credential_ends_time_seconds\S* (\S+)$/m.exec(text)?.[1];
	expect(Number(metric) * 1000).toBe(Date.parse(String(isTold()[0]?.params?.['at'])));
	await home.secretFile('key', key(-1));
	await device.daemon.reload();
	expect(isTold()).toMatchObject([{ message: expect.stringContaining('has ended at') }]);
	await home.secretFile('key', key(31));
	await device.daemon.reload();
	expect(isTold()).toEqual([]);
});

test('a client certificate is told of 30 days before it ends, and when it has ended, in the log, too [F813]', async () => {
	const home = await givenHome();
	const [clientCertificateFile, clientKeyFile] = [fixture('client.pem'), fixture('client.key')];
	const device = await givenAgent({ home, settings: { network: { clientCertificateFile, clientKeyFile } } });
	const endsAtMs = Date.parse(new X509Certificate(await readFile(clientCertificateFile)).validTo);
	const toldBefore = (days: number) => {
		device.clock.setWall(endsAtMs - days * 86_400_000);
		return device.agent.status().warnings.filter(({ code }) => code === 'credential-ending');
	};
	const of = `The client certificate in ${clientCertificateFile}`;
	expect(toldBefore(31)).toEqual([]);
	const logged = () => device.logText().match(/credential-ending/g)?.length ?? 0;
	expect(toldBefore(29)).toMatchObject([{ message: expect.stringContaining(`${of} ends at`) }]);
	// What changes the status next shows it, once.
	for (const _ of [1, 2]) await device.daemon.reload();
	expect(logged()).toBe(1);
	expect(toldBefore(-1)).toMatchObject([{ message: expect.stringContaining(`${of} has ended at`) }]);
	for (const _ of [1, 2]) await device.daemon.reload();
	expect(logged()).toBe(2);
});

test('a key or a client certificate that is not valid yet is told with the day and the clock, as ends are [F1041]', async () => {
	const home = await givenHome();
	const [clientCertificateFile, clientKeyFile] = [fixture('not-yet-valid.pem'), fixture('server.key')];
	const claims = { nbf: Date.parse('2118-01-01') / 1000, exp: 1e300 };
	const apiKeyFile = await home.secretFile('key', `h.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.s`);
	const network = { clientCertificateFile, clientKeyFile };
	const device = await givenAgent({
		home,
		settings: { network, baseUrl: 'http://127.0.0.1:1', credential: { apiKeyFile } },
	});
	const notYet = () => {
		const told = device.agent.status().warnings.map(({ message }) => message);
		return told.filter((message) => message.includes('is not valid before'));
	};
	const whole = [
		`The API key in ${apiKeyFile} is not valid before 2118-01-01T00:00:00.000Z, and the clock of this device shows `,
		`The client certificate in ${clientCertificateFile} is not valid before 2119-01-01T00:00:00.000Z, and the clock of`,
	].map((words) => expect.stringContaining(words));
	expect(notYet()).toEqual(whole);
	const { settings } = (await examine({ home, clock: device.clock }, 'settings')).checks;
	expect(settings).toMatchObject({ status: 'warning', message: expect.stringContaining('is not valid before 2118') });
	expect(settings?.message).toContain('is not valid before 2119');
	const checked = await (await givenShell()).agent(['config', 'check', '--json', '--config', home.paths.configFile]);
	const { notices } = JSON.parse(checked.stdout) as { notices: { message: string }[] };
	expect(notices.map(({ message }) => message)).toEqual(expect.arrayContaining(whole));
	device.clock.setWall(Date.parse('2119-01-02'));
	expect(notYet()).toEqual([]);
});
