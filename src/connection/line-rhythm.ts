/**
 * Knowledge of the way to the service from how its channels were cut: whether something on it ends a line that is quiet
 * for so long, and how often to ping so that it never is. Pure; opens nothing and writes nothing.
 */

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/** So many cuts after equal silence are an idle timeout. */
const CUTS_TO_LEARN = 3;
/** So many lines in a row that were dead after a silence, too, the same one or any: each has cost what came until it was noticed. */
const SILENT_DEATHS_TO_LEARN = { same: 2, any: 3 } as const;
/** After this many further cuts in spite of the shorter ping, the idle timeout is dropped. */
const CUTS_TO_UNLEARN = 3;
/** What is remembered of the silences before the newest cuts. */
const REMEMBERED = 10;
/** No faster ping than this, and no slower one once an idle timeout is known. */
export const LEAST_PING_MS = 5 * SECOND;
export const MOST_PING_MS = 30 * SECOND;
/** A channel that lived this long shows that the ping is good enough, */
const LONG_LIFE_MS = 5 * MINUTE;
/** and one that lived this long, that what cut those before it is gone. */
const FORGET_AFTER_MS = 60 * MINUTE;

/** How an open channel ended, in milliseconds. */
export interface ChannelEnd {
	readonly lifeMs: number;
	/** Since the last byte in either direction. */
	readonly silenceMs: number;
	readonly longestSilenceMs: number;
	/** The same of the service alone: some things on the way look only at what comes from there. */
	readonly inboundSilenceMs: number;
	readonly longestInboundMs: number;
	readonly withoutCloseFrame: boolean;
	/** For a line that was found dead by its silence: how quiet it was before the first byte that no one answered. */
	readonly deadAfterMs?: number | null;
}

export interface LineEnd extends ChannelEnd {
	/** Whether a goodbye of this side was answered, or the other side said one. */
	readonly saidGoodbye: boolean;
	/** Since the newest whole frame, in milliseconds: what was sent after it may be lost. */
	readonly sinceFrameMs: number;
	/** How long the machine has slept while it was open: the other times here stood still meanwhile. */
	readonly sleptMs: number;
}

export interface LineRhythm {
	/** Silences before the newest cuts that may be an idle timeout, in milliseconds, newest last. */
	readonly silencesMs: readonly number[];
	readonly idleMs: number | null;
	/** The shortest silence after which the newest lines were dead, longer than any that each had borne, and how many they were. */
	readonly deaths: (SilentDeath & { readonly count: number; readonly isOutlived?: true }) | null;
	/** The deaths that taught the present ping, until a line lives longer than all that died of it. */
	readonly unproved: SilentDeath | null;
	/** Cuts since then that the idle timeout does not explain. */
	readonly unexplained: number;
	/** Whether a shorter ping has not helped: then no other is tried until a channel lives for an hour, or the line is another. */
	readonly isUnlearned: boolean;
}

interface SilentDeath {
	readonly afterMs: number;
	/** The longest of them, until the silence was noticed. */
	readonly lifeMs: number;
}

export const UNKNOWN_RHYTHM: LineRhythm = {
	silencesMs: [],
	idleMs: null,
	deaths: null,
	unproved: null,
	unexplained: 0,
	isUnlearned: false,
};

export interface SavedLine {
	readonly baseUrl: string;
	readonly network: string;
	readonly idleMs: number;
}

/** Where it is saved; whatever goes wrong there only costs a few cuts after the next start. */
export interface LineStore {
	load(): SavedLine | null;
	save(line: SavedLine | null): void;
}

/** A ping was answered on a line that has lived for longer than those that died: the pings come in time, or nothing was wrong with them. */
export function afterAnswer(rhythm: LineRhythm, lifeMs: number): LineRhythm {
	const { deaths, unproved } = rhythm;
	if (unproved && lifeMs > unproved.lifeMs) return { ...rhythm, unproved: null };
	// It may have had traffic: they still teach something together with later ones.
	return deaths && lifeMs > deaths.lifeMs ? { ...rhythm, deaths: { ...deaths, isOutlived: true } } : rhythm;
}

export function afterEnd(rhythm: LineRhythm, end: ChannelEnd): LineRhythm {
	const { idleMs } = rhythm;
	if (end.lifeMs >= FORGET_AFTER_MS) return { ...UNKNOWN_RHYTHM, idleMs };
	if (end.deadAfterMs !== undefined) return afterDeath(rhythm, end.deadAfterMs, end.lifeMs);
	if (!end.withoutCloseFrame || rhythm.isUnlearned) return rhythm;
	const candidates = idleSilences(end);
	const silencesMs = [...rhythm.silencesMs, ...candidates].slice(-REMEMBERED);
	const equalTo = (silence: number) => silencesMs.filter((one) => isEqual(one, silence));
	// The same one again means that the ping did not get through in time: nothing new is learned.
	const found = candidates.find(
		(one) => equalTo(one).length >= CUTS_TO_LEARN && (idleMs === null || !isEqual(idleMs, one)),
	);
	if (found !== undefined) return { ...UNKNOWN_RHYTHM, idleMs: Math.min(...equalTo(found)) };
	if (idleMs === null) return { ...rhythm, silencesMs };
	const unexplained = end.lifeMs >= LONG_LIFE_MS ? 0 : rhythm.unexplained + 1;
	if (unexplained >= CUTS_TO_UNLEARN) return { ...UNKNOWN_RHYTHM, isUnlearned: true };
	return { ...rhythm, silencesMs, unexplained };
}

