import { describe, expect, test } from 'vitest';
import { apiKeyRequestSchema, apiKeySchema, KNOWN_PERMISSIONS, permissionSchema } from '../../src/protocol/api-key.ts';

const GOOD = { name: 'fleet', permissions: ['ephemeral_device:write'] };

function complaint(fields: Record<string, unknown>): string {
	const result = apiKeyRequestSchema.safeParse({ ...GOOD, ...fields });
	return result.success
		? 'accepted'
		: result.error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`).join('; ');
}

describe('the body that creates an API key', () => {
	test('without a lifetime the key does not expire, and no field says so', () => {
		expect(apiKeyRequestSchema.parse(GOOD)).toEqual(GOOD);
	});

	test('the name is trimmed, not empty and at most 128 characters', () => {
		expect(apiKeyRequestSchema.parse({ ...GOOD, name: ' fleet ' }).name).toBe('fleet');
		expect(complaint({ name: '  ' })).toBe('name must not be empty');
		expect(complaint({ name: 'x'.repeat(129) })).toBe('name must have at most 128 characters');
	});

	test('every known permission is one', () => {
		for (const permission of KNOWN_PERMISSIONS) expect(permissionSchema.safeParse(permission).success).toBe(true);
	});

	test.each(['', 'write', ':write', 'a:', 'a:b:c', 'a b:c', 'a:b\n'])('%j is no permission', (permission) => {
		expect(complaint({ permissions: [permission] })).toBe(
			'permissions.0 must have the form <resource>:<action>, such as deeplink:write',
		);
	});

	test('there is at least one permission and at most 64', () => {
		expect(complaint({ permissions: [] })).toBe('permissions must name at least one permission');
		expect(complaint({ permissions: Array(64).fill('a:b') })).toBe('accepted');
		expect(complaint({ permissions: Array(65).fill('a:b') })).toMatch(/^permissions .*64/);
	});

	test('the lifetime is whole seconds from 1 to ten years', () => {
		for (const ttl of [1, 3600, 315_360_000]) expect(complaint({ ttl })).toBe('accepted');
		expect(complaint({ ttl: 0 })).toBe('ttl must be at least 1 second');
		expect(complaint({ ttl: 315_360_001 })).toBe('ttl must be at most 315360000 seconds (ten years)');
		expect(complaint({ ttl: 1.5 })).toBe('ttl must be a whole number of seconds');
		expect(complaint({ ttl: '60' })).toBe('ttl must be a whole number of seconds');
	});
});

describe('an API key as it is returned', () => {
	const KEY = { id: 'k1', token: 'secret', name: 'fleet', permissions: ['a:b'] };

	test('has an end only if it expires', () => {
		expect(apiKeySchema.parse(KEY)).toEqual(KEY);
		expect(apiKeySchema.parse({ ...KEY, expiresAt: '2030-01-01T00:00:00Z' }).expiresAt).toBe('2030-01-01T00:00:00Z');
	});

	test.each(['id', 'token', 'name', 'permissions'])('is not one without its %s', (field) => {
		expect(apiKeySchema.safeParse({ ...KEY, [field]: undefined }).success).toBe(false);
	});
});
