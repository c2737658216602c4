/** All figures of a device at one moment, for a scrape and for a push alike. */
import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import type { Status } from '../protocol/local-api.ts';
import {
	agentMetrics,
	deviceLabels,
	endMetrics,
	fieldMetrics,
	formatMetrics,
	type MachineFigures,
	type Metric,
	stateMetrics,
	withLabels,
} from '../status/metrics.ts';

type MeasuredAgent = Pick<Agent, 'events' | 'leases' | 'ends'>;

const UNKNOWN_MACHINE: MachineFigures = {
	diskFreeBytes: null,
	diskSizeBytes: null,
	celsius: null,
	scannerPresent: null,
};

/** @param machine `null` where it is not known. @param clock the same as that of the agent and of the counters. */
export function collectMetrics(
	{ events, leases, ends }: MeasuredAgent,
	status: Status,
	counters: Counters,
	machine: MachineFigures | null,
	clock: Pick<Clock, 'monotonicMs' | 'wallMs'>,
): Metric[] {
	const wallMs = clock.wallMs();
	const ageOf = (iso: string | null | undefined) => (iso ? wallMs - Date.parse(iso) : null);
	const { acknowledgedAtMs } = counters;
	return [
		...agentMetrics(status, counters, {
			eventsKept: events.count,
			eventBytes: events.bytes,
			eventsDurable: counters.eventsDurable,
			consumers: counters.streams,
			leases: leases.list().leases.length,
			residentBytes: process.memoryUsage.rss(),
			clockSkewSeconds: counters.clockSkewMs === null ? null : counters.clockSkewMs / 1000,
		}),
		...stateMetrics(status),
		...endMetrics(ends()),
		...fieldMetrics(
			machine ?? UNKNOWN_MACHINE,
			{
				heartbeatMs: ageOf(status.channel.lastHeartbeatAt),
				acknowledgedMs: acknowledgedAtMs === null ? null : clock.monotonicMs() - acknowledgedAtMs,
				planCheckedMs: ageOf(status.plan?.checkedAt),
			},
			wallMs,
		),
	];
}

/** The text of a scrape, with the device on each sample. */
export function scrape(
	agent: MeasuredAgent & Pick<Agent, 'status'>,
	counters: Counters,
	machine: MachineFigures | null,
	clock: Pick<Clock, 'monotonicMs' | 'wallMs'>,
): string {
	const status = agent.status();
	return formatMetrics(withLabels(collectMetrics(agent, status, counters, machine, clock), deviceLabels(status)));
}
