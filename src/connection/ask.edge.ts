/** One request over HTTP, and the head of its answer: tried once, within bounds. Follows no redirect. */
import { type Agent, type ClientRequest, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { readOn, sendHead } from '../base/bodies.edge.ts';
import { MAX_HEAD_BYTES } from './classify-network-error.ts';

/** How long the connection to a host or to a proxy may take, TLS included, in milliseconds. */
export const CONNECT_MS = 10_000;
/** Code of the error for a host that accepts a connection and never finishes TLS. Node has it for servers. */
export const TLS_STALLED = 'ERR_TLS_HANDSHAKE_TIMEOUT';

/** A server that speaks HTTP/2 only refuses this in the handshake and not in words. */
export const HTTP_1 = { maxHeaderSize: MAX_HEAD_BYTES, ALPNProtocols: ['http/1.1'] };
/** Of all that comes before an answer: interim answers have heads of their own. */
const MAX_BEFORE_ANSWER = 4 * MAX_HEAD_BYTES;

export interface Asked {
	readonly method: string;
	/** http or https. */
	readonly url: URL;
	/** In place of those of the URL, path and query exactly as they are asked for. */
	readonly path?: string;
	readonly headers: Readonly<Record<string, string | string[]>>;
	/** A stream has its length or `transfer-encoding` among the headers. */
	readonly body: string | Uint8Array | Readable | null;
	/** Longest silence on the connection once it stands, in milliseconds; before, it has 10 s. 0: the caller watches it. */
	readonly idleMs: number;
	/** Ends the request, and the reading of its answer, whatever they have come to. */
	readonly signal: AbortSignal;
	/** The connection may be one that was kept, and is kept in turn, unused so many milliseconds. Default: no. Never for a one-time code. */
	readonly keeps?: number;
	/** Whose requests may follow each other on a kept connection: what comes late there reaches no one else. Default: those that name no one. */
	readonly keptFor?: string;
	/** Called before the first byte is written, on a connection that stands. */
	readonly onWrite?: (socket: Socket | null) => void;
}

/** The head of an answer, and its body as a stream; `complete` is false where Node saw it cut. */
export type Answer = Readable &
	Pick<IncomingMessage, 'statusCode' | 'headers' | 'httpVersion'> & { readonly complete?: boolean };

/** The part of the network that requests go through. */
export interface RequestNetwork {
	/**
	 * Asks once, and resolves with the head of the answer.
	 * @throws the error of the connection, of `body` or of `signal`, for `classifyNetworkError`; so does the reading of the answer.
	 */
	ask(asked: Asked): Promise<Answer>;
	/** Host and port of the proxy between this device and the URL; `null` for the direct way. */
	proxyName(url: URL): string | null;
}

/** Ends the request where interim answers, or empty lines, come without end in place of its answer: Node would read them for as long as they come. */
export function boundHead(request: ClientRequest): ClientRequest {
	return request.once('socket', (socket) => {
		let bytes = 0;
		const count = (chunk: Uint8Array) => {
			bytes += chunk.length;
			if (bytes <= MAX_BEFORE_ANSWER) return;
			request.destroy(Object.assign(new Error('No answer.'), { code: 'HPE_HEADER_OVERFLOW' }));
		};
		socket.on('data', count);
		for (const event of ['response', 'upgrade', 'connect', 'close'])
			request.once(event, () => void socket.off('data', count));
	});
}

/** As {@link RequestNetwork.ask}. @param agent makes the connection. */
export async function ask(agent: Agent, asked: Asked): Promise<IncomingMessage> {
	const { method, url, path, headers, body, idleMs, signal, keptFor, onWrite = () => {} } = asked;
	// What has come unasked on a kept connection is read first: Node ends that one.
	if (asked.keeps) await new Promise(setImmediate);
	const isSecure = url.protocol === 'https:';
	return new Promise((resolve, reject) => {
		let answer: IncomingMessage | null = null;
		const end = (why: Error) => {
			clearTimeout(connecting);
			reject(why);
			answer?.destroy(why);
			request.destroy(why);
		};
		const request = (isSecure ? requestHttps : requestHttp)(url, {
			...{ method, headers, agent, keptFor, ...HTTP_1 },
			...(path !== undefined && { path }),
		});
		boundHead(request);
		// Node would drop those after the 1,000th untold; the head is bounded in bytes.
		request.maxHeadersCount = 0;
		const lost = (code: string) => end(Object.assign(new Error('No answer.'), { code }));
		// There is a socket as soon as there is a connection, before TLS.
		const connecting = setTimeout(() => lost(request.socket ? TLS_STALLED : 'ETIMEDOUT'), CONNECT_MS);
		let isInTls = isSecure;
		// The deadline of the caller may come first: the reason stays the same.
		const abort = () =>
			isInTls && request.socket && signal.reason?.name === 'TimeoutError' ? lost(TLS_STALLED) : end(signal.reason);
		const idle = () => {
			// The reader has not taken what is there.
			if (answer !== null && answer.readableLength > 0) request.socket?.setTimeout(idleMs);
			else end(new DOMException('The answer stopped.', 'TimeoutError'));
		};
		const begin = () => {
			clearTimeout(connecting);
			isInTls = false;
			request.socket?.setTimeout(idleMs).on('timeout', idle);
			onWrite(request.socket);
			if (!(body instanceof Readable)) return void request.end(body ?? undefined);
			// Who sends the body may wait for the answer to the head.
			sendHead(request);
			pipeline(body, request).catch(reject);
		};
		request.once('socket', (socket) => {
			if (request.reusedSocket) return begin();
			readOn(socket);
			if (isSecure) socket.once('secureConnect', begin);
			else if (socket.connecting) socket.once('connect', begin);
			else begin();
		});
		request.on('error', (why: NodeJS.ErrnoException) => {
			// To Node an answer without a length is whole when its connection is reset, and one that breaks HTTP a lost connection.
			if (answer?.complete === false) answer.destroy(why);
			reject(why);
		});
		request.once('response', (response) => {
			answer = response;
			// One that is not read any more may still fail.
			response.on('error', () => {});
			if ((response.statusCode ?? 0) >= 200) resolve(response);
			else lost('HPE_INVALID_STATUS');
		});
		request.once('close', () => {
			clearTimeout(connecting);
			signal.removeEventListener('abort', abort);
			request.socket?.off('timeout', idle);
			// After a 101 that was not asked for, Node says nothing else.
			if (answer === null) lost('ECONNRESET');
		});
		signal.addEventListener('abort', abort);
		if (signal.aborted) abort();
	});
}
