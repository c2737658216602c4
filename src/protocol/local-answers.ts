/** The answers of the agent's own interface. Running code needs only the types; the rest is for `/v1/openapi.json`. */
import * as z from 'zod';
import { deviceIdSchema } from './device-connection.ts';
import { UPDATE_REASONS } from './update-reasons.ts';

/** Raised when a field of the status changes its meaning or goes away; new fields do not raise it. */
export const STATUS_SCHEMA_VERSION = 1;

const timestamp = z.iso.datetime({ offset: true });

/** The names and numbers in a sentence, for the same sentence in another language. */
const paramsSchema = z.record(z.string(), z.union([z.string(), z.number()]));

/** Something that is wrong, with what to do about it. `code` is permanent. */
export const problemSummarySchema = z.object({
	code: z.string(),
	message: z.string(),
	remedy: z.string(),
	recovers: z
		.boolean()
		.optional()
		.describe('Whether the agent continues without a person once the cause is gone; absent where it does not.'),
	params: paramsSchema
		.optional()
		.describe('The names and numbers in the message, for the same text in another language.'),
	retryAfterMs: z.number().optional().describe('The least wait that the service asked for.'),
});

export const statusSchema = z.object({
	schemaVersion: z
		.literal(STATUS_SCHEMA_VERSION)
		.describe('Raised when a field changes its meaning or goes away; new fields do not raise it.'),
	state: z
		.enum(['unpaired', 'connecting', 'online', 'offline', 'blocked'])
		.describe(
			'unpaired: waits for a pairing code. connecting: has not been online yet. online: registered and subscribed. ' +
				'offline: was online, reconnects automatically. blocked: needs a person; the agent retries slowly.',
		),
	sentence: z.string().describe('One sentence that a technician can act on.'),
	summary: z
		.object({
			code: z.enum([
				'unpaired',
				'unpaired-uncertain',
				'connecting',
				'online',
				'online-wanted',
				'online-waiting',
				'online-renewing',
				'online-moving-service',
				'online-registering',
				'online-moving',
				'offline',
				'blocked',
			]),
			params: paramsSchema,
		})
		.describe('The sentence as data; params.problem is the code of the problem or warning in it.'),
	agentVersion: z.string(),
	startedAt: timestamp,
	deviceId: z.string().nullable(),
	deviceType: z.string(),
	serial: z.string().nullable(),
	macAddress: z.string().nullable(),
	labels: z.array(z.string()).optional().describe('fleet.labels, by which plans choose.'),
	baseUrl: z.string().nullable(),
	workflow: z.object({
		wanted: z.string().nullable().describe('The workflow that the device should run.'),
		live: z.string().nullable().describe('The workflow with which it is online now.'),
		waitsUntil: timestamp
			.nullable()
			.describe('While a change waits for the leases of applications: when it is made at the latest.'),
		source: z
			.enum(['flag', 'environment', 'file', 'plan', 'pairing', 'workflow set', 'service message'])
			.nullable()
			.describe('The source of wanted.'),
	}),
	channel: z.object({
		state: z.enum(['none', 'registering', 'registerWait', 'connecting', 'online', 'connectWait', 'blocked', 'closed']),
		since: timestamp.nullable().describe('When it entered this state.'),
		lastHeartbeatAt: timestamp.nullable(),
		lastAnswerAt: timestamp
			.nullable()
			.optional()
			.describe('When the service last answered a ping; null before the first.'),
		heartbeatCadence: z.int().optional().describe('Seconds between heartbeats, where settings or a plan say so.'),
		reconnects: z.int().describe('How often the channel reconnected since the agent started.'),
		nextAttemptAt: timestamp.nullable().describe('When the next attempt is due, while waiting.'),
		idleTimeout: z
			.object({
				seconds: z.int(),
				pingSeconds: z
					.int()
					.nullable()
					.describe('How often the line is pinged; null before the next channel is opened.'),
			})
			.nullable()
			.optional()
			.describe(
				'Something on the way ends a line that is silent for so long; the agent pings it in time. null: none found.',
			),
		recentCuts: z
			.object({
				count: z.int(),
				windowSeconds: z.int(),
				typicalLifeSeconds: z.int().describe('Median of how long those channels were open.'),
				cause: z
					.string()
					.describe(
						'The most frequent cause: a close code, silence, the status of a refused handshake, or the code of the problem.',
					),
			})
			.nullable()
			.optional()
			.describe('How often the open channel was cut within the last minutes; null when it was not.'),
	}),
	/** The fleet plan; `null` where `fleet.planUrl` is not set. */
	plan: z
		.object({
			fleet: z.string().nullable().optional().describe('The fleet that the plan names; null where it names none.'),
			epoch: z.int().optional().describe('Takes precedence over the revision; 0 unless the plan says otherwise.'),
			revision: z.int().nullable().describe('The revision in force; null before the first.'),
			validUntil: timestamp
				.nullable()
				.optional()
				.describe(
					'Afterwards the device keeps running as it is, begins nothing new from this plan, and warns; null: for ever.',
				),
			followed: z
				.int()
				.nullable()
				.describe('The newest revision under which the device was online: what heartbeats carry as planRevision.'),
			rule: z.string().nullable().describe("The rule that matches; null for the plan's defaults."),
			ring: z
				.number()
				.optional()
				.describe('The ring of a rollout that holds this device, in percent; absent outside a rollout.'),
			workflowId: z
				.string()
				.nullable()
				.describe('The workflow that the plan assigns; null where it leaves the workflow open.'),
			next: z
				.object({ revision: z.int(), workflowId: z.string().nullable(), at: timestamp })
				.nullable()
				.describe('A newer revision or ring that this device applies later, at its own moment.'),
			refused: problemSummarySchema
				.extend({ revision: z.int(), at: timestamp, nextTryAt: timestamp })
				.nullable()
				.describe("Set while the device keeps its last good workflow because the plan's assignment failed."),
			servedRefused: problemSummarySchema.nullish().describe('Why the plan that is served is not followed.'),
			checkedAt: timestamp.nullable().describe('When the plan was last confirmed, since the agent started.'),
		})
		.nullable(),
	updates: z
		.object({
			ordered: z
				.string()
				.nullable()
				.describe('The version that the fleet plan orders and this device does not have, or not proved, yet.'),
			reason: z
				.enum(UPDATE_REASONS)
				.nullable()
				.optional()
				.describe('A permanent word of docs/updates.md for what keeps it from being carried out.'),
			takenBack: z
				.array(z.object({ version: z.string(), at: timestamp, fault: z.string() }))
				.describe('Versions that did not work on this device; the newest is the last.'),
		})
		.optional()
		.describe('Absent where nothing is ordered, update.enabled is not set and no version was taken back.'),
	forward: z
		.object({
			maxBytes: z.int().describe('forward.maxBytes: the largest body of a request and of an answer.'),
			idleSeconds: z.number().describe('forward.idleSeconds: how long nothing may move.'),
			each: z
				.int()
				.describe(
					'Requests that one program (a process) on a shared socket may have under way; others wait up to 30 s.',
				),
		})
		.optional()
		.describe('The bounds of /v1/service/.'),
	sessionId: z.string().nullable().describe('The session that the pairing link named, if it named one.'),
	pairedAt: timestamp.nullable(),
	pairedAtBy: z
		.enum(['service', 'wrong clock'])
		.optional()
		.describe("The clock of pairedAt, where it is not this device's while that was right."),
	problem: problemSummarySchema.nullable(),
	warnings: z.array(problemSummarySchema),
	newestEventId: z.string().nullable().describe("The newest event's id, to follow from here; null before the first."),
});
export type Status = z.infer<typeof statusSchema>;

