/** What the OpenAPI document says in words: of each route, parameter and field. No logic, and nothing a schema says already. */
import {
	CONSUMER_NAME,
	DEFAULT_LEASE_SECONDS,
	EVENT_PAGE_LENGTH,
	LOCAL_ROUTES,
	MAX_EVENT_WAIT_SECONDS,
} from '../protocol/local-api.ts';

/** By content type: the name of a schema, `text`, or `any` for bytes that the agent does not look into. */
export type Content = Readonly<Record<string, string>>;

export interface RouteWords {
	/** `operationId`: what a generated client calls it. */
	readonly name: string;
	readonly summary: string;
	readonly description?: string;
	readonly parameters?: readonly (keyof typeof PARAMETERS)[];
	/** By status; problems are added. */
	readonly answers: Readonly<Record<string, { readonly about: string; readonly content?: Content }>>;
}

const EVENT_ID = { type: 'string', pattern: '^[A-Za-z0-9]{1,32}-\\d{1,15}$', examples: ['tou5mrr6w30w-2'] };

export const PARAMETERS = {
	since: {
		name: 'since',
		in: 'query',
		description: 'The newest event that the caller has: what came after it is answered.',
		schema: EVENT_ID,
	},
	lastEventId: {
		name: 'Last-Event-ID',
		in: 'header',
		description: 'As since, and wins over it: an EventSource sends it by itself when it comes back.',
		schema: EVENT_ID,
	},
	consumer: {
		name: 'consumer',
		in: 'query',
		description: 'A name of the application’s own: without since, what it has not acknowledged is answered.',
		schema: { type: 'string', pattern: CONSUMER_NAME.source },
	},
	wait: {
		name: 'wait',
		in: 'query',
		description: 'Seconds to wait for an event if there is none yet. Only for JSON.',
		schema: { type: 'number', minimum: 0, maximum: MAX_EVENT_WAIT_SECONDS, default: 0 },
	},
} as const;

const STATUS = { about: 'How the device stands now.', content: { 'application/json': 'Status' } } as const;
const LEASES = { about: 'All leases that hold.', content: { 'application/json': 'LeaseReport' } } as const;

/** By method and path of the route table. */
export const ROUTE_WORDS: Readonly<Record<string, RouteWords>> = {
	[`GET ${LOCAL_ROUTES.document}`]: {
		name: 'getDocument',
		summary: 'This document.',
		answers: { 200: { about: 'OpenAPI 3.1.', content: { 'application/json': 'any' } } },
	},
	[`GET ${LOCAL_ROUTES.status}`]: {
		name: 'getStatus',
		summary: 'How the device stands: one sentence for a person, then details.',
		description: 'With Accept: text/event-stream, a stream of events named status, one for each change.',
		answers: { 200: { about: STATUS.about, content: { 'application/json': 'Status', 'text/event-stream': 'text' } } },
	},
	[`GET ${LOCAL_ROUTES.events}`]: {
		name: 'getEvents',
		summary:
			'Events of the device: notifications of the service, sessions, and gaps in which something may be missing.',
		description:
			`At least once and in order. As JSON, at most ${EVENT_PAGE_LENGTH} of them; ask again with since=next. With Accept: ` +
			'text/event-stream, a stream whose data is one Event each; its last event, named closed, says why it is over ' +
			'({"reason":"slow"} for a reader that did not keep up: come back with the last id).',
		parameters: ['since', 'lastEventId', 'consumer', 'wait'],
		answers: {
			200: {
				about: 'Events, oldest first.',
				content: { 'application/json': 'EventPage', 'text/event-stream': 'text' },
			},
		},
	},
	[`POST ${LOCAL_ROUTES.ack}`]: {
		name: 'acknowledgeEvents',
		summary: 'Says that a consumer has dealt with everything up to an event.',
		answers: { 200: { about: 'How far it has acknowledged.', content: { 'application/json': 'AckResult' } } },
	},
	[`POST ${LOCAL_ROUTES.forget}`]: {
		name: 'forgetConsumer',
		summary: 'Says that a consumer is out of use: no contents are kept for it any more.',
		description: 'Under the same name again it is a new one, which has acknowledged nothing.',
		answers: { 200: { about: 'Whether it was known.', content: { 'application/json': 'ForgetResult' } } },
	},
	[`GET ${LOCAL_ROUTES.leases}`]: {
		name: 'getLeases',
		summary: 'Which applications keep a workflow change waiting.',
		answers: { 200: LEASES },
	},
	[`POST ${LOCAL_ROUTES.leases}`]: {
		name: 'holdLease',
		summary: 'Says that a verification is going on: a workflow change waits for it.',
		description: `For ${DEFAULT_LEASE_SECONDS} s unless it says otherwise, and never longer than workflow.maxDeferSeconds. A restart of the agent ends it: renew it while the work goes on.`,
		answers: { 200: LEASES },
	},
	[`POST ${LOCAL_ROUTES.leaseRelease}`]: {
		name: 'releaseLease',
		summary: 'Says that the verification is over.',
		answers: { 200: LEASES },
	},
	[`GET ${LOCAL_ROUTES.identity}`]: {
		name: 'getIdentity',
		summary: 'Who the device is, and where each value comes from.',
		answers: {
			200: { about: 'Identifier, serial number, MAC address.', content: { 'application/json': 'IdentityReport' } },
		},
	},
	[`POST ${LOCAL_ROUTES.identityAccept}`]: {
		name: 'acceptIdentity',
		summary: 'Says that this is still the device that was paired, after a part of it was replaced.',
		answers: {
			200: { about: 'As it is pinned from now on.', content: { 'application/json': 'IdentityReport' } },
		},
	},
	[`GET ${LOCAL_ROUTES.scanners}`]: {
		name: 'getScanners',
		summary: 'The code scanners that the agent sees, and whether it listens to them.',
		answers: { 200: { about: 'Every device, used or not.', content: { 'application/json': 'ScannerReport' } } },
	},
	[`* ${LOCAL_ROUTES.service}`]: {
		name: 'askService',
		summary: 'The same request to the service, with the Connection of the device added.',
		description:
			'Refused before anything is sent: an Authorization of the caller, paths that lead out of the base URL or to the ' +
			'authorization endpoints, and what forward.allow leaves out. Redirects are not followed.',
		answers: { '2XX': { about: 'What the service answers.', content: { '*/*': 'any' } } },
	},
	[`GET ${LOCAL_ROUTES.metrics}`]: {
		name: 'getMetrics',
		summary: 'Figures of the agent.',
		answers: { 200: { about: "Prometheus' text format.", content: { 'text/plain': 'text' } } },
	},
	[`GET ${LOCAL_ROUTES.live}`]: {
		name: 'getLive',
		summary: 'Whether the agent lives.',
		answers: { 200: { about: 'It does.', content: { 'application/json': 'LiveReport' } } },
	},
	[`GET ${LOCAL_ROUTES.ready}`]: {
		name: 'getReady',
		summary: 'Whether the device is registered and subscribed.',
		answers: {
			200: { about: 'It is.', content: { 'application/json': 'ReadyReport' } },
			503: { about: 'Not now; the sentence says why.', content: { 'application/json': 'ReadyReport' } },
		},
	},
	[`POST ${LOCAL_ROUTES.pairInspect}`]: {
		name: 'inspectPairing',
		summary: 'What a pairing code would do. Spends nothing.',
		answers: { 200: { about: 'What would be different.', content: { 'application/json': 'PairPreview' } } },
	},
	[`POST ${LOCAL_ROUTES.pair}`]: {
		name: 'pair',
		summary: 'Spends a pairing code.',
		description: 'Never repeat it by itself: a code works once. pairing-uncertain says that it may have been used.',
		answers: { 200: { about: 'Where the device belongs now.', content: { 'application/json': 'PairResult' } } },
	},
	[`PUT ${LOCAL_ROUTES.workflow}`]: {
		name: 'setWorkflow',
		summary: 'Assigns a workflow. The answer says what is wanted; live follows.',
		answers: { 200: STATUS },
	},
	[`GET ${LOCAL_ROUTES.log}`]: {
		name: 'getLog',
		summary: "The newest lines of the agent's log: for a support bundle.",
		answers: { 200: { about: 'Oldest first, scrubbed of secrets.', content: { 'application/json': 'LogReport' } } },
	},
	[`POST ${LOCAL_ROUTES.reconnect}`]: {
		name: 'reconnect',
		summary: 'Tries again now, whatever the agent was waiting for.',
		answers: { 200: STATUS },
	},
	[`POST ${LOCAL_ROUTES.unpair}`]: {
		name: 'unpair',
		summary: 'Forgets the pairing and its secrets.',
		answers: { 200: STATUS },
	},
};

