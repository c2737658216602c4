import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { statusSchema } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.ts';
import { drawCode, encodePng, prepareWriter, sideBySide } from '../fixtures/pictures/draw.ts';
import { givenService } from '../service/fixture.ts';
import { finish, follow, givenHome, type Home, type Outcome } from './command.ts';

const WORKFLOWS = ['document-check', 'face-check'];

function codeFrom(service: EmbeddedService, workflowId: string | null = 'document-check'): string {
	return service.createPairingCode(workflowId).url;
}

function pair(home: Home, service: EmbeddedService, code = codeFrom(service), ...flags: string[]): Promise<Outcome> {
	return home.agent(['pair', '-', '--trust', new URL(service.url).origin, ...flags], { input: `${code}\n` });
}

async function givenPaired(
	settings?: unknown,
): Promise<{ home: Home; service: EmbeddedService; daemon: Awaited<ReturnType<Home['run']>> }> {
	const service = await givenService({ workflows: WORKFLOWS });
	const home = await givenHome(settings);
	const daemon = await home.run();
	expect(await pair(home, service)).toMatchObject({ status: 0 });
	return { home, service, daemon };
}

/** One line on stderr: what is wrong, what to do, the permanent code. */
function expectRefusal({ status, stderr }: Outcome, wanted: { status: number; code: string; words: RegExp }): void {
	expect(stderr.trimEnd().split('\n')).toHaveLength(1);
	expect(stderr).toMatch(wanted.words);
	expect(stderr).toMatch(new RegExp(`^Error: .+\\. .+ \\[${wanted.code}\\]\\n$`));
	expect(status).toBe(wanted.status);
}

describe('run', () => {
	test('ends with 0 on SIGTERM and closes the channel with 1001', async () => {
		const { service, daemon } = await givenPaired();
		const closed = service.waitFor('channel-closed');
		expect((await daemon.end('SIGTERM')).status).toBe(0);
		expect(await closed).toMatchObject({ code: 1001 });
	});

	test('comes back online after a restart without registering again', async () => {
		const { home, service, daemon } = await givenPaired();
		await daemon.end();
		const online = service.waitFor('device-online');
		await home.run();
		await online;
		expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	});

	test('takes changed settings on SIGHUP and keeps the old ones when they are bad', async () => {
		const { home, service, daemon } = await givenPaired();
		await home.writeSettings({ workflowId: 'face-check' });
		const moved = service.waitFor('device-online', ({ workflowId }) => workflowId === 'face-check');
		process.kill(daemon.pid, 'SIGHUP');
		await moved;
		await home.writeSettings('{ "workflowId": 7 }');
		process.kill(daemon.pid, 'SIGHUP');
		await daemon.untilLine(/workflowId must be a text.*stay in force/);
		expect((await home.status()).workflow).toMatchObject({ wanted: 'face-check', source: 'file' });
	});

	test('refuses a state directory that another agent uses', async () => {
		const { home } = await givenPaired();
		expectRefusal(await home.agent(['run']), {
			status: 75,
			code: 'state-in-use',
			words: /Another process uses the state/,
		});
	});

	test.each([
		['{ "heartbeatCadance": 10 }', /heartbeatCadance is not a setting; did you mean heartbeatCadence\?/],
		['{ "service": { "channelPath": 5 } }', /service\.channelPath must be a text/],
		['{ "heartbeatCadence": "often" }', /heartbeatCadence must be a/],
		['{ "baseUrl": "http://id.example.com" }', /baseUrl must begin with https/],
		['{ broken', /config\.json.*line 1/],
	])('on a fresh device ends with 78 for %s', async (text, words) => {
		const home = await givenHome(text);
		const outcome = await home.agent(['run']);
		expect(outcome.status).toBe(78);
		expect(outcome.stderr).toMatch(words);
	});
});

