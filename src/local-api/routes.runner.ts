/**
 * What the two sockets and the ports on loopback answer: each route calls the agent and puts its words into a body of
 * `protocol/local-api.ts`. Applications only read, on `agent.sock` or in a browser; whatever moves the device is on
 * `admin.sock`.
 */

import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { type Counters, count } from '../base/counters.ts';
import { AgentError } from '../base/errors.ts';
import type { Entry } from '../events/event.ts';
import { isEventId } from '../events/event.ts';
import { formatEvent } from '../events/feed.runner.ts';
import {
	type AckRequest,
	ackRequestSchema,
	EVENT_PAGE_LENGTH,
	forgetRequestSchema,
	LOCAL_ROUTES,
	leaseReleaseSchema,
	leaseRequestSchema,
	MAX_EVENT_WAIT_SECONDS,
	pairRequestSchema,
	type ScannerReport,
	workflowRequestSchema,
} from '../protocol/local-api.ts';
import { agentMetrics, formatMetrics, METRICS_CONTENT_TYPE, type Metric } from '../status/metrics.ts';
import type { RecentLog } from '../status/recent-log.ts';
import type { Forward } from './forwarder.edge.ts';
import {
	type EventSink,
	formatEvents,
	type LocalReply,
	type LocalRequest,
	type LocalRoute,
	localRoute,
	rawRoute,
} from './server/local-server.ts';

/** Whatever applications may ask, wherever they live. */
const APPLICATIONS = ['agent', 'admin', 'browser'] as const;
const ADMIN = ['admin'] as const;
/** Not for pages: what is plugged into the device is none of their business. */
const ON_SOCKETS = ['agent', 'admin'] as const;
const HEALTH = ['agent', 'admin', 'browser', 'probe'] as const;
/** Events that a stream reads at once while it catches up, and characters of contents that it is then sent at once. */
const REPLAY_PAGE = 500;
const PIECE = 256 * 1024;

/** What the routes answer from, besides the agent. */
export interface RouteParts {
	readonly clock: Pick<Clock, 'schedule'>;
	readonly counters: Counters;
	readonly forward: Forward;
	readonly recentLog: Pick<RecentLog, 'lines'>;
	readonly scanners: () => Promise<ScannerReport>;
}

