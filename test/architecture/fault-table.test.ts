/**
 * docs/faults.md cites tests by an id that stands at the end of a test's title, such as `[F012]`, and survives a move or a
 * better title. An id is never given to another fault; the next new one is the highest plus one.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CATALOGUE } from '../../src/base/errors.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8');
const TESTS = globSync('test/**/*.{test,browser}.ts', { cwd: ROOT });

const rows = read('docs/faults.md')
	.split('\n')
	.filter((line) => line.startsWith('| ') && /`F\d{3,4}`/.test(line));
const cited = rows.flatMap((row) => [...row.matchAll(/`(F\d{3,4})`/g)].map(([, id = '']) => id));
/** Rows of the second table: `| code | test | remedy tried |`. */
const codeRows = rows.flatMap((row) => {
	const [, code = '', made = '', tried = ''] = /^\| `([a-z-]+)` \| `(F\d{3,4})` \| (.+) \|$/.exec(row) ?? [];
	return code === '' ? [] : [{ code, made, tried }];
});

/** In which files an id ends a title, one entry for each title. */
const titled = new Map<string, string[]>();
for (const path of TESTS)
	for (const [, id = ''] of read(path).matchAll(/ \[(F\d{3,4})\](['"`]),/g))
		titled.set(id, [...(titled.get(id) ?? []), path]);

const fileOf = (id: string) => titled.get(id)?.[0] ?? '';

/** A test of a decision alone: it shows that a code can be decided, not that something real makes it happen. */
const isOfDecision = (path: string) =>
	!/^test\/(?:cli|operator|service)\//.test(path) &&
	existsSync(resolve(ROOT, path.replace(/^test/, 'src').replace(/\.test\.ts$/, '.ts')));

describe('docs/faults.md', () => {
	test('cites tests that exist, and each test with an id is cited', () => {
		expect(rows.length).toBeGreaterThan(130);
		expect([...titled.keys()].toSorted()).toEqual([...new Set(cited)].toSorted());
	});

	test('an id belongs to one test, and from F1000 on to those of one fault', () => {
		expect([...titled].filter(([id, paths]) => paths.length !== 1 && id.length === 4)).toEqual([]);
	});

	test('has a row for every code of the catalogue, and for no other', () => {
		expect(codeRows.map(({ code }) => code).toSorted()).toEqual(Object.keys(CATALOGUE).toSorted());
	});

	test('names for each code a test that does what its remedy says', () => {
		expect(codeRows.filter(({ tried }) => !/^(?:same|`F\d{3,4}`)$/.test(tried))).toEqual([]);
	});

	test('names for each code a file that expects it of something real', () => {
		expect(codeRows.filter(({ made }) => isOfDecision(fileOf(made)))).toEqual([]);
		const silent = codeRows.filter(({ code, made }) => !new RegExp(`['"\`]${code}['"\`:]`).test(read(fileOf(made))));
		expect(silent).toEqual([]);
	});
});
