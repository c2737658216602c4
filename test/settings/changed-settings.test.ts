import { existsSync, writeFileSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { exitStatusOf } from '../../src/base/errors.ts';
import { finish } from '../cli/command.ts';
import { examine, expectProblem } from '../diagnosis/examine.ts';
import {
	givenAgent,
	givenHome,
	givenLine,
	givenPairedAgent,
	type Home,
	type RunningAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const warningsOf = (device: { agent: { status(): { warnings: { code: string; message: string }[] } } }) =>
	device.agent.status().warnings;

describe('a reload with settings that are not valid', () => {
	test('warns with the nearest name, takes what is valid, and is over when they are corrected [F101]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { heartbeatCadence: 20 } });
		const offline = watchOffline(service);
		await device.home.writeSettings({ heartbeatCadance: 10, deviceType: 7, workflowId: 'boarding' });
		await device.daemon.reload();
		expect(warningsOf(device)).toMatchObject([{ code: 'settings-invalid' }, { code: 'settings-invalid' }]);
		const [unknown, invalid] = warningsOf(device);
		expect(unknown?.message).toMatch(/heartbeatCadance is not a setting; did you mean heartbeatCadence\?/);
		expect(invalid?.message).toMatch(/deviceType must be a text\. Its value from before stays in force\./);
		expect(await device.untilLive('boarding')).toMatchObject({ deviceType: 'kiosk' });

		await device.home.writeSettings({ heartbeatCadence: 10, workflowId: 'boarding' });
		await device.daemon.reload();
		expect(await device.untilLive('boarding')).toMatchObject({ warnings: [] });
		expect(offline).toEqual([]);
	});

	test('is logged once, however often the same file is read', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await device.home.writeSettings('{ "heartbeatCadence": 10');
		for (let reload = 0; reload < 3; reload += 1) await device.daemon.reload();
		expect(device.log.filter(({ level }) => level === 'warn')).toHaveLength(1);
		expect(warningsOf(device)).toMatchObject([{ code: 'settings-invalid' }]);
	});

	test('or with a file that is not there keeps the credential from before, and takes what else has changed', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		for (const broken of [
			{ ...settings, workflowId: 'boarding', credential: { apiKeyFile: `${apiKeyFile}.gone` } },
			{ ...settings, workflowId: 'third', network: { caFile: `${apiKeyFile}.gone` } },
		]) {
			await home.writeSettings(broken);
			await device.daemon.reload();
			expect(warningsOf(device)).toHaveLength(1);
			expect(warningsOf(device)[0]?.message).toContain(`${apiKeyFile}.gone`);
			await device.untilLive(broken.workflowId);
		}
		await home.writeSettings(settings);
		await device.daemon.reload();
		expect(await device.untilLive('check-in')).toMatchObject({ warnings: [] });
	});
});

describe('a start with settings that are not valid', () => {
	test('uses the last valid ones and warns', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { workflowId: 'check-in', heartbeatCadence: 20 } });
		await device.stop();
		await device.home.writeSettings({ workflowId: 17, heartbeatCadence: 20 });
		const again = await givenAgent({ home: device.home });
		const status = await again.untilLive('check-in');
		expect(status).toMatchObject({ workflow: { source: 'file' }, warnings: [{ code: 'settings-invalid' }] });
		expect(status.warnings[0]?.message).toMatch(/workflowId must be a text\. Its value from before stays in force\./);
		expect(registrations(service)).toEqual([201]);
		// Another file in its place, of which nobody tells the agent.
		const changed = join(again.home.directory, 'changed.json');
		await writeFile(changed, JSON.stringify({ workflowId: 'boarding', heartbeatCadence: 20 }));
		await rename(changed, again.home.paths.configFile);
		expect(await again.untilLive('boarding')).toMatchObject({ warnings: [] });
	});

	test('a second time still has them', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { workflowId: 'check-in' } });
		await device.stop();
		await device.home.writeSettings('not JSON');
		await (await givenAgent({ home: device.home })).stop();
		const again = await givenAgent({ home: device.home });
		expect(await again.untilLive('check-in')).toMatchObject({ workflow: { source: 'file' } });
	});

	test('fails when there never were any, leaves no lock and keeps nothing', async () => {
		const home = await givenHome();
		await home.writeSettings({ workflow: 'check-in', heartbeatCadence: 'often' });
		const start = givenAgent({ home });
		await expect(start).rejects.toMatchObject({ code: 'settings-invalid' });
		expect(exitStatusOf('settings-invalid')).toBe(78);
		await expect(start).rejects.toThrow(/workflow .*did you mean workflowId.*\n.*heartbeatCadence must be/);
		await home.writeSettings({});
		await givenAgent({ home });
	});

	test('because a file that they name is gone takes the others, and goes on without the file', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await device.stop();
		const caFile = `${device.home.directory}/ca.pem`;
		await device.home.writeSettings({ workflowId: 'boarding', network: { caFile } });
		const again = await givenAgent({ home: device.home });
		expect(await again.untilLive('boarding')).toMatchObject({ workflow: { source: 'file' } });
		expect(warningsOf(again)[0]?.message).toMatch(
			/ca\.pem cannot be read: it is not there .*The settings from before stay in force\./,
		);
		await again.stop();
	});
});

