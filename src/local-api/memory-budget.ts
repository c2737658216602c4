/** The memory that applications can take at once on `agent.sock`: the bound of each kind of request, and their sum, in bytes. Pure. */

/** Open connections for each socket. */
export const CONNECTIONS = 128;
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

export const APPLICATIONS_BYTES = CONNECTIONS * Math.max(EACH.eventsBytes, EACH.forwardedBytes);
