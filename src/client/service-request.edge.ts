/**
 * A request to the service through the agent, and its answer, as `fetch` has them: the platform's own `Request` reads and names the
 * body, a stream is sent as fast as the agent takes it, and the answer is a `Response`. Follows no redirect, keeps nothing.
 */
import type { IncomingMessage } from 'node:http';
import { types } from 'node:util';
import { AgentProblem } from './agent-problem.ts';
import { type Sent, send } from './agent-socket.edge.ts';

export interface Asked {
	readonly method?: string | undefined;
	readonly headers?: RequestInit['headers'] | undefined;
	readonly body?: unknown;
	readonly signal?: AbortSignal | null | undefined;
}

/**
 * @throws AgentProblem `body-invalid` before anything is sent; what a stream of the application throws; the signal's reason. Reading the
 * answer throws `connection-lost` where it breaks off.
 */
export async function requestService(socketPath: string, path: string, asked: Asked): Promise<Response> {
	const signal = asked.signal ?? undefined;
	const sent = await prepare(path, asked);
	if (signal?.aborted) {
		if (sent.payload instanceof ReadableStream) await sent.payload.cancel(signal.reason);
		throw signal.reason;
	}
	const answer = await send(socketPath, { ...sent, signal }).catch((error: unknown) => {
		signal?.throwIfAborted();
		throw error;
	});
	return toResponse(answer, sent.method, signal);
}

/** `fetch` does not let them be set: they belong to the connection. */
const OF_THE_CONNECTION = [
	'connection',
	'content-length',
	'expect',
	'host',
	'keep-alive',
	'te',
	'trailer',
	'transfer-encoding',
	'upgrade',
];

async function prepare(path: string, { method = 'GET', headers, body }: Asked): Promise<Sent> {
	if (typeof path !== 'string') {
		const remedy = "Give what follows the service's address, such as api/scans?page=2.";
		throw new AgentProblem(0, 'body-invalid', 'The path is not a string; nothing was sent.', remedy);
	}
	try {
		const given = new Headers(headers ?? {});
		for (const name of OF_THE_CONNECTION) given.delete(name);
		const isData = !(body === undefined || body === null || typeof body === 'string' || isOfFetch(body));
		if (isData && !given.has('content-type')) given.set('content-type', 'application/json');
		const whole = isData ? JSON.stringify(body, refuseLoss) : (body as RequestInit['body']);
		if (isData && whole === undefined) throw unsendable('The body is nothing in JSON');
		// Node takes a stream only with `duplex`, and sends it as it comes.
		const request = new Request('http://agent', { method, headers: given, body: whole ?? null, duplex: 'half' });
		// As fetch encodes what a URL cannot hold, and leaves the fragment out.
		const target = path
			.replace(/^\/+/, '')
			.replace(/#.*$/s, '')
			.replace(/[^\x21-\x7e]+/g, encodeURIComponent);
		const sent = {
			method: request.method,
			path: `/v1/service/${target}`,
			headers: Object.fromEntries(request.headers),
		};
		if (request.body === null) return sent;
		if (body instanceof Blob) return { ...sent, payload: request.body, length: body.size };
		if (typeof body === 'object' && body !== null && isStream(body)) return { ...sent, payload: request.body };
		return { ...sent, payload: new Uint8Array(await request.arrayBuffer()) };
	} catch (error) {
		if (error instanceof AgentProblem) throw error;
		throw unsendable(`The request cannot be sent: ${error instanceof Error ? error.message : String(error)}`, error);
	}
}

const isStream = (body: object): boolean => body instanceof ReadableStream || Symbol.asyncIterator in body;

/** A body that `fetch` takes, besides a string. An object of another library that is only like one is not. */
const isOfFetch = (body: unknown): boolean =>
	types.isAnyArrayBuffer(body) ||
	ArrayBuffer.isView(body) ||
	[Blob, FormData, URLSearchParams].some((kind) => body instanceof kind) ||
	(typeof body === 'object' && body !== null && isStream(body));

/** For `JSON.stringify`, which makes `{}` or `null` of what it does not know, or passes over it. */
function refuseLoss(this: Readonly<Record<string, unknown>>, key: string, value: unknown): unknown {
	const subject = key === '' ? 'The body' : `"${key}" in the body`;
	if (typeof value === 'number' && !Number.isFinite(value))
		throw unsendable(`${subject} is ${value}, which JSON cannot hold`);
	const given = this[key];
	if (given instanceof Date && Number.isNaN(given.getTime()))
		throw unsendable(`${subject} is a date without a time, which JSON cannot hold`);
	const isPlain = /^\[object (Object|Array|String|Number|Boolean|Null|Undefined|BigInt)\]$/;
	const tag = Object.prototype.toString.call(value);
	const isRead = typeof value === 'object' && value !== null && (isStream(value) || 'pipe' in value);
	if (isPlain.test(tag) && !isRead) return value;
	const kind = isRead ? 'a stream' : `of the kind ${tag.slice(8, -1)}`;
	throw unsendable(`${subject} is ${kind}, which JSON cannot hold`);
}

function unsendable(what: string, cause?: unknown): AgentProblem {
	const remedy = 'Give a body that fetch takes, or plain data, and a method that takes it.';
	return new AgentProblem(0, 'body-invalid', `${what}; nothing was sent.`, remedy, { cause });
}

function toResponse(answer: IncomingMessage, method: string, signal: AbortSignal | undefined): Response {
	const { statusCode: status = 0, statusMessage: statusText = '', headersDistinct } = answer;
	const pieces = answer[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
	const body = new ReadableStream({
		type: 'bytes',
		// Also while nothing is read.
		start: (controller) => signal?.addEventListener('abort', () => controller.error(signal.reason), { once: true }),
		async pull(controller) {
			try {
				const { done, value } = await pieces.next();
				signal?.throwIfAborted();
				// A copy: Node's pieces share their memory, and the stream hands its own on.
				if (!done) return controller.enqueue(new Uint8Array(value));
				controller.close();
				controller.byobRequest?.respond(0);
			} catch (cause) {
				if (signal?.aborted) throw signal.reason;
				const remedy = 'Look whether the service has carried the request out before you repeat it.';
				throw new AgentProblem(0, 'connection-lost', 'The answer broke off before its end.', remedy, { cause });
			}
		},
		cancel: () => void answer.destroy(),
	});
	try {
		const headers = Object.entries(headersDistinct).flatMap(([name, values = []]) =>
			values.map((value): [string, string] => [name, value]),
		);
		const isEmpty = method === 'HEAD' || status === 204 || status === 205 || status === 304;
		const response = new Response(isEmpty ? null : body, { status, statusText, headers });
		if (isEmpty) answer.resume();
		return response;
	} catch (cause) {
		answer.destroy();
		const message = `The service answered with the status ${status}, in a form that a Response cannot hold.`;
		throw new AgentProblem(status, 'bad-response', message, 'Correct the service: fetch takes 200 to 599.', { cause });
	}
}
