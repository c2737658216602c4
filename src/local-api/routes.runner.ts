/**
 * The route table of the two sockets and the ports on loopback, one row for each route: its listeners, its body, its
 * handler, its answers, and its words in the document. Applications only read, on `agent.sock` or in a
 * browser; requests that change the device are on `admin.sock`.
 */
import type { Agent } from '../agent/agent.runner.ts';
import type { Audit } from '../audit/audit.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { type Counters, count } from '../base/counters.ts';
import { AgentError } from '../base/errors.ts';
import {
	ackRequestSchema,
	DEFAULT_LEASE_SECONDS,
	EVENT_PAGE_LENGTH,
	forgetRequestSchema,
	hookReportSchema,
	LOCAL_ROUTES,
	LOCAL_SOCKETS,
	leaseReleaseSchema,
	leaseRequestSchema,
	type ScannerReport,
	type SettingsReport,
} from '../protocol/local-api.ts';
import { type MachineFigures, METRICS_CONTENT_TYPE } from '../status/metrics.ts';
import type { RecentLog } from '../status/recent-log.ts';
import { audited } from './audited.runner.ts';
import { changeRoutes, recordRoutes } from './control-routes.runner.ts';
import {
	acknowledge,
	counted,
	EVENT_PARAMETERS,
	leasesOf,
	ownName,
	pageOfEvents,
	readSince,
	streamEvents,
	streamStatus,
} from './event-routes.runner.ts';
import type { Forward } from './forwarder.edge.ts';
import type { HookCalls } from './hook-calls.runner.ts';
import type { DescribedRoute } from './openapi.ts';
import { createPlaces, type Places } from './places.ts';
import { ADMIN, APPLICATIONS, answer, HEALTH, ON_SOCKETS, ok, row, STATUS, stream } from './route-rows.ts';
import { SHARES } from './server/browser-applications.edge.ts';
import { forwardProblem } from './server/forward-problems.ts';
import type { LocalReply, LocalRequest, RawExchange } from './server/local-server.edge.ts';
import { acceptsStream } from './server/routing.edge.ts';

/** The sources of the answers, besides the agent. */
export interface RouteParts {
	readonly audit: Audit;
	readonly clock: Pick<Clock, 'monotonicMs' | 'schedule' | 'wallMs'>;
	readonly counters: Counters;
	readonly forward: Forward;
	readonly hooks: HookCalls;
	readonly recentLog: Pick<RecentLog, 'lines'>;
	readonly scanners: () => Promise<ScannerReport>;
	readonly settings: () => Promise<SettingsReport>;
	/** Left out, the figures of the machine are not known. */
	readonly machine?: () => Promise<MachineFigures>;
}

const LEASES = { 200: answer('All leases in force.', 'LeaseReport') };

export function localRoutes(agent: Agent, parts: RouteParts): DescribedRoute[] {
	/** Streams and waits under way, by the name of an application. */
	const waits = createPlaces();
	const routes: DescribedRoute[] = [
		row('GET', LOCAL_ROUTES.document, APPLICATIONS, 'getDocument', {
			summary: 'This document.',
			answers: { 200: answer('OpenAPI 3.1.', 'any') },
			async handle() {
				// Most devices are never asked for it.
				const { describeRoutes } = await import('./openapi.ts');
				return ok(describeRoutes(routes, agent.status().agentVersion));
			},
		}),
		...statusRoutes(agent, waits),
		...eventRoutes(agent, waits, parts),
		...hookRoutes(parts),
		...leaseRoutes(agent),
		...equipmentRoutes(agent, parts),
		...serviceRoutes(parts),
		...healthRoutes(agent, parts),
		...changeRoutes(agent),
		...recordRoutes(parts),
	];
	return routes.map((route) =>
		route.listeners === ADMIN
			? audited(route, { action: route.name, entrance: LOCAL_SOCKETS.admin, audit: parts.audit })
			: route,
	);
}

function statusRoutes(agent: Agent, waits: Places): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.status, APPLICATIONS, 'getStatus', {
			summary: 'The state of the device: one sentence for a person, then details.',
			description: `With Accept: text/event-stream, what ${LOCAL_ROUTES.statusStream} answers.`,
			answers: STATUS,
			handle(request) {
				if (!wantsStream(request)) return ok(agent.status());
				takeWait(waits, request);
				return { stream: (sink) => streamStatus(agent, sink) };
			},
		}),
		row('GET', LOCAL_ROUTES.statusStream, APPLICATIONS, 'streamStatus', {
			summary: 'The state of the device now and after each change, as Server-Sent Events named status.',
			answers: { 200: stream('One event for each change; its data is a Status.', 'Status') },
			handle(request) {
				takeWait(waits, request);
				return { stream: (sink) => streamStatus(agent, sink) };
			},
		}),
	];
}

