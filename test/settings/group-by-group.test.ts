import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { AuditReport, SettingsReport, Status } from '../../src/protocol/local-api.ts';
import { fixture } from '../connection/network-peers.ts';
import { examine } from '../diagnosis/examine.ts';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent, watchOffline } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const WRONG_KEY = 'a-key-that-is-wrong-0123456789';
const hasCode = (code: string) => (status: Status) => status.warnings.some((one) => one.code === code);

async function given(settings: object = {}) {
	const service = await givenService();
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	await mkdir(home.paths.confDirectory, { recursive: true });
	const inConf = (name: string) => join(home.paths.confDirectory, name);
	const good = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile }, ...settings };
	const device = await givenAgent({ home, settings: good });
	await device.untilLive('check-in');
	return { service, home, inConf, good, device, offline: watchOffline(service) };
}

async function report(device: RunningAgent) {
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	return (path: string) => settings.find((one) => one.path === path);
}

test('two bad changes, a name of another version and a file that is missing keep no good key away [F626]', async () => {
	const { service, home, inConf, good, device, offline } = await given();
	await home.secretFile('key', WRONG_KEY);
	await device.daemon.reload();
	await device.untilStatus(hasCode('credential-refused'));
	await writeFile(inConf('10-half.json'), '{ "deviceType": ');
	await home.secretFile('key', service.credentials.apiKey);
	const caFile = join(home.directory, 'nowhere.pem');
	await home.writeSettings({ ...good, heartbeatCadence: 'often', brandNew: true, network: { caFile } });
	await device.daemon.reload();
	const status = await device.untilStatus((now) => now.state === 'online' && !hasCode('credential-refused')(now));
	const told = status.warnings.map(({ message }) => message);
	for (const words of [/10-half\.json/, /heartbeatCadence must be/, /brandNew is not a setting/, /nowhere\.pem/])
		expect(told).toContainEqual(expect.stringMatching(words));
	expect(offline).toEqual([]);
	await rm(inConf('10-half.json'));
	await home.writeSettings(good);
	await device.daemon.reload();
	expect(device.agent.status()).toMatchObject({ state: 'online', warnings: [] });
});

test('the log names a file, a host and an id of a push that is refused as they were typed, and no other text of it', async () => {
	const { home, good, device } = await given();
	const caFile = join(home.directory, 'zork-4711.pem');
	const wrong = { brandnewzork: 'zork-word-4711', heartbeatCadence: 'zork-often' };
	await home.writeSettings({ ...good, ...wrong, deviceId: 'ZORK-4711', network: { caFile } });
	await device.daemon.reload();
	const told = device.log.filter(({ level }) => level === 'warn').map(({ msg }) => msg);
	expect(told).toContainEqual(expect.stringContaining(`network.caFile ${caFile} cannot be read`));
	await device.untilStatus(({ deviceId }) => deviceId === 'ZORK-4711');
	expect(device.log.map(({ msg }) => msg)).toContainEqual(expect.stringContaining('deviceId = "ZORK-4711"'));
	expect(device.logText()).not.toMatch(/zork-word|zork-often/);
	await device.stop();
	const again = await givenAgent({ home });
	expect(again.log.map(({ msg }) => msg)).toContainEqual(expect.stringContaining(`network.caFile ${caFile} `));
});

test('a file that vanishes keeps what it has set, and is told; after a minute it counts no longer [F627]', async () => {
	const { inConf, device } = await given();
	const isGone = ({ warnings }: Status) => warnings.some(({ message }) => message.includes('is not there any more'));
	await writeFile(inConf('20-type.json'), '{ "deviceType": "scanner" }');
	await device.untilStatus(({ deviceType }) => deviceType === 'scanner');
	await rm(inConf('20-type.json'));
	expect(await device.untilStatus(isGone)).toMatchObject({ deviceType: 'scanner', state: 'online' });
	await writeFile(inConf('20-type.json'), '{ "deviceType": "scanner" }');
	expect(await device.untilStatus((status) => !isGone(status))).toMatchObject({ deviceType: 'scanner' });
	await rm(inConf('20-type.json'));
	await device.untilStatus(isGone);
	device.clock.advance(60_000);
	await device.untilStatus(({ deviceType }) => deviceType === 'kiosk');
	expect(device.agent.status().warnings).toEqual([]);
});

