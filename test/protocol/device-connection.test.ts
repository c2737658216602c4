import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isCredential } from '../../src/protocol/authorization.ts';
import { deviceConnectionRequestSchema, findConnectionToken } from '../../src/protocol/device-connection.ts';

/** Any UTF-16 code unit, half characters too; fast-check's own `binary` takes 0.8 s to set up. */
const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));

const LEAST = { deviceId: 'kiosk-7', workflowId: 'wf-1' };

function complaint(fields: Record<string, unknown>): string {
	const result = deviceConnectionRequestSchema.safeParse({ ...LEAST, ...fields });
	return result.success
		? 'accepted'
		: result.error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`).join('; ');
}

describe('the body that registers a device', () => {
	test('needs a device and a workflow and nothing else', () => {
		expect(deviceConnectionRequestSchema.parse(LEAST)).toEqual(LEAST);
		expect(deviceConnectionRequestSchema.safeParse({ deviceId: 'x' }).success).toBe(false);
		expect(deviceConnectionRequestSchema.safeParse({ workflowId: 'x' }).success).toBe(false);
	});

	test('keeps every published field', () => {
		const full = {
			...LEAST,
			serial: 'SN 0042/B',
			macAddress: '00:1b:21:0a:0b:0c',
			deviceType: 'kiosk',
			heartbeatCadence: 30,
		};
		expect(deviceConnectionRequestSchema.parse(full)).toEqual(full);
	});

	test.each([
		['deviceId', 128],
		['workflowId', 128],
		['serial', 128],
		['deviceType', 64],
	])('%s has 1 to %i characters', (field, max) => {
		expect(complaint({ [field]: 'x'.repeat(max) })).toBe('accepted');
		expect(complaint({ [field]: 'x'.repeat(max + 1) })).toBe(`${field} must have at most ${max} characters`);
		expect(complaint({ [field]: '' })).toBe(`${field} must not be empty`);
	});

	test.each(['deviceId', 'workflowId', 'serial', 'deviceType'])(
		'%s is a clean line of text in any language',
		(field) => {
			expect(complaint({ [field]: 'Zürich – 東京 7' })).toBe('accepted');
			for (const bad of ['a\nb', 'a\u0000b', 'a\u202Eb', 'a\u200Bb', 'a\u2028b', 'a\uD800b'])
				expect(complaint({ [field]: bad })).toBe(`${field} must not have control or invisible characters`);
			for (const bad of [' a', 'a ', '\u00A0a'])
				expect(complaint({ [field]: bad })).toBe(`${field} must not begin or end with white space`);
			expect(complaint({ [field]: 7 })).toMatch(new RegExp(`^${field} .*expected string`));
		},
	);

	test('a MAC address is six pairs, kept in lower case with colons', () => {
		const parsed = deviceConnectionRequestSchema.parse({ ...LEAST, macAddress: '00-1B-21-0A-0B-0C' });
		expect(parsed.macAddress).toBe('00:1b:21:0a:0b:0c');
		expect(deviceConnectionRequestSchema.parse(parsed)).toEqual(parsed);
		for (const bad of [
			'',
			'001b210a0b0c',
			'00:1b:21:0a:0b',
			'00:1b:21:0a:0b:0g',
			'00:1b:21:0a:0b:0c:0d',
			'00:1b:21:0a:0b:0c\n',
		])
			expect(complaint({ macAddress: bad })).toBe(
				'macAddress must be six pairs of hexadecimal digits such as 00:1b:21:0a:0b:0c',
			);
	});

	test('the heartbeat cadence is a whole number of seconds from 1 to a day [F031]', () => {
		for (const good of [1, 30, 86_400]) expect(complaint({ heartbeatCadence: good })).toBe('accepted');
		for (const bad of [0, -1])
			expect(complaint({ heartbeatCadence: bad })).toBe('heartbeatCadence must be at least 1 second');
		for (const bad of [86_401, 2 ** 31])
			expect(complaint({ heartbeatCadence: bad })).toBe('heartbeatCadence must be at most 86400 seconds (a day)');
		for (const bad of [1.5, Number.NaN, Number.POSITIVE_INFINITY, '30', null, 2 ** 60])
			expect(complaint({ heartbeatCadence: bad })).toMatch(
				/^heartbeatCadence must be (a whole number of|at most 86400) seconds/,
			);
	});
});

const TOKEN = 'eyJhbGciOi.J9.c2ln-_';

describe('the Connection token in an answer', () => {
	test.each([
		['`token`', { token: TOKEN }],
		['`connectionToken`', { connectionToken: TOKEN }],
		['`authorization`', { authorization: `Connection ${TOKEN}` }],
		['`connection.token`', { id: 7, connection: { id: 'c', token: TOKEN } }],
		['a JSON string', TOKEN],
		['a JSON string with its scheme', `connection  ${TOKEN}`],
	])('is found in %s', (_where, document) => {
		expect(findConnectionToken(JSON.stringify(document))).toBe(TOKEN);
		expect(findConnectionToken(` \r\n${JSON.stringify(document, null, '\t')}\n`)).toBe(TOKEN);
		expect(findConnectionToken(`\uFEFF${JSON.stringify(document)}`)).toBe(TOKEN);
	});

	test('is found in a text body, with or without its scheme', () => {
		expect(findConnectionToken(`${TOKEN}\n`)).toBe(TOKEN);
		expect(findConnectionToken(`Connection ${TOKEN}`)).toBe(TOKEN);
		expect(findConnectionToken(`\uFEFFCONNECTION\t${TOKEN}\r\n`)).toBe(TOKEN);
	});

	test('the first known place wins, and one that holds no token is passed over', () => {
		const other = 'other-token-0001';
		expect(findConnectionToken(JSON.stringify({ connectionToken: other, token: TOKEN }))).toBe(TOKEN);
		expect(findConnectionToken(JSON.stringify({ token: null, connectionToken: other }))).toBe(other);
		expect(findConnectionToken(JSON.stringify({ token: '', connection: { token: other } }))).toBe(other);
		expect(findConnectionToken(JSON.stringify({ token: { value: TOKEN } }))).toBeNull();
	});

	test('a configured pointer is the only place that counts', () => {
		const body = JSON.stringify({ token: 'not-this-one', data: [{ 'a/b': { 'c~d': TOKEN } }] });
		expect(findConnectionToken(body, '/data/0/a~1b/c~0d')).toBe(TOKEN);
		expect(findConnectionToken(body, '/data/1')).toBeNull();
		expect(findConnectionToken(body, '/data')).toBeNull();
		expect(findConnectionToken(body, 'token')).toBeNull();
		expect(findConnectionToken(TOKEN, '/token')).toBeNull();
		expect(findConnectionToken(JSON.stringify(TOKEN), '')).toBe(TOKEN);
	});

	test.each([
		['an empty body', ''],
		['white space', ' \n '],
		['a page', '<!doctype html><title>Sign in</title>'],
		['a page without a space', '<html><body>Sign-in</body></html>'],
		['null', 'null'],
		['a number', '1234567890'],
		['an empty object', '{}'],
		['an array', `["${TOKEN}"]`],
		['a short word', 'ok'],
		['a sentence', 'Device registered successfully'],
		['a token with a space in it', JSON.stringify({ token: 'abcdef ghijkl' })],
		['a token with a line end in it', JSON.stringify({ token: 'abcdef\r\nHost:x' })],
		['a token that is too long', JSON.stringify({ token: 'x'.repeat(8193) })],
		['a token in other letters', JSON.stringify({ token: 'пароль-пароль' })],
		['an answer that was cut off', `{"token":"${TOKEN}`],
		['an array that was cut off', `["${TOKEN}"`],
		['a string that was cut off', `"${TOKEN}`],
		['a prototype in place of a field', '{"__proto__":{"token":"abcdefghijkl"}}'],
	])('%s holds none', (_what, body) => {
		expect(findConnectionToken(body)).toBeNull();
	});

	test('whatever comes, it does not throw, and what is found could be sent in a header', () => {
		const body = fc.oneof(
			fc.json(),
			fc.string({ unit: codeUnit }),
			fc.json().map((text) => text.slice(0, -1)),
		);
		const pointer = fc.option(
			fc.string().map((text) => `/${text}`),
			{ nil: undefined },
		);
		fc.assert(
			fc.property(body, pointer, (text, at) => {
				const token = findConnectionToken(text, at);
				return token === null || isCredential(token);
			}),
			{ numRuns: 1000 },
		);
	});
});
