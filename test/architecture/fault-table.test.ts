import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CATALOGUE } from '../../src/base/errors.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8');
const lines = read('docs/faults.md')
	.split('\n')
	.filter((line) => line.startsWith('| ') && line.includes('.test.ts`'));
/** `file`: name of the test, in a cell. */
const CITED = /`(test\/[\w/-]+\.test\.ts)`: ([^|]+?) \|/g;
const cited = lines.flatMap((line) => [...line.matchAll(CITED)].map(([, path = '', name = '']) => ({ path, name })));
const codeRows = lines.flatMap((line) => {
	const [, code] = /^\| `([a-z-]+)` \|/.exec(line) ?? [];
	const [first, second] = line.matchAll(CITED);
	const isTried = line.endsWith(' | same |') || second !== undefined;
	return code === undefined ? [] : [{ code, path: first?.[1] ?? '', isTried }];
});

describe('docs/faults.md', () => {
	test('names tests that are there', () => {
		expect(cited.length).toBeGreaterThan(60);
		const missing = cited.filter(({ path, name }) => !titlesOf(path).some((title) => title.includes(name)));
		expect(missing).toEqual([]);
	});

	test('has a row for every code of the catalogue, and for no other', () => {
		expect(codeRows.map(({ code }) => code).toSorted()).toEqual(Object.keys(CATALOGUE).toSorted());
	});

	test('names for each code a test that does what its remedy says', () => {
		const untried = codeRows.filter(({ isTried }) => !isTried).map(({ code }) => code);
		expect(untried).toEqual([]);
	});

	test('names for each code a file that expects it of something real', () => {
		const pure = codeRows.filter(({ path }) => /^test\/(core|protocol)\//.test(path));
		expect(pure).toEqual([]);
		const silent = codeRows.filter(({ code, path }) => !new RegExp(`['"\`]${code}['"\`:]`).test(read(path)));
		expect(silent).toEqual([]);
	});
});

/** The names of the tests of a file, as they stand in it. */
function titlesOf(path: string): string[] {
	const quoted = /(?:\(|\]\)\(|\)\(|,)\s*(['"`])((?:\\.|(?!\1)[^\n])+)\1,/g;
	return [...read(path).matchAll(quoted)].map(([, , title = '']) => title);
}
