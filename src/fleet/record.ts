/**
 * The fleet plan as a device keeps it, and how it takes a new one: no older revision, no second content under one revision,
 * and never all devices at once. Pure; `follow-plan.runner.ts` fetches plans, `attempt.ts` decides whether one works.
 */
import { AgentError } from '../base/errors.ts';
import type { Assignment, PlanRecord, TakenPlan } from '../state/plan-record.ts';
import { assignmentAt, isDue, isSameAssignment } from './targeting.ts';

/** The fleet plan's word to this device now: by which rule, `null` for the plan's defaults. */
export type PlanTarget = Assignment & Pick<TakenPlan, 'revision' | 'rule'>;

export const NO_PLAN = { etag: null, taken: null, waiting: null, followed: null, moved: null };

/**
 * Whether a plan that was fetched says something new.
 * @throws AgentError `plan-outdated` for an older revision, and for another content under the same one.
 */
export function checkRevision(
	{ taken, waiting }: Pick<PlanRecord, 'taken' | 'waiting'>,
	{ revision, digest }: Pick<TakenPlan, 'revision' | 'digest'>,
): 'new' | 'known' {
	const newest = waiting ?? taken;
	if (!newest || revision > newest.revision) return 'new';
	if (revision < newest.revision) {
		const message = `The fleet plan has revision ${revision}, but this device knows revision ${newest.revision} already.`;
		throw new AgentError('plan-outdated', message);
	}
	if (digest === newest.digest) return 'known';
	const message = `The fleet plan says something else under revision ${revision} than it did before.`;
	throw new AgentError('plan-outdated', message, { remedy: 'Publish the changed plan with a higher revision.' });
}

/**
 * The record with a plan that was fetched: taken at once if it changes nothing for this device now, or if the device has
 * nothing to do yet; else after the device's share of the spread.
 * @param at.fallback the device's assignment by its other sources, where the plan says nothing.
 */
export function receivePlan(
	record: PlanRecord,
	plan: TakenPlan,
	at: {
		readonly wallMs: number;
		readonly spreadSeconds: number;
		readonly share: number;
		readonly fallback: Assignment;
	},
): PlanRecord {
	const { wallMs, spreadSeconds, share, fallback } = at;
	const now = effective(record.taken && assignmentAt(record.taken, wallMs, record.moved), fallback);
	const then = effective(assignmentAt(plan, wallMs, record.moved), fallback);
	const isHarmless =
		now.workflowId === null || (now.workflowId === then.workflowId && now.heartbeatCadence === then.heartbeatCadence);
	if (isHarmless) return { ...record, taken: plan, waiting: null };
	const before = record.waiting?.digest === plan.digest ? record.waiting.atMs : Number.POSITIVE_INFINITY;
	const atMs = Math.min(before, wallMs + Math.round(share * spreadSeconds * 1000));
	return applyDue({ ...record, waiting: { ...plan, atMs, spreadSeconds } }, wallMs);
}

/** What the plan in force says at this time of the device's clock; `null` without one. */
export function planTarget(record: Pick<PlanRecord, 'taken' | 'moved'> | null, wallMs: number): PlanTarget | null {
	const taken = record?.taken;
	return taken ? { revision: taken.revision, rule: taken.rule, ...assignmentAt(taken, wallMs, record.moved) } : null;
}

/** The record with what has come due by the device's clock; the same one if nothing has. */
export function applyDue(record: PlanRecord, wallMs: number): PlanRecord {
	const { waiting } = record;
	if (!waiting) return record;
	const { atMs, spreadSeconds, ...plan } = waiting;
	if (atMs <= wallMs) return { ...record, taken: plan, waiting: null };
	// A clock that was set back must not make a plan wait for longer than its spread.
	const latestMs = wallMs + spreadSeconds * 1000;
	return atMs <= latestMs ? record : { ...record, waiting: { ...waiting, atMs: latestMs } };
}

/** The next time of the device's clock at which a record says something else; `null` for none. For a record with what is due. */
export function nextDueMs({ taken, waiting, moved }: PlanRecord, wallMs: number): number | null {
	const move = taken?.move;
	const due = [waiting?.atMs ?? null, move && !isDue(move, wallMs, moved) ? move.atMs : null].filter(
		(ms) => ms !== null,
	);
	return due.length > 0 ? Math.min(...due) : null;
}

/**
 * The record with what the device is online with as the plan in force says: the revision, and the move by which it came there.
 * The same one if it has that already.
 */
export function confirmed(record: PlanRecord, wallMs: number): PlanRecord {
	const { taken, followed, moved } = record;
	if (!taken) return record;
	const { revision, move } = taken;
	const said = assignmentAt(taken, wallMs, moved);
	const isKept = moved !== null && isSameAssignment(moved.to, said) && (move?.atMs ?? moved.atMs) <= moved.atMs;
	const made = move && move.atMs !== null && isDue(move, wallMs, moved) ? { to: move.to, atMs: wallMs } : null;
	const next = isKept ? moved : made;
	return followed === revision && next === moved ? record : { ...record, followed: revision, moved: next };
}

function effective(assignment: Assignment | null, fallback: Assignment): Assignment {
	return {
		workflowId: assignment?.workflowId ?? fallback.workflowId,
		heartbeatCadence: assignment?.heartbeatCadence ?? fallback.heartbeatCadence,
	};
}
