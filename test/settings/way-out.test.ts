import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { SettingsReport, Status } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import {
	givenAgent,
	givenHome,
	givenPairedAgent,
	type RunningAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const told = ({ warnings }: Status) => warnings.filter(({ code }) => code === 'settings-not-followed');
const isRefused = (status: Status) => told(status).some(({ message }) => message.includes('was not online with'));
const isTaken = ({ agent }: RunningAgent) => agent.ways.runtime().resolved.settings.service.nextConnection !== null;

async function cutAndReturn(service: EmbeddedService, device: RunningAgent) {
	const lost = device.untilState('offline');
	service.closeChannels(1001);
	await lost;
	const until = device.untilState('online');
	const pass = setInterval(() => device.clock.advance(1000), 20);
	await until.finally(() => clearInterval(pass));
}

const OTHER_KEY = 'another-key-of-this-device-0123456789';
const LIMIT = { changeLimitSeconds: 20 };

/** @param own what the service wants of a TLS client, and the network settings for it. */
async function given(own: { readonly tls?: object; readonly network?: object } = {}) {
	const service = await givenService({
		tls: { ...identity('server'), ...own.tls },
		workflows: ['check-in', 'boarding'],
		apiKeys: [{ name: 'other', permissions: ['ephemeral_device:write'], token: OTHER_KEY }],
	});
	const home = await givenHome();
	const caFile = join(home.directory, 'ca.pem');
	await cp(fixture('ca.pem'), caFile);
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const baseUrl = service.url.replace('127.0.0.1', 'localhost');
	const good = {
		baseUrl,
		workflowId: 'check-in',
		credential: { apiKeyFile },
		network: { caFile, ...own.network },
		fleet: LIMIT,
	};
	const device = await givenAgent({ home, settings: good });
	await device.untilLive('check-in');
	return { service, home, caFile, good, device };
}

/** The service takes the Connection away, and the device registers again. */
async function revokedAndBack({ service, device }: Awaited<ReturnType<typeof given>>): Promise<void> {
	const lost = device.untilState('offline');
	service.revoke('KIOSK-0001');
	service.dropSockets();
	await lost;
	const back = device.untilState('online');
	for (let waits = 0; waits < 60 && device.agent.status().state !== 'online'; waits += 1)
		await Promise.race([device.passWait(), back]);
	await back;
}

/** Lets the time of the try pass. */
async function untilRefused(device: RunningAgent): Promise<Status> {
	await device.untilStatus((status) => told(status).length > 0);
	device.clock.advance(20_000);
	return device.untilStatus(isRefused);
}

test('another address for a device that a code has paired asks for a code of that address, and not to correct it [F1330]', async () => {
	const [service, other] = [await givenService(), await givenService()];
	const device = await givenPairedAgent(service, { settings: { fleet: LIMIT } });
	await device.home.writeSettings({ fleet: LIMIT, baseUrl: other.url });
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem?.code === 'unpaired');
	device.clock.advance(20_000);
	const refused = await device.untilStatus(isRefused);
	expect(told(refused)[0]?.message).toContain('There is no credential to register with.');
	expect(told(refused)[0]?.remedy).toContain('use a code of the new address (idv-agent pair --replace)');
	await device.pair(other.createPairingCode('check-in').url, { replace: true });
	await device.untilStatus(
		({ state, baseUrl, warnings }) => state === 'online' && baseUrl === other.url && warnings.length === 0,
	);
});

const BAD: readonly [what: string, changed: object][] = [
	['service.channelPath', { service: { channelPath: '/no/such/channel' } }],
	['service.channelAuth', { service: { channelAuth: 'queryToken' } }],
	['service.registrationPath', { service: { registrationPath: '/no/such/place' } }],
	['network.caFile', {}],
];

