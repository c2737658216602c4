/** From the bytes of a plan file to a checked plan: signature, JSON, then every field; what is wrong is named with line and path. */
import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto';
import type * as z from 'zod';
import { type Failure, failure } from '../base/errors.ts';
import { findJsonPlaces, lineAndColumn, pointerOf, readJsonObject } from '../base/json-text.ts';
import { resolvePointer } from '../protocol/json.ts';
import { nearestName, plainIssue } from '../settings/resolve.ts';
import { countListed } from './lint.ts';
import {
	envelopeSchema,
	type FleetPlan,
	isEnvelope,
	PLAN_FORMATS,
	type PlanEnvelope,
	planSchemaOf,
	signedBytes,
} from './plan-format.ts';
import { MAX_LISTED_VALUES, MAX_PLAN_BYTES } from './terms.ts';

const MAX_PROBLEMS = 20;
/** Faults of a file, or the value that it holds. */
type Checked<Value> = Value | { readonly ok: false; readonly problems: readonly Failure[] };

export interface ReadPlan {
	readonly plan: FleetPlan;
	/** SHA-256 of the plan's exact bytes, in hexadecimal. */
	readonly digest: string;
	readonly isSigned: boolean;
	/** The first key whose signature was found good; `null` when none was asked for. */
	readonly verifiedBy: string | null;
	/** All of the asked keys whose signature was found good. */
	readonly keys: readonly string[];
}

export type PlanReading = Checked<{ readonly ok: true; readonly read: ReadPlan; readonly payload: Uint8Array }>;

/** @param where the name of the bytes in messages. @param publicKeys one of which has to have signed it; none: nothing is verified.
 * @param isUnbounded whether a plan may list more than a device reads. */
export function readPlan(
	bytes: Uint8Array,
	where: string,
	publicKeys: readonly string[],
	{ isUnbounded = false } = {},
): PlanReading {
	const payloadOf = (payload: Uint8Array, name: string, signed: Parameters<typeof readPayload>[2]) =>
		readPayload(payload, name, signed, isUnbounded);
	const outer = parseJson(bytes, where);
	if ('problem' in outer) return refused(outer.problem);
	if (!isEnvelope(outer.document)) {
		if (publicKeys.length > 0) return refused(failure('plan-untrusted', `${where} is not signed.`));
		return payloadOf(bytes, where, { isSigned: false, keys: [] });
	}
	const envelope = check(envelopeSchema, outer, where);
	if (!envelope.ok) return envelope;
	const payload = Buffer.from(envelope.value.payload, 'base64');
	const keys = publicKeys.filter((key) => isSignedBy(envelope.value, payload, key));
	if (publicKeys.length > 0 && keys.length === 0) {
		const asked = publicKeys.length === 1 ? 'the key' : `any of the ${publicKeys.length} keys`;
		return refused(failure('plan-untrusted', `${where} has no signature that fits ${asked}.`));
	}
	return payloadOf(payload, `${where}, the signed plan in it`, { isSigned: true, keys });
}

/** A key of one line, as settings hold it. */
export function importPublicKey(text: string): KeyObject {
	const x = Buffer.from(text.slice(text.indexOf(':') + 1), 'base64').toString('base64url');
	return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}

/** The one line for a key, public or private. */
export function formatPublicKey(key: KeyObject): string {
	return `ed25519:${Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url').toString('base64')}`;
}

function isSignedBy({ signatures }: PlanEnvelope, payload: Uint8Array, publicKey: string): boolean {
	const key = importPublicKey(publicKey);
	const covered = signedBytes(payload);
	return signatures.some(({ sig }) => verify(null, covered, key, Buffer.from(sig, 'base64')));
}

