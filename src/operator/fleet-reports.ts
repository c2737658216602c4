/** Reports of devices from any mix of `idv-agent status --json`, a metrics store and the embedded service. Of each device the newest applies. */
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { counted, type Shell } from '../cli/output.ts';
import type { DeviceReport } from '../fleet/progress.ts';
import { reasonIn } from '../fleet/reasons.ts';
import { DEVICE_LIST_PATH, deviceListSchema, type ListedDevice } from '../protocol/device-list.ts';
import { normalizeBaseUrl } from '../protocol/endpoints.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { cleanText } from '../protocol/problem.ts';
import { storeCredential } from './fleet-store.ts';
import { isOfCredential, isOfSettings } from './fleet-troubles.ts';
import { listFiles, readJsonLines } from './inventory.ts';
import { newer } from './merge-reports.ts';
import { callService, withClient } from './service-call.ts';
import { resolveTarget, type TargetFlags } from './service-target.ts';

const MAX_LIST_BYTES = 128 * 1024 * 1024;
const QUERY_DEADLINE_MS = 60_000;

export interface SourceFlags extends TargetFlags {
	readonly from?: readonly string[] | undefined;
	readonly prometheus?: string | undefined;
	readonly service?: boolean | undefined;
}

/** The service is asked where no other source is named, and where it is named too. */
export async function gatherReports(shell: Shell, flags: SourceFlags, nowMs: number) {
	const { from = [], prometheus } = flags;
	const reports = new Map<string, DeviceReport>();
	const add = (report: DeviceReport) => {
		const known = reports.get(report.deviceId);
		reports.set(report.deviceId, known ? newer(known, report) : report);
	};
	for (const path of from) for (const report of await fromFiles(shell, path, nowMs)) add(report);
	if (prometheus !== undefined) for (const report of await fromPrometheus(shell, prometheus, flags, nowMs)) add(report);
	const isAlone = from.length === 0 && prometheus === undefined;
	if (flags.service || isAlone) for (const report of await fromService(shell, flags, nowMs)) add(report);
	return reports;
}

const time = z.string().nullish();
const told = z.object({
	code: z.string().nullish(),
	message: z.string().nullish(),
	params: z.object({ since: z.string().nullish() }).nullish().catch(null),
});
/** As much of a status as is used, of any version of the agent. */
const statusLineSchema = z.object({
	deviceId: z.string('must be a text').nullable(),
	serial: z.string().nullish(),
	macAddress: z.string().nullish(),
	deviceType: z.string().nullish(),
	labels: z.array(z.string()).nullish(),
	agentVersion: z.string().nullish(),
	startedAt: time,
	state: z.string('must be a text'),
	workflow: z.object({
		live: z.string().nullable(),
		wanted: z.string().nullable(),
		waitsUntil: time,
		source: z.string().nullish(),
	}),
	channel: z.object({ since: time, lastHeartbeatAt: time, heartbeatCadence: z.number().nullish() }).nullish(),
	plan: z
		.object({
			revision: z.number().nullish(),
			epoch: z.number().nullish(),
			fleet: z.string().nullish(),
			followed: z.number().nullable(),
			next: z.object({ revision: z.number(), at: z.string() }).nullish(),
			refused: z.object({ revision: z.number(), message: z.string() }).nullable(),
			checkedAt: time,
		})
		.nullish(),
	updates: z
		.object({
			reason: z.string().nullish(),
			failed: told.nullish(),
			takenBack: z.array(z.object({ version: z.string(), fault: z.string() })),
		})
		.nullish(),
	problem: told.nullish(),
	warnings: z.array(told).nullish(),
});
type StatusLine = z.infer<typeof statusLineSchema>;

/** A clock that is further ahead than this of ours is wrong, here or there. */
const MAX_AHEAD_MS = 300_000;
/** Lines that are named. */
const MAX_FAULTS = 5;
/** With more lines that cannot be read, a file is something else, and what is said of a fleet would be worth nothing. */
const MAX_UNREAD = 10_000;

