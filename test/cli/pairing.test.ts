import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { listen } from '../connection/network-peers.ts';
import { drawCode, encodePng, prepareWriter, sideBySide } from '../fixtures/pictures/draw.ts';
import { createClock, send } from '../service/fixture.ts';
import { atTheEndOfAll, BIN, givenHome, type Home, type Outcome } from './command.ts';
import { asProcess, type Device, givenDevice, givenPaired } from './device.ts';
import { expectJsonRefusal, expectRefusal } from './refusal.ts';
import { atTerminal, hasTerminal } from './terminal.ts';

const TOKEN = 'authorization=Token%20tr-0123456789abcdefghijklmnop12';
/** How the hidden prompt ends. */
const PROMPT = 'then Enter: ';

/** The state as it is on the disk, and the names of the files beside it. */
async function stored({ stateDir }: Home): Promise<{ state: unknown; names: string[] }> {
	const names = (await readdir(stateDir)).sort();
	const text = names.includes('state.json') ? await readFile(join(stateDir, 'state.json'), 'utf8') : 'null';
	return { state: JSON.parse(text), names };
}

/** A device that has never been paired: its settings are all that may be saved. */
async function expectUnpaired(home: Home): Promise<void> {
	const { state, names } = await stored(home);
	const { connections, pairing, attempt } = { connections: [], pairing: null, attempt: null, ...(state as object) };
	expect({ connections, pairing, attempt }).toEqual({ connections: [], pairing: null, attempt: null });
	expect(
		names.filter(
			(name) =>
				!/^((audit|history)-\d{8}-[0-9a-f]{16}\.log|checked\.json|state\.id(\.new)?|lock\.db|state\.json(\.bak)?(\.new)?)$/.test(
					name,
				),
		),
	).toEqual([]);
}

