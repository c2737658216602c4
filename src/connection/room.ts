/** A service that permits one channel of a device: when the old channel is closed for the new one, and which of the two comes next. Pure. */
import { dispositionOf, type Failure, failure, retryClassOf } from '../base/errors.ts';
import { COUNTS_AFTER_MS } from './backoff.ts';
import { connectionOf, failureOf, type LinkEffect, type LinkEvent, type LinkState, transition } from './link.ts';
import { isSameWay, type Link, type Supervision } from './supervision.ts';

type Ended = Extract<LinkEvent, { type: 'channelEnded' }>;

/** How long the service has to notice that the old channel is closed before the new one is tried again. */
export const ROOM_AFTER_MS = 700;
/** No try begins later than this after the old channel was closed: so that the device is offline for less than 3 s. */
const ROOM_FOR_MS = 2500;
/** The old channel is closed for the same link only this often: the service may mean something else. */
const ROOM_AGAIN_MS = 10 * 60_000;
/** For so long the old channel leaves a place that is still held to the new one, */
const LEAVES_HELD_MS = 2 * 60_000;
/** which then is tried this often. */
const HELD_AGAIN_MS = 5000;
/** For so long early ends of a channel that the old one has gone for say only that the place is held: then they are what they are. */
const PROMOTED_HELD_MS = 15_000;
/** A new channel opens, and the service ends the old one, within this. */
const TAKEN_WITHIN_MS = 10_000;
/** Longer than a channel may take to be confirmed. */
const LEFT_FOR_MS = 30_000;
export type Room =
	/** The old channel has to be closed for the new one. */
	| 'wanted'
	/** That has just happened: the new one is tried again in a moment. */
	| 'again'
	/** It did not help: the old one comes back at once. */
	| 'in vain'
	/** The service still holds the place: the new one is to have it first. */
	| 'held'
	/** The service has given the place of the old one to the new one: the old one waits for what becomes of that. */
	| 'left';

/** What the end of a channel says about the place for it; `null` for nothing. */
export function roomFor({ current, next }: Supervision, link: Link, event: LinkEvent): Room | null {
	const isEnd = event.type === 'channelEnded' && link.state.attempt === event.attempt;
	if (!current || !isEnd) return null;
	if (link === next) return roomForNext(current, next, event);
	return next ? roomBeside(current, next, event) : roomForPromoted(current, event);
}

/**
 * When this channel is tried again after this end: the new one soon as long as that is in time, the last time sooner; then one that was
 * promoted more and more slowly.
 */
function againAfterMs(room: Room, link: Link, { atMs }: Ended): number {
	const forMs = atMs - (link.roomAtMs ?? Number.NEGATIVE_INFINITY);
	if (room === 'held') return LEAVES_HELD_MS;
	if (room === 'left') return LEFT_FOR_MS;
	if (forMs < ROOM_FOR_MS) return Math.min(ROOM_AFTER_MS, ROOM_FOR_MS - forMs);
	return room === 'again' && link.state.name === 'online' ? Math.min(HELD_AGAIN_MS, forMs / 2) : HELD_AGAIN_MS;
}

function roomForNext(current: Link, next: Link, event: Ended): Room | null {
	const { roomAtMs = Number.NEGATIVE_INFINITY } = next;
	const forMs = event.atMs - roomAtMs;
	const isSecond = endsAsSecond(next, event);
	if (current.state.name === 'online') {
		const isSame = current.registration.baseUrl === next.registration.baseUrl;
		// A handshake that is cut says too little to give a channel up for it.
		const wasTaken = isHeld(event.failure) || (event.wasOpen ?? event.closeCode !== null);
		// Both may have been cut at once: by settings that are only tried it has to happen again beside one that has come back.
		const isClear = isHeld(event.failure) || isSameWay(current.registration, next.registration) || endedBefore(next);
		return isSame && forMs >= ROOM_AGAIN_MS && isSecond && wasTaken && isClear ? 'wanted' : null;
	}
	// For whatever else the old one waits, it does not wait for the new one.
	if (current.state.name !== 'connectWait' || !isAwayForRoom(current)) return null;
	const isFirst = current.state.sinceMs === roomAtMs;
	if (isSecond && forMs < (isFirst ? ROOM_FOR_MS : LEAVES_HELD_MS)) return 'again';
	return isFirst ? 'in vain' : null;
}

