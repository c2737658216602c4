import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { AgentError, type ErrorCode } from '../../src/base/errors.ts';
import { MAX_PICTURE_BYTES, readPicture, readSingleCode } from '../../src/scanning/picture-reader.edge.ts';
import { drawCode, encodePng, inverted, paint, prepareWriter, rotated, sideBySide } from '../fixtures/pictures/draw.ts';

const LINK = 'https://id.example.com/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=wf-1';
const PHOTO = 'https://id.example.com/mobile?authorization=Token%20tr-photo0photo0photo0photo00&workflowId=wf-photo';
const PICTURES = join(import.meta.dirname, '../fixtures/pictures');

const networkFetch = globalThis.fetch;
const fetched: unknown[] = [];
beforeAll(async () => {
	// The decoder's package would otherwise get its WebAssembly from a server.
	globalThis.fetch = async (input) => {
		fetched.push(input);
		throw new Error('a picture is read without the network');
	};
	await prepareWriter();
});
afterAll(() => {
	globalThis.fetch = networkFetch;
	expect(fetched).toEqual([]);
});

async function directory(): Promise<string> {
	const path = await mkdtemp(join(tmpdir(), 'idv-picture-'));
	onTestFinished(() => rm(path, { recursive: true }));
	return path;
}

async function fileWith(content: string | Uint8Array): Promise<string> {
	const path = join(await directory(), 'code.png');
	await writeFile(path, content);
	return path;
}

async function failureOf(attempt: Promise<unknown>): Promise<AgentError> {
	const error = await attempt.then(
		() => null,
		(reason: unknown) => reason,
	);
	if (error instanceof AgentError) return error;
	throw new Error(`expected an AgentError, got ${error}`);
}

async function expectFailure(attempt: Promise<unknown>, code: ErrorCode, message: RegExp): Promise<void> {
	const error = await failureOf(attempt);
	expect(error.code).toBe(code);
	expect(error.message).toMatch(message);
}

describe('a picture with one code', () => {
	test.each(['QRCode', 'AztecCode'] as const)('%s in a PNG file is read', async (format) => {
		const path = await fileWith(encodePng(await drawCode(LINK, format)));
		expect(await readPicture(path)).toEqual([LINK]);
		expect(await readSingleCode(path)).toBe(LINK);
	});

	test('is read from memory, even from the middle of a buffer', async () => {
		const png = encodePng(await drawCode(LINK));
		const padded = Buffer.concat([Buffer.alloc(5, 1), png, Buffer.alloc(7, 1)]);
		expect(await readPicture(padded.subarray(5, 5 + png.length))).toEqual([LINK]);
	});

	test('may be large, turned, or white on black', async () => {
		const code = await drawCode(LINK);
		expect(await readPicture(encodePng(rotated(code)))).toEqual([LINK]);
		expect(await readPicture(encodePng(inverted(code)))).toEqual([LINK]);
		expect(await readPicture(encodePng(await drawCode(LINK, 'QRCode', 24)))).toEqual([LINK]);
	});

	test('may have characters of any language', async () => {
		expect(await readPicture(encodePng(await drawCode('Prüfgerät 北京 ✓')))).toEqual(['Prüfgerät 北京 ✓']);
	});

	test('is read from a WebP picture, lossy or lossless', async () => {
		expect(await readSingleCode(join(PICTURES, 'screenshot-qr.webp'))).toBe(
			'https://id.example.com/mobile?authorization=Token%20tr-abcdefghijklmnopqrstuvwxyzAB&workflowId=w1',
		);
		expect(await readSingleCode(join(PICTURES, 'code-lossless.webp'))).toBe(
			'https://id.example.com/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr',
		);
		expect(globalThis).not.toHaveProperty('ImageData');
	});

	test('is read from a tilted JPEG photo, baseline or progressive', async () => {
		expect(await readSingleCode(join(PICTURES, 'photo-qr.jpg'))).toBe(`${PHOTO}-qr`);
		const progressive = readFileSync(join(PICTURES, 'photo-aztec-progressive.jpg'));
		// Any marker may have more than one 0xff before it. Source: ITU T.81, B.1.1.2.
		const filled = Buffer.concat([progressive.subarray(0, 2), Buffer.from([0xff]), progressive.subarray(2)]);
		expect(await readSingleCode(filled)).toBe(`${PHOTO}-aztec`);
	});
});

