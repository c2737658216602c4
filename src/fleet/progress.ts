/** How far a fleet has come with a plan: each device's assignment at this moment beside its own report. Pure. */
import { compareVersions } from '../base/debian-version.ts';
import { plainDuration } from '../base/durations.ts';
import { believedAheadMs } from '../connection/clock-skew.ts';
import { isOver } from './brakes.ts';
import type { FleetPlan } from './plan-format.ts';
import { type CompiledPlan, type PlannedDevice, type PlannedWord, planFor, shareOfSpread } from './targeting.ts';

/** The newest report of one device, from any source; `null` where the source does not say. */
export interface DeviceReport {
	readonly deviceId: string;
	readonly serial: string | null;
	readonly macAddress: string | null;
	readonly deviceType: string | null;
	readonly labels: readonly string[] | null;
	readonly online: boolean;
	/** The live workflow; of an offline device the last one. */
	readonly workflowId: string | null;
	/** Seconds between the heartbeats of the live registration; left out where that is not said. */
	readonly heartbeatCadence?: number | null | undefined;
	/** When the device was last heard, in milliseconds since 1970, and since when it has been offline. */
	readonly heardAtMs: number | null;
	readonly offlineSinceMs: number | null;
	/** How far its clock is ahead of the service's where that is wrong, negative when slow, else 0; times of the report are without it. Left out where it is not said. */
	readonly clockAheadMs?: number | undefined;
	/** A moment before which the report was not made, and since when its agent runs, where they are told. */
	readonly madeAtMs?: number | null | undefined;
	readonly startedAtMs?: number | null | undefined;
	/** The newest revision under which it was online, and the one that it could not follow. */
	readonly planRevision: number | null;
	readonly planRefused: number | null;
	/** The epoch of both, where it is said. */
	readonly planEpoch?: number | null | undefined;
	/** Why it refused, in words. */
	readonly refusal: string | null;
	/** Why it refuses the plan that is served to it, in words: it goes on with the one before. */
	readonly servedRefusal?: string | null | undefined;
	/** Why it may be late, in words; and why it does not have the version that is ordered. */
	readonly hindrance: string | null;
	readonly updateHindrance?: string | null | undefined;
	/** The fleet that it belongs to, where that is said. */
	readonly fleet?: string | null | undefined;
	/** The moment at which it takes a revision that it knows already. */
	readonly next: { readonly revision: number; readonly atMs: number } | null;
	readonly agentVersion: string | null;
	/** Versions that it went back from. */
	readonly takenBack?: readonly { readonly version: string; readonly fault: string | null }[] | undefined;
	/** A permanent code. */
	readonly problem: string | null;
	/** ISO 8601, where it is said. */
	readonly problemSince?: string | null | undefined;
	/** All that was refused on it or cannot be read, where more than `problem` is told. */
	readonly troubles?: readonly Trouble[] | undefined;
	/** That a key or a client certificate ends soon or has ended, in words. */
	readonly credentialEnding?: string | undefined;
	/** What another report under this id has that no one device can have. */
	readonly otherDevice?: string | undefined;
	/** How another report under this id contradicts the one that counts. */
	readonly dispute?: string | undefined;
}

export interface Trouble {
	/** A permanent code. */
	readonly code: string;
	/** ISO 8601, where it is said. */
	readonly since: string | null;
	/** The device's own, where they are told. */
	readonly words?: string | null | undefined;
}

/** In the order in which they are shown. */
export const STANDINGS = ['atTarget', 'dueLater', 'overdue', 'refused', 'offline', 'neverSeen'] as const;
export type Standing = (typeof STANDINGS)[number];

