/** The one time of a test: that of the agent's stepped clock, and of the machine while there is no agent. */
import type { SteppedClock } from './stepped-clock.ts';

let clock: Pick<SteppedClock, 'trueMs'> | null = null;

/** For what stands beside the agent: its service tells the same time. */
export const timeOfTest = () => clock?.trueMs() ?? Date.now();

/** @param from the clock of the newest agent; `null` at the end of the test. */
export function setTimeOfTest(from: Pick<SteppedClock, 'trueMs'> | null): void {
	clock = from;
}
