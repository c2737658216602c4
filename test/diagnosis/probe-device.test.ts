import { chmod, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, test } from 'vitest';
import { readAuditLog } from '../../src/audit/audit.runner.ts';
import { CHECK_IDS } from '../../src/diagnosis/check-list.runner.ts';
import { assessUnit } from '../../src/diagnosis/check-results.ts';
import { readDiskSpace, readSocket } from '../../src/diagnosis/machine-probes.edge.ts';
import { checkFirstPairing } from '../../src/diagnosis/probe-device.runner.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { readHistory } from '../../src/status/history.runner.ts';
import { UPDATES_PROGRAM } from '../../src/updates/package.ts';
import { nic, type Tree } from '../fixtures/machines.ts';
import { DEVICE_ID, givenAgent, givenHome, givenPairedAgent, type Home } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { examine, expectProblem, expectSkipped } from './examine.ts';

const SAME_MACHINE: Tree = { 'sys/class/dmi/id/product_serial': `${DEVICE_ID}\n` };
const group = process.getgid?.() ?? 0;

/** A device that was paired; its agent has ended. */
async function givenStopped(): Promise<{ home: Home; url: string }> {
	const service = await givenService();
	const { home, stop } = await givenPairedAgent(service);
	await home.savedToken();
	await stop();
	return { home, url: service.url };
}

