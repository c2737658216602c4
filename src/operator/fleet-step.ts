/** `idv fleet next-ring`, `pause` and `rollback`: the next plan, made from the one in force and shown before it is written. */
import { AgentError } from '../base/errors.ts';
import type { Shell } from '../cli/output.ts';
import { nextPlan, RINGS, type RolloutChange, type Step } from '../fleet/next-plan.ts';
import { nextNumber } from '../fleet/record.ts';
import { readPlan } from '../fleet/verify-plan.runner.ts';
import { type BrakeFlags, withBrakes } from './fleet-brakes.ts';
import { type PlanFile, readPlanFile, readPrivateKey, refuseErrors } from './fleet-files.ts';
import { signPayload } from './fleet-plan.ts';
import { previewChange, showChange } from './fleet-preview.ts';
import { replaceFile } from './secret-output.ts';

export interface StepFlags extends BrakeFlags {
	readonly rule?: string | undefined;
	readonly rings?: readonly number[] | undefined;
	readonly startAt?: number | undefined;
	readonly key?: string | undefined;
	readonly out?: string | undefined;
}

export function nextRing(shell: Shell, flags: StepFlags, file: string): Promise<void> {
	const startAt = flags.startAt === undefined ? undefined : new Date(flags.startAt).toISOString();
	return takeStep(shell, { kind: 'next-ring', percents: flags.rings ?? RINGS, startAt }, flags, file);
}

export const pauseRollout = (shell: Shell, flags: StepFlags, file: string) =>
	takeStep(shell, { kind: 'pause' }, flags, file);
export const rollBack = (shell: Shell, flags: StepFlags, file: string) =>
	takeStep(shell, { kind: 'rollback' }, flags, file);

/** With each number as it is written, also one in `extensions` that JavaScript would round. */
function parseExactly(text: string): unknown {
	type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;
	const { parse, rawJSON } = JSON as unknown as {
		parse(text: string, reviver: Reviver): unknown;
		rawJSON(text: string): unknown;
	};
	return parse(text, (_, value, { source }) =>
		typeof value === 'number' && source !== undefined && String(value) !== source ? rawJSON(source) : value,
	);
}

const NOTHING: Readonly<Record<Step['kind'], string>> = {
	'next-ring': 'Every ring of its rollouts has begun; there is nothing to do.',
	pause: 'No ring is still to come; there is nothing to pause.',
	rollback: 'It has no rollout to take back: publish the plan from before again, with a higher revision.',
};

async function takeStep(shell: Shell, step: Step, flags: StepFlags, file: string): Promise<void> {
	const before = await readPlanFile(file);
	const nowMs = Date.now();
	const names = before.plan.rules.map(({ name }) => name);
	if (flags.rule !== undefined && !names.includes(flags.rule))
		throw new AgentError('usage', 'The plan has no rule of that name.', {
			remedy: `Name one of: ${names.join(', ')}.`,
		});
	const written = parseExactly(new TextDecoder().decode(before.payload)) as Record<string, unknown>;
	const { document, changes } = nextPlan(written, before.plan, step, { nowMs, rule: flags.rule });
	if (changes.length === 0) {
		if (shell.isJson) return shell.json({ revision: before.plan.revision, isFinished: true, changes });
		return shell.line(`${file}, revision ${before.plan.revision}: ${NOTHING[step.kind]}`);
	}
	if (before.plan.revision === Number.MAX_SAFE_INTEGER)
		throw new AgentError('plan-invalid', `${file} has revision ${before.plan.revision}, and no revision is higher.`, {
			remedy: `Publish it first with ${nextNumber(before.plan)}, in format idv-fleet-plan/2.`,
		});
	const next = await checked(document, before, step, flags);
	const preview = await previewChange(before.plan, next.plan, flags.inventory, nowMs);
	const saved = await save(shell, next, flags);
	const { revision } = next.plan;
	if (shell.isJson) return shell.json({ revision, isFinished: false, changes, ...(preview && { preview }), ...saved });
	shell.line(`Revision ${before.plan.revision} → ${revision}:\n`);
	shell.table(changes.map(rowOf));
	showChange(shell, preview);
	shell.line(saved ? `\nSaved ${saved.file}.` : '\nNothing was written: name a file with --out, and a key with --key.');
}

function rowOf({ rule, to, version, before, after }: RolloutChange): string[] {
	const name = rule === null ? 'defaults' : `rule ${rule}`;
	const words = [to, version && `version ${version}`].filter(Boolean).join(' and ') || 'other settings';
	// No device installs an older version than it has had.
	const stays = version === null ? '' : '; the version stays where it is installed';
	const back = `${to === null && version !== null ? 'no ring' : 'all back'}${stays}`;
	const share = after === 0 ? back : `${after} %`;
	return [name, `to ${words}`, `${before} %`, '→', before === after ? `${share}, no ring more` : share];
}

/** The new plan as any plan is read; a way back is never stopped by a brake. */
async function checked(document: object, before: PlanFile, step: Step, flags: StepFlags): Promise<PlanFile> {
	const payload = Buffer.from(`${JSON.stringify(document, null, 2)}\n`);
	const reading = readPlan(payload, 'The next plan', []);
	if (!reading.ok) throw new AgentError('plan-invalid', reading.problems.map(({ message }) => message).join('\n'));
	const file: PlanFile = { ...reading.read, file: 'The next plan', payload, bytes: before.bytes, findings: [] };
	if (step.kind !== 'next-ring') return file;
	const braked = await withBrakes(file, { ...flags, previous: before.file });
	refuseErrors(braked);
	return braked;
}

async function save(shell: Shell, { payload }: PlanFile, { key, out }: StepFlags) {
	if (out === undefined) return null;
	if (key === undefined) return { file: await replaceFile(out, new TextDecoder().decode(payload), 0o644) };
	const { text, publicKey } = signPayload(payload, await readPrivateKey(shell, key), null, out);
	return { file: await replaceFile(out, text, 0o644), publicKey };
}
