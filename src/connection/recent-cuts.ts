/** How often the channel was cut lately, and how it is told. Pure. */
import { plainDuration } from '../base/durations.ts';
import { type Failure, failure } from '../base/errors.ts';
import type { LineRhythm } from './line-rhythm.ts';

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
	/** Whether another channel may have taken the place of this one. */
	readonly replaced?: Replaced | null;
}

/** `said`: by the service in so many words; `perhaps`: it ended the channel with a code of its own, or refused the Connection. */
export type Replaced = 'said' | 'perhaps';

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
const SILENCE = 'silence';
const CAUSES: Partial<Record<Failure['code'], string>> = {
	'channel-silent': SILENCE,
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

/** While lines have died of silence lately, and how often to ping them is not known yet; `null` otherwise. */
export function riskWarning(
	{ deaths }: Pick<LineRhythm, 'deaths'>,
	cuts: readonly Cut[],
	nowMs: number,
): Failure | null {
	if (!deaths || !cuts.some(({ cause, atMs }) => cause === SILENCE && nowMs - atMs < WINDOW_MS)) return null;
	const message = `Notifications are at risk: the line was dead after ${plainDuration(deaths.afterMs)} of silence, which was noticed later.`;
	return failure('notifications-at-risk', message);
}

/** `The channel was cut 7 times in 10 min, each after 20 s (1006).`; `null` while that is not worth a warning. */
export function cutsWarning(cuts: readonly Cut[], nowMs: number, remedy: string | null): Failure | null {
	const told = recentCuts(cuts, nowMs);
	if (!told || told.count < CUTS_TO_WARN) return null;
	const recent = cuts.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
	const after = `${haveEqualLives(recent) ? 'each' : 'typically'} after ${plainDuration(medianLife(recent))}`;
	const window = plainDuration(told.windowSeconds * 1000);
	const message = `The channel was cut ${told.count} times in ${window}, ${after} (${told.cause}).`;
	return failure('channel-flapping', message, remedy === null ? {} : { remedy });
}

/** @param ended as the settings have its close code. */
export function replacedBy({ failure: { code }, closeCode }: Ended): Replaced | null {
	if (code === 'connection-replaced') return 'said';
	return closeCode !== null && (closeCode >= 4000 || closeCode === 1008) ? 'perhaps' : null;
}
interface Ended {
	readonly failure: Failure;
	readonly closeCode: number | null;
}

/** From the first to the newest refusal of a channel in a row because the service holds another one. Monotonic, milliseconds. */
export interface Occupied {
	readonly fromMs: number;
	readonly toMs: number;
}

/**
 * Two devices with one id end each other's channels, each after the other's wait: soon, and never after the same time, as a service that
 * limits the life of a channel does. Where the service keeps the older channel, the other device is refused for longer than it holds one
 * that was lost. `null` while nothing speaks for a second device.
 */
export function duplicateWarning(cuts: readonly Cut[], occupied: Occupied | null, nowMs: number): Failure | null {
	const heldMs = occupied ? occupied.toMs - occupied.fromMs : 0;
	if (heldMs >= HELD_TO_WARN_MS)
		return duplicate(`the service has refused the channel for ${plainDuration(heldMs)} because it holds another one`);
	const isTakeover = ({ replaced, lifeMs }: Cut) =>
		replaced === 'said' || (replaced === 'perhaps' && lifeMs < TAKEN_WITHIN_MS);
	const taken = cuts.filter((cut) => nowMs - cut.atMs < WINDOW_MS && isTakeover(cut));
	const [first, newest] = [taken[0], taken.at(-1)];
	if (taken.length < CUTS_TO_WARN || !first || !newest || newest.atMs - first.atMs < LASTS_MS) return null;
	if (haveEqualLives(taken) && taken.every(({ replaced }) => replaced !== 'said')) return null;
	const typically = plainDuration(medianLife(taken));
	const window = plainDuration(WINDOW_MS);
	return duplicate(
		`the service ended the channel ${taken.length} times in ${window}, typically after ${typically}, as it does where another channel takes its place`,
	);
}
const HELD_TO_WARN_MS = 5 * 60 * 1000;
/** A service that holds the place of a device that was killed, or has a bad minute, is over it by then. */
const LASTS_MS = 2 * 60 * 1000;
/** No device waits for longer before it comes back. */
const TAKEN_WITHIN_MS = 2 * 60 * 1000;
const duplicate = (because: string) =>
	failure('duplicate-device', `Another device probably uses the deviceId of this one: ${because}.`);

function haveEqualLives(cuts: readonly Cut[]): boolean {
	const typicalMs = medianLife(cuts);
	return cuts.every(({ lifeMs }) => Math.abs(lifeMs - typicalMs) <= Math.max(1500, typicalMs / 10));
}

function medianLife(cuts: readonly Cut[]): number {
	const lives = cuts.map(({ lifeMs }) => lifeMs).sort((one, other) => one - other);
	return lives[Math.floor((lives.length - 1) / 2)] ?? 0;
}
