/**
 * Every way in which the agent can fail, once: a permanent code, what a person does about it, whether the agent recovers on
 * its own, the exit status, and for failures of a link how they are retried. Owns no wording of single events (the thrower
 * writes `message`), no sentence (that is `sentences.ts`) and no delay (that is `connection/backoff.ts`).
 */

/** Exit statuses, as sysexits has them. */
export const EXIT = {
	ok: 0,
	usage: 64,
	badData: 65,
	unavailable: 69,
	internal: 70,
	io: 74,
	temporary: 75,
	refused: 77,
	configuration: 78,
} as const;

/** Who acts after a failed link: the agent by waiting, the agent by registering again, or a person. */
export type Disposition = 'retry' | 'reregister' | 'askHuman';

/** How attempts after a failed link are spaced; numbers in `connection/backoff.ts`. */
export type RetryClass = 'unreachable' | 'overloaded' | 'refused' | 'slow';

interface RetryBehaviour {
	readonly disposition: Disposition;
	readonly retryClass: RetryClass;
}

interface CatalogueRow {
	readonly exit: number;
	/** An instruction for a person; says nothing of what the agent does. */
	readonly remedy: string;
	/** Whether the agent carries on without a person once the cause is gone. */
	readonly recovers: boolean;
	/** Only for failures of a link. */
	readonly retry?: RetryBehaviour;
}

const ASK_HUMAN: RetryBehaviour = { disposition: 'askHuman', retryClass: 'slow' };

/** Not a failure of a link; a person must act. */
const ask = (exit: number, remedy: string): CatalogueRow => ({ exit, remedy, recovers: false });
/** Not a failure of a link; the agent watches the cause and carries on. */
const recovers = (exit: number, remedy: string): CatalogueRow => ({ exit, remedy, recovers: true });
const retried = (retryClass: RetryClass, exit: number, remedy: string): CatalogueRow => ({
	exit,
	remedy,
	recovers: true,
	retry: { disposition: 'retry', retryClass },
});
/** Failures of a link. */
const unreachable = (remedy: string) => retried('unreachable', EXIT.unavailable, remedy);
const overloaded = (remedy: string, exit: number = EXIT.unavailable) => retried('overloaded', exit, remedy);
const slow = (remedy: string, exit: number = EXIT.unavailable) => retried('slow', exit, remedy);
const blocked = (exit: number, remedy: string): CatalogueRow => ({ ...ask(exit, remedy), retry: ASK_HUMAN });
const refused = (remedy: string): CatalogueRow => ({
	...ask(EXIT.refused, remedy),
	retry: { disposition: 'reregister', retryClass: 'refused' },
});

