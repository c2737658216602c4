/** `idv fleet next-ring`, `pause` and `rollback`: the next plan, made from the one in force and shown before it is written. */
import type { KeyObject } from 'node:crypto';
import { AgentError } from '../base/errors.ts';
import type { Shell } from '../cli/output.runner.ts';
import { asAssigned, isOver } from '../fleet/brakes.ts';
import { nextPlan, RINGS, type Step } from '../fleet/next-plan.ts';
import { previewPlan } from '../fleet/preview.ts';
import { nextNumber } from '../fleet/record.ts';
import {
	confirmed,
	type Held as HeldBack,
	NO_RECORD,
	partsOf,
	pausedIn,
	type RolloutRecord,
	recordPlaceOf,
	ringSinceMs,
	ringsBefore,
	type Seal,
	type Signing,
	signedSince,
	withPause,
	withPauses,
} from '../fleet/rollout-record.ts';
import { wayBackOf, whoStays } from '../fleet/step-back.ts';
import { compilePlan, hasBegun } from '../fleet/targeting.ts';
import { formatPublicKey } from '../fleet/verify-plan.runner.ts';
import { type Braked, type BrakeFlags, wantChecks, withBrakes, withChecks } from './fleet-brakes.runner.ts';
import {
	envelopeIn,
	type PlanFile,
	parseExactly,
	planIn,
	readPlanFile,
	readPrivateKey,
	refuseErrors,
	refuseForged,
	sealBy,
	writtenIn,
} from './fleet-files.runner.ts';
import { keysLost, publishSigned, refusePastBrake, signPayload, unrecorded } from './fleet-plan.runner.ts';
import { changeRow, nameThose, showChange } from './fleet-preview.runner.ts';
import { askPauses, askSealed, changeRecord, confirmAt, loadRecord } from './fleet-record.runner.ts';
import { overtaken } from './fleet-store.runner.ts';
import { readInventory } from './inventory.runner.ts';
import { replaceFile } from './secret-output.runner.ts';

export interface StepFlags extends BrakeFlags {
	readonly rule?: string | undefined;
	readonly rings?: readonly number[] | undefined;
	readonly startAt?: number | undefined;
	/** One for each signature. */
	readonly key?: readonly string[] | undefined;
	readonly fewerKeys?: boolean | undefined;
	readonly out?: string | undefined;
}

export function nextRing(shell: Shell, flags: StepFlags, file: string): Promise<void> {
	const startAt = flags.startAt === undefined ? undefined : new Date(flags.startAt).toISOString();
	if (startAt !== undefined && Date.parse(startAt) < Date.now())
		shell.warn(`${startAt} has passed: the ring begins as soon as devices take the plan.`);
	return takeStep(shell, { kind: 'next-ring', percents: flags.rings ?? RINGS, startAt }, flags, file);
}

export const pauseRollout = (shell: Shell, flags: StepFlags, file: string) =>
	takeStep(shell, { kind: 'pause' }, flags, file);

export const rollBack = (shell: Shell, flags: StepFlags, file: string) =>
	takeStep(shell, { kind: 'rollback' }, flags, file);

