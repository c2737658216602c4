/** Watches one exchange between a caller and the service: which side it waits for, and whether anything moves. Sends nothing. */

/** Whose turn it is to send or to take something. */
type Side = 'caller' | 'service';

export type Progress = ReturnType<typeof watchProgress>;

/** How often it looks, within `idleMs`, whether the kernel's queue has changed. */
const LOOKS = 4;

/**
 * @param onIdle nothing has moved for `idleMs` (where something waits in the kernel at least for `pieceMs`, and up to a quarter longer);
 * called once, with the side that should have.
 * @param onTheWay bytes in the kernel's queue to a side: what was handed over last may leave it for minutes on a slow line.
 */
export function watchProgress(
	{ idleMs, pieceMs }: { readonly idleMs: number; readonly pieceMs: number },
	onIdle: (side: Side) => void,
	onTheWay: (side: Side) => number,
) {
	const mostLooks = (left: number) => (left > 0 ? Math.max(LOOKS, (LOOKS * pieceMs) / idleMs) : LOOKS);
	let side: Side = 'service';
	let [before, unchanged] = [0, 0];
	const look = () => {
		const left = onTheWay(side);
		unchanged = left === before ? unchanged + 1 : 0;
		before = left;
		if (unchanged >= mostLooks(left)) onIdle(side);
		else idle.refresh();
	};
	const idle = setTimeout(look, idleMs / LOOKS);
	/** The other side has done its part. A timer that was cleared stays so. */
	const waitFor = (next: Side) => {
		side = next;
		[before, unchanged] = [0, 0];
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
