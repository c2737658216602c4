/** The contract of routes and the local server: routes, requests, replies, streams, limits. Holds no behaviour. */
import type http from 'node:http';
import type * as z from 'zod';
import type { Failure } from '../../base/errors.ts';
import type { LOCAL_SOCKETS } from '../../protocol/local-api.ts';
import { CONNECTIONS } from '../memory-budget.ts';
import type { BrowserApplication } from './browser-applications.edge.ts';
import type { ProblemResponse } from './problem-responses.ts';
import type { Room } from './room.edge.ts';

/** A Unix socket. */
export type LocalSocket = keyof typeof LOCAL_SOCKETS;
/** On loopback `browser`, for applications, `probe`, for monitoring, and `page`, for the device's own screen. */
export type LocalListener = LocalSocket | 'browser' | 'probe' | 'page';
export type LocalMethod = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface LocalRequest<Body = unknown> {
	/** The listener on which it arrived: a caller that may ask there may ask this. */
	readonly listener: LocalListener;
	/** The application of the file that asks; `null` for a caller on a shared socket. */
	readonly application: BrowserApplication | null;
	/** `GET` for a `HEAD` request: its body is left out on the way back. */
	readonly method: LocalMethod;
	readonly path: string;
	readonly query: URLSearchParams;
	readonly headers: http.IncomingHttpHeaders;
	/** The body as the route's schema has parsed it; `undefined` for a route without one; {@link RawExchange} for a raw one. */
	readonly body: Body;
	/**
	 * The newest event that the caller has: `Last-Event-ID`, else `?since=`, else `null`. The header takes precedence because a
	 * browser's EventSource repeats the first URL, with its old `since`, after every loss.
	 */
	readonly since: string | null;
	/** Aborted when the caller is gone or the server is closed by force; also, harmlessly, after the answer. */
	readonly signal: AbortSignal;
}

/** In place of a body, for a route that passes bodies on and must not wait for a whole one. */
export interface RawExchange {
	/** Its body is unread. A browser application's own token has been taken off. */
	readonly request: http.IncomingMessage;
	/** For a handler that answers on its own and then replies `{ answered: true }`. */
	readonly response: http.ServerResponse;
	/** The part after the route's path (without a slash at its end) in the request line, undecoded, with the query: `/a?b=c`. */
	readonly target: string;
}

/** One event of a stream. */
export interface StreamEvent {
	readonly id?: string;
	readonly event?: string;
	/** JSON; line ends in it become several `data:` lines. */
	readonly data: string;
}

/**
 * Why a stream is over; the last event, `event: closed`, carries it as `{"reason": …}`. `slow`: the consumer did not
 * read fast enough and reconnects with its last id. `stopping`: the agent stops. `failed`: a fault; reconnect.
 * `no-progress`: a fault by which events would come again and again; the last id is of no use.
 */
export type StreamEnd = 'slow' | 'stopping' | 'finished' | 'no-progress' | (string & {});

/** One consumer of an event stream. Nothing here throws. */
export interface EventSink {
	/** `false` once the stream is over, also when this very event was one too many for a slow consumer. */
	send(event: StreamEvent): boolean;
	/** Several at once, written down by `formatEvent` once for all consumers; each whole. As {@link EventSink.send}. */
	sendAll(...frames: readonly Buffer[]): boolean;
	/** A part of a frame; whatever ends the stream before the last part ends it without `event: closed`, as nothing whole was sent. */
	sendPart(part: Buffer, isLast: boolean): boolean;
	/** Ends the stream with `event: closed`; default reason `finished`. */
	close(reason?: StreamEnd): void;
	/** Whether so much waits for the consumer that it had better come later: half of what may. */
	readonly isBehind: boolean;
	/** Resolves at once while the consumer keeps up, else when it has caught up, is gone, or is closed as `slow`: for a long replay. */
	drained(): Promise<void>;
}

/** Headers of a reply. They take precedence over those of the server: `Content-Type`, and `Cache-Control: no-store`. */
export type ReplyHeaders = Readonly<Record<string, string | readonly string[]>>;

