/** Sends replies and problems, and drops callers that neither take them nor stop writing. */
import type http from 'node:http';
import type { Readable } from 'node:stream';
import { PROBLEM_CONTENT_TYPE } from '../../protocol/problem.ts';
import type { Context } from './context.ts';
import { type ProblemResponse, toProblem } from './problem-responses.ts';

export function sendProblem(
	context: Context,
	request: http.IncomingMessage,
	response: http.ServerResponse,
	problem: ProblemResponse,
): void {
	for (const [name, value] of Object.entries(problem.headers ?? {})) response.setHeader(name, value);
	sendText(context, response, problem.status, JSON.stringify(toProblem(problem)), PROBLEM_CONTENT_TYPE);
	stopReading(context, request);
}

/** Reads on for a while: a caller that is cut off while it writes would lose the answer. */
export function stopReading(context: Context, request: http.IncomingMessage): void {
	if (request.complete) return;
	request.resume();
	const linger = setTimeout(() => request.destroy(), context.limits.lingerMs);
	request.once('close', () => clearTimeout(linger));
}

export function sendText(
	context: Context,
	response: http.ServerResponse,
	status: number,
	text: string | undefined,
	contentType = 'application/json',
): void {
	const bytes = text === undefined ? null : Buffer.from(text);
	if (bytes) response.setHeader('Content-Length', bytes.length);
	startHead(context, response, bytes ? contentType : null)
		.writeHead(status)
		.end(bytes ?? undefined);
	leaveIfStuck(context, response);
}

/**
 * Sends no faster than the caller takes it.
 * @throws the errors of the content; before its first bytes another answer is still possible.
 */
export async function sendContent(
	context: Context,
	request: http.IncomingMessage,
	response: http.ServerResponse,
	status: number,
	content: Readable,
): Promise<void> {
	const left = () => content.destroy();
	if (response.destroyed || request.method === 'HEAD') left();
	if (response.destroyed) return;
	const begin = () => {
		if (!response.headersSent) startHead(context, response, 'application/octet-stream').writeHead(status);
	};
	response.once('close', left);
	leaveIfStuck(context, response);
	try {
		if (request.method !== 'HEAD')
			for await (const chunk of content) {
				if (response.destroyed) return;
				begin();
				if (!response.write(chunk)) await untilDrained(response);
			}
		begin();
		response.end();
	} catch (error) {
		// A caller may leave in the middle: that is not a fault.
		if (!response.destroyed) throw error;
	}
}

/** Sets the headers of every answer that the route has not set. */
export function startHead(
	context: Context,
	response: http.ServerResponse,
	contentType: string | null,
): http.ServerResponse {
	if (contentType && !response.hasHeader('Content-Type')) response.setHeader('Content-Type', contentType);
	if (!response.hasHeader('Cache-Control')) response.setHeader('Cache-Control', 'no-store');
	if (context.stopping) response.setHeader('Connection', 'close');
	return response;
}

/** Drops a caller that has stopped taking what it asked for. */
export function leaveIfStuck(context: Context, response: http.ServerResponse): void {
	if (response.writableFinished) return;
	response.setTimeout(context.limits.requestMs, () => {
		// A caller is not stuck while there is nothing to take: a source may be slow.
		if (response.writableEnded || response.writableLength > 0) response.destroy();
	});
}

/** Resolves at once while the caller keeps up, else when it has caught up or left. */
export function untilDrained(response: http.ServerResponse): Promise<void> {
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