async function fromFiles(shell: Shell, path: string, nowMs: number): Promise<DeviceReport[]> {
	const files = await listFiles(path);
	const reports: DeviceReport[] = [];
	let unpaired = 0;
	let ahead = 0;
	const faults: string[] = [];
	for (const file of files) {
		const found = await readJsonLines(file).catch((error: unknown) => {
			if (files.length === 1 || !(error instanceof AgentError)) throw error;
			return { rows: [], faults: [error.message] };
		});
		for (const fault of found.faults) faults.push(fault);
		for (const { line, fields } of found.rows) {
			if (faults.length > MAX_UNREAD) throw tooManyUnread(path, faults[0]);
			const read = statusLineSchema.safeParse(fields);
			if (!read.success) {
				const where = read.error.issues[0]?.path.join('/') || 'the line';
				faults.push(`${file}: line ${line}: ${where} is not as in "idv-agent status --json".`);
				continue;
			}
			const { deviceId } = read.data;
			if (deviceId === null) unpaired += 1;
			else {
				const report = reportOf({ ...read.data, deviceId });
				const isAhead = (report.madeAtMs ?? 0) > nowMs + MAX_AHEAD_MS;
				if (isAhead) ahead += 1;
				reports.push(isAhead ? { ...report, heardAtMs: null, madeAtMs: null } : report);
			}
		}
	}
	// A line that was cut off while it was gathered must not hide all others.
	if (faults.length > 0) {
		const named = [...faults.slice(0, MAX_FAULTS), ...(faults.length > MAX_FAULTS ? ['…'] : [])].join('\n');
		if (reports.length + unpaired === 0) throw new AgentError('inventory-invalid', named);
		shell.warn(
			`${counted(faults.length, 'line')} of ${path} cannot be read and ${faults.length === 1 ? 'is' : 'are'} not counted:\n${named}`,
		);
	}
	if (ahead > 0)
		shell.warn(
			`${counted(ahead, 'line')} of ${path} with a time that is still to come: a clock is wrong; of these the last line applies.`,
		);
	if (unpaired > 0) shell.warn(`${counted(unpaired, 'line')} of ${path} without a deviceId: not counted.`);
	return reports;
}

const tooManyUnread = (path: string, first = '') =>
	new AgentError(
		'inventory-invalid',
		`${path} has more than ${MAX_UNREAD} lines that cannot be read. The first: ${first}`,
	);

function reportOf(status: StatusLine & { readonly deviceId: string }): DeviceReport {
	const { deviceId, workflow, plan, channel, problem, warnings } = status;
	const online = status.state === 'online';
	const times = [channel?.lastHeartbeatAt, plan?.checkedAt, channel?.since, status.startedAt].map(readTime);
	const [heartbeatMs, checkedMs, sinceMs, startedAtMs] = times;
	// Without heartbeats as frames the channel alone does not say when the device was last heard.
	const heardAtMs = heartbeatMs == null ? null : Math.max(heartbeatMs, checkedMs ?? 0, online ? (sinceMs ?? 0) : 0);
	const named = problem ?? warnings?.find(({ code }) => code && isOfSettings(code));
	const next = plan?.next ? { revision: plan.next.revision, atMs: Date.parse(plan.next.at) } : null;
	return {
		deviceId,
		serial: status.serial ?? null,
		macAddress: status.macAddress ?? null,
		deviceType: status.deviceType ?? null,
		labels: status.labels ?? null,
		online,
		workflowId: workflow.live ?? workflow.wanted,
		heartbeatCadence: channel?.heartbeatCadence,
		...{ heardAtMs, startedAtMs },
		madeAtMs: Math.max(...times.map((ms) => ms ?? 0)) || null,
		offlineSinceMs: online ? null : (heartbeatMs ?? sinceMs ?? null),
		planRevision: plan?.followed ?? null,
		planRefused: plan?.refused?.revision ?? null,
		planEpoch: plan?.epoch,
		refusal: plan?.refused?.message ?? null,
		hindrance: online ? hindranceOf(status) : (problem?.message ?? (status.state === 'unpaired' ? 'not paired' : null)),
		next: next && Number.isFinite(next.atMs) ? next : null,
		agentVersion: status.agentVersion ?? null,
		takenBack: status.updates?.takenBack,
		updateHindrance: updateHindranceOf(status),
		fleet: plan?.fleet,
		problem: named?.code ?? null,
		problemSince: named?.params?.since ?? null,
	};
}

