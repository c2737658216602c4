/** The shapes that the state document keeps of a fleet plan. */
import * as z from 'zod';
import { later } from '../protocol/later.ts';

/** What a plan says to one device; `null` where it says nothing. */
export const assignmentSchema = later(() =>
	z.object({
		workflowId: z.string().nullable(),
		heartbeatCadence: z.number().nullable(),
	}),
);

export type Assignment = z.infer<typeof assignmentSchema>;

/** A plan's part for one device: all that has to be kept of it. */
export const devicePlanSchema = later(() =>
	z.object({
		/** The rule's name; `null` for the defaults. */
		rule: z.string().nullable(),
		/** What holds until the move. */
		base: assignmentSchema,
		move: z
			.object({
				to: assignmentSchema,
				/** Of the ring that holds the device. */
				percent: z.number(),
				/** Milliseconds since 1970, the device's share of the spread included; `null`: as soon as the plan is taken. */
				atMs: z.number().nullable(),
			})
			.nullable(),
	}),
);

export type DevicePlan = z.infer<typeof devicePlanSchema>;

/** The place of a plan among all of its fleet. */
const editionSchema = later(() =>
	z.object({
		/** Precedes the revision. */
		epoch: z.int().default(0),
		revision: z.int(),
		/** SHA-256 of the plan's exact bytes. */
		digest: z.string(),
	}),
);

export const takenPlanSchema = later(() =>
	devicePlanSchema.extend({
		...editionSchema.shape,
		/** Its own name of its fleet. */
		fleet: z.string().nullable().default(null),
		/** Milliseconds since 1970; `null`: for ever. */
		validUntilMs: z.number().nullable().default(null),
		/** The configured keys that have verified it; none for an unsigned plan, `null` where an agent of 0.1 has taken it. */
		keys: z.array(z.string()).nullable().default(null),
		/** The words that the device goes on with once the plan is over: it had not followed the plan by then, or a move of it was to come. Left out: those of the plan. */
		held: assignmentSchema.optional(),
	}),
);

/** A plan's part for this device, and which plan it is of. */
export type TakenPlan = z.infer<typeof takenPlanSchema>;

/** The newest plan of a fleet that a key has attested: an older one is refused for as long as the key is configured. */
export const planFloorSchema = later(() =>
	editionSchema.extend({
		/** As those of the record. */
		source: z.string(),
		name: z.string().nullable(),
		/** `null`: no key was configured. */
		key: z.string().nullable(),
	}),
);

export type PlanFloor = z.infer<typeof planFloorSchema>;

/** Floors that are kept; the oldest go. */
export const MAX_FLOORS = 32;

export const planRecordSchema = later(() =>
	z.object({
		/** A hash of the plan's address, without its query: where no fleet is named, another address is another fleet. */
		source: z.string(),
		/** `fleet.name` when it was taken. */
		name: z.string().nullable().default(null),
		/** A hash of all that the part was chosen by (labels, identity, keys): when it changes, the whole plan is needed again. */
		basis: z.string(),
		etag: z.string().nullable(),
		/** In force. */
		taken: takenPlanSchema.nullable(),
		/** To be taken at this time of the device's clock. */
		waiting: takenPlanSchema.extend({ atMs: z.number(), spreadSeconds: z.number() }).nullable(),
		/** The newest revision that this device was online as it says. */
		followed: z.int().nullable(),
		/**
		 * The move that this device was online with last, and the time by which that was so: what was done is not undone because the
		 * clock shows an earlier time.
		 */
		moved: z.object({ to: assignmentSchema, atMs: z.number() }).nullable().default(null),
		/** The keys that were configured when it was last looked at; `null`: not known. */
		trusted: z.array(z.string()).nullable().default(null),
		/** Of every fleet that this device has followed, newest last. */
		floors: z.array(planFloorSchema).max(MAX_FLOORS).default([]),
	}),
);

export type PlanRecord = z.infer<typeof planRecordSchema>;
