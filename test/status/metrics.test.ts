import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { AgentCounts } from '../../src/base/counters.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import {
	type AgentGauges,
	agentMetrics,
	endMetrics,
	fieldMetrics,
	formatMetrics,
	type Metric,
	stateMetrics,
} from '../../src/status/metrics.ts';
import { STEERING, steeringIn } from '../fixtures/foreign-text.ts';

const status: Status = {
	schemaVersion: 1,
	state: 'online',
	sentence: 'Online with id.example.com, workflow onboarding.',
	summary: { code: 'online', params: {} },
	agentVersion: '0.1.0',
	startedAt: '2026-11-21T05:00:00.000Z',
	deviceId: 'kiosk-7',
	deviceType: 'kiosk',
	serial: 'SN-secret',
	macAddress: '00:1b:21:0a:0b:0c',
	baseUrl: 'https://id.example.com',
	workflow: { wanted: 'onboarding', live: 'onboarding', waitsUntil: null, source: 'pairing' },
	channel: {
		state: 'online',
		since: null,
		lastHeartbeatAt: '2026-11-21T05:01:00.500Z',
		reconnects: 3,
		nextAttemptAt: null,
	},
	plan: null,
	sessionId: null,
	pairedAt: null,
	problem: null,
	warnings: [],
	newestEventId: null,
};
const counts: AgentCounts = {
	notifications: 10,
	ignored: 5,
	duplicates: 1,
	gaps: 2,
	heartbeats: 60,
	failedAttempts: 4,
	wrongPins: 7,
	forwarded: { '2xx': 5, failed: 1 },
	hooks: {},
};
const gauges: AgentGauges = {
	eventsKept: 7,
	eventBytes: 900,
	eventsDurable: true,
	consumers: 1,
	leases: 0,
	residentBytes: 50_000_000,
	clockSkewSeconds: null,
};

/** Reads the format as its specification has it; throws at whatever is not of it. */
function parse(text: string): Map<string, { type: string; samples: Map<string, number> }> {
	const found = new Map<string, { type: string; samples: Map<string, number> }>();
	if (text !== '' && !text.endsWith('\n')) throw new Error('The last line has no end.');
	let helped = '';
	for (const line of text.split('\n').slice(0, -1)) {
		const help = /^# HELP ([a-zA-Z_:][\w:]*) (?:[^\\]|\\[\\n])*$/.exec(line);
		const type = /^# TYPE ([a-zA-Z_:][\w:]*) (counter|gauge)$/.exec(line);
		const sample = /^([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\["\\n])*",?)*\})? (NaN|[+-]Inf|[-+.\de]+)$/.exec(
			line,
		);
		if (help) {
			helped = help[1] ?? '';
			if (found.has(helped)) throw new Error(`${helped} stands there twice.`);
		} else if (type) {
			if (type[1] !== helped) throw new Error(`TYPE without HELP: ${line}`);
			found.set(helped, { type: type[2] ?? '', samples: new Map() });
		} else if (sample) {
			const metric = found.get(sample[1] ?? '');
			if (!metric || sample[1] !== helped || metric.samples.has(sample[2] ?? ''))
				throw new Error(`Out of place: ${line}`);
			metric.samples.set(sample[2] ?? '', Number(sample[3]?.replace('Inf', 'Infinity')));
		} else throw new Error(`Not of the format: ${line}`);
	}
	return found;
}

