/**
 * `idv-agent/client`: the agent's local interface for applications written in JavaScript or TypeScript. Its bundle is one file
 * that imports modules of Node only. Must never hold a credential or cache an answer.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isObject } from '../protocol/json.ts';
import type {
	AckResult,
	EventPage,
	ForgetResult,
	IdentityReport,
	LeaseReport,
	LocalEvent,
	Status,
} from '../protocol/local-answers.ts';
import { AgentProblem } from './agent-problem.ts';
import { ask, isGone, passes, unreadable } from './agent-socket.edge.ts';
import { checkClient, checkFunction, checkId, checkName, checkReading, checkSeconds } from './arguments.ts';
import { isPage, readPage } from './event-text.ts';
import { requestService } from './service-request.edge.ts';

export type { AckResult, EventPage, ForgetResult, IdentityReport, LeaseReport, LocalEvent, Status };
export { AgentProblem };

export interface ClientOptions {
	/** The agent's socket for applications. Default `/run/idv-agent/agent.sock`. */
	readonly socketPath?: string | undefined;
	/**
	 * Milliseconds for one call, not for a stream or a wait. A service may take longer: while `service` waits for the head of its answer, the
	 * agent has so long to say that it is there, again and again. Default 15,000.
	 */
	readonly deadlineMs?: number | undefined;
}

export interface EventOptions {
	/**
	 * The application's name, always the same: 1 to 64 letters, digits, dots, hyphens or underscores. The agent keeps what
	 * this consumer has not acknowledged, also while the application does not run. Left out: nothing is acknowledged.
	 */
	readonly consumer?: string | undefined;
	/** The id of the newest event that is known. Left out or empty: what the consumer has acknowledged, else all events that are kept. */
	readonly since?: string | null | undefined;
	/** Ends the loop without an error. */
	readonly signal?: AbortSignal | undefined;
	/** Told of each failure that the loop recovers from, such as an agent that is being restarted. */
	readonly onRetry?: ((error: AgentProblem) => void) | undefined;
}

/** An empty name or id that stands in the source is refused by the types, as every other is when it is used. */
type Filled<Text extends string> = Text & (Text extends '' ? never : unknown);
type Named<Name extends string> = { readonly consumer?: Filled<Name> | undefined };
/** So is a method that is not passed on; `fetch` makes capitals of all of them but PATCH. */
type Passed<Method extends string> = string extends Method
	? Method
	: Uppercase<Method> extends 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE'
		? Method
		: Method & 'PATCH';
type ByMethod<Method extends string> = { readonly method?: Passed<Method> | undefined };
/** So is a path that names another host. */
type OwnPath<Path extends string> = Path & (Path extends `${'/' | '\\'}${'/' | '\\'}${string}` ? never : unknown);

export interface ServiceRequest {
	/** GET (by default), HEAD, POST, PUT, PATCH or DELETE. */
	readonly method?: string | undefined;
	readonly headers?: RequestInit['headers'] | undefined;
	/**
	 * A body that `fetch` takes is sent as `fetch` sends it, with its content type, a stream as fast as the agent takes it; plain data as
	 * JSON. A body that cannot be sent is refused with `body-invalid`.
	 */
	readonly body?: RequestInit['body'] | AsyncIterable<Uint8Array> | PlainData | undefined;
	readonly signal?: AbortSignal | null | undefined;
}

/** For JSON: no Map, promise, function, stream or bytes within. */
export type PlainData =
	| number
	| boolean
	| readonly unknown[]
	| { readonly [name: string]: unknown }
	| (object & {
			readonly [Symbol.toStringTag]?: never;
			readonly [Symbol.asyncIterator]?: never;
			readonly arrayBuffer?: never;
			readonly call?: never;
			readonly pipe?: never;
	  });

/** An event with its data as it came: `data` is parsed, which rounds 9007199254740993 and 1.10; `text` is exact. */
export type ExactEvent = LocalEvent & { readonly text: string };
export type ExactPage = Omit<EventPage, 'events'> & { readonly events: readonly ExactEvent[] };

export type AgentClient = ReturnType<typeof createClient>;

/** How long one request for events waits at the agent, in seconds: the longest that it takes. */
const WAIT_SECONDS = 60;
/** Between two attempts of a loop while the agent is away. */
const RETRY_MS = 1000;

const LEASE_SECONDS = 60;
/** How often work renews its lease. */
const RENEW_MS = 20_000;

/** Tells the work of this process from that of others under the same name of a lease. */
const PROCESS = Math.random().toString(36).slice(2);
/** Works by the socket and name of their lease, and releases on their way: the clients of this process share them. */
const works = new Map<string, ReturnType<typeof keepRenewed>>();
const releases = new Map<string, { readonly done: Promise<unknown>; readonly giveUp: () => void }>();

