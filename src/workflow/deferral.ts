/**
 * Whether a workflow change waits, because an application holds a lease. Pure; monotonic time is handed in. Holds up nothing
 * else: not the first link, not a renewal, not a pairing, not a move to another service.
 */

import type { DesiredRegistration, Supervision } from '../connection/supervisor.ts';
import { deferredUntil, type Leases } from './leases.ts';

/** A workflow change that has not come about yet. */
export interface Change {
	readonly workflowId: string;
	/** Monotonic; when it was first wanted. */
	readonly sinceMs: number;
	/** Monotonic; `null` when it need not wait. */
	readonly untilMs: number | null;
}

export interface DeferralContext {
	readonly supervision: Supervision;
	readonly leases: Leases;
	/** What this returned the last time. */
	readonly before: Change | null;
	/** 0 lets nothing wait. */
	readonly maxDeferSeconds: number;
	readonly nowMs: number;
}

/**
 * What to pursue now: the wish itself, or the same wish with the workflow that the device has. Ask again at `untilMs`, and
 * whenever a lease is taken or released.
 */
export function deferWorkflow(
	wish: DesiredRegistration | null,
	{ supervision: { current, next }, leases, before, maxDeferSeconds, nowMs }: DeferralContext,
): { readonly desired: DesiredRegistration | null; readonly change: Change | null } {
	const live = current?.registration;
	const isChange = wish && live && live.baseUrl === wish.baseUrl && live.request.workflowId !== wish.request.workflowId;
	if (!isChange || next?.reason === 'pairing') return { desired: wish, change: null };
	const { workflowId } = wish.request;
	// A change that was allowed to begin keeps its age: later leases must not make it begin anew.
	const sinceMs = before?.workflowId === workflowId ? before.sinceMs : nowMs;
	const untilMs = deferredUntil(leases, sinceMs, maxDeferSeconds, nowMs);
	const request = { ...wish.request, workflowId: live.request.workflowId };
	return { desired: untilMs === null ? wish : { ...wish, request }, change: { workflowId, sinceMs, untilMs } };
}