describe('metrics', () => {
	test('say what the status says', () => {
		const scraped = parse(formatMetrics(agentMetrics(status, counts, gauges)));
		const value = (name: string, labels = '') => scraped.get(`idv_agent_${name}`)?.samples.get(labels);
		expect(value('state', '{state="online"}')).toBe(1);
		expect(value('state', '{state="offline"}')).toBe(0);
		expect(value('info', '{version="0.1.0"}')).toBe(1);
		expect(value('workflow_settled')).toBe(1);
		expect(value('last_heartbeat_time_seconds')).toBe(Date.parse('2026-11-21T05:01:00.500Z') / 1000);
		expect(value('reconnects_total')).toBe(3);
		expect(value('forwarded_requests_total', '{result="2xx"}')).toBe(5);
		expect(value('events_durable')).toBe(1);
	});

	test.each([
		['duplicate-device', 'idv_agent_duplicate_device'],
		['notifications-at-risk', 'idv_agent_notifications_at_risk'],
	])('have the warning %s as %s', (code, name) => {
		const value = (warnings: Status['warnings']) =>
			parse(formatMetrics(agentMetrics({ ...status, warnings }, counts, gauges)))
				.get(name)
				?.samples.get('');
		expect(value([])).toBe(0);
		expect(value([{ code, message: 'x', remedy: 'y', recovers: true }])).toBe(1);
	});

	test('name each version that was taken back, with the fault', () => {
		const takenBack = ['0.3.0', '0.3.1'].map((version) => ({ version, at: '2026-11-22T03:00:00Z', fault: 'crashes' }));
		const scraped = parse(formatMetrics(stateMetrics({ ...status, updates: { ordered: null, takenBack } })));
		expect([...(scraped.get('idv_agent_update_taken_back')?.samples ?? [])]).toEqual([
			['{update="0.3.0",fault="crashes"}', 1],
			['{update="0.3.1",fault="crashes"}', 1],
		]);
		expect(parse(formatMetrics(stateMetrics(status))).has('idv_agent_update_taken_back')).toBe(false);
	});

	test('have each figure of its own source, in its unit [F1873]', () => {
		const atSecond = (second: number) => new Date(second * 1000).toISOString();
		const warning = (code: string, params: Record<string, string>) => ({ code, message: 'x', remedy: 'y', params });
		const plan = {
			...{ revision: 41, followed: 40, rule: null, fleet: null, refused: null, servedRefused: null },
			next: { at: atSecond(1_900_000_042), revision: 43, workflowId: null },
		} as unknown as NonNullable<Status['plan']>;
		const warnings = [
			warning('credential-refused', { since: atSecond(1_900_000_002) }),
			warning('credential-refused', { since: atSecond(1_900_000_001) }),
			warning('credential-ending', { at: atSecond(1_900_000_004) }),
			warning('credential-ending', { at: atSecond(1_900_000_003) }),
			warning('settings-invalid', { since: atSecond(1_900_000_005) }),
		];
		const channel = { ...status.channel, heartbeatCadence: 12 };
		const told = { ...status, plan, channel, warnings, state: 'blocked' as const };
		const machine = { diskFreeBytes: 101, diskSizeBytes: 102, celsius: 103, scannerPresent: true };
		const ages = { heartbeatMs: -5000, acknowledgedMs: 7000, planCheckedMs: 9000 };
		const scraped = parse(
			formatMetrics([
				...agentMetrics(told, counts, { ...gauges, clockSkewSeconds: -4 }),
				...stateMetrics(told),
				...fieldMetrics(machine, ages, 1_900_000_000_000),
				...endMetrics({ connectionStartMs: 1000, connectionEndMs: 2000, keyEndMs: 3000, certificateEndMs: 4000 }),
			]),
		);
		const figures = [...scraped].flatMap(([name, { samples }]) =>
			samples.size === 1 ? [[name.replace('idv_agent_', ''), samples.values().next().value]] : [],
		);
		expect(Object.fromEntries(figures)).toMatchObject({
			...{ start_time_seconds: Date.parse(status.startedAt) / 1000, clock_skew_seconds: -4 },
			...{ events_kept: 7, events_kept_bytes: 900, event_streams: 1, leases: 0, resident_memory_bytes: 50_000_000 },
			...{ failed_attempts_total: 4, wrong_pins_total: 7, notifications_total: 10, duplicate_notifications_total: 1 },
			...{ ignored_messages_total: 5, gaps_total: 2, heartbeats_total: 60, warnings: 5, credential_refused: 1 },
			...{ credential_unusable_time_seconds: 1_900_000_001, credential_ends_time_seconds: 1_900_000_003 },
			...{ settings_refused_time_seconds: 1_900_000_005, online: 0, needs_person: 1, heartbeat_cadence_seconds: 12 },
			...{ plan_revision: 41, plan_confirmed_revision: 40, plan_due_time_seconds: 1_900_000_042 },
			...{ report_time_seconds: 1_900_000_000, heartbeat_age_seconds: 0, application_ack_age_seconds: 7 },
			...{ plan_checked_age_seconds: 9, disk_free_bytes: 101, disk_size_bytes: 102, temperature_celsius: 103 },
			...{ scanner_present: 1, connection_start_time_seconds: 1, connection_end_time_seconds: 2 },
			...{ key_end_time_seconds: 3, certificate_end_time_seconds: 4 },
		});
	});

	test('leave out what is not known', () => {
		const scraped = parse(formatMetrics(agentMetrics(status, counts, gauges)));
		expect([...scraped.keys()]).not.toContain('idv_agent_clock_skew_seconds');
		expect([...scraped.keys()]).not.toContain('idv_agent_hooks_total');
	});

	test('name counters as counters, and no device', () => {
		const text = formatMetrics(agentMetrics(status, counts, gauges));
		for (const [name, { type }] of parse(text))
			expect([name, type === 'counter']).toEqual([name, name.endsWith('_total')]);
		for (const secret of ['kiosk-7', 'SN-secret', '00:1b', 'id.example.com', 'onboarding'])
			expect(text).not.toContain(secret);
	});

	test('are well-formed whatever stands in labels, help and values', () => {
		const sample = fc.record({
			labels: fc.dictionary(fc.constantFrom('a', 'b_c'), fc.string({ unit: 'binary' })),
			value: fc.double().map((value) => value + 0),
		});
		const metric = fc.record({
			name: fc.constant('idv_agent_x'),
			type: fc.constantFrom('counter' as const, 'gauge' as const),
			help: fc.string({ unit: 'binary' }),
			samples: fc.tuple(sample),
		});
		fc.assert(
			fc.property(metric, (one: Metric) => {
				const samples = [
					...(parse(formatMetrics([one]))
						.get('idv_agent_x')
						?.samples.values() ?? []),
				];
				expect(samples).toEqual(one.samples.map(({ value }) => value));
			}),
		);
	});
});

test('cuts of the channel and an idle timeout on the way are figures', () => {
	const recentCuts = { count: 7, windowSeconds: 600, typicalLifeSeconds: 20, cause: '1006' };
	const channel = { ...status.channel, idleTimeout: { seconds: 20, pingSeconds: 13 }, recentCuts };
	const found = parse(formatMetrics(agentMetrics({ ...status, channel }, counts, gauges)));
	const valuesOf = (name: string) => [...(found.get(name)?.samples.values() ?? [])];
	expect(valuesOf('idv_agent_channel_cuts_recent')).toEqual([7]);
	expect(valuesOf('idv_agent_line_idle_timeout_seconds')).toEqual([20]);
});

test('a label with the words of a stranger steers nothing, and begins no line [F1372]', () => {
	const text = formatMetrics(
		stateMetrics({ ...status, workflow: { ...status.workflow, live: `${STEERING}\nidv_evil 1` } }),
	);
	expect(text).toContain('PWN');
	expect([steeringIn(text), text.includes('\\n')]).toEqual([[], false]);
	expect(parse(text).has('idv_agent_workflow')).toBe(true);
});