/** One row for each permanent code. A code is never renamed and never reused. */
export const CATALOGUE = {
	// The way to the service.
	'dns-failed': unreachable('Check the network cable or Wi-Fi and the DNS server of this site.'),
	'service-unreachable': unreachable('Check the network and that the firewall lets this device reach the host.'),
	'connect-timeout': unreachable('Check that a firewall does not swallow connections to the host.'),
	'handshake-timeout': overloaded(
		'If it lasts, check the line and the proxies on the way: one of them or the service is slow.',
	),
	'request-timeout': overloaded(
		'If it lasts, check the line and the proxies on the way: one of them or the service is slow.',
	),
	'connection-lost': unreachable('If it happens often, check the line.'),
	'connection-replaced': unreachable(
		'If it happens again, look for a second device with the same deviceId: each new channel ends the older one.',
	),
	'channel-silent': unreachable(
		'If it lasts, check the line, or set service.silenceLimitSeconds to 0 for a service that answers no ping.',
	),
	'clock-wrong': unreachable("Set this device's clock, or let it reach a time server."),
	'certificate-expired': slow(
		"The service's operator must renew the certificate; if it is valid elsewhere, check this device's clock.",
	),
	'certificate-untrusted': slow(
		'If this site inspects TLS or the service has a certificate authority of its own, name its certificate in network.caFile.',
	),
	'certificate-wrong-host': slow(
		'Check the host name in baseUrl; a captive portal or a proxy may be answering in its place.',
	),
	'tls-failed': unreachable('Check that the host speaks TLS on this port and that no proxy breaks it.'),
	'proxy-failed': unreachable(
		'Check network.proxy and that the proxy runs; the credential of this device is not in question.',
	),
	'proxy-refused': blocked(
		EXIT.unavailable,
		'Give the proxy a user and password it accepts in network.proxy, or have it allow this host; the credential of this device is not in question.',
	),
	'captive-portal': unreachable(
		"Sign this site's network in (a captive portal or proxy answers in place of the service), or check baseUrl.",
	),
	'redirect-refused': slow(
		'Set baseUrl to the address that the service really has; a credential is never sent on to another address.',
	),

	// The service's answer.
	'service-failed': unreachable('If it lasts, the operator of the service must look at it.'),
	'service-overloaded': overloaded(
		'Wait as long as the service asks; if it lasts, the operator of the service must look at it.',
		EXIT.temporary,
	),
	'bad-response': slow(
		'If the Connection token stands elsewhere in the answer, set service.tokenPointer; otherwise the operator must look at the service.',
	),
	'answer-unreadable': slow(
		'Set service.tokenPointer to the place of the Connection token in the answer.',
		EXIT.badData,
	),
	'response-too-large': slow('Check that baseUrl points at the service; the operator must look at what answers there.'),
	'request-rejected': blocked(
		EXIT.badData,
		'Compare the device settings with what the service expects; its own words stand in the message.',
	),
	'workflow-unknown': blocked(
		EXIT.badData,
		'Set a workflow that exists in the service; the spelling must match exactly.',
	),
	'credential-refused': refused(
		'Pair this device again with a new code (idv-agent pair --replace), or give it a credential that the service accepts.',
	),
	'connection-revoked': refused(
		'Pair this device again with a new code (idv-agent pair --replace), or ask the operator why it was revoked.',
	),
	'access-forbidden': blocked(EXIT.refused, 'Ask the operator to allow this device or key for this workflow.'),
	'channel-not-found': blocked(EXIT.unavailable, 'Check baseUrl and service.channelPath.'),
	'channel-rejected': blocked(
		EXIT.unavailable,
		'Check baseUrl, service.channelPath and service.channelAuth against the service.',
	),
	'poison-message': overloaded(
		'The operator must look at what the service sends: a message was too large or not valid.',
	),

	// Pairing.
	'not-a-pairing-code': ask(EXIT.badData, 'Scan a pairing code made for devices (idv qrcode makes one).'),
	'code-incomplete': ask(
		EXIT.badData,
		'Set baseUrl first, or use a pairing code that carries the address of the service.',
	),
	'code-expired-or-used': ask(EXIT.refused, 'Ask for a new pairing code; each works once and for a few minutes.'),
	'code-for-other-origin': ask(EXIT.refused, 'Use a code of the service that this device belongs to.'),
	'origin-unconfirmed': ask(
		EXIT.refused,
		'Look at the host; if it is the right one, pair with --trust and its origin, or add it to pairing.trustedOrigins.',
	),
	'pairing-unconfirmed': ask(
		EXIT.refused,
		'Confirm the scanned code on the screen of this device, or pair with idv-agent pair.',
	),
	'open-to-first-comer': ask(
		EXIT.configuration,
		'Set baseUrl, or pairing.trustedOrigins, to the service that this device is meant for.',
	),
	'insecure-origin': ask(EXIT.refused, 'Use a code with an https address; plain http is only for this machine itself.'),
	'already-paired': ask(EXIT.refused, 'Use --replace if this device is really meant to move.'),
	'workflow-missing': ask(EXIT.usage, 'Name the workflow: pair --workflow ID, or workflowId in the settings.'),
	'workflow-fixed': ask(EXIT.configuration, 'Change workflowId where it is set, or use a code without a workflow.'),
	'workflow-conflict': ask(EXIT.usage, 'Leave --workflow out, or use a code for the workflow that is meant.'),
	'pairing-uncertain': ask(
		EXIT.temporary,
		'Check whether the device is listed in the service; otherwise ask for a new pairing code.',
	),
	'pairing-under-way': ask(EXIT.temporary, 'Wait for the other pairing to end and look at the status.'),
	unpaired: ask(EXIT.unavailable, 'Scan a pairing code, run idv-agent pair, or provision an API key.'),

	// The fleet plan.
	'plan-unreachable': recovers(
		EXIT.unavailable,
		'If it lasts, check fleet.planUrl and what serves it; the plan from before stays in force.',
	),
	'plan-invalid': ask(EXIT.badData, 'Correct the plan; idv fleet check says what is wrong with it.'),
	'plan-untrusted': ask(
		EXIT.badData,
		'Sign the plan with idv fleet sign and the key that belongs to fleet.publicKeys.',
	),
	'plan-outdated': ask(EXIT.badData, 'Publish a plan with a higher revision.'),
	'plan-not-followed': ask(
		EXIT.temporary,
		'Correct the workflow in the plan, or have the service accept it; the device stays where it was.',
	),
	'fleet-key-invalid': ask(EXIT.configuration, 'Give a key that idv fleet keygen has made.'),
	'inventory-invalid': ask(EXIT.badData, 'Correct the lines that are named.'),

	// Pictures and input.
	'picture-unreadable': ask(EXIT.badData, 'Give a PNG, JPEG or WebP file that this user may read.'),
	'picture-without-code': ask(EXIT.badData, 'Take the picture again: the whole code, sharp, with a white border.'),
	'picture-with-several-codes': ask(EXIT.badData, 'Take a picture that shows only the code that is meant.'),
	usage: ask(EXIT.usage, 'See --help.'),

	// Scanners.
	'scanner-denied': ask(
		EXIT.refused,
		'Give the agent the right to it: link serial-scanner.conf or keyboard-scanner.conf of /usr/lib/idv-agent/drop-ins, as it says itself, then systemctl daemon-reload and systemctl restart idv-agent.',
	),
	'scanner-failed': recovers(EXIT.unavailable, 'Reconnect the scanner.'),

	// This device.
	'settings-invalid': ask(
		EXIT.configuration,
		'Correct the settings named in the message; idv-agent config check shows the rest.',
	),
	'settings-unreadable': ask(EXIT.configuration, "Make sure the file exists and the agent's user can read it."),
	'provision-invalid': ask(EXIT.badData, 'Correct the file; it is taken at the next start, or by idv-agent provision.'),
	'provision-failed': ask(
		EXIT.io,
		'Run it as root, with /etc writable and space on the disk; nothing was taken from the file.',
	),
	'restart-needed': ask(EXIT.configuration, 'Start the agent again: systemctl restart idv-agent.'),
	'credential-unreadable': recovers(
		EXIT.configuration,
		"Put the file there, readable for the agent's user, with one credential in it.",
	),
	'state-unwritable': ask(EXIT.io, 'Give the user of the agent a writable state directory with free space.'),
	'state-unreadable': ask(
		EXIT.io,
		'Make the state directory readable for the user of the agent; nothing in it was changed.',
	),
	'state-corrupt': ask(
		EXIT.io,
		'Pair again unless the agent is online. The damaged file was set aside next to the state.',
	),
	'state-in-use': ask(EXIT.temporary, 'Stop the other agent, or give this one a state directory of its own.'),
	'socket-failed': ask(EXIT.io, 'Give the user of the agent a run directory it may write to, with a short path.'),
	'agent-not-running': ask(EXIT.unavailable, 'Start it: systemctl start idv-agent, or idv-agent run.'),
	'access-denied': ask(EXIT.refused, 'Run the command as root or as a member of the group that owns the socket.'),
	'disk-low': ask(EXIT.io, 'Make room on the file system of the state directory.'),
	'memory-low': ask(EXIT.temporary, 'Close other programs, or give the device more memory.'),
	'unit-not-ready': ask(EXIT.unavailable, 'Look at it: systemctl status idv-agent.'),
	'bundle-unwritable': ask(EXIT.io, 'Name another file with --out.'),
	'identity-changed': ask(
		EXIT.configuration,
		'If a part was replaced, run idv-agent identity accept; if this disk was copied from another device, unpair and pair it.',
	),

	'devices-offline': ask(
		EXIT.unavailable,
		'Look at what the problems in the report say, or give a large fleet a longer --ramp and --for.',
	),

	// The local interface.
	'not-found': ask(EXIT.usage, 'Ask agent.sock for /v1/openapi.json: it lists every route.'),
	'method-not-allowed': ask(EXIT.usage, 'Use the method that the Allow header names.'),
	'body-invalid': ask(EXIT.badData, 'Correct the fields named in the answer.'),
	'body-too-large': ask(EXIT.badData, 'Send less: the limit stands in the message.'),
	internal: ask(
		EXIT.internal,
		'This is a fault in the agent: please report it with the file that idv-agent support-bundle makes.',
	),
} as const satisfies Record<string, CatalogueRow>;