describe('a picture with several codes', () => {
	test('gives each text; asked for one code it refuses, without showing them', async () => {
		const picture = encodePng(sideBySide(await drawCode(LINK), await drawCode('tr-another-token', 'AztecCode')));
		expect((await readPicture(picture)).sort()).toEqual([LINK, 'tr-another-token'].sort());
		const error = await failureOf(readSingleCode(picture));
		expect(error.code).toBe('picture-with-several-codes');
		expect(error.message).toBe('The picture shows 2 different pairing codes.');
	});

	test('uses the one that is a pairing code, whatever else is in the picture', async () => {
		const menu = await drawCode('https://www.example.com/menu');
		const label = await drawCode('4006381333931', 'AztecCode');
		expect(await readSingleCode(encodePng(sideBySide(menu, await drawCode(LINK), label)))).toBe(LINK);
		const error = await failureOf(readSingleCode(encodePng(sideBySide(menu, label))));
		expect(error.message).toBe('The picture shows 2 different codes, and none of them is a pairing code.');
	});

	test('counts the same code shown twice once', async () => {
		const picture = encodePng(sideBySide(await drawCode(LINK), await drawCode(LINK)));
		expect(await readSingleCode(picture)).toBe(LINK);
	});
});

describe('a picture without a code', () => {
	test.each(['DataMatrix', 'PDF417', 'Code128'] as const)('says that %s is another kind of code', async (format) => {
		const error = await failureOf(readSingleCode(encodePng(await drawCode('0123456789', format))));
		expect(error.code).toBe('picture-without-code');
		expect(error.message).toBe(
			'The picture shows a code of another kind, as on goods, labels and letters; a pairing code is a QR or Aztec code.',
		);
	});

	test.each([
		['blank', () => 255],
		['noise', (x: number, y: number) => Math.imul(x * 7919 + y * 104_729 + 1, 2_654_435_761) >>> 24],
		['stripes', (x: number) => (x % 8 < 4 ? 0 : 255)],
	])('says so: %s', async (_name, shade) => {
		await expectFailure(
			readPicture(encodePng(paint(400, 300, shade))),
			'picture-without-code',
			/shows no QR or Aztec code/,
		);
	});

	test('says so for half of a code', async () => {
		const { width, height, pixels } = await drawCode(LINK);
		const half = { width, height: height / 2, pixels: pixels.subarray(0, (width * height) / 2) };
		await expectFailure(readPicture(encodePng(half)), 'picture-without-code', /shows no QR or Aztec code/);
	});
});