describe('a settings file that is absent', () => {
	const away = (device: { home: { paths: { configFile: string } } }) => {
		const { configFile } = device.home.paths;
		return {
			remove: () => rename(configFile, `${configFile}.away`),
			putBack: () => rename(`${configFile}.away`, configFile),
		};
	};

	test('takes no device away from its service, while it runs or at a start, until a person does [F467]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const identity = { deviceId: 'KIOSK-9', deviceType: 'scanner', heartbeatCadence: 20 };
		const settings = { ...identity, baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		let device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		const file = away(device);
		for (const restarts of [false, true]) {
			const offline = watchOffline(service);
			await file.remove();
			if (restarts) {
				await device.stop();
				device = await givenAgent({ home });
			} else await device.daemon.reload();
			// What a person asks for is read as it is; at a start the file may be on its way back.
			const words = restarts ? 'its settings stay in force' : 'name no service any more';
			const told = [{ code: 'settings-unreadable', message: expect.stringContaining(words) }];
			const deviceId = restarts ? 'KIOSK-9' : expect.any(String);
			expect(await device.untilLive('check-in')).toMatchObject({ deviceId, warnings: told });
			await file.putBack();
			await device.daemon.reload();
			expect(await device.untilLive('check-in')).toMatchObject({ deviceId: 'KIOSK-9', warnings: [] });
			if (!restarts) expect(offline).toEqual([]);
		}
		expect(registrations(service)).toEqual([201]);
		await file.remove();
		await device.daemon.reload();
		await device.agent.unpair();
		expect(device.agent.status()).toMatchObject({ state: 'unpaired', warnings: [] });
	});

	/** A device that is online by its settings, and `idv-agent config COMMAND --json` beside it. */
	async function givenAsked() {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		const { configFile, stateDir, runDir } = home.paths;
		const env = { IDV_AGENT_CONFIG: configFile, IDV_AGENT_STATE_DIR: stateDir, IDV_AGENT_RUN_DIR: runDir };
		const ask = async (command: string) => {
			const { status, stdout } = await finish('idv-agent', ['config', command, '--json'], env);
			const { problems, notices } = JSON.parse(stdout);
			return { status, problems, notices };
		};
		return { service, home, apiKeyFile, settings, device, ask };
	}

	test('with its service named no more is told by config check and config show as by status, beside the agent and without it [F1364]', async () => {
		const { service, home, settings, device, ask } = await givenAsked();
		for (const command of ['check', 'show']) expect(await ask(command)).toMatchObject({ status: 0, notices: [] });
		await home.writeSettings({ ...settings, baseUrl: null, workflowId: null, credential: { apiKeyFile: null } });
		await device.daemon.reload();
		const message = `The settings name no service any more; this device stays with its Connection to ${new URL(service.url).host}.`;
		expect(await device.untilLive('check-in')).toMatchObject({
			warnings: [{ message: expect.stringContaining(message) }],
		});
		const told = { status: 0, notices: [{ code: 'settings-unreadable', message: expect.stringContaining(message) }] };
		for (const command of ['check', 'show']) expect(await ask(command)).toMatchObject(told);
		await device.stop();
		for (const command of ['check', 'show']) expect(await ask(command)).toMatchObject(told);
	});

	test('or that cannot be used leaves the service named: config check and config show say no more than status [F1402]', async () => {
		const { home, apiKeyFile, settings, device, ask } = await givenAsked();
		const isRefused = { problems: [expect.anything()], notices: [] };
		const broken = ['', '{ "baseUrl": ', { ...settings, baseUrl: 7 }, { credential: { apiKeyFile } }];
		for (const text of broken) {
			await home.writeSettings(text);
			await device.daemon.reload();
			expect(JSON.stringify(warningsOf(device))).not.toContain('name no service');
			expect(await ask('check')).toMatchObject(isRefused);
		}
		await device.stop();
		for (const text of broken) {
			await home.writeSettings(text);
			expect(await ask('show')).toMatchObject(isRefused);
		}
	});

	test('is named where a person asks for a reload: in the warning where the others are not valid without it, else in the log [F554]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		await mkdir(home.paths.confDirectory, { recursive: true });
		const [site, hour] = ['10-site.json', '20-hour.json'].map((name) => join(home.paths.confDirectory, name));
		const text = JSON.stringify({ baseUrl: service.url, workflowId: 'check-in' });
		await writeFile(site ?? '', text);
		await writeFile(hour ?? '', '{ "heartbeatCadence": 3600 }');
		const device = await givenAgent({ home, settings: { credential: { apiKeyFile } } });
		await device.untilLive('check-in');
		await rm(site ?? '');
		await device.daemon.reload();
		const told = expect.stringContaining(
			`needs baseUrl: a credential is only sent to a host that the settings name. ${site} is not`,
		);
		expect(device.agent.status()).toMatchObject({ state: 'online', warnings: [{ message: told }, {}] });
		await writeFile(site ?? '', text);
		await rm(hour ?? '');
		await device.daemon.reload();
		expect(device.agent.status().warnings).toEqual([]);
		expect(device.log.map(({ msg }) => msg)).toContain(
			`${hour} is not there any more. Its settings are no longer in force.`,
		);
	});

	test('with the workflow in it leaves the device with the workflow that it has', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		await mkdir(home.paths.confDirectory, { recursive: true });
		const workflow = join(home.paths.confDirectory, '20-workflow.json');
		await writeFile(workflow, '{ "workflowId": "check-in" }');
		const device = await givenAgent({ home, settings: { baseUrl: service.url, credential: { apiKeyFile } } });
		await device.untilLive('check-in');
		const offline = watchOffline(service);
		await rename(home.paths.confDirectory, `${home.paths.confDirectory}.away`);
		await device.daemon.reload();
		expect(device.agent.status()).toMatchObject({
			state: 'online',
			workflow: { live: 'check-in' },
			warnings: [
				{
					code: 'settings-unreadable',
					message: expect.stringContaining('name no workflow any more'),
					remedy: expect.stringContaining('workflow set ID'),
				},
			],
		});
		await rename(`${home.paths.confDirectory}.away`, home.paths.confDirectory);
		await device.daemon.reload();
		expect(device.agent.status()).toMatchObject({ state: 'online', warnings: [] });
		expect([offline, registrations(service)]).toEqual([[], [201]]);
	});

	test('does not keep the device from another address', async () => {
		const [service, other] = [await givenService(), await givenService()];
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilLive('check-in');
		await away(device).remove();
		await device.daemon.reload();
		await home.secretFile('key', other.credentials.apiKey);
		await home.writeSettings({ ...settings, baseUrl: other.url });
		await device.daemon.reload();
		await expect.poll(() => registrations(other)).toEqual([201]);
	});
});

