/** Callers that wait until no power cut can lose an event: it is on the disk, or every application has acknowledged it. */

/** @param most so many wait, with the newest events: the others are told nothing. */
export function planSafety(most: number) {
	let waiting: { readonly number: number; readonly resolve: () => void }[] = [];
	let [isOnDisk, done] = [true, 0];
	const tell = (isSafe: (number: number) => boolean) => {
		const safe = waiting.filter(({ number }) => isSafe(number));
		if (safe.length > 0) waiting = waiting.filter(({ number }) => !isSafe(number));
		for (const { resolve } of safe) resolve();
	};
	return {
		/** Resolves when this event and all before it are safe. */
		until(number: number): Promise<void> {
			return new Promise((resolve) => {
				waiting = [...waiting, { number, resolve }].slice(-most);
				tell((each) => isOnDisk || each <= done);
			});
		},
		/**
		 * @param kept of what is there, where the disk takes it again: what had to make room in memory is told nothing; `null` while it is in
		 * memory only.
		 */
		disk(kept: Iterable<{ readonly number: number }> | null): void {
			isOnDisk = kept !== null;
			if (!kept || waiting.length === 0) return;
			const there = new Set(Array.from(kept, ({ number }) => number));
			tell((number) => there.has(number) || number <= done);
			waiting = [];
		},
		/** Up to here all applications have acknowledged. @param kept the numbers of what they could read: what had made room is told nothing. */
		acknowledged(upTo: number, kept: () => Iterable<{ readonly number: number }>): void {
			if (upTo <= done) return;
			done = upTo;
			if (waiting.length === 0) return;
			const there = new Set(Array.from(kept(), ({ number }) => number));
			tell((number) => number <= done && there.has(number));
			waiting = waiting.filter(({ number }) => number > done);
		},
	};
}
