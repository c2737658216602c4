import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { describePairedAt, describePlan } from '../../src/cli/status.runner.ts';
import { statusSchema } from '../../src/protocol/local-answers.ts';
import { credentialsOf } from '../service/fixture.ts';
import { atTheEndOfAll, BIN, follow, givenHome } from './command.ts';
import { asProcess, type Device, givenDevice, givenPaired, givenProvisioned } from './device.ts';
import { expectJsonRefusal, expectRefusal } from './refusal.ts';

/** Events without their ids and times. */
const kindsOf = (lines: string) =>
	lines
		.trimEnd()
		.split('\n')
		.map((line) => JSON.parse(line).kind);

test('a time of pairing that is to come has its day, and does not call a clock wrong that was set back later [F933]', () => {
	const tomorrow = new Date(Date.now() + 24 * 3_600_000 - 60_000).toISOString();
	expect(describePairedAt(tomorrow, 'wrong clock')).toMatch(
		/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(by this device's clock, which has been set back since\)$/,
	);
	const soon = new Date(Date.now() + 1000).toISOString();
	expect(describePairedAt(soon, 'wrong clock')).toMatch(/^\d{4}-/);
	expect(describePairedAt('1976-01-01T12:00:00.000Z', 'wrong clock')).toMatch(/^1976-01-01 .*which was wrong\)$/);
	expect(describePairedAt('2026-01-01T12:00:00.000Z', undefined)).not.toContain('clock');
});

test('the plan is told with what comes next, and whose revision says so', () => {
	const plan = { revision: 7, followed: 7, rule: 'lobby', workflowId: 'a', refused: null, checkedAt: null };
	const next = { workflowId: 'b', at: '2001-02-03T04:05:06.000Z' };
	expect(describePlan({ ...plan, next: null })).toBe('revision 7, rule lobby');
	expect(describePlan({ ...plan, next: { ...next, revision: 7 } })).toMatch(
		/^revision 7, rule lobby; workflow b at 2001-/,
	);
	expect(describePlan({ ...plan, next: { ...next, revision: 8 } })).toMatch(/; revision 8 with workflow b at 2001-/);
});

