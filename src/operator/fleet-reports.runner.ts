/** Reports of devices from any mix of `idv-agent status --json`, a metrics store and the embedded service. Of each device the newest applies. */
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { counted, type Shell } from '../cli/output.runner.ts';
import { believedAheadMs } from '../connection/clock-skew.ts';
import type { DeviceReport } from '../fleet/progress.ts';
import { ownWorkflow, REFUSED_PLANS, reasonIn } from '../fleet/reasons.ts';
import { DEVICE_LIST_PATH, deviceListSchema, type ListedDevice } from '../protocol/device-list.ts';
import { parseJson } from '../protocol/json.ts';
import { isOfSettings } from './fleet-troubles.runner.ts';
import { listFiles, readJsonLines } from './inventory.runner.ts';
import { newer } from './merge-reports.ts';
import { fromPrometheus } from './prometheus-reports.runner.ts';
import { callService } from './service-call.runner.ts';
import { resolveTarget, type TargetFlags } from './service-target.runner.ts';

const MAX_LIST_BYTES = 128 * 1024 * 1024;

export interface SourceFlags extends TargetFlags {
	readonly from?: readonly string[] | undefined;
	readonly prometheus?: string | undefined;
	readonly service?: boolean | undefined;
}

/** The service is asked where no other source is named, and where it is named too. @param told takes the warnings of a look. */
export async function gatherReports(
	shell: Shell,
	flags: SourceFlags,
	nowMs: number,
	told: Pick<Shell, 'warn'> = shell,
) {
	const { from = [], prometheus } = flags;
	const reports = new Map<string, DeviceReport>();
	const add = (report: DeviceReport) => {
		const known = reports.get(report.deviceId);
		reports.set(report.deviceId, known ? newer(known, report) : report);
	};
	for (const path of from) for (const report of await fromFiles(told, path, nowMs)) add(report);
	if (prometheus !== undefined) for (const report of await fromPrometheus(shell, prometheus, nowMs)) add(report);
	const isAlone = from.length === 0 && prometheus === undefined;
	if (flags.service || isAlone) for (const report of await fromService(shell, flags, nowMs)) add(report);
	return reports;
}