describe('pair', () => {
	test('shows host, workflow and kind of code, and says that it is online', async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome();
		await home.run();
		const { status, stdout } = await pair(home, service);
		expect(stdout).toContain(new URL(service.url).host);
		expect(stdout).toMatch(/Workflow +document-check/);
		expect(stdout).toMatch(/Short Token/);
		expect(stdout).toMatch(/Paired\. Online with .*, workflow document-check\./);
		expect(status).toBe(0);
	});

	test('reads a picture', async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome({ pairing: { trustedOrigins: [new URL(service.url).origin] } });
		await home.run();
		await prepareWriter();
		const picture = join(home.directory, 'code.png');
		await writeFile(picture, encodePng(await drawCode(codeFrom(service), 'AztecCode')));
		expect((await home.agent(['pair', '--image', picture, '--json'])).stdout).toMatch(/"online":true/);
	});

	test('--inspect spends nothing', async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome();
		await home.run();
		const code = codeFrom(service);
		const inspected = await pair(home, service, code, '--inspect');
		expect(inspected).toMatchObject({ status: 0 });
		expect(inspected.stdout).toMatch(/document-check/);
		expect(service.requests).toHaveLength(0);
		expect(await pair(home, service, code)).toMatchObject({ status: 0 });
	});

	test('at a terminal hides what is typed and asks about an unknown host', async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome();
		await home.run();
		const code = codeFrom(service);
		const typed = await atTerminal(home, 'pair', [
			['then Enter: ', `${code}\r`],
			['[y/n] ', 'y\r'],
		]);
		expect(typed).toMatch(/Paired\. Online/);
		expect(typed).not.toContain(new URL(code).searchParams.get('authorization')?.slice('Token '.length));
	});

	test('a no at the terminal spends nothing', async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome();
		await home.run();
		const typed = await atTerminal(home, 'pair', [
			['then Enter: ', `${codeFrom(service)}\r`],
			['[y/n] ', 'n\r'],
		]);
		expect(typed).toMatch(/origin-unconfirmed/);
		expect(service.requests).toHaveLength(0);
	});

	test('refuses each kind of bad input in one line, and nothing is lost', async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome({ pairing: { trustedOrigins: [new URL(service.url).origin] } });
		await home.run();
		await prepareWriter();
		const file = async (name: string, content: string | Uint8Array) => {
			await writeFile(join(home.directory, name), content);
			return join(home.directory, name);
		};
		const code = await drawCode(codeFrom(service));
		const other = await drawCode(codeFrom(service));
		const blank = { width: 80, height: 80, pixels: new Uint8Array(6400).fill(255) };
		const spent = codeFrom(service);
		const unknown = codeFrom(service).replace(/tr-\w{4}/, 'tr-0000');
		const typed = (input: string, ...flags: string[]) => home.agent(['pair', '-', ...flags], { input });
		const picture = (path: string) => home.agent(['pair', '--image', path]);

		const cases: [() => Promise<Outcome>, Parameters<typeof expectRefusal>[1]][] = [
			[() => typed('garbage'), { status: 65, code: 'not-a-pairing-code', words: /not a pairing code/ }],
			[
				() => typed('x'.repeat(5000)),
				{ status: 65, code: 'not-a-pairing-code', words: /longer than any pairing code/ },
			],
			[() => typed(''), { status: 65, code: 'not-a-pairing-code', words: /Nothing was read/ }],
			[
				() => home.agent(['pair', codeFrom(service)]),
				{ status: 64, code: 'usage', words: /never given as an argument/ },
			],
			[
				() => typed('https://evil.example/mobile?authorization=Token%20tr-0123456789abcdefghijklmnop'),
				{ status: 77, code: 'code-for-other-origin', words: /evil\.example/ },
			],
			[() => typed(unknown), { status: 77, code: 'code-expired-or-used', words: /answered 401/ }],
			[() => typed(codeFrom(service, null)), { status: 64, code: 'workflow-missing', words: /names no workflow/ }],
			[
				() => typed(codeFrom(service, null), '--workflow', 'no-such'),
				{ status: 65, code: 'workflow-unknown', words: /no-such/ },
			],
			[() => picture(join(home.directory, 'none.png')), { status: 65, code: 'picture-unreadable', words: /none\.png/ }],
			[
				() => file('text.png', 'no picture').then(picture),
				{ status: 65, code: 'picture-unreadable', words: /text\.png/ },
			],
			[
				() => file('blank.png', encodePng(blank)).then(picture),
				{ status: 65, code: 'picture-without-code', words: /blank\.png|no code/i },
			],
			[
				() => file('two.png', encodePng(sideBySide(code, other))).then(picture),
				{ status: 65, code: 'picture-with-several-codes', words: /2|two|several/i },
			],
		];
		// One after the other where they reach the agent: it pairs one code at a time.
		for (const [running, wanted] of cases) expectRefusal(await running(), wanted);
		expect(await typed(spent)).toMatchObject({ status: 0 });
		expectRefusal(await typed(spent, '--replace'), { status: 77, code: 'code-expired-or-used', words: /used before/ });
		expectRefusal(await typed(codeFrom(service)), { status: 77, code: 'already-paired', words: /paired with/ });
		expect(await home.status()).toMatchObject({ state: 'online', workflow: { live: 'document-check' } });
	});

	test("refuses a code against the settings' workflow before it is spent", async () => {
		const service = await givenService({ workflows: WORKFLOWS });
		const home = await givenHome({ workflowId: 'face-check' });
		await home.run();
		const refusal = { status: 78, code: 'workflow-fixed', words: /face-check.*config\.json.*document-check/ };
		expectRefusal(await pair(home, service), refusal);
		expect(service.requests).toHaveLength(0);
	});

	test('says so when no agent runs', async () => {
		const home = await givenHome();
		const refusal = { status: 69, code: 'agent-not-running', words: /No agent listens/ };
		expectRefusal(await home.agent(['pair', '-'], { input: 'x' }), refusal);
		const json = await home.agent(['status', '--json']);
		expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: 'agent-not-running' } });
		expect(json.status).toBe(69);
	});
});

