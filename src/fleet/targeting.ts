/** Which word of a fleet plan is whose, and from when. Pure: the same plan, device and time give the same answer everywhere. */
import type { Assignment, DevicePlan, PlanRecord } from '../state/plan-record.ts';
import type { FleetPlan, PlanMatch, PlanRollout, PlanRule, PlanWord } from './plan-format.ts';
import { MATCH_KEYS, type MatchKey } from './terms.ts';

/** What a plan can know of a device. */
export interface PlannedDevice {
	readonly deviceId: string;
	readonly serial: string | null;
	/** Lower case with colons. */
	readonly macAddress: string | null;
	readonly deviceType: string | null;
	readonly labels: readonly string[];
}

export interface CompiledPlan {
	readonly plan: FleetPlan;
	readonly rules: readonly { readonly rule: PlanRule; readonly fits: (device: PlannedDevice) => boolean }[];
}

export function compilePlan(plan: FleetPlan): CompiledPlan {
	return { plan, rules: plan.rules.map((rule) => ({ rule, fits: compileMatch(rule.match) })) };
}

export function planFor({ plan, rules }: CompiledPlan, device: PlannedDevice): DevicePlan {
	const rule = rules.find(({ fits }) => fits(device))?.rule ?? null;
	const defaults = plan.defaults ?? {};
	const ownAssignment: PlanWord = rule ?? {};
	const before = layered(NOTHING, defaults);
	const base = layered(before, ownAssignment);
	// A rule that leaves the workflow to the defaults leaves it to their rollout as well.
	const inherits = rule !== null && rule.workflowId === undefined && rule.rollout === undefined;
	const rollout = rule === null || inherits ? defaults.rollout : rule.rollout;
	const start = rollout && startFor(rollout, rollout.spreadSeconds ?? plan.spreadSeconds, device.deviceId);
	// A ring that would begin after the end of the plan's trust does not begin.
	const isTrusted = plan.validUntil === undefined || (start?.atMs ?? 0) <= Date.parse(plan.validUntil);
	if (!rollout || !start || !isTrusted) return { rule: rule?.name ?? null, base, move: null };
	const to = inherits ? layered(layered(before, rollout.to), ownAssignment) : layered(base, rollout.to);
	return { rule: rule?.name ?? null, base, move: isSameAssignment(base, to) ? null : { to, ...start } };
}

/** A move that the device has made, and when. */
export type MadeMove = PlanRecord['moved'];

/** What the plan says to its device at this time of the device's clock. @param moved what a clock that went back does not undo. */
export function assignmentAt(part: DevicePlan, wallMs: number, moved: MadeMove = null): Assignment {
	return part.move && isDue(part.move, wallMs, moved) ? part.move.to : part.base;
}

export function isDue({ to, atMs }: PlannedChange, wallMs: number, moved: MadeMove): boolean {
	return atMs === null || atMs <= wallMs || (moved !== null && atMs <= moved.atMs && isSameAssignment(to, moved.to));
}

export function isSameAssignment(one: Assignment, other: Assignment): boolean {
	return one.workflowId === other.workflowId && one.heartbeatCadence === other.heartbeatCadence;
}

/** The names of all rules that fit; the first one counts. */
export function fittingRules({ rules }: CompiledPlan, device: PlannedDevice): string[] {
	return rules.filter(({ fits }) => fits(device)).map(({ rule }) => rule.name);
}

/** A place among all devices, 0 to 100. It never changes: a larger ring keeps its devices, and the same ones always go first. */
export function rolloutPercentile(deviceId: string): number {
	return (hash(deviceId) / 2 ** 32) * 100;
}

/** A device's share of every spread, 0 to 1: always the same, and independent of its place in the rings. */
export function shareOfSpread(deviceId: string): number {
	return hash(`spread ${deviceId}`) / 2 ** 32;
}

const NOTHING: Assignment = { workflowId: null, heartbeatCadence: null };

function layered(below: Assignment, { workflowId, settings }: PlanWord): Assignment {
	return {
		workflowId: workflowId === undefined ? below.workflowId : workflowId,
		heartbeatCadence: settings?.heartbeatCadence ?? below.heartbeatCadence,
	};
}

type PlannedChange = NonNullable<DevicePlan['move']>;

/** When a rollout reaches the device, and by which ring; `null` while no ring holds it. */
function startFor({ rings }: PlanRollout, spreadSeconds: number, deviceId: string): Omit<PlannedChange, 'to'> | null {
	const place = rolloutPercentile(deviceId);
	const offsetMs = Math.round(shareOfSpread(deviceId) * spreadSeconds * 1000);
	let earliest: { percent: number; atMs: number } | null = null;
	for (const { percent, startAt } of rings) {
		if (place >= percent) continue;
		if (startAt === undefined) return { percent, atMs: null };
		const atMs = Date.parse(startAt) + offsetMs;
		if (!earliest || atMs < earliest.atMs) earliest = { percent, atMs };
	}
	return earliest;
}

export const VALUES: Readonly<Record<MatchKey, (device: PlannedDevice) => readonly (string | null)[]>> = {
	deviceIds: ({ deviceId }) => [deviceId],
	serials: ({ serial }) => [serial],
	macAddresses: ({ macAddress }) => [macAddress],
	deviceTypes: ({ deviceType }) => [deviceType],
	labels: ({ labels }) => labels,
};

function compileMatch(match: PlanMatch): (device: PlannedDevice) => boolean {
	const tests = MATCH_KEYS.flatMap((key) => {
		const desired = match[key];
		if (!desired) return [];
		const includes = compileValues(desired, key === 'deviceIds' || key === 'serials');
		return [(device: PlannedDevice) => VALUES[key](device).some((value) => value !== null && includes(value))];
	});
	return (device) => tests.every((test) => test(device));
}

/** @param mayBePatterns whether a `*` at the end stands for anything. */
export function compileValues(desired: readonly string[], mayBePatterns: boolean): (value: string) => boolean {
	const exact = new Set<string>();
	const beginnings = new Map<number, Set<string>>();
	for (const value of desired) {
		if (!mayBePatterns || !value.endsWith('*')) exact.add(value);
		else {
			const beginning = value.slice(0, -1);
			const ofLength = beginnings.get(beginning.length) ?? new Set<string>();
			beginnings.set(beginning.length, ofLength.add(beginning));
		}
	}
	return (value) => {
		if (exact.has(value)) return true;
		for (const [length, set] of beginnings) if (set.has(value.slice(0, length))) return true;
		return false;
	};
}

const encoder = new TextEncoder();

/** 32-bit FNV-1a over UTF-8, then MurmurHash3's finalizer, without which ids that count up would lie close together. */
function hash(text: string): number {
	let value = 0x811c9dc5;
	for (const byte of encoder.encode(text)) value = Math.imul(value ^ byte, 0x01000193);
	value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
	value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
	return (value ^ (value >>> 16)) >>> 0;
}
