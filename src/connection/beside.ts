/** The events of a link in the light of the other one. Pure. */
import { dispositionOf, type ErrorCode, failure } from '../base/errors.ts';
import { COUNTS_AFTER_MS, RECENTLY_MS } from './backoff.ts';
import { type Connection, connectionOf, hasCounted, type LinkEvent, lastOnlineAtMs } from './link.ts';
import { isAwayForRoom } from './room.ts';
import {
	isSameLink,
	isSameWay,
	type Link,
	type Registration,
	type Supervision,
	servesRegistration,
} from './supervision.ts';

/** Answers that speak of what was asked for: that another registration works says nothing against them. */
const ABOUT_THE_REQUEST: ReadonlySet<ErrorCode> = new Set([
	'workflow-unknown',
	'request-rejected',
	'access-forbidden',
	'answer-unreadable',
]);

/** Whether a channel of the current link has counted by the way that a new one takes to the same service. */
export function hasCountedBeside(registration: Registration, { current }: Supervision, atMs: number): boolean {
	const isHere = current?.registration.baseUrl === registration.baseUrl;
	return isHere && isSameWay(current.registration, registration) && hasCounted(current.state, atMs);
}

/** Whether a new link goes another way than the one that there is, or to another service: a channel that opens does not show yet that it lasts. */
export function goesElsewhere(registration: Registration, { current }: Pick<Supervision, 'current'>): boolean {
	const before = current?.registration ?? registration;
	return before.baseUrl !== registration.baseUrl || !isSameWay(before, registration);
}

/** Beside a channel that works there is time: services wait some seconds for what they want to hear first, and end a channel only then. */
const TRIED_FOR_MS = { least: COUNTS_AFTER_MS, most: 15_000 } as const;

/**
 * How long a channel by other settings, or at another address, must last beside the link that worked, also while that one is just away: else
 * one end of it would do. The usual where the old channel is closed for this one. `undefined` for a channel that is not tried.
 */
export function proveAfterMs(generation: number, { current, next }: Supervision, limitMs: number): number | undefined {
	if (!current || next?.generation !== generation || next.reason === 'pairing') return;
	if (!goesElsewhere(next.registration, { current })) return;
	if (next.roomAtMs !== undefined && isAwayForRoom(current)) return COUNTS_AFTER_MS;
	return Math.max(TRIED_FOR_MS.least, Math.min(TRIED_FOR_MS.most, limitMs / 4));
}

/** For so long after a registration it is what the service ends the old channel for. */
const FOLLOWS_MS = 10_000;

/** The event as the link is told it; `null` where the link has nothing to do with it. */
export function asSeenBeside(supervision: Supervision, link: Link, event: LinkEvent): LinkEvent | null {
	const { current } = supervision;
	if (link === current) return asSuperseded(supervision, link, event);
	if (!current || (event.type !== 'registerFailed' && event.type !== 'channelEnded')) return event;
	const onlineAtMs = lastOnlineAtMs(current.state, event.atMs);
	const isKnown = current.registration.baseUrl === link.registration.baseUrl && onlineAtMs !== null;
	if (!isKnown || event.atMs - onlineAtMs >= RECENTLY_MS) return event;
	const isSame = isSameLink(current.registration, link.registration);
	return { ...event, wasOnline: isSame || !ABOUT_THE_REQUEST.has(event.failure.code) };
}

/**
 * When the service ends the old link because the new one has registered, nothing was refused. Its answer may still be on the way: if the
 * registration fails, the old Connection has been tried once more.
 */
function asSuperseded(supervision: Supervision, link: Link, event: LinkEvent): LinkEvent | null {
	const { next } = supervision;
	if (next === null || next.state.name === 'blocked') return event;
	if (next.registration.baseUrl !== link.registration.baseUrl) return event;
	const connection = connectionOf(next.state);
	const registeredAtMs = 'backoff' in next.state ? next.state.backoff.registeredAtMs : null;
	// With the same one, that is only shown in another way, nothing has registered, or what has is refused as well.
	const isRegistered = connection !== null && connection.token !== connectionOf(link.state)?.token;
	if (!isRegistered && next.state.name !== 'registering') return event;
	if (event.type === 'connectionRevoked') return isRegistered ? null : event;
	if (event.type !== 'channelEnded' || dispositionOf(event.failure.code) !== 'reregister') return event;
	// Otherwise the words of the service stay: an old Connection also expires while the new one is on its way.
	if (registeredAtMs === null || event.atMs - registeredAtMs >= FOLLOWS_MS) return { ...event, isFollowed: true };
	const message = 'The service ended the old channel because of the new registration.';
	return { ...event, failure: failure('connection-replaced', message) };
}

/**
 * The new Connection of a next link whose own way fails, for a current one whose own was refused and that waits: only the channel is
 * opened in another way, and the way from before may bring it online. `null` for none.
 */
export function sharedConnection({ current, next }: Supervision): Connection | null {
	// The Connection of a code stays with its own link, whatever becomes of the other one.
	if (!current || next?.reason !== 'desired' || !waitsRefused(current)) return null;
	const connection = connectionOf(next.state);
	if (!connection || !('untilMs' in next.state) || connection.token === connectionOf(current.state)?.token) return null;
	// Another cadence is good until the device registers with its own.
	const { heartbeatCadence } = current.registration.request;
	const made = { ...next.registration, request: { ...next.registration.request, heartbeatCadence } };
	return servesRegistration(made, current.registration) ? { ...connection, savedAgain: true } : null;
}

function waitsRefused({ state }: Link): boolean {
	if (!('untilMs' in state) || state.name === 'blocked') return false;
	const { code } = state.failure;
	return code === 'connection-replaced' || dispositionOf(code) === 'reregister';
}