describe('on a paired device', () => {
	test('status --json keeps to its schema and names what is live', async () => {
		const { home } = await givenPaired();
		const status = statusSchema.parse(await home.status());
		expect(status).toMatchObject({
			state: 'online',
			deviceId: 'KIOSK-7',
			workflow: { wanted: 'document-check', live: 'document-check', source: 'pairing' },
			problem: null,
		});
		expect((await home.agent(['status'])).stdout).toMatch(
			/^Online with .*, workflow document-check\.\n\nDevice +KIOSK-7, kiosk\n/,
		);
	});

	test('status --watch shows each change until it is ended', async () => {
		const { home, service } = await givenPaired();
		const watch = follow('idv-agent', ['status', '--watch'], home.environment);
		await watch.untilLine(/Online with/);
		service.closeChannels(1012);
		await watch.untilLine(/Offline for/);
		expect((await watch.end('SIGINT')).status).toBe('SIGINT');
	});

	test('workflow set moves it, and show tells both workflows', async () => {
		const { home } = await givenPaired();
		const set = await home.agent(['workflow', 'set', 'face-check']);
		expect(set).toMatchObject({ status: 0, stdout: expect.stringMatching(/Online with .*, workflow face-check\./) });
		expect((await home.agent(['workflow', 'show', '--json'])).stdout).toMatch(
			/\{"wanted":"face-check","live":"face-check","source":"workflow set"\}/,
		);
	});

	test('workflow set to one that the service does not know leaves it online and says why', async () => {
		const { home } = await givenPaired();
		const set = await home.agent(['workflow', 'set', 'no-such']);
		expectRefusal(set, { status: 65, code: 'workflow-unknown', words: /no-such/ });
		expect(await home.status()).toMatchObject({
			state: 'online',
			workflow: { wanted: 'no-such', live: 'document-check' },
			problem: { code: 'workflow-unknown' },
		});
	});

	test('events shows what came, --since what came after, --follow what comes', async () => {
		const { home, service } = await givenPaired();
		const following = follow('idv-agent', ['events', '--follow', '--json'], home.environment);
		service.notify({ type: 'first', id: 'n-1' });
		const line = await following.untilLine(/"kind":"first"/);
		const { id, data } = JSON.parse(line);
		expect(data).toEqual({ type: 'first', id: 'n-1' });
		service.notify({ type: 'second', id: 'n-2' });
		await following.untilLine(/"kind":"second"/);
		const later = await home.agent(['events', '--since', id]);
		expect(later.stdout).toMatch(/second/);
		expect(later.stdout).not.toMatch(/first/);
		expect((await home.agent(['events', '--since', 'nonsense'])).status).toBe(65);
	});

	test('identity says where each value comes from, and that it is pinned', async () => {
		const { home } = await givenPaired();
		const { stdout } = await home.agent(['identity']);
		expect(stdout).toMatch(/Device id +KIOSK-7 +configured/);
		expect(stdout).toMatch(/Pinned: it stays/);
	});

	test('reconnect opens the channel anew, unpair forgets the token', async () => {
		const { home, service } = await givenPaired();
		const state = await readFile(join(home.stateDir, 'state.json'), 'utf8');
		const { token } = JSON.parse(state).connections[0];
		const again = service.waitFor('device-online');
		expect((await home.agent(['reconnect'])).status).toBe(0);
		await again;
		expect((await home.agent(['unpair'])).stdout).toMatch(/^Unpaired/);
		expect(await home.status()).toMatchObject({ state: 'unpaired' });
		for (const name of await readdir(home.stateDir))
			expect(await readFile(join(home.stateDir, name), 'utf8')).not.toContain(token);
	});
});

