/** How often a kind of request may write to the audit log, or changes to the history, so that no flood wears the disk. Pure; time is handed in. */

/** Entries in a row, and then one for each interval, in milliseconds. */
export const PACE = { burst: 20, intervalMs: 300_000 };
/** Paces that are remembered; there are fewer operations at all entrances than that. */
const MAX_PACES = 256;
/** Up to here each repetition is noted on the disk, then each time that there are an eighth more: of a million, some hundred notes. */
const NOTED_EACH = 16;
const noteOf = (leftOut: number) => Math.floor(Math.log(leftOut / NOTED_EACH) / Math.log(9 / 8));
const isNoted = (leftOut: number): boolean => leftOut <= NOTED_EACH || noteOf(leftOut) > noteOf(leftOut - 1);

export interface Allowance {
	readonly left: number;
	readonly atMs: number;
	/** Entries that were left out since the last one that was written. */
	readonly leftOut: number;
}

export type Paces = ReadonlyMap<string, Allowance>;

export const NO_PACES: Paces = new Map();

/** Whether an entry may be written now, and how many were left out before it. */
export function paced(
	paces: Paces,
	key: string,
	nowMs: number,
	pace = PACE,
): { paces: Paces; isAllowed: boolean; leftOut: number; isNoted: boolean } {
	const before = paces.get(key) ?? { left: pace.burst, atMs: nowMs, leftOut: 0 };
	const earned = Math.floor(Math.max(0, nowMs - before.atMs) / pace.intervalMs);
	const left = Math.min(pace.burst, before.left + earned);
	const isAllowed = left > 0 && (paces.has(key) || paces.size < MAX_PACES);
	const atMs = left === pace.burst ? nowMs : before.atMs + earned * pace.intervalMs;
	const after: Allowance = isAllowed
		? { left: left - 1, atMs, leftOut: 0 }
		: { left, atMs, leftOut: before.leftOut + 1 };
	return {
		paces: new Map(paces).set(key, after),
		isAllowed,
		leftOut: isAllowed ? before.leftOut : 0,
		isNoted: !isAllowed && isNoted(after.leftOut),
	};
}

/** Counts of the entries that are left out now, by key. */
export const leftOutOf = (paces: Paces): Readonly<Record<string, number>> =>
	Object.fromEntries([...paces].filter(([, { leftOut }]) => leftOut > 0).map(([key, { leftOut }]) => [key, leftOut]));
