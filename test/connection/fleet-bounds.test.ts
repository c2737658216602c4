/** What many devices cost a service and a site, as bounds in virtual time; tables by `npm run suite -- bench:refusals` and `bench:rate-limit`. */
import { describe, expect, test } from 'vitest';
import { CATALOGUE, type ErrorCode, failure, retryClassOf } from '../../src/base/errors.ts';
import { CAUSES } from '../recovery/causes.ts';
import { CREDENTIALS, live, PHASES } from '../recovery/lives.ts';
import {
	AWAY_SECONDS,
	badMinute,
	LIMITERS,
	quantile,
	rateLimited,
	revokedForGood,
	STORM_SECONDS,
	storm,
	surprised,
} from './virtual-fleet.ts';

const DEVICES = 10_000;

describe('a minute of wrong 401s', () => {
	test.each([
		['lost', 'good', 2000],
		['lost', 'gone', DEVICES],
		['refused', 'good', 2000],
		['refused', 'gone', 2000],
	] as const)(
		'costs at most 3 min in the median and 6 at most (channels %s, Connections %s) [F139]',
		(cut, connections, devices) => {
			const { backAt, blockedAt } = badMinute({ devices, seed: 7, cut, connections });
			expect(quantile(backAt, 0.5)).toBeLessThanOrEqual(180);
			expect(quantile(backAt, 1)).toBeLessThanOrEqual(360);
			// No device asks for a person over it.
			expect(blockedAt[0]).toBe(Number.POSITIVE_INFINITY);
		},
	);
});

test.each([true, false])('a real revocation asks for a person after at most 15 min (with a key: %s)', (hasKey) => {
	const { blockedAt } = revokedForGood({ devices: 1000, seed: 7, hasKey });
	expect(quantile(blockedAt, 1)).toBeLessThanOrEqual(15 * 60);
	expect(blockedAt[0]).toBeGreaterThanOrEqual(10 * 60);
});

test.each(['taken and not answered', 'TLS begun and not answered'])(
	'%s for 20 s to 10 min is an outage: back within 60 s of its end, 25 s in the median [F565]',
	(name) => {
		const cause = CAUSES[name];
		if (!cause) throw new Error(name);
		for (const seconds of [20, 120, 600]) {
			const backs = CREDENTIALS.flatMap((credential) =>
				PHASES.flatMap((phase) =>
					Array.from({ length: 30 }, (_, seed) => live({ cause, credential, phase, seconds, seed }).online),
				),
			).sort((one, other) => one - other);
			expect.soft(quantile(backs, 0.5)).toBeLessThanOrEqual(25);
			expect.soft(quantile(backs, 1)).toBeLessThanOrEqual(60);
		}
	},
);

/** Everything that asks for a person at once when it never worked, or for a long wait. */
const SURPRISES = (Object.keys(CATALOGUE) as ErrorCode[]).filter((code) => retryClassOf(code) === 'surprising');

describe('a service in whose place something else answers', () => {
	const given = { devices: 300, seed: 7 };

	test.each(SURPRISES.flatMap((code) => [true, false].map((hasKey) => ({ code, hasKey }))))(
		'with $code for 20 s, 2 min and 14 min is left alone for at most 60 s after its end (with a key: $hasKey) [F475]',
		({ code, hasKey }) => {
			for (const seconds of [20, 120, 14 * 60]) {
				const answer = failure(code, 'Something else.');
				const { backAt, blockedAt, peakFrom } = surprised({ ...given, hasKey, answer, seconds });
				// After twenty registrations they come every 36 s.
				expect(quantile(backAt, 0.5) - seconds).toBeLessThanOrEqual(seconds > 120 ? 25 : 20);
				expect(quantile(backAt, 1) - seconds).toBeLessThanOrEqual(60);
				expect(blockedAt[0]).toBe(Number.POSITIVE_INFINITY);
				// Not more at once than after any outage: the first return is spread over 5 s.
				expect(peakFrom(0)).toBeLessThanOrEqual(0.4 * given.devices);
			}
		},
	);

	test('that asks for a long wait is left alone for a minute at most: it may be another than the service', () => {
		const answer = failure('bad-response', 'Something else.', { retryAfterMs: 100_000 });
		const { backAt } = surprised({ ...given, hasKey: false, answer, seconds: 20 });
		expect(backAt[0]).toBeGreaterThanOrEqual(45);
		expect(quantile(backAt, 1)).toBeLessThanOrEqual(5 + 60 + 1);
	});

	test('for an hour needs a person after 15 min, and is asked every 150 to 300 s', () => {
		const answer = failure('channel-rejected', 'Something else.');
		const { backAt, blockedAt } = surprised({ ...given, hasKey: false, answer, seconds: 3000 });
		expect(blockedAt[0]).toBeGreaterThanOrEqual(15 * 60);
		expect(quantile(blockedAt, 1)).toBeLessThanOrEqual(16 * 60);
		expect(quantile(backAt, 1)).toBeLessThanOrEqual(3000 + 301);
	});
});

describe('kiosks behind one address with ten registrations a minute', () => {
	test.each(LIMITERS.flatMap((kind) => [40, 100].map((kiosks) => [kiosks, kind] as const)))(
		'%i of them all come back (%s) [F141]',
		(kiosks, kind) => {
			for (const seed of [1, 2, 3]) {
				const { backAt, blockedAt } = rateLimited(kiosks, kind, seed);
				const best = (Math.ceil(kiosks / 10) - 1) * 60;
				const most = kind.startsWith('fixed') ? 2.2 * best : 6.5 * best;
				expect(quantile(backAt, 1) - AWAY_SECONDS).toBeLessThanOrEqual(most);
				expect(blockedAt[0]).toBe(Number.POSITIVE_INFINITY);
			}
		},
	);
});

test('after an outage of 60 s 99 % of 10,000 devices are back as soon as before: 27 s, within 10 %', () => {
	const { backAt, peakFrom, handshakes } = storm(DEVICES, 7);
	expect(quantile(backAt, 0.99) - STORM_SECONDS).toBeLessThanOrEqual(27 * 1.1);
	expect(peakFrom(STORM_SECONDS)).toBeLessThanOrEqual(800);
	expect(handshakes / DEVICES).toBeLessThanOrEqual(10);
});
