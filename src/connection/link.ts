/**
 * The life of one link: one registration and its channel, as a pure function of state and event.
 * Performs nothing, reads no clock and decides nothing about other links (that is `supervisor.ts`).
 *
 * Every asynchronous effect carries an attempt number; an event that answers an older attempt changes nothing.
 */
import { dispositionOf, type ErrorCode, type Failure, failure, retryClassOf } from '../base/errors.ts';
import {
	afterFailure,
	type Backoff,
	COUNTS_AFTER_MS,
	EARLY_ENDS_TO_DOUBT,
	handshakeDeadlineMs,
	NO_FAILURES,
	RECENTLY_MS,
	STABLE_AFTER_MS,
} from './backoff.ts';
import { asPassing, asRefusal, asRenewable, asShownWrong } from './evidence.ts';
import { afterShow, isFresh, withinSecondTry } from './freshness.ts';
import type { Connection, Credential, Entered, LinkEffect, LinkEvent, LinkState, Step, Trying } from './link-state.ts';

export * from './link-state.ts';

/** Without a credential nothing can be tried; a new credential makes a new link. Within the range of a timer. */
const NO_CREDENTIAL_MS = 24 * 60 * 60 * 1000;
/**
 * A channel that is refused with 400, 403, 404, 410 or 422 may only want a fresh Connection: services differ in their answer to one that
 * they do not know any more.
 */
const LOOKS_STALE: ReadonlySet<ErrorCode> = new Set(['access-forbidden', 'channel-not-found', 'channel-rejected']);
/** With these a device has a new Connection without a person. */
const REGISTERS: readonly Credential['kind'][] = ['reusable', 'earlier', 'selfRegistration'];
/** The link that has made room comes back after this, unless the other one is online. */
const MAKES_ROOM_FOR_MS = 5000;

type State<Name extends LinkState['name']> = Extract<LinkState, { name: Name }>;
type Event<Type extends LinkEvent['type']> = Extract<LinkEvent, { type: Type }>;
type Handler<Name extends LinkState['name'], Type extends LinkEvent['type']> = (
	state: State<Name>,
	event: Event<Type>,
	random: () => number,
) => Step;
type Table = {
	readonly [Name in LinkState['name']]: { readonly [Type in LinkEvent['type']]?: Handler<Name, Type> };
};

type TakenBy<Name extends LinkState['name']> = Name extends unknown ? keyof (typeof TRANSITIONS)[Name] : never;

/** What happens when. A pair of state and event that is not in the table changes nothing. */
export const TRANSITIONS = {
	registering: {
		registered: (state, event) =>
			openWith(withRegistered(state, event.atMs), event.connection, event.atMs, [keep(event.connection)]),
		registerFailed: (state, event, random) => afterRegisterFailed(state, event, random),
		settingsChanged: forgive,
		closeRequested: close,
	},
	registerWait: {
		timerFired: register,
		retryRequested: register,
		settingsChanged: (state, event) =>
			tryChanged(state, event, register({ ...state, backoff: forgiven(state.backoff) }, event)),
		connectionChanged: takeOver,
		closeRequested: close,
	},
	connecting: {
		channelConfirmed: confirm,
		connectionChanged: change,
		channelEnded: (state, event, random) => afterChannelEnded(state, event, random),
		connectionRevoked: revoked,
		settingsChanged: forgive,
		closeRequested: close,
	},
	online: {
		connectionChanged: change,
		channelEnded: (state, event, random) =>
			afterChannelEnded(settled(state, event.atMs, event.outlived), event, random),
		connectionRevoked: (state, event, random) => revoked(settled(state, event.atMs), event, random),
		roomWanted: (state, event) => {
			const step = wait(settled(state, event.atMs), event.failure, MAKES_ROOM_FOR_MS, false, 'connect', event.atMs);
			return { ...step, effects: [{ type: 'closeChannel', code: 1000 }, ...step.effects] };
		},
		retryRequested: (state, event) =>
			openWith({ ...settled(state, event.atMs), failure: null }, state.connection, event.atMs, [
				{ type: 'closeChannel', code: 1000 },
			]),
		closeRequested: close,
	},
	connectWait: {
		timerFired: (state, event) => openWith(state, state.connection, event.atMs),
		retryRequested: (state, event) => openWith(state, state.connection, event.atMs),
		settingsChanged: (state, event) =>
			tryChanged(state, event, openWith({ ...state, backoff: forgiven(state.backoff) }, state.connection, event.atMs)),
		connectionChanged: takeOver,
		closeRequested: close,
	},
	blocked: {
		timerFired: resume,
		retryRequested: resume,
		settingsChanged: (state, event) =>
			tryChanged(state, event, resume({ ...state, backoff: forgiven(state.backoff) }, event)),
		closeRequested: close,
	},
	closed: {},
} satisfies Table;
/** An event that no state takes stands here, and does not compile. */
({}) satisfies Record<Exclude<LinkEvent['type'], TakenBy<keyof typeof TRANSITIONS>>, Handler<LinkState['name'], never>>;

