/**
 * `idv-agent/client`: the agent's local interface for applications written in JavaScript or TypeScript. One file that imports
 * modules of Node only (the rest are types), so that it can also be copied. Must never hold a credential or cache an answer.
 */
import http from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type {
	AckResult,
	EventPage,
	ForgetResult,
	IdentityReport,
	LeaseReport,
	LocalEvent,
	Status,
} from '../protocol/local-answers.ts';

export type { AckResult, EventPage, ForgetResult, IdentityReport, LeaseReport, LocalEvent, Status };

export interface ClientOptions {
	/** The agent's socket for applications. Default `/run/idv-agent/agent.sock`. */
	readonly socketPath?: string | undefined;
	/** Milliseconds for one call, not for a stream or a wait. Default 15,000. */
	readonly deadlineMs?: number | undefined;
}

export interface EventOptions {
	/**
	 * The application's name, always the same: 1 to 64 letters, digits, dots, hyphens or underscores. The agent keeps what
	 * this consumer has not acknowledged, also while the application does not run. Left out: nothing is acknowledged.
	 */
	readonly consumer?: string | undefined;
	/** The id of the newest event that is known. Default: what the consumer has acknowledged, else all events that are kept. */
	readonly since?: string | undefined;
	/** Ends the loop without an error. */
	readonly signal?: AbortSignal | undefined;
	/** Told of each failure that the loop recovers from, such as an agent that is being restarted. */
	readonly onRetry?: ((error: AgentProblem) => void) | undefined;
}

export interface ServiceRequest {
	/** Default GET. */
	readonly method?: string | undefined;
	readonly headers?: Readonly<Record<string, string>> | undefined;
	/** A string or bytes are sent as they are, anything else as JSON. */
	readonly body?: unknown;
	readonly signal?: AbortSignal | undefined;
}

/** What the agent refused or could not do. `agent-not-running` and `request-timeout` are the client's own codes. */
export class AgentProblem extends Error {
	override readonly name = 'AgentProblem';
	/** HTTP status of the answer; 0 where there was none. */
	readonly status: number;
	/** Permanent, for programs: `access-denied`, `body-invalid`, … */
	readonly code: string;
	/** What to do about it; empty where the agent names nothing. */
	readonly remedy: string;

	constructor(status: number, code: string, message: string, remedy: string, cause?: unknown) {
		super(message, { cause });
		this.status = status;
		this.code = code;
		this.remedy = remedy;
	}
}

export type AgentClient = ReturnType<typeof createClient>;

const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
/** How long one request for events waits at the agent, in seconds: the longest that it takes. */
const WAIT_SECONDS = 60;
/** Between two attempts of a loop while the agent is away. */
const RETRY_MS = 1000;

