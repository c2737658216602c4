/** The agent's own interface on `agent.sock` and `admin.sock`: its paths and the bodies that it takes. */
import * as z from 'zod';
import { workflowIdSchema } from './device-connection.ts';
import { later } from './later.ts';
import { CONSUMER_NAME, MAX_LEASE_SECONDS } from './names.ts';
import { MAX_CODE_LENGTH } from './pairing-code.ts';

export type {
	AckResult,
	AuditEntry,
	AuditReport,
	EraseResult,
	EventPage,
	HookCall,
	IdentityReport,
	LeaseReport,
	LocalEvent,
	LogReport,
	PairPreview,
	PairResult,
	PlanReport,
	ScannerReport,
	Status,
} from './local-answers.ts';
export { CONSUMER_NAME, FORWARDED_METHODS, MAX_LEASE_SECONDS } from './names.ts';
export type { SettingsReport } from './settings-report.ts';

/** Requests to the service that one program on shared sockets may have under way. */
export const FORWARDED_EACH = 16;

/** Time of a lease that names none, in seconds. */
export const DEFAULT_LEASE_SECONDS = 60;

/** The name of an application's consumer or lease among all: `lobby:main`. Names of callers on a shared socket have no application. */
export const OWN_NAME = /^(?:[\w.-]{1,64}:)?[\w.-]{1,64}$/;
/** The application's part of it with the colon, empty for a caller on a shared socket. */
export const applicationIn = (name: string): string => name.slice(0, name.indexOf(':') + 1);

/** The most applications in a file. */
export const MAX_APPLICATIONS = 16;

/** A consumer chooses its name, and always uses the same. */
const consumerName = later(() =>
	z.string().regex(CONSUMER_NAME, 'must be 1 to 64 letters, digits, dots, hyphens or underscores'),
);

export const ackRequestSchema = later(() =>
	z
		.strictObject({
			consumer: consumerName,
			id: z.string().min(1).max(64).describe('The consumer has processed everything up to this event.'),
		})
		.meta({ id: 'AckRequest' }),
);
export type AckRequest = z.infer<typeof ackRequestSchema>;

export const forgetRequestSchema = later(() =>
	z.strictObject({ consumer: consumerName }).meta({ id: 'ForgetRequest' }),
);

const leaseFields = () => ({
	name: consumerName,
	work: consumerName
		.optional()
		.describe('Which work under this name: each is held and released singly, and the lease ends with the last.'),
});
export const leaseRequestSchema = later(() =>
	z
		.strictObject({
			...leaseFields(),
			seconds: z
				.number()
				.min(1)
				.max(MAX_LEASE_SECONDS)
				.default(DEFAULT_LEASE_SECONDS)
				.describe('From now on; a lease that is taken again under the same name and for the same work starts again.'),
		})
		.meta({ id: 'LeaseRequest' }),
);
export const leaseReleaseSchema = later(() => z.strictObject(leaseFields()).meta({ id: 'LeaseRelease' }));

export const pairRequestSchema = later(() =>
	z
		.strictObject({
			code: z
				.string()
				.min(1, 'must not be empty')
				.max(MAX_CODE_LENGTH, `must have at most ${MAX_CODE_LENGTH} characters`)
				.describe('The scanned or typed text.'),
			workflowId: workflowIdSchema.optional().describe('For a code that names none.'),
			replace: z.boolean().default(false).describe('Move a device that is paired already.'),
			trustOrigin: z
				.string()
				.optional()
				.describe('The origin that a person has looked at and agreed to, such as https://id.example.com.'),
			keepEvents: z.boolean().optional().describe('Keep the events of the service that the device leaves.'),
		})
		.meta({ id: 'PairRequest' }),
);
export type PairRequest = z.input<typeof pairRequestSchema>;

export const unpairRequestSchema = later(() =>
	z
		.strictObject({ keepEvents: z.boolean().default(false).describe('Keep the stored events.') })
		.prefault({})
		.meta({ id: 'UnpairRequest' }),
);

export const eraseRequestSchema = later(() =>
	z
		.strictObject({
			session: z
				.string()
				.min(1, 'must not be empty')
				.max(512, 'must have at most 512 characters')
				.optional()
				.describe('Every event in which this id is a word.'),
			before: z.iso
				.datetime({ offset: true, error: 'must be a time such as 2026-11-21T06:00:00Z' })
				.optional()
				.describe('Every event that was received before this time.'),
		})
		.refine(({ session, before }) => (session === undefined) !== (before === undefined), 'must name session or before')
		.meta({ id: 'EraseRequest' }),
);

/** Longest wait for a workflow to be live, in seconds. */
export const MAX_WORKFLOW_WAIT_SECONDS = 3600;

export const workflowRequestSchema = later(() =>
	z
		.strictObject({
			workflowId: workflowIdSchema,
			waitSeconds: z
				.number()
				.min(0)
				.max(MAX_WORKFLOW_WAIT_SECONDS)
				.optional()
				.describe(
					'Answer when the workflow is live. If it is refused, not live in this time, or the caller does not wait, nothing of it stays. Left out or 0, it is only asked for.',
				),
		})
		.meta({ id: 'WorkflowRequest' }),
);

/** The consumer under which `idv-agent hooks` reads notifications: they wait for it as for an application. */
export const HOOKS_CONSUMER = 'idv-agent-hooks';

export const HOOK_OUTCOMES = ['started', 'exited', 'killed', 'timedOut', 'notStarted'] as const;

export const hookReportSchema = later(() =>
	z
		.strictObject({
			id: z
				.string()
				.min(1)
				.max(64)
				.optional()
				.describe('Of the call, for started and notStarted: it is not told again.'),
			outcome: z.enum(HOOK_OUTCOMES).describe('notStarted: there is no such command, or it cannot be run.'),
		})
		.meta({ id: 'HookReport' }),
);
export type HookReport = z.input<typeof hookReportSchema>;

export const EVENT_PAGE_LENGTH = 100;
/** Longest wait for the next event in one JSON answer, in seconds. */
export const MAX_EVENT_WAIT_SECONDS = 60;

/** File names of the two sockets in the run directory. */
export const LOCAL_SOCKETS = { agent: 'agent.sock', admin: 'admin.sock' } as const;

/** The routes of the two sockets. */
export const LOCAL_ROUTES = {
	status: '/v1/status',
	statusStream: '/v1/status/stream',
	events: '/v1/events',
	eventStream: '/v1/events/stream',
	ack: '/v1/events/ack',
	forget: '/v1/events/forget',
	hookStream: '/v1/hooks/stream',
	hookReport: '/v1/hooks/report',
	erase: '/v1/events/erase',
	leases: '/v1/leases',
	leaseRelease: '/v1/leases/release',
	identity: '/v1/identity',
	identityAccept: '/v1/identity/accept',
	scanners: '/v1/scanners',
	settings: '/v1/settings',
	pair: '/v1/pair',
	pairInspect: '/v1/pair/inspect',
	workflow: '/v1/workflow',
	plan: '/v1/plan',
	planForget: '/v1/plan/forget',
	reconnect: '/v1/reconnect',
	unpair: '/v1/unpair',
	service: '/v1/service/',
	log: '/v1/log',
	audit: '/v1/audit',
	auditStream: '/v1/audit/stream',
	metrics: '/metrics',
	live: '/livez',
	ready: '/readyz',
	document: '/v1/openapi.json',
} as const;
