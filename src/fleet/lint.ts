/** The odd parts of a plan that is valid: rules that never count or overlap, rings that change nothing. Pure; knows no device. */
import type { FleetPlan, PlanMatch, PlanRollout, PlanRule, PlanWord } from './plan-format.ts';
import { compileValues, overruledBy } from './targeting.ts';
import { MATCH_KEYS, MAX_LISTED_VALUES, MAX_PLAN_BYTES, type MatchKey } from './terms.ts';

export interface Finding {
	/** `error`: surely not meant; `note`: worth a look. */
	readonly level: 'error' | 'note';
	readonly path: readonly (string | number)[];
	/** The fault, to follow the path: `can never apply: …`. */
	readonly what: string;
}

const MAX_FINDINGS = 100;

/** @param nowMs milliseconds since 1970; left out, whether the plan is still valid is not looked at. */
export function checkPlan(plan: FleetPlan, nowMs?: number): Finding[] {
	const findings: Finding[] = [];
	const compiled = plan.rules.map(({ match }) => compile(match));
	for (const [index, rule] of plan.rules.entries()) {
		if (findings.length >= MAX_FINDINGS) break;
		const before = compiled.slice(0, index);
		const hidden = hiddenBy(rule.match, before);
		if (hidden) {
			const names = [...hidden].map((earlier) => plan.rules[earlier]?.name).join(', ');
			const what = `can never apply: everything that it matches is taken by ${hidden.size === 1 ? 'rule' : 'rules'} ${names} before it`;
			findings.push({ level: 'error', path: ['rules', index], what: `(${rule.name}) ${what}` });
		} else findings.push(...overlaps(plan.rules, index, compiled));
		findings.push(...oddRollout(rule, rule.rollout, ['rules', index, 'rollout']));
		if (rule.workflowId === undefined && rule.settings?.heartbeatCadence === undefined && rule.rollout === undefined)
			findings.push(note(['rules', index], `(${rule.name}) says nothing that the defaults do not`));
	}
	findings.push(...oddRollout(plan.defaults ?? {}, plan.defaults?.rollout, ['defaults', 'rollout']));
	findings.push(...endOfTrust(plan, nowMs));
	return findings.slice(0, MAX_FINDINGS);
}

/** The bytes of an envelope around the payload, with its eight signatures. */
const ENVELOPE_BYTES = 2048;

/** Limits of a device, seen before the plan is signed. @param payloadBytes of the plan without its envelope. */
export function checkLimits({ rules }: FleetPlan, payloadBytes: number): Finding[] {
	const { listed, longest } = countListed(rules);
	const instead = longest ? `; ${insteadOf(longest)}` : '';
	const error = (path: Finding['path'], what: string): Finding[] => [{ level: 'error', path, what: what + instead }];
	if (listed > MAX_LISTED_VALUES)
		return error(
			longest?.path ?? [],
			`makes ${listed} listed values in the plan, and a device reads ${MAX_LISTED_VALUES} at most`,
		);
	const signedBytes = Math.ceil(payloadBytes / 3) * 4 + ENVELOPE_BYTES;
	if (signedBytes <= MAX_PLAN_BYTES) return [];
	return error([], `has about ${signedBytes} bytes once it is signed, and devices take ${MAX_PLAN_BYTES} at most`);
}

/** The values in all rules of a document that need not be a plan, and the longest list of them. */
export function countListed(rules: unknown) {
	const lists = (Array.isArray(rules) ? rules : []).flatMap((rule, index) =>
		MATCH_KEYS.flatMap((key) => {
			const values: unknown = rule?.match?.[key];
			return Array.isArray(values) ? [{ key, path: ['rules', index, 'match', key], values }] : [];
		}),
	);
	const listed = lists.reduce((sum, { values }) => sum + values.length, 0);
	return { listed, longest: lists.sort((a, b) => b.values.length - a.values.length)[0] };
}

function insteadOf({ key, values }: { key: MatchKey; values: readonly string[] }): string {
	const [first = ''] = values;
	let length = first.length;
	for (const value of values) while (!value.startsWith(first.slice(0, length))) length -= 1;
	const fits = (key === 'deviceIds' || key === 'serials') && length > 1 && length < first.length;
	const beginning = fits ? `, or write ${first.slice(0, length)}* if that fits no other device` : '';
	return `give these devices a label (fleet.labels) and match that${beginning}`;
}

/** A plan that is no longer valid, and rings of which devices would begin too late. */
function endOfTrust({ validUntil, spreadSeconds, defaults, rules }: FleetPlan, nowMs?: number): Finding[] {
	if (validUntil === undefined) return [];
	const endMs = Date.parse(validUntil);
	const rollouts = [defaults, ...rules].map((words, index) => ({
		rollout: words?.rollout,
		path: index === 0 ? ['defaults'] : ['rules', index - 1],
	}));
	const late = rollouts.flatMap(({ rollout, path }) =>
		(rollout?.rings ?? []).flatMap(({ startAt }, ring): Finding[] => {
			const startMs = startOf(startAt);
			const lastMs = startMs + (rollout?.spreadSeconds ?? spreadSeconds) * 1000;
			if (lastMs <= endMs) return [];
			const what = startMs > endMs ? 'starts after validUntil: no device moves with it' : LATE;
			return [{ level: startMs > endMs ? 'error' : 'note', path: [...path, 'rollout', 'rings', ring], what }];
		}),
	);
	const isOver = nowMs !== undefined && endMs < nowMs;
	return isOver
		? [
				note(['validUntil'], 'is over: devices that follow another plan would stay as they are, and warn at once'),
				...late,
			]
		: late;
}