/** An agent that may not be updated says nothing of updates. */
function updateHindranceOf({ updates }: StatusLine): string | null {
	if (!updates) return reasonIn('disabled');
	return updates.failed?.message ?? (updates.reason ? reasonIn(updates.reason) : null);
}

function readTime(text: string | null | undefined): number | null {
	const ms = text ? Date.parse(text) : Number.NaN;
	return Number.isFinite(ms) ? ms : null;
}

/** Why a device that is online may not do as a plan says; `null` where its status names nothing. */
function hindranceOf({ workflow, plan, problem, warnings }: StatusLine): string | null {
	const { source, waitsUntil } = workflow;
	if (source === 'flag' || source === 'environment' || source === 'file')
		return `its own settings name the workflow (${source})`;
	if (waitsUntil) return 'applications on it hold a lease';
	if (plan === null) return 'it follows no plan: fleet.planUrl is not set';
	const ofPlan = warnings?.find(({ code }) => code?.startsWith('plan-'));
	if (ofPlan?.message) return ofPlan.message;
	return problem?.message ?? null;
}

async function fromService(shell: Shell, flags: SourceFlags, nowMs: number): Promise<DeviceReport[]> {
	const target = await resolveTarget(shell, flags);
	const { host } = new URL(target.baseUrl);
	const remedy =
		'The published interface has no list of devices: gather lines of "idv-agent status --json" and give them with --from FILE, or name a metrics store with --prometheus URL.';
	const answer = await callService(
		target,
		{ method: 'GET', path: DEVICE_LIST_PATH, maxBytes: MAX_LIST_BYTES },
		{ needs: 'Basic, Bearer, or an API key with ephemeral_device:write' },
	).catch((cause: unknown) => {
		if (!(cause instanceof AgentError) || cause.code !== 'bad-response') throw cause;
		throw new AgentError(cause.code, cause.message, { remedy, cause });
	});
	try {
		const { devices } = deviceListSchema.parse(parseJson(new TextDecoder().decode(answer.body)));
		return devices.map((device) => listedReport(device, nowMs));
	} catch (cause) {
		throw new AgentError('bad-response', `${host} answered without a list of devices that can be read.`, {
			remedy,
			cause,
		});
	}
}

function listedReport(device: ListedDevice, nowMs: number): DeviceReport {
	const { online, lastHeartbeatAt, planRevision, planReason = null, agentVersion = null, problemCode = null } = device;
	const { updateTakenBack, updateReason, heartbeatCadence, refused } = device;
	const { deviceId, serial, macAddress, deviceType, workflowId, planRefused } = device;
	const heardAtMs = readTime(lastHeartbeatAt);
	// The service itself knows what it has refused, whatever the device says in its heartbeats.
	const own = refused ? reasonIn(refused.code, refused.workflowId) : null;
	return {
		...{ deviceId, serial, macAddress, deviceType, workflowId, online, planRevision, planRefused, agentVersion },
		heartbeatCadence,
		labels: null,
		// The service itself knows whether the channel is open.
		heardAtMs: online ? nowMs : heardAtMs,
		offlineSinceMs: online ? null : heardAtMs,
		refusal: planReason ?? own,
		hindrance: problemCode ? reasonIn(problemCode) : own,
		updateHindrance: updateReason && reasonIn(updateReason),
		next: null,
		takenBack: updateTakenBack === undefined ? [] : [{ version: updateTakenBack, fault: null }],
		problem: problemCode,
	};
}

/** When each device was heard last, by the store's own time: a device's clock may be wrong. Of a day each report, and of a month one an hour, which a store of many devices can answer. */
const HEARD = ['1d:5m', '30d:1h']
	.map((range) => `max_over_time(timestamp(idv_agent_report_time_seconds)[${range}])`)
	.join(' or ');

