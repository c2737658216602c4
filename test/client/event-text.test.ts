/** The exact text of each event's data. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readPage } from '../../src/client/event-text.ts';
import { formatEvent } from '../../src/events/feed.runner.ts';

const HEAD = {
	id: 'a-1',
	number: 1,
	at: '2026-11-23T00:00:00.000Z',
	type: 'notification',
	kind: 'k"},{',
	workflowId: null,
};
const pageOf = (contents: readonly string[], format = 'json') => {
	const events = contents.map((content) =>
		formatEvent({ ...HEAD, format, content } as Parameters<typeof formatEvent>[0]),
	);
	return readPage(`{"events":[${events.join(',')}],"next":"a-1"}`) as { events: { data: unknown; text: string }[] };
};

test.each([
	['a number beyond the exact ones', '{"sessionId":9007199254740993}'],
	['a price', '{"price":1.10,"other":1e400,"zero":-0}'],
	['two equal keys', '{"a":1,"a":2,"data":3,"data":4}'],
	['its own spaces', '{ "a" : [ 1 , 2 ] }'],
	['brackets, quotes and escapes in strings', '{"a":"]}\\"\\\\","b\\"":["{",",\\\\"]}'],
	['a number alone', '1.0'],
	['an empty list', '[]'],
])('the text of an event has %s as the service sent it', (_, content) => {
	const { events } = pageOf([content, '{"next":true}', content]);
	expect(events.map(({ text }) => text)).toEqual([content, '{"next":true}', content]);
	expect(events[0]?.data).toEqual(JSON.parse(content));
});

test.each(['{"a":1}', '[1, 2]', '"a"', '1.10', 'null', '[]'])(
	'the text of an event keeps the white space around %s, in front and behind [F1296]',
	(document) => {
		const contents = [`  ${document}`, `${document}\t `, ` ${document}  `, document];
		expect(pageOf(contents).events.map(({ text }) => text)).toEqual(contents);
	},
);

test('the text of an event is exact whatever JSON it holds, and however long', () => {
	fc.assert(
		fc.property(fc.array(fc.tuple(fc.json(), fc.constantFrom(undefined, 1, '\t'))), (documents) => {
			const contents = documents.map(([json, indent]) => JSON.stringify(JSON.parse(json), null, indent));
			const sent = contents.map((content) => content.replaceAll(/[\r\n]+/g, ' '));
			expect(pageOf(contents).events.map(({ text }) => text)).toEqual(sent);
		}),
	);
	const long = JSON.stringify('"\\\0'.repeat(700_000));
	expect(pageOf([long]).events[0]?.text).toBe(long);
});

test('the text of an event that is no JSON is its data', () => {
	expect(pageOf(['{"a":1.0', 'b"'], 'text').events.map(({ text }) => text)).toEqual(['{"a":1.0', 'b"']);
});
