/**
 * Sends replies, problems and event streams, and drops callers that neither take them nor stop writing. Never waits for a
 * slow consumer of a stream: each has one bounded queue.
 */
import http from 'node:http';
import net from 'node:net';
import { problemDocument } from '../../base/sentences.ts';
import { PROBLEM_CONTENT_TYPE } from '../../protocol/problem.ts';
import { effectHeader } from './forward-problems.ts';
import { onTheWay } from './peer.edge.ts';
import type { ProblemResponse } from './problem-responses.ts';
import { isForService } from './routing.edge.ts';
import type { EventSink, LocalServerLimits, StreamEnd, StreamEvent } from './types.edge.ts';

/** The part of an open server that its answers share. */
export interface Answering {
	readonly limits: LocalServerLimits;
	readonly fault: (error: unknown) => void;
	/** Ends one stream each. */
	readonly streams: Set<(reason: StreamEnd) => void>;
	stopping: boolean;
}

type Response = http.ServerResponse;

export function sendProblem(context: Answering, response: Response, problem: ProblemResponse): void {
	const { failure, status, headers = {}, errors } = problem;
	const all = { ...(isForService(response.req) && effectHeader('none')), ...headers };
	for (const [name, value] of Object.entries(all)) response.setHeader(name, value);
	const document = problemDocument(failure, { status, title: http.STATUS_CODES[status] ?? 'Error' }, errors);
	sendText(context, response, status, JSON.stringify(document), PROBLEM_CONTENT_TYPE);
	stopReading(context, response.req);
}

/** Reads on for a while, and while the answer is taken: a caller that is cut off while it writes would lose what is still on the way. */
export function stopReading({ limits }: Answering, request: http.IncomingMessage): void {
	if (request.complete) return;
	// With a listener it also flows on when a reader of pieces leaves it.
	request.on('data', () => {}).resume();
	let [before, unchangedMs] = [0, 0];
	const linger = setInterval(() => {
		const left = onTheWay(request.socket);
		unchangedMs = left === before ? unchangedMs + limits.lingerMs : 0;
		before = left;
		if (left === 0 || unchangedMs >= limits.requestMs) request.destroy();
	}, limits.lingerMs);
	request.once('close', () => clearInterval(linger));
}

/** So for a connection that ends with the answer, too: Node would close it for reading at once. */
export function endInOrder(request: http.IncomingMessage): void {
	const { socket } = request;
	socket.destroySoon = () => {
		if (request.complete) net.Socket.prototype.destroySoon.call(socket);
		else socket.end();
	};
}

export function sendText(
	context: Answering,
	response: Response,
	status: number,
	text: string | Uint8Array | AsyncIterable<Uint8Array> | undefined,
	contentType = 'application/json',
): void {
	if (typeof text === 'object' && Symbol.asyncIterator in text) return void sendPieces(context, response, status, text);
	const bytes = typeof text === 'string' ? Buffer.from(text) : text;
	if (bytes) response.setHeader('Content-Length', bytes.length);
	startHead(context, response, bytes ? contentType : null)
		.writeHead(status)
		.end(bytes);
	leaveIfStuck(context, response);
}

/** The next piece is asked for when the caller has taken those before: nothing else of a large answer is in memory. */
async function sendPieces(
	context: Answering,
	response: Response,
	status: number,
	pieces: AsyncIterable<Uint8Array>,
): Promise<void> {
	const iterator = pieces[Symbol.asyncIterator]();
	try {
		let [now, next] = [await iterator.next(), await iterator.next()];
		if (next.done) sendText(context, response, status, now.value);
		else {
			startHead(context, response, 'application/json').writeHead(status);
			if (response.req.method === 'HEAD') now = { done: true, value: undefined };
			leaveIfStuck(context, response);
			for (; !now.done && !response.destroyed; [now, next] = [next, await iterator.next()]) {
				response.write(now.value);
				await untilDrained(response);
			}
			response.end();
		}
	} catch (error) {
		// Its length is not told: only a cut says that this is not all.
		if (!(error instanceof OvertakenError)) context.fault(error);
		response.destroy();
	} finally {
		await iterator.return?.();
	}
}

const lengthOf = (pieces: readonly Uint8Array[]) => pieces.reduce((sum, { length }) => sum + length, 0);

/** Sets the headers of every answer that the route has not set. */
function startHead(context: Answering, response: Response, contentType: string | null): Response {
	if (contentType && !response.hasHeader('Content-Type')) response.setHeader('Content-Type', contentType);
	if (!response.hasHeader('Cache-Control')) response.setHeader('Cache-Control', 'no-store');
	if (context.stopping) response.setHeader('Connection', 'close');
	return response;
}

