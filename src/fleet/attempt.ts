/**
 * Whether what the plan assigns works, or the way out as changed settings have it: a device that is not online with it in time
 * stays where it was, and tries again seldom. Pure.
 */
import { dispositionOf, type Failure, failure, retryClassOf } from '../base/errors.ts';
import { failureOf } from '../connection/link.ts';
import { isOnlineBut } from '../connection/room.ts';
import type { DesiredRegistration, Supervision } from '../connection/supervisor.ts';
import type { PlanTarget } from './record.ts';

/** First wait after an attempt that failed, and the longest; each is twice the one before, with jitter. */
const TRY_AGAIN_MS = 3_600_000;
const TRY_AGAIN_MAX_MS = 24 * 3_600_000;
/** How long each of two ways is tried in turn by a device that is offline: whichever is right, it is back soon. */
const TURN_MS = 45_000;

interface Try {
	/** Names the revision and the assignment. */
	readonly key: string;
	readonly untilMs: number;
	readonly tries: number;
	/** A plan's has had its time once more, after an outage: a service that cuts one channel for the other gives it no end of it. */
	readonly isExtended?: boolean;
}

/** The device's try to do as the plan or the settings say. */
export type PlanAttempt =
	| { readonly name: 'none' }
	| (Try & { readonly name: 'trying' })
	| (Try & {
			readonly name: 'refused';
			readonly failure: Failure;
			readonly sinceMs: number;
			/** Nothing works: it is only the turn of what was before. */
			readonly isTurn?: boolean;
	  });

export const NO_ATTEMPT: PlanAttempt = { name: 'none' };

export interface AttemptContext {
	/** Names the change; `null` where there is none. */
	readonly key: string | null;
	readonly supervision: Supervision;
	/** Whether the move waits for the leases of applications: then its time does not run. */
	readonly isDeferred: boolean;
	/** While the device is offline, the change is tried for as long as that lasts, or in turn with what was before; left out, until the service refuses it. */
	readonly offline?: 'waits' | 'turns' | undefined;
	/** Why it is refused. @param isSpent before its time was over: each try costs the channel that works. */
	readonly explain: (cause: Failure | null, isSpent: boolean) => Failure;
	readonly limitMs: number;
	readonly nowMs: number;
	readonly random: () => number;
}

/** Names the change that the plan demands and the device has not made yet; a move to another service is not the plan's.
 * @param fixesWorkflow whether it is the plan that decides the workflow. */
export function planMoveKey(
	desired: DesiredRegistration | null,
	{ current }: Supervision,
	plan: PlanTarget | null,
	fixesWorkflow: boolean,
): string | null {
	if (!plan || !desired || !current || desired.baseUrl !== current.registration.baseUrl) return null;
	const { workflowId, heartbeatCadence } = desired.request;
	const live = current.registration.request;
	const isPlans =
		workflowId === live.workflowId
			? heartbeatCadence !== live.heartbeatCadence && heartbeatCadence === plan.heartbeatCadence
			: fixesWorkflow;
	return isPlans ? JSON.stringify([plan.revision, workflowId, heartbeatCadence]) : null;
}

/** Whether the device stays where it was for now: this very move has failed, and its next try has not come due. */
export function isHeldBack(attempt: PlanAttempt, key: string | null, nowMs: number): boolean {
	return attempt.name === 'refused' && attempt.key === key && nowMs < attempt.untilMs;
}

