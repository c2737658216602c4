/** How long to wait before the next attempt, by what has failed so far; measured in docs/measurements.md. Pure. */
import type { RetryClass } from '../base/errors.ts';

/*
 * Evidence decides the class of a failure, the class its pace, and its pace the limit within which a device is back after the
 * end of a cause that has lasted for a time T (`npm run suite -- recovery` holds every cause to it):
 *
 * | class | what it is | pace | back within |
 * |---|---|---|---|
 * | outage: `unreachable`, and `surprising` where it worked | no word about this credential | 0 to 30 s; a surprise after 15 min 150 to 300 s | 60 s; then 5 min |
 * | a place that is still held: `occupied` | the service has another channel of this device | 5 to 30 s | 60 s |
 * | refusal: `refused` | 401, 1008, a private close code again and again | the Connection and 0 to 5 s later the credential, every 30 to 120 s (a new Connection is shown again after 2 to 5 s), after another failure as an outage; after 12 min T/2 to T, at most 30 min | 2 min; then T, at most 30 min |
 * | overload: `overloaded` | 429, 503, a message that cannot be taken | 15 s and more, half as long again each time | 60 s or T, at most 30 min; twice the `Retry-After` where that is more |
 * | never worked yet: `surprising` without evidence | it asks for a person at once | T/2 to T, 15 s to 10 min | 60 s or T, at most 10 min |
 * | `slow` | the device's own side: it waits for a person | 5 to 10 min | 10 min |
 *
 * Up to 10 min the `Retry-After` of an overload is the least wait, spread over as much again; of any other class, or of one of
 * several addresses, up to 45 s of it, spread to 60 s. Where another address of the name was not tried yet, any class is an outage, and that
 * address is tried within 5 s: seven that accept and serve nothing stood before a live one for two minutes.
 */

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/** A channel that was open this long has proved itself: what failed before it no longer counts. */
export const STABLE_AFTER_MS = MINUTE;
/**
 * From then on a channel counts: some services accept the upgrade and refuse it in words of their own a moment later. One
 * that was just paired, or follows one that ended early, is online only then; any other with the first answer.
 */
export const COUNTS_AFTER_MS = 3 * SECOND;
/** So many channels in a row that one private close code has ended before they counted are a refusal, whatever its number is. */
export const EARLY_ENDS_TO_REFUSE = 2;
/** So many with any other code, or none, may mean a Connection that the service does not know any more. */
export const EARLY_ENDS_TO_DOUBT = 3;
/**
 * Refusals that last this long are meant: a service has bad minutes, and every device would need a person after one. A
 * device that was online within {@link RECENTLY_MS} has shown that its credential is good, and is patient for longer.
 */
export const PATIENCE_MS = { usual: 10 * MINUTE, wasOnline: 12 * MINUTE } as const;
export const RECENTLY_MS = 24 * 60 * MINUTE;
/**
 * A device that was online within {@link RECENTLY_MS} has shown that its settings are right: an answer that only a person
 * could mend otherwise is taken for an outage until it has lasted this long, since something else answers for the service.
 */
export const OUTAGE_MS = 15 * MINUTE;
/** Between two refusals the service may have been away: no more of that time than this counts as refused. */
export const REFUSAL_COUNTS_MS = 5 * MINUTE;
/** The longest wait of a device that is refused for hours. */
const MAX_REFUSED_WAIT_MS = { usual: 60 * MINUTE, wasOnline: 30 * MINUTE } as const;
/**
 * The overload window never stops growing before this. With 120 s, 40 devices behind one address never came back from a
 * limit of 10 registrations a minute that counts what it refuses (docs/measurements.md, "Reconnecting").
 */
export const MAX_OVERLOAD_WINDOW_MS = 30 * MINUTE;
/** A `Retry-After` beyond this is taken as this. */
export const MAX_RETRY_AFTER_MS = 10 * MINUTE;

