/** One HTTP server on the route table: finds the route, reads the body, calls the handler and sends the reply; and its end. */
import http from 'node:http';
import type net from 'node:net';
import type { Duplex } from 'node:stream';
import { AgentError } from '../../base/errors.ts';
import { roomOf } from '../memory-budget.ts';
import { type Answering, endInOrder, openStream, sendProblem, sendText, stopReading } from './answers.edge.ts';
import { readBody, readJson } from './bodies.edge.ts';
import { callerOf, SHARES } from './browser-applications.edge.ts';
import { effectHeader } from './forward-problems.ts';
import { isOpenAtPeer, peerProcess } from './peer.edge.ts';
import { type ProblemResponse, problemResponse, toProblemResponse, unreadable } from './problem-responses.ts';
import { createRoom, type Room } from './room.edge.ts';
import { findRoute, isForService, readTarget } from './routing.edge.ts';
import {
	LOCAL_SERVER_LIMITS,
	type LocalListener,
	type LocalMethod,
	type LocalReply,
	type LocalRoute,
	type RawExchange,
	type ServingOptions,
} from './types.edge.ts';

type Request = http.IncomingMessage;
type Response = http.ServerResponse;

/** Decides on a request before its route is searched. `null` lets it in; headers set here stay on every answer. */
export type Authorize = (request: Request, response: Response) => LocalReply | ProblemResponse | null;

/** Requests of one connection that are under way or wait for the answer before them; the next is refused, and the last. */
const MAX_PIPELINED = 64;
/** So many connections at once are told that: Node goes on to read what has come, up to 64 KiB, and that takes memory. */
const MAX_TOLD = 8;

/** The state that the listeners of an open server share. */
export interface Context extends Answering {
	readonly routes: readonly LocalRoute[];
	/** The directory of the Unix sockets; `null` for callers that cannot use them. */
	readonly runDir: string | null;
	readonly authorize: Authorize;
	/** Answers that are under way, streams included, by connection. */
	readonly pending: Map<Duplex, Set<Response>>;
	/** Left out, each listener has its own. */
	readonly room: Room | undefined;
	/** Of requests that are being answered. */
	readonly waiting: Set<AbortController>;
}

export function createContext(
	{ routes, limits, room, onFault = () => {} }: ServingOptions,
	more: Pick<Context, 'runDir' | 'authorize'>,
): Context {
	const shared = {
		pending: new Map(),
		streams: new Set<never>(),
		waiting: new Set<AbortController>(),
		stopping: false,
	};
	return { ...more, ...shared, room, routes, limits: { ...LOCAL_SERVER_LIMITS, ...limits }, fault: onFault };
}

/** Ends streams as `stopping`, gives requests under way their time, and closes what is left. */
export async function shutDown(context: Context, servers: readonly http.Server[]): Promise<void> {
	context.stopping = true;
	for (const end of [...context.streams]) end('stopping');
	const ended = Promise.all(servers.map(closeServer));
	const answers = [...context.pending.values()].flatMap((pending) => [...pending]);
	const answered = answers.map((each) => new Promise<void>((resolve) => each.once('close', resolve)));
	const grace = Promise.withResolvers<void>();
	const timer = setTimeout(grace.resolve, context.limits.closeGraceMs);
	await Promise.race([Promise.all(answered), grace.promise]);
	clearTimeout(timer);
	for (const server of servers) server.closeAllConnections();
	await ended;
	// A connection tells late that it is closed.
	for (const waiting of context.waiting) waiting.abort();
}

export function closeServer(server: http.Server): Promise<void> {
	return new Promise((resolve) => server.close(() => resolve()));
}

