/**
 * Each command once as the program that ships: its bundle, its arguments, variables and streams, its exit status. It answers as it
 * does within the process of a test, where everything else about it is tested.
 */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ALWAYS_APART, BIN, finish, finishApart, follow, givenHome, type Program } from './command.ts';
import { readHelp } from './help.ts';

const NONE = '/nowhere/file';
const PLAN = [NONE];

/** Arguments that lead into the code of each command, on a machine without an agent and a service. */
const CALLS: Readonly<Record<Program, Readonly<Record<string, readonly string[]>>>> = {
	'idv-agent': {
		pair: ['-'],
		unpair: [],
		provision: [NONE],
		'scanner list': ['--json'],
		'scanner test': ['-'],
		'code-cache': [],
		version: ['--json'],
		status: ['--json'],
		'workflow show': [],
		'workflow set': ['checkin'],
		'plan show': [],
		'plan forget': [],
		events: [],
		history: ['--json'],
		'events erase': ['--session', 'x', '--json'],
		audit: ['--follow'],
		reconnect: [],
		identity: [],
		'identity accept': [],
		'config show': [],
		'config check': ['--set', 'deviceId='],
		'update show': [],
		'update reach': ['--json'],
		'update forget': ['0.0.1'],
		doctor: ['--check', 'htp'],
		'support-bundle': ['--out', NONE],
		service: ['--replay', NONE],
		'service notify': ['{', '--url', 'http://127.0.0.1:9'],
		simulate: ['--devices', '1', '--service', 'http://127.0.0.1:9'],
	},
	idv: {
		'apikey create': ['--name', 'x', '--permissions', 'deeplink:write', '--json'],
		qrcode: ['--workflow', 'x', '--json'],
		'session start': ['--workflow', 'x', '--json'],
		'device connect': ['--device-id', 'x', '--workflow', 'x', '--json'],
		'fleet keygen': ['--out', NONE],
		'fleet check': PLAN,
		'fleet preview': [...PLAN, '--inventory', NONE],
		'fleet diff': [...PLAN, NONE],
		'fleet sign': [...PLAN, '--key', NONE],
		'fleet next-ring': PLAN,
		'fleet pause': PLAN,
		'fleet rollback': PLAN,
		'fleet status': ['--from', NONE],
		whoami: ['--offline'],
		probe: ['--code-file', NONE],
		'profile add': ['x', '--url', 'nonsense'],
		'profile list': ['--json'],
		'profile use': ['x'],
		'profile remove': ['x'],
	},
};

/** These go on, or change the machine: tests of their own start them, and `npm run test:update`. */
const ELSEWHERE = ['run', 'demo', 'hooks'];

test.each(['idv-agent', 'idv'] as const)('every command of %s is started as a program', async (name) => {
	const pages = await readHelp(name);
	const runs = pages.filter(({ names, path }) => names.length === 0 || Object.hasOwn(CALLS[name], path.join(' ')));
	const started = [...Object.keys(CALLS[name]), ...(name === 'idv-agent' ? ELSEWHERE : [])];
	expect(started.sort()).toEqual(runs.map(({ path }) => path.join(' ')).sort());
});

test.each(['idv-agent', 'idv'])(
	'%s whose output does not fit on the disk says so, with status 74 [F1458]',
	async (name) => {
		const { code, stderr } = await promisify(execFile)('sh', [
			'-c',
			'"$0" version --json >/dev/full',
			join(BIN, name),
		]).catch((error) => error);
		expect(code).toBe(74);
		expect(stderr).toMatch(/^Error: The output cannot be written: [^\n]+\.\n$/);
	},
);

test.each(['demo', 'support-bundle'])(
	'%s in a directory that was deleted says so in one sentence [F1459]',
	async (name) => {
		const { directory } = await givenHome();
		const script = 'mkdir "$1/gone" && cd "$1/gone" && rmdir "$1/gone" && exec "$0" "$2"';
		const words = ['-c', script, join(BIN, 'idv-agent'), directory, name];
		const { code, stdout, stderr } = await promisify(execFile)('sh', words).catch((error) => error);
		expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
		expect(stderr).toMatch(
			/^Error: The directory in which this command was started does not exist any more\. [^\n]+\n$/,
		);
	},
);

test('a directory under /proc, where none can be made, is named at once by each command that needs one [F1466]', async () => {
	const { directory, env } = await givenHome();
	await writeFile(join(directory, 'provision.json'), '{"baseUrl":"http://127.0.0.1:9","apiKey":"ak-123456789012345"}');
	const provision = ['provision', '--credstore', '/proc/x/y', join(directory, 'provision.json')];
	const calls: [Program, readonly string[], Readonly<Record<string, string>>, number][] = [
		['idv-agent', ['run', '--state-dir', '/proc/x'], {}, 74],
		['idv-agent', ['run', '--run-dir', '/proc/x'], {}, 74],
		['idv-agent', provision, {}, 74],
		['idv', ['profile', 'list'], { XDG_CONFIG_HOME: '/proc/x' }, 78],
		['idv', ['profile', 'list'], { HOME: '/proc/x' }, 78],
	];
	for (const [name, args, more, status] of calls) {
		const child = follow(name, args, { ...env, ...more });
		const late = setTimeout(() => void child.end('SIGKILL'), 15_000);
		const ended = await child.ended;
		clearTimeout(late);
		expect({ args, ended }).toMatchObject({ args, ended: { status, stderr: expect.stringMatching(/\(ENOENT\)/) } });
	}
}, 90_000);

test('demo where no temporary directory can be made names TMPDIR [F1473]', async () => {
	const ended = await finishApart('idv-agent', ['demo', '--once'], { TMPDIR: '/nowhere' });
	expect(ended).toEqual({
		status: 74,
		stdout: '',
		stderr: expect.stringMatching(
			/^Error: No temporary directory can be made in \/nowhere: .+ \(ENOENT\)\. Set TMPDIR .+\n$/,
		),
	});
});

const ALL = (['idv-agent', 'idv'] as const).flatMap((name) =>
	Object.entries(CALLS[name]).map(([path, more]) => [name, path, more] as const),
);

test.each(ALL)('%s %s answers alike as the program that ships', async (name, path, more) => {
	const home = await givenHome();
	const env = {
		...home.env,
		XDG_CONFIG_HOME: home.directory,
		IDV_URL: 'http://127.0.0.1:9',
		IDV_AUTHORIZATION: 'Basic operator:password',
	};
	const args = [...path.split(' '), ...more];
	const apart = await finishApart(name, args, env, 'x\n');
	// Those are started as programs wherever a test calls them.
	if (!ALWAYS_APART.some((word) => args.includes(word))) expect(apart).toEqual(await finish(name, args, env, 'x\n'));
	expect(apart.stdout + apart.stderr).toMatch(/\S/);
	expect(apart.stderr).not.toContain('[internal]');
});