describe('config', () => {
	test('show tells where each value comes from and masks secrets', async () => {
		const home = await givenHome({ heartbeatCadence: 12, network: { proxy: 'http://user:geheim@proxy.example:3128' } });
		const { status, stdout } = await home.agent(['config', 'show', '--set', 'deviceType=scanner']);
		expect(stdout).toMatch(/heartbeatCadence +12 +.*config\.json/);
		expect(stdout).toMatch(/deviceType +scanner +--set deviceType/);
		expect(stdout).toMatch(/deviceId +KIOSK-7 +IDV_AGENT_DEVICE_ID/);
		expect(stdout).toMatch(/service\.channelPath +\/ws\/device +default/);
		expect(stdout).not.toContain('geheim');
		expect(status).toBe(0);
	});

	test('check names every mistake and ends with 78', async () => {
		const home = await givenHome({ heartbeatCadence: 0, deviceTyp: 'x' });
		const { status, stderr } = await home.agent(['config', 'check']);
		expect(stderr).toMatch(/heartbeatCadence must be at least 1/);
		expect(stderr).toMatch(/deviceTyp is not a setting; did you mean deviceType\?/);
		expect(status).toBe(78);
	});

	test('check of a variable that names no setting says which was probably meant', async () => {
		const home = await givenHome();
		const { stderr } = await home.agent(['config', 'check'], {
			environment: { IDV_AGENT_BASEURL: 'https://x.example' },
		});
		expect(stderr).toMatch(/IDV_AGENT_BASEURL names no setting; did you mean IDV_AGENT_BASE_URL\?/);
	});
});

describe('the embedded service and the demo', () => {
	test('service prints where it listens, and notify reaches its devices', async () => {
		const home = await givenHome();
		const service = follow('idv-agent', ['service', '--port', '0'], home.environment);
		const url = (await service.untilLine(/^Listening at/)).split(/\s+/).at(-1) ?? '';
		const bearer = (await service.untilLine(/^ {2}Bearer/)).trim().split(/\s+/).at(-1) ?? '';
		const environment = { ...home.environment, IDV_AUTHORIZATION: `Bearer ${bearer}` };
		const sent = await finish('idv-agent', ['service', 'notify', '{"type":"x"}', '--url', url], environment);
		expect(sent).toMatchObject({ status: 0, stdout: 'Sent to 0 devices.\n' });
		const bad = await finish('idv-agent', ['service', 'notify', '{oops', '--url', url], environment);
		expect(bad.status).toBe(65);
		expect((await service.end('SIGTERM')).status).toBe(0);
	});

	test('demo --once tells the whole story and ends with 0', async () => {
		const home = await givenHome();
		const { status, stdout } = await finish('idv-agent', ['demo', '--once'], home.environment);
		expect(stdout).toMatch(/never is offline|neither side saw the device offline/);
		expect(stdout).toMatch(/That was the whole story/);
		expect(status).toBe(0);
	}, 40_000);
});

describe('help', () => {
	test.each([
		'run',
		'pair',
		'status',
		'workflow',
		'events',
		'reconnect',
		'unpair',
		'identity',
		'config',
		'service',
		'demo',
	])('%s --help explains itself', async (name) => {
		const home = await givenHome();
		const { status, stdout } = await home.agent([name, '--help']);
		expect(stdout).toMatch(/^Usage: idv-agent /);
		expect(status).toBe(0);
	});

	test('an unknown command and an unknown flag end with 64', async () => {
		const home = await givenHome();
		expect(await home.agent(['pear'])).toMatchObject({
			status: 64,
			stderr: expect.stringMatching(/Did you mean pair\?/),
		});
		expect(await home.agent(['status', '--jsn'])).toMatchObject({ status: 64 });
	});
});

/** Answers each prompt at a pseudo-terminal; returns all that was on the screen. */
async function atTerminal(
	home: Home,
	command: string,
	answers: readonly (readonly [string, string])[],
): Promise<string> {
	const { spawn } = await import('node:child_process');
	const { once } = await import('node:events');
	const line = `${join(import.meta.dirname, '../../bin/idv-agent')} ${command}`;
	const child = spawn('script', ['-qec', line, '/dev/null'], { env: { ...process.env, ...home.environment } });
	let screen = '';
	const waiting = [...answers];
	child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
		screen += chunk;
		const [next] = waiting;
		if (!next || !screen.includes(next[0])) return;
		waiting.shift();
		child.stdin.write(next[1]);
	});
	await once(child, 'close');
	return screen;
}