export type LocalReply =
	/** `body` becomes JSON; `undefined` sends none. */
	| { readonly status: number; readonly headers?: ReplyHeaders; readonly body?: unknown }
	/** JSON that is written down already and goes out untouched, piece by piece as the caller takes it. */
	| { readonly status: number; readonly headers?: ReplyHeaders; readonly json: AsyncIterable<Uint8Array> }
	/** `text/plain; charset=utf-8`, unless the headers say otherwise; bytes go out untouched. */
	| { readonly status: number; readonly headers?: ReplyHeaders; readonly text: string | Uint8Array }
	/** A Server-Sent Events stream. Returns a function that is called exactly once when the stream is over. */
	| { readonly stream: (sink: EventSink) => () => void }
	/** A raw route has answered on its own. */
	| { readonly answered: true }
	/** For a failure whose status or headers are not those of its code. */
	| ProblemResponse;

export interface LocalRoute<Body = unknown> {
	/** `*` for each of them, and `HEAD`. */
	readonly method: LocalMethod | '*';
	/** Compared exactly, as it is in the request line, without the query. */
	readonly path: string;
	/** Also takes every path that begins with `path`, which then ends in a slash. An exact path wins, then a longer prefix. */
	readonly prefix?: boolean;
	readonly listeners: readonly LocalListener[];
	/** Left out, a body is read and ignored. `raw`: it is not read, and has no limit but the handler's own. */
	readonly body?: z.ZodType<Body> | 'raw';
	/** An AgentError becomes its problem document; anything else thrown becomes `internal` and nothing more. */
	handle(request: LocalRequest<Body>): Promise<LocalReply> | LocalReply;
}

/** Ties a handler's body to its schema. */
export function localRoute<Body>(route: LocalRoute<Body>): LocalRoute {
	return route as LocalRoute;
}

export const LOCAL_SERVER_LIMITS = {
	/** Requests at once, where the room is not given. */
	connections: CONNECTIONS,
	bodyBytes: 16 * 1024,
	headerBytes: 8 * 1024,
	/**
	 * How long the headers, and then the body, may take to arrive (not a raw one), and a caller to take some more of an
	 * answer. Checked from time to time.
	 */
	requestMs: 15_000,
	/**
	 * Bytes that may wait for one consumer of a stream before it is closed as `slow`. One event is always allowed. A consumer
	 * that something waits for, and that takes nothing from one keep-alive to the next, is `slow` as well.
	 */
	streamQueueBytes: 1024 * 1024,
	/** Between comments on a quiet stream; none are sent while there is no stream. */
	keepAliveMs: 15_000,
	/** How long a caller may continue to write after its answer. */
	lingerMs: 1000,
	/** How long requests under way have when the server closes. */
	closeGraceMs: 1000,
} as const;
export type LocalServerLimits = { readonly [Name in keyof typeof LOCAL_SERVER_LIMITS]: number };

export interface ServingOptions {
	readonly routes: readonly LocalRoute[];
	readonly limits?: Partial<LocalServerLimits>;
	/** For all listeners that share it. */
	readonly room?: Room;
	/** Called with the cause of every answer `internal`, and with faults that have no caller. */
	readonly onFault?: (error: unknown) => void;
}

export interface LocalServerOptions extends ServingOptions {
	/** Holds both sockets; made with mode 0755 if it is missing. */
	readonly runDir: string;
	/** A name from /etc/group or a number. Left out, the group is the process's own. */
	readonly groups?: { readonly [Name in LocalSocket]?: string | number };
	/** Sockets that systemd has opened: taken as they are, with its permissions, and not removed at the end. */
	readonly listen?: { readonly [Name in LocalSocket]?: { readonly fd: number } };
}

export interface LocalServer {
	/** Failures that did not keep the server from opening: a group that could not be given a socket. */
	readonly notices: readonly Failure[];
	/** Ends streams as `stopping`, gives requests under way a second, removes the sockets. */
	close(): Promise<void>;
}
