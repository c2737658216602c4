import fc from 'fast-check';
import { expect, test } from 'vitest';
import { findJsonPlaces, lineAndColumn, pointerOf } from '../../src/base/json-text.ts';
import { resolvePointer } from '../../src/protocol/json.ts';

/** All paths of a document. */
function pathsOf(value: unknown, path: (string | number)[] = []): (string | number)[][] {
	if (typeof value !== 'object' || value === null) return [path];
	const inner = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
	return [path, ...inner.flatMap(([key, nested]) => pathsOf(nested, [...path, key]))];
}

test('every value is found where it begins', () => {
	fc.assert(
		fc.property(fc.jsonValue({ maxDepth: 4 }), fc.constantFrom(0, 2), (document, indent) => {
			const text = JSON.stringify(document, null, indent);
			const { offsetOf, repeated } = findJsonPlaces(text);
			expect(repeated).toEqual([]);
			for (const path of pathsOf(JSON.parse(text))) {
				const value = JSON.stringify(resolvePointer(JSON.parse(text), pointerOf(path)), null, indent);
				const first = value.split('\n')[0] ?? '';
				expect(text.slice(offsetOf(path), offsetOf(path) + first.length), pointerOf(path)).toBe(first);
			}
		}),
	);
});

test('what is not there is looked for in what is around it', () => {
	const text = '{\n  "a": [ 1, {"b": 2} ]\n}';
	const { offsetOf } = findJsonPlaces(text);
	expect(lineAndColumn(text, offsetOf(['a', 1, 'c', 'd']))).toBe('line 2, column 13');
	expect(lineAndColumn(text, offsetOf(['x']))).toBe('line 1, column 1');
});

test('a name that is there twice is told, with its path', () => {
	const text = '{"a":{"b":1,"b":2},"a":3}';
	expect(findJsonPlaces(text).repeated).toEqual([
		{ path: ['a', 'b'], offset: 12 },
		{ path: ['a'], offset: 19 },
	]);
});

test('a document may nest as deep as it likes', () => {
	const depth = 1_000_000;
	const text = `${'['.repeat(depth)}${']'.repeat(depth)}`;
	expect(findJsonPlaces(text).offsetOf(Array(depth - 1).fill(0))).toBe(depth - 1);
});
