/** From the bytes of a plan file to a checked plan: signature, JSON, then every field; what is wrong is named with line and path.
 * Bytes of anyone take as little time and memory as those of a plan. */
import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto';
import type * as z from 'zod';
import { type Failure, failure } from '../base/errors.ts';
import {
	exceeds,
	findJsonPlaces,
	type JsonOutline,
	type JsonSize,
	lineAndColumn,
	outlineJson,
	pointerOf,
	shortened,
} from '../base/json-text.ts';
import { onOneLine } from '../base/printed.ts';
import { isObject, parseJson, resolvePointer } from '../protocol/json.ts';
import { nearestName } from '../settings/nearest-name.ts';
import { plainIssue } from '../settings/plain-issue.ts';
import { countListed } from './lint.ts';
import {
	envelopeSchema,
	type FleetPlan,
	PLAN_FORMATS,
	type PlanEnvelope,
	planSchemaOf,
	signedBytes,
} from './plan-format.ts';
import { MAX_LISTED_VALUES, MAX_PLAN_BYTES } from './terms.ts';

const MAX_PROBLEMS = 20;
/** Of an envelope with eight signatures: 31 and 18. */
const MAX_OF_ENVELOPE: JsonSize = { parts: 100, values: 100, names: 100 };
/** More than 500 rules with 20 rings each, and lists of ids within the size of a plan. What a parser makes of a part takes up to 300 bytes.
 * A plan has some thirty different names; beyond this many it is not even said which ones are unknown. */
const MAX_OF_PLAN: JsonSize = { parts: 100_000, values: 250_000, names: 40_000 };
/** Of any size, and nothing of it is used here. */
const PASSED_OVER = 'extensions';
/** Faults of a file, or the value that it holds. `faults`: how many there are; not each has a problem of its own. */
type Checked<Value> = Value | { readonly ok: false; readonly problems: readonly Failure[]; readonly faults: number };

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
 * @param isForPeople whether a person corrects the plan: then names are suggested, and a plan may list more than a device reads. */
