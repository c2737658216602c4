/** Watches one exchange between a caller and the service: which side it waits for, and whether anything moves. Sends nothing. */

/** Whose turn it is to send or to take something. */
type Side = 'caller' | 'service';

export type Progress = ReturnType<typeof watchProgress>;

/** @param onIdle nothing has moved for `idleMs`; called once, with the side that should have. */
export function watchProgress(idleMs: number, onIdle: (side: Side) => void) {
	let side: Side = 'service';
	const idle = setTimeout(() => onIdle(side), idleMs);
	/** The other side has done its part. A timer that was cleared stays so. */
	const waitFor = (next: Side) => {
		side = next;
		idle.refresh();
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
		stop: () => clearTimeout(idle),
	};
}
