/**
 * Asks the agent on its Unix sockets, for the command line and for hooks. Tries once, with a deadline; every failure is
 * an AgentError, and one that the agent has named keeps its code, message and remedy.
 * Must never retry or follow a stream again automatically.
 */
import { lstat } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { AgentError, knownCode, type Params } from '../base/errors.ts';
import { checkSocketPath, errnoOf, findGroup } from '../base/files.edge.ts';
import { MAX_FRAME_BYTES } from '../protocol/channel.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { LOCAL_SOCKETS } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import type { LocalSocket } from './server/types.ts';

/** One event of a stream, as the HTML standard reads it. */
export interface ServerSentEvent {
	/** The newest id seen so far, this event's or an earlier one's; `null` before the first. */
	readonly id: string | null;
	/** `message` where the agent names none. */
	readonly event: string;
	readonly data: string;
}

export interface FollowOptions {
	/** The id of the newest event that is known already. */
	readonly since?: string | undefined;
	/** Default `agent`. */
	readonly socket?: LocalSocket;
	/** Ends the stream with reason `aborted`. */
	readonly signal?: AbortSignal | undefined;
	/** Longest silence, in milliseconds; the agent sends a comment every 15 s. Default 60,000. */
	readonly silenceMs?: number;
}

export type LocalClient = ReturnType<typeof createLocalClient>;

const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
/**
 * Longest line and longest event of a stream, in characters. A frame of control characters grows sixfold in JSON: a
 * smaller bound would let one odd notification stop a consumer for good.
 */
export const MAX_STREAM_LINE = 8 * MAX_FRAME_BYTES;
/** The group of a socket that cannot be looked at. */
const USUAL_GROUPS = { agent: 'idv-agent', admin: 'idv-agent-admin' } as const;

/** Opens nothing yet: each call makes a connection of its own. */
export function createLocalClient({ runDir }: { readonly runDir: string }) {
	return {
		/**
		 * One request; resolves with the JSON of the answer, `undefined` when it is empty.
		 * @param options.deadlineMs for all of it.
		 * @throws AgentError the problem that the agent answered, or `agent-not-running`, `access-denied`, `request-timeout`,
		 * `bad-response`, `response-too-large`, `socket-failed` (path too long).
		 */
		async request(
			socket: LocalSocket,
			method: string,
			path: string,
			body?: unknown,
			{ deadlineMs = 15_000 }: { readonly deadlineMs?: number } = {},
		): Promise<unknown> {
			const signal = AbortSignal.timeout(deadlineMs);
			const payload = body === undefined ? undefined : JSON.stringify(body);
			try {
				return await readAnswer(
					await send(runDir, socket, method, path, { accept: 'application/json', signal, payload }),
				);
			} catch (error) {
				if (signal.aborted) throw timedOut(`The agent did not answer within ${deadlineMs / 1000} s.`);
				throw await explain(error, runDir, socket);
			}
		},
		/** Waits for `onEvent` before it reads on. Resolves with why the stream ended. @throws AgentError as `request`. */
		events: (path: string, options: FollowOptions, onEvent: OnEvent) => follow(runDir, path, options, onEvent),
	};
}

type OnEvent = (event: ServerSentEvent) => void | Promise<void>;

async function follow(
	runDir: string,
	path: string,
	{ since, signal, socket = 'agent', silenceMs = 60_000 }: FollowOptions,
	onEvent: OnEvent,
): Promise<{ readonly reason: string }> {
	const stop = new AbortController();
	let silent = false;
	let consuming = false;
	const watch = setTimeout(
		() => {
			// While the consumer is at work nothing is read: the silence is not the agent's.
			if (consuming) return void watch.refresh();
			silent = true;
			stop.abort();
		},
		Math.min(silenceMs, 2 ** 31 - 1),
	);
	try {
		const url =
			since === undefined ? path : `${path}${path.includes('?') ? '&' : '?'}${new URLSearchParams({ since })}`;
		const response = await send(runDir, socket, 'GET', url, {
			accept: 'text/event-stream',
			signal: signal ? AbortSignal.any([signal, stop.signal]) : stop.signal,
		});
		if (response.statusCode !== 200) await readAnswer(response);
		if (!/^text\/event-stream\b/i.test(response.headers['content-type'] ?? ''))
			throw badResponse('The answer is not an event stream.');
		const parse = createEventStreamParser();
		for await (const chunk of response as AsyncIterable<Buffer>) {
			for (const event of parse(chunk)) {
				if (event.event === 'closed') return { reason: readReason(event.data) };
				consuming = true;
				await onEvent(event);
				consuming = false;
				if (signal?.aborted) return { reason: 'aborted' };
			}
			watch.refresh();
		}
		throw brokenOff();
	} catch (error) {
		// The consumer's own error.
		if (consuming) throw error;
		if (signal?.aborted) return { reason: 'aborted' };
		if (silent) throw timedOut(`The agent was silent for ${silenceMs / 1000} s.`);
		throw await explain(error, runDir, socket);
	} finally {
		clearTimeout(watch);
		stop.abort();
	}
}

async function send(
	runDir: string,
	socket: LocalSocket,
	method: string,
	path: string,
	{ accept, signal, payload }: { accept: string; signal: AbortSignal; payload?: string | undefined },
): Promise<http.IncomingMessage> {
	const socketPath = checkSocketPath(join(runDir, LOCAL_SOCKETS[socket]));
	const headers: http.OutgoingHttpHeaders = { Accept: `${accept}, application/problem+json` };
	if (payload !== undefined) {
		headers['Content-Type'] = 'application/json';
		headers['Content-Length'] = Buffer.byteLength(payload);
	}
	return new Promise((resolve, reject) => {
		const request = http.request({ socketPath, method, path, headers, signal, agent: false });
		request.once('response', resolve);
		// The listener stays: errors after the answer appear on the answer itself.
		request.on('error', reject);
		request.end(payload);
	});
}