describe('what is not a readable picture', () => {
	test('a missing file', async () => {
		await expectFailure(readPicture(join(await directory(), 'none.png')), 'picture-unreadable', /does not exist/);
		await expectFailure(readPicture('/etc/hostname/none.png'), 'picture-unreadable', /does not exist/);
		await expectFailure(readPicture(''), 'picture-unreadable', /does not exist/);
	});

	test('a directory, and a pipe that nobody writes to', async () => {
		const path = await directory();
		await expectFailure(readPicture(path), 'picture-unreadable', /is not a file/);
		execFileSync('mkfifo', [join(path, 'pipe')]);
		await expectFailure(readPicture(join(path, 'pipe')), 'picture-unreadable', /is not a file/);
	});

	test.each([
		['empty file', '', /is empty/],
		['text', 'https://id.example.com/mobile', /not a PNG, JPEG or WebP/],
		['PNG signature alone', Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), /is damaged/],
		['JPEG signature alone', Buffer.from([0xff, 0xd8, 0xff]), /is damaged/],
		['JPEG without a frame', Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xd9]), /is damaged/],
		['photo of an iPhone', Buffer.from('\0\0\0\x18ftypheic', 'latin1'), /HEIC/],
		['GIF', 'GIF89a', /GIF/],
		['PDF', '%PDF-1.7', /PDF/],
	])('%s', async (_name, content, message) => {
		await expectFailure(readPicture(await fileWith(content)), 'picture-unreadable', message);
	});

	test('a WebP picture that is cut off, moves, or claims to be huge', async () => {
		const webp = await readFile(join(PICTURES, 'screenshot-qr.webp'));
		await expectFailure(readPicture(webp.subarray(0, 200)), 'picture-unreadable', /is damaged/);
		const extended = Buffer.from(webp);
		extended.write('VP8X', 12, 'latin1');
		extended[20] = 0b10;
		await expectFailure(readPicture(extended), 'picture-unreadable', /is a WebP picture that moves/);
		const huge = Buffer.from(webp);
		huge.writeUInt16LE(0x3fff, 26);
		huge.writeUInt16LE(0x3fff, 28);
		await expectFailure(readPicture(huge), 'picture-unreadable', /more than 64 million pixels/);
	});

	test('a PNG that was cut off or has wrong bytes', async () => {
		const png = encodePng(await drawCode(LINK));
		await expectFailure(readPicture(png.subarray(0, 200)), 'picture-unreadable', /is damaged/);
		const wrong = Buffer.from(png);
		wrong.fill(0x7f, 41, 120);
		await expectFailure(readPicture(wrong), 'picture-unreadable', /is damaged/);
	});

	test('a small PNG that unfolds to more than its pixels, whose memory the decoder would take first [F1392]', async () => {
		const code = await drawCode(LINK);
		const more = { ...code, pixels: Buffer.alloc(64 * code.width * code.height), height: 64 * code.height };
		more.pixels.set(code.pixels);
		const bomb = encodePng(more);
		bomb.writeUInt32BE(code.height, 20);
		bomb.writeUInt32BE(crc32(bomb.subarray(12, 29)), 29);
		await expectFailure(readPicture(bomb), 'picture-unreadable', /is damaged/);
	});

	test('a file that is too large, without reading it', async () => {
		const path = await fileWith('\x89PNG');
		await truncate(path, MAX_PICTURE_BYTES + 1);
		await expectFailure(readPicture(path), 'picture-unreadable', /larger than 20 MiB/);
		await expectFailure(readPicture(new Uint8Array(MAX_PICTURE_BYTES + 1)), 'picture-unreadable', /larger than 20 MiB/);
	});

	test('a small file that would unfold to gigabytes, without unfolding it', async () => {
		const bomb = Buffer.from(encodePng(paint(1, 1, () => 0)));
		bomb.writeUInt32BE(40_000, 16);
		bomb.writeUInt32BE(40_000, 20);
		await expectFailure(readPicture(bomb), 'picture-unreadable', /more than 64 million pixels/);
		const photo = await readFile(join(PICTURES, 'photo-qr.jpg'));
		const frame = photo.indexOf(Buffer.from([0xff, 0xc0]));
		photo.writeUInt16BE(65_535, frame + 5);
		photo.writeUInt16BE(65_535, frame + 7);
		await expectFailure(readPicture(photo), 'picture-unreadable', /more than 64 million pixels/);
	});
});

describe('bytes that nobody meant', () => {
	test('random bytes, bare or behind a signature, end in an error', async () => {
		const signature = fc.constantFrom('', '\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x40\0\0\0\x40', '\xff\xd8\xff\xc0');
		await fc.assert(
			fc.asyncProperty(signature, fc.uint8Array({ maxLength: 600 }), async (start, rest) => {
				const bytes = Buffer.concat([Buffer.from(start, 'latin1'), rest]);
				const before = process.cpuUsage();
				const error = await failureOf(readPicture(bytes));
				expect(error.code).toMatch(/^picture-(unreadable|without-code)$/);
				expect(process.cpuUsage(before).user).toBeLessThan(5_000_000);
			}),
			{ numRuns: 100 },
		);
	});

	test('a picture with some bytes changed is read or refused, and the next one is read', async () => {
		const png = encodePng(await drawCode(LINK));
		const jpeg = await readFile(join(PICTURES, 'photo-qr.jpg'));
		// The announced size stays: the decoder rightly takes seconds for millions of pixels.
		const size = jpeg.indexOf(Buffer.from([0xff, 0xc0])) + 5;
		const changes = fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { minLength: 1, maxLength: 12 });
		await fc.assert(
			fc.asyncProperty(fc.constantFrom(png, jpeg), changes, async (picture, changed) => {
				const bytes = Buffer.from(picture);
				for (const [at, value] of changed) bytes[at % bytes.length] = value;
				if (picture === jpeg) jpeg.copy(bytes, size, size, size + 4);
				const outcome = await readPicture(bytes).catch((error: unknown) => error);
				if (outcome instanceof AgentError) expect(outcome.code).toMatch(/^picture-(unreadable|without-code)$/);
				else expect(outcome).toEqual([expect.any(String)]);
			}),
			{ numRuns: 100 },
		);
		expect(await readPicture(png)).toEqual([LINK]);
	});
});