describe('settings', () => {
	test('are valid, and say from how many files', async () => {
		expect((await examine({}, 'settings')).checks.settings?.message).toBe('Valid (no file, defaults only).');
		expect((await examine({ settings: {} }, 'settings')).checks.settings?.message).toBe('Valid (1 file).');
		const update = { judgeSeconds: 60 };
		const without = await examine({ settings: { update } }, 'settings');
		expectProblem(without.checks.settings, 'warning', 'updates-missing', /update\.judgeSeconds.*idv-agent-updates/);
		const machine = { [UPDATES_PROGRAM.slice(1)]: '' };
		expect((await examine({ settings: { update }, machine }, 'settings')).checks.settings).toMatchObject({
			status: 'ok',
		});
		const home = await givenHome();
		await writeFile(join(home.paths.confDirectory, '10-site.json'), '{}');
		const { checks } = await examine({ home, settings: {}, isOfUnit: true }, 'settings');
		expect(checks.settings?.message).toBe('Valid (2 files; as the unit has them).');
	});

	test('that name no service are no warning beside an agent that was started with one, and one without it [F1381]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const sets = [`baseUrl=${service.url}`, 'workflowId=check-in', `credential.apiKeyFile=${apiKeyFile}`];
		const device = await givenAgent({ home, settings: {}, sets });
		await device.untilLive('check-in');
		expect((await examine({ home }, 'settings')).checks.settings).toMatchObject({ status: 'ok' });
		await device.stop();
		const { checks } = await examine({ home }, 'settings');
		expectProblem(checks.settings, 'warning', 'settings-unreadable', /name no service any more/);
	});

	test('that are wrong fail with file and place, and what needs them is skipped', async () => {
		const report = await examine(
			{ settings: { heartbeatCadence: 'often' } },
			'scanner',
			'identity',
			'channel',
			'memory',
		);
		expectProblem(
			report.checks.settings,
			'failed',
			'settings-invalid',
			/config\.json: line 1, column \d+: heartbeatCad/,
		);
		expectSkipped(report, 'settings', 'identity', 'dns', 'tcp', 'tls', 'http', 'channel', 'scanner');
		expect(report.checks.memory).toMatchObject({ status: 'ok' });
		expect(report).toMatchObject({ exitStatus: 78, first: 'settings' });
	});

	test('that name a credential file that is not there fail, until a Connection is saved', async () => {
		const settings = { baseUrl: 'https://id.example.com', credential: { apiKeyFile: '/nowhere/key' } };
		const { checks } = await examine({ settings }, 'settings');
		expectProblem(checks.settings, 'failed', 'credential-unreadable', /\/nowhere\/key/);
		const { home, url } = await givenStopped();
		const paired = await examine({ home, settings: { ...settings, baseUrl: url } }, 'settings');
		expect(paired.checks.settings).toMatchObject({ status: 'warning', code: 'credential-unreadable' });
	});

	test.each([
		['which waits for it', 'failed'],
		['which is online without it', 'warning'],
	])('that name a credential file that is gone say since when, as the agent does, %s', async (_what, status) => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		if (status === 'failed') await rm(apiKeyFile);
		const device = await givenAgent({ home, settings });
		if (status === 'warning') {
			await device.untilLive('check-in');
			await rm(apiKeyFile);
			await device.daemon.reload();
		}
		const isGone = ({ code }: { code: string }) => code === 'credential-unreadable';
		const since = device.agent.status().warnings.find(isGone)?.params?.['since'];
		expect(since).toMatch(/^20\d\d-/);
		// An agent is live a moment before its state is on the disk.
		await expect
			.poll(async () => (await examine({ home }, 'settings')).checks.settings)
			.toMatchObject({
				...{ status, code: 'credential-unreadable' },
				message: expect.stringMatching(`${apiKeyFile} cannot be read: .* It has been so since ${since}\\.$`),
			});
	});

	test('of which several are wrong are named in one sentence each, with what to do about each [F1249]', async () => {
		const { home } = await givenStopped();
		const settings = { heartbeatCadence: 'often', deviceType: 7, network: { caFile: '/nowhere/ca.pem' } };
		const { checks } = await examine({ home, settings }, 'settings');
		expectProblem(checks.settings, 'warning', 'settings-invalid', /./);
		for (const words of ['heartbeatCadence must be', 'deviceType must be a text', '/nowhere/ca.pem'])
			expect(checks.settings?.message).toContain(words);
		expect(checks.settings?.message).toMatch(/must be a text.*Correct the settings named in the message.*ca\.pem/s);
		expect(checks.settings?.message.match(/Correct the settings/g)).toHaveLength(1);
		expect(checks.settings).toMatchObject({ remedy: expect.stringMatching(/^Make sure the file exists/) });
	});

	test('that are refused, given twice or in a file that others may read are all told [F1233]', async () => {
		const { home } = await givenStopped();
		const pinFile = await home.secretFile('pin', '83510927');
		await chmod(pinFile, 0o644);
		const settings = `{ "deviceType": 7, "heartbeatCadence": 40, "heartbeatCadence": 41, "page": { "pinFile": "${pinFile}" } }`;
		const { checks } = await examine({ home, settings }, 'settings');
		for (const words of ['deviceType must be a text', 'heartbeatCadence', `${pinFile} (page.pinFile) is not safe`])
			expect(checks.settings?.message).toContain(words);
	});

	test('are a warning where a variable names none of them', async () => {
		const { checks } = await examine({ env: { IDV_AGENT_NO_SUCH_SETTING: '1' } }, 'settings');
		expectProblem(checks.settings, 'warning', 'settings-invalid', /IDV_AGENT_NO_SUCH_SETTING names no setting/);
	});

	test('that were pushed and are wrong are a warning while the last valid ones are in force', async () => {
		const { home } = await givenStopped();
		const { checks } = await examine({ home, settings: '{ "baseUrl": ' }, 'settings', 'dns');
		expectProblem(checks.settings, 'warning', 'settings-invalid', /line 1.*The settings from before stay in force\.$/s);
		expect(checks.dns?.status).not.toBe('failed');
	});
});

