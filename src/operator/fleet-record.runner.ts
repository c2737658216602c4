/** The record beside a published plan: read, asked, changed and confirmed where it lies. */
import type { KeyObject } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { AgentError } from '../base/errors.ts';
import { counted, type Shell } from '../cli/output.runner.ts';
import {
	confirmed,
	gapIn,
	hasSealedPauses,
	NO_RECORD,
	type RolloutRecord,
	readRecord,
	recordPlaceOf,
	sealedOnly,
} from '../fleet/rollout-record.ts';
import { type PlanFile, planIn, sealBy } from './fleet-files.runner.ts';
import { isSame, overtaken, placeOf, readStored, replaceStored, type Stored, withPlace } from './fleet-store.runner.ts';

/** How often a record is read again because another manager has changed it. */
const MAX_TRIES = 20;
/** How often the record is looked at after a plan was published. */
const MAX_LOOKS = 5;
/** In place of the plan in force, for the first plan of a fleet. */
export const NONE = 'none';

/** The record beside a plan; an empty one where there is none. @throws AgentError `plan-invalid` for another file. */
export async function loadRecord(shell: Shell, plan: string, mayBeDamaged = false): Promise<RolloutRecord> {
	if (plan === NONE) return NO_RECORD;
	return recordIn(await readStored(shell, recordPlaceOf(await placeOf(plan))), plan, mayBeDamaged);
}

/** As {@link loadRecord}; of a damaged one, an empty one and the error. */
export async function lookAtRecord(shell: Shell, plan: string, mayBeDamaged = false) {
	return loadRecord(shell, plan, mayBeDamaged).then(
		(record) => ({ record, damage: undefined }),
		(damage: unknown) => {
			if (!(damage instanceof AgentError) || damage.code !== 'plan-invalid') throw damage;
			return { record: NO_RECORD, damage };
		},
	);
}

/** After the way back of a rollback. */
const GO_ON = 'other commands go on once it is moved away and the plan in force is named with --previous.';

function recordIn(stored: Stored | null, plan: string, mayBeDamaged: boolean): RolloutRecord {
	if (!stored) return NO_RECORD;
	const record = readRecord(new TextDecoder().decode(stored.bytes));
	const gap = record && gapIn(record);
	if (record && !gap) return record;
	if (mayBeDamaged) return NO_RECORD;
	if (gap)
		throw new AgentError(
			'plan-invalid',
			`${recordPlaceOf(plan)} has a gap: revision ${gap.revision}, signed at ${gap.at}, follows a signing that is not there before it, or stands there twice. Signings were taken out or exchanged, and a way back by the rest could go too far.`,
			{
				remedy: `Put a copy from before back in its place; it does not know of a later pause. Without one, idv fleet rollback ends the rollouts with --without-record; ${GO_ON}`,
			},
		);
	throw new AgentError('plan-invalid', `${recordPlaceOf(plan)} is not the record of a rollout.`, {
		remedy: `Look at what has written it; without it, nothing is known of earlier signings. idv fleet rollback goes on without it with --without-record; ${GO_ON}`,
	});
}

/** Asks a record for what is signed again, as far as the keys have sealed it; without a key nothing is signed. Where the rest of it says something else, a warning says so once. */
export function askSealed(shell: Shell, record: RolloutRecord, place: string, keys: readonly KeyObject[]) {
	const sealed = keys.length === 0 ? record : sealedOnly(record, sealBy(keys));
	const others = record.signed.filter((one) => !sealed.signed.includes(one)).length;
	let isSaid = false;
	return <Said>(ask: (known: RolloutRecord) => Said): Said => {
		const said = ask(sealed);
		if (!isSaid && !isDeepStrictEqual(said, ask(record))) {
			isSaid = true;
			shell.warn(
				`${place}: --key has not sealed ${others} of its ${counted(record.signed.length, 'signing')} (edited, of an older version, or of another key): nothing of these goes into the next plan. If another key has sealed them, give that one as well; else compare the next plan with the one that you want back (idv fleet diff), or sign that one with a higher revision.`,
			);
		}
		return said;
	};
}

