/**
 * Faults that once stayed unnoticed, each with the tests that must notice it now: `npm run mutate -- --named [part of a name]`.
 * Ends with 1 when one is not noticed. A text that is no longer in its file fails too: plant the fault elsewhere.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, withCopy } from './copy.ts';
import { NAMED } from './named-faults.ts';

/** Tries all whose name has the text; returns the exit status. */
export async function tryNamed(part: string): Promise<number> {
	const asked = NAMED.filter(({ name }) => name.includes(part));
	let missed = 0;
	await withCopy(async (copy) => {
		for (const { name, file, from, to, tests } of asked) {
			const source = readFileSync(join(ROOT, file), 'utf8');
			const fits = source.includes(from);
			const able = globSync([tests, `${tests}/*.test.ts`], { cwd: ROOT }).filter(
				(test) => test.endsWith('.test.ts') && copy.testsOf(file).has(test),
			);
			const changed = source.replace(from, () => to);
			const by = fits ? await copy.noticedBy(file, changed, able) : null;
			if (by === null) missed += 1;
			const verdict = by ? 'noticed' : fits ? 'NOT NOTICED' : 'NOT THERE ANY MORE';
			process.stdout.write(`${verdict.padEnd(13)} ${name} (${by ?? tests})\n`);
		}
	});
	process.stdout.write(`${asked.length - missed} of ${asked.length} noticed\n`);
	return missed === 0 ? 0 : 1;
}
