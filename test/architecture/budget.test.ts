/** Keeps the size of the project within `budget.json`: growth is a line of the diff that a reviewer sees. */
import { globSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { listSettings } from '../../src/settings/table.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const linesOf = (path: string) => read(path).split('\n').length - 1;
/** In the order of the table of docs/measurements.md. */
const AREAS: Readonly<Record<string, readonly string[]>> = {
	linesOfSource: ['src/**/*.ts'],
	linesOfPage: ['src/page/page/**/*.{js,css,html}'],
	linesOfScripts: ['scripts/**/*.*', 'bin/*', 'systemd/**/*', '.ci/*'],
	linesOfTests: ['test/**/*.*'],
	linesOfDocuments: ['*.md', 'docs/**/*.{md,json,yml,sh}'],
};
/** The clients that a suite generates are no lines of ours. */
const OTHERS = ['node_modules', 'made'];
const filesOf = (patterns: readonly string[]) =>
	globSync(patterns, { cwd: ROOT, exclude: (name) => OTHERS.includes(name) }).filter((path) =>
		statSync(join(ROOT, path)).isFile(),
	);
const SOURCES = filesOf(AREAS['linesOfSource'] ?? []);
/** Words and signs of code, comments left out: shorter names and denser lines do not make it smaller. */
const tokensOf = (path: string) =>
	read(path)
		.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '')
		.match(/\w+|[^\s\w]/g)?.length ?? 0;
/** Functions that do not fit a screen. The formatter puts the end of each at the indentation of its first line. */
const SCREEN_LINES = 80;
const longFunctionsOf = (path: string) =>
	[...read(path).matchAll(/^(\t*)(?:export )?(?:async )?function\*? \w+[\s\S]*?\n\1\}$/gm)].filter(
		([whole]) => whole.split('\n').length > SCREEN_LINES,
	).length;
const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);

const measured: Readonly<Record<string, number>> = {
	...Object.fromEntries(Object.entries(AREAS).map(([name, patterns]) => [name, sum(filesOf(patterns).map(linesOf))])),
	tokensOfSource: sum(SOURCES.map(tokensOf)),
	functionsOverAScreen: sum(SOURCES.map(longFunctionsOf)),
	linesOfLargestFile: Math.max(...SOURCES.map(linesOf)),
	settings: listSettings().size,
	directDependencies: Object.keys(JSON.parse(read('package.json')).dependencies).length,
	wordsOfReadme: read('README.md').split(/\s+/).filter(Boolean).length,
};
const budget: Readonly<Record<string, number>> = JSON.parse(read('test/architecture/budget.json'));

test('the budget names what is measured, and nothing else', () => {
	expect(Object.keys(budget).toSorted()).toEqual(Object.keys(measured).toSorted());
});

test.each(Object.entries(measured))('%s is within test/architecture/budget.json', (name, value) => {
	const line = `"${name}": ${value}`;
	expect(
		value,
		`Make it smaller, or say why in the commit and write in test/architecture/budget.json: ${line}`,
	).toBeLessThanOrEqual(budget[name] ?? 0);
});
