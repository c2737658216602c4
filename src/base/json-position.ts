/**
 * Where something stands in a JSON text that a person has written: a value by its path, a name that is there twice. Pure;
 * never quotes what stands in the text. What is no JSON at all is `json-text.ts`.
 */

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
	const offsets = new Map<string, number>();
	const repeated = findRepeatedNames(text, (path, at) => offsets.set(pointerOf(path), at));
	return {
		offsetOf(asked) {
			for (let length = asked.length; length >= 0; length -= 1) {
				const at = offsets.get(pointerOf(asked.slice(0, length)));
				if (at !== undefined) return at;
			}
			return 0;
		},
		repeated,
	};
}

/**
 * Only the names that are there twice: a fraction of the time.
 * @param onValue told where each value begins; the path is good for the time of the call.
 */
export function findRepeatedNames(
	text: string,
	onValue: (path: readonly (string | number)[], offset: number) => void = () => {},
): JsonPlaces['repeated'] {
	const repeated: { path: (string | number)[]; offset: number }[] = [];
	const path: (string | number)[] = [];
	let offset = 0;
	const token = () => {
		offset = skipSpace(text, offset);
		TOKEN.lastIndex = offset;
		const found = TOKEN.exec(text)?.[0] ?? '';
		const at = offset;
		offset += found.length;
		return { found, at };
	};
	const value = () => {
		const { found, at } = token();
		onValue(path, at);
		if (found === '[') list();
		else if (found === '{') group();
	};
	const list = () => {
		for (let index = 0; !closes(']'); index += 1) {
			path.push(index);
			value();
			path.pop();
			if (token().found !== ',') return;
		}
	};
	const group = () => {
		const seen = new Set<string>();
		while (!closes('}')) {
			const { found, at } = token();
			const name = String(JSON.parse(found));
			path.push(name);
			if (seen.has(name)) repeated.push({ path: [...path], offset: at });
			seen.add(name);
			token();
			value();
			path.pop();
			if (token().found !== ',') return;
		}
	};
	/** Takes the mark if it is next. */
	const closes = (mark: string) => {
		const before = offset;
		if (token().found === mark) return true;
		offset = before;
		return false;
	};
	try {
		value();
	} catch {
		// Nested too deep to walk: the places that were found have to do.
	}
	return repeated;
}

const SPACE = /[ \t\r\n]*/y;
/** Enough for a text that is JSON. */
const TOKEN = /[{}[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}[\],:"]+/y;

/** Past the white space of JSON. */
export function skipSpace(text: string, offset: number): number {
	SPACE.lastIndex = offset;
	return offset + (SPACE.exec(text)?.[0].length ?? 0);
}
