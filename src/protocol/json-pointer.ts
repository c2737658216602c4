/** RFC 6901: finds one value in a JSON document. Owns nothing else; a pointer that leads nowhere is `undefined`. */
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
