/** Effects of a plan that are probably a slip, by an inventory, the plan before it and the workflows there are. Pure; never asked on a device. */
import { compareVersions } from '../base/debian-version.ts';
import { nearestName } from '../settings/resolve.ts';
import { type Finding, startOf } from './lint.ts';
import { type FleetPlan, PLAN_FORMATS, type PlanMatch } from './plan-format.ts';
import { type InventoryDevice, previewPlan, refusesFormat, type Words } from './preview.ts';
import { comparePlans, nextNumber } from './record.ts';
import { compilePlan, compileValues, fittingRules, hasBegun, planFor, rolloutPercentile, VALUES } from './targeting.ts';
import { MATCH_KEYS, type MatchKey } from './terms.ts';

export interface Brakes {
	readonly nowMs: number;
	/** The plan in force, whether the new file has the same bytes, and whether it takes the place of that one. */
	readonly previous?: { readonly plan: FleetPlan; readonly isSame: boolean; readonly isReplaced?: boolean } | undefined;
	readonly inventory?: readonly InventoryDevice[] | undefined;
	/** All that the service has. */
	readonly workflows?: readonly string[] | undefined;
	/** Share of the inventory that may move, 0 to 1. */
	readonly maxMoves?: number | undefined;
	/** Devices that are meant to move, whatever their share. */
	readonly allowMoves?: number | undefined;
	/** Names that devices were seen with, by other sources than these, and names that are meant although none was. */
	readonly known?: { readonly workflows: readonly string[]; readonly versions: readonly string[] } | undefined;
	readonly allowEmptyRing?: boolean | undefined;
	readonly allowRepeat?: boolean | undefined;
}

const NAMED = 5;
const ifMeant = (flag: string) => `if that is meant, pass ${flag}`;

export function applyBrakes(plan: FleetPlan, brakes: Brakes): Finding[] {
	const { previous, inventory, workflows, allowMoves } = brakes;
	const counted = inventory && countMoves(plan, inventory, previous?.plan ?? null, brakes.nowMs);
	// A number of devices that are meant to move is a person's word on how fast they do.
	const isMeant = counted !== undefined && allowMoves !== undefined && counted.moves <= allowMoves;
	return [
		...(previous ? notNewer(plan, previous, brakes) : []),
		...(workflows ? unknownWorkflows(plan, workflows) : []),
		...(previous || inventory ? neverHad(plan, brakes) : []),
		...(isMeant ? [] : [...pastRings(plan, brakes), ...wholeAtOnce(plan, brakes)]),
		...(previous ? olderVersions(plan, previous.plan, brakes.nowMs) : []),
		...(inventory
			? [
					...unmatched(plan, inventory),
					...refusedByOld(plan, inventory, previous?.isReplaced ? previous.plan : undefined),
				]
			: []),
		...(inventory && !brakes.allowEmptyRing ? emptyRings(plan, brakes) : []),
		...(counted && !isMeant ? tooManyMoves(plan, inventory?.length ?? 0, counted, brakes) : []),
	];
}

const error = (path: Finding['path'], what: string): Finding => ({ level: 'error', path, what });

/** Whether no device begins to follow it any more. */
export const isOver = ({ validUntil }: FleetPlan, nowMs: number) =>
	validUntil !== undefined && Date.parse(validUntil) < nowMs;

export function refusedByOld(plan: FleetPlan, inventory: readonly InventoryDevice[], replaced?: FleetPlan): Finding[] {
	const old = inventory.filter((device) => refusesFormat(plan, device)).map(({ deviceId }) => deviceId);
	if (old.length === 0) return [];
	const names = `${old.slice(0, NAMED).join(', ')}${old.length > NAMED ? ', …' : ''}`;
	const what = `is refused by devices of the inventory with a version before 0.2 (${old.length}: ${names}): publish this plan at an address of its own, and leave one of format 1 at theirs`;
	return [{ level: replaced?.format === PLAN_FORMATS[0] ? 'error' : 'note', path: ['format'], what }];
}