test('a file of conf.d that vanishes just before a restart keeps what it has set for a minute, and is told [F760]', async () => {
	const { home, inConf, good, device } = await given();
	const { workflowId: _, ...rest } = good;
	await home.writeSettings(rest);
	await writeFile(inConf('10-wf.json'), '{ "workflowId": "check-in", "deviceType": "scanner" }');
	await device.untilStatus(({ deviceType }) => deviceType === 'scanner');
	await rm(inConf('10-wf.json'));
	await device.stop();
	const again = await givenAgent({ home });
	const told = expect.stringContaining('10-wf.json is not there any more; its settings stay in force for now');
	expect(await again.untilLive('check-in')).toMatchObject({ deviceType: 'scanner', warnings: [{ message: told }] });
	again.clock.advance(60_000);
	expect(await again.untilStatus(({ deviceType }) => deviceType === 'kiosk')).toMatchObject({
		state: 'online',
		warnings: [{ message: expect.stringContaining('name no workflow any more') }],
	});
});

test('the agent tells of each setting what is in force since when, what is refused and what waits; a change is a line of the log [F628]', async () => {
	const { home, good, device } = await given();
	const startedAt = (await report(device))('deviceType')?.since;
	device.clock.advance(5000);
	const { configFile } = home.paths;
	const changed = { ...good, deviceType: 'scanner', events: { durable: false } };
	await home.writeSettings({ ...changed, heartbeatCadence: 'often', service: { channelPath: '/no/such/channel' } });
	await device.daemon.reload();
	await device.untilStatus(hasCode('settings-not-followed'));
	const of = await report(device);
	expect(of('deviceType')).toMatchObject({ value: 'scanner', source: 'file', where: configFile });
	expect(of('deviceType')?.since).not.toBe(startedAt);
	expect(of('baseUrl')).toMatchObject({ value: good.baseUrl, since: startedAt });
	expect(of('heartbeatCadence')).toMatchObject({ value: 30, refused: expect.stringContaining('must be') });
	expect(of('heartbeatCadence')).not.toHaveProperty('disk');
	expect(of('service.channelPath')).toMatchObject({ value: '/ws/device', disk: '/no/such/channel', waitsFor: 'try' });
	expect(of('events.durable')).toMatchObject({ value: true, disk: false, waitsFor: 'restart' });
	device.clock.advance(300_000);
	await device.untilStatus(({ warnings }) => warnings.some(({ params }) => params?.['since'] !== undefined));
	const after = (await report(device))('service.channelPath');
	expect(after).toMatchObject({ value: '/ws/device', refused: expect.stringContaining('was not online with') });
	expect(after).not.toHaveProperty('waitsFor');
	const taken = device.log.filter(({ msg }) => msg.startsWith('setting taken'));
	expect(taken.map(({ msg }) => msg)).toEqual([
		`setting taken: events.durable = false (${configFile})`,
		`setting taken: deviceType = "scanner" (${configFile})`,
	]);
});

test('settings that are tried while the service itself fails are not called wrong [F1389]', async () => {
	const { service, home, good, device } = await given();
	service.failNext({}, { status: 502 }, 50);
	await home.writeSettings({ ...good, service: { channelAuth: 'query' } });
	await device.daemon.reload();
	const { warnings } = await device.untilStatus(hasCode('settings-not-followed'));
	const remedy = warnings.find(({ code }) => code === 'settings-not-followed')?.remedy;
	expect(remedy).toMatch(/operator.* The changed settings are tried until then\.$/);
	expect(remedy).not.toContain('Correct');
});

test('an address of a dead service is tried beside the one in force, and taken only when the device is with it [F658]', async () => {
	const { home, good, device } = await given();
	const dead = 'http://127.0.0.1:1';
	const taken = () => device.log.map(({ msg }) => msg).filter((msg) => msg.startsWith('setting taken: baseUrl'));
	await home.writeSettings({ ...good, baseUrl: dead });
	await device.daemon.reload();
	expect((await report(device))('baseUrl')).toMatchObject({ value: good.baseUrl, disk: dead, waitsFor: 'try' });
	expect(taken()).toEqual([]);
	const other = await givenService();
	await home.secretFile('key', other.credentials.apiKey);
	await home.writeSettings({ ...good, baseUrl: other.url });
	await device.daemon.reload();
	await device.untilStatus(({ state, baseUrl }) => state === 'online' && baseUrl === other.url);
	const row = (await report(device))('baseUrl');
	expect(row).toMatchObject({ value: other.url, source: 'file' });
	expect(row).not.toHaveProperty('waitsFor');
	expect(taken()).toHaveLength(1);
});

