/** How much each caller has under way at once, by its name: a number of places, and a line of those who wait for one. */

export type Places = ReturnType<typeof createPlaces>;

export function createPlaces() {
	const taken = new Map<string, number>();
	const lines = new Map<string, (() => void)[]>();

	/** Gives the place to who waits longest, else back. It works once. */
	const release = (name: string) => {
		let isOver = false;
		return () => {
			if (isOver) return;
			isOver = true;
			const next = lines.get(name)?.shift();
			if (next) next();
			else if ((taken.get(name) ?? 1) <= 1) taken.delete(name);
			else taken.set(name, (taken.get(name) ?? 1) - 1);
		};
	};

	return {
		/** @returns the function that gives the place back; `null` where all `most` are taken. */
		take(name: string, most: number): (() => void) | null {
			const before = taken.get(name) ?? 0;
			if (before >= most) return null;
			taken.set(name, before + 1);
			return release(name);
		},
		/** As `take`, after waiting in turn. @throws the signal's reason. */
		async wait(name: string, most: number, signal: AbortSignal): Promise<() => void> {
			const free = this.take(name, most);
			if (free) return free;
			const waiting = lines.get(name) ?? [];
			lines.set(name, waiting);
			return new Promise((resolve, reject) => {
				const leave = () => {
					waiting.splice(waiting.indexOf(turn), 1);
					reject(signal.reason);
				};
				const turn = () => {
					signal.removeEventListener('abort', leave);
					resolve(release(name));
				};
				waiting.push(turn);
				signal.addEventListener('abort', leave, { once: true });
				if (signal.aborted) leave();
			});
		},
	};
}
