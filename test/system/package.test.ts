import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
	copyFileSync,
	existsSync,
	globSync,
	mkdirSync,
	mkdtempSync,
	readFileSync,
	readlinkSync,
	rmSync,
	statSync,
	symlinkSync,
	writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { buildExecutable } from '../../scripts/executable.ts';
import { buildUpdatesPackage } from '../../scripts/updates-package.ts';
import { readWords } from '../../src/base/shapes.edge.ts';
import { JUDGE_UNIT, openUpdateKeep } from '../../src/updates/keep.edge.ts';
import { plugScanner } from '../fixtures/scanners/plug.ts';
import { ARCHITECTURE, buildDevice, EPOCH, ROOT } from './built.ts';

/** `SYSTEM=short`, for CI. */
const SHORT = process.env['SYSTEM'] === 'short';
/** So that what hangs has a name. */
const AT_MOST = { timeout: 60_000 } as const;

let directory: string;
let debs: string[];
let tools: string;
let tree: string;
let toolsTree: string;
let updates: string[];

beforeAll(async () => {
	directory = mkdtempSync(join(tmpdir(), 'idv-package-'));
	const parts = { root: ROOT, version: '0.2.0', epoch: EPOCH, compression: 'gzip' } as const;
	const [one, two] = [join(directory, 'one'), join(directory, 'two')];
	debs = [inject('built').real, await buildDevice(two)];
	const made = { ...parts, architecture: ARCHITECTURE, outDir: one };
	const executable = await buildExecutable(made, 'idv-tools');
	tools = await buildDebianPackage({ ...made, name: 'idv-tools', executable });
	updates = [];
	for (const outDir of [one, two]) updates.push(await buildUpdatesPackage({ ...parts, outDir }));
	tree = join(directory, 'tree');
	toolsTree = join(directory, 'tools-tree');
	execFileSync('dpkg-deb', ['--extract', debs[0] ?? '', tree]);
	execFileSync('dpkg-deb', ['--extract', tools, toolsTree]);
});
afterAll(() => rmSync(directory, { recursive: true }));

/** Runs the executable by a name, with nothing but these variables. */
function call(name: string, words: readonly string[], env: Record<string, string> = {}) {
	const from = name === 'idv-agent' ? tree : toolsTree;
	const { status, stdout, stderr } = spawnSync(join(from, 'usr/bin', name), words, {
		...AT_MOST,
		env,
		encoding: 'utf8',
	});
	return { status, said: stdout + stderr };
}

