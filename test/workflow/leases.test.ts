import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { MAX_LEASE_SECONDS } from '../../src/protocol/local-api.ts';
import { leaseFile } from '../../src/workflow/lease-file.edge.ts';
import {
	currentLeases,
	deferredUntil,
	heldUntil,
	holdLease,
	type Leases,
	leftOf,
	MAX_LEASES,
	NO_LEASES,
	releaseLease,
} from '../../src/workflow/leases.ts';

describe('leases', () => {
	test('one is held until it runs out, is renewed or released', () => {
		let leases = holdLease(NO_LEASES, 'kiosk', 60, 1000);
		expect(heldUntil(leases, 1000)).toBe(61_000);
		leases = holdLease(leases, 'kiosk', 60, 31_000);
		expect(leases).toEqual([{ name: 'kiosk', work: '', sinceMs: 1000, untilMs: 91_000 }]);
		expect(heldUntil(leases, 90_999)).toBe(91_000);
		expect(heldUntil(leases, 91_000)).toBeNull();
		expect(heldUntil(releaseLease(leases, 'kiosk'), 31_000)).toBeNull();
	});

	test('one of another boot of the machine counts for nothing, nor does a change that waits for it [F1862]', () => {
		const lease = (sinceMs: number) => ({ name: 'kiosk', work: '', sinceMs, untilMs: 60_000 });
		const left = leftOf({ leases: [lease(1000), lease(9000)], waiting: { workflowId: 'w', sinceMs: 9000 } }, 5000);
		expect(left).toEqual({ leases: [lease(1000)], waiting: null });
	});

	test('it can be made shorter, and released twice', () => {
		const leases = holdLease(holdLease(NO_LEASES, 'kiosk', 60, 0), 'kiosk', 5, 0);
		expect(heldUntil(leases, 0)).toBe(5000);
		const released = releaseLease(leases, 'kiosk');
		expect(releaseLease(released, 'kiosk')).toBe(released);
	});

	test('the longest of several counts, and one that ran out makes room', () => {
		let leases: Leases = NO_LEASES;
		for (let number = 0; number < MAX_LEASES; number += 1) leases = holdLease(leases, `n${number}`, 10 + number, 0);
		expect(heldUntil(leases, 0)).toBe((10 + MAX_LEASES - 1) * 1000);
		expect(() => holdLease(leases, 'one-more', 10, 0)).toThrow(/32 leases are held/);
		expect(currentLeases(holdLease(leases, 'one-more', 10, 10_000), 10_000)).toHaveLength(MAX_LEASES);
	});

	test('leases of programs on agent.sock, however many, leave each application of the file its own, also over a restart [F1176]', () => {
		let leases: Leases = NO_LEASES;
		for (let number = 0; number < MAX_LEASES; number += 1) leases = holdLease(leases, `n${number}`, 60, 0);
		for (let number = 0; number < 16 * 2 * 8; number += 1)
			leases = holdLease(leases, `app-${number % 16}:${number % 32 < 16 ? 'a' : 'b'}`, 60, 0, `work-${number}`);
		expect(leases).toHaveLength(MAX_LEASES + 16 * 2 * 8);
		expect(() => holdLease(leases, 'app-0:c', 60, 0)).toThrow('This application holds 2 leases already');
		expect(() => holdLease(leases, 'one-more', 60, 0)).toThrow('32 leases are held');
		const directory = mkdtempSync(join(tmpdir(), 'idv-leases-'));
		onTestFinished(() => rmSync(directory, { recursive: true }));
		leaseFile(directory).save({ leases, waiting: null });
		expect(leaseFile(directory).load()).toEqual({ leases, waiting: null });
	});

	test('works under one name end singly, and one that was left behind makes room for a further one', () => {
		let leases = holdLease(holdLease(NO_LEASES, 'kiosk', 60, 0, 'a'), 'kiosk', 30, 0, 'b');
		leases = releaseLease(leases, 'kiosk', 'b');
		expect(heldUntil(leases, 0)).toBe(60_000);
		for (let number = 0; number < 100; number += 1)
			leases = holdLease(leases, 'kiosk', 60, number, `crashed-${number}`);
		expect(leases.length).toBeLessThan(MAX_LEASES / 2);
		expect(leases.map(({ work }) => work)).toContain('crashed-99');
	});

	test.each([9, 10, 40])('of %i works under one name each keeps the lease until it has ended [F1769]', (count) => {
		let leases = NO_LEASES;
		for (let number = 0; number < count; number += 1) leases = holdLease(leases, 'kiosk', 60, number, `w-${number}`);
		expect(leases).toHaveLength(9);
		for (let number = 1; number < count; number += 1) leases = releaseLease(leases, 'kiosk', `w-${number}`);
		// The first is still at work, and renews its own.
		expect(heldUntil(leases, count)).toBeGreaterThan(count);
		leases = holdLease(leases, 'kiosk', 60, 50_000, 'w-0');
		expect(heldUntil(leases, 50_000)).toBe(110_000);
		expect(heldUntil(releaseLease(leases, 'kiosk', 'w-0'), 61_000)).toBeNull();
	});

	test('of a ninth work under one name leaves the first its own time, also where the shares are full [F1818]', () => {
		const nine = (before: Leases) => {
			let leases = holdLease(before, 'kiosk', 3, 0, 'w-0');
			for (let number = 1; number < 9; number += 1) {
				leases = holdLease(leases, 'kiosk', 60, 0, `w-${number}`);
				expect(leases.length).toBeLessThanOrEqual(MAX_LEASES);
			}
			for (let number = 1; number < 9; number += 1) leases = releaseLease(leases, 'kiosk', `w-${number}`);
			return leases;
		};
		expect(heldUntil(nine(NO_LEASES), 0)).toBe(3000);
		let others: Leases = NO_LEASES;
		for (let number = 8; number < MAX_LEASES; number += 1) others = holdLease(others, `n${number}`, 2, 0);
		expect(nine(others)).toHaveLength(MAX_LEASES - 8 + 1);
		let rests: Leases = NO_LEASES;
		for (let name = 0; name < MAX_LEASES; name += 1) {
			for (let number = 0; number < 9 && rests.length < MAX_LEASES; number += 1)
				rests = holdLease(rests, `n${name}`, 60, 0, `w-${number}`);
			for (let number = 0; number < 9; number += 1) rests = releaseLease(rests, `n${name}`, `w-${number}`);
		}
		expect(rests.length).toBeLessThanOrEqual(MAX_LEASES);
	});

	test.each(['', 'a b', 'a/b', 'x'.repeat(65)])('the name "%s" is refused', (name) => {
		expect(() => holdLease(NO_LEASES, name, 10, 0)).toThrow(/name of a lease/);
	});

	test.each([0, -1, Number.NaN, MAX_LEASE_SECONDS + 1, Number.POSITIVE_INFINITY])(
		'%s seconds are refused',
		(seconds) => {
			expect(() => holdLease(NO_LEASES, 'kiosk', seconds, 0)).toThrow(/1 to 3600 seconds/);
		},
	);
});

