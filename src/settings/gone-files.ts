/** For how long what a vanished settings file has set stays in force. Pure; the clock is handed to it. */

/** How long a file may be absent until what it has set no longer counts; the config file may be for as long as the agent runs. */
const GONE_AFTER_MS = 60_000;

/** Bears that files are gone for a while: they may be on their way back. @param onOver called when one of them no longer counts. */
export function bearGone(
	configFile: string,
	clock: { monotonicMs(): number; schedule(delayMs: number, callback: () => void): () => void },
	onOver: () => void,
) {
	/** Since when each is gone, monotonic. */
	let gone = new Map<string, number>();
	let seen = new Map<string, number>();
	let cancel = () => {};
	return {
		bears(file: string): boolean {
			const sinceMs = gone.get(file) ?? clock.monotonicMs();
			const isBorne = file === configFile || clock.monotonicMs() - sinceMs < GONE_AFTER_MS;
			if (isBorne) seen.set(file, sinceMs);
			return isBorne;
		},
		/** The files were read, and `bears` was asked for each that is gone. */
		looked(): void {
			[gone, seen] = [seen, new Map()];
			cancel();
			const since = [...gone].flatMap(([file, sinceMs]) => (file === configFile ? [] : [sinceMs]));
			if (since.length > 0) cancel = clock.schedule(Math.min(...since) + GONE_AFTER_MS - clock.monotonicMs(), onOver);
		},
		close: () => cancel(),
	};
}
