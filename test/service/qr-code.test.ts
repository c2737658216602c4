import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { prepareZXingModule, readBarcodes } from 'zxing-wasm/reader';
import { renderQrTerminal, writeQrPng, writeQrSvg } from '../../src/service/qr-code.runner.ts';
import { credentialsOf, givenService, send } from './fixture.ts';

beforeAll(() => {
	const wasm = createRequire(import.meta.url).resolve('zxing-wasm/reader/zxing_reader.wasm');
	prepareZXingModule({ overrides: { wasmBinary: new Uint8Array(readFileSync(wasm)).buffer } });
});

type Picture = Parameters<typeof readBarcodes>[0];

/** The one code that a picture shows. */
async function decode(picture: Picture): Promise<string> {
	const found = await readBarcodes(picture, { formats: ['QRCode'] });
	expect(found).toHaveLength(1);
	return found[0]?.text ?? '';
}

/** Draws modules as a picture; `true` is dark. */
function draw(modules: readonly (readonly boolean[])[], scale = 4): Picture {
	const width = (modules[0]?.length ?? 0) * scale;
	const height = modules.length * scale;
	const data = new Uint8ClampedArray(width * height * 4).fill(255);
	for (let y = 0; y < height; y += 1) {
		for (let x = 0; x < width; x += 1) {
			if (modules[Math.floor(y / scale)]?.[Math.floor(x / scale)])
				data.fill(0, (y * width + x) * 4, (y * width + x) * 4 + 3);
		}
	}
	return { data, width, height, colorSpace: 'srgb' } as Picture;
}

/** Follows the one path of our SVG: runs of dark modules. */
function readSvg(svg: string): boolean[][] {
	const size = Number(/viewBox="0 0 (\d+) \1"/.exec(svg)?.[1]);
	const modules = Array.from({ length: size }, () => new Array<boolean>(size).fill(false));
	for (const [, x, y, length, back] of svg.matchAll(/M(\d+) (\d+)h(\d+)v1h-(\d+)z/g)) {
		expect(length).toBe(back);
		modules[Number(y)]?.fill(true, Number(x), Number(x) + Number(length));
	}
	return modules;
}

