/** What many devices cost a service and a site, as bounds in virtual time; tables by `npm run bench:refusals`, `bench:rate-limit`. */
import { describe, expect, test } from 'vitest';
import {
	AWAY_SECONDS,
	badMinute,
	LIMITERS,
	quantile,
	rateLimited,
	revokedForGood,
	STORM_SECONDS,
	storm,
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