/** With what the record knows of the way back, and says what it does not know. */
function rollbackBy(
	shell: Shell,
	record: RolloutRecord,
	before: PlanFile,
	keys: readonly KeyObject[],
	{ withoutRecord, rule: only, brake }: Pick<StepFlags, 'withoutRecord' | 'rule'> & Pick<Signing, 'brake'>,
): { readonly step: Step; readonly back?: Signing['back'] } {
	const place = recordPlaceOf(before.file);
	const isLost = withoutRecord && record === NO_RECORD;
	if (isLost)
		shell.warn(
			`${place} is damaged or not there. It is not known any more which versions were ordered before, so none is ordered again, and what devices were seen with. A new record takes its place.`,
		);
	const bySealed = askSealed(shell, record, place, keys);
	const ringsOf = (rule: string | null, version: string) => {
		const rings = bySealed((known) => ringsBefore(known, rule, version, Date.now()));
		const name = partOf(rule);
		if (isLost) return rings;
		if (rings.length === 0 && record === NO_RECORD)
			shell.warn(
				`There is no record of what was published: ${place} is not there, and no version is ordered again for ${name}. Name the plan where it is published, or put its record beside it.`,
			);
		else if (rings.length === 0)
			shell.warn(
				`${place} knows no version that ${name} ordered before ${version}: none is ordered again. To order one, sign a plan with it.`,
			);
		return rings;
	};
	// Devices may have a newer plan that was signed: everything goes back, unless that was this same rollback.
	const newer = signedSince(record, before);
	const isOther = newer && newer.brake !== brake;
	const way = isOther ? null : bySealed((known) => wayBackOf(known, before.digest, writtenIn(before), only));
	if (!way) return { step: { kind: 'rollback', before: ringsOf } };
	const written = (words: string | null | undefined) =>
		words == null ? words : (parseExactly(words) as Record<string, unknown>);
	const parts = new Map([...way.parts].map(([name, words]) => [name, written(words)]));
	return { step: { kind: 'rollback', before: ringsOf, way: { parts, order: way.order } }, back: way.back };
}

const NOTHING: Readonly<Record<Step['kind'] | 'noted' | 'unnoted' | 'unknown' | 'repeated', string>> = {
	unnoted: 'No ring is still to come; with --out, next-ring begins none either.',
	unknown: 'No ring is still to come, and its record does not know it: next-ring may begin one of --rings.',
	repeated:
		'By its record, the command that signed it did not see it published. It is published, and this command stops here: once it has said so with --out, the same command continues.',
	'next-ring': 'It has no rollout with a ring to come; there is nothing to do.',
	pause: 'No ring is still to come; there is nothing to pause.',
	noted: 'No ring of it is still to come. Its record says now that it is paused, so that next-ring begins none.',
	rollback: 'It has no rollout to take back: publish the plan from before again, with a higher revision.',
};

