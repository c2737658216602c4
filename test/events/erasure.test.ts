import fc from 'fast-check';
import { expect, test } from 'vitest';
import { before, ofSession, type Stored } from '../../src/events/erasure.ts';

const event = (content: string, more: Partial<Stored> = {}): Stored => ({
	id: 'e-1',
	keptMs: Date.UTC(2026, 10, 22),
	at: '2026-11-22T00:00:00.000Z',
	kind: 'k',
	format: 'json',
	content,
	serviceId: null,
	...more,
});

/** Ways to write a text in a JSON document. */
const FORMS: readonly ((text: string) => string)[] = [
	(text) => JSON.stringify({ sessionId: text }),
	(text) => JSON.stringify({ [text]: true }),
	(text) => JSON.stringify({ a: [{ b: [`see /sessions/${text}/documents`] }] }),
	(text) => `{"a":"${[...text].map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')}"}`,
	(text) =>
		JSON.stringify({
			url: `https://x.example/?s=${[...text].map((one) => `%${one.charCodeAt(0).toString(16)}`).join('')}`,
		}),
	(text) => JSON.stringify({ id: text.toUpperCase() }),
];

test('a session is found however it is written, and another one is not', () => {
	const id = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._-]{5,30}[A-Za-z0-9]$/);
	fc.assert(
		fc.property(id, fc.constantFrom(...FORMS), (session, form) => {
			const matches = ofSession(session);
			return matches(event(form(session))) && !matches(event(form(`${session}0`))) && !matches(event('{"other":1}'));
		}),
	);
});

/** Programs that write one text within another, each in its own way. */
const python = (text: unknown) =>
	JSON.stringify(text).replaceAll(/[^\0-\x7f]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
const gson = (text: unknown) =>
	JSON.stringify(text).replaceAll(/[=&'<>]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
const php = (text: unknown) => JSON.stringify(text).replaceAll('/', '\\/');
const link = (text: string) => `https://x.example/?to=${encodeURIComponent(text)}&z=1`;

test.each(['YWJj+/8=', 'ab/cd-12', 'x y', "o'neil", '<s1>', 'café-1', 'K&R', 'a\\b', '100%25', 'sess_1'])(
	'session %s is found in escapes of escapes, and in text that is not quite JSON [F1808]',
	(id) => {
		const matches = ofSession(id);
		for (const write of [python, gson, php, JSON.stringify]) {
			for (const outer of [python, gson, php, JSON.stringify]) {
				expect(matches(event(outer({ p: write({ s: id }) })))).toBe(true);
				expect(matches(event(outer({ p: gson({ p: write({ s: id }) }) })))).toBe(true);
			}
			expect(matches(event(`call(${write({ s: id })});`, { format: 'text' }))).toBe(true);
			expect(matches(event(write({ s: id }).slice(0, -1)))).toBe(true);
			expect(matches(event(write({ s: link(link(id)) })))).toBe(true);
			expect(matches(event(write({ s: `${id}0` })))).toBe(false);
		}
		expect(matches(event(JSON.stringify({ u: String(new URLSearchParams({ s: id })) })))).toBe(true);
		expect(matches(event(Buffer.from(`..${id}..`).toString('base64'), { format: 'binary' }))).toBe(true);
	},
);

test('a session is found in text, in bytes, in the kind and as the id of the service', () => {
	const matches = ofSession('S-1');
	expect(matches(event('session S-1 ended', { format: 'text' }))).toBe(true);
	expect(matches(event(Buffer.from('..S-1..').toString('base64'), { format: 'binary' }))).toBe(true);
	expect(matches(event('{}', { kind: 'S-1' }))).toBe(true);
	expect(matches({ id: 'e-1', serviceId: 'S-1', keptMs: 0, at: null, content: null })).toBe(true);
	expect(matches(event('{"n":17}'))).toBe(false);
	expect(ofSession('17')(event('{"n":17}'))).toBe(true);
	expect(matches(event(`${'['.repeat(50_000)}"S-1"${']'.repeat(50_000)}`))).toBe(true);
	expect(matches(event('{not json "S-1"'))).toBe(true);
});

test.each(['a.b-1', 'a+b-1', 'a(b)-1', 'a[b]-1', 'a|b-1', 'a$b-1', 'a*b-1', 'a\\b-1'])(
	'each character of %s means itself, so that no other session goes with it',
	(session) => {
		const matches = ofSession(session);
		expect(matches(event(JSON.stringify({ sessionId: session })))).toBe(true);
		for (const other of ['axb-1', 'aab-1', 'ab-1', 'a-1', 'b-1'])
			expect(matches(event(JSON.stringify({ sessionId: other })))).toBe(false);
	},
);

test('a time is compared with both clocks of an event', () => {
	const matches = before(Date.parse('2026-11-22T00:00:00Z'));
	expect(matches(event('{}'))).toBe(false);
	expect(matches(event('{}', { at: '1976-01-01T00:00:00Z' }))).toBe(true);
	expect(matches(event('{}', { keptMs: 0 }))).toBe(true);
});
