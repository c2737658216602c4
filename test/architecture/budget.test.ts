/** Keeps the size of the project within `budget.json`: growth is a line of the diff that a reviewer sees. */
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { listSettings } from '../../src/settings/table.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const linesOf = (path: string) => read(path).split('\n').length - 1;
const SOURCES = globSync('src/**/*.ts', { cwd: ROOT });

const measured: Readonly<Record<string, number>> = {
	linesOfSource: SOURCES.reduce((sum, path) => sum + linesOf(path), 0),
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