async function readAnswer(response: http.IncomingMessage): Promise<unknown> {
	const chunks: Buffer[] = [];
	let size = 0;
	for await (const chunk of response as AsyncIterable<Buffer>) {
		size += chunk.length;
		if (size > MAX_ANSWER_BYTES) throw tooLarge(`The answer has more than ${MAX_ANSWER_BYTES} bytes.`);
		chunks.push(chunk);
	}
	const text = Buffer.concat(chunks).toString();
	const status = response.statusCode ?? 0;
	const document = parseJson(text);
	if (document === undefined && text !== '') throw badResponse(`The answer, with status ${status}, is not JSON.`);
	if (status >= 200 && status < 300) return document;
	throw readProblem(document, status, Number(response.headers['retry-after'] ?? Number.NaN));
}

/** The error that the agent has described; `internal` for a code that this version does not know. */
function readProblem(document: unknown, status: number, retryAfterSeconds: number): AgentError {
	const fields = isObject(document) ? document : {};
	const text = (name: string) => {
		const value = fields[name];
		return typeof value === 'string' ? cleanText(value, 1000) : '';
	};
	const message = text('detail') || text('title') || `The agent answered with status ${status}.`;
	const remedy = text('remedy');
	return new AgentError(knownCode(text('code')), message, {
		recovers: false,
		...(remedy && { remedy }),
		...(isParams(fields['params']) && { params: fields['params'] }),
		...(retryAfterSeconds >= 0 && { retryAfterMs: retryAfterSeconds * 1000 }),
	});
}

function isParams(value: unknown): value is Params {
	if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
	return Object.values(value).every((one) => typeof one === 'string' || typeof one === 'number');
}

async function explain(error: unknown, runDir: string, socket: LocalSocket): Promise<AgentError> {
	if (error instanceof AgentError) return error;
	const path = join(runDir, LOCAL_SOCKETS[socket]);
	const code = errnoOf(error);
	if (code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'ENOTDIR')
		return new AgentError('agent-not-running', `No agent listens on ${path}.`, { cause: error });
	if (code === 'EACCES' || code === 'EPERM') {
		const stat = await lstat(path).catch(() => null);
		const group = stat ? ((await findGroup(stat.gid))?.name ?? stat.gid) : USUAL_GROUPS[socket];
		return new AgentError('access-denied', `This user may not use ${path}, which is for root and group ${group}.`, {
			remedy: `Run the command as root or as a member of group ${group}.`,
			cause: error,
		});
	}
	if (code.startsWith('HPE_')) return badResponse(`The program that listens on ${path} does not speak HTTP.`);
	if (code.startsWith('ERR_') || code === '')
		return new AgentError('internal', error instanceof Error ? error.message : String(error), { cause: error });
	return brokenOff(error);
}

const TRY_AGAIN = 'Try again; if it repeats, look at its log: journalctl -u idv-agent.';

function brokenOff(cause?: unknown): AgentError {
	return new AgentError('agent-not-running', 'The agent broke the connection off.', { remedy: TRY_AGAIN, cause });
}

function timedOut(message: string): AgentError {
	return new AgentError('request-timeout', message, { remedy: TRY_AGAIN });
}

function badResponse(message: string): AgentError {
	return new AgentError('bad-response', message, {
		remedy: 'Check that the run directory is that of idv-agent, and that agent and command have the same version.',
	});
}

function tooLarge(message: string): AgentError {
	return new AgentError('response-too-large', message, { remedy: 'Ask for less at a time.' });
}

function readReason(data: string): string {
	const { reason } = Object(parseJson(data));
	return typeof reason === 'string' ? cleanText(reason, 100) : 'closed';
}

/**
 * A parser of Server-Sent Events that takes the bytes in whatever pieces they come. Source: HTML standard, 9.2.6.
 * An event without data is dropped; `retry` is ignored.
 * @throws AgentError `response-too-large` for a line or an event of more than {@link MAX_STREAM_LINE} characters.
 */
export function createEventStreamParser(): (chunk: Uint8Array) => ServerSentEvent[] {
	const decoder = new TextDecoder();
	let rest = '';
	// A CR ends a line at once: waiting for its LF would hold an event back.
	let skipLineFeed = false;
	let id: string | null = null;
	let event = '';
	let data: string[] = [];
	let dataLength = 0;

	const takeLine = (line: string): ServerSentEvent | null => {
		if (line === '') {
			const complete = data.length > 0 ? { id, event: event || 'message', data: data.join('\n') } : null;
			event = '';
			data = [];
			dataLength = 0;
			return complete;
		}
		const colon = line.indexOf(':');
		const field = colon < 0 ? line : line.slice(0, colon);
		const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
		if (field === 'data') {
			dataLength += value.length + 1;
			if (dataLength > MAX_STREAM_LINE) throw tooLarge('The agent sent an event that is too long.');
			data.push(value);
		} else if (field === 'event') event = value;
		else if (field === 'id' && !value.includes('\0')) id = value;
		return null;
	};

	return (chunk) => {
		let text = decoder.decode(chunk, { stream: true });
		if (text === '') return [];
		if (skipLineFeed && text.startsWith('\n')) text = text.slice(1);
		skipLineFeed = text.endsWith('\r');
		const [first = '', ...more] = text.split(/\r\n|\r|\n/);
		const lines = [rest + first, ...more];
		rest = lines.pop() ?? '';
		if (rest.length > MAX_STREAM_LINE) throw tooLarge('The agent sent a line that is too long.');
		return lines.map(takeLine).filter((event) => event !== null);
	};
}
