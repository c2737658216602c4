/** A text without its encodings: escapes, base64 and hexadecimal, one inside another; each byte knows its origin. */

/** Bytes, and the part of the text (in UTF-16 units) that each of them came from. */
export interface View {
	readonly bytes: Uint8Array;
	startOf(at: number): number;
	endOf(at: number): number;
}

/** Encodings inside each other that are taken off, at most. */
const MAX_DEPTH = 4;
/** Bytes that are looked at for each character: hostile text, which is base64 wherever one begins, ends here. */
const MAX_WORK = 32;
/** Escapes of escapes: `%25252B`, `\\\\u002B`. */
export const MAX_ROUNDS = 5;
/** Shortest run that is taken for base64 or hexadecimal: fewer characters hold no secret. */
const MIN_BASE64 = 8;
const MIN_HEX = 12;

/**
 * Calls `look` with the text as it is and with everything that it may stand for. The cost is bounded by the text's length.
 * @param least bytes that are looked for together: what holds fewer once decoded is passed over.
 */
export function eachView(text: string, least: number, look: (view: View) => void): void {
	unfold(viewOf(text), { depth: MAX_DEPTH, least, left: { bytes: MAX_WORK * (text.length + 256) } }, look);
}

/** The text after each round of taking escapes off, all kinds and each alone; the first is the text itself. */
export const unescapedViews = (text: string): readonly View[] => rounds(viewOf(text));

interface Bound {
	readonly depth: number;
	readonly least: number;
	readonly left: { bytes: number };
}

function unfold(view: View, { depth, least, left }: Bound, look: (view: View) => void): void {
	const inner = { depth: depth - 1, least, left };
	const [leastBase64, leastHex] = [Math.max(MIN_BASE64, Math.ceil((least * 8) / 6)), Math.max(MIN_HEX, 2 * least)];
	for (const each of rounds(view)) {
		look(each);
		left.bytes -= each.bytes.length;
		if (depth === 0 || left.bytes < 0) continue;
		for (const run of runsOf(each, BASE64_VALUE, leastBase64, MIN_BASE64))
			for (let offset = 0; offset < 4; offset += 1) unfoldPlain(unpack(each, run, offset, 6), inner, look);
		for (const run of runsOf(each, HEX_VALUE, leastHex))
			for (let offset = 0; offset < 2; offset += 1) unfoldPlain(unpack(each, run, offset, 4), inner, look);
	}
}

/** Only bytes that look like text can have been encoded once more: this bounds the cost. */
function unfoldPlain(view: View, bound: Bound, look: (view: View) => void): void {
	let printable = 0;
	for (const byte of view.bytes) {
		printable = byte >= 0x20 && byte < 0x7f ? printable + 1 : 0;
		if (printable === MIN_BASE64) {
			unfold(view, bound, look);
			return;
		}
	}
	look(view);
}

function rounds(first: View): View[] {
	const present = MARKS.filter((mark) => first.bytes.includes(mark));
	// What looks like an escape may belong to what was escaped in another way: `\"%00` may stand for `"%00`.
	const alone = present.length > 1 ? present.flatMap((mark) => roundsOf(first, [mark])) : [];
	return [first, ...roundsOf(first, MARKS), ...alone];
}

function roundsOf(first: View, marks: readonly number[]): View[] {
	const views: View[] = [];
	for (let view: View | null = first; views.length < MAX_ROUNDS; ) {
		view = takeEscapesOff(view, marks);
		if (!view) break;
		views.push(view);
	}
	return views;
}

function createWriter(capacity: number) {
	const bytes = new Uint8Array(capacity);
	const starts = new Uint32Array(capacity);
	const ends = new Uint32Array(capacity);
	let length = 0;
	return {
		push(byte: number, start: number, end: number): void {
			bytes[length] = byte;
			starts[length] = start;
			ends[length] = end;
			length += 1;
		},
		view: (): View => ({
			bytes: bytes.subarray(0, length),
			startOf: (at) => starts[at] ?? 0,
			endOf: (at) => ends[at] ?? 0,
		}),
	};
}

type Writer = ReturnType<typeof createWriter>;

