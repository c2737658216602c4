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
	handshakeDeadlineMs,
	NO_FAILURES,
	RECENTLY_MS,
	STABLE_AFTER_MS,
} from './backoff.ts';

/** A Connection token and what is known of its life. Times are monotonic milliseconds. */
export interface Connection {
	/** Secret. */
	readonly token: string;
	readonly obtainedAtMs: number;
	/** How long it is valid in all, where the token says so. */
	readonly lifeMs: number | null;
}

/** The credentials of a device, in the order in which it is tried. */
export type Credential =
	| { readonly kind: 'reusable' }
	| { readonly kind: 'connection'; readonly token: string }
	| { readonly kind: 'selfRegistration' };

/** Without a credential nothing can be tried; a new credential makes a new link. Within the range of a timer. */
const NO_CREDENTIAL_MS = 24 * 60 * 60 * 1000;
/**
 * A channel that is refused with 403, 404 or 410 may only want a fresh Connection: some servers answer every refused
 * handshake with 403. One that was made within this time for the same reason is fresh enough.
 */
const LOOKS_STALE: ReadonlySet<ErrorCode> = new Set(['access-forbidden', 'channel-not-found']);
const FRESH_FOR_MS = 60 * 60 * 1000;

interface Entered {
	/** When this state was entered, monotonic. */
	readonly sinceMs: number;
	readonly attempt: number;
	readonly backoff: Backoff;
	/** In the order in which they are tried; the same for the whole life of the link. */
	readonly credentials: readonly Credential[];
	/** When the channel was last known to be online, monotonic; `null` before the first time. */
	readonly onlineAtMs: number | null;
}
interface Trying {
	/** The last failure, so that the reason is known while the next attempt is under way; `null` before the first failure. */
	readonly failure: Failure | null;
}
interface Waiting {
	/** Why it waits. */
	readonly failure: Failure;
	/** When it goes on, monotonic. */
	readonly untilMs: number;
}

export type LinkState =
	| (Entered &
			Trying & {
				readonly name: 'registering';
				readonly credentialIndex: number;
				readonly connection: Connection | null;
			})
	| (Entered & Waiting & { readonly name: 'registerWait'; readonly connection: Connection | null })
	| (Entered & Trying & { readonly name: 'connecting'; readonly connection: Connection })
	| (Entered & { readonly name: 'online'; readonly connection: Connection })
	| (Entered & Waiting & { readonly name: 'connectWait'; readonly connection: Connection })
	| (Entered &
			Waiting & {
				readonly name: 'blocked';
				readonly next: 'register' | 'connect';
				readonly connection: Connection | null;
			})
	| { readonly name: 'closed'; readonly sinceMs: number; readonly attempt: number };

export type LinkEvent = { readonly atMs: number } & (
	| { readonly type: 'registered'; readonly attempt: number; readonly connection: Connection }
	| {
			readonly type: 'registerFailed';
			readonly attempt: number;
			readonly failure: Failure;
			readonly timedOut: boolean;
			/** Whether it is certain that the request did not reach the service. Default `false`. */
			readonly unsent?: boolean;
	  }
	| { readonly type: 'channelConfirmed'; readonly attempt: number }
	| {
			readonly type: 'channelEnded';
			readonly attempt: number;
			readonly failure: Failure;
			readonly timedOut: boolean;
			readonly closeCode: number | null;
			/** Whether it has outlived the idle timeout that cut the channels before it: then it was stable. */
			readonly outlived?: boolean;
	  }
	| { readonly type: 'timerFired'; readonly attempt: number }
	| { readonly type: 'connectionRevoked' }
	| { readonly type: 'retryRequested' }
	/** Settings were loaded. Where they bear on every failure, what failed before says nothing any more. */
	| { readonly type: 'settingsChanged'; readonly bears: boolean }
	| { readonly type: 'closeRequested'; readonly code: number }
);

export type LinkEffect =
	| { readonly type: 'register'; readonly attempt: number; readonly credential: Credential }
	| { readonly type: 'keepConnection'; readonly connection: Connection }
	| { readonly type: 'openChannel'; readonly attempt: number; readonly token: string; readonly handshakeMs: number }
	| { readonly type: 'closeChannel'; readonly code: number }
	| { readonly type: 'wait'; readonly attempt: number; readonly delayMs: number };

