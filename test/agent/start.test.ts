import { mkdir, readdir, readFile, rename, rmdir, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { exitStatusOf } from '../../src/base/errors.ts';
import { readHistory } from '../../src/status/history.runner.ts';
import { toldHistory } from '../../src/status/history.ts';
import { MACHINES } from '../fixtures/machines.ts';
import { DEVICE_ID, givenAgent, givenHome, givenPairedAgent, registrations } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const PC = MACHINES['PC with serial numbers of the maker'];
const RASPBERRY = MACHINES['Raspberry Pi'];

describe('a damaged state', () => {
	test.each<[string, (text: string) => string]>([
		['cut short', (text) => text.slice(0, 40)],
		['of another machine', (text) => text.replace(/"machine": ("[^"]*"|null)/, '"machine": "z"')],
		['of another device', (text) => text.replaceAll(DEVICE_ID, DEVICE_ID.replace(/.$/, 'Z'))],
		['with another Connection', (text) => text.replace(/"token": "../, '"token": "zz')],
		['of a newer version', (text) => text.replace('"schemaVersion": 1', '"schemaVersion": 9')],
		['unpaired', (text) => text.replace('"pairing":', '"paired":')],
	])(
		'%s is replaced by its copy from the first moment: the device is online with its Connection, and says so',
		async (_, damage) => {
			const service = await givenService();
			const device = await givenPairedAgent(service);
			await device.stop();
			const file = join(device.home.paths.stateDir, 'state.json');
			const { connections } = JSON.parse(await readFile(file, 'utf8'));
			await writeFile(file, damage(await readFile(file, 'utf8')));
			const again = await givenAgent({ home: device.home });
			const status = await again.untilLive('check-in');
			expect(status.warnings).toMatchObject([{ code: 'state-corrupt' }]);
			expect(registrations(service)).toEqual([201]);
			expect(JSON.parse(await readFile(file, 'utf8')).connections).toEqual(connections);
			const names = await readdir(device.home.paths.stateDir);
			expect(names.filter((name) => name.includes('corrupt'))).toHaveLength(1);
			await again.stop();
			expect((await (await givenAgent({ home: device.home })).untilLive('check-in')).warnings).toEqual([]);
		},
	);

	test('without a good copy starts unpaired, and can be paired again [F007]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await device.stop();
		for (const name of ['state.json', 'state.json.bak'])
			await writeFile(join(device.home.paths.stateDir, name), 'garbage');
		const again = await givenAgent({ home: device.home });
		expect(again.agent.status()).toMatchObject({
			state: 'unpaired',
			sentence: expect.stringContaining('there is no whole copy of it'),
			warnings: [{ code: 'state-corrupt' }],
		});
		await again.pair(service.createPairingCode('check-in').url);
		await again.untilLive('check-in');
		await again.stop();
		const told = toldHistory(readHistory(again.home.paths.stateDir).documents).map(({ sentence }) => sentence);
		expect(told).toContain('not paired: the state of this device was damaged');
	});

	test('that a newer agent has written is left alone; moved away as it says, the device is paired anew', async () => {
		const home = await givenHome();
		const { stateDir } = home.paths;
		await mkdir(stateDir, { mode: 0o700 });
		const text = '{"schemaVersion":99}';
		for (const name of ['state.json', 'state.json.bak']) await writeFile(join(stateDir, name), text);
		for (const name of ['state.json', 'state.json.bak']) {
			const error = await givenAgent({ home }).catch(({ failure }) => failure);
			expect(error).toMatchObject({ code: 'state-unreadable', remedy: expect.stringContaining('move the file away') });
			expect(error.message).toContain(`${join(stateDir, name)} was written`);
			expect(await home.filesWith(text)).toContain(name);
			await rename(join(stateDir, name), join(home.directory, name));
		}
		const service = await givenService();
		const device = await givenAgent({ home });
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
	});
});

test('what was removed while the agent ran is saved again when it stops: the device stays paired [F1563]', async () => {
	const device = await givenPairedAgent(await givenService());
	for (const name of await readdir(device.home.paths.stateDir))
		if (name.startsWith('state')) await unlink(join(device.home.paths.stateDir, name));
	await device.stop();
	const again = await givenAgent({ home: device.home });
	expect(await again.untilLive('check-in')).toMatchObject({ state: 'online', warnings: [] });
});

test('an agent that stops never tells its applications that the device is not paired [F556]', async () => {
	const device = await givenPairedAgent(await givenService());
	const told: unknown[] = [];
	device.agent.onStatus(() => told.push(device.agent.status().state));
	await device.stop();
	expect(told.at(-1)).toBe('offline');
	expect(told).not.toContain('unpaired');
	expect(device.logText()).not.toContain('offline: connecting again');
});

test('what an agent that was stopped has received last begins the gap of its next start, to the second [F1885]', async () => {
	const { home, clock, ...device } = await givenPairedAgent(await givenService());
	const received = (await device.events()).at(-1)?.at;
	await device.stop();
	clock.advance(60_000);
	const again = await givenAgent({ home, clock });
	await again.untilState('online');
	expect(JSON.parse((await again.events()).at(-1)?.content ?? '')).toMatchObject({ from: received });
});

test('an agent that stops waits two seconds for the answer to a registration, and no longer [F1886]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const release = service.hold('/api/device/connection');
	await device.agent.setWorkflow('boarding');
	await release.received;
	const stopped = device.stop();
	await device.untilTimers(1);
	device.clock.advance(1999);
	expect(device.clock.pending).toBe(1);
	device.clock.advance(1);
	expect(device.clock.pending).toBe(0);
	await stopped;
	release();
});

describe('a second agent', () => {
	test('on the same state is refused, and the first goes on [F011]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const elsewhere = await givenHome();
		const home = { ...device.home, paths: { ...device.home.paths, runDir: elsewhere.paths.runDir } };
		await expect(givenAgent({ home })).rejects.toMatchObject({ code: 'state-in-use' });
		expect(exitStatusOf('state-in-use')).toBe(75);
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		await device.stop();
		await (await givenAgent({ home: device.home })).untilLive('check-in');
	});

	test('on the same sockets is refused, and gives its own state back [F106]', async () => {
		const device = await givenAgent();
		const elsewhere = await givenHome();
		const home = { ...elsewhere, paths: { ...elsewhere.paths, runDir: device.home.paths.runDir } };
		await expect(givenAgent({ home })).rejects.toMatchObject({ code: 'socket-failed' });
		await givenAgent({ home: elsewhere });
		expect(await device.client.request('agent', 'GET', '/livez')).toEqual({ live: true });
	});
});

describe('a state that cannot be saved', () => {
	test('costs the device nothing but a warning, and is saved as soon as it can be', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const blocker = join(device.home.paths.stateDir, 'state.json.new');
		await mkdir(blocker);
		service.changeWorkflow(DEVICE_ID, 'boarding');
		const status = await device.untilStatus(
			({ warnings, workflow }) => warnings.length > 0 && workflow.live === 'boarding',
		);
		expect(status.warnings).toMatchObject([{ code: 'state-unwritable' }]);
		expect((await device.home.untilSaved()).assignedWorkflow?.workflowId).toBe('check-in');
		await rmdir(blocker);
		device.clock.advance(60_000);
		await device.untilStatus(({ warnings }) => warnings.length === 0);
		expect((await device.home.untilSaved()).assignedWorkflow?.workflowId).toBe('boarding');
	});

	test('is not tried for ever by an agent that has ended', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const blocker = join(device.home.paths.stateDir, 'state.json.new');
		await mkdir(blocker);
		service.changeWorkflow(DEVICE_ID, 'boarding');
		await device.untilStatus(({ warnings }) => warnings.length > 0);
		await device.daemon.stop();
		expect(device.clock.pending).toBe(0);
		await rmdir(blocker);
	});

	test('refuses a command that has to be remembered', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const blocker = join(device.home.paths.stateDir, 'state.json.new');
		await mkdir(blocker);
		await expect(device.agent.setWorkflow('boarding')).rejects.toMatchObject({ code: 'state-unwritable' });
		expect(device.agent.status().workflow).toMatchObject({ wanted: 'check-in', live: 'check-in' });
		await rmdir(blocker);
	});
});