function viewOf(text: string): View {
	const bytes = UTF8.encode(text);
	if (bytes.length === text.length) return { bytes, startOf: (at) => at, endOf: (at) => at + 1 };
	const writer = createWriter(bytes.length);
	let at = 0;
	for (const letter of text) {
		pushCodePoint(writer, letter.codePointAt(0) ?? 0, at, at + letter.length);
		at += letter.length;
	}
	return writer.view();
}

function pushCodePoint(writer: Writer, code: number, start: number, end: number): void {
	if (code < 0x80) writer.push(code, start, end);
	else for (const byte of UTF8.encode(String.fromCodePoint(code))) writer.push(byte, start, end);
}

const UTF8 = new TextEncoder();

/** With one round of escapes taken off; `null` when there are none. @param marks with which they begin; default all. */
export function takeEscapesOff({ bytes, startOf, endOf }: View, marks: readonly number[] = MARKS): View | null {
	if (!marks.some((mark) => bytes.includes(mark))) return null;
	// An escape is never shorter than the bytes it stands for.
	const writer = createWriter(bytes.length);
	let isChanged = false;
	for (let at = 0; at < bytes.length; ) {
		const found = marks.includes(bytes[at] ?? 0) ? escapeAt(bytes, at) : null;
		const start = startOf(at);
		if (found) {
			const end = endOf(at + found.length - 1);
			if (found.isByte) writer.push(found.code, start, end);
			else pushCodePoint(writer, found.code, start, end);
			isChanged = true;
			at += found.length;
		} else {
			writer.push(bytes[at] ?? 0, start, endOf(at));
			at += 1;
		}
	}
	return isChanged ? writer.view() : null;
}

interface Escape {
	/** A code point, or a byte of UTF-8. */
	readonly code: number;
	readonly isByte?: boolean;
	/** In bytes of the view, the mark included. */
	readonly length: number;
}

const BACKSLASH = 0x5c;
const PERCENT = 0x25;
const AMPERSAND = 0x26;
const MARKS: readonly number[] = [BACKSLASH, PERCENT, AMPERSAND];
const CONTROLS: Readonly<Record<string, number>> = { b: 8, f: 12, n: 10, r: 13, t: 9, v: 11 };
const ENTITIES: Readonly<Record<string, string>> = {
	amp: '&',
	apos: "'",
	ast: '*',
	bsol: '\\',
	colon: ':',
	comma: ',',
	commat: '@',
	dollar: '$',
	equals: '=',
	excl: '!',
	gt: '>',
	hyphen: '-',
	lowbar: '_',
	lpar: '(',
	lt: '<',
	nbsp: ' ',
	num: '#',
	percnt: '%',
	period: '.',
	plus: '+',
	quest: '?',
	quot: '"',
	rpar: ')',
	semi: ';',
	sol: '/',
};

function escapeAt(bytes: Uint8Array, at: number): Escape | null {
	switch (bytes[at]) {
		case PERCENT: {
			const code = hexAt(bytes, at + 1, 2);
			return code === null ? null : { code, isByte: true, length: 3 };
		}
		case BACKSLASH: {
			const letter = String.fromCharCode(bytes[at + 1] ?? 0);
			if (letter === '\0') return null;
			const code = letter === 'u' ? hexAt(bytes, at + 2, 4) : letter === 'x' ? hexAt(bytes, at + 2, 2) : null;
			if (letter === 'x' && code !== null) return { code, isByte: true, length: 4 };
			if (code !== null) return surrogatesAt(bytes, at, code);
			return { code: CONTROLS[letter] ?? letter.charCodeAt(0), isByte: true, length: 2 };
		}
		case AMPERSAND:
			return entityAt(bytes, at);
		default:
			return null;
	}
}

function surrogatesAt(bytes: Uint8Array, at: number, high: number): Escape {
	const isPair = high >= 0xd800 && high < 0xdc00 && bytes[at + 6] === BACKSLASH && bytes[at + 7] === 0x75;
	const low = isPair ? hexAt(bytes, at + 8, 4) : null;
	if (low === null || low < 0xdc00 || low > 0xdfff) return { code: high, length: 6 };
	return { code: 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), length: 12 };
}