/**
 * With a Connection it goes straight to the channel. @param isFresh whether that was issued a moment ago.
 * @param hasCounted whether a channel of another link has counted with the same settings. @param isOther as in {@link Backoff}.
 */
export function startLink(
	credentials: readonly Credential[],
	connection: Connection | null,
	atMs: number,
	isFresh = false,
	hasCounted = connection?.worked ?? false,
	isOther = false,
): Step {
	const backoff = { ...NO_FAILURES, registeredAtMs: isFresh ? atMs : null, hasCounted, isOther };
	const onlineAtMs = connection?.worked ? atMs : null;
	const entered = { sinceMs: atMs, attempt: 0, backoff, credentials, onlineAtMs, failure: null };
	return connection
		? openWith(entered, connection, atMs, [], isFresh || isOther)
		: register({ ...entered, connection: null }, { atMs });
}

/** The next state and what has to be done. @param random in [0, 1), for the jitter of waits. */
export function transition(state: LinkState, event: LinkEvent, random: () => number): Step {
	if ('attempt' in event && event.attempt !== state.attempt) return { state, effects: [] };
	const handler = (TRANSITIONS as Table)[state.name][event.type] as
		| Handler<LinkState['name'], LinkEvent['type']>
		| undefined;
	return handler ? handler(state, event, random) : { state, effects: [] };
}

/** Whether a channel of this link has counted with its settings. */
export function hasCounted(state: LinkState, nowMs: number): boolean {
	return state.name !== 'closed' && (state.backoff.hasCounted || isOfAge(state, nowMs));
}

function isOfAge(state: LinkState, nowMs: number): boolean {
	return state.name === 'online' && nowMs - state.sinceMs >= COUNTS_AFTER_MS;
}

/** Why a link waits, or what failed before the attempt that is under way; `null` where nothing did. */
export function failureOf(state: LinkState): Failure | null {
	return 'failure' in state ? state.failure : null;
}

function keep(connection: Connection): LinkEffect {
	return { type: 'keepConnection', connection };
}

function change(state: State<'connecting'> | State<'online'>, { connection }: Event<'connectionChanged'>): Step {
	return { state: { ...state, connection }, effects: [keep(connection)] };
}

/** Another link has a Connection that serves this one as well. */
function takeOver(
	state: State<'registerWait'> | State<'connectWait'>,
	{ connection, atMs }: Event<'connectionChanged'>,
	random: () => number,
): Step {
	const delayMs = 1 + Math.floor(withinSecondTry(0, random));
	return wait({ ...state, connection }, state.failure, delayMs, false, 'connect', atMs);
}

function register(from: Entered & Trying & { connection: Connection | null }, event: { atMs: number }): Step {
	return registerWith(from, 0, event.atMs);
}