test('another id that the service does not let the device have is neither shown nor logged as taken [F1150]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const { deviceId: before } = device.agent.status();
	await device.home.writeSettings({ deviceId: 'kiosk-7', heartbeatCadence: 7 });
	await device.daemon.reload();
	const told = await device.untilStatus(({ problem }) => problem !== null);
	expect(told).toMatchObject({ state: 'online', deviceId: before, channel: { heartbeatCadence: 30 } });
	const of = await report(device);
	expect(of('deviceId')).toMatchObject({ value: before, disk: 'kiosk-7', refused: told.problem?.message });
	expect(of('heartbeatCadence')).toMatchObject({ value: 30, disk: 7, refused: told.problem?.message });
	const taken = () => device.log.map(({ msg }) => msg).filter((msg) => msg.startsWith('setting taken'));
	expect(taken()).toEqual([]);
	await device.pair(service.createPairingCode('check-in').url, { replace: true });
	await device.untilStatus(({ problem, deviceId }) => problem === null && deviceId === 'kiosk-7');
	expect((await report(device))('deviceId')).toMatchObject({ value: 'kiosk-7', source: 'file' });
	expect(taken().map((msg) => msg.split(' (')[0])).toEqual([
		'setting taken: deviceId = "kiosk-7"',
		'setting taken: heartbeatCadence = 7',
	]);
});

test('a key in another file is taken when the service has taken it, also where its address is another one [F1150]', async () => {
	const { service, home, good, device } = await given();
	const { apiKeyFile } = good.credential;
	const other = await home.secretFile('other', WRONG_KEY);
	await home.writeSettings({ ...good, baseUrl: 'http://127.0.0.1:1', credential: { apiKeyFile: other } });
	await device.daemon.reload();
	await device.untilStatus(({ problem, warnings }) => problem !== null || warnings.length > 0);
	const taken = () => device.log.map(({ msg }) => msg).filter((msg) => msg.startsWith('setting taken: credential'));
	expect((await report(device))('credential.apiKeyFile')).toMatchObject({ value: apiKeyFile, disk: other });
	expect(taken()).toEqual([]);
	const right = await home.secretFile('right', service.credentials.apiKey);
	await home.writeSettings({ ...good, credential: { apiKeyFile: right } });
	await device.daemon.reload();
	await device.untilStatus(() => taken().length > 0);
	expect((await report(device))('credential.apiKeyFile')).toMatchObject({ value: right });
});

test.each(['credential.apiKeyFile', 'page.pinFile'])(
	'%s that cannot be used is not shown as taken until it can be [F656]',
	async (path) => {
		const [group = '', key = ''] = path.split('.');
		const { service, home, good, device } = await given();
		const settings: Record<string, unknown> = { ...good, page: { pinFile: await home.secretFile('pin', '471100') } };
		await home.writeSettings(settings);
		await device.daemon.reload();
		const value = (await report(device))(path)?.value;
		const taken = () => device.log.map(({ msg }) => msg).filter((msg) => msg.startsWith(`setting taken: ${path}`));
		const before = taken().length;
		const [file, directory] = [join(home.directory, 'new'), home.paths.confDirectory];
		for (const unusable of [directory, file]) {
			await home.writeSettings({ ...settings, [group]: { ...(settings[group] as object), [key]: unusable } });
			await device.daemon.reload();
			expect((await report(device))(path)).toMatchObject({
				value,
				disk: unusable,
				refused: expect.stringMatching(/ stay/),
			});
		}
		expect(taken()).toHaveLength(before);
		await writeFile(file, group === 'credential' ? service.credentials.apiKey : '471100', { mode: 0o600 });
		await device.daemon.reload();
		expect((await report(device))(path)).toMatchObject({ value: file });
		expect(taken()).toHaveLength(before + 1);
	},
);

test('of a restriction that was refused and not set before, status and log say what is in force in its place [F907]', async () => {
	const { home, good, device } = await given();
	await home.writeSettings({ ...good, service: { actOnMessages: 'yes' } });
	await device.daemon.reload();
	const told = device.agent.status().warnings.map(({ message }) => message);
	const fault = 'service.actOnMessages must be true or false. Until it is mended it is false.';
	expect(told).toEqual([expect.stringContaining(fault)]);
	expect(told.join(' ')).not.toContain('from before stay');
	const taken = device.log
		.map(({ msg }) => msg)
		.filter((msg) => msg.startsWith('setting taken: service.actOnMessages'));
	expect(taken).toEqual(['setting taken: service.actOnMessages = false (while what was set is refused)']);
});

