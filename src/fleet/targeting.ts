/** Which word of a fleet plan is whose, and from when. Pure: the same plan, device and time give the same answer everywhere. */
import { compareVersions } from '../base/debian-version.ts';
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

/** One word of the plan for a device, said now or by a ring to come. */
export interface PlannedWord {
	readonly what: 'workflow' | 'heartbeatCadence' | 'version';
	/** Its name, or the seconds between heartbeats; `null`: the plan leaves it alone. */
	readonly to: string | null;
	/** The ring that brings it, in percent; `null` without one. */
	readonly ring: number | null;
	/** From then on, milliseconds since 1970; `null`: as soon as the device has taken the plan. */
	readonly atMs: number | null;
	/** The time in which all devices of that ring change, in milliseconds since 1970; `null` for a ring without a time. */
	readonly window: readonly [fromMs: number, toMs: number] | null;
	/** Whether it is said now; else it is still to come. */
	readonly isNow: boolean;
}

/** All that a plan says to one device at one time. */
export interface Planned extends Assignment {
	/** `null` for the plan's defaults. */
	readonly rule: string | null;
	/** The version of this program that is ordered now; `null` for none. */
	readonly version: string | null;
	/** The ring that holds the device, begun or not, in percent; `null` outside of a rollout. */
	readonly ring: number | null;
	/** First what it says now, in the order of {@link PlannedWord}, the version last, then what each ring will say. */
	readonly words: readonly PlannedWord[];
	/** Every ring that holds the device and says something to it, begun or not: whose rollout it is of (`null`: the defaults'), and its place there. */
	readonly rings: readonly { readonly of: string | null; readonly index: number }[];
	/** What the device keeps of the plan. */
	readonly part: DevicePlan;
}

/** The only place that knows which device a plan tells what, and when: agent, root, preview, brakes and status all ask here. @param wallMs milliseconds since 1970. */
export function planFor({ plan, rules }: CompiledPlan, device: PlannedDevice, wallMs: number): Planned {
	const rule = rules.find(({ fits }) => fits(device))?.rule ?? null;
	const defaults = plan.defaults ?? {};
	const ownAssignment: PlanWord = rule ?? {};
	const before = layered(NOTHING, defaults);
	const base = layered(before, ownAssignment);
	// A rule that leaves the workflow to the defaults leaves it to their rollout as well.
	const inherits = rule !== null && rule.workflowId === undefined && rule.rollout === undefined;
	const rollout = rule === null || inherits ? defaults.rollout : rule.rollout;
	const held = rollout ? ringsFor(plan, rollout, device.deviceId) : [];
	const first = held.find(({ atMs }) => atMs === null) ?? held.toSorted((a, b) => (a.atMs ?? 0) - (b.atMs ?? 0))[0];
	const to = rollout && (inherits ? layered(layered(before, rollout.to), ownAssignment) : layered(base, rollout.to));
	const move = first && to && !isSameAssignment(base, to) ? { to, percent: first.ring, atMs: first.atMs } : null;
	const part: DevicePlan = { rule: rule?.name ?? null, base, move };
	const now = assignmentAt(part, wallMs);
	const isMoved = move !== null && now === move.to;
	const ordering = rule?.rollout ?? defaults.rollout;
	const orders = ordering === rollout || !ordering ? held : ringsFor(plan, ordering, device.deviceId);
	const changed = ASSIGNED.filter((what) => move !== null && wordIn(base, what) !== wordIn(move.to, what));
	const words: PlannedWord[] = [
		...ASSIGNED.map((what): PlannedWord => {
			const from = isMoved && first && changed.includes(what) ? origin(first) : NO_RING;
			return { what, to: wordIn(now, what), ...from, isNow: true };
		}),
		...(move && !isMoved && first
			? changed.map((what): PlannedWord => ({ what, to: wordIn(move.to, what), ...origin(first), isNow: false }))
			: []),
		...versionWords(orders, wallMs),
	];
	const version = words.find(({ what, isNow }) => what === 'version' && isNow)?.to ?? null;
	const ring = words.find((word) => word.ring !== null)?.ring ?? null;
	const of = rule?.rollout ? rule.name : null;
	// A rollout that only orders versions holds the device by its orders alone.
	const rings = orders.filter((one) => one.version !== null || (move !== null && orders === held));
	return { rule: part.rule, ...now, version, ring, words, rings: rings.map(({ index }) => ({ of, index })), part };
}

