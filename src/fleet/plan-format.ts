/** The fleet plan as it travels, bare or in a signed envelope: forms and bounds only. Not part of the service's interface: ours throughout. */
import * as z from 'zod';
import { versionProblem } from '../base/debian-version.ts';
import {
	deviceIdSchema,
	deviceTypeSchema,
	heartbeatCadenceSchema,
	macAddressSchema,
	serialSchema,
	workflowIdSchema,
} from '../protocol/device-connection.ts';
import { later } from '../protocol/later.ts';
import { fleetNameSchema, labelSchema } from '../settings/value-schemas.ts';
import { DEFAULT_SPREAD_SECONDS, MATCH_KEYS } from './terms.ts';

export const MAX_RULES = 500;
/** Values of one kind in one rule. */
export const MAX_MATCH_VALUES = 100_000;
export const MAX_RINGS = 20;
const MAX_SIGNATURES = 8;
export const MAX_SPREAD_SECONDS = 86_400;
/** The formats, oldest first. An agent of 0.1.0 reads the first only, and refuses every field that it does not know. */
export const PLAN_FORMATS = ['idv-fleet-plan/1', 'idv-fleet-plan/2'] as const;
export type PlanFormat = (typeof PLAN_FORMATS)[number];
/** Of a DSSE envelope, for a plan of either format; see {@link envelopeSchema}. */
export const PLAN_PAYLOAD_TYPE = 'application/vnd.idv.fleet-plan+json';

const someText = later(() => z.string('must be a text').min(1, 'must not be empty'));
const text = (max: number) => someText.max(max, `must have at most ${max} characters`);
const whole = (min: number) => z.int('must be a whole number').min(min, `must be at least ${min}`);
const ruleName = later(() =>
	text(64).regex(/^[\p{L}\p{N}][\p{L}\p{N} ._-]*$/u, 'must be letters, digits, spaces, dots or hyphens'),
);

const orderedVersion = z.string('must be a text').superRefine((given, context) => {
	const problem = versionProblem(given);
	if (problem !== null) context.addIssue(problem);
});

/** A list whose length is judged before its entries are looked at: each one that is wrong takes memory. */
const list = <Value extends z.ZodType>(value: Value, min: number, max: number, what = 'entries') =>
	z
		.array(z.unknown(), 'must be a list')
		.min(min, 'must not be empty')
		.max(max, `must have at most ${max} ${what}`)
		.pipe(z.array(value));

/** Entries of a list that are named. */
const MAX_WRONG_VALUES = 20;
/** Valid for every kind of value but MAC addresses. A plan lists up to 250,000 values, and asking the schema takes a microsecond for each. */
const PLAIN = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$/;

/** Values of one kind. @param mayBePatterns whether the beginning of values will do: `KIOSK-1*`. */
const values = (value: z.ZodType<string, string>, { mayBePatterns = false, isPlainValid = true } = {}) =>
	z
		.custom<unknown[]>(Array.isArray, 'must be a list')
		.superRefine((given, context) => {
			const message =
				given.length === 0
					? 'must not be empty'
					: given.length > MAX_MATCH_VALUES && `must have at most ${MAX_MATCH_VALUES} entries`;
			if (message) context.issues.push({ code: 'custom', message, input: given, continue: false });
		})
		.transform((given, context) => {
			let wrong = 0;
			return given.map((one, index): string => {
				if (isPlainValid && typeof one === 'string' && PLAIN.test(one)) return one;
				if (wrong >= MAX_WRONG_VALUES) return '';
				const read = readValue(one, value, mayBePatterns);
				if ('value' in read) return read.value;
				wrong += 1;
				context.issues.push({ code: 'custom', message: read.fault, path: [index], input: one });
				return '';
			});
		});

