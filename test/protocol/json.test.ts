import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { messagesIn } from '../../src/protocol/frame-messages.ts';
import { parseJson, partsOf, resolvePointer } from '../../src/protocol/json.ts';

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

test('a long text is parsed once for all that read it in turn, and each text is its own', () => {
	const [one, other] = [1, 2].map((n) => JSON.stringify({ n, filling: 'x'.repeat(20_000) })) as [string, string];
	const document = parseJson(one);
	expect(parseJson(`${one.slice(0, -1)}}`)).toBe(document);
	expect(parseJson(other)).toMatchObject({ n: 2 });
	expect(parseJson(one)).toMatchObject({ n: 1 });
});

test('a document of more than 100,000 objects and lists is none: a megabyte of empty ones takes 80 MiB [F1187]', () => {
	const of = (parts: number, part: string) => `[${Array(parts - 1).fill(part)}]`;
	for (const part of ['{}', '[]']) {
		expect(parseJson(of(100_000, part))).toHaveLength(99_999);
		expect(parseJson(of(100_001, part))).toBeUndefined();
	}
	expect(parseJson(of(200_000, '"{[{["'))).toHaveLength(199_999);
});

test('a frame of a great many line ends is one message, and nothing of it is taken apart [F1288]', () => {
	const read = (text: string) => messagesIn({ type: 'text', text }, { frameContents: 'lines', jsonInBinary: false });
	expect(read(`${'\n'.repeat(900)}{"a":1}\r\n{"b":2}`).map((one) => one.type === 'text' && one.text)).toEqual([
		'{"a":1}',
		'{"b":2}',
	]);
	for (const text of ['\n'.repeat(1_000_000), '{}\n'.repeat(3000)])
		expect(read(text)).toEqual([{ type: 'text', text }]);
});

test('a frame of a list that is too long for messages is one message [F1288]', () => {
	for (const frameContents of ['array', '/events'] as const) {
		const text = (count: number) => {
			const list = `[${Array(count).fill('{}')}]`;
			return frameContents === 'array' ? list : `{"events":${list}}`;
		};
		const read = (of: string) => messagesIn({ type: 'text', text: of }, { frameContents, jsonInBinary: false });
		expect(read(text(1000))).toHaveLength(1000);
		expect(read(text(1001))).toEqual([{ type: 'text', text: text(1001) }]);
	}
});

test('a document of 100,000 members is read, and one of more is none: parsing it would stop everything else', () => {
	const of = (members: number) => `{${Array.from({ length: members }, (_, n) => `"m${n}":":"`).join()}}`;
	expect(Object.keys(parseJson(of(100_000)) as object)).toHaveLength(100_000);
	expect(parseJson(of(100_001))).toBeUndefined();
});

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

describe('the parts of a list', () => {
	test('are its elements as they are written, whatever is in them', () => {
		fc.assert(
			fc.property(fc.array(fc.json(), { minLength: 1 }), (elements) => {
				expect(partsOf(` [ ${elements.join(' , ')} ] `)).toEqual(elements.map((element) => element.trim()));
			}),
		);
	});
	test('an array in one frame with a text of nine megabytes is taken apart like any other [F560]', () => {
		const elements = [JSON.stringify({ type: 'large', text: 'x'.repeat(9_000_000) }), '{"type":"small"}'];
		const messages = messagesIn(
			{ type: 'text', text: `[${elements.join(', ')}]` },
			{ frameContents: 'array', jsonInBinary: false },
		);
		expect(messages.map((message) => message.type === 'text' && elements.indexOf(message.text))).toEqual([0, 1]);
	});

	test('of an empty list are none', () => {
		expect(partsOf(' [ ] ')).toEqual([]);
	});
});

test('a long text that nests deeper than any document is no JSON; signs in its texts do not count [F700]', () => {
	const lists = (depth: number, size = 200_000) => `${'['.repeat(depth)}"${'['.repeat(size)}\\""${']'.repeat(depth)}`;
	expect(parseJson(lists(100_000))).toBeDefined();
	expect(parseJson(lists(100_001))).toBeUndefined();
	expect(parseJson('['.repeat(1_000_000))).toBeUndefined();
});
