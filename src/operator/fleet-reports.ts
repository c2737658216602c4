/** Reports of devices from any mix of `idv-agent status --json`, a metrics store and the embedded service. Of each device the newest applies. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { counted, type Shell } from '../cli/output.ts';
import type { DeviceReport } from '../fleet/progress.ts';
import { type Authorization, parseAuthorization } from '../protocol/authorization.ts';
import { DEVICE_LIST_PATH, deviceListSchema, type ListedDevice } from '../protocol/device-list.ts';
import { normalizeBaseUrl } from '../protocol/endpoints.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { cleanText } from '../protocol/problem.ts';
import { readJsonLines } from './inventory.ts';
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

/** The newer one applies, the later one where that is not known; what it leaves open is the other's word. */
function newer(known: DeviceReport, added: DeviceReport): DeviceReport {
	const isOlder = (added.heardAtMs ?? Number.POSITIVE_INFINITY) < (known.heardAtMs ?? Number.NEGATIVE_INFINITY);
	const [first, second] = isOlder ? [known, added] : [added, known];
	const { refusal, hindrance, problem, next } = first;
	const isSameRefusal = first.planRefused !== null && first.planRefused === second.planRefused;
	return {
		...first,
		serial: first.serial ?? second.serial,
		macAddress: first.macAddress ?? second.macAddress,
		deviceType: first.deviceType ?? second.deviceType,
		labels: first.labels ?? second.labels,
		agentVersion: first.agentVersion ?? second.agentVersion,
		refusal: isSameRefusal ? (refusal ?? second.refusal) : refusal,
		hindrance: first.online === second.online ? (hindrance ?? second.hindrance) : hindrance,
		problem: first.online === second.online ? (problem ?? second.problem) : problem,
		next: next ?? second.next,
	};
}

const time = z.string().nullish();
const told = z.object({ code: z.string().nullish(), message: z.string().nullish() });
/** As much of a status as is used, of any version of the agent. */
const statusLineSchema = z.object({
	deviceId: z.string('must be a text').nullable(),
	serial: z.string().nullish(),
	macAddress: z.string().nullish(),
	deviceType: z.string().nullish(),
	labels: z.array(z.string()).nullish(),
	agentVersion: z.string().nullish(),
	state: z.string('must be a text'),
	workflow: z.object({
		live: z.string().nullable(),
		wanted: z.string().nullable(),
		waitsUntil: time,
		source: z.string().nullish(),
	}),
	channel: z.object({ since: time, lastHeartbeatAt: time }).nullish(),
	plan: z
		.object({
			revision: z.number().nullish(),
			epoch: z.number().nullish(),
			followed: z.number().nullable(),
			next: z.object({ revision: z.number(), at: z.string() }).nullish(),
			refused: z.object({ revision: z.number(), message: z.string() }).nullable(),
			checkedAt: time,
		})
		.nullish(),
	updates: z.object({ takenBack: z.array(z.object({ version: z.string(), fault: z.string() })) }).nullish(),
	problem: told.nullish(),
	warnings: z.array(told).nullish(),
});
type StatusLine = z.infer<typeof statusLineSchema>;

/** A clock that is further ahead than this of ours is wrong, here or there. */
const MAX_AHEAD_MS = 300_000;
/** Lines that are named. */
const MAX_FAULTS = 5;

