/** The fleet plan in the status and in heartbeats. Pure: time is handed in. */
import type { Heartbeat, HeartbeatExtras } from '../protocol/channel.ts';
import type { PlanReport, Status } from '../protocol/local-api.ts';
import type { PlanRecord, TakenPlan } from '../state/plan-record.ts';
import type { PlanAttempt } from './attempt.ts';
import type { Fleet } from './follow-plan.runner.ts';
import { endedTrust, isOfFleet, type PlanTrust, planTarget, saidBy, speaks } from './record.ts';
import { assignmentAt, isDue } from './targeting.ts';

export function reportPlan(
	record: PlanRecord | null,
	attempt: PlanAttempt,
	{ nowMs, wallMs }: { nowMs: number; wallMs: number },
	{ checkedAt, servedRefusal }: Pick<Fleet, 'checkedAt' | 'servedRefusal'>,
): Status['plan'] {
	if (!record) return null;
	const { taken, followed } = record;
	const revision = taken?.revision ?? null;
	const isoAt = (monotonicMs: number) => iso(wallMs + monotonicMs - nowMs);
	const refused =
		attempt.name === 'refused'
			? { ...attempt.failure, revision: revision ?? 0, at: isoAt(attempt.sinceMs), nextTryAt: isoAt(attempt.untilMs) }
			: null;
	const workflowId = planTarget(record, wallMs)?.workflowId ?? null;
	return {
		fleet: taken?.fleet ?? null,
		epoch: taken?.epoch ?? 0,
		revision,
		validUntil: taken?.validUntilMs == null ? null : iso(taken.validUntilMs),
		followed,
		rule: taken?.rule ?? null,
		...(taken?.move && { ring: taken.move.percent }),
		workflowId,
		next: nextChange(record, wallMs),
		refused,
		servedRefused: servedRefusal,
		checkedAt,
	};
}

/** The plan and what it is trusted by, for `plan show`. `host`: of the address, whose path may be a secret. */
export function describePlanTrust(
	record: PlanRecord | null,
	trust: PlanTrust | null,
	{ host, checkedAt, wallMs }: { host: string | null; checkedAt: string | null; wallMs: number },
): PlanReport {
	const edition = ({ epoch, revision }: { epoch: number; revision: number }) => ({ epoch, revision });
	const shown = (plan: TakenPlan | null | undefined) =>
		plan
			? {
					...edition(plan),
					fleet: plan.fleet,
					validUntil: plan.validUntilMs === null ? null : iso(plan.validUntilMs),
					rule: plan.rule,
					workflowId: saidBy(plan, wallMs).workflowId,
					keys: plan.keys ?? [],
				}
			: null;
	return {
		host,
		fleetName: trust?.name ?? null,
		publicKeys: [...(trust?.keys ?? [])],
		inForce: shown(record?.taken),
		waiting: record?.waiting ? { ...edition(record.waiting), at: iso(record.waiting.atMs) } : null,
		newest: (record?.floors ?? []).flatMap((floor) =>
			trust && isOfFleet(floor, trust) && speaks(floor.key, trust) ? [{ ...edition(floor), key: floor.key }] : [],
		),
		problem: (record && endedTrust(record, wallMs)) ?? null,
		checkedAt,
	};
}

export function planHeartbeat(
	record: PlanRecord | null,
	attempt: PlanAttempt,
): Pick<Heartbeat, 'planRevision' | 'planRefused'> {
	return {
		...(record?.followed != null && { planRevision: record.followed }),
		...(attempt.name === 'refused' && record?.taken && { planRefused: record.taken.revision }),
	};
}

/** Of the settings, while others are in force. */
const isRefused = ({ code, params }: Status['warnings'][number]) =>
	code === 'credential-refused' || (code === 'settings-not-followed' && params?.['since'] !== undefined);

/** The fields of `service.heartbeatFields` that there is something to say for. */
export function heartbeatExtras(
	fields: readonly (keyof HeartbeatExtras)[],
	status: Pick<Status, 'agentVersion' | 'problem' | 'plan' | 'updates' | 'warnings'>,
): HeartbeatExtras {
	const { agentVersion, problem, plan, updates, warnings } = status;
	const known: { readonly [Name in keyof HeartbeatExtras]: HeartbeatExtras[Name] | null } = {
		agentVersion,
		// Beside a Connection that works as well: the day it ends, the device needs its key, and what its settings lead to.
		problemCode: problem?.code ?? warnings.find(isRefused)?.code ?? plan?.servedRefused?.code ?? null,
		planRevision: plan?.followed ?? null,
		planRing: plan?.ring ?? null,
		planReason: (plan?.refused ?? plan?.servedRefused)?.message ?? null,
		updateReason: updates?.reason ?? null,
		updateTakenBack: updates?.takenBack.at(-1)?.version ?? null,
	};
	return Object.fromEntries(fields.flatMap((name) => (known[name] == null ? [] : [[name, known[name]]])));
}

/** The next change by the plan, as far as it is known. */
function nextChange({ taken, waiting, moved }: PlanRecord, wallMs: number): NonNullable<Status['plan']>['next'] {
	if (waiting) {
		const { revision, atMs } = waiting;
		return { revision, workflowId: assignmentAt(waiting, atMs).workflowId, at: iso(atMs) };
	}
	const moveMs = taken?.move?.atMs ?? null;
	if (!taken?.move || moveMs === null || isDue(taken.move, wallMs, moved)) return null;
	return { revision: taken.revision, workflowId: taken.move.to.workflowId, at: iso(moveMs) };
}

function iso(wallMs: number): string {
	return new Date(wallMs).toISOString();
}