/** @returns whether the caller has taken nothing of what waits for it since the last call; of the first, `false`. */
function watchTaken({ socket }: Response): () => boolean {
	let before = '';
	return () => {
		// The kernel takes more only when three quarters of what it holds for a Unix socket have been read.
		const now = socket ? `${socket.bytesWritten - socket.writableLength} ${onTheWay(socket)}` : '';
		const isStuck = now === before;
		before = now;
		return isStuck;
	};
}

/** Drops a caller that has stopped taking what it asked for. */
function leaveIfStuck(context: Answering, response: Response): void {
	if (response.writableFinished) return;
	const { requestMs } = context.limits;
	const isStuck = watchTaken(response);
	isStuck();
	response.setTimeout(requestMs, () => {
		// A caller is not stuck while there is nothing to take: a source may be slow.
		const waits = response.writableEnded || response.writableLength > 0;
		if (waits && isStuck()) response.destroy();
		else response.setTimeout(requestMs);
	});
}

/** Resolves at once while the caller keeps up, else when it has caught up or left. */
function untilDrained(response: Response): Promise<void> {
	if (response.destroyed || !response.writableNeedDrain) return Promise.resolve();
	return new Promise((resolve) => {
		const done = () => {
			response.removeListener('drain', done);
			response.removeListener('close', done);
			resolve();
		};
		response.once('drain', done);
		response.once('close', done);
	});
}

/** A comment of a stream. */
const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

/** A record that a slow reader asked for has made room for another one: its answer is cut off, and nothing is wrong. */
export class OvertakenError extends Error {}

export function openStream(context: Answering, response: Response, start: (sink: EventSink) => () => void): void {
	if (response.req.method === 'HEAD') {
		startHead(context, response, 'text/event-stream').writeHead(200).end();
		return;
	}
	let over = false;
	/** Whether a frame is begun and not ended. */
	let isMidway = false;
	const isStuck = watchTaken(response);
	let cleanUp: (() => void) | null = null;

	const finish = () => {
		if (over) return false;
		over = true;
		clearInterval(beats);
		context.streams.delete(end);
		runCleanUp();
		return true;
	};
	const runCleanUp = () => {
		try {
			cleanUp?.();
		} catch (error) {
			context.fault(error);
		}
	};
	const end = (reason: StreamEnd) => {
		if (!finish() || response.destroyed) return;
		response.end(isMidway ? undefined : formatEvent({ event: 'closed', data: JSON.stringify({ reason }) }));
		leaveIfStuck(context, response);
	};
	const write = (...frames: readonly Buffer[]) => {
		if (over || response.destroyed) return false;
		const queued = response.writableLength;
		if (queued > 0 && queued + lengthOf(frames) > context.limits.streamQueueBytes) {
			end('slow');
			return false;
		}
		for (const frame of frames) response.write(frame);
		return true;
	};
	const beats = setInterval(() => {
		const hasTaken = !isStuck();
		if (response.writableLength > 0 && !hasTaken) end('slow');
		else if (response.writableLength === 0 && !isMidway) write(KEEP_ALIVE);
	}, context.limits.keepAliveMs).unref();

	response.setHeader('Content-Type', 'text/event-stream');
	response.setHeader('Cache-Control', 'no-store');
	response.setHeader('Connection', 'close');
	response.once('close', finish);
	context.streams.add(end);
	try {
		cleanUp = start({
			send: (event) => write(formatEvent(event)),
			sendAll: write,
			sendPart(part, isLast) {
				isMidway = !isLast;
				return write(part);
			},
			close: (reason = 'finished') => end(reason),
			get isBehind() {
				return response.writableLength > context.limits.streamQueueBytes / 2;
			},
			drained: () => untilDrained(response),
		});
	} catch (error) {
		finish();
		throw error;
	}
	// It may have ended before there was anything to clean up.
	if (over) runCleanUp();
	else if (context.stopping) end('stopping');
	else response.flushHeaders();
}

/** An event as it travels in a stream. */
export function formatEvent({ id, event, data }: StreamEvent): Buffer {
	const oneLine = (text: string) => text.replaceAll(/[\r\n\0]/g, '');
	const idLine = id === undefined ? '' : `id: ${oneLine(id)}\n`;
	const eventLine = event === undefined ? '' : `event: ${oneLine(event)}\n`;
	return Buffer.from(`${idLine}${eventLine}data: ${data.replaceAll(/\r\n|[\r\n]/g, '\ndata: ')}\n\n`);
}