export interface DeviceStanding {
	readonly deviceId: string;
	readonly standing: Standing;
	readonly workflowId: string | null;
	/** The workflow that the plan assigns now; `null` where it leaves the workflow alone. */
	readonly target: string | null;
	readonly rule: string | null;
	/** The ring that holds the device, in percent; `null` outside a rollout. */
	readonly ring: number | null;
	/** When a device that is due later moves; since when an offline one has been offline. Milliseconds since 1970. */
	readonly atMs: number | null;
	/** Why it is not at its target, in words. */
	readonly reason: string | null;
	/** Whether the plan wants it to have moved by now, in a ring that has begun. */
	readonly isMoveDue: boolean;
	/** The change by the newest ring that has begun, else by what its rule says without a ring: rule, kind and name. `null` for neither. */
	readonly step: string | null;
	/** Whether it has all that is due by now. */
	readonly hasAllDue: boolean;
	/** Whether nothing was heard of it since its move was due, if ever. */
	readonly isSilent: boolean;
	/** Whether it counts against the plan: refused, overdue, offline since its move was due, or silent in a ring that has begun. */
	readonly hasFailed: boolean;
	readonly agentVersion: string | null;
	/** The version that the plan orders now; `null` where it orders none. */
	readonly targetVersion: string | null;
	readonly problem: string | null;
	readonly problemSince: string | null;
	/** Why it refuses the plan that is served to it, in words. */
	readonly planRefusal?: string | undefined;
	readonly troubles?: readonly Trouble[] | undefined;
}

export interface ProgressContext {
	readonly nowMs: number;
	/** A device that was last heard longer ago counts as offline, whatever it said then. */
	readonly staleMs: number;
	/** How long after its moment a device is not overdue yet. */
	readonly graceMs: number;
	/** When the plan was published: changes without a time of their own are due within its spread after that. `null`: at once. */
	readonly publishedMs: number | null;
}

/** @param known the device as the inventory has it; `null` for one that only a report names. */
export function standingOf(
	compiled: CompiledPlan,
	known: PlannedDevice | null,
	report: DeviceReport | null,
	context: ProgressContext,
): DeviceStanding {
	const { nowMs, staleMs, graceMs, publishedMs } = context;
	const { plan } = compiled;
	const device = joined(known, report);
	const { rule, workflowId: target, version: targetVersion, ring, words } = planFor(compiled, device, nowMs);
	const has = hasNow(report, words, plan);
	const takenAtMs = publishedMs === null ? null : publishedMs + spreadMsOf(plan, device.deviceId);
	const dueMs = ({ atMs }: PlannedWord) => atMs ?? takenAtMs;
	const hasPassed = (word: PlannedWord) => nowMs >= (dueMs(word) ?? 0) + graceMs;
	const begun = words.filter((word) => word.isNow && word.ring !== null);
	const ordered = words.filter(({ isNow, to }) => isNow && to !== null);
	const newest = begun.at(-1) ?? ordered.at(-1);
	const shared = {
		deviceId: device.deviceId,
		workflowId: has.workflow,
		target,
		rule,
		ring,
		isMoveDue: begun.length > 0,
		step: newest ? [rule ?? 'defaults', newest.what, newest.to].join(' ') : null,
		agentVersion: has.version,
		targetVersion,
		problem: report?.problem ?? null,
		problemSince: report?.problemSince ?? null,
		...(report?.servedRefusal && { planRefusal: report.servedRefusal }),
		...(report?.troubles && { troubles: report.troubles }),
		atMs: null,
		reason: null,
		hasAllDue: false,
		isSilent: false,
		hasFailed: false,
	};
	// A store forgets a device after a while: a ring whose devices are gone must not look like one without a fault.
	const said = begun.length > 0 ? begun : ordered;
	const isPastDue = said.some(hasPassed);
	if (!report) return { ...shared, standing: 'neverSeen', isSilent: true, hasFailed: isPastDue };
	const isStale = report.heardAtMs !== null && nowMs - report.heardAtMs > staleMs;
	if (!report.online || isStale) {
		const sinceMs = report.online ? report.heardAtMs : report.offlineSinceMs;
		const reason = whyOffline(report);
		const lastDueMs = Math.max(0, ...said.map((word) => dueMs(word) ?? 0));
		const isSilent = sinceMs !== null && sinceMs < lastDueMs;
		const hasFailed = isSilent ? isPastDue : true;
		return { ...shared, standing: 'offline', atMs: sinceMs, reason, isSilent, hasFailed };
	}
	const { revision } = plan;
	const refused = (reason: string) => ({ ...shared, standing: 'refused' as const, reason, hasFailed: true });
	if (isOfEpoch(report, plan) && report.planRefused !== null && report.planRefused >= revision)
		return refused(report.refusal ?? 'the device gave no reason');
	// Its clock may be fast: a ring that begins by it, or within the grace, may have reached it.
	const fastMs = believedAheadMs(report.clockAheadMs ?? 0);
	const isAhead = (word: PlannedWord) =>
		words.some(
			({ what, to, isNow, atMs }) =>
				!isNow && what === word.what && to === has[what] && (atMs ?? 0) <= nowMs + graceMs + fastMs,
		);
	const lacking = words.filter(
		(word) => word.isNow && word.to !== null && word.to !== has[word.what] && !isAhead(word),
	);
	const lacksVersion = lacking.some(({ what }) => what === 'version');
	const back = lacksVersion && report.takenBack?.find(({ version }) => version === targetVersion);
	if (back) return refused(`version ${back.version} was taken back${back.fault === null ? '' : ` (${back.fault})`}`);
	const foreign = isPastDue ? otherFleet(report, plan) : null;
	if (lacking.length === 0 && foreign) return { ...shared, standing: 'overdue', reason: foreign, hasFailed: true };
	if (lacking.length === 0) {
		const later = words.find(({ what, to, isNow }) => !isNow && to !== null && to !== has[what]);
		const reason = later ? (report.servedRefusal ?? null) : null;
		const standing = later ? 'dueLater' : 'atTarget';
		return { ...shared, standing, hasAllDue: true, atMs: later?.atMs ?? null, reason };
	}
	const own = report.next?.revision === revision && nowMs < report.next.atMs + graceMs ? report.next.atMs : null;
	const late = lacking.find((word) => hasPassed(word) && (own === null || word.what === 'version'));
	if (!late) return { ...shared, standing: 'dueLater', atMs: own ?? dueMs(lacking[0] as PlannedWord) };
	return { ...shared, standing: 'overdue', reason: lateness(report, plan, late, has, nowMs), hasFailed: true };
}

