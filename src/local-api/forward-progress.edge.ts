/** Watches one exchange between a caller and the service: which side it waits for, and for how long nothing has moved. Sends nothing. */

/** Whose turn it is to send or to take something. */
type Side = 'caller' | 'service';

export type Progress = ReturnType<typeof watchProgress>;

/**
 * @param on.idle nothing has moved for `idleMs`; called once.
 * @param on.stalled the caller has let the exchange wait for `stallMs`, until `on.moved`.
 */
export function watchProgress(
	{ idleMs, stallMs }: { readonly idleMs: number; readonly stallMs: number },
	on: { idle(side: Side): void; stalled(): void; moved(): void },
) {
	let side: Side = 'service';
	const idle = setTimeout(() => on.idle(side), idleMs);
	const stall = setTimeout(() => {
		if (side === 'caller') on.stalled();
	}, stallMs);
	/** The other side has done its part. A timer that was cleared stays so. */
	const waitFor = (next: Side) => {
		side = next;
		idle.refresh();
		stall.refresh();
		on.moved();
	};
	return {
		/** The same pieces, each of which `from` sends and the other side takes. */
		async *pass<Piece>(pieces: AsyncIterable<Piece>, from: Side): AsyncGenerator<Piece, void, void> {
			const to = from === 'caller' ? 'service' : 'caller';
			waitFor(from);
			for await (const piece of pieces) {
				waitFor(to);
				yield piece;
				waitFor(from);
			}
			waitFor(to);
		},
		stop() {
			clearTimeout(idle);
			clearTimeout(stall);
		},
	};
}
