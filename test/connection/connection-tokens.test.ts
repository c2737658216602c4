import { describe, expect, test } from 'vitest';
import { freshConnection, knownConnection, provisionedSince } from '../../src/connection/connection-tokens.runner.ts';
import { readTokenLife } from '../../src/protocol/token-life.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

/** The settings say nothing of how long a Connection lives. */
const UNSTATED = { connectionLifeSeconds: null };
const NOW = Date.UTC(2030, 0, 1);
const clock = createSteppedClock(NOW);

function token(claims: object): string {
	return `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.sig`;
}

function known(
	claims: object | null,
	obtainedAtMs: number,
	stated = UNSTATED as Parameters<typeof knownConnection>[2],
) {
	const saved = {
		baseUrl: 'https://id.example',
		request: { deviceId: 'a', workflowId: 'b' },
		credentialId: '',
		token: claims ? token(claims) : 'opaque',
		obtainedAt: new Date(obtainedAtMs).toISOString(),
	};
	const { lifeMs, obtainedAtMs: atMs } = knownConnection(saved, clock, stated).connection;
	return { lifeMs, ageMs: clock.monotonicMs() - atMs };
}

const seconds = NOW / 1000;

describe('the life of a Connection', () => {
	test('is what its token says', () => {
		const claims = { iat: seconds - 5, exp: seconds + 95 };
		const issued = { token: token(claims), life: readTokenLife(token(claims)) };
		expect(freshConnection(issued, clock, UNSTATED)).toEqual({
			token: issued.token,
			obtainedAtMs: clock.monotonicMs(),
			lifeMs: 100_000,
		});
		expect(known(claims, NOW - 5000)).toEqual({ lifeMs: 100_000, ageMs: 5000 });
	});

	test('is reckoned from when it was obtained where the token has no iat, also after a restart', () => {
		const claims = { exp: seconds + 70 };
		expect(freshConnection({ token: '', life: readTokenLife(token(claims)) }, clock, UNSTATED).lifeMs).toBe(70_000);
		expect(known(claims, NOW - 30_000)).toEqual({ lifeMs: 100_000, ageMs: 30_000 });
	});

	test('is not known for any other token', () => {
		expect(freshConnection({ token: 'opaque', life: null }, clock, UNSTATED).lifeMs).toBeNull();
		expect(known({ sub: 'x' }, NOW)).toEqual({ lifeMs: null, ageMs: 0 });
	});

	test('is what the settings state for a token that does not say it, and for no other', () => {
		const stated = { connectionLifeSeconds: 600 };
		expect(freshConnection({ token: 'opaque', life: null }, clock, stated).lifeMs).toBe(600_000);
		expect(known(null, NOW - 90_000, stated)).toEqual({ lifeMs: 600_000, ageMs: 90_000 });
		expect(known({ iat: seconds - 5, exp: seconds + 95 }, NOW, stated).lifeMs).toBe(100_000);
	});

	test('is not known when the clock says that it ended before it began', () => {
		expect(
			freshConnection({ token: '', life: { issuedAtSeconds: null, expiresAtSeconds: seconds - 1 } }, clock, UNSTATED),
		).toMatchObject({ lifeMs: null });
		expect(known({ exp: seconds - 200 }, NOW - 100_000).lifeMs).toBeNull();
	});

	test('is over, not longer than over, when the clock has jumped ahead; new when it has jumped back', () => {
		const claims = { iat: seconds - 10_000, exp: seconds - 9_900 };
		expect(known(claims, NOW - 10_000_000)).toEqual({ lifeMs: 100_000, ageMs: 100_000 });
		expect(known({ iat: seconds + 500, exp: seconds + 600 }, NOW + 500_000)).toEqual({ lifeMs: 100_000, ageMs: 0 });
	});
});

test('an operator made a Connection when its token says so, unless that is in the future', () => {
	const since = (claims: object) => provisionedSince(token(claims), NOW, UNSTATED);
	expect(since({ iat: seconds - 60, exp: seconds + 60 })).toBe(new Date(NOW - 60_000).toISOString());
	expect(since({ iat: seconds + 60, exp: seconds + 120 })).toBe(new Date(NOW).toISOString());
	expect(since({ exp: seconds + 60 })).toBe(new Date(NOW).toISOString());
	expect(provisionedSince('opaque', NOW, UNSTATED)).toBe(new Date(NOW).toISOString());
});

test("an operator's Connection whose life only the settings say is renewed as soon as the device is online: it may be old [F1643]", () => {
	const stated = { connectionLifeSeconds: 400 };
	const obtainedAtMs = Date.parse(provisionedSince('opaque', NOW, stated));
	expect(known(null, obtainedAtMs, stated)).toEqual({ lifeMs: 400_000, ageMs: 340_000 });
	expect(Date.parse(provisionedSince(token({ iat: seconds - 5, exp: seconds + 95 }), NOW, stated))).toBe(NOW - 5000);
});
