/** Who waits until no power cut can lose an event: it is on the disk, or every application has acknowledged it. */

/** @param most so many wait, with the newest events: the others are told nothing. */
export function planSafety(most: number) {
	let waiting: { readonly number: number; readonly resolve: () => void }[] = [];
	let [isOnDisk, done] = [true, 0];
	const tell = () => {
		const isSafe = ({ number }: { readonly number: number }) => isOnDisk || number <= done;
		const safe = waiting.filter(isSafe);
		if (safe.length > 0) waiting = waiting.filter((each) => !isSafe(each));
		for (const { resolve } of safe) resolve();
	};
	return {
		/** Resolves when this event and all before it are safe. */
		until(number: number): Promise<void> {
			return new Promise((resolve) => {
				waiting = [...waiting, { number, resolve }].slice(-most);
				tell();
			});
		},
		/** Whether the disk takes what is stored; else that is in memory only. */
		disk(takes: boolean): void {
			isOnDisk = takes;
			tell();
		},
		/** Up to here all applications have acknowledged. */
		acknowledged(upTo: number): void {
			done = upTo;
			tell();
		},
	};
}