describe('the state directory', () => {
	test('that does not exist yet is created by the agent, not by the doctor', async () => {
		const { checks } = await examine({}, 'state');
		expect(checks.state).toMatchObject({
			status: 'ok',
			message: expect.stringMatching(/does not exist yet: the agent/),
		});
	});

	test('that is gone while the agent runs is told, before a restart makes another device of this one [F1545]', async () => {
		const { home } = await givenPairedAgent(await givenService());
		await rename(home.paths.stateDir, join(home.directory, 'away'));
		const { checks } = await examine({ home }, 'state');
		await rename(join(home.directory, 'away'), home.paths.stateDir);
		expect(checks.state).toMatchObject({
			status: 'warning',
			code: 'state-unwritable',
			remedy: expect.stringMatching(/put it back before the agent is restarted/),
		});
	});

	test('that cannot be created is a failure with the reason of the system', async () => {
		const home = await givenHome();
		await writeFile(join(home.directory, 'file'), '');
		const below = { ...home, paths: { ...home.paths, stateDir: join(home.directory, 'file', 'a', 'b') } };
		expectProblem((await examine({ home: below }, 'state')).checks.state, 'failed', 'state-unwritable', /ENOTDIR/);
	});

	test('is well when a state can be saved there', async () => {
		const { home } = await givenStopped();
		const { checks } = await examine({ home }, 'state');
		expect(checks.state?.message).toMatch(/can be read, and a state can be saved there\.$/);
	});

	test('in which no state can be saved is a failure', async () => {
		const { home } = await givenStopped();
		await mkdir(join(home.paths.stateDir, 'state.json.new'));
		const report = await examine({ home }, 'state');
		expectProblem(report.checks.state, 'failed', 'state-unwritable', /state/);
		expect(report.exitStatus).toBe(74);
	});

	test('that other users may look into is a warning with the command that ends it', async () => {
		const { home } = await givenStopped();
		await chmod(home.paths.stateDir, 0o750);
		const { checks } = await examine({ home }, 'state');
		expect(checks.state).toMatchObject({
			status: 'warning',
			code: 'state-unreadable',
			message: `Other users have access to ${home.paths.stateDir}: its mode is 750.`,
			remedy: `Restrict it to its owner: chmod 700 ${home.paths.stateDir}.`,
		});
	});

	test('with a damaged state is a warning', async () => {
		const { home } = await givenStopped();
		await writeFile(join(home.paths.stateDir, 'state.json'), '{"schemaVersion":1,');
		expectProblem((await examine({ home }, 'state')).checks.state, 'warning', 'state-corrupt', /is damaged/);
	});

	test('with a ruined file of any log is a warning with the name of the file [F781]', async () => {
		const { home } = await givenStopped();
		const { stateDir } = home.paths;
		for (const name of ['history', 'audit', 'events']) {
			const file = join(stateDir, `${name}-00000001-0123456789abcdef.log`);
			const others = (await readdir(stateDir)).filter((each) => each.startsWith(name));
			for (const each of others) await rm(join(stateDir, each));
			await writeFile(file, Buffer.alloc(5000));
			const found = (await examine({ home }, 'state')).checks.state;
			expectProblem(found, 'warning', 'state-corrupt', new RegExp(file));
			const { remedy = '' } = found as { remedy?: string };
			const who = ['history', 'audit', 'applications'].filter((each) => remedy.includes(each));
			expect(who).toEqual([name.replace('events', 'applications')]);
			await rm(file);
		}
	});

	test('with an emptied file is told as by audit --verify and by history, which know nothing else of it [F1363]', async () => {
		const { home } = await givenStopped();
		const { stateDir } = home.paths;
		const read = { history: () => readHistory(stateDir), audit: () => readAuditLog(stateDir) };
		for (const name of ['history', 'audit'] as const) {
			const before = (await readdir(stateDir)).find((each) => each.startsWith(name));
			const file = join(stateDir, before ?? `${name}-00000001-0123456789abcdef.log`);
			await writeFile(file, '');
			expect((await read[name]()).damages).toEqual([{ file, message: expect.stringContaining('it is empty') }]);
			const found = (await examine({ home }, 'state')).checks.state;
			expectProblem(found, 'warning', 'state-corrupt', new RegExp(`${file}: it is empty`));
			await rm(file);
		}
		// The agent passes over one of the events.
		await writeFile(join(stateDir, 'events-00000009-0123456789abcdef.log'), '');
		expect((await examine({ home }, 'state')).checks.state).toMatchObject({ status: 'ok' });
	});

	test('with a wrong bit in a record of any log is a warning with the name of the file [F1294]', async () => {
		const service = await givenService();
		const { home, stop, untilEvent } = await givenPairedAgent(service);
		service.notify({ type: 'said' });
		await untilEvent(({ kind }) => kind === 'said');
		await stop();
		const { stateDir } = home.paths;
		for (const name of ['history', 'audit', 'events']) {
			const file = join(stateDir, (await readdir(stateDir)).find((each) => each.startsWith(name)) ?? '');
			const whole = await readFile(file);
			expect((await examine({ home }, 'state')).checks.state).toMatchObject({ status: 'ok' });
			const bytes = Buffer.from(whole);
			// The newest record: nothing else says that it is there.
			const at = bytes.lastIndexOf(name === 'events' ? 'said' : '"at"');
			bytes.writeUInt8(bytes.readUInt8(at + 2) ^ 1, at + 2);
			await writeFile(file, bytes);
			const found = (await examine({ home }, 'state')).checks.state;
			expectProblem(found, 'warning', 'state-corrupt', new RegExp(`${file}: a part of it is damaged`));
			await writeFile(file, whole);
		}
	});

	test('with a wrong bit in an event is told beside the agent as well, before an application reads it [F1692]', async () => {
		const service = await givenService();
		const { home, untilEvent } = await givenPairedAgent(service);
		service.notify({ type: 'said' });
		await untilEvent(({ kind }) => kind === 'said');
		const { stateDir } = home.paths;
		expect((await examine({ home }, 'state')).checks.state).toMatchObject({ status: 'ok' });
		const file = join(stateDir, (await readdir(stateDir)).find((each) => each.startsWith('events')) ?? '');
		const bytes = await readFile(file);
		const at = bytes.lastIndexOf('said') + 2;
		bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
		await writeFile(file, bytes);
		const found = (await examine({ home }, 'state')).checks.state;
		expectProblem(found, 'warning', 'state-corrupt', new RegExp(`${file}: a part of it is damaged`));
	});

	test('with a damaged events.db of 0.1.0 is a warning, and the file is as it was [F853]', async () => {
		const { home } = await givenStopped();
		const { stateDir } = home.paths;
		const file = join(stateDir, 'events.db');
		const database = new DatabaseSync(file);
		database.exec(`CREATE TABLE epoch (first, epoch); CREATE TABLE consumer (name, position, seen_ms);
			CREATE TABLE event (number, epoch, service_id, kept_ms, size, at, type, kind, workflow_id, format, content);
			INSERT INTO event (number, epoch, content) VALUES (1, 'old', hex(randomblob(20000)))`);
		database.close();
		const whole = await readFile(file);
		expect((await examine({ home }, 'state')).checks.state).toMatchObject({ status: 'ok' });
		for (const bytes of [whole.fill(255, 4096 * 3, 4096 * 4), Buffer.alloc(20_000, 'x')]) {
			await writeFile(file, bytes);
			expectProblem((await examine({ home }, 'state')).checks.state, 'warning', 'state-corrupt', new RegExp(file));
			expect(await readFile(file)).toEqual(bytes);
		}
		await writeFile(file, '');
		expect((await examine({ home }, 'state')).checks.state).toMatchObject({ status: 'ok' });
		expect((await readdir(stateDir)).filter((name) => name.startsWith('events.db'))).toEqual(['events.db']);
	});

	test('with several accidents is a warning that names all of them, of the state and of each log [F792]', async () => {
		const { home } = await givenStopped();
		const { stateDir } = home.paths;
		await writeFile(join(stateDir, 'state.json'), '{"schemaVersion":1,');
		const files = ['history', 'audit', 'events'].map((name) => join(stateDir, `${name}-00000009-0123456789abcdef.log`));
		for (const file of files) await (file.includes('audit') ? mkdir(file) : writeFile(file, Buffer.alloc(5000)));
		for (let more = 10; more < 20; more += 1) await mkdir(join(stateDir, `audit-000000${more}-0123456789abcdef.log`));
		const found = (await examine({ home }, 'state')).checks.state;
		for (const part of [join(stateDir, 'state.json'), ...files])
			expectProblem(found, 'warning', 'state-corrupt', new RegExp(part));
		expect(found).toMatchObject({ remedy: expect.stringMatching(/^Nothing of the state is lost.*audit --verify/) });
	});

	test('whose state cannot be read leaves identity, pairing and channel unchecked', async () => {
		const { home, url } = await givenStopped();
		const state = join(home.paths.stateDir, 'state.json');
		await writeFile(state, '{ "schemaVersion": 99 }');
		await rm(`${state}.bak`);
		const report = await examine({ home, settings: { baseUrl: url } }, 'state', 'identity', 'pairing', 'heartbeat');
		expectProblem(report.checks.state, 'failed', 'state-unreadable', /newer version/);
		expectSkipped(report, 'state', 'identity', 'pairing', 'channel', 'heartbeat');
	});
});

