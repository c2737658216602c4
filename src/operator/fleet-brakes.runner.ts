/** The flags of `check`, `sign` and `next-ring` that stop a slip, the file beside the plan that stands in for them, and what they name. */
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { errnoOf } from '../base/files.edge.ts';
import { share } from '../cli/command-line.runner.ts';
import type { Shell } from '../cli/output.runner.ts';
import { applyBrakes, asAssigned, isOver } from '../fleet/brakes.ts';
import type { Finding } from '../fleet/lint.ts';
import { type InventoryDevice, type PlanPreview, previewPlan } from '../fleet/preview.ts';
import { compilePlan } from '../fleet/targeting.ts';
import { parseJson } from '../protocol/json.ts';
import { damageAt } from './fleet-damage.runner.ts';
import { type PlanFile, placed, planAt, readPlanFile } from './fleet-files.runner.ts';
import { lookAtRecord, NONE } from './fleet-record.runner.ts';
import { isAddress, readBounded, readStored } from './fleet-store.runner.ts';
import { readInventory } from './inventory.runner.ts';

const MAX_NAMES_BYTES = 1024 * 1024;
/** Beside the plan; its paths are relative to it. */
const CHECKS_FILE = 'fleet-checks.json';

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
	// Where a person says that no plan is in force, a damaged one is none.
	const isNone = flags.previous === NONE && published && (await damageAt(shell, published.bytes, String(known)));
	const inForce = published && !isNone ? await planAt(shell, published.bytes, String(known)) : null;
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
