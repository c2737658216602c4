/**
 * The page on the kiosk's own screen: serves the files of `page/`, the device's state live, and the pairing of an unpaired
 * device, on loopback only. What it shows and does is handed in. It can read, and pair an unpaired device; nothing else,
 * whoever asks. Must never show a code, a PIN, a content of a notification that was not asked for, or the inside of an error.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { problemDocument, sentenceOf } from '../base/sentences.ts';
import {
	type PairPreview,
	type PairRequest,
	type PairResult,
	pairRequestSchema,
	type Status,
} from '../protocol/local-api.ts';
import { PROBLEM_CONTENT_TYPE } from '../protocol/problem.ts';

/** What the page shows of a notification. */
export interface PageEvent {
	readonly id: string;
	/** ISO 8601. */
	readonly at: string;
	readonly kind: string;
	/** Only where a site wants contents on a screen that anybody can see. */
	readonly content?: string;
}

export interface PageOptions {
	/** 0 takes a free one. */
	readonly port: number;
	readonly status: () => Status;
	/** Calls back after every change, also of events, until the returned function is called. */
	readonly onStatus: (listener: () => void) => () => void;
	/** The newest last; the page shows at most {@link SHOWN_EVENTS}. */
	readonly recentEvents: () => readonly PageEvent[];
	readonly inspect: (asked: PairRequest) => PairPreview;
	readonly pair: (asked: PairRequest) => Promise<PairResult>;
	/** What pairing wants to be told, as it is now; `null` for nothing. */
	readonly pin: () => string | null;
	/** Told of what is answered as `internal`, and of connections that could not be accepted. */
	readonly onFault?: (error: unknown) => void;
	readonly wallMs?: () => number;
	/** Between two signs of life for open pages, in milliseconds. Default 15,000. */
	readonly keepAliveMs?: number;
}

export interface PageServer {
	/** `http://127.0.0.1:8765/` */
	readonly url: string;
	close(): Promise<void>;
}

/** A stretch of the last hour in one state. The last one goes on. */
export interface Stretch {
	readonly fromMs: number;
	readonly state: Status['state'];
}

/** What the page gets at first and after every change. */
export interface PageView {
	readonly nowMs: number;
	readonly status: Pick<
		Status,
		| 'state'
		| 'sentence'
		| 'agentVersion'
		| 'startedAt'
		| 'deviceId'
		| 'deviceType'
		| 'serial'
		| 'macAddress'
		| 'baseUrl'
		| 'workflow'
		| 'problem'
		| 'warnings'
	>;
	/** Each warning as one text. */
	readonly warnings: readonly string[];
	readonly lastHeartbeatAt: string | null;
	readonly events: readonly PageEvent[];
	readonly timeline: readonly Stretch[];
	readonly canPair: boolean;
	readonly wantsPin: boolean;
}

export const SHOWN_EVENTS = 20;
const HOUR_MS = 3_600_000;
const MAX_BODY_BYTES = 16 * 1024;
const MAX_CONNECTIONS = 32;
export const MAX_STREAMS = 8;
const MAX_QUEUED_BYTES = 256 * 1024;
const KEEP_ALIVE_MS = 15_000;
/** So many wrong PINs, and none is taken for so long. */
const MAX_WRONG_PINS = 5;
const PIN_PAUSE_MS = 60_000;

/** No `replace`: whoever stands in front of the screen cannot move a device. */
const askSchema = pairRequestSchema.omit({ replace: true });
const pairSchema = askSchema.extend({ pin: z.string().max(64).optional() });

const FILES: Readonly<Record<string, { readonly name: string; readonly type: string; readonly npm?: string }>> = {
	'/': { name: 'page/index.html', type: 'text/html; charset=utf-8' },
	'/page.css': { name: 'page/page.css', type: 'text/css; charset=utf-8' },
	'/page.js': { name: 'page/page.js', type: 'text/javascript; charset=utf-8' },
	'/codes.js': { name: 'page/codes.js', type: 'text/javascript; charset=utf-8' },
	'/zxing-reader.js': {
		name: 'page/zxing-reader.js',
		type: 'text/javascript; charset=utf-8',
		npm: '../../../iife/reader/index.js',
	},
	'/zxing_reader.wasm': {
		name: 'zxing_reader.wasm',
		type: 'application/wasm',
		npm: '../../../reader/zxing_reader.wasm',
	},
};

