/**
 * What the agent's own interface answers: one place for what the daemon says and what its command line and the kiosk's
 * applications read. Running code wants only the types; the schemas are for the document at `/v1/openapi.json`.
 */
import * as z from 'zod';
import { deviceIdSchema } from './device-connection.ts';

/** Raised when a field of the status changes its meaning or goes away; new fields do not raise it. */
export const STATUS_SCHEMA_VERSION = 1;

const timestamp = z.iso.datetime({ offset: true });

/** Something that is wrong: what, and what to do. `code` is permanent. */
export const problemSummarySchema = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type ProblemSummary = z.infer<typeof problemSummarySchema>;

export const statusSchema = z.object({
	schemaVersion: z.literal(STATUS_SCHEMA_VERSION),
	/**
	 * `unpaired`: waits for a pairing code. `connecting`: has not been online yet. `online`: registered and subscribed.
	 * `offline`: was online, comes back by itself. `blocked`: only a person can help; tried again slowly.
	 */
	state: z.enum(['unpaired', 'connecting', 'online', 'offline', 'blocked']),
	/** One sentence that a technician can act on. */
	sentence: z.string(),
	agentVersion: z.string(),
	startedAt: timestamp,
	deviceId: z.string().nullable(),
	deviceType: z.string(),
	serial: z.string().nullable(),
	macAddress: z.string().nullable(),
	baseUrl: z.string().nullable(),
	workflow: z.object({
		/** What the device is meant to run. */
		wanted: z.string().nullable(),
		/** What it is online with at this moment. */
		live: z.string().nullable(),
		/** While a change waits for the leases of applications: when it is made at the latest. */
		waitsUntil: timestamp.nullable(),
		/** Where `wanted` comes from. */
		source: z.enum(['flag', 'environment', 'file', 'plan', 'pairing', 'workflow set', 'service message']).nullable(),
	}),
	channel: z.object({
		state: z.enum(['none', 'registering', 'registerWait', 'connecting', 'online', 'connectWait', 'blocked', 'closed']),
		/** When it entered this state. */
		since: timestamp.nullable(),
		lastHeartbeatAt: timestamp.nullable(),
		/** How often the channel came back since the agent started. */
		reconnects: z.int(),
		/** When the next attempt is due, while waiting. */
		nextAttemptAt: timestamp.nullable(),
		/** Something on the way ends a line that is silent for so long; the agent pings it often enough. `null`: none found. */
		idleTimeout: z
			.object({
				seconds: z.int(),
				/** How often the line is pinged; `null` before the next channel is opened. */
				pingSeconds: z.int().nullable(),
			})
			.nullable()
			.optional(),
		/** How often the open channel was cut within the last minutes, whatever ended it; `null` when it was not. */
		recentCuts: z
			.object({
				count: z.int(),
				windowSeconds: z.int(),
				/** Median of how long those channels were open. */
				typicalLifeSeconds: z.int(),
				/** The most frequent cause: a close code, `silence`, the status of a refused handshake, or the code of the problem. */
				cause: z.string(),
			})
			.nullable()
			.optional(),
	}),
	/** The fleet plan; `null` where `fleet.planUrl` is not set. */
	plan: z
		.object({
			/** The revision in force; `null` before the first. */
			revision: z.int().nullable(),
			/** The newest revision that the device was online as it says: what heartbeats carry as `planRevision`. */
			followed: z.int().nullable(),
			/** The rule that fits; `null` for the plan's defaults. */
			rule: z.string().nullable(),
			/** What it says; `null` where it leaves the workflow open. */
			workflowId: z.string().nullable(),
			/** A newer revision or a ring that this device comes to at its own moment. */
			next: z.object({ revision: z.int(), workflowId: z.string().nullable(), at: timestamp }).nullable(),
			/** Set while the device stays where it was because the plan's word did not work. */
			refused: problemSummarySchema.extend({ revision: z.int(), at: timestamp, nextTryAt: timestamp }).nullable(),
			/** When the plan was last found to be as it is known here, since the agent started. */
			checkedAt: timestamp.nullable(),
		})
		.nullable(),
	/** The session that the pairing link named, if it named one. */
	sessionId: z.string().nullable(),
	pairedAt: timestamp.nullable(),
	problem: problemSummarySchema.nullable(),
	warnings: z.array(problemSummarySchema),
	/** The newest event's id, to follow from here; `null` before the first. */
	newestEventId: z.string().nullable(),
});
export type Status = z.infer<typeof statusSchema>;

