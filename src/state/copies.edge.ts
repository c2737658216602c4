/** The two copies of the state as they are on the disk, and which of them is the state. Changes nothing, so it may come beside a running agent. */
import fs from 'node:fs';
import path from 'node:path';
import { type Checked, NOTHING_CHECKED } from '../base/checked.ts';
import type { Failure } from '../base/errors.ts';
import { readBytes } from '../base/files.edge.ts';
import { areStrangers, type Choice, type Copy, chooseCopy, holdsPairing, type WholeCopy } from './copies.ts';
import { type DeviceState, EMPTY_STATE } from './device-state.ts';
import { readCopy } from './document.edge.ts';
import { healed, lost, refusal } from './losses.ts';

export const STATE = 'state.json';
export const BACKUP = `${STATE}.bak`;
/** Which state the copies are of. */
export const ID = 'state.id';
/** Damaged files that are set aside. */
export const QUARANTINED = `${STATE}.corrupt-`;
/** In the name of a file that was set aside when there was no whole copy, and of an empty one that says that there was none at all. */
export const [LOST, GONE] = ['-lost', '-gone'];

export interface LoadedState {
	readonly state: DeviceState;
	/** `state-corrupt`: one copy of the state was not whole, or neither, and it is empty. `state-unwritable`: no save would work now. */
	readonly notices: readonly Failure[];
}

/** Whether a state is this machine's own: asked where two whole copies do not belong together. */
export type IsOwn = (state: DeviceState) => Promise<boolean>;

export interface FoundCopies {
	/** `state.json` and `state.json.bak`. */
	readonly both: readonly [Copy, Copy];
	/** `null` where neither is whole. */
	readonly choice: Choice | null;
}

export interface HowToFind {
	/** Whether a save was cut off; default `true`, as one may be under way. */
	readonly isCutOff?: boolean;
	/** Whether no other process saves; default `false`. */
	readonly isLocked?: boolean;
	/** Default: it is. */
	readonly isOwn?: IsOwn;
}

export type Copies = ReturnType<typeof openCopies>;

/** @param checked states that need no check; default none. */
export function openCopies(stateDir: string, checked: Checked = NOTHING_CHECKED) {
	const at = (name: string) => path.join(stateDir, name);

	async function ownOf(first: Copy, second: Copy, isOwn: IsOwn): Promise<'first' | 'second' | null> {
		if (first.kind !== 'whole' || second.kind !== 'whole' || !areStrangers(first, second)) return null;
		const onlyFirst = (isFirst: boolean, isSecond: boolean) =>
			isFirst === isSecond ? null : isFirst ? 'first' : 'second';
		const [here, id] = [directoryOf(stateDir), await copies.savedId()];
		const wasSavedHere = (copy: WholeCopy) => copy.stamp?.directory === here;
		// Two installations of one machine have the same serial number and MAC address.
		return (
			onlyFirst(await isOwn(first.state), await isOwn(second.state)) ??
			onlyFirst(wasSavedHere(first), wasSavedHere(second)) ??
			// A directory that was restored is another one, with this file in it.
			onlyFirst(first.stamp?.id === id, second.stamp?.id === id)
		);
	}

	const copies = {
		at,
		async find({ isCutOff = true, isLocked = false, isOwn = async () => true }: HowToFind = {}): Promise<FoundCopies> {
			const first = await readCopy(at(STATE), checked, isLocked);
			const second = await readCopy(at(BACKUP), checked, isLocked);
			const own = await ownOf(first, second, isOwn);
			return { both: [first, second], choice: chooseCopy(first, second, { isCutOff, own }) };
		},
		/** The id of the state that was saved here; `null` where that is not known. */
		savedId: () =>
			readBytes(at(ID), 64, { refuseLink: true }).then(
				(bytes) => bytes.toString().trim(),
				() => null,
			),
		/** Where neither is whole. @throws AgentError `state-unreadable` where one of them may be, and is not to be touched. */
		damaged({ both }: FoundCopies): { file: string; reason: string }[] {
			return both.flatMap((copy, index) => {
				const file = at(index === 0 ? STATE : BACKUP);
				if (copy.kind === 'unreadable') throw refusal(file, copy);
				return copy.kind === 'damaged' ? [{ file, reason: copy.reason }] : [];
			});
		},
		/** The file whose place the chosen one does not have. */
		fileOfOther: ({ both }: FoundCopies, chosen: Copy): string => at(chosen === both[0] ? BACKUP : STATE),
		/** What is told where one of them is whole. */
		told(found: FoundCopies, { chosen, told, areStrangers }: Choice): Failure[] {
			if (told !== null) return [healed(copies.fileOfOther(found, chosen), told, areStrangers)];
			return holdsPairing(chosen.state) ? [] : copies.toldLost();
		},
		/** What is told where neither is. @param isAside whether those that are damaged are kept beside it. */
		async toldOfNone(reasons: readonly string[], isAside: boolean): Promise<{ told: Failure[]; wasRemoved: boolean }> {
			const is = (told: Failure[], wasRemoved = false) => ({ told, wasRemoved });
			if (reasons.length > 0) return is([lost(at(STATE), `is damaged (${reasons[0]})`, isAside)]);
			const told = copies.toldLost();
			// An unpaired device has a state as well: one that was saved here was removed. Later starts find one, and say so too.
			if (told.length > 0 || (await copies.savedId()) === null) return is(told);
			return is([lost(at(STATE), 'was removed', false)], true);
		},
		/** Told at every start until the device is paired again, or a person unpairs it. */
		toldLost(): Failure[] {
			const isThere = (mark: string) => copies.quarantined().some((name) => name.includes(mark));
			if (isThere(LOST)) return [lost(at(STATE), 'was damaged', true)];
			return isThere(GONE) ? [lost(at(STATE), 'was removed', false)] : [];
		},
		/** Names of the files that were set aside, oldest first. */
		quarantined(): string[] {
			const names = fs.existsSync(stateDir) ? fs.readdirSync(stateDir) : [];
			return names.filter((name) => name.startsWith(QUARANTINED)).sort();
		},
	};
	return copies;
}

/** The newest good state, for a look beside a running agent. @param checked as in {@link openCopies}. @throws AgentError `state-unreadable`. */
export async function lookAtState(stateDir: string, checked?: Checked): Promise<LoadedState> {
	const copies = openCopies(stateDir, checked);
	const found = await copies.find();
	if (found.choice) return { state: found.choice.chosen.state, notices: copies.told(found, found.choice) };
	const reasons = copies.damaged(found).map(({ reason }) => reason);
	return { state: EMPTY_STATE, notices: (await copies.toldOfNone(reasons, false)).told };
}

export const directoryOf = (stateDir: string) => String(fs.statSync(stateDir, { bigint: true }).ino);
