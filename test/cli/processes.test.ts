/**
 * Each command once as the program that ships: its bundle, its arguments, variables and streams, its exit status. It answers as it
 * does within the process of a test, where everything else about it is tested.
 */
import { expect, test } from 'vitest';
import { finish, finishApart, givenHome, type Program } from './command.ts';
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
	const [apart, here] = await Promise.all([finishApart(name, args, env, 'x\n'), finish(name, args, env, 'x\n')]);
	expect(apart).toEqual(here);
	expect(apart.stdout + apart.stderr).toMatch(/\S/);
	expect(apart.stderr).not.toContain('[internal]');
});
