/** The effect of a plan on a list of devices, and the differences between two plans. Pure. */
import { compareVersions } from '../base/debian-version.ts';
import { type FleetPlan, PLAN_FORMATS, type PlanMatch, type PlanRollout, type PlanWord } from './plan-format.ts';
import { type CompiledPlan, type Planned, type PlannedDevice, type PlannedWord, planFor } from './targeting.ts';
import { MATCH_KEYS } from './terms.ts';

export interface InventoryDevice extends PlannedDevice {
	/** What it runs now; `null`: not known. */
	readonly workflowId: string | null;
	/** The version that it has been ordered to have; left out or `null`: not known. */
	readonly version?: string | null | undefined;
	/** Seconds between its heartbeats by a plan; left out: not known, `null`: the plan says nothing. */
	readonly heartbeatCadence?: number | null | undefined;
}

export interface PlannedMove {
	readonly deviceId: string;
	/** What `from` and `to` name. */
	readonly what: PlannedWord['what'];
	/** `null`: not known; of heartbeats, as the device's own settings say. */
	readonly from: string | null;
	readonly to: string | null;
	/** `null` for the plan's defaults. */
	readonly rule: string | null;
	/** The ring it moves with; `null` for a change without a rollout. */
	readonly percent: number | null;
	/** ISO 8601; `null`: when the device takes the plan, within its spread. */
	readonly at: string | null;
}

/** Moves that are alike. */
export interface MoveGroup extends Omit<PlannedMove, 'deviceId' | 'at'> {
	devices: number;
	/** ISO 8601; of the first and the last of them. */
	first: string | null;
	last: string | null;
}

export interface PlanPreview {
	readonly devices: number;
	/** Devices that move, now or later. */
	readonly moves: number;
	/** Devices that already run what the plan says, as far as is known. */
	readonly stays: number;
	/** Devices whose workflow the plan leaves alone. */
	readonly leftAlone: number;
	/** Devices that refuse the plan's format, and do not move; left out where there are none. */
	readonly refusing?: readonly string[] | undefined;
	/** In the order in which they were met. */
	readonly groups: readonly MoveGroup[];
}

/** Agents of 0.1.0 refuse every field that they do not know. */
export const refusesFormat = ({ format }: FleetPlan, { version }: InventoryDevice) =>
	format !== PLAN_FORMATS[0] && version != null && compareVersions(version, '0.2') < 0;

/** @param onMove called for each change, in the order of the devices. */
export function previewPlan(
	compiled: CompiledPlan,
	devices: Iterable<InventoryDevice>,
	nowMs: number,
	onMove: (move: PlannedMove) => void = () => {},
): PlanPreview {
	const groups = new Map<string, MoveGroup>();
	const counts = { devices: 0, moves: 0, stays: 0, leftAlone: 0 };
	const refusing: string[] = [];
	for (const device of devices) {
		counts.devices += 1;
		if (refusesFormat(compiled.plan, device)) {
			refusing.push(device.deviceId);
			counts.stays += 1;
			continue;
		}
		const planned = planFor(compiled, device, nowMs);
		const moves = movesOf(planned, device);
		if (moves.length > 0) counts.moves += 1;
		else if (planned.words.every(({ what, to }) => what !== 'workflow' || to === null)) counts.leftAlone += 1;
		else counts.stays += 1;
		for (const move of moves) {
			onMove(move);
			addTo(groups, move);
		}
	}
	return { ...counts, ...(refusing.length > 0 && { refusing }), groups: [...groups.values()] };
}

/** The changes from what the device has, each once. */
export function movesOf({ rule, words }: Planned, device: InventoryDevice): PlannedMove[] {
	const heartbeatCadence = device.heartbeatCadence?.toString() ?? null;
	const has = { workflow: device.workflowId, heartbeatCadence, version: device.version ?? null };
	return words.flatMap(({ what, to, ring, atMs, isNow }): PlannedMove[] => {
		const from = has[what];
		// No device installs an older version than it has.
		const isOlder = what === 'version' && to !== null && from !== null && compareVersions(to, from) < 0;
		// A plan that leaves heartbeats alone gives them back to the device's own settings.
		if (to === from || isOlder || (to === null && what !== 'heartbeatCadence')) return [];
		has[what] = to;
		const at = isNow || atMs === null ? null : new Date(atMs).toISOString();
		return [{ deviceId: device.deviceId, what, from, to, rule, percent: ring, at }];
	});
}

function addTo(groups: Map<string, MoveGroup>, { what, from, to, rule, percent, at }: PlannedMove): void {
	const key = JSON.stringify([what, from, to, rule, percent, at === null]);
	const group = groups.get(key) ?? { what, from, to, rule, percent, devices: 0, first: at, last: at };
	groups.set(key, group);
	group.devices += 1;
	if (at !== null && (group.first === null || at < group.first)) group.first = at;
	if (at !== null && (group.last === null || at > group.last)) group.last = at;
}

