import fc from 'fast-check';
import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { readTokenLife } from '../../src/protocol/token-life.ts';

const jwt = (claims: unknown) => `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.sig`;

describe('the life of a token', () => {
	test('is read from a real signed token', async () => {
		const token = await new SignJWT({ name: '東京 ??????>>>>>>' })
			.setProtectedHeader({ alg: 'HS256' })
			.setIssuedAt(1_700_000_000)
			.setExpirationTime(1_700_086_400)
			.sign(new Uint8Array(32));
		expect(readTokenLife(token)).toEqual({ issuedAtSeconds: 1_700_000_000, expiresAtSeconds: 1_700_086_400 });
	});

	test('the beginning may be missing, or be nonsense', () => {
		for (const iat of [undefined, null, '1', -1, 100, 101])
			expect(readTokenLife(jwt({ exp: 100, iat }))).toEqual({ issuedAtSeconds: null, expiresAtSeconds: 100 });
		expect(readTokenLife(jwt({ exp: 100.5, iat: 0 }))).toEqual({ issuedAtSeconds: 0, expiresAtSeconds: 100.5 });
	});

	test.each([
		['an opaque token', 'tr-0123456789abcdefghijklmnopqr'],
		['nothing', ''],
		['two parts', `e30.${btoa('{"exp":1}')}`],
		['four parts', `${jwt({ exp: 1 })}.x`],
		['no end', jwt({ iat: 1 })],
		['an end that is a text', jwt({ exp: '100' })],
		['an end before 1970', jwt({ exp: -1 })],
		['an end beyond all numbers', `e30.${btoa('{"exp":1e999}')}.s`],
		['claims that are null', jwt(null)],
		['claims that are a list', jwt([1])],
		['claims that are not JSON', `e30.${btoa('exp=1')}.s`],
		['claims that are not base64', 'e30.***.s'],
	])('%s says nothing', (_what, token) => {
		expect(readTokenLife(token)).toBeNull();
	});

	test('whatever comes, it does not throw', () => {
		fc.assert(
			fc.property(fc.array(fc.string(), { maxLength: 4 }), (parts) => {
				const life = readTokenLife(parts.join('.'));
				return life === null || Number.isFinite(life.expiresAtSeconds);
			}),
			{ numRuns: 1000 },
		);
	});
});
