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
/** For so long the old channel leaves a place that is still held to the new one, which tries every 5 to 30 s. */
export const LEAVES_HELD_MS = 2 * 60_000;
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
	return next ? roomBeside(next, event) : roomForPromoted(current, event);
}

/** When the new channel is tried again after this end: as long as that is in time, the last time sooner. */
export function againAfterMs({ roomAtMs = Number.NEGATIVE_INFINITY }: Link, { atMs }: Ended): number {
	const leftMs = roomAtMs + ROOM_FOR_MS - atMs;
	return leftMs > 0 ? Math.min(ROOM_AFTER_MS, leftMs) : ROOM_AFTER_MS;
}

function roomForNext(current: Link, next: Link, event: Ended): Room | null {
	const { roomAtMs = Number.NEGATIVE_INFINITY } = next;
	const forMs = event.atMs - roomAtMs;
	if (current.state.name === 'online') {
		const isSame = current.registration.baseUrl === next.registration.baseUrl;
		return isSame && forMs >= ROOM_AGAIN_MS && looksSecond(next, event) ? 'wanted' : null;
	}
	// For whatever else the old one waits, it does not wait for the new one.
	if (current.state.name !== 'connectWait' || current.state.sinceMs !== roomAtMs) return null;
	return forMs < ROOM_FOR_MS && looksSecond(next, event) ? 'again' : 'in vain';
}

/** Whether a service that permits one channel ends the second one in this way. */
function looksSecond(next: Link, event: Ended): boolean {
	const { closeCode, wasOpen = closeCode !== null } = event;
	return isHeld(event.failure) || (wasOpen && isTrusted(next, event));
}

/** A Connection that the service has issued a moment ago is not what it refuses. */
function isTrusted({ state }: Link, { failure: { code } }: Ended): boolean {
	return dispositionOf(code) !== 'reregister' || (state.name !== 'closed' && state.backoff.registeredAtMs !== null);
}

/** The service may end the new channel only after it has opened: by then the old one is closed. */
function roomForPromoted(current: Link, event: Ended): Room | null {
	const {
		closeCode,
		failure: { code },
		atMs,
	} = event;
	const isJustMade = current.roomAtMs !== undefined && atMs - current.roomAtMs < COUNTS_AFTER_MS;
	const mayBeSecond = closeCode !== null || code === 'connection-lost' || isHeld(event.failure);
	return isJustMade && mayBeSecond && isTrusted(current, event) ? 'again' : null;
}

function roomBeside(next: Link, event: Ended): Room | null {
	return next.roomAtMs !== undefined && isHeld(event.failure) && isHeld(failureOf(next.state)) ? 'held' : null;
}

const isHeld = (told: Failure | null) => told?.code === 'channel-occupied';

/** What is told while the device is offline for it. */
export function madeRoom({ registration }: Link): Failure {
	const { host } = new URL(registration.baseUrl);
	const message = `${host} permits one channel of this device: the old one was closed for the new one.`;
	return failure('channel-occupied', message, { params: { host } });
}
