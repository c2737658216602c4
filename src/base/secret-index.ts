/** Finds known secrets in a text whatever it is encoded in, in any case, whole or in long pieces, at a bounded cost. */
import { eachView, unescapedViews, type View } from './encoded-text.ts';

/** Shortest piece of a secret that is searched for, in characters. */
export const MIN_PIECE_LENGTH = 6;
/** So many characters are a piece of any secret; of a shorter one half is enough. */
const SURE_PIECE_LENGTH = 12;
/** Places of one pattern that are remembered for the same {@link MIN_PIECE_LENGTH} characters. */
const MAX_SAME = 4;

/** Part of a text, in UTF-16 units. */
export interface Range {
	readonly start: number;
	readonly end: number;
}

/** A form of a secret that is searched for, folded. */
interface Pattern {
	readonly secret: string;
	readonly bytes: Uint8Array;
	/** Shortest piece of it that counts, in bytes. */
	readonly minPiece: number;
}

/** Bytes at which a pattern may be met. */
interface Place {
	readonly pattern: Pattern;
	readonly offset: number;
}

export function createSecretIndex() {
	const places = new Map<number, Place[]>();
	/** One bit for each hash of a beginning: nearly all of a text is passed over by it. */
	const filter = new Uint8Array(1 << 13);
	/** Too few characters are left of them when they are folded. */
	const exact = new Map<string, Uint8Array>();
	/** Bytes of the shortest piece that ever counted. */
	let least = Number.MAX_SAFE_INTEGER;

	function addPattern(pattern: Pattern): void {
		const { bytes, minPiece } = pattern;
		least = Math.min(least, minPiece);
		// Every piece of `minPiece` bytes holds one of these places whole.
		const step = minPiece - MIN_PIECE_LENGTH + 1;
		const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
		for (let offset = 0; offset + MIN_PIECE_LENGTH <= bytes.length; offset += step) {
			const key = hashAt(view, offset);
			const known = places.get(key);
			if (!known) places.set(key, [{ pattern, offset }]);
			else if (known.filter((place) => place.pattern === pattern).length >= MAX_SAME) continue;
			else known.push({ pattern, offset });
			mark(key);
		}
	}

	function mark(key: number): void {
		filter[(key >>> 3) & 0x1fff] = (filter[(key >>> 3) & 0x1fff] ?? 0) | (1 << (key & 7));
	}

	function look({ bytes, startOf, endOf }: View, found: (range: Range) => void): void {
		for (const secret of exact.values())
			for (let at = indexOf(bytes, secret, 0); at >= 0; at = indexOf(bytes, secret, at + 1))
				found({ start: startOf(at), end: endOf(at + secret.length - 1) });
		const folded = new Uint8Array(bytes.length);
		const origin = new Uint32Array(bytes.length);
		let length = 0;
		for (let at = 0; at < bytes.length; at += 1) {
			const byte = FOLD[bytes[at] ?? 0] ?? DROPPED;
			if (byte === DROPPED) continue;
			folded[length] = byte;
			origin[length] = at;
			length += 1;
		}
		const text = folded.subarray(0, length);
		const view = new DataView(folded.buffer);
		for (let at = 0; at + MIN_PIECE_LENGTH <= length; ) {
			const key = hashAt(view, at);
			const isCandidate = ((filter[(key >>> 3) & 0x1fff] ?? 0) >> (key & 7)) & 1;
			const best = isCandidate ? longest(text, at, places.get(key) ?? []) : null;
			if (!best) {
				at += 1;
				continue;
			}
			let first = origin[best.start] ?? 0;
			let last = origin[best.end - 1] ?? 0;
			// Where a secret begins or ends with them.
			while (isSign(bytes[first - 1])) first -= 1;
			while (isSign(bytes[last + 1])) last += 1;
			found({ start: startOf(first), end: endOf(last) });
			// Another secret may begin inside of this one.
			at = Math.max(at + 1, best.end - MIN_PIECE_LENGTH + 1);
		}
	}

	return {
		/** @param secret that is not there yet. */
		add(secret: string): void {
			const plain = UTF8.encode(secret);
			if (fold(secret).length < MIN_PIECE_LENGTH) {
				exact.set(secret, plain);
				least = Math.min(least, plain.length);
			}
			for (const pattern of patternsOf(secret)) addPattern(pattern);
		},
		delete(secret: string): void {
			exact.delete(secret);
			filter.fill(0);
			for (const [key, known] of places) {
				const left = known.filter(({ pattern }) => pattern.secret !== secret);
				if (left.length === 0) places.delete(key);
				else mark(key);
				if (left.length !== known.length && left.length > 0) places.set(key, left);
			}
		},
		/** The parts of the text that hold a secret or a long piece of one, in order and apart. */
		find(text: string): Range[] {
			if (places.size + exact.size === 0 || text.length < MIN_PIECE_LENGTH) return [];
			const ranges: Range[] = [];
			eachView(text, least, (view) => look(view, (range) => ranges.push(range)));
			ranges.sort((a, b) => a.start - b.start);
			const apart: { start: number; end: number }[] = [];
			for (const { start: exact, end } of ranges) {
				const start = beforeEscape(text, exact);
				const last = apart.at(-1);
				if (last && start <= last.end) last.end = Math.max(last.end, end);
				else apart.push({ start, end });
			}
			return apart;
		},
	};
}