/** By schema and dotted field. */
export const FIELD_WORDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
	Status: {
		schemaVersion: 'Raised when a field changes its meaning or goes away; new fields do not raise it.',
		state:
			'unpaired: waits for a pairing code. connecting: has not been online yet. online: registered and subscribed. ' +
			'offline: was online, comes back automatically. blocked: only a person can help.',
		sentence: 'One sentence that a technician can act on.',
		summary: 'The same as data; params.problem is the code of the problem or warning that the sentence tells.',
		'workflow.wanted': 'What the device is meant to run.',
		'workflow.live': 'What it is online with at this moment.',
		'workflow.source': 'Where wanted comes from.',
		'workflow.waitsUntil': 'While a change waits for leases: when it is made at the latest.',
		'channel.reconnects': 'Since the agent started.',
		'channel.nextAttemptAt': 'While waiting.',
		sessionId: 'Named by the pairing link, if it named one.',
		newestEventId: 'To follow events from here.',
	},
	Event: {
		id: 'Orders events and resumes a stream; never used twice.',
		at: "When the agent received it, by the device's clock.",
		type: 'notification: from the service. session: named by a pairing link. gap: some may have been missed.',
		kind: "The service's word for a notification; equal to type otherwise.",
		format: 'What data is: JSON as the service sent it, a string for text, base64 for binary.',
		data: 'For a gap: {"from", "to"}, between which nothing could be received.',
	},
	EventPage: { next: 'Ask again with since set to this.' },
	AckRequest: { id: 'Everything up to this event is dealt with.' },
	LeaseRequest: { seconds: 'From now on; taken again under the same name, it begins anew.' },
	PairRequest: {
		code: 'The scanned or typed text.',
		workflowId: 'For a code that names none.',
		replace: 'Move a device that is paired already.',
		trustOrigin: 'The origin that a person has looked at and agreed to, such as https://id.example.com.',
	},
	PairPreview: {
		ready: 'Whether pairing can go ahead as asked.',
		hostInUnicode: 'The name of the host as it is shown elsewhere, only where that is not the same.',
		changes: 'What would be different afterwards, one line each; also where only a confirmation or replace is missing.',
		problem: 'The first thing that stands in the way.',
	},
	ScannerReport: {
		listening: 'Whether a code that is scanned now counts.',
		sentence: 'Why, or why not.',
	},
	Problem: {
		code: 'Permanent name for programs.',
		detail: 'What went wrong.',
		remedy: 'What to do about it.',
		params: 'What the detail names, for the same text in another language.',
		sentence: 'Detail and remedy as one text for people.',
		errors: 'Where in the body.',
	},
};
