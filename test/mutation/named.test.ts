import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { NAMED } from './named-faults.ts';

test('each named fault can still be planted: its text stands in its file, and its tests are there', () => {
	const gone = NAMED.filter(({ file, from, tests }) => {
		const count = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8').split(from).length - 1;
		return count < 1 || !existsSync(new URL(`../../${tests}`, import.meta.url));
	});
	expect(gone.map(({ name }) => name)).toEqual([]);
});
