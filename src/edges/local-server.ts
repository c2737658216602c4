/**
 * The two Unix sockets on which the agent answers applications and its own command line: sockets, permissions, routing,
 * limits, error documents and event streams. What a route does is handed in.
 * Must never retry, log, or show the inside of an unexpected error to a caller.
 */
import { chmod, chown, lstat, mkdir, readFile, unlink } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type * as z from 'zod';
import { AgentError, CATALOGUE, type ErrorCode, EXIT, exitStatusOf, type Failure, failure } from '../core/errors.ts';
import { LOCAL_SOCKETS } from '../protocol/local-api.ts';
import { PROBLEM_CONTENT_TYPE, type Problem } from '../protocol/problem.ts';

export type LocalSocket = keyof typeof LOCAL_SOCKETS;
export type LocalMethod = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface LocalRequest<Body = unknown> {
	/** The socket it came in on: whoever may open that one may ask this. */
	readonly socket: LocalSocket;
	/** `GET` for a `HEAD` request: its body is left out on the way back. */
	readonly method: LocalMethod;
	readonly path: string;
	readonly query: URLSearchParams;
	readonly headers: http.IncomingHttpHeaders;
	/** What the route's schema made of the body; `undefined` for a route without one. */
	readonly body: Body;
	/**
	 * The newest event that the caller has: `Last-Event-ID`, else `?since=`, else `null`. The header wins because a
	 * browser's EventSource repeats the first URL, with its old `since`, after every loss.
	 */
	readonly since: string | null;
	/** Aborted when the caller is gone or the server is closed by force; also, harmlessly, after the answer. */
	readonly signal: AbortSignal;
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
 * read fast enough and comes back with the last id it has. `stopping`: the agent stops.
 */
export type StreamEnd = 'slow' | 'stopping' | 'finished' | (string & {});

/** One consumer of an event stream. Nothing here throws. */
export interface EventSink {
	/** `false` once the stream is over, also when this very event was one too many for a slow consumer. */
	send(event: StreamEvent): boolean;
	/** A line that consumers skip. */
	comment(text: string): void;
	/** Ends the stream with `event: closed`; default reason `finished`. */
	close(reason?: StreamEnd): void;
	/** Resolves at once while the consumer keeps up, else when it has caught up or is gone: for a long replay. */
	drained(): Promise<void>;
}

export type LocalReply =
	/** `body` becomes JSON; `undefined` sends none. */
	| { readonly status: number; readonly body?: unknown }
	/** JSON that is written down already and goes out untouched. */
	| { readonly status: number; readonly json: string }
	/** A Server-Sent Events stream. Returns what to do, exactly once, when it is over for whatever reason. */
	| { readonly stream: (sink: EventSink) => () => void };

export interface LocalRoute<Body = unknown> {
	readonly method: LocalMethod;
	/** Compared exactly, without the query. */
	readonly path: string;
	readonly sockets: readonly LocalSocket[];
	/** Left out, a body is read and ignored. */
	readonly body?: z.ZodType<Body>;
	/** Default {@link LOCAL_SERVER_LIMITS}`.bodyBytes`. */
	readonly maxBodyBytes?: number;
	/** An AgentError becomes its problem document; anything else thrown becomes `internal` and nothing more. */
	handle(request: LocalRequest<Body>): Promise<LocalReply> | LocalReply;
}

/** Ties a handler's body to its schema. */
export function localRoute<Body>(route: LocalRoute<Body>): LocalRoute {
	return route as LocalRoute;
}

export const LOCAL_SERVER_LIMITS = {
	/** Open connections for each socket. */
	connections: 128,
	bodyBytes: 16 * 1024,
	headerBytes: 8 * 1024,
	/** How long a request may take to arrive, and a caller to take an answer off our hands. Looked at every so often. */
	requestMs: 15_000,
	/** What may wait for one consumer of a stream before it is closed as `slow`. One event is always allowed. */
	streamQueueBytes: 1024 * 1024,
	/** Between comments on a quiet stream; none are sent while nobody listens. */
	keepAliveMs: 15_000,
	/** How long a caller that was refused may go on writing. */
	lingerMs: 1000,
	/** How long requests under way have when the server closes. */
	closeGraceMs: 1000,
} as const;
export type LocalServerLimits = { readonly [Name in keyof typeof LOCAL_SERVER_LIMITS]: number };

export interface LocalServerOptions {
	/** Holds both sockets; made with mode 0755 if it is missing. */
	readonly runDir: string;
	readonly routes: readonly LocalRoute[];
	/** A name from /etc/group or a number. Left out, the group is the process's own. */
	readonly groups?: { readonly [Name in LocalSocket]?: string | number };
	/** Sockets that systemd has opened: taken as they are, with its permissions, and not removed at the end. */
	readonly listen?: { readonly [Name in LocalSocket]?: { readonly fd: number } };
	readonly limits?: Partial<LocalServerLimits>;
	/** Told of what is answered as `internal`, and of faults that no caller can be told of. */
	readonly onFault?: (error: unknown) => void;
}

export interface LocalServer {
	/** What is not as asked but did not keep the server from opening: a group that could not be given a socket. */
	readonly notices: readonly Failure[];
	/** Ends streams as `stopping`, gives requests under way a second, removes the sockets. */
	close(): Promise<void>;
}

interface Context {
	readonly options: LocalServerOptions;
	readonly limits: LocalServerLimits;
	readonly fault: (error: unknown) => void;
	/** Answers that are under way, streams included, by connection. */
	readonly pending: Map<Duplex, Set<http.ServerResponse>>;
	readonly streams: Streams;
	stopping: boolean;
	/** Set while the end waits for the last answer. */
	whenIdle: (() => void) | null;
}

/** Longest path that fits a socket address on Linux, in bytes. */
const MAX_SOCKET_PATH = 107;
const SOCKET_NAMES = Object.keys(LOCAL_SOCKETS) as LocalSocket[];

/**
 * Opens both sockets: mode 0660, or 0600 when a named group could not be given it (see `notices`). A socket that a
 * crash has left behind is replaced.
 * @throws AgentError `socket-failed`: another process listens there, the path is taken by something else, too long or
 * not writable.
 */
export async function openLocalServer(options: LocalServerOptions): Promise<LocalServer> {
	const context: Context = {
		options,
		limits: { ...LOCAL_SERVER_LIMITS, ...options.limits },
		fault: options.onFault ?? (() => {}),
		pending: new Map(),
		streams: createStreams(options.limits?.keepAliveMs ?? LOCAL_SERVER_LIMITS.keepAliveMs),
		stopping: false,
		whenIdle: null,
	};
	const paths = SOCKET_NAMES.filter((name) => !options.listen?.[name]).map((name) => socketPath(options.runDir, name));
	if (paths.length > 0) await makeRunDir(options.runDir);
	for (const path of paths) await clearStaleSocket(path);

	const servers: http.Server[] = [];
	const notices: Failure[] = [];
	try {
		for (const name of SOCKET_NAMES) {
			const server = createServer(context, name);
			const given = options.listen?.[name];
			const path = socketPath(options.runDir, name);
			await listen(server, given ?? path);
			servers.push(server);
			const notice = given ? null : await openToGroup(path, options.groups?.[name]);
			if (notice) notices.push(notice);
		}
	} catch (error) {
		await Promise.all(servers.map(closeServer));
		throw error;
	}

	let closed: Promise<void> | null = null;
	return {
		notices,
		close() {
			closed ??= shutDown(context, servers);
			return closed;
		},
	};
}

async function shutDown(context: Context, servers: readonly http.Server[]): Promise<void> {
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

function closeServer(server: http.Server): Promise<void> {
	return new Promise((resolve) => server.close(() => resolve()));
}

// ---- Sockets ----

function socketPath(runDir: string, name: LocalSocket): string {
	const path = join(runDir, LOCAL_SOCKETS[name]);
	const length = Buffer.byteLength(path);
	if (length <= MAX_SOCKET_PATH) return path;
	throw new AgentError(
		'socket-failed',
		`The path of a socket may have ${MAX_SOCKET_PATH} bytes; ${path} has ${length}.`,
		{ remedy: 'Choose a run directory with a shorter path.' },
	);
}

async function makeRunDir(runDir: string): Promise<void> {
	try {
		await mkdir(runDir, { recursive: true, mode: 0o755 });
	} catch (error) {
		throw socketFailed(`Cannot make the run directory ${runDir}`, error);
	}
}

async function clearStaleSocket(path: string): Promise<void> {
	try {
		const found = await lstat(path).catch((error) => {
			if (codeOf(error) === 'ENOENT') return null;
			throw error;
		});
		if (!found) return;
		if (!found.isSocket())
			throw new AgentError('socket-failed', `${path} is there already and is not a socket.`, {
				remedy: 'Move it away, or choose another run directory.',
			});
		if (await isLive(path))
			throw new AgentError('socket-failed', `Another process listens on ${path}.`, {
				remedy: 'Stop the other agent, or give this one a run directory of its own.',
			});
		await unlink(path);
	} catch (error) {
		throw error instanceof AgentError ? error : socketFailed(`Cannot replace ${path}`, error);
	}
}

/** Whether somebody accepts connections there. Throws when that can't be told. */
function isLive(path: string): Promise<boolean> {
	return new Promise((resolve, reject) => {
		const probe = net.connect(path);
		probe.once('connect', () => {
			probe.destroy();
			resolve(true);
		});
		probe.once('error', (error) => {
			const code = codeOf(error);
			if (code === 'ECONNREFUSED' || code === 'ENOENT') resolve(false);
			// A full backlog: somebody is there, only busy.
			else if (code === 'EAGAIN') resolve(true);
			else reject(error);
		});
	});
}

function listen(server: http.Server, target: string | { readonly fd: number }): Promise<void> {
	return new Promise((resolve, reject) => {
		const failed = (error: unknown) =>
			reject(
				socketFailed(typeof target === 'string' ? `Cannot listen on ${target}` : 'Cannot use the socket given', error),
			);
		server.once('error', failed);
		server.once('listening', () => {
			server.removeListener('error', failed);
			resolve();
		});
		if (typeof target !== 'string') {
			server.listen(target);
			return;
		}
		// The socket is bound inside this call: nobody else may connect before its group is right.
		const umask = process.umask(0o177);
		try {
			server.listen(target);
		} finally {
			process.umask(umask);
		}
	});
}

/** Lets the group in. With a group that was asked for and could not be had, only the owner: never the wrong group. */
async function openToGroup(path: string, group: string | number | undefined): Promise<Failure | null> {
	try {
		if (group !== undefined) {
			const gid = await gidOf(group);
			if (gid === null)
				return failure('socket-failed', `There is no group ${group}: only its owner may use ${path}.`, {
					remedy: 'Make the group (systemd-sysusers does), or name another, and start the agent again.',
				});
			await chown(path, -1, gid);
		}
		await chmod(path, 0o660);
		return null;
	} catch (error) {
		const whom = group === undefined ? 'its group' : `group ${group}`;
		const reason = codeOf(error) ?? String(error);
		return failure('socket-failed', `Cannot open ${path} to ${whom} (${reason}): only its owner may use it.`, {
			remedy: 'Make the user of the agent a member of the group, and start the agent again.',
		});
	}
}

async function gidOf(group: string | number): Promise<number | null> {
	if (/^\d+$/.test(String(group))) return Number(group);
	const lines = (await readFile('/etc/group', 'utf8')).split('\n').map((line) => line.split(':'));
	const gid = lines.find(([name]) => name === group)?.[2];
	return gid === undefined ? null : Number(gid);
}

function socketFailed(what: string, error: unknown): AgentError {
	return new AgentError('socket-failed', `${what} (${codeOf(error) ?? String(error)}).`, { cause: error });
}

function codeOf(error: unknown): string | undefined {
	return (error as NodeJS.ErrnoException | null)?.code;
}

// ---- Requests ----

function createServer(context: Context, name: LocalSocket): http.Server {
	const { limits, pending } = context;
	const server = http.createServer(
		{
			maxHeaderSize: limits.headerBytes,
			headersTimeout: limits.requestMs,
			requestTimeout: limits.requestMs,
			// A wake-up for nothing in the steady state: callers are local, and their number is bounded.
			connectionsCheckingInterval: 4 * limits.requestMs,
			keepAliveTimeout: 5000,
		},
		(request, response) => {
			const { socket } = request;
			const answers = pending.get(socket) ?? new Set();
			pending.set(socket, answers.add(response));
			response.once('close', () => {
				answers.delete(response);
				if (answers.size === 0) pending.delete(socket);
				if (pending.size === 0) context.whenIdle?.();
			});
			// A caller that leaves in the middle is no fault of anybody.
			response.on('error', () => {});
			void answer(context, name, request, response);
		},
	);
	server.maxConnections = limits.connections;
	// Without a listener a failed accept, for want of file descriptors, would end the process.
	server.on('error', (error) => {
		if (server.listening) context.fault(error);
	});
	server.on('clientError', (error, socket) => {
		const underWay = [...(pending.get(socket) ?? [])];
		// Into the middle of another answer nothing can be written.
		if (socket.writable && underWay.length <= 1 && !underWay[0]?.headersSent) socket.write(rawProblem(codeOf(error)));
		socket.destroy();
	});
	return server;
}

async function answer(
	context: Context,
	name: LocalSocket,
	request: http.IncomingMessage,
	response: http.ServerResponse,
): Promise<void> {
	try {
		const reply = await replyTo(context, name, request, response);
		// While it was handled the caller may have left.
		if (reply === 'gone' || response.destroyed) return;
		if ('failure' in reply) sendRefusal(context, request, response, reply);
		else if ('json' in reply) sendJson(context, response, reply.status, reply.json);
		else if (!('stream' in reply)) sendJson(context, response, reply.status, JSON.stringify(reply.body));
		else if (request.method === 'HEAD') sendHead(response, 200, 'text/event-stream').end();
		else openStream(context, response, reply.stream);
	} catch (error) {
		const known = error instanceof AgentError;
		if (!known) context.fault(error);
		if (response.headersSent || response.destroyed) response.destroy();
		else
			sendRefusal(
				context,
				request,
				response,
				known ? refusalOf(error) : refuse(500, 'internal', 'Something in the agent went wrong.'),
			);
	}
}

async function replyTo(
	context: Context,
	name: LocalSocket,
	request: http.IncomingMessage,
	response: http.ServerResponse,
): Promise<LocalReply | Refusal | 'gone'> {
	const [path = '', ...search] = (request.url ?? '').split('?');
	const route = findRoute(context.options, name, request.method === 'HEAD' ? 'GET' : (request.method ?? ''), path);
	if ('failure' in route) return route;

	const limit = route.maxBodyBytes ?? context.limits.bodyBytes;
	const bytes = await readBody(request, limit);
	if (bytes === 'gone') return 'gone';
	if (bytes === 'tooLarge') return refuse(413, 'body-too-large', `The body may have at most ${limit} bytes.`);
	const body = route.body ? readJson(request.headers, bytes, route.body) : { value: undefined };
	if ('failure' in body) return body;

	const query = new URLSearchParams(search.join('?'));
	const lastEventId = request.headers['last-event-id'];
	const abort = new AbortController();
	response.once('close', () => abort.abort());
	return route.handle({
		socket: name,
		method: route.method,
		path,
		query,
		headers: request.headers,
		body: body.value,
		since: (typeof lastEventId === 'string' && lastEventId) || query.get('since') || null,
		signal: abort.signal,
	});
}

function findRoute(options: LocalServerOptions, name: LocalSocket, method: string, path: string): LocalRoute | Refusal {
	const onPath = options.routes.filter((route) => route.path === path);
	if (onPath.length === 0) return refuse(404, 'not-found', 'There is no such route.');
	const here = onPath.filter((route) => route.sockets.includes(name));
	const found = here.find((route) => route.method === method);
	if (found) return found;
	const elsewhere = onPath.find((route) => route.method === method) ?? (here.length === 0 ? onPath[0] : undefined);
	const other = elsewhere?.sockets[0];
	if (elsewhere && other) {
		const message = `${elsewhere.method} ${path} is answered on ${LOCAL_SOCKETS[other]}, not on ${LOCAL_SOCKETS[name]}.`;
		const remedy = `Ask on ${join(options.runDir, LOCAL_SOCKETS[other])}, as root or as a member of the group that owns it.`;
		return refuse(403, 'access-denied', message, { remedy });
	}
	const methods = here.flatMap((route) => (route.method === 'GET' ? ['GET', 'HEAD'] : [route.method]));
	return refuse(405, 'method-not-allowed', `This route does not take ${method}.`, {
		headers: { Allow: methods.join(', ') },
	});
}

/** Reads a body whatever its route wants, so that no answer is lost because its sender was still writing. */
function readBody(request: http.IncomingMessage, limit: number): Promise<Buffer | 'tooLarge' | 'gone'> {
	return new Promise((resolve) => {
		const chunks: Buffer[] = [];
		let size = Number(request.headers['content-length'] ?? 0);
		if (size > limit) return resolve('tooLarge');
		size = 0;
		request.on('data', (chunk: Buffer) => {
			size += chunk.length;
			if (size <= limit) chunks.push(chunk);
			else resolve('tooLarge');
		});
		request.once('end', () => resolve(Buffer.concat(chunks)));
		request.once('close', () => resolve('gone'));
		request.once('error', () => resolve('gone'));
	});
}

function readJson(
	headers: http.IncomingHttpHeaders,
	bytes: Buffer,
	schema: z.ZodType,
): { readonly value: unknown } | Refusal {
	let document: unknown;
	if (bytes.length > 0) {
		const encoding = headers['content-encoding'];
		if (!isJsonType(headers['content-type'] ?? '') || (encoding !== undefined && encoding !== 'identity'))
			return refuse(415, 'body-invalid', 'The body must be application/json, in UTF-8 and not compressed.', {
				remedy: 'Send Content-Type: application/json.',
			});
		try {
			document = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
		} catch {
			return refuse(400, 'body-invalid', 'The body is not valid JSON.', { remedy: 'Send one JSON document in UTF-8.' });
		}
	}
	const parsed = schema.safeParse(document);
	if (parsed.success) return { value: parsed.data };
	const errors = parsed.error.issues
		.slice(0, 20)
		.map((issue) => ({ path: issue.path.map(String).join('.'), message: issue.message }));
	const words = errors.slice(0, 3).map(({ path, message }) => `${path || 'body'}: ${message}`);
	return refuse(422, 'body-invalid', words.join('; '), { errors });
}

function isJsonType(contentType: string): boolean {
	return /^\s*application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(contentType);
}

// ---- Answers ----

/** An error document before it is sent. */
interface Refusal {
	readonly failure: Failure;
	readonly status: number;
	readonly headers?: Readonly<Record<string, string>>;
	readonly errors?: Problem['errors'];
}

/** What an exit status of the catalogue is in HTTP. */
const STATUS_OF_EXIT: Readonly<Record<number, number>> = {
	[EXIT.usage]: 400,
	[EXIT.badData]: 422,
	[EXIT.unavailable]: 503,
	[EXIT.internal]: 500,
	[EXIT.io]: 500,
	[EXIT.temporary]: 503,
	[EXIT.refused]: 403,
	[EXIT.configuration]: 409,
};

/** Where HTTP has a better word than the exit status gives. */
const STATUS_OF_CODE: { readonly [Code in ErrorCode]?: number } = {
	'not-found': 404,
	'method-not-allowed': 405,
	'body-too-large': 413,
	'already-paired': 409,
	'pairing-under-way': 409,
	// 503 would invite a client to send a one-time code once more.
	'pairing-uncertain': 502,
	'workflow-missing': 422,
	'state-unwritable': 507,
};

function refusalOf(error: AgentError): Refusal {
	const status = STATUS_OF_CODE[error.code] ?? STATUS_OF_EXIT[exitStatusOf(error.code)] ?? 500;
	const { retryAfterMs } = error.failure;
	if (retryAfterMs === undefined) return { failure: error.failure, status };
	return { failure: error.failure, status, headers: { 'Retry-After': String(Math.ceil(retryAfterMs / 1000)) } };
}

function refuse(
	status: number,
	code: ErrorCode,
	message: string,
	more: { remedy?: string } & Pick<Refusal, 'headers' | 'errors'> = {},
): Refusal {
	const { remedy = CATALOGUE[code].remedy, ...rest } = more;
	return { status, failure: failure(code, message, { remedy }), ...rest };
}

function problemOf({ failure: { code, message, remedy }, status, errors }: Refusal): Problem {
	const title = http.STATUS_CODES[status] ?? 'Error';
	return { status, title, code, detail: message, remedy, ...(errors && { errors }) };
}

function sendRefusal(
	context: Context,
	request: http.IncomingMessage,
	response: http.ServerResponse,
	refusal: Refusal,
): void {
	for (const [header, value] of Object.entries(refusal.headers ?? {})) response.setHeader(header, value);
	sendJson(context, response, refusal.status, JSON.stringify(problemOf(refusal)), PROBLEM_CONTENT_TYPE);
	if (request.complete) return;
	// To close while the caller is writing would cost it the answer; to read on for ever would cost us.
	request.resume();
	const linger = setTimeout(() => request.destroy(), context.limits.lingerMs);
	request.once('close', () => clearTimeout(linger));
}

function sendJson(
	context: Context,
	response: http.ServerResponse,
	status: number,
	json: string | undefined,
	contentType = 'application/json',
): void {
	const bytes = json === undefined ? null : Buffer.from(json);
	if (context.stopping) response.setHeader('Connection', 'close');
	if (bytes) response.setHeader('Content-Length', bytes.length);
	sendHead(response, status, bytes ? contentType : null).end(bytes ?? undefined);
	leaveIfStuck(context, response);
}

function sendHead(response: http.ServerResponse, status: number, contentType: string | null): http.ServerResponse {
	if (contentType) response.setHeader('Content-Type', contentType);
	return response.setHeader('Cache-Control', 'no-store').writeHead(status);
}

/** Drops a caller that has stopped reading what it asked for. */
function leaveIfStuck(context: Context, response: http.ServerResponse): void {
	if (!response.writableFinished) response.setTimeout(context.limits.requestMs, () => response.destroy());
}

/** The answer to what is no HTTP request at all. */
function rawProblem(code: string | undefined): string {
	const refusal =
		code === 'ERR_HTTP_REQUEST_TIMEOUT'
			? refuse(408, 'request-timeout', 'The request did not arrive in time.', { remedy: 'Send it in one go.' })
			: code === 'HPE_HEADER_OVERFLOW'
				? refuse(431, 'body-too-large', 'The headers of the request are too large.', { remedy: 'Send fewer headers.' })
				: refuse(400, 'usage', 'This is not a valid HTTP/1.1 request.', { remedy: 'Use an HTTP client.' });
	const body = JSON.stringify(problemOf(refusal));
	const head = [
		`HTTP/1.1 ${refusal.status} ${http.STATUS_CODES[refusal.status]}`,
		`Content-Type: ${PROBLEM_CONTENT_TYPE}`,
		`Content-Length: ${Buffer.byteLength(body)}`,
		'Connection: close',
	];
	return `${head.join('\r\n')}\r\n\r\n${body}`;
}

// ---- Event streams ----

interface OpenStream {
	end(reason: StreamEnd): void;
	beat(): void;
}

/** The consumers that are connected, and the one timer for all of them. */
interface Streams {
	add(stream: OpenStream): void;
	delete(stream: OpenStream): void;
	closeAll(reason: StreamEnd): void;
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

function openStream(context: Context, response: http.ServerResponse, start: (sink: EventSink) => () => void): void {
	let over = false;
	let cleanUp: (() => void) | null = null;

	const finish = () => {
		if (over) return false;
		over = true;
		context.streams.delete(stream);
		runCleanUp();
		return true;
	};
	const runCleanUp = () => {
		const once = cleanUp;
		cleanUp = null;
		try {
			once?.();
		} catch (error) {
			context.fault(error);
		}
	};
	const end = (reason: StreamEnd) => {
		if (!finish() || response.destroyed) return;
		response.end(formatEvent({ event: 'closed', data: JSON.stringify({ reason }) }));
		leaveIfStuck(context, response);
	};
	const write = (frame: string) => {
		if (over || response.destroyed) return false;
		const bytes = Buffer.from(frame);
		const queued = response.writableLength;
		if (queued > 0 && queued + bytes.length > context.limits.streamQueueBytes) {
			end('slow');
			return false;
		}
		response.write(bytes);
		return true;
	};
	const stream: OpenStream = {
		end,
		beat() {
			if (response.writableLength === 0) write(': keep-alive\n\n');
		},
	};

	response.setHeader('Content-Type', 'text/event-stream');
	response.setHeader('Cache-Control', 'no-store');
	response.setHeader('Connection', 'close');
	response.once('close', finish);
	context.streams.add(stream);
	try {
		cleanUp = start({
			send: (event) => write(formatEvent(event)),
			comment: (text) => void write(`${text.replace(/^/gm, ': ')}\n\n`),
			close: (reason = 'finished') => end(reason),
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

function untilDrained(response: http.ServerResponse): Promise<void> {
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

function formatEvent({ id, event, data }: StreamEvent): string {
	const oneLine = (text: string) => text.replaceAll(/[\r\n\0]/g, '');
	const idLine = id === undefined ? '' : `id: ${oneLine(id)}\n`;
	const eventLine = event === undefined ? '' : `event: ${oneLine(event)}\n`;
	return `${idLine}${eventLine}data: ${data.replaceAll(/\r\n|[\r\n]/g, '\ndata: ')}\n\n`;
}
