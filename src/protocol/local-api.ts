/**
 * The bodies of the agent's own interface on `agent.sock` and `admin.sock`: one place for what the daemon answers and
 * what its command line and the kiosk's applications read.
 */
import * as z from 'zod';
import { deviceIdSchema, workflowIdSchema } from './device-connection.ts';
import { MAX_CODE_LENGTH } from './pairing-code.ts';

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

/** Longest and default time of a lease, in seconds. */
export const MAX_LEASE_SECONDS = 3600;
export const DEFAULT_LEASE_SECONDS = 60;

/** A name that an application or a lease gives itself. */
export const CONSUMER_NAME = /^[\w.-]{1,64}$/;

/** Who reads: its name is its own choice, and always the same. */
const consumerName = z.string().regex(CONSUMER_NAME, 'must be 1 to 64 letters, digits, dots, hyphens or underscores');

/** Everything up to this event has been dealt with: it is not delivered to this consumer again. */
export const ackRequestSchema = z.strictObject({ consumer: consumerName, id: z.string().min(1).max(64) });
export type AckRequest = z.infer<typeof ackRequestSchema>;

/** How far a consumer has acknowledged. */
export const ackResultSchema = z.object({ consumer: z.string(), position: z.string().nullable() });
export type AckResult = z.infer<typeof ackResultSchema>;

/** "A verification is going on": a workflow change waits. Taken again under the same name, it lasts so long from then. */
export const leaseRequestSchema = z.strictObject({
	name: consumerName,
	seconds: z.number().min(1).max(MAX_LEASE_SECONDS).default(DEFAULT_LEASE_SECONDS),
});
export const leaseReleaseSchema = z.strictObject({ name: consumerName });
export const leaseReportSchema = z.object({
	leases: z.array(z.object({ name: z.string(), since: timestamp, until: timestamp })),
});
export type LeaseReport = z.infer<typeof leaseReportSchema>;

const code = z
	.string()
	.min(1, 'must not be empty')
	.max(MAX_CODE_LENGTH, `must have at most ${MAX_CODE_LENGTH} characters`);

export const pairRequestSchema = z.strictObject({
	code,
	/** For a code that names no workflow. */
	workflowId: workflowIdSchema.optional(),
	/** Move a device that is paired already. */
	replace: z.boolean().default(false),
	/** The origin that a person has looked at and agreed to, such as `https://id.example.com`. */
	trustOrigin: z.string().optional(),
});
export type PairRequest = z.input<typeof pairRequestSchema>;

/** What a code would do, found without spending it and without touching the network. No secret in it. */
export const pairPreviewSchema = z.object({
	/** Whether pairing with this code can go ahead as asked. */
	ready: z.boolean(),
	baseUrl: z.string().nullable(),
	host: z.string().nullable(),
	workflowId: z.string().nullable(),
	workflowSource: z.string().nullable(),
	sessionId: z.string().nullable(),
	/** `Short Token (one use)`: what kind of credential the code carries. */
	tokenKind: z.string(),
	/** What would be different afterwards, one line each. */
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

export const workflowRequestSchema = z.strictObject({ workflowId: workflowIdSchema });

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

/** Events in one JSON answer, at most. */
export const EVENT_PAGE_LENGTH = 100;
/** Longest wait for the next event in one JSON answer, in seconds. */
export const MAX_EVENT_WAIT_SECONDS = 60;
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

/** File names of the two sockets in the run directory. */
export const LOCAL_SOCKETS = { agent: 'agent.sock', admin: 'admin.sock' } as const;

/** The routes of the two sockets. */
export const LOCAL_ROUTES = {
	status: '/v1/status',
	events: '/v1/events',
	ack: '/v1/events/ack',
	leases: '/v1/leases',
	leaseRelease: '/v1/leases/release',
	identity: '/v1/identity',
	identityAccept: '/v1/identity/accept',
	scanners: '/v1/scanners',
	pair: '/v1/pair',
	pairInspect: '/v1/pair/inspect',
	workflow: '/v1/workflow',
	reconnect: '/v1/reconnect',
	unpair: '/v1/unpair',
	service: '/v1/service/',
	log: '/v1/log',
	metrics: '/metrics',
	live: '/livez',
	ready: '/readyz',
	document: '/v1/openapi.json',
} as const;
