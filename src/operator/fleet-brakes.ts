/** The flags of `check`, `sign` and `next-ring` that stop a slip, the file beside the plan that stands in for them, and what they name. */
import type { KeyObject } from 'node:crypto';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { errnoOf } from '../base/files.edge.ts';
import { share } from '../cli/command-line.ts';
import { counted, type Shell } from '../cli/output.ts';
import { applyBrakes, asAssigned, isOver } from '../fleet/brakes.ts';
import type { Finding } from '../fleet/lint.ts';
import { type InventoryDevice, type PlanPreview, previewPlan } from '../fleet/preview.ts';
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
import { compilePlan } from '../fleet/targeting.ts';
import { parseJson } from '../protocol/json.ts';
import { damageAt } from './fleet-damage.ts';
import { type PlanFile, placed, planAt, planIn, readPlanFile, sealBy } from './fleet-files.ts';
import {
	isAddress,
	isSame,
	overtaken,
	placeOf,
	readBounded,
	readStored,
	replaceStored,
	type Stored,
	withPlace,
} from './fleet-store.ts';
import { readInventory } from './inventory.ts';

const MAX_NAMES_BYTES = 1024 * 1024;
/** How often a record is read again because another manager has changed it. */
const MAX_TRIES = 20;
/** How often the record is looked at after a plan was published. */
const MAX_LOOKS = 5;
/** Beside the plan; its paths are relative to it. */
const CHECKS_FILE = 'fleet-checks.json';
/** In place of the plan in force, for the first plan of a fleet. */
const NONE = 'none';

export interface BrakeFlags {
	readonly inventory?: string | undefined;
	/** The plan in force, as it was seen last; `none` for the first plan of a fleet. */
	readonly previous?: string | undefined;
	/** A file, or names with commas between them. */
	readonly workflows?: string | undefined;
	readonly maxMoves?: number | undefined;
	readonly allowMoves?: number | undefined;
	readonly allowWorkflow?: readonly string[] | undefined;
	readonly allowVersion?: readonly string[] | undefined;
	readonly allowEmptyRing?: boolean | undefined;
	readonly allowRepeat?: boolean | undefined;
	readonly unchecked?: boolean | undefined;
	/** Goes on where the record is damaged, as without one. */
	readonly withoutRecord?: boolean | undefined;
	/** Signs nothing: a damaged record is a warning. */
	readonly isLook?: boolean | undefined;
}

const checksSchema = z.strictObject({
	inventory: z.string().optional(),
	previous: z.string().nullable().optional(),
	workflows: z.union([z.string(), z.array(z.string())]).optional(),
	maxMoves: z.union([z.string(), z.number().min(0).max(1)]).optional(),
});

/** The flags, and for those that are not given the words of the file beside the plan. @throws AgentError `settings-invalid`. */
export async function withChecks<Flags extends BrakeFlags>(flags: Flags, plan: string): Promise<Flags> {
	if (flags.unchecked) return flags;
	const directory = isAddress(plan) ? '.' : dirname(plan);
	const file = join(directory, CHECKS_FILE);
	const text = await readBounded(file, MAX_NAMES_BYTES, 'settings-invalid', 'checks').catch((error: AgentError) => {
		if (errnoOf(error.cause) === 'ENOENT') return null;
		throw error;
	});
	if (text === null) return flags;
	const read = checksSchema.safeParse(parseJson(new TextDecoder().decode(text)));
	if (!read.success) {
		const [issue] = read.error.issues;
		throw new AgentError('settings-invalid', `${file}: /${issue?.path.join('/') ?? ''}: ${issue?.message}.`, {
			remedy: 'It holds "inventory", "previous", "workflows" and "maxMoves", as the flags of these names.',
		});
	}
	const { inventory, previous, workflows, maxMoves } = read.data;
	const beside = (name: string) => (isAddress(name) ? name : join(directory, name));
	const names = Array.isArray(workflows) ? workflows.join(',') : workflows;
	return {
		...flags,
		inventory: flags.inventory ?? (inventory && beside(inventory)),
		previous: flags.previous ?? (previous === null ? NONE : previous && beside(previous)),
		workflows: flags.workflows ?? (names !== undefined && /[./]/.test(names) ? beside(names) : names),
		maxMoves: flags.maxMoves ?? (typeof maxMoves === 'string' ? share(maxMoves) : maxMoves),
	};
}

/** A signature is a move of devices: what would notice a slip is wanted. @throws AgentError `usage`. */
export function wantChecks(shell: Shell, flags: BrakeFlags, wanted: readonly (keyof BrakeFlags)[]): void {
	const isGiven = (name: keyof BrakeFlags) =>
		flags[name] !== undefined || (name === 'maxMoves' && flags.allowMoves !== undefined);
	const missing = wanted.filter((name) => !isGiven(name));
	if (missing.length === 0) return;
	const names = missing.map((name) => `--${name.replace('M', '-m')}`).join(', ');
	if (flags.unchecked) shell.warn(`Signed unchecked, without ${names}: nothing but the plan itself was looked at.`);
	else
		throw new AgentError('usage', `A slip would go unnoticed without ${names}.`, {
			remedy: `Give them, or write them into ${CHECKS_FILE} beside the plan; --unchecked signs all the same.`,
		});
}

export interface Braked extends PlanFile {
	readonly previous: PlanFile | null;
	/** The digest of the plan in force that this one was compared with, `null` for none; `undefined` where it was not compared. */
	readonly seen: string | null | undefined;
	/** Whether a person has named the plan in force; else it is what is published. */
	readonly isNamed: boolean;
	/** Who moves; `null` without an inventory. */
	readonly preview: PlanPreview | null;
}