function registerWith(
	from: Entered & Trying & { connection: Connection | null },
	credentialIndex: number,
	atMs: number,
): Step {
	const { backoff, credentials, onlineAtMs, connection, failure: before } = from;
	const attempt = from.attempt + 1;
	const entered = { sinceMs: atMs, attempt, backoff, credentials, onlineAtMs };
	const state = { name: 'registering', ...entered, failure: before, connection, credentialIndex } as const;
	const credential = credentials[credentialIndex];
	if (credential) return { state, effects: [{ type: 'register', attempt, credential }] };
	const missing = failure('unpaired', 'There is no credential to register with.');
	return wait(state, missing, NO_CREDENTIAL_MS, true, 'register', atMs);
}

function openWith(
	from: Entered & Trying,
	connection: Connection,
	atMs: number,
	first: readonly LinkEffect[] = [],
	isDoubted = from.backoff.earlyEnds !== null || from.backoff.isOther,
): Step {
	const { backoff, credentials, onlineAtMs, failure: before } = from;
	const attempt = from.attempt + 1;
	const handshakeMs = handshakeDeadlineMs(backoff);
	const entered = { sinceMs: atMs, attempt, backoff, credentials, onlineAtMs };
	const open = { type: 'openChannel', attempt, token: connection.token, handshakeMs } as const;
	return {
		state: { name: 'connecting', ...entered, failure: before, connection },
		effects: [...first, isDoubted ? { ...open, provesByAge: true } : open],
	};
}

function confirm({ attempt, backoff, credentials, connection }: State<'connecting'>, { atMs }: { atMs: number }): Step {
	const proved = { ...backoff, surprisedAtMs: null };
	// One that had to prove itself by its age has been open for so long already.
	const sinceMs = backoff.earlyEnds || backoff.isOther ? atMs - COUNTS_AFTER_MS : atMs;
	const entered = { sinceMs, attempt, backoff: proved, credentials, onlineAtMs: atMs };
	if (!connection.savedAgain) return { state: { name: 'online', ...entered, connection }, effects: [] };
	const { savedAgain: _, ...own } = connection;
	return { state: { name: 'online', ...entered, connection: own }, effects: [keep(own)] };
}

const UNTRIED = { registerRefused: false, inTurn: false, refusedShows: 0, hasOpened: false } as const;
function withRegistered<From extends Entered>(from: From, atMs: number): From {
	return { ...from, backoff: { ...from.backoff, ...UNTRIED, registeredAtMs: atMs } };
}

const forgiven = ({ isOther }: Backoff): Backoff => ({ ...NO_FAILURES, isOther });

/** The attempt that is under way goes on; if it fails, it is the first failure. */
function forgive(state: State<'registering'> | State<'connecting'>, { bears }: Event<'settingsChanged'>): Step {
	return { state: bears ? { ...state, backoff: forgiven(state.backoff) } : state, effects: [] };
}

/** A person who has corrected a setting wants to see whether it helps; files that a setting names may have changed as well. */
function tryChanged(
	state: State<'registerWait'> | State<'connectWait'> | State<'blocked'>,
	{ bears }: Event<'settingsChanged'>,
	tried: Step,
): Step {
	// An outage that ends without a person is not hurried by settings that have nothing to do with it: there are many devices.
	return bears || state.name === 'blocked' ? tried : { state, effects: [] };
}

function resume(state: State<'blocked'>, event: { atMs: number }): Step {
	return state.next === 'connect' && state.connection
		? openWith(state, state.connection, event.atMs)
		: register(state, event);
}

function close(state: LinkState, event: Event<'closeRequested'>): Step {
	const hasChannel = state.name === 'connecting' || state.name === 'online';
	return {
		state: { name: 'closed', sinceMs: event.atMs, attempt: state.attempt + 1 },
		effects: hasChannel ? [{ type: 'closeChannel', code: event.code }] : [],
	};
}

