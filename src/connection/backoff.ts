/**
 * How long to wait before the next attempt: one pure function of what has failed so far.
 * The numbers were measured with 10,000 simulated clients (docs/measurements.md, "Reconnecting"). Times in milliseconds.
 */
import type { RetryClass } from '../base/errors.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/** A channel that was open this long has proved itself: what failed before it no longer counts. */
export const STABLE_AFTER_MS = MINUTE;
/** So many refusals within {@link REFUSAL_WINDOW_MS} are a refusal; fewer may be a service that restarts. */
export const REFUSALS_TO_BLOCK = 3;
export const REFUSAL_WINDOW_MS = 10 * MINUTE;
/** A `Retry-After` beyond this is taken as this. */
export const MAX_RETRY_AFTER_MS = 10 * MINUTE;

/** What is remembered of the failures since the link was last stable. */
export interface Backoff {
	/** Failures in a row, of any kind. */
	readonly failures: number;
	/** The window for an overloaded service; 0 when it was not overloaded. */
	readonly overloadWindowMs: number;
	/** Handshakes in a row that ran into their deadline. */
	readonly timeouts: number;
	/** Monotonic times of the newest refusals, at most {@link REFUSALS_TO_BLOCK}. */
	readonly refusedAtMs: readonly number[];
}

export const NO_FAILURES: Backoff = { failures: 0, overloadWindowMs: 0, timeouts: 0, refusedAtMs: [] };

/** One failed attempt or lost channel. */
export interface FailedAttempt {
	readonly retryClass: RetryClass;
	/** Monotonic. */
	readonly atMs: number;
	/** Whether a deadline ran out, so that the next one should be longer. */
	readonly timedOut: boolean;
	/** The service said that it goes away for a moment (close codes 1001, 1012, 1013): everybody returns at once. */
	readonly serviceRestarts: boolean;
	/** The least wait the service asked for. */
	readonly retryAfterMs?: number | undefined;
}

export interface NextAttempt {
	readonly backoff: Backoff;
	readonly delayMs: number;
	/** Refused often enough that only a person can help; attempts go on slowly. */
	readonly blocked: boolean;
}

/**
 * Counts a failure and says when to try again.
 * @param chance uniform in [0, 1); jitter comes after the cap, so that no two devices agree by reaching it.
 */
export function afterFailure(before: Backoff, failed: FailedAttempt, random: () => number): NextAttempt {
	const refusedAtMs =
		failed.retryClass === 'refused'
			? [...before.refusedAtMs.filter((at) => failed.atMs - at <= REFUSAL_WINDOW_MS), failed.atMs].slice(
					-REFUSALS_TO_BLOCK,
				)
			: before.refusedAtMs;
	const backoff: Backoff = {
		failures: before.failures + 1,
		overloadWindowMs:
			failed.retryClass === 'overloaded'
				? Math.min(120 * SECOND, Math.max(30 * SECOND, 1.5 * before.overloadWindowMs))
				: 0,
		timeouts: failed.timedOut ? before.timeouts + 1 : 0,
		refusedAtMs,
	};
	const blocked =
		failed.retryClass === 'slow' || (failed.retryClass === 'refused' && refusedAtMs.length >= REFUSALS_TO_BLOCK);
	const between = (from: number, to: number) => from + (to - from) * random();
	const floorMs = Math.min(Math.max(0, failed.retryAfterMs ?? 0), MAX_RETRY_AFTER_MS);
	// A herd that was told the same `Retry-After` must not return in the same instant.
	const askedMs = floorMs > 0 ? between(floorMs, 2 * floorMs) : 0;
	return { backoff, delayMs: Math.max(askedMs, ownDelay(failed, backoff, blocked, between)), blocked };
}

function ownDelay(
	failed: FailedAttempt,
	backoff: Backoff,
	blocked: boolean,
	between: (from: number, to: number) => number,
): number {
	if (failed.retryClass === 'slow') return between(5 * MINUTE, 10 * MINUTE);
	if (blocked) return between(15 * MINUTE, 60 * MINUTE);
	if (failed.retryClass === 'overloaded') return between(backoff.overloadWindowMs / 2, backoff.overloadWindowMs);
	// Even the first return is spread: a switch that restarts takes all kiosks of a site down in the same second.
	if (backoff.failures === 1) return between(0, (failed.serviceRestarts ? 15 : 5) * SECOND);
	const windowMs = Math.min(30 * SECOND, 2 ** Math.min(backoff.failures, 10) * SECOND);
	// A service that says so again and again is not restarting: it gets the growing wait, spread as widely.
	return between(windowMs / 2, failed.serviceRestarts ? Math.max(15 * SECOND, windowMs) : windowMs);
}

/** How long a handshake may take: 15 s, then 30 s and 45 s after consecutive timeouts. */
export function handshakeDeadlineMs(backoff: Backoff): number {
	return Math.min(3, 1 + backoff.timeouts) * 15 * SECOND;
}
