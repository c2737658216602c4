/** `idv fleet keygen`, `check`, `sign` and `diff`: keys and plans on an operator's machine. Asks no service. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { AgentError, EXIT } from '../base/errors.ts';
import { counted, type Shell } from '../cli/output.runner.ts';
import { isOver } from '../fleet/brakes.ts';
import { PLAN_PAYLOAD_TYPE, type PlanEnvelope, signedBytes } from '../fleet/plan-format.ts';
import { diffPlans } from '../fleet/preview.ts';
import { comparePlans, nextNumber } from '../fleet/record.ts';
import {
	brakesSince,
	type Held,
	NO_RECORD,
	notedSince,
	pausesKept,
	type RolloutRecord,
	recordPlaceOf,
	repeatOf,
	type Signing,
	signedSince,
	withoutSigning,
	withSigning,
} from '../fleet/rollout-record.ts';
import { changedBy } from '../fleet/step-back.ts';
import { takesBack } from '../fleet/takes-back.ts';
import { formatPublicKey, readPlan } from '../fleet/verify-plan.runner.ts';
import { type Braked, type BrakeFlags, wantChecks, withBrakes, withChecks } from './fleet-brakes.runner.ts';
import { damageAt, withoutDamaged } from './fleet-damage.runner.ts';
import {
	checkPublicKeys,
	envelopeIn,
	type PlanFile,
	planIn,
	readPlanFile,
	readPrivateKey,
	refuseErrors,
	refuseForged,
	sealBy,
	writtenIn,
} from './fleet-files.runner.ts';
import { OVER, showChange } from './fleet-preview.runner.ts';
import {
	askPauses,
	changeRecord,
	confirmAt,
	dropSigning,
	isOvertaken,
	keepRecorded,
	loadRecord,
} from './fleet-record.runner.ts';
import { overtaken, readStored, replaceStored, withPlace } from './fleet-store.runner.ts';
import { saveSecret } from './secret-output.runner.ts';

export async function makeFleetKey(shell: Shell, flags: { readonly out: string }): Promise<void> {
	const make = async () => generateKeyPairSync('ed25519').privateKey;
	const { made, path } = await saveSecret(shell, flags.out, make, (key) =>
		key.export({ format: 'pem', type: 'pkcs8' }),
	);
	const publicKey = formatPublicKey(made);
	if (shell.isJson) return shell.json({ file: path, publicKey });
	shell.table([
		['Private key', `${path} (mode 0600; its holder can move the fleet)`],
		['Public key', publicKey],
	]);
	shell.line('\nGive every device the public key: fleet.publicKeys in its settings.');
}

export async function checkFleetPlan(
	shell: Shell,
	given: BrakeFlags & { readonly publicKey?: readonly string[] },
	file: string,
): Promise<void> {
	const flags = { ...(await withChecks(given, file)), isLook: true };
	const read = await withBrakes(shell, await readPlanFile(shell, file, checkPublicKeys(flags.publicKey ?? [])), flags);
	const { plan, isSigned, verifiedBy, findings } = read;
	const errors = findings.filter(({ level }) => level === 'error');
	if (errors.length > 0) shell.caller.exitCode = EXIT.badData;
	if (shell.isJson) {
		const { format, fleet = null, epoch = 0, revision, validUntil = null, rules, spreadSeconds } = plan;
		const said = { file, format, fleet, epoch, revision, validUntil, rules: rules.length, spreadSeconds };
		return shell.json({ ...said, isSigned, verifiedBy, findings });
	}
	const signature = verifiedBy ? 'signed by this key' : isSigned ? 'signed, not verified (--public-key)' : 'not signed';
	const rules = counted(plan.rules.length, 'rule');
	const name = [
		...(plan.fleet === undefined ? [] : [`fleet ${plan.fleet}`]),
		...(plan.epoch ? [`epoch ${plan.epoch}`] : []),
		`revision ${plan.revision}`,
		...(plan.validUntil === undefined ? [] : [`valid until ${plan.validUntil}`]),
	].join(', ');
	shell.line(`${file}: ${name}, ${rules}, spread over ${plan.spreadSeconds} s, ${signature}.`);
	for (const { level, place, message } of findings)
		shell.line(`${level === 'error' ? 'Error' : 'Note'}: ${place}: ${message}`);
	if (errors.length === 0) shell.line('Nothing is wrong with it.');
}

/** A signed plan gets one more signature: so a fleet changes its key without a moment in which a device trusts none. */
export async function signFleetPlan(
	shell: Shell,
	given: BrakeFlags & { readonly key: string; readonly out?: string },
	file: string,
): Promise<void> {
	const flags = await withChecks(given, file);
	const key = await readPrivateKey(shell, flags.key);
	const bare = await readPlanFile(shell, file);
	const { out } = flags;
	const read = await withBrakes(shell, bare, flags, flags.unchecked ? undefined : out);
	// One more signature moves no device, and what is published is a plan that was seen.
	const isNew = !bare.isSigned;
	refuseErrors(read);
	if (isNew) wantChecks(shell, { ...flags, previous: flags.previous ?? read.previous?.file }, WANTED);
	const { text, publicKey, signatures } = signPayload(read.payload, key, envelopeIn(read.bytes), file);
	if (!isNew) await refuseUnverified(shell, bare, publicKey, out ?? file);
	else refuseStranger(shell, text, read.previous, publicKey);
	if (isNew && read.previous) askPauses(shell, await loadRecord(shell, out ?? file), read.previous, [key]);
	for (const { place, message } of read.findings) shell.warn(`${place}: ${message}`);
	const { preview } = read;
	if (out === undefined) {
		showChange(shell.onStderr(), preview);
		return void shell.caller.stdout.write(text);
	}
	const { revision } = read.plan;
	const tell = (place: string) => {
		if (shell.isJson) return shell.json({ file: place, revision, publicKey, signatures, ...(preview && { preview }) });
		shell.table([
			['Saved', place],
			['Revision', String(revision)],
			['Signed by', publicKey],
			...(signatures > 1 ? [['Signatures', String(signatures)]] : []),
		]);
		showChange(shell, preview);
	};
	await publishSigned(shell, out, text, read, { unchecked: flags.unchecked, keys: [key], tell });
}

