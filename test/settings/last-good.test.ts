import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { LOCAL_ROUTES, type SettingsReport, type Status } from '../../src/protocol/local-api.ts';
import { finish } from '../cli/command.ts';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent, registrations } from '../harness/harness.ts';
import type { SteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

async function given() {
	const service = await givenService({ workflows: ['check-in', 'boarding'] });
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const good = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	const device = await givenAgent({ home, settings: good });
	await device.untilLive('check-in');
	return { service, home, good, device, conf: join(home.paths.confDirectory, '50-push.json') };
}

async function row(device: RunningAgent, path: string) {
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	return settings.find((one) => one.path === path);
}

const wanted = (device: RunningAgent) => device.agent.ways.wanted().resolved.settings;
const DEAD = 'http://127.0.0.1:1';

const LOST: readonly [how: string, lose: (given: Awaited<ReturnType<typeof pushed>>) => Promise<unknown>][] = [
	['is deleted with its file', ({ home }) => rm(home.paths.configFile)],
	[
		'is taken out of its file',
		({ home, good }) => home.writeSettings({ workflowId: good.workflowId, credential: good.credential }),
	],
	['becomes a bad value', ({ home, good }) => home.writeSettings({ ...good, baseUrl: 7 })],
	['makes place for half a file', ({ home }) => home.writeSettings('{ "baseUrl": ')],
];

async function pushed(bad: object) {
	const all = await given();
	await all.home.writeSettings({ ...all.good, ...bad });
	await all.device.daemon.reload();
	return all;
}

test.each(LOST.flatMap(([how, lose]) => [false, true].map((restarts) => ({ how, lose, restarts }))))(
	'an address that led nowhere and $how is not tried any more: the one that worked is in force (restart: $restarts) [F800]',
	async ({ lose, restarts }) => {
		const all = await pushed({ baseUrl: DEAD });
		let { device } = all;
		const { good, home, service } = all;
		expect(await row(device, 'baseUrl')).toMatchObject({ value: good.baseUrl, disk: DEAD, waitsFor: 'try' });
		if (restarts) await device.stop();
		await lose(all);
		if (restarts) device = await givenAgent({ home });
		// As the watch does it: no person asks for it.
		else await writeFile(all.conf, '{ "deviceType": "scanner" }');
		await device.untilStatus(({ state, deviceType }) => state === 'online' && (restarts || deviceType === 'scanner'));
		expect(wanted(device).baseUrl).toBe(good.baseUrl);
		const status = device.agent.status();
		expect(status).toMatchObject({ state: 'online', baseUrl: good.baseUrl, problem: null });
		const shown = await row(device, 'baseUrl');
		expect(shown).toMatchObject({ value: status.baseUrl });
		expect(shown).not.toHaveProperty('waitsFor');
		expect(registrations(service).every((one) => one === 201)).toBe(true);
	},
);

test.each<[path: string, bad: object, was: (settings: ReturnType<typeof wanted>) => unknown]>([
	['workflowId', { workflowId: 'no-such-workflow' }, ({ workflowId }) => workflowId],
	['service.channelPath', { service: { channelPath: '/no/such' } }, ({ service }) => service.channelPath],
])(
	'%s of a file of conf.d that never brought the device online does not stay when that file vanishes [F801]',
	async (_, bad, was) => {
		const { device, conf, good } = await given();
		const before = was(wanted(device));
		await writeFile(conf, JSON.stringify({ ...bad, deviceType: 'scanner' }));
		await device.untilStatus(({ workflow, warnings, problem }) =>
			[workflow.wanted !== good.workflowId && problem, warnings.length > 0].some(Boolean),
		);
		expect(was(wanted(device))).not.toBe(before);
		await rm(conf);
		await device.untilStatus(({ warnings }) =>
			warnings.some(({ message }) => message.includes('is not there any more')),
		);
		expect(was(wanted(device))).toBe(before);
		// What was accepted without a try stays for its minute.
		expect(wanted(device).deviceType).toBe('scanner');
		expect(device.agent.status()).toMatchObject({ state: 'online', workflow: { live: 'check-in' } });
	},
);

test('a workflow that the service refuses is shown as refused, with why, beside the one in force; so is the log [F802]', async () => {
	const { device, home, good } = await given();
	const taken = () => device.log.filter(({ msg }) => msg.startsWith('setting taken: workflowId')).length;
	await home.writeSettings({ ...good, workflowId: 'no-such-workflow' });
	await device.daemon.reload();
	const { problem } = await device.untilStatus((status) => status.problem !== null);
	const refused = { value: 'check-in', disk: 'no-such-workflow', refused: problem?.message };
	expect(await row(device, 'workflowId')).toMatchObject(refused);
	expect(taken()).toBe(0);
	await home.writeSettings({ ...good, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilLive('boarding');
	const shown = await row(device, 'workflowId');
	expect(shown).toMatchObject({ value: 'boarding', where: home.paths.configFile });
	for (const name of ['disk', 'waitsFor', 'refused']) expect(shown).not.toHaveProperty(name);
	expect(taken()).toBe(1);
});

test.each<[what: string, bad: object, code: string]>([
	['workflow', { workflowId: 'no-such-workflow' }, 'workflow-unknown'],
	['way out', { service: { channelPath: '/no/such' } }, 'settings-not-followed'],
])(
	'a refused %s tells the fleet since when, in status and metric, and its code in heartbeats [F810]',
	async (_, bad, code) => {
		const { device, home, good, service } = await given();
		const fields = { heartbeatFields: ['problemCode'] };
		await home.writeSettings({
			...good,
			...bad,
			fleet: { changeLimitSeconds: 20 },
			local: { metricsPort: 0 },
			service: { ...('service' in bad && (bad.service as object)), ...fields },
		});
		await device.daemon.reload();
		const told = ({ problem, warnings }: Status) => [problem, ...warnings].find((one) => one?.code === code);
		await device.untilStatus((status) => told(status) !== undefined);
		device.clock.advance(20_000);
		const status = await device.untilStatus((now) => told(now)?.params?.['since'] !== undefined);
		const since = told(status)?.params?.['since'];
		const metrics = await (await fetch(new URL('/metrics', device.daemon.addresses.metrics ?? ''))).text();
		const metric = /^idv_agent_settings_refused_time_seconds\S* (\S+)$/m.exec(metrics)?.[1];
		expect(Number(metric) * 1000).toBe(Date.parse(String(since)));
		const beat = service.waitFor('heartbeat');
		device.clock.advance(30_000);
		expect(await beat).toMatchObject({ heartbeat: { problemCode: code } });
		expect(told(device.agent.status())?.params?.['since']).toBe(since);
	},
);

test('a file that a setting names and that is wrong is in the figures: since when, and by its code [F1235]', async () => {
	const { device, home, good } = await given();
	const headersFile = await home.secretFile('headers', 'no header at all');
	await home.writeSettings({ ...good, local: { metricsPort: 0 }, service: { headersFile } });
	await device.daemon.reload();
	const [told] = device.agent.status().warnings;
	const figures = await (await fetch(new URL('/metrics', device.daemon.addresses.metrics ?? ''))).text();
	const since = /^idv_agent_settings_refused_time_seconds\S* (\S+)$/m.exec(figures)?.[1];
	expect(Number(since) * 1000).toBe(Date.parse(String(told?.params?.['since'])));
	expect(figures).toMatch(new RegExp(`^idv_agent_warning\\{.*code="${told?.code}".*\\} 1$`, 'm'));
});

test('since when a workflow, a value and a file are refused outlives a restart, and begins again once they were good [F903]', async () => {
	const { home, good, device: before } = await given();
	await before.stop();
	const headersFile = join(home.directory, 'headers');
	const bad = { ...good, workflowId: 'no-such-workflow', deviceType: 7, service: { headersFile } };
	const dated = ({ problem, warnings }: Status) =>
		[problem, ...warnings].map((one) => [one?.code, one?.params?.['since']]).sort();
	const start = async (clock?: SteppedClock) => {
		const device = await givenAgent({ home, ...(clock && { clock }) });
		const status = await device.untilStatus((now) => now.problem !== null && now.warnings.length > 1);
		expect(dated(status).every(([, since]) => typeof since === 'string')).toBe(true);
		return { device, told: dated(status) };
	};
	await home.writeSettings(bad);
	const first = await start();
	await first.device.stop();
	first.device.clock.advance(5000);
	const second = await start(first.device.clock);
	expect(second.told).toEqual(first.told);
	await home.writeSettings(good);
	await second.device.daemon.reload();
	await second.device.untilStatus((now) => now.problem === null && now.warnings.length === 0);
	await home.untilSaved(({ dates }) => Object.keys(dates).length === 0);
	await second.device.stop();
	await home.writeSettings(bad);
	const third = await start(second.device.clock);
	for (const [at, [code, since]] of third.told.entries()) expect([code, since]).not.toEqual(first.told[at]);
	// Also within a minute of a start with them.
	third.device.clock.advance(5000);
	await home.writeSettings(good);
	await third.device.daemon.reload();
	await third.device.untilStatus((now) => now.problem === null && now.warnings.length === 0);
	await home.writeSettings(bad);
	await third.device.daemon.reload();
	const again = await third.device.untilStatus((now) => now.problem !== null && now.warnings.length > 1);
	for (const [at, [code, since]] of dated(again).entries()) expect([code, since]).not.toEqual(third.told[at]);
});

test('a credential that never brought the device online does not stay when its file is cut off [F811]', async () => {
	const { device, home, good, service } = await given();
	const apiKeyFile = await home.secretFile('other', 'a-key-that-is-wrong-0123456789');
	await home.writeSettings({ ...good, credential: { apiKeyFile } });
	await device.daemon.reload();
	await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code === 'credential-refused'));
	expect(wanted(device).credential.apiKeyFile).toBe(apiKeyFile);
	await home.writeSettings('{ "baseUrl": ');
	await device.daemon.reload();
	expect(wanted(device).credential.apiKeyFile).toBe(good.credential.apiKeyFile);
	await device.stop();

	const again = await givenAgent({ home });
	expect(wanted(again).credential.apiKeyFile).toBe(good.credential.apiKeyFile);
	await again.untilState('online');
	expect(again.agent.status().warnings.map(({ code }) => code)).toEqual(['settings-invalid']);
	expect(registrations(service).filter((one) => one === 401)).toHaveLength(1);
});

test('a workflow that an application holds back is shown as waiting for its lease, and not as taken [F812]', async () => {
	const { device, home, good } = await given();
	device.agent.leases.hold('kiosk', 60);
	await home.writeSettings({ ...good, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilStatus(({ workflow }) => workflow.waitsUntil !== null);
	expect(await row(device, 'workflowId')).toMatchObject({ value: 'check-in', disk: 'boarding', waitsFor: 'lease' });
	device.clock.advance(60_000);
	await device.untilLive('boarding');
	expect(await row(device, 'workflowId')).not.toHaveProperty('waitsFor');
});

test('a change whose lease has ended while another way out is tried is not said to wait for an application [F1232]', async () => {
	const { device, home, good } = await given();
	device.agent.leases.hold('kiosk', 60);
	await home.writeSettings({ ...good, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilStatus(({ workflow }) => workflow.waitsUntil !== null);
	await home.writeSettings({ ...good, workflowId: 'boarding', service: { channelPath: '/no/such' } });
	await device.daemon.reload();
	expect(await row(device, 'workflowId')).toMatchObject({ waitsFor: 'lease' });
	device.agent.leases.release('kiosk');
	await device.untilStatus(({ workflow }) => workflow.waitsUntil === null);
	expect(await row(device, 'service.channelPath')).toMatchObject({ waitsFor: 'try' });
	expect(await row(device, 'workflowId')).toMatchObject({ value: 'check-in', disk: 'boarding', waitsFor: 'try' });
	expect(device.agent.status().sentence).not.toContain('application');
});

test('a value that stands in for a refused restriction is never shown as what is on the disk [F804]', async () => {
	const { device, home, conf } = await given();
	await rm(home.paths.configFile);
	await writeFile(conf, '{ "baseUrl": 7, "forward": { "alow": ["/x"] } }');
	await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes('baseUrl must')));
	for (const path of ['pairing.trustedOrigins', 'forward.allow'])
		expect(JSON.stringify((await row(device, path))?.disk ?? null)).not.toMatch(/nothing\.invalid|\/\."/);
});

test.each<[what: string, lose: (home: Awaited<ReturnType<typeof given>>['home']) => Promise<unknown>]>([
	['is half written', (home) => home.writeSettings('{ "baseUrl": ')],
	['is absent', (home) => rm(home.paths.configFile)],
])('config show says of no setting that another value is on the disk while their file %s [F906]', async (_, lose) => {
	const { device, home, good, conf } = await given();
	await home.writeSettings({ ...good, heartbeatCadence: 45 });
	await device.daemon.reload();
	await lose(home);
	await writeFile(conf, '{ "deviceType": "scanner" }');
	await device.untilStatus(({ deviceType }) => deviceType === 'scanner');
	for (const path of ['baseUrl', 'heartbeatCadence', 'credential.apiKeyFile'])
		expect(await row(device, path)).not.toHaveProperty('disk');
	expect(await row(device, 'heartbeatCadence')).toMatchObject({ value: 45 });
});

test('config show tells a file of conf.d that is gone, and what is on the disk in its place [F1601]', async () => {
	const { device, home, conf } = await given();
	const other = join(home.paths.confDirectory, '10-other.json');
	await writeFile(other, '{ "heartbeatCadence": 41 }');
	await writeFile(conf, '{ "heartbeatCadence": 42, "deviceType": "scanner" }');
	await device.daemon.reload();
	await rm(conf);
	await writeFile(other, '{ "heartbeatCadence": 44 }');
	await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes('not there any more')));
	expect(await row(device, 'heartbeatCadence')).toMatchObject({ value: 42, where: conf, disk: 44 });
	expect(await row(device, 'deviceType')).not.toHaveProperty('disk');
	const { notices } = (await device.client.request('admin', 'GET', LOCAL_ROUTES.settings)) as SettingsReport;
	expect(notices.map(({ message }) => message)).toEqual([
		`${conf} is not there any more; its settings stay in force for now.`,
	]);
});

test('the log names the file of conf.d and the setting that are at fault as they are, and no value [F805]', async () => {
	const { device, home } = await given();
	const file = join(home.paths.confDirectory, '50-zork-4711.json');
	for (const [text, words] of [['{ "forward": { "allow": "zork-value" } }', 'forward.allow must be']] as const) {
		await writeFile(file, text);
		await device.daemon.reload();
		const told = device.log.filter(({ level, msg }) => level === 'warn' && msg.includes(words));
		expect(told.at(-1)?.msg).toContain(file);
	}
	expect(device.logText()).not.toContain('zork-value');
});

test('what is in force while another address or workflow is tried is not logged as taken from where that one is set [F981]', async () => {
	const service = await givenService({ workflows: ['check-in', 'boarding'] });
	const settings = { fleet: { changeLimitSeconds: 20 } };
	const home = await givenHome();
	const device = await givenPairedAgent(service, { home, settings });
	const taken = () => device.log.map(({ msg }) => msg).filter((msg) => msg.startsWith('setting taken'));
	const tried = { ...settings, baseUrl: DEAD, workflowId: 'boarding' };
	await home.writeSettings(tried);
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem !== null);
	await home.writeSettings({ ...tried, heartbeatCadence: 'often' });
	await device.daemon.reload();
	await device.untilStatus(({ warnings }) => warnings.length > 0);
	device.clock.advance(20_000);
	await home.untilSaved(({ refusedWay }) => refusedWay !== null);
	// While it is offline no workflow is live.
	const lost = device.untilState('offline');
	service.dropSockets();
	await lost;
	expect(taken()).toEqual([]);
	expect(await row(device, 'baseUrl')).toMatchObject({ value: service.url, source: 'connection', where: null });
	await home.writeSettings({ ...tried, baseUrl: service.url });
	await device.daemon.reload();
	await device.passWait();
	await device.untilLive('boarding');
	const { configFile } = home.paths;
	expect(taken()).toEqual([
		`setting taken: baseUrl = "${service.url}" (${configFile})`,
		`setting taken: workflowId = "boarding" (${configFile})`,
	]);
	expect(await row(device, 'baseUrl')).toMatchObject({ value: service.url, source: 'file', where: configFile });
});

test.each<[what: string, text: string, files: number]>([
	['3,000 groups deep', `{ "service": { "ackBody": ${'{"a":'.repeat(3000)}1${'}'.repeat(3000)} } }`, 1],
	['20,000 lists deep under an unknown name', `{ "x": ${'['.repeat(20_000)}${']'.repeat(20_000)} }`, 1],
	['wide within 30 lists', `{ "x": ${'['.repeat(28)}${'1,'.repeat(50_000)}1${']'.repeat(28)} }`, 1],
	['long in six files', `{ "x": "${'y'.repeat(240_000)}" }`, 6],
])('settings that are %s leave a paired device as it is, over a restart [F962]', async (_, text, files) => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const { home } = device;
	await device.untilState('online');
	const at = (index: number) => join(home.paths.confDirectory, `${index}-push.json`);
	for (let index = 0; index < files; index += 1) await writeFile(at(index), text);
	await device.daemon.reload();
	await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code.startsWith('settings-')));
	expect(device.agent.status().warnings.map(({ code }) => code)).not.toContain('state-unwritable');
	await device.stop();
	const before = registrations(service).length;
	const again = await givenAgent({ home });
	await again.untilState('online');
	expect(again.agent.status().warnings.map(({ code }) => code)).not.toContain('state-corrupt');
	expect(registrations(service)).toHaveLength(before);
});

