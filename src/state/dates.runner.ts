/** Since when what is told of a device is so: a restart does not begin it again. */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import type { PersistedState } from './persisted-state.runner.ts';

/** For so long after a start, what is told is what was told before it. */
const FIRST_MS = 60_000;

export type Dates = ReturnType<typeof keepDates>;

export function keepDates(
	clock: Pick<Clock, 'monotonicMs' | 'wallMs'>,
	stateWriter: Pick<PersistedState, 'state' | 'keep'>,
) {
	const before = new Map(Object.entries(stateWriter.state.dates));
	const endMs = clock.monotonicMs() + FIRST_MS;
	const kept = new Map<string, string>();
	const save = () =>
		stateWriter.keep((state) => {
			const dates = Object.fromEntries(kept);
			return JSON.stringify(dates) === JSON.stringify(state.dates) ? state : { ...state, dates };
		});
	return {
		/** It is so. @returns since when, ISO 8601. */
		begin(key: string): string {
			const early = clock.monotonicMs() < endMs ? before.get(key) : undefined;
			const at = kept.get(key) ?? early ?? isoNow(clock);
			kept.set(key, at);
			save();
			return at;
		},
		/** It is so no longer. */
		end(key: string): void {
			before.delete(key);
			if (kept.delete(key)) save();
		},
		/** What was so before the start and is not told again is forgotten. */
		save,
	};
}