async function takeStep(shell: Shell, asked: Step, given: StepFlags, file: string): Promise<void> {
	const flags = await withChecks(given, file);
	const before = await readPlanFile(shell, file);
	const keys = await keysFor(shell, before, flags.key);
	const nowMs = Date.now();
	refuseUnknownRule(before, flags.rule);
	// A store may hold an older plan again, or a run was killed: devices may have what the record knows.
	const record = await recordOf(shell, before, flags);
	const isForward = asked.kind === 'next-ring';
	const ofRule =
		flags.rule === undefined ? '' : ` --rule ${/^[\w.-]+$/.test(flags.rule) ? flags.rule : JSON.stringify(flags.rule)}`;
	const brake = isForward ? undefined : `${asked.kind}${ofRule}`;
	refusePastBrake(record, before, { brake });
	if (await finishes(shell, record, before, brake, flags)) return;
	const unknown = stranger(record, before);
	if (unknown && flags.out !== undefined) shell.warn(unknown);
	const isUnderWay = partsOf(before.plan).some(({ rollout }) => rollout?.rings.some((ring) => hasBegun(ring, nowMs)));
	// It may be paused: a schedule must not go on from a record that was lost.
	if (unknown && isForward && isUnderWay && flags.out !== undefined && given.previous === undefined)
		throw unrecorded(before);
	const newer = signedSince(record, before);
	if (newer)
		shell.warn(
			`${file} holds revision ${before.plan.revision}, and by its record revision ${newer.revision} was signed at ${newer.at}: if that was published, devices have it, and this step is reckoned from an older plan. Then publish that one again first.`,
		);
	const { step, back: taken } =
		asked.kind === 'rollback'
			? rollbackBy(shell, record, before, keys, { ...flags, brake })
			: { step: asked, back: undefined };
	const known = asked.kind === 'rollback' ? record : NO_RECORD;
	const pauses = pausedIn(record, before);
	// The number of devices that are meant to move is a person's word; a schedule has none.
	const paused = flags.allowMoves === undefined ? Object.keys(pauses) : [];
	const sinceMs = (rule: string | null, ring: Parameters<typeof ringSinceMs>[3]) =>
		ringSinceMs(record, before.digest, rule, ring);
	const at = { nowMs, rule: flags.rule, above: newer?.revision, paused, sinceMs };
	const { document, changes, held } = nextPlan(writtenIn(before), before.plan, step, at);
	const heldSince = held.map((rule) => ({ rule, since: pauses[rule ?? ''] ?? '' }));
	const isPause = step.kind === 'pause';
	const stays = isPause ? withPause(pauses, before.plan, { ...at, at: new Date(nowMs).toISOString() }) : pauses;
	if (changes.length === 0) {
		const holds = isPause && Object.keys(stays ?? {}).length > 0;
		if (holds) askPauses(shell, record, before, keys);
		const isNoted = holds && (await notePause(shell, flags.out, before, record, stays, sealBy(keys)));
		const unnoted = flags.out === undefined ? 'unnoted' : 'unknown';
		const why = isNoted ? 'noted' : holds ? unnoted : step.kind;
		return tellNothing(shell, before, why, heldSince, flags.out);
	}
	if (held.length > 0) shell.warn(pausedWords(heldSince));
	const isAlone = isForward && flags.out !== undefined && (given.previous ?? flags.allowMoves) === undefined;
	askPauses(shell, record, before, keys, isAlone);
	if (before.plan.revision === Number.MAX_SAFE_INTEGER)
		throw new AgentError('plan-invalid', `${file} has revision ${before.plan.revision}, and no revision is higher.`, {
			remedy: `Publish it first with ${nextNumber(before.plan)}, in format idv-fleet-plan/2.`,
		});
	if (isForward && flags.key !== undefined) wantChecks(shell, flags, ['inventory', 'maxMoves']);
	const next = await checked(shell, document, before, flags, isForward);
	if (known.seen) warnOfUnseen(shell, next.plan, known.seen.workflows);
	const back =
		isForward || flags.inventory === undefined ? null : await wayBack(before, next, flags.inventory, nowMs, known);
	const preview = back?.preview ?? next.preview;
	const { revision } = next.plan;
	const { cannotGoBack = [], keepVersion = [] } = back ?? {};
	const told = { ...(preview && { preview }), ...(back && { cannotGoBack, keepVersion }) };
	const tell = (saved: Saved | null) => {
		if (shell.isJson) return shell.json({ revision, isFinished: false, changes, ...told, ...saved });
		shell.line(`Revision ${before.plan.revision} → ${revision}:\n`);
		shell.table(changes.map(changeRow));
		showChange(shell, preview);
		nameThose(shell, cannotGoBack, 'cannot go back, because no device installs an older version');
		nameThose(shell, keepVersion, 'would keep their present version, because no other is ordered');
		shell.line(
			saved ? `\nSaved ${saved.file}.` : '\nNothing was written: name a file with --out, and a key with --key.',
		);
	};
	const holds = { brake, paused: isForward ? undefined : stays, decidedBy: pauses };
	const way = taken && { before: {}, back: taken };
	await save(shell, { ...next, preview }, before, keys, flags, { ...holds, ...way }, tell);
}

function refuseUnknownRule({ plan }: PlanFile, rule: string | undefined): void {
	const names = plan.rules.map(({ name }) => name);
	if (rule === undefined || names.includes(rule)) return;
	throw new AgentError('usage', 'The plan has no rule of that name.', { remedy: `Name one of: ${names.join(', ')}.` });
}

/** Those that sign the next plan, where one of them has signed the plan in force as it is. */
async function keysFor(shell: Shell, before: PlanFile, files: readonly string[] = []): Promise<KeyObject[]> {
	const keys = await Promise.all(files.map((file) => readPrivateKey(shell, file)));
	if (keys.length > 0) refuseForged(before, keys.map(formatPublicKey));
	return keys;
}

interface Held {
	readonly rule: string | null;
	/** ISO 8601. */
	readonly since: string;
}

