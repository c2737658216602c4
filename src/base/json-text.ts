/**
 * A JSON text that a person has written: the object in it, or line and column of what is wrong; where a value stands, and
 * which names are there twice. V8's own message quotes the text, which may hold a secret, and names a place only sometimes.
 * Pure; never quotes the text; knows nothing of what the object means.
 */
import { isObject, parseJson } from '../protocol/json.ts';

/** The object, or what is wrong as `line 3, column 7: a comma or } is missing before this.`, without a word of the text. */
export type JsonObject = { readonly document: Record<string, unknown> } | { readonly fault: string };

/** @param what the word for the contents: `settings`. */
export function readJsonObject(text: string, what: string): JsonObject {
	const document = parseJson(text);
	if (document === undefined) {
		const { offset, reason } = walk(text, what).fault ?? { offset: 0, reason: 'it cannot be read as JSON' };
		return { fault: `${lineAndColumn(text, offset)}: ${reason}.` };
	}
	return isObject(document) ? { document } : { fault: `line 1, column 1: the ${what} must be one object in { }.` };
}

/** `line 3, column 14`: both count from 1, columns in characters. */
export function lineAndColumn(text: string, offset: number): string {
	const lines = text.slice(0, offset).split(/\r\n|\r|\n/);
	return `line ${lines.length}, column ${[...(lines.at(-1) ?? '')].length + 1}`;
}

/** `/rules/0/name`: an RFC 6901 pointer; empty for the document itself. */
export function pointerOf(path: readonly PropertyKey[]): string {
	return path.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

export interface JsonPlaces {
	/** Where the value at a path begins, or the nearest thing around it. */
	offsetOf(path: readonly PropertyKey[]): number;
	/** Names that an object has twice: the later ones, of which only the last counts for a parser. */
	readonly repeated: readonly { readonly path: readonly (string | number)[]; readonly offset: number }[];
}

/** @param text known to be JSON. */
export function findJsonPlaces(text: string): JsonPlaces {
	const { root, repeated } = walk(text, '');
	return {
		offsetOf(path) {
			let place = root;
			for (const step of path) {
				const { inside } = place;
				const next = Array.isArray(inside) ? inside[Number(step)] : inside?.get(String(step));
				if (!next) break;
				place = next;
			}
			return place.offset;
		},
		repeated,
	};
}

type Inside = Place[] | Map<string, Place>;

/** Where a value begins, and what is in it. */
interface Place {
	readonly offset: number;
	readonly inside: Inside | null;
}

/** The part of the text that may stand next. */
type Expected = 'value' | 'valueOrEnd' | 'name' | 'nameOrEnd' | 'colon' | 'commaOrEnd' | 'nothing';

/** Up to the end, or to the first place that cannot be JSON. Without recursion: a text may nest as deep as it likes. */
function walk(text: string, what: string) {
	let root: Place = { offset: 0, inside: null };
	const repeated: { path: (string | number)[]; offset: number }[] = [];
	/** The objects and lists that have begun and not ended, each with the name or index of what is being read in it. */
	const open: { readonly inside: Inside; step: string | number }[] = [];
	let expected: Expected = 'value';
	let offset = 0;
	let afterComma = false;
	for (;;) {
		SPACE.lastIndex = offset;
		SPACE.test(text);
		offset = SPACE.lastIndex;
		if (offset === text.length && expected === 'nothing') return { root, repeated, fault: null };
		TOKEN.lastIndex = offset;
		const first = TOKEN.test(text) ? (text[offset] ?? '') : '';
		const end = TOKEN.lastIndex;
		const holder = open.at(-1);
		const closing = Array.isArray(holder?.inside) ? ']' : '}';
		let next: Expected | null = null;
		if (first === ']' || first === '}') {
			const canEnd = expected === 'commaOrEnd' || expected === 'valueOrEnd' || expected === 'nameOrEnd';
			if (canEnd && first === closing) {
				open.pop();
				next = open.length > 0 ? 'commaOrEnd' : 'nothing';
			}
		} else if (expected === 'commaOrEnd') {
			if (first === ',') next = closing === '}' ? 'name' : 'value';
		} else if (expected === 'colon') {
			if (first === ':') next = 'value';
		} else if (expected === 'name' || expected === 'nameOrEnd') {
			if (first === '"' && holder?.inside instanceof Map) {
				const quoted = text.slice(offset, end);
				const name = quoted.includes('\\') ? String(JSON.parse(quoted)) : quoted.slice(1, -1);
				holder.step = name;
				if (holder.inside.has(name)) repeated.push({ path: open.map(({ step }) => step), offset });
				next = 'colon';
			}
		} else if (expected !== 'nothing' && first !== '' && first !== ',' && first !== ':') {
			const inside = first === '[' ? [] : first === '{' ? new Map<string, Place>() : null;
			const place = { offset, inside };
			if (!holder) root = place;
			else if (Array.isArray(holder.inside)) holder.step = holder.inside.push(place) - 1;
			else holder.inside.set(String(holder.step), place);
			if (inside) open.push({ inside, step: '' });
			if (inside) next = first === '[' ? 'valueOrEnd' : 'nameOrEnd';
			else next = holder ? 'commaOrEnd' : 'nothing';
		}
		if (next === null) {
			const spareComma = afterComma && holder !== undefined && first === closing;
			const reason = spareComma
				? 'there is a comma too many before this'
				: describeFault(text, offset, expected, closing);
			return { root, repeated, fault: { offset, reason: reason ?? `nothing may follow the ${what}` } };
		}
		afterComma = first === ',';
		offset = end;
		expected = next;
	}
}

const SPACE = /[ \t\r\n]*/y;
const TOKEN =
	/[{}[\],:]|"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"|(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

/** `null` for what follows the end. */
function describeFault(text: string, offset: number, expected: Expected, closing: string): string | null {
	if (offset >= text.length) return text.trim() === '' ? 'the file is empty' : 'the file ends too early';
	const character = text[offset] ?? '';
	const isUnfinished = character === '"' && expected !== 'colon' && expected !== 'commaOrEnd' && expected !== 'nothing';
	if (isUnfinished) return 'this text in quotes does not end on its line, or has a wrong escape';
	if (text.startsWith('//', offset) || text.startsWith('/*', offset) || character === '#')
		return 'comments are not allowed here';
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