/** The beginning of the escape that a range begins inside of: half of one would break a line of JSON. */
function beforeEscape(text: string, start: number): number {
	const half = /(?<!\\)(?:\\\\)*(\\(?:u[0-9A-Fa-f]{0,3})?)$/.exec(text.slice(Math.max(0, start - 64), start));
	return start - (half?.[1]?.length ?? 0);
}

/** Where the bytes are found from a place on; -1 if they are not. */
export function indexOf(bytes: Uint8Array, wanted: Uint8Array, from = 0): number {
	for (let at = bytes.indexOf(wanted[0] ?? 0, from); at >= 0; at = bytes.indexOf(wanted[0] ?? 0, at + 1))
		if (wanted.every((byte, offset) => bytes[at + offset] === byte)) return at;
	return -1;
}

/** Line ends, spaces and what some encodings put in their place are left out, and letters lose their case. */
const DROPPED = 255;
const FOLD = Uint8Array.from({ length: 256 }, (_, byte) => byte);
const DROPPED_LETTERS = ' \t\r\n\0\xff+:-';
const EVERY_DROPPED = new RegExp(`[${DROPPED_LETTERS}]`, 'g');
for (const letter of DROPPED_LETTERS) FOLD[letter.charCodeAt(0)] = DROPPED;
FOLD['_'.charCodeAt(0)] = '/'.charCodeAt(0);
for (let letter = 0x41; letter <= 0x5a; letter += 1) FOLD[letter] = letter + 0x20;

const isSign = (byte: number | undefined) => byte === 0x2b || byte === 0x2d;

/** Bytes for a text. By the engine's own functions: at a start a loop over some thousand bytes would cost several times as much. */
function fold(text: string): Uint8Array {
	if (NOT_ASCII.test(text)) return foldBytes(UTF8.encode(text));
	return UTF8.encode(text.replace(EVERY_DROPPED, '').replaceAll('_', '/').toLowerCase());
}

function foldBytes(bytes: Uint8Array): Uint8Array {
	return bytes.map((byte) => FOLD[byte] ?? DROPPED).filter((byte) => byte !== DROPPED);
}

const UTF8 = new TextEncoder();
const NOT_ASCII = /[^\0-\x7f]/;

/**
 * As it is and without its own escapes. Base64 and hexadecimal are there as well, since a text cannot be decoded that has lost
 * its case or its beginning; so are the two commonest escapes, whose first may be eaten by what stands before it (`%0` and `0%2B`).
 */
function patternsOf(secret: string): Pattern[] {
	const bytes = UTF8.encode(secret);
	const binary = NOT_ASCII.test(secret) ? Array.from(bytes, (byte) => String.fromCharCode(byte)).join('') : secret;
	const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
	const escaped = [encodeURIComponent(secret.toWellFormed()), JSON.stringify(secret).slice(1, -1)];
	const texts = new Set([secret, hex, ...escaped, ...[0, 1, 2].map((before) => base64Core(binary, before))]);
	const unescaped = unescapedViews(secret).slice(1);
	return [...[...texts].map(fold), ...unescaped.map((view) => foldBytes(view.bytes))]
		.filter((bytes) => bytes.length >= MIN_PIECE_LENGTH)
		.map((bytes) => ({ bytes, minPiece: minPieceOf(bytes.length), secret }));
}

function minPieceOf(length: number): number {
	return Math.min(SURE_PIECE_LENGTH, Math.max(MIN_PIECE_LENGTH, Math.floor(length / 2)));
}

/** The characters of base64 that the bytes alone decide when so many others stand before them. */
function base64Core(binary: string, before: number): string {
	const text = btoa('\0'.repeat(before) + binary);
	return text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + binary.length) * 8) / 6));
}

/** Of the next {@link MIN_PIECE_LENGTH} bytes. */
function hashAt(bytes: DataView, at: number): number {
	const hash = Math.imul(bytes.getUint32(at), 0x01000193) + Math.imul(bytes.getUint16(at + 4), 0x5bd1e995);
	return (hash ^ (hash >>> 15)) | 0;
}

function longest(text: Uint8Array, at: number, places: readonly Place[]): Range | null {
	let best: Range | null = null;
	for (const { pattern, offset } of places) {
		const { bytes, minPiece } = pattern;
		let back = 0;
		while (back < offset && back < at && bytes[offset - back - 1] === text[at - back - 1]) back += 1;
		let on = 0;
		while (offset + on < bytes.length && at + on < text.length && bytes[offset + on] === text[at + on]) on += 1;
		const length = back + on;
		if (on < MIN_PIECE_LENGTH || length < minPiece || (best && best.end - best.start >= length)) continue;
		const range = { start: at - back, end: at + on };
		if (length === bytes.length || length >= SURE_PIECE_LENGTH || !isWord(text, range)) best = range;
	}
	return best;
}

/** Half of a password may be a word like any other. */
function isWord(text: Uint8Array, { start, end }: Range): boolean {
	return text.subarray(start, end).every((byte) => byte >= 0x61 && byte <= 0x7a);
}
