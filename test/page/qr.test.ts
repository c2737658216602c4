/** The code with the device's name, as a reader that was written elsewhere sees it. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readPicture } from '../../src/scanning/picture-reader.edge.ts';
import { encodePng } from '../fixtures/pictures/draw.ts';

const { drawQr, MAX_BYTES } = await import(join(import.meta.dirname, '../../src/page/page/qr.js'));

/** Four pixels a module, with the white border that a code needs. */
function picture(dark: boolean[][]): Uint8Array {
	const scale = 4;
	const size = (dark.length + 8) * scale;
	const pixels = new Uint8Array(size * size).fill(255);
	dark.forEach((row, y) => {
		row.forEach((isDark, x) => {
			if (!isDark) return;
			for (let at = 0; at < scale * scale; at += 1)
				pixels[((y + 4) * scale + Math.floor(at / scale)) * size + (x + 4) * scale + (at % scale)] = 0;
		});
	});
	return encodePng({ width: size, height: size, pixels });
}

test('every size is read as the text that was put in, in any script', async () => {
	for (let length = 1; length <= MAX_BYTES; length += length < 30 ? 3 : 11) {
		const text = `KIOSK-7\nهاتف ${'0123456789abcdefghijklmnopqrstuvwxyz '.repeat(8)}`.slice(0, length);
		if (new TextEncoder().encode(text).length > MAX_BYTES) continue;
		expect(await readPicture(picture(drawQr(text)))).toEqual([text]);
	}
	expect(await readPicture(picture(drawQr('x'.repeat(MAX_BYTES))))).toEqual(['x'.repeat(MAX_BYTES)]);
});

test('a text that is too long has no code', () => {
	expect(drawQr('x'.repeat(MAX_BYTES + 1))).toBeNull();
});