const HEADERS = {
	// WebAssembly for reading codes; otherwise only what this server gives out, and never inside of another page.
	'Content-Security-Policy':
		"default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	'Permissions-Policy': 'camera=(self), microphone=(), geolocation=()',
	'Cross-Origin-Opener-Policy': 'same-origin',
	'Cross-Origin-Resource-Policy': 'same-origin',
	'Referrer-Policy': 'no-referrer',
	'X-Content-Type-Options': 'nosniff',
	'X-Frame-Options': 'DENY',
	'Cache-Control': 'no-store',
} as const;

/**
 * Listens on 127.0.0.1.
 * @throws AgentError `socket-failed` when the port is taken or may not be used.
 */
export async function openPageServer(options: PageOptions): Promise<PageServer> {
	const { wallMs = Date.now, keepAliveMs = KEEP_ALIVE_MS } = options;
	const streams = new Set<http.ServerResponse>();
	let timeline: readonly Stretch[] = [{ fromMs: wallMs(), state: options.status().state }];
	let announcing: NodeJS.Immediate | null = null;
	let wrongPins = 0;
	let pausedUntilMs = 0;

	const server = http.createServer(
		{ maxHeaderSize: 8192, headersTimeout: 10_000, requestTimeout: 15_000, keepAliveTimeout: 5000 },
		(request, response) => {
			response.on('error', () => {});
			answer(request, response).catch((error: unknown) => {
				if (response.headersSent || response.destroyed) {
					response.destroy();
					return;
				}
				if (error instanceof AgentError) sendProblem(response, statusOf(error.failure), error.failure);
				else {
					options.onFault?.(error);
					sendProblem(response, 500, failure('internal', 'Something in the agent went wrong.'));
				}
			});
		},
	);
	server.maxConnections = MAX_CONNECTIONS;
	const port = await listen(server, options.port);
	// Such as a failed accept, for want of file descriptors: it must not end the process.
	server.on('error', (error) => options.onFault?.(error));

	function view(): PageView {
		const { workflow, channel, sessionId: _session, ...status } = options.status();
		const { state, sentence, agentVersion, startedAt, deviceId, deviceType, serial, macAddress, baseUrl } = status;
		const { problem, warnings, pairedAt } = status;
		const identity = { deviceId, deviceType, serial, macAddress, baseUrl, workflow };
		return {
			nowMs: wallMs(),
			status: { state, sentence, agentVersion, startedAt, ...identity, problem, warnings },
			warnings: warnings.map((warning) => sentenceOf(warning, 'ongoing')),
			lastHeartbeatAt: channel.lastHeartbeatAt,
			events: options.recentEvents().slice(-SHOWN_EVENTS),
			timeline: timeline,
			canPair: state === 'unpaired' && pairedAt === null,
			wantsPin: options.pin() !== null,
		};
	}

	/** A burst of changes is one message. */
	function announce(): void {
		timeline = withState(timeline, options.status().state, wallMs());
		if (streams.size > 0) announcing ??= setImmediate(send);
	}

	function send(): void {
		announcing = null;
		const message = `event: view\ndata: ${JSON.stringify(view())}\n\n`;
		// A page that has stopped reading comes back by itself when it wakes up.
		for (const stream of streams)
			if (stream.writableLength > MAX_QUEUED_BYTES) stream.destroy();
			else stream.write(message);
	}

	async function answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
		const refusal = rejectCrossSite(request, port);
		if (refusal) {
			sendProblem(response, 403, refusal);
			return;
		}
		const path = (request.url ?? '').split('?')[0] ?? '';
		const file = FILES[path];
		if (request.method === 'POST' && path === '/api/inspect')
			sendJson(response, 200, worded(options.inspect({ ...(await readBody(request, askSchema)), replace: false })));
		else if (request.method === 'POST' && path === '/api/pair') sendJson(response, 200, await pair(request));
		else if (request.method !== 'GET' && request.method !== 'HEAD')
			throw new AgentError('method-not-allowed', 'The page can only be read.');
		else if (path === '/api/view') sendJson(response, 200, view());
		else if (path === '/api/live' && request.method === 'GET') openStream(response);
		else if (file && Object.hasOwn(FILES, path)) {
			const bytes = await readPageFile(file.name, file.npm);
			response.writeHead(200, { ...HEADERS, 'Content-Type': file.type, 'Content-Length': bytes.byteLength });
			response.end(bytes);
		} else throw new AgentError('not-found', 'There is no such page.', { remedy: 'Open the page at /.' });
	}

	async function pair(request: http.IncomingMessage): Promise<PairResult> {
		const { pin, ...asked } = await readBody(request, pairSchema);
		checkPin(pin);
		if (!view().canPair) throw new AgentError('already-paired', 'This device is paired already.');
		return options.pair({ ...asked, replace: false });
	}

	function checkPin(given: string | undefined): void {
		const desired = options.pin();
		if (desired === null) return;
		const leftMs = pausedUntilMs - wallMs();
		// A clock that was set back must not lock the page for longer.
		if (leftMs > 0 && leftMs <= PIN_PAUSE_MS)
			throw new AgentError('access-denied', 'Too many wrong PINs.', {
				remedy: 'Wait a minute, then type the PIN of this site.',
				retryAfterMs: leftMs,
			});
		const digest = (text: string) => createHash('sha256').update(text).digest();
		if (timingSafeEqual(digest(given ?? ''), digest(desired))) {
			wrongPins = 0;
			return;
		}
		wrongPins += given ? 1 : 0;
		if (wrongPins >= MAX_WRONG_PINS) {
			wrongPins = 0;
			pausedUntilMs = wallMs() + PIN_PAUSE_MS;
		}
		throw new AgentError('access-denied', given ? 'The PIN is wrong.' : 'Pairing here wants a PIN.', {
			remedy: 'Type the PIN of this site.',
		});
	}

	function openStream(response: http.ServerResponse): void {
		if (streams.size >= MAX_STREAMS)
			throw new AgentError('access-denied', 'The page is open too often.', { remedy: 'Close other windows.' });
		response.writeHead(200, { ...HEADERS, 'Content-Type': 'text/event-stream', Connection: 'close' });
		response.write(`retry: 2000\nevent: view\ndata: ${JSON.stringify(view())}\n\n`);
		streams.add(response);
		response.once('close', () => streams.delete(response));
	}

	const stopListening = options.onStatus(announce);
	const keepAlive = setInterval(() => {
		if (streams.size === 0) return;
		// "Offline for 4 min" becomes 5 without anything happening.
		const { state } = options.status();
		if (state === 'offline' || state === 'blocked') send();
		for (const stream of streams) if (stream.writableLength === 0) stream.write(': \n\n');
	}, keepAliveMs).unref();

	return {
		url: `http://127.0.0.1:${port}/`,
		async close() {
			stopListening();
			clearInterval(keepAlive);
			if (announcing) clearImmediate(announcing);
			const closed = new Promise((resolve) => server.close(resolve));
			for (const stream of streams) stream.end();
			server.closeAllConnections();
			await closed;
		},
	};
}