/** One entry of the audit log. Holds no personal data and no secret. */
export const auditEntrySchema = z.object({
	at: timestamp,
	action: z
		.string()
		.describe(
			'The operation that was asked for (such as unpair), or what happened: paired, moved, planReceived, planKeysChanged, settingTaken, planHandedOver (it orders another version of the agent), updated, leftOut (entries that came too fast).',
		),
	entrance: z
		.string()
		.describe('admin.sock, page, scanner, person, kept answer, plan, settings, the source of a workflow, or agent.'),
	result: z.string().describe('ok, or the code of the problem; update-taken-back where from did not work.'),
	version: z.string().describe('The version of the agent that wrote the entry.'),
	host: z.string().optional(),
	workflowId: z.string().optional(),
	from: z.string().optional().describe('What it was before.'),
	to: z.string().optional().describe('What it is now; of settingTaken the name of the setting.'),
	fleet: z.string().optional(),
	epoch: z.int().optional(),
	revision: z.int().optional(),
	keys: z.array(z.string()).optional().describe('Public keys.'),
	of: z.string().optional().describe('The operation whose repetitions were left out.'),
	count: z.int().optional().describe('How many events were erased, or entries left out.'),
	atLeast: z.literal(true).optional().describe('The agent was killed: there may have been a few more than count says.'),
});
export type AuditEntry = z.infer<typeof auditEntrySchema>;