test.each(BAD)(
	'%s that does not bring the device online is refused and told, over a restart, until it is corrected',
	async (what, changed) => {
		const { service, home, caFile, good, device } = await given();
		const offline = watchOffline(service);
		if (what === 'network.caFile') await cp(fixture('portal.pem'), caFile);
		await home.writeSettings({ ...good, ...changed, deviceType: 'scanner' });
		await device.daemon.reload();
		const tried = await device.untilStatus((status) => told(status).length > 0);
		expect(tried).toMatchObject({ state: 'online', problem: null, summary: { code: 'online' } });
		expect(told(tried)[0]?.params).toMatchObject({ changed: what });
		const refused = await untilRefused(device);
		expect(refused).toMatchObject({ state: 'online', problem: null });
		expect(told(refused)).toMatchObject([{ params: { changed: what, seconds: 20 } }]);
		expect(told(refused)[0]?.message).toContain(`It has been so since ${told(refused)[0]?.params?.['since']}`);
		await device.untilStatus(({ deviceType }) => deviceType === 'scanner');
		expect(offline).toEqual([]);
		await device.stop();

		const again = await givenAgent({ home });
		await again.untilState('online');
		await again.untilStatus((status) => status.state === 'online' && told(status).length > 0);
		await cp(fixture('ca.pem'), caFile);
		await home.writeSettings(good);
		await again.daemon.reload();
		await again.untilStatus(({ state, warnings }) => state === 'online' && warnings.length === 0);
	},
);

