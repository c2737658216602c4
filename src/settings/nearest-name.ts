/** The known name that a mistyped one was probably meant for. Pure. */

/** How the sentence about a mistyped name ends. */
export function didYouMean(typed: string, names: readonly string[]): string {
	const nearest = nearestName(typed, names);
	return nearest ? `; did you mean ${nearest}?` : '.';
}

/** A longer name is not a slip of a known one, and among more names a slip is not looked for: each comparison takes time. */
const MAX_TYPED = 128;
const MAX_NAMES = 10_000;

/** The known name that is most like a mistyped one, if any is near enough to be meant. */
export function nearestName(typed: string, names: readonly string[]): string | null {
	if (typed.length > MAX_TYPED || names.length > MAX_NAMES) return null;
	// More than half of the letters wrong is another word.
	const most = Math.min(typed.length / 2, Math.max(2, typed.length / 3));
	const lower = typed.toLowerCase();
	let best: { name: string; distance: number } | null = null;
	for (const name of names) {
		const last = name.slice(name.lastIndexOf('.') + 1);
		const distance = Math.min(
			editDistance(lower, name.toLowerCase(), most),
			editDistance(lower, last.toLowerCase(), most) + 0.5,
		);
		if (!best || distance < best.distance) best = { name, distance };
	}
	return best && best.distance <= most ? best.name : null;
}

/** @param most a greater distance is infinite. */
export function editDistance(a: string, b: string, most: number): number {
	if (Math.abs(a.length - b.length) > most) return Number.POSITIVE_INFINITY;
	let row = Array.from({ length: b.length + 1 }, (_, index) => index);
	for (let i = 1; i <= a.length; i += 1) {
		const next = [i];
		for (let j = 1; j <= b.length; j += 1)
			next[j] = Math.min(
				(row[j] ?? 0) + 1,
				(next[j - 1] ?? 0) + 1,
				(row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1),
			);
		row = next;
	}
	return row[b.length] ?? 0;
}
