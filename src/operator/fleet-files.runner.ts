/** Plan and key files as an operator has them on a disk. Every problem is named with file, line and path; a key is never shown. */
import { createPrivateKey, type KeyObject, sign } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { AgentError } from '../base/errors.ts';
import { findJsonPlaces, lineAndColumn, pointerOf } from '../base/json-text.ts';
import { onOneLine } from '../base/printed.ts';
import type { Shell } from '../cli/output.runner.ts';
import { checkLimits, checkPlan, type Finding } from '../fleet/lint.ts';
import { isEnvelope, type PlanEnvelope } from '../fleet/plan-format.ts';
import type { Seal } from '../fleet/rollout-record.ts';
import { importPublicKey, type ReadPlan, readPlan } from '../fleet/verify-plan.runner.ts';
import { parseJson } from '../protocol/json.ts';
import { publicKeySchema } from '../settings/value-schemas.ts';
import { damageAt } from './fleet-damage.runner.ts';
import { readBounded, readStored } from './fleet-store.runner.ts';
import { warnIfOpen } from './service-target.runner.ts';

const MAX_KEY_BYTES = 16 * 1024;

export interface PlanFile extends ReadPlan {
	readonly file: string;
	/** The plan's exact bytes, out of its envelope. */
	readonly payload: Uint8Array;
	/** The file's own bytes. */
	readonly bytes: Uint8Array;
	readonly findings: ReturnType<typeof placed>;
}

/** @param place a file or an address. @param publicKeys one of which has to have signed it; none: nothing is verified.
 * @throws AgentError `plan-invalid` with a line for each problem, or `plan-untrusted`. */
export async function readPlanFile(shell: Shell, place: string, publicKeys: readonly string[] = []): Promise<PlanFile> {
	const stored = await readStored(shell, place);
	if (stored) return planAt(shell, stored.bytes, place, publicKeys);
	throw new AgentError('plan-invalid', `The plan file ${place} cannot be read: it is not there (ENOENT).`, {
		remedy: 'Name a file that is there and that this user may read.',
	});
}

/** As {@link planIn}; where a plan was published and is damaged, that is said. */
export async function planAt(
	shell: Shell,
	bytes: Uint8Array,
	place: string,
	publicKeys: readonly string[] = [],
): Promise<PlanFile> {
	try {
		return planIn(bytes, place, publicKeys);
	} catch (error) {
		throw (await damageAt(shell, bytes, place)) ?? error;
	}
}

export function planIn(bytes: Uint8Array, file: string, publicKeys: readonly string[] = []): PlanFile {
	const reading = readPlan(bytes, file, publicKeys, { isForPeople: true });
	if (!reading.ok) {
		const [first] = reading.problems;
		throw new AgentError(
			first?.code ?? 'plan-invalid',
			reading.problems.map(({ message }) => message).join('\n'),
			first?.code === 'plan-untrusted' ? {} : { remedy: 'Correct the plan; nothing was done with it.' },
		);
	}
	const text = new TextDecoder().decode(reading.payload);
	const { plan } = reading.read;
	const findings = placed([...checkPlan(plan, Date.now()), ...checkLimits(plan, reading.payload.length)], text);
	return { ...reading.read, file, payload: reading.payload, bytes, findings };
}

/** Each finding with its RFC 6901 pointer and its place, such as `line 3, column 5`, in the plan itself. */
export function placed(findings: readonly Finding[], text: string) {
	if (findings.length === 0) return [];
	const offsets = findJsonPlaces(text).offsetsOf(findings.map(({ path }) => path));
	return findings.map(({ level, path, what }, index) => {
		const pointer = pointerOf(path);
		const message = onOneLine(`${pointer || 'the plan'} ${what}${what.endsWith('?') ? '' : '.'}`);
		return { level, path: pointer, place: lineAndColumn(text, offsets[index] ?? 0), message };
	});
}

/** @throws AgentError `plan-invalid` for a plan with rules that can never apply. */
export function refuseErrors({ file, findings }: PlanFile): void {
	const errors = findings.filter(({ level }) => level === 'error');
	if (errors.length === 0) return;
	const message = errors.map((finding) => `${file}: ${finding.place}: ${finding.message}`).join('\n');
	throw new AgentError('plan-invalid', message, { remedy: 'Correct the plan; nothing was done.' });
}

/** What is made from a plan is signed with what that plan says: it must be as one of these keys has signed it. @throws AgentError `plan-untrusted`. */
export function refuseForged({ file, bytes, plan: { revision } }: PlanFile, publicKeys: readonly string[]): void {
	if (readPlan(bytes, file, publicKeys, { isForPeople: true }).ok) return;
	const message = `${file} holds revision ${revision} without a signature that fits --key: it was never signed, was changed after that, or was signed by another key. Nothing was signed.`;
	throw new AgentError('plan-untrusted', message, {
		remedy:
			'If another key has signed it, give that one. Else look at what was changed (idv fleet diff with the plan that you signed), and put the signed plan back, or take this one away and sign yours with --previous. Devices with fleet.publicKeys take no changed plan.',
	});
}

/** Keys as flags give them. @throws AgentError `fleet-key-invalid`. */
export function checkPublicKeys(given: readonly string[]): string[] {
	return given.map((text) => {
		const read = publicKeySchema.safeParse(text.trim());
		if (!read.success)
			throw new AgentError('fleet-key-invalid', 'A public key is one line: ed25519: and 32 bytes in base64.');
		try {
			importPublicKey(read.data);
		} catch (cause) {
			throw new AgentError('fleet-key-invalid', 'This public key is not an Ed25519 key.', { cause });
		}
		return read.data;
	});
}

/** @throws AgentError `fleet-key-invalid`, without a word of what is in the file. */
export async function readPrivateKey(shell: Shell, file: string): Promise<KeyObject> {
	const text = await readBounded(file, MAX_KEY_BYTES, 'fleet-key-invalid', 'key');
	warnIfOpen(shell, file, await stat(file));
	let key: KeyObject;
	try {
		key = createPrivateKey({ key: Buffer.from(text), format: 'pem' });
	} catch {
		throw new AgentError('fleet-key-invalid', `${file} does not hold a private key in PEM without a passphrase.`);
	}
	if (key.asymmetricKeyType !== 'ed25519')
		throw new AgentError('fleet-key-invalid', `${file} holds a key of type ${key.asymmetricKeyType}, not Ed25519.`);
	return key;
}

export const sealBy =
	(keys: readonly KeyObject[]): Seal =>
	(words) =>
		keys.map((key) => sign(null, Buffer.from(words), key).toString('base64'));

/** With each number as it is written, also one in `extensions` that JavaScript would round. */
export function parseExactly(text: string): unknown {
	type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;
	const { parse, rawJSON } = JSON as unknown as {
		parse(text: string, reviver: Reviver): unknown;
		rawJSON(text: string): unknown;
	};
	return parse(text, (_, value, { source }) =>
		typeof value === 'number' && source !== undefined && String(value) !== source ? rawJSON(source) : value,
	);
}

export function envelopeIn(bytes: Uint8Array | undefined): PlanEnvelope | null {
	const document = parseJson(new TextDecoder().decode(bytes));
	return isEnvelope(document) ? (document as PlanEnvelope) : null;
}

export const writtenIn = ({ payload }: Pick<PlanFile, 'payload'>) =>
	parseExactly(new TextDecoder().decode(payload)) as Record<string, unknown>;
