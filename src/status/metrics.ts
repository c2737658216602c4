/**
 * The agent's figures as Prometheus text, made when they are asked for. Counts nothing itself: a scrape shows what the
 * agent knows anyway. Labels have few values, and never a device's or a person's name. Without a library: decision 0032.
 */

import type { AgentCounts } from '../base/counters.ts';
import type { Status } from '../protocol/local-api.ts';

/** Source: Prometheus text exposition format 0.0.4. */
export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

export interface Sample {
	readonly labels?: Readonly<Record<string, string>>;
	readonly value: number;
}

/** A metric with its samples; no sample, no metric. */
export interface Metric {
	/** `idv_agent_…`; counters end in `_total`, units are base units. */
	readonly name: string;
	readonly type: 'counter' | 'gauge';
	readonly help: string;
	readonly samples: readonly Sample[];
}

/** What it knows now. */
export interface AgentGauges {
	readonly eventsKept: number;
	readonly eventBytes: number;
	/** Whether events are on the disk, and not only in memory. */
	readonly eventsDurable: boolean;
	/** Open event streams. */
	readonly consumers: number;
	readonly leases: number;
	readonly residentBytes: number;
	/** How far the device's clock is ahead of the service's; `null` while unknown. */
	readonly clockSkewSeconds: number | null;
}

const STATES: readonly Status['state'][] = ['unpaired', 'connecting', 'online', 'offline', 'blocked'];

/** The agent's metrics. Names and labels stay as they are: dashboards hold on to them. */
export function agentMetrics(status: Status, counts: AgentCounts, gauges: AgentGauges): Metric[] {
	const { workflow, agentVersion, startedAt, channel, warnings } = status;
	const counter = (name: string, help: string, value: number): Metric => metric('counter', name, help, [{ value }]);
	const gauge = (name: string, help: string, value: number | null): Metric =>
		metric('gauge', name, help, value === null ? [] : [{ value }]);
	const by = (label: string, values: Readonly<Record<string, number>>): Sample[] =>
		Object.entries(values).map(([name, value]) => ({ labels: { [label]: name }, value }));
	const heartbeatAt = channel.lastHeartbeatAt === null ? null : Date.parse(channel.lastHeartbeatAt) / 1000;
	return [
		metric('gauge', 'info', 'Always 1; the version of the agent.', [{ labels: { version: agentVersion }, value: 1 }]),
		metric(
			'gauge',
			'state',
			'1 for the state the device is in, 0 for the others.',
			STATES.map((state) => ({ labels: { state }, value: state === status.state ? 1 : 0 })),
		),
		gauge('start_time_seconds', 'When the agent started.', Date.parse(startedAt) / 1000),
		gauge(
			'workflow_settled',
			'1 when the live workflow is the wanted one.',
			workflow.live === workflow.wanted && workflow.live !== null ? 1 : 0,
		),
		gauge('warnings', 'Warnings in the status.', warnings.length),
		gauge('last_heartbeat_time_seconds', 'When the last heartbeat was sent.', heartbeatAt),
		gauge('clock_skew_seconds', "How far the device's clock is ahead of the service's.", gauges.clockSkewSeconds),
		gauge('events_kept', 'Events kept for applications.', gauges.eventsKept),
		gauge('events_kept_bytes', 'Size of the events kept for applications.', gauges.eventBytes),
		gauge(
			'events_durable',
			'1 when events are stored on the disk, 0 when in memory only.',
			gauges.eventsDurable ? 1 : 0,
		),
		gauge('event_streams', 'Open event streams.', gauges.consumers),
		gauge('leases', 'Leases held by applications.', gauges.leases),
		gauge('resident_memory_bytes', 'Memory of the agent.', gauges.residentBytes),
		counter('reconnects_total', 'How often the channel came back.', channel.reconnects),
		gauge(
			'channel_cuts_recent',
			'How often the channel was cut within the last 10 minutes.',
			channel.recentCuts?.count ?? 0,
		),
		gauge(
			'line_idle_timeout_seconds',
			'Silence after which something on the way ends the line; the agent pings it in time.',
			channel.idleTimeout?.seconds ?? null,
		),
		counter('failed_attempts_total', 'Registrations and channel openings that failed.', counts.failedAttempts),
		counter('wrong_pins_total', 'Wrong PINs that were typed on the page.', counts.wrongPins),
		counter('notifications_total', 'Notifications received, without duplicates.', counts.notifications),
		counter('duplicate_notifications_total', 'Notifications dropped as duplicates.', counts.duplicates),
		counter('ignored_messages_total', 'Messages of a kind that service.ignoreKinds names.', counts.ignored),
		counter('gaps_total', 'Intervals in which notifications may have been missed.', counts.gaps),
		counter('heartbeats_total', 'Heartbeats sent.', counts.heartbeats),
		metric('counter', 'forwarded_requests_total', 'Requests passed on, by result.', by('result', counts.forwarded)),
		metric('counter', 'hooks_total', 'Hooks, by outcome.', by('outcome', counts.hooks)),
	];
}

function metric(type: Metric['type'], name: string, help: string, samples: readonly Sample[]): Metric {
	return { name: `idv_agent_${name}`, type, help, samples };
}

/** The text of a scrape. */
export function formatMetrics(metrics: readonly Metric[]): string {
	const lines = metrics.flatMap(({ name, type, help, samples }) =>
		samples.length === 0
			? []
			: [
					`# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`,
					`# TYPE ${name} ${type}`,
					...samples.map(({ labels = {}, value }) => `${name}${formatLabels(labels)} ${formatValue(value)}`),
				],
	);
	return lines.map((line) => `${line}\n`).join('');
}

function formatLabels(labels: Readonly<Record<string, string>>): string {
	const pairs = Object.entries(labels).map(
		([name, value]) => `${name}="${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`,
	);
	return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function formatValue(value: number): string {
	if (Number.isNaN(value)) return 'NaN';
	return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf';
}