/** What a terminal shows: two rows of modules for each line. */
function readTerminal(output: string): boolean[][] {
	return output.split('\n').flatMap((line) => {
		const blocks = [...line.replaceAll(/\x1b\[[\d;]*m/g, '')];
		if (blocks.length === 0) return [];
		return [blocks.map((block) => '▀█'.includes(block)), blocks.map((block) => '▄█'.includes(block))];
	});
}

const link = `http://127.0.0.1:8080/mobile?authorization=Token%20tr-${'aB3'.repeat(9)}x&workflowId=check-in`;

describe('a QR code', () => {
	test('reads back from PNG, SVG and the terminal, whatever the text', async () => {
		const texts = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 200 });
		await fc.assert(
			fc.asyncProperty(texts, async (text) => {
				expect(await decode(writeQrPng(text))).toBe(text);
				expect(await decode(draw(readSvg(writeQrSvg(text))))).toBe(text);
				expect(await decode(draw(readTerminal(renderQrTerminal(text))))).toBe(text);
			}),
			{ numRuns: 15, examples: [[link]] },
		);
	});

	test('has a quiet zone of four modules on every side and its own colours', async () => {
		const svg = writeQrSvg(link);
		expect(svg).toContain('fill="#fff"');
		const terminal = renderQrTerminal(link);
		for (const line of terminal.trimEnd().split('\n')) expect(line).toMatch(/^\x1b\[38;5;16;48;5;231m.*\x1b\[0m$/);
		for (const modules of [readSvg(svg), readTerminal(terminal).slice(0, readSvg(svg).length)]) {
			const dark = modules.flatMap((line, y) => line.flatMap((isDark, x) => (isDark ? [{ x, y }] : [])));
			const [xs, ys] = [dark.map(({ x }) => x), dark.map(({ y }) => y)];
			expect([Math.min(...xs), Math.min(...ys)]).toEqual([4, 4]);
			expect([Math.max(...xs), Math.max(...ys)]).toEqual([modules.length - 5, modules.length - 5]);
		}
	});

	test('without colours shows the same modules as light blocks', async () => {
		const coloured = readTerminal(renderQrTerminal(link));
		const plain = renderQrTerminal(link, true).trimEnd().split('\n');
		const light = plain.flatMap((line) => [
			[...line].map((block) => block === '█' || block === '▀'),
			[...line].map((block) => block === '█' || block === '▄'),
		]);
		expect(light.map((line) => line.map((isLight) => !isLight))).toEqual(coloured);
	});

	test('is refused for a text that is too long', async () => {
		expect(() => writeQrPng('x'.repeat(2332))).toThrow(RangeError);
		expect(() => renderQrTerminal('x'.repeat(3000))).toThrow('3000 bytes');
		expect(renderQrTerminal('x'.repeat(2331))).not.toBe('');
	});
});

describe('GET /api/deeplink/qrcode', () => {
	test.each([
		[undefined, 'image/png'],
		['*/*', 'image/png'],
		['text/html,application/xhtml+xml,*/*;q=0.8', 'image/png'],
		['image/*', 'image/png'],
		['image/svg+xml', 'image/svg+xml'],
		['image/png;q=0.1, image/svg+xml;q=0.9', 'image/svg+xml'],
		['application/json', 'application/json'],
		['image/*;q=0.5, application/json', 'application/json'],
	])('answers Accept %j with %s', async (accept, contentType) => {
		const service = await givenService();
		const answer = await send(service.url, {
			path: '/api/deeplink/qrcode?workflowId=check-in',
			authorization: credentialsOf(service).Basic,
			headers: accept === undefined ? {} : { accept },
		});
		expect([answer.status, answer.headers['content-type']]).toEqual([200, contentType]);
		expect(answer.headers['cache-control']).toBe('no-store');
		const text =
			contentType === 'application/json'
				? answer.json.url
				: await decode(contentType === 'image/png' ? answer.bytes : draw(readSvg(answer.text)));
		const form = new RegExp(`^${service.url}/mobile\\?authorization=Token%20(tr-\\w{28})&workflowId=check-in$`);
		expect(text).toMatch(form);

		const body = { deviceId: 'kiosk-1', workflowId: 'check-in' };
		const authorization = `Token ${form.exec(text)?.[1]}`;
		expect((await send(service.url, { path: '/api/device/connection', authorization, body })).status).toBe(201);
	});

	test('gives link, token, end and workflow as JSON', async () => {
		const service = await givenService({ now: () => Date.UTC(2030, 0, 1), shortTokenTtlSeconds: 60 });
		const answer = await send(service.url, {
			path: '/api/deeplink/qrcode',
			authorization: credentialsOf(service).ApiKey,
			headers: { accept: 'application/json' },
		});
		const { token } = answer.json;
		const url = `${service.url}/mobile?authorization=Token%20${token}`;
		expect(answer.json).toEqual({ url, token, expiresAt: '2030-01-01T00:01:00.000Z', workflowId: null });
	});

	test('refuses other formats and bad or repeated workflows before it makes a code', async () => {
		const service = await givenService({ maxShortTokens: 1, workflows: ['check-in'] });
		const authorization = credentialsOf(service).Basic;
		const ask = async (query: string, accept = '*/*') => {
			const answer = await send(service.url, {
				path: `/api/deeplink/qrcode${query}`,
				authorization,
				headers: { accept },
			});
			return [answer.status, answer.json?.code];
		};
		expect(await ask('', 'text/html')).toEqual([406, 'not-acceptable']);
		expect(await ask('', 'image/png;q=0')).toEqual([406, 'not-acceptable']);
		expect(await ask('?workflowId=')).toEqual([400, 'query-invalid']);
		expect(await ask('?workflowId=a&workflowId=b')).toEqual([400, 'query-invalid']);
		expect(await ask('?workflowId=nowhere')).toEqual([404, 'workflow-unknown']);
		expect(await ask('?workflowId=check-in')).toEqual([200, undefined]);
	});
});