export const auditReportSchema = z.object({ entries: z.array(auditEntrySchema).describe('Oldest first.') });
export type AuditReport = z.infer<typeof auditReportSchema>;

const editionSchema = z.object({ epoch: z.int(), revision: z.int() });

/** The fleet plan that the device follows, and what it is trusted by. */
export const planReportSchema = z.object({
	host: z.string().nullable().describe('The host of fleet.planUrl; null where it is not set.'),
	fleetName: z.string().nullable().describe('fleet.name.'),
	publicKeys: z.array(z.string()).describe('fleet.publicKeys.'),
	inForce: editionSchema
		.extend({
			fleet: z.string().nullable().describe('The fleet that the plan names.'),
			validUntil: timestamp.nullable(),
			rule: z.string().nullable(),
			workflowId: z.string().nullable(),
			keys: z.array(z.string()).describe('The configured keys that had signed it.'),
		})
		.nullable(),
	waiting: editionSchema.extend({ at: timestamp }).nullable().describe('A newer plan that this device applies later.'),
	newest: z
		.array(editionSchema.extend({ key: z.string().nullable() }))
		.describe('The newest plan by each key; an older one than any of these is refused. key null: unsigned.'),
	problem: problemSummarySchema.nullable().describe('Set when the trust in the plan has ended.'),
	checkedAt: timestamp.nullable().describe('When the plan was last confirmed to be current, since the agent started.'),
});
export type PlanReport = z.infer<typeof planReportSchema>;

/** An event as the agent hands it to the kiosk's application. */
export const eventSchema = z.object({
	id: z
		.string()
		.describe('Opaque and never used twice. Compare it only for equality: its text does not sort. Resumes a stream.'),
	at: timestamp.describe("When the agent received it, by the device's clock."),
	type: z
		.enum(['notification', 'session', 'gap'])
		.describe(
			'notification: from the service. session: named by a pairing link. gap: time in which some may have been missed.',
		),
	kind: z.string().describe("The service's word for a notification; equal to type otherwise."),
	workflowId: z.string().nullable(),
	format: z
		.enum(['json', 'text', 'binary'])
		.describe('The form of data: JSON as the service sent it, a string for text, base64 for binary.'),
	data: z.unknown().describe('For a gap: {"from" (or null), "to"}, between which nothing could be received.'),
});
export type LocalEvent = z.infer<typeof eventSchema>;

export const eventPageSchema = z.object({
	events: z.array(eventSchema),
	next: z.string().nullable().describe('Ask again with since set to this.'),
});
export type EventPage = z.infer<typeof eventPageSchema>;

/** How far a consumer has acknowledged. */
export const ackResultSchema = z.object({ consumer: z.string(), position: z.string().nullable() });
/** `known`: whether there was such a consumer. */
export const forgetResultSchema = z.object({ consumer: z.string(), known: z.boolean() });
/** How many events were erased. */
export const eraseResultSchema = z.object({ erased: z.int() });
export type EraseResult = z.infer<typeof eraseResultSchema>;
export type AckResult = z.infer<typeof ackResultSchema>;
export type ForgetResult = z.infer<typeof forgetResultSchema>;

/** Something that a command of `hooks.*` is to be run for. */
export const hookCallSchema = z.object({
	hook: z.string().describe('The name of the setting: onOnline.'),
	input: z.unknown().describe('For the standard input of the command.'),
});
export type HookCall = z.infer<typeof hookCallSchema>;

/** `waiting`: how many calls were not reported yet. */
export const hookReceiptSchema = z.object({ waiting: z.int() });