describe('pair', () => {
	test('tells host, workflow, kind of code and what it will do before it pairs', async () => {
		const { service, pair, code } = await givenDevice();
		const { host } = new URL(service.url);
		expect(await pair(code())).toEqual({
			status: 0,
			stderr: '',
			stdout: [
				`Service   http://${host}`,
				'Workflow  document-check (from the code)',
				'Code      Short Token (one use)',
				`Effect    pairs this device with ${host}`,
				'Effect    runs workflow document-check',
				'',
				`Paired. Online with ${host}, workflow document-check.`,
				'',
			].join('\n'),
		});
	});

	test('--workflow names it for a code that has none; --json is one document [F091]', async () => {
		const { service, pair, code } = await givenDevice();
		const outcome = await pair(code(null), '--workflow', 'face-check', '--json');
		expect(JSON.parse(outcome.stdout)).toMatchObject({
			baseUrl: service.url,
			deviceId: 'KIOSK-7',
			workflowId: 'face-check',
			sessionId: null,
			online: true,
		});
		expect(outcome.status).toBe(0);
	});

	test('--trust wants an address', async () => {
		const { pair, code, home } = await givenDevice();
		const outcome = await pair(code(), '--trust', 'example');
		expectRefusal(outcome, {
			status: 64,
			code: 'usage',
			words: /--trust takes the address.*https:\/\/id\.example\.com/,
		});
		await expectUnpaired(home);
	});

	test('says that the code was not used when the agent does not answer what it would do [F1237]', async () => {
		const { pair, code, daemon } = await givenDevice({}, asProcess);
		const held = code();
		process.kill(daemon.pid ?? 0, 'SIGSTOP');
		const asked = pair(held, '--json');
		await asked.finally(() => process.kill(daemon.pid ?? 0, 'SIGCONT'));
		expectJsonRefusal(await asked, { status: 69, code: 'request-timeout', words: /The code was not sent\./ });
		expect(JSON.parse((await asked).stdout).error.params).toMatchObject({ pairingCode: 'valid' });
		expect((await pair(held)).stdout).toMatch(/Paired\./);
	});

	test('says that the code may have been used when the agent goes while it spends it, and how to find out [F940]', async () => {
		const { service, home, pair, code, daemon } = await givenDevice({}, asProcess);
		const spending = service.hold('/api/device/connection');
		const held = code();
		const asked = pair(held, '--json');
		await spending.received;
		await daemon.end('SIGKILL');
		const outcome = await asked;
		expectJsonRefusal(outcome, {
			status: 69,
			code: 'agent-not-running',
			words: /ended.*may have been used\. idv-agent status says whether.*same code again/,
		});
		expect(JSON.parse(outcome.stdout).error.params).toEqual({ pairingCode: 'uncertain' });
		spending();
		await home.run();
		expect((await pair(held)).stdout).toMatch(/Paired\./);
	});

	test('pairs also where no one reads what it says [F1258]', async () => {
		const { home, code, registrations } = await givenDevice({}, asProcess);
		const { PATH = '' } = process.env;
		const words = ['--norc', '-c', 'set -o pipefail; "$0" pair - | true', join(BIN, 'idv-agent')];
		const child = spawn('bash', words, { env: { PATH, ...home.env }, stdio: ['pipe', 'ignore', 'inherit'] });
		child.stdin.end(code());
		expect((await once(child, 'exit'))[0]).toBe(0);
		expect(registrations()).toBe(1);
		expect(await home.status()).toMatchObject({ pairedAt: expect.any(String) });
	});

	test('--image reads the code from a picture, Aztec as well [F098]', async () => {
		const { home, code } = await givenDevice();
		await prepareWriter();
		const picture = join(home.directory, 'code.png');
		await writeFile(picture, encodePng(await drawCode(code(), 'AztecCode')));
		const outcome = await home.agent(['pair', '--image', picture]);
		expect(outcome).toMatchObject({ status: 0, stdout: expect.stringMatching(/Paired\./) });
	});

	test('a paired device wants --replace, and goes on as it was until then', async () => {
		const { pair, code, home } = await givenPaired();
		// The agent saves once more when its Connection has worked.
		await expect.poll(async () => JSON.stringify(await stored(home))).toMatch(/^(?!.*\.new").*"worked":true/s);
		const before = await stored(home);
		const next = code('face-check');
		expectRefusal(await pair(next), { status: 77, code: 'already-paired', words: /--replace/ });
		expect(await stored(home)).toEqual(before);
		const replaced = await pair(next, '--replace');
		expect(replaced.stdout).toMatch(/changes the workflow from document-check to face-check/);
		expect(replaced.stdout).toMatch(/Paired\. Online with .*, workflow face-check\./);
	});

	test('--trust pairs with the origin that a person expects, and with no other', async () => {
		const { pair, code, service, registrations } = await givenDevice({ settings: {} });
		const given = code();
		const desired = { status: 77, code: 'code-for-other-origin', words: /127\.0\.0\.1.*not for https:\/\/id\.example/ };
		expectRefusal(await pair(given, '--trust', 'https://id.example'), desired);
		expectRefusal(await pair(given), { status: 77, code: 'origin-unconfirmed', words: /--trust/ });
		expect(registrations()).toBe(0);
		expect(await pair(given, '--trust', service.url)).toMatchObject({ status: 0 });
	});
});

describe('on a device that waits for its first code', () => {
	const atTheEnd = atTheEndOfAll();
	let device: Device;
	beforeAll(async () => {
		[device] = await Promise.all([givenDevice({ atTheEnd }), prepareWriter()]);
	});

	test('--inspect says what would happen, as words and as JSON', async () => {
		const { pair, code, service } = device;
		const given = code();
		const [plain, json] = await Promise.all([pair(given, '--inspect'), pair(given, '--inspect', '--json')]);
		expect(plain).toMatchObject({ status: 0, stdout: expect.stringMatching(/The code was not used/) });
		expect(JSON.parse(json.stdout)).toMatchObject({ ready: true, baseUrl: service.url, problem: null });
	});

	test('--inspect of a code that would be refused ends with its status [F090]', async () => {
		const { pair, code } = device;
		const [plain, json] = await Promise.all([pair(code(null), '--inspect'), pair(code(null), '--inspect', '--json')]);
		expectRefusal(plain, { status: 64, code: 'workflow-missing', words: /pair --workflow ID/ });
		expect(JSON.parse(json.stdout)).toMatchObject({
			error: { code: 'workflow-missing' },
			preview: { ready: false, workflowId: null },
		});
		expect(json.status).toBe(64);
	});

	test('what cannot be used is refused in one line, as JSON too, and the service never hears of it [F081]', {
		timeout: 60_000,
	}, async () => {
		const { pair, code, service, home, registrations } = device;
		const { host } = new URL(service.url);
		const cases: [given: string, status: number, refusal: string, words: RegExp, ...flags: string[]][] = [
			['garbage', 65, 'not-a-pairing-code', /not a pairing code/],
			['', 65, 'not-a-pairing-code', /Nothing was read/],
			['0123456789'.repeat(500), 65, 'not-a-pairing-code', /longer than any pairing code/],
			['x'.repeat(1_000_000), 65, 'not-a-pairing-code', /longer than any pairing code/],
			['4006381333931', 65, 'code-incomplete', /does not say which service/],
			['https://www.example.com/menu', 65, 'not-a-pairing-code', /no pairing token/],
			['\u001b[31mred\u0007', 65, 'not-a-pairing-code', /control characters/],
			[`http://${host}/mobile?authorization=Bearer%20abcdefgh`, 65, 'not-a-pairing-code', /another kind of credential/],
			[`http://${host}/mobile?authorization=Token%20`, 65, 'not-a-pairing-code', /token in this code is damaged/],
			['tr-0123456789abcdefghijklmnop12', 65, 'code-incomplete', /does not say which service/],
			[`https://evil.example/mobile?${TOKEN}`, 77, 'code-for-other-origin', /evil\.example/],
			[`http://192.0.2.7/mobile?${TOKEN}`, 77, 'insecure-origin', /https/],
			[code(), 64, 'workflow-conflict', /for workflow document-check.*names face-check/, '--workflow', 'face-check'],
		];
		const before = registrations();
		for (const [given, status, refusal, words, ...flags] of cases) {
			expectRefusal(await pair(given, ...flags), { status, code: refusal, words });
		}
		for (const [given, status, refusal, words] of [cases[0], cases[2], cases[10]].filter((one) => one !== undefined))
			expectJsonRefusal(await pair(given, '--json'), { status, code: refusal, words });
		await expectUnpaired(home);
		expect(registrations()).toBe(before);
	});

	test.each(['482 913', 'horsebattery', '123'])(
		'a typed text that may be a code in part is told the form of one: %s [F997]',
		async (given) => {
			const { stderr } = await device.pair(given);
			expect(stderr).toMatch(/A Short Token is one word of at least four letters, .*"Token WORD"\./);
			expect((await device.pair('https://www.example.com/menu')).stderr).not.toContain('Short Token is');
		},
	);

	test('a code without a workflow, at a service that lists none, is refused and not used up', async () => {
		const { pair, code, home } = device;
		const missing = { status: 64, code: 'workflow-missing', words: /names no workflow/ };
		const given = code(null);
		expectRefusal(await pair(given), missing);
		expectJsonRefusal(await pair(given, '--json'), missing);
		await expectUnpaired(home);
	});

	test('a code for a workflow that the service does not know is not used up, which only the service knows', async () => {
		const { pair, code, home, service } = await givenDevice({}, asProcess);
		const given = code(null);
		const desired = { status: 65, code: 'workflow-unknown', words: /does not know the workflow no-such/ };
		expectRefusal(await pair(given, '--workflow', 'no-such'), desired);
		expect((await stored(home)).state).toMatchObject({ connections: [], pairing: null });
		const told = JSON.parse((await home.agent(['status', '--json'])).stdout);
		expect(told.summary.code).toBe('unpaired-uncertain');
		const answer = await send(service.url, {
			path: '/api/device/connection',
			authorization: new URL(given).searchParams.get('authorization') ?? '',
			body: { deviceId: 'ANOTHER', workflowId: 'face-check' },
		});
		expect(answer.status).toBe(201);
	});

	test('a picture that cannot be used is refused, and the line says why [F097]', async () => {
		const { home, code } = device;
		const file = async (name: string, content: string | Uint8Array) => {
			const path = join(home.directory, name);
			await writeFile(path, content);
			return path;
		};
		const blank = { width: 80, height: 80, pixels: new Uint8Array(6400).fill(255) };
		const two = sideBySide(await drawCode(code()), await drawCode(code()));
		const whole = encodePng(await drawCode('https://www.example.com/menu'));
		const cases: [path: string, refusal: string, words: RegExp][] = [
			[join(home.directory, 'none.png'), 'picture-unreadable', /none\.png does not exist/],
			[home.directory, 'picture-unreadable', /is not a file/],
			[await file('empty.png', ''), 'picture-unreadable', /empty\.png is empty/],
			[await file('note.pdf', '%PDF-1.7 …'), 'picture-unreadable', /PDF document/],
			[await file('cut.png', whole.subarray(0, 20)), 'picture-unreadable', /cut\.png is damaged/],
			[await file('blank.png', encodePng(blank)), 'picture-without-code', /blank\.png shows no QR or Aztec code/],
			[await file('two.png', encodePng(two)), 'picture-with-several-codes', /2 different pairing codes.*only the code/],
			[await file('menu.png', whole), 'not-a-pairing-code', /link, but there is no pairing token/],
		];
		const outcomes = await Promise.all(cases.map(([path]) => home.agent(['pair', '--image', path])));
		for (const [index, [, refusal, words]] of cases.entries())
			expectRefusal(outcomes[index] as Outcome, { status: 65, code: refusal, words });
		await expectUnpaired(home);
	});

	test('two sources of a code, and none at all, are usage errors', async () => {
		const { home } = device;
		const [both, none] = await Promise.all([home.agent(['pair', '-', '--image', 'code.png']), home.agent(['pair'])]);
		expectRefusal(both, { status: 64, code: 'usage', words: /Use one of them/ });
		expectRefusal(none, { status: 64, code: 'usage', words: /no terminal/ });
	});

	test('an argument that is no code is not called seen, and no other code is asked for; of a code it is said [F1131]', async () => {
		const { home, code } = device;
		const others = ['photo.jpg', './code.PNG', 'https://id.example.com', 'help', 'status', ''];
		const outcomes = await Promise.all([...others, code(), '482913'].map((word) => home.agent(['pair', word])));
		const [seen, typed] = outcomes.splice(others.length);
		for (const [index, outcome] of outcomes.entries()) {
			expectRefusal(outcome, { status: 64, code: 'usage', words: /This argument is not a pairing code/ });
			expect(outcome.stderr).not.toMatch(/new code|was seen/);
			expect(outcome.stderr).toMatch(index < 2 ? /pair --image FILE/ : /at the prompt, pipe it in/);
		}
		const asked = { status: 64, code: 'usage', words: /Ask for a new code: this one was seen/ };
		for (const outcome of [seen, typed]) expectRefusal(outcome as Outcome, asked);
	});

	test('the name of a file is not called a code that was seen, whatever signs it has [F1679]', async () => {
		const { home } = device;
		const pictures = ['IMG_2024.jpg', 'pg1.png', '/root/Downloads/qr.png', 'Screenshot_20260101-101010.webp'];
		const outcomes = await Promise.all([...pictures, '/tmp/code1.txt'].map((word) => home.agent(['pair', word])));
		for (const [index, outcome] of outcomes.entries()) {
			expectRefusal(outcome, { status: 64, code: 'usage', words: /This argument is not a pairing code/ });
			expect(outcome.stderr).toMatch(index < pictures.length ? /pair --image FILE/ : /pipe it in/);
			expect(outcome.stderr).not.toContain('was seen');
		}
	});

	test.skipIf(!hasTerminal)('Ctrl-C at the prompt leaves everything as it was (needs script)', async () => {
		const { home } = device;
		const screen = await atTerminal('idv-agent', ['pair'], home.env, [[PROMPT, 'tr-half\u0003']]);
		expect(screen).toMatchObject({ status: 64, text: expect.stringMatching(/Cancelled; nothing was sent/) });
		await expectUnpaired(home);
	});

	test.skipIf(!hasTerminal)('on a narrow terminal tables are folded between words (needs script)', async () => {
		const { home } = device;
		const { text } = await atTerminal('idv-agent', ['config', 'show', '--explain'], home.env, [], 60);
		const lines = text.split('\n');
		expect(lines.filter((line) => line.startsWith('  ') && line.length > 60)).toEqual([]);
		const at = lines.findIndex((line) => line.startsWith('baseUrl = - (default'));
		expect(lines.slice(at, at + 4)).toEqual([
			expect.stringMatching(/^baseUrl = - \(default\b/),
			'  Address of the service; default: the one in the pairing',
			'  code.',
			'  IDV_AGENT_BASE_URL',
		]);
		const { text: table } = await atTerminal('idv-agent', ['doctor', '--check', 'scanner'], home.env, [], 60);
		expect(table).toMatch(
			/skipped {2}scanner {7}No scanner was found; codes can be\n {23}typed or read from a picture\.\n/,
		);
	});

	test.skipIf(!hasTerminal)('JSON is indented for the eye at a terminal (needs script)', async () => {
		const { home } = device;
		const { text } = await atTerminal('idv-agent', ['workflow', 'show', '--json'], home.env);
		expect(text).toMatch(/^\{\n {2}"wanted": null,\n {2}"live": null,\n/);
	});
});

describe('a code', () => {
	test('that is expired, spent or unknown is refused in the words of the service', async () => {
		const clock = createClock(Date.now());
		const { service, pair, code, home } = await givenPaired({ service: { now: clock.now, shortTokenTtlSeconds: 60 } });
		const expired = code();
		clock.advance(61_000);
		const spent = code();
		const unknown = code().replace(/tr-\w{4}/, 'tr-0000');
		// By another device: the code of this one is known, and not sent again.
		const other = await givenHome({ pairing: { trustedOrigins: [service.url] } });
		await other.run();
		expect(await other.agent(['pair', '-'], { input: `${spent}\n` })).toMatchObject({ status: 0 });
		// The last that a pairing saves: the service has taken the channel.
		await expect.poll(async () => JSON.stringify(await stored(home))).toContain('"worked":true');
		const before = await stored(home);
		for (const [given, words] of [
			[expired, /expired at/],
			[spent, /used before/],
			[unknown, /not issued/],
		] as const) {
			const outcome = await pair(given, '--replace');
			expectRefusal(outcome, { status: 77, code: 'code-expired-or-used', words });
			expect(outcome.stderr).toMatch(/[Aa]sk for a new pairing code/);
		}
		// Every answer of the service tells its time.
		const withoutTime = ({ state }: typeof before) => {
			// That these codes are over is remembered.
			const { digest: _, copy: __, attempt: ___, clockAheadMs: ____, ...saved } = state as Record<string, unknown>;
			return { ...saved, serviceTimeMs: null };
		};
		expect(withoutTime(await stored(home))).toEqual(withoutTime(before));
		expect(await home.status()).toMatchObject({ state: 'online', workflow: { live: 'document-check' } });
	});

	test("against the settings' workflow names the source that decides, and is not spent", async () => {
		const { pair, code, registrations, service } = await givenDevice({ settings: { workflowId: 'face-check' } });
		const given = code();
		const outcome = await pair(given, '--trust', service.url);
		expectRefusal(outcome, { status: 78, code: 'workflow-fixed', words: /face-check is set by .*config\.json/ });
		expect(registrations()).toBe(0);
	});

	test('for another origin than the configured one is refused whatever is trusted by hand', async () => {
		const { pair, code, service, registrations } = await givenDevice({
			settings: { baseUrl: 'https://id.example.com' },
		});
		const desired = { status: 77, code: 'code-for-other-origin', words: /configured for https:\/\/id\.example\.com/ };
		expectRefusal(await pair(code(), '--trust', service.url), desired);
		expect(registrations()).toBe(0);
	});

	test('whose answer is lost is said to be probably used up, and is not sent again', async () => {
		const { pair, code, service, registrations } = await givenDevice();
		service.dropBeforeReply('/api/device/connection');
		const outcome = await pair(code());
		expectRefusal(outcome, { status: 75, code: 'pairing-uncertain', words: /may have used the code up.*listed/ });
		expect(registrations()).toBe(1);
	});

	test('may be a short word where a person brings it, and reaches the service as it is', async () => {
		const seen: (string | undefined)[] = [];
		const server = createServer((request, response) => {
			if (request.method === 'POST') seen.push(request.headers.authorization);
			response.writeHead(request.method === 'POST' ? 401 : 404).end();
		});
		const baseUrl = `http://127.0.0.1:${await listen(server)}`;
		const { pair } = await givenDevice({ settings: { baseUrl, workflowId: 'document-check' } });
		for (const code of ['482913', 'AB12:CD34\n', 'Token 4711'])
			expect(await pair(code)).toMatchObject({ stderr: expect.stringContaining('[code-expired-or-used]') });
		expect(seen).toEqual(['Token 482913', 'Token AB12:CD34', 'Token 4711']);
		const cut = await pair('https://id.exam');
		expect(cut.stderr).toContain('[not-a-pairing-code]');
		expect(seen).toHaveLength(3);
	});

	test('of a service that cannot be reached is not used', async () => {
		const { pair, code, service } = await givenDevice();
		const given = code();
		await service.close();
		const outcome = await pair(given);
		expectRefusal(outcome, { status: 69, code: 'service-unreachable', words: /was not sent.*scan the code again/ });
	});

	test('is not spent where the result could not be saved', async () => {
		const { pair, code, home, registrations } = await givenDevice();
		const given = code();
		// Root may write anywhere, but not into a file as if it were a directory.
		await rename(home.stateDir, `${home.stateDir}.aside`);
		await writeFile(home.stateDir, '');
		expectRefusal(await pair(given), { status: 74, code: 'state-unwritable', words: /writable state directory/ });
		expect(registrations()).toBe(0);
		await rm(home.stateDir);
		await rename(`${home.stateDir}.aside`, home.stateDir);
		expect(await pair(given)).toMatchObject({ status: 0 });
	});
});

describe.skipIf(!hasTerminal)('at a terminal (needs script)', () => {
	const QUESTION = '[y/n] ';
	const tokenOf = (code: string) => new URL(code).searchParams.get('authorization')?.slice('Token '.length) ?? '?';

	test('what is typed stays hidden, and can be corrected', async () => {
		const { home, code } = await givenDevice();
		const given = code();
		// A slip and backspace, then a whole line taken back with Ctrl-U.
		const typed = `wrong\u0015${given}zz\u007f\u007f\r`;
		const screen = await atTerminal('idv-agent', ['pair'], home.env, [[PROMPT, typed]]);
		expect(screen).toMatchObject({ status: 0, text: expect.stringMatching(/Paired\. Online/) });
		expect(screen.text).not.toContain(tokenOf(given));
		expect(screen.text).not.toContain('wrong');
	});

	test('an unknown host is asked about: a yes pairs, and is remembered', async () => {
		const { home, code, service, pair } = await givenDevice({ settings: {} });
		const screen = await atTerminal('idv-agent', ['pair'], home.env, [
			// A scanner that ends a code with CR and LF: the empty second line answers nothing.
			[PROMPT, `${code()}\r\n`],
			[QUESTION, '\r'],
			[QUESTION, 'y\r'],
		]);
		expect(screen.text).toContain(`Does this device belong to ${service.url}? [y/n]`);
		expect(screen).toMatchObject({ status: 0, text: expect.stringMatching(/Paired\. Online/) });
		expect(await pair(code(), '--replace')).toMatchObject({ status: 0 });
	});

	test('a no, or the end of input, spends nothing', async () => {
		const { home, code, registrations } = await givenDevice({ settings: {} });
		for (const typed of ['n\r', '\u0004']) {
			const screen = await atTerminal('idv-agent', ['pair'], home.env, [
				[PROMPT, `${code()}\r`],
				[QUESTION, typed],
			]);
			const words = /Error: You have not confirmed the host, so the code was not sent[^[]*\[origin-unconfirmed\]/;
			expect(screen).toMatchObject({ status: 77, text: expect.stringMatching(words) });
		}
		expect(registrations()).toBe(0);
	});
});
