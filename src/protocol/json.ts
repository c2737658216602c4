/** JSON that others have written: reading it, and finding one value in it (RFC 6901). Never throws; what is not there is `undefined`. */

/** Objects and lists inside each other in a long text: a parser keeps some 40 bytes for each that has begun, 4 MB in all. */
const MAX_DEPTH = 100_000;
/** Members of all objects of a text, and objects and lists in it: parsing one of 4 MiB with members only would take half a second. */
const MAX_MEMBERS = 100_000;
const LONG_TEXT = 16 * 1024;
/** So many are read by every parser that an application may have: Python's gives up before 1,000. */
export const COMMON_DEPTH = 500;

/** A frame and an answer are read by up to ten, one after the other, and parsing a long text takes longer than all else that they do with it. */
let last: WeakRef<{ readonly text: string; readonly document: unknown }> | null = null;

/**
 * The document in a text; `undefined` for a text that is not JSON, or that is long and nests deeper, or has more members, than any
 * document does. To be read only: others may have the same.
 */
export function parseJson(text: string): unknown {
	if (text.length <= LONG_TEXT) return tryToParse(text);
	const known = last?.deref();
	if (known?.text === text) return known.document;
	const document = isBeyond(text, MAX_DEPTH, MAX_MEMBERS) ? undefined : tryToParse(text);
	last = new WeakRef({ text, document });
	return document;
}

function tryToParse(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

type Reviver = (name: string, value: unknown, written: { readonly source?: string }) => unknown;

/** The whole number at a pointer by its digits, of which a JavaScript number has lost some; `null` for anything else, and in a long text: it takes ten times as long as parsing. */
export function exactNumber(text: string, pointer: string): bigint | null {
	const found = text.length > LONG_TEXT ? null : resolvePointer(parseDigits(text, BigInt), pointer);
	return typeof found === 'bigint' ? found : null;
}

/** The document in a text, where such numbers are texts of their digits; in a long text they are not. */
export const parseExactly = (text: string): unknown =>
	text.length > LONG_TEXT ? parseJson(text) : parseDigits(text, String);

function parseDigits(text: string, read: (digits: string) => unknown): unknown {
	const withDigits: Reviver = (_name, value, { source = '' }) =>
		typeof value === 'number' && /^-?\d{16,64}$/.test(source) ? read(source) : value;
	try {
		return JSON.parse(text, withDigits as (name: string, value: unknown) => unknown);
	} catch {
		return undefined;
	}
}

/** Whether a document has more objects and lists inside each other than given, or more members or more objects and lists in all. */
export function isBeyond(text: string, mostInside: number, mostMembers = Number.POSITIVE_INFINITY): boolean {
	if (text.length <= mostInside && text.length <= mostMembers) return false;
	let depth = 0;
	let members = 0;
	let begun = 0;
	for (let at = 0; at < text.length && depth <= mostInside && members <= mostMembers && begun <= mostMembers; at += 1) {
		const unit = text.charCodeAt(at);
		if (unit === 0x22) at = closingQuote(text, at);
		else if (unit === 0x5b || unit === 0x7b) {
			depth += 1;
			begun += 1;
		} else if (unit === 0x5d || unit === 0x7d) depth -= 1;
		else if (unit === 0x3a) members += 1;
	}
	return depth > mostInside || members > mostMembers || begun > mostMembers;
}

/** Whether a value of JSON is an object: no list, no `null`. */
export function isObject(value: unknown): value is Record<string, unknown> {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The first members of an object or elements of a list: all at once would take longer than parsing them did. */
export function* firstMembers(value: object, most: number): Generator<readonly [name: string, value: unknown]> {
	// The elements of a list are not counted before it is parsed: there may be many more than members of objects.
	const names = Array.isArray(value)
		? Array.from(value.slice(0, Math.max(0, most)).keys(), String)
		: Object.keys(value);
	for (const name of names.slice(0, Math.max(0, most))) yield [name, (value as Record<string, unknown>)[name]];
}

/** The elements of a list or the members of an object, each as it is written. @param text JSON, up to its last bracket at least. @param spaces those around a part. */
export function partsOf(text: string, spaces: 'none' | 'kept' = 'none'): string[] {
	const parts: string[] = [];
	let depth = 0;
	let start = 0;
	for (let at = 0; at < text.length; at += 1) {
		const char = text[at];
		if (char === '"') at = closingQuote(text, at);
		const isEnd = char === ']' || char === '}';
		if (char === '[' || char === '{') {
			depth += 1;
			if (depth === 1) start = at + 1;
		} else if (depth === 1 && (isEnd || char === ',')) {
			const part = text.slice(start, at);
			parts.push(spaces === 'kept' ? part : part.trim());
			start = at + 1;
		}
		if (isEnd) depth -= 1;
	}
	return parts.filter((part) => part !== '');
}

function closingQuote(text: string, opening: number): number {
	for (let at = text.indexOf('"', opening + 1); at >= 0; at = text.indexOf('"', at + 1)) {
		let slashes = 0;
		while (text[at - 1 - slashes] === '\\') slashes += 1;
		if (slashes % 2 === 0) return at;
	}
	return text.length;
}

/** The value to which a pointer leads; `undefined` for one that leads nowhere. */
export function resolvePointer(document: unknown, pointer: string): unknown {
	if (pointer === '') return document;
	if (!pointer.startsWith('/')) return undefined;
	let value: unknown = document;
	for (const key of keysOf(pointer)) {
		if (typeof value !== 'object' || value === null) return undefined;
		if (!Object.hasOwn(value, key)) return undefined;
		value = (value as Record<string, unknown>)[key];
	}
	return value;
}

/** The value to which a pointer leads, and what stands beside the way there: the other members of each object on it. All as they are written. @param text JSON in which it leads somewhere. */
export function writtenAround(text: string, pointer: string): { readonly at: string; readonly beside: string[] } {
	let at = text;
	const beside = keysOf(pointer).flatMap((key) => {
		const parts = partsOf(at);
		const isList = !at.trimStart().startsWith('{');
		// Of two members of one name the last counts, as everywhere.
		const members = new Map(isList ? [] : parts.map(memberIn));
		at = (isList ? parts[Number(key)] : members.get(key)) ?? '';
		members.delete(key);
		return [...members.values()];
	});
	return { at, beside };
}

function memberIn(part: string): readonly [name: string, value: string] {
	const end = closingQuote(part, 0);
	return [JSON.parse(part.slice(0, end + 1)), part.slice(part.indexOf(':', end) + 1).trim()];
}

/** Each notification is looked at with the same few pointers, which only settings change. */
const read = new Map<string, readonly string[]>();
const MAX_READ = 32;

function keysOf(pointer: string): readonly string[] {
	const known = read.get(pointer);
	if (known) return known;
	const parts = pointer.slice(1).split('/');
	const keys = parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
	if (read.size >= MAX_READ) read.clear();
	read.set(pointer, keys);
	return keys;
}
