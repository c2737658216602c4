/** A text without its escapes, those of JSON, URLs and HTML, also of escapes; and a known secret cut out of one. Pure. */
import { SECRET_MARK } from '../protocol/problem.ts';

/** Bytes, and the part of the text (in UTF-16 units) that each of them came from. */
export interface View {
	readonly bytes: Uint8Array;
	startOf(at: number): number;
	endOf(at: number): number;
}

/** Escapes of escapes: `%25252B`, `\\\\u002B`. */
export const MAX_ROUNDS = 5;
/** Fewer characters are a letter, no secret. */
const MIN_SECRET_LENGTH = 4;

/** The text with the mark in place of each secret; nothing but the mark where one is in it behind escapes. */
export function cutOut(text: string, secrets: readonly string[]): string {
	const wanted = secrets.filter((secret) => secret.length >= MIN_SECRET_LENGTH);
	const clean = withMarks(text, wanted);
	const forms = wanted.map((secret) => UTF8.encode(secret));
	let view: View | null = viewOf(clean);
	for (let round = 0; view && round <= MAX_ROUNDS; round += 1) {
		const { bytes } = view;
		if (forms.some((form) => indexOf(bytes, form) >= 0)) return SECRET_MARK;
		view = takeEscapesOff(view);
	}
	const squeezed = clean.replaceAll(BETWEEN, '');
	const plain = squeezed.replaceAll('-', '+').replaceAll('_', '/');
	const isThere = (secret: string) =>
		squeezed.toLowerCase().includes(secret.replaceAll(BETWEEN, '').toLowerCase()) ||
		inBase64(secret).some((form) => plain.includes(form));
	// A shorter one stands in many texts by chance.
	return wanted.some((secret) => secret.length >= 8 && isThere(secret)) ? SECRET_MARK : clean;
}

/** The text with one round of escapes taken off, with two, and so on; empty when there are none. */
export function withoutEscapes(text: string): readonly string[] {
	const found: string[] = [];
	for (let view = takeEscapesOff(viewOf(text)); view && found.length < MAX_ROUNDS; view = takeEscapesOff(view))
		found.push(AS_TEXT.decode(view.bytes));
	return found;
}

/** One secret may begin with another one, or end like its beginning: what any of them covers goes at once. */
function withMarks(text: string, secrets: readonly string[]): string {
	const spans = secrets.flatMap((secret) => {
		const found: (readonly [number, number])[] = [];
		for (let at = text.indexOf(secret); at >= 0; at = text.indexOf(secret, at + 1))
			found.push([at, at + secret.length]);
		return found;
	});
	let clean = '';
	let [from, hidden] = [0, -1];
	for (const [start, end] of spans.sort(([a], [b]) => a - b)) {
		if (start >= hidden) clean += text.slice(from, start) + SECRET_MARK;
		hidden = Math.max(hidden, end);
		from = hidden;
	}
	return clean + text.slice(from);
}

