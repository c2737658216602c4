import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { RetryClass } from '../../src/base/errors.ts';
import {
	afterFailure,
	type Backoff,
	type FailedAttempt,
	handshakeDeadlineMs,
	MAX_RETRY_AFTER_MS,
	type NextAttempt,
	NO_FAILURES,
	REFUSAL_WINDOW_MS,
	REFUSALS_TO_BLOCK,
	STABLE_AFTER_MS,
} from '../../src/connection/backoff.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
/** The ends of what `chance` gives: 0 and just under 1. */
const LEAST = () => 0;
const MOST = () => 1 - Number.EPSILON;

const failed = (retryClass: RetryClass, more: Partial<FailedAttempt> = {}): FailedAttempt => ({
	retryClass,
	atMs: 0,
	timedOut: false,
	serviceRestarts: false,
	...more,
});

/** What comes after these failures, one after the other. */
function following(failures: readonly FailedAttempt[], random: () => number): NextAttempt {
	let next: NextAttempt = { backoff: NO_FAILURES, delayMs: 0, blocked: false };
	for (const failure of failures) next = afterFailure(next.backoff, failure, random);
	return next;
}

/** The shortest and the longest delay after these failures, in seconds. */
function range(...failures: FailedAttempt[]): [number, number] {
	return [following(failures, LEAST).delayMs / SECOND, Math.round(following(failures, MOST).delayMs) / SECOND];
}

const times = (count: number, failure: FailedAttempt) => Array<FailedAttempt>(count).fill(failure);

describe('when the service is not reached', () => {
	const unreachable = failed('unreachable');

	test('even the first attempt is spread, over 5 s', () => {
		expect(range(unreachable)).toEqual([0, 5]);
	});

	test.each([
		[2, 2, 4],
		[3, 4, 8],
		[4, 8, 16],
		[5, 15, 30],
		[6, 15, 30],
		[2000, 15, 30],
	])('attempt %i comes after %i to %i s', (count, from, to) => {
		expect(range(...times(count, unreachable))).toEqual([from, to]);
	});

	test('a service that restarts gets everybody back within 15 s, not at once', () => {
		expect(range(failed('unreachable', { serviceRestarts: true }))).toEqual([0, 15]);
	});

	test.each([
		[2, 2, 15],
		[5, 15, 30],
	])('a service that says so %i times is waited for as well, %i to %i s', (count, from, to) => {
		expect(range(...times(count, failed('unreachable', { serviceRestarts: true })))).toEqual([from, to]);
	});
});

describe('when the service is overloaded', () => {
	test.each([
		[1, 30],
		[2, 45],
		[3, 67.5],
		[4, 101.25],
		[5, 120],
		[50, 120],
	])('failure %i opens a window of %d s, and the delay is its second half', (count, window) => {
		expect(range(...times(count, failed('overloaded')))).toEqual([window / 2, window]);
	});

	test('another kind of failure in between closes the window', () => {
		expect(range(...times(4, failed('overloaded')), failed('unreachable'), failed('overloaded'))).toEqual([15, 30]);
	});
});

describe('when the service names a wait', () => {
	const asked = (retryAfterMs: number, retryClass: RetryClass = 'unreachable') => failed(retryClass, { retryAfterMs });

	test('it is the least, and the herd is spread over as much again', () => {
		expect(range(asked(40 * SECOND))).toEqual([40, 80]);
		expect(range(asked(300 * SECOND, 'overloaded'))).toEqual([300, 600]);
	});

	test('it is taken as ten minutes when it is longer', () => {
		expect(range(asked(24 * 60 * MINUTE))).toEqual([600, 1200]);
		expect(range(asked(Number.POSITIVE_INFINITY))).toEqual([600, 1200]);
	});

	test('a shorter one than our own does not shorten it', () => {
		expect(range(asked(1, 'overloaded'))).toEqual([15, 30]);
		expect(range(asked(1, 'slow'))).toEqual([300, 600]);
	});

	test.each([0, -5000, Number.NaN, undefined])('%s is none', (retryAfterMs) => {
		expect(range(failed('overloaded', { retryAfterMs }))).toEqual([15, 30]);
	});
});

