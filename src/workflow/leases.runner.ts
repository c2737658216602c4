/**
 * The leases that applications hold. Sets no timer and moves no link: `desired-registration.ts` decides what waits for them.
 */

import { type Clock, isoAt } from '../base/clock.edge.ts';
import type { LeaseReport } from '../protocol/local-api.ts';
import { currentLeases, holdLease, type Leases, NO_LEASES, releaseLease } from './leases.ts';

export interface WorkflowLeases {
	/** Takes or renews a lease. @throws AgentError `body-invalid`. */
	hold(name: string, seconds: number): void;
	/** Gives a lease back; one that is not held changes nothing. */
	release(name: string): void;
	list(): LeaseReport;
	/** May hold some that have run out. */
	readonly held: Leases;
}

/** @param requestReconcile called after every change. */
export function keepLeases({
	clock,
	requestReconcile,
}: {
	readonly clock: Clock;
	readonly requestReconcile: () => void;
}): WorkflowLeases {
	let held = NO_LEASES;
	return {
		get held() {
			return held;
		},
		hold(name, seconds) {
			held = holdLease(held, name, seconds, clock.monotonicMs());
			requestReconcile();
		},
		release(name) {
			held = releaseLease(held, name);
			requestReconcile();
		},
		list: () => ({
			leases: currentLeases(held, clock.monotonicMs()).map(({ name, sinceMs, untilMs }) => ({
				name,
				since: isoAt(clock, sinceMs),
				until: isoAt(clock, untilMs),
			})),
		}),
	};
}
