/** The fleet plan as a device keeps it, and how it takes a new one: none older than a key has attested, never all devices at once. Pure. */
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { type Assignment, MAX_FLOORS, type PlanFloor, type PlanRecord, type TakenPlan } from '../state/plan-record.ts';
import { assignmentAt, isDue, isSameAssignment } from './targeting.ts';

/** The fleet plan's word to this device now: by which rule, `null` for the plan's defaults. */
export type PlanTarget = Assignment & Pick<TakenPlan, 'revision' | 'rule'>;

export const NO_PLAN = {
	name: null,
	trusted: null,
	etag: null,
	taken: null,
	waiting: null,
	followed: null,
	moved: null,
	floors: [],
};

/** The fleet that a device belongs to by its settings, and the keys that may speak for it. */
export interface PlanTrust {
	/** As in {@link PlanRecord}. */
	readonly source: string;
	/** `fleet.name`. */
	readonly name: string | null;
	/** `fleet.publicKeys`. */
	readonly keys: readonly string[];
}

type Edition = Pick<TakenPlan, 'epoch' | 'revision' | 'digest'>;

interface Numbered {
	readonly epoch?: number | undefined;
	readonly revision: number;
}

/** Positive if the first of two plans is the newer one, 0 if neither is. */
export function comparePlans(one: Numbered, other: Numbered): number {
	return (one.epoch ?? 0) - (other.epoch ?? 0) || one.revision - other.revision;
}

/** The first number after that of a plan, in words. After the highest revision there is only a higher epoch. */
export function nextNumber(plan: Numbered): string {
	const isLast = plan.revision === Number.MAX_SAFE_INTEGER;
	const epoch = (plan.epoch ?? 0) + (isLast ? 1 : 0);
	const revision = isLast ? 1 : plan.revision + 1;
	return epoch === 0 ? `revision ${revision}` : `epoch ${epoch} and revision ${revision}`;
}

/** Whether something that was kept is of the fleet of now: by name where both have one, else by address. */
export function isOfFleet(kept: Pick<PlanFloor, 'source' | 'name'>, { source, name }: PlanTrust): boolean {
	return kept.name !== null && name !== null ? kept.name === name : kept.source === source;
}

/** The record of the fleet of now; the floors of others go along. */
export function recordFor(kept: PlanRecord | null, trust: PlanTrust): PlanRecord {
	if (kept && isOfFleet(kept, trust)) return kept;
	return { ...NO_PLAN, source: trust.source, name: trust.name, basis: '', floors: kept?.floors ?? [] };
}

/** The record with nothing left to come from a plan that no configured key has verified; the same one where nothing changes.
 * @param isSameBasis whether labels, identity and keys are those that it was chosen by. */
export function withoutWithdrawn(
	record: PlanRecord,
	trust: PlanTrust,
	{ isSameBasis, wallMs }: { readonly isSameBasis: boolean; readonly wallMs: number },
): PlanRecord {
	const known = withKnownKeys(record, trust, isSameBasis);
	const isAttested = ({ keys }: TakenPlan) => trust.keys.length === 0 || trust.keys.some((key) => keys?.includes(key));
	const { taken, waiting } = known;
	const isOver = waiting !== null && !isAttested(waiting);
	const isFrozen = (taken?.move || taken?.held) && !isAttested(taken);
	if (!isOver && !isFrozen) return known;
	return {
		...known,
		waiting: isOver ? null : waiting,
		taken: isFrozen ? { ...withoutHold(taken), base: saidBy(taken, wallMs, known.moved), move: null } : taken,
	};
}

/** A record of an agent of 0.1, which kept neither keys nor floors. */
function withKnownKeys(record: PlanRecord, trust: PlanTrust, isSameBasis: boolean): PlanRecord {
	const { taken, waiting } = record;
	const newest = waiting ?? taken;
	if (newest?.keys !== null || !newest) return record;
	const keys = isSameBasis ? [...trust.keys] : [];
	return {
		...record,
		taken: taken && { ...taken, keys },
		waiting: waiting && { ...waiting, keys },
		floors: raisedFloors(record, newest, trust, keys),
	};
}

/** Whether no key of today has verified the plan in force. */
export function isWithdrawn({ taken }: Pick<PlanRecord, 'taken'>, keys: readonly string[]): boolean {
	return taken !== null && keys.length > 0 && !keys.some((key) => taken.keys?.includes(key));
}

