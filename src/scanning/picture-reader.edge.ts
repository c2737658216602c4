/**
 * Finds the QR and Aztec codes in a picture, offline, and the one of them that is a pairing code. Whether that may be used is
 * not its business. The texts are secrets: they never go into a message. Decoding keeps the thread busy (6 s for the largest
 * photo), so this belongs into a command, never into the daemon.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createInflate } from 'node:zlib';
import { AgentError } from '../base/errors.ts';
import { errnoOf, inWords, readBytes } from '../base/files.edge.ts';
import { readPairingCode } from '../protocol/pairing-code.ts';

/** Largest picture file, in bytes: 20 MiB, well above what a phone's camera makes. */
export const MAX_PICTURE_BYTES = 20 * 1024 * 1024;
/** Largest picture, in pixels. A small file can unfold to gigabytes; this many take about 0.3 GB while decoding. */
const MAX_PICTURE_PIXELS = 64_000_000;

/** The decoders: name beside a bundle and among an executable's assets, and where their packages have them. */
const READER = { file: 'zxing_reader.wasm', inPackage: 'zxing-wasm/reader/zxing_reader.wasm' };
const WEBP_DECODER = { file: 'webp_dec.wasm', inPackage: '@jsquash/webp/codec/dec/webp_dec.wasm' };

const MAX_SYMBOLS = 8;
/** How pairing codes are printed. */
const PAIRING_FORMATS = ['QRCodeModel2', 'AztecCode'] as const;
/** Only to say what was seen. */
const OTHER_FORMATS = [
	'DataMatrix',
	'PDF417',
	'MicroQRCode',
	'EAN13',
	'EAN8',
	'UPCA',
	'Code128',
	'Code39',
	'ITF',
] as const;

/**
 * All different texts in a PNG, JPEG or WebP picture, at least one and at most 8.
 * @param source a file's path, or its content.
 * @throws AgentError `picture-unreadable` if it is missing, too large, damaged or of another kind;
 * `picture-without-code` if no code can be read in it.
 */
export async function readPicture(source: string | Uint8Array): Promise<string[]> {
	const name = typeof source === 'string' ? source : 'The picture';
	const bytes = typeof source === 'string' ? await readPictureFile(source) : source;
	if (bytes.byteLength > MAX_PICTURE_BYTES) throw tooLarge(name);
	const size = measure(bytes);
	if (!size) throw unreadable(`${name} is ${kindOf(bytes)}.`);
	if (size.width * size.height > MAX_PICTURE_PIXELS)
		throw unreadable(`${name} has more than ${MAX_PICTURE_PIXELS / 1_000_000} million pixels.`, {
			remedy: 'Give a smaller picture.',
		});
	if (startsWith(bytes, PNG) && (await isOverlongPng(bytes, size))) throw unreadable(`${name} is damaged.`);
	const texts = await decode(name, bytes, PAIRING_FORMATS);
	if (texts.length > 0) return texts;
	const [other] = await decode(name, bytes, OTHER_FORMATS);
	throw new AgentError(
		'picture-without-code',
		other === undefined
			? `${name} shows no QR or Aztec code that can be read.`
			: `${name} shows a code of another kind, as on goods, labels and letters; a pairing code is a QR or Aztec code.`,
	);
}

/**
 * The text of the only pairing code in a picture, whatever other codes there are (host and workflow are confirmed anyway); of the
 * only code where none is one, so that pairing can say what it is. The same code shown twice counts once.
 * @throws AgentError as {@link readPicture}, and `picture-with-several-codes` if it is not clear which is meant.
 */
export async function readSingleCode(source: string | Uint8Array): Promise<string> {
	const texts = await readPicture(source);
	const codes = texts.filter((text) => readPairingCode(text).kind === 'pairingCode');
	const [text = '', ...others] = codes.length > 0 ? codes : texts;
	if (others.length === 0) return text;
	const what = codes.length > 0 ? 'pairing codes' : 'codes, and none of them is a pairing code';
	throw new AgentError('picture-with-several-codes', `The picture shows ${others.length + 1} different ${what}.`);
}