/** The plan with its findings and those of the brakes, errors first.
 * @param known the plan in force, where it is read already, or where it is published. */
export async function withBrakes(
	shell: Shell,
	read: PlanFile,
	flags: BrakeFlags,
	known?: PlanFile | string,
): Promise<Braked> {
	const { maxMoves, allowMoves } = flags;
	if (flags.inventory === undefined && (maxMoves ?? allowMoves) !== undefined)
		throw new AgentError('usage', '--max-moves and --allow-moves require --inventory FILE: it says who would move.');
	const nowMs = Date.now();
	const isNamed = flags.previous !== undefined && flags.previous !== NONE && typeof known !== 'object';
	const published = !isNamed && typeof known === 'string' ? await readStored(shell, known) : null;
	const named = isNamed ? await readPlanFile(shell, flags.previous ?? '') : null;
	const inForce = published && (await publishedPlan(shell, published, String(known), flags.previous === NONE));
	const previous = typeof known === 'object' ? known : (named ?? inForce);
	const inventory =
		flags.inventory === undefined ? undefined : await readInventory(flags.inventory, (said) => shell.warn(said));
	const place = typeof known === 'object' ? known.file : (known ?? flags.previous ?? read.file);
	// That a name was signed does not say that any device ever had it: a slip is signed, fails and is taken back.
	const { record, damage } = await lookAtRecord(shell, place, flags.withoutRecord);
	if (damage && !flags.isLook) throw damage;
	if (damage) shell.warn(`${damage.message} Workflows and versions that only it knows count as new.`);
	const { seen, signed } = record;
	const more = applyBrakes(read.plan, {
		nowMs,
		previous: previous
			? { plan: previous.plan, isSame: previous.digest === read.digest, isReplaced: previous === inForce }
			: undefined,
		inventory,
		workflows: flags.workflows === undefined ? undefined : await readNames(flags.workflows),
		maxMoves,
		allowMoves,
		known: {
			workflows: [...(seen?.workflows ?? []), ...(flags.allowWorkflow ?? [])],
			versions: [...(seen?.versions ?? []), ...(flags.allowVersion ?? [])],
		},
		allowEmptyRing: flags.allowEmptyRing,
		// A second signature says nothing new; and who did not see his plan published repeats the command.
		allowRepeat:
			flags.allowRepeat || read.isSigned || signed.some((one) => one.digest === read.digest && one.isUnconfirmed),
	});
	const findings = [...read.findings, ...placed(more, new TextDecoder().decode(read.payload))];
	const rank = ({ level }: { readonly level: Finding['level'] }) => (level === 'error' ? 0 : 1);
	const preview = inventory ? changeOf(read, previous, inventory, nowMs) : null;
	return {
		...read,
		findings: findings.sort((a, b) => rank(a) - rank(b)),
		previous,
		seen:
			flags.previous === NONE && typeof known !== 'object'
				? null
				: known === undefined
					? named?.digest
					: (previous?.digest ?? null),
		isNamed: flags.previous !== undefined,
		preview,
	};
}

/** @param isFirst whether a person says that no plan is in force: then a damaged one is none. */
async function publishedPlan(
	shell: Shell,
	{ bytes }: Stored,
	place: string,
	isFirst: boolean,
): Promise<PlanFile | null> {
	return isFirst && (await damageAt(shell, bytes, place)) ? null : planAt(shell, bytes, place);
}

/** From what the plan in force says to what the new one says, whatever the inventory knows of workflows. */
export function changeOf(
	{ plan }: Pick<PlanFile, 'plan'>,
	before: Pick<PlanFile, 'plan'> | null,
	inventory: readonly InventoryDevice[],
	nowMs: number,
): PlanPreview {
	const devices = inventory.length;
	// Who follows another plan stays with it.
	if (before && isOver(plan, nowMs)) return { devices, moves: 0, stays: devices, leftAlone: 0, groups: [] };
	return previewPlan(compilePlan(plan), asAssigned(inventory, before?.plan ?? null, nowMs), nowMs);
}

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

/** Names as a list in JSON, one on each line, or with commas between them. @throws AgentError `usage`. */
async function readNames(given: string): Promise<string[]> {
	const bytes = await readBounded(given, MAX_NAMES_BYTES, 'inventory-invalid', 'workflows').catch((error) => {
		const isFile = /\/|\.(txt|csv|json|lst|list)$/i.test(given);
		if (errnoOf((error as Error).cause) === 'ENOENT' && !isFile) return null;
		throw error;
	});
	const text = bytes === null ? given : new TextDecoder().decode(bytes).replace(/^\ufeff/, '');
	const names = /^\s*\[/.test(text) ? namesInJson(text, given) : text.split(/[\n,;]/);
	const found = names.map((name) => name.trim().replace(/^"(.*)"$/, '$1')).filter((name) => name !== '');
	if (found.length > 0) return found;
	throw new AgentError('usage', '--workflows names no workflow.', { remedy: 'Give a file, or names such as a,b,c.' });
}

function namesInJson(text: string, file: string): string[] {
	const document = parseJson(text);
	if (Array.isArray(document) && document.every((name) => typeof name === 'string')) return document;
	throw new AgentError('inventory-invalid', `${file} is not a list of names in JSON.`, {
		remedy: 'Write ["a", "b"], or one name on each line.',
	});
}
