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

/** Whether to try at once again after this address: it has just disappointed for the first time, and another one never has. */
export function hasUntried(doubted: readonly string[], address: string, all: readonly string[]): boolean {
	return !doubted.includes(address) && all.some((one) => one !== address && !doubted.includes(one));
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