describe('a fresh device whose credential is missing', () => {
	test('starts, says which file it wants, and goes online when it is there [F104]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = join(home.directory, 'secrets', 'key');
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		const status = device.agent.status();
		expect(status).toMatchObject({ state: 'unpaired', warnings: [{ code: 'credential-unreadable' }] });
		expect(status.sentence).toContain(
			`Not paired: credential.apiKeyFile: the credential file ${apiKeyFile} cannot be read: it is not there`,
		);
		expect(service.requests).toEqual([]);

		await mkdir(join(home.directory, 'secrets'));
		await home.secretFile('secrets/key', service.credentials.apiKey);
		expect(await device.untilLive('check-in')).toMatchObject({ problem: null, warnings: [] });
	});

	test.each([
		['credential.apiKeyFile', (path: string) => ({ credential: { apiKeyFile: path } })],
		['credential.basicFile', (path: string) => ({ credential: { basicFile: path } })],
		['credential.connectionFile', (path: string) => ({ credential: { connectionFile: path } })],
		['page.pinFile', (path: string) => ({ page: { pinFile: path } })],
	])('is told which setting names the file that cannot be read: %s [F1501]', async (setting, settings) => {
		const home = await givenHome();
		const path = await home.secretFile('two-lines', 'one\ntwo');
		const device = await givenAgent({ home, settings: { baseUrl: 'http://127.0.0.1:9', ...settings(path) } });
		expect(device.agent.status().warnings.map(({ message }) => message)).toContainEqual(
			expect.stringMatching(new RegExp(`^${setting}: the \\w+ file ${path} has more than one line`)),
		);
	});

	test('can be paired by a code meanwhile', async () => {
		const service = await givenService();
		const home = await givenHome();
		const connectionFile = join(home.directory, 'connection');
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { connectionFile } };
		const device = await givenAgent({ home, settings });
		await device.pair(service.createPairingCode('check-in').url);
		expect(await device.untilLive('check-in')).toMatchObject({ warnings: [{ code: 'credential-unreadable' }] });
	});

	test('but not one whose certificate authorities are missing: somebody has to see that', async () => {
		const home = await givenHome();
		const settings = {
			baseUrl: 'https://id.example.com',
			credential: { apiKeyFile: join(home.directory, 'key') },
			network: { caFile: join(home.directory, 'ca.pem') },
		};
		const start = givenAgent({ home, settings });
		await expect(start).rejects.toMatchObject({ code: 'settings-unreadable' });
		expect(exitStatusOf('settings-unreadable')).toBe(78);
		await expect(start).rejects.toThrow(/ca\.pem/);
	});
});

