import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { globSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { type Architecture, buildExecutable } from '../../scripts/executable.ts';
import { plugScanner } from '../fixtures/scanners/plug.ts';
import { ensureTools } from './machine.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const ARCHITECTURE: Architecture = process.arch === 'arm64' ? 'arm64' : 'x64';

let directory: string;
let executable: string;
let debs: string[];
let tree: string;

beforeAll(async () => {
	ensureTools();
	directory = mkdtempSync(join(tmpdir(), 'idv-package-'));
	debs = [];
	for (const build of ['one', 'two']) {
		const outDir = join(directory, build);
		executable = await buildExecutable({ root: ROOT, architecture: ARCHITECTURE, outDir });
		const parts = {
			root: ROOT,
			executable,
			architecture: ARCHITECTURE,
			version: '0.1.0',
			epoch: 1_780_000_000,
			outDir,
		};
		debs.push(await buildDebianPackage({ ...parts, compression: 'gzip' }));
	}
	tree = join(directory, 'tree');
	execFileSync('dpkg-deb', ['--extract', debs[0] ?? '', tree]);
});
afterAll(() => rmSync(directory, { recursive: true }));

/** Runs the executable by a name, with nothing but these variables. */
function call(name: string, words: readonly string[], env: Record<string, string> = {}) {
	const { status, stdout, stderr } = spawnSync(join(tree, 'usr/bin', name), words, { env, encoding: 'utf8' });
	return { status, said: stdout + stderr };
}

describe('the executable', () => {
	test('is one command or the other by its name', () => {
		expect(call('idv-agent', ['--help']).said).toMatch(/^Usage: idv-agent /);
		expect(call('idv', ['--help']).said).toMatch(/^Usage: idv /);
		const other = join(directory, 'renamed');
		symlinkSync(executable, other);
		expect(execFileSync(other, ['--help'], { encoding: 'utf8' })).toMatch(/^Usage: idv-agent /);
	});

	test('takes no Node option from the environment or the command line', () => {
		const env = { NODE_OPTIONS: '--require=/nonexistent.cjs --inspect', NODE_TLS_REJECT_UNAUTHORIZED: '0' };
		const { status, said } = call('idv-agent', ['--version'], env);
		// Node itself would have warned of the second and failed at the first.
		expect({ status, said }).toEqual({ status: 0, said: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
		expect(call('idv-agent', ['--node-options=--require=/nonexistent.cjs', 'status']).said).toMatch(/unknown option/i);
	});

	test('compiles ahead what a start needs, takes it from then on, and ignores a damaged one [F365]', () => {
		const { said, status } = call('idv-agent', ['code-cache'], { PATH: '/usr/bin:/bin' });
		expect({ status, said }).toEqual({ status: 0, said: 'Compiled ahead what a start needs.\n' });
		const [cache = ''] = globSync(join(tree, 'usr/lib/idv-agent/program-*.cache'));
		expect(statSync(cache).size).toBeGreaterThan(100_000);
		expect(call('idv-agent', ['--version']).status).toBe(0);
		// Whatever is in it, a start does without: V8 looks before it uses it.
		writeFileSync(cache, readFileSync(cache).subarray(0, 5000));
		expect(call('idv-agent', ['--version'])).toEqual({ status: 0, said: expect.stringMatching(/^\d/) });
		expect(call('idv-agent', ['code-cache'], { PATH: '/usr/bin:/bin' }).status).toBe(0);
		const good = readFileSync(cache);
		const pages = Array.from({ length: Math.ceil(good.length / 4096) }, (_, page) => page * 4096);
		// Every eighth page in a short run; a damaged one ended every command before there was a digest.
		for (const from of pages.filter((_, index) => index % (process.env['SYSTEM'] === 'short' ? 8 : 1) === 0)) {
			const flipped = Buffer.from(good);
			flipped[from + (from % 97)] = ~(good[from + (from % 97)] ?? 0);
			for (const damaged of [flipped, Buffer.from(good).fill(0, from, from + 4096), good.subarray(0, from)]) {
				writeFileSync(cache, damaged);
				expect(call('idv-agent', ['--version']), `page at ${from}`).toMatchObject({ status: 0 });
			}
		}
		rmSync(cache);
	});

	test('carries the decoders: it draws a pairing code and reads it, and tells the whole story', () => {
		const { status, stdout, stderr } = spawnSync(join(tree, 'usr/bin/idv-agent'), ['demo', '--once'], {
			cwd: directory,
			env: { TMPDIR: directory, PATH: '/usr/bin:/bin' },
			encoding: 'utf8',
		});
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
		expect(stdout).toContain('demo-pairing-code.png');
	});
});

test('the package holds the machine code that reads scanners', async () => {
	const scanner = await plugScanner(directory);
	scanner.scan('hello world');
	const { status, said } = call('idv-agent', ['scanner', 'test', '--device', scanner.path, '--count', '1']);
	expect({ status, said }).toEqual({ status: 0, said: expect.stringContaining('no pairing code (11 characters)') });
});

describe('the package', () => {
	test('is the same byte for byte when it is built again', () => {
		const [one, two] = debs.map((file) => createHash('sha256').update(readFileSync(file)).digest('hex'));
		expect(two).toBe(one);
	});

	test('has no error that lintian finds', () => {
		const { status, stdout } = spawnSync('lintian', ['--allow-root', '--fail-on', 'error', debs[0] ?? ''], {
			encoding: 'utf8',
		});
		expect({ status, stdout }).toEqual({ status: 0, stdout: expect.not.stringMatching(/^E:/m) });
	});

	test.each(['idv-agent', 'idv'])('has a manual page for %s that man reads without a warning', (name) => {
		const page = join(tree, `usr/share/man/man1/${name}.1.gz`);
		const env = { ...process.env, MANWIDTH: '80', LC_ALL: 'C.UTF-8', MANROFFSEQ: '' };
		const { stdout, stderr } = spawnSync('man', ['--warnings', '--local-file', page], { env, encoding: 'utf8' });
		expect(stderr).toBe('');
		expect(stdout).toMatch(new RegExp(`NAME\\n +${name} +- `));
		expect(stdout.split('\n').length).toBeGreaterThan(40);
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

	test('explains every setting in words that are no settings themselves', () => {
		const example = readFileSync(join(tree, 'etc/idv-agent/config.example.jsonc'), 'utf8');
		for (const name of ['baseUrl', 'heartbeatCadence', '"network"', 'caFile']) expect(example).toContain(name);
		const withoutComments = example.replaceAll(/^\s*\/\/.*$/gm, '');
		expect(JSON.parse(withoutComments)).toEqual({});
	});
});