const ASSIGNED = ['workflow', 'heartbeatCadence'] as const;
const wordIn = ({ workflowId, heartbeatCadence }: Assignment, what: (typeof ASSIGNED)[number]): string | null =>
	what === 'workflow' ? workflowId : (heartbeatCadence?.toString() ?? null);

interface HeldRing extends Pick<PlannedWord, 'atMs' | 'window'> {
	readonly ring: number;
	readonly index: number;
	readonly version: string | null;
}

const NO_RING = { ring: null, atMs: null, window: null };
const origin = ({ ring, atMs, window }: HeldRing) => ({ ring, atMs, window });

/** The rings of a rollout that hold the device; one that would reach it after the end of the plan's trust does not. */
function ringsFor(plan: FleetPlan, { rings, spreadSeconds }: PlanRollout, deviceId: string): HeldRing[] {
	const place = rolloutPercentile(deviceId);
	const spreadMs = (spreadSeconds ?? plan.spreadSeconds) * 1000;
	const offsetMs = Math.round(shareOfSpread(deviceId) * spreadMs);
	const endMs = plan.validUntil === undefined ? Number.POSITIVE_INFINITY : Date.parse(plan.validUntil);
	return rings.flatMap(({ percent, startAt, agent }, index): HeldRing[] => {
		const fromMs = startAt === undefined ? null : Date.parse(startAt);
		if (place >= percent || (fromMs ?? 0) + offsetMs > endMs) return [];
		const atMs = fromMs === null ? null : fromMs + offsetMs;
		const window = fromMs === null ? null : ([fromMs, fromMs + spreadMs] as const);
		return [{ ring: percent, index, atMs, window, version: agent?.version ?? null }];
	});
}

/** The order that counts now, if there is one, then the one at each moment at which another ring begins. */
function versionWords(held: readonly HeldRing[], wallMs: number): PlannedWord[] {
	const orders = held.filter(({ version }) => version !== null);
	const toCome = orders.flatMap(({ atMs }) => (atMs !== null && atMs > wallMs ? [atMs] : []));
	return [wallMs, ...toCome.toSorted((a, b) => a - b)].flatMap((momentMs, index): PlannedWord[] => {
		const begun = orders.filter(({ atMs }) => atMs === null || atMs <= momentMs);
		const newest = begun[indexOfNewest(begun.map(({ atMs }) => ({ startMs: atMs })))];
		return newest ? [{ what: 'version', to: newest.version, ...origin(newest), isNow: index === 0 }] : [];
	});
}

export function hasBegun({ startAt }: PlanRollout['rings'][number], wallMs: number): boolean {
	return startAt === undefined || Date.parse(startAt) <= wallMs;
}

/** Of rings that have begun, the one that began last; -1 for none. A ring without a time began with the plan that added it: no earlier than those listed before it. */
export function indexOfNewest(rings: readonly { readonly startMs: number | null }[]): number {
	let newest = -1;
	let newestMs = Number.NEGATIVE_INFINITY;
	for (const [index, { startMs }] of rings.entries()) {
		if (startMs !== null && startMs < newestMs) continue;
		newest = index;
		newestMs = startMs ?? newestMs;
	}
	return newest;
}

/** The later ring that takes all devices of a ring from the beginning, for an older version: the ring orders nothing. -1 for none. */
export function overruledBy(rings: PlanRollout['rings'], index: number): number {
	const own = rings[index];
	if (!own?.agent) return -1;
	const { percent, startAt, agent } = own;
	return rings.findIndex(
		(other, at) =>
			at > index &&
			other.percent >= percent &&
			other.agent !== undefined &&
			compareVersions(other.agent.version, agent.version) < 0 &&
			(other.startAt === undefined || other.startAt === startAt),
	);
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