test('the disk space is that of the nearest directory that exists', async () => {
	const { directory } = await givenHome();
	const { directory: looked, freeBytes } = await readDiskSpace(join(directory, 'not', 'yet'));
	expect(looked).toBe(directory);
	expect(freeBytes).toBeGreaterThan(0);
	await writeFile(join(directory, 'events'), Buffer.alloc(256 * 1024, 1), { flush: true });
	const { usedBytes } = await readDiskSpace(directory);
	expect(usedBytes).toBeGreaterThanOrEqual(256 * 1024);
	expect(usedBytes).toBeLessThan(1024 * 1024);
	const { checks } = await examine({}, 'disk-space');
	expect(checks['disk-space']?.message).toMatch(/^(Only )?\d+ [MG]iB free in \//);
});

test('the memory of the daemon is shown beside what is available', async () => {
	const machine = {
		'proc/meminfo': 'MemTotal:  1048576 kB\nMemAvailable:  620480 kB\n',
		'proc/4711/status': 'Name:\tagent\nVmHWM:  99999 kB\nVmRSS:  33792 kB\n',
	};
	const { checks } = await examine({ machine, mainPid: 4711 }, 'memory');
	expect(checks.memory?.message).toBe(
		'606 MiB of 1024 MiB are available; the agent uses 33 MiB of at most 256 MiB, of which its applications take at most 64 MiB.',
	);
});

describe('the identity', () => {
	test('is that of the machine while no agent has run', async () => {
		const { checks } = await examine({ machine: SAME_MACHINE }, 'identity');
		expect(checks.identity?.message).toMatch(new RegExp(`^${DEVICE_ID} \\(.*\\), serial number ${DEVICE_ID}\\.$`));
		const bare = await examine({}, 'identity');
		expect(bare.checks.identity?.message).toMatch(/^This machine has no id of its own: the agent generates one/);
	});

	test('is that of the settings, without a serial number where there is none', async () => {
		const { checks } = await examine({ settings: { deviceId: 'DOOR-3' } }, 'identity');
		expect(checks.identity?.message).toBe('DOOR-3 (configured), without a serial number.');
	});

	describe('that has changed since the pairing', () => {
		const machineOf = (serial: string, address: string): Tree => ({
			'sys/class/dmi/id/product_serial': `${serial}\n`,
			'etc/machine-id': '0123456789abcdef0123456789abcdef\n',
			...nic('eth0', { device: 'pci0000:00/0000:00:1f.6', address }),
		});
		const before = machineOf('BOARD-11', '3c:ec:ef:12:34:56');
		const givenPinned = async () => {
			const { home, stop } = await givenPairedAgent(await givenService(), { machine: before });
			await home.savedToken();
			await stop();
			return home;
		};

		test('by one part is a warning, without an agent and by the word of one', async () => {
			const home = await givenPinned();
			const machine = machineOf('BOARD-12', '3c:ec:ef:12:34:56');
			const alone = await examine({ home, machine }, 'identity');
			expectProblem(alone.checks.identity, 'warning', 'identity-changed', /serial number is BOARD-12/);
			const { clock } = await givenAgent({ home, machine });
			const asked = await examine({ home, clock, machine: before }, 'identity');
			expectProblem(asked.checks.identity, 'warning', 'identity-changed', /serial number is BOARD-12/);
		});

		test('like a copied disk is a failure', async () => {
			const machine = machineOf('BOARD-12', '3c:ec:ef:65:43:21');
			const { checks } = await examine({ home: await givenPinned(), machine }, 'identity');
			expectProblem(checks.identity, 'failed', 'identity-changed', /^This seems to be a copy of another device/);
		});
	});
});

describe('the pairing', () => {
	test('of a device that never was is a warning, which counts only if it is asked for', async () => {
		const report = await examine({}, 'pairing');
		expectProblem(report.checks.pairing, 'warning', 'unpaired', /^This device is not paired yet\.$/);
		expect(report).toMatchObject({ verdict: 'warning', exitStatus: 0, first: null });
	});

	test('names the service and the day, or the credential of the settings', async () => {
		const { home, url } = await givenStopped();
		expect((await examine({ home }, 'pairing')).checks.pairing?.message).toMatch(
			new RegExp(`^Belongs to ${url}, since \\d{4}-\\d\\d-\\d\\dT[\\d:]+Z\\.$`),
		);
		const fresh = await givenHome();
		const apiKeyFile = await fresh.secretFile('key', 'some-key');
		const settings = { baseUrl: 'https://id.example.com', credential: { apiKeyFile } };
		expect((await examine({ home: fresh, settings }, 'pairing')).checks.pairing?.message).toBe(
			'Belongs to https://id.example.com, by a credential of the settings.',
		);
		// A service without a credential is not enough.
		const half = await examine({ settings: { baseUrl: 'https://id.example.com' } }, 'pairing');
		expectProblem(half.checks.pairing, 'warning', 'unpaired', /./);
	});
});

test('every warning of the running agent is told by a check, once [F1231]', async () => {
	const home = await givenHome();
	const service = await givenService();
	const settings = { baseUrl: service.url, workflowId: 'check-in' };
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const device = await givenAgent({ home, settings: { ...settings, credential: { apiKeyFile } } });
	await device.untilLive('check-in');
	await home.writeSettings({});
	await device.daemon.reload();
	const told = async () => {
		const { checks } = await examine({ home }, ...CHECK_IDS);
		const messages = Object.values(checks).map(({ message }) => message);
		for (const { message } of device.agent.status().warnings) {
			const [sentence = ''] = message.split('. ');
			expect(messages.filter((one) => one.includes(sentence))).toHaveLength(1);
		}
		return device.agent.status().warnings;
	};
	expect(await told()).toHaveLength(1);
	const taken = Number(new URL(service.url).port);
	await home.writeSettings({ network: { caFile: '/nowhere.pem' }, local: { metricsPort: taken } });
	await device.daemon.reload();
	expect((await told()).map(({ code }) => code)).toContain('socket-failed');
	const alone = await examine({ home }, 'agent');
	expectProblem(alone.checks.agent, 'warning', 'settings-unreadable', /nowhere\.pem/);
});

describe('the local sockets', () => {
	const sets = [`local.agentGroup=${group}`, `local.adminGroup=${group}`];
	const socketsOf = async (home: Home) => (await examine({ home, sets }, 'local-socket')).checks['local-socket'];

	test('are a failure without an agent', async () => {
		const report = await examine({}, 'local-socket');
		expectProblem(report.checks['local-socket'], 'failed', 'agent-not-running', /^No agent listens/);
		expect(report.exitStatus).toBe(69);
	});

	test('say who may use them', async () => {
		const { home } = await givenAgent();
		const { group: name } = (await readSocket(join(home.paths.runDir, 'agent.sock'))) ?? {};
		const found = await socketsOf(home);
		expect(found).toMatchObject({ status: 'ok' });
		expect(found?.message).toMatch(
			new RegExp(`^An agent answers; agent\\.sock is for group ${name} \\(.+\\), admin\\.sock is for group ${name} `),
		);
	});

	test.each(['agent.sock', 'admin.sock'])('that every user may use are a failure: %s', async (name) => {
		const { home } = await givenAgent();
		await chmod(join(home.paths.runDir, name), 0o661);
		const found = await socketsOf(home);
		expectProblem(
			found,
			'failed',
			'socket-failed',
			new RegExp(`^Every user of this device may use .*/${name}: .* 661`),
		);
		expect(found).toMatchObject({ remedy: expect.stringMatching(/^Recreate it: systemctl restart idv-agent\.socket/) });
	});

	test('that only their owner may use are a warning; one that a group may use is enough', async () => {
		const { home } = await givenAgent();
		await chmod(join(home.paths.runDir, 'admin.sock'), 0o600);
		expect(await socketsOf(home)).toMatchObject({ status: 'ok' });
		await chmod(join(home.paths.runDir, 'agent.sock'), 0o600);
		expectProblem(await socketsOf(home), 'warning', 'socket-failed', /^Only the owner of the sockets/);
	});

	test('of one group are a warning where the settings want two', async () => {
		const { home } = await givenAgent();
		const found = (await examine({ home, sets: sets.slice(1) }, 'local-socket')).checks['local-socket'];
		expectProblem(found, 'warning', 'socket-failed', /^Applications may pair and move this device: both sockets/);
	});
});

describe('scanners', () => {
	const machine: Tree = {
		'dev/ttyACM0': '',
		'dev/serial/by-id/usb-Honeywell_Scanner-if00': { link: '../../ttyACM0' },
	};

	test('that are found are named, and none is needed', async () => {
		expect((await examine({ machine }, 'scanner')).checks.scanner?.message).toMatch(
			/^serial \/.*usb-Honeywell_Scanner-if00; read while the device is not paired\.$/,
		);
		expectSkipped(await examine({}, 'scanner'), null, 'scanner');
	});

	test('that the settings name and that are not there are a warning', async () => {
		const settings = { scanner: { device: '/dev/ttyUSB7' } };
		const { checks } = await examine({ machine, settings }, 'scanner');
		expectProblem(checks.scanner, 'warning', 'scanner-failed', /^There is no scanner at \/dev\/ttyUSB7/);
	});
});

describe('the systemd unit', () => {
	test('is not checked where systemd does not run the machine', async () => {
		expectSkipped(await examine({ unit: null }, 'unit'), null, 'unit');
	});

	test('is assessed as systemd shows it', async () => {
		const unit = { LoadState: 'loaded', ActiveState: 'failed', SubState: 'failed', NRestarts: '5' };
		const report = await examine({ unit }, 'unit');
		expect(report.checks.unit).toMatchObject(assessUnit('idv-agent.service', unit));
		expectProblem(report.checks.unit, 'failed', 'unit-not-ready', /does not stay up \(failed, 5 restarts\)/);
	});
});

test('a device that knows no service is open to the first comer until the settings say where it belongs [F241]', () => {
	const pairing = { trustedOrigins: [], loopbackByScanner: false, rescueByScanner: false };
	expect(checkFirstPairing({ baseUrl: null, pairing }, EMPTY_STATE)).toMatchObject({
		status: 'warning',
		code: 'open-to-first-comer',
	});
	const trusted = ['https://id.example.com'];
	expect(checkFirstPairing({ baseUrl: trusted[0] ?? '', pairing }, EMPTY_STATE).status).toBe('ok');
	expect(checkFirstPairing({ baseUrl: null, pairing: { ...pairing, trustedOrigins: trusted } }, null).status).toBe(
		'ok',
	);
	const paired = { baseUrl: 'https://id.example.com', sessionId: null, pairedAt: '2026-03-01T10:00:00Z' };
	expect(checkFirstPairing({ baseUrl: null, pairing }, { ...EMPTY_STATE, pairing: paired }).status).toBe('ok');
});
