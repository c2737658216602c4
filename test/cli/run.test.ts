import { once } from 'node:events';
import { readFile, watch } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { followSentence } from '../../src/cli/run.ts';
import { LOCAL_ROUTES, LOCAL_SOCKETS, type Status } from '../../src/protocol/local-api.ts';
import { follow, givenHome, type Home } from './command.ts';
import { asProcess, givenDevice, givenPaired, givenProvisioned } from './device.ts';
import { expectJsonRefusal, expectRefusal } from './refusal.ts';

/** It ends by itself within 3 s; the rest is for a machine that is busy with other tests. */
const ENDED_WITHIN_MS = 6000;

describe('run', () => {
	test.each(['SIGTERM', 'SIGINT'] as const)(
		'%s closes the channel with 1001 and ends with 0 within 3 s',
		async (signal) => {
			const { service, daemon } = await givenProvisioned({}, asProcess);
			const closed = service.waitFor('channel-closed');
			const startedMs = performance.now();
			expect((await daemon.end(signal)).status).toBe(0);
			expect(performance.now() - startedMs).toBeLessThan(ENDED_WITHIN_MS);
			expect(await closed).toMatchObject({ code: 1001 });
		},
	);

	test('a signal during the start ends it with 0 as well', async () => {
		const home = await givenHome();
		// The state directory is the first thing that it makes, long before it is up.
		const madeSomething = watch(home.directory)[Symbol.asyncIterator]().next();
		const daemon = follow('idv-agent', ['run'], home.env);
		await madeSomething;
		const { status, stdout } = await daemon.end('SIGTERM');
		const messages = stdout
			.trimEnd()
			.split('\n')
			.map((line) => JSON.parse(line).msg);
		expect({ status, messages }).toEqual({ status: 0, messages: ['started', 'stopping'] });
	});

	test('ends within 3 s also when the service answers nothing any more', async () => {
		const { service, daemon } = await givenProvisioned({}, asProcess);
		service.goSilent(true);
		const startedMs = performance.now();
		expect((await daemon.end('SIGTERM')).status).toBe(0);
		expect(performance.now() - startedMs).toBeLessThan(ENDED_WITHIN_MS);
	});

	test('a code that is being spent is waited for, although its answer takes longer than the end may', async () => {
		const { service, home, daemon, code, pair } = await givenDevice({}, asProcess);
		const answer = service.hold('/api/device/connection');
		const pairing = pair(code());
		await answer.received;
		const ended = daemon.end('SIGTERM');
		setTimeout(answer, 3200);
		expect((await ended).status).toBe(0);
		const { connections } = JSON.parse(await readFile(join(home.stateDir, 'state.json'), 'utf8'));
		expect(connections).toHaveLength(1);
		await pairing;
	});

	test('comes back online after a restart without registering again', async () => {
		const { home, service, daemon, registrations } = await givenPaired({}, asProcess);
		await daemon.end();
		const online = service.waitFor('device-online');
		await home.run();
		await online;
		expect(registrations()).toBe(1);
	});

	test('takes changed settings on SIGHUP and keeps the old ones when they are bad', async () => {
		const { home, daemon } = await givenPaired({}, asProcess);
		await home.writeSettings({ workflowId: 'face-check' });
		process.kill(daemon.pid, 'SIGHUP');
		// The service sees it online sooner: what the agent does not know to work yet would not stay in force.
		await daemon.untilLine(/setting taken: workflowId = ..face-check/);
		await home.writeSettings({ workflowId: 7 });
		process.kill(daemon.pid, 'SIGHUP');
		await daemon.untilLine(/workflowId must be a text.*stays in force/);
		expect((await home.status()).workflow).toMatchObject({ wanted: 'face-check', source: 'file' });
	});

	test('what it has answered to be done is in the audit log, also when it is killed with the answer [F979]', async () => {
		const { home, daemon, code, pair } = await givenPaired({}, asProcess);
		let agent = daemon;
		for (const [method, path, action] of [
			['PUT', LOCAL_ROUTES.workflow, 'setWorkflow'],
			['POST', LOCAL_ROUTES.unpair, 'unpair'],
			['PUT', LOCAL_ROUTES.workflow, 'setWorkflow'],
		] as const) {
			if (agent !== daemon) await pair(code());
			const socketPath = join(home.env['IDV_AGENT_RUN_DIR'] ?? '', LOCAL_SOCKETS.admin);
			const headers = { 'content-type': 'application/json' };
			const asking = request({ socketPath, path, method, headers, agent: false });
			asking.end(method === 'PUT' ? JSON.stringify({ workflowId: 'face-check' }) : '');
			const [answer] = (await once(asking, 'response')) as [IncomingMessage];
			process.kill(agent.pid, 'SIGKILL');
			expect(answer.statusCode).toBe(200);
			await agent.ended;
			const { stdout } = await home.agent(['audit', '--json']);
			expect(stdout.split(`"action":"${action}"`).length - 1).toBe(agent === daemon || action === 'unpair' ? 1 : 2);
			agent = await home.run();
		}
	});

	test('never prints a credential', async () => {
		const { service, home, daemon } = await givenProvisioned({ log: { level: 'debug' } }, asProcess);
		const { stdout, stderr } = await daemon.end();
		const { connections } = JSON.parse(await readFile(join(home.stateDir, 'state.json'), 'utf8'));
		expect(connections).toHaveLength(1);
		for (const secret of [service.credentials.apiKey, connections[0].token])
			expect(stdout + stderr).not.toContain(secret);
	});

	test('on a fresh device names everything that is wrong with the settings, one line each', async () => {
		const home = await givenHome({ heartbeatCadance: 1, heartbeatCadence: 'often', service: { channelPath: 5 } });
		const { status, stdout, stderr } = await home.agent(['run']);
		expect({ status, stdout }).toEqual({ status: 78, stdout: '' });
		const lines = stderr.trimEnd().split('\n');
		expect(lines).toHaveLength(3);
		expect(lines[0]).toMatch(
			/^Error: .*config\.json: line 1, column 21: heartbeatCadance is not a setting; did you mean heartbeatCadence\?/,
		);
		expect(lines[1]).toMatch(/heartbeatCadence must be a whole number/);
		expect(lines[2]).toMatch(/service\.channelPath must be a text\. Correct the settings.*\[settings-invalid\]$/);
	});

	test.each<[what: string, flags: (home: Home) => string[], status: number, code: string, words: RegExp]>([
		[
			'a settings file that is not there',
			() => ['--config', '/nonexistent/config.json'],
			78,
			'settings-unreadable',
			/not there/,
		],
		[
			'a state directory that cannot be',
			({ configFile }) => ['--state-dir', `${configFile}/state`],
			74,
			'state-unwritable',
			/writable state directory/,
		],
		[
			'a run directory that cannot be',
			({ configFile }) => ['--run-dir', `${configFile}/run`],
			74,
			'socket-failed',
			/run directory/,
		],
		[
			'two credentials',
			({ configFile }) => [
				'--set',
				`credential.apiKeyFile=${configFile}`,
				'--set',
				`credential.basicFile=${configFile}`,
				'--set',
				'baseUrl=https://id.example.com',
			],
			78,
			'settings-invalid',
			/only one of them/,
		],
	])('%s is refused in one line', async (_, flags, status, code, words) => {
		const home = await givenHome();
		const given = flags(home);
		const other = given.includes('--state-dir') ? [] : ['--state-dir', `${home.stateDir}2`];
		const [plain, json] = await Promise.all([
			home.agent(['run', ...given]),
			home.agent(['run', '--json', ...given, ...other]),
		]);
		expectRefusal(plain, { status, code, words });
		expectJsonRefusal(json, { status, code, words });
	});

	test('a second agent on the same state directory is refused; the first one goes on', async () => {
		const { home } = await givenPaired({}, asProcess);
		const stored = () => readFile(join(home.stateDir, 'state.json'), 'utf8');
		// The agent saves once more when its Connection has worked.
		await expect.poll(stored).toMatch(/"worked": true/);
		const before = await stored();
		const second = await home.agent(['run', '--run-dir', `${home.directory}/run2`]);
		expectRefusal(second, { status: 75, code: 'state-in-use', words: /state directory of its own/ });
		expect(await stored()).toBe(before);
		expect(await home.status()).toMatchObject({ state: 'online' });
	});

	test('goes on with the last valid settings after a bad push, and the status says so', async () => {
		const { home, daemon, service } = await givenProvisioned({}, asProcess);
		await daemon.end();
		await home.writeSettings({ workflowId: 7 });
		const online = service.waitFor('device-online');
		await home.run();
		await online;
		expect((await home.agent(['status'])).stdout).toMatch(
			/Warning +.*workflowId must be a text\. Its value from before stays in force\./,
		);
	});
});

describe('what systemd is told', () => {
	test('is each new sentence, and how long the device has been offline while nothing happens', async () => {
		let minutes = 0;
		let state: Status['state'] = 'offline';
		let tell = () => {};
		const said: string[] = [];
		let afterwards = Promise.withResolvers<void>();
		const agent = {
			status: () => {
				if (state === 'offline') minutes += 1;
				const sentence = state === 'offline' ? `Offline for ${minutes} min.` : 'Online.';
				return { state, sentence, workflow: { waitsUntil: null } } as Status;
			},
			onStatus(listener: () => void) {
				tell = listener;
				return () => {
					tell = () => {};
				};
			},
		};
		const end = followSentence(
			agent,
			(sentence) => {
				said.push(sentence);
				afterwards.resolve();
			},
			1,
		);
		// Told once; the rest is a matter of time.
		tell();
		for (let times = 0; times < 3; times += 1) {
			await afterwards.promise;
			afterwards = Promise.withResolvers();
		}
		expect(said.slice(0, 3)).toEqual(['Offline for 1 min.', 'Offline for 2 min.', 'Offline for 3 min.']);
		state = 'online';
		tell();
		expect(said.at(-1)).toBe('Online.');
		end();
	});
});