function afterRegisterFailed(state: State<'registering'>, event: Event<'registerFailed'>, random: () => number): Step {
	const refused = event.failure.code === 'credential-refused' || event.failure.code === 'access-forbidden';
	if (refused && state.credentialIndex + 1 < state.credentials.length)
		return registerWith(state, state.credentialIndex + 1, event.atMs);

	const failed = {
		...event,
		retryClass: retryClassOf(event.failure.code),
		serviceRestarts: false,
		retryAfterMs: event.failure.retryAfterMs,
		wasOnline: event.wasOnline || wasOnline(state, event.atMs),
	};
	// A Connection that was refused once may still be good when registering fails as well: try both in turn.
	const inTurn = state.connection !== null && (refused || state.backoff.hasCounted);
	const next = afterFailure({ ...state.backoff, registerRefused: refused, inTurn }, failed, random);
	const then = inTurn ? 'connect' : 'register';
	const worked = failed.wasOnline && hasWorked(state);
	const cause = asPassing(asRenewable(event.failure, worked, worked, next), next);
	return wait({ ...state, backoff: next.backoff }, cause, next.delayMs, next.blocked, then, event.atMs);
}

function afterChannelEnded(
	state: State<'connecting'> | State<'online'>,
	event: Omit<Event<'channelEnded'>, 'type' | 'attempt'>,
	random: () => number,
): Step {
	const { againInMs, atMs, isFollowed = false } = event;
	const undoubted = { ...state, backoff: { ...state.backoff, earlyEnds: null } };
	if (againInMs !== undefined) return wait(undoubted, event.failure, againInMs, false, 'connect', atMs);
	const early = withEarlyEnd(state, event);
	const ended = asRefusal(event.failure, early);
	const { code, retryAfterMs } = ended;
	const mayRegister = REGISTERS.some((kind) => hasCredential(state, kind));
	const serviceRestarts = event.closeCode === 1001 || event.closeCode === 1012 || event.closeCode === 1013;
	const isDoubted = code === 'connection-lost' && (early.earlyEnds?.count ?? 0) >= EARLY_ENDS_TO_DOUBT;
	const looksStale = LOOKS_STALE.has(code) || isDoubted;
	const wantsFresh = looksStale && mayRegister && !isFresh(state.backoff, atMs);
	// In turn with a registration that fails: its refusal counts once.
	const wasRefused = state.backoff.inTurn && !state.backoff.registerRefused;
	const failed = {
		...event,
		retryClass: wantsFresh || isFollowed || wasRefused ? 'unreachable' : retryClassOf(code),
		serviceRestarts,
		// A wait that the channel asks for is not one for the registration.
		retryAfterMs: wantsFresh ? undefined : retryAfterMs,
		wasOnline: event.wasOnline || wasOnline(state, atMs),
	} as const;
	const paced = afterFailure(early, failed, random);
	// What a fresh Connection may mend at once asks for no person either.
	const outweighed = isFollowed ? 'refusal' : wantsFresh && failed.wasOnline ? 'surprise' : paced.outweighed;
	const next = { ...paced, outweighed } as const;
	// One fresh registration shows whether it was the Connection.
	const isTried = ended !== event.failure && isFresh(early, atMs);
	const renews = wantsFresh || (dispositionOf(code) === 'reregister' && mayRegister && !isTried);
	const registers = renews && !isFollowed;
	// Only the Connection was refused, not the credential that makes new ones: no person is needed.
	const blocked = next.blocked && (!registers || state.backoff.registerRefused);
	const opened = early !== state.backoff && (event.closeCode === null || 'words');
	const shown = afterShow(state.backoff, registers && !wantsFresh, opened);
	const then = registers && !shown.again ? 'register' : 'connect';
	const worked = failed.wasOnline && hasWorked(state);
	const meant = asRenewable(ended, renews, worked, { ...next, blocked });
	const cause = asPassing(asShownWrong(meant, next, state.connection), next);
	// It has waited already for both of what it tries in turn.
	const leastMs = shown.soonMs ?? (state.backoff.inTurn ? 0 : null);
	const isSecond = registers && (state.name === 'connecting' || shown.soonMs !== null) && leastMs !== null;
	const soonMs = isSecond ? Math.max(leastMs, Math.min(next.delayMs, withinSecondTry(leastMs, random))) : next.delayMs;
	const delayMs = Math.ceil(soonMs);
	const backoff = { ...next.backoff, refusedShows: shown.refused };
	return wait({ ...state, backoff }, cause, delayMs, blocked, then, atMs);
}