describe('how long a change waits', () => {
	test('for the lease, but no longer than the limit since it was wanted', () => {
		const leases = holdLease(NO_LEASES, 'kiosk', 600, 0);
		expect(deferredUntil(leases, 0, 900, 0)).toBe(600_000);
		expect(deferredUntil(leases, 0, 300, 0)).toBe(300_000);
		expect(deferredUntil(leases, 0, 300, 300_000)).toBeNull();
		expect(deferredUntil(leases, 0, 0, 0)).toBeNull();
		expect(deferredUntil(NO_LEASES, 0, 900, 0)).toBeNull();
	});

	test('whoever renews for ever cannot hold it up beyond the limit, and it never waits for nobody', () => {
		const step = fc.record({
			name: fc.constantFrom('a', 'b', 'c'),
			seconds: fc.integer({ min: 0, max: 100 }),
			passMs: fc.nat(50_000),
		});
		fc.assert(
			fc.property(fc.array(step, { maxLength: 30 }), fc.nat(200), (steps, maxDeferSeconds) => {
				let leases: Leases = NO_LEASES;
				let now = 0;
				for (const { name, seconds, passMs } of steps) {
					leases = seconds === 0 ? releaseLease(leases, name) : holdLease(leases, name, seconds, now);
					now += passMs;
					const until = deferredUntil(leases, 0, maxDeferSeconds, now);
					if (until === null) continue;
					expect(until).toBeGreaterThan(now);
					expect(until).toBeLessThanOrEqual(maxDeferSeconds * 1000);
					expect(heldUntil(leases, now)).toBeGreaterThanOrEqual(until);
				}
			}),
		);
	});
});
