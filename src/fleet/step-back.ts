/** The parts of a plan that a signing changes, the way back of the newest change, and the devices that do not go it. Pure. A part is a rule, or the defaults under an empty name. */
import { compareVersions } from '../base/debian-version.ts';
import { parseJson } from '../protocol/json.ts';
import { type InventoryDevice, refusesFormat } from './preview.ts';
import { type RolloutRecord, type Signing, versionsOrdered } from './rollout-record.ts';
import { type CompiledPlan, planFor } from './targeting.ts';

/** A plan's document, with each number as it is written. */
export interface WrittenPlan {
	readonly defaults?: object;
	readonly rules?: readonly object[];
}
interface WrittenPart {
	readonly name?: string;
	readonly rollout?: { readonly rings: readonly WrittenRing[] };
}
interface WrittenRing {
	readonly percent?: number;
	readonly startAt?: string;
}

/** The way back of a few parts: each with its words in JSON, `null` for one that was not there, `undefined` where the record does not know. */
export interface WayBack {
	readonly parts: ReadonlyMap<string, string | null | undefined>;
	/** For the record of the signing that goes this way. */
	readonly back: NonNullable<Signing['back']>;
	/** The rules in their order before, where that was another one. */
	readonly order: readonly string[] | undefined;
}

const rulesIn = ({ rules = [] }: WrittenPlan) => rules as readonly { readonly name: string }[];
const partsIn = (plan: WrittenPlan) =>
	new Map([
		['', JSON.stringify(plan.defaults ?? {})],
		...rulesIn(plan).map((rule) => [rule.name, JSON.stringify(rule)] as const),
	]);
const namesIn = (plan: WrittenPlan) => rulesIn(plan).map(({ name }) => name);

/** The parts of which the next plan says something else, as they were before. */
export function changedBy(before: WrittenPlan, after: WrittenPlan): Pick<Signing, 'before' | 'order'> {
	const [old, now] = [partsIn(before), partsIn(after)];
	const changed = [...new Set([...old.keys(), ...now.keys()])].filter((name) => old.get(name) !== now.get(name));
	const isSameOrder = String(namesIn(before)) === String(namesIn(after));
	return {
		before: Object.fromEntries(changed.map((name) => [name, old.get(name) ?? null])),
		...(!isSameOrder && { order: namesIn(before) }),
	};
}

/** The way back of the newest step that is in force: the parts that it has changed become what they were. More or fewer rings of the same are one step
 * with what they are rings of. `null` where the record knows no step. @param only the only part to go back. */
export function wayBackOf({ signed }: RolloutRecord, digest: string, plan: WrittenPlan, only?: string): WayBack | null {
	const words = new Map<string, string | null>(partsIn(plan));
	/** Parts that have gone back, each up to the signing that was taken back; it, and all after it, count no more. */
	const gone = new Map<string, string>();
	const steps = new Map<string, { readonly words: string | null; readonly digest: string }>();
	/** Parts with rings that were added since: to undo that they were fewer before would move devices forward. */
	const widened = new Set<string>();
	let taken: readonly string[] | null = null;
	let order: readonly string[] | undefined;
	for (const one of signed.slice(0, signed.findIndex((own) => own.digest === digest) + 1).reverse()) {
		if (!one.before) break;
		for (const [name, until] of Object.entries(one.back ?? {})) if (!gone.has(name)) gone.set(name, until);
		const changes = Object.entries(one.before).flatMap(([name, before]) => {
			const until = gone.get(name);
			if (until === one.digest) gone.delete(name);
			const after = words.get(name) ?? null;
			if (until !== undefined || before === after) return [];
			words.set(name, before);
			const [isStep, isLess] = [one.brake !== 'pause' && isOtherStep(before, after), !isOtherStep(after, before)];
			const isMeant = only === undefined ? isStep || one.brake === undefined : name === only;
			return (taken ? taken.includes(name) : isMeant) ? [{ name, before, isStep, isLess }] : [];
		});
		const isWhole = !taken && changes.some(({ isStep }) => isStep);
		// Only the order of the rules is another one: there is no part to go back.
		if (!taken && one.order && Object.keys(one.before).length === 0 && one.brake === undefined) taken = [];
		if (!taken && changes.length > 0) taken = changes.map(({ name }) => name);
		if (isWhole) order = one.order;
		for (const { name, before, isStep, isLess } of changes) {
			if (!isStep) widened.add(name);
			if ((isStep || isWhole) && !steps.has(name) && !(isLess && widened.has(name)))
				steps.set(name, { words: before, digest: one.digest });
		}
		if (taken?.every((name) => steps.has(name))) break;
	}
	if (!taken) return null;
	return {
		parts: new Map(taken.map((name) => [name, steps.get(name)?.words])),
		back: Object.fromEntries(taken.map((name) => [name, steps.get(name)?.digest ?? ''])),
		order,
	};
}

