/** The memory that applications can take at once on all sockets: how many requests there are, the bound of each kind, and their sum, in bytes. Pure. */

import { MAX_APPLICATIONS } from '../protocol/local-api.ts';

/** Requests at once on `agent.sock`. */
export const CONNECTIONS = 128;
/** Of each caller that others cannot take; an eighth of all is kept for callers that have fewer. */
const ENSURED = 4;
export const roomOf = (all: number) => ({
	ensured: ENSURED,
	kept: Math.floor(all / 8),
	all,
});

/** The requests of an application without an option. */
export const OWN_REQUESTS = 6;
/** Requests at once of all applications of the file, on their own sockets and in browsers. */
const OF_APPLICATIONS = MAX_APPLICATIONS * ENSURED;
/** Each of so many applications has the ensured requests for itself. */
export const roomOfApplications = (count: number) => ({
	ensured: ENSURED,
	more: OF_APPLICATIONS - count * ENSURED,
	all: OF_APPLICATIONS,
});

/** Characters with which a piece of events ends. Larger strings and buffers are collected late: 128 readers took 160 MB more. */
export const PIECE = 32 * 1024;
/** Bytes of a content that are escaped at once, each to six at most. */
export const STRIDE = 8 * 1024;
/** Bytes that Node reads at once, and keeps of one stream before it stops reading. */
const CHUNK = 64 * 1024;

/** Of one connection. A wait and an answer of the agent's own hold less. */
const EACH = {
	/** The piece that its reader takes, and the next. */
	eventsBytes: 2 * (3 * PIECE + 6 * STRIDE),
	/** Also unread: a chunk that comes, is searched for the Connection, waits and leaves, each way. */
	forwardedBytes: 2 * 4 * CHUNK,
} as const;

/** The most that applications take, without and with an applications file. */
export const applicationsBytes = (hasFile: boolean): number =>
	(CONNECTIONS + (hasFile ? OF_APPLICATIONS : 0)) * Math.max(EACH.eventsBytes, EACH.forwardedBytes);
