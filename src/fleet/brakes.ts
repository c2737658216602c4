/**
 * Effects of a plan that are probably a slip: to the devices of an inventory, beside the plan before it, and against the
 * workflows that exist. Pure; asked before a plan is signed, never on a device.
 */
import { nearestName } from '../settings/resolve.ts';
import type { Finding } from './lint.ts';
import type { FleetPlan, PlanMatch, PlanRollout, PlanWord } from './plan-format.ts';
import { type InventoryDevice, previewPlan } from './preview.ts';
import { comparePlans } from './record.ts';
import { assignmentAt, compilePlan, compileValues, fittingRules, planFor } from './targeting.ts';
import { MATCH_KEYS, type MatchKey } from './terms.ts';

export interface Brakes {
	readonly nowMs: number;
	/** The plan in force, and whether the new file has the same bytes. */
	readonly previous?: { readonly plan: FleetPlan; readonly isSame: boolean } | undefined;
	readonly inventory?: readonly InventoryDevice[] | undefined;
	/** All that the service has. */
	readonly workflows?: readonly string[] | undefined;
	/** Share of the inventory that may move, 0 to 1. */
	readonly maxMoves?: number | undefined;
	/** Devices that are meant to move, whatever their share. */
	readonly allowMoves?: number | undefined;
}

/** Values that are named at once. */
const NAMED = 5;

export function applyBrakes(plan: FleetPlan, brakes: Brakes): Finding[] {
	const { previous, inventory, workflows } = brakes;
	return [
		...(previous ? notNewer(plan, previous) : []),
		...(workflows ? unknownWorkflows(plan, workflows) : []),
		...pastRings(plan, brakes),
		...wholeAtOnce(plan, brakes),
		...(inventory ? [...unmatched(plan, inventory), ...tooManyMoves(plan, inventory, brakes)] : []),
	];
}

const error = (path: Finding['path'], what: string): Finding => ({ level: 'error', path, what });

function notNewer(plan: FleetPlan, { plan: before, isSame }: NonNullable<Brakes['previous']>): Finding[] {
	const order = comparePlans(plan, before);
	if (before.fleet !== undefined && plan.fleet !== before.fleet)
		return [error(['fleet'], `is not ${JSON.stringify(before.fleet)}, the fleet of the previous plan`)];
	if (order < 0)
		return [error(['revision'], `is lower than that of the previous plan (${before.revision}): devices refuse it`)];
	if (order > 0 || isSame) return [];
	return [error(['revision'], `was published with other content: give this plan ${before.revision + 1}`)];
}

type Words = PlanWord & { readonly rollout?: PlanRollout | undefined };

/** The defaults and each rule, by name, with their place. */
function partsOf({ defaults, rules }: FleetPlan): { name: string | null; words: Words; path: (string | number)[] }[] {
	const ofRules = rules.map((rule, index) => ({ name: rule.name, words: rule, path: ['rules', index] }));
	return [...(defaults ? [{ name: null, words: defaults, path: ['defaults'] }] : []), ...ofRules];
}

function unknownWorkflows(plan: FleetPlan, workflows: readonly string[]): Finding[] {
	const check = (workflowId: string | null | undefined, path: (string | number)[]): Finding[] => {
		if (workflowId == null || workflows.includes(workflowId)) return [];
		const near = nearestName(workflowId, workflows);
		const hint = near === null ? '' : `; did you mean ${near}?`;
		return [error(path, `is not a workflow that --workflows names (${workflowId})${hint}`)];
	};
	return partsOf(plan).flatMap(({ words, path }) => [
		...check(words.workflowId, [...path, 'workflowId']),
		...check(words.rollout?.to.workflowId, [...path, 'rollout', 'to', 'workflowId']),
	]);
}

const startOf = (startAt: string | undefined) =>
	startAt === undefined ? Number.NEGATIVE_INFINITY : Date.parse(startAt);

/** A ring that the previous plan had as well has begun in its time. */
function pastRings(plan: FleetPlan, { previous, nowMs }: Brakes): Finding[] {
	const before = new Map(
		previous && partsOf(previous.plan).map(({ name, words }) => [name, words.rollout?.rings ?? []]),
	);
	return partsOf(plan).flatMap(({ name, words, path }) =>
		(words.rollout?.rings ?? []).flatMap(({ startAt, percent }, index): Finding[] => {
			if (startAt === undefined || Date.parse(startAt) >= nowMs) return [];
			const known = before.get(name)?.some((ring) => ring.percent === percent && ring.startAt === startAt);
			if (known) return [];
			const place = [...path, 'rollout', 'rings', index, 'startAt'];
			const what = 'is in the past: the ring begins as soon as devices take the plan';
			return [previous ? error(place, what) : { level: 'note', path: place, what }];
		}),
	);
}