function notNewer(
	plan: FleetPlan,
	{ plan: before, isSame }: NonNullable<Brakes['previous']>,
	{ nowMs, allowRepeat }: Brakes,
): Finding[] {
	const order = comparePlans(plan, before);
	if (before.fleet !== undefined && plan.fleet !== before.fleet)
		return [error(['fleet'], `is not ${JSON.stringify(before.fleet)}, the fleet of the previous plan`)];
	if (order < 0)
		return [error(['revision'], `is lower than that of the previous plan (${before.revision}): devices refuse it`)];
	if (!isSame && isOver(plan, nowMs))
		return [
			error(['validUntil'], 'is over: devices stay with the previous plan, and the next one is compared with this'),
		];
	if (order > 0 || (isSame && allowRepeat)) return [];
	if (isSame) return [error(['revision'], `is published already, with the same content; ${ifMeant('--allow-repeat')}`)];
	const merged = 'see that this plan has it, too (idv fleet diff)';
	return [error(['revision'], `was published with other content: ${merged}, then give it ${nextNumber(before)}`)];
}

/** The defaults and each rule, by name, with their place. */
function partsOf({ defaults, rules }: FleetPlan): { name: string | null; words: Words; path: (string | number)[] }[] {
	const ofRules = rules.map((rule, index) => ({ name: rule.name, words: rule, path: ['rules', index] }));
	return [...(defaults ? [{ name: null, words: defaults, path: ['defaults'] }] : []), ...ofRules];
}

type Part = ReturnType<typeof partsOf>[number];

const workflowsOf = ({ words: { workflowId, rollout }, path }: Part) =>
	[
		{ workflowId, path: [...path, 'workflowId'] },
		{ workflowId: rollout?.to.workflowId, path: [...path, 'rollout', 'to', 'workflowId'] },
	].flatMap((named) => (named.workflowId == null ? [] : [{ ...named, workflowId: named.workflowId }]));

const ringsOf = ({ words: { rollout }, path }: Part) =>
	(rollout?.rings ?? []).map((ring, index) => ({ ...ring, index, path: [...path, 'rollout', 'rings', index] }));

function unknownWorkflows(plan: FleetPlan, workflows: readonly string[]): Finding[] {
	const unknown = partsOf(plan)
		.flatMap(workflowsOf)
		.filter(({ workflowId }) => !workflows.includes(workflowId));
	return unknown.map(({ workflowId, path }) => {
		const near = nearestName(workflowId, workflows);
		const hint = near === null ? '' : `; did you mean ${near}?`;
		return error(path, `is not a workflow that --workflows names (${workflowId})${hint}`);
	});
}

/** Names that a mistyped one would be: of a workflow or a version that no device has had by the inventory, the plan in force and the record. */
function neverHad(plan: FleetPlan, { previous, inventory = [], workflows, known }: Brakes): Finding[] {
	const before = previous ? partsOf(previous.plan) : [];
	const had = new Set([
		...before.flatMap(workflowsOf).map(({ workflowId }) => workflowId),
		...inventory.flatMap(({ workflowId }) => workflowId ?? []),
		...(known?.workflows ?? []),
	]);
	const hadVersions = new Set([
		...before.flatMap(ringsOf).map(({ agent }) => agent?.version),
		...inventory.map(({ version }) => version),
		...(known?.versions ?? []),
	]);
	return partsOf(plan).flatMap((part) => [
		...workflowsOf(part).flatMap(({ workflowId, path }) => {
			// One that is not among those of the service is named already.
			if (had.has(workflowId) || workflows?.includes(workflowId) === false) return [];
			const near = nearestName(workflowId, [...had]);
			const hint = near === null ? '' : `, and ${near} is one that devices have`;
			const permit = ifMeant(`--allow-workflow ${workflowId}`);
			return [error(path, `(${workflowId}) is a workflow that no device has had yet${hint}; ${permit}`)];
		}),
		...ringsOf(part).flatMap(({ agent, path }) => {
			if (!agent || hadVersions.has(agent.version)) return [];
			const what = `(${agent.version}) is a version that no device has had yet; ${ifMeant(`--allow-version ${agent.version}`)}`;
			return [error([...path, 'agent', 'version'], what)];
		}),
	]);
}

