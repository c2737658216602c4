import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { prepareZXingModule, type ReaderOptions, readBarcodes } from 'zxing-wasm/reader';
import { AgentError } from '../../src/base/errors.ts';
import { readPicture } from '../../src/scanning/picture-reader.edge.ts';

const PHOTOS = join(import.meta.dirname, '../fixtures/photos');

async function photos(): Promise<{ path: string; text: string }[]> {
	const list = await readFile(join(PHOTOS, 'expected.txt'), 'utf8');
	return list
		.trimEnd()
		.split('\n')
		.map((line) => {
			const [name = '', text = ''] = line.split('\t');
			return { path: join(PHOTOS, name), text };
		});
}

const HARDEST: ReaderOptions = {
	formats: ['QRCodeModel2', 'AztecCode'],
	tryHarder: true,
	tryRotate: true,
	tryInvert: true,
	tryDownscale: true,
	textMode: 'Plain',
};
/** The decoder with all its efforts on, and with each of its further choices. */
const SETTINGS: Record<string, ReaderOptions> = {
	'as hard as it can': HARDEST,
	'and with less noise': { ...HARDEST, tryDenoise: true },
	'and with one threshold for all': { ...HARDEST, binarizer: 'GlobalHistogram' },
};

function isOpenToAll({ path }: { path: string }): boolean {
	return !path.endsWith('.webp');
}

async function scoreOf(options: ReaderOptions): Promise<number> {
	let score = 0;
	// It opens no WebP; those cannot speak for it.
	for (const { path, text } of (await photos()).filter(isOpenToAll)) {
		const found = await readBarcodes(await readFile(path), options).catch(() => []);
		if (found.some((one) => one.isValid && one.text === text)) score += 1;
	}
	return score;
}

test('of the distorted pictures it reads at least what the decoder reads with its own best settings, and nothing wrong', async () => {
	const set = await photos();
	const open = set.filter(isOpenToAll);
	expect(open.length).toBeGreaterThanOrEqual(15);
	const missed: string[] = [];
	for (const { path, text } of set) {
		const read = await readPicture(path).catch((error: unknown) => {
			if (!(error instanceof AgentError) || error.code !== 'picture-without-code') throw error;
			missed.push(path);
			return [];
		});
		for (const one of read) expect({ path, text: one }).toEqual({ path, text });
	}
	const binary = await readFile(createRequire(import.meta.url).resolve('zxing-wasm/reader/zxing_reader.wasm'));
	prepareZXingModule({ overrides: { wasmBinary: new Uint8Array(binary).buffer } });
	const best = Math.max(...(await Promise.all(Object.values(SETTINGS).map(scoreOf))));
	expect(best).toBeGreaterThan(open.length / 2);
	const score = open.filter(({ path }) => !missed.includes(path)).length;
	expect(score, `missed: ${missed.join(', ')}`).toBeGreaterThanOrEqual(best);
});
