import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { BIN, finish, givenHome, type Program } from './command.ts';
import { readHelp } from './help.ts';
import { expectJsonRefusal, expectRefusal } from './refusal.ts';

const run = (name: Program, args: readonly string[], env: Record<string, string> = {}) => finish(name, args, env);

const COMMANDS: Readonly<Record<Program, readonly string[]>> = {
	'idv-agent': [
		'',
		'config',
		'config check',
		'config show',
		'demo',
		'doctor',
		'events',
		'identity',
		'pair',
		'reconnect',
		'run',
		'service',
		'service notify',
		'status',
		'support-bundle',
		'unpair',
		'version',
		'workflow',
		'workflow set',
		'workflow show',
	],
	idv: [
		'',
		'apikey',
		'apikey create',
		'device',
		'device connect',
		'profile',
		'profile add',
		'profile list',
		'profile remove',
		'profile use',
		'qrcode',
		'session',
		'session start',
		'whoami',
	],
};

test.each([
	['log', 'history'],
	['logs', 'history'],
	['bundle', 'support-bundle'],
	['support', 'support-bundle'],
	['diag', 'doctor'],
	['diagnostics', 'doctor'],
	['reset', 'unpair'],
	['statsu', 'status'],
	['scan', 'pair'],
	['PAIR', 'pair'],
	['register', 'pair'],
	['retry', 'reconnect'],
	['forget', 'unpair'],
	['settings', 'config'],
])('a command that is not there: %s is answered with %s', async (word, meant) => {
	const words = new RegExp(`^Error: Unknown command '${word}'\\. Did you mean ${meant}\\? See "idv-agent --help"\\.`);
	expectRefusal(await run('idv-agent', [word]), { status: 64, code: 'usage', words });
});

test.each([
	['idv-agent', ['workflow', 'checkin-2'], 'workflow set'],
	['idv-agent', ['config', 'set'], 'config show'],
	['idv', ['PAIR'], 'qrcode'],
	['idv', ['log'], 'idv-agent history'],
	['idv', ['logs'], 'idv-agent history'],
	['idv', ['bundle'], 'idv-agent support-bundle'],
	['idv', ['support'], 'idv-agent support-bundle'],
	['idv-agent', ['help', 'log'], 'history'],
])('%s %j is answered with the command that is meant [F936]', async (program, words, meant) => {
	const said = new RegExp(`^Error: Unknown command ['"].*['"]\\. Did you mean ${meant}\\? See`);
	expectRefusal(await run(program as 'idv', words), { status: 64, code: 'usage', words: said });
});