describe('the executable', () => {
	test.each(['idv-agent', 'idv', 'idv-tools'])('of %s answers to its name', (name) => {
		expect(call(name, ['--help']).said).toMatch(new RegExp(`^Usage: ${name} `));
	});

	test('of a device names the package for service, simulate and demo, which has them [F320]', () => {
		for (const words of [
			['service', '--port', '0'],
			['simulate', '--help'],
			['demo'],
			['help', 'service'],
			['--json', 'demo'],
		])
			expect(call('idv-agent', words)).toEqual({ status: 69, said: expect.stringContaining('tools-missing') });
		expect(JSON.parse(call('idv-agent', ['--json', 'demo']).said)).toMatchObject({ error: { code: 'tools-missing' } });
		expect(call('idv-tools', ['service', '--help']).said).toMatch(/^Usage: idv-tools service /);
		expect(call('idv-agent', ['--help']).said).not.toMatch(/^ {2}(?:service|simulate|demo)/m);
		expect(call('idv-agent', ['demmo'])).toEqual({ status: 64, said: expect.stringContaining('Unknown command') });
	});

	test('takes no Node option from the environment or the command line', () => {
		const env = { NODE_OPTIONS: '--require=/nonexistent.cjs --inspect', NODE_TLS_REJECT_UNAUTHORIZED: '0' };
		const { status, said } = call('idv-agent', ['--version'], env);
		// Node itself would have warned of the second and failed at the first.
		expect({ status, said }).toEqual({ status: 0, said: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
		expect(call('idv-agent', ['--node-options=--require=/nonexistent.cjs', 'status']).said).toMatch(/unknown option/i);
	});

	test(
		'compiles ahead what a start needs, takes it from then on, and ignores a damaged one [F365]',
		() => {
			const { said, status } = call('idv-agent', ['code-cache'], { PATH: '/usr/bin:/bin' });
			expect({ status, said }).toEqual({ status: 0, said: 'Compiled the startup code.\n' });
			const [cache = ''] = globSync(join(tree, 'usr/lib/idv-agent/program-*.cache'));
			expect(statSync(cache).size).toBeGreaterThan(100_000);
			// Only a start of the daemon takes it: this one ends where its settings are wrong, unless it remembers some that were good.
			const dirs = ['--state-dir', join(directory, 'state'), '--run-dir', join(directory, 'run')];
			const start = () => call('idv-agent', ['run', '--set', 'nonsense=1', ...dirs]);
			expect(start()).toEqual({ status: 78, said: expect.stringContaining('nonsense') });
			// Whatever is in it, a start does without: V8 looks before it uses it.
			writeFileSync(cache, readFileSync(cache).subarray(0, 5000));
			expect(start().status).toBe(78);
			expect(call('idv-agent', ['code-cache'], { PATH: '/usr/bin:/bin' }).status).toBe(0);
			const good = readFileSync(cache);
			const pages = Array.from({ length: Math.ceil(good.length / 4096) }, (_, page) => page * 4096);
			// Every 32nd page in a short run; a damaged one ended every command before there was a digest.
			for (const from of pages.filter((_, index) => index % (SHORT ? 32 : 1) === 0)) {
				const flipped = Buffer.from(good);
				flipped[from + (from % 97)] = ~(good[from + (from % 97)] ?? 0);
				for (const damaged of [
					flipped,
					Buffer.from(good).fill(0, from, Math.min(good.length, from + 4096)),
					good.subarray(0, from),
				]) {
					writeFileSync(cache, damaged);
					expect(start(), `page at ${from}`).toMatchObject({ status: 78 });
				}
			}
			rmSync(cache);
		},
		SHORT ? 60_000 : 600_000,
	);

	test('carries the decoders: it draws a pairing code and reads it, and tells the whole story', () => {
		const { status, stdout, stderr } = spawnSync(join(toolsTree, 'usr/bin/idv-tools'), ['demo', '--once'], {
			...AT_MOST,
			cwd: directory,
			env: { TMPDIR: directory, PATH: '/usr/bin:/bin' },
			encoding: 'utf8',
		});
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
		expect(stdout).toContain('demo-pairing-code.png');
	});
});

describe('what runs as root and touches apt', () => {
	const NAME = 'idv-agent-updates';
	/** A file without the list of words that a log may show (`src/base/words.ts`): apt and dpkg are among them. */
	const codeOf = (file: string) => readFileSync(file, 'utf8').replace(readWords(), '');

	test('is in idv-agent-updates, and nothing of it in the package of the agent [F547]', () => {
		const parts = join(directory, 'parts');
		const touching = (deb: string) => {
			rmSync(parts, { recursive: true, force: true });
			execFileSync('dpkg-deb', ['--raw-extract', deb, parts]);
			const scripts = globSync([`${parts}/DEBIAN/p*`, `${parts}/usr/lib/systemd/**/*`, `${parts}/usr/lib/*/*.cjs`])
				.filter((file) => statSync(file).isFile())
				.map((file) => [file.slice(parts.length), codeOf(file)] as const);
			return scripts.filter(([, text]) => TOUCHES.test(text.replaceAll(/^#.*$/gm, ''))).map(([file]) => file);
		};
		const TOUCHES = /\b(?:apt-get|dpkg|dpkg-query|dpkg-deb) |['"`](?:apt-get|dpkg|dpkg-query)['"`]|preferences\.d/;
		expect(touching(debs[0] ?? '')).toEqual([]);
		const bundled = globSync(join(directory, 'two', ARCHITECTURE, 'idv-agent/bundle/*.cjs'));
		expect(bundled.length).toBeGreaterThan(3);
		expect(bundled.filter((file) => TOUCHES.test(codeOf(file)))).toEqual([]);
		expect(touching(updates[0] ?? '').map((file) => file.split('/').at(-1))).toEqual(
			expect.arrayContaining(['postrm', 'idv-agent-finish.service', `${NAME}.cjs`]),
		);
	});

	test('runs by the Node of the agent, from beside a whole path only, and is small [F548]', () => {
		const both = join(directory, 'both');
		for (const deb of [debs[0], updates[0]]) execFileSync('dpkg-deb', ['--extract', deb ?? '', both]);
		const program = join(both, 'usr/lib', NAME, NAME);
		const ask = (words: readonly string[], how: object = {}) => {
			const { status, stdout, stderr } = spawnSync(program, words, { ...AT_MOST, env: {}, encoding: 'utf8', ...how });
			return { status, said: stdout + stderr };
		};
		expect(ask(['nonsense'])).toEqual({ status: 64, said: expect.stringContaining('prepare VERSION, judge') });
		expect(ask(['judge', '0.3.0']).status).toBe(64);
		expect(ask(['forget', '0.0.9', '--json'])).toEqual({ status: 64, said: expect.stringContaining('"code":"usage"') });
		// A name without a path would lead to a file where the caller happens to be.
		expect(ask(['nonsense'], { argv0: NAME, cwd: join(both, 'usr/lib', NAME) }).said).toContain('Unknown command');
		expect(codeOf(`${program}.cjs`).length).toBeLessThan(250_000);
		expect(codeOf(`${program}.cjs`)).not.toMatch(/\b(?:node:)?(?:net|tls|https)['"]\)/);
	});
});

test("each unit that runs as root has an exposure of at most 4.0, and those that run apt or dpkg 6.0, the judge's included [F1930]", async () => {
	const places = join(directory, 'places');
	const keep = openUpdateKeep({ directory: places, units: places, runtimeUnits: places, preferences: places });
	await keep.open();
	await keep.installUnit();
	const units = globSync(join(ROOT, 'systemd/**/*.service')).concat(join(places, JUDGE_UNIT));
	const exposures = units.map((unit) => {
		const words = ['security', '--no-pager', '--offline=true', '--threshold=100', unit];
		const { stdout } = spawnSync('systemd-analyze', words, { encoding: 'utf8' });
		return [basename(unit), Number(/exposure level for \S+: ([\d.]+)/.exec(stdout)?.[1])] as const;
	});
	console.log(`Exposure: ${exposures.map((pair) => pair.join(' ')).join(', ')}`);
	const runsApt = ['idv-agent-update.service', 'idv-agent-finish.service', JUDGE_UNIT];
	expect(exposures.filter(([name, level]) => !(level <= (runsApt.includes(name) ? 6 : 4)))).toEqual([]);
	expect(exposures).toHaveLength(9);
});

test('the package holds the machine code that reads scanners', async () => {
	const scanner = await plugScanner(directory);
	scanner.scan('hello world');
	const { status, said } = call('idv-agent', ['scanner', 'test', '--device', scanner.path, '--count', '1']);
	expect({ status, said }).toEqual({ status: 0, said: expect.stringContaining('no pairing code (11 characters)') });
});

describe('the package', () => {
	test('is the same byte for byte when it is built again', () => {
		for (const files of [debs, updates]) {
			const [one, two] = files.map((file) => createHash('sha256').update(readFileSync(file)).digest('hex'));
			expect(two).toBe(one);
		}
	});

	/** Lintian reads the machine code of Node for a minute: in a short run a small program stands in its place. */
	function withSmallProgram(deb: string, number: number): string {
		const parts = join(directory, `small-${number}`);
		execFileSync('dpkg-deb', ['--raw-extract', deb, parts]);
		for (const program of globSync(`${parts}/usr/lib/*/*`))
			if ((statSync(program, { throwIfNoEntry: false })?.size ?? 0) > 50_000_000) copyFileSync('/bin/true', program);
		rmSync(join(parts, 'DEBIAN/md5sums'), { force: true });
		execFileSync('dpkg-deb', ['--root-owner-group', '-Zgzip', '--build', parts, `${parts}.deb`], { stdio: 'ignore' });
		return `${parts}.deb`;
	}

	// Beside each other: most of its time one lintian waits for the programs that it starts.
	test.concurrent.each([0, 1, 2])(
		'number %i has no error that lintian finds',
		async (number) => {
			const deb = [debs[0] ?? '', tools, updates[0] ?? ''][number] ?? '';
			const read = SHORT ? withSmallProgram(deb, number) : deb;
			const lintian = spawn('lintian', ['--allow-root', '--fail-on', 'error', read], {
				stdio: ['ignore', 'pipe', 'inherit'],
			});
			const [stdout, [status]] = await Promise.all([text(lintian.stdout), once(lintian, 'close')]);
			expect({ status, stdout }).toEqual({ status: 0, stdout: expect.not.stringMatching(/^E:/m) });
		},
		180_000,
	);

	test.each(['idv-agent', 'idv', 'idv-tools'])('has a manual page for %s that man reads without a warning', (name) => {
		const page = join(name === 'idv-agent' ? tree : toolsTree, `usr/share/man/man1/${name}.1.gz`);
		const env = { ...process.env, MANWIDTH: '80', LC_ALL: 'C.UTF-8', MANROFFSEQ: '' };
		const { stdout, stderr } = spawnSync('man', ['--warnings', '--local-file', page], {
			...AT_MOST,
			env,
			encoding: 'utf8',
		});
		expect(stderr).toBe('');
		expect(stdout).toMatch(new RegExp(`NAME\\n +${name} +- `));
		expect(stdout.split('\n').length).toBeGreaterThan(30);
	});

	test('completes the words of the commands in bash', () => {
		const complete = (...words: string[]) =>
			execFileSync(
				'bash',
				[
					'-c',
					String.raw`source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _idv_agent; IFS=$'\n'; echo "${'$'}{COMPREPLY[*]}"`,
					'bash',
					join(tree, 'usr/share/bash-completion/completions/idv-agent'),
					...words,
				],
				{ encoding: 'utf8' },
			)
				.trim()
				.split('\n');
		expect(complete('idv-agent', 'workf')).toEqual(['workflow']);
		expect(complete('idv-agent', 'workflow', '')).toEqual(expect.arrayContaining(['show', 'set']));
		expect(complete('idv-agent', 'pair', '--im')).toEqual(['--image']);
	});

	test('hands /usr/bin/idv over to idv-tools when a device of 0.1.0 is upgraded', () => {
		const [root, old, now] = ['root', 'old', 'now'].map((name) => join(directory, name)) as [string, string, string];
		const control = 'Package: idv-agent\nVersion: 0.1.0\nArchitecture: all\nMaintainer: none\nDescription: none\n';
		mkdirSync(join(old, 'usr/bin'), { recursive: true });
		mkdirSync(join(old, 'DEBIAN'));
		symlinkSync('idv-agent', join(old, 'usr/bin/idv'));
		writeFileSync(join(old, 'DEBIAN/control'), control);
		// Its scripts are for a machine that runs.
		execFileSync('dpkg-deb', ['--raw-extract', debs[0] ?? '', now]);
		for (const script of ['postinst', 'prerm', 'postrm']) rmSync(join(now, 'DEBIAN', script));
		for (const parts of [old, now]) execFileSync('dpkg-deb', ['-Znone', '--build', parts, `${parts}.deb`]);
		for (const part of ['updates', 'info']) mkdirSync(join(root, 'var/lib/dpkg', part), { recursive: true });
		writeFileSync(join(root, 'var/lib/dpkg/status'), '');
		const dpkg = (...files: string[]) =>
			spawnSync('dpkg', [`--root=${root}`, '--force-depends', '--log=/dev/null', '--install', ...files], {
				...AT_MOST,
				encoding: 'utf8',
			});
		expect(dpkg(`${old}.deb`).status).toBe(0);
		const refused = dpkg(tools);
		expect({ status: refused.status, stderr: refused.stderr }).toEqual({
			status: 1,
			stderr: expect.stringContaining('breaks'),
		});
		expect(dpkg(`${now}.deb`, tools)).toMatchObject({ status: 0 });
		expect(readlinkSync(join(root, 'usr/bin/idv'))).toBe('../lib/idv-tools/idv-tools');
		expect(dpkg(`${now}.deb`)).toMatchObject({ status: 0 });
		expect(existsSync(join(root, 'usr/bin/idv'))).toBe(true);
	});

	test('explains every setting in words that are no settings themselves', () => {
		const example = readFileSync(join(tree, 'etc/idv-agent/config.example.jsonc'), 'utf8');
		for (const name of ['baseUrl', 'heartbeatCadence', '"network"', 'caFile']) expect(example).toContain(name);
		const withoutComments = example.replaceAll(/^\s*\/\/.*$/gm, '');
		expect(JSON.parse(withoutComments)).toEqual({});
	});
});
