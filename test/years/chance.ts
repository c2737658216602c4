/** Chance from a seed: the same numbers on every machine. */

export interface Chance {
	/** Uniform in [0, 1). */
	(): number;
	/** A whole number from `least` to `most`. */
	whole(least: number, most: number): number;
	pick<Item>(...items: readonly Item[]): Item;
	/** Whether something of this probability happens. */
	is(probability: number): boolean;
	/** Milliseconds until the next of events that come this often on average. */
	wait(meanMs: number): number;
}

/** Mulberry32. @param seed any whole number. */
export function chanceOf(seed: number): Chance {
	let state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) | 0;
	const next = () => {
		state = (state + 0x6d2b79f5) | 0;
		let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
		mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
	};
	return Object.assign(next, {
		whole: (least: number, most: number) => least + Math.floor(next() * (most - least + 1)),
		pick: <Item>(...items: readonly Item[]) => items[Math.floor(next() * items.length)] as Item,
		is: (probability: number) => next() < probability,
		// Logarithms are not the same to the last digit on every machine; this is near enough to an exponential.
		wait: (meanMs: number) => Math.round(meanMs * (next() + next() * next() * 2)),
	});
}
