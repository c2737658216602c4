/**
 * A request to the service through the agent, and its answer, as `fetch` has them: the platform's own `Request` reads and names the
 * body, a stream is sent as fast as the agent takes it, and the answer is a `Response`. Follows no redirect, keeps nothing.
 */
import type { IncomingMessage } from 'node:http';
import { types } from 'node:util';
import { FORWARDED_METHODS } from '../protocol/names.ts';
import { AgentProblem } from './agent-problem.ts';
import { ask, createEnding, type Ending, LOOK_FIRST, type Sent, send } from './agent-socket.edge.ts';
import { checkOptions } from './arguments.ts';

interface Agent {
	readonly socketPath: string;
	readonly deadlineMs: number;
}

export interface Asked {
	readonly method?: string | undefined;
	readonly headers?: RequestInit['headers'] | undefined;
	readonly body?: unknown;
	readonly signal?: AbortSignal | null | undefined;
}

/**
 * @throws AgentProblem `usage` or `body-invalid` before anything is sent; what the body throws; the signal's reason. `connection-lost`,
 * also while the answer is read, where the connection breaks off.
 */
export async function requestService(
	{ socketPath, deadlineMs }: Agent,
	path: string,
	asked: Asked | null,
): Promise<Response> {
	checkOptions(asked ?? {});
	const sent = await prepare(path, asked ?? {});
	const ending = createEnding(asked?.signal);
	const watched: Watched = async (waiting) => {
		const watching = setInterval(() => void lookForAgent({ socketPath, deadlineMs }, ending), deadlineMs);
		return waiting.finally(() => clearInterval(watching));
	};
	try {
		const { aborted, reason } = ending.signal;
		if (aborted && sent.payload instanceof ReadableStream) await sent.payload.cancel(reason).catch(() => {});
		ending.signal.throwIfAborted();
		return toResponse(await watched(send(socketPath, sent, ending)), sent.method, ending, watched);
	} catch (error) {
		ending.end();
		throw error;
	}
}

/** Waits for the service as long as the agent is there. */
type Watched = <Result>(waiting: Promise<Result>) => Promise<Result>;

/** How slow the service is says nothing of the agent, which answers this on its own, be it with a refusal. */
async function lookForAgent(agent: Agent, { signal, end }: Ending): Promise<void> {
	try {
		await ask(agent.socketPath, { method: 'GET', path: '/livez', deadlineMs: agent.deadlineMs, read: String, signal });
	} catch (error) {
		const isAnswered = error instanceof AgentProblem && (error.status > 0 || error.code === 'bad-response');
		if (isAnswered || signal.aborted) return;
		const message = `The agent did not answer within ${agent.deadlineMs / 1000} s.`;
		end(new AgentProblem(0, 'request-timeout', message, LOOK_FIRST, { cause: error }));
	}
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
	const head = sendable('usage', () => {
		if (typeof path !== 'string') throw new TypeError('The path is not a string');
		if (/^[/\\]{2}/.test(path)) throw new TypeError('The path begins with the name of another host');
		// As fetch encodes what a URL cannot hold, and leaves the fragment out.
		const target = path
			.replace(/^\/+/, '')
			.replace(/#.*$/s, '')
			.replace(/[^\x21-\x7e]+/g, encodeURIComponent);
		const request = new Request('http://agent', { method, headers: headers ?? {} });
		if (!FORWARDED_METHODS.some((known) => known === request.method))
			throw new TypeError(`The agent passes on ${FORWARDED_METHODS.join(', ')}, and not ${request.method}`);
		return { path: `/v1/service/${target}`, request };
	});
	const request = sendable('body-invalid', () => {
		const given = new Headers(head.request.headers);
		for (const name of OF_THE_CONNECTION) given.delete(name);
		const isData = !(body === undefined || body === null || typeof body === 'string' || isOfFetch(body));
		if (isData && !given.has('content-type')) given.set('content-type', 'application/json');
		const whole = isData ? JSON.stringify(body, refuseLoss) : (body as RequestInit['body']);
		if (isData && whole === undefined) throw unsendable('The body is nothing in JSON');
		// Node takes a stream only with `duplex`, and sends it as it comes.
		return new Request(head.request, { headers: given, body: whole ?? null, duplex: 'half' });
	});
	const sent = { method: request.method, path: head.path, headers: Object.fromEntries(request.headers) };
	if (request.body === null) return sent;
	if (body instanceof Blob) return { ...sent, payload: request.body, length: body.size };
	if (typeof body === 'object' && body !== null && isStream(body)) return { ...sent, payload: request.body };
	return { ...sent, payload: new Uint8Array(await request.arrayBuffer()) };
}

/** @throws AgentProblem with this code for what `fetch` would not send. */
function sendable<Result>(code: 'usage' | 'body-invalid', make: () => Result): Result {
	try {
		return make();
	} catch (error) {
		if (error instanceof AgentProblem) throw error;
		throw unsendable(
			`The request cannot be sent: ${error instanceof Error ? error.message : String(error)}`,
			code,
			error,
		);
	}
}

const isStream = (body: object): boolean => body instanceof ReadableStream || Symbol.asyncIterator in body;

/** A body that `fetch` takes, besides a string. An object of another library that is only like one is not. */
const isOfFetch = (body: unknown): boolean =>
	types.isStringObject(body) ||
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

function unsendable(what: string, code: 'usage' | 'body-invalid' = 'body-invalid', cause?: unknown): AgentProblem {
	const remedy = {
		usage:
			"Give what follows the service's address, such as api/scans?page=2, and a method and headers that fetch takes.",
		'body-invalid': 'Give a body that fetch takes, or plain data, and a method that takes it.',
	};
	return new AgentProblem(0, code, `${what}; nothing was sent.`, remedy[code], { cause });
}

/** Ends requests whose answers are read no more. */
const unread = new FinalizationRegistry<() => void>((end) => end());

function toResponse(answer: IncomingMessage, method: string, { signal, end }: Ending, watched: Watched): Response {
	const { statusCode: status = 0, statusMessage: statusText = '', headersDistinct } = answer;
	const pieces = answer[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
	const body = new ReadableStream({
		type: 'bytes',
		start(controller) {
			// Also while nothing is read. A signal that lasts must not hold what no one reads any more.
			const weak = new WeakRef(controller);
			signal.addEventListener('abort', () => weak.deref()?.error(signal.reason));
		},
		async pull(controller) {
			try {
				const { done, value } = await watched(pieces.next());
				signal.throwIfAborted();
				// A copy: Node's pieces share their memory, and the stream hands its own on.
				if (!done) return controller.enqueue(new Uint8Array(value));
				controller.close();
				controller.byobRequest?.respond(0);
				end();
			} catch (cause) {
				signal.throwIfAborted();
				end(new AgentProblem(0, 'connection-lost', 'The answer was cut off before its end.', LOOK_FIRST, { cause }));
				throw signal.reason;
			}
		},
		cancel: () => end(),
	});
	unread.register(body, end);
	try {
		const headers = Object.entries(headersDistinct).flatMap(([name, values = []]) =>
			values.map((value): [string, string] => [name, value]),
		);
		const isEmpty = method === 'HEAD' || status === 204 || status === 205 || status === 304;
		const response = new Response(isEmpty ? null : body, { status, statusText, headers });
		if (isEmpty) answer.resume().once('close', () => end());
		return response;
	} catch (cause) {
		const message = `The service answered with the status ${status}, in a form that a Response cannot hold.`;
		throw new AgentProblem(0, 'bad-response', message, 'Correct the service: fetch takes 200 to 599.', { cause });
	}
}