test('a changed way out is taken when the device is online by it, beside the channel from before [F625]', async () => {
	const { service, home, good, device } = await given();
	const offline = watchOffline(service);
	const before = registrations(service).length;
	await home.writeSettings({ ...good, service: { channelAuth: 'query' }, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilLive('boarding');
	await device.untilLogged(({ msg }) => msg.startsWith('setting taken: service.channelAuth = "query"'));
	expect([offline, registrations(service).length - before]).toEqual([[], 1]);
	expect(told(device.agent.status())).toEqual([]);
	await home.writeSettings({ ...good, service: { channelPath: '/nowhere' } });
	await device.daemon.reload();
	expect(await untilRefused(device)).toMatchObject({ warnings: [{ code: 'settings-not-followed' }] });
});

test('a way out that was refused is told at once after a restart, with its old since, until it is taken or changed [F806]', async () => {
	const { home, good, device } = await given();
	await home.writeSettings({ ...good, service: { channelPath: '/no/such/channel' } });
	await device.daemon.reload();
	const since = told(await untilRefused(device))[0]?.params?.['since'];
	await device.stop();

	const again = await givenAgent({ home });
	const [first] = told(again.agent.status());
	expect(first).toMatchObject({ params: { changed: 'service.channelPath', since } });
	expect(first?.message).toContain(`It has been so since ${since}`);
	await again.untilState('online');
	// Its next try does not make it begin again either.
	expect(told(await untilRefused(again))).toMatchObject([{ params: { since } }]);
	await home.writeSettings({ ...good, service: { channelPath: '/nowhere' } });
	await again.daemon.reload();
	expect(isRefused(again.agent.status())).toBe(false);
	await again.stop();

	const last = await givenAgent({ home });
	expect(told(last.agent.status())).toEqual([]);
	await home.writeSettings(good);
	await last.daemon.reload();
	await home.untilSaved(({ refusedWay }) => refusedWay === null);
	await last.untilStatus(({ state, warnings }) => state === 'online' && warnings.length === 0);
});

test('a limit of silence that is shorter than two pings ends no channel that is well: more is borne, and that is told [F900]', async () => {
	const { service, home, good, device } = await given();
	const offline = watchOffline(service);
	await home.writeSettings({ ...good, heartbeatCadence: 1, service: { silenceLimitSeconds: 1 } });
	await device.daemon.reload();
	await device.untilLogged(({ msg }) => msg.startsWith('setting taken: service.silenceLimitSeconds = 1 '));
	// A channel is pinged and heard in real time; the answers are told apart by the clock that the test steps.
	for (let answers = 0; answers < 4; answers += 1) {
		device.clock.advance(1);
		const now = new Date(device.clock.wallMs()).toISOString();
		const isHeard = ({ state, channel }: Status) => state !== 'online' || channel.lastAnswerAt === now;
		await expect.poll(() => isHeard(device.agent.status())).toBe(true);
	}
	const { state, warnings } = device.agent.status();
	expect([offline, state]).toEqual([[], 'online']);
	expect(warnings.map(({ message }) => message)).toEqual([
		expect.stringContaining(
			'service.silenceLimitSeconds is less than two pings take: a silence of 2 s ends a channel.',
		),
	]);
});

test('an address at which the device is not online in time is refused with why and since when, over a restart, and the old one stays [F901]', async () => {
	const { service, home, good, device } = await given();
	const offline = watchOffline(service);
	const dead = 'https://127.0.0.1:1';
	await home.writeSettings({ ...good, baseUrl: dead, workflowId: 'boarding' });
	await device.daemon.reload();
	const { problem } = await device.untilStatus((status) => status.problem !== null);
	const [trying] = told(device.agent.status());
	expect(trying).toMatchObject({ message: expect.stringMatching(/^baseUrl: the changed settings are tried/) });
	expect(trying?.params).not.toHaveProperty('since');
	device.clock.advance(20_000);
	const refused = await device.untilStatus(isRefused);
	expect(refused).toMatchObject({
		state: 'online',
		problem: null,
		baseUrl: good.baseUrl,
		workflow: { live: 'check-in' },
	});
	const since = told(refused)[0]?.params?.['since'];
	expect(told(refused)).toMatchObject([
		{ params: { changed: 'baseUrl', problem: problem?.code, since: expect.any(String) } },
	]);
	const rowOf = async ({ client }: RunningAgent) => {
		const { settings } = (await client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		return settings.find(({ path }) => path === 'baseUrl');
	};
	const row = { value: good.baseUrl, disk: dead, refused: told(refused)[0]?.message };
	expect(await rowOf(device)).toMatchObject(row);
	expect(await rowOf(device)).not.toHaveProperty('waitsFor');
	// A channel that is lost meanwhile comes back, at the old address.
	const lost = device.untilState('offline');
	service.dropSockets();
	await lost;
	await device.passWait();
	await device.untilState('online');
	expect(offline).toHaveLength(1);
	await device.stop();

	const again = await givenAgent({ home });
	expect(told(again.agent.status())).toMatchObject([{ params: { changed: 'baseUrl', since } }]);
	await again.untilState('online');
	await again.untilStatus((status) => status.problem !== null);
	again.clock.advance(20_000);
	expect(told(await again.untilStatus((status) => isRefused(status) && status.problem === null))).toMatchObject([
		{ params: { since } },
	]);
	await home.writeSettings(good);
	await again.daemon.reload();
	await home.untilSaved(({ refusedWay }) => refusedWay === null);
	await again.untilStatus(({ state, warnings }) => state === 'online' && warnings.length === 0);
});

test.each<[what: string, more: object, endsAfterMs: number]>([
	['alone', {}, 0],
	['with a path of the channel', { service: { channelAuth: 'query' } }, 0],
	['alone, at one that waits for a first message', {}, 4000],
])(
	'another service that registers the device and ends each channel does not have it, nor after a kill or a restart; what is tried: %s [F1412]',
	async (_, more, endsAfterMs) => {
		const apiKeys = [{ name: 'both', permissions: ['ephemeral_device:write' as const], token: OTHER_KEY }];
		const [service, other] = [await givenService({ apiKeys }), await givenService({ apiKeys })];
		let opened = 0;
		other.on('device-online', () => {
			opened += 1;
			setTimeout(() => other.closeChannels(1011), endsAfterMs).unref();
		});
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', OTHER_KEY);
		const good = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile }, fleet: LIMIT };
		const device = await givenAgent({ home, settings: good, countsAfterMs: 'own' });
		await device.untilLive('check-in');
		service.notify({ type: 'session.started', id: 'unread' });
		await device.untilEvent(({ serviceId }) => serviceId === 'unread');
		const offline = watchOffline(service);
		await home.writeSettings({ ...good, ...more, baseUrl: other.url });
		await device.daemon.reload();
		await other.waitFor('channel-closed');
		const killed = await givenHome();
		for (const part of ['etc', 'state'])
			await cp(join(home.directory, part), join(killed.directory, part), { recursive: true });
		device.clock.advance(20_000);
		await device.untilStatus(isRefused);
		expect(offline).toEqual([]);
		await device.stop();

		for (const at of [home, killed]) {
			const before = opened;
			const again = await givenAgent({ home: at, countsAfterMs: 'own' });
			await again.untilStatus(({ state, baseUrl }) => state === 'online' && baseUrl === service.url);
			await expect.poll(() => opened).toBeGreaterThan(before);
			if (endsAfterMs > 0) await other.waitFor('channel-closed');
			expect((await again.events()).map(({ serviceId }) => serviceId)).toContain('unread');
			again.clock.advance(20_000);
			await again.untilStatus((status) => isRefused(status) && status.baseUrl === service.url);
			await again.stop();
		}
	},
);

test('a device that was paired with another service, and restarted before a channel there lasted, is at that one afterwards [F1427]', async () => {
	const [service, other] = [await givenService(), await givenService()];
	const device = await givenPairedAgent(service, { countsAfterMs: 'own' });
	let isWell = false;
	other.on('device-online', () => void (isWell || setImmediate(() => other.closeChannels(1011))));
	await device
		.pair(other.createPairingCode('check-in').url, { replace: true, trustOrigin: new URL(other.url).origin })
		.catch(() => {});
	await device.stop();
	isWell = true;
	const again = await givenAgent({ home: device.home, countsAfterMs: 'own' });
	await again.untilStatus(({ state, baseUrl }) => state === 'online' && baseUrl === other.url);
	await again.stop();
	const last = await givenAgent({ home: device.home });
	await last.untilStatus(({ state, baseUrl }) => state === 'online' && baseUrl === other.url);
});

test('what a setting that is only tried takes for the next Connection costs a device that has no credential nothing over a restart [F1432]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service, { countsAfterMs: 'own' });
	await device.home.writeSettings({ service: { nextConnection: 'header:Sec-WebSocket-Accept' } });
	const saved = async () => JSON.parse(await readFile(join(device.home.directory, 'state', 'state.json'), 'utf8'));
	await device.daemon.reload();
	await expect.poll(async () => (await saved()).connections.length).toBe(2);
	const killed = await givenHome();
	for (const part of ['etc', 'state'])
		await cp(join(device.home.directory, part), join(killed.directory, part), { recursive: true });
	await device.stop();
	const again = await givenAgent({ home: killed, countsAfterMs: 'own' });
	await again.untilState('online');
	await again.stop();
	await killed.writeSettings({});
	const healed = await givenAgent({ home: killed, countsAfterMs: 'own' });
	await healed.untilState('online');
	await healed.untilStatus(({ warnings }) => warnings.length === 0);
});