/** A rollout whose first step is all of its devices is none. */
function wholeAtOnce(plan: FleetPlan, { previous, nowMs }: Brakes): Finding[] {
	const before = new Map(previous && partsOf(previous.plan).map(({ name, words }) => [name, words.rollout]));
	return partsOf(plan).flatMap(({ name, words: { rollout }, path }): Finding[] => {
		if (!rollout) return [];
		const whole = rollout.rings.filter(({ percent }) => percent === 100).map(({ startAt }) => startOf(startAt));
		const first = Math.min(...whole);
		const isStaged = rollout.rings.some(({ percent, startAt }) => percent < 100 && startOf(startAt) < first);
		if (whole.length === 0 || isStaged) return [];
		const old = before.get(name);
		const isContinued =
			old?.to.workflowId === rollout.to.workflowId && old?.rings.some(({ startAt }) => startOf(startAt) <= nowMs);
		if (isContinued) return [];
		// Without the previous plan this may be the last step of many.
		const what = 'moves 100 % of its devices at once: begin with a smaller ring';
		const place = [...path, 'rollout', 'rings'];
		return [previous ? error(place, what) : { level: 'note', path: place, what }];
	});
}

const VALUES: Readonly<Record<MatchKey, (device: InventoryDevice) => readonly (string | null)[]>> = {
	deviceIds: ({ deviceId }) => [deviceId],
	serials: ({ serial }) => [serial],
	macAddresses: ({ macAddress }) => [macAddress],
	deviceTypes: ({ deviceType }) => [deviceType],
	labels: ({ labels }) => labels,
};

function unmatched(plan: FleetPlan, inventory: readonly InventoryDevice[]): Finding[] {
	const known = Object.fromEntries(
		MATCH_KEYS.map((key) => [
			key,
			new Set(inventory.flatMap((device) => VALUES[key](device).filter((one) => one !== null))),
		]),
	) as Record<MatchKey, Set<string>>;
	const compiled = compilePlan(plan);
	const used = new Set(inventory.flatMap((device) => fittingRules(compiled, device)));
	return plan.rules.flatMap(({ match, name }, index) => {
		const path = ['rules', index, 'match'];
		const findings = MATCH_KEYS.flatMap((key) => unmatchedValues(match, key, known[key], path));
		if (findings.length > 0 || used.has(name)) return findings;
		return [error(path, `(${name}) matches no device of the inventory`)];
	});
}

function unmatchedValues(
	match: PlanMatch,
	key: MatchKey,
	known: ReadonlySet<string>,
	path: (string | number)[],
): Finding[] {
	const mayBePatterns = key === 'deviceIds' || key === 'serials';
	const missing = (match[key] ?? []).filter((value) => {
		if (!mayBePatterns || !value.endsWith('*')) return !known.has(value);
		const fits = compileValues([value], true);
		for (const one of known) if (fits(one)) return false;
		return true;
	});
	const [first] = missing;
	if (first === undefined) return [];
	const names = missing.slice(0, NAMED).join(', ');
	const more = missing.length > NAMED ? ` and ${missing.length - NAMED} more` : '';
	const near = nearestName(first, [...known]);
	const hint = near === null ? '' : `; did you mean ${near}?`;
	return [error([...path, key], `matches no device of the inventory: ${names}${more}${hint}`)];
}

function tooManyMoves(plan: FleetPlan, inventory: readonly InventoryDevice[], brakes: Brakes): Finding[] {
	const { maxMoves, allowMoves = 0, nowMs } = brakes;
	const { moves, atOnce } = countMoves(plan, inventory, brakes.previous?.plan ?? null, nowMs);
	if (moves <= allowMoves) return [];
	const count = inventory.length;
	const place = plan.rules.length > 0 ? ['rules'] : ['defaults'];
	const permit = `if that is meant, pass --allow-moves ${moves}`;
	if (maxMoves !== undefined && moves > maxMoves * count) {
		const share = Number(((moves / count) * 100).toFixed(1));
		const limit = Number((maxMoves * 100).toFixed(2));
		return [error(place, `moves ${moves} of ${count} devices (${share} %), and ${limit} % may move; ${permit}`)];
	}
	return atOnce === count && count > 1 ? [error(place, `moves all ${count} devices at once; ${permit}`)] : [];
}

/**
 * Devices that a plan moves now or later, and those that it moves as soon as they take it.
 * @param before the plan in force: then a move is what that one does not say as well.
 */
export function countMoves(
	plan: FleetPlan,
	inventory: readonly InventoryDevice[],
	before: FleetPlan | null,
	nowMs: number,
): { readonly moves: number; readonly atOnce: number } {
	let atOnce = 0;
	const { moves } = previewPlan(compilePlan(plan), asAssigned(inventory, before, nowMs), nowMs, ({ at, from }) => {
		// An inventory without workflows does not say that anything moves.
		if (at === null && from !== null) atOnce += 1;
	});
	return { moves, atOnce };
}

/** The devices with the workflow that a plan assigns them now, where it assigns one. */
export function asAssigned(
	inventory: readonly InventoryDevice[],
	plan: FleetPlan | null,
	nowMs: number,
): readonly InventoryDevice[] {
	if (!plan) return inventory;
	const compiled = compilePlan(plan);
	return inventory.map((device) => ({
		...device,
		workflowId: assignmentAt(planFor(compiled, device), nowMs).workflowId ?? device.workflowId,
	}));
}