/**
 * Something on the way forgets a quiet line without a word. When it did is not known, only that it was earlier than the byte that no one
 * answered: the next pings come after half of that time.
 */
function afterDeath(rhythm: LineRhythm, afterMs: number | null, lifeMs: number): LineRhythm {
	if (afterMs === null || afterMs <= LEAST_PING_MS) return { ...rhythm, deaths: null };
	const { deaths: before } = rhythm;
	const isSame = before !== null && isEqual(before.afterMs, afterMs);
	const death = {
		// Heartbeats and notifications come at their own times: every silence is an upper bound.
		afterMs: Math.min(afterMs, before?.afterMs ?? afterMs),
		lifeMs: Math.max(lifeMs, before?.lifeMs ?? 0),
	};
	const count = (before?.count ?? 0) + 1;
	if (count < SILENT_DEATHS_TO_LEARN[isSame ? 'same' : 'any']) return { ...rhythm, deaths: { ...death, count } };
	return { ...UNKNOWN_RHYTHM, idleMs: (3 / 4) * death.afterMs, unproved: death };
}

/** An idle timeout cuts in the longest silence of all: a line that has borne a longer one was cut for another reason. */
function idleSilences(end: ChannelEnd): number[] {
	const { silenceMs, longestSilenceMs, inboundSilenceMs, longestInboundMs } = end;
	const may = (silence: number, longest: number) =>
		silence > LEAST_PING_MS && silence >= longest - tolerance(silence) ? [silence] : [];
	const either = may(silenceMs, longestSilenceMs);
	return isEqual(silenceMs, inboundSilenceMs) ? either : [...either, ...may(inboundSilenceMs, longestInboundMs)];
}

function isEqual(one: number, other: number): boolean {
	return Math.abs(one - other) <= tolerance(Math.max(one, other));
}

/** Some look only once a second whether a line has been silent for too long. */
function tolerance(ms: number): number {
	return Math.max(1.5 * SECOND, ms / 12);
}

/** How often to ping: as usual, or often enough for the idle timeout; never above the cadence and 30 s then, never below 5 s. */
export function pingInterval({ idleMs }: LineRhythm, usualMs: number, cadenceMs: number): number {
	if (idleMs === null) return usualMs;
	return Math.min(usualMs, cadenceMs, MOST_PING_MS, Math.max(LEAST_PING_MS, (2 / 3) * idleMs));
}

/** Whether this channel has lived longer than its line used to let it: then the shorter ping has helped. */
export function hasOutlived({ idleMs }: LineRhythm, { lifeMs }: Pick<ChannelEnd, 'lifeMs'>): boolean {
	return idleMs !== null && lifeMs > 1.5 * idleMs;
}

/** The network that a local address is part of: 24 bits of IPv4, 64 of IPv6. */
export function networkOf(address: string): string {
	const plain = address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '');
	if (!plain.includes(':')) return plain.split('.').slice(0, 3).join('.');
	const [head = '', tail] = plain.split('::');
	const groups = head.split(':').filter(Boolean);
	if (tail !== undefined) while (groups.length < 4) groups.push('0');
	return groups.slice(0, 4).join(':');
}

/**
 * Measures the silences of one line. What was sent last and not answered within a second may never have left: a ping that
 * crosses the cut does not count.
 */
export function measureSilence(openedAtMs: number): {
	/** A byte went in this direction. */
	moved(direction: 'in' | 'out', atMs: number): void;
	end(atMs: number): Omit<ChannelEnd, 'withoutCloseFrame' | 'deadAfterMs'>;
	/** How quiet the line was before the first byte that no one has answered; `null` where it had borne as much before. */
	deadAfterMs(): number | null;
} {
	let lastMs = openedAtMs;
	let longestMs = 0;
	let heardMs = openedAtMs;
	let longestInboundMs = 0;
	/** As it was before the first byte that has not been answered. */
	let firstUnanswered: { readonly silenceMs: number; readonly longestMs: number } | null = null;
	let unanswered: { readonly sentAtMs: number; readonly lastMs: number; readonly longestMs: number } | null = null;
	return {
		moved(direction, atMs) {
			if (direction === 'in') {
				unanswered = null;
				firstUnanswered = null;
				longestInboundMs = Math.max(longestInboundMs, atMs - heardMs);
				heardMs = atMs;
			} else if (!unanswered || atMs - unanswered.sentAtMs >= SECOND)
				unanswered = { sentAtMs: atMs, lastMs, longestMs };
			if (direction === 'out') firstUnanswered ??= { silenceMs: atMs - lastMs, longestMs };
			longestMs = Math.max(longestMs, atMs - lastMs);
			lastMs = atMs;
		},
		deadAfterMs() {
			if (!firstUnanswered) return null;
			const { silenceMs, longestMs: borneMs } = firstUnanswered;
			return borneMs >= silenceMs - tolerance(silenceMs) ? null : silenceMs;
		},
		end(atMs) {
			const known = unanswered && atMs - unanswered.sentAtMs < SECOND ? unanswered : { lastMs, longestMs };
			return {
				lifeMs: atMs - openedAtMs,
				silenceMs: atMs - known.lastMs,
				longestSilenceMs: known.longestMs,
				inboundSilenceMs: atMs - heardMs,
				longestInboundMs,
			};
		},
	};
}