const endedBefore = ({ state }: Link) => state.name !== 'closed' && state.backoff.earlyEnds !== null;

/** Whether the old channel waits for the new one. */
export const isAwayForRoom = ({ state }: Link) => state.name === 'connectWait' && isHeld(state.failure);

/** Whether the device is online by its current link, or would be, had that not left its place to the next one. */
export const isOnlineBut = ({ current, next }: Pick<Supervision, 'current' | 'next'>) =>
	current?.state.name === 'online' || (current !== null && next?.roomAtMs !== undefined && isAwayForRoom(current));

/** Whether a service that permits one channel ends the second one in this way, also where the place of the old one is still held. */
export function endsAsSecond(link: Link, event: Ended): boolean {
	const { state } = link;
	// A Connection that the service has issued a moment ago is not what it refuses.
	const isFresh = state.name !== 'closed' && state.backoff.registeredAtMs !== null;
	return endsEarly(link, event) && (isFresh || dispositionOf(event.failure.code) !== 'reregister');
}

function endsEarly({ state }: Link, { closeCode, wasOpen, openMs = 0, failure: told, atMs }: Ended): boolean {
	// Its service does not mind a second channel that it keeps for longer.
	const hasCounted = openMs >= COUNTS_AFTER_MS || (state.name === 'online' && atMs - state.sinceMs >= COUNTS_AFTER_MS);
	// What this device ends itself says nothing of the place for it.
	if (told.code === 'handshake-timeout') return false;
	return !hasCounted && (closeCode !== null || wasOpen === true || told.code === 'connection-lost' || isHeld(told));
}

/** The service may end the new channel only after it has opened: by then the old one is closed, and comes back where that goes on. */
function roomForPromoted(current: Link, event: Ended): Room | null {
	const forMs = event.atMs - (current.roomAtMs ?? Number.NEGATIVE_INFINITY);
	const isJustMade = forMs < (current.before ? LEAVES_HELD_MS : PROMOTED_HELD_MS);
	if (!isJustMade || !endsAsSecond(current, event)) return null;
	return current.before && forMs >= ROOM_FOR_MS ? 'in vain' : 'again';
}

/** The new link as the one that counts. It keeps the one before it, which comes back where no channel of the new one lasts. */
export function promoted(next: Link, current: Link | null, atMs: number): Link {
	const { roomAtMs = Number.NEGATIVE_INFINITY } = next;
	const since = atMs - roomAtMs < LEAVES_HELD_MS ? next : { ...next, roomAtMs: atMs };
	const { before: _, ...old } = current ?? next;
	if (old.generation === next.generation || old.registration.baseUrl !== next.registration.baseUrl) return since;
	const wanted = { type: 'roomWanted', failure: madeRoom(next), atMs } as const;
	const { state } = transition(old.state, wanted, () => 0);
	return state.name === 'connectWait' && isHeld(state.failure) ? { ...since, before: { ...old, state } } : since;
}

/** The link that failed as the next one, and the one that comes back: it ended when it left its place, and is a new one. */
export function changedBack(supervision: Supervision, current: Link, link: Link) {
	const { before, ...alone } = link;
	const generation = supervision.lastGeneration + 1;
	const connection = before && connectionOf(before.state);
	if (!before || !connection)
		return { places: { ...supervision, next: alone }, failing: alone, back: current, effects: [] };
	// Its Connection is forgotten once the one that comes back is online with its own.
	const failing = { ...alone, state: forgettable(alone.state) };
	const back: Link = { ...before, generation };
	const effects: LinkEffect[] = [{ type: 'keepConnection', connection }];
	return {
		places: { ...supervision, current: back, next: failing, lastGeneration: generation },
		failing,
		back,
		effects,
	};
}

function forgettable(state: LinkState): LinkState {
	return 'connection' in state && state.connection
		? ({ ...state, connection: { ...state.connection, savedAgain: true } } as LinkState)
		: state;
}