async function fromFiles(shell: Shell, path: string, nowMs: number): Promise<DeviceReport[]> {
	const files = await listFiles(path);
	const reports: DeviceReport[] = [];
	let unpaired = 0;
	let ahead = 0;
	const faults: string[] = [];
	for (const file of files) {
		const found = await readJsonLines(file);
		faults.push(...found.faults);
		for (const { line, fields } of found.rows) {
			const read = statusLineSchema.safeParse(fields);
			if (!read.success) {
				const where = read.error.issues[0]?.path.join('/') || 'the line';
				const fault = `${file}: line ${line}: ${where} is not as in "idv-agent status --json".`;
				throw new AgentError('inventory-invalid', fault);
			}
			const { deviceId } = read.data;
			if (deviceId === null) unpaired += 1;
			else {
				const report = reportOf({ ...read.data, deviceId });
				const isAhead = (report.heardAtMs ?? 0) > nowMs + MAX_AHEAD_MS;
				if (isAhead) ahead += 1;
				reports.push(isAhead ? { ...report, heardAtMs: null } : report);
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

/** @throws AgentError `inventory-invalid`. */
async function listFiles(path: string): Promise<string[]> {
	const found = await stat(path).catch(() => null);
	if (!found?.isDirectory()) return [path];
	const entries = await readdir(path, { withFileTypes: true });
	const files = entries.filter((entry) => entry.isFile() && !entry.name.startsWith('.'));
	if (files.length === 0) throw new AgentError('inventory-invalid', `${path} is a directory without a file in it.`);
	return files.map(({ name }) => join(path, name)).sort();
}

function reportOf(status: StatusLine & { readonly deviceId: string }): DeviceReport {
	const { deviceId, workflow, plan, channel, problem } = status;
	const online = status.state === 'online';
	const [heartbeatMs, checkedMs, sinceMs] = [channel?.lastHeartbeatAt, plan?.checkedAt, channel?.since].map(readTime);
	// Without heartbeats as frames the channel alone does not say when the device was last heard.
	const heardAtMs = heartbeatMs == null ? null : Math.max(heartbeatMs, checkedMs ?? 0, online ? (sinceMs ?? 0) : 0);
	const next = plan?.next ? { revision: plan.next.revision, atMs: Date.parse(plan.next.at) } : null;
	return {
		deviceId,
		serial: status.serial ?? null,
		macAddress: status.macAddress ?? null,
		deviceType: status.deviceType ?? null,
		labels: status.labels ?? null,
		online,
		workflowId: workflow.live ?? workflow.wanted,
		heardAtMs,
		offlineSinceMs: online ? null : (heartbeatMs ?? sinceMs ?? null),
		planRevision: plan?.followed ?? null,
		planRefused: plan?.refused?.revision ?? null,
		planEpoch: plan?.epoch,
		refusal: plan?.refused?.message ?? null,
		hindrance: online ? hindranceOf(status) : (problem?.message ?? (status.state === 'unpaired' ? 'not paired' : null)),
		next: next && Number.isFinite(next.atMs) ? next : null,
		agentVersion: status.agentVersion ?? null,
		takenBack: status.updates?.takenBack,
		problem: problem?.code ?? null,
	};
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
		const { devices } = deviceListSchema.parse(JSON.parse(new TextDecoder().decode(answer.body)));
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
	const { updateTakenBack } = device;
	const { deviceId, serial, macAddress, deviceType, workflowId, planRefused } = device;
	const heardAtMs = readTime(lastHeartbeatAt);
	return {
		...{ deviceId, serial, macAddress, deviceType, workflowId, online, planRevision, planRefused, agentVersion },
		labels: null,
		// The service itself knows whether the channel is open.
		heardAtMs: online ? nowMs : heardAtMs,
		offlineSinceMs: online ? null : heardAtMs,
		refusal: planReason,
		hindrance: problemCode,
		next: null,
		takenBack: updateTakenBack === undefined ? [] : [{ version: updateTakenBack, fault: null }],
		problem: problemCode,
	};
}

/** Devices that are silent now: of a day each report, and of a month one an hour, which a store of many devices can answer. */
const HEARD = ['1d', '30d:1h'].map((range) => `last_over_time(idv_agent_report_time_seconds[${range}])`).join(' or ');

const answerSchema = z.object({
	data: z.object({
		result: z.array(z.object({ metric: z.record(z.string(), z.string()), value: z.tuple([z.number(), z.string()]) })),
	}),
});
interface Point {
	readonly labels: Readonly<Record<string, string>>;
	readonly value: number;
}

/** Devices are known by their label `device`: the agent pushes it, and has it in `/metrics`. */
async function fromPrometheus(shell: Shell, given: string, flags: SourceFlags, nowMs: number): Promise<DeviceReport[]> {
	const baseUrl = normalizeBaseUrl(given);
	if (baseUrl === null)
		throw new AgentError('usage', '--prometheus is not an http or https address without user, query or fragment.', {
			remedy: 'Give the address before /api/v1, such as http://127.0.0.1:8428.',
		});
	const authorization = storeAuthorization(shell);
	return withClient({ caFile: flags.caFile ?? shell.env['IDV_CA_FILE'], env: shell.env }, async (client) => {
		const ask = async (query: string): Promise<Point[]> => {
			const url = new URL(`${baseUrl.replace(/\/$/, '')}/api/v1/query`);
			url.search = String(new URLSearchParams({ query, time: String(nowMs / 1000) }));
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
			if (read) return read;
			const said = readStoreError(text);
			const how = said ? `: ${said}` : status === 200 ? ' to a query, and not as Prometheus does' : ' to a query';
			throw new AgentError('bad-response', `${url.host} answered ${status}${how}.`, {
				remedy: said || status >= 500 ? 'Look at the metrics store, then run the command again.' : CHECK_STORE,
			});
		};
		const seen = await ask(HEARD);
		const online = await ask('idv_agent_online');
		const facts = {
			workflow: await ask('idv_agent_workflow == 1'),
			problem: await ask('idv_agent_problem == 1'),
			confirmed: await ask('idv_agent_plan_confirmed_revision'),
			refused: await ask('idv_agent_plan_refused > 0'),
			due: await ask('idv_agent_plan_due_time_seconds'),
			revision: await ask('idv_agent_plan_revision'),
			takenBack: await ask('idv_agent_update_taken_back == 1'),
		};
		return pointReports(seen, online, facts);
	});
}

const CHECK_STORE =
	'Check --prometheus: it is the address before /api/v1. A credential is taken from IDV_PROMETHEUS_AUTHORIZATION.';

/** The words of Prometheus' own error document; `null` for another answer. */
function readStoreError(text: string): string | null {
	const said = parseJson(text);
	const isError = isObject(said) && said['status'] === 'error' && typeof said['error'] === 'string';
	return isError ? cleanText(String(said['error']), 300).replace(/[.!]$/, '') : null;
}

/** @throws AgentError `credential-unreadable`. */
function storeAuthorization(shell: Shell): Authorization | null {
	const text = shell.env['IDV_PROMETHEUS_AUTHORIZATION'];
	if (text === undefined || text === '') return null;
	const read = parseAuthorization(text);
	if (read) return read;
	throw new AgentError('credential-unreadable', 'IDV_PROMETHEUS_AUTHORIZATION holds no credential.', {
		remedy: 'Write it as a header has it, such as "Bearer TOKEN" or "Basic …".',
	});
}

function readPoints(text: string): Point[] | null {
	const answer = answerSchema.safeParse(parseJson(text)).data;
	if (!answer) return null;
	// NaN and infinities are figures of a store, not of a device.
	return answer.data.result
		.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }))
		.filter(({ value }) => Math.abs(value) <= Number.MAX_SAFE_INTEGER);
}

type Fact = 'workflow' | 'problem' | 'confirmed' | 'refused' | 'due' | 'revision' | 'takenBack';
type Facts = Readonly<Record<Fact, readonly Point[]>>;

function pointReports(seen: readonly Point[], online: readonly Point[], facts: Facts): DeviceReport[] {
	// A device may have several series while its version or labels change: the one that was heard last applies.
	const newest = new Map<string, Point>();
	for (const point of seen) {
		const { device } = point.labels;
		if (device !== undefined && point.value >= (newest.get(device)?.value ?? 0)) newest.set(device, point);
	}
	const byDevice = (points: readonly Point[]) =>
		new Map(points.flatMap((point) => (point.labels['device'] === undefined ? [] : [[point.labels['device'], point]])));
	const isOnline = byDevice(online);
	const of = {
		workflow: byDevice(facts.workflow),
		problem: byDevice(facts.problem),
		refused: byDevice(facts.refused),
		numbers: [facts.revision, facts.confirmed, facts.due].map(byDevice),
	};
	const takenBack = Map.groupBy(facts.takenBack, (point) => point.labels['device']);
	return [...newest].map(([deviceId, { labels, value }]) => {
		const heardAtMs = value * 1000;
		const is = isOnline.get(deviceId)?.value === 1;
		const problem = of.problem.get(deviceId)?.labels['code'] ?? null;
		const refused = of.refused.get(deviceId);
		const [revision, confirmed, due] = of.numbers.map((one) => one.get(deviceId)?.value ?? null);
		return {
			deviceId,
			serial: null,
			macAddress: null,
			deviceType: null,
			labels: labels['labels']?.split(',').filter(Boolean) ?? null,
			online: is,
			workflowId: of.workflow.get(deviceId)?.labels['workflow'] ?? null,
			heardAtMs,
			offlineSinceMs: is ? null : heardAtMs,
			planRevision: confirmed ?? null,
			planRefused: refused?.value ?? null,
			refusal: refused?.labels['code'] ?? null,
			hindrance: problem,
			next: due && revision ? { revision, atMs: due * 1000 } : null,
			agentVersion: labels['version'] ?? null,
			takenBack: (takenBack.get(deviceId) ?? []).map(({ labels: { update = '', fault = null } }) => ({
				version: update,
				fault,
			})),
			problem,
		};
	});
}