describe('a credential that is replaced', () => {
	test('is used from then on without anybody saying so', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', 'ak-wrong-wrong-wrong');
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilStatus(({ problem }) => problem?.code === 'credential-refused');
		await home.secretFile('key', service.credentials.apiKey);
		await device.untilLive('check-in');
	});
});

describe('who the device is', () => {
	test('is asked of the machine, reported to the service, and pinned at pairing', async () => {
		const service = await givenService();
		const device = await givenAgent({ machine: PC });
		expect(device.agent.identity()).toMatchObject({ pinned: false, deviceId: { value: 'PF3K9QXZ' } });
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilState('online');
		expect(service.devices()).toMatchObject([
			{ deviceId: 'PF3K9QXZ', serial: 'PF3K9QXZ', macAddress: '00:1b:21:0a:0b:0c', deviceType: 'kiosk' },
		]);
		expect(device.agent.identity()).toMatchObject({ pinned: true, deviceId: { source: 'pinned' } });
	});

	test('is an id made once where the machine has neither serial number nor network card; it registers under that alone', async () => {
		const service = await givenService();
		const machine = MACHINES['nothing at all'];
		const device = await givenAgent({ machine });
		await device.pair(service.createPairingCode('check-in').url);
		const status = await device.untilLive('check-in');
		expect(status).toMatchObject({ serial: null, macAddress: null, warnings: [] });
		expect(status.deviceId).toMatch(/^[0-9a-f-]{36}$/);
		const [registered] = service.devices();
		expect(registered?.deviceId).toBe(status.deviceId);
		expect(registered?.serial ?? null).toBeNull();
		expect(registered?.macAddress ?? null).toBeNull();
		await device.home.untilSaved();
		await device.stop();
		const again = await givenAgent({ machine, home: device.home });
		expect(await again.untilLive('check-in')).toMatchObject({ deviceId: status.deviceId, warnings: [] });
		expect(registrations(service)).toEqual([201]);
	});

	test('is doubted on another machine: a copied disk contacts nobody until it is paired for itself [F110]', async () => {
		const service = await givenService();
		const original = await givenPairedAgent(service, { machine: PC });
		await original.stop();
		const requests = service.requests.length;
		const copy = await givenAgent({ home: original.home, machine: RASPBERRY });
		expect(copy.agent.status()).toMatchObject({ state: 'blocked', problem: { code: 'identity-changed' } });
		expect(copy.agent.status().sentence).toContain('copy of another device');
		copy.agent.reconnect();
		copy.clock.advance(24 * 3_600_000);
		await copy.daemon.reload();
		expect(service.requests.length).toBe(requests);

		await copy.agent.unpair();
		await copy.pair(service.createPairingCode('check-in').url);
		expect(await copy.untilState('online')).toMatchObject({ deviceId: '10000000a1b2c3d4', problem: null });
	});

	test('is kept with a warning when only a part was replaced', async () => {
		const service = await givenService();
		const before = await givenPairedAgent(service, { machine: PC });
		await before.stop();
		const machine = {
			...RASPBERRY,
			'sys/class/dmi/id/product_serial': 'PF3K9QXZ\n',
			'etc/machine-id': '0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6\n',
		};
		const after = await givenAgent({ home: before.home, machine });
		const status = await after.untilState('online');
		expect(status).toMatchObject({ deviceId: 'PF3K9QXZ', macAddress: '00:1b:21:0a:0b:0c' });
		expect(status.warnings).toMatchObject([
			{ code: 'identity-changed', message: expect.stringContaining('MAC address') },
		]);
	});
});

