/**
 * One request to the agent on a Unix socket, for `idv-agent/client` and for our own commands: its answer as JSON or as a stream
 * of events, every failure as an AgentProblem. Tries once, with a deadline. Imports nothing that the client should not ship.
 */
import { defaultMaxListeners, getMaxListeners, setMaxListeners } from 'node:events';
import http from 'node:http';
import { pipeline } from 'node:stream/promises';
import { types } from 'node:util';
import { readBounded, readOn, sendHead } from '../base/bodies.edge.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { AgentProblem } from './agent-problem.ts';

/** One event of a stream. */
export interface ServerSentEvent {
	readonly id: string | null;
	/** `message` where the agent names none; after `closed`, whose data holds the reason, the stream is over. */
	readonly event: string;
	readonly data: string;
}

export interface FollowOptions {
	/** The id of the newest event that is known already. */
	readonly since?: string | undefined;
	/** Ends the stream without an error. */
	readonly signal?: AbortSignal | undefined;
	/** Longest silence, in milliseconds; the agent sends a comment every 15 s. Default 60,000. */
	readonly silenceMs?: number;
}

export interface Sent {
	readonly method: string;
	readonly path: string;
	readonly headers?: Readonly<Record<string, string>>;
	readonly payload?: string | Uint8Array | ReadableStream<unknown> | undefined;
	/** Of a stream, in bytes, where it is known. */
	readonly length?: number;
}

export type Asked = Pick<Sent, 'method' | 'path'> & {
	readonly signal?: AbortSignal | undefined;
	/** Sent as JSON. */
	readonly body?: unknown;
	/** For all of it. */
	readonly deadlineMs: number;
	/** Default JSON. */
	readonly read?: ((text: string) => unknown) | undefined;
	/** Of the answer. Default {@link MAX_ANSWER_BYTES}. */
	readonly maxBytes?: number | undefined;
};

/** Also of a line of a stream: an event of 16 MiB, the most that `service.maxMessageBytes` permits, grows sixfold in JSON if its characters are control characters. */
export const MAX_ANSWER_BYTES = 100 * 1024 * 1024;
export const LOOK_FIRST = 'The request may have been carried out: check before you repeat it.';
const TRY_AGAIN = 'Try again; if it repeats, look at its log: journalctl -u idv-agent.';

/** Declared, not inferred: the declarations that applications get can name no inferred `AbortSignal`. */
export type Ending = {
	readonly signal: AbortSignal;
	/** Closes the connection. @param reason left out where everything has been read. */
	readonly end: (reason?: unknown) => void;
};

/** The end of a request and of the reading of its answer, by whichever asks for it first. The signal may serve many requests: `end` lets it go. */
export function createEnding(signal: AbortSignal | null | undefined): Ending {
	const over = new AbortController();
	const abort = () => over.abort(signal?.reason);
	// As fetch does: one signal may end many requests. Newer Nodes have no bound for signals.
	if (signal instanceof EventTarget && getMaxListeners(signal) === defaultMaxListeners)
		setMaxListeners(Number.POSITIVE_INFINITY, signal);
	signal?.addEventListener('abort', abort);
	if (signal?.aborted) abort();
	return {
		signal: over.signal,
		end(reason) {
			signal?.removeEventListener('abort', abort);
			over.abort(reason);
		},
	};
}