export function readPlan(
	bytes: Uint8Array,
	where: string,
	publicKeys: readonly string[],
	{ isForPeople = false } = {},
): PlanReading {
	const decoded = decode(bytes, where);
	if ('problem' in decoded) return refused(decoded.problem);
	const source = { text: decoded.text, where, isForPeople };
	// Anyone may have sent it: a plan that is not signed is not read beyond its envelope.
	const isForAnyone = publicKeys.length === 0;
	const outline = outlineJson(decoded.text, 'plan', isForAnyone ? MAX_OF_PLAN : MAX_OF_ENVELOPE, PASSED_OVER);
	if (!outline.names.has('payload')) {
		if (isForAnyone) return readPayload(bytes, source, outline, { isSigned: false, keys: [] });
		const parsed = outline.isTooMuch ? null : parse(source, outline);
		if (parsed && 'problem' in parsed) return refused(parsed.problem);
		return refused(failure('plan-untrusted', `${where} is not signed.`));
	}
	if (outline.isTooMuch || exceeds(outline.size, MAX_OF_ENVELOPE)) {
		const fault = 'its envelope holds more than a payload and its signatures';
		return refused(failure('plan-invalid', `${where}: ${fault}.`));
	}
	const parsed = parse(source, outline);
	if ('problem' in parsed) return refused(parsed.problem);
	const envelope = check(envelopeSchema, parsed, source);
	if (!envelope.ok) return envelope;
	const payload = Buffer.from(envelope.value.payload, 'base64');
	const covered = signedBytes(payload);
	const keys = publicKeys.filter((key) => isSignedBy(envelope.value, covered, key));
	if (publicKeys.length > 0 && keys.length === 0) {
		const asked = publicKeys.length === 1 ? 'the key' : `any of the ${publicKeys.length} keys`;
		return refused(failure('plan-untrusted', `${where} has no signature that fits ${asked}.`));
	}
	const inside = `${where}, the signed plan in it`;
	const text = decode(payload, inside);
	if ('problem' in text) return refused(text.problem);
	const within = outlineJson(text.text, 'plan', MAX_OF_PLAN, PASSED_OVER);
	return readPayload(payload, { ...text, where: inside, isForPeople }, within, { isSigned: true, keys });
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

function isSignedBy({ signatures }: PlanEnvelope, covered: Uint8Array, publicKey: string): boolean {
	const key = importPublicKey(publicKey);
	return signatures.some(({ sig }) => verify(null, covered, key, Buffer.from(sig, 'base64')));
}

/** A text that is to be a plan or an envelope. */
interface Source {
	readonly text: string;
	readonly where: string;
	readonly isForPeople: boolean;
}

function readPayload(
	payload: Uint8Array,
	source: Source,
	outline: JsonOutline,
	signed: Pick<ReadPlan, 'isSigned' | 'keys'>,
): PlanReading {
	const { where, isForPeople } = source;
	if (outline.isTooMuch) {
		const { parts, values, names } = MAX_OF_PLAN;
		const fault = `it holds more than ${parts} objects, lists and names, more than ${values} values, more than ${names} different names, or lists nested too deeply`;
		return refused(failure('plan-invalid', `${where}: ${fault}.`));
	}
	const parsed = parse(source, outline);
	if ('problem' in parsed) return refused(parsed.problem);
	const { format, rules } = parsed.document as { format?: unknown; rules?: unknown };
	const { listed } = countListed(rules);
	// Before each value is looked at, which is what takes memory. Plans of format 1 were published without this limit.
	if (listed > MAX_LISTED_VALUES && format !== PLAN_FORMATS[0] && !isForPeople) {
		const fault = `it lists ${listed} values, and a device reads ${MAX_LISTED_VALUES} at most`;
		const remedy = 'Match labels or ID prefixes instead; idv fleet check says how.';
		return refused(failure('plan-invalid', `${where}: ${fault}.`, { remedy }));
	}
	const checked = check(planSchemaOf(parsed.document), parsed, source);
	if (!checked.ok) return checked;
	const digest = createHash('sha256').update(payload).digest('hex');
	const read = { plan: checked.value, digest, ...signed, verifiedBy: signed.keys[0] ?? null };
	return { ok: true, read, payload };
}

function decode(bytes: Uint8Array, where: string): { readonly text: string } | { readonly problem: Failure } {
	const invalid = (what: string) => ({ problem: failure('plan-invalid', `${where}: ${what}.`) });
	if (bytes.length > MAX_PLAN_BYTES) return invalid(`it is larger than ${MAX_PLAN_BYTES} bytes`);
	let text: string;
	try {
		text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
	} catch {
		return invalid('it is not UTF-8');
	}
	return /^\s*</.test(text) ? invalid('it is a web page, not a plan') : { text };
}

/** The document, without what is passed over, and the names that it has twice. */
type Parsed = { readonly document: unknown; readonly repeated: JsonOutline['repeated'] };

function parse({ where }: Source, { rest, repeated, fault }: JsonOutline): Parsed | { readonly problem: Failure } {
	const document = fault === null ? parseJson(rest) : undefined;
	if (isObject(document)) return { document, repeated };
	const other = document === undefined ? 'it cannot be read as JSON.' : NO_OBJECT;
	return { problem: failure('plan-invalid', `${where}: ${fault ?? other}`) };
}

const NO_OBJECT = 'line 1, column 1: the plan must be one object in { }.';

function check<Value>(
	schema: z.ZodType<Value>,
	{ document, repeated }: Parsed,
	{ text, where, isForPeople }: Source,
): Checked<{ readonly ok: true; readonly value: Value }> {
	const result = schema.safeParse(document);
	if (result.success && repeated.length === 0) return { ok: true, value: result.data };
	const issues = result.error?.issues ?? [];
	const faults = faultsOf(issues, document, isForPeople).slice(0, Math.max(0, MAX_PROBLEMS - repeated.length));
	const offsets = findJsonPlaces(text).offsetsOf(faults.map(({ path }) => path));
	const all = [
		...repeated.map((one) => ({ ...one, what: 'is there twice' })),
		...faults.map((fault, index) => ({ ...fault, offset: offsets[index] ?? 0 })),
	];
	const problems = all.map(({ path, what, offset }) => {
		const pointer = shortened(pointerOf(path)) || 'the document';
		const end = what.endsWith('?') ? '' : '.';
		const message = onOneLine(`${where}: ${lineAndColumn(text, offset)}: ${pointer} ${what}${end}`);
		return failure('plan-invalid', message);
	});
	const unknown = countUnknown(issues);
	const unnamed = unknown - faults.filter(({ isUnknown }) => isUnknown).length;
	if (unnamed > 0) {
		const fault = unnamed === 1 ? '1 more name is not known' : `${unnamed} more names are not known`;
		problems.push(failure('plan-invalid', `${where}: ${fault}.`));
	}
	const known = issues.filter(({ code }) => code !== 'unrecognized_keys').length;
	return { ok: false, problems, faults: repeated.length + known + unknown };
}

/** All names that a plan or an envelope may have anywhere. */
const NAMES = [
	...['format', 'revision', 'comment', 'spreadSeconds', 'defaults', 'rules', 'name', 'match', 'workflowId', 'settings'],
	...['rollout', 'to', 'rings', 'percent', 'startAt', 'heartbeatCadence', 'deviceIds', 'serials', 'macAddresses'],
	...['deviceTypes', 'labels', 'payloadType', 'payload', 'signatures', 'keyid', 'sig', 'epoch', 'fleet', 'validUntil'],
	...['extensions', 'agent'],
];

interface Fault {
	readonly path: readonly PropertyKey[];
	readonly what: string;
	readonly isUnknown: boolean;
}

/** As many as are told: a plan may have a thousand faults for each of its rules. */
function faultsOf(issues: readonly z.core.$ZodIssue[], document: unknown, isForPeople: boolean): Fault[] {
	return issues.slice(0, MAX_PROBLEMS).flatMap((issue): Fault[] => {
		const { path } = issue;
		if (issue.code === 'unrecognized_keys')
			return issue.keys.slice(0, MAX_PROBLEMS).map((key) => {
				const nearest = isForPeople ? nearestName(key, NAMES) : null;
				const hint = nearest && nearest !== key ? `; did you mean ${nearest}?` : '';
				return { path: [...path, key], what: `is not known here${hint}`, isUnknown: true };
			});
		const isMissing = path.length > 0 && resolvePointer(document, pointerOf(path)) === undefined;
		return [{ path, what: isMissing ? 'is missing' : plainIssue(issue), isUnknown: false }];
	});
}

function countUnknown(issues: readonly z.core.$ZodIssue[]): number {
	return issues.reduce((sum, issue) => sum + (issue.code === 'unrecognized_keys' ? issue.keys.length : 0), 0);
}

function refused(problem: Failure): PlanReading {
	return { ok: false, problems: [problem], faults: 1 };
}