function tellNothing(
	shell: Shell,
	{ file, plan: { revision } }: PlanFile,
	why: keyof typeof NOTHING,
	held: readonly Held[],
	out: string | undefined,
): void {
	const paused = held.length > 0 && { paused: held };
	const isRepeat = why === 'repeated';
	const unwritten = out === undefined ? '' : ` ${out} was not written.`;
	if (shell.isJson)
		shell.json({ revision, isFinished: !paused && !isRepeat, changes: [], ...paused, ...(isRepeat && { isRepeat }) });
	else shell.line(`${file}, revision ${revision}: ${paused ? pausedWords(held) : NOTHING[why]}${unwritten}`);
}

/** Whether the plan in force is that of this same command, which did not see it published: a person repeats it, and has seen no device since. */
async function finishes(
	shell: Shell,
	{ signed }: RolloutRecord,
	before: PlanFile,
	brake: Signing['brake'],
	{ out, withoutRecord }: StepFlags,
): Promise<boolean> {
	const { file, digest } = before;
	const last = signed.at(-1);
	if (last?.digest !== digest || !last.isUnconfirmed || last.brake !== brake) return false;
	tellNothing(shell, before, 'repeated', [], undefined);
	shell.isStream = true;
	for (const place of out === undefined ? [] : new Set([file, out]))
		await confirmAt(
			shell,
			place,
			changeRecord(shell, place, (record) => confirmed(record, digest), withoutRecord),
		);
	return true;
}

/** A schedule takes the next of its own rings where the plan lists none. @returns whether the record knows the plan. */
async function notePause(
	shell: Shell,
	out: string | undefined,
	before: PlanFile,
	known: RolloutRecord,
	paused: NonNullable<Signing['paused']>,
	seal: Seal,
) {
	let isNoted = false;
	if (out === undefined) return isNoted;
	const { digest } = before;
	await changeRecord(shell, out, (record) => {
		isNoted = record.signed.some((one) => one.digest === digest);
		const isOlder = record.signed.at(-1)?.digest !== known.signed.at(-1)?.digest;
		if (isNoted && isOlder) throw overtaken(recordPlaceOf(out));
		return isNoted ? withPauses(record, digest, paused, seal) : record;
	});
	const after = isNoted ? await loadRecord(shell, out) : NO_RECORD;
	if (isNoted && Object.keys(paused).some((part) => !Object.hasOwn(pausedIn(after, before), part)))
		throw new AgentError(
			'bad-response',
			`${recordPlaceOf(out)} does not say that it is paused: it was not kept there.`,
			{
				remedy: 'Repeat the same command until it ends well: only its record could tell next-ring of the pause.',
			},
		);
	return isNoted;
}

export function pausedWords(held: readonly Held[]): string {
	const parts = held.map(({ rule, since }) => `${partOf(rule)} since ${since}`).join(', ');
	return `Paused (idv fleet pause): ${parts}. No ring begins there. To go on, say with --allow-moves how many devices may move, or sign a plan that goes further.`;
}

const partOf = (rule: string | null) => (rule === null ? 'the defaults' : `rule ${rule}`);

/** That of the place where the next plan goes, where it knows the plan: this may be a copy of it. */
async function recordOf(shell: Shell, { file, digest }: PlanFile, { out, withoutRecord }: StepFlags) {
	const beside = out === undefined || out === file ? NO_RECORD : await loadRecord(shell, out, withoutRecord);
	return beside.signed.some((one) => one.digest === digest) ? beside : loadRecord(shell, file, withoutRecord);
}

/** A way back is not refused for a plan that the record does not know, and a next ring not for a record that is not there. */
function stranger(record: RolloutRecord, { file, digest, plan }: PlanFile): string | null {
	const place = recordPlaceOf(file);
	if (record === NO_RECORD) return `${place} is not there: nothing is known of what was signed before.`;
	if (record.signed.some((one) => one.digest === digest)) return null;
	const fleet = plan.fleet === undefined ? 'of no fleet' : `of the fleet ${JSON.stringify(plan.fleet)}`;
	return `${file} holds revision ${plan.revision} ${fleet}, which ${place} does not know: see that it is the plan of this fleet.`;
}