function entityAt(bytes: Uint8Array, at: number): Escape | null {
	const found = /^&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z]{2,8}));/.exec(
		String.fromCharCode(...bytes.subarray(at, at + 11)),
	);
	if (!found) return null;
	const [{ length }, decimal, hex, name = ''] = found;
	const named = ENTITIES[name.toLowerCase()]?.charCodeAt(0);
	const code = decimal !== undefined ? Number(decimal) : hex !== undefined ? Number.parseInt(hex, 16) : named;
	return code === undefined || code > 0x10ffff ? null : { code, length };
}

/** The number written in so many hexadecimal digits; `null` if they are none. */
function hexAt(bytes: Uint8Array, at: number, digits: number): number | null {
	let value = 0;
	for (let end = at + digits; at < end; at += 1) {
		const digit = HEX_VALUE[bytes[at] ?? 0] ?? NONE;
		if (digit >= 16) return null;
		value = value * 16 + digit;
	}
	return value;
}

/** The place of a byte in an alphabet: its value, {@link SKIPPED} for what may stand between, or {@link NONE}. */
const NONE = 255;
const SKIPPED = 254;
const alphabet = (digits: string, skipped: string): Uint8Array => {
	const values = new Uint8Array(256).fill(NONE);
	for (const letter of skipped) values[letter.charCodeAt(0)] = SKIPPED;
	for (const [value, letter] of [...digits].entries()) values[letter.charCodeAt(0)] = value;
	return values;
};
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const LINE_ENDS = ' \t\r\n';
const BASE64_VALUE = alphabet(`${LETTERS}${LETTERS.toLowerCase()}0123456789+/`, LINE_ENDS);
BASE64_VALUE['-'.charCodeAt(0)] = 62;
BASE64_VALUE['_'.charCodeAt(0)] = 63;
const HEX_VALUE = alphabet('0123456789abcdef', `${LINE_ENDS}:-`);
for (const [at, letter] of [...'ABCDEF'].entries()) HEX_VALUE[letter.charCodeAt(0)] = 10 + at;

/** The characters of one run: their positions, and their values in the alphabet. */
interface Run {
	readonly places: Uint32Array;
	readonly values: Uint8Array;
}

/** Every run of characters of an alphabet. @param minChunk so many stand before white space inside a run. */
function* runsOf({ bytes }: View, alphabetValues: Uint8Array, min: number, minChunk = 0): Generator<Run> {
	const places = new Uint32Array(bytes.length);
	const values = new Uint8Array(bytes.length);
	let from = 0;
	let length = 0;
	let chunk = 0;
	for (let at = 0; at <= bytes.length; at += 1) {
		const value = at === bytes.length ? NONE : (alphabetValues[bytes[at] ?? 0] ?? NONE);
		if (value < SKIPPED) {
			places[length] = at;
			values[length] = value;
			length += 1;
			chunk += 1;
			continue;
		}
		const isBetween = value === SKIPPED && (chunk === 0 || chunk >= minChunk);
		chunk = 0;
		if (isBetween) continue;
		if (length - from >= min) yield { places: places.subarray(from, length), values: values.subarray(from, length) };
		from = length;
	}
}

/** The bytes of a run that begins at `offset`, of characters of 4 or 6 bits. */
function unpack(view: View, { places, values }: Run, offset: number, bits: 4 | 6): View {
	const bytes = new Uint8Array(Math.floor(((places.length - offset) * bits) / 8));
	let held = 0;
	let count = 0;
	let length = 0;
	for (let at = offset; length < bytes.length; at += 1) {
		held = ((held << bits) | (values[at] ?? 0)) & 0xffff;
		count += bits;
		if (count < 8) continue;
		count -= 8;
		bytes[length] = (held >> count) & 0xff;
		length += 1;
	}
	const place = (bit: number) => places[offset + Math.floor(bit / bits)] ?? 0;
	return {
		bytes,
		startOf: (at) => view.startOf(place(at * 8)),
		endOf: (at) => view.endOf(place(at * 8 + 7)),
	};
}
