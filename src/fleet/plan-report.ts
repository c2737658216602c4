/** What the status and the heartbeats say of the fleet plan. Pure: time is handed in. */
import type { Heartbeat } from '../protocol/channel.ts';
import type { Status } from '../protocol/local-api.ts';
import type { PlanRecord } from '../state/plan-record.ts';
import type { PlanAttempt } from './attempt.ts';
import { planTarget } from './record.ts';
import { assignmentAt } from './targeting.ts';

export interface PlanMoment {
	/** When the plan was last fetched or confirmed, ISO 8601. */
	readonly checkedAt: string | null;
	readonly nowMs: number;
	readonly wallMs: number;
}

/** The plan in `status --json`; `null` without one. */
export function reportPlan(
	record: PlanRecord | null,
	attempt: PlanAttempt,
	{ checkedAt, nowMs, wallMs }: PlanMoment,
): Status['plan'] {
	if (!record) return null;
	const { taken, followed } = record;
	const target = planTarget(record, wallMs);
	const isoAt = (monotonicMs: number) => iso(wallMs + monotonicMs - nowMs);
	return {
		revision: taken?.revision ?? null,
		followed,
		rule: taken?.rule ?? null,
		workflowId: target?.workflowId ?? null,
		next: nextChange(record, wallMs),
		refused:
			attempt.name === 'refused'
				? {
						...attempt.failure,
						revision: taken?.revision ?? 0,
						at: isoAt(attempt.sinceMs),
						nextTryAt: isoAt(attempt.untilMs),
					}
				: null,
		checkedAt,
	};
}

/** What heartbeats say. */
export function planHeartbeat(
	record: PlanRecord | null,
	attempt: PlanAttempt,
): Pick<Heartbeat, 'planRevision' | 'planRefused'> {
	return {
		...(record?.followed != null && { planRevision: record.followed }),
		...(attempt.name === 'refused' && record?.taken && { planRefused: record.taken.revision }),
	};
}

/** What the plan says next, as far as it is known. */
function nextChange({ taken, waiting }: PlanRecord, wallMs: number): NonNullable<Status['plan']>['next'] {
	if (waiting) {
		const { revision, atMs } = waiting;
		return { revision, workflowId: assignmentAt(waiting, atMs).workflowId, at: iso(atMs) };
	}
	const moveMs = taken?.move?.atMs ?? null;
	if (!taken?.move || moveMs === null || moveMs <= wallMs) return null;
	return { revision: taken.revision, workflowId: taken.move.to.workflowId, at: iso(moveMs) };
}

function iso(wallMs: number): string {
	return new Date(wallMs).toISOString();
}