/** The route table. */
export function localRoutes(agent: Agent, { clock, counters, forward, recentLog, scanners }: RouteParts): LocalRoute[] {
	const routes: LocalRoute[] = [
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.document,
			sockets: APPLICATIONS,
			async handle() {
				// Most devices are never asked for it.
				const { describeRoutes } = await import('./openapi.ts');
				return ok(describeRoutes(routes, agent.status().agentVersion));
			},
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.status,
			sockets: APPLICATIONS,
			handle: (request) =>
				wantsStream(request) ? { stream: (sink) => streamStatus(agent, sink) } : ok(agent.status()),
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.events,
			sockets: APPLICATIONS,
			handle: (request) => {
				const since = readSince(agent, request);
				return wantsStream(request)
					? { stream: (sink) => counted(counters, streamEvents(agent, since, sink)) }
					: pageOfEvents(agent, clock, since, request);
			},
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.ack,
			sockets: APPLICATIONS,
			body: ackRequestSchema,
			handle: ({ body }) => acknowledge(agent, body),
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.forget,
			sockets: APPLICATIONS,
			body: forgetRequestSchema,
			async handle({ body: { consumer } }) {
				const known = agent.events.forget(consumer);
				await agent.events.settled();
				return ok({ consumer, known });
			},
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.leases,
			sockets: APPLICATIONS,
			handle: () => ok(agent.leases.list()),
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.leases,
			sockets: APPLICATIONS,
			body: leaseRequestSchema,
			handle({ body }) {
				agent.leases.hold(body.name, body.seconds);
				return ok(agent.leases.list());
			},
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.leaseRelease,
			sockets: APPLICATIONS,
			body: leaseReleaseSchema,
			handle({ body }) {
				agent.leases.release(body.name);
				return ok(agent.leases.list());
			},
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.identity,
			sockets: APPLICATIONS,
			handle: () => ok(agent.identity()),
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.identityAccept,
			sockets: ADMIN,
			handle: async () => ok(await agent.acceptIdentity()),
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.scanners,
			sockets: ON_SOCKETS,
			handle: async () => ok(await scanners()),
		}),
		rawRoute({
			method: '*',
			path: LOCAL_ROUTES.service,
			prefix: true,
			sockets: ['agent', 'browser'],
			async handle({ body: { request, response, target } }): Promise<LocalReply> {
				try {
					await forward(request, response, target);
					count(counters.forwarded, `${Math.floor(response.statusCode / 100)}xx`);
				} catch (error) {
					count(counters.forwarded, 'failed');
					throw error;
				}
				return { answered: true };
			},
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.metrics,
			sockets: ['agent', 'admin', 'probe'],
			handle: () => ({
				status: 200,
				headers: { 'Content-Type': METRICS_CONTENT_TYPE },
				text: formatMetrics(metricsOf(agent, counters)),
			}),
		}),
		localRoute({ method: 'GET', path: LOCAL_ROUTES.live, sockets: HEALTH, handle: () => ok({ live: true }) }),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.ready,
			sockets: HEALTH,
			handle: () => {
				const { state, sentence } = agent.status();
				return { status: state === 'online' ? 200 : 503, body: { ready: state === 'online', sentence } };
			},
		}),
		localRoute({
			method: 'GET',
			path: LOCAL_ROUTES.log,
			sockets: ADMIN,
			handle: () => ok({ lines: recentLog.lines() }),
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.pairInspect,
			sockets: ADMIN,
			body: pairRequestSchema,
			handle: ({ body }) => ok(agent.inspectPairing(body)),
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.pair,
			sockets: ADMIN,
			body: pairRequestSchema,
			handle: async ({ body }) => ok(await agent.pair(body)),
		}),
		localRoute({
			method: 'PUT',
			path: LOCAL_ROUTES.workflow,
			sockets: ADMIN,
			body: workflowRequestSchema,
			handle: async ({ body }) => {
				await agent.setWorkflow(body.workflowId);
				return ok(agent.status());
			},
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.reconnect,
			sockets: ADMIN,
			handle: () => {
				agent.reconnect();
				return ok(agent.status());
			},
		}),
		localRoute({
			method: 'POST',
			path: LOCAL_ROUTES.unpair,
			sockets: ADMIN,
			handle: async () => {
				await agent.unpair();
				return ok(agent.status());
			},
		}),
	];
	return routes;
}

function metricsOf({ status, events, leases }: Agent, counters: Counters): Metric[] {
	return agentMetrics(status(), counters, {
		eventsKept: events.count,
		eventBytes: events.bytes,
		eventsDurable: counters.eventsDurable,
		consumers: counters.streams,
		leases: leases.list().leases.length,
		residentBytes: process.memoryUsage.rss(),
		clockSkewSeconds: counters.clockSkewMs === null ? null : counters.clockSkewMs / 1000,
	});
}

/** An open stream is one more until it ends. */
function counted(counters: Counters, end: () => void): () => void {
	counters.streams += 1;
	return () => {
		counters.streams -= 1;
		end();
	};
}

function ok(body: unknown): LocalReply {
	return { status: 200, body };
}

/** Applications that say nothing get a stream of events and a document of the status, by what they accept. */
function wantsStream({ headers }: LocalRequest): boolean {
	return headers.accept?.includes('text/event-stream') ?? false;
}

/** Where a reader goes on: after the id that it names, else after what it has acknowledged under its own name. */
function readSince({ events }: Agent, { since, query }: LocalRequest): string | null {
	const consumer = query.get('consumer');
	if (consumer !== null) events.join(consumer);
	if (!since) return consumer === null ? null : events.positionOf(consumer);
	if (isEventId(since)) return since;
	throw new AgentError('body-invalid', 'since is not the id of an event.', {
		remedy: 'Use an id exactly as an event carried it.',
	});
}

