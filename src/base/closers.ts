/** The list of what was opened, to be closed in the opposite order. */
export function createClosers() {
	const closers: (() => unknown)[] = [];
	return {
		add(closer: () => unknown): void {
			closers.push(closer);
		},
		/** A closer that fails does not keep the others from running; its fault is thrown when all have run. */
		async close(): Promise<void> {
			const faults: unknown[] = [];
			for (const closer of closers.splice(0).reverse())
				try {
					await closer();
				} catch (error) {
					faults.push(error);
				}
			if (faults.length > 0) throw faults[0];
		},
	};
}
