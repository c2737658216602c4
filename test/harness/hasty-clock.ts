/** Time that jumps to whatever is waited for: a command that waits out minutes ends at once. Sockets know nothing of it. */
import { type Clock, systemClock } from '../../src/base/clock.edge.ts';

/** For one that waits for one thing at a time. */
export function createHastyClock(): Clock {
	let aheadMs = 0;
	return {
		monotonicMs: () => systemClock.monotonicMs() + aheadMs,
		wallMs: () => systemClock.wallMs() + aheadMs,
		sleptMs: systemClock.sleptMs,
		schedule: (delayMs, callback) =>
			systemClock.soon(() => {
				aheadMs += Math.max(0, delayMs);
				callback();
			}),
		soon: systemClock.soon,
	};
}