/** What the device has of each word. An agent that does not say its cadence has the one of a revision that it has confirmed. */
function hasNow(report: DeviceReport | null, words: readonly PlannedWord[], plan: FleetPlan): Has {
	const isConfirmed = isOfEpoch(report, plan) && (report?.planRevision ?? -1) >= plan.revision;
	const said = words.find(({ what, isNow }) => isNow && what === 'heartbeatCadence')?.to ?? null;
	const heartbeatCadence = report?.heartbeatCadence?.toString() ?? (isConfirmed ? said : null);
	return { workflow: report?.workflowId ?? null, heartbeatCadence, version: report?.agentVersion ?? null };
}

type Has = Readonly<Record<PlannedWord['what'], string | null>>;
const isOfEpoch = (report: DeviceReport | null, { epoch = 0 }: FleetPlan) => (report?.planEpoch ?? epoch) === epoch;

const whyOffline = ({ online, hindrance }: DeviceReport) =>
	online ? 'it said that it was online, but nothing was heard since' : (hindrance ?? 'nothing was heard since');

/** Why it does not follow the plan, whatever it happens to have; `null` where it may. */
function otherFleet({ fleet: followed }: DeviceReport, { fleet }: FleetPlan): string | null {
	return followed && followed !== fleet ? `it follows the plan of another fleet, ${followed}` : null;
}