/** The last hour with one more state; the oldest stretch reaches back to where it began. */
export function withState(timeline: readonly Stretch[], state: Status['state'], nowMs: number): readonly Stretch[] {
	if (timeline.at(-1)?.state === state) return timeline;
	// What ended more than an hour ago is not shown; a clock that was set back starts a new picture.
	const known = (timeline.at(-1)?.fromMs ?? 0) > nowMs ? [] : timeline;
	const kept = known.filter((_stretch, index) => (known[index + 1]?.fromMs ?? nowMs) > nowMs - HOUR_MS);
	return [...kept.slice(-199), { fromMs: nowMs, state }];
}

/**
 * Why a request is not one of the page's own. Another site's page can reach this port under a name of its own that leads
 * here, or post to it blindly: the Host tells the first, Origin, content type and fetch metadata the second.
 */
function rejectCrossSite({ method, headers, url }: http.IncomingMessage, port: number): Failure | null {
	const denied = (message: string) =>
		failure('access-denied', message, { remedy: `Open http://127.0.0.1:${port}/ on the device itself.` });
	const hosts = [`127.0.0.1:${port}`, `localhost:${port}`];
	if (!hosts.includes(headers.host ?? '')) return denied('This address is not the one of the page.');
	const own = `http://${headers.host}`;
	if (headers.origin !== undefined && headers.origin !== own) return denied('Another page asked for this.');
	const site = headers['sec-fetch-site'];
	const opensPage = (method === 'GET' || method === 'HEAD') && url === '/' && headers['sec-fetch-dest'] === 'document';
	if (site !== undefined && site !== 'same-origin' && site !== 'none' && !opensPage)
		return denied('Another page asked for this.');
	if (method === 'POST' && headers.origin !== own) return denied('This did not come from the page.');
	return null;
}

