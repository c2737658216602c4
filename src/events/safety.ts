/** Callers that wait until no power cut can lose an event: it is on the disk, or every application has acknowledged it. */

interface Waiting {
	readonly number: number;
	readonly last: number;
	/** Whether all applications have acknowledged it: not all of them may have what follows from it. */
	readonly isRead: boolean;
	readonly resolve: () => void;
}

type Kept = Iterable<{ readonly number: number }>;
const numbersOf = (kept: Kept) => new Set(Array.from(kept, ({ number }) => number));

/** @param most so many wait, with the newest events: the others are told nothing. */
export function planSafety(most: number) {
	let waiting: Waiting[] = [];
	let [isOnDisk, done] = [true, 0];
	const tell = (isSafe: (each: Waiting) => boolean) => {
		const safe = waiting.filter(isSafe);
		if (safe.length > 0) waiting = waiting.filter((each) => !isSafe(each));
		for (const { resolve } of safe) resolve();
	};
	return {
		/**
		 * Resolves when an event is safe. @param number 0 for one that has been for long. @param last the newest that follows from it, which the
		 * agent has made. @param settled it is told nothing before.
		 */
		async until(number: number, last: number, settled: Promise<void> | undefined): Promise<void> {
			await settled;
			return new Promise((resolve) => {
				waiting = [...waiting, { number, last, isRead: false, resolve }].slice(-most);
				tell((each) => isOnDisk || each.number === 0 || each.last <= done);
			});
		},
		/**
		 * @param kept of what is there, where the disk takes it again: what had to make room in memory is told nothing; `null` while it is in
		 * memory only.
		 */
		disk(kept: Kept | null): void {
			isOnDisk = kept !== null;
			if (!kept || waiting.length === 0) return;
			const there = numbersOf(kept);
			tell(({ number, isRead }) => isRead || there.has(number));
			waiting = [];
		},
		/** Up to here all applications have acknowledged. @param kept what they could read: what had made room is told nothing. */
		acknowledged(upTo: number, kept: () => Kept): void {
			if (upTo <= done) return;
			done = upTo;
			if (waiting.length === 0) return;
			const there = numbersOf(kept());
			waiting = waiting
				.map((each) => ({ ...each, isRead: each.isRead || (each.number <= done && there.has(each.number)) }))
				.filter(({ number, isRead }) => isRead || number > done);
			tell(({ last, isRead }) => isRead && last <= done);
		},
	};
}
