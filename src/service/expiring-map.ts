/** A map with a bound, whose entries are forgotten after their time. Swept when something is added, without a timer. */

/** @param limit most entries; at least 1. */
export function createExpiringMap<Value>(limit: number, now: () => number) {
	const entries = new Map<string, { readonly value: Value; readonly forgetAtMs: number }>();
	let sweepAtSize = Math.min(64, limit);

	function sweep(): void {
		const nowMs = now();
		for (const [key, entry] of entries) if (entry.forgetAtMs <= nowMs) entries.delete(key);
		// Doubling keeps the cost of sweeping constant for each addition.
		sweepAtSize = Math.min(limit, Math.max(64, 2 * entries.size));
	}

	return {
		get: (key: string): Value | undefined => entries.get(key)?.value,
		/** Adds or replaces. `false` when it is full, even after forgetting what is due. */
		add(key: string, value: Value, forgetAtMs: number): boolean {
			if (entries.size >= sweepAtSize) sweep();
			if (entries.size >= limit && !entries.has(key)) return false;
			entries.set(key, { value, forgetAtMs });
			return true;
		},
		get size() {
			return entries.size;
		},
	};
}