/** Not listening yet. */
export function createServer(context: Context, listener: LocalListener): http.Server {
	const { limits, pending, room = createRoom(() => roomOf(limits.connections)) } = context;
	const serve: http.RequestListener = (request, response) => {
		const { socket } = request;
		readTarget(request);
		endInOrder(request);
		const answers = pending.get(socket) ?? new Set();
		// What follows a refusal is not looked at.
		if (answers.size > MAX_PIPELINED) return;
		const isTooMuch = answers.size === MAX_PIPELINED;
		if (isTooMuch && !readNoMore(context, socket)) return;
		const before = [...answers].at(-1);
		pending.set(socket, answers.add(response));
		room.asking.add(socket);
		response.once('close', () => {
			answers.delete(response);
			if (answers.size > 0) return;
			pending.delete(socket);
			room.asking.delete(socket);
		});
		// Each part of an answer has listeners of its own.
		response.setMaxListeners(20);
		// A caller may leave in the middle: that is not a fault.
		response.on('error', () => {});
		const begin = () =>
			isTooMuch ? sendProblem(context, response, TOO_MUCH) : void answer(context, room, listener, request, response);
		if (before) before.once('close', () => void (response.destroyed || begin()));
		else begin();
	};
	const server = http.createServer(
		{
			maxHeaderSize: limits.headerBytes,
			headersTimeout: limits.requestMs,
			// Bodies have a deadline of their own: a raw one may take as long as its handler permits.
			requestTimeout: 0,
			// Each check is a needless wake-up in the steady state: callers are local, and one that stands still makes room for others.
			connectionsCheckingInterval: 20 * limits.requestMs,
			keepAliveTimeout: 5000,
			// The check is our own, so that the answer is a problem document.
			requireHostHeader: false,
		},
		serve,
	);
	// Node would drop those after the 1,000th untold; the head is bounded in bytes.
	server.maxHeadersCount = 0;
	server.on('connection', room.admit);
	Object.assign(server, { httpAllowHalfOpen: true });
	server.on('connection', (socket) => socket.on('end', () => lookForCaller(context, socket, pending.get(socket))));
	server.on('checkExpectation', serve);
	server.on('connect', (_request, socket) => {
		socket.on('error', () => {});
		endWith(context, socket, unreadable('CONNECT', limits.headerBytes));
	});
	// Without a listener a failed accept, for want of file descriptors, would end the process.
	server.on('error', (error) => {
		if (server.listening) context.fault(error);
	});
	server.on('clientError', (error, socket) => {
		const underWay = [...(pending.get(socket) ?? [])];
		// A problem cannot be written into the middle of another answer.
		const { code, rawPacket } = error as NodeJS.ErrnoException & { readonly rawPacket?: Buffer };
		if (socket.writable && underWay.length <= 1 && !underWay[0]?.headersSent)
			endWith(context, socket, unreadable(code, limits.headerBytes), underWay[0], rawPacket);
		else socket.destroy();
	});
	return server;
}

/** So that the answers before a refusal still reach the caller. @returns whether there is room for that. */
function readNoMore({ pending }: Context, socket: net.Socket): boolean {
	const told = [...pending.values()].filter(({ size }) => size > MAX_PIPELINED);
	if (told.length < MAX_TOLD) socket.pause().on('resume', () => socket.pause());
	else socket.destroy();
	return told.length < MAX_TOLD;
}

const TOO_MUCH = problemResponse(
	503,
	'service-overloaded',
	`${MAX_PIPELINED} requests of this connection wait for their answers already.`,
	{
		remedy: 'Read their answers, and send this request and what followed it again on another connection.',
		headers: { 'Retry-After': '1', Connection: 'close' },
	},
);

/** Whether a caller that has closed its own side has left: a Unix socket then refuses a write, also one of no bytes; TCP would tell after a second one. */
function lookForCaller({ limits }: Context, socket: net.Socket, answers: Iterable<Response> = []): void {
	const last = [...answers].at(-1);
	if (!last) return;
	last.shouldKeepAlive = false;
	const isTcp = socket.remotePort !== undefined;
	const look = () => {
		if (isTcp) void (isOpenAtPeer(socket) || socket.destroy());
		else if (socket.writable && socket.writableLength === 0) socket.write('');
	};
	look();
	const looks = setInterval(look, limits.lingerMs);
	socket.once('close', () => clearInterval(looks));
}

/** The last answer on a connection, to bytes that are not a request. @param packet what came of it last. */
function endWith(context: Context, socket: Duplex, problem: ProblemResponse, begun?: Response, packet?: Buffer): void {
	const response = begun ?? new http.ServerResponse(new http.IncomingMessage(socket as net.Socket));
	if (!begun) {
		response.assignSocket(socket as net.Socket);
		// For the headers by which a page may read the answer; whatever is decided, this is its answer.
		for (const name of ['host', 'origin'])
			response.req.headers[name] = new RegExp(`^${name}:[ \\t]*(\\S+)`, 'im').exec(
				packet?.toString('latin1') ?? '',
			)?.[1];
		context.authorize(response.req, response);
	}
	response.setHeader('Connection', 'close');
	response.once('finish', () => socket.destroy());
	// Some of a request that is passed on may have gone.
	const effect = begun && isForService(begun.req) ? 'possible' : 'none';
	sendProblem(context, response, { ...problem, headers: { ...problem.headers, ...effectHeader(effect) } });
}

async function answer(
	context: Context,
	room: Room,
	listener: LocalListener,
	request: Request,
	response: Response,
): Promise<void> {
	let lasting: http.OutgoingHttpHeaders = {};
	try {
		const early =
			refuseMalformed(request) ?? context.authorize(request, response) ?? takePlace(room, request, response);
		lasting = response.getHeaders();
		const reply = early ?? (await replyTo(context, listener, request, response));
		if (reply !== 'gone') await send(context, response, reply);
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
		sendProblem(context, response, problem);
	}
}

