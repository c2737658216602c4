/** Faults that keep nothing from working: one warning for each topic, in the status until it is withdrawn. */
import type { ErrorCode, Failure } from './errors.ts';
import type { Log } from './log.edge.ts';
import { joinSentences } from './sentences.ts';

export type Warnings = ReturnType<typeof keepWarnings>;

/** Of what a site has to mend: since when it is so is told, too. */
const DATED: readonly ErrorCode[] = ['settings-invalid', 'settings-unreadable', 'credential-unreadable'];

/** @param onChange called after every change. @param now ISO 8601; left out, nothing is dated. */
export function keepWarnings(log: Pick<Log, 'warn'>, onChange: () => void, now?: () => string) {
	const warnings = new Map<string, Failure>();
	/** As they are shown. */
	const shown = new Map<string, Failure>();
	const dated = (warning: Failure): Failure => {
		if (!now || !DATED.includes(warning.code)) return warning;
		const since = now();
		const message = joinSentences(warning.message, `It has been so since ${since}`);
		return { ...warning, message, params: { ...warning.params, since } };
	};
	return {
		/** Shows a warning in place of the topic's earlier one; `null` withdraws it. */
		set(topic: string, warning: Failure | null): void {
			if (warnings.get(topic)?.message === warning?.message) return;
			if (warning) {
				warnings.set(topic, warning);
				shown.set(topic, dated(warning));
				log.warn(warning.message, { code: warning.code });
			} else for (const one of [warnings, shown]) one.delete(topic);
			onChange();
		},
		list: (): readonly Failure[] => [...shown.values()],
	};
}