const time = z.string().nullish();
const told = z.object({
	code: z.string().nullish(),
	message: z.string().nullish(),
	params: z
		.object({
			since: time,
			seconds: z.number().nullish(),
			direction: z.string().nullish(),
			fleet: z.string().nullish(),
		})
		.nullish()
		.catch(null),
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
			refused: z
				.object({
					revision: z.number(),
					message: z.string(),
					params: z.object({ workflowId: z.string().nullish(), liveWorkflowId: z.string().nullish() }).nullish(),
				})
				.nullable(),
			servedRefused: told.nullish(),
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

async function fromFiles(shell: Pick<Shell, 'warn'>, path: string, nowMs: number): Promise<DeviceReport[]> {
	const files = await listFiles(path);
	const reports: DeviceReport[] = [];
	let unpaired = 0;
	let ahead = 0;
	const empty: string[] = [];
	const faults: string[] = [];
	const fault = (said: string) => {
		if (faults.push(said) > MAX_UNREAD) throw tooManyUnread(path, faults[0]);
	};
	for (const file of files) {
		const before = faults.length;
		const rows = await readJsonLines(file, fault).catch((error: unknown) => {
			if (files.length === 1 || !(error instanceof AgentError)) throw error;
			fault(error.message);
			return [];
		});
		let found = 0;
		for (const { place, fields } of rows) {
			found += 1;
			const read = statusLineSchema.safeParse(fields);
			if (!read.success) {
				const where = read.error.issues[0]?.path.join('/') || 'the line';
				fault(`${file}: ${place}: ${where} is not as in "idv-agent status --json".`);
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
		if (found + faults.length === before) empty.push(file);
	}
	// A line that was cut off while it was gathered must not hide all others.
	if (faults.length > 0) {
		const named = [...faults.slice(0, MAX_FAULTS), ...(faults.length > MAX_FAULTS ? ['…'] : [])].join('\n');
		if (reports.length + unpaired === 0) throw new AgentError('inventory-invalid', named);
		shell.warn(
			`${counted(faults.length, 'line')} of ${path} cannot be read and ${faults.length === 1 ? 'is' : 'are'} not counted:\n${named}`,
		);
	}
	if (files.length === 0) shell.warn(`${path} is a directory without a file in it.`);
	if (empty.length > 0) {
		const more = empty.length > MAX_FAULTS ? ', …' : '';
		shell.warn(`${counted(empty.length, 'file')} with nothing in it: ${empty.slice(0, MAX_FAULTS).join(', ')}${more}.`);
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
	const { deviceId, plan, channel, problem, warnings } = status;
	const online = status.state === 'online';
	const clockAheadMs = clockAheadOf(status);
	const read = (text: string | null | undefined, aheadMs = clockAheadMs) => readTime(text, aheadMs);
	// Of the plan the device judges by another time than its clock's, where it does not believe that.
	const believedMs = believedAheadMs(clockAheadMs);
	const checkedMs = read(plan?.checkedAt, believedMs);
	const [heartbeatMs, sinceMs, startedAtMs] = [channel?.lastHeartbeatAt, channel?.since, status.startedAt].map((text) =>
		read(text),
	);
	const times = [heartbeatMs, checkedMs, sinceMs, startedAtMs];
	// Without heartbeats as frames the channel alone does not say when the device was last heard.
	const heardAtMs = heartbeatMs == null ? null : Math.max(heartbeatMs, checkedMs ?? 0, online ? (sinceMs ?? 0) : 0);
	const refused = [problem, ...(warnings ?? [])].flatMap((one) =>
		one?.code && isOfSettings(one.code)
			? [{ code: one.code, since: one.params?.since ?? null, words: one.message ?? null }]
			: [],
	);
	const troubles = refused.filter(({ code }, at) => refused.findIndex((one) => one.code === code) === at);
	const ofSettings = warnings?.find(({ code }) => code && isOfSettings(code));
	// What keeps a device from another service lasts until that is there; what its settings lack is to be mended.
	const named = problem?.code && isOfSettings(problem.code) ? problem : (ofSettings ?? problem);
	const next = plan?.next ? { revision: plan.next.revision, atMs: Date.parse(plan.next.at) - believedMs } : null;
	return {
		deviceId,
		serial: status.serial ?? null,
		macAddress: status.macAddress ?? null,
		deviceType: status.deviceType ?? null,
		labels: status.labels ?? null,
		online,
		workflowId: workflowOf(status),
		heartbeatCadence: channel?.heartbeatCadence,
		...{ heardAtMs, startedAtMs, clockAheadMs },
		madeAtMs: Math.max(...times.map((ms) => ms ?? 0)) || null,
		offlineSinceMs: online ? null : (heartbeatMs ?? sinceMs ?? null),
		planRevision: plan?.followed ?? null,
		planRefused: plan?.refused?.revision ?? null,
		planEpoch: plan?.epoch,
		refusal: plan?.refused?.message ?? null,
		servedRefusal: servedRefusalOf(status),
		hindrance: online ? hindranceOf(status) : (problem?.message ?? (status.state === 'unpaired' ? 'not paired' : null)),
		next: next && Number.isFinite(next.atMs) ? next : null,
		agentVersion: status.agentVersion ?? null,
		takenBack: status.updates?.takenBack,
		updateHindrance: updateHindranceOf(status),
		// One that holds no plan names its fleet where it refuses that of another one.
		fleet: plan?.fleet ?? plan?.servedRefused?.params?.fleet,
		problem: named?.code ?? null,
		problemSince: named?.params?.since ?? null,
		...(troubles.length > 0 && { troubles }),
		credentialEnding: warnings?.find(({ code }) => code === 'credential-ending')?.message ?? undefined,
	};
}

/** That of an offline device is the last one: a workflow that was refused it never had. */
function workflowOf({ workflow: { live, wanted }, plan, problem }: StatusLine): string | null {
	if (live === null && problem?.code === 'workflow-unknown' && !problem.params?.since) return null;
	const { workflowId, liveWorkflowId } = plan?.refused?.params ?? {};
	return live ?? (wanted !== null && workflowId === wanted ? liveWorkflowId || null : wanted);
}

/** An agent that may not be updated says nothing of updates. */
function updateHindranceOf({ updates }: StatusLine): string | null {
	if (!updates) return reasonIn('disabled');
	return updates.failed?.message ?? (updates.reason ? reasonIn(updates.reason) : null);
}

/** @param aheadMs of the clock that it was read from. */
function readTime(text: string | null | undefined, aheadMs = 0): number | null {
	const ms = text ? Date.parse(text) : Number.NaN;
	return Number.isFinite(ms) ? ms - aheadMs : null;
}

/** How far it says itself that its clock is ahead of the service's; 0 where it is right. */
function clockAheadOf({ warnings }: StatusLine): number {
	const { seconds, direction } = warnings?.find(({ code }) => code === 'clock-wrong')?.params ?? {};
	return (seconds ?? 0) * (direction === 'slow' ? -1000 : 1000);
}

/** Why a device that is online may not do as a plan says; `null` where its status names nothing. */
function hindranceOf(status: StatusLine): string | null {
	const { workflow, plan, problem, warnings } = status;
	const { source, waitsUntil } = workflow;
	const own = ownWorkflow(source);
	if (own) return own;
	if (waitsUntil) return 'applications on it hold a lease';
	if (plan === null) return 'it follows no plan: fleet.planUrl is not set';
	const ofPlan = warnings?.find(({ code }) => code?.startsWith('plan-'));
	return servedRefusalOf(status) ?? ofPlan?.message ?? problem?.message ?? null;
}

/** An agent of 0.1 has it among its warnings only. */
function servedRefusalOf({ plan, warnings }: StatusLine): string | null {
	const warned = warnings?.find(({ code }) => code && REFUSED_PLANS.includes(code));
	return (plan?.servedRefused ?? warned)?.message ?? null;
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
	const servedRefusal = planRefused === null ? planReason : null;
	// A plan that is refused keeps no device offline.
	const code = !online && problemCode !== null && REFUSED_PLANS.includes(problemCode) ? null : problemCode;
	return {
		...{ deviceId, serial, macAddress, deviceType, workflowId, online, planRevision, planRefused, agentVersion },
		heartbeatCadence,
		labels: null,
		// The service itself knows whether the channel is open.
		heardAtMs: online ? nowMs : heardAtMs,
		offlineSinceMs: online ? null : heardAtMs,
		refusal: planReason ?? own,
		servedRefusal,
		hindrance: (online ? servedRefusal : null) ?? (code ? reasonIn(code) : own),
		updateHindrance: updateReason && reasonIn(updateReason),
		next: null,
		takenBack: updateTakenBack === undefined ? [] : [{ version: updateTakenBack, fault: null }],
		problem: problemCode,
	};
}
