/** The next plan of a rollout: one ring more, no ring more, or back. Pure; whatever else stands in the document stays. */
import type { FleetPlan, PlanRollout } from './plan-format.ts';

export type Step =
	/** @see RINGS for `percents`. `startAt` ISO 8601; left out, as soon as devices take the plan. */
	| { readonly kind: 'next-ring'; readonly percents: readonly number[]; readonly startAt?: string | undefined }
	| { readonly kind: 'pause' }
	| { readonly kind: 'rollback' };

/** Shares of the devices, in percent, that a rollout has reached ring by ring unless it lists rings of its own. */
export const RINGS: readonly number[] = [1, 10, 50, 100];

/** A change of one rollout. */
export interface RolloutChange {
	/** `null` for the plan's defaults. */
	readonly rule: string | null;
	readonly to: string | null;
	/** Share of the devices that has begun to move, in percent, before and after. */
	readonly before: number;
	readonly after: number;
}

export interface NextPlan {
	/** With a revision of its own; the same as before where nothing changes. */
	readonly document: Record<string, unknown>;
	/** Empty where every ring has begun, or nothing is there to stop or to take back. */
	readonly changes: readonly RolloutChange[];
}

interface WrittenWords {
	rollout?: { rings: { percent: number; startAt?: string }[] };
}

/** @param document what `plan` was checked from; it is not changed. @param rule the only rollout to change; `undefined` for all of them. */
export function nextPlan(
	document: Record<string, unknown>,
	plan: FleetPlan,
	step: Step,
	{ nowMs, rule: only }: { readonly nowMs: number; readonly rule?: string | undefined },
): NextPlan {
	const next = structuredClone(document) as Record<string, unknown> & {
		defaults?: WrittenWords;
		rules?: WrittenWords[];
	};
	const changes: RolloutChange[] = [];
	const change = (name: string | null, rollout: PlanRollout | undefined, written: WrittenWords | undefined) => {
		if (!rollout || !written?.rollout || (only !== undefined && only !== name)) return;
		const before = begunPercent(rollout, nowMs);
		const rings = ringsAfter(rollout, step, nowMs);
		if (rings === null) return;
		if (rings.length > 0) written.rollout.rings = rings;
		// A rollout without a ring is not valid: without the rollout no device is told to move.
		else delete written.rollout;
		const after = rings.reduce((most, { percent }) => Math.max(most, percent), 0);
		changes.push({
			rule: name,
			to: rollout.to.workflowId ?? null,
			before,
			after: step.kind === 'pause' ? before : after,
		});
	};
	change(null, plan.defaults?.rollout, next.defaults);
	for (const [index, { name, rollout }] of plan.rules.entries()) change(name, rollout, next.rules?.[index]);
	return changes.length === 0 ? { document, changes } : { document: { ...next, revision: plan.revision + 1 }, changes };
}

function hasBegun({ startAt }: PlanRollout['rings'][number], nowMs: number): boolean {
	return startAt === undefined || Date.parse(startAt) <= nowMs;
}

function begunPercent({ rings }: PlanRollout, nowMs: number): number {
	return rings.reduce((most, ring) => (hasBegun(ring, nowMs) ? Math.max(most, ring.percent) : most), 0);
}

type Rings = { percent: number; startAt?: string }[];

/** The rings after the step; `null` where it changes nothing. */
function ringsAfter(rollout: PlanRollout, step: Step, nowMs: number): Rings | null {
	const rings: Rings = rollout.rings.map((ring) => ({ ...ring }) as Rings[number]);
	const begun = rings.filter((ring) => hasBegun(ring, nowMs));
	if (step.kind === 'rollback') return [];
	if (step.kind === 'pause') return begun.length === rings.length ? null : begun;
	const reached = begunPercent(rollout, nowMs);
	const listed = rings.filter((ring) => !hasBegun(ring, nowMs) && ring.percent > reached).map(({ percent }) => percent);
	const percent = listed.length > 0 ? Math.min(...listed) : step.percents.find((share) => share > reached);
	if (percent === undefined) return null;
	const later = rings.filter((ring) => !hasBegun(ring, nowMs) && ring.percent > percent);
	// What a later ring had as its time before this one is not earlier than this one.
	return [...begun, { percent, ...(step.startAt !== undefined && { startAt: step.startAt }) }, ...later];
}
