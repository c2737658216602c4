/** Which events make room when there are too many: the oldest of the most frequent kind, so that chatter never displaces the rest. Pure. */

/** @param kept the kept events after a number, oldest first; read when there are too many for the first time. */
export function keepShares(kept: (after: number) => Iterable<{ readonly kind: string; readonly number: number }>) {
	/** Numbers by kind, oldest first. `null`: not read yet. */
	let kinds: Map<string, Set<number>> | null = null;

	function add(to: Map<string, Set<number>>, kind: string, number: number): void {
		const numbers = to.get(kind);
		if (numbers) numbers.add(number);
		else to.set(kind, new Set([number]));
	}

	/** Those that are kept after a number. */
	function known(after: number): Map<string, Set<number>> {
		if (!kinds) {
			kinds = new Map();
			for (const { kind, number } of kept(after)) add(kinds, kind, number);
		}
		for (const [kind, numbers] of kinds) {
			for (const number of numbers) {
				if (number > after) break;
				numbers.delete(number);
			}
			if (numbers.size === 0) kinds.delete(kind);
		}
		return kinds;
	}

	return {
		/** A newer event is kept. */
		add(kind: string, number: number): void {
			if (kinds) add(kinds, kind, number);
		},
		/** Others may be kept than those that are known. */
		forget(): void {
			kinds = null;
		},
		/** So many events; of kinds that are equally frequent, the oldest. @param gone up to here none is kept. */
		take(count: number, gone: number): Set<number> {
			const left = known(gone);
			const taken = new Set<number>();
			while (taken.size < count && left.size > 0) {
				const all = Array.from(left, ([kind, numbers]) => ({
					kind,
					numbers,
					oldest: Math.min(...numbers.values().take(1)),
				}));
				const most = all.reduce((one, other) => {
					const difference = other.numbers.size - one.numbers.size || one.oldest - other.oldest;
					return difference > 0 ? other : one;
				});
				taken.add(most.oldest);
				most.numbers.delete(most.oldest);
				if (most.numbers.size === 0) left.delete(most.kind);
			}
			return taken;
		},
	};
}