export type ErrorCode = keyof typeof CATALOGUE;

/** What a message names, for the same sentence in another language: never a secret. */
export type Params = Readonly<Record<string, string | number>>;

/** What went wrong, as plain data: crosses sockets, stands in states and in the status. */
export interface Failure {
	readonly code: ErrorCode;
	/** What went wrong this time: one sentence without a secret. */
	readonly message: string;
	/** What to do, never a rewording of the message. */
	readonly remedy: string;
	/** Whether the agent carries on without a person once the cause is gone; absent where it does not. */
	readonly recovers?: boolean | undefined;
	/** What the message names; absent where it names nothing. */
	readonly params?: Params | undefined;
	/** The least wait the service asked for. */
	readonly retryAfterMs?: number | undefined;
}

/** What a thrower may know better than the catalogue, or besides. */
export interface FailureDetails {
	readonly remedy?: string;
	readonly recovers?: boolean | undefined;
	readonly params?: Params | undefined;
	readonly retryAfterMs?: number | undefined;
}

/** Builds a failure; remedy and recovery are the catalogue's unless the thrower knows better. */
export function failure(code: ErrorCode, message: string, more: FailureDetails = {}): Failure {
	const row = CATALOGUE[code];
	const { remedy = row.remedy, recovers = row.recovers, params, retryAfterMs } = more;
	return {
		code,
		message,
		remedy,
		...(recovers && { recovers }),
		...(params && { params }),
		...(retryAfterMs !== undefined && { retryAfterMs }),
	};
}