function readPayload(
	payload: Uint8Array,
	where: string,
	signed: Pick<ReadPlan, 'isSigned' | 'keys'>,
	isUnbounded: boolean,
): PlanReading {
	const parsed = parseJson(payload, where);
	if ('problem' in parsed) return refused(parsed.problem);
	const { format, rules } = parsed.document as { format?: unknown; rules?: unknown };
	const { listed } = countListed(rules);
	// Before each value is looked at, which is what takes memory. Plans of format 1 were published without this limit.
	if (listed > MAX_LISTED_VALUES && format !== PLAN_FORMATS[0] && !isUnbounded) {
		const fault = `it lists ${listed} values, and a device reads ${MAX_LISTED_VALUES} at most`;
		const remedy = 'Match labels or beginnings of ids instead; idv fleet check says how.';
		return refused(failure('plan-invalid', `${where}: ${fault}.`, { remedy }));
	}
	const checked = check(planSchemaOf(parsed.document), parsed, where);
	if (!checked.ok) return checked;
	const digest = createHash('sha256').update(payload).digest('hex');
	const read = { plan: checked.value, digest, ...signed, verifiedBy: signed.keys[0] ?? null };
	return { ok: true, read, payload };
}

type Parsed = { readonly text: string; readonly document: unknown };

function parseJson(bytes: Uint8Array, where: string): Parsed | { readonly problem: Failure } {
	const invalid = (what: string) => ({ problem: failure('plan-invalid', `${where}: ${what}.`) });
	if (bytes.length > MAX_PLAN_BYTES) return invalid(`it is larger than ${MAX_PLAN_BYTES} bytes`);
	let text: string;
	try {
		text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
	} catch {
		return invalid('it is not UTF-8');
	}
	if (/^\s*</.test(text)) return invalid('it is a web page, not a plan');
	const read = readJsonObject(text, 'plan');
	return 'fault' in read
		? { problem: failure('plan-invalid', `${where}: ${read.fault}`) }
		: { text, document: read.document };
}

function check<Value>(
	schema: z.ZodType<Value>,
	{ text, document }: Parsed,
	where: string,
): Checked<{ readonly ok: true; readonly value: Value }> {
	const result = schema.safeParse(document);
	const places = findJsonPlaces(text);
	if (result.success && places.repeated.length === 0) return { ok: true, value: result.data };
	const named = (path: readonly PropertyKey[], what: string, offset = places.offsetOf(path)) =>
		failure(
			'plan-invalid',
			`${where}: ${lineAndColumn(text, offset)}: ${pointerOf(path) || 'the document'} ${what}${what.endsWith('?') ? '' : '.'}`,
		);
	const repeated = places.repeated.map(({ path, offset }) => named(path, 'is there twice', offset));
	const issues = result.success
		? []
		: result.error.issues.slice(0, MAX_PROBLEMS).flatMap((issue) => inWords(issue, document));
	const problems = [...repeated, ...issues.map(({ path, what }) => named(path, what))];
	return { ok: false, problems: problems.slice(0, MAX_PROBLEMS) };
}

/** All names that a plan or an envelope may have anywhere. */
const NAMES = [
	...['format', 'revision', 'comment', 'spreadSeconds', 'defaults', 'rules', 'name', 'match', 'workflowId', 'settings'],
	...['rollout', 'to', 'rings', 'percent', 'startAt', 'heartbeatCadence', 'deviceIds', 'serials', 'macAddresses'],
	...['deviceTypes', 'labels', 'payloadType', 'payload', 'signatures', 'keyid', 'sig', 'epoch', 'fleet', 'validUntil'],
	...['extensions', 'agent'],
];

function inWords(issue: z.core.$ZodIssue, document: unknown): { path: readonly PropertyKey[]; what: string }[] {
	const { path } = issue;
	if (issue.code === 'unrecognized_keys')
		return issue.keys.map((key) => {
			const nearest = nearestName(key, NAMES);
			const hint = nearest && nearest !== key ? `; did you mean ${nearest}?` : '';
			return { path: [...path, key], what: `is not known here${hint}` };
		});
	const isMissing = path.length > 0 && resolvePointer(document, pointerOf(path)) === undefined;
	return [{ path, what: isMissing ? 'is missing' : plainIssue(issue) }];
}

function refused(problem: Failure): PlanReading {
	return { ok: false, problems: [problem] };
}