function eventRoutes(
	agent: Agent,
	waits: Places,
	{ clock, counters }: Pick<RouteParts, 'clock' | 'counters'>,
): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.events, APPLICATIONS, 'getEvents', {
			summary:
				'Events of the device: notifications of the service, sessions, and gaps in which something may be missing.',
			description:
				`At least once and in order, at most ${EVENT_PAGE_LENGTH} of them, and fewer if they are large; ask again with since=next until there are none. With Accept: ` +
				`text/event-stream, what ${LOCAL_ROUTES.eventStream} answers.`,
			parameters: EVENT_PARAMETERS,
			answers: { 200: answer('Events, oldest first.', 'EventPage') },
			handle(request) {
				const since = readSince(agent, request);
				const isStream = wantsStream(request);
				if (isStream || request.query.has('wait')) takeWait(waits, request);
				return isStream
					? { stream: (sink) => counted(counters, streamEvents(agent, since, sink, request.application)) }
					: pageOfEvents(agent, clock, since, request);
			},
		}),
		row('GET', LOCAL_ROUTES.eventStream, APPLICATIONS, 'streamEvents', {
			summary: 'The same events as Server-Sent Events, as they come.',
			description:
				'At least once and in order. The last event, named closed, says why the stream is over ({"reason":"slow"} for a ' +
				'reader that did not keep up: reconnect with the last id; {"reason":"no-progress"} for a fault by which events would ' +
				'come again and again: do not reconnect with that id).',
			parameters: EVENT_PARAMETERS.filter(({ name }) => name !== 'wait'),
			answers: { 200: stream('One event for each Event, which is its data, until either side ends it.', 'Event') },
			handle(request) {
				const since = readSince(agent, request);
				takeWait(waits, request);
				return { stream: (sink) => counted(counters, streamEvents(agent, since, sink, request.application)) };
			},
		}),
		row('POST', LOCAL_ROUTES.ack, APPLICATIONS, 'acknowledgeEvents', {
			summary: 'Reports that a consumer has processed everything up to an event: it is not delivered to it again.',
			body: ackRequestSchema,
			answers: { 200: answer('How far it has acknowledged.', 'AckResult') },
			handle(request) {
				counters.acknowledgedAtMs = clock.monotonicMs();
				return acknowledge(agent, request);
			},
		}),
		row('POST', LOCAL_ROUTES.forget, APPLICATIONS, 'forgetConsumer', {
			summary: 'Reports that a consumer is out of use: no contents are kept for it any more.',
			description: 'If the name is used again, it is a new consumer, which has acknowledged nothing.',
			body: forgetRequestSchema,
			answers: { 200: answer('Whether it was known.', 'ForgetResult') },
			async handle({ body: { consumer }, application }) {
				const known = agent.events.forget(ownName(application, consumer));
				await agent.events.settled();
				return ok({ consumer, known });
			},
		}),
	];
}

function hookRoutes({ hooks }: Pick<RouteParts, 'hooks'>): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.hookStream, ON_SOCKETS, 'streamHooks', {
			summary: 'Calls of hooks.*, except for notifications: for idv-agent hooks, which runs the commands.',
			description:
				'Server-Sent Events, for one program at a time. hooks: the names of the hooks that are set, at the beginning and ' +
				'after each change. call: the next one, with an id, again in each stream until it is reported.',
			answers: {
				200: stream('The data of hooks is a list of names; that of call has the hook and its input.', 'HookCall'),
			},
			handle() {
				hooks.checkFree();
				return { stream: hooks.follow };
			},
		}),
		row('POST', LOCAL_ROUTES.hookReport, ON_SOCKETS, 'reportHook', {
			summary: 'Reports what came of a command of hooks.*: by its id it is not told again; its end is counted.',
			body: hookReportSchema,
			answers: { 200: answer('It is noted.', 'HookReceipt') },
			handle: ({ body }) => ok(hooks.report(body)),
		}),
	];
}

function leaseRoutes(agent: Agent): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.leases, APPLICATIONS, 'getLeases', {
			summary: 'The applications that keep a workflow change waiting.',
			answers: LEASES,
			handle: (request) => ok(leasesOf(agent, request)),
		}),
		row('POST', LOCAL_ROUTES.leases, APPLICATIONS, 'holdLease', {
			summary: 'Reports that a verification is in progress: a workflow change waits for it.',
			description: `The lease lasts ${DEFAULT_LEASE_SECONDS} s unless the request says otherwise; a change waits for it no longer than workflow.maxDeferSeconds. It keeps its remaining time over a restart of the agent, and ends when the machine starts again: renew it while the work continues.`,
			body: leaseRequestSchema,
			answers: LEASES,
			handle(request) {
				const { name, seconds, work } = request.body;
				agent.leases.hold(ownName(request.application, name), seconds, work);
				return ok(leasesOf(agent, request));
			},
		}),
		row('POST', LOCAL_ROUTES.leaseRelease, APPLICATIONS, 'releaseLease', {
			summary: 'Reports that the verification, or one work of it, is over.',
			body: leaseReleaseSchema,
			answers: LEASES,
			handle(request) {
				agent.leases.release(ownName(request.application, request.body.name), request.body.work);
				return ok(leasesOf(agent, request));
			},
		}),
	];
}