describe('a clock that is wrong', () => {
	test('is a warning as soon as an answer of the service tells, and over when one says so', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const inThreeDays = new Date(Date.now() + 3 * 86_400_000).toUTCString();
		service.failNext('/api/device/connection', { status: 503, headers: { date: inThreeDays } });
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		const { warnings } = await device.untilStatus((status) => status.warnings.length > 0);
		expect(warnings).toMatchObject([{ code: 'clock-wrong', message: "This device's clock is 3 days slow." }]);
		await device.passWait();
		expect(await device.untilState('online')).toMatchObject({ warnings: [] });
	});

	test('is told in a pairing as well', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const anHourAgo = new Date(Date.now() - 3_600_000).toUTCString();
		service.failNext({ method: 'HEAD' }, { status: 404, headers: { date: anHourAgo } });
		await device.pair(service.createPairingCode('check-in').url);
		const warned = device.statuses.find(({ warnings }) => warnings.length > 0);
		expect(warned?.warnings[0]?.message).toBe("This device's clock is 60 min fast.");
	});

	test('of 1970 at a start makes no Connection younger: it is renewed in time when the clock is right again', async () => {
		const service = await givenService({ connectionTtlSeconds: 1000 });
		const before = await givenAgent();
		// Near enough to count as right.
		before.clock.setWall(Date.now() - 290_000);
		await before.pair(service.createPairingCode('check-in').url);
		await before.stop();
		before.clock.setWall(0);
		const device = await givenAgent({ home: before.home, clock: before.clock });
		await device.untilState('online');
		device.clock.setWall(Date.now());
		expect(registrations(service)).toEqual([201]);
		const closed = service.waitFor('channel-closed');
		device.clock.advance(565_000);
		await closed;
		expect(registrations(service)).toEqual([201, 201]);
	});

	test('that is set does not disturb what is under way', async () => {
		const service = await givenService({ connectionTtlSeconds: 1000 });
		const device = await givenPairedAgent(service);
		const startedMs = Date.parse(device.agent.status().startedAt);
		const setByMs = -device.clock.wallMs();
		device.clock.setWall(0);
		device.clock.advance(799_000);
		expect(registrations(service)).toEqual([201]);
		// By the clock as it is now.
		expect(Date.parse(device.agent.status().startedAt)).toBe(startedMs + setByMs);
		const closed = service.waitFor('channel-closed');
		device.clock.advance(26_000);
		await closed;
		expect(registrations(service)).toEqual([201, 201]);
		expect(device.agent.status().state).toBe('online');
	});
});