export interface Step {
	readonly state: LinkState;
	readonly effects: readonly LinkEffect[];
}

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

/** What happens when. A pair of state and event that is not in the table changes nothing. */
export const TRANSITIONS: Table = {
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
		settingsChanged: (state, event) => tryChanged(state, event, register({ ...state, backoff: NO_FAILURES }, event)),
		closeRequested: close,
	},
	connecting: {
		channelConfirmed: confirm,
		channelEnded: (state, event, random) => afterChannelEnded(state, event, random),
		connectionRevoked: revoked,
		settingsChanged: forgive,
		closeRequested: close,
	},
	online: {
		channelEnded: (state, event, random) =>
			afterChannelEnded(settled(state, event.atMs, event.outlived), event, random),
		connectionRevoked: (state, event, random) => revoked(settled(state, event.atMs), event, random),
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
			tryChanged(state, event, openWith({ ...state, backoff: NO_FAILURES }, state.connection, event.atMs)),
		closeRequested: close,
	},
	blocked: {
		timerFired: resume,
		retryRequested: resume,
		settingsChanged: (state, event) => tryChanged(state, event, resume({ ...state, backoff: NO_FAILURES }, event)),
		closeRequested: close,
	},
	closed: {},
};

/** With a Connection it goes straight to the channel. @param isFresh whether that was issued a moment ago. */
export function startLink(
	credentials: readonly Credential[],
	connection: Connection | null,
	atMs: number,
	isFresh = false,
): Step {
	const backoff = { ...NO_FAILURES, registeredAtMs: isFresh ? atMs : null };
	const entered = { sinceMs: atMs, attempt: 0, backoff, credentials, onlineAtMs: null, failure: null };
	return connection ? openWith(entered, connection, atMs) : register({ ...entered, connection: null }, { atMs });
}

/** The next state and what has to be done. @param random in [0, 1), for the jitter of waits. */
export function transition(state: LinkState, event: LinkEvent, random: () => number): Step {
	if ('attempt' in event && event.attempt !== state.attempt) return { state, effects: [] };
	const handler = TRANSITIONS[state.name][event.type] as Handler<LinkState['name'], LinkEvent['type']> | undefined;
	return handler ? handler(state, event, random) : { state, effects: [] };
}

export function connectionOf(state: LinkState): Connection | null {
	return state.name === 'closed' ? null : state.connection;
}

/** Why a link waits, or what failed before the attempt that is under way; `null` where nothing did. */
export function failureOf(state: LinkState): Failure | null {
	return 'failure' in state ? state.failure : null;
}

function keep(connection: Connection): LinkEffect {
	return { type: 'keepConnection', connection };
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
	const state = {
		name: 'registering',
		sinceMs: atMs,
		attempt,
		backoff,
		credentials,
		onlineAtMs,
		failure: before,
		connection,
		credentialIndex,
	} as const;
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
): Step {
	const { backoff, credentials, onlineAtMs, failure: before } = from;
	const attempt = from.attempt + 1;
	const handshakeMs = handshakeDeadlineMs(backoff);
	const entered = { sinceMs: atMs, attempt, backoff, credentials, onlineAtMs };
	return {
		state: { name: 'connecting', ...entered, failure: before, connection },
		effects: [...first, { type: 'openChannel', attempt, token: connection.token, handshakeMs }],
	};
}

function confirm({ attempt, backoff, credentials, connection }: State<'connecting'>, { atMs }: { atMs: number }): Step {
	// A Connection that was online has proved good: when it is refused later, a fresh one may help again.
	const proved = { ...backoff, registeredAtMs: null };
	const entered = { sinceMs: atMs, attempt, backoff: proved, credentials, onlineAtMs: atMs };
	return { state: { name: 'online', ...entered, connection }, effects: [] };
}

function withRegistered<From extends Entered>(from: From, atMs: number): From {
	return { ...from, backoff: { ...from.backoff, registerRefused: false, registeredAtMs: atMs } };
}

