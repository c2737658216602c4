/**
 * A JSON text that a person has written: the object in it, or line and column of what is wrong; where a value stands, and
 * which names are there twice. V8's own message quotes the text, which may hold a secret, and names a place only sometimes.
 * Pure; never quotes the text; knows nothing of what the object means.
 */
import { COMMON_DEPTH, isBeyond, isObject, parseJson } from '../protocol/json.ts';
import { onOneLine } from './printed.ts';

/** The object, or what is wrong as `line 3, column 7: a comma or } is missing before this.`, without a word of the text. */
export type JsonObject = { readonly document: Record<string, unknown> } | { readonly fault: string };

/** Of what people write: none of it needs as many, and the state indents what it keeps of it. */
const MOST_GROUPS = 32;
/** Each is looked for among those that there are, and more of them would stop a running agent for half a second. */
const MOST_NAMES = 4096;
/** Characters of all settings as the state keeps them, indented: with the rest it stays below what is read of it. */
const MOST_KEPT = 256 * 1024;

/** Whether settings are too many to be kept in the state. */
export const isTooLongToKeep = (documents: readonly unknown[]): boolean =>
	JSON.stringify(documents, null, '\t').length > MOST_KEPT;

/** @param what the word for the contents: `settings`. */
export function readJsonObject(text: string, what: string): JsonObject {
	const document = isBeyond(text, MOST_GROUPS, MOST_NAMES) ? undefined : parseJson(text);
	if (document === undefined) {
		const { offset, reason } = walk(text, { what }).fault ?? {
			offset: 0,
			reason: `it has more than ${MOST_GROUPS} groups and lists inside each other, or more than ${MOST_NAMES} names`,
		};
		return { fault: `${lineAndColumn(text, offset)}: ${reason}.` };
	}
	return isObject(document) ? { document } : { fault: `line 1, column 1: the ${what} must be one object in { }.` };
}

/** The text with spaces in place of comments, so that all else stands where it stood: `//` to the end of the line, and between the signs of C. */
export function withoutComments(text: string): string {
	let rest = '';
	let from = 0;
	for (let at = 0, end = 0; at < text.length; at = end) {
		const isText = text[at] === '"';
		end = isText ? endOfText(text, at) : endOfComment(text, at);
		// A text or a comment that does not end: nothing that follows makes it JSON.
		if (end === at) break;
		if (isText || end === at + 1) continue;
		rest += text.slice(from, at) + text.slice(at, end).replace(/[^\r\n]/g, ' ');
		from = end;
	}
	return rest + text.slice(from);
}

/** The next offset where no comment begins, and the same one where one begins that does not end. */
function endOfComment(text: string, at: number): number {
	if (text.startsWith('//', at)) {
		const length = text.slice(at).search(/[\r\n]/);
		return length === -1 ? text.length : at + length;
	}
	if (!text.startsWith('/*', at)) return at + 1;
	const end = text.indexOf('*/', at + 2);
	return end === -1 ? at : end + 2;
}

/** `line 3, column 14`: both count from 1, columns in characters. Without a list of lines: a text may have millions, or one. */
export function lineAndColumn(text: string, offset: number): string {
	let [line, column] = [1, 1];
	for (let at = 0; at < offset && at < text.length; at += 1) {
		const unit = text.charCodeAt(at);
		const isEndOfLine = unit === LF || (unit === CR && text.charCodeAt(at + 1) !== LF);
		if (isEndOfLine) [line, column] = [line + 1, 1];
		// The second half of a character outside the first plane.
		else if (unit < 0xdc00 || unit > 0xdfff) column += 1;
	}
	return `line ${line}, column ${column}`;
}

const [LF, CR] = [0x0a, 0x0d];