const WHY_NONE = 'other rules take them all, it says nothing new to them, or it begins after validUntil';

function withWideRing(plan: FleetPlan, name: string | null, wide: number): FleetPlan {
	const widened = <Part extends Words>({ rollout, ...others }: Part) => ({
		...others,
		rollout: rollout && {
			...rollout,
			rings: rollout.rings.map((ring, index) => (index === wide ? { ...ring, percent: 100 } : ring)),
		},
	});
	if (name === null) return { ...plan, defaults: plan.defaults && widened(plan.defaults) };
	return { ...plan, rules: plan.rules.map((rule) => (rule.name === name ? { ...rule, ...widened(rule) } : rule)) };
}

/** Rings that would prove nothing: they hold no device of the inventory, or none beside those of a smaller one. */
function emptyRings(plan: FleetPlan, { inventory = [], previous, nowMs }: Brakes): Finding[] {
	const compiled = compilePlan(plan);
	const counts = new Map<string, number>();
	const keyOf = (of: string | null, index: number) => JSON.stringify([of, index]);
	for (const device of inventory)
		for (const { of, index } of planFor(compiled, device, nowMs).rings)
			counts.set(keyOf(of, index), (counts.get(keyOf(of, index)) ?? 0) + 1);
	const known = new Set((previous ? partsOf(previous.plan) : []).flatMap(ringKeys));
	return partsOf(plan).flatMap((part) => {
		const { name } = part;
		const rings = ringsOf(part);
		const count = (index: number) => counts.get(keyOf(name, index)) ?? 0;
		return rings.flatMap(({ percent, agent, index, path }): Finding[] => {
			if (known.has(ringKeys(part)[index] ?? '')) return [];
			const found = (what: string) => [error([...path, 'percent'], `${what}; ${ifMeant('--allow-empty-ring')}`)];
			if (count(index) === 0) {
				const wide = compilePlan(withWideRing(plan, name, index));
				const held = inventory.filter((device) =>
					planFor(wide, device, nowMs).rings.some((one) => one.of === name && one.index === index),
				);
				const least = Math.min(...held.map(({ deviceId }) => rolloutPercentile(deviceId)));
				const share = Math.floor(least * 100 + 1) / 100;
				if (held.length > 0)
					return found(`reaches none of ${held.length} devices of the inventory: ${share} % would reach one`);
				// A rule that fits none at all is named as that.
				const isFit = name === null || inventory.some((device) => fittingRules(compiled, device).includes(name));
				return isFit ? found(`reaches no device of the inventory: ${WHY_NONE}`) : [];
			}
			const isSmaller = (one: (typeof rings)[number]) => one.percent < percent && one.agent?.version === agent?.version;
			const adds = rings.every((one, at) => !isSmaller(one) || count(at) < count(index));
			return adds || percent === 100 ? [] : found('adds no device of the inventory to a smaller ring');
		});
	});
}

const ringKeys = (part: Part) =>
	ringsOf(part).map(({ percent, agent }) => JSON.stringify([part.name, percent, agent?.version]));

/** A slip where a plan is compared with something; else perhaps the plan in force, looked at once more. */
const levelOf = ({ previous, inventory }: Brakes): Finding['level'] => (previous || inventory ? 'error' : 'note');

