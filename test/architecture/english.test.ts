/** Keeps the patterns of `prose.ts` out of messages, help, comments and documents; decision records and CHANGELOG excepted. */
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { findAwkward, wordsOf } from './prose.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const FILES = globSync(
	['README.md', 'CONTRIBUTING.md', 'docs/*.md', 'src/**/*.{ts,js,css,html}', 'scripts/**/*.ts', 'systemd/**/*.*'],
	{ cwd: ROOT },
);

test('source and documents are written in plain English', () => {
	expect(FILES.length).toBeGreaterThan(150);
	const found = FILES.flatMap((path) =>
		findAwkward(wordsOf(path, readFileSync(join(ROOT, path), 'utf8'))).map((hit) => `${path}: ${hit}`),
	);
	expect(found).toEqual([]);
});

test.each([
	['// Nobody reads this.', 1],
	["const a = 'the agent starts anew by itself';", 2],
	["const a = 'This is no name. There is no name. It is no longer a name.';", 1],
	['/** What travels on the wire. */', 0],
	['/**\n * What comes first,\n * is kept.\n */', 1],
	["const a = 'What now, then?';", 0],
	['const somebody = 1;', 0],
])('%j has %i hits', (source, count) => {
	expect(findAwkward(wordsOf('x.ts', source))).toHaveLength(count);
});