/** Renews a lease until it ends. */
function keepRenewed(hold: () => Promise<unknown>) {
	const over = new AbortController();
	let renewing: Promise<unknown> | undefined;
	const renew = () => {
		renewing ??= untilAnswered(hold, over.signal, undefined)
			.catch(() => {})
			.finally(() => {
				renewing = undefined;
			});
	};
	const timer = setInterval(renew, RENEW_MS);
	const end = async () => {
		clearInterval(timer);
		over.abort();
		await renewing;
	};
	return { count: 0, renew, end };
}

/** Waits for one try. An agent that is away then is told when it is back, as long as the lease would last: no program stays alive for that. */
async function letGo(key: string, release: () => Promise<unknown>): Promise<void> {
	const work = works.get(key);
	works.delete(key);
	const over = new AbortController();
	const first = Promise.resolve(work?.end()).then(release);
	const releasing = { done: first.catch(() => later()), giveUp: () => over.abort() };
	const later = async () => {
		const endMs = performance.now() + LEASE_SECONDS * 1000;
		while (performance.now() < endMs && !over.signal.aborted) {
			await sleep(RETRY_MS, undefined, { signal: over.signal, ref: false }).catch(() => {});
			if (over.signal.aborted || (await release().then(() => true, isRefusal))) break;
		}
	};
	releases.set(key, releasing);
	void releasing.done.then(() => void (releases.get(key) === releasing && releases.delete(key)));
	await first.catch(() => {});
}

const isRefusal = (error: unknown): boolean => !(error instanceof AgentProblem && passes(error));