const LATE = 'is spread beyond validUntil: devices whose moment is later do not move with it';

interface CompiledValues {
	readonly values: readonly string[];
	/** Whether everything that a value or pattern stands for is among these. */
	readonly covers: (value: string) => boolean;
}
type Compiled = { readonly [Key in MatchKey]?: CompiledValues };

function compile(match: PlanMatch): Compiled {
	const kinds = MATCH_KEYS.flatMap((key) => {
		const values = match[key];
		// A pattern is covered by a shorter one just as a value is: no value has a * in it.
		return values ? [[key, { values, covers: compileValues(values, key === 'deviceIds' || key === 'serials') }]] : [];
	});
	return Object.fromEntries(kinds);
}

/** The earlier rules that take everything that a match fits, each value by one of them; `null` where something is left. */
function hiddenBy(match: PlanMatch, before: readonly Compiled[]): ReadonlySet<number> | null {
	for (const key of MATCH_KEYS) {
		const values = match[key];
		if (!values) continue;
		const takers = before.flatMap((earlier, index) => (coversAllBut(earlier, match, key) ? [{ earlier, index }] : []));
		if (takers.length === 0) continue;
		const used = new Set<number>();
		const isTaken = (value: string) => {
			const taker = takers.find(({ earlier }) => earlier[key]?.covers(value) ?? true);
			if (taker) used.add(taker.index);
			return taker !== undefined;
		};
		if (values.every(isTaken)) return used;
	}
	return null;
}

/** Whether a rule asks nothing of the other kinds that the match does not ask as well. */
function coversAllBut(earlier: Compiled, match: PlanMatch, but: MatchKey): boolean {
	return MATCH_KEYS.every((key) => {
		const desired = earlier[key];
		return key === but || !desired || (match[key]?.every(desired.covers) ?? false);
	});
}

/** Rules before this one that may fit some of its devices and say something else. */
function overlaps(rules: readonly PlanRule[], index: number, compiled: readonly Compiled[]): Finding[] {
	const rule = rules[index];
	const own = compiled[index];
	if (!rule || !own) return [];
	return rules.slice(0, index).flatMap((earlier, at): Finding[] => {
		if (saysTheSame(earlier, rule)) return [];
		const shared = sharedValues(compiled[at] ?? {}, own);
		if (!shared) return [];
		const example = shared.length > 0 ? ` (${shared.join(', ')})` : '';
		const what = `(${rule.name}) may match devices of rule ${earlier.name}${example}; that rule comes first and applies`;
		return [note(['rules', index], what)];
	});
}

/** An example of each kind that both ask for; `null` where no device can fit both. */
function sharedValues(one: Compiled, other: Compiled): string[] | null {
	const examples: string[] = [];
	for (const key of MATCH_KEYS) {
		const [a, b] = [one[key], other[key]];
		if (!a || !b) continue;
		const example = b.values.find(a.covers) ?? a.values.find(b.covers);
		// A device has one of everything but labels.
		if (example === undefined && key !== 'labels') return null;
		if (example !== undefined) examples.push(example);
	}
	return examples;
}

function saysTheSame(one: PlanRule, other: PlanRule): boolean {
	const words = ({ workflowId, settings, rollout }: PlanRule) => JSON.stringify([workflowId, settings, rollout]);
	return words(one) === words(other);
}

function note(path: Finding['path'], what: string): Finding {
	return { level: 'note', path, what };
}

export const startOf = (startAt: string | undefined) =>
	startAt === undefined ? Number.NEGATIVE_INFINITY : Date.parse(startAt);

function oddRollout(base: PlanWord, rollout: PlanRollout | undefined, path: (string | number)[]): Finding[] {
	if (!rollout) return [];
	const { to, rings } = rollout;
	const findings: Finding[] = [];
	const keeps = (to.workflowId ?? base.workflowId) === base.workflowId;
	const beats = to.settings?.heartbeatCadence ?? base.settings?.heartbeatCadence;
	const orders = rings.some(({ agent }) => agent !== undefined);
	if (keeps && beats === base.settings?.heartbeatCadence && !orders)
		findings.push(note([...path, 'to'], 'changes nothing'));
	for (const [index, { percent, startAt, agent }] of rings.entries()) {
		const larger = rings.findIndex(
			(other, at) =>
				at !== index &&
				other.percent >= percent &&
				other.agent?.version === agent?.version &&
				startOf(other.startAt) <= startOf(startAt) &&
				(other.percent > percent || startOf(other.startAt) < startOf(startAt) || at < index),
		);
		if (larger >= 0)
			findings.push(note([...path, 'rings', index], `adds no device: ring ${larger} is as large and starts no later`));
		const over = overruledBy(rings, index);
		const words = `orders ${agent?.version} for no device: ring ${over} is as large, and it orders ${rings[over]?.agent?.version}`;
		if (over >= 0) findings.push(note([...path, 'rings', index], words));
	}
	return findings;
}