/** Devices stay with the plan in force where none of its keys signs the next one, and nothing that is reckoned from that one would be so. */
function refuseStranger(shell: Shell, text: string, previous: PlanFile | null, publicKey: string): void {
	const before = previous ? keyidsIn(previous.bytes) : [];
	if (previous === null || before.length === 0) return;
	const { keys, said } = keysLost(previous, text);
	if (keys.length === before.length)
		throw new AgentError(
			'usage',
			`${previous.file} is signed by another key (${before.join(', ')}): devices that have only that in fleet.publicKeys would refuse this plan.`,
			{ remedy: 'Sign with a key of the plan in force. Where every device has this one, docs/plan-keys.md says how.' },
		);
	refuseForged(previous, [publicKey]);
	if (keys.length > 0)
		shell.warn(`${said} Where there are any, sign this plan, once it is signed, with that key as well.`);
}

/** Those that have signed the plan in force, and not the text of the next one. */
export function keysLost({ file, bytes }: PlanFile, text: string) {
	const own = keyidsIn(Buffer.from(text));
	const keys = keyidsIn(bytes).filter((keyid) => !own.includes(keyid));
	const said = `${file} is signed by ${counted(keys.length, 'key')} more (${keys.join(', ')}): devices that have only that in fleet.publicKeys would refuse the next plan.`;
	return { keys, said };
}

const keyidsIn = (bytes: Uint8Array) => envelopeIn(bytes)?.signatures.map(({ keyid }) => keyid) ?? [];