async function readPictureFile(path: string): Promise<Uint8Array> {
	try {
		return await readBytes(path, MAX_PICTURE_BYTES);
	} catch (cause) {
		const code = errnoOf(cause);
		if (code === 'too-large') throw tooLarge(path);
		if (code === 'not-regular') throw unreadable(`${path} is not a file.`);
		const remedy = 'Name a PNG, JPEG or WebP file that this user may read.';
		const isMissing = code === 'ENOENT' || code === 'ENOTDIR';
		throw unreadable(isMissing ? `${path} does not exist.` : `${path} cannot be read: ${inWords(cause)}.`, {
			remedy,
			cause,
		});
	}
}

async function decode(
	name: string,
	bytes: Uint8Array,
	formats: typeof PAIRING_FORMATS | typeof OTHER_FORMATS,
): Promise<string[]> {
	const { prepareZXingModule, purgeZXingModule, readBarcodes } = await import('zxing-wasm/reader');
	// Without these bytes the package would fetch them from the network. The same bytes mean the same instance.
	prepareZXingModule({ overrides: { wasmBinary: await loadWasm(READER) } });
	const picture = startsWith(bytes, RIFF) ? await decodeWebp(name, bytes) : bytes;
	const results = await readBarcodes(picture, {
		formats: [...formats],
		tryHarder: true,
		tryRotate: true,
		tryInvert: true,
		tryDownscale: true,
		// Half the size from 200 pixels on, instead of a third from 500: reads what is out of focus, and is quicker.
		downscaleFactor: 2,
		downscaleThreshold: 200,
		maxNumberOfSymbols: MAX_SYMBOLS,
		textMode: 'Plain',
	}).catch((cause: unknown) => {
		// An instance that broke down may be broken for the next picture too.
		purgeZXingModule();
		throw unreadable(`${name} cannot be decoded.`, { cause });
	});
	// A picture that it can't open is reported as one result with an error and no format.
	if (results.some(({ isValid, format }) => !isValid && !format)) throw unreadable(`${name} is damaged.`);
	return [...new Set(results.filter(({ isValid, text }) => isValid && text !== '').map(({ text }) => text))];
}

/** The pixels of a WebP picture, which the reader of codes cannot open itself. */
async function decodeWebp(name: string, bytes: Uint8Array): Promise<Pixels> {
	// The decoder hands its result over in this class, which browsers have and Node has not.
	Object.assign(globalThis, { ImageData: Pixels });
	try {
		const { default: decodePixels, init } = await import('@jsquash/webp/decode.js');
		// Like the reader, it would fetch these bytes.
		await init({ wasmBinary: await loadWasm(WEBP_DECODER) });
		return await decodePixels(new Uint8Array(bytes).buffer);
	} catch (cause) {
		throw unreadable(`${name} is damaged.`, { cause });
	} finally {
		Reflect.deleteProperty(globalThis, 'ImageData');
	}
}

class Pixels {
	readonly colorSpace = 'srgb';
	readonly data: Uint8ClampedArray<ArrayBuffer>;
	readonly width: number;
	readonly height: number;

	constructor(data: Uint8ClampedArray<ArrayBuffer>, width: number, height: number) {
		this.data = data;
		this.width = width;
		this.height = height;
	}
}

const loaded = new Map<string, ArrayBuffer>();

/** A decoder: an asset of an executable, a file beside a bundle, or the package's own. The one place that knows. */
async function loadWasm({ file, inPackage }: typeof READER): Promise<ArrayBuffer> {
	const sea = await import('node:sea');
	const read = async () => {
		// A CommonJS bundle has the first, a source file the second.
		const here = typeof __filename === 'string' ? __filename : import.meta.filename;
		const own = () => readFile(createRequire(here).resolve(inPackage));
		return new Uint8Array(await readFile(join(dirname(here), file)).catch(own)).buffer;
	};
	const bytes = loaded.get(file) ?? (sea.isSea() ? (sea.getRawAsset(file) as ArrayBuffer) : await read());
	loaded.set(file, bytes);
	return bytes;
}

type Size = Readonly<Record<'width' | 'height', number>>;

/** The size in pixels that a PNG, JPEG or WebP picture announces; `null` for anything else. */
function measure(bytes: Uint8Array): Size | null {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const kinds = [[PNG, measurePng] as const, [JPEG, measureJpeg] as const, [RIFF, measureWebp] as const];
	const size = kinds.find(([signature]) => startsWith(bytes, signature))?.[1](view);
	return size && size.width > 0 && size.height > 0 ? size : null;
}