/** The newest plan that a key of today has attested; an unsigned one counts only while no key is configured. */
function floorOf({ floors }: Pick<PlanRecord, 'floors'>, trust: PlanTrust): PlanFloor | null {
	const binding = floors.filter((floor) => isOfFleet(floor, trust) && speaks(floor.key, trust));
	return binding.reduce<PlanFloor | null>((top, one) => (top && comparePlans(top, one) >= 0 ? top : one), null);
}

/** Whether a floor counts by the keys of now. */
export const speaks = (key: string | null, { keys }: PlanTrust) =>
	key === null ? keys.length === 0 : keys.includes(key);

/** @param verifiedBy the configured keys that have verified the plan. */
export function raisedFloors(
	{ floors }: Pick<PlanRecord, 'floors'>,
	{ epoch, revision, digest }: Edition,
	trust: PlanTrust,
	verifiedBy: readonly string[],
): PlanFloor[] {
	const { source, name } = trust;
	const attesting: readonly (string | null)[] = trust.keys.length === 0 ? [null] : verifiedBy;
	const others = floors.filter(
		(floor) => !isOfFleet(floor, trust) || (speaks(floor.key, trust) && !attesting.includes(floor.key)),
	);
	return [...others, ...attesting.map((key) => ({ epoch, revision, digest, source, name, key }))].slice(-MAX_FLOORS);
}

/** @throws AgentError `plan-outdated` for an older plan than a key of today has attested, and for other content under the same revision. */
export function checkRevision(
	record: Pick<PlanRecord, 'taken' | 'waiting' | 'floors'>,
	plan: Edition,
	trust: PlanTrust,
): 'new' | 'known' {
	const floor = floorOf(record, trust);
	const order = floor ? comparePlans(plan, floor) : 1;
	if (floor && order < 0) {
		const named = ({ epoch, revision }: Edition) =>
			plan.epoch === floor.epoch ? `revision ${revision}` : `epoch ${epoch}, revision ${revision}`;
		const message = `The fleet plan has ${named(plan)}, but this device knows ${named(floor)} already.`;
		throw new AgentError('plan-outdated', message);
	}
	if (floor && order === 0 && plan.digest !== floor.digest) {
		const message = `The fleet plan has other content than before under the same revision ${plan.revision}.`;
		throw new AgentError('plan-outdated', message, { remedy: 'Publish the changed plan with a higher revision.' });
	}
	return (record.waiting ?? record.taken)?.digest === plan.digest ? 'known' : 'new';
}

/** @throws AgentError `plan-for-other-fleet` where the device has a name of its fleet and the plan another one, or none. */
export function checkFleet(fleet: string | undefined, { name }: PlanTrust): void {
	if (name === null || fleet === name) return;
	const its = fleet === undefined ? 'names no fleet' : `is for fleet ${fleet}`;
	const message = `The fleet plan ${its}; this device belongs to fleet ${name}.`;
	throw new AgentError('plan-for-other-fleet', message, { params: { fleet: name } });
}

/** A warning while the trust of the plan in force has ended; `null` while it has not. */
export function endedTrust({ taken }: Pick<PlanRecord, 'taken'>, wallMs: number): Failure | null {
	if (!taken || taken.validUntilMs === null || !hasEnded(taken, wallMs)) return null;
	const validUntil = new Date(taken.validUntilMs).toISOString();
	const message = `The fleet plan is frozen or forgotten: revision ${taken.revision} was valid until ${validUntil}, and no newer one has come. The device keeps running as it is.`;
	return failure('plan-expired', message, { params: { revision: taken.revision, validUntil } });
}

const hasEnded = ({ validUntilMs }: Pick<TakenPlan, 'validUntilMs'>, wallMs: number): boolean =>
	validUntilMs !== null && validUntilMs <= wallMs;

/** What a plan that was taken says to its device at this time of the device's clock. @param moved as for {@link assignmentAt}. */
export function saidBy(taken: TakenPlan, wallMs: number, moved: PlanRecord['moved'] = null): Assignment {
	return taken.held && hasEnded(taken, wallMs) ? taken.held : assignmentAt(taken, wallMs, moved);
}

/** Whether a plan is over before the device has taken it. The first plan of a device is not too late: it does what its neighbours do. */
function isTooLate({ taken }: PlanRecord, plan: TakenPlan, wallMs: number): boolean {
	const isTaken = taken?.digest === plan.digest && !taken.held;
	return taken !== null && !isTaken && hasEnded(plan, wallMs);
}

