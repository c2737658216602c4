/** Which address of a name is tried next: a bad one must not stand before a live one for ever. Pure. */

export interface Address {
	readonly address: string;
	readonly family: number;
}

/** A name may change its addresses all the time. */
const REMEMBERED = 16;

/** Those that have disappointed, the newest last. */
export function withDoubt(doubted: readonly string[], address: string): readonly string[] {
	return [...doubted.filter((one) => one !== address), address].slice(-REMEMBERED);
}

/** One family after the other; after all others those that have disappointed, the one first for which that is longest ago. */
export function nextAddress<One extends Address>(
	waiting: readonly One[],
	lastFamily: number,
	doubted: readonly string[],
): One | undefined {
	const rank = ({ address, family }: One) => 2 * doubted.indexOf(address) + Number(family === lastFamily);
	return waiting.toSorted((one, other) => rank(one) - rank(other))[0];
}
