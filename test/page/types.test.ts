/** The scripts of the page under the type check: with the agent's own types, and one type for all languages. */
import { spawnSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const PAGE = 'src/page/page';
const SCRIPTS = globSync(`${PAGE}/**/*.js`, { cwd: ROOT }).toSorted();
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const tsc = (root: string, ...flags: string[]) =>
	spawnSync(process.execPath, [TSC, '-p', PAGE, ...flags], { cwd: root, encoding: 'utf8' }).stdout;

test('`npm test` begins with a check that reads every script of the page, and none asks to be spared', () => {
	const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
	expect(scripts.test).toMatch(/^npm run check &&/);
	expect(scripts.check.split(' && ')).toContain(`tsc -p ${PAGE}`);
	const files = tsc(ROOT, '--listFilesOnly').split('\n');
	const read = files.map((file) => relative(ROOT, file)).filter((file) => SCRIPTS.includes(file));
	expect(read.toSorted()).toEqual(SCRIPTS);
	const spared = SCRIPTS.filter((file) => /@ts-|[{<|,] ?any\b/.test(readFileSync(join(ROOT, file), 'utf8')));
	expect(spared).toEqual([]);
});

type Fault = readonly [title: string, file: string, text: string, instead: string, says: RegExp];

/** What the check says of the page where texts of the sources are others. */
function saidOf(faults: readonly Fault[]): string {
	const root = mkdtempSync(join(tmpdir(), 'page-types-'));
	for (const part of ['src', 'package.json', 'tsconfig.json'])
		cpSync(join(ROOT, part), join(root, part), { recursive: true });
	symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
	for (const [, file, text, instead] of faults) {
		const source = readFileSync(join(root, file), 'utf8');
		expect(source.split(text).length, `${text} in ${file}`).toBe(2);
		writeFileSync(join(root, file), source.replace(text, instead));
	}
	const said = tsc(root);
	rmSync(root, { recursive: true });
	return said;
}

const STATUS = 'src/protocol/local-answers.ts';
const FAULTS: readonly Fault[] = [
	['a field of the status has another name', STATUS, 'recovers: z', 'passes: z', /page\.js.*'recovers'/],
	[
		'the status has one more state',
		STATUS,
		"['unpaired', 'connecting',",
		"['unpaired', 'lost', 'connecting',",
		/en\.js.*'lost'/,
	],
	['a body has another name in it', STATUS, 'hostInUnicode: z', 'unicode: z', /pair\.js.*'hostInUnicode'/],
	['the catalogue has another code', 'src/base/errors.ts', "'disk-low': ", "'disk-full': ", /fr\.js.*'disk-low'/],
	['there is another language', 'src/settings/table.ts', "['auto', 'en',", "['auto', 'it', 'en',", /words\.js.*'it'/],
	['a word is missing', `${PAGE}/languages/de.js`, "tryNow: 'Jetzt versuchen',", '', /de\.js.*'tryNow'/],
	[
		'a text is asked for that is not there',
		`${PAGE}/pair.js`,
		"text('looking')",
		"text('seeking')",
		/pair\.js.*"seeking"/,
	],
	['index.html is asked for what is not there', `${PAGE}/page.js`, "at('facts')", "at('fact')", /page\.js.*"fact"/],
];

describe('the check of the page fails', () => {
	let said: string;
	// Of all of them at once: one look takes five seconds of a core.
	beforeAll(() => {
		said = saidOf(FAULTS);
	});
	test.each(FAULTS)('where %s', (...[, , , , says]) => expect(said).toMatch(says));
});