/** A ring that the previous plan had as well, to the same, has begun in its time. */
function pastRings(plan: FleetPlan, brakes: Brakes): Finding[] {
	const keysOf = (part: Part) =>
		ringsOf(part).map(({ percent, startAt, agent }) => {
			const to = Object.values(SAID).map((said) => said(part.words.rollout?.to ?? {}));
			return JSON.stringify([part.name, percent, startAt, agent?.version, to]);
		});
	const before = new Set((brakes.previous ? partsOf(brakes.previous.plan) : []).flatMap(keysOf));
	const known = brakes.previous ? '' : ', or name the plan in force with --previous if the ring has begun';
	return partsOf(plan).flatMap((part) =>
		ringsOf(part).flatMap(({ startAt, index, path }): Finding[] => {
			if (startAt === undefined || Date.parse(startAt) >= brakes.nowMs) return [];
			if (before.has(keysOf(part)[index] ?? '')) return [];
			const what = `is in the past: the ring begins as soon as devices take the plan; leave it out if that is meant${known}`;
			return [{ level: levelOf(brakes), path: [...path, 'startAt'], what }];
		}),
	);
}

/** A version that devices would refuse, as the rings of the previous plan have brought them a newer one. */
function olderVersions(plan: FleetPlan, previous: FleetPlan, nowMs: number): Finding[] {
	const before = new Map(partsOf(previous).map(({ name, words }) => [name, words.rollout?.rings ?? []]));
	return partsOf(plan).flatMap((part) => {
		const begun = before.get(part.name)?.filter((ring) => hasBegun(ring, nowMs)) ?? [];
		const had = begun.flatMap(({ agent }) => (agent ? [agent.version] : []));
		return ringsOf(part).flatMap(({ agent, path }): Finding[] => {
			const newer = had.find((version) => agent && compareVersions(agent.version, version) < 0);
			if (!agent || newer === undefined || had.includes(agent.version)) return [];
			const what = `is older than ${newer}, which the previous plan ordered: a device that has had ${newer} does not install it`;
			return [{ level: 'note', path: [...path, 'agent', 'version'], what }];
		});
	});
}

const WHOLE =
	'moves 100 % of its devices at once: begin with a smaller ring, or say how many may move with --inventory and --allow-moves';

/** The words of a part, by their place. */
const SAID: Readonly<Record<string, (words: Words) => string | number | null | undefined>> = {
	workflowId: ({ workflowId }) => workflowId,
	settings: ({ settings }) => settings?.heartbeatCadence,
};

/** A change whose first step is all of its devices: a rollout that begins with 100 %, or another word without a rollout. */
function wholeAtOnce(plan: FleetPlan, brakes: Brakes): Finding[] {
	const { previous, inventory, maxMoves, nowMs } = brakes;
	const before = new Map(previous && partsOf(previous.plan).map(({ name, words }) => [name, words]));
	/** Whether the part's rollout of the previous plan to the same has begun: then this is a later step of it. */
	const isGoing = (name: string | null, isSame: (to: Words) => boolean, version?: string) => {
		const old = before.get(name)?.rollout;
		const begun = old?.rings.filter((ring) => hasBegun(ring, nowMs)) ?? [];
		return old !== undefined && isSame(old.to) && begun.some(({ agent }) => agent?.version === version);
	};
	return partsOf(plan).flatMap(({ name, words, path }): Finding[] => {
		const { rollout } = words;
		const findings: Finding[] = [];
		const found = (level: Finding['level'], ...place: string[]) =>
			findings.push({ level, path: [...path, ...place], what: WHOLE });
		// A rule that is new may be for a few devices; where a share is given, it decides.
		const isKnown = previous !== undefined && (name === null || before.has(name)) && maxMoves === undefined;
		for (const [place, said] of Object.entries(SAID)) {
			const isOther = said(words) != null && said(words) !== said(before.get(name) ?? {});
			if (isKnown && isOther && !isGoing(name, (to) => said(to) === said(words)))
				found(inventory ? 'error' : 'note', place);
		}
		const whole = (rollout?.rings ?? []).filter(({ percent }) => percent === 100);
		const first = Math.min(...whole.map(({ startAt }) => startOf(startAt)));
		const isStaged = rollout?.rings.some(({ percent, startAt }) => percent < 100 && startOf(startAt) < first);
		const isSame = (to: Words) => Object.values(SAID).every((said) => said(to) === said(rollout?.to ?? {}));
		const isLater = whole.some(({ agent }) => isGoing(name, isSame, agent?.version));
		if (whole.length > 0 && !isStaged && !isLater) found(levelOf(brakes), 'rollout', 'rings');
		return findings;
	});
}