describe('when the credential is refused', () => {
	const refused = (atMs: number) => failed('refused', { atMs });

	test('three refusals within ten minutes block, and attempts go on every 15 to 60 min', () => {
		const three = [refused(0), refused(5 * MINUTE), refused(10 * MINUTE)];
		expect(following(three, LEAST).blocked).toBe(true);
		expect(range(...three)).toEqual([15 * 60, 60 * 60]);
	});

	test('two do not, and are tried again as soon as any failure', () => {
		const two = [refused(0), refused(1)];
		expect(following(two, LEAST).blocked).toBe(false);
		expect(range(refused(0))).toEqual([0, 5]);
		expect(range(...two)).toEqual([2, 4]);
	});

	test('three that are further apart do not', () => {
		expect(following([refused(0), refused(5 * MINUTE), refused(10 * MINUTE + 1)], LEAST).blocked).toBe(false);
	});

	test('it stays blocked at the slow pace only while the refusals are that close', () => {
		const blocked = [refused(0), refused(1), refused(2)];
		expect(following([...blocked, refused(9 * MINUTE)], LEAST).blocked).toBe(true);
		expect(following([...blocked, refused(15 * MINUTE)], LEAST).blocked).toBe(false);
	});

	test('other failures in between neither count nor wipe the count', () => {
		const lost = failed('unreachable', { atMs: 2 });
		expect(following([refused(0), lost, lost, refused(3)], LEAST).blocked).toBe(false);
		expect(following([refused(0), lost, refused(3), lost, refused(4)], LEAST).blocked).toBe(true);
	});

	test('no more refusals are remembered than decide', () => {
		const many = Array.from({ length: 50 }, (_, index) => refused(index));
		expect(following(many, LEAST).backoff.refusedAtMs).toEqual([47, 48, 49]);
		expect(REFUSALS_TO_BLOCK).toBe(3);
		expect(REFUSAL_WINDOW_MS).toBe(10 * MINUTE);
	});
});

test('what only a person can change is tried again after five minutes or more', () => {
	expect(following([failed('slow')], LEAST).blocked).toBe(true);
	expect(range(failed('slow'))).toEqual([300, 600]);
	expect(range(...times(20, failed('slow')))).toEqual([300, 600]);
});

describe('the deadline of a handshake', () => {
	const timeout = failed('overloaded', { timedOut: true });

	test.each([
		[0, 15],
		[1, 30],
		[2, 45],
		[3, 45],
		[30, 45],
	])('after %i timeouts in a row is %i s', (count, seconds) => {
		expect(handshakeDeadlineMs(following(times(count, timeout), LEAST).backoff)).toBe(seconds * SECOND);
	});

	test('is short again after a failure of another kind', () => {
		const { backoff } = following([timeout, timeout, failed('unreachable')], LEAST);
		expect(handshakeDeadlineMs(backoff)).toBe(15 * SECOND);
	});
});

test('a link is stable after a minute, and then nothing is remembered', () => {
	expect(STABLE_AFTER_MS).toBe(MINUTE);
	expect(NO_FAILURES).toEqual({ failures: 0, overloadWindowMs: 0, timeouts: 0, refusedAtMs: [] });
});

const anyFailure = fc.record({
	retryClass: fc.constantFrom<RetryClass>('unreachable', 'overloaded', 'refused', 'slow'),
	atMs: fc.nat({ max: 60 * MINUTE }),
	timedOut: fc.boolean(),
	serviceRestarts: fc.boolean(),
	retryAfterMs: fc.oneof(
		fc.constantFrom(undefined, 0, -SECOND, Number.NaN, Number.POSITIVE_INFINITY),
		fc.integer({ min: 1, max: 7200 }).map((seconds) => seconds * SECOND),
	),
});
const anyChance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('whatever fails, in any order', () => {
	const history = fc.array(anyFailure, { minLength: 1, maxLength: 30 });

	test('the delay is a finite time, within an hour, and not before the time that was asked for', () => {
		fc.assert(
			fc.property(history, anyChance, (failures, random) => {
				const { delayMs } = following(failures, () => random);
				const asked = failures.at(-1)?.retryAfterMs ?? 0;
				const least = Math.min(Number.isNaN(asked) ? 0 : asked, MAX_RETRY_AFTER_MS);
				return Number.isFinite(delayMs) && delayMs >= Math.max(0, least) && delayMs <= 60 * MINUTE;
			}),
			{ numRuns: 2000 },
		);
	});

	test('two devices that fail alike do not come back together, even at the cap', () => {
		fc.assert(
			fc.property(history, anyChance, anyChance, (failures, one, other) => {
				fc.pre(Math.abs(one - other) > 0.01);
				const [first, second] = [one, other].map((random) => following(failures, () => random).delayMs);
				// 1 % of the narrowest spread: one second, after a `Retry-After` of one.
				return Math.abs((first ?? 0) - (second ?? 0)) > 9.9;
			}),
			{ numRuns: 2000 },
		);
	});

	test('after the first failure nobody comes back at once, whatever chance says', () => {
		fc.assert(
			fc.property(history, anyFailure, (failures, last) => {
				return following([...failures, last], LEAST).delayMs >= 2 * SECOND;
			}),
			{ numRuns: 2000 },
		);
	});

	test('what is remembered stays small, and nothing that was handed in is changed', () => {
		fc.assert(
			fc.property(history, anyFailure, (failures, last) => {
				const before: Backoff = following(failures, LEAST).backoff;
				const copy = structuredClone(before);
				const { backoff } = afterFailure(before, last, LEAST);
				expect(before).toEqual(copy);
				expect(backoff.refusedAtMs.length).toBeLessThanOrEqual(REFUSALS_TO_BLOCK);
				expect(backoff.overloadWindowMs).toBeLessThanOrEqual(120 * SECOND);
				expect(backoff.failures).toBe(failures.length + 1);
			}),
		);
	});
});