/** What is remembered of the failures since the link was last stable. */
export interface Backoff {
	/** Failures in a row, of any kind. */
	readonly failures: number;
	/** The window for an overloaded service; 0 when it was not overloaded. */
	readonly overloadWindowMs: number;
	/** Monotonic time of the failure that it has grown by last; `null` before the first. */
	readonly overloadedAtMs: number | null;
	/** Whether an attempt since the last stable channel ran into its deadline. */
	readonly timedOut: boolean;
	/** How long refusals have lasted, in milliseconds; 0 with the first. */
	readonly refusedForMs: number;
	/** Monotonic time of the newest refusal; `null` before the first. */
	readonly refusedAtMs: number | null;
	/** How long the newest refusals in a row have lasted, in milliseconds; `null` where the newest failure was none. */
	readonly rowMs: number | null;
	/** Monotonic time of the first answer that only a person can mend; `null` while there was none. */
	readonly surprisedAtMs: number | null;
	/** Whether the last registration was refused: then a new Connection cannot be had. */
	readonly registerRefused: boolean;
	/** Whether the last registration failed, and the Connection from before is tried in turn with the next one. */
	readonly inTurn: boolean;
	/** How often the Connection of the last registration was refused; it is shown thrice before another one is made: services spread it in their own time. */
	readonly refusedShows: number;
	/** Whether a channel of the Connection of the last registration has opened, and was ended before it counted. */
	readonly hasOpened: boolean;
	/** Monotonic time of the last registration, as long as no channel of its Connection has counted; `null` otherwise. */
	readonly registeredAtMs: number | null;
	/** Whether a channel has counted with these settings: then a refusal does not come from how a Connection is shown. */
	readonly hasCounted: boolean;
	/** Whether the link goes another way, or to another service, than the one before it: a channel of it counts only once it has lasted. */
	readonly isOther: boolean;
	/** The close code that has ended the newest channels before they counted (`null`: none came), and how many; `null` where none did. */
	readonly earlyEnds: { readonly closeCode: number | null; readonly count: number } | null;
}

export const NO_FAILURES: Backoff = {
	failures: 0,
	overloadWindowMs: 0,
	overloadedAtMs: null,
	timedOut: false,
	refusedForMs: 0,
	refusedAtMs: null,
	rowMs: null,
	surprisedAtMs: null,
	registerRefused: false,
	inTurn: false,
	refusedShows: 0,
	hasOpened: false,
	registeredAtMs: null,
	hasCounted: false,
	isOther: false,
	earlyEnds: null,
};

export interface FailedAttempt {
	readonly retryClass: RetryClass;
	/** Monotonic. */
	readonly atMs: number;
	/** Whether a deadline ran out, so that the next one should be longer. */
	readonly timedOut: boolean;
	/** The service said that it goes away for a moment (close codes 1001, 1012, 1013): all devices return at once. */
	readonly serviceRestarts: boolean;
	/** The least wait the service asked for. */
	readonly retryAfterMs?: number | undefined;
	/** Whether this link was online within {@link RECENTLY_MS}. */
	readonly wasOnline?: boolean;
	/** Whether another address of the name was not tried yet: what this one says is an outage until then. */
	readonly hasOther?: boolean | undefined;
}

export interface NextAttempt {
	readonly backoff: Backoff;
	readonly delayMs: number;
	/** Refused for long enough that only a person can help; attempts go on slowly. */
	readonly blocked: boolean;
	/** The answer that asks for a person and is outweighed by what worked lately; `null` where none is. */
	readonly outweighed: 'surprise' | 'refusal' | 'address' | null;
}