/** The attempt that is under way goes on; if it fails, it is the first failure. */
function forgive(state: State<'registering'> | State<'connecting'>, { bears }: Event<'settingsChanged'>): Step {
	return { state: bears ? { ...state, backoff: NO_FAILURES } : state, effects: [] };
}

/** A person who has corrected a setting wants to see whether it helps; files that a setting names may have changed as well. */
function tryChanged(
	state: State<'registerWait'> | State<'connectWait'> | State<'blocked'>,
	{ bears }: Event<'settingsChanged'>,
	tried: Step,
): Step {
	// An outage that ends without a person is not hurried by settings that have nothing to do with it: there are many devices.
	return bears || retryClassOf(state.failure.code) === 'slow' ? tried : { state, effects: [] };
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
		retryClass: retryClassOf(event.failure.code),
		atMs: event.atMs,
		timedOut: event.timedOut,
		serviceRestarts: false,
		retryAfterMs: event.failure.retryAfterMs,
		wasOnline: wasOnline(state, event.atMs),
	};
	const next = afterFailure({ ...state.backoff, registerRefused: refused }, failed, random);
	// A Connection that was refused once may still be good when registering is refused as well: try both in turn.
	const then = refused && state.connection ? 'connect' : 'register';
	return wait({ ...state, backoff: next.backoff }, event.failure, next.delayMs, next.blocked, then, event.atMs);
}

function afterChannelEnded(
	state: State<'connecting'> | State<'online'>,
	event: Pick<Event<'channelEnded'>, 'failure' | 'timedOut' | 'closeCode' | 'atMs'>,
	random: () => number,
): Step {
	const { code, retryAfterMs } = event.failure;
	const wantsFresh = LOOKS_STALE.has(code) && hasCredential(state, 'reusable') && !isFresh(state.backoff, event.atMs);
	const failed = {
		retryClass: wantsFresh ? 'unreachable' : retryClassOf(code),
		atMs: event.atMs,
		timedOut: event.timedOut,
		serviceRestarts: event.closeCode === 1001 || event.closeCode === 1012 || event.closeCode === 1013,
		retryAfterMs,
		wasOnline: wasOnline(state, event.atMs),
	} as const;
	const next = afterFailure(state.backoff, failed, random);
	const mayRegister = hasCredential(state, 'reusable') || hasCredential(state, 'selfRegistration');
	const registers = wantsFresh || (dispositionOf(code) === 'reregister' && mayRegister);
	// Only the Connection was refused, not the credential that makes new ones: no person is needed.
	const blocked = next.blocked && (!registers || state.backoff.registerRefused);
	const then = registers ? 'register' : 'connect';
	const cause = explained(event.failure, state.backoff);
	return wait({ ...state, backoff: next.backoff }, cause, next.delayMs, blocked, then, event.atMs);
}

/** A Connection that was issued a moment ago and is refused has most likely been shown in a way that the service does not read. */
function explained(refused: Failure, { registeredAtMs }: Backoff): Failure {
	if (registeredAtMs === null || (refused.code !== 'credential-refused' && refused.code !== 'access-forbidden'))
		return refused;
	const shown =
		'The service has just issued this Connection, and its channel refuses it: set service.channelAuth, service.queryName, service.subprotocol or service.channelPath as the service requires (idv probe finds them); a changed setting is tried at once, without another code.';
	const remedy = refused.code === 'access-forbidden' ? `${refused.remedy} If it is allowed: ${shown}` : shown;
	return failure(refused.code, refused.message, { ...refused, remedy });
}

function hasCredential({ credentials }: Entered, kind: Credential['kind']): boolean {
	return credentials.some((credential) => credential.kind === kind);
}

function isFresh({ registeredAtMs }: Backoff, atMs: number): boolean {
	return registeredAtMs !== null && atMs - registeredAtMs < FRESH_FOR_MS;
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
	const isStable = outlived || atMs - state.sinceMs >= STABLE_AFTER_MS;
	return { ...state, onlineAtMs: atMs, backoff: isStable ? NO_FAILURES : state.backoff };
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
