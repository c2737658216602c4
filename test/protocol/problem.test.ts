import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cleanText, readErrorDetail, readErrorWords } from '../../src/protocol/problem.ts';

/** Any UTF-16 code unit, half characters too; fast-check's own `binary` takes 0.8 s to set up. */
const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));

describe('the words of an error body', () => {
	test.each([
		[
			'the detail of a problem document',
			{ title: 'Conflict', detail: 'The workflow wf-9 does not exist.', status: 409 },
			'The workflow wf-9 does not exist.',
		],
		['the message', { message: 'No such workflow', error: 'Not Found' }, 'No such workflow'],
		['the title', { title: 'Conflict', error: 'x' }, 'Conflict'],
		['the error', { error: 'invalid_token' }, 'invalid_token'],
		['a JSON string', 'Rate limit reached', 'Rate limit reached'],
		['a field that is a text', { detail: 7, message: null, title: ['x'], error: 'last' }, 'last'],
	])('are %s', (_what, document, words) => {
		expect(readErrorDetail(JSON.stringify(document))).toBe(words);
	});

	test('are a text body itself', () => {
		expect(readErrorDetail('  Too many\r\nrequests \n')).toBe('Too many requests');
	});

	test.each([
		'',
		' \n',
		'<html>Bad gateway</html>',
		'  <!doctype html>',
		'{}',
		'[]',
		'["x"]',
		'null',
		'7',
		'{"error":{"code":7}}',
	])('are none in %j', (body) => {
		expect(readErrorDetail(body)).toBe('');
	});

	test.each([
		'{"error":{"code":7,"message":"x"}}',
		'{"errors":[{"detail":"x"}]}',
		'{"errors":["x"]}',
		'{"reason":"x"}',
	])('are also those within %s', (body) => {
		expect(readErrorDetail(body)).toBe('x');
	});

	test.each([
		['{"problem":"code used"}', 'code used'],
		['{"error":"not found","hint":"enroll with POST /v2/enroll"}', 'not found. enroll with POST /v2/enroll'],
		['{"what":{"went":"wrong"},"code":"E7"}', 'wrong'],
		['{"errors":[{"code":"device_limit","title":"Device limit reached"}]}', 'Device limit reached'],
	])('and what a refusal says elsewhere: %s', (body, words) => {
		expect(readErrorWords(body)).toBe(words);
	});

	test.each([
		...['code', 'errorCode', 'error_code', 'ErrorCode', 'type', 'errorType'].map((key) => ({ [key]: 'DEVICE_LIMIT' })),
		{ error: { code: 'DEVICE_LIMIT' } },
		{ errors: [{ code: 'DEVICE_LIMIT' }] },
		{ code: 403, type: 'https://id.example.com/errors/DEVICE_LIMIT' },
		{ type: 'urn:problem:DEVICE_LIMIT' },
		{ type: 'about:blank', status: 403, errorCode: 'DEVICE_LIMIT' },
		{ type: 'error', error: { type: 'DEVICE_LIMIT' } },
	])('are the name of the reason where there are no others: %j [F1672]', (document) => {
		expect(readErrorWords(JSON.stringify(document))).toBe('DEVICE_LIMIT');
		expect(readErrorWords(JSON.stringify({ ...document, title: 'Forbidden' }))).toBe('Forbidden. DEVICE_LIMIT');
		expect(readErrorWords(JSON.stringify({ ...document, message: 'Too many devices' }))).toBe('Too many devices');
	});

	test.each(['{"code":"401"}', '{"type":"about:blank"}', '{"code":"q7Zr3kPx9vTn2mWc8dLs5hYb4jGf6aXe"}'])(
		'are not a number or what may be a secret: %s [F1673]',
		(body) => expect(readErrorWords(body)).toBe(''),
	);

	test('are cut at 200 characters', () => {
		expect(readErrorDetail(JSON.stringify({ detail: 'x'.repeat(200) }))).toBe('x'.repeat(200));
		expect(readErrorDetail(JSON.stringify({ detail: 'x'.repeat(201) }))).toBe(`${'x'.repeat(199)}…`);
	});
});

describe("somebody else's text", () => {
	test.each([
		['colours of a terminal', 'a\u001B[31mred\u001B[0m', 'a [31mred [0m'],
		['line ends, which forge log lines', 'one\r\ntwo\u2028three\u2029four', 'one two three four'],
		['direction marks, which turn text around', 'user\u202Egnp.exe\u2066x', 'user gnp.exe x'],
		['invisible characters', 'a\u200B\u00ADb\uFEFF', 'a b'],
		['half a character', 'a\uD83Db', 'a b'],
		['private characters', 'a\uE000b', 'a b'],
	])('loses %s', (_what, text, clean) => {
		expect(cleanText(text, 50)).toBe(clean);
	});

	test('keeps other languages and emoji', () => {
		expect(cleanText('Größe 東京 مرحبا 🙂', 50)).toBe('Größe 東京 مرحبا 🙂');
	});

	test('is not cut in the middle of a character', () => {
		expect(cleanText('ab🙂cd', 4)).toBe('ab…');
	});

	test('is one clean line of bounded length, whatever it was', () => {
		fc.assert(
			fc.property(fc.string({ unit: codeUnit, maxLength: 200 }), fc.integer({ min: 1, max: 40 }), (text, max) => {
				const clean = cleanText(text, max);
				return clean.length <= max && !/[\p{C}\p{Zl}\p{Zp}]/u.test(clean) && clean === clean.trim();
			}),
			{ numRuns: 2000 },
		);
	});
});