/** One more signature says that the plan is this key's, too. Of another key's signature only the public half could tell; what was published, the record knows, and its place still holds. */
async function refuseUnverified(shell: Shell, signed: PlanFile, publicKey: string, place: string): Promise<void> {
	if (keyidsIn(signed.bytes).includes(keyidOf(publicKey))) refuseForged(signed, [publicKey]);
	else if (
		envelopeIn(signed.bytes)?.payload !== envelopeIn((await readStored(shell, place))?.bytes)?.payload ||
		!isRecorded(await loadRecord(shell, place, true), signed)
	)
		shell.warn(
			`${signed.file} is signed by other keys, and is not the plan that is published by its record: idv fleet check with --public-key says whether their signatures fit.`,
		);
}

const WANTED = ['inventory', 'previous', 'workflows', 'maxMoves'] as const;

/** Puts a signed plan where devices fetch it, and the record of it beside it: the record first, which knows of both plans whatever happens in between.
 * @throws AgentError `plan-outdated` where another plan is there than was seen last. */
export async function publishSigned(
	shell: Shell,
	out: string,
	text: string,
	plan: Braked,
	{
		withoutRecord = false,
		unchecked = false,
		decidedBy,
		keys,
		tell,
		brake: step,
		paused,
		...back
	}: Pick<BrakeFlags, 'withoutRecord' | 'unchecked'> & {
		/** The pauses of the plan in force, as the command that has numbered this one read them. */
		readonly decidedBy?: Signing['paused'];
		readonly keys: readonly KeyObject[];
		/** Gives the result, with the place: a command that is killed before it has must not look as if it had been seen. */
		readonly tell: (place: string) => void;
	} & Held,
): Promise<void> {
	return withPlace(out, async () => {
		const stored = await readStored(shell, out);
		const damage = stored && (await damageAt(shell, stored.bytes, out));
		const inForce = stored && !damage ? planIn(stored.bytes, out) : null;
		const there = inForce?.digest ?? null;
		const isSeen = plan.seen === undefined || plan.seen === there;
		const warnsOf = (refuse: () => void) => {
			try {
				refuse();
			} catch (error) {
				if (!unchecked) throw error;
				warnings.add((error as AgentError).message);
			}
		};
		const warnings = new Set<string>();
		if (inForce) warnsOf(() => refuseOtherFleet(inForce, plan));
		const brake = step ?? (inForce && takesBack(inForce.plan, plan.plan) ? 'sign' : undefined);
		const at = new Date().toISOString();
		const moves = plan.preview?.groups ?? [];
		let unheard: Signing | undefined;
		let before = NO_RECORD;
		// A rollback that the record knows no way of ends what can be taken back by it.
		const changes = inForce && !step?.startsWith('rollback') ? changedBy(writtenIn(inForce), writtenIn(plan)) : {};
		// No key seals words of a plan that it has not signed: others may have put it there.
		const isOwn = !inForce || readPlan(inForce.bytes, out, keys.map(formatPublicKey), { isForPeople: true }).ok;
		const seal = sealBy(isOwn ? keys : []);
		// A damaged plan was seen before, and may be paused.
		const replaced = inForce ?? plan.previous;
		const noted = (record: RolloutRecord) =>
			decidedBy && plan.previous ? notedSince(record, plan.previous, decidedBy) : undefined;
		const sign = (record: RolloutRecord) => {
			const kept = paused ?? (replaced ? pausesKept(record, replaced, plan.plan) : undefined);
			// Its writer came after this signing was written, and may have written over it.
			const since = noted(record);
			return withSigning(record, plan, {
				...changes,
				...back,
				...{ previous: damage ? (plan.seen ?? null) : there, at, moves, brake, seal, isUnconfirmed: true },
				paused: since ? { ...kept, ...since } : kept,
			});
		};
		await changeRecord(
			shell,
			out,
			(record) => {
				const last = record.signed.at(-1);
				// Another fleet's plan may have been put there in its place.
				if (last) warnsOf(() => refuseOtherFleet({ file: `By its record, ${out}`, plan: last }, plan));
				// The numbers of a key that was stolen bind no device that does not trust it any more.
				if (!unchecked) refuseNumber(record, plan, out, decidedBy !== undefined);
				if (record.signed.some((one) => one.digest === plan.digest && one.at === at)) return record;
				if (noted(record)) throw overtaken(recordPlaceOf(out));
				// One more signature goes to the plan that was published, not to one that was put there.
				if (last && inForce && there === plan.digest && !plan.isNamed && !isRecorded(record, inForce))
					throw unrecorded(inForce);
				const known = plan.isNamed || !last ? [there] : [last.digest, last.previous];
				if (inForce && there !== plan.digest && !(isSeen && known.includes(there)))
					throw isSeen && !isRecorded(record, inForce) ? unrecorded(inForce) : overtaken(out);
				if (inForce) warnsOf(() => refusePastBrake(record, inForce, { digest: plan.digest, brake }));
				const isOlder = last && there !== null && there === last.previous;
				unheard = isOlder && ![plan.digest, there].includes(last.digest) ? last : undefined;
				before = record;
				return sign(damage ? withoutDamaged(record, plan.seen, damage) : record);
			},
			withoutRecord,
		);
		for (const said of warnings) shell.warn(`Signed unchecked: ${said}`);
		if (damage) shell.warn(`${damage.message} It is replaced.`);
		// A run that was killed before it had published leaves the same behind.
		if (unheard)
			shell.warn(
				`${out} held the plan before revision ${unheard.revision}, which was signed at ${unheard.at}: if that was published, a store has lost it, devices have it, and take this one only if its revision is higher. idv fleet status says which they have.`,
			);
		const place = await replaceStored(shell, out, text, stored).catch(async (error: unknown) => {
			if (!isOvertaken(error)) throw error;
			const now = await readStored(shell, out);
			const cut = now && (await damageAt(shell, now.bytes, out));
			if (cut) throw cut;
			// What was never published must not look as if it had been: a rollback would order its version.
			if (!now || planIn(now.bytes, out).digest !== plan.digest)
				await dropSigning(shell, out, (record) => withoutSigning(record, { digest: plan.digest, at }, before));
			throw error;
		});
		let isTold = false;
		const tellOnce = () => {
			if (!isTold) tell(place);
			isTold = true;
			shell.isStream = true;
		};
		await confirmAt(shell, out, keepRecorded(shell, out, plan, stored, sign, tellOnce));
		tellOnce();
	});
}