test('what a wrong setting in force takes for the next Connection is left for the one that a channel was opened with [F1432]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	await device.home.writeSettings({ service: { nextConnection: 'header:Sec-WebSocket-Accept' } });
	await device.daemon.reload();
	await device.untilStatus(() => device.agent.ways.tried() === null && isTaken(device));
	for (let cut = 0; cut < 2; cut += 1) {
		await cutAndReturn(service, device);
	}
	await device.stop();
	await device.home.writeSettings({});
	const healed = await givenAgent({ home: device.home });
	await healed.untilState('online');
});

test.each([
	['of a device that a code has paired', 'code'],
	['of a device with an API key', 'key'],
] as const)(
	'a nextConnection of which nothing opens a channel %s is told the second time, until it is corrected [F1439]',
	async (_, by) => {
		const service = await givenService();
		const home = await givenHome();
		const settings =
			by === 'code'
				? {}
				: {
						baseUrl: service.url,
						workflowId: 'check-in',
						credential: { apiKeyFile: await home.secretFile('key', service.credentials.apiKey) },
					};
		const device = by === 'code' ? await givenPairedAgent(service, { home }) : await givenAgent({ home, settings });
		await device.untilState('online');
		await home.writeSettings({ ...settings, service: { nextConnection: 'header:Sec-WebSocket-Accept' } });
		await device.daemon.reload();
		await device.untilStatus(() => device.agent.ways.tried() === null && isTaken(device));
		const told = () =>
			device.agent.status().warnings.filter(({ message }) => message.includes('service.nextConnection'));
		for (let cut = 0; cut < 3; cut += 1) {
			expect(told()).toHaveLength(cut < 2 ? 0 : 1);
			await cutAndReturn(service, device);
		}
		expect(told()[0]).toMatchObject({
			code: 'settings-invalid',
			message: expect.stringContaining('Sec-WebSocket-Accept'),
		});
		await home.writeSettings(settings);
		await device.daemon.reload();
		const healed = device.untilStatus(() => device.agent.ways.tried() === null && told().length === 0);
		const pass = setInterval(() => device.clock.advance(1000), 20);
		await healed.finally(() => clearInterval(pass));
		expect(device.agent.status()).toMatchObject({ state: 'online', problem: null });
	},
);

test('of two saved Connections the newest is tried again after both were refused for a moment [F1432]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	await device.stop();
	const file = join(device.home.directory, 'state', 'state.json');
	const { digest: _, copy: __, ...state } = JSON.parse(await readFile(file, 'utf8'));
	const [{ worked, ...newest }] = state.connections;
	expect(worked).toBe(true);
	const older = { ...newest, token: 'older-connection-0123456789', worked };
	await writeFile(file, JSON.stringify({ ...state, connections: [older, newest] }));
	let asked = 0;
	service.on('request', () => {
		asked += 1;
	});
	service.failNext('/ws/device', { status: 401 }, 4);
	const again = await givenAgent({ home: device.home });
	const pass = setInterval(() => again.clock.advance(5000), 50);
	await again.untilState('online').finally(() => clearInterval(pass));
	expect(asked).toBeLessThan(12);
});

