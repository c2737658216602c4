/** The refusal of a Connection that was made a moment ago, and its meaning: services forget and spread it in their own time. Pure. */
import type { Backoff } from './backoff.ts';

const FRESH_FOR_MS = { least: 20_000, eachFailure: 5000, most: 60 * 60 * 1000 } as const;
/** So often a new one is shown that is refused: at once, a moment later, and after the wait of a refusal. */
const SHOWS = 3;
/** Nodes of one service know it within this time, most often. */
const KNOWN_AFTER_MS = 2000;
/** The second part of a try, such as the registration after the refusal of the Connection, follows within this time. */
const SECOND_TRY_MS = 5000;

/** @param leastMs after which it follows at least. */
export const withinSecondTry = (leastMs: number, random: () => number) =>
	leastMs + (SECOND_TRY_MS - leastMs) * random();

/** A service may forget a Connection in the second after it was made. Attempts come every 10 to 15 s: each time half as long again, or twice. */
const freshForMs = (failures: number) =>
	Math.min(FRESH_FOR_MS.most, Math.max(FRESH_FOR_MS.least, failures * FRESH_FOR_MS.eachFailure));

/** Whether the Connection is too new for another one to be of use. */
export function isFresh({ registeredAtMs, failures }: Backoff, atMs: number): boolean {
	return registeredAtMs !== null && atMs - registeredAtMs < freshForMs(failures);
}

export interface Shown {
	/** How often it was refused. */
	readonly refused: number;
	/** Whether it is shown again before another one is made. */
	readonly again: boolean;
	/** After so long at least the next attempt follows, within {@link SECOND_TRY_MS}; `null` where it waits as after a refusal. */
	readonly soonMs: number | null;
}

/**
 * After a channel has ended. @param isRefused whether it was refused, and a new Connection can be made: what else ends it counts for nothing.
 * @param opened whether it had opened; `words` where the service then closed it with a code.
 */
export function afterShow(
	{ registeredAtMs, refusedShows, hasOpened }: Backoff,
	isRefused: boolean,
	opened: 'words' | boolean,
): Shown {
	if (!isRefused || registeredAtMs === null || opened === true)
		return { refused: refusedShows, again: false, soonMs: null };
	const refused = refusedShows + 1;
	// A Connection that is spread late is refused in one way until it is known: refused in another way than before, it was known and is over.
	const isOver = hasOpened ? !opened : opened === 'words' && refusedShows > 0;
	const again = refused < SHOWS && !isOver;
	if (again && refused > 1) return { refused, again, soonMs: null };
	return { refused, again, soonMs: again ? KNOWN_AFTER_MS : 0 };
}