/** A mistyped --out must not take the plan of another fleet from its devices. @throws AgentError `usage`. */
function refuseOtherFleet(
	{ file, plan: { fleet } }: { readonly file: string; readonly plan: { readonly fleet?: string | undefined } },
	{ plan }: PlanFile,
): void {
	if (fleet === undefined || fleet === plan.fleet) return;
	const own = plan.fleet === undefined ? 'this one names no fleet' : `this one is of ${JSON.stringify(plan.fleet)}`;
	throw new AgentError('usage', `${file} holds a plan of the fleet ${JSON.stringify(fleet)}, and ${own}.`, {
		remedy: 'Name with --out the place of its own fleet, or put the plan of that fleet back there.',
	});
}

const isRecorded = ({ signed }: RolloutRecord, { digest }: PlanFile) => signed.some((one) => one.digest === digest);

export const unrecorded = ({ file, plan: { revision } }: PlanFile) =>
	new AgentError(
		'plan-outdated',
		`${file} holds revision ${revision}, which is not in its record (${recordPlaceOf(file)}): the record has lost it, or it was not published by idv fleet.`,
		{ remedy: 'Look at what it says (idv fleet diff); if it is the plan in force, name it with --previous.' },
	);

/** No step goes past one that held the fleet back, whether devices have it or a run was killed before it had published: only the same one, or a
 * rollback of everything. @param step the plan that would go on, and the command that holds the fleet back with it. @throws AgentError `plan-outdated`. */