function lateness(
	report: DeviceReport,
	plan: FleetPlan,
	{ what, to }: PlannedWord,
	{ heartbeatCadence }: Has,
	nowMs: number,
): string {
	if (what === 'version') return versionLateness(report, to ?? '');
	const { hindrance, planRevision, clockAheadMs, labels } = report;
	const { revision, rules } = plan;
	const foreign = otherFleet(report, plan);
	if (foreign) return foreign;
	const heartbeat = what === 'heartbeatCadence' && heartbeatCadence !== null ? `every ${heartbeatCadence} s` : null;
	// A device that has confirmed the revision and does otherwise does so by its own settings: these take precedence.
	if (heartbeat && (planRevision ?? 0) >= revision) return `its own settings name the heartbeat (${heartbeat})`;
	if (hindrance !== null) return hindrance;
	if (heartbeat) return `its heartbeat is ${heartbeat}`;
	if (clockAheadMs) return clockTrouble(clockAheadMs);
	if (planRevision === null) return 'it has confirmed no revision of the plan';
	if (planRevision < revision) return `it has confirmed revision ${planRevision} of the plan`;
	// Who was away until then is not late for a reason of its own.
	if (isOver(plan, nowMs)) return `the plan was valid until ${plan.validUntil}: nothing begins by it any more`;
	// A report without labels does not say either what decides its workflow.
	if (labels !== null) return 'no reason is reported';
	const byLabels = rules.some(({ match }) => 'labels' in match);
	return `no reason is reported: its own settings may name it${byLabels ? ', or its labels differ from those of the inventory' : ''}`;
}

export const clockTrouble = (aheadMs: number) =>
	`its clock is ${plainDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? 'fast' : 'slow'}`;

function versionLateness({ hindrance, agentVersion, updateHindrance }: DeviceReport, ordered: string): string {
	const own = updateHindrance ?? hindrance;
	if (own !== null) return own;
	if (agentVersion === null) return 'its version is not reported';
	const isNewer = compareVersions(agentVersion, ordered) > 0;
	return `it has version ${agentVersion}${isNewer ? ', and no device installs an older one' : ''}`;
}

/** The device's own word, by which it chooses; what its report leaves open is the inventory's. */
function joined(known: PlannedDevice | null, report: DeviceReport | null): PlannedDevice {
	return {
		deviceId: known?.deviceId ?? report?.deviceId ?? '',
		serial: report?.serial ?? known?.serial ?? null,
		macAddress: report?.macAddress ?? known?.macAddress ?? null,
		deviceType: report?.deviceType ?? known?.deviceType ?? null,
		labels: report?.labels ?? known?.labels ?? [],
	};
}

function spreadMsOf({ spreadSeconds }: FleetPlan, deviceId: string): number {
	return Math.round(shareOfSpread(deviceId) * spreadSeconds * 1000);
}

export interface ReasonGroup {
	readonly standing: Standing;
	readonly reason: string;
	devices: number;
	/** Some of them. */
	readonly examples: string[];
}

export interface RingProgress extends Record<Standing, number> {
	readonly rule: string | null;
	readonly percent: number;
	devices: number;
}

export interface FleetProgress extends Record<Standing, number> {
	readonly devices: number;
	/** Devices whose workflow the plan leaves alone; they are at their target. */
	readonly leftAlone: number;
	/** Of the devices that are due later: the first and the last moment, in milliseconds since 1970. */
	readonly firstDueMs: number | null;
	readonly lastDueMs: number | null;
	/** The most frequent first. */
	readonly reasons: readonly ReasonGroup[];
	readonly rings: readonly RingProgress[];
	/** Live workflows and versions of the agent, each with its devices. */
	readonly workflows: Readonly<Record<string, number>>;
	readonly versions: Readonly<Record<string, number>>;
	/** The basis of a pipeline: devices whose change is due, the worst step. */
	readonly judged: { readonly devices: number; readonly reported: number; readonly failed: number };
	/** Each with its devices, the worst first; `missing`: those that nothing was heard of since their move was due; `silent`: of these the failed; `later`: those that have time left. */
	readonly steps: readonly (FleetProgress['judged'] &
		Readonly<Record<'silent' | 'missing' | 'later', number>> & {
			readonly step: string | null;
			readonly isRing: boolean;
		})[];
}

/** Devices that are named for a reason. */
const EXAMPLES = 5;