/** Signs that may stand between those of a secret and that a cleaned text shows as a blank, or that no one sees. */
const BETWEEN = /\x1b\[[\d;]*[A-Za-z]|<[^<>]{0,20}>|[\s\p{Cc}\p{Cf}]/gu;

/** The signs of a secret in base64, behind none, one or two others. Only of Latin letters: no credential has others. */
function inBase64(secret: string): readonly string[] {
	if (/[^\0-\xff]/.test(secret)) return [];
	return [0, 1, 2].map((before) => {
		const whole = btoa(' '.repeat(before) + secret);
		// Ends that others have a part in say nothing.
		return whole.slice(Math.ceil((before * 4) / 3), Math.floor(((before + secret.length) * 4) / 3));
	});
}

/** Where the bytes are found; -1 if they are not. */
export function indexOf(bytes: Uint8Array, wanted: Uint8Array): number {
	for (let at = bytes.indexOf(wanted[0] ?? 0); at >= 0; at = bytes.indexOf(wanted[0] ?? 0, at + 1))
		if (wanted.every((byte, offset) => bytes[at + offset] === byte)) return at;
	return -1;
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
	return { bytes: UTF8.encode(text), startOf: (at) => at, endOf: (at) => at + 1 };
}

function pushCodePoint(writer: Writer, code: number, start: number, end: number): void {
	if (code < 0x80) writer.push(code, start, end);
	else for (const byte of UTF8.encode(String.fromCodePoint(code))) writer.push(byte, start, end);
}

const UTF8 = new TextEncoder();
const AS_TEXT = new TextDecoder();

/** With one round of escapes taken off; `null` when there are none. */
export function takeEscapesOff({ bytes, startOf, endOf }: View): View | null {
	if (!MARKS.some((mark) => bytes.includes(mark))) return null;
	// An escape is never shorter than the bytes it stands for.
	const writer = createWriter(bytes.length);
	let isChanged = false;
	for (let at = 0; at < bytes.length; ) {
		const found = MARKS.includes(bytes[at] ?? 0) ? escapeAt(bytes, at) : null;
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
	underbar: '_',
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

const NUMBER_SIGN = 0x23;
const ZERO = 0x30;
const LONGEST_NAME = 11;
/** A reference by its name; those of the first HTML also without the semicolon, in small letters or in capitals. */
const BY_NAME = /^&(?:(amp|AMP|lt|LT|gt|GT|quot|QUOT);?|([A-Za-z]{2,8});)/;

function entityAt(bytes: Uint8Array, at: number): Escape | null {
	if (bytes[at + 1] === NUMBER_SIGN) return numberAt(bytes, at);
	// A form is full of such signs, and its names are mostly none: their text is not made.
	if (!isLetter(bytes[at + 1]) || !isLetter(bytes[at + 2])) return null;
	const found = BY_NAME.exec(String.fromCharCode(...bytes.subarray(at, at + LONGEST_NAME)));
	if (!found) return null;
	const [{ length }, short, name = short ?? ''] = found;
	const code = ENTITIES[name.toLowerCase()]?.charCodeAt(0);
	return code === undefined ? null : { code, length };
}

/** Browsers read a number without the semicolon, and with any zeros before it. */
function numberAt(bytes: Uint8Array, at: number): Escape | null {
	const isHex = isX(bytes[at + 2]);
	const start = at + (isHex ? 3 : 2);
	let end = start;
	while (bytes[end] === ZERO) end += 1;
	const digits = String.fromCharCode(...bytes.subarray(end, end + MOST_DIGITS));
	const [found = ''] = (isHex ? /^[0-9A-Fa-f]{1,6}/ : /^[0-9]{1,7}/).exec(digits) ?? [];
	end += found.length;
	const code = found === '' ? 0 : Number.parseInt(found, isHex ? 16 : 10);
	if (end === start || code > 0x10ffff) return null;
	return { code, length: end - at + (bytes[end] === SEMICOLON ? 1 : 0) };
}

/** Of a number without its zeros. */
const MOST_DIGITS = 7;
const SEMICOLON = 0x3b;
const isLetter = (byte = 0) => (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7a;
const isX = (byte: number | undefined) => byte === 0x78 || byte === 0x58;

/** How many bytes at the end are the beginning of a reference by a number, of which more digits may follow; 0 for none. */
export function halfNumber(bytes: Uint8Array): number {
	let at = bytes.length;
	const least = at - MOST_DIGITS;
	while (at > least && isHexDigit(bytes[at - 1])) at -= 1;
	while (bytes[at - 1] === ZERO) at -= 1;
	if (isX(bytes[at - 1])) at -= 1;
	return bytes[at - 1] === NUMBER_SIGN && bytes[at - 2] === AMPERSAND ? bytes.length - at + 2 : 0;
}

const isHexDigit = (byte = 0) => (byte >= ZERO && byte <= 0x39) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);

/** The number written in so many hexadecimal digits; `null` if they are none. */
function hexAt(bytes: Uint8Array, at: number, digits: number): number | null {
	let value = 0;
	for (let end = at + digits; at < end; at += 1) {
		const digit = Number.parseInt(String.fromCharCode(bytes[at] ?? 0), 16);
		if (Number.isNaN(digit)) return null;
		value = value * 16 + digit;
	}
	return value;
}
