/**
 * Whether what the plan says works: a device that is not online with it in time stays where it was, says why, and tries again
 * seldom. Pure; monotonic time is handed in. Holds up only a change that the plan has made.
 */
import type { Failure } from '../base/errors.ts';
import { dispositionOf, failure, retryClassOf } from '../base/errors.ts';
import { failureOf } from '../connection/link.ts';
import type { DesiredRegistration, Registration, Supervision } from '../connection/supervisor.ts';

/** First wait after an attempt that came to nothing, and the longest; each is twice the one before, with jitter. */
const TRY_AGAIN_MS = 3_600_000;
const TRY_AGAIN_MAX_MS = 24 * 3_600_000;

/** What the device tries to do because the plan says so. `key` names the revision and the words. */
export type PlanAttempt =
	| { readonly name: 'none' }
	| { readonly name: 'trying'; readonly key: string; readonly untilMs: number; readonly tries: number }
	| {
			readonly name: 'refused';
			readonly key: string;
			readonly failure: Failure;
			readonly sinceMs: number;
			readonly untilMs: number;
			readonly tries: number;
	  };

export const NO_ATTEMPT: PlanAttempt = { name: 'none' };

export interface AttemptContext {
	/** What the plan's word is called, while it is the plan that decides; else `null`. */
	readonly key: string | null;
	/** What is wanted by all rules, leases included. */
	readonly wish: DesiredRegistration | null;
	readonly supervision: Supervision;
	/** Revision, for messages. */
	readonly revision: number;
	readonly limitMs: number;
	readonly nowMs: number;
	readonly random: () => number;
}

/** The attempt as it stands now. Ask again at `untilMs`, and after every step of the supervision. */
export function assessAttempt(attempt: PlanAttempt, context: AttemptContext): PlanAttempt {
	const { key, wish, supervision, nowMs, limitMs } = context;
	const { current, next } = supervision;
	const isMove = key !== null && wish !== null && current !== null && isOtherAssignment(wish, current.registration);
	if (!isMove) return NO_ATTEMPT;
	if (attempt.name === 'none' || attempt.key !== key)
		return { name: 'trying', key, untilMs: nowMs + limitMs, tries: 0 };
	if (nowMs < attempt.untilMs) return attempt;
	if (attempt.name === 'refused') return { name: 'trying', key, untilMs: nowMs + limitMs, tries: attempt.tries };
	const cause = next && failureOf(next.state);
	// While the whole device is offline the new workflow is not to blame, unless the service has said so.
	if (current.state.name !== 'online' && !isRefusal(cause)) return { ...attempt, untilMs: nowMs + limitMs };
	const tries = attempt.tries + 1;
	const waitMs = Math.min(TRY_AGAIN_MAX_MS, TRY_AGAIN_MS * 2 ** Math.min(10, tries - 1));
	return {
		name: 'refused',
		key,
		failure: explained(context, cause),
		sinceMs: nowMs,
		untilMs: nowMs + waitMs * (1 + 0.5 * context.random()),
		tries,
	};
}

/** What to pursue: the wish, or where the device is while the plan's word is refused. */
export function keepLastGood(
	attempt: PlanAttempt,
	wish: DesiredRegistration | null,
	{ current }: Supervision,
): DesiredRegistration | null {
	if (attempt.name !== 'refused' || !wish || !current) return wish;
	const { workflowId, heartbeatCadence } = current.registration.request;
	return { ...wish, request: { ...wish.request, workflowId, heartbeatCadence } };
}

/** Whether the wish differs in what a plan can change; to another service nothing is held back. */
function isOtherAssignment(wish: DesiredRegistration, { baseUrl, request }: Registration): boolean {
	return (
		wish.baseUrl === baseUrl &&
		(wish.request.workflowId !== request.workflowId || wish.request.heartbeatCadence !== request.heartbeatCadence)
	);
}

function isRefusal(cause: Failure | null): boolean {
	return cause !== null && (dispositionOf(cause.code) !== 'retry' || retryClassOf(cause.code) === 'refused');
}

function explained({ wish, revision, limitMs, supervision }: AttemptContext, cause: Failure | null): Failure {
	const stays = supervision.current?.registration.request.workflowId;
	const seconds = Math.round(limitMs / 1000);
	const why = cause ? ` ${cause.message}` : '';
	const params = { revision, workflowId: wish?.request.workflowId ?? '', liveWorkflowId: stays ?? '', seconds };
	const message = `Revision ${revision} of the fleet plan wants workflow ${wish?.request.workflowId}, which was not online within ${seconds} s; the device stays with ${stays}.${why}`;
	return failure('plan-not-followed', message, cause ? { remedy: cause.remedy, params } : { params });
}
