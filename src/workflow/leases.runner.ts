/** The leases that applications hold; `desired-registration.ts` decides what waits for them. */
import { type Clock, isoAt } from '../base/clock.edge.ts';
import type { LeaseReport } from '../protocol/local-api.ts';
import { currentLeases, holdLease, NO_LEASES, releaseLease } from './leases.ts';

export type WorkflowLeases = ReturnType<typeof keepLeases>;

/** @param requestReconcile called after every change. */
export function keepLeases({ clock, requestReconcile }: { clock: Clock; requestReconcile: () => void }) {
	let held = NO_LEASES;
	return {
		/** May hold some that have run out. */
		get held() {
			return held;
		},
		hold(name: string, seconds: number) {
			held = holdLease(held, name, seconds, clock.monotonicMs());
			requestReconcile();
		},
		release(name: string) {
			held = releaseLease(held, name);
			requestReconcile();
		},
		list: (): LeaseReport => ({
			leases: currentLeases(held, clock.monotonicMs()).map(({ name, sinceMs, untilMs }) => ({
				name,
				since: isoAt(clock, sinceMs),
				until: isoAt(clock, untilMs),
			})),
		}),
	};
}
