/** RFC 6901: finds one value in a JSON document. Owns nothing else; a pointer that leads nowhere is `undefined`. */
export function resolvePointer(document: unknown, pointer: string): unknown {
	if (pointer === '') return document;
	if (!pointer.startsWith('/')) return undefined;
	let value: unknown = document;
	for (const part of pointer.slice(1).split('/')) {
		if (typeof value !== 'object' || value === null) return undefined;
		const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
		if (!Object.hasOwn(value, key)) return undefined;
		value = (value as Record<string, unknown>)[key];
	}
	return value;
}
