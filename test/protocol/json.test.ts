import { describe, expect, test } from 'vitest';
import { resolvePointer } from '../../src/protocol/json.ts';

// The document and the answers of RFC 6901, section 5.
const DOCUMENT = {
	foo: ['bar', 'baz'],
	'': 0,
	'a/b': 1,
	'c%d': 2,
	'e^f': 3,
	'g|h': 4,
	'i\\j': 5,
	'k"l': 6,
	' ': 7,
	'm~n': 8,
};

describe('a JSON pointer', () => {
	test.each([
		['', DOCUMENT],
		['/foo', ['bar', 'baz']],
		['/foo/0', 'bar'],
		['/', 0],
		['/a~1b', 1],
		['/c%d', 2],
		['/e^f', 3],
		['/g|h', 4],
		['/i\\j', 5],
		['/k"l', 6],
		['/ ', 7],
		['/m~0n', 8],
	])('%j of the RFC example finds its value', (pointer, value) => {
		expect(resolvePointer(DOCUMENT, pointer)).toEqual(value);
	});

	test('an escaped tilde before a one is not a slash', () => {
		expect(resolvePointer({ '~1': 'tilde one', '/': 'slash' }, '/~01')).toBe('tilde one');
	});

	test.each([
		'foo',
		'/nothing',
		'/foo/2',
		'/foo/00',
		'/foo/-',
		'/foo/0/x',
		'/foo/0/length',
		'/__proto__',
		'/constructor',
		'/foo/map',
	])('%j leads nowhere', (pointer) => {
		expect(resolvePointer(DOCUMENT, pointer)).toBeUndefined();
	});

	test.each([null, undefined, 7, 'text', true])('nothing is found inside %j', (document) => {
		expect(resolvePointer(document, '/length')).toBeUndefined();
		expect(resolvePointer(document, '')).toBe(document);
	});
});
