import { readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { plantTree } from '../fixtures/machines.ts';
import { plugScanner } from '../fixtures/scanners/plug.ts';
import { givenAgent } from '../harness/harness.ts';
import { finish, givenHome } from './command.ts';
import { expectRefusal } from './refusal.ts';

const CODE = 'https://id.example.com/mobile?authorization=Token%20tr-A1b2C3d4E5f6G7h8I9j0K1l2M3n4&workflowId=check-in';

/** An agent with a machine of its own, and the variables by which commands find it. */
async function givenMachine(settings: object = {}) {
	const device = await givenAgent({ settings });
	const machine = (await readdir(device.home.directory)).find((name) => name.startsWith('machine-')) ?? '';
	return {
		root: await realpath(join(device.home.directory, machine)),
		untilListening: (path: string) => device.untilLogged((line) => line['path'] === path),
		env: { IDV_AGENT_RUN_DIR: device.home.paths.runDir, IDV_AGENT_CONFIG: device.home.paths.configFile },
	};
}

describe('scanner list', () => {
	test('shows what the agent listens to and why, and how to hide a keyboard scanner from the desktop', async () => {
		const { root, env, untilListening } = await givenMachine();
		await plantTree(root, { 'run/udev/data/c0:0': 'E:ID_VENDOR_ID=1eab\nE:ID_MODEL_ID=0c06\n' });
		const scanner = await plugScanner(root);
		await plugScanner(root, 'Logitech_USB_Keyboard', 4);
		await untilListening(scanner.path);
		const [plain, json] = await Promise.all([
			finish('idv-agent', ['scanner', 'list'], env),
			finish('idv-agent', ['scanner', 'list', '--json'], env),
		]);
		expect(plain.stdout).toMatch(/^Listening: this device waits for a pairing code\.\n\n/);
		expect(plain.stdout).toMatch(/\n> +keyboard +\S+Newland\S+ +is listened to: looks like a scanner\n/);
		expect(plain.stdout).toMatch(/\n +keyboard +\S+Logitech\S+ +not used: looks like an ordinary keyboard; /);
		expect(plain.stderr).toContain('ENV{ID_VENDOR_ID}=="1eab", ENV{ID_MODEL_ID}=="0c06"');
		expect(plain.stderr.match(/Warning:/g)).toHaveLength(1);
		expect(JSON.parse(json.stdout)).toMatchObject({
			agentRunning: true,
			listening: true,
			devices: [{ chosen: false }, { path: scanner.path, open: true, hidden: false }],
		});
	});

	test('is silent about the rule where it is in force', async () => {
		const { root, env, untilListening } = await givenMachine();
		await plantTree(root, { 'run/udev/data/c0:0': 'E:LIBINPUT_IGNORE_DEVICE=1\n' });
		const scanner = await plugScanner(root);
		await untilListening(scanner.path);
		expect(await finish('idv-agent', ['scanner', 'list'], env)).toMatchObject({ status: 0, stderr: '' });
	});

	test('without an agent says so and looks itself', async () => {
		const home = await givenHome({ scanner: { kind: 'off' } });
		const { status, stdout } = await home.agent(['scanner', 'list']);
		expect(stdout).toContain('The agent is not running');
		expect(status).toBe(0);
	});
});

describe('scanner test', () => {
	test('reads standard input: every text told apart, no secret shown', async () => {
		const home = await givenHome();
		const input = `${CODE}\n4006381333931\r\nhunter2\n${'x'.repeat(5000)}\ntr-A1b2C3d4E5f6G7h8I9j0K1l2M3n4`;
		const [plain, json] = await Promise.all([
			home.agent(['scanner', 'test', '-'], { input }),
			home.agent(['scanner', 'test', '-', '--json'], { input }),
		]);
		expect(plain).toMatchObject({ status: 0, stderr: '' });
		expect(plain.stdout.split('\n')).toEqual([
			'a pairing code for https://id.example.com, Short Token (one use), workflow check-in; its token is masked (103 characters)',
			'no pairing code (13 characters): 400\u20261',
			expect.stringMatching(/bar code/),
			'no pairing code (7 characters): \u2026',
			expect.stringMatching(/some other text/),
			'no pairing code (too long)',
			'  This text is longer than any pairing code. Nothing was sent. Scan a pairing code made for devices (idv qrcode makes one).',
			'a pairing code for the configured service, Short Token (one use); its token is masked (31 characters, the last one is 4)',
			'',
		]);
		expect(
			json.stdout
				.trim()
				.split('\n')
				.map((line) => JSON.parse(line).scan),
		).toEqual(['pairingCode', 'other', 'other', 'other', 'pairingCode']);
		for (const { stdout } of [plain, json]) expect(stdout).not.toContain('A1b2C3');
	});

	test('names both keyboard layouts where they differ, and what to do where nothing can be read for certain', async () => {
		const home = await givenHome();
		const german = 'httpsÖ--id.example.com-mobile_authoriyation´Token%20trßA1b2C3d4E5f6/workflowId´checkßin';
		const input = `${german}\n${CODE.toUpperCase()}\ntr/A1b2C3d4E5f6G7h8I9j0K1l2M3y4\n${CODE.replace('%20', '20')}\n`;
		const [plain, json] = await Promise.all([
			home.agent(['scanner', 'test', '-'], { input }),
			home.agent(['scanner', 'test', '-', '--json'], { input }),
		]);
		expect(plain.stdout.split('\n')).toEqual([
			expect.stringMatching(
				/^a pairing code for https:\/\/id\.example\.com, .*, workflow check-in; its token is masked/,
			),
			'  The scanner types as a US English keyboard, and its keys are read as German ones. The agent reads it nevertheless.',
			expect.stringMatching(/^no pairing code/),
			expect.stringMatching(/^ {2}This looks like .* capitals and small letters.*Switch Caps Lock off/),
			expect.stringMatching(/^no pairing code/),
			expect.stringMatching(
				/^ {2}This looks like .* the keyboard layout of the scanner is not that of this computer.*Set both to the same keyboard layout/,
			),
			expect.stringMatching(/^no pairing code/),
			expect.stringMatching(/^ {2}This pairing code is not whole.*Scan or type the whole code once more/),
			'',
		]);
		const told = json.stdout.trim().split('\n');
		expect(told.map((line) => JSON.parse(line))).toMatchObject([
			{
				scan: 'pairingCode',
				workflowId: 'check-in',
				typed: { scanner: 'US English', device: 'German', capsLock: false },
			},
			{ scan: 'other', reason: 'capitals' },
			{ scan: 'other', reason: 'otherLayout' },
			{ scan: 'other', reason: 'damaged' },
		]);
		for (const { stdout } of [plain, json]) expect(stdout).not.toMatch(/A1b2C3/i);
	});

	test('says of a code without encryption that no scanner may bring it, also where no agent runs [F939]', async () => {
		const home = await givenHome();
		const [plain, here] = ['http://id.example.com', 'http://127.0.0.1:8080'].map((address) =>
			CODE.replace('https://id.example.com', address),
		);
		const told = await home.agent(['scanner', 'test', '-'], { input: `${plain}\n${here}\n${CODE}\n` });
		expect(told.stdout.split('\n')).toEqual([
			expect.stringMatching(/^a pairing code for http:/),
			expect.stringMatching(
				/^ {2}A scanner may not pair with it: This code leads to http:\/\/id\.example\.com without encryption\./,
			),
			expect.stringMatching(/^a pairing code for http:/),
			expect.stringMatching(/^ {2}A scanner may not pair with it: .*this machine itself/),
			expect.stringMatching(/^a pairing code for https:/),
			'',
		]);
		const trial = ['scanner', 'test', '-', '--set', 'pairing.loopbackByScanner=true'];
		expect((await home.agent(trial, { input: here ?? '' })).stdout).not.toContain('No scanner');
	});

	test('calls other codes what they are', async () => {
		const home = await givenHome();
		const input = 'WIFI:S:x;T:WPA;P:y;;\nBEGIN:VCARD\ntel:+4912345\ngeo:1,2\n4006381333931\n';
		const [plain, json] = await Promise.all([
			home.agent(['scanner', 'test', '-'], { input }),
			home.agent(['scanner', 'test', '-', '--json'], { input }),
		]);
		const kinds = json.stdout
			.trim()
			.split('\n')
			.map((line) => JSON.parse(line).kind);
		expect(kinds).toEqual(['wifi', 'contact', 'phone', 'place', 'product']);
		for (const words of ['Wi-Fi network', 'a contact', 'telephone number', 'place on a map', 'bar code'])
			expect(plain.stdout).toContain(words);
		expect(plain.stdout).not.toMatch(/is a link|other text/);
	});

	test('says what a code would do here, where an agent runs, and leaves a scanner to the agent that listens to it', async () => {
		const { root, env, untilListening } = await givenMachine();
		const given = await finish('idv-agent', ['scanner', 'test', '-'], env, CODE);
		expect(given.stdout.split('\n').slice(1)).toEqual([
			'  here it pairs this device with id.example.com, runs workflow check-in',
			expect.stringMatching(/^ {2}This code is for https:\/\/id\.example\.com, and it is not confirmed/),
			'',
		]);
		const scanner = await plugScanner(root);
		await untilListening(scanner.path);
		expectRefusal(await finish('idv-agent', ['scanner', 'test', '--device', scanner.path], env), {
			status: 69,
			code: 'scanner-failed',
			words: /The agent itself listens to/,
		});
	});

	test('says what is wrong before anybody waits for a scan', async () => {
		const home = await givenHome();
		expectRefusal(await home.agent(['scanner', 'test', CODE]), { status: 64, code: 'usage', words: /--device/ });
		expectRefusal(await home.agent(['scanner', 'test', '--device', join(home.directory, 'gone')]), {
			status: 69,
			code: 'scanner-failed',
			words: /There is no scanner at .*gone/,
		});
		expectRefusal(await home.agent(['scanner', 'test', '--set', 'scanner.suffix=tab']), {
			status: 78,
			code: 'settings-invalid',
			words: /scanner\.suffix/,
		});
	});
});
