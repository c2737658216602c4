/** Writes QR codes: PNG, SVG, and half blocks for a terminal. Works offline, and keeps no text. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { getRawAsset, isSea } from 'node:sea';

/** Light modules around the code that a reader needs. Source: ISO/IEC 18004. */
const QUIET_ZONE = 4;
/** Pixels for each module in PNG and SVG. */
const MODULE_PIXELS = 8;
const WASM_FILE = 'zxing_writer.wasm';

type Writer = typeof import('zxing-wasm/writer');

/** Instantiating takes 20 to 70 ms, so it is done once, at the first code. */
let loadedWriter: Promise<Writer> | undefined;

/** @throws RangeError for a text that no QR code of medium error correction holds (2,331 bytes). */
export async function writeQrPng(text: string): Promise<Uint8Array> {
	const { image } = await encode(text);
	if (!image) throw new Error('The QR code could not be drawn.');
	return new Uint8Array(await image.arrayBuffer());
}

/** A standalone SVG document with its own white background. @throws RangeError as {@link writeQrPng}. */
export async function writeQrSvg(text: string): Promise<string> {
	const modules = await readModules(text);
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
export async function renderQrTerminal(text: string, plain = false): Promise<string> {
	const modules = await readModules(text);
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
async function readModules(text: string): Promise<boolean[][]> {
	const { symbol } = await encode(text);
	const side = symbol.width + 2 * QUIET_ZONE;
	const isDark = (x: number, y: number) =>
		x >= 0 && y >= 0 && x < symbol.width && y < symbol.height && symbol.data[y * symbol.width + x] === 0;
	return Array.from({ length: side }, (_, y) =>
		Array.from({ length: side }, (_, x) => isDark(x - QUIET_ZONE, y - QUIET_ZONE)),
	);
}

async function encode(text: string) {
	loadedWriter ??= loadWriter();
	const { writeBarcode } = await loadedWriter;
	const result = await writeBarcode(text, { format: 'QRCode', options: 'ecLevel=M', scale: MODULE_PIXELS });
	if (result.error !== '') throw new RangeError(`This text fits in no QR code (${Buffer.byteLength(text)} bytes).`);
	return result;
}

async function loadWriter(): Promise<Writer> {
	const writer = await import('zxing-wasm/writer');
	writer.prepareZXingModule({ overrides: { wasmBinary: readWriterWasm() } });
	return writer;
}

/** The one place that knows where the WebAssembly is: in the executable, beside the bundle, or in the package. */
function readWriterWasm(): ArrayBuffer {
	if (isSea()) return getRawAsset(WASM_FILE) as ArrayBuffer;
	const here = typeof __filename === 'string' ? __filename : import.meta.url;
	const beside = typeof __filename === 'string' ? join(dirname(__filename), WASM_FILE) : '';
	const file = existsSync(beside) ? beside : createRequire(here).resolve(`zxing-wasm/writer/${WASM_FILE}`);
	return new Uint8Array(readFileSync(file)).buffer;
}