/** The service ends the Connection of the device, which comes back. */
async function revoked(service: Awaited<ReturnType<typeof givenService>>, device: RunningAgent): Promise<void> {
	service.revoke(`${device.agent.status().deviceId}`);
	await device.untilStatus(({ state }) => state !== 'online');
	device.clock.advance(60_000);
	await device.untilState('online');
}

describe('a credential that is refused while another one works', () => {
	test.each(['live', 'over a kill'])(
		'leaves the key from before in use when the Connection is revoked as well, %s, and stays told [F1151]',
		async (how) => {
			const service = await givenService();
			const home = await givenHome();
			const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
			const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
			let device = await givenAgent({ home, settings });
			await device.untilLive('check-in');
			await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
			await device.daemon.reload();
			const isTold = ({ warnings }: { warnings: { code: string }[] }) =>
				warnings.some(({ code }) => code === 'credential-refused');
			const since = (await device.untilStatus(isTold)).warnings[0]?.params?.['since'];
			if (how !== 'live') {
				await device.stop();
				device = await givenAgent({ home });
				await device.untilState('online');
			}
			await revoked(service, device);
			const status = await device.untilStatus(isTold);
			expect(status).toMatchObject({
				state: 'online',
				problem: null,
				warnings: [{ params: { path: apiKeyFile, since } }],
			});
			expect(status.warnings[0]?.message).toContain('registers with the earlier one');
		},
	);

	test('leaves the key from before in use where the file is emptied before a restart, and not after that one is refused as well [F1151]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const first = await givenAgent({ home, settings });
		await first.untilLive('check-in');
		await first.stop();
		await home.secretFile('key', '');
		const device = await givenAgent({ home });
		await device.untilStatus(({ state, warnings }) => state === 'online' && warnings.length > 0);
		await revoked(service, device);
		expect(device.agent.status().warnings).toMatchObject([{ code: 'credential-unreadable' }]);
		service.failNext('/api/device/connection', { status: 401 }, 3);
		service.revoke(`${device.agent.status().deviceId}`);
		await device.untilStatus(({ state }) => state !== 'online');
		device.clock.advance(60_000);
		await home.untilSaved(({ workedCredential }) => workedCredential === null);
	});

	test.each(['unpaired', 'the key is taken out of the settings'])(
		'the key from before is forgotten when the device is told so by a person: %s [F1151]',
		async (how) => {
			const service = await givenService();
			const home = await givenHome();
			const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
			const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
			const device = await givenAgent({ home, settings });
			await device.untilLive('check-in');
			await home.untilSaved(({ workedCredential }) => workedCredential !== null);
			await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
			await device.daemon.reload();
			await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code === 'credential-refused'));
			if (how === 'unpaired') await device.agent.unpair();
			else {
				await home.writeSettings({ ...settings, credential: {} });
				await device.daemon.reload();
			}
			await home.untilSaved(({ workedCredential }) => workedCredential === null);
		},
	);

	test('is named since when, in status, doctor and metrics, over a restart, until it is replaced [F468]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		expect((await device.untilLive('check-in')).warnings).toEqual([]);
		await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
		await device.daemon.reload();
		const isTold = ({ warnings }: { warnings: { code: string }[] }) =>
			warnings.some(({ code }) => code === 'credential-refused');
		const status = await device.untilStatus(isTold);
		expect(status).toMatchObject({ state: 'online', problem: null });
		const since = status.warnings[0]?.params?.['since'];
		expect(status.warnings[0]).toMatchObject({ params: { path: apiKeyFile, since: expect.stringMatching(/^20/) } });
		expect(status.warnings[0]?.message).toContain(`has refused the API key in ${apiKeyFile} since ${since}`);
		const metrics = await new Promise<string>((resolve, reject) => {
			const socketPath = join(home.paths.runDir, 'agent.sock');
			get({ socketPath, path: '/metrics' }, (answer) => resolve(text(answer))).on('error', reject);
		});
		expect(metrics).toContain('idv_agent_credential_refused 1');
		await device.stop();

		const stopped = await examine({ home, settings }, 'pairing');
		expectProblem(stopped.checks.pairing, 'warning', 'credential-refused', /API key/);
		const again = await givenAgent({ home });
		const later = await again.untilLive('check-in');
		expect(later.warnings[0]?.params).toMatchObject({ path: apiKeyFile, since });

		await home.secretFile('key', service.credentials.apiKey);
		await again.daemon.reload();
		await again.untilStatus((now) => now.state === 'online' && !isTold(now));
	});
});