test('the doctor names a file of conf.d that has vanished, and a hook whose program is not there [F905]', async () => {
	const { home, device } = await given();
	const conf = join(home.paths.confDirectory, '50-push.json');
	const hooks = { onOnline: ['/nowhere/on-online'] };
	await writeFile(conf, JSON.stringify({ deviceType: 'scanner', hooks }));
	await device.untilStatus(({ deviceType }) => deviceType === 'scanner');
	expect((await examine({ home }, 'hooks')).checks.hooks).toMatchObject({
		status: 'warning',
		message: expect.stringContaining('hooks.onOnline: /nowhere/on-online cannot be run'),
	});
	await rm(conf);
	await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes('is not there any more')));
	const { settings } = (await examine({ home }, 'settings')).checks;
	expect(settings).toMatchObject({
		status: 'warning',
		message: expect.stringContaining(`${conf} is not there any more`),
	});
});

test.each<[path: string, bad: unknown, fault: string]>([
	['service.actOnMessages', 'yes', 'must be true or false'],
	['forward.allow', ['nope'], '[0] must'],
])(
	'a file of conf.d whose %s is refused, and that vanishes: both are told, the refusal as it was since it began [F982]',
	async (path, bad, fault) => {
		const { home, inConf, device } = await given();
		const [group = '', key = ''] = path.split('.');
		const conf = inConf('50-push.json');
		const refused = ({ warnings }: Status) =>
			warnings.find(({ message }) => message.includes(conf) && message.includes(`${path} ${fault}`));
		await writeFile(conf, JSON.stringify({ [group]: { [key]: bad } }, null, 2));
		const before = refused(await device.untilStatus((status) => refused(status) !== undefined));
		const { value } = (await report(device))(path) ?? {};
		device.clock.advance(1000);
		await rm(conf);
		const gone = `${conf} is not there any more`;
		const status = await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes(gone)));
		expect(before?.params?.['since']).toBeDefined();
		expect(refused(status)).toMatchObject({ params: { since: before?.params?.['since'] } });
		const { settings } = (await examine({ home }, 'settings')).checks;
		for (const words of [gone, `${path} ${fault}`])
			expect(settings).toMatchObject({ status: 'warning', message: expect.stringContaining(words) });
		const row = (await report(device))(path);
		expect(row).toMatchObject({ value, refused: expect.stringContaining(`${path} ${fault}`) });
		expect(row).not.toHaveProperty('disk');
	},
);

test('the doctor names what is not followed and what cannot be read beside every other fault of the settings [F657]', async () => {
	const { home, good, device } = await given();
	const [headersFile, applicationsFile] = [join(home.directory, 'no-headers'), await home.secretFile('apps', 'kiosk')];
	await home.writeSettings({
		...good,
		...{ heartbeatCadence: 'often', service: { channelPath: '/no/such/channel' } },
		...{ telemetry: { otlpUrl: 'http://127.0.0.1:1', headersFile }, local: { http: { applicationsFile } } },
	});
	await device.daemon.reload();
	await device.untilStatus(hasCode('settings-not-followed'));
	const { settings } = (await examine({ home }, 'settings')).checks;
	for (const words of ['heartbeatCadence must', 'service.channelPath: the changed', headersFile, applicationsFile])
		expect(settings).toMatchObject({ status: 'warning', message: expect.stringContaining(words) });
});

test('settings in which the trust of a device changes are in the audit log, others are not', async () => {
	const { home, good, device } = await given();
	const pinFile = await home.secretFile('pin', '123456');
	await home.writeSettings({
		...{ ...good, heartbeatCadence: 61, service: { headers: ['X-Tenant: north'] } },
		...{ pairing: { trustedOrigins: ['https://a.example'] }, network: { systemCa: true } },
		...{ update: { judgeSeconds: 400 }, page: { pinFile } },
	});
	await device.daemon.reload();
	await device.untilStatus(() => true);
	const taken = async () => {
		const { entries } = (await device.client.request('admin', 'GET', '/v1/audit')) as AuditReport;
		return entries.filter(({ action }) => action === 'settingTaken').map(({ to }) => to);
	};
	const names = [
		'network.systemCa',
		'page.pinFile',
		'pairing.trustedOrigins',
		'service.headers',
		'update.judgeSeconds',
	];
	await expect.poll(async () => (await taken()).toSorted()).toEqual(names);
});

