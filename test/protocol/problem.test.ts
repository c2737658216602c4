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
		['a field that is a text', { detail: 7, message: null, title: [7], error: 'last' }, 'last'],
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
		'["x"]',
		'[{"message":"x"}]',
		'{"non_field_errors":["x"]}',
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

	test.each([{ error: { details: [{ reason: 'DEVICE_LIMIT' }] } }, [{ code: 'DEVICE_LIMIT' }]])(
		'are also the name of a reason within lists: %j [F1684]',
		(document) => expect(readErrorWords(JSON.stringify(document))).toBe('DEVICE_LIMIT'),
	);

	test.each(['{"code":"401"}', '{"type":"about:blank"}', '{"code":"q7Zr3kPx9vTn2mWc8dLs5hYb4jGf6aXe"}'])(
		'are not a number or what may be a secret: %s [F1673]',
		(body) => expect(readErrorWords(body)).toBe(''),
	);

	test.each([
		{ apiKey: 'ak-c2VjcmV0LW9mLWFub3RoZXI12' },
		{ request: { authorization: 'Basic c2VjcmV0LW9mLWFub3RoZXI' } },
		{ credentials: { value: 'open-sesame' } },
		{ session: 'open-sesame' },
		{ details: { password: 'Hunter2' } },
	])('are none of a field with the name of a credential, which hides no reason: %j [F1681]', (fields) => {
		expect(readErrorWords(JSON.stringify({ code: 'DEVICE_LIMIT_REACHED', ...fields }))).toBe('DEVICE_LIMIT_REACHED');
	});

	test.each([
		['jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjMifQ.dozjgNryP4J3 is bad', 'jwt [secret] is bad'],
		['Authorization: Bearer SECRETSECRETSECRET12 refused', 'Authorization: Bearer [secret] refused'],
		['Basic b3BlcmF0b3I6cFJu= denied', 'Basic [secret] denied'],
		['no right for ak-SECRETSECRETSECRET', 'no right for [secret]'],
		['see https://x.example/a?authorization=Token%20SECRET', 'see https://x.example/a?authorization=[secret]'],
		['for password hunter2secret', 'for password [secret]'],
		['code AA7xkQmrtplWzNvbyyqp is known', 'code [secret] is known'],
		[`${'x'.repeat(170)} ak-SECRETSECRETSECRETSECRETSECRETSECRET1`, `${'x'.repeat(170)} [secret]`],
	])('have no credential in them, also not another one than the device has: %s [F1681]', (message, words) => {
		expect(readErrorWords(JSON.stringify({ message }))).toBe(words);
		expect(readErrorDetail(message)).toBe(words);
	});

	test.each([
		[{ code: ['This code has expired.'], mac: ['Required.'] }, 'code: This code has expired, mac: Required'],
		[{ device: { serial: ['Not a serial.'] } }, 'device.serial: Not a serial'],
		[
			{
				error: 'Bad Request',
				errors: [{ code: 'NotNull', field: 'mac', defaultMessage: 'must be there' }],
				path: '/x',
			},
			'Bad Request (mac: must be there)',
		],
		[
			{ error: { name: 'ZodError', message: '[{}]', issues: [{ path: ['device', 'mac'], message: 'Required' }] } },
			'device.mac: Required',
		],
		[{ formErrors: [], fieldErrors: { mac: ['Required'] } }, 'mac: Required'],
		[
			{ statusCode: 400, message: ['mac is wrong', 'serial is wrong'], error: 'Bad Request' },
			'mac is wrong. serial is wrong',
		],
		[{ detail: 'mac: bad', violations: [{ propertyPath: 'mac', title: 'bad' }] }, 'mac: bad'],
		[{ title: 'Invalid', 'invalid-params': [{ name: 'mac', reason: 'too long' }] }, 'Invalid (mac: too long)'],
		[[{ field: 'mac', message: 'too long' }], 'mac: too long'],
		[
			{ error: { message: 'Bad', details: [{ fieldViolations: [{ field: 'mac', description: 'too long' }] }] } },
			'Bad (mac: too long)',
		],
		[{ errors: [{ source: { pointer: '/mac' }, detail: 'is too short' }] }, '/mac is too short'],
		[{ messages: { json: { mac: ['Missing data.'] } } }, 'json.mac: Missing data'],
		[{ error: { code: 'DEVICE_LIMIT', target: 'mac' } }, 'DEVICE_LIMIT'],
		[{ code: 40_312 }, '40312'],
		[{ scopes: ['read'], code: 403 }, ''],
	])('are those about fields, as frameworks write them: %j [F1765]', (document, words) => {
		expect(readErrorWords(JSON.stringify(document))).toBe(words);
	});

	test.each([
		'Token verification failed: the connection token is missing, basic authentication required',
		'DEVICE_LIMIT_REACHED_V2 for kiosk-berlin-hbf-0001-a of kyc-2024-germany-version2',
		'see https://docs.example.com/errors/v2/device-limit',
		'request 123e4567-e89b-12d3-a456-426614174000, trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
		'at 2026-11-30T06:55:50.123Z on ip-10-0-0-12.eu-central-1.compute.internal:8080 from 00:1a:22:33:44:55',
	])('keep names, addresses, and what a request is found again by: %s [F1682]', (message) => {
		expect(readErrorWords(JSON.stringify({ message }))).toBe(message);
	});

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