test('a credential that is refused is named where the service lets no Connection register either [F557]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	const device = await givenAgent({ home, settings });
	await device.untilLive('check-in');
	service.failNext('/api/device/connection', { status: 401 }, 3);
	await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
	await device.daemon.reload();
	const status = await device.untilStatus(({ problem }) => problem?.code === 'credential-refused');
	expect(status.problem?.remedy).toContain(`the one in ${apiKeyFile} (credential.apiKeyFile) was refused`);
	expect(status).toMatchObject({ state: 'online', warnings: [{ params: { path: apiKeyFile } }] });
});

test('a credential that was never accepted is named as refused beside the Connection of a code [F555]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', 'a-key-that-is-wrong-0123456789');
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	let device = await givenAgent({ home, settings });
	await device.untilStatus(({ problem }) => problem?.code === 'credential-refused');
	await device.pair(service.createPairingCode('check-in').url);
	const isTold = ({ warnings }: { warnings: { code: string }[] }) =>
		warnings.some(({ code }) => code === 'credential-refused');
	await device.untilStatus((now) => now.state === 'online' && isTold(now));
	await device.stop();
	device = await givenAgent({ home });
	await device.untilStatus((now) => now.state === 'online' && isTold(now));
});

describe('settings from elsewhere', () => {
	test('win over the file: a variable over it, a flag over both', async () => {
		const settings = { workflowId: 'from-file', deviceType: 'scanner' };
		const env = { IDV_AGENT_WORKFLOW_ID: 'from-variable' };
		const service = await givenService();
		const withVariable = await givenAgent({ settings, env });
		await withVariable.pair(service.createPairingCode(null).url);
		expect(await withVariable.untilState('online')).toMatchObject({
			deviceType: 'scanner',
			workflow: { live: 'from-variable', source: 'environment' },
		});
		await withVariable.stop();
		const withFlag = await givenAgent({ home: withVariable.home, env, sets: ['workflowId=from-flag'] });
		expect(await withFlag.untilLive('from-flag')).toMatchObject({ workflow: { source: 'flag' } });
	});

	test('that name no setting are a warning', async () => {
		const device = await givenAgent({ env: { IDV_AGENT_WORKFLOWID: 'check-in' } });
		expect(warningsOf(device)).toMatchObject([
			{ code: 'settings-invalid', message: expect.stringContaining('did you mean IDV_AGENT_WORKFLOW_ID?') },
		]);
	});
});

