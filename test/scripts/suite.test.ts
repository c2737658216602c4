/** The table of suites: complete, honest about its names, and what CI runs. */
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { SUITES } from '../suite.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const scriptOf = (name: string) => SUITES[name]?.run.find((part) => part.startsWith('test/')) ?? '';

test('every suite of the table runs a file that exists', () => {
	expect(Object.keys(SUITES).filter((name) => !existsSync(join(ROOT, scriptOf(name))))).toEqual([]);
});

test('every folder below test/ that has a configuration or a runner of its own has a suite in the table', () => {
	const folders = globSync('test/**/{vitest.config,browser.config,run,soak}.ts', { cwd: ROOT }).map(dirname);
	const known = new Set(Object.keys(SUITES).map((name) => dirname(scriptOf(name))));
	expect(folders.length).toBeGreaterThan(10);
	expect(folders.filter((folder) => !known.has(folder))).toEqual([]);
});

test('CI runs the short form of every suite that has one', () => {
	expect(read('.ci/run')).toContain('npm run -s suite -- --ci');
	expect(read('.ci/run')).toContain('npm run -s suite -- --short "$1"');
	expect(read('.ci/run')).toContain('npm run -s suite -- --short "$name"');
	expect(Object.values(SUITES).filter(({ short }) => short).length).toBeGreaterThan(10);
});

test('of suites side by side the one that a machine does not permit is named, and the others run', () => {
	const [side] = read('.ci/run').match(/^side_by_side\(\) \{[\s\S]*?^\}$/m) ?? [];
	const script = `
		OUTPUT=$(mktemp -d); LONGEST=60; failed=() not_permitted=()
		${side}
		is_permitted() { [[ $1 != update ]]; }
		npm() { echo "ran $*"; }; export -f npm
		timeout() { bash -c '"$@"' timeout "\${@:3}"; }
		side_by_side update dialects
		echo "not permitted: \${not_permitted[*]}; failed: \${failed[*]}"
		rm -r "$OUTPUT"`;
	const said = execFileSync('bash', ['-c', script], { encoding: 'utf8' }).split('\n');
	expect(said.filter((line) => /^(?:ran|not)/.test(line))).toEqual([
		'ran run -s suite -- --short dialects',
		'not permitted: update; failed: ',
	]);
});

test('an npm script that runs a suite names one of the table, and there are at most 30 scripts', () => {
	const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
	const named = Object.values(scripts).flatMap((line) => line.match(/^node test\/suite\.ts (\S+)$/)?.[1] ?? []);
	expect(named.length).toBeGreaterThan(10);
	expect(named.filter((name) => !SUITES[name])).toEqual([]);
	expect(Object.keys(scripts).length).toBeLessThanOrEqual(30);
});