test.each([
	['network.caFile', (file: string) => ({ network: { caFile: file } })],
	['service.headersFile', (file: string) => ({ service: { headersFile: file } })],
	[
		'network.clientCertificateFile',
		(file: string) => ({ network: { clientCertificateFile: file, clientKeyFile: file } }),
	],
])('a pipe as %s holds nothing up, and is named [F633]', async (name, settings) => {
	const { home, good, device, offline } = await given();
	const pipe = join(home.directory, 'pipe');
	execFileSync('mkfifo', [pipe]);
	await home.writeSettings({ ...good, ...settings(pipe) });
	await device.daemon.reload();
	const status = await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes(name)));
	expect(status.state).toBe('online');
	const told = status.warnings.find(({ message }) => message.includes(name));
	expect([told?.message, told?.remedy]).toEqual([
		expect.stringContaining('it is not a regular file'),
		'Put a text file in its place, or name one.',
	]);
	expect(offline).toEqual([]);
});

test.each([
	['network.caFile', (file: string) => ({ network: { caFile: file } }), readFileSync(fixture('ca.pem'), 'utf8')],
	['service.headersFile', (file: string) => ({ service: { headersFile: file } }), 'X-Tenant: north\n'],
])('a newly named %s that is bad at a start is taken as soon as it is mended [F1020]', async (_, settings, mended) => {
	const { home, good, device } = await given();
	const file = await home.secretFile('named', 'rubbish');
	await home.writeSettings({ ...good, ...settings(file) });
	await device.stop();
	const again = await givenAgent({ home });
	await again.untilStatus(({ state, warnings }) => state === 'online' && warnings.length > 0);
	await writeFile(file, mended);
	await again.untilStatus(({ state, warnings }) => state === 'online' && warnings.length === 0);
});

test('every file of a push that cannot be used is told, with what is in force in its place and since when [F636]', async () => {
	const { home, good, device, offline } = await given();
	const files = Object.fromEntries(
		await Promise.all(
			['ca', 'certificate', 'headers', 'telemetry'].map(async (name) => [name, await home.secretFile(name, 'rubbish')]),
		),
	) as Record<string, string>;
	await home.secretFile('key', '');
	await home.writeSettings({
		...good,
		network: { caFile: files['ca'], clientCertificateFile: files['certificate'], clientKeyFile: files['certificate'] },
		service: { headersFile: files['headers'] },
	});
	await device.daemon.reload();
	await device.untilStatus(({ warnings }) => warnings.length >= 4);
	const told = device.agent.status().warnings.map(({ message }) => message);
	for (const words of [
		/caFile .*ca has no/,
		/clientKeyFile are not/,
		/headersFile .*line 1/,
		/^credential\.apiKeyFile: the credential file .*key is empty/,
	])
		expect(told).toContainEqual(expect.stringMatching(new RegExp(`${words.source}.*It has been so since 20\\d\\d-`)));
	const of = await report(device);
	for (const path of [
		'network.caFile',
		'network.clientCertificateFile',
		'network.clientKeyFile',
		'service.headersFile',
	])
		expect(of(path)).toMatchObject({
			value: null,
			disk: expect.any(String),
			refused: expect.stringContaining('so since'),
		});
	expect(of('credential.apiKeyFile')).toMatchObject({ refused: expect.stringContaining('is empty') });
	expect(of('network.proxy')).not.toHaveProperty('refused');
	expect([offline, device.agent.status().state]).toEqual([[], 'online']);
});

test('a key file that is gone says since when, in status and metric, and no longer when it is back [F637]', async () => {
	const { service, home, good, device } = await given({ local: { metricsPort: 0 } });
	const key = good.credential.apiKeyFile;
	await rm(key);
	await device.daemon.reload();
	const since = device.agent.status().warnings.find(({ code }) => code === 'credential-unreadable')?.params?.['since'];
	const metric = async () => {
		const text = await (await fetch(new URL('/metrics', device.daemon.addresses.metrics ?? ''))).text();
		return /^idv_agent_credential_unusable_time_seconds\S* (\S+)$/m.exec(text)?.[1];
	};
	expect(Number(await metric()) * 1000).toBe(Date.parse(String(since)));
	device.clock.advance(60_000);
	await home.writeSettings({ ...good, deviceType: 7 });
	await device.daemon.reload();
	const later = device.agent.status().warnings;
	expect(later.find(({ code }) => code === 'credential-unreadable')?.params?.['since']).toBe(since);
	expect(later.find(({ code }) => code === 'settings-invalid')?.params?.['since']).not.toBe(since);
	await home.secretFile('key', service.credentials.apiKey);
	await home.writeSettings(good);
	await device.daemon.reload();
	expect(device.agent.status().warnings).toEqual([]);
	expect(await metric()).toBeUndefined();
});