const answerSchema = z.object({
	/** Of VictoriaMetrics, and of Thanos, where a part of the store did not answer. */
	isPartial: z.boolean().optional(),
	warnings: z.array(z.string()).optional(),
	data: z.object({
		result: z.array(z.object({ metric: z.record(z.string(), z.string()), value: z.tuple([z.number(), z.string()]) })),
	}),
});
interface Point {
	readonly labels: Readonly<Record<string, string>>;
	readonly value: number;
	/** By the store's time, in seconds since 1970. */
	readonly atSeconds: number;
}

/** Devices are known by their label `device`: the agent pushes it, and has it in `/metrics`. */
async function fromPrometheus(shell: Shell, given: string, flags: SourceFlags, nowMs: number): Promise<DeviceReport[]> {
	const baseUrl = normalizeBaseUrl(given);
	if (baseUrl === null)
		throw new AgentError('usage', '--prometheus is not an http or https address without user, query or fragment.', {
			remedy: 'Give the address before /api/v1, such as http://127.0.0.1:8428.',
		});
	const authorization = storeCredential(shell, 'IDV_PROMETHEUS_AUTHORIZATION');
	return withClient({ caFile: flags.caFile ?? shell.env['IDV_CA_FILE'], env: shell.env }, async (client) => {
		const ask = async (query: string): Promise<Point[]> => {
			const url = new URL(`${baseUrl.replace(/\/$/, '')}/api/v1/query`);
			url.search = String(new URLSearchParams({ query }));
			const request = { method: 'GET', url, authorization, maxBytes: MAX_LIST_BYTES } as const;
			const { status, body } = await client
				.send({ ...request, deadlineMs: QUERY_DEADLINE_MS })
				.catch((error: unknown) => {
					if (!(error instanceof AgentError)) throw error;
					const { code, message } = error.failure;
					throw new AgentError(code, message, { remedy: CHECK_STORE, cause: error });
				});
			const text = new TextDecoder().decode(body);
			const read = status === 200 ? readPoints(text) : null;
			if (typeof read === 'object' && read !== null) return read;
			const said = read ?? readStoreError(text);
			const how = said ? `: ${said}` : status === 200 ? ' to a query, and not as Prometheus does' : ' to a query';
			throw new AgentError('bad-response', `${url.host} answered ${status}${how}.`, {
				remedy: said || status >= 500 ? 'Look at the metrics store, then run the command again.' : CHECK_STORE,
			});
		};
		const asked = Object.entries(QUERIES).map(async ([name, query]) => [name, await ask(query)] as const);
		return pointReports(Object.fromEntries(await Promise.all(asked)) as unknown as Facts, nowMs);
	});
}

const QUERIES = {
	heard: HEARD,
	online: 'idv_agent_online',
	info: 'idv_agent_info',
	workflow: 'idv_agent_workflow == 1',
	cadence: 'idv_agent_heartbeat_cadence_seconds',
	// Also a key that is refused beside a Connection that works.
	problem:
		'idv_agent_problem == 1 or on(device) label_replace(idv_agent_credential_refused == 1, "code", "credential-refused", "", "")',
	// Of a credential that is refused, or cannot be read.
	unusable: 'idv_agent_credential_unusable_time_seconds > 0',
	// Of a way out or a workflow.
	unfollowed: 'idv_agent_settings_refused_time_seconds > 0',
	confirmed: 'idv_agent_plan_confirmed_revision',
	refused: 'idv_agent_plan_refused > 0',
	due: 'idv_agent_plan_due_time_seconds',
	revision: 'idv_agent_plan_revision',
	ordered: 'idv_agent_update_ordered == 1',
	takenBack: 'idv_agent_update_taken_back == 1',
} as const;
type Facts = Readonly<Record<keyof typeof QUERIES, readonly Point[]>>;

const CHECK_STORE =
	'Check --prometheus: it is the address before /api/v1. A credential is taken from IDV_PROMETHEUS_AUTHORIZATION.';

/** The words of Prometheus' own error document; `null` for another answer. */
export function readStoreError(text: string): string | null {
	const said = parseJson(text);
	const isError = isObject(said) && said['status'] === 'error' && typeof said['error'] === 'string';
	return isError ? cleanText(String(said['error']), 300).replace(/[.!]$/, '') : null;
}