export function sumUp(devices: readonly DeviceStanding[]): FleetProgress {
	const counts = zeroes();
	const rings = new Map<string, RingProgress>();
	const reasons = new Map<string, ReasonGroup>();
	const workflows: Record<string, number> = {};
	const versions: Record<string, number> = {};
	let [leftAlone, firstDueMs, lastDueMs]: [number, number | null, number | null] = [0, null, null];
	for (const device of devices) {
		const { standing, reason, atMs, workflowId, agentVersion, ring, rule } = device;
		counts[standing] += 1;
		if (standing === 'atTarget' && device.target === null) leftAlone += 1;
		if (workflowId !== null) workflows[workflowId] = (workflows[workflowId] ?? 0) + 1;
		if (agentVersion !== null) versions[agentVersion] = (versions[agentVersion] ?? 0) + 1;
		if (standing === 'dueLater' && atMs !== null) {
			firstDueMs = Math.min(firstDueMs ?? atMs, atMs);
			lastDueMs = Math.max(lastDueMs ?? atMs, atMs);
		}
		if (reason !== null) addReason(reasons, device, reason);
		if (ring === null) continue;
		const key = JSON.stringify([rule, ring]);
		const progress = rings.get(key) ?? { rule, percent: ring, devices: 0, ...zeroes() };
		rings.set(key, progress);
		progress.devices += 1;
		progress[standing] += 1;
	}
	return {
		devices: devices.length,
		...counts,
		leftAlone,
		firstDueMs,
		lastDueMs,
		reasons: [...reasons.values()].sort((a, b) => b.devices - a.devices),
		rings: [...rings.values()].sort((a, b) => a.percent - b.percent),
		workflows,
		versions,
		...judge(devices),
	};
}

/** The device's own name in a reason would make each reason another one. */
function addReason(groups: Map<string, ReasonGroup>, { standing, deviceId }: DeviceStanding, text: string): void {
	const reason = deviceId.length > 2 ? text.replaceAll(deviceId, 'the device') : text;
	const key = `${standing} ${reason}`;
	const group = groups.get(key) ?? { standing, reason, devices: 0, examples: [] };
	groups.set(key, group);
	group.devices += 1;
	if (group.examples.length < EXAMPLES) group.examples.push(deviceId);
}

/**
 * A share of the whole fleet would hide a ring of 1 %: each step is judged by its own devices. Once a rollout has begun, what the
 * defaults say without a ring is what the fleet had: a device that nothing was heard of since then has not failed by it.
 */
function judge(devices: readonly DeviceStanding[]): Pick<FleetProgress, 'judged' | 'steps'> {
	const hasBegun = devices.some(({ isMoveDue }) => isMoveDue);
	const isOnItsWay = ({ standing, hasAllDue }: DeviceStanding) => standing === 'dueLater' && !hasAllDue;
	// The others of a ring to come count by what is due of them before it, those that fail that among all that have it.
	const isToCome = (one: DeviceStanding) => one.ring !== null && (isOnItsWay(one) || one.isSilent);
	const judged = devices
		.filter((one) => one.isMoveDue || (one.target !== null && !isToCome(one)))
		.map((one) =>
			hasBegun && !one.isMoveDue && one.isSilent && one.rule === null ? { ...one, hasFailed: false } : one,
		);
	const steps = [...Map.groupBy(judged, ({ step }) => step)].map(([step, those]) => {
		const failed = those.filter(({ hasFailed }) => hasFailed);
		const reported = those.filter((one) => !isOnItsWay(one) && !one.isSilent);
		const silent = failed.filter(({ isSilent }) => isSilent).length;
		const missing = those.filter(({ isSilent }) => isSilent).length;
		const later = those.filter(isOnItsWay).length;
		const isRing = those.some(({ isMoveDue }) => isMoveDue);
		const [devices, sure] = [those.length, reported.length];
		return { step, isRing, devices, reported: sure, failed: failed.length, silent, missing, later };
	});
	steps.sort(
		(a, b) =>
			b.failed / b.devices - a.failed / a.devices ||
			a.reported / a.devices - b.reported / b.devices ||
			b.failed - a.failed,
	);
	const { devices: count = 0, reported = 0, failed = 0 } = steps[0] ?? {};
	return { judged: { devices: count, reported, failed }, steps };
}

function zeroes(): Record<Standing, number> {
	return { atTarget: 0, dueLater: 0, overdue: 0, refused: 0, offline: 0, neverSeen: 0 };
}