async function readBody<Body>(request: http.IncomingMessage, schema: z.ZodType<Body>): Promise<Body> {
	if (!/^application\/json(;|$)/i.test(request.headers['content-type'] ?? ''))
		throw new AgentError('body-invalid', 'The body must be application/json.');
	const chunks: Buffer[] = [];
	let size = 0;
	for await (const chunk of request as AsyncIterable<Buffer>) {
		size += chunk.length;
		if (size <= MAX_BODY_BYTES) chunks.push(chunk);
		// So much is no mistake any more: it gets no answer.
		else if (size > 64 * MAX_BODY_BYTES) request.destroy();
	}
	if (size > MAX_BODY_BYTES)
		throw new AgentError('body-too-large', `The body may have at most ${MAX_BODY_BYTES} bytes.`);
	let document: unknown;
	try {
		document = JSON.parse(Buffer.concat(chunks).toString('utf8'));
	} catch {
		throw new AgentError('body-invalid', 'The body is not valid JSON.');
	}
	const parsed = schema.safeParse(document);
	if (parsed.success) return parsed.data;
	const [issue] = parsed.error.issues;
	throw new AgentError('body-invalid', `${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'not valid'}`);
}

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
	'access-denied': 403,
	'already-paired': 409,
	'body-invalid': 422,
	'body-too-large': 413,
	internal: 500,
	'method-not-allowed': 405,
	'not-found': 404,
};

/** What the page shows of a code that cannot be used. */
function worded(preview: PairPreview): PairPreview & { readonly sentence: string | null } {
	return { ...preview, sentence: preview.problem && sentenceOf(preview.problem, 'over') };
}

function statusOf({ code }: Failure): number {
	return STATUS_OF_CODE[code] ?? 502;
}

function sendProblem(response: http.ServerResponse, status: number, problem: Failure): void {
	const { retryAfterMs } = problem;
	const document = problemDocument(problem, { status, title: http.STATUS_CODES[status] ?? 'Error' });
	if (retryAfterMs !== undefined) response.setHeader('Retry-After', Math.ceil(retryAfterMs / 1000));
	if (status === 405) response.setHeader('Allow', 'GET, HEAD');
	sendJson(response, status, document, PROBLEM_CONTENT_TYPE);
}

function sendJson(response: http.ServerResponse, status: number, body: unknown, type = 'application/json'): void {
	const bytes = Buffer.from(JSON.stringify(body));
	response.writeHead(status, { ...HEADERS, 'Content-Type': type, 'Content-Length': bytes.length }).end(bytes);
}

/** A file of the page: an asset of an executable, a file beside the program, or of the package it comes from. */
async function readPageFile(name: string, npm: string | undefined): Promise<Uint8Array> {
	const sea = await import('node:sea');
	if (sea.isSea()) return new Uint8Array(sea.getRawAsset(name) as ArrayBuffer);
	// A CommonJS bundle has the first, a source file the second.
	const here = typeof __filename === 'string' ? __filename : import.meta.filename;
	const beside = readFile(join(dirname(here), name));
	if (npm === undefined) return beside;
	return beside.catch(() => readFile(join(createRequire(here).resolve('zxing-wasm/reader'), npm)));
}

function listen(server: http.Server, port: number): Promise<number> {
	return new Promise((resolve, reject) => {
		server.once('error', (error: NodeJS.ErrnoException) =>
			reject(
				new AgentError('socket-failed', `The page cannot be served on port ${port} (${error.code}).`, {
					remedy: 'Choose another port in page.port.',
					cause: error,
				}),
			),
		);
		server.listen(port, '127.0.0.1', () => {
			server.removeAllListeners('error');
			const address = server.address();
			resolve(typeof address === 'object' && address ? address.port : port);
		});
	});
}