test('the ends of channels that are only tried are not told as cuts of the one in force [F1419]', async () => {
	const apiKeys = [{ name: 'both', permissions: ['ephemeral_device:write' as const], token: OTHER_KEY }];
	const [service, other] = [await givenService({ apiKeys }), await givenService({ apiKeys })];
	let opened = 0;
	other.on('device-online', () => {
		opened += 1;
		setImmediate(() => other.closeChannels(1011));
	});
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', OTHER_KEY);
	const good = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	const device = await givenAgent({ home, settings: good, countsAfterMs: 'own' });
	await device.untilLive('check-in');
	await home.writeSettings({ ...good, baseUrl: other.url });
	await device.daemon.reload();
	while (opened < 6) {
		device.clock.advance(1000);
		await device.client.request('agent', 'GET', '/v1/status');
	}
	expect(device.statuses.flatMap(({ warnings }) => warnings.map(({ code }) => code))).not.toContain('channel-flapping');
});

test.each<[what: string, more: object]>([
	['alone', {}],
	['with another cadence', { heartbeatCadence: 20 }],
])(
	'a good way out that is set %s while the service is away is not refused for that, and taken afterwards [F983]',
	async (_, more) => {
		const { service, home, good, device } = await given();
		const away = 40_000;
		const lost = device.untilState('offline');
		let comesBack = () => {};
		const until = new Promise<void>((resolve) => {
			comesBack = resolve;
		});
		const back = service.restart({ until, hard: true });
		await lost;
		await home.writeSettings({ ...good, ...more, service: { channelAuth: 'query' } });
		await device.daemon.reload();
		const pass = async (isOver: () => boolean) => {
			while (!isOver()) {
				device.clock.advance(500);
				// What that set off has been answered.
				await device.client.request('agent', 'GET', '/v1/status');
			}
		};
		const untilMs = device.clock.wallMs() + away;
		await pass(() => device.clock.wallMs() >= untilMs);
		expect(device.agent.status().state).not.toBe('online');
		comesBack();
		await back;
		await pass(() => device.agent.ways.runtime().resolved.settings.service.channelAuth === 'query');
		await device.untilState('online');
		expect(device.statuses.filter(isRefused)).toEqual([]);
		expect(device.log.filter(({ msg }) => msg.includes('was not online with'))).toEqual([]);
	},
);

test('another address that does not work is told also while the one from before is away [F1259]', async () => {
	const { service, home, good, device } = await given();
	const lost = device.untilState('offline');
	const { promise: until, resolve: comesBack } = Promise.withResolvers<void>();
	const back = service.restart({ until, hard: true });
	await lost;
	await home.writeSettings({ ...good, baseUrl: 'https://127.0.0.1:1' });
	await device.daemon.reload();
	const isTold = ({ warnings }: Status) => warnings.some(({ params }) => params?.['changed'] === 'baseUrl');
	const { warnings } = await device.untilStatus(isTold);
	expect(JSON.stringify(warnings)).toContain('127.0.0.1:1 refuses connections');
	comesBack();
	await back;
});

test.each([
	['an address', { baseUrl: 'https://127.0.0.1:1' }],
	['a path of the channel', { service: { channelPath: '/no/such/channel' } }],
])(
	'a device whose Connection is revoked while %s is refused registers again at the service from before [F955]',
	async (_what, bad) => {
		const made = await given();
		const { home, good, device } = made;
		await home.writeSettings({ ...good, ...bad });
		await device.daemon.reload();
		await device.untilStatus(({ problem, warnings }) => problem !== null || warnings.length > 0);
		device.clock.advance(20_000);
		await device.untilStatus(isRefused);
		await revokedAndBack(made);
		expect(device.agent.status()).toMatchObject({ baseUrl: good.baseUrl });
	},
);