/** One difference between two plans; `null` where one of them has nothing. */
export interface PlanDifference {
	/** `revision`, `rule lobby, workflowId`. */
	readonly what: string;
	readonly before: string | null;
	readonly after: string | null;
}

export function diffPlans(before: FleetPlan, after: FleetPlan): PlanDifference[] {
	const differences: PlanDifference[] = [];
	const note = (what: string, old: string | null, now: string | null) => {
		if (old !== now) differences.push({ what, before: old, after: now });
	};
	note('format', before.format, after.format);
	note('fleet', before.fleet ?? null, after.fleet ?? null);
	note('epoch', String(before.epoch ?? 0), String(after.epoch ?? 0));
	note('revision', String(before.revision), String(after.revision));
	note('validUntil', before.validUntil ?? null, after.validUntil ?? null);
	note('comment', before.comment ?? null, after.comment ?? null);
	note('spreadSeconds', String(before.spreadSeconds), String(after.spreadSeconds));
	compareWords('defaults', before.defaults ?? {}, after.defaults ?? {}, note);
	const old = new Map(before.rules.map((rule) => [rule.name, rule]));
	const now = new Map(after.rules.map((rule) => [rule.name, rule]));
	for (const rule of before.rules) if (!now.has(rule.name)) note(`rule ${rule.name}`, describeAssignment(rule), null);
	for (const rule of after.rules) {
		const known = old.get(rule.name);
		if (!known) note(`rule ${rule.name}`, null, describeAssignment(rule));
		else {
			compareMatches(`rule ${rule.name}`, known.match, rule.match, note);
			compareWords(`rule ${rule.name}`, known, rule, note);
		}
	}
	const order = ({ rules }: FleetPlan, known: ReadonlyMap<string, unknown>) =>
		rules.flatMap(({ name }) => (known.has(name) ? [name] : [])).join(', ');
	note('order of the rules', order(before, now), order(after, old));
	return differences;
}

type Note = (what: string, before: string | null, after: string | null) => void;
export type Words = PlanWord & { readonly rollout?: PlanRollout | undefined };

function compareWords(where: string, before: Words, after: Words, note: Note): void {
	note(`${where}, workflowId`, describeWorkflow(before.workflowId), describeWorkflow(after.workflowId));
	const cadence = ({ settings }: Words) => settings?.heartbeatCadence?.toString() ?? null;
	note(`${where}, heartbeatCadence`, cadence(before), cadence(after));
	note(`${where}, rollout`, describeRollout(before.rollout), describeRollout(after.rollout));
}

/** Lists may be long: how many came and went, and some of them. */
function compareMatches(where: string, before: PlanMatch, after: PlanMatch, note: Note): void {
	for (const key of MATCH_KEYS) {
		const old = new Set(before[key]);
		const now = new Set(after[key]);
		const gone = [...old].filter((value) => !now.has(value));
		const come = [...now].filter((value) => !old.has(value));
		note(`${where}, ${key}`, some('−', gone), some('+', come));
	}
}

function some(sign: string, values: readonly string[]): string | null {
	if (values.length === 0) return null;
	const shown = values.slice(0, 3).map((value) => `${sign}${value}`);
	return values.length > 3 ? `${shown.join(' ')} and ${values.length - 3} more` : shown.join(' ');
}

function describeWorkflow(workflowId: string | null | undefined): string | null {
	return workflowId === null ? 'left alone' : (workflowId ?? null);
}

function describeAssignment({ workflowId, settings, rollout }: Words): string {
	const parts = [
		describeWorkflow(workflowId),
		settings?.heartbeatCadence === undefined ? null : `heartbeat ${settings.heartbeatCadence} s`,
		describeRollout(rollout),
	];
	return parts.filter((part) => part !== null).join(', ') || 'nothing';
}

function describeRollout(rollout: PlanRollout | undefined): string | null {
	if (!rollout) return null;
	const { to, rings } = rollout;
	const steps = rings.map(({ percent, startAt, agent }) =>
		[`${percent} %`, ...(agent ? [`with version ${agent.version}`] : []), ...(startAt ? [`from ${startAt}`] : [])].join(
			' ',
		),
	);
	const spread = rollout.spreadSeconds === undefined ? '' : ` over ${rollout.spreadSeconds} s`;
	const words = describeAssignment(to);
	// A rollout of a version alone has `"to": {}`.
	const isVersionOnly = words === 'nothing' && rings.some(({ agent }) => agent);
	return `${isVersionOnly ? 'only the version' : `to ${words}`}: ${steps.join(', ')}${spread}`;
}
