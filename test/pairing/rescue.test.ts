import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { sentenceOf } from '../../src/base/sentences.ts';
import { knownWorth, othersInDoubt } from '../../src/pairing/known-worth.ts';
import { differingIssuer, isRefusal, REFUSALS_TO_RESCUE, sameCode, standingOf } from '../../src/pairing/rescue.ts';

const token = (claims: object) => `h.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.s`;

describe('the issuer of two Connections', () => {
	test('differs where both name one and it is not the same', () => {
		expect(differingIssuer(token({ iss: 'a', tenant: 't' }), token({ iss: 'a', tenant: 'u' }))).toBe('tenant');
		expect(differingIssuer(token({ iss: 'a' }), token({ iss: 'b' }))).toBe('iss');
		expect(differingIssuer(token({ tid: 7 }), token({ tid: 8 }))).toBe('tid');
	});

	test('does not differ where one of them does not say', () => {
		expect(differingIssuer(token({ iss: 'a', tenant: 't' }), token({ iss: 'a' }))).toBeNull();
		for (const opaque of ['', 'opaque', 'a.b.c', 'a.bnVsbA.c'])
			expect([differingIssuer(opaque, token({ iss: 'a' })), differingIssuer(token({ iss: 'a' }), opaque)]).toEqual([
				null,
				null,
			]);
	});
});

test('a code that has paired a device with a fault at its channel says what to do about that once [F1677]', () => {
	const problem = failure('channel-not-found', 'id.example.com answered 404.');
	const sentence = `Not online: ${sentenceOf(problem, 'ongoing')}`;
	expect(sentenceOf(sameCode({ state: 'blocked', problem, sentence }), 'over')).toBe(
		`This device is paired with this code already, and nothing was sent. It is not online: ${problem.message} No other code is needed. ${problem.remedy}`,
	);
});

test('a device waits for a first code, for one of its own service after a refusal, from its scanner after three, or for none', () => {
	const status = (state: 'unpaired' | 'online' | 'offline' | 'blocked' | 'connecting', paired = true) => ({
		state,
		problem: null,
		pairedAt: paired ? '2026-03-01T10:00:00Z' : null,
	});
	expect(standingOf(status('unpaired', false), 0)).toBe('first');
	for (const state of ['offline', 'connecting', 'blocked'] as const) {
		expect(standingOf(status(state), 0)).toBe('paired');
		for (const refusals of [1, REFUSALS_TO_RESCUE - 1]) expect(standingOf(status(state), refusals)).toBe('refusedOnce');
		expect(standingOf(status(state), REFUSALS_TO_RESCUE)).toBe('refused');
	}
	expect(standingOf(status('online'), REFUSALS_TO_RESCUE)).toBe('paired');
	const copied = failure('identity-changed', 'Another machine.');
	expect(standingOf({ ...status('blocked'), problem: copied }, REFUSALS_TO_RESCUE)).toBe('copy');
	expect(REFUSALS_TO_RESCUE).toBe(3);
});

test('what the service refuses is a refusal; a line, a clock, a portal or a full service is not', () => {
	expect((['credential-refused', 'connection-revoked', 'access-forbidden'] as const).map(isRefusal)).toEqual([
		true,
		true,
		true,
	]);
	expect(
		(
			['dns-failed', 'clock-wrong', 'captive-portal', 'service-failed', 'service-overloaded', 'proxy-refused'] as const
		).map(isRefusal),
	).toEqual(Array(6).fill(false));
});

test('of many codes in doubt the newest are remembered', () => {
	const attempt = { attemptId: 'a', tokenHash: 'code 0', host: 'id.example', at: '2030-01-01T00:00:00.000Z' };
	let doubted: string[] = [];
	for (let number = 1; number <= 20; number += 1)
		doubted = othersInDoubt({ ...attempt, tokenHash: `c${number}`, doubted }, 'another', attempt.host);
	const worthOf = (hash: string) => knownWorth({ ...attempt, doubted }, hash, 'https://id.example');
	expect(['c1', 'c4', 'c5', 'c20'].map(worthOf)).toEqual([null, null, 'uncertain', 'uncertain']);
});