/** What the agent hands to the kiosk's application. `id` orders events and resumes a stream; it is never used twice. */
export const eventSchema = z.object({
	id: z.string(),
	/** When the agent received it, by the device's clock. */
	at: timestamp,
	/** `notification` from the service; `session` named by a pairing link; `gap`: time in which some may have been missed. */
	type: z.enum(['notification', 'session', 'gap']),
	/** The service's word for a notification; equal to `type` otherwise. */
	kind: z.string(),
	workflowId: z.string().nullable(),
	format: z.enum(['json', 'text', 'binary']),
	/** JSON as the service sent it; a string for text; base64 for binary. */
	data: z.unknown(),
});
export type LocalEvent = z.infer<typeof eventSchema>;

export const eventPageSchema = z.object({
	events: z.array(eventSchema),
	/** Ask again with `since` set to this. */
	next: z.string().nullable(),
});
export type EventPage = z.infer<typeof eventPageSchema>;

/** How far a consumer has acknowledged. */
export const ackResultSchema = z.object({ consumer: z.string(), position: z.string().nullable() });
/** `known`: whether there was such a consumer. */
export const forgetResultSchema = z.object({ consumer: z.string(), known: z.boolean() });
export type AckResult = z.infer<typeof ackResultSchema>;

export const leaseReportSchema = z.object({
	leases: z.array(z.object({ name: z.string(), since: timestamp, until: timestamp })),
});
export type LeaseReport = z.infer<typeof leaseReportSchema>;

/** What a code would do, found without spending it and without touching the network. No secret in it. */
export const pairPreviewSchema = z.object({
	/** Whether pairing with this code can go ahead as asked. */
	ready: z.boolean(),
	baseUrl: z.string().nullable(),
	host: z.string().nullable(),
	/** Without the port; only where it differs from `host`, which is in punycode. */
	hostInUnicode: z.string().optional(),
	workflowId: z.string().nullable(),
	workflowSource: z.string().nullable(),
	sessionId: z.string().nullable(),
	/** `Short Token (one use)`: what kind of credential the code carries. */
	tokenKind: z.string(),
	/** What would be different afterwards, one line each; also where only a confirmation or `replace` is missing. */
	changes: z.array(z.string()),
	/** The first thing that stands in the way. */
	problem: problemSummarySchema.nullable(),
});
export type PairPreview = z.infer<typeof pairPreviewSchema>;

export const pairResultSchema = z.object({
	baseUrl: z.string(),
	deviceId: deviceIdSchema,
	workflowId: z.string(),
	sessionId: z.string().nullable(),
	/** Whether the device is online already; `sentence` says how it stands. */
	online: z.boolean(),
	sentence: z.string(),
});
export type PairResult = z.infer<typeof pairResultSchema>;

/** Where each value of the identity came from. */
export const identityReportSchema = z.object({
	deviceId: z.object({ value: z.string(), source: z.string() }),
	serial: z.object({ value: z.string().nullable(), source: z.string() }),
	macAddress: z.object({ value: z.string().nullable(), source: z.string() }),
	pinned: z.boolean(),
	/** Sources that were looked at and not taken, with the reason. */
	rejected: z.array(z.object({ source: z.string(), reason: z.string() })),
	warnings: z.array(problemSummarySchema),
});
export type IdentityReport = z.infer<typeof identityReportSchema>;

/** `/livez`: the agent lives. */
export const liveReportSchema = z.object({ live: z.literal(true) });

/** `/readyz`: registered and subscribed, or why not. */
export const readyReportSchema = z.object({ ready: z.boolean(), sentence: z.string() });

/** The newest lines of the agent's log, oldest first, as they were written. */
export const logReportSchema = z.object({ lines: z.array(z.string()) });
export type LogReport = z.infer<typeof logReportSchema>;

/** Every error of the local interface. Source: RFC 9457, with the agent's own `code` and `remedy`. */
export const problemSchema = z.object({
	/** The status of HTTP once more. */
	status: z.int(),
	title: z.string(),
	/** What went wrong. */
	detail: z.string(),
	/** Permanent name for programs. */
	code: z.string(),
	/** What to do about it. */
	remedy: z.string(),
	/** Where in the body, for a body that does not fit. */
	errors: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
});

/** The scanners that the agent sees, and whether it listens to them. */
export const scannerReportSchema = z.object({
	/** Whether codes that are scanned now count. */
	listening: z.boolean(),
	/** Why, or why not, in one sentence. */
	sentence: z.string(),
	devices: z.array(
		z.object({
			kind: z.enum(['serial', 'keyboard']),
			path: z.string(),
			node: z.string(),
			chosen: z.boolean(),
			/** Why it is chosen, or why not. */
			why: z.string(),
			/** Whether it is open. */
			open: z.boolean(),
			/** Whether desktops ignore it; `null` where that is not known or does not matter. */
			hidden: z.boolean().nullable(),
			/** USB vendor and model in hexadecimal. */
			usb: z.object({ vendorId: z.string(), modelId: z.string() }).nullable(),
			problem: problemSummarySchema.nullable(),
		}),
	),
});
export type ScannerReport = z.infer<typeof scannerReportSchema>;