describe('on a paired device that is online', () => {
	const atTheEnd = atTheEndOfAll();
	let device: Device;
	beforeAll(async () => {
		device = await givenPaired({ atTheEnd });
	});

	test('status --exit-code is 0 while online', async () => {
		const { stdout, status } = await device.home.agent(['status', '--exit-code']);
		expect([status, stdout.split('\n')[0]]).toEqual([0, expect.stringMatching(/^Online/)]);
	});

	test('status is a sentence and a table', async () => {
		const { home, service } = device;
		const { stdout, stderr, status } = await home.agent(['status']);
		const { host } = new URL(service.url);
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
		expect(stdout.split('\n').map((line) => line.replaceAll(/(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d/g, 'TIME'))).toEqual([
			`Online with ${host}, workflow document-check.`,
			'',
			'Device     KIOSK-7, kiosk',
			`Service    ${service.url}, paired TIME`,
			'Workflow   document-check, set by the pairing',
			'Channel    online since TIME, 0 reconnects',
			expect.stringMatching(/^Heartbeat {2}(TIME|none yet)$/),
			expect.stringMatching(/^Agent {6}\d+\.\d+\.\d+\S*, runs since TIME$/),
			'',
		]);
	});

	test('status --json keeps to its schema', async () => {
		expect(statusSchema.parse(await device.home.status())).toMatchObject({
			state: 'online',
			deviceId: 'KIOSK-7',
			workflow: { wanted: 'document-check', live: 'document-check', source: 'pairing' },
			problem: null,
		});
	});

	test('workflow show says wanted, by whom, and live', async () => {
		const { home } = device;
		const [plain, json] = await Promise.all([
			home.agent(['workflow', 'show']),
			home.agent(['workflow', 'show', '--json']),
		]);
		expect(plain.stdout).toBe('Wanted  document-check, set by the pairing\nLive    document-check\n');
		expect(JSON.parse(json.stdout)).toMatchObject({
			wanted: 'document-check',
			live: 'document-check',
			source: 'pairing',
		});
	});

	test('workflow set refuses what can be no name', async () => {
		const { home } = device;
		const names = [' leading', 'a\u0007b', 'x'.repeat(200)];
		for (const outcome of await Promise.all(names.map((name) => home.agent(['workflow', 'set', name])))) {
			expect(outcome.status).toBe(65);
			expect(outcome.stderr).toMatch(/^Error: .*workflowId.* \[body-invalid\]\n$/);
		}
		expect(await home.status()).toMatchObject({ workflow: { wanted: 'document-check' } });
	});

	test('identity says where each value comes from, and that it is pinned', async () => {
		const { home } = device;
		const [plain, json] = await Promise.all([home.agent(['identity']), home.agent(['identity', '--json'])]);
		expect(plain.stdout).toMatch(/^Device id +KIOSK-7 +configured\nSerial .*\nMAC address .*\n\nPinned: /);
		expect(JSON.parse(json.stdout)).toMatchObject({
			deviceId: { value: 'KIOSK-7', source: 'configured' },
			pinned: true,
		});
	});

	test('events are a line each; with --json one document a line; --since is after that one', async () => {
		const { home, service } = device;
		const following = follow('idv-agent', ['events', '--follow', '--json'], home.env);
		service.notify({ type: 'hello', id: 'n-1', text: 'one\ntwo \u001b[31m' });
		service.sendRaw('not JSON at all');
		await following.untilLine(/"kind":"text"/);
		const { id } = JSON.parse(await following.untilLine(/"kind":"hello"/));
		const [plain, json, after] = await Promise.all([
			home.agent(['events']),
			home.agent(['events', '--json']),
			home.agent(['events', '--since', id, '--json']),
		]);
		expect(kindsOf(json.stdout)).toEqual(['gap', 'hello', 'text']);
		expect(kindsOf(after.stdout)).toEqual(['text']);
		expect(JSON.parse(after.stdout).data).toBe('not JSON at all');
		const lines = plain.stdout.trimEnd().split('\n');
		expect(lines).toHaveLength(3);
		expect(lines[1]).toMatch(/^\S+ {2}\d\d:\d\d:\d\d {2}hello {2}\{"type":"hello","id":"n-1"/);
		expect(plain.stdout).not.toContain('\u001b');
	});

	test('events show numbers and equal names as the service wrote them [F1341]', async () => {
		const { home, service } = device;
		const following = follow('idv-agent', ['events', '--follow', '--json'], home.env);
		const sent = '{"type":"exact","id":"n-9","v":9007199254740993,"w":1.10,"a":1,"a":2}';
		service.sendRaw(sent);
		expect(await following.untilLine(/"kind":"exact"/)).toContain(`"data":${sent}`);
		const [plain, json] = await Promise.all([home.agent(['events']), home.agent(['events', '--json'])]);
		expect(plain.stdout).toContain(`exact  ${sent}\n`);
		expect(json.stdout).toContain(`"data":${sent}`);
	});

	test('events after an id that was never given is bad data', async () => {
		const { home } = device;
		const since = ['events', '--since', 'yesterday'];
		const [plain, json] = await Promise.all([home.agent(since), home.agent([...since, '--json'])]);
		const desired = { status: 65, code: 'body-invalid', words: /since is not the id of an event/ };
		expectRefusal(plain, desired);
		expectJsonRefusal(json, desired);
	});

	test('events into a pipe that nobody reads any more end quietly', async () => {
		const { home, service } = device;
		const { PATH = '' } = process.env;
		const child = spawn(join(BIN, 'idv-agent'), ['events', '--follow'], {
			env: { PATH, ...home.env },
			stdio: ['ignore', 'pipe', 'pipe'],
		});
		const stderr = text(child.stderr);
		await once(child.stdout, 'data');
		child.stdout.destroy();
		service.notify({ type: 'unread' });
		expect(await once(child, 'close')).toEqual([0, null]);
		expect(await stderr).toBe('');
	});

	test('a message that an operator sends by hand reaches the devices that it is for', async () => {
		const { home, service } = device;
		const env = { IDV_AUTHORIZATION: `Bearer ${credentialsOf(service).Bearer.credential}` };
		const notify = (...flags: string[]) =>
			home.agent(['service', 'notify', '{"type":"hello"}', '--url', service.url, ...flags], { env });
		const outcomes = await Promise.all([
			notify(),
			notify('--device', 'KIOSK-7', '--json'),
			notify('--device', 'KIOSK-8'),
			notify('--workflow', 'face-check', '--json'),
		]);
		expect(outcomes.map(({ status, stdout }) => [status, stdout])).toEqual([
			[0, 'Sent to 1 device.\n'],
			[0, '{"reached":1}\n'],
			[0, 'Sent to 0 devices.\n'],
			[0, '{"reached":0}\n'],
		]);
	});
});

test('a workflow that a passing fault has refused is to be set again: the device does not follow it later [F1333]', async () => {
	const { home, service } = await givenPaired({ atTheEnd: onTestFinished });
	service.failNext('/api/device/connection', { status: 500 });
	const { stderr } = await home.agent(['workflow', 'set', 'face-check', '--wait', '2']);
	expect(stderr).toMatch(/Nothing has changed: document-check stays\..*Then run this command again\./s);
	expect((await home.agent(['status'])).stdout).toMatch(/Workflow +document-check, set by/);
});

test('a wait that the service has asked for is told as its wish [F1382]', async () => {
	const { home, service } = await givenPaired({ atTheEnd: onTestFinished });
	service.failNext('/ws/device', { status: 503, headers: { 'retry-after': '600' } }, 9);
	service.closeChannels(1001, 'maintenance');
	await expect
		.poll(async () => (await home.agent(['status'])).stdout, { timeout: 40_000 })
		.toMatch(/^Next try +.*\d \(the service asked to wait for 10 min\)$/m);
});

test('events of a program on the socket that is no agent are told as that, in one sentence [F1358]', async () => {
	const home = await givenHome();
	const runDir = home.env['IDV_AGENT_RUN_DIR'] ?? '';
	await mkdir(runDir, { recursive: true });
	const other = createServer((_request, response) => response.end('hello'));
	await new Promise<void>((resolve) => other.listen(join(runDir, 'agent.sock'), resolve));
	onTestFinished(() => void other.close());
	const told = await home.agent(['events']);
	expectRefusal(told, { status: 69, code: 'bad-response', words: /The answer, with status 200, is not JSON/ });
});

test('an audit that is read too slowly for the agent ends with that, not with an agent that has stopped', async () => {
	const home = await givenHome();
	const runDir = home.env['IDV_AGENT_RUN_DIR'] ?? '';
	await mkdir(runDir, { recursive: true });
	const other = createServer((_request, response) => {
		response.writeHead(200, { 'content-type': 'text/event-stream' });
		response.end('event: closed\ndata: {"reason":"slow"}\n\n');
	});
	await new Promise<void>((resolve) => other.listen(join(runDir, 'admin.sock'), resolve));
	onTestFinished(() => void other.close());
	const told = await home.agent(['audit', '--follow']);
	expectRefusal(told, {
		status: 69,
		code: 'connection-lost',
		words: /Run the command again: it begins with the oldest/,
	});
});

test.each([
	['events', ['events', '--follow', '--json']],
	['status', ['status', '--watch', '--json']],
])('what reads %s too slowly for the agent goes on after what it has, without a word', async (event, args) => {
	const home = await givenHome();
	const runDir = home.env['IDV_AGENT_RUN_DIR'] ?? '';
	await mkdir(runDir, { recursive: true });
	const asked: (string | undefined)[] = [];
	const other = createServer(({ url }, response) => {
		asked.push(url?.split('?')[1]);
		response.writeHead(200, { 'content-type': 'text/event-stream' });
		const one = JSON.stringify({ type: 'gap', at: '2026-02-03T04:05:06.000Z', data: `part ${asked.length}` });
		response.write(`id: ${asked.length}\nevent: ${event}\ndata: ${one}\n\n`);
		if (asked.length < 3) response.end('event: closed\ndata: {"reason":"slow"}\n\n');
	});
	await new Promise<void>((resolve) => other.listen(join(runDir, 'agent.sock'), resolve));
	onTestFinished(() => void other.close());
	const following = follow('idv-agent', args, home.env);
	await following.untilLine(/part 3/);
	expect((await following.end()).stderr).toBe('');
	expect(asked).toEqual(event === 'events' ? [undefined, 'since=1', 'since=2'] : [undefined, undefined, undefined]);
});

test('a workflow for which the service has ended the channel from before goes on, and the command says so [F1336]', async () => {
	const { home, service } = await givenPaired({ atTheEnd: onTestFinished });
	service.on('registered', () => service.closeChannels(1008, 'replaced'));
	service.failNext('/ws/device', { status: 500 }, 2);
	const { stderr } = await home.agent(['workflow', 'set', 'face-check', '--wait', '20']);
	expect(stderr).toMatch(/The device changes to face-check: .*ended the earlier channel\./);
	await expect
		.poll(async () => (await home.agent(['status'])).stdout, { timeout: 40_000 })
		.toMatch(/^Online with .*face-check\.$/m);
});

describe('moving a device to another workflow', () => {
	const atTheEnd = atTheEndOfAll();
	let device: Device;
	beforeAll(async () => {
		device = await givenPaired({ atTheEnd });
	});

	test('waits until it is live; --json is the status that came of it', async () => {
		const { home } = device;
		const plain = await home.agent(['workflow', 'set', 'face-check']);
		expect(plain).toMatchObject({
			status: 0,
			stdout: expect.stringMatching(/^Online with .*, workflow face-check\.\n$/),
		});
		const json = await home.agent(['workflow', 'set', 'document-check', '--json']);
		expect(statusSchema.parse(JSON.parse(json.stdout)).workflow).toMatchObject({
			wanted: 'document-check',
			live: 'document-check',
			source: 'workflow set',
		});
	});

	test('that takes too long ends with 75, and goes on', async () => {
		const { home, service } = device;
		await home.agent(['workflow', 'set', 'document-check']);
		const release = service.hold('/api/device/connection');
		const { status, stdout, stderr } = await home.agent(['workflow', 'set', 'face-check', '--wait', '0']);
		expect(stdout).toMatch(/^Online with .*, workflow document-check; moving to workflow face-check\.\n$/);
		expect(stderr).toBe(
			'Warning: face-check is not live after 0 s. The agent continues automatically; idv-agent status shows the result.\n',
		);
		expect(status).toBe(75);
		const moved = service.waitFor('device-online', ({ workflowId }) => workflowId === 'face-check');
		release();
		await moved;
	});

	test('that the service does not know leaves it online, and every command says why', async () => {
		const { home } = device;
		await home.agent(['workflow', 'set', 'document-check']);
		const plain = await home.agent(['workflow', 'set', 'no-such']);
		expectRefusal(plain, { status: 65, code: 'workflow-unknown', words: /does not know the workflow no-such.*exact/ });
		const json = await home.agent(['workflow', 'set', 'no-such', '--json']);
		expect(JSON.parse(json.stdout)).toMatchObject({
			error: { code: 'workflow-unknown' },
			status: { state: 'online', workflow: { wanted: 'document-check', live: 'document-check' }, problem: null },
		});
		expect(json.status).toBe(65);
		expect(plain.stderr).toContain('Nothing has changed: document-check stays.');
		expect((await home.agent(['status'])).stdout).toMatch(/Workflow +document-check, set by/);
	});

	test('that is only asked for stays, and every command says why it is not live', async () => {
		const { home } = device;
		await home.agent(['workflow', 'set', 'document-check']);
		await home.agent(['workflow', 'set', 'no-such', '--wait', '0']);
		const status = () => home.agent(['status']).then(({ stdout }) => stdout);
		await expect.poll(status).toMatch(/Problem +workflow-unknown/);
		expect(await status()).toMatch(/Workflow +document-check; wanted is no-such, set by "idv-agent workflow set"/);
	});

	test('that two commands ask for at once: the one that is late says what the other one has asked for', async () => {
		const { home, service } = device;
		await home.agent(['workflow', 'set', 'document-check']);
		const release = service.hold('/api/device/connection');
		const patient = home.agent(['workflow', 'set', 'face-check', '--wait', '60']);
		await expect.poll(async () => (await home.status()).workflow.wanted).toBe('face-check');
		const late = await home.agent(['workflow', 'set', 'face-check', '--wait', '1']);
		const words = /changed nothing: document-check is live, and another command has asked for face-check\./;
		expectRefusal(late, { status: 75, code: 'request-timeout', words });
		release();
		expect((await patient).status).toBe(0);
	});

	test('whose answer is late ends with 75, and nothing has changed', async () => {
		const { home, service } = device;
		await home.agent(['workflow', 'set', 'document-check']);
		const release = service.hold('/api/device/connection');
		const late = await home.agent(['workflow', 'set', 'face-check', '--wait', '1']);
		expectRefusal(late, { status: 75, code: 'request-timeout', words: /not live after 1 s.*document-check stays/ });
		release();
		expect(await home.status()).toMatchObject({ workflow: { wanted: 'document-check', live: 'document-check' } });
	});

	test('while which the agent is killed says that it is not set, and the next start takes it back [F664]', async () => {
		const { home, service, daemon } = await givenPaired({}, asProcess);
		service.hold('/api/device/connection');
		const waiting = home.agent(['workflow', 'set', 'face-check', '--wait', '60']);
		await expect.poll(async () => (await home.status()).workflow.wanted).toBe('face-check');
		await daemon.end('SIGKILL');
		expectRefusal(await waiting, {
			status: 69,
			code: 'agent-not-running',
			words: /ended.*face-check is not set unless/,
		});
		await home.run();
		expect((await home.status()).workflow.wanted).toBe('document-check');
	});

	test('against the settings names where to change it', async () => {
		const { home } = await givenProvisioned();
		const outcome = await home.agent(['workflow', 'set', 'face-check']);
		expectRefusal(outcome, { status: 78, code: 'workflow-fixed', words: /document-check.*config\.json/ });
		const status = await home.agent(['status']);
		expect(status.stdout).toMatch(/Workflow +document-check, set by the settings files/);
	});
});

describe('going offline and coming back', () => {
	test('is shown by status --watch, as sentences and as JSON', async () => {
		const { home, service } = await givenPaired();
		const plain = follow('idv-agent', ['status', '--watch'], home.env);
		const json = follow('idv-agent', ['status', '--watch', '--json'], home.env);
		await Promise.all([plain.untilLine(/^\d\d:\d\d:\d\d {2}Online with/), json.untilLine(/"state":"online"/)]);
		service.closeChannels(1012);
		const offline = await json.untilLine(/"state":"offline"/);
		expect(statusSchema.parse(JSON.parse(offline)).channel.nextAttemptAt).not.toBeNull();
		await plain.untilLine(/^\d\d:\d\d:\d\d {2}Offline for/);
		service.notify({ type: 'hello', id: 'n-1' });
		expect(await home.agent(['reconnect'])).toMatchObject({ status: 0, stdout: expect.stringMatching(/^Online with/) });
		const { status, stdout } = await plain.end('SIGINT');
		expect(status).toBe('SIGINT');
		const sentences = stdout
			.trimEnd()
			.split('\n')
			.map((line) => line.slice(10));
		expect(sentences.filter((sentence, index) => sentence === sentences[index - 1])).toEqual([]);
	});

	test('reconnect to a service that is away says so in one line', async () => {
		const { home, service } = await givenPaired();
		const watch = follow('idv-agent', ['status', '--watch'], home.env);
		await service.close();
		await watch.untilLine(/Offline/);
		const told = await home.agent(['status', '--exit-code']);
		expect([told.status, told.stdout]).toEqual([
			75,
			expect.stringMatching(/\nChannel +(waiting to connect again|connecting) since /),
		]);
		const plain = await home.agent(['reconnect']);
		expectRefusal(plain, { status: 69, code: 'service-unreachable', words: /refuses connections/ });
		const json = await home.agent(['reconnect', '--json']);
		expect(JSON.parse(json.stdout)).toMatchObject({
			error: { code: 'service-unreachable' },
			status: { state: 'offline' },
		});
	});

	test('reconnect of a device that registers again waits for how that goes', async () => {
		const { home, service } = await givenProvisioned();
		service.failNext('/api/device/connection', { status: 503 });
		expect(await home.agent(['unpair'])).toMatchObject({ status: 0 });
		await expect.poll(async () => (await home.status()).channel.state).toBe('registerWait');
		expect(await home.agent(['reconnect', '--wait', '0'])).toMatchObject({ status: 0, stderr: '' });
		expect(await home.agent(['reconnect'])).toMatchObject({ status: 0, stdout: expect.stringMatching(/^Online with/) });
	});

	test('an agent that stops ends status --watch with 69, which is said beside the documents [F785]', async () => {
		const { home, daemon } = await givenPaired();
		const following = follow('idv-agent', ['status', '--watch', '--json'], home.env);
		await following.untilLine(/"online"/);
		await daemon.end();
		const { status, stdout, stderr } = await following.ended;
		expect([status, stderr]).toEqual([
			69,
			expect.stringMatching(/^Error: The agent has stopped\..*\[agent-not-running]\n$/),
		]);
		for (const line of stdout.trimEnd().split('\n')) expect(JSON.parse(line)).toHaveProperty('state');
	});

	test.each(['SIGTERM', 'SIGKILL'] as const)(
		'events --follow goes on after the last one when the agent is back after %s, and says so once [F784]',
		async (signal) => {
			const { service, home, daemon } = await givenPaired({}, asProcess);
			const following = follow('idv-agent', ['events', '--follow', '--json'], home.env);
			service.notify({ type: 'before' });
			await following.untilLine(/"kind":"before"/);
			await daemon.end(signal);
			const online = service.waitFor('device-online');
			await home.run();
			await online;
			service.notify({ type: 'after' });
			await following.untilLine(/"kind":"after"/);
			const { stdout, stderr } = await following.end();
			const kinds = kindsOf(stdout).filter((kind) => kind !== 'gap');
			expect([kinds, stderr]).toEqual([
				['before', 'after'],
				'Warning: The agent has stopped. Waiting for it to be back.\n',
			]);
		},
	);
});

describe('a device that is not paired', () => {
	test('says what to do next, and has nothing to reconnect', async () => {
		const { home } = await givenDevice();
		const [status, reconnect, unpair] = await Promise.all([
			home.agent(['status']),
			home.agent(['reconnect']),
			home.agent(['unpair']),
		]);
		expect(status.stdout).toMatch(/^Not paired: scan a pairing code, or run idv-agent pair\.\n/);
		expect(status.stdout).toMatch(/Service +none yet\nWorkflow +none\nChannel +none\n/);
		expectRefusal(reconnect, { status: 69, code: 'unpaired', words: /pairing code/ });
		expect(unpair).toMatchObject({
			status: 0,
			stdout: expect.stringMatching(
				/^There was no Connection to forget; events that were kept are erased\. Not paired/,
			),
		});
	});

	test('is one that was unpaired: it says from where, and no token is left', async () => {
		const { home, service } = await givenPaired();
		const { connections } = JSON.parse(await readFile(join(home.stateDir, 'state.json'), 'utf8'));
		const { stdout } = await home.agent(['unpair']);
		expect(stdout).toMatch(/^Unpaired from .*: the Connection is forgotten with its events\. Not paired: .*\n$/);
		expect(stdout).toContain(service.url);
		for (const name of await readdir(home.stateDir))
			expect(await readFile(join(home.stateDir, name), 'utf8')).not.toContain(connections[0].token);
	});

	test('is not one with a credential of its own: unpair says that it registers again', async () => {
		const { home } = await givenProvisioned();
		const { status, stdout } = await home.agent(['unpair']);
		expect(stdout).toMatch(/settings still hold a credential: the device registers again/);
		expect(status).toBe(0);
	});
});

describe('identity without a running agent', () => {
	test('is what this machine and the last pairing say', async () => {
		const { home, daemon } = await givenPaired();
		await daemon.end();
		await home.writeSettings({ serial: 'SN-0815' });
		const [plain, json] = await Promise.all([home.agent(['identity']), home.agent(['identity', '--json'])]);
		expect(plain).toMatchObject({ status: 0, stderr: '' });
		expect(plain.stdout).toMatch(/^The agent is not running; this is what it would find on this machine now\.\n/);
		expect(plain.stdout).toMatch(/Device id +KIOSK-7 +configured\nSerial +SN-0815 +configured\n/);
		expect(plain.stdout).toMatch(/\nPinned: /);
		expect(JSON.parse(json.stdout)).toMatchObject({
			agentRunning: false,
			pinned: true,
			serial: { value: 'SN-0815' },
		});
	});

	test('works with settings and a state that cannot be used, and says so', async () => {
		const home = await givenHome('{ broken');
		const { status, stdout, stderr } = await home.agent(['identity', '--state-dir', `${home.configFile}/state`]);
		expect(status).toBe(0);
		expect(stdout).toMatch(/Device id +KIOSK-7/);
		expect(stderr).toMatch(/^Warning: .*config\.json: line 1, column 3/m);
	});
});
