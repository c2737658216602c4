/**
 * When deleted contents are erased in the files: together, some time after the first; and soon on a full disk, where nothing else tells the next
 * start that they were acknowledged. Pure; times are monotonic.
 */

/** At most one erasure in this time on a full disk, in milliseconds. */
const SOON_MS = 1000;

/** @param afterMs looked at each time: the longest wait after a deletion. */
export function planCleaning(afterMs: () => number) {
	let sinceMs: number | null = null;
	let soonMs = Number.POSITIVE_INFINITY;
	let isFull = false;
	const hasten = (nowMs: number) => {
		if (isFull && sinceMs !== null) soonMs = Math.min(soonMs, nowMs + SOON_MS);
	};
	return {
		get isNeeded() {
			return sinceMs !== null;
		},
		get dueMs() {
			return sinceMs === null ? Number.POSITIVE_INFINITY : Math.min(soonMs, sinceMs + afterMs());
		},
		/** Contents were deleted. */
		add(nowMs: number): void {
			sinceMs ??= nowMs;
			hasten(nowMs);
		},
		/** What could not be erased has time. */
		again(nowMs: number): void {
			sinceMs ??= nowMs;
		},
		/** The disk has room for nothing new, or has it again. */
		disk(full: boolean, nowMs: number): void {
			isFull = full;
			hasten(nowMs);
		},
		/** From here on what is deleted counts for the next one. */
		begin(): void {
			sinceMs = null;
			soonMs = Number.POSITIVE_INFINITY;
		},
	};
}