/** The only error that is thrown on purpose. Everything else that arrives at an edge is a fault of ours: `internal`. */
export class AgentError extends Error {
	override readonly name = 'AgentError';
	readonly failure: Failure;

	constructor(code: ErrorCode, message: string, more: FailureDetails & { readonly cause?: unknown } = {}) {
		super(message, more.cause === undefined ? undefined : { cause: more.cause });
		this.failure = failure(code, message, more);
	}

	get exitStatus(): number {
		return exitStatusOf(this.failure.code);
	}

	get code(): ErrorCode {
		return this.failure.code;
	}
}

/** A failure that was told, thrown. */
export function asError(told: Failure): AgentError {
	return new AgentError(told.code, told.message, told);
}

/** How a link goes on after this failure; one that is not a failure of a link waits for a person. */
function retryOf(code: ErrorCode): RetryBehaviour {
	const row: CatalogueRow = CATALOGUE[code];
	return row.retry ?? ASK_HUMAN;
}

export function dispositionOf(code: ErrorCode): Disposition {
	return retryOf(code).disposition;
}

export function retryClassOf(code: ErrorCode): RetryClass {
	return retryOf(code).retryClass;
}

export function exitStatusOf(code: ErrorCode): number {
	return CATALOGUE[code].exit;
}

/** Any thrown value as a failure. */
export function toFailure(error: unknown): Failure {
	if (error instanceof AgentError) return error.failure;
	return failure('internal', error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** A problem that another process has named; `internal` for a code that this version does not know. */
export function asFailure(named: Omit<Failure, 'code'> & { readonly code: string }): Failure {
	const { code } = named;
	if (Object.hasOwn(CATALOGUE, code)) return { ...named, code: code as ErrorCode };
	return { ...named, code: 'internal' };
}
