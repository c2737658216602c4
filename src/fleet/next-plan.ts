/** The next plan of a rollout: one ring more, no ring more, or back. Pure; whatever else stands in the document stays. */
import { type FleetPlan, PLAN_FORMATS, type PlanRollout, type PlanRule } from './plan-format.ts';
import { inOrder } from './step-back.ts';
import { hasBegun, indexOfNewest, overruledBy } from './targeting.ts';

export type Step =
	/** @see RINGS for `percents`. `startAt` ISO 8601; left out, as soon as devices take the plan. */
	| { readonly kind: 'next-ring'; readonly percents: readonly number[]; readonly startAt?: string | undefined }
	| { readonly kind: 'pause' }
	/** `before`: the rings of a part that ordered an earlier version, by the record. `way`: where the record knows what the newest step has changed. */
	| {
			readonly kind: 'rollback';
			readonly before?: ((rule: string | null, version: string) => readonly Ring[]) | undefined;
			readonly way?: NewestStep | undefined;
	  };

/** The only parts that go back: each with its words of before, `null` for one that was not there, `undefined` where these are not known; and the order of the rules before. */
export interface NewestStep {
	readonly parts: ReadonlyMap<string, object | null | undefined>;
	readonly order?: readonly string[] | undefined;
}

/** Shares of the devices, in percent, that a rollout has reached ring by ring unless it lists rings of its own. */
export const RINGS: readonly number[] = [1, 10, 50, 100];

/** A change of one rollout. */
export interface RolloutChange {
	/** `null` for the plan's defaults. */
	readonly rule: string | null;
	/** The workflow; `null` for none, and where a way back leaves it. */
	readonly to: string | null;
	/** The version that the newest ring orders; `null` for none. */
	readonly version: string | null;
	/** Of a way back: the version that is ordered again; `null` for none. */
	readonly versionAfter?: string | null | undefined;
	/** Share of the devices that the newest step has reached, in percent, before and after. */
	readonly before: number;
	readonly after: number;
}

export interface NextPlan {
	/** With a revision of its own; the same as before where nothing changes. */
	readonly document: Record<string, unknown>;
	/** Empty where every ring has begun, or nothing is there to stop or to take back. */
	readonly changes: readonly RolloutChange[];
	/** The parts that have a ring to come and are paused; `null` for the defaults. */
	readonly held: readonly (string | null)[];
}

type Ring = PlanRollout['rings'][number];
/** A ring, and how the document has it: with whatever this program does not know. */
interface WrittenRing {
	readonly ring: Ring;
	readonly written: object;
	readonly sinceMs: number;
}
interface WrittenWords {
	readonly workflowId?: string | null;
	readonly rollout?: { readonly to?: { readonly workflowId?: string | null }; readonly rings: readonly object[] };
}
/** A part of the plan, as it was checked. */
type Part = Pick<PlanRule, 'workflowId' | 'rollout'>;

interface Known {
	readonly nowMs: number;
	/** The only rollout to change; left out, all of them. */
	readonly rule?: string | undefined;
	/** A revision that devices may have, higher than that of the plan. */
	readonly above?: number | undefined;
	/** The parts in which no ring begins; of the defaults under an empty name. */
	readonly paused?: readonly string[];
	/** When a ring was added to its part, 0 where that is not known. */
	readonly sinceMs?: (rule: string | null, ring: Ring) => number;
}