/** The points; a text for an answer that is not whole, `null` for one of another form. */
export function readPoints(text: string): Point[] | string | null {
	const answer = answerSchema.safeParse(parseJson(text)).data;
	if (!answer) return null;
	const { isPartial, warnings = [], data } = answer;
	if (isPartial || warnings.length > 0) return cleanText(['only in part', ...warnings].join(': '), 300);
	// NaN and infinities are figures of a store, not of a device.
	return data.result
		.map(({ metric, value: [atSeconds, value] }) => ({ labels: metric, value: Number(value), atSeconds }))
		.filter(({ value }) => Math.abs(value) <= Number.MAX_SAFE_INTEGER);
}

function pointReports(facts: Facts, nowMs: number): DeviceReport[] {
	// A device may have several series while its version or labels change: the one that was heard last applies.
	const newest = new Map<string, Point>();
	for (const point of facts.heard) {
		const { device } = point.labels;
		if (device !== undefined && point.value >= (newest.get(device)?.value ?? 0)) newest.set(device, point);
	}
	const byDevice = (points: readonly Point[]) =>
		new Map(points.flatMap((point) => (point.labels['device'] === undefined ? [] : [[point.labels['device'], point]])));
	const { online, info, workflow, cadence, problem, unusable, unfollowed, refused, revision, confirmed, due, ordered } =
		Object.fromEntries(Object.entries(facts).map(([name, points]) => [name, byDevice(points)])) as Record<
			keyof Facts,
			Map<string, Point>
		>;
	for (const [device, point] of online)
		if (!newest.has(device)) newest.set(device, { ...point, value: point.atSeconds });
	const takenBack = Map.groupBy(facts.takenBack, (point) => point.labels['device']);
	return [...newest].map(([deviceId, { labels, value, atSeconds }]) => {
		// A sample that a store has now is new by the store's time, whatever the device's clock says.
		const heardAtMs = online.has(deviceId) ? nowMs : nowMs - (atSeconds - value) * 1000;
		const is = online.get(deviceId)?.value === 1;
		const [unusableSince, refusedSince] = [unusable.get(deviceId)?.value, unfollowed.get(deviceId)?.value];
		const beside = refusedSince === undefined ? null : 'settings-not-followed';
		const told = problem.get(deviceId)?.labels['code'];
		const code = told ?? (unusableSince === undefined ? beside : 'credential-unreadable');
		const since = code && isOfCredential(code) ? unusableSince : code && isOfSettings(code) ? refusedSince : undefined;
		const refusal = refused.get(deviceId);
		const [known, dueAt] = [revision.get(deviceId)?.value, due.get(deviceId)?.value];
		const reason = ordered.get(deviceId)?.labels['reason'];
		const { version, fleet } = { ...labels, ...info.get(deviceId)?.labels };
		return {
			deviceId,
			serial: null,
			macAddress: null,
			deviceType: null,
			labels: labels['labels']?.split(',').filter(Boolean) ?? null,
			online: is,
			workflowId: workflow.get(deviceId)?.labels['workflow'] ?? null,
			heartbeatCadence: cadence.get(deviceId)?.value,
			heardAtMs,
			offlineSinceMs: is ? null : heardAtMs,
			planRevision: confirmed.get(deviceId)?.value ?? null,
			planRefused: refusal?.value ?? null,
			refusal: refusal?.labels['code'] ? reasonIn(refusal.labels['code'], refusal.labels['workflow']) : null,
			hindrance: code && reasonIn(code),
			updateHindrance: reason === undefined || reason === 'none' ? null : reasonIn(reason),
			fleet: fleet ?? null,
			next: dueAt && known ? { revision: known, atMs: dueAt * 1000 } : null,
			agentVersion: version ?? null,
			takenBack: (takenBack.get(deviceId) ?? []).map(({ labels: { update = '', fault = null } }) => ({
				version: update,
				fault,
			})),
			problem: code,
			problemSince: since === undefined ? null : new Date(since * 1000).toISOString(),
		};
	});
}
