/** How long a version on trial has been well without a break, and how often it died over the whole trial. Pure. */
import type { Look } from './judge.ts';
import type { Trial } from './record.ts';

/** A stretch in which one run of the unit was online, but for breaks in which it came back. */
export interface Stretch {
	readonly runId: string;
	readonly sinceMs: number;
	readonly atMs: number;
	/** The sum of its breaks. */
	readonly awayMs: number;
}

/** One look at the unit and its agent, on the monotonic clock. */
export interface Sample {
	readonly atMs: number;
	/** The run of the unit; `null` when it is not ready, or is not the version on trial. */
	readonly runId: string | null;
	readonly state: Look['state'];
}

/** Reconnecting is an agent's work: a version is not blamed for a short deploy of the service, or a channel that is closed each minute. */
const MAX_AWAY_SHARE = 0.2;

/** The stretch after one more look; `null` when the version is not well. Another run is another stretch. */
export function stretchAfter(stretch: Stretch | null, { atMs, runId, state }: Sample, judgeMs: number): Stretch | null {
	if (runId === null) return null;
	if (stretch?.runId !== runId) return state === 'online' ? { runId, sinceMs: atMs, atMs, awayMs: 0 } : null;
	const awayMs = stretch.awayMs + (state === 'online' ? 0 : atMs - stretch.atMs);
	if (awayMs > MAX_AWAY_SHARE * judgeMs) return null;
	return { ...stretch, atMs, awayMs };
}

type Counted = Pick<Trial, 'restarts' | 'unitRestarts'>;

/**
 * The restarts of the trial after systemd has told its own count, which begins again with each boot and each start by a person.
 * @param isOld whether the version before still runs: its restarts are not the fault of the new one.
 */
export function countRestarts(before: Counted, told: number, isOld: boolean): Counted {
	const more = told >= before.unitRestarts ? told - before.unitRestarts : told;
	return { restarts: before.restarts + (isOld ? 0 : more), unitRestarts: told };
}