/** The attempt as it stands now. Ask again at `untilMs`, and after every step of the supervision. */
export function assessAttempt(attempt: PlanAttempt, context: AttemptContext): PlanAttempt {
	const { key, supervision, nowMs, offline } = context;
	const { current, next } = supervision;
	const isOnline = isOnlineBut(supervision);
	const isTurn = offline === 'turns' && !isOnline;
	const limitMs = isTurn ? Math.min(TURN_MS, context.limitMs) : context.limitMs;
	if (key === null || current === null) return NO_ATTEMPT;
	const same = attempt.name !== 'none' && attempt.key === key ? attempt : null;
	// A lease does not make a device forget that the move has failed.
	if (context.isDeferred) return same?.name === 'refused' ? same : NO_ATTEMPT;
	if (!same) return { name: 'trying', key, untilMs: nowMs + limitMs, tries: 0 };
	// An outage says nothing of the change: its time is that beside what works.
	const hasMore = same.name === 'trying' && isOnline && (offline !== undefined || !same.isExtended);
	const sinceMs = 'onlineAtMs' in current.state ? (current.state.onlineAtMs ?? 0) : 0;
	const leastMs = hasMore ? sinceMs + limitMs : 0;
	// It may have begun beside what worked.
	const mostMs = isTurn && same.name === 'trying' ? nowMs + limitMs : Number.POSITIVE_INFINITY;
	const untilMs = Math.min(mostMs, Math.max(leastMs, same.untilMs));
	const cause = next && failureOf(next.state);
	// The service has ended the channel that works for it: each further try would cost that again.
	const hadPlace = current.state.name === 'online' && offline !== undefined && next?.roomAtMs !== undefined;
	const isSpent = hadPlace && cause !== null && cause.code !== 'channel-occupied';
	if (nowMs < untilMs && !isSpent)
		return untilMs === same.untilMs ? same : { ...same, untilMs, ...(!offline && { isExtended: true }) };
	if (same.name === 'refused') return { name: 'trying', key, untilMs: nowMs + limitMs, tries: same.tries };
	// While the whole device is offline the new workflow is not to blame, unless the service has said so, and says otherwise of the old one.
	const isOwn = isRefusal(cause) && cause?.code !== failureOf(current.state)?.code;
	const isBlamed = offline === undefined ? isOwn : offline === 'turns';
	// The device itself has held it back: it was not tried yet.
	const isHeld = cause?.code === 'registering-too-often';
	if ((!isOnline && !isBlamed) || isHeld) return { ...same, untilMs: nowMs + limitMs };
	const tries = isTurn ? same.tries : same.tries + 1;
	const longMs = Math.min(TRY_AGAIN_MAX_MS, TRY_AGAIN_MS * 2 ** Math.min(10, tries - 1));
	const waitMs = isTurn ? limitMs : longMs;
	return {
		name: 'refused',
		key,
		failure: context.explain(cause, isSpent),
		sinceMs: nowMs,
		untilMs: nowMs + waitMs * (1 + 0.5 * context.random()),
		tries,
		...(isTurn && { isTurn }),
	};
}

/** The desired registration with the workflow and cadence that the device has: its last good ones. */
export function keepLastGood(
	desired: DesiredRegistration | null,
	{ current }: Supervision,
): DesiredRegistration | null {
	if (!desired || !current) return desired;
	const { workflowId, heartbeatCadence } = current.registration.request;
	return { ...desired, request: { ...desired.request, workflowId, heartbeatCadence } };
}

function isRefusal(cause: Failure | null): boolean {
	return cause !== null && (dispositionOf(cause.code) !== 'retry' || retryClassOf(cause.code) === 'refused');
}

/** @param of the move that the plan has demanded in vain. */
export function planRefused(
	cause: Failure | null,
	of: {
		readonly demanded: DesiredRegistration | null;
		readonly supervision: Supervision;
		readonly revision: number;
		readonly limitMs: number;
	},
): Failure {
	const { demanded: desired, revision, limitMs, supervision } = of;
	const stays = supervision.current?.registration.request.workflowId;
	const seconds = Math.round(limitMs / 1000);
	const why = cause ? ` ${cause.message}` : '';
	const params = {
		...(cause && { problem: cause.code }),
		revision,
		workflowId: desired?.request.workflowId ?? '',
		liveWorkflowId: stays ?? '',
		seconds,
	};
	const message = `Revision ${revision} of the fleet plan requires workflow ${desired?.request.workflowId}, which was not online within ${seconds} s; the device stays with ${stays}.${why}`;
	return failure('plan-not-followed', message, cause ? { remedy: cause.remedy, params } : { params });
}

/** Why settings of the way out are not in force. @param limitMs within which the device was not online with them. @param isSpent as in {@link AttemptContext}. */
export function wayRefused(cause: Failure | null, limitMs: number, isSpent = false): Failure {
	const seconds = Math.round(limitMs / 1000);
	const when = isSpent ? ', and the service ended the channel that worked for them' : ` within ${seconds} s`;
	const why = cause ? ` ${cause.message}` : '';
	const message = `The device was not online with the changed settings${when}; those from before stay in force.${why}`;
	return failure('settings-not-followed', message, { params: { seconds, ...(cause && { problem: cause.code }) } });
}

/** What a device that is offline does with settings of the way out that it has not been online with. They need not be what is wrong. */
export function wayInTurn(cause: Failure | null): Failure {
	const message = 'The device is offline, and tries the changed settings in turn with those from before.';
	if (!cause) return failure('settings-not-followed', message);
	const remedy = `${cause.remedy} If the device comes back with the settings from before alone, look at those that the message names.`;
	return failure('settings-not-followed', `${message} ${cause.message}`, { remedy, params: { problem: cause.code } });
}
