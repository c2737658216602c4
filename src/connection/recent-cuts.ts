/** How often the channel was cut lately, and how it is told. Pure. */
import { plainDuration } from '../base/durations.ts';
import { type Failure, failure } from '../base/errors.ts';
import { COUNTS_AFTER_MS } from './backoff.ts';
import { saysReplaced } from './classify-close.ts';
import type { ChannelEnd, LineRhythm } from './line-rhythm.ts';

const WINDOW_MS = 10 * 60 * 1000;
const REMEMBERED = 100;
/** So many cuts within the window are told as a warning. */
export const CUTS_TO_WARN = 3;
/** So many channels that die of silence, although the next one opens at once, put notifications at risk. */
const SILENT_TO_WARN = 2;

/** The end of a channel that was open. Times in milliseconds. */
export interface Cut {
	readonly atMs: number;
	readonly lifeMs: number;
	/** The close code, `silence`, the HTTP status of a handshake that was refused next, or the code of the failure. */
	readonly cause: string;
	/** Whether another channel may have taken the place of this one. */
	readonly replaced?: Replaced | null;
	/** Whether the next channel could not be opened at once. */
	readonly hindered?: boolean;
	/** Whether the next attempt has shown at once that its Connection is good no more. */
	readonly isGone?: boolean;
	/** Which end of a row that another device may have caused: each that it may be. Set by {@link withCut}. */
	readonly turns?: readonly number[];
}

/**
 * `said`: by the service in so many words, or by the settings; `perhaps`: it ended the channel with a code of its own, or refused the
 * Connection; `possibly`: it ended it in any other way, also with 4409 alone: what that means is a guess.
 */
export type Replaced = 'said' | 'perhaps' | 'possibly';

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
	const turns = turnsOf(cut, cuts.at(-1));
	return [...cuts.filter(({ atMs }) => cut.atMs - atMs < WINDOW_MS), { ...cut, turns }].slice(-REMEMBERED);
}

/** The same, after an attempt to open the next channel that has failed. @param refusal explains the newest cut. */
export function withHindrance(cuts: readonly Cut[], refusal?: string): readonly Cut[] {
	const newest = cuts.at(-1);
	if (!newest) return cuts;
	const cause = refusal ?? newest.cause;
	const isGone = cause === 'credential-refused' && !newest.hindered;
	return [...cuts.slice(0, -1), { ...newest, hindered: true, cause, ...(isGone && { isGone }) }];
}

