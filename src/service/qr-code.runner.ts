/** Writes QR codes: PNG, SVG, and half blocks for a terminal. Works offline, and keeps no text. */
import { crc32, deflateSync } from 'node:zlib';
import { encode } from 'uqr';

/** Light modules around the code that a reader needs. Source: ISO/IEC 18004. */
const QUIET_ZONE = 4;
/** Of version 40 with medium error correction. Source: ISO/IEC 18004. */
const MOST_BYTES = 2331;
/** Pixels for each module in PNG and SVG: in a line of one-bit pixels a module is a byte. */
const MODULE_PIXELS = 8;
const PNG_SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1');

/** @throws RangeError for a text that no QR code of medium error correction holds (2,331 bytes). */
export function writeQrPng(text: string): Uint8Array {
	const modules = readModules(text);
	const header = Buffer.alloc(13);
	header.writeUInt32BE(modules.length * MODULE_PIXELS, 0);
	header.writeUInt32BE(modules.length * MODULE_PIXELS, 4);
	// One bit a pixel, grey.
	header.writeUInt8(1, 8);
	const lines = modules.flatMap((row) => {
		const line = Buffer.from([0, ...row.map((isDark) => (isDark ? 0 : 0xff))]);
		return new Array<Buffer>(MODULE_PIXELS).fill(line);
	});
	const pixels = pngChunk('IDAT', deflateSync(Buffer.concat(lines)));
	return Buffer.concat([PNG_SIGNATURE, pngChunk('IHDR', header), pixels, pngChunk('IEND', Buffer.alloc(0))]);
}

function pngChunk(type: string, content: Buffer): Buffer {
	const chunk = Buffer.alloc(12 + content.length);
	chunk.writeUInt32BE(content.length, 0);
	chunk.write(type, 4, 'latin1');
	content.copy(chunk, 8);
	chunk.writeUInt32BE(crc32(chunk.subarray(4, -4)), 8 + content.length);
	return chunk;
}

/** A standalone SVG document with its own white background. @throws RangeError as {@link writeQrPng}. */
export function writeQrSvg(text: string): string {
	const modules = readModules(text);
	const size = modules.length;
	const runs = modules.flatMap((line, y) => {
		const dark = line.map(Number).join('').matchAll(/1+/g);
		return Array.from(dark, ({ 0: { length }, index }) => `M${index} ${y}h${length}v1h-${length}z`);
	});
	return [
		`<svg xmlns="http://www.w3.org/2000/svg" width="${size * MODULE_PIXELS}" height="${size * MODULE_PIXELS}" viewBox="0 0 ${size} ${size}" shape-rendering="crispEdges">`,
		`<rect width="${size}" height="${size}" fill="#fff"/>`,
		`<path fill="#000" d="${runs.join('')}"/>`,
		'</svg>\n',
	].join('');
}

/**
 * Lines of half blocks, two modules high each, in black on white whatever the terminal's colours are (256-colour escape
 * sequences); ends with a line feed. @throws RangeError as {@link writeQrPng}.
 * @param plain without escape sequences: the light modules are drawn, for light text on a dark ground.
 */
export function renderQrTerminal(text: string, plain = false): string {
	const modules = readModules(text);
	const lines: string[] = [];
	for (let y = 0; y < modules.length; y += 2) {
		const [upper = [], lower = []] = [modules[y], modules[y + 1]];
		const drawn = (row: readonly boolean[], x: number) => (row[x] ?? false) !== plain;
		const blocks = upper.map((_, x) => ' ▀▄█'[Number(drawn(upper, x)) + 2 * Number(drawn(lower, x))]).join('');
		lines.push(plain ? blocks : `\x1b[38;5;16;48;5;231m${blocks}\x1b[0m`);
	}
	return `${lines.join('\n')}\n`;
}

/** Rows of modules with their quiet zone; `true` is dark. */
function readModules(text: string): readonly boolean[][] {
	const bytes = Buffer.from(text);
	if (bytes.length > MOST_BYTES) throw new RangeError(`This text fits in no QR code (${bytes.length} bytes).`);
	return encode(text, { ecc: 'M', border: QUIET_ZONE }).data;
}
