/**
 * What the state document keeps of a fleet plan: shapes only. What a plan says to a device is decided in `fleet/`.
 */
import * as z from 'zod';

/** What a plan says to one device; `null` where it says nothing. */
export const assignmentSchema = z.object({
	workflowId: z.string().nullable(),
	heartbeatCadence: z.number().nullable(),
});

export type Assignment = z.infer<typeof assignmentSchema>;

/** A plan's part for one device: all that has to be kept of it. */
export const devicePlanSchema = z.object({
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
});

export type DevicePlan = z.infer<typeof devicePlanSchema>;

export const takenPlanSchema = devicePlanSchema.extend({
	revision: z.int(),
	/** SHA-256 of the plan's exact bytes. */
	digest: z.string(),
});

/** A plan's part for this device, and which plan it is of. */
export type TakenPlan = z.infer<typeof takenPlanSchema>;

export const planRecordSchema = z.object({
	/** A hash of the plan's address: another address is another fleet, with revisions of its own. */
	source: z.string(),
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
});

export type PlanRecord = z.infer<typeof planRecordSchema>;