describe('changed settings', () => {
	test('that change nothing for the service leave the channel alone', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { log: { level: 'info' } } });
		const closed: number[] = [];
		service.on('channel-closed', ({ code }) => void closed.push(code));
		await device.home.writeSettings({ log: { level: 'warn' }, events: { maxCount: 10 } });
		await device.daemon.reload();
		await device.home.writeSettings({});
		await device.daemon.reload();
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		expect(closed).toEqual([]);
		expect(registrations(service)).toEqual([201]);
	});

	test('that come while a channel is being opened do not cut its handshake [F885]', async () => {
		const service = await givenService();
		const line = await givenLine(service);
		const device = await givenAgent();
		await device.pair(service.createPairingCode('check-in').url.replace(service.url, line.url));
		await device.untilLive('check-in');
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		const release = line.holdAnswers();
		const accepted = service.waitFor('device-online');
		await device.passWait();
		await accepted;
		await device.home.writeSettings({ workflow: { maxDeferSeconds: 60 } });
		await device.daemon.reload();
		release();
		await device.untilState('online');
		expect(service.requests.filter(({ path }) => path === '/ws/device')).toHaveLength(2);
	});

	test.each<[string, object, number]>([
		['are taken with it', { deviceType: 'scanner' }, 0],
		['do not stop it where they are wrong, and are told', { deviceType: 'scanner', heartbeatCadence: 'often' }, 1],
	])('that come while the device moves to another workflow %s [F819]', async (_, changed, warnings) => {
		const service = await givenService();
		const line = await givenLine(service);
		const device = await givenAgent();
		await device.pair(service.createPairingCode('check-in').url.replace(service.url, line.url));
		await device.untilLive('check-in');
		const release = line.holdAnswers();
		const registered = service.waitFor('registered');
		await device.agent.setWorkflow('boarding');
		await registered;
		await device.home.writeSettings(changed);
		await device.daemon.reload();
		release();
		await device.untilLive('boarding');
		await device.untilStatus(({ deviceType, state }) => deviceType === 'scanner' && state === 'online');
		expect(warningsOf(device).map(({ code }) => code)).toEqual(Array(warnings).fill('settings-invalid'));
	});

	test('are tried at once by a device that is waiting, instead of when the wait is over [F078]', async () => {
		const service = await givenService({ dialect: { channelPath: '/channel' } });
		const device = await givenAgent();
		const result = await device.pair(service.createPairingCode('check-in').url);
		expect(result.sentence).toContain('404');
		expect(device.agent.status()).toMatchObject({ state: 'blocked', problem: { code: 'channel-not-found' } });
		await device.home.writeSettings({ service: { channelPath: '/channel' } });
		await device.daemon.reload();
		expect(await device.untilLive('check-in')).toMatchObject({ problem: null });
	});

	test('give the device another name only as far as its Connection goes', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await device.home.writeSettings({ deviceId: 'kiosk-7' });
		await device.daemon.reload();
		const status = await device.untilStatus(({ problem }) => problem !== null);
		expect(status).toMatchObject({ state: 'online', problem: { code: 'access-forbidden' } });
		await device.pair(service.createPairingCode('check-in').url, { replace: true });
		expect(await device.untilStatus(({ problem }) => problem === null)).toMatchObject({
			state: 'online',
			deviceId: 'kiosk-7',
		});
		expect(service.devices().map(({ deviceId, online }) => [deviceId, online])).toContainEqual(['kiosk-7', true]);
	});

	test('that come more often than a device may register are not told as what the service does', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { workflowId: 'check-in' } });
		for (let edit = 0; edit < 12; edit += 1) {
			await device.home.writeSettings({ workflowId: 'check-in', deviceType: `type-${edit}` });
			await device.daemon.reload();
			await device.untilStatus(({ deviceType, warnings }) => deviceType === `type-${edit}` || warnings.length > 0);
		}
		const [told] = (await device.untilStatus(({ warnings }) => warnings.length > 0)).warnings;
		expect(told).toMatchObject({ code: 'registering-too-often', message: expect.stringContaining('its settings') });
		expect(told?.remedy).not.toContain('service');
	});

	test('are all used when several reloads come at once', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const reloads: Promise<void>[] = [];
		for (const workflowId of ['a', 'b', 'boarding']) {
			await device.home.writeSettings({ workflowId });
			reloads.push(device.daemon.reload());
		}
		await Promise.all(reloads);
		await device.untilLive('boarding');
	});
});