export function refusePastBrake(
	record: RolloutRecord,
	published: PlanFile,
	{ digest, brake }: Partial<Pick<Signing, 'digest' | 'brake'>>,
): void {
	if (brake === 'rollback') return;
	// A rollback goes past the others; so it is what was signed last that may be repeated.
	const newer = brakesSince(record, published).findLast(
		(one) => one.digest !== digest && (one.brake !== brake || brake === 'sign'),
	);
	if (!newer) return;
	const all = newer.brake === 'rollback' ? '' : ` Or take everything back: idv fleet rollback ${published.file}.`;
	throw new AgentError(
		'plan-outdated',
		`${published.file} holds revision ${published.plan.revision}, and by its record revision ${newer.revision}, which held the fleet back (idv fleet ${newer.brake}), was signed at ${newer.at}: nothing goes past that.`,
		{ remedy: `Repeat it first, with --key and --out: ${repeatOf(newer, published.file)}.${all}` },
	);
}

/** Where a store has lost a plan, or an older one was put back by hand. @throws AgentError `plan-invalid` for a number that devices may have already.
 * @param isStep whether it is the command that has numbered the plan: then another one came first. */
function refuseNumber(record: RolloutRecord, plan: Braked, out: string, isStep: boolean): void {
	const newer = signedSince(record, plan);
	if (!newer) return;
	if (isStep) throw overtaken(out);
	const number = newer.epoch === 0 ? '' : `epoch ${newer.epoch}, `;
	throw new AgentError(
		'plan-invalid',
		`By ${recordPlaceOf(out)}, ${number}revision ${newer.revision} was signed at ${newer.at} with other content: devices that have it refuse this plan.`,
		{ remedy: `Give this plan ${nextNumber(newer)}.` },
	);
}

/** As one line. @param before the envelope of the plan: its other signatures stay. @throws AgentError for a plan that devices would refuse. */
export function signPayload(payload: Uint8Array, key: KeyObject, before: PlanEnvelope | null, file: string) {
	const publicKey = formatPublicKey(key);
	const sig = sign(null, signedBytes(payload), key).toString('base64');
	const own = { keyid: keyidOf(publicKey), sig };
	const others = (before?.signatures ?? []).filter(({ keyid }) => keyid !== own.keyid);
	const envelope: PlanEnvelope = {
		...before,
		payloadType: PLAN_PAYLOAD_TYPE,
		payload: Buffer.from(payload).toString('base64'),
		signatures: [...others, own],
	};
	const text = `${JSON.stringify(envelope)}\n`;
	const again = readPlan(Buffer.from(text), file, [publicKey]);
	if (!again.ok) throw new AgentError('plan-invalid', again.problems.map(({ message }) => message).join('\n'));
	return { text, publicKey, signatures: envelope.signatures.length };
}

const keyidOf = (publicKey: string) => publicKey.slice('ed25519:'.length, 'ed25519:'.length + 12);

export async function diffFleetPlans(
	shell: Shell,
	flags: { readonly inventory?: string },
	oldFile: string,
	newFile: string,
): Promise<void> {
	const [before, after] = [await readPlanFile(shell, oldFile), await readPlanFile(shell, newFile)];
	const differences = diffPlans(before.plan, after.plan);
	const { preview } = await withBrakes(shell, after, { ...flags, isLook: true }, before);
	const isTaken = comparePlans(after.plan, before.plan) > 0;
	const isSame = before.digest === after.digest;
	if (isOver(after.plan, Date.now())) shell.warn(`${newFile}: ${OVER}`);
	if (shell.isJson) return shell.json({ differences, isTaken: isTaken || isSame, ...(preview && { preview }) });
	if (differences.length === 0) shell.line('Both plans say the same to devices.');
	else shell.table(differences.map(({ what, before: old, after: now }) => [what, old ?? '—', '→', now ?? '—']));
	showChange(shell, preview);
	if (!isTaken && !isSame)
		shell.warn(
			`Devices that have revision ${before.plan.revision} will refuse revision ${after.plan.revision}: give it ${nextNumber(before.plan)}.`,
		);
}