/** The link that waits for its place: beside a channel that is online it has time to prove by its age that its own lasts. */
export function doubted<Next extends Link | null>(next: Next, isDoubted: boolean): Next {
	if (!next || next.roomAtMs === undefined || next.state.name !== 'connectWait' || !isHeld(next.state.failure))
		return next;
	const earlyEnds = isDoubted ? { closeCode: null, count: 1 } : null;
	return { ...next, state: { ...next.state, backoff: { ...next.state.backoff, earlyEnds } } };
}

/** The link after an event; one of which a channel has counted does not need the one before it. */
export function withoutBefore(link: Link, atMs: number): Link {
	const { before, ...alone } = link;
	return before && link.state.name === 'online' && atMs - link.state.sinceMs >= COUNTS_AFTER_MS ? alone : link;
}

/** The end of a whole machine, or of the Connection: no other channel of this device is the reason. */
const OTHER_REASONS: readonly number[] = [1001, 1011, 1012, 1013, 1014, 4401, 4403];

/**
 * A try of another way has just begun, and the service ends the channel that works: it may permit one channel, or one Connection. Then the try has
 * had its place, and is over as soon as it has failed.
 */
export function withPlaceTaken(supervision: Supervision, link: Link, event: LinkEvent): Supervision {
	const { current, next } = supervision;
	if (link !== current || !next || event.type !== 'channelEnded' || current.state.attempt !== event.attempt)
		return supervision;
	const isTried =
		current.registration.baseUrl === next.registration.baseUrl && !isSameWay(current.registration, next.registration);
	const isEnded = isHeld(event.failure) || (event.closeCode !== null && !OTHER_REASONS.includes(event.closeCode));
	const isJustBegun = event.atMs - next.state.sinceMs < TAKEN_WITHIN_MS;
	if (current.state.name !== 'online' || !isTried || !isEnded || !isJustBegun) return supervision;
	return { ...supervision, next: { ...next, roomAtMs: event.atMs } };
}

function roomBeside(current: Link, next: Link, event: Ended): Room | null {
	if (next.roomAtMs === event.atMs && current.state.name === 'online' && next.state.name === 'connecting')
		return 'left';
	if (next.roomAtMs === undefined || !isHeld(failureOf(next.state))) return null;
	const isJustMade = event.atMs - next.roomAtMs < LEAVES_HELD_MS && endsEarly(current, event);
	return isJustMade || isHeld(event.failure) ? 'held' : null;
}

/** The end of a channel for which the place is still held, whatever the service said. @param isCurrent whether it was the link that counts. */
export function asHeld(room: Room, link: Link, event: Ended, isCurrent = false): Ended {
	// A line that breaks just after a move, or a code with a meaning of its own, says nothing of other channels.
	const isPlain = event.closeCode === null || PLAIN_CODES.includes(event.closeCode);
	const isSaid = retryClassOf(event.failure.code) === 'occupied' || (room === 'again' && isCurrent && isPlain);
	const told = isSaid ? event.failure : madeRoom(link, event.failure);
	return { ...event, failure: told, againInMs: againAfterMs(room, link, event) };
}

/** Going away, service restart, try again later; forbidden. */
const PLAIN_CODES: readonly number[] = [1001, 1012, 1013, 4403];

const isHeld = (told: Failure | null) => told?.code === 'channel-occupied';

const ENDED =
	'Wait: the agent also tries the new channel beside the old one. If it lasts, ask the operator of the service why it ends the new one.';

/** What is told while the device is offline for it. @param said what the service did to the channel, if that does not say why. */
export function madeRoom({ registration }: Link, said: Failure | null = null): Failure {
	const { host } = new URL(registration.baseUrl);
	const one = 'one channel of this device: the old one was closed for the new one.';
	if (said && isHeld(said)) return failure('channel-occupied', `${host} permits ${one}`, { params: { host } });
	// Nothing but the order in which channels ended says so.
	const params = { ...said?.params, host, reason: 'ended' };
	const message = said ? `${said.message} The service may permit ${one}` : `${host} may permit ${one}`;
	return failure('channel-occupied', message, { params, remedy: ENDED });
}
