import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { RetryClass } from '../../src/base/errors.ts';
import {
	afterFailure,
	type Backoff,
	type FailedAttempt,
	handshakeDeadlineMs,
	MAX_OVERLOAD_WINDOW_MS,
	MAX_RETRY_AFTER_MS,
	type NextAttempt,
	NO_FAILURES,
	OUTAGE_MS,
	PATIENCE_MS,
	REFUSAL_COUNTS_MS,
	STABLE_AFTER_MS,
} from '../../src/connection/backoff.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
/** The ends of what `random` gives: 0 and just under 1. */
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
	let next: NextAttempt = { backoff: NO_FAILURES, delayMs: 0, blocked: false, outweighed: null };
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

	test('a service that restarts gets all devices back within 15 s, not at once', () => {
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
	const hourly = (count: number) =>
		Array.from({ length: count }, (_, hour) => failed('overloaded', { atMs: hour * 60 * MINUTE }));

	test('tries that a person asks for meanwhile do not open it further [F1571]', () => {
		const pressed = Array.from({ length: 10 }, (_, press) => failed('overloaded', { atMs: press * SECOND }));
		expect(range(...pressed)).toEqual([15, 30]);
		expect(range(...pressed, failed('overloaded', { atMs: 40 * SECOND }))).toEqual([22.5, 45]);
	});

	test.each([
		[1, 30],
		[2, 45],
		[3, 67.5],
		[4, 101.25],
		[5, 151.875],
		[10, 1153.301],
		[12, 1800],
		[50, 1800],
	])('failure %i opens a window of %d s, and the delay is its second half', (count, window) => {
		const [from, to] = range(...hourly(count));
		expect(from).toBeCloseTo(window / 2, 2);
		expect(to).toBeCloseTo(window, 2);
	});

	test('another kind of failure in between closes the window', () => {
		expect(range(...hourly(4), failed('unreachable'), failed('overloaded'))).toEqual([15, 30]);
	});
});

describe('when the service names a wait', () => {
	const asked = (retryAfterMs: number, retryClass: RetryClass = 'overloaded') => failed(retryClass, { retryAfterMs });

	test('it is the least, and the herd is spread over as much again', () => {
		expect(range(asked(40 * SECOND))).toEqual([40, 80]);
		expect(range(asked(300 * SECOND))).toEqual([300, 600]);
	});

	test.each<RetryClass>(['unreachable', 'refused', 'occupied'])(
		'it counts for up to 45 s where it comes with an answer that is no overload: %s [F1495]',
		(retryClass) => {
			expect(range(asked(40 * SECOND, retryClass))).toEqual([40, 60]);
			expect(range(asked(60 * MINUTE, retryClass))).toEqual([45, 60]);
		},
	);

	test('it is taken as ten minutes when it is longer', () => {
		expect(range(asked(24 * 60 * MINUTE))).toEqual([600, 1200]);
		expect(range(asked(Number.POSITIVE_INFINITY))).toEqual([600, 1200]);
	});

	test('a shorter one than our own does not shorten it', () => {
		expect(range(asked(1))).toEqual([15, 30]);
		expect(range(asked(1, 'slow'))).toEqual([300, 600]);
	});

	test.each([0, -5000, Number.NaN, undefined])('%s is none', (retryAfterMs) => {
		expect(range(failed('overloaded', { retryAfterMs }))).toEqual([15, 30]);
	});
});

