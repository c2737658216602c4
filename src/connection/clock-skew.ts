/** How far this device's clock is off, by the `Date` of the service, and the time that is believed. Pure. */
import { EARLIEST_CLOCK_MS, plainDuration } from '../base/durations.ts';
import { type Failure, failure } from '../base/errors.ts';

/** A clock further off than this makes tokens and certificates fail; in milliseconds. */
export const WRONG_CLOCK_MS = 5 * 60_000;

/** How far this device's clock is ahead, in milliseconds, to the second at best; `null` without a usable header. */
export function clockSkewMs(dateHeader: string | undefined, nowMs: number): number | null {
	const serviceMs = readServiceMs(dateHeader);
	return serviceMs === undefined ? null : nowMs - serviceMs;
}

/** A `Date` header in milliseconds since 1970; `undefined` without a usable one. */
export function readServiceMs(dateHeader: string | undefined): number | undefined {
	const serviceMs = readHttpDate(dateHeader);
	// A service that says less has the wrong clock itself.
	return serviceMs >= EARLIEST_CLOCK_MS ? serviceMs : undefined;
}

export function readHttpDate(text: string | undefined): number {
	// Without a letter it is not an HTTP date, whatever else `Date.parse` makes of it.
	return text !== undefined && /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
}

/** A clock that was set is not further behind than this, in milliseconds: a service that says so has the wrong clock itself. */
const MOST_BEHIND_MS = 366 * 24 * 60 * 60_000;
/** Nor further ahead of a service that tells the time now: hours may be a time zone on either side. */
const MOST_AHEAD_MS = 24 * 60 * 60_000;

/**
 * The time to judge plans by: what the device's clock shows, but no earlier than the newest time that the service has told, nor a day
 * ahead of it. Where the service is more than a year ahead of a clock that was set, or its own was not, it is not believed.
 * @param isOfThisRun whether it has told it since the agent started: how long ago it did so before is not known.
 */
export function believedMs(wallMs: number, serviceMs: number | null, isOfThisRun: boolean): number {
	if (serviceMs === null) return wallMs;
	const isFast = isOfThisRun && serviceMs >= EARLIEST_CLOCK_MS && wallMs - serviceMs > MOST_AHEAD_MS;
	const isBehind = serviceMs > wallMs && (wallMs < EARLIEST_CLOCK_MS || serviceMs - wallMs <= MOST_BEHIND_MS);
	return isFast || isBehind ? serviceMs : wallMs;
}

/** Of a clock that was so far ahead of the service when that told the time last: what has to be taken off it. */
export const farAheadMs = (aheadMs: number) => (aheadMs > MOST_AHEAD_MS ? aheadMs : 0);

/** How far that time is ahead on a device whose clock is `aheadMs` ahead, while it reaches the service. */
export const believedAheadMs = (aheadMs: number) => (aheadMs > 0 && aheadMs <= MOST_AHEAD_MS ? aheadMs : 0);

/** Whether a time that was written down cannot be right: before any clock was set, or still to come. */
export function isImpossible(atMs: number, nowMs: number): boolean {
	return atMs < EARLIEST_CLOCK_MS || atMs > nowMs + WRONG_CLOCK_MS;
}

/** @param skewMs how far the device's clock is ahead of the service's; negative when slow. */
export function clockWarning(skewMs: number): Failure | null {
	const off = Math.abs(skewMs);
	if (off < WRONG_CLOCK_MS) return null;
	const direction = skewMs > 0 ? 'fast' : 'slow';
	return failure('clock-wrong', `This device's clock is ${plainDuration(off)} ${direction}.`, {
		// A warning beside a link that works: nothing is tried again.
		recovers: false,
		params: { seconds: Math.round(off / 1000), direction },
	});
}