describe('a credential that is pushed later than the settings that name it', () => {
	test('is waited for by a device that is not paired, and the sentence says so', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const apiKeyFile = `${device.home.directory}/key`;
		await device.home.writeSettings({ baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } });
		await device.daemon.reload();
		expect(device.agent.status().sentence).toContain(
			`Not paired: credential.apiKeyFile: the credential file ${apiKeyFile}`,
		);
		await device.home.secretFile('key', service.credentials.apiKey);
		expect(await device.untilLive('check-in')).toMatchObject({ warnings: [] });
	});
});

test.each([
	['settings file', ({ paths }: Home) => paths.configFile],
	['file of conf.d', ({ paths }: Home) => join(paths.confDirectory, '50.json')],
])('a %s that changes while the agent starts is taken [F1595]', async (_, fileOf) => {
	const home = await givenHome();
	const lock = join(home.paths.stateDir, 'lock.db');
	await home.writeSettings({ heartbeatCadence: 33 });
	const starting = givenAgent({ home });
	// After the settings were read, and before they are watched.
	await expect.poll(() => existsSync(lock), { interval: 1 }).toBe(true);
	writeFileSync(fileOf(home), '{ "heartbeatCadence": 77 }');
	const device = await starting;
	const inForce = () => device.agent.ways.runtime().resolved.settings.heartbeatCadence;
	await expect.poll(inForce).toBe(77);
});