/** @param document what `plan` was checked from; it is not changed. */
export function nextPlan(
	document: Record<string, unknown>,
	plan: FleetPlan,
	step: Step,
	{ nowMs, rule: only, above = 0, paused = [], sinceMs = () => 0 }: Known,
): NextPlan {
	const { defaults, rules } = document as { defaults?: WrittenWords; rules?: readonly WrittenWords[] };
	const changes: RolloutChange[] = [];
	const held: (string | null)[] = [];
	const way = step.kind === 'rollback' ? step.way : undefined;
	const change = (name: string | null, part: Part, words: WrittenWords): WrittenWords | null => {
		const { rollout: writtenRollout, ...others } = words;
		const { rollout } = part;
		const earlier = way?.parts.get(name ?? '');
		if (way && !way.parts.has(name ?? '')) return words;
		const rings = (rollout?.rings ?? []).map((ring, index) => ({
			...{ ring, written: writtenRollout?.rings[index] ?? {} },
			sinceMs: sinceMs(name, ring),
		}));
		if (earlier !== undefined) {
			const back = earlier && begunOnly(earlier, nowMs);
			changes.push({ rule: name, ...changeBack(part, back, reach(rings, nowMs), nowMs) });
			return back;
		}
		if (!rollout || !writtenRollout || (only !== undefined && only !== name)) return words;
		const before = step.kind === 'rollback' && plan.format === PLAN_FORMATS[1] ? step.before : undefined;
		const after = ringsAfter(rings, step, nowMs, (version) => before?.(name, version) ?? []);
		if (after === null) return words;
		if (step.kind === 'next-ring' && paused.includes(name ?? '')) {
			held.push(name);
			return words;
		}
		const begun = rings.filter(({ ring }) => hasBegun(ring, nowMs) && versionOf(ring) === after.version);
		const reached = Math.max(0, ...begun.map(({ ring }) => ring.percent));
		const [to, version] = [
			after.isWorkflowBack === false ? null : (rollout.to.workflowId ?? null),
			after.version ?? null,
		];
		const back = step.kind === 'rollback' ? { versionAfter: after.versionAfter ?? null } : {};
		changes.push({ rule: name, to, version, before: reached, after: after.percent ?? reached, ...back });
		// A rollout without a ring is not valid: without the rollout no device is told to move.
		if (after.rings.length === 0) return others;
		return { ...words, rollout: { ...writtenRollout, ...(after.isWorkflowBack && { to: {} }), rings: after.rings } };
	};
	const removed = [...(way?.parts.keys() ?? [])].filter(
		(one) => one !== '' && !plan.rules.some(({ name }) => name === one),
	);
	const next = {
		...document,
		...((defaults ?? way?.parts.get('')) && { defaults: change(null, plan.defaults ?? {}, defaults ?? {}) }),
		...(rules && {
			rules: inOrder(
				[
					...plan.rules.flatMap(({ name, ...part }, index) => change(name, part, rules[index] ?? {}) ?? []),
					...removed.flatMap((name) => change(name, {}, {}) ?? []),
				],
				way?.order,
			),
		}),
		revision: Math.max(plan.revision, above) + 1,
	};
	return { document: changes.length === 0 ? document : next, changes, held };
}

/** Words of before, without the rings that had not begun: a way back begins none. */
function begunOnly({ rollout, ...words }: WrittenWords, nowMs: number): WrittenWords {
	const rings = rollout?.rings.filter((ring) => hasBegun(ring as Ring, nowMs)) ?? [];
	return rings.length === 0 ? words : { ...words, rollout: { ...rollout, rings } };
}

/** What a step back says of a part. @param back its words then; `null` where it was not there. */
function changeBack(
	{ workflowId, rollout }: Part,
	back: WrittenWords | null,
	{ percent, widest }: ReturnType<typeof reach>,
	nowMs: number,
): Omit<RolloutChange, 'rule'> {
	const rings = (back?.rollout?.rings ?? []).map((ring) => ({ ring: ring as Ring, written: ring, sinceMs: 0 }));
	const said = reach(rings, nowMs);
	const [version, versionAfter] = [widest, said.widest].map((one) => one && (versionOf(one.ring) ?? null));
	const [to, toAfter] = [
		rollout?.to.workflowId ?? workflowId ?? null,
		back?.rollout?.to?.workflowId ?? back?.workflowId ?? null,
	];
	const before = widest ? percent : 100;
	if (version && version !== versionAfter)
		return { to: to === toAfter ? null : to, version, versionAfter: versionAfter ?? null, before, after: 0 };
	const isFewer = to === toAfter && said.percent > 0 && said.percent < percent;
	const isOther = to !== toAfter || isFewer;
	return {
		...{ to: isOther ? to : null, version: null, before },
		...(isFewer ? { after: said.percent } : { versionAfter: null, after: 0 }),
	};
}

