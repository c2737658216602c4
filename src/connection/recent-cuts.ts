/** How often the channel was cut lately, and how it is told. Pure. */
import { plainDuration } from '../base/durations.ts';
import { type Failure, failure } from '../base/errors.ts';

const WINDOW_MS = 10 * 60 * 1000;
const REMEMBERED = 100;
/** So many cuts within the window are told as a warning. */
export const CUTS_TO_WARN = 3;

/** The end of a channel that was open. Times in milliseconds. */
export interface Cut {
	readonly atMs: number;
	readonly lifeMs: number;
	/** The close code, `silence`, the HTTP status of a handshake that was refused next, or the code of the failure. */
	readonly cause: string;
}

/** As the status has it. */
export interface RecentCuts {
	readonly count: number;
	readonly windowSeconds: number;
	/** Median. */
	readonly typicalLifeSeconds: number;
	/** The most frequent one. */
	readonly cause: string;
}

/** Forgets what is older than the window. */
export function withCut(cuts: readonly Cut[], cut: Cut): readonly Cut[] {
	return [...cuts.filter(({ atMs }) => cut.atMs - atMs < WINDOW_MS), cut].slice(-REMEMBERED);
}

/** The same, with the newest cut explained by what its channel's successor was refused for. */
export function withRefusal(cuts: readonly Cut[], cause: string): readonly Cut[] {
	const newest = cuts.at(-1);
	return newest ? [...cuts.slice(0, -1), { ...newest, cause }] : cuts;
}

/** The cause in the words of {@link Cut}. */
export function causeOf(code: Failure['code'], closeCode: number | null): string {
	if (closeCode !== null) return String(closeCode);
	return CAUSES[code] ?? code;
}
const CAUSES: Partial<Record<Failure['code'], string>> = {
	'channel-silent': 'silence',
	'connection-lost': '1006',
	'access-forbidden': '403',
};

/** What happened within the window; `null` when nothing did. */
export function recentCuts(cuts: readonly Cut[], nowMs: number): RecentCuts | null {
	const recent = cuts.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
	if (recent.length === 0) return null;
	const counts = new Map<string, number>();
	for (const { cause } of recent) counts.set(cause, (counts.get(cause) ?? 0) + 1);
	const [cause = ''] = [...counts].sort(([, one], [, other]) => other - one)[0] ?? [];
	const typicalLifeSeconds = Math.round(medianLife(recent) / 1000);
	return { count: recent.length, windowSeconds: WINDOW_MS / 1000, typicalLifeSeconds, cause };
}

/** `The channel was cut 7 times in 10 min, each after 20 s (1006).`; `null` while that is not worth a warning. */
export function cutsWarning(cuts: readonly Cut[], nowMs: number, remedy: string | null): Failure | null {
	const told = recentCuts(cuts, nowMs);
	if (!told || told.count < CUTS_TO_WARN) return null;
	const recent = cuts.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
	const typicalMs = medianLife(recent);
	const areEqual = recent.every(({ lifeMs }) => Math.abs(lifeMs - typicalMs) <= Math.max(1500, typicalMs / 10));
	const after = `${areEqual ? 'each' : 'typically'} after ${plainDuration(typicalMs)}`;
	const window = plainDuration(told.windowSeconds * 1000);
	const message = `The channel was cut ${told.count} times in ${window}, ${after} (${told.cause}).`;
	return failure('channel-flapping', message, remedy === null ? {} : { remedy });
}

function medianLife(cuts: readonly Cut[]): number {
	const lives = cuts.map(({ lifeMs }) => lifeMs).sort((one, other) => one - other);
	return lives[Math.floor((lives.length - 1) / 2)] ?? 0;
}
