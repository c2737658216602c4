/** In which order listeners take their ports, and which of them stay where they are. Each list is by listener. Pure. */

/** Of two that are given one port, it stays with the one that had it, and the other one stays where it was: by their last ports, also those from before a restart. */
export function settlePorts(desired: readonly (number | null)[], had: readonly (number | null)[]): (number | null)[] {
	const taken = [...desired];
	const isLost = (port: number | null, at: number) =>
		Boolean(port) && port !== had[at] && had[at] !== null && taken.some((other, one) => one !== at && other === port);
	for (let at = taken.findIndex(isLost); at !== -1; at = taken.findIndex(isLost)) taken[at] = had[at] ?? null;
	return taken;
}

/**
 * Those whose port none of the others that wait holds. Where there is none, they turn their ports round, and all of them move at once.
 * @param holds also those from before a restart.
 */
export function firstToMove(
	goals: readonly (number | null)[],
	holds: readonly (number | null)[],
	waiting: readonly number[],
): { first: readonly number[]; isRound: boolean } {
	const isHeld = (at: number) => waiting.some((other) => other !== at && holds[other] === goals[at]);
	const first = waiting.filter((at) => goals[at] === null || !isHeld(at));
	return first.length > 0 ? { first, isRound: false } : { first: waiting, isRound: true };
}
