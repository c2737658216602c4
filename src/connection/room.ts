/** A service that permits one channel of a device: when the old channel is closed for the new one, and which of the two comes next. Pure. */
import { dispositionOf, type Failure, failure } from '../base/errors.ts';
import { COUNTS_AFTER_MS } from './backoff.ts';
import { failureOf, type LinkEvent } from './link.ts';
import type { Link, Supervision } from './supervision.ts';

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
export type Room =
	/** The old channel has to be closed for the new one. */
	| 'wanted'
	/** That has just happened: the new one is tried again in a moment. */
	| 'again'
	/** It did not help: the old one comes back at once. */
	| 'in vain'
	/** The service still holds the place: the new one is to have it first. */
	| 'held';

/** What the end of a channel says about the place for it; `null` for nothing. */
export function roomFor({ current, next }: Supervision, link: Link, event: LinkEvent): Room | null {
	const isEnd = event.type === 'channelEnded' && link.state.attempt === event.attempt;
	if (!current || !isEnd) return null;
	if (link === next) return roomForNext(current, next, event);
	return next ? roomBeside(current, next, event) : roomForPromoted(current, event);
}

/** When this channel is tried again after this end: the new one soon as long as that is in time or it was online, the last time sooner. */
export function againAfterMs(room: Room, link: Link, { atMs }: Ended): number {
	const leftMs = (link.roomAtMs ?? Number.NEGATIVE_INFINITY) + ROOM_FOR_MS - atMs;
	if (room === 'held') return LEAVES_HELD_MS;
	if (leftMs > 0) return Math.min(ROOM_AFTER_MS, leftMs);
	return link.state.name === 'online' ? ROOM_AFTER_MS : HELD_AGAIN_MS;
}

function roomForNext(current: Link, next: Link, event: Ended): Room | null {
	const { roomAtMs = Number.NEGATIVE_INFINITY } = next;
	const forMs = event.atMs - roomAtMs;
	const isSecond = endsAsSecond(next, event);
	if (current.state.name === 'online') {
		const isSame = current.registration.baseUrl === next.registration.baseUrl;
		// A handshake that is cut says too little to give a channel up for it.
		const wasTaken = isHeld(event.failure) || (event.wasOpen ?? event.closeCode !== null);
		return isSame && forMs >= ROOM_AGAIN_MS && isSecond && wasTaken ? 'wanted' : null;
	}
	// For whatever else the old one waits, it does not wait for the new one.
	if (current.state.name !== 'connectWait' || !isHeld(current.state.failure)) return null;
	const isFirst = current.state.sinceMs === roomAtMs;
	if (isSecond && forMs < (isFirst ? ROOM_FOR_MS : LEAVES_HELD_MS)) return 'again';
	return isFirst ? 'in vain' : null;
}

/** Whether a service that permits one channel ends the second one in this way, also where the place of the old one is still held. */
export function endsAsSecond(link: Link, event: Ended): boolean {
	const { state } = link;
	// A Connection that the service has issued a moment ago is not what it refuses.
	const isFresh = state.name !== 'closed' && state.backoff.registeredAtMs !== null;
	return endsEarly(link, event) && (isFresh || dispositionOf(event.failure.code) !== 'reregister');
}

function endsEarly({ state }: Link, { closeCode, wasOpen, failure: told, atMs }: Ended): boolean {
	const hasCounted = state.name === 'online' && atMs - state.sinceMs >= COUNTS_AFTER_MS;
	return !hasCounted && (closeCode !== null || wasOpen === true || told.code === 'connection-lost' || isHeld(told));
}

/** The service may end the new channel only after it has opened: by then the old one is closed. */
function roomForPromoted(current: Link, event: Ended): Room | null {
	const isJustMade = current.roomAtMs !== undefined && event.atMs - current.roomAtMs < PROMOTED_HELD_MS;
	return isJustMade && endsAsSecond(current, event) ? 'again' : null;
}

function roomBeside(current: Link, next: Link, event: Ended): Room | null {
	if (next.roomAtMs === undefined || !isHeld(failureOf(next.state))) return null;
	const isJustMade = event.atMs - next.roomAtMs < LEAVES_HELD_MS && endsEarly(current, event);
	return isJustMade || isHeld(event.failure) ? 'held' : null;
}

const isHeld = (told: Failure | null) => told?.code === 'channel-occupied';

/** What is told while the device is offline for it. */
export function madeRoom({ registration }: Link): Failure {
	const { host } = new URL(registration.baseUrl);
	const message = `${host} permits one channel of this device: the old one was closed for the new one.`;
	return failure('channel-occupied', message, { params: { host } });
}
