/** The files of the page, wherever they are: assets of an executable, files beside the program, or in the package they come from. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { PAGE_LANGUAGES } from '../settings/table.ts';

const SCRIPTS = ['page', 'pair', 'codes', 'refusals', 'requests', 'words', 'elements'];

interface PageFile {
	readonly name: string;
	readonly type: string;
	/** A module of a package and the file's place beside it, where the program is not bundled. */
	readonly npm?: readonly [specifier: string, place: string];
}

/** By path on the server. */
export const PAGE_FILES: Readonly<Record<string, PageFile>> = {
	'/': { name: 'page/index.html', type: 'text/html; charset=utf-8' },
	'/page.css': { name: 'page/page.css', type: 'text/css; charset=utf-8' },
	...Object.fromEntries(
		[...SCRIPTS, ...PAGE_LANGUAGES.filter((tag) => tag !== 'auto').map((tag) => `languages/${tag}`)].map((name) => [
			`/${name}.js`,
			{ name: `page/${name}.js`, type: 'text/javascript; charset=utf-8' },
		]),
	),
	'/qr.js': { name: 'page/qr.js', type: 'text/javascript; charset=utf-8', npm: ['uqr', '../index.mjs'] },
	'/zxing-reader.js': {
		name: 'page/zxing-reader.js',
		type: 'text/javascript; charset=utf-8',
		npm: ['zxing-wasm/reader', '../../../iife/reader/index.js'],
	},
	'/zxing_reader.wasm': {
		name: 'zxing_reader.wasm',
		type: 'application/wasm',
		npm: ['zxing-wasm/reader', '../../../reader/zxing_reader.wasm'],
	},
};

export async function readPageFile({ name, npm }: PageFile): Promise<Uint8Array> {
	const sea = await import('node:sea');
	if (sea.isSea()) return new Uint8Array(sea.getRawAsset(name) as ArrayBuffer);
	// A CommonJS bundle has the first, a source file the second.
	const here = typeof __filename === 'string' ? __filename : import.meta.filename;
	const beside = readFile(join(dirname(here), name));
	if (!npm) return beside;
	const [specifier, place] = npm;
	return beside.catch(() => readFile(join(createRequire(here).resolve(specifier), place)));
}
