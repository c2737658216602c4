/** Spans of time in words, for sentences that people read; and the earliest time that a clock can show rightly. */

/** A span of time in words, in one unit that fits; milliseconds in. */
export function plainDuration(ms: number): string {
	const seconds = Math.max(0, Math.round(ms / 1000));
	if (seconds < 120) return `${seconds} s`;
	const minutes = Math.round(seconds / 60);
	if (minutes < 120) return `${minutes} min`;
	const hours = Math.round(minutes / 60);
	return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

/** A clock that shows an earlier time was never set. */
export const EARLIEST_CLOCK_MS = Date.UTC(2025, 0, 1);