test('an address that was refused for its key, or for the workflow there, is tried at once with another one [F909]', async () => {
	const { home, good, device } = await given();
	const other = await givenService({ tls: identity('server'), workflows: ['boarding'] });
	const moved = { ...good, baseUrl: other.url.replace('127.0.0.1', 'localhost'), workflowId: 'no-such-workflow' };
	await home.writeSettings(moved);
	await device.daemon.reload();
	const untilOut = async (code: string) => {
		await device.untilStatus(({ problem }) => problem?.code === code);
		device.clock.advance(20_000);
		await device.untilStatus((status) => told(status)[0]?.params?.['problem'] === code);
	};
	await untilOut('credential-refused');
	await home.secretFile('key', other.credentials.apiKey);
	await device.daemon.reload();
	await untilOut('workflow-unknown');
	await home.writeSettings({ ...moved, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilLive('boarding');
	await device.untilStatus(({ baseUrl, warnings }) => baseUrl === moved.baseUrl && warnings.length === 0);
});

test('a key that comes while another address is refused is told as not in force with it, over a restart [F985]', async () => {
	const { home, good, device } = await given();
	await home.writeSettings({ ...good, baseUrl: 'https://127.0.0.1:1' });
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem !== null);
	device.clock.advance(20_000);
	expect(told(await device.untilStatus(isRefused))).toMatchObject([{ params: { changed: 'baseUrl' } }]);
	await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem !== null);
	device.clock.advance(20_000);
	const words = 'The credential was not refused: it waits for 127.0.0.1:1, the only service that it is sent to.';
	const changed = { message: expect.stringContaining(words), params: { changed: 'baseUrl, credential' } };
	expect(told(await device.untilStatus(isRefused))).toMatchObject([changed]);
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	const row = settings.find(({ path }) => path === 'credential.apiKeyFile');
	expect(row).toMatchObject({ waitsFor: 'address' });
	expect(row).not.toHaveProperty('refused');
	await device.stop();
	const again = await givenAgent({ home });
	expect(told(again.agent.status())).toMatchObject([changed]);
});

const TAKEN = 'setting taken: credential, from its file';

test.each<[what: string, changed: object]>([
	['a way out', { service: { channelPath: '/no/such/channel' } }],
	['a workflow', { workflowId: 'no-such-workflow' }],
])(
	'a new key that comes with %s that does not work is taken at once, and the log says so then [F635]',
	async (_, bad) => {
		const { service, home, good, device } = await given();
		const offline = watchOffline(service);
		await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
		await home.writeSettings({ ...good, ...bad });
		await device.daemon.reload();
		await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code === 'credential-refused'));
		expect(device.logText()).not.toContain(TAKEN);
		const before = registrations(service).length;
		await home.secretFile('key', OTHER_KEY);
		await device.daemon.reload();
		await device.untilLogged(({ msg }) => msg === TAKEN);
		expect(registrations(service).slice(before)).toContain(201);
		const isRefusedKey = device.agent.status().warnings.some(({ code }) => code === 'credential-refused');
		expect(isRefusedKey).toBe(false);
		expect([offline, device.agent.status().state]).toEqual([[], 'online']);
		// What else was changed is tried after it.
		await device.untilStatus(({ warnings, problem }) => warnings.length > 0 || problem !== null);
	},
);

test('what another service, which is only tried, says of a key is told as why its address is refused, and of no key in force [F961]', async () => {
	const { home, good, device } = await given();
	const other = await givenService({ tls: identity('server') });
	await home.writeSettings({ ...good, baseUrl: other.url.replace('127.0.0.1', 'localhost') });
	await device.daemon.reload();
	const trying = await device.untilStatus(({ problem }) => problem?.code === 'credential-refused');
	expect(trying).toMatchObject({ state: 'online', warnings: [{ code: 'settings-not-followed' }] });
	device.clock.advance(20_000);
	expect((await device.untilStatus(isRefused)).warnings).toMatchObject([
		{
			code: 'settings-not-followed',
			message: expect.stringContaining('answered 401'),
			params: { changed: 'baseUrl', problem: 'credential-refused' },
		},
	]);
});

