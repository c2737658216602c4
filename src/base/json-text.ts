/**
 * Reads a text that must be one JSON object, and names line and column where it is not: V8's own message quotes the text,
 * which may hold a secret, and names a place only sometimes. Pure; knows nothing of what the object means.
 */
import { lineAndColumn, skipSpace } from './json-position.ts';

/** The object, or what is wrong as `line 3, column 7: a comma or } is missing before this.`, without a word of the text. */
export type JsonObject = { readonly document: Record<string, unknown> } | { readonly fault: string };

/** @param what the word for the contents: `settings`. */
export function readJsonObject(text: string, what: string): JsonObject {
	let document: unknown;
	try {
		document = JSON.parse(text);
	} catch {
		const { offset, problem } = findJsonFault(text, what);
		return { fault: `${lineAndColumn(text, offset)}: ${problem}.` };
	}
	if (typeof document === 'object' && document !== null && !Array.isArray(document))
		return { document: document as Record<string, unknown> };
	return { fault: `line 1, column 1: the ${what} must be one object in { }.` };
}

/** The line, from 1, on which a name of the object stands first; 1 when it stands nowhere as it is written here. */
export function lineOfName(text: string, name: string): number {
	const quoted = JSON.stringify(name);
	let offset = text.indexOf(quoted);
	while (offset >= 0 && !/^\s*:/.test(text.slice(offset + quoted.length))) offset = text.indexOf(quoted, offset + 1);
	return text.slice(0, Math.max(0, offset)).split(/\r\n|\r|\n/).length;
}

const TOKEN =
	/(?<mark>[{}[\],:])|(?<text>"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(?<value>(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-]))/y;

/** What may stand next. */
type Expected = 'value' | 'valueOrEnd' | 'name' | 'nameOrEnd' | 'colon' | 'commaOrEnd' | 'nothing';

/** The first place in a text that cannot be JSON, and what is wrong there. The text is known not to be JSON. */
function findJsonFault(text: string, what: string): { offset: number; problem: string } {
	const open: string[] = [];
	let expected: Expected = 'value';
	let offset = 0;
	let afterComma = false;
	for (;;) {
		offset = skipSpace(text, offset);
		TOKEN.lastIndex = offset;
		const match = TOKEN.exec(text);
		const mark = match?.groups?.['mark'];
		const isText = match?.groups?.['text'] !== undefined;
		const closes = mark !== undefined && mark === (open.at(-1) === '{' ? '}' : ']');
		const canEnd = expected === 'commaOrEnd' || expected === 'valueOrEnd' || expected === 'nameOrEnd';
		let next: Expected | null = null;
		if (closes && open.length > 0 && canEnd) {
			open.pop();
			next = open.length > 0 ? 'commaOrEnd' : 'nothing';
		} else if (expected === 'value' || expected === 'valueOrEnd') {
			if (mark === '{' || mark === '[') {
				open.push(mark);
				next = mark === '{' ? 'nameOrEnd' : 'valueOrEnd';
			} else if (match && mark === undefined) next = open.length > 0 ? 'commaOrEnd' : 'nothing';
		} else if (expected === 'name' || expected === 'nameOrEnd') next = isText ? 'colon' : null;
		else if (expected === 'colon') next = mark === ':' ? 'value' : null;
		else if (expected === 'commaOrEnd' && mark === ',') next = open.at(-1) === '{' ? 'name' : 'value';
		if (next === null || !match)
			return { offset, problem: describeFault(text, offset, expected, afterComma && closes, open.at(-1), what) };
		afterComma = mark === ',';
		offset += match[0].length;
		expected = next;
	}
}

function describeFault(
	text: string,
	offset: number,
	expected: Expected,
	spareComma: boolean,
	inside: string | undefined,
	what: string,
): string {
	if (offset >= text.length) return text.trim() === '' ? 'the file is empty' : 'the file ends too early';
	if (spareComma) return 'there is a comma too many before this';
	const character = text[offset] ?? '';
	const isUnfinished = character === '"' && expected !== 'colon' && expected !== 'commaOrEnd' && expected !== 'nothing';
	if (isUnfinished) return 'this text in quotes does not end on its line, or has a wrong escape';
	if (text.startsWith('//', offset) || text.startsWith('/*', offset) || character === '#')
		return 'comments are not allowed here';
	if (character === "'") return 'texts stand in double quotes';
	const desired: Record<Expected, string> = {
		value: 'a value is missing or misspelt here',
		valueOrEnd: 'a value or ] is expected here',
		name: 'a name in double quotes is expected here',
		nameOrEnd: 'a name in double quotes or } is expected here',
		colon: 'a : is missing before this',
		commaOrEnd: `a comma or ${inside === '{' ? '}' : ']'} is missing before this`,
		nothing: `nothing may follow the ${what}`,
	};
	return desired[expected];
}
