/** How often each entrance may write to the audit log, so that no flood wears the disk. Pure; time is handed in. */

/** Entries in a row, and then one for each interval, in milliseconds. */
export const PACE = { burst: 20, intervalMs: 300_000 };
/** Paces that are remembered; there are fewer entrances than that. */
const MAX_PACES = 64;

export interface Allowance {
	readonly left: number;
	readonly atMs: number;
	/** Entries that were left out since the last one that was written. */
	readonly leftOut: number;
}

export type Paces = ReadonlyMap<string, Allowance>;

export const NO_PACES: Paces = new Map();

/** Whether an entry may be written now, and how many were left out before it. */
export function paced(paces: Paces, key: string, nowMs: number): { paces: Paces; isAllowed: boolean; leftOut: number } {
	const before = paces.get(key) ?? { left: PACE.burst, atMs: nowMs, leftOut: 0 };
	const earned = Math.floor(Math.max(0, nowMs - before.atMs) / PACE.intervalMs);
	const left = Math.min(PACE.burst, before.left + earned);
	const isAllowed = left > 0 && (paces.has(key) || paces.size < MAX_PACES);
	const atMs = left === PACE.burst ? nowMs : before.atMs + earned * PACE.intervalMs;
	const after: Allowance = isAllowed
		? { left: left - 1, atMs, leftOut: 0 }
		: { left, atMs, leftOut: before.leftOut + 1 };
	return { paces: new Map(paces).set(key, after), isAllowed, leftOut: isAllowed ? before.leftOut : 0 };
}