describe('when the credential is refused', () => {
	const refused = (minutes: number, more: Partial<FailedAttempt> = {}) =>
		failed('refused', { atMs: minutes * MINUTE, ...more });
	const everyMinute = (minutes: number, more: Partial<FailedAttempt> = {}) =>
		Array.from({ length: minutes + 1 }, (_, minute) => refused(minute, more));

	test('the first time it is tried again as soon as after any failure', () => {
		expect(range(refused(0))).toEqual([0, 5]);
		expect(range(failed('unreachable'), refused(0))).toEqual([2, 4]);
	});

	test('for up to ten minutes it is tried again every 30 to 120 s, however often', () => {
		expect(range(refused(0), refused(0.05))).toEqual([30, 60]);
		expect(range(refused(0), refused(1), refused(1.5))).toEqual([45, 90]);
		expect(range(...everyMinute(9))).toEqual([60, 120]);
		expect(following(everyMinute(9), LEAST).blocked).toBe(false);
	});

	test('between other answers a device that was online lately waits as for those, and after two in a row 30 to 60 s, for ten minutes [F1544]', () => {
		const wasOnline = { wasOnline: true };
		const among: FailedAttempt[] = [];
		for (let minute = 0; minute < 10; minute += 1) {
			const [first, second, third] = [0, 20, 40].map((seconds) => ({
				atMs: minute * MINUTE + seconds * SECOND,
				...wasOnline,
			}));
			among.push(failed('unreachable', first), failed('refused', second));
			expect(range(...among)[1]).toBeLessThanOrEqual(30);
			among.push(failed('refused', third));
			expect(range(...among)).toEqual([30, 60]);
		}
	});

	test('for ten minutes it needs a person, and goes on at waits that grow to an hour', () => {
		expect(PATIENCE_MS.usual).toBe(10 * MINUTE);
		expect(following(everyMinute(10), LEAST).blocked).toBe(true);
		expect(range(...everyMinute(10))).toEqual([5 * 60, 10 * 60]);
		expect(range(...everyMinute(30))).toEqual([15 * 60, 30 * 60]);
		expect(range(...everyMinute(200))).toEqual([30 * 60, 60 * 60]);
	});

	test('a device that was online lately is patient for longer, and is never away for more than half an hour', () => {
		const wasOnline = { wasOnline: true };
		expect(PATIENCE_MS.wasOnline).toBeGreaterThan(PATIENCE_MS.usual);
		expect(following(everyMinute(11, wasOnline), LEAST).blocked).toBe(false);
		expect(following(everyMinute(12, wasOnline), LEAST).blocked).toBe(true);
		expect(range(...everyMinute(200, wasOnline))).toEqual([15 * 60, 30 * 60]);
	});

	test('time in which the service may have been away counts for little', () => {
		expect(REFUSAL_COUNTS_MS).toBe(5 * MINUTE);
		expect(following([refused(0), refused(600)], LEAST).blocked).toBe(false);
		expect(following([refused(0), refused(600), refused(605)], LEAST).blocked).toBe(true);
		// A clock that goes back takes nothing away.
		expect(following([refused(5), refused(0)], LEAST).backoff.refusedForMs).toBe(0);
	});

	test('other failures in between neither count nor wipe what has lasted', () => {
		const lost = failed('unreachable', { atMs: 5 * MINUTE });
		expect(following([...everyMinute(5), lost, ...everyMinute(10).slice(6)], LEAST).blocked).toBe(true);
		expect(following([...everyMinute(5), lost, ...everyMinute(9).slice(6)], LEAST).blocked).toBe(false);
	});
});

test('what only a person can change is tried again after five minutes or more', () => {
	expect(following([failed('slow')], LEAST).blocked).toBe(true);
	expect(range(failed('slow'))).toEqual([300, 600]);
	expect(range(...times(20, failed('slow', { wasOnline: true })))).toEqual([300, 600]);
});

test('a request that the service has never taken is tried again after as long as it has failed for [F1556]', () => {
	const first = failed('surprising');
	const after = (seconds: number) => failed('surprising', { atMs: seconds * SECOND });
	expect(following([first], LEAST).blocked).toBe(true);
	expect(range(first)).toEqual([15, 30]);
	expect(range(first, after(30))).toEqual([15, 30]);
	expect(range(first, after(30), after(60))).toEqual([30, 60]);
	expect(range(first, after(240))).toEqual([120, 240]);
	expect(range(first, after(86_400))).toEqual([300, 600]);
});

