/** The code with the device's name, as a reader that was written elsewhere sees it. */
import { encode } from 'uqr';
import { expect, test } from 'vitest';
import { readPicture } from '../../src/scanning/picture-reader.edge.ts';
import { encodePng } from '../fixtures/pictures/draw.ts';

/** As `drawIdentity` of page.js asks for it, four pixels a module. */
function picture(text: string): Uint8Array {
	const { data, size: modules } = encode(text, { ecc: 'M', border: 4 });
	const scale = 4;
	const size = modules * scale;
	const pixels = new Uint8Array(size * size).fill(255);
	data.forEach((row, y) => {
		row.forEach((isDark, x) => {
			if (!isDark) return;
			for (let at = 0; at < scale * scale; at += 1)
				pixels[(y * scale + Math.floor(at / scale)) * size + x * scale + (at % scale)] = 0;
		});
	});
	return encodePng({ width: size, height: size, pixels });
}

test('every size is read as the text that was put in, in any script', async () => {
	for (const length of [1, 2, 17, 60, 120, 180]) {
		const text = `KIOSK-7\nهاتف ${'0123456789abcdefghijklmnopqrstuvwxyz '.repeat(8)}`.slice(0, length);
		expect(await readPicture(picture(text))).toEqual([text]);
	}
	expect(await readPicture(picture('x'.repeat(213)))).toEqual(['x'.repeat(213)]);
});
