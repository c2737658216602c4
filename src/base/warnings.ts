/** Faults that keep nothing from working: one warning for each topic, in the status until it is withdrawn. */
import type { Failure } from './errors.ts';
import type { Log } from './log.edge.ts';

export type Warnings = ReturnType<typeof keepWarnings>;

/** @param onChange called after every change. */
export function keepWarnings(log: Pick<Log, 'warn'>, onChange: () => void) {
	const warnings = new Map<string, Failure>();
	return {
		/** Shows a warning in place of the topic's earlier one; `null` withdraws it. */
		set(topic: string, warning: Failure | null): void {
			if (warnings.get(topic)?.message === warning?.message) return;
			if (warning) {
				warnings.set(topic, warning);
				log.warn(warning.message, { code: warning.code });
			} else warnings.delete(topic);
			onChange();
		},
		list: (): readonly Failure[] => [...warnings.values()],
	};
}