const PNG = '\x89PNG\r\n\x1a\n';
const JPEG = '\xff\xd8\xff';
const RIFF = 'RIFF';

function measurePng(view: DataView): Size | null {
	return view.byteLength < 24 ? null : { width: view.getUint32(16), height: view.getUint32(20) };
}

/** Whether more unfolds from it than its pixels need: the decoder would unfold gigabytes out of 2 MB before it looks. */
async function isOverlongPng(bytes: Uint8Array, { width, height }: Size): Promise<boolean> {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const parts: Uint8Array[] = [];
	for (let at = 8; at + 8 <= bytes.length; at += 12 + view.getUint32(at))
		if (textAt(view, at + 4) === 'IDAT') parts.push(bytes.subarray(at + 8, at + 8 + view.getUint32(at)));
	// Four channels of 16 bits, and a byte for each row, twice: interlaced pictures have more rows.
	let left = 2 * height * (1 + 8 * width);
	const count = async (unfolded: AsyncIterable<Uint8Array>) => {
		for await (const { length } of unfolded) {
			left -= length;
			if (left < 0) return;
		}
	};
	// What cannot be unfolded is named by the decoder.
	await pipeline(parts, createInflate({ chunkSize: 64 * 1024 }), count).catch(() => {});
	return left < 0;
}

/** Goes from marker to marker, over thumbnails in their segments, to the first frame header (SOF). */
function measureJpeg(view: DataView): Size | null {
	let at = 2;
	while (at + 9 <= view.byteLength && view.getUint8(at) === 0xff) {
		const marker = view.getUint8(at + 1);
		if (marker === 0xff) at += 1;
		else if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
			return { height: view.getUint16(at + 5), width: view.getUint16(at + 7) };
		else at += 2 + view.getUint16(at + 2);
	}
	return null;
}

/** `VP8 ` lossy, `VP8L` lossless, `VP8X` either with more around it (RFC 9649). One that moves is refused. */
function measureWebp(view: DataView): Size | null {
	if (view.byteLength < 30 || textAt(view, 8) !== 'WEBP') return null;
	switch (textAt(view, 12)) {
		case 'VP8 ':
			return { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
		case 'VP8L': {
			const bits = view.getUint32(21, true);
			return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
		}
		case 'VP8X':
			if (isMoving(view)) return null;
			return { width: (view.getUint32(24, true) & 0xffffff) + 1, height: (view.getUint32(26, true) >>> 8) + 1 };
		default:
			return null;
	}
}

function isMoving(view: DataView): boolean {
	return view.byteLength > 20 && textAt(view, 12) === 'VP8X' && (view.getUint8(20) & 0b10) !== 0;
}

function textAt(view: DataView, offset: number): string {
	return String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + offset, 4));
}

/** The first bytes, one character for each. */
const headOf = (bytes: Uint8Array) => Buffer.from(bytes.subarray(0, 16)).toString('latin1');
const startsWith = (bytes: Uint8Array, signature: string) => headOf(bytes).startsWith(signature);

/** Names a file that is not a complete picture of a supported kind, so that the message does not suggest damage. */
function kindOf(bytes: Uint8Array): string {
	if (bytes.byteLength === 0) return 'empty';
	const head = headOf(bytes);
	if (head.startsWith(PNG) || head.startsWith(JPEG)) return 'damaged';
	if (/^RIFF....WEBP/s.test(head))
		return isMoving(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength))
			? 'a WebP picture that moves, which cannot be read here'
			: 'damaged';
	if (/^....ftyp(heic|heix|mif1|msf1)/s.test(head)) return 'a HEIC picture, which cannot be read here';
	if (head.startsWith('GIF8')) return 'a GIF picture, which cannot be read here';
	if (head.startsWith('%PDF')) return 'a PDF document, not a picture';
	return 'not a PNG, JPEG or WebP picture';
}

function tooLarge(name: string): AgentError {
	return unreadable(`${name} is larger than ${MAX_PICTURE_BYTES / 1024 / 1024} MiB.`, {
		remedy: 'Give a smaller picture.',
	});
}

function unreadable(message: string, more: { remedy?: string; cause?: unknown } = {}): AgentError {
	const { remedy = 'Give the picture as a PNG, JPEG or WebP file, for instance a screenshot.', cause } = more;
	return new AgentError('picture-unreadable', message, { remedy, cause });
}
