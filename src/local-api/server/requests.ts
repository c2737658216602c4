/** One HTTP server on the route table: finds the route, reads the body, calls the handler and sends the reply. */
import http from 'node:http';
import { AgentError } from '../../base/errors.ts';
import { sendContent, sendProblem, sendText, startHead, stopReading } from './answers.ts';
import { readBody, readJson } from './bodies.ts';
import type { Context } from './context.ts';
import { type ProblemResponse, problemResponse, rawProblem, toProblemResponse } from './problem-responses.ts';
import { findRoute } from './routing.ts';
import { openStream } from './streams.ts';
import type { LocalListener, LocalMethod, LocalReply, LocalRoute, RawExchange } from './types.ts';

/** Not listening yet. */
export function createServer(context: Context, listener: LocalListener): http.Server {
	const { limits, pending } = context;
	const serve: http.RequestListener = (request, response) => {
		const { socket } = request;
		const answers = pending.get(socket) ?? new Set();
		pending.set(socket, answers.add(response));
		response.once('close', () => {
			answers.delete(response);
			if (answers.size === 0) pending.delete(socket);
			if (pending.size === 0) context.whenIdle?.();
		});
		// A caller may leave in the middle: that is not a fault.
		response.on('error', () => {});
		void answer(context, listener, request, response);
	};
	const server = http.createServer(
		{
			maxHeaderSize: limits.headerBytes,
			headersTimeout: limits.requestMs,
			// Bodies have a deadline of their own: a raw one may take as long as its handler permits.
			requestTimeout: 0,
			// Each check is a needless wake-up in the steady state: callers are local, and their number is bounded.
			connectionsCheckingInterval: 4 * limits.requestMs,
			keepAliveTimeout: 5000,
			// The check is our own, so that the answer is a problem document.
			requireHostHeader: false,
		},
		serve,
	);
	server.maxConnections = limits.connections;
	server.on('checkExpectation', serve);
	server.on('connect', (_request, socket) => {
		socket.on('error', () => {});
		socket.end(rawProblem('CONNECT'), () => socket.destroy());
	});
	// Without a listener a failed accept, for want of file descriptors, would end the process.
	server.on('error', (error) => {
		if (server.listening) context.fault(error);
	});
	server.on('clientError', (error, socket) => {
		const underWay = [...(pending.get(socket) ?? [])];
		// A problem cannot be written into the middle of another answer.
		if (socket.writable && underWay.length <= 1 && !underWay[0]?.headersSent)
			socket.write(rawProblem((error as NodeJS.ErrnoException).code));
		socket.destroy();
	});
	return server;
}

async function answer(
	context: Context,
	listener: LocalListener,
	request: http.IncomingMessage,
	response: http.ServerResponse,
): Promise<void> {
	let lasting: http.OutgoingHttpHeaders = {};
	try {
		const early = refuseMalformed(request) ?? context.authorize(request, response);
		lasting = response.getHeaders();
		const reply = early ?? (await replyTo(context, listener, request, response));
		if (reply !== 'gone') await send(context, request, response, reply);
	} catch (error) {
		const known = error instanceof AgentError;
		if (!known) context.fault(error);
		if (response.headersSent || response.destroyed) {
			response.destroy();
			return;
		}
		// Headers of the answer that failed.
		for (const name of response.getHeaderNames()) if (!(name in lasting)) response.removeHeader(name);
		const problem = known
			? toProblemResponse(error)
			: problemResponse(500, 'internal', 'Something in the agent went wrong.');
		sendProblem(context, request, response, problem);
	}
}

/** Requests that Node accepts although HTTP does not. */
function refuseMalformed({ headers, httpVersion }: http.IncomingMessage): ProblemResponse | null {
	if (headers.host === undefined && httpVersion === '1.1')
		return problemResponse(400, 'usage', 'The request has no Host header.', { remedy: 'Use an HTTP client.' });
	if (headers.expect !== undefined && !/^100-continue$/i.test(headers.expect))
		return problemResponse(417, 'usage', 'Only Expect: 100-continue is supported.', {
			remedy: 'Leave the Expect header out.',
		});
	return null;
}

async function replyTo(
	context: Context,
	listener: LocalListener,
	request: http.IncomingMessage,
	response: http.ServerResponse,
): Promise<LocalReply | ProblemResponse | 'gone'> {
	const [path = '', ...search] = (request.url ?? '').split('?');
	const method = request.method ?? '';
	const route = findRoute(context, listener, method, path);
	if ('failure' in route) return route;
	const body = await bodyFor(context, route, request, response);
	if (body === 'gone' || 'failure' in body) return body;

	const query = new URLSearchParams(search.join('?'));
	const lastEventId = request.headers['last-event-id'];
	const abort = new AbortController();
	response.once('close', () => abort.abort());
	return route.handle({
		listener,
		method: (method === 'HEAD' ? 'GET' : method) as LocalMethod,
		path,
		query,
		headers: request.headers,
		body: body.value,
		since: (typeof lastEventId === 'string' && lastEventId) || query.get('since') || null,
		signal: abort.signal,
	});
}

async function bodyFor(
	context: Context,
	route: LocalRoute,
	request: http.IncomingMessage,
	response: http.ServerResponse,
): Promise<{ readonly value: unknown } | ProblemResponse | 'gone'> {
	if (route.body === 'raw') {
		response.once('finish', () => stopReading(context, request));
		const target = (request.url ?? '').slice(route.path.replace(/\/$/, '').length);
		return { value: { request, response, target } satisfies RawExchange };
	}
	const { limits } = context;
	const bytes = await readBody(request, route.maxBodyBytes ?? limits.bodyBytes, limits.requestMs);
	if (bytes === 'gone' || 'failure' in bytes) return bytes;
	return route.body ? readJson(request.headers, bytes, route.body) : { value: undefined };
}

async function send(
	context: Context,
	request: http.IncomingMessage,
	response: http.ServerResponse,
	reply: LocalReply | ProblemResponse,
): Promise<void> {
	if ('answered' in reply) {
		if (!response.headersSent && !response.destroyed) throw new Error(`${request.method} was not answered`);
		return;
	}
	// While it was handled the caller may have left.
	if (response.destroyed) {
		if ('content' in reply) reply.content.destroy();
		return;
	}
	if ('failure' in reply) {
		sendProblem(context, request, response, reply);
		return;
	}
	if ('stream' in reply) {
		if (request.method === 'HEAD') startHead(context, response, 'text/event-stream').writeHead(200).end();
		else openStream(context, response, reply.stream);
		return;
	}
	const { status } = reply;
	for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
	if ('content' in reply) await sendContent(context, request, response, status, reply.content);
	else if ('text' in reply) sendText(context, response, status, reply.text, 'text/plain; charset=utf-8');
	else sendText(context, response, status, 'json' in reply ? reply.json : JSON.stringify(reply.body));
}
