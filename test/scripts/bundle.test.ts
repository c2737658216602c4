import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type BuiltFile, bundle } from '../../scripts/bundle.ts';

const run = promisify(execFile);
const project = resolve(import.meta.dirname, '../..');

/** Prints what has run and which files are loaded, before and after it imports what it does not need at the start. */
const PROGRAM = `
import { name } from './part.ts';
declare const IDV_AGENT_VERSION: string;
const loaded = () => Object.keys(require.cache).map((path) => path.split('/').at(-1)).sort();
const say = (what: object) => process.stdout.write(JSON.stringify(what) + '\\n');

async function main(): Promise<void> {
	say({ version: IDV_AGENT_VERSION, name, here: [__filename, import.meta.filename], lazyRan: globalThis.lazyRan, loaded: loaded() });
	const { answer, readBarcodes } = await import('./lazy.ts');
	const { default: information } = await import('systeminformation');
	say({ answer, reads: typeof readBarcodes, informs: typeof information.system, lazyRan: globalThis.lazyRan, loaded: loaded() });
}
void main();
`;
const LAZY = `
import { readBarcodes } from 'zxing-wasm/reader';
globalThis.lazyRan = true;
export const answer = 42;
export { readBarcodes };
`;

const READS = `
import { readPicture } from ${JSON.stringify(join(project, 'src/scanning/picture-reader.edge.ts'))};
const main = async () => {
	for (const path of process.argv.slice(2)) process.stdout.write(JSON.stringify(await readPicture(path)) + '\\n');
};
void main();
`;

let root = '';
beforeAll(async () => {
	root = await mkdtemp(join(tmpdir(), 'bundle-'));
	await mkdir(join(root, 'src'));
	await writeFile(join(root, 'package.json'), '{"type":"module","version":"9.8.7"}');
	await writeFile(join(root, 'src/program.ts'), PROGRAM);
	await writeFile(join(root, 'src/part.ts'), "export const name: string = 'part';");
	await writeFile(join(root, 'src/lazy.ts'), LAZY);
	await writeFile(join(root, 'src/reads.ts'), READS);
	await writeFile(join(root, 'src/decodes.ts'), "void import('zxing-wasm/reader');");
	await writeFile(
		join(root, 'src/views.ts'),
		"import * as fs from 'node:fs'; import path, { join } from 'node:path'; console.log(JSON.stringify([Object.keys(fs).length, Object.getPrototypeOf(fs) === fs.default, fs.default === require('node:fs'), join === path.join]));",
	);
	await writeFile(join(root, 'src/waits.ts'), 'export const x = await Promise.resolve(1);');
	await writeFile(join(root, 'src/wrong.ts'), "import { nothing } from './part.ts'; console.log(nothing);");
	await writeFile(join(root, 'src/wide.ts'), 'console.log(/\u2026/.test("x"));');
	await symlink(join(project, 'node_modules'), join(root, 'node_modules'));
});
afterAll(async () => {
	await rm(root, { recursive: true, force: true });
});

const names = (files: readonly BuiltFile[]) => files.map(({ path }) => basename(path));

async function lines(file: string, ...args: readonly string[]): Promise<Record<string, unknown>[]> {
	const { stdout } = await run(process.execPath, [file, ...args], { cwd: tmpdir() });
	return stdout
		.trim()
		.split('\n')
		.map((line) => JSON.parse(line));
}