/** A step before the newest one may be a slip that no device could follow. */
function warnOfUnseen(shell: Shell, { defaults, rules }: PlanFile['plan'], seen: readonly string[]): void {
	const named = [defaults, ...rules].flatMap((words) => words?.workflowId ?? []);
	const unseen = [...new Set(named)].filter((one) => !seen.includes(one));
	if (unseen.length > 0)
		shell.warn(
			`It goes back to ${unseen.join(', ')}, and no device was seen with that. Devices were seen with ${seen.join(', ') || 'none'}: to go back to one of these, sign a plan with it.`,
		);
}

/** The devices that go back, and those that do not. */
async function wayBack(before: PlanFile, next: PlanFile, inventory: string, nowMs: number, known: RolloutRecord) {
	const devices = await readInventory(inventory);
	// What was ordered and never seen is not what devices come from.
	const had = (workflowId: string | null) =>
		workflowId === null || (known.seen?.workflows.includes(workflowId) ?? true);
	const assigned = asAssigned(devices, before.plan, nowMs).map((device, index) => ({
		...device,
		workflowId: had(device.workflowId) ? device.workflowId : (devices[index]?.workflowId ?? null),
	}));
	const [old, compiled] = [compilePlan(before.plan), compilePlan(next.plan)];
	const { has, ...stays } = whoStays([old, compiled], assigned, known, nowMs);
	return { preview: previewPlan(compiled, has, nowMs), ...stays };
}

/** The new plan as any plan is read; a way back is never stopped by a brake. */
async function checked(
	shell: Shell,
	document: object,
	before: PlanFile,
	flags: StepFlags,
	isForward: boolean,
): Promise<Braked> {
	const payload = Buffer.from(`${JSON.stringify(document, null, 2)}\n`);
	const file: PlanFile = { ...planIn(payload, 'The next plan'), findings: [] };
	if (isOver(file.plan, Date.now()))
		throw new AgentError(
			'plan-invalid',
			`${before.file} is valid until ${file.plan.validUntil}, which is over: no device would follow the next plan.`,
			{
				remedy: isForward
					? 'Sign this plan with a later validUntil and a higher revision, then run this command again.'
					: 'Sign a plan without this rollout, with a later validUntil and a higher revision: this one itself would begin it again.',
			},
		);
	const { inventory, withoutRecord } = flags;
	const braked = await withBrakes(shell, file, isForward ? flags : { inventory, withoutRecord }, before);
	if (!isForward) return { ...braked, isNamed: true };
	refuseErrors(braked);
	return braked;
}

interface Saved {
	readonly file: string;
	readonly publicKey?: string | undefined;
}

async function save(
	shell: Shell,
	next: Braked,
	before: PlanFile,
	keys: readonly KeyObject[],
	{ out, fewerKeys, withoutRecord }: StepFlags,
	held: Pick<Parameters<typeof publishSigned>[4], 'decidedBy'> & HeldBack,
	tell: (saved: Saved | null) => void,
): Promise<void> {
	if (out === undefined) return tell(null);
	if (keys.length === 0) return tell({ file: await replaceFile(out, new TextDecoder().decode(next.payload), 0o644) });
	let signed: ReturnType<typeof signPayload> | null = null;
	for (const key of keys) signed = signPayload(next.payload, key, signed && envelopeIn(Buffer.from(signed.text)), out);
	const { text = '', publicKey } = signed ?? {};
	const lost = keysLost(before, text);
	if (lost.keys.length > 0 && !fewerKeys)
		throw new AgentError('usage', lost.said, {
			remedy: 'Give each key with --key; where no device needs it any more, pass --fewer-keys.',
		});
	const tellFile = (file: string) => tell({ file, publicKey });
	await publishSigned(shell, out, text, next, { withoutRecord, keys, ...held, tell: tellFile });
}
