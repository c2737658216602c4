/** The state that the parts of an open server share: its routes and limits, its open answers and streams; and its end. */
import type http from 'node:http';
import type { Duplex } from 'node:stream';
import type { ProblemResponse } from './problem-responses.ts';
import {
	LOCAL_SERVER_LIMITS,
	type LocalReply,
	type LocalRoute,
	type LocalServerLimits,
	type ServingOptions,
	type StreamEnd,
} from './types.ts';

/** Decides on a request before its route is searched. `null` lets it in; headers set here stay on every answer. */
export type Authorize = (
	request: http.IncomingMessage,
	response: http.ServerResponse,
) => LocalReply | ProblemResponse | null;

export interface Context {
	readonly routes: readonly LocalRoute[];
	/** The directory of the Unix sockets; `null` for callers that cannot use them. */
	readonly runDir: string | null;
	readonly authorize: Authorize;
	readonly limits: LocalServerLimits;
	readonly fault: (error: unknown) => void;
	/** Answers that are under way, streams included, by connection. */
	readonly pending: Map<Duplex, Set<http.ServerResponse>>;
	readonly streams: Streams;
	stopping: boolean;
	/** Set while the end waits for the last answer. */
	whenIdle: (() => void) | null;
}

export interface OpenStream {
	end(reason: StreamEnd): void;
	beat(): void;
}

/** The consumers that are connected, and the one timer for all of them. */
export interface Streams {
	add(stream: OpenStream): void;
	delete(stream: OpenStream): void;
	closeAll(reason: StreamEnd): void;
}

export function createContext(options: ServingOptions, more: Pick<Context, 'runDir' | 'authorize'>): Context {
	const limits = { ...LOCAL_SERVER_LIMITS, ...options.limits };
	return {
		...more,
		routes: options.routes,
		limits,
		fault: options.onFault ?? (() => {}),
		pending: new Map(),
		streams: createStreams(limits.keepAliveMs),
		stopping: false,
		whenIdle: null,
	};
}

function createStreams(keepAliveMs: number): Streams {
	const open = new Set<OpenStream>();
	let timer: NodeJS.Timeout | undefined;
	return {
		add(stream) {
			open.add(stream);
			timer ??= setInterval(() => {
				for (const each of open) each.beat();
			}, keepAliveMs).unref();
		},
		delete(stream) {
			open.delete(stream);
			if (open.size > 0) return;
			clearInterval(timer);
			timer = undefined;
		},
		closeAll(reason) {
			for (const stream of [...open]) stream.end(reason);
		},
	};
}

/** Ends streams as `stopping`, gives requests under way their time, and closes what is left. */
export async function shutDown(context: Context, servers: readonly http.Server[]): Promise<void> {
	context.stopping = true;
	context.streams.closeAll('stopping');
	const ended = Promise.all(servers.map(closeServer));
	if (context.pending.size > 0) {
		await new Promise<void>((resolve) => {
			const grace = setTimeout(resolve, context.limits.closeGraceMs);
			context.whenIdle = () => {
				clearTimeout(grace);
				resolve();
			};
		});
	}
	for (const server of servers) server.closeAllConnections();
	await ended;
}

export function closeServer(server: http.Server): Promise<void> {
	return new Promise((resolve) => server.close(() => resolve()));
}