/** The cause in the words of {@link Cut}. */
export function causeOf({ code, params }: Failure, closeCode: number | null): string {
	// 1005: the close frame had none.
	const ended = closeCode ?? (params?.['closeCode'] === 1005 ? 1005 : null);
	return ended === null ? (CAUSES[code] ?? code) : String(ended);
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

/** While lines have died of silence lately, and how often to ping them is not known or not proved yet, or nothing would help; else `null`. */
export function riskWarning(
	{ deaths: died, unproved, idleMs }: Pick<LineRhythm, 'deaths' | 'unproved' | 'idleMs'>,
	cuts: readonly Cut[],
	nowMs: number,
): Failure | null {
	const deaths = died?.isOutlived ? null : died;
	const silent = cuts.filter(({ cause, atMs }) => cause === SILENCE && nowMs - atMs < WINDOW_MS);
	// Where the next one cannot be opened at once, it is an outage.
	const count = silent.filter(({ hindered }) => !hindered).length;
	const isLate = silent.length === 0 || (!deaths && (idleMs !== null || count < SILENT_TO_WARN));
	if (isLate && !unproved) return null;
	const dead = (afterMs: number) => `the line was dead after ${plainDuration(afterMs)} of silence`;
	const because = deaths
		? `${dead(deaths.afterMs)}, which was noticed later`
		: unproved
			? `${dead(unproved.afterMs)}, and no line has lived long enough yet to show that more frequent pings help`
			: `${count} channels that were open have died of silence in ${plainDuration(WINDOW_MS)}`;
	return failure('notifications-at-risk', `Notifications are at risk: ${because}.`);
}

/** `The channel was cut 7 times in 10 min, each after 20 s (1006).`; `null` while that is not worth a warning. */
export function cutsWarning(cuts: readonly Cut[], nowMs: number, remedy: string | null): Failure | null {
	const told = recentCuts(cuts, nowMs);
	if (!told || told.count < CUTS_TO_WARN) return null;
	const recent = cuts.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
	const after = `${haveEqualLives(recent) ? 'each' : 'typically'} after ${plainDuration(medianLife(recent))}`;
	const message = `The channel was cut ${told.count} times in ${plainDuration(WINDOW_MS)}, ${after} (${told.cause}).`;
	// No line does that: the service itself sends what ends its channels.
	const isPoison = told.cause === ('poison-message' satisfies Failure['code']);
	const named = isPoison ? failure('poison-message', '').remedy : remedy;
	return failure('channel-flapping', message, named === null ? {} : { remedy: named });
}

/** @param ended as the settings have its close code. */
export function replacedBy({ failure: { code, params }, closeCode, line }: Ended): Replaced | null {
	if (code === 'connection-replaced')
		return closeCode === 4409 && !saysReplaced(String(params?.['detail'])) ? 'possibly' : 'said';
	if (closeCode !== null) return closeCode >= 4000 || closeCode === 1008 ? 'perhaps' : 'possibly';
	return line?.withoutCloseFrame || params?.['closeCode'] === 1005 ? 'possibly' : null;
}
interface Ended {
	readonly failure: Failure;
	readonly closeCode: number | null;
	readonly line: Pick<ChannelEnd, 'withoutCloseFrame'> | null;
}

/** From the first to the newest refusal of a channel in a row because the service holds another one. Monotonic, milliseconds. */
export interface Occupied {
	readonly fromMs: number;
	readonly toMs: number;
}

/**
 * Two devices with one id end each other's channels, each after the other's wait: soon, and never after the same time, as a service that
 * limits the life of a channel does. Where the service keeps the older channel, the other device is refused, or its channels end at once, for
 * longer than it holds one that was lost; the one that holds the channel cannot know. `null` while nothing speaks for a second device.
 * @param openedAtMs since when a channel is open; `null` for none.
 */
export function duplicateWarning(
	cuts: readonly Cut[],
	occupied: Occupied | null,
	nowMs: number,
	openedAtMs: number | null = null,
): Failure | null {
	const heldMs = occupied ? occupied.toMs - occupied.fromMs : 0;
	if (heldMs >= HELD_TO_WARN_MS)
		return duplicate(`the service has refused the channel for ${plainDuration(heldMs)} because it holds another one`);
	const recent = cuts.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
	const atOnce = recent.slice(recent.findLastIndex((cut) => !endsAsSecond(cut, recent.at(-1))) + 1);
	// Whose channel lasts has the place.
	const holds = openedAtMs !== null && nowMs - openedAtMs >= COUNTS_AFTER_MS;
	if (!holds && spanOf(atOnce) >= ENDED_TO_WARN_MS)
		return duplicate(`the service ended the channel ${times(atOnce)}, as it does where it holds another one`);
	const taken = recent.filter(isTakeover);
	const isTaken = taken.length >= CUTS_TO_WARN && spanOf(taken) >= LASTS_MS;
	const isSaid = taken.some(({ replaced }) => replaced === 'said');
	if (isTaken && (isSaid || (!haveEqualLives(taken) && recent.every(({ replaced }) => replaced !== 'possibly'))))
		return duplicate(`the service ended the channel ${times(taken)}, as it does where another channel takes its place`);
	const least = recent.at(-2)?.isGone ? TURNS_TO_WARN.isGone : TURNS_TO_WARN.usual;
	if (!recent.at(-1)?.turns?.some((turn) => turn >= least)) return null;
	return duplicate(`the channel ended ${times(recent)}, each time as the other one would come back`);
}

const times = (cuts: readonly Cut[]) =>
	`${cuts.length} times in ${plainDuration(WINDOW_MS)}, typically after ${plainDuration(medianLife(cuts))}`;

const isTakeover = ({ replaced, lifeMs }: Cut) =>
	replaced === 'said' || (replaced === 'perhaps' && lifeMs < TAKEN_WITHIN_MS);

/** A channel that a service which keeps the older one has ended: at once, in one manner, and not as a line or a balancer does. */
const endsAsSecond = ({ lifeMs, cause, replaced, hindered }: Cut, newest: Cut | undefined) =>
	lifeMs < COUNTS_AFTER_MS && replaced && !hindered && cause === newest?.cause && ENDS_SECOND.test(cause);
/** Not a restart, an error, a line that was cut, or a word about the credential. */
const ENDS_SECOND = /^(1000|1008|4(?!40[13])\d{3})$/;

/**
 * Which end of a row this may be that another device causes where the service does not say so. Such a row has one cause, and each channel
 * lives for as long as the other device waits after its first end, its second and so on (`backoff.ts`). Either no attempt fails meanwhile,
 * or each finds its Connection gone, which is a failure as well. Whatever else cuts does not grow like that.
 */
function turnsOf(cut: Cut, before: Cut | undefined): readonly number[] {
	if (!cut.replaced || cut.replaced === 'said') return [];
	const isGone = before?.isGone === true;
	const follows = before && (isGone || (!before.hindered && before.cause === cut.cause));
	const turns = [1, ...((follows && before.turns) || []).map((turn) => turn + 1)];
	return turns.filter((turn) => isOtherWait(turn, cut) || ((isGone || turn === 1) && isOtherReturn(turn, cut)));
}

/** After that many failures in a row (`backoff.ts`). */
const windowOf = (failures: number) => Math.min(30_000, 2 ** failures * 1000);

/** @param turn from 1. */
function isOtherWait(turn: number, { lifeMs, cause }: Cut): boolean {
	const windowMs = windowOf(turn);
	const fromMs = turn === 1 ? 0 : windowMs / 2;
	const toMs = Math.max(windowMs, RESTARTS.has(cause) ? 15_000 : turn === 1 ? 5000 : 0);
	return lifeMs >= fromMs - 500 && lifeMs <= toMs + HANDSHAKE_MS;
}

/** The same of a device whose channel ends and whose Connection is refused in each turn; the newer one has begun with a refusal. */
function isOtherReturn(turn: number, { lifeMs }: Cut): boolean {
	const fromMs = (windowOf(2 * turn - 1) + windowOf(2 * turn)) / 2;
	const toMs = windowOf(2 * turn) + windowOf(2 * turn + 1);
	return lifeMs >= (turn === 1 ? 0 : fromMs - 500) && lifeMs <= toMs + 2 * HANDSHAKE_MS;
}

function spanOf(cuts: readonly Cut[]): number {
	return (cuts.at(-1)?.atMs ?? 0) - (cuts[0]?.atMs ?? 0);
}

/** A service may hold the place of a device that was killed for minutes. */
const HELD_TO_WARN_MS = 9 * 60 * 1000;
const ENDED_TO_WARN_MS = 5 * 60 * 1000;
/** A service that holds the place of a device that was killed, or has a bad minute, is over it by then. */
const LASTS_MS = 2 * 60 * 1000;
/** No device waits for longer before it comes back. */
const TAKEN_WITHIN_MS = 2 * 60 * 1000;
/** After these codes a device comes back spread over 15 s. */
const RESTARTS: ReadonlySet<string> = new Set(['1001', '1012', '1013']);
const HANDSHAKE_MS = 2000;
/** Most ends of a channel have other causes, fewer where the Connection is gone as well: only these many in turn speak for a second device. */
const TURNS_TO_WARN = { usual: 9, isGone: 6 } as const;
const duplicate = (because: string) =>
	failure('duplicate-device', `Another device may use the deviceId of this one: ${because}.`);

/** Whether no life differs from the typical one by more than 10 %, or 1.5 s if that is more. */
function haveEqualLives(cuts: readonly Cut[]): boolean {
	const typicalMs = medianLife(cuts);
	return cuts.every(({ lifeMs }) => Math.abs(lifeMs - typicalMs) <= Math.max(1500, typicalMs * 0.1));
}

function medianLife(cuts: readonly Cut[]): number {
	const sorted = cuts.map(({ lifeMs }) => lifeMs).sort((one, other) => one - other);
	return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}
