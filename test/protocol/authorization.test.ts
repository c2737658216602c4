import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	AUTHORIZATION_PARAMETER,
	AUTHORIZATION_SCHEMES,
	formatAuthorization,
	isCredential,
	MAX_CREDENTIAL_LENGTH,
	parseAuthorization,
} from '../../src/protocol/authorization.ts';

/** Any UTF-16 code unit, half characters too; fast-check's own `binary` takes 0.8 s to set up. */
const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));

const credential = fc.string({
	unit: fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code)),
	minLength: 1,
});

describe('the Authorization header', () => {
	test.each(['Bearer', 'Token', 'Connection', 'ApiKey'] as const)(
		'%s is written as the scheme and the credential',
		(scheme) => {
			expect(formatAuthorization({ scheme, credential: 'abc.def' })).toBe(`${scheme} abc.def`);
		},
	);

	test('Basic is written as base64 of user and password in UTF-8', () => {
		const header = formatAuthorization({ scheme: 'Basic', username: 'josé', password: 'a:b' });
		expect(header).toBe(`Basic ${Buffer.from('josé:a:b').toString('base64')}`);
		expect(parseAuthorization(header)).toEqual({ scheme: 'Basic', username: 'josé', password: 'a:b' });
	});

	test('every credential comes back as it was written', () => {
		fc.assert(
			fc.property(fc.constantFrom('Bearer', 'Token', 'Connection', 'ApiKey'), credential, (scheme, text) => {
				const authorization = { scheme, credential: text };
				expect(parseAuthorization(formatAuthorization(authorization))).toEqual(authorization);
			}),
		);
	});

	test('every user and password come back as they were written', () => {
		const username = fc.string({ unit: 'grapheme' }).filter((text) => !text.includes(':'));
		fc.assert(
			fc.property(username, fc.string({ unit: 'grapheme' }), (name, password) => {
				const authorization = { scheme: 'Basic' as const, username: name, password };
				expect(parseAuthorization(formatAuthorization(authorization))).toEqual(authorization);
			}),
		);
	});

	test('a byte order mark in a user name is part of the name', () => {
		const authorization = { scheme: 'Basic' as const, username: '\uFEFFroot', password: 'x' };
		expect(parseAuthorization(formatAuthorization(authorization))).toEqual(authorization);
	});

	test('the scheme may have any capitals and any white space around it', () => {
		for (const scheme of AUTHORIZATION_SCHEMES.filter((known) => known !== 'Basic')) {
			expect(parseAuthorization(` ${scheme.toUpperCase()} \t x1 `)).toEqual({ scheme, credential: 'x1' });
			expect(parseAuthorization(`${scheme.toLowerCase()} x1`)).toEqual({ scheme, credential: 'x1' });
		}
	});

	test.each([
		['nothing', undefined],
		['null', null],
		['an empty text', ''],
		['a scheme alone', 'Token'],
		['a scheme and a space', 'Token '],
		['a credential alone', 'abcdef'],
		['an unknown scheme', 'Digest abc'],
		['a name that every object has', 'constructor abc'],
		['two credentials', 'Token abc def'],
		['a line end in the credential', 'Token abc\r\nHost: x'],
		['a character that is not ASCII', 'Token abcé'],
		['a control character', 'Token a\u0000b'],
		['Basic that is not base64', 'Basic ***'],
		['Basic without a colon', `Basic ${btoa('user')}`],
		['Basic that is not UTF-8', `Basic ${btoa('\xff\xfe:x')}`],
		['a credential that is too long', `Token ${'x'.repeat(MAX_CREDENTIAL_LENGTH + 1)}`],
	])('%s is no authorization', (_what, text) => {
		expect(parseAuthorization(text)).toBeNull();
	});

	test('whatever comes, reading does not throw, and a credential that comes out could be sent', () => {
		fc.assert(
			fc.property(fc.string({ unit: codeUnit }), (text) => {
				const found = parseAuthorization(text);
				return found === null || found.scheme === 'Basic' || isCredential(found.credential);
			}),
			{ numRuns: 1000 },
		);
	});

	test('a credential has 1 to 8192 visible ASCII characters', () => {
		expect(isCredential('')).toBe(false);
		expect(isCredential('x'.repeat(MAX_CREDENTIAL_LENGTH))).toBe(true);
		expect(isCredential('x'.repeat(MAX_CREDENTIAL_LENGTH + 1))).toBe(false);
		expect(isCredential('a b')).toBe(false);
		expect(isCredential('a\x7f')).toBe(false);
		expect(isCredential('abc\n')).toBe(false);
	});
});

describe('the query-string form', () => {
	test('carries scheme and credential in `authorization`, and survives a URL', () => {
		const carried = formatAuthorization({ scheme: 'Connection', credential: 'a+b/c=&d' });
		const query = new URLSearchParams({ [AUTHORIZATION_PARAMETER]: carried });
		const url = new URL(`https://id.example.com/ws/device?${query}`);
		expect([...url.searchParams.keys()]).toEqual(['authorization']);
		expect(parseAuthorization(url.searchParams.get(AUTHORIZATION_PARAMETER))).toEqual({
			scheme: 'Connection',
			credential: 'a+b/c=&d',
		});
	});

	test('the space may be %20 or a plus sign', () => {
		for (const text of ['authorization=Token%20abc', 'authorization=Token+abc'])
			expect(parseAuthorization(new URLSearchParams(text).get('authorization'))).toEqual({
				scheme: 'Token',
				credential: 'abc',
			});
	});

	test.each([
		['an absent parameter', ''],
		['a malformed one', 'authorization=abc'],
		['other capitals in the name', 'Authorization=Token+abc'],
	])('%s is no authorization', (_what, text) => {
		expect(parseAuthorization(new URLSearchParams(text).get('authorization'))).toBeNull();
	});
});
