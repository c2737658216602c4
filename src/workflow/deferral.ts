/**
 * Whether a workflow change waits, because an application holds a lease. Pure; monotonic time is handed in. Holds up nothing
 * else: not the first link, not a renewal, not a pairing, not a move to another service.
 */
import type { DesiredRegistration, Registration, Supervision } from '../connection/supervisor.ts';
import { deferredUntil, type Leases } from './leases.ts';

/** A workflow change that has not been made yet. */
export interface Change {
	readonly workflowId: string;
	/** Monotonic; when it was first desired. */
	readonly sinceMs: number;
	/** Monotonic; `null` when it need not wait. */
	readonly untilMs: number | null;
}

/**
 * The desired registration itself, or the same one with the workflow that the device has. Ask again at `untilMs`, and
 * whenever a lease is taken or released.
 * @param context.last what the device was last online with: at a start it is still that, before it has a link.
 * @param context.before the change that this returned the last time.
 * @param context.maxDeferSeconds 0 lets nothing wait.
 */
export function deferWorkflow(
	desired: DesiredRegistration | null,
	context: {
		readonly supervision: Supervision;
		readonly last: Registration | undefined;
		readonly leases: Leases;
		readonly before: Change | null;
		readonly maxDeferSeconds: number;
		readonly nowMs: number;
	},
): { readonly desired: DesiredRegistration | null; readonly change: Change | null } {
	const { leases, before, maxDeferSeconds, nowMs } = context;
	const { current, next, lastGeneration } = context.supervision;
	const live = current?.registration ?? (lastGeneration === 0 ? context.last : undefined);
	const isChange =
		desired && live && live.baseUrl === desired.baseUrl && live.request.workflowId !== desired.request.workflowId;
	if (!isChange || next?.reason === 'pairing') return { desired, change: null };
	const { workflowId } = desired.request;
	// A change that was allowed to begin keeps its age: later leases must not make it start again.
	const sinceMs = before?.workflowId === workflowId ? before.sinceMs : nowMs;
	const untilMs = deferredUntil(leases, sinceMs, maxDeferSeconds, nowMs);
	const request = { ...desired.request, workflowId: live.request.workflowId };
	return { desired: untilMs === null ? desired : { ...desired, request }, change: { workflowId, sinceMs, untilMs } };
}

/** The change as it is now, while something else goes before it: a lease that has ended makes it wait no more. */
export function agedChange(
	before: Change | null,
	leases: Leases,
	maxDeferSeconds: number,
	nowMs: number,
): Change | null {
	return before && { ...before, untilMs: deferredUntil(leases, before.sinceMs, maxDeferSeconds, nowMs) };
}