function withoutHold({ held, ...plan }: TakenPlan): TakenPlan {
	return plan;
}

/** Takes a plan at once if that changes nothing for this device now, else after its share of the spread.
 * @param at.fallback its assignment by other sources, where the plan says nothing. */
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
	const now = effective(record.taken && saidBy(record.taken, wallMs, record.moved), fallback);
	const then = effective(assignmentAt(plan, wallMs, record.moved), fallback);
	const isHarmless =
		now.workflowId === null || (now.workflowId === then.workflowId && now.heartbeatCadence === then.heartbeatCadence);
	if (isHarmless) return take(record, plan, wallMs);
	const before = record.waiting?.digest === plan.digest ? record.waiting.atMs : Number.POSITIVE_INFINITY;
	const atMs = Math.min(before, wallMs + Math.round(share * spreadSeconds * 1000));
	return applyDue({ ...record, waiting: { ...plan, atMs, spreadSeconds } }, wallMs);
}

/** Of another epoch, a revision that was followed says nothing. The words from before are held until it has followed: the clock may be slow, and the plan over. */
function take(record: PlanRecord, plan: TakenPlan, wallMs: number): PlanRecord {
	const { taken, moved } = record;
	const followed = taken && taken.epoch !== plan.epoch ? null : record.followed;
	const held = taken?.digest === plan.digest ? taken.held : taken && saidBy(taken, wallMs, moved);
	const next = held && plan.validUntilMs !== null ? { ...plan, held } : plan;
	return { ...record, taken: next, waiting: null, followed };
}

/** What the plan in force says at this time of the device's clock; `null` without one. */
export function planTarget(record: Pick<PlanRecord, 'taken' | 'moved'> | null, wallMs: number): PlanTarget | null {
	const taken = record?.taken;
	return taken ? { revision: taken.revision, rule: taken.rule, ...saidBy(taken, wallMs, record.moved) } : null;
}

/** The record with what has come due by the device's clock; the same one if nothing has. */
export function applyDue(record: PlanRecord, wallMs: number): PlanRecord {
	const { waiting } = record;
	if (!waiting) return record;
	const { atMs, spreadSeconds, ...plan } = waiting;
	if (atMs <= wallMs || isTooLate(record, plan, wallMs)) return take(record, plan, wallMs);
	// A clock that was set back must not make a plan wait for longer than its spread.
	const latestMs = wallMs + spreadSeconds * 1000;
	return atMs <= latestMs ? record : { ...record, waiting: { ...waiting, atMs: latestMs } };
}

/** The next time of the device's clock at which a record says something else; `null` for none. For a record with what is due. */
export function nextDueMs({ taken, waiting, moved }: PlanRecord, wallMs: number): number | null {
	const move = taken?.move && !isDue(taken.move, wallMs, moved) ? taken.move.atMs : null;
	const ends = (taken?.validUntilMs ?? 0) > wallMs ? taken?.validUntilMs : null;
	const due = [waiting?.atMs, move, ends].filter((ms) => ms != null);
	return due.length > 0 ? Math.min(...due) : null;
}

/** The record with the revision that the device is online with, and the move by which it came there; the same one if it has that. */
export function confirmed(record: PlanRecord, wallMs: number): PlanRecord {
	const { taken, followed, moved } = record;
	if (!taken || (taken.held && hasEnded(taken, wallMs))) return record;
	const { revision, move } = taken;
	const said = assignmentAt(taken, wallMs, moved);
	const isKept = moved !== null && isSameAssignment(moved.to, said) && (move?.atMs ?? moved.atMs) <= moved.atMs;
	const isMade = move !== null && isDue(move, wallMs, moved);
	const next = isKept ? moved : isMade && move.atMs !== null ? { to: move.to, atMs: wallMs } : null;
	// A move to come that the device sleeps through, and the end of the plan with it, is not made afterwards.
	const held = move && !isMade && taken.validUntilMs !== null ? taken.base : undefined;
	const isHeld = held === undefined ? !taken.held : taken.held && isSameAssignment(held, taken.held);
	if (followed === revision && next === moved && isHeld) return record;
	return { ...record, taken: { ...withoutHold(taken), ...(held && { held }) }, followed: revision, moved: next };
}

function effective(assignment: Assignment | null, fallback: Assignment): Assignment {
	return {
		workflowId: assignment?.workflowId ?? fallback.workflowId,
		heartbeatCadence: assignment?.heartbeatCadence ?? fallback.heartbeatCadence,
	};
}