/** No caller takes the part that is another's: an application of the file, or a program on a shared socket as the kernel names it. */
function takePlace(room: Room, request: Request, response: Response): ProblemResponse | null {
	const application = callerOf(request);
	const most = application ? (application.shares?.connections ?? SHARES.connections) : undefined;
	const release = room.take(application?.name ?? `process ${peerProcess(request.socket)}`, most);
	if (typeof release === 'function') {
		response.once('close', release);
		return null;
	}
	if (release === 'own')
		return overloaded(`${application?.name} has ${most} requests under way already.`, {
			remedy: 'Wait for one of them, or give the application a larger share: connections=N.',
		});
	const who = application ? 'applications with a line of their own' : 'programs that ask here';
	return overloaded(`The ${who} have as many requests under way as the agent takes at once.`, {
		remedy: 'Wait for one of them, and keep fewer under way at once.',
	});
}

const overloaded = (message: string, { remedy }: { readonly remedy: string }) =>
	problemResponse(503, 'service-overloaded', message, { remedy, headers: { 'Retry-After': '1', Connection: 'close' } });

/** Requests that Node accepts although HTTP does not. */
function refuseMalformed({ headers, rawHeaders, httpVersion }: Request): ProblemResponse | null {
	// Programs on the way may have taken another one. Source: RFC 9112, 3.2. Not `headersDistinct`, which would keep the token of a page.
	if (rawHeaders.filter((name, at) => at % 2 === 0 && /^host$/i.test(name)).length > 1)
		return problemResponse(400, 'usage', 'The request has more than one Host header.', {
			remedy: 'Use an HTTP client.',
		});
	if (headers.host === undefined && httpVersion === '1.1')
		return problemResponse(400, 'usage', 'The request has no Host header.', { remedy: 'Use an HTTP client.' });
	if (headers.expect !== undefined && !/^100-continue$/i.test(headers.expect))
		return problemResponse(417, 'usage', 'Only Expect: 100-continue is supported.', {
			remedy: 'Leave the Expect header out.',
		});
	return null;
}

async function replyTo(context: Context, listener: LocalListener, request: Request, response: Response) {
	const [path = '', ...search] = (request.url ?? '').split('?');
	const method = request.method ?? '';
	const route = findRoute(context, listener, method, path);
	if ('failure' in route) return route;
	const body = await bodyFor(context, route, request, response);
	if (body === 'gone' || 'failure' in body) return body;

	const query = new URLSearchParams(search.join('?'));
	const lastEventId = request.headers['last-event-id'];
	const abort = new AbortController();
	const leave = () => {
		context.waiting.delete(abort);
		abort.abort();
	};
	context.waiting.add(abort);
	response.once('close', leave);
	// It may be closed since the body was read.
	if (response.destroyed) leave();
	return route.handle({
		listener,
		application: callerOf(request),
		method: (method === 'HEAD' ? 'GET' : method) as LocalMethod,
		path,
		query,
		headers: request.headers,
		body: body.value,
		since: (typeof lastEventId === 'string' && lastEventId) || query.get('since') || null,
		signal: abort.signal,
	});
}

async function bodyFor(context: Context, route: LocalRoute, request: Request, response: Response) {
	if (route.body === 'raw') {
		response.once('finish', () => stopReading(context, request));
		const target = (request.url ?? '').slice(route.path.replace(/\/$/, '').length);
		return { value: { request, response, target } satisfies RawExchange };
	}
	const { limits } = context;
	const bytes = await readBody(request, limits.bodyBytes, limits.requestMs);
	if (bytes === 'gone' || 'failure' in bytes) return bytes;
	return route.body ? readJson(request.headers, bytes, route.body) : { value: undefined };
}

async function send(context: Context, response: Response, reply: LocalReply | ProblemResponse): Promise<void> {
	if ('answered' in reply) {
		if (!response.headersSent && !response.destroyed) throw new Error(`${response.req.method} was not answered`);
		return;
	}
	// While it was handled the caller may have left, or sent bytes that ended the connection.
	if (response.destroyed || response.headersSent) return;
	if ('failure' in reply) return sendProblem(context, response, reply);
	if ('stream' in reply) return openStream(context, response, reply.stream);
	const { status } = reply;
	for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
	if ('text' in reply) sendText(context, response, status, reply.text, 'text/plain; charset=utf-8');
	else sendText(context, response, status, 'json' in reply ? reply.json : JSON.stringify(reply.body));
}
