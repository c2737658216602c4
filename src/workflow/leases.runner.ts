/**
 * The leases that applications hold, and the workflow change that waits for them (`workflow/deferral.ts` decides). Owns the timer
 * of that wait; moves no link.
 */

import { type Clock, isoAt } from '../base/clock.edge.ts';
import type { DesiredRegistration, Supervision } from '../connection/supervisor.ts';
import type { LeaseReport } from '../protocol/local-api.ts';
import { type Change, deferWorkflow } from './deferral.ts';
import { currentLeases, holdLease, NO_LEASES, releaseLease } from './leases.ts';

export interface WorkflowLeases {
	/** Takes or renews a lease. @throws AgentError `body-invalid`. */
	hold(name: string, seconds: number): void;
	/** Gives a lease back; one that is not held changes nothing. */
	release(name: string): void;
	list(): LeaseReport;
	/** What to pursue instead of the wish while a lease is held; `lookAgain` is called when the wait is over. */
	defer(wish: DesiredRegistration | null, supervision: Supervision): DesiredRegistration | null;
	/** Until when a change waits, monotonic; `null` when none does. */
	readonly waitsUntilMs: number | null;
	/** Nothing waits any more. */
	stop(): void;
}

export function keepLeases(parts: {
	readonly clock: Clock;
	readonly maxDeferSeconds: () => number;
	readonly lookAgain: () => void;
}): WorkflowLeases {
	const { clock, lookAgain } = parts;
	let leases = NO_LEASES;
	let change: Change | null = null;
	let cancel = () => {};

	const held: { -readonly [Name in keyof WorkflowLeases]: WorkflowLeases[Name] } = {
		waitsUntilMs: null,
		hold(name, seconds) {
			leases = holdLease(leases, name, seconds, clock.monotonicMs());
			lookAgain();
		},
		release(name) {
			leases = releaseLease(leases, name);
			lookAgain();
		},
		list: () => ({
			leases: currentLeases(leases, clock.monotonicMs()).map(({ name, sinceMs, untilMs }) => ({
				name,
				since: isoAt(clock, sinceMs),
				until: isoAt(clock, untilMs),
			})),
		}),
		defer(wish, supervision) {
			const nowMs = clock.monotonicMs();
			const maxDeferSeconds = parts.maxDeferSeconds();
			const decided = deferWorkflow(wish, { supervision, leases, before: change, maxDeferSeconds, nowMs });
			change = decided.change;
			held.waitsUntilMs = change?.untilMs ?? null;
			cancel();
			if (change?.untilMs != null) cancel = clock.schedule(change.untilMs - nowMs, lookAgain);
			return decided.desired;
		},
		stop() {
			leases = NO_LEASES;
			cancel();
		},
	};
	return held;
}