function withEarlyEnd(
	state: State<'connecting'> | State<'online'>,
	{ closeCode, wasOpen = closeCode !== null, atMs }: Pick<Event<'channelEnded'>, 'closeCode' | 'wasOpen' | 'atMs'>,
): Backoff {
	const { backoff } = state;
	if (isOfAge(state, atMs) || (state.name === 'connecting' && !wasOpen)) return backoff;
	const count = backoff.earlyEnds?.closeCode === closeCode ? backoff.earlyEnds.count + 1 : 1;
	return { ...backoff, earlyEnds: { closeCode, count }, hasOpened: true };
}

/** Whether the credential of the settings is the one that the device was online with. */
const hasWorked = (state: Parameters<typeof hasCredential>[0]) =>
	hasCredential(state, 'reusable') && !hasCredential(state, 'earlier');

function hasCredential({ credentials }: Entered, kind: Credential['kind']): boolean {
	return credentials.some((credential) => credential.kind === kind);
}

function wasOnline({ onlineAtMs }: Entered, atMs: number): boolean {
	return onlineAtMs !== null && atMs - onlineAtMs < RECENTLY_MS;
}

function revoked(
	state: State<'connecting'> | State<'online'>,
	event: Event<'connectionRevoked'>,
	random: () => number,
): Step {
	const said = failure('connection-revoked', 'The service says that it has revoked the Connection of this device.');
	const step = afterChannelEnded(state, { ...event, failure: said, timedOut: false, closeCode: null }, random);
	return { state: step.state, effects: [{ type: 'closeChannel', code: 1000 }, ...step.effects] };
}

/** A channel that was open for long enough has outlived what failed before it. */
function settled(state: State<'online'>, atMs: number, outlived = false): State<'online'> {
	const lifeMs = atMs - state.sinceMs;
	if (!isOfAge(state, atMs)) return { ...state, onlineAtMs: atMs };
	// A Connection whose channel has counted has proved good: when it is refused later, a fresh one may help again, and soon.
	const proved = {
		...state.backoff,
		registeredAtMs: null,
		earlyEnds: null,
		isOther: false,
		refusedForMs: 0,
		refusedAtMs: null,
		rowMs: null,
	};
	const isStable = outlived || lifeMs >= STABLE_AFTER_MS;
	const { said: _, ...connection } = state.connection;
	return {
		...state,
		connection,
		onlineAtMs: atMs,
		backoff: { ...(isStable ? NO_FAILURES : proved), hasCounted: true },
	};
}

function wait(
	from: Entered & { connection: Connection | null },
	cause: Failure,
	delayMs: number,
	blocked: boolean,
	then: 'register' | 'connect',
	atMs: number,
): Step {
	const { backoff, credentials, onlineAtMs, connection } = from;
	const attempt = from.attempt + 1;
	const entered = { sinceMs: atMs, attempt, backoff, credentials, onlineAtMs, failure: cause, untilMs: atMs + delayMs };
	const effects: LinkEffect[] = [{ type: 'wait', attempt, delayMs }];
	if (blocked) return { state: { name: 'blocked', ...entered, connection, next: then }, effects };
	if (then === 'connect' && connection) return { state: { name: 'connectWait', ...entered, connection }, effects };
	return { state: { name: 'registerWait', ...entered, connection }, effects };
}