function readValue(
	given: unknown,
	value: z.ZodType<string, string>,
	mayBePattern: boolean,
): { readonly value: string } | { readonly fault: string } {
	if (typeof given !== 'string') return { fault: 'must be a text' };
	if (mayBePattern) {
		const bare = given.endsWith('*') ? given.slice(0, -1) : given;
		if (bare.includes('*')) return { fault: 'may have a * at its end only' };
		if (bare === '') return { fault: 'must not be empty; put what is for all devices into "defaults"' };
		if (given !== bare) return { value: given };
	}
	const read = value.safeParse(given);
	return read.success ? { value: read.data } : { fault: read.error.issues[0]?.message ?? 'is not valid' };
}

/** One of the values of every kind that is given has to fit. */
const matchSchema = later(() =>
	z
		.strictObject({
			deviceIds: values(deviceIdSchema, { mayBePatterns: true }).optional(),
			serials: values(serialSchema, { mayBePatterns: true }).optional(),
			macAddresses: values(macAddressSchema, { isPlainValid: false }).optional(),
			deviceTypes: values(deviceTypeSchema).optional(),
			labels: values(labelSchema).optional(),
		})
		.refine((match) => Object.keys(match).length > 0, `must name at least one of ${MATCH_KEYS.join(', ')}`),
);
export type PlanMatch = z.infer<typeof matchSchema>;

const spreadSeconds = later(() => whole(0).max(MAX_SPREAD_SECONDS, `must be at most ${MAX_SPREAD_SECONDS} (a day)`));
const revisionNumber = (min: number) => whole(min).max(Number.MAX_SAFE_INTEGER, 'must be a smaller number');
/** ISO 8601 with an offset. */
const time = later(() => z.iso.datetime({ offset: true, error: 'must be a time such as 2026-11-21T06:00:00Z' }));
/** Anything, by name, for programs that know it: an agent passes over all of it. */
const extensions = later(() => z.record(text(64), z.unknown(), 'must be an object'));

/** The schema of one format. Both have the same type: a plan of format 1 has none of the fields of format 2. */
function planSchema(format: PlanFormat) {
	const since2 = <Value extends z.ZodType>(value: Value) =>
		(format === PLAN_FORMATS[0]
			? (z.never(`needs "format": "${PLAN_FORMATS[1]}"`) as unknown as Value)
			: value
		).optional();
	const extensible = { extensions: since2(extensions) };
	const wordFields = {
		/** `null` leaves the workflow to pairing, `workflow set` and the service; left out, `defaults` decides. */
		workflowId: workflowIdSchema.nullable().optional(),
		settings: z.strictObject({ heartbeatCadence: heartbeatCadenceSchema.optional() }).optional(),
		...extensible,
	};
	const ringSchema = z.strictObject({
		/** Share of the rule's devices that have moved with this ring, cumulative; two decimals count. */
		percent: z.number('must be a number').gt(0, 'must be more than 0').max(100, 'must be at most 100'),
		/** Left out, as soon as the device has taken the plan. */
		startAt: time.optional(),
		/** The version of the agent that devices of this ring get, where their settings allow it (`update.enabled`). */
		agent: since2(z.looseObject({ version: orderedVersion })),
		...extensible,
	});
	/** A move to other words, ring by ring. */
	const rolloutSchema = z
		.strictObject({
			to: z.strictObject(wordFields),
			rings: list(ringSchema, 1, MAX_RINGS),
			/** Seconds over which each ring's start is spread; left out, the plan's own. */
			spreadSeconds: spreadSeconds.optional(),
			...extensible,
		})
		.superRefine(({ to, rings }, context) => {
			const saysSomething =
				to.workflowId !== undefined || to.settings !== undefined || rings.some(({ agent }) => agent);
			if (!saysSomething) context.addIssue({ code: 'custom', path: ['to'], message: 'must say something' });
		});
	const defaultsSchema = z.strictObject({ ...wordFields, rollout: rolloutSchema.optional() });
	const ruleSchema = z.strictObject({ name: ruleName, match: matchSchema, ...defaultsSchema.shape });
	return z.strictObject({
		format: z.literal(
			[format],
			`must be ${PLAN_FORMATS.map((name) => `"${name}"`).join(' or ')}`,
		) as z.ZodType<PlanFormat>,
		/** Rises with every change. */
		revision: revisionNumber(1),
		/** Precedes the revision: a higher epoch starts the revisions again, after one that was far too high. Default 0. */
		epoch: since2(revisionNumber(0)),
		/** Devices with another `fleet.name` refuse the plan. */
		fleet: since2(fleetNameSchema),
		/** Afterwards devices go on as they are, begin nothing new by this plan, and warn. Left out: for ever. */
		validUntil: since2(time),
		comment: text(1000).optional(),
		/** Seconds over which devices take this plan, and over which each ring starts. */
		spreadSeconds: spreadSeconds.default(DEFAULT_SPREAD_SECONDS),
		/** For devices that no rule fits. */
		defaults: defaultsSchema.optional(),
		/** The first that fits a device counts. */
		rules: list(ruleSchema, 0, MAX_RULES, 'rules')
			.superRefine((rules, context) => {
				const seen = new Set<string>();
				for (const [index, { name }] of rules.entries()) {
					if (seen.has(name))
						context.addIssue({ code: 'custom', path: [index, 'name'], message: 'is used by a rule before' });
					seen.add(name);
				}
			})
			.default([]),
		...extensible,
	});
}