describe('what only a person could change, of a device that was online lately,', () => {
	const surprising = (minutes: number, more: Partial<FailedAttempt> = {}) =>
		failed('surprising', { atMs: minutes * MINUTE, wasOnline: true, ...more });

	test('is an outage: it is tried again every 5 to 30 s and asks for no one', () => {
		expect(following([surprising(0)], LEAST)).toMatchObject({ blocked: false, outweighed: 'surprise' });
		expect(range(surprising(0))).toEqual([5, 10]);
		expect(range(...times(4, surprising(1)))).toEqual([8, 16]);
		expect(range(...times(50, surprising(14.9)))).toEqual([15, 30]);
	});

	test('is meant when it has lasted for 15 min, whatever else failed in between', () => {
		expect(OUTAGE_MS).toBe(15 * MINUTE);
		const mixed = [surprising(0), failed('unreachable', { atMs: 5 * MINUTE }), failed('overloaded'), surprising(15)];
		expect(following(mixed, LEAST)).toMatchObject({ blocked: true, outweighed: null });
		expect(range(...mixed)).toEqual([150, 300]);
	});

	test('waits as long as it was asked to', () => {
		expect(range(surprising(0, { retryAfterMs: 40 * SECOND }))).toEqual([40, 60]);
		expect(range(surprising(0, { retryAfterMs: 3600 * SECOND }))).toEqual([45, 60]);
		expect(range(failed('occupied', { retryAfterMs: 3600 * SECOND }))).toEqual([45, 60]);
	});
});

describe('the deadline of a handshake', () => {
	const timeout = failed('unreachable', { timedOut: true });

	test.each([
		[0, 15],
		[1, 25],
		[30, 25],
	])('after %i timeouts in a row is %i s', (count, seconds) => {
		expect(handshakeDeadlineMs(following(times(count, timeout), LEAST).backoff)).toBe(seconds * SECOND);
	});

	test('stays long until a channel is stable, whatever a slow service answers meanwhile [F1405]', () => {
		const { backoff } = following([timeout, failed('unreachable'), failed('refused')], LEAST);
		expect(handshakeDeadlineMs(backoff)).toBe(25 * SECOND);
	});
});

test('a link is stable after a minute, and then nothing is remembered', () => {
	expect(STABLE_AFTER_MS).toBe(MINUTE);
	expect(NO_FAILURES).toEqual({
		failures: 0,
		overloadWindowMs: 0,
		overloadedAtMs: null,
		timedOut: false,
		refusedForMs: 0,
		refusedAtMs: null,
		rowMs: null,
		surprisedAtMs: null,
		registerRefused: false,
		inTurn: false,
		refusedShows: 0,
		hasOpened: false,
		registeredAtMs: null,
		hasCounted: false,
		isOther: false,
		earlyEnds: null,
	});
});

const anyFailure = fc.record({
	retryClass: fc.constantFrom<RetryClass>('unreachable', 'overloaded', 'refused', 'surprising', 'slow'),
	atMs: fc.nat({ max: 60 * MINUTE }),
	timedOut: fc.boolean(),
	serviceRestarts: fc.boolean(),
	wasOnline: fc.boolean(),
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
				const { delayMs, outweighed } = following(failures, () => random);
				const asked = failures.at(-1)?.retryAfterMs ?? 0;
				const most = failures.at(-1)?.retryClass === 'overloaded' ? MAX_RETRY_AFTER_MS : 45 * SECOND;
				const least = Math.min(Number.isNaN(asked) ? 0 : asked, most);
				if (outweighed === 'surprise' && delayMs > MINUTE) return false;
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

	test('after the first failure no device comes back at once, whatever chance says', () => {
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
				expect(backoff.refusedForMs).toBeLessThanOrEqual(before.refusedForMs + REFUSAL_COUNTS_MS);
				expect(backoff.overloadWindowMs).toBeLessThanOrEqual(MAX_OVERLOAD_WINDOW_MS);
				expect(backoff.failures).toBe(failures.length + 1);
			}),
		);
	});
});
