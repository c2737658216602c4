/** Answers as data, and putting one on the wire, whole or cut off. Decides nothing about what is answered. */
import { type IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { PROBLEM_CONTENT_TYPE, type ProblemDocument } from '../protocol/problem.ts';
import type { FailedAnswer } from './faults.ts';
import { ProblemResponse } from './problems.ts';

export interface Answer {
	readonly status: number;
	readonly headers: Readonly<Record<string, string>>;
	readonly body: string | Uint8Array;
}

export function jsonAnswer(status: number, document: unknown): Answer {
	return { status, headers: { 'content-type': 'application/json' }, body: JSON.stringify(document) };
}

export function contentAnswer(contentType: string, body: string | Uint8Array): Answer {
	return { status: 200, headers: { 'content-type': contentType }, body };
}

/** Any thrown value as an answer; everything but a {@link ProblemResponse} is a fault of this service and shows no details. */
export function problemAnswer(error: unknown): Answer {
	const refusal =
		error instanceof ProblemResponse
			? error
			: new ProblemResponse('internal', 'The embedded service failed on this request.');
	const headers = { 'content-type': PROBLEM_CONTENT_TYPE, ...refusal.headers };
	return { status: refusal.problem.status, headers, body: JSON.stringify(refusal.problem) };
}

/** The answer of an injected fault. */
export function failedAnswer({ status, headers = {}, body }: FailedAnswer): Answer {
	const named = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
	if (body === undefined && status >= 400) {
		const problem: ProblemDocument = { status, title: STATUS_CODES[status] ?? 'Failed', detail: 'An injected fault.' };
		return { status, headers: { 'content-type': PROBLEM_CONTENT_TYPE, ...named }, body: JSON.stringify(problem) };
	}
	if (body === undefined || typeof body === 'string' || body instanceof Uint8Array)
		return { status, headers: named, body: body ?? '' };
	const answer = jsonAnswer(status, body);
	return { ...answer, headers: { ...answer.headers, ...named } };
}

/** The same answer, compressed. */
export function gzipAnswer(answer: Answer): Answer {
	if (answer.body.length === 0) return answer;
	return { ...answer, headers: { ...answer.headers, 'content-encoding': 'gzip' }, body: gzipSync(answer.body) };
}

/** Sends it whole. Answers may carry secrets, so none may be stored on the way. */
export function sendAnswer(response: ServerResponse, answer: Answer): void {
	response.writeHead(answer.status, headersOf(answer));
	response.end(answer.body);
}

/** Sends the head and half of the body, then cuts the line: the peer knows that there was an answer, not which. */
export function sendHalfAnswer(response: ServerResponse, answer: Answer): void {
	const body = Buffer.from(answer.body);
	response.writeHead(answer.status, headersOf(answer));
	response.flushHeaders();
	response.write(body.subarray(0, Math.floor(body.length / 2)), () => response.socket?.destroySoon());
}

/** A response for a socket that left HTTP by an upgrade request which is not granted. */
export function responseFor(request: IncomingMessage, socket: Socket): ServerResponse {
	const response = new ServerResponse(request);
	response.shouldKeepAlive = false;
	response.assignSocket(socket);
	response.on('finish', () => {
		response.detachSocket(socket);
		socket.destroySoon();
	});
	return response;
}

/** The same for a request that could not even be parsed. */
export function sendUnparsed(socket: Socket, answer: Answer): void {
	const headers = Object.entries({ ...headersOf(answer), connection: 'close' });
	const head = [
		`HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? ''}`,
		...headers.map(([name, value]) => `${name}: ${value}`),
	];
	socket.write(`${head.join('\r\n')}\r\n\r\n${answer.body}`);
	socket.destroySoon();
}

function headersOf(answer: Answer): Record<string, string> {
	return {
		'cache-control': 'no-store',
		'x-content-type-options': 'nosniff',
		'content-length': String(Buffer.byteLength(answer.body)),
		...answer.headers,
	};
}
