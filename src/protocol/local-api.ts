/**
 * The agent's own interface on `agent.sock` and `admin.sock`: its routes and the bodies that it takes. What it answers
 * stands in `local-answers.ts`: a daemon has no need of those schemas before somebody asks for its document.
 */
import * as z from 'zod';
import { workflowIdSchema } from './device-connection.ts';
import { MAX_CODE_LENGTH } from './pairing-code.ts';

export type {
	AckResult,
	EventPage,
	IdentityReport,
	LeaseReport,
	LocalEvent,
	LogReport,
	PairPreview,
	PairResult,
	ScannerReport,
	Status,
} from './local-answers.ts';

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

/** Out of use: no contents are kept for this consumer any more. */
export const forgetRequestSchema = z.strictObject({ consumer: consumerName });

/** "A verification is going on": a workflow change waits. Taken again under the same name, it lasts so long from then. */
export const leaseRequestSchema = z.strictObject({
	name: consumerName,
	seconds: z.number().min(1).max(MAX_LEASE_SECONDS).default(DEFAULT_LEASE_SECONDS),
});
export const leaseReleaseSchema = z.strictObject({ name: consumerName });

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

export const workflowRequestSchema = z.strictObject({ workflowId: workflowIdSchema });

/** Events in one JSON answer, at most. */
export const EVENT_PAGE_LENGTH = 100;
/** Longest wait for the next event in one JSON answer, in seconds. */
export const MAX_EVENT_WAIT_SECONDS = 60;

/** File names of the two sockets in the run directory. */
export const LOCAL_SOCKETS = { agent: 'agent.sock', admin: 'admin.sock' } as const;

/** The routes of the two sockets. */
export const LOCAL_ROUTES = {
	status: '/v1/status',
	events: '/v1/events',
	ack: '/v1/events/ack',
	forget: '/v1/events/forget',
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