/** Counts a failure and says when to try again. @param random in [0, 1); jitter comes after the cap. */
export function afterFailure(before: Backoff, told: FailedAttempt, random: () => number): NextAttempt {
	const isPassedOver = told.hasOther === true && told.retryClass !== 'unreachable' && told.retryClass !== 'occupied';
	const failed: FailedAttempt = isPassedOver ? { ...told, retryClass: 'unreachable' } : told;
	const isRefused = failed.retryClass === 'refused';
	const isSurprising = failed.retryClass === 'surprising';
	const surprisedAtMs = isSurprising ? (before.surprisedAtMs ?? failed.atMs) : before.surprisedAtMs;
	// The window of a registration that is overloaded outlives the Connection that is tried in turn with it.
	const keptWindowMs = before.inTurn ? before.overloadWindowMs : 0;
	const isOutage = isSurprising && failed.wasOnline === true && failed.atMs - (surprisedAtMs ?? 0) < OUTAGE_MS;
	const sinceMs = before.refusedAtMs === null ? 0 : failed.atMs - before.refusedAtMs;
	const countedMs = Math.min(Math.max(0, sinceMs), REFUSAL_COUNTS_MS);
	const isOverloaded = failed.retryClass === 'overloaded';
	// A person who has it tried again and again must not make the device stay away for as long as ten waits would have.
	const isEarly = failed.atMs - (before.overloadedAtMs ?? Number.NEGATIVE_INFINITY) < 0.4 * before.overloadWindowMs;
	const grownMs = isEarly ? before.overloadWindowMs : 1.5 * before.overloadWindowMs;
	const backoff: Backoff = {
		...before,
		failures: before.failures + 1,
		overloadWindowMs: isOverloaded ? Math.min(MAX_OVERLOAD_WINDOW_MS, Math.max(30 * SECOND, grownMs)) : keptWindowMs,
		overloadedAtMs: isOverloaded && !isEarly ? failed.atMs : before.overloadedAtMs,
		timedOut: before.timedOut || failed.timedOut,
		refusedForMs: before.refusedForMs + (isRefused ? countedMs : 0),
		refusedAtMs: isRefused ? failed.atMs : before.refusedAtMs,
		rowMs: !isRefused ? null : before.rowMs === null ? 0 : before.rowMs + countedMs,
		surprisedAtMs,
	};
	const patienceMs = failed.wasOnline ? PATIENCE_MS.wasOnline : PATIENCE_MS.usual;
	const blocked =
		failed.retryClass === 'slow' || (isSurprising && !isOutage) || (isRefused && backoff.refusedForMs >= patienceMs);
	const isPatient = isRefused && !blocked && failed.wasOnline === true;
	const outweighed = isPassedOver ? 'address' : isOutage ? 'surprise' : isPatient ? 'refusal' : null;
	const between = (from: number, to: number) => from + (to - from) * random();
	const floorMs = Math.min(Math.max(0, failed.retryAfterMs ?? 0), MAX_RETRY_AFTER_MS);
	// A herd that was told the same `Retry-After` must not return in the same instant. Only an overload is the service's own word.
	const [fromMs, toMs] =
		failed.retryClass === 'overloaded'
			? [floorMs, 2 * floorMs]
			: [Math.min(floorMs, 45 * SECOND), Math.min(2 * floorMs, MINUTE)];
	const askedMs = floorMs > 0 ? between(fromMs, toMs) : 0;
	// What refuses a good Connection between other answers is most likely what gives those.
	const paced = isPatient ? { ...backoff, refusedForMs: backoff.rowMs ?? 0 } : backoff;
	const surprisedMs = failed.atMs - (surprisedAtMs ?? failed.atMs);
	const delayMs = Math.ceil(Math.max(askedMs, ownDelay(failed, paced, blocked, surprisedMs, between)));
	return { backoff, delayMs, blocked, outweighed };
}

function ownDelay(
	failed: FailedAttempt,
	backoff: Backoff,
	blocked: boolean,
	surprisedMs: number,
	between: (from: number, to: number) => number,
): number {
	if (failed.retryClass === 'surprising' && blocked) {
		// A service has bad seconds, and what is asked for the first time may fall into one.
		const windowMs = failed.wasOnline ? 5 * MINUTE : Math.min(10 * MINUTE, Math.max(30 * SECOND, surprisedMs));
		return between(windowMs / 2, windowMs);
	}
	if (failed.retryClass === 'slow') return between(5 * MINUTE, 10 * MINUTE);
	if (failed.retryClass === 'refused' && backoff.refusedForMs > 0) {
		const windowMs = refusedWindowMs(backoff.refusedForMs, blocked, failed.wasOnline ?? false);
		return between(windowMs / 2, windowMs);
	}
	if (failed.retryClass === 'overloaded') return between(backoff.overloadWindowMs / 2, backoff.overloadWindowMs);
	if (failed.retryClass === 'surprising' || failed.retryClass === 'occupied') {
		const windowMs = Math.min(30 * SECOND, Math.max(10 * SECOND, 2 ** Math.min(backoff.failures, 10) * SECOND));
		return between(windowMs / 2, windowMs);
	}
	// Even the first return is spread: a switch that restarts takes all kiosks of a site down in the same second.
	const isSoon = backoff.failures === 1 || failed.hasOther === true;
	if (isSoon) return between(0, (failed.serviceRestarts ? 15 : 5) * SECOND);
	const windowMs = Math.min(30 * SECOND, 2 ** Math.min(backoff.failures, 10) * SECOND);
	// A service that says so again and again is not restarting: it gets the growing wait, spread as widely.
	return between(windowMs / 2, failed.serviceRestarts ? Math.max(15 * SECOND, windowMs) : windowMs);
}

/** Grows with the time for which refusals have lasted: 60 to 120 s as long as they may pass, then 10 min and more. */
function refusedWindowMs(lastedMs: number, blocked: boolean, wasOnline: boolean): number {
	if (!blocked) return Math.min(120 * SECOND, Math.max(60 * SECOND, lastedMs));
	return Math.min(wasOnline ? MAX_REFUSED_WAIT_MS.wasOnline : MAX_REFUSED_WAIT_MS.usual, lastedMs);
}

/** How long a handshake may take: 15 s, and 25 s once one was too slow, whatever was answered since. With the longest wait it stays below a minute. */
export function handshakeDeadlineMs({ timedOut }: Pick<Backoff, 'timedOut'>): number {
	return (timedOut ? 25 : 15) * SECOND;
}