/** Opens nothing: each call makes a connection of its own, so that a restart of the agent needs no care. */
export function createClient({ socketPath = '/run/idv-agent/agent.sock', deadlineMs = 15_000 }: ClientOptions = {}) {
	async function call<Answer>(method: string, path: string, body?: unknown, more: CallOptions = {}): Promise<Answer> {
		const late = AbortSignal.timeout(more.deadlineMs ?? deadlineMs);
		const signal = more.signal ? AbortSignal.any([late, more.signal]) : late;
		try {
			return (await readAnswer(await send(socketPath, { method, path, signal, ...jsonOf(body) }))) as Answer;
		} catch (error) {
			more.signal?.throwIfAborted();
			throw late.aborted ? tooSlow(more.deadlineMs ?? deadlineMs) : explain(error, socketPath);
		}
	}

	const acknowledge = (consumer: string, id: string): Promise<AckResult> =>
		call('POST', '/v1/events/ack', { consumer, id });
	const hold = (name: string, seconds = 60): Promise<LeaseReport> => call('POST', '/v1/leases', { name, seconds });
	const release = (name: string): Promise<LeaseReport> => call('POST', '/v1/leases/release', { name });

	/**
	 * Events as they come, oldest first, each at least once, until the signal ends the loop; an agent that is away is waited for.
	 * With a consumer, an event is acknowledged when the loop asks for the next one: a loop that ends with `break` or an
	 * error gets the event that it was at again the next time.
	 * @throws AgentProblem for a refusal that a repetition does not change, such as `access-denied` or `body-invalid`.
	 */
	async function* events({
		consumer,
		since,
		signal,
		onRetry,
	}: EventOptions = {}): AsyncGenerator<LocalEvent, void, void> {
		let position = since;
		const patiently = <Result>(run: () => Promise<Result>) => untilAnswered(run, signal, onRetry);
		while (!signal?.aborted) {
			const query = new URLSearchParams({ wait: String(WAIT_SECONDS), ...(consumer && { consumer }) });
			if (position !== undefined) query.set('since', position);
			const wait = { signal, deadlineMs: WAIT_SECONDS * 1000 + deadlineMs };
			const page = await patiently(() => call<EventPage>('GET', `/v1/events?${query}`, undefined, wait));
			for (const event of page?.events ?? []) {
				if (signal?.aborted) return;
				yield event;
				position = event.id;
				if (consumer !== undefined) await patiently(() => acknowledge(consumer, event.id).catch(permitForgotten));
			}
		}
	}

	return {
		/** The state of the device now. @throws AgentProblem, as every call here. */
		status: (): Promise<Status> => call('GET', '/v1/status'),
		/** The identity of the device, and the source of each value. */
		identity: (): Promise<IdentityReport> => call('GET', '/v1/identity'),
		events,
		/** One page of at most 100 events, without waiting: for an application that asks when it likes. */
		eventPage: ({ consumer, since }: Pick<EventOptions, 'consumer' | 'since'> = {}): Promise<EventPage> =>
			call('GET', `/v1/events?${new URLSearchParams({ ...(consumer && { consumer }), ...(since && { since }) })}`),
		/** Everything up to this event is processed: it is not delivered to this consumer again. */
		acknowledge,
		/** The consumer is out of use: nothing is kept for it any more. */
		forget: (consumer: string): Promise<ForgetResult> => call('POST', '/v1/events/forget', { consumer }),
		/** All leases in force. */
		leases: (): Promise<LeaseReport> => call('GET', '/v1/leases'),
		/** A verification is in progress: a workflow change waits for so many seconds (1 to 3600). Under the same name it starts again. */
		hold,
		/** The verification is over. */
		release,
		/** Holds a lease as long as `run` takes, and releases it whatever happens. */
		async withLease<Result>(name: string, run: () => Promise<Result>): Promise<Result> {
			await hold(name);
			// A renewal that fails is tried again at the next turn, well before the lease ends.
			const renewal = setInterval(() => void hold(name).catch(() => {}), 20_000);
			try {
				return await run();
			} finally {
				clearInterval(renewal);
				await release(name).catch(() => {});
			}
		},
		/**
		 * The same request to the service, with the device's Connection added by the agent. `path` is below the service's base
		 * URL. Any status is an answer, also one of the agent itself (`application/problem+json` with a `code`).
		 * @throws AgentProblem `agent-not-running`; the signal's reason when it is aborted.
		 */
		async service(path: string, { method = 'GET', headers, body, signal }: ServiceRequest = {}): Promise<Response> {
			const { payload, headers: own } = bodyOf(body);
			const target = `/v1/service/${path.replace(/^\/+/, '')}`;
			const sent = { method, path: target, signal, payload, headers: { ...own, ...headers } };
			const answer = await send(socketPath, sent).catch((error: unknown) => {
				signal?.throwIfAborted();
				throw explain(error, socketPath);
			});
			const status = answer.statusCode ?? 0;
			const isEmpty = status === 204 || status === 205 || status === 304;
			if (isEmpty) answer.resume();
			const pairs = Object.entries(answer.headersDistinct).flatMap(([name, values = []]) =>
				values.map((value): [string, string] => [name, value]),
			);
			return new Response(isEmpty ? null : (Readable.toWeb(answer) as ReadableStream), { status, headers: pairs });
		},
	};
}