/** Answered when it is stored: after that neither side's restart brings the events back. */
async function acknowledge({ events }: Agent, { consumer, id }: AckRequest): Promise<LocalReply> {
	if (!events.acknowledge(consumer, id))
		throw new AgentError('body-invalid', 'id is not the id of an event that was kept here.', {
			remedy: 'Use an id exactly as an event carried it.',
		});
	await events.settled();
	return ok({ consumer, position: events.positionOf(consumer) });
}

function streamStatus(agent: Agent, sink: EventSink): () => void {
	let last = '';
	const send = () => {
		const data = JSON.stringify(agent.status());
		if (data !== last) sink.send({ event: 'status', data });
		last = data;
	};
	send();
	return agent.onStatus(send);
}

/** What arrives goes to all streams as the same list, and is written down once. */
const written = new WeakMap<readonly Entry[], Buffer>();

/** As many as have so many characters together, and at least one. */
function firstOf(entries: readonly Entry[], characters: number): readonly Entry[] {
	let left = characters;
	const end = entries.findIndex(({ content }) => {
		left -= content.length;
		return left < 0;
	});
	return end === -1 ? entries : entries.slice(0, Math.max(1, end));
}

function framesOf(entries: readonly Entry[]): Buffer {
	const known = written.get(entries);
	if (known) return known;
	const frames = formatEvents(entries.map((entry) => ({ id: entry.id, event: entry.type, data: formatEvent(entry) })));
	written.set(entries, frames);
	return frames;
}

/** What is kept first, then what arrives. */
function streamEvents(agent: Agent, since: string | null, sink: EventSink): () => void {
	let stop = () => {};
	let over = false;
	let last = since;
	const send = (entries: readonly Entry[]) => {
		last = entries.at(-1)?.id ?? last;
		return sink.sendAll(framesOf(entries));
	};
	const live = (entries: readonly Entry[]) => {
		if (!send(entries) || !sink.isBehind) return;
		// What waits for a reader is in the store already: it need not wait in memory as well.
		stop();
		begin();
	};
	const replay = async () => {
		await sink.drained();
		await agent.events.settled();
		for (;;) {
			const { entries } = agent.events.after(last, REPLAY_PAGE);
			if (over) return;
			if (entries.length === 0) break;
			if (!send(firstOf(entries, PIECE))) return;
			if (sink.isBehind) await sink.drained();
		}
		// Nothing can have arrived in between: this runs in the same turn as the look that found nothing more.
		stop = agent.events.subscribe(live);
	};
	// Nobody waits for it: a fault in it must not end the agent.
	const begin = () => void replay().catch(() => sink.close('failed'));
	begin();
	return () => {
		over = true;
		stop();
	};
}

async function pageOfEvents(
	agent: Agent,
	clock: Pick<Clock, 'schedule'>,
	since: string | null,
	request: LocalRequest,
): Promise<LocalReply> {
	const waitSeconds = Number(request.query.get('wait') ?? 0);
	if (!(waitSeconds >= 0 && waitSeconds <= MAX_EVENT_WAIT_SECONDS))
		throw new AgentError('body-invalid', `wait must be a number of seconds from 0 to ${MAX_EVENT_WAIT_SECONDS}.`, {
			remedy: 'Correct the wait parameter.',
		});
	await agent.events.settled();
	if (waitSeconds > 0 && agent.events.after(since, 1).entries.length === 0)
		await nextEvent(agent, clock, waitSeconds, request.signal);
	const { entries } = agent.events.after(since, EVENT_PAGE_LENGTH);
	const next = entries.at(-1)?.id ?? since;
	return { status: 200, json: `{"events":[${entries.map(formatEvent).join(',')}],"next":${JSON.stringify(next)}}` };
}

/** Resolves with the next event, when the time is over, or when the caller is gone. */
function nextEvent(
	agent: Agent,
	clock: Pick<Clock, 'schedule'>,
	waitSeconds: number,
	signal: AbortSignal,
): Promise<void> {
	return new Promise((resolve) => {
		const done = () => {
			cancel();
			unsubscribe();
			signal.removeEventListener('abort', done);
			resolve();
		};
		const cancel = clock.schedule(waitSeconds * 1000, done);
		const unsubscribe = agent.events.subscribe(done);
		signal.addEventListener('abort', done, { once: true });
	});
}
