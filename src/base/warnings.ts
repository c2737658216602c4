/** Faults that keep nothing from working: one warning for each topic, in the status until it is withdrawn. */
import type { ErrorCode, Failure } from './errors.ts';
import type { Log } from './log.edge.ts';
import { joinSentences } from './sentences.ts';

export type Warnings = ReturnType<typeof keepWarnings>;

/** Of what a site has to mend: since when it is so is told, too. */
const DATED: readonly ErrorCode[] = ['settings-invalid', 'settings-unreadable', 'credential-unreadable'];

/** By its cause: what follows from it may be another after a start, and where it stands in its file after a change of that. */
const nameOf = ({ code, message }: Failure) =>
	`${code} ${message.split('. ')[0]?.replace(/: line \d+, column \d+(?=: )/, '')}`;

/** @param onChange called after every change. @param dates ISO 8601; left out, nothing is dated. */
export function keepWarnings(
	log: Pick<Log, 'warn'>,
	onChange: () => void,
	dates?: { begin(name: string): string; end(name: string): void },
) {
	const warnings = new Map<string, Failure>();
	/** As they are shown. */
	const shown = new Map<string, Failure>();
	const dated = (warning: Failure): Failure => {
		if (!dates || !DATED.includes(warning.code)) return warning;
		const since = dates.begin(nameOf(warning));
		const message = joinSentences(warning.message, `It has been so since ${since}`);
		return { ...warning, message, params: { ...warning.params, since } };
	};
	return {
		/** Shows a warning in place of the topic's earlier one; `null` withdraws it. */
		set(topic: string, warning: Failure | null): void {
			const before = warnings.get(topic);
			if (before?.message === warning?.message) return;
			const others = [...warnings].filter(([one]) => one !== topic).map(([, told]) => told);
			const isTold = before && [...others, warning].some((told) => told && nameOf(told) === nameOf(before));
			if (before && !isTold) dates?.end(nameOf(before));
			if (warning) {
				warnings.set(topic, warning);
				shown.set(topic, dated(warning));
				log.warn(warning.message, { code: warning.code, params: warning.params });
			} else for (const one of [warnings, shown]) one.delete(topic);
			onChange();
		},
		list: (): readonly Failure[] => [...shown.values()],
	};
}
