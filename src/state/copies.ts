/** Which of the two copies of the state counts, and what is said of the other. Pure. */
import type { DeviceState } from './device-state.ts';

/** Where a copy belongs: `id` is that of the state it is a copy of, `save` the number of the save. */
export interface CopyStamp {
	readonly id: string;
	readonly save: number;
	/** The directory it was saved in, by its inode: of two states of one machine it tells whose place this is. */
	readonly directory?: string;
	/** The mark of the logs beside it, where that does not come from the id: see `log-mark.edge.ts`. */
	readonly logs?: string;
	/** Whether it was saved on a full disk, which may have had no room for the other one. */
	readonly mayBeAlone?: true;
}

export interface WholeCopy {
	readonly kind: 'whole';
	/** All of it, to compare with. */
	readonly text: string;
	readonly inode: bigint;
	readonly state: DeviceState;
	/** Fields of a newer version, which this one does not know. */
	readonly newer: Readonly<Record<string, unknown>>;
	/** `null` where another version, which keeps no copies, has written it. */
	readonly stamp: CopyStamp | null;
}

export type Copy =
	| { readonly kind: 'missing' }
	/** Its content is wrong. */
	| { readonly kind: 'damaged'; readonly reason: string }
	/** Nothing is known of its content: `newerVersion` where it is whole, and a newer version has written it. */
	| { readonly kind: 'unreadable'; readonly reason: string; readonly newerVersion: boolean }
	| WholeCopy;

export interface Choice {
	readonly chosen: WholeCopy;
	readonly other: Copy;
	/** The fault of the other one; `null` where a save that was cut off, or another version, explains it. */
	readonly told: string | null;
	/** Whether the other one is to be kept beside, as it holds something that is not here. */
	readonly setsAside: boolean;
	/** Whether the two are whole and do not belong together. */
	readonly areStrangers: boolean;
	/** Whether both copies are on the disk as they should be. */
	readonly isPair: boolean;
}

export interface Circumstances {
	/** Whether a save was cut off, or may be under way. */
	readonly isCutOff: boolean;
	/** Of two that do not belong together: the one that is this machine's own; `null` where both are, or neither. */
	readonly own: 'first' | 'second' | null;
}

/** `null` where neither is whole. */
export function chooseCopy(first: Copy, second: Copy, circumstances: Circumstances): Choice | null {
	const { isCutOff } = circumstances;
	if (first.kind !== 'whole') return second.kind === 'whole' ? onlyOne(second, first, isCutOff) : null;
	if (second.kind !== 'whole')
		return onlyOne(first, second, isCutOff || first.stamp === null || first.stamp.mayBeAlone === true);
	return chooseOfTwo(first, second, circumstances);
}

/** @param mayBeAlone whether there may be no other: a version that keeps none has written it, the disk was full, or a save was cut off. */
function onlyOne(chosen: WholeCopy, other: Exclude<Copy, WholeCopy>, mayBeAlone: boolean): Choice {
	const how = { chosen, other, isPair: false, areStrangers: false };
	if (other.kind === 'missing') return { ...how, told: mayBeAlone ? null : 'is missing', setsAside: false };
	return { ...how, told: `is ${other.kind} (${other.reason})`, setsAside: true };
}

function chooseOfTwo(first: WholeCopy, second: WholeCopy, { isCutOff, own }: Circumstances): Choice {
	const firstCounts = {
		chosen: first,
		other: second,
		told: null,
		setsAside: false,
		isPair: false,
		areStrangers: false,
	};
	const secondCounts = { ...firstCounts, chosen: second, other: first };
	const firstUnpairs = !holdsPairing(first.state) && holdsPairing(second.state);
	const ahead = (first.stamp?.save ?? 0) - (second.stamp?.save ?? 0);
	const isOneSave = isCutOff && first.stamp?.id === second.stamp?.id && Math.abs(ahead) <= 1;
	if (!isOneSave && areStrangers(first, second)) {
		// An unpairing writes both: one without a pairing beside one that has it was put there.
		const secondWasPairedLast = holdsPairing(second.state) && pairedLast(first.state) < pairedLast(second.state);
		const likely = firstUnpairs || secondWasPairedLast ? 'second' : 'first';
		return { ...((own ?? likely) === 'second' ? secondCounts : firstCounts), ...PUT_THERE };
	}
	if (!first.stamp || !second.stamp) {
		// A version that keeps no copies always writes the first, and leaves no copy when it unpairs.
		return firstUnpairs && second.stamp ? { ...secondCounts, ...PUT_THERE } : firstCounts;
	}
	if (first.text === second.text) return { ...firstCounts, isPair: first.inode !== second.inode };
	// Of a save that was cut off one new name may be all that is left.
	return { ...(ahead < 0 ? secondCounts : firstCounts), told: Math.abs(ahead) <= 1 ? null : 'is older than its copy' };
}

export const holdsPairing = ({ pairing, connections }: DeviceState) => pairing !== null || connections.length > 0;

const PUT_THERE = { told: 'is of another device or of an older installation', setsAside: true, areStrangers: true };

/** The time of the newest Connection or pairing, as text; empty where there is none. */
const pairedLast = ({ pairing, connections }: DeviceState) =>
	[pairing?.pairedAt ?? '', ...connections.map(({ obtainedAt }) => obtainedAt)].sort().at(-1) ?? '';

/** Whether both are whole and do not belong together: they come from two devices, installations or directories. */
export function areStrangers(one: Copy, other: Copy): boolean {
	if (one.kind !== 'whole' || other.kind !== 'whole') return false;
	const differ = (a: string | null | undefined, b: string | null | undefined) => a != null && b != null && a !== b;
	const [machine, otherMachine] = [one, other].map(({ state }) => state.identity?.fingerprint.machine);
	if (differ(machine, otherMachine)) return true;
	return differ(one.stamp?.id, other.stamp?.id) || differ(one.stamp?.directory, other.stamp?.directory);
}

/** Of the copies that there are, so that the next save has a higher number than either; `null` where none has one. */
export function newestStamp(copies: readonly Copy[], chosen: CopyStamp | null): CopyStamp | null {
	const stamps = copies.flatMap((copy) => (copy.kind === 'whole' && copy.stamp ? [copy.stamp] : []));
	const of = chosen ?? stamps[0];
	if (!of) return null;
	const { id, logs } = of;
	const save = Math.max(0, ...stamps.filter((one) => one.id === id).map((one) => one.save));
	return { id, save, ...(logs !== undefined && { logs }) };
}