/** Opens a connection of its own. @throws AgentProblem, or the reason why it was ended: what a stream of the application throws, too. */
export async function send(socketPath: string, sent: Sent, ending: Ending): Promise<http.IncomingMessage> {
	const { payload, length, headers, ...line } = sent;
	const { signal } = ending;
	const isWhole = typeof payload === 'string' || payload instanceof Uint8Array;
	// Node tells the length of a POST only: the body of a DELETE would arrive as another request.
	const size = isWhole ? Buffer.byteLength(payload) : length;
	const framing = payload && (size === undefined ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': size });
	try {
		return await new Promise<http.IncomingMessage>((resolve, reject) => {
			const options = {
				socketPath,
				agent: false,
				// Answers of the service have up to 64 KiB.
				maxHeaderSize: 80 * 1024,
				...line,
				headers: { ...headers, ...framing },
				signal,
			};
			const request = http.request(options);
			request.maxHeadersCount = 0;
			request.once('socket', readOn);
			request.once('response', resolve);
			// The listener stays: errors after the answer appear on the answer itself.
			request.on('error', reject);
			// After a 101 that was not asked for, Node says nothing else.
			request.once('close', () => reject(Object.assign(new Error('no answer'), { code: 'ECONNRESET' })));
			// With the body, Node would write a Content-Disposition in another coding.
			if (isWhole) sendHead(request);
			if (isWhole || payload === undefined) request.end(payload);
			else pipeline(bytesOf(payload, ending), request).catch(reject);
		});
	} catch (error) {
		signal.throwIfAborted();
		throw explain(error, socketPath);
	}
}

function bytesOf(stream: ReadableStream<unknown>, { signal, end }: Ending): AsyncGenerator<Uint8Array> {
	const reader = stream.getReader();
	const cancel = () => void reader.cancel(signal.reason).catch(() => {});
	// At once and with the reason, as fetch does: a generator would first wait for what the stream gives next.
	signal.addEventListener('abort', cancel);
	return read();

	async function* read(): AsyncGenerator<Uint8Array> {
		try {
			for (let next = await reader.read(); !next.done; next = await reader.read()) {
				if (!types.isUint8Array(next.value)) throw new TypeError('A stream as a body must give bytes (Uint8Array).');
				yield next.value;
			}
		} catch (error) {
			// Without an error, for which the end of a request would look like an abort of the application's.
			const why = error ?? new TypeError(`The stream of the body failed with ${error}.`);
			end(why);
			throw why;
		} finally {
			cancel();
		}
	}
}

/** @returns the JSON of the answer, `undefined` when it is empty. @throws AgentProblem, or the signal's reason. */
export async function ask(
	socketPath: string,
	{ body, deadlineMs, read, maxBytes, signal, ...asked }: Asked,
): Promise<unknown> {
	const ending = createEnding(signal);
	const late = () => ending.end(timedOut(`The agent did not answer within ${deadlineMs / 1000} s.`));
	const timer = setTimeout(late, deadlineMs);
	const json = body === undefined ? {} : { 'Content-Type': 'application/json' };
	const headers = { Accept: 'application/json, application/problem+json', ...json };
	const payload = body === undefined ? undefined : JSON.stringify(body);
	try {
		return await readAnswer(await send(socketPath, { ...asked, headers, payload }, ending), socketPath, read, maxBytes);
	} catch (error) {
		ending.signal.throwIfAborted();
		throw error;
	} finally {
		clearTimeout(timer);
		ending.end();
	}
}

/** Reads on when the next event is asked for. @throws AgentProblem also for a stream that ends without `closed`. */
export async function* follow(
	socketPath: string,
	path: string,
	{ since, signal, silenceMs = 60_000 }: FollowOptions,
): AsyncGenerator<ServerSentEvent, void, void> {
	const ending = createEnding(signal);
	const silent = () => ending.end(timedOut(`The agent was silent for ${silenceMs / 1000} s.`));
	const watch = () => setTimeout(silent, Math.min(silenceMs, 2 ** 31 - 1));
	let watching = watch();
	try {
		const headers = { Accept: 'text/event-stream, application/problem+json' };
		const whole = since === undefined ? path : `${path}?${new URLSearchParams({ since })}`;
		const answer = await send(socketPath, { method: 'GET', path: whole, headers }, ending);
		if (answer.statusCode !== 200) await readAnswer(answer, socketPath);
		if (!/^text\/event-stream\b/i.test(answer.headers['content-type'] ?? ''))
			throw unreadable('The answer is not an event stream.');
		const parse = createEventStreamParser();
		for await (const chunk of answer as AsyncIterable<Buffer>) {
			// While the consumer is at work nothing is read: the silence is not the agent's.
			clearTimeout(watching);
			for (const event of parse(chunk)) {
				yield event;
				if (event.event === 'closed' || signal?.aborted) return;
			}
			watching = watch();
		}
		throw brokenOff();
	} catch (error) {
		if (signal?.aborted) return;
		ending.signal.throwIfAborted();
		throw explain(error, socketPath);
	} finally {
		clearTimeout(watching);
		ending.end();
	}
}

async function readAnswer(
	answer: http.IncomingMessage,
	socketPath: string,
	read = parseJson,
	maxBytes = MAX_ANSWER_BYTES,
): Promise<unknown> {
	const { bytes, cut } = await readBounded(answer, maxBytes);
	if (cut) throw cut === 'too-large' ? tooLarge(maxBytes) : explain(cut, socketPath);
	const text = bytes.toString();
	const { statusCode: status = 0, headers } = answer;
	const isGood = status >= 200 && status < 300;
	const document = (isGood ? read : parseJson)(text);
	if (document === undefined && text !== '') throw unreadable(`The answer, with status ${status}, is not JSON.`);
	if (isGood) return document;
	const fields = isObject(document) ? document : {};
	const word = (name: string) => (typeof fields[name] === 'string' ? (fields[name] as string) : '');
	const message = word('detail') || word('title') || `The agent answered with status ${status}.`;
	const params = isObject(fields['params']) ? (fields['params'] as AgentProblem['params']) : undefined;
	const seconds = Number(headers['retry-after']);
	const retryAfterMs = seconds >= 0 ? seconds * 1000 : undefined;
	throw new AgentProblem(status, word('code') || 'bad-response', message, word('remedy'), { params, retryAfterMs });
}

/** An application's own mistake remains what Node says of it. */
function explain(error: unknown, socketPath: string): unknown {
	const code = error instanceof AgentProblem ? '' : String((error as NodeJS.ErrnoException)?.code ?? '');
	if (code === 'EACCES' || code === 'EPERM') {
		const remedy = 'Run the application in the group idv-agent.';
		return new AgentProblem(0, 'access-denied', `This user may not use ${socketPath}.`, remedy, { cause: error });
	}
	if (code.startsWith('HPE_')) return unreadable(`The program that listens on ${socketPath} does not speak HTTP.`);
	if (['ECONNRESET', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'].includes(code)) return brokenOff(error);
	if (/^(ERR_|[EN]+FILE$|$)/.test(code)) return error;
	if (code === 'EAGAIN') {
		const message = 'The agent has more callers than it can take at the moment.';
		return new AgentProblem(0, 'service-overloaded', message, 'Ask again in a moment.', {
			cause: error,
			retryAfterMs: 1000,
		});
	}
	const remedy = 'Start it: systemctl start idv-agent, or idv-agent run; or check the path of its socket.';
	return new AgentProblem(0, 'agent-not-running', `No agent listens on ${socketPath}.`, remedy, { cause: error });
}

const brokenOff = (cause?: unknown) =>
	new AgentProblem(0, 'connection-lost', 'The agent ended the connection.', LOOK_FIRST, { cause });
const timedOut = (message: string) => new AgentProblem(0, 'request-timeout', message, TRY_AGAIN);
const tooLarge = (maxBytes = MAX_ANSWER_BYTES) =>
	new AgentProblem(0, 'response-too-large', `More than ${maxBytes} bytes came.`, 'Ask for less at a time.');
/** Something other than the agent answers, or an agent that this program does not know. */
export const unreadable = (message: string) =>
	new AgentProblem(0, 'bad-response', message, 'Check that the socket belongs to idv-agent, and to the same version.');

/** Whether to try again: the agent is away, restarts, or has too much to do. */
export const passes = ({ status, code }: AgentProblem): boolean =>
	status >= 500 || status === 429 || isGone({ code }) || code === 'request-timeout' || code === 'service-overloaded';
export const isGone = ({ code }: Pick<AgentProblem, 'code'>): boolean =>
	code === 'agent-not-running' || code === 'connection-lost';

/**
 * A parser of the agent's events that takes the bytes in whatever pieces they come. Lines end with LF, as the agent writes them;
 * an event without data is dropped. @throws AgentProblem `response-too-large`.
 */
export function createEventStreamParser(): (chunk: Uint8Array) => ServerSentEvent[] {
	const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
	let pieces: string[] = [];
	let size = 0;
	return (chunk) => {
		const text = decoder.decode(chunk, { stream: true });
		const isWhole = `${pieces.at(-1)?.at(-1)}${text}`.includes('\n\n');
		if (text !== '') pieces.push(text);
		size += text.length;
		if (size > MAX_ANSWER_BYTES && !isWhole) throw tooLarge();
		// Joined once: a long line comes in many pieces.
		if (!isWhole) return [];
		const blocks = pieces.join('').split('\n\n');
		pieces = [blocks.pop() ?? ''].filter(Boolean);
		size = pieces[0]?.length ?? 0;
		return blocks.flatMap((block) => {
			const lines = Array.from(block.split('\n'), (line) => line.split(/: (.*)/s, 2));
			const { id = null, event = 'message' } = Object.fromEntries(lines);
			const data = lines.filter(([name]) => name === 'data').map(([, line]) => line);
			return data.length > 0 ? [{ id, event, data: data.join('\n') }] : [];
		});
	};
}