test('variables of proxies that came with a refused way out are told by their names, and shown as refused beside those in force [F1043]', async () => {
	const { home, good, device } = await given();
	await device.stop();
	await home.writeSettings({ ...good, service: { channelPath: '/no/such/channel' } });
	const env = { HTTPS_PROXY: 'http://kiosk:geheim@proxy.test:3128', NO_PROXY: 'intranet.test' };
	const again = await givenAgent({ home, env });
	await again.untilState('online');
	const rowOf = async (name: string) => {
		const { settings } = (await again.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		return settings.find(({ path }) => path === name);
	};
	const [message] = told(await untilRefused(again)).map((one) => one.message);
	expect(message).toMatch(/^service\.channelPath, HTTPS_PROXY, NO_PROXY: The device was not online/);
	const row = { value: null, source: 'environment', refused: message };
	expect(await rowOf('HTTPS_PROXY')).toMatchObject({
		...row,
		disk: 'http://[secret]@proxy.test:3128',
		since: expect.any(String),
	});
	expect(await rowOf('NO_PROXY')).toMatchObject({ ...row, disk: 'intranet.test', where: 'NO_PROXY' });
	expect(JSON.stringify([again.agent.status(), again.logText()])).not.toContain('geheim');
	await home.writeSettings(good);
	await again.daemon.reload();
	await again.untilLogged(({ msg }) => msg === 'setting taken: HTTPS_PROXY, from the environment');
	const now = await rowOf('NO_PROXY');
	expect(now).toMatchObject({ value: 'intranet.test' });
	for (const name of ['disk', 'waitsFor', 'refused']) expect(now).not.toHaveProperty(name);
});

test('a variable that names no proxy leaves a device that was online by the one from before, and is told as refused [F1044]', async () => {
	const { home, good, device } = await given();
	await device.stop();
	await home.writeSettings({ ...good, network: { caFile: '/nowhere/ca.pem' } });
	const again = await givenAgent({ home, env: { HTTPS_PROXY: 'ftp://proxy.test' } });
	const { warnings } = await again.untilStatus(({ state }) => state === 'online');
	const words = [
		'HTTPS_PROXY is not the address of an http:// or https:// proxy.',
		'network.caFile /nowhere/ca.pem cannot',
	];
	expect(warnings.map((one) => one.message)).toEqual(words.map((one) => expect.stringContaining(one)));
	const { settings } = (await again.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	const row = settings.find(({ path }) => path === 'HTTPS_PROXY');
	expect(row).toMatchObject({ value: null, disk: '[secret]', refused: expect.stringContaining(words[0] ?? '') });
});

test('a wrong key that comes with another address is told as refused by that service, each value with what became of it [F1045]', async () => {
	const { home, good, device } = await given();
	const other = await givenService({ tls: identity('server') });
	await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
	const moved = { ...good, baseUrl: other.url.replace('127.0.0.1', 'localhost') };
	await home.writeSettings(moved);
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem?.code === 'credential-refused');
	device.clock.advance(20_000);
	const [refusal] = told(await device.untilStatus(isRefused));
	expect(refusal?.params).toMatchObject({ changed: 'baseUrl, credential', problem: 'credential-refused' });
	expect(refusal?.message).toContain(`${new URL(moved.baseUrl).host} has refused the credential itself.`);
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	const rows = settings.filter(({ refused }) => refused !== undefined).map(({ path }) => path);
	expect(rows).toEqual(['baseUrl', 'credential.apiKeyFile']);
	expect(device.agent.status()).toMatchObject({ state: 'online', baseUrl: good.baseUrl });
	// Back to the good key alone: it is what the address was refused for.
	await home.secretFile('key', other.credentials.apiKey);
	await device.daemon.reload();
	await device.untilStatus(({ baseUrl, warnings }) => baseUrl === moved.baseUrl && warnings.length === 0);
});

test.each([
	['another address', { baseUrl: 'https://127.0.0.1:1' }],
	['a path of the channel', { service: { channelPath: '/no/such/channel' } }],
])(
	'while %s does not work, the link that lives takes at once what bears on neither, and so after it was refused [F1120]',
	async (_what, bad) => {
		const { service, home, good, device } = await given();
		const offline = watchOffline(service);
		await home.writeSettings({ ...good, ...bad, heartbeatCadence: 2 });
		await device.daemon.reload();
		// No time passes: the try is still under way.
		await device.untilStatus(({ channel }) => channel.heartbeatCadence === 2);
		await device.untilStatus(({ problem, warnings }) => problem !== null || warnings.length > 0);
		device.clock.advance(20_000);
		await device.untilStatus(isRefused);
		await home.writeSettings({ ...good, ...bad, heartbeatCadence: 3 });
		await device.daemon.reload();
		await device.untilStatus((status) => status.channel.heartbeatCadence === 3 && isRefused(status));
		expect([offline, device.agent.status().state]).toEqual([[], 'online']);
	},
);

test('while a path of the channel does not work, another workflow goes live at once, or when its lease ends [F1281]', async () => {
	const { service, home, good, device } = await given();
	const offline = watchOffline(service);
	const bad = { ...good, service: { channelPath: '/no/such/channel' } };
	// No time passes: the try is still under way.
	await home.writeSettings({ ...bad, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilLive('boarding');
	await device.client.request('agent', 'POST', '/v1/leases', { name: 'check', seconds: 600 });
	await home.writeSettings({ ...bad, workflowId: 'check-in' });
	await device.daemon.reload();
	const waiting = await device.untilStatus(({ workflow }) => workflow.waitsUntil !== null);
	expect(waiting.workflow).toMatchObject({ live: 'boarding', wanted: 'check-in' });
	await device.client.request('agent', 'POST', '/v1/leases/release', { name: 'check' });
	await device.untilLive('check-in');
	expect([offline, told(device.agent.status())]).toEqual([[], []]);
});

test('beside an address that was refused, a workflow that no file names goes live at the service in force [F1311]', async () => {
	const { home, good, device } = await given();
	const { workflowId: _, ...open } = good;
	await home.writeSettings(open);
	await device.daemon.reload();
	await device.client.request('admin', 'PUT', '/v1/workflow', { workflowId: 'check-in' });
	await home.writeSettings({ ...open, baseUrl: 'https://127.0.0.1:1' });
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem !== null);
	device.clock.advance(20_000);
	await device.untilStatus(isRefused);
	await device.client.request('admin', 'PUT', '/v1/workflow', { workflowId: 'boarding' });
	await device.untilLive('boarding');
	expect(device.agent.status()).toMatchObject({
		state: 'online',
		baseUrl: good.baseUrl,
		workflow: { live: 'boarding' },
	});
	expect(isRefused(device.agent.status())).toBe(true);
});

test('the workflow that is live is in force for config show, also where no setting names one [F1650]', async () => {
	const { home, good, device } = await given();
	const { workflowId: _, ...open } = good;
	await home.writeSettings(open);
	await device.daemon.reload();
	await device.client.request('admin', 'PUT', '/v1/workflow', { workflowId: 'boarding' });
	await device.untilLive('boarding');
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	const row = settings.find(({ path }) => path === 'workflowId');
	expect(row).toMatchObject({ value: 'boarding', source: 'connection', where: null });
	expect(row).not.toHaveProperty('disk');
});

test('a device whose Connection is revoked while another address is tried with another key comes back by the key from before [F1572]', async () => {
	const made = await given();
	const { service, home, good, device } = made;
	const apiKeyFile = await home.secretFile('other-key', OTHER_KEY);
	await home.writeSettings({ ...good, baseUrl: 'https://127.0.0.1:1', credential: { apiKeyFile } });
	await device.daemon.reload();
	await device.untilStatus(({ problem, warnings }) => problem !== null || warnings.length > 0);
	await revokedAndBack(made);
	expect(device.agent.status()).toMatchObject({ baseUrl: good.baseUrl });
	expect(service.requests.filter(({ method }) => method === 'POST').length).toBeGreaterThanOrEqual(2);
});

test('a device whose Connection is revoked while a client certificate is refused registers again by the one from before [F1579]', async () => {
	const network = { clientCertificateFile: fixture('client.pem'), clientKeyFile: fixture('client.key') };
	const made = await given({ tls: { requestCert: true, rejectUnauthorized: true }, network });
	const { home, caFile, good, device } = made;
	await home.writeSettings({ ...good, network: { caFile } });
	await device.daemon.reload();
	await device.untilStatus(({ problem, warnings }) => problem !== null || warnings.length > 0);
	device.clock.advance(20_000);
	await device.untilStatus(isRefused);
	await revokedAndBack(made);
	expect(device.agent.status()).toMatchObject({ baseUrl: good.baseUrl });
});

test.each([1, 2, 3])(
	'a device whose Connections are all revoked while a wrong channel path is tried is back soon, after %i waits of the try [F1588]',
	async (tries) => {
		const made = await given();
		const { home, good, device } = made;
		await home.writeSettings({ ...good, service: { channelPath: '/nope' } });
		await device.daemon.reload();
		await device.untilStatus(({ warnings }) => warnings.length > 0);
		for (let waits = 0; waits < tries; waits += 1) await device.passWait();
		const fromMs = device.clock.wallMs();
		await revokedAndBack(made);
		expect(device.clock.wallMs() - fromMs).toBeLessThan(45_000);
	},
);
