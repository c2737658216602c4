/**
 * How far this device's clock is off, by the `Date` header of the service, and the warning about it. Pure; who looks and when is
 * `link.runner.ts`.
 */
import { plainDuration } from '../base/durations.ts';
import { type Failure, failure } from '../base/errors.ts';

/** A clock further off than this makes tokens and certificates fail; in milliseconds. */
export const WRONG_CLOCK_MS = 5 * 60_000;

/**
 * How far this device's clock is ahead of the service's, in milliseconds; negative when it is slow. To the second at
 * best, as the `Date` header is. `null` without a usable header.
 */
export function clockSkewMs(dateHeader: string | undefined, nowMs: number): number | null {
	const serviceMs = readHttpDate(dateHeader);
	return Number.isNaN(serviceMs) ? null : nowMs - serviceMs;
}

export function readHttpDate(text: string | undefined): number {
	// Without a letter it is not an HTTP date, whatever else `Date.parse` makes of it.
	return text !== undefined && /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
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
