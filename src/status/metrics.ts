/** The agent's figures as Prometheus text and for telemetry. Labels name the device, never a person (decision 0032). */
import type { AgentCounts } from '../base/counters.ts';
import { onOneLine } from '../base/printed.ts';
import type { Ends } from '../connection/ends.ts';
import { REFUSED_SETTINGS } from '../fleet/reasons.ts';
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

export interface MachineFigures {
	readonly diskFreeBytes: number | null;
	readonly diskSizeBytes: number | null;
	/** Of the hottest sensor. */
	readonly celsius: number | null;
	/** Whether a scanner is there that is, or would be, listened to; `null` where none is wanted. */
	readonly scannerPresent: boolean | null;
}

/** When something happened, as its age in milliseconds; `null` for never. */
export interface Ages {
	readonly heartbeatMs: number | null;
	/** Since an application acknowledged an event. */
	readonly acknowledgedMs: number | null;
	readonly planCheckedMs: number | null;
}

const STATES: readonly Status['state'][] = ['unpaired', 'connecting', 'online', 'offline', 'blocked'];

/** The agent's metrics. Names and labels stay as they are: dashboards hold on to them. */
export function agentMetrics(status: Status, counts: AgentCounts, gauges: AgentGauges): Metric[] {
	const { workflow, agentVersion, startedAt, channel, plan } = status;
	const heartbeatAt = channel.lastHeartbeatAt === null ? null : Date.parse(channel.lastHeartbeatAt) / 1000;
	return [
		metric('gauge', 'info', 'Always 1; the version of the agent, and the fleet that its plan names.', [
			{ labels: { version: agentVersion, ...(plan?.fleet && { fleet: plan.fleet }) }, value: 1 },
		]),
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
		...warningMetrics(status),
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

const counter = (name: string, help: string, value: number): Metric => metric('counter', name, help, [{ value }]);

const by = (label: string, values: Readonly<Record<string, number>>): Sample[] =>
	Object.entries(values).map(([name, value]) => ({ labels: { [label]: name }, value }));

function warningMetrics({ problem, warnings }: Pick<Status, 'problem' | 'warnings'>): Metric[] {
	const warned = Object.fromEntries(
		Map.groupBy(warnings, ({ code }) => code)
			.entries()
			.map(([code, { length }]) => [code, length]),
	);
	return [
		gauge('warnings', 'Warnings in the status.', warnings.length),
		metric('gauge', 'warning', 'How many warnings in the status have this permanent code.', by('code', warned)),
		gauge(
			'credential_refused',
			'1 when the service refuses the credential of the settings while another one works.',
			warnings.some(({ code }) => code === 'credential-refused') ? 1 : 0,
		),
		gauge(
			'credential_unusable_time_seconds',
			'Since when the service refuses the credential of the settings, or its file cannot be read.',
			earliest(warnings.filter(isUnusable), 'since'),
		),
		gauge(
			'credential_ends_time_seconds',
			'When the key or the client certificate that ends first ends, or has ended; from 30 days before.',
			earliest(
				warnings.filter(({ code }) => code === 'credential-ending'),
				'at',
			),
		),
		gauge(
			'settings_refused_time_seconds',
			'Since when settings, or files that they name, are wrong while others are in force.',
			earliest(
				[problem, ...warnings].filter((one) => one && isOfSettings(one)),
				'since',
			),
		),
		gauge(
			'duplicate_device',
			'1 while another device may use the deviceId of this one.',
			warnings.some(({ code }) => code === 'duplicate-device') ? 1 : 0,
		),
		gauge(
			'notifications_at_risk',
			'1 while the line dies of silence and how often to ping it is not known or not proved yet.',
			warnings.some(({ code }) => code === 'notifications-at-risk') ? 1 : 0,
		),
	];
}

/** Of a text in a label, in characters: stores take 1 KiB at least. */
const MAX_MESSAGE = 300;
const PLAN_STATES = ['none', 'waiting', 'trying', 'followed', 'refused'] as const;

function planStateOf(plan: Status['plan']): (typeof PLAN_STATES)[number] {
	if (!plan) return 'none';
	if (plan.refused || plan.servedRefused) return 'refused';
	if (plan.next && plan.next.revision !== plan.revision) return 'waiting';
	if (plan.revision === null) return 'none';
	return plan.followed === plan.revision ? 'followed' : 'trying';
}

/** Figures whose changes are kept while they cannot be sent: where the device is, and with what. */
export function stateMetrics({ state, problem, workflow, channel, plan, updates }: Status): Metric[] {
	const named = (name: string, help: string, labels: Sample['labels'] | null, value = 1): Metric =>
		metric('gauge', name, help, labels ? [{ labels, value }] : []);
	const planState = planStateOf(plan);
	const refusedBy = plan?.refused ? String(plan.refused.params?.['problem'] ?? plan.refused.code) : null;
	const refusedWorkflow = plan?.refused?.params?.['workflowId'];
	return [
		gauge('online', '1 while the device is registered and subscribed.', state === 'online' ? 1 : 0),
		gauge('needs_person', '1 while only a person can bring the device back.', state === 'blocked' ? 1 : 0),
		named('problem', '1 for the permanent code of the problem in the status.', problem && { code: problem.code }),
		named('workflow', '1 for the live workflow.', workflow.live === null ? null : { workflow: workflow.live }),
		named('workflow_source', '1 for what decides the workflow.', workflow.source && { source: workflow.source }),
		gauge(
			'heartbeat_cadence_seconds',
			'Seconds between heartbeats, where settings or a plan say so.',
			channel.heartbeatCadence ?? null,
		),
		gauge('plan_revision', 'Revision of the fleet plan in force.', plan?.revision ?? null),
		gauge('plan_confirmed_revision', 'Newest revision under which the device was online.', plan?.followed ?? null),
		metric(
			'gauge',
			'plan_state',
			'1 for the state of the fleet plan on the device, 0 for the others.',
			PLAN_STATES.map((name) => ({ labels: { state: name }, value: name === planState ? 1 : 0 })),
		),
		named(
			'plan_refused',
			'The revision that the device could not follow, by the code of the reason.',
			refusedBy === null ? null : { code: refusedBy, ...(refusedWorkflow && { workflow: String(refusedWorkflow) }) },
			plan?.refused?.revision,
		),
		named(
			'plan_served_refused',
			'1 while the device refuses the served plan, by the code of the reason and in words; the plan in force stays.',
			plan?.servedRefused
				? { code: plan.servedRefused.code, message: plan.servedRefused.message.slice(0, MAX_MESSAGE) }
				: null,
		),
		gauge(
			'plan_due_time_seconds',
			'When the device makes the next change by the plan that it knows.',
			plan?.next ? Date.parse(plan.next.at) / 1000 : null,
		),
		named(
			'update_ordered',
			'1 for the version that the plan orders and this device does not have yet, by what keeps it from being installed.',
			updates?.ordered ? { update: updates.ordered, reason: updates.reason ?? 'none' } : null,
		),
		metric(
			'gauge',
			'update_taken_back',
			'1 for each version that did not work on this device and was taken back, by the fault.',
			(updates?.takenBack ?? []).map(({ version, fault }) => ({ labels: { update: version, fault }, value: 1 })),
		),
	];
}

/** Figures that are only sampled. @param wallMs milliseconds since 1970. */
export function fieldMetrics(machine: MachineFigures, ages: Ages, wallMs: number): Metric[] {
	const seconds = (ms: number | null) => (ms === null ? null : Math.max(0, ms) / 1000);
	const { diskFreeBytes, diskSizeBytes, celsius, scannerPresent } = machine;
	return [
		gauge('report_time_seconds', "When these figures were made, by the device's clock.", wallMs / 1000),
		gauge('heartbeat_age_seconds', 'How long ago the last heartbeat was sent.', seconds(ages.heartbeatMs)),
		gauge(
			'application_ack_age_seconds',
			'How long ago an application acknowledged an event.',
			seconds(ages.acknowledgedMs),
		),
		gauge('plan_checked_age_seconds', 'How long ago the fleet plan was confirmed.', seconds(ages.planCheckedMs)),
		gauge('disk_free_bytes', 'Free space where the state is kept.', diskFreeBytes),
		gauge('disk_size_bytes', 'Size of the file system where the state is kept.', diskSizeBytes),
		gauge('temperature_celsius', "The hottest of the machine's sensors.", celsius),
		gauge(
			'scanner_present',
			'1 while a code scanner is attached.',
			scannerPresent === null ? null : Number(scannerPresent),
		),
	];
}

export function endMetrics(ends: Ends): Metric[] {
	const time = (name: string, help: string, ms: number | null) =>
		gauge(`${name}_time_seconds`, help, ms === null ? null : ms / 1000);
	return [
		time('connection_start', 'When the Connection in use was obtained.', ends.connectionStartMs),
		time('connection_end', 'When the Connection in use ends.', ends.connectionEndMs),
		time('key_end', 'When the key of the settings ends, where it says so itself.', ends.keyEndMs),
		time('certificate_end', 'When the client certificate ends.', ends.certificateEndMs),
	];
}

/** The same metrics with these labels on each sample, where it does not have them. */
export function withLabels(metrics: readonly Metric[], labels: NonNullable<Sample['labels']>): Metric[] {
	return metrics.map((one) => ({
		...one,
		samples: one.samples.map((sample) => ({ ...sample, labels: { ...labels, ...sample.labels } })),
	}));
}

/** Of each sample of a device, pushed or scraped: by these a store tells one device from another. */
export function deviceLabels({ deviceId, labels = [] }: Status): Record<string, string> {
	return {
		...(deviceId !== null && { device: deviceId }),
		...(labels.length > 0 && { labels: [...labels].sort().join(',') }),
	};
}

function metric(type: Metric['type'], name: string, help: string, samples: readonly Sample[]): Metric {
	return { name: `idv_agent_${name}`, type, help, samples };
}

function gauge(name: string, help: string, value: number | null): Metric {
	return metric('gauge', name, help, value === null ? [] : [{ value }]);
}

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
		([name, value]) => `${name}="${onOneLine(value).replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`,
	);
	return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function formatValue(value: number): string {
	if (Number.isNaN(value)) return 'NaN';
	return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf';
}

const isUnusable = ({ code, params }: Status['warnings'][number]) =>
	code === 'credential-refused' || params?.['setting'] === 'credential';

const isOfSettings = (one: Status['warnings'][number]) =>
	REFUSED_SETTINGS.includes(one.code) || (one.code === 'credential-unreadable' && !isUnusable(one));

/** Seconds since 1970. */
function earliest(
	told: readonly (Pick<Status['warnings'][number], 'params'> | null)[],
	field: 'since' | 'at',
): number | null {
	const times = told.flatMap((one) => {
		const time = one?.params?.[field];
		return typeof time === 'string' ? [Date.parse(time) / 1000] : [];
	});
	return times.length > 0 ? Math.min(...times) : null;
}