interface CallOptions {
	readonly signal?: AbortSignal | undefined;
	readonly deadlineMs?: number;
}

interface Sent {
	readonly method: string;
	readonly path: string;
	readonly headers?: Readonly<Record<string, string>>;
	readonly payload?: string | Uint8Array | undefined;
	readonly signal?: AbortSignal | undefined;
}

function send(socketPath: string, { payload, signal, ...sent }: Sent): Promise<http.IncomingMessage> {
	return new Promise((resolve, reject) => {
		const request = http.request({ socketPath, agent: false, ...sent, ...(signal && { signal }) });
		request.once('response', resolve);
		// It stays: an error after the answer appears on the answer itself.
		request.on('error', reject);
		request.end(payload);
	});
}

const JSON_TYPE = { 'Content-Type': 'application/json' };
const jsonOf = (body: unknown) => (body === undefined ? {} : { payload: JSON.stringify(body), headers: JSON_TYPE });

function bodyOf(body: unknown): Pick<Sent, 'payload' | 'headers'> {
	return typeof body === 'string' || body instanceof Uint8Array ? { payload: body } : jsonOf(body);
}

async function readAnswer(answer: http.IncomingMessage): Promise<unknown> {
	const pieces: Buffer[] = [];
	let size = 0;
	for await (const piece of answer as AsyncIterable<Buffer>) {
		size += piece.length;
		if (size > MAX_ANSWER_BYTES) throw new Error('the answer is too large');
		pieces.push(piece);
	}
	const status = answer.statusCode ?? 0;
	const document: unknown = JSON.parse(Buffer.concat(pieces).toString());
	if (status >= 200 && status < 300) return document;
	const {
		code = 'bad-response',
		detail = `The agent answered ${status}.`,
		remedy = '',
	} = document as Record<string, string>;
	throw new AgentProblem(status, code, detail, remedy);
}

function explain(error: unknown, socketPath: string): unknown {
	if (error instanceof AgentProblem) return error;
	const { code } = error as NodeJS.ErrnoException;
	if (code === 'EACCES' || code === 'EPERM') {
		const remedy = 'Run the application in the group idv-agent.';
		return new AgentProblem(0, 'access-denied', `This user may not use ${socketPath}.`, remedy, error);
	}
	if (code === undefined || code.startsWith('ERR_'))
		return new AgentProblem(0, 'bad-response', `The answer on ${socketPath} cannot be read.`, 'Check the path.', error);
	const remedy = 'Start idv-agent, or check the path of its socket.';
	return new AgentProblem(0, 'agent-not-running', `No agent answers on ${socketPath}.`, remedy, error);
}

function tooSlow(deadlineMs: number): AgentProblem {
	return new AgentProblem(
		0,
		'request-timeout',
		`The agent did not answer within ${deadlineMs / 1000} s.`,
		'Try again.',
	);
}

/** Whether to try again: the agent is away, restarts, or has too much to do. */
const passes = ({ status, code }: AgentProblem) =>
	status >= 500 || status === 429 || code === 'agent-not-running' || code === 'request-timeout';

/** The agent was unpaired meanwhile and keeps the event no longer: there is nothing left to acknowledge. */
function permitForgotten(error: unknown): void {
	if (!(error instanceof AgentProblem && error.code === 'body-invalid')) throw error;
}

/** @returns `undefined` once the signal is aborted. */
async function untilAnswered<Result>(
	run: () => Promise<Result>,
	signal: AbortSignal | undefined,
	onRetry: EventOptions['onRetry'],
): Promise<Result | undefined> {
	for (;;) {
		try {
			return await run();
		} catch (error) {
			if (signal?.aborted) return undefined;
			if (!(error instanceof AgentProblem) || !passes(error)) throw error;
			onRetry?.(error);
			// An abort ends the pause as well.
			await sleep(RETRY_MS, undefined, { ...(signal && { signal }) }).catch(() => {});
		}
	}
}