/** Values and rules that no device of the inventory has. */
export function unmatched(plan: FleetPlan, inventory: readonly InventoryDevice[]): Finding[] {
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

const withoutZeros = (value: string) => value.replace(/^0+(?=\d)/, '');

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
	const stripped = missing.find((value) => value.startsWith('0') && known.has(withoutZeros(value)));
	const near = nearestName(first, [...known]);
	const meant = near === null ? '' : `; did you mean ${near}?`;
	const hint = stripped
		? `; the inventory has ${withoutZeros(stripped)} in place of ${stripped}: a spreadsheet has removed the zeros, so format the column as text`
		: meant;
	return [error([...path, key], `matches no device of the inventory: ${names}${more}${hint}`)];
}

function tooManyMoves(
	plan: FleetPlan,
	count: number,
	{ moves, atOnce }: ReturnType<typeof countMoves>,
	{ maxMoves, allowMoves }: Brakes,
): Finding[] {
	const place = plan.rules.length > 0 ? ['rules'] : ['defaults'];
	const permit = ifMeant(`--allow-moves ${moves}`);
	if (allowMoves !== undefined)
		return [
			error(place, `moves ${moves} of ${count} devices, and --allow-moves ${allowMoves} permits fewer; ${permit}`),
		];
	if (maxMoves !== undefined && moves / count > maxMoves) {
		const share = Number(((moves / count) * 100).toFixed(1));
		const limit = Number((maxMoves * 100).toFixed(2));
		return [error(place, `moves ${moves} of ${count} devices (${share} %), and ${limit} % may move; ${permit}`)];
	}
	// One device that is there already, such as that of a trial, does not make it a small step.
	if (atOnce < 2 || atOnce < count - 1) return [];
	const those = atOnce === count ? `all ${count}` : `${atOnce} of ${count}`;
	return [error(place, `moves ${those} devices at once; ${permit}`)];
}

/** Devices that a plan moves, and those that it moves at once. @param before the plan in force: what that one says as well does not count. */
function countMoves(
	plan: FleetPlan,
	inventory: readonly InventoryDevice[],
	before: FleetPlan | null,
	nowMs: number,
): { readonly moves: number; readonly atOnce: number } {
	const atOnce = new Set<string>();
	const now = asAssigned(inventory, before, nowMs);
	const { moves } = previewPlan(compilePlan(plan), now, nowMs, ({ deviceId, what, at, from }) => {
		// An inventory without workflows does not say that anything moves, nor does a plan alone that a version or a setting is new.
		if (at === null && (from !== null || (before !== null && what !== 'workflow'))) atOnce.add(deviceId);
	});
	return { moves, atOnce: atOnce.size };
}

/**
 * The devices with what a plan gives them now, where it names something. Of versions the inventory's word counts: what is ordered may not
 * be there yet. So it does beside a plan that is over: who has not followed it yet does not any more.
 */
export function asAssigned(
	inventory: readonly InventoryDevice[],
	plan: FleetPlan | null,
	nowMs: number,
): readonly InventoryDevice[] {
	if (!plan || isOver(plan, nowMs)) return inventory;
	const compiled = compilePlan(plan);
	return inventory.map((device) => {
		const { workflowId, version, heartbeatCadence } = planFor(compiled, device, nowMs);
		const [live, own] = [workflowId ?? device.workflowId, device.version ?? version];
		return { ...device, workflowId: live, version: own, heartbeatCadence };
	});
}