describe('a bundle', () => {
	test('runs what it needs at the start, and the rest only when it is imported', async () => {
		const outDir = join(root, 'dist');
		const files = await bundle({ root, entries: { program: 'src/program.ts' }, outDir });
		const [before, later] = await lines(join(outDir, 'program.cjs'));
		const file = join(outDir, 'program.cjs');
		expect(before).toEqual({ version: '9.8.7', name: 'part', here: [file, file], loaded: ['program.cjs'] });
		expect(later).toEqual({
			answer: 42,
			reads: 'function',
			informs: 'function',
			lazyRan: true,
			loaded: ['program.cjs', 'systeminformation.cjs', 'zxing-reader.cjs'],
		});
		expect(names(files)[0]).toBe('program.cjs');
		expect(names(files)).toContain('zxing-reader.cjs');
		// No part and no decoder that the program never asks for.
		expect(names(files)).not.toContain('webp-decoder.cjs');
		expect(names(files)).not.toContain('webp_dec.wasm');
	});

	test('sees a module of Node through an object that inherits from it, and copies none of its names', async () => {
		const outDir = join(root, 'dist-views');
		await bundle({ root, entries: { program: 'src/views.ts' }, outDir });
		expect(await lines(join(outDir, 'program.cjs'))).toEqual([[0, true, true, true]]);
	});

	test('has the decoders beside it, byte for byte, and tells every size', async () => {
		const outDir = join(root, 'dist-decoders');
		const files = await bundle({ root, entries: { program: 'src/decodes.ts' }, outDir });
		const built = await readFile(join(outDir, 'zxing_reader.wasm'));
		const original = await readFile(join(project, 'node_modules/zxing-wasm/dist/reader/zxing_reader.wasm'));
		expect(built.equals(original)).toBe(true);
		const sizes = await Promise.all(files.map(async ({ path }) => (await readFile(path)).length));
		expect(files.map(({ bytes }) => bytes)).toEqual(sizes);
	});

	test('as a single file holds everything, and still runs it only when it is imported', async () => {
		const outDir = join(root, 'dist-single');
		const files = await bundle({ root, entries: { program: 'src/program.ts' }, outDir, singleFile: true });
		const languages = ['en.js', 'de.js', 'fr.js', 'es.js', 'ar.js'];
		const scripts = ['page.js', 'pair.js', 'codes.js', 'refusals.js', 'requests.js', 'words.js', 'elements.js'];
		const page = ['index.html', 'page.css', ...scripts, ...languages, 'zxing-reader.js', 'qr.js'];
		const native = ['serialport-linux-x64.node', 'serialport-linux-arm64.node'];
		const decoders = ['zxing_reader.wasm', 'webp_dec.wasm'];
		expect(names(files)).toEqual(['program.cjs', ...decoders, ...native, ...page]);
		const [before, later] = await lines(join(outDir, 'program.cjs'));
		expect(before).not.toHaveProperty('lazyRan');
		expect(later).toMatchObject({ answer: 42, reads: 'function', informs: 'function', loaded: ['program.cjs'] });
	});

	test.each([
		['in files of their own', false],
		['in one file', true],
	])('reads pictures of every kind, with its parts %s', async (_how, singleFile) => {
		const outDir = join(root, `dist-reads-${singleFile}`);
		await bundle({ root, entries: { reads: 'src/reads.ts' }, outDir, singleFile });
		const photos = ['photos/turned-by-45.webp', 'photos/straight.jpg', 'photos/white-on-black.png'];
		const texts = await lines(
			join(outDir, 'reads.cjs'),
			...photos.map((name) => join(import.meta.dirname, '../fixtures', name)),
		);
		expect(texts.flat()).toEqual(['photo13', 'photo10', 'photo25'].map((token) => expect.stringContaining(token)));
	});

	test('has no native package of ws, whatever is installed beside it', async () => {
		const outDir = join(root, 'dist-ws');
		await writeFile(join(root, 'src/socket.ts'), "import { WebSocket } from 'ws'; console.log(typeof WebSocket);");
		await bundle({ root, entries: { socket: 'src/socket.ts' }, outDir });
		const text = await readFile(join(outDir, 'socket.cjs'), 'utf8');
		expect(text).toContain('Sec-WebSocket-Key');
		expect(text).not.toMatch(/prebuilds|bufferutil/);
	});

	test('leaves nothing of an older build behind', async () => {
		const outDir = join(root, 'dist-old');
		await mkdir(outDir);
		await writeFile(join(outDir, 'old.cjs'), '');
		await bundle({ root, entries: { program: 'src/program.ts' }, outDir, singleFile: true });
		expect(await readdir(outDir)).not.toContain('old.cjs');
	});

	test.each([
		['an await at the top level', 'src/waits.ts', /await/],
		['an import that does not exist', 'src/wrong.ts', /nothing/],
		['a character that doubles its size in memory', 'src/wide.ts', /beyond Latin-1/],
		['a missing source', 'src/missing.ts', /missing\.ts/],
	])('is not made with %s', async (_what, entry, words) => {
		await expect(bundle({ root, entries: { x: entry }, outDir: join(root, 'dist-bad') })).rejects.toThrow(words);
	});
});

test.each([
	['npm-packages.ts', 'build/npm'],
	['executable.ts', 'build'],
])('%s in a checkout that cannot be written says so in one sentence [F1553]', async (script, place) => {
	const checkout = await mkdtemp(join(tmpdir(), 'blocked-'));
	onTestFinished(() => rm(checkout, { recursive: true, force: true }));
	await cp(join(project, 'scripts'), join(checkout, 'scripts'), { recursive: true });
	for (const name of ['src', 'node_modules', 'package.json']) await symlink(join(project, name), join(checkout, name));
	// For root as well, there is no directory below a device.
	await symlink('/dev/null', join(checkout, 'build'));
	const { code, stderr } = await run(process.execPath, [join(checkout, 'scripts', script)]).then(
		() => expect.unreachable(),
		(error: { code: number; stderr: string }) => error,
	);
	expect(stderr).toMatch(
		new RegExp(`^\\S*${place}\\S* cannot be written: .*\\. Build in a checkout that this user may write to`),
	);
	expect(stderr.trim()).not.toContain('\n');
	expect(code).toBe(1);
});