const [FIRST, SECOND] = [later(() => planSchema(PLAN_FORMATS[0])), later(() => planSchema(PLAN_FORMATS[1]))];
export type FleetPlan = z.infer<typeof SECOND>;
export type PlanRule = FleetPlan['rules'][number];
export type PlanWord = Pick<PlanRule, 'workflowId' | 'settings'>;
export type PlanRollout = NonNullable<PlanRule['rollout']>;

export function planSchemaOf(document: unknown): z.ZodType<FleetPlan> {
	const named = (document as { format?: unknown } | null)?.format;
	return named === PLAN_FORMATS[1] ? SECOND : FIRST;
}

/** An Ed25519 signature in base64: 64 bytes. */
const signatureText = later(() =>
	z.string('must be a text').regex(/^[A-Za-z0-9+/_-]{86}(==)?$/, 'must be 64 bytes in base64 (an Ed25519 signature)'),
);

/** A DSSE envelope (Dead Simple Signing Envelope 1.0.2): the exact bytes of the plan in base64. Several signatures let a fleet change its key. */
export const envelopeSchema = later(() =>
	z.strictObject({
		payloadType: z.literal(PLAN_PAYLOAD_TYPE, `must be "${PLAN_PAYLOAD_TYPE}"`),
		payload: someText.regex(/^[A-Za-z0-9+/_-]+={0,2}$/, 'must be base64'),
		signatures: list(
			z.strictObject({ keyid: z.string('must be a text').max(128).optional(), sig: signatureText }),
			1,
			MAX_SIGNATURES,
			'signatures',
		),
		/** Not signed, so an agent passes over it. */
		extensions: extensions.optional(),
	}),
);
export type PlanEnvelope = z.infer<typeof envelopeSchema>;

/** Whether a document means to be an envelope rather than a bare plan. */
export function isEnvelope(document: unknown): boolean {
	return typeof document === 'object' && document !== null && 'payload' in document;
}

/** What a signature covers: DSSE's pre-authentication encoding of the payload. */
export function signedBytes(payload: Uint8Array): Uint8Array {
	// The type is ASCII: it has as many bytes as characters.
	const text = `DSSEv1 ${PLAN_PAYLOAD_TYPE.length} ${PLAN_PAYLOAD_TYPE} ${payload.length} `;
	const head = new TextEncoder().encode(text);
	const bytes = new Uint8Array(head.length + payload.length);
	bytes.set(head);
	bytes.set(payload, head.length);
	return bytes;
}