test.each<[how: string, isBefore: boolean]>([
	['that the service does not know', false],
	['that it does not know, set before', true],
])(
	'a cadence is in force although it came with a workflow %s, and the workflow alone is told [F1438]',
	async (_, isBefore) => {
		const { device, home, good, service } = await given();
		const bad = { ...good, workflowId: 'no-such-workflow' };
		if (isBefore) {
			await home.writeSettings(bad);
			await device.daemon.reload();
			await device.untilStatus(({ problem }) => problem?.code === 'workflow-unknown');
		}
		await home.writeSettings({ ...bad, heartbeatCadence: 31 });
		await device.daemon.reload();
		await device.untilStatus(({ channel }) => channel.heartbeatCadence === 31);
		await device.untilStatus(({ problem }) => problem?.code === 'workflow-unknown');
		expect(device.agent.status()).toMatchObject({ state: 'online', workflow: { live: 'check-in' } });
		expect(await row(device, 'heartbeatCadence')).toMatchObject({ value: 31, source: 'file' });
		expect(await row(device, 'workflowId')).toMatchObject({ value: 'check-in', disk: 'no-such-workflow' });
		expect(registrations(service).filter((one) => one === 201)).toHaveLength(2);
	},
);

test('config show of a device whose agent is stopped says what the next start uses, after a push with a bad value and a way that is only tried [F1589]', async () => {
	const { home, good, device, conf } = await given();
	await home.writeSettings({ ...good, heartbeatCadence: 44 });
	await writeFile(conf, '{ "page": { "support": "Ring 7" } }');
	await device.daemon.reload();
	await device.untilStatus(({ channel }) => channel.heartbeatCadence === 44);
	await device.stop();
	await rm(conf);
	await home.writeSettings({ ...good, baseUrl: DEAD, heartbeatCadence: 'often', service: { channelPath: '/no/such' } });
	const shown = async (path: string) => {
		const { configFile, stateDir, runDir } = home.paths;
		const flags = ['--config', configFile, '--state-dir', stateDir, '--run-dir', runDir];
		const { stdout } = await finish('idv-agent', ['config', 'show', '--json', ...flags], {});
		return JSON.parse(stdout).settings.find((one: { path: string }) => one.path === path);
	};
	const before = [await shown('heartbeatCadence'), await shown('service.channelPath'), await shown('baseUrl')];
	before.push(await shown('page.support'));
	expect(before).toMatchObject([
		{ value: 44 },
		{ value: '/ws/device', disk: '/no/such', waitsFor: 'try' },
		{ value: good.baseUrl, source: 'connection', disk: DEAD, waitsFor: 'try' },
		{ value: 'Ring 7', where: conf },
	]);
	const again = await givenAgent({ home });
	await again.untilState('online');
	for (const { path, value } of before) expect((await row(again, path))?.value).toBe(value);
});