/** Whether a part does not only say the same to more devices. */
function isOtherStep(before: string | null, after: string | null): boolean {
	if (before === null || after === null) return true;
	const [{ rollout: old, ...base }, { rollout, ...own }] = [before, after].map((text) => parseJson(text)) as [
		WrittenPart,
		WrittenPart,
	];
	if (!old || !rollout) return old !== rollout || wordsOf(base) !== wordsOf(own);
	const [{ rings: earlier, ...was }, { rings, ...is }] = [old, rollout];
	const plain = ({ percent: _, startAt: __, ...ring }: WrittenRing) => wordsOf(ring);
	const known = earlier.map(plain);
	const widest = (all: readonly WrittenRing[]) => Math.max(...all.map(({ percent = 0 }) => percent));
	return (
		wordsOf({ ...base, was }) !== wordsOf({ ...own, was: is }) ||
		!rings.every((ring) => known.includes(plain(ring))) ||
		widest(rings) <= widest(earlier)
	);
}

/** Whatever the order in which its names are written. */
const wordsOf = (words: object): string =>
	JSON.stringify(words, (_, value: unknown) =>
		typeof value === 'object' && value !== null && !Array.isArray(value)
			? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
			: value,
	);

/** The rules in the order of before; those that were not there then come last. */
export function inOrder<Rule extends object>(
	rules: readonly Rule[],
	order: readonly string[] | undefined,
): readonly Rule[] {
	if (!order) return rules;
	const placeOf = (rule: object) => {
		const place = order.indexOf((rule as { name: string }).name);
		return place < 0 ? order.length : place;
	};
	return rules.toSorted((one, other) => placeOf(one) - placeOf(other));
}

/** Devices that cannot go back, as the plan orders an older version than they may have had, and those that keep theirs, as it orders none. An inventory may be
 * from before they were ordered a newer one. @param devices as the plan in force assigns them. @returns also the devices, each of the first with what it had. */
export function whoStays(
	[before, after]: readonly [CompiledPlan, CompiledPlan],
	devices: readonly InventoryDevice[],
	record: RolloutRecord,
	nowMs: number,
) {
	const orderedFor = versionsOrdered(record, nowMs);
	const [cannotGoBack, keepVersion]: [string[], string[]] = [[], []];
	const has = devices.map((device) => {
		// It has taken no such order.
		if (refusesFormat(before.plan, device)) return device;
		const { deviceId } = device;
		const { rule, version: from } = planFor(before, device, nowMs);
		const to = planFor(after, device, nowMs).version;
		if (from && !to) keepVersion.push(deviceId);
		const had = new Set([device.version, from, ...orderedFor(rule, deviceId)].flatMap((version) => version ?? []));
		const newest = [...had].sort(compareVersions).at(-1);
		if (!to || !newest || compareVersions(newest, to) <= 0) return device;
		cannotGoBack.push(deviceId);
		return { ...device, version: newest };
	});
	return { has, cannotGoBack, keepVersion };
}