/** Who writes where the record lies could end a pause there. Says so where no key has sealed the pauses of the plan in force: then the record says of the next plan what may have been edited.
 * @param isSchedule whether only a person could know better. @throws AgentError `plan-outdated` then. */
export function askPauses(
	shell: Shell,
	record: RolloutRecord,
	{ file, digest, plan }: PlanFile,
	keys: readonly KeyObject[],
	isSchedule = false,
): void {
	if (keys.length === 0 || hasSealedPauses(record, digest, sealBy(keys))) return;
	const said = `${recordPlaceOf(file)}: by --key, the pauses of revision ${plan.revision} have no seal that fits (edited, of an older version, or of another key): one may have been taken out.`;
	if (!isSchedule) return void shell.warn(`${said} To pause again: idv fleet pause.`);
	throw new AgentError('plan-outdated', `${said} Nothing was signed.`, {
		remedy:
			'If another key has sealed them, give that one as well. Else ask those who may have paused; to go on, name the plan in force with --previous, or with --allow-moves how many devices may move.',
	});
}

/** Puts a change into the record beside a plan. Where another manager writes there in between, it is put into what that one wrote. */
export async function changeRecord(
	shell: Shell,
	plan: string,
	change: (record: RolloutRecord) => RolloutRecord,
	mayBeDamaged = false,
): Promise<void> {
	const place = recordPlaceOf(await placeOf(plan));
	await withPlace(place, async () => {
		for (let tries = 1; ; tries += 1) {
			const stored = await readStored(shell, place);
			const record = recordIn(stored, plan, mayBeDamaged);
			const changed = change(record);
			if (changed === record) return;
			try {
				return void (await replaceStored(shell, place, `${JSON.stringify(changed)}\n`, stored));
			} catch (error) {
				if (!isOvertaken(error) || tries === MAX_TRIES) throw error;
			}
		}
	});
}

/** Says in the record that the plan was seen where it is published, once the command has told so. Where a store without If-Match takes what two managers write at the same moment, the record may have lost the plan that is published.
 * @throws AgentError `plan-outdated` where the plan itself is another one. */
export async function keepRecorded(
	shell: Shell,
	out: string,
	{ digest }: PlanFile,
	before: Stored | null,
	sign: (record: RolloutRecord) => RolloutRecord,
	tell: () => void,
): Promise<void> {
	// The refused one takes its own signing out, and may do so with a record from before.
	for (let looks = 0; looks < MAX_LOOKS; looks += 1) {
		const own = (await loadRecord(shell, out)).signed.find((one) => one.digest === digest);
		if (own && !own.isUnconfirmed) return;
		const now = await readStored(shell, out);
		if (now && planIn(now.bytes, out).digest !== digest) {
			// A store that takes its time is said already; it may take the plan yet.
			if (isSame(now, before?.bytes)) return;
			throw overtaken(out);
		}
		if (own) tell();
		await changeRecord(shell, out, own ? (record) => confirmed(record, digest) : sign);
	}
}

/** A plan that was seen where it is published is published, whether or not its record says so: an error would ask for the same command again, which goes further if the record was taken after all. */
export async function confirmAt(shell: Shell, place: string, confirm: Promise<void>): Promise<void> {
	await confirm.catch((error: unknown) => {
		if (!(error instanceof AgentError) || ['plan-outdated', 'plan-invalid'].includes(error.code)) throw error;
		shell.warn(
			`${place} is published, and this step is done. ${error.message} Its record may not say yet that this was seen: then the next command stops once, says so, and goes on when it is repeated.`,
		);
	});
}

/** Takes a signing out of the record that another manager's has come before. That counts also where this fails: to repeat the step as it was would be refused. */
export async function dropSigning(shell: Shell, place: string, drop: (record: RolloutRecord) => RolloutRecord) {
	await changeRecord(shell, place, drop).catch((error: unknown) => {
		if (!(error instanceof AgentError)) throw error;
		shell.warn(
			`Another manager came first, and this plan was not published. ${recordPlaceOf(place)} may still name it as signed (${error.message}): where a command asks to repeat it, look first at what ${place} holds, and make the step from that.`,
		);
	});
}

export const isOvertaken = (error: unknown) => error instanceof AgentError && error.code === 'plan-outdated';
