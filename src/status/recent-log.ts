/** The last lines of the log, already scrubbed, for a support bundle on a device that keeps no log. Bounded. */
import type { LogDestination } from '../base/log.edge.ts';

/** Characters that are kept; the oldest lines go. */
export const RECENT_LOG_CHARACTERS = 32 * 1024;

export type RecentLog = ReturnType<typeof rememberLog>;

export function rememberLog(destination: LogDestination) {
	const lines: string[] = [];
	let size = 0;
	return {
		/** Passes every line on and remembers it. */
		destination: {
			...(destination.form && { form: destination.form }),
			write(line: string): void {
				destination.write(line);
				const kept = line.trimEnd();
				lines.push(kept);
				size += kept.length;
				while (size > RECENT_LOG_CHARACTERS) size -= lines.shift()?.length ?? size;
			},
		},
		/** Oldest first, without line ends. */
		lines: (): readonly string[] => lines,
		/** Forgets all of them: a line may name what a person wants erased. */
		forget(): void {
			lines.length = 0;
			size = 0;
		},
	};
}