export const leaseReportSchema = z.object({
	leases: z.array(z.object({ name: z.string(), since: timestamp, until: timestamp })),
});
export type LeaseReport = z.infer<typeof leaseReportSchema>;

/** The effect that a code would have, found without redeeming it and without the network. Holds no secret. */
export const pairPreviewSchema = z.object({
	ready: z.boolean().describe('Whether pairing with this code can go ahead as asked.'),
	baseUrl: z.string().nullable(),
	host: z.string().nullable(),
	hostInUnicode: z
		.string()
		.optional()
		.describe(
			'The name of the host as it is shown elsewhere, without the port; only where it differs from host, which is in punycode.',
		),
	workflowId: z.string().nullable(),
	workflowSource: z.string().nullable(),
	sessionId: z.string().nullable(),
	tokenKind: z.string().describe('The kind of credential that the code carries, such as Short Token (one use).'),
	changes: z
		.array(z.string())
		.describe(
			'Every change that pairing would make, one line each; also where only a confirmation or replace is missing.',
		),
	problem: problemSummarySchema.nullable().describe('The first thing that prevents pairing.'),
});
export type PairPreview = z.infer<typeof pairPreviewSchema>;

export const pairResultSchema = z.object({
	baseUrl: z.string(),
	deviceId: deviceIdSchema,
	workflowId: z.string(),
	sessionId: z.string().nullable(),
	online: z.boolean().describe('Whether the device is online already; sentence describes its state.'),
	sentence: z.string(),
});
export type PairResult = z.infer<typeof pairResultSchema>;

export const identityReportSchema = z.object({
	deviceId: z.object({ value: z.string(), source: z.string() }),
	serial: z.object({ value: z.string().nullable(), source: z.string() }),
	macAddress: z.object({ value: z.string().nullable(), source: z.string() }),
	pinned: z.boolean(),
	rejected: z
		.array(z.object({ source: z.string(), reason: z.string() }))
		.describe('Sources that were looked at and not taken, with the reason.'),
	warnings: z.array(problemSummarySchema),
});
export type IdentityReport = z.infer<typeof identityReportSchema>;

/** `/livez`: the agent runs. */
export const liveReportSchema = z.object({ live: z.literal(true) });

/** `/readyz`: registered and subscribed, or why not. */
export const readyReportSchema = z.object({ ready: z.boolean(), sentence: z.string() });

/** The newest lines of the agent's log, oldest first, as they were written. */
export const logReportSchema = z.object({ lines: z.array(z.string()) });
export type LogReport = z.infer<typeof logReportSchema>;

/** Every error of the local interface. Source: RFC 9457, with the agent's own `code`, `remedy`, `params` and `sentence`. */
export const problemSchema = z.object({
	status: z.int().describe('The HTTP status, repeated.'),
	title: z.string(),
	detail: z.string().describe('What went wrong this time.'),
	code: z.string().describe('Permanent name for programs.'),
	remedy: z.string().describe('What to do about it.'),
	params: paramsSchema
		.optional()
		.describe('The names and numbers in the detail, for the same text in another language.'),
	sentence: z.string().optional().describe('Detail and remedy as one text for people.'),
	errors: z
		.array(z.object({ path: z.string(), message: z.string() }))
		.optional()
		.describe('Where in the body, for a body that does not match its schema.'),
});

/** The scanners that the agent sees, and whether it listens to them. */
export const scannerReportSchema = z.object({
	listening: z.boolean().describe('Whether the agent takes a code that is scanned now.'),
	sentence: z.string().describe('Why, or why not, in one sentence.'),
	devices: z.array(
		z.object({
			kind: z.enum(['serial', 'keyboard']),
			path: z.string(),
			node: z.string(),
			chosen: z.boolean(),
			why: z.string().describe('Why it is chosen, or why not.'),
			open: z.boolean().describe('Whether it is open.'),
			hidden: z
				.boolean()
				.nullable()
				.describe('Whether desktops ignore it; null where that is not known or does not matter.'),
			usb: z
				.object({ vendorId: z.string(), modelId: z.string() })
				.nullable()
				.describe('USB vendor and model in hexadecimal.'),
			problem: problemSummarySchema.nullable(),
		}),
	),
});
export type ScannerReport = z.infer<typeof scannerReportSchema>;