const startMsOf = ({ startAt }: Ring) => (startAt === undefined ? null : Date.parse(startAt));

const versionOf = ({ agent }: Ring) => agent?.version;

/** The ring that is the newest step, and its share: a ring of another version says nothing of how far this one has come. */
function reach(
	rings: readonly WrittenRing[],
	nowMs: number,
): { readonly percent: number; readonly widest: WrittenRing | null } {
	const begun = rings.filter(({ ring }) => hasBegun(ring, nowMs));
	// The order of the rings says which came last only where the record does not.
	const isKnown = begun.every(({ sinceMs }) => sinceMs > 0);
	const beganMs = ({ ring, sinceMs }: WrittenRing) =>
		isKnown ? Math.max(startMsOf(ring) ?? 0, sinceMs) : startMsOf(ring);
	const newest = begun[indexOfNewest(begun.map((one) => ({ startMs: beganMs(one) })))];
	if (!newest) return { percent: 0, widest: null };
	const ofVersion = begun.filter(({ ring }) => versionOf(ring) === versionOf(newest.ring));
	const widest = ofVersion.reduce((most, one) => (one.ring.percent >= most.ring.percent ? one : most));
	return { percent: widest.ring.percent, widest };
}

interface RingsAfter {
	readonly rings: readonly object[];
	readonly version: string | undefined;
	readonly percent?: number;
	/** Of a way back: what is ordered again, and whether only versions are left of the rollout. */
	readonly versionAfter?: string | undefined;
	readonly isWorkflowBack?: boolean;
}

/** The rings after the step, the version of the newest, and the share that it reaches (left out: as before); `null` where it changes nothing. */
function ringsAfter(
	rings: readonly WrittenRing[],
	step: Step,
	nowMs: number,
	before: (version: string) => readonly Ring[],
): RingsAfter | null {
	const begun = rings.filter(({ ring }) => hasBegun(ring, nowMs));
	const toCome = rings.filter(({ ring }) => !hasBegun(ring, nowMs));
	const written = (those: readonly WrittenRing[]) => those.map((one) => one.written);
	const reached = reach(rings, nowMs);
	const version = reached.widest ? versionOf(reached.widest.ring) : undefined;
	if (step.kind === 'rollback') {
		const those = begun.map(({ ring }) => ring);
		const kept = begun.filter(({ ring }, index) => {
			if (overruledBy(those, index) >= 0) return false;
			return version === undefined ? versionOf(ring) : versionOf(ring) !== version;
		});
		const earlier = version === undefined || kept.some(({ ring }) => versionOf(ring)) ? [] : before(version);
		const after = [...kept.map(({ ring }) => ring), ...earlier];
		const said = after[indexOfNewest(after.map((ring) => ({ startMs: startMsOf(ring) })))];
		return {
			rings: [...written(kept), ...earlier],
			version,
			versionAfter: said && versionOf(said),
			percent: 0,
			isWorkflowBack: version === undefined || kept.length === 0,
		};
	}
	if (step.kind === 'pause') return toCome.length === 0 ? null : { rings: written(begun), version };
	const isMore = ({ ring }: WrittenRing) =>
		!begun.some((one) => versionOf(one.ring) === versionOf(ring) && one.ring.percent >= ring.percent);
	const listed = toCome.filter(isMore).toSorted((a, b) => a.ring.percent - b.ring.percent)[0];
	const percent = listed ? listed.ring.percent : step.percents.find((share) => share > reached.percent);
	if (percent === undefined) return null;
	// The plan lists no further ring: the widest one grows, and says to more devices what it said to the first.
	const source = listed ?? reached.widest;
	const { startAt: _, ...said } = { percent, ...source?.written } as Record<string, unknown>;
	const next = { ...said, percent, ...(step.startAt !== undefined && { startAt: step.startAt }) };
	// What a later ring had as its time before this one is not earlier than this one.
	const rest = written(toCome.filter((one) => one !== listed));
	return { rings: [...written(begun), next, ...rest], version: source ? versionOf(source.ring) : undefined, percent };
}
