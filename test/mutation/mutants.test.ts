import { describe, expect, test } from 'vitest';
import { howFailed } from './copy.ts';
import { allFaultsIn, changedLines, drawFaults, FOLDERS } from './draw.ts';
import { EQUIVALENT } from './equivalent.ts';
import { mutantsOf } from './mutants.ts';
import { verdictOf } from './plant.ts';

/** The source with each fault of this kind. */
const planted = (source: string, kind: string) =>
	mutantsOf(source)
		.filter((mutant) => mutant.kind === kind)
		.map(({ start, end, text }) => source.slice(0, start) + text + source.slice(end));

test.each([
	['seconds for milliseconds', 'wait(seconds * 1000);', 'wait(seconds);'],
	['seconds for milliseconds', 'const LIMIT_MS = 15_000;', 'const LIMIT_MS = 15;'],
	['two arguments are swapped', 'rename(from, to);', 'rename(to, from);'],
	['two properties are swapped', 'f({ key: a.key, cert: a.cert });', 'f({ key: a.cert, cert: a.key });'],
	['a clean-up is left out', 'try { f(); } finally { close(); }', 'try { f(); } finally {}'],
	['a clean-up is left out', 'function f() { return () => off(); }', 'function f() { return () => {}; }'],
	['await is left out', 'await flush(file);', '(flush(file));'],
	['< becomes <=', 'if (a < b) f();', 'if (a <= b) f();'],
	['one more or less', 'f(count - 1);', 'f(count);'],
	['if never', 'function f() { if (a) return; }', 'function f() { if (false) return; }'],
	['an escape is lost', 'f(escapeHtml(text));', 'f(text);'],
	['an escape is lost', 'f(/a\\.b/);', 'f(/a.b/);'],
	['a default is left out', 'f(a ?? 5);', 'f(a);'],
	['a property is left out', 'f({ tokenPointer: a, b });', 'f({  b });'],
	['Math.min becomes Math.max', 'Math.min(a(), b());', 'Math.max(a(), b());'],
])('%s: %s', (kind, source, changed) => {
	expect(planted(source, kind)).toContain(changed);
});

test('types, imports, comments and what is logged are left alone', () => {
	const source = `import { a } from 'b';\ntype T = { x: 1 };\n// if (a < b)\nlog.info('x', 5);\n`;
	expect(mutantsOf(source).map(({ kind }) => kind)).toEqual([]);
});

test('every folder has faults, the page and the scripts included, and a seed draws the same each time', () => {
	expect(FOLDERS).toEqual(expect.arrayContaining(['page', 'scripts', 'base', 'operator']));
	for (const folder of FOLDERS) expect(drawFaults(folder, 1, 3), folder).toHaveLength(3);
	expect(drawFaults('page', 5, 8)).toEqual(drawFaults('page', 5, 8));
	expect(drawFaults('page', 1, 1e6).map(({ file }) => file)).toContain('src/page/page/page.js');
});

describe('the lines that have changed', () => {
	const diff = `diff --git a/src/a.ts b/src/a.ts
--- a/src/a.ts
+++ b/src/a.ts
@@ -3 +3,2 @@ function f() {
@@ -9,2 +10,0 @@
diff --git a/src/gone.ts b/src/gone.ts
--- a/src/gone.ts
+++ /dev/null
@@ -1,5 +0,0 @@
`;
	test('are those that a diff adds', () => {
		const lines = changedLines(diff);
		expect([...lines.keys()]).toEqual(['src/a.ts']);
		expect([2, 3, 4, 5, 10].filter((line) => lines.get('src/a.ts')?.(line))).toEqual([3, 4]);
	});
});

test('each fault that is written down as equivalent is still there', () => {
	const gone = EQUIVALENT.filter(
		({ file, kind, before }) => !allFaultsIn(file).some((one) => one.kind === kind && one.before === before),
	);
	expect(gone).toEqual([]);
});

test('a run that had no time for a first fault ends as one that missed too many, and one without faults to plant does not', () => {
	const endsWith = (planted: number, noticed: number, left: number) => verdictOf({ planted, noticed, left });
	expect(endsWith(0, 0, 5)).toEqual({
		says: expect.stringMatching(/^Nothing was shown: the time was over/),
		status: 1,
	});
	expect(endsWith(0, 0, 0)).toEqual({
		says: expect.stringMatching(/^Nothing was tried: there is no fault/),
		status: 0,
	});
	expect(endsWith(6, 4, 9)).toEqual({ says: '4 of 6 noticed', status: 0 });
	expect(endsWith(6, 3, 0)).toEqual({ says: expect.stringMatching(/^Too many: .*\n3 of 6 noticed$/), status: 1 });
	expect([endsWith(20, 17, 0).status, endsWith(19, 16, 0).status]).toEqual([0, 1]);
});

test('a test that a time limit alone has ended is told apart from one that has failed', async () => {
	const late = await expect
		.poll(() => 1, { timeout: 1, interval: 1 })
		.toBe(2)
		.catch((error) => error);
	const limits = ['Test', 'Hook'].map((what) => ({ message: `${what} timed out in 15000ms while waiting for fetch.` }));
	expect(howFailed([late, ...limits])).toBe('late');
	expect(howFailed([...limits, { message: 'expected 1 to be 2' }])).toBe('failed');
	expect(howFailed([])).toBe('failed');
});