test.each(['version', 'VERSION', 'verson', 'help version'])(
	'idv %s, which only idv-agent has as a command, is answered with the flag [F1551]',
	async (words) => {
		const said = /^Error: Unknown command ['"].*['"]\. Did you mean idv --version\? See/;
		expectRefusal(await run('idv', words.split(' ')), { status: 64, code: 'usage', words: said });
		expect(await run('idv-agent', ['version'])).toMatchObject({
			status: 0,
			stdout: expect.stringMatching(/^Version /),
		});
	},
);

test.each([
	['idv-agent', 'qr', 'pair'],
	['idv-agent', 'qrcode', 'pair'],
	['idv-agent', 'code', 'pair'],
	['idv-agent', 'token', 'pair'],
	['idv-agent', 'journal', 'history'],
	['idv-agent', 'dignose', 'doctor'],
	['idv-agent', 'dockter', 'doctor'],
	['idv-agent', 'info', 'status'],
	['idv-agent', 'health', 'status'],
	['idv-agent', 'test', 'doctor'],
	['idv-agent', 'log', 'history'],
	['idv', 'qr', 'qrcode'],
	['idv', 'journal', 'idv-agent history'],
	['idv', 'status', 'idv-agent status'],
	['idv', 'stauts', 'idv-agent status'],
	['idv', 'Diagnose', 'idv-agent doctor'],
	['idv', 'unpair', 'idv-agent unpair'],
	['idv-agent', 'probe', 'idv probe'],
	['idv-agent', 'fleet', 'idv fleet'],
	['idv-agent', 'device', 'idv device'],
])('%s %s, which people type, also with a slip, is answered with %s [F934]', async (program, word, meant) => {
	const words = new RegExp(`^Error: Unknown command '${word}'\\. Did you mean ${meant}\\? See`);
	expectRefusal(await run(program as 'idv', [word]), { status: 64, code: 'usage', words });
});

test.each([
	['idv', ['run'], 'idv-agent run'],
	['idv', ['update'], 'idv-agent update'],
	['idv', ['plan'], 'idv-agent plan'],
	['idv', ['login'], 'profile'],
	['idv-agent', ['login'], 'pair'],
	['idv', ['idv-agent', 'status'], 'idv-agent'],
	['idv-agent', ['idv', 'fleet'], 'idv'],
])('%s %j is answered with %s [F1482]', async (program, words, meant) => {
	const said = new RegExp(`^Error: Unknown command '.*'\\. Did you mean ${meant}\\? See`);
	expectRefusal(await run(program as 'idv', words), { status: 64, code: 'usage', words: said });
});

test('-help, which other programs take, is named in the refusal [F1482]', async () => {
	const words = /^Error: Unknown option '-help'\. /;
	expectRefusal(await run('idv-agent', ['-help']), { status: 64, code: 'usage', words });
	expectRefusal(await run('idv-agent', ['-hTopSecret']), { status: 64, code: 'usage', words: /^(?!.*TopSecret)/ });
});

test.each([
	['stop', 'stop'],
	['STOP', 'stop'],
	['start', 'start'],
	['restart', 'restart'],
	['reload', 'reload'],
	['enable', 'enable'],
	['disable', 'disable'],
	['restrat', 'restart'],
])(
	'%s, which systemd does with the unit of the agent, is answered with "systemctl %s idv-agent" [F1072]',
	async (word, verb) => {
		const meant = `Did you mean systemctl ${verb} idv-agent\\? See "idv-agent --help"\\.`;
		const ways: [string[], RegExp][] = [
			[[word], new RegExp(`^Error: Unknown command '${word}'\\. ${meant}`)],
			[[word, '--help'], new RegExp(`^Error: Unknown command "${word}"\\. ${meant}`)],
		];
		for (const [words, said] of ways)
			expectRefusal(await run('idv-agent', words), { status: 64, code: 'usage', words: said });
	},
);

test.each(['setup', 'show', 'top'])('%s is not taken for a slip in "stop" [F1072]', async (word) => {
	const words = new RegExp(`^Error: Unknown command '${word}'\\.(?!.*systemctl)`);
	expectRefusal(await run('idv-agent', [word]), { status: 64, code: 'usage', words });
});

test('version names the program and the formats that it reads', async () => {
	const { version } = JSON.parse(readFileSync(join(BIN, '../package.json'), 'utf8'));
	const [plain, json] = await Promise.all([run('idv-agent', ['version']), run('idv-agent', ['version', '--json'])]);
	expect(plain.stdout).toMatch(new RegExp(`^Version +${version.replaceAll('.', '\\.')}$`, 'm'));
	expect(plain.stdout).toMatch(/^Formats +state 1, idv-fleet-plan\/1, idv-fleet-plan\/2$/m);
	const { commit, ...about } = JSON.parse(json.stdout);
	expect(about).toEqual({
		version,
		node: process.version,
		architecture: `${process.platform}-${process.arch}`,
		formats: { state: 1, plans: ['idv-fleet-plan/1', 'idv-fleet-plan/2'] },
	});
	expect(commit === null || /^[0-9a-f]{40}$/.test(commit)).toBe(true);
});

describe.each(['idv-agent', 'idv'] as const)('the help of %s', (name) => {
	test('is there for every command, on stdout, and teaches by example', async () => {
		const pages = await readHelp(name);
		expect(pages.map(({ path }) => path.join(' '))).toEqual(expect.arrayContaining([...COMMANDS[name]]));
		for (const { path, outcome } of pages) {
			expect(outcome).toMatchObject({ status: 0, stderr: '' });
			expect(outcome.stdout).toContain(`Usage: ${[name, ...path].join(' ')} `);
			const isGroup = outcome.stdout.includes('\nCommands:\n') && path.length > 0 && path.join(' ') !== 'service';
			if (!isGroup) expect(outcome.stdout, path.join(' ')).toMatch(/\nExamples:\n {2}(export|kill|sudo|idv)/);
			expect(outcome.stdout).toContain('--json');
		}
	});

	test('into a pipe whose reader has gone ends quietly', async () => {
		const child = spawn(join(BIN, 'idv-agent'), ['run', '--help'], {
			stdio: ['ignore', 'pipe', 'pipe'],
		});
		child.stdout.destroy();
		const stderr = text(child.stderr);
		expect(await once(child, 'close')).toEqual([0, null]);
		expect(await stderr).toBe('');
	});

	test('a group of commands without one of them shows its help on stderr and ends with 64', async () => {
		const outcome = await run(name, [name === 'idv' ? 'profile' : 'workflow']);
		expect(outcome).toMatchObject({ status: 64, stdout: '', stderr: expect.stringContaining('Commands:') });
	});

	test('--version is the version of the package', async () => {
		expect(await run(name, ['--version'])).toMatchObject({
			status: 0,
			stdout: expect.stringMatching(/^\d+\.\d+\.\d+\S*\n$/),
		});
	});
});

describe('a mistake on the command line', () => {
	test.each<[Program, string[], RegExp]>([
		['idv-agent', ['staus'], /Unknown command 'staus'\. Did you mean status\? See "idv-agent --help"/],
		[
			'idv-agent',
			['status', '--wach'],
			/Unknown option '--wach'\. Did you mean --watch\? See "idv-agent status --help"/,
		],
		['idv-agent', ['workflow', 'shwo'], /Unknown command 'shwo'\. Did you mean show\? See "idv-agent workflow --help"/],
		['idv-agent', ['workflow', 'set'], /Missing required argument 'id'/],
		['idv-agent', ['workflow', 'set', 'x', '--wait', 'long'], /--wait must be a whole number from 0 to 3600/],
		['idv-agent', ['status', 'now'], /Too many arguments/],
		['idv-agent', ['run', '--set'], /Option '--set <path=value>' argument missing/],
		['idv-agent', ['service', '--port', '70000'], /--port must be a whole number from 0 to 65535/],
		['idv-agent', ['service', 'notify', '{}'], /Required option '--url <url>' not specified/],
		['idv', ['help', 'apikey', 'nosuch'], /Unknown command "nosuch"\. See "idv apikey --help"/],
		['idv', ['apikey', 'nosuch', '--help'], /Unknown command "nosuch"\. See "idv apikey --help"/],
		['idv', ['nosuch', '-h'], /Unknown command "nosuch"\. See "idv --help"/],
		['idv-agent', ['help', 'workflow', 'sett'], /Unknown command "sett"\. Did you mean set\? See "idv-agent workflow/],
		['idv-agent', ['diag', '--help'], /Unknown command "diag"\. Did you mean doctor\? See "idv-agent --help"/],
		['idv', ['help', 'nosuch'], /Unknown command "nosuch"\. See "idv --help"/],
		['idv', ['fleet', 'help', 'sing'], /Unknown command "sing"\. Did you mean sign\? See "idv fleet --help"/],
		['idv', ['apikeys'], /Unknown command 'apikeys'\. Did you mean apikey\?/],
		['idv', ['apikey', 'create', '--name', 'x'], /Required option '--permissions <list>' not specified/],
		['idv', ['session', 'start'], /Required option '--workflow <id...>' not specified/],
	])('%s %j is one line that names the help, and status 64 [F099]', async (name, args, words) => {
		expectRefusal(await run(name, args), { status: 64, code: 'usage', words });
	});

	test.each<[Program, string[], string]>([
		['idv', ['fleet', 'status', '--inventory', 'a.csv', '--inventory', 'b.csv'], '--inventory'],
		['idv', ['fleet', 'sign', 'plan.json', '--key', 'a', '--out', 'b', '--key=c'], '--key'],
		['idv', ['--url', 'http://a', 'whoami', '--url', 'http://b'], '--url'],
		['idv', ['fleet', 'status', '--watch', '5', '--watch'], '--watch'],
		['idv-agent', ['workflow', 'set', 'x', '--wait', '1', '--wait', '1'], '--wait'],
		['idv-agent', ['status', '--config', 'a.json', '--config', 'b.json'], '--config'],
	])('%s %j gives a flag twice that takes one value: %s is named [F1736]', async (name, args, flag) => {
		const words = new RegExp(`^Error: ${flag} is given twice, and takes one value\\. Give it only once`);
		expectRefusal(await run(name, args), { status: 64, code: 'usage', words });
	});

	test('is a JSON document where that is asked for, wherever the flag stands', async () => {
		const [after, before] = await Promise.all([
			run('idv-agent', ['staus', '--json']),
			run('idv', ['--json', 'apikey', 'create', '--name', 'x']),
		]);
		expectJsonRefusal(after, { status: 64, code: 'usage', words: /Unknown command 'staus'\. Did you mean status\?/ });
		expectJsonRefusal(before, { status: 64, code: 'usage', words: /--permissions <list>/ });
	});

	test('never repeats what may be a secret', async () => {
		const secret = 'tr-0123456789abcdefghijklmnop12';
		const typed: [Program, string[]][] = [
			['idv-agent', ['pair', secret]],
			['idv-agent', ['pair', 'Token', secret]],
			['idv-agent', ['pair', `--code=${secret}`]],
			['idv-agent', ['status', secret]],
			['idv', ['whoami', 'ApiKey', secret]],
			['idv', ['qrcode', `--token=${secret}`]],
		];
		const outcomes = await Promise.all(typed.map(([name, args]) => run(name, args)));
		for (const { status, stdout, stderr } of outcomes) {
			expect(status).toBe(64);
			expect(stdout + stderr).not.toContain(secret);
		}
	});
});

describe('the common flags', () => {
	test('each has a variable, and the flag wins', async () => {
		const [home, other] = [await givenHome({ heartbeatCadence: 11 }), await givenHome({ heartbeatCadence: 12 })];
		await home.run();
		const nowhere = { IDV_AGENT_RUN_DIR: `${home.directory}/nowhere`, IDV_AGENT_CONFIG: other.configFile };
		const [byVariable, byFlag, config, configByFlag] = await Promise.all([
			home.agent(['status'], { env: { IDV_AGENT_JSON: '1' } }),
			home.agent(['status', '--json', '--run-dir', `${home.directory}/run`], { env: nowhere }),
			home.agent(['config', 'show']),
			home.agent(['config', 'show', '--config', home.configFile], { env: nowhere }),
		]);
		expect(JSON.parse(byVariable.stdout)).toMatchObject({ state: 'unpaired' });
		expect(JSON.parse(byFlag.stdout)).toMatchObject({ state: 'unpaired' });
		for (const { stdout } of [config, configByFlag]) expect(stdout).toMatch(/heartbeatCadence +11 +\S*config\.json/);
		// The state directory: a second agent is refused by variable, and let in by a flag that names another.
		expect((await home.agent(['run'])).status).toBe(75);
		const second = await home.agent(['run', '--state-dir', other.stateDir]);
		expect(second).toMatchObject({ status: 74, stderr: expect.stringMatching(/agent\.sock/) });
	});

	test('stand before or after the command', async () => {
		const home = await givenHome();
		const [before, after] = await Promise.all([home.agent(['--json', 'status']), home.agent(['status', '--json'])]);
		expect(before).toEqual(after);
		expect(JSON.parse(before.stdout)).toMatchObject({ error: { code: 'agent-not-running' } });
	});

	test('IDV_AGENT_JSON=0 asks for no JSON', async () => {
		const home = await givenHome();
		const outcome = await home.agent(['status'], { env: { IDV_AGENT_JSON: '0' } });
		expectRefusal(outcome, { status: 69, code: 'agent-not-running', words: /systemctl start idv-agent/ });
	});
});

describe('without a running agent', () => {
	test.each([
		['status'],
		['status', '--watch'],
		['workflow', 'show'],
		['workflow', 'set', 'x'],
		['events'],
		['events', '--follow'],
		['reconnect'],
		['unpair'],
		['pair', '-'],
	])('%s %s says so and how to start it [F107]', async (...args) => {
		const home = await givenHome();
		const given = args.filter((word) => word !== undefined);
		const desired = { status: 69, code: 'agent-not-running', words: /No agent listens on .*\. .*idv-agent run/ };
		expectRefusal(await home.agent(given), desired);
	});

	test('a run directory that is too deep for a socket is named as such', async () => {
		const home = await givenHome();
		const outcome = await home.agent(['status', '--run-dir', `/tmp/${'deep/'.repeat(30)}`]);
		expectRefusal(outcome, { status: 74, code: 'socket-failed', words: /shorter path/ });
	});
});

test.each<Program>(['idv-agent', 'idv'])(
	'each line of the help of every command of %s fits a terminal of 60 columns [F935]',
	async (program) => {
		const pages = await readHelp(program, [], { COLUMNS: '60' });
		const paths = (helps: typeof pages) => helps.map(({ path }) => path.join(' '));
		expect(paths(pages)).toEqual(paths(await readHelp(program)));
		for (const { path, outcome } of pages) {
			const { stdout, status } = outcome;
			expect([path, status, stdout.slice(0, 7)]).toEqual([path, 0, 'Usage: ']);
			const wide = stdout.split('\n').filter((line) => line.length > 60);
			expect([path, ...wide]).toEqual([path]);
		}
	},
);