/** `/rules/0/name`: an RFC 6901 pointer; empty for the document itself. */
export function pointerOf(path: readonly PropertyKey[]): string {
	return path.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** A name or a pointer for a message: those of strangers may be as long as their file, and hold line ends and what steers a terminal. */
export function shortened(text: string): string {
	return onOneLine(text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…`);
}

const MAX_SHOWN = 200;
/** Names that are there twice, that are listed. */
const MAX_REPEATED = 20;

/** @param text known to be JSON. */
export function findJsonPlaces(text: string) {
	const offsetsOf = (paths: readonly (readonly PropertyKey[])[]): readonly number[] => walk(text, { paths }).offsets;
	return {
		/** Where the value at a path begins, or the nearest thing around it. */
		offsetOf: (path: readonly PropertyKey[]) => offsetsOf([path])[0] ?? 0,
		/** The same for several paths, in one look. */
		offsetsOf,
		/** Names that an object has twice: the later ones, of which only the last counts for a parser; the first 20. */
		get repeated(): JsonOutline['repeated'] {
			return walk(text).repeated;
		},
	};
}

const NO_NAMES = new Set<string>();

export interface JsonSize {
	/** Objects, lists and names. */
	readonly parts: number;
	/** Texts, numbers and words. */
	readonly values: number;
	/** Different names: a parser keeps a table of them, which takes a hundred times as long as names that it has seen. */
	readonly names: number;
}

export interface JsonOutline {
	/** The names of the outermost object, as far as the look went. */
	readonly names: ReadonlySet<string>;
	readonly size: JsonSize;
	/** Whether there was more than is allowed; then nothing else was looked at. */
	readonly isTooMuch: boolean;
	readonly repeated: readonly { readonly path: readonly (string | number)[]; readonly offset: number }[];
	/** Where the text is not JSON, as {@link readJsonObject} says it. */
	readonly fault: string | null;
	/** The text with `{}` in place of what was passed over: a parser then makes nothing of it. */
	readonly rest: string;
}

/** The size of a text and its outermost names, before a parser makes anything of it. It need not be JSON.
 * @param what the word for the contents. @param most what it may hold at most.
 * @param passOver objects under this name are neither counted nor looked into. */
export function outlineJson(text: string, what: string, most: JsonSize, passOver: string): JsonOutline {
	const { repeated, passed, isTooMuch, names, size, fault: found } = walk(text, { what, most, passOver });
	const fault = found && `${lineAndColumn(text, found.offset)}: ${found.reason}.`;
	let rest = '';
	let from = 0;
	for (const { start, end } of passed) {
		rest += `${text.slice(from, start)}{}`;
		from = end;
	}
	return { names, size, isTooMuch, repeated, fault, rest: from === 0 ? text : rest + text.slice(from) };
}

/** The part of the text that may stand next. */
type Expected = 'value' | 'valueOrEnd' | 'name' | 'nameOrEnd' | 'colon' | 'commaOrEnd' | 'nothing';

interface WalkOptions {
	/** The word for the contents. */
	readonly what?: string;
	/** Whose offsets are looked for. */
	readonly paths?: readonly (readonly PropertyKey[])[];
	readonly most?: JsonSize;
	readonly passOver?: string;
}

/** Up to the end, or to the first place that cannot be JSON. Without recursion, and with little for each value: a text may
 * nest as deep and hold as many as it likes. */
function walk(text: string, { what = '', paths = [], most, passOver }: WalkOptions = {}) {
	const repeated: { path: (string | number)[]; offset: number }[] = [];
	const passed: { start: number; end: number }[] = [];
	/** The objects and lists that have begun and not ended, each with the name or index of what is being read in it. */
	const open: { readonly names: Set<string> | null; step: string | number }[] = [];
	/** Names are kept where those that are there twice are looked for. */
	const keepsNames = paths.length === 0;
	let outermost: ReadonlySet<string> = NO_NAMES;
	const offsets = paths.map(() => 0);
	const wanted = paths.map((path) => ({ names: path.map(String), indices: path.map(Number) }));
	const deepest = paths.reduce((most, { length }) => Math.max(most, length), 0);
	/** Steps of each path that lead to what is being read. */
	const matched = paths.map(() => 0);
	const found = new Set<number>();
	/** How deep what is passed over lies. */
	let passDepth = 0;
	let [parts, values] = [0, 0];
	const different = new Set<string>();
	let isTooMuch = false;
	let expected: Expected = 'value';
	let offset = 0;
	let afterComma = false;
	const place = (depth: number, step: string | number) => {
		if (depth > deepest) return;
		for (let index = 0; index < wanted.length; index += 1) {
			if ((matched[index] ?? 0) >= depth) matched[index] = depth - 1;
			if (matched[index] !== depth - 1) continue;
			const path = wanted[index];
			if ((typeof step === 'number' ? path?.indices : path?.names)?.[depth - 1] !== step) continue;
			matched[index] = depth;
			offsets[index] = offset;
			if (path?.names.length === depth) found.add(index);
		}
	};
	const done = (fault: { offset: number; reason: string } | null) => ({
		...{
			repeated,
			passed,
			offsets,
			isTooMuch,
			names: outermost,
			size: { parts, values, names: different.size },
			fault,
		},
	});
	for (;;) {
		offset = afterSpace(text, offset);
		if (offset >= text.length && expected === 'nothing') return done(null);
		const end = endOfToken(text, offset);
		const first = end > offset ? (text[offset] ?? '') : '';
		const holder = open.at(-1);
		const closing = holder && !holder.names ? ']' : '}';
		let next: Expected | null = null;
		if (first === ']' || first === '}') {
			const canEnd = expected === 'commaOrEnd' || expected === 'valueOrEnd' || expected === 'nameOrEnd';
			if (canEnd && first === closing) {
				if (open.length === passDepth) {
					passDepth = 0;
					const begun = passed.at(-1);
					if (begun) begun.end = end;
				}
				open.pop();
				next = open.length > 0 ? 'commaOrEnd' : 'nothing';
			}
		} else if (expected === 'commaOrEnd') {
			if (first === ',') next = closing === '}' ? 'name' : 'value';
		} else if (expected === 'colon') {
			if (first === ':') next = 'value';
		} else if (expected === 'name' || expected === 'nameOrEnd') {
			if (first === '"' && holder?.names) {
				if (passDepth === 0) {
					const quoted = text.slice(offset, end);
					const name = quoted.includes('\\') ? String(JSON.parse(quoted)) : quoted.slice(1, -1);
					holder.step = name;
					if (holder.names.has(name) && repeated.length < MAX_REPEATED)
						repeated.push({ path: open.map(({ step }) => step), offset });
					if (keepsNames) holder.names.add(name);
					if (most) different.add(name);
					parts += 1;
				}
				next = 'colon';
			}
		} else if (expected !== 'nothing' && first !== '' && first !== ',' && first !== ':') {
			const isList = first === '[';
			const isContainer = isList || first === '{';
			if (holder && !holder.names) holder.step = Number(holder.step) + 1;
			if (!holder) offsets.fill(offset);
			else if (passDepth === 0) place(open.length, holder.step);
			if (isContainer) {
				const isPassed = passDepth === 0 && !isList && passOver !== undefined && holder?.step === passOver;
				const names = isList ? null : passDepth > 0 || !keepsNames ? NO_NAMES : new Set<string>();
				if (open.length === 0 && names) outermost = names;
				open.push({ names, step: isList ? -1 : '' });
				if (isPassed) {
					passDepth = open.length;
					passed.push({ start: offset, end });
				}
				if (passDepth === 0) parts += 1;
				next = isList ? 'valueOrEnd' : 'nameOrEnd';
			} else {
				if (passDepth === 0) values += 1;
				next = holder ? 'commaOrEnd' : 'nothing';
			}
		}
		// Of a name that is there twice the first is as good.
		if (found.size === paths.length && found.size > 0) return done(null);
		isTooMuch =
			most !== undefined && (exceeds({ parts, values, names: different.size }, most) || open.length > COMMON_DEPTH);
		if (isTooMuch) return done(null);
		if (next === null) {
			const spareComma = afterComma && holder !== undefined && first === closing;
			const reason = spareComma
				? 'there is a comma too many before this'
				: describeFault(text, offset, expected, closing);
			return done({ offset, reason: reason ?? `nothing may follow the ${what}` });
		}
		afterComma = first === ',';
		offset = end;
		expected = next;
	}
}

/** Whether a text is larger than is allowed. */
export function exceeds(size: JsonSize, most: JsonSize): boolean {
	return size.parts > most.parts || size.values > most.values || size.names > most.names;
}

function afterSpace(text: string, from: number): number {
	let at = from;
	for (let unit = text.charCodeAt(at); unit === 0x20 || unit === 0x09 || unit === LF || unit === CR; )
		unit = text.charCodeAt(++at);
	return at;
}

const SCALAR = /^(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)$/;
/** Longer numbers are taken as they stand: only their digits are many. */
const MAX_SCALAR = 1000;

/** Letters, digits, `_`, `.`, `+` and `-`. */
function isOfWord(unit: number): boolean {
	const letter = unit | 0x20;
	const isLetter = letter >= 0x61 && letter <= 0x7a;
	return isLetter || (unit >= 0x30 && unit <= 0x39) || unit === 0x2e || unit === 0x2d || unit === 0x2b || unit === 0x5f;
}

/** The end of the token that begins here; the same offset where none does. Expressions that repeat a choice take memory for each repetition. */
function endOfToken(text: string, offset: number): number {
	const first = text[offset] ?? '';
	if (first !== '' && '{}[],:'.includes(first)) return offset + 1;
	if (first === '"') return endOfText(text, offset);
	let end = offset;
	while (end < text.length && isOfWord(text.charCodeAt(end))) end += 1;
	return end - offset > MAX_SCALAR || SCALAR.test(text.slice(offset, end)) ? end : offset;
}

function endOfText(text: string, offset: number): number {
	for (let at = offset + 1; at < text.length; at += 1) {
		const unit = text.charCodeAt(at);
		if (unit === 0x22) return at + 1;
		if (unit < 0x20) return offset;
		if (unit !== 0x5c) continue;
		at += 1;
		if (text[at] === 'u' && /^[0-9a-fA-F]{4}$/.test(text.slice(at + 1, at + 5))) at += 4;
		else if (!'"\\/bfnrt'.includes(text[at] ?? '-')) return offset;
	}
	return offset;
}

/** `null` for what follows the end. */
function describeFault(text: string, offset: number, expected: Expected, closing: string): string | null {
	if (offset >= text.length) return text.trim() === '' ? 'the file is empty' : 'the file ends too early';
	const character = text[offset] ?? '';
	const isUnfinished = character === '"' && expected !== 'colon' && expected !== 'commaOrEnd' && expected !== 'nothing';
	if (isUnfinished) return 'this text in quotes does not end on its line, or has a wrong escape';
	if (character === '#') return 'no comment begins with #';
	if (text.startsWith('/*', offset) && !text.includes('*/', offset)) return 'this comment does not end';
	if (text.startsWith('//', offset) || text.startsWith('/*', offset)) return 'comments are not allowed here';
	if (character === "'") return 'texts stand in double quotes';
	const wanted: Record<Expected, string | null> = {
		value: 'a value is missing or misspelt here',
		valueOrEnd: 'a value or ] is expected here',
		name: 'a name in double quotes is expected here',
		nameOrEnd: 'a name in double quotes or } is expected here',
		colon: 'a : is missing before this',
		commaOrEnd: `a comma or ${closing} is missing before this`,
		nothing: null,
	};
	return wanted[expected];
}