function equipmentRoutes(agent: Agent, { scanners }: Pick<RouteParts, 'scanners'>): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.identity, APPLICATIONS, 'getIdentity', {
			summary: 'The identity of the device, and the source of each value.',
			answers: { 200: answer('Identifier, serial number, MAC address.', 'IdentityReport') },
			handle: () => ok(agent.identity()),
		}),
		row('GET', LOCAL_ROUTES.scanners, ON_SOCKETS, 'getScanners', {
			summary: 'The code scanners that the agent sees, and whether it listens to them.',
			answers: { 200: answer('Every scanner, used or not.', 'ScannerReport') },
			handle: async () => ok(await scanners()),
		}),
	];
}

function serviceRoutes({ forward, counters }: Pick<RouteParts, 'counters' | 'forward'>): DescribedRoute[] {
	return [
		row<RawExchange>('*', LOCAL_ROUTES.service, ['agent', 'browser'], 'askService', {
			prefix: true,
			summary: 'The same request to the service, with the Connection of the device added.',
			description:
				'Refused before anything is sent: an Authorization of the caller, paths that lead out of the base URL or to the ' +
				'authorization endpoints, and paths that forward.allow leaves out. Redirects are not followed. An answer of the agent has ' +
				'Idv-Agent-Effect: none (nothing has left) or possible: 502 (nothing to pass on), 504 (silent), 507 (too large), 408.',
			body: 'raw',
			answers: {
				'2XX': { about: 'The answer of the service.', content: { '*/*': 'any' } },
				304: { about: 'The answer of the service: nothing has changed since.', content: {} },
			},
			async handle({ body: { request, response, target }, application }): Promise<LocalReply> {
				try {
					await forward(request, response, target, application);
					count(counters.forwarded, `${Math.floor(response.statusCode / 100)}xx`);
				} catch (error) {
					count(counters.forwarded, 'failed');
					if (error instanceof AgentError) return forwardProblem(error);
					throw error;
				}
				return { answered: true };
			},
		}),
	];
}

function healthRoutes(
	agent: Agent,
	{ clock, counters, machine }: Pick<RouteParts, 'clock' | 'counters' | 'machine'>,
): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.metrics, ['agent', 'admin', 'probe'], 'getMetrics', {
			summary: 'Metrics of the agent.',
			answers: { 200: { about: "Prometheus' text format.", content: { 'text/plain': 'text' } } },
			async handle() {
				// Most devices are never asked for it.
				const { scrape } = await import('../telemetry/collect.runner.ts');
				return {
					status: 200,
					headers: { 'Content-Type': METRICS_CONTENT_TYPE },
					text: scrape(agent, counters, (await machine?.()) ?? null, clock),
				};
			},
		}),
		row('GET', LOCAL_ROUTES.live, HEALTH, 'getLive', {
			summary: 'Whether the agent runs.',
			answers: { 200: answer('It runs.', 'LiveReport') },
			handle: () => ok({ live: true }),
		}),
		row('GET', LOCAL_ROUTES.ready, HEALTH, 'getReady', {
			summary: 'Whether the device is registered and subscribed.',
			answers: {
				200: answer('It is.', 'ReadyReport'),
				503: answer('Not now; the sentence says why.', 'ReadyReport'),
			},
			handle() {
				const { state, sentence } = agent.status();
				return { status: state === 'online' ? 200 : 503, body: { ready: state === 'online', sentence } };
			},
		}),
	];
}

/** Takes one of the streams and waits that an application may have at once, until its request is over. */
function takeWait(waits: Places, { application, signal }: LocalRequest): void {
	if (application === null) return;
	const { name, shares } = application;
	const most = shares?.waits ?? SHARES.waits;
	const release = waits.take(name, most);
	if (!release)
		throw new AgentError('service-overloaded', `${name} has ${most} streams and waits already.`, {
			remedy: 'End one of them, or give the application a larger share: waits=N.',
			retryAfterMs: 1000,
		});
	signal.addEventListener('abort', release, { once: true });
}

/** An application gets a stream only if it accepts one; otherwise one JSON document. */
const wantsStream = ({ headers }: LocalRequest) => acceptsStream(headers);