/** Opens nothing: each call makes a connection of its own, so that a restart of the agent needs no care. */
export function createClient(options: ClientOptions = {}) {
	checkClient(options);
	const { socketPath = '/run/idv-agent/agent.sock', deadlineMs = 15_000 } = options;
	let isAway = false;
	const call = async <Answer>(
		method: string,
		path: string,
		body?: unknown,
		more: CallOptions = {},
	): Promise<Answer> => {
		try {
			const answer = await ask(socketPath, { method, path, body, deadlineMs, ...more });
			if (!isObject(answer)) throw unreadable('The answer is not a document of the agent.');
			// An agent that is back may be another one, which knows no lease.
			if (isAway) for (const { renew } of works.values()) renew();
			isAway = false;
			return answer as Answer;
		} catch (error) {
			isAway ||= error instanceof AgentProblem && isGone(error);
			throw error;
		}
	};

	const eventPage = async (query: URLSearchParams, more: CallOptions = {}): Promise<ExactPage> => {
		const page = await call<unknown>('GET', `/v1/events?${query}`, undefined, { read: readPage, ...more });
		if (!isPage(page)) throw unreadable('The answer is not a page of events.');
		return page as ExactPage;
	};
	const acknowledge = async (consumer: string, id: string): Promise<AckResult> => {
		checkName('the consumer', consumer);
		checkId(id);
		return call('POST', '/v1/events/ack', { consumer, id });
	};
	const hold = async (name: string, seconds = 60, work?: string): Promise<LeaseReport> => {
		checkName('the lease', name);
		checkSeconds(seconds);
		return call('POST', '/v1/leases', { name, seconds, work });
	};
	const release = async (name: string, work?: string): Promise<LeaseReport> => {
		checkName('the lease', name);
		return call('POST', '/v1/leases/release', { name, work });
	};

	/**
	 * Events as they come, oldest first, each at least once, until the signal ends the loop; an agent that is away is waited for.
	 * With a consumer, an event is acknowledged when the loop asks for the next one: a loop that ends with `break` or an
	 * error gets the event that it was at again the next time.
	 * @throws AgentProblem for a refusal that a repetition does not change, such as `access-denied` or `body-invalid`; `no-progress`
	 * when the agent answers with the same events again and again.
	 */
	async function* events<Name extends string>(
		reading: EventOptions & Named<Name> = {},
	): AsyncGenerator<ExactEvent, void, void> {
		checkReading(reading);
		const { consumer, since, signal, onRetry } = reading;
		let position = since || undefined;
		const progress = watchProgress();
		const patiently = <Result>(run: () => Promise<Result>) => untilAnswered(run, signal, onRetry);
		while (!signal?.aborted) {
			const query = new URLSearchParams({ wait: String(WAIT_SECONDS), ...(consumer && { consumer }) });
			if (position !== undefined) query.set('since', position);
			const wait = { signal, deadlineMs: WAIT_SECONDS * 1000 + deadlineMs };
			const askedAtMs = performance.now();
			const page = await patiently(() => eventPage(query, wait));
			const events = page?.events ?? [];
			progress(position, events);
			// An agent waits for events; one that does not is not asked again and again.
			if (events.length === 0 && performance.now() - askedAtMs < RETRY_MS) await pause(signal);
			for (const event of events) {
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
		eventPage: async <Name extends string>(
			reading: Pick<EventOptions, 'consumer' | 'since'> & Named<Name> = {},
		): Promise<ExactPage> => {
			checkReading(reading);
			const { consumer, since } = reading;
			const query = new URLSearchParams({ ...(consumer && { consumer }), ...(since && { since }) });
			return eventPage(query);
		},
		/** Everything up to this event is processed: it is not delivered to this consumer again. */
		acknowledge: <Name extends string, Id extends string>(consumer: Filled<Name>, id: Filled<Id>) =>
			acknowledge(consumer, id),
		/** The consumer is out of use: nothing is kept for it any more. */
		forget: async <Name extends string>(consumer: Filled<Name>): Promise<ForgetResult> => {
			checkName('the consumer', consumer);
			return call('POST', '/v1/events/forget', { consumer });
		},
		/** All leases in force. */
		leases: (): Promise<LeaseReport> => call('GET', '/v1/leases'),
		/** A verification is in progress: a workflow change waits for so many seconds (1 to 3600). Under the same name it starts again. */
		hold: <Name extends string>(name: Filled<Name>, seconds?: number) => hold(name, seconds),
		/** The verification is over. */
		release: <Name extends string>(name: Filled<Name>) => release(name),
		/**
		 * Holds a lease as long as `run` takes, and releases it whatever happens. Works under one name may overlap, also in several
		 * processes: the lease ends with the last of them. It is renewed every 20 s, and at once when an agent that was away is back.
		 * An agent that is away when the work ends is told when it is back, as long as this process runs.
		 */
		async withLease<Result, Name extends string = string>(
			name: Filled<Name>,
			run: () => Promise<Result>,
		): Promise<Result> {
			checkName('the lease', name);
			checkFunction('The work', run);
			const key = `${socketPath} ${name}`;
			const work = works.get(key) ?? keepRenewed(() => hold(name, LEASE_SECONDS, PROCESS));
			works.set(key, work);
			work.count += 1;
			try {
				// One that is on its way could arrive after the new lease, and end it.
				const releasing = releases.get(key);
				releasing?.giveUp();
				await releasing?.done;
				await hold(name, LEASE_SECONDS, PROCESS);
				return await run();
			} finally {
				work.count -= 1;
				if (work.count === 0) await letGo(key, () => release(name, PROCESS));
			}
		},
		/**
		 * The same request to the service, with the device's Connection added by the agent. `path` is below the service's base
		 * URL. Any status is an answer, also one of the agent itself (`application/problem+json` with a `code`).
		 * @throws AgentProblem `agent-not-running`, `usage` or `body-invalid` before anything is sent; `connection-lost`; `request-timeout` where the agent itself has stopped; the signal's reason; what the body throws.
		 */
		service: <Path extends string, Method extends string>(
			path: OwnPath<Path>,
			request: (ServiceRequest & ByMethod<Method>) | null = null,
		): Promise<Response> => requestService({ socketPath, deadlineMs }, path, request),
	};
}

interface CallOptions {
	readonly signal?: AbortSignal | undefined;
	readonly deadlineMs?: number;
	readonly read?: (text: string) => unknown;
}

/** Checks that reading ends. An agent that lost its newest events may go back once from an id, and never comes to that id again. */
function watchProgress(): (position: string | undefined, events: readonly LocalEvent[]) => void {
	const wentBackFrom = new Set<string>();
	return (position, events) => {
		const [first] = events;
		if (position === undefined || !first || numberOf(first.id) > numberOf(position)) return;
		if (wentBackFrom.has(position) || events.some(({ id }) => id === position))
			throw new AgentProblem(
				0,
				'no-progress',
				`The agent answers with the same events again and again: after ${position} it begins with ${first.id}.`,
				'Update idv-agent, and report this if it remains. To continue, begin without an id to resume from.',
			);
		wentBackFrom.add(position);
	};
}

const numberOf = (id: string): number => Number(id.slice(id.lastIndexOf('-') + 1));

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
			await pause(signal);
		}
	}
}

/** An abort ends it as well. */
const pause = (signal: AbortSignal | undefined) =>
	sleep(RETRY_MS, undefined, { ...(signal && { signal }) }).catch(() => {});
