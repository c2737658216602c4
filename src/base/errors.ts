/**
 * Every way in which the agent can fail, once: a permanent code, whose move it is, and the right exit status.
 * Owns no wording of single events (the thrower writes `message`); decides no delay (that is `connection/backoff.ts`).
 */
import type { ProblemSummary } from '../protocol/local-api.ts';

/** sysexits, as DESIGN names them. */
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

/** Who moves next: the agent by waiting, the agent by registering anew, or a person. */
export type Disposition = 'retry' | 'reregister' | 'askHuman';

/** How attempts after such a failure are spaced; numbers in `connection/backoff.ts`. */
export type Pace = 'unreachable' | 'overloaded' | 'refused' | 'slow';

interface CatalogueRow {
	readonly disposition: Disposition;
	readonly pace: Pace;
	readonly exit: number;
	readonly remedy: string;
}

const row = (disposition: Disposition, pace: Pace, exit: number, remedy: string): CatalogueRow => ({
	disposition,
	pace,
	exit,
	remedy,
});

/** One row for each permanent code. A code is never renamed and never reused. */
export const CATALOGUE = {
	// The way to the service.
	'dns-failed': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Check the network cable or Wi-Fi and the DNS server of this site; the agent retries by itself.',
	),
	'service-unreachable': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Check the network and that the firewall lets this device reach the host; the agent retries by itself.',
	),
	'connect-timeout': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Check that a firewall does not swallow connections to the host; the agent retries by itself.',
	),
	'handshake-timeout': row(
		'retry',
		'overloaded',
		EXIT.unavailable,
		'Nothing to do if it passes: the service or the line is slow. Otherwise check proxies on the way.',
	),
	'request-timeout': row(
		'retry',
		'overloaded',
		EXIT.unavailable,
		'Nothing to do if it passes: the service or the line is slow. Otherwise check proxies on the way.',
	),
	'connection-lost': row('retry', 'unreachable', EXIT.unavailable, 'Nothing to do: the agent reconnects by itself.'),
	'connection-replaced': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Nothing to do: the service ended the old channel because this device registered a new one.',
	),
	'channel-silent': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Nothing to do if it passes. Otherwise check the line, or set service.silenceLimitSeconds to 0 for a service that answers no ping.',
	),
	'channel-flapping': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Check the line and what stands on the way (proxies, load balancers); look at the cause in brackets.',
	),
	'clock-wrong': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		"Set this device's clock (or let it reach a time server); the agent reconnects by itself.",
	),
	'certificate-expired': row(
		'retry',
		'slow',
		EXIT.unavailable,
		"The service's operator must renew the certificate; if it is valid elsewhere, check this device's clock.",
	),
	'certificate-untrusted': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'If this site inspects TLS or the service has a certificate authority of its own, name its certificate in network.caFile.',
	),
	'certificate-wrong-host': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'Check the host name in baseUrl; a captive portal or a proxy may be answering in its place.',
	),
	'tls-failed': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Check that the host speaks TLS on this port and that no proxy breaks it.',
	),
	'proxy-failed': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Check network.proxy and that the proxy runs; the credential of this device is not in question.',
	),
	'proxy-refused': row(
		'askHuman',
		'slow',
		EXIT.unavailable,
		'Give the proxy a user and password it accepts in network.proxy, or have it allow this host; the credential of this device is not in question.',
	),
	'captive-portal': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		"Sign this site's network in (a captive portal or proxy answers in place of the service), or check baseUrl.",
	),
	'redirect-refused': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'Set baseUrl to the address that the service really has; a credential is never sent on to another address.',
	),

	// The service's answer.
	'service-failed': row(
		'retry',
		'unreachable',
		EXIT.unavailable,
		'Nothing to do if it passes; otherwise the operator of the service must look at it.',
	),
	'service-overloaded': row(
		'retry',
		'overloaded',
		EXIT.temporary,
		'Nothing to do: the agent waits as long as the service asks.',
	),
	'bad-response': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'If the Connection token stands elsewhere in the answer, set service.tokenPointer; otherwise the operator must look at the service.',
	),
	'response-too-large': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'Check that baseUrl points at the service; the operator must look at what answers there.',
	),
	'request-rejected': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Compare the device settings with what the service expects; its own words stand in the message.',
	),
	'workflow-unknown': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Set a workflow that exists in the service; the spelling must match exactly.',
	),
	'credential-refused': row(
		'reregister',
		'refused',
		EXIT.refused,
		'Pair this device again with a new code (idv-agent pair --replace), or give it a credential that the service accepts.',
	),
	'connection-revoked': row(
		'reregister',
		'refused',
		EXIT.refused,
		'Pair this device again with a new code (idv-agent pair --replace), or ask the operator why it was revoked.',
	),
	'access-forbidden': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Ask the operator to allow this device or key for this workflow.',
	),
	'channel-not-found': row('askHuman', 'slow', EXIT.unavailable, 'Check baseUrl and service.channelPath.'),
	'channel-rejected': row(
		'askHuman',
		'slow',
		EXIT.unavailable,
		'Check baseUrl, service.channelPath and service.channelAuth against the service.',
	),
	'poison-message': row(
		'retry',
		'overloaded',
		EXIT.unavailable,
		'The operator must look at what the service sends: a message was too large or not valid; the agent reconnects by itself.',
	),

	'registering-too-often': row(
		'retry',
		'unreachable',
		EXIT.temporary,
		'Nothing to do at the device; the operator of the service must look at why it moves or renews this device so often.',
	),

	// Pairing.
	'not-a-pairing-code': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Scan a pairing code made for devices (idv qrcode makes one).',
	),
	'code-incomplete': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Set baseUrl first, or use a pairing code that carries the address of the service.',
	),
	'code-expired-or-used': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Ask for a new pairing code; each works once and for a few minutes.',
	),
	'code-for-other-origin': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Use a code of the service that this device belongs to.',
	),
	'origin-unconfirmed': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Look at the host; if it is the right one, pair with --trust and its origin, or add it to pairing.trustedOrigins.',
	),
	'insecure-origin': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Use a code with an https address; plain http is only for this machine itself.',
	),
	'already-paired': row('askHuman', 'slow', EXIT.refused, 'Use --replace if this device is really meant to move.'),
	'workflow-missing': row(
		'askHuman',
		'slow',
		EXIT.usage,
		'Name the workflow: pair --workflow ID, or workflowId in the settings.',
	),
	'workflow-fixed': row(
		'askHuman',
		'slow',
		EXIT.configuration,
		'Change workflowId where it is set, or use a code without a workflow.',
	),
	'workflow-conflict': row(
		'askHuman',
		'slow',
		EXIT.usage,
		'Leave --workflow out, or use a code for the workflow that is meant.',
	),
	'pairing-uncertain': row(
		'askHuman',
		'slow',
		EXIT.temporary,
		'Check whether the device is listed in the service; otherwise ask for a new pairing code.',
	),
	'pairing-under-way': row(
		'askHuman',
		'slow',
		EXIT.temporary,
		'Wait for the other pairing to end and look at the status.',
	),
	unpaired: row(
		'askHuman',
		'slow',
		EXIT.unavailable,
		'Scan a pairing code, run idv-agent pair, or provision an API key.',
	),

	// The fleet plan.
	'plan-unreachable': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'Nothing to do if it passes: the plan from before stays in force. Otherwise check fleet.planUrl and what serves it.',
	),
	'plan-invalid': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Correct the plan; idv fleet check says what is wrong with it.',
	),
	'plan-untrusted': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Sign the plan with idv fleet sign and the key that belongs to fleet.publicKeys.',
	),
	'plan-outdated': row('askHuman', 'slow', EXIT.badData, 'Publish a plan with a higher revision.'),
	'plan-not-followed': row(
		'askHuman',
		'slow',
		EXIT.temporary,
		'Correct the workflow in the plan, or have the service accept it; the device stays where it was.',
	),
	'fleet-key-invalid': row('askHuman', 'slow', EXIT.configuration, 'Give a key that idv fleet keygen has made.'),
	'inventory-invalid': row('askHuman', 'slow', EXIT.badData, 'Correct the lines that are named.'),

	// Pictures and input.
	'picture-unreadable': row('askHuman', 'slow', EXIT.badData, 'Give a PNG, JPEG or WebP file that this user may read.'),
	'picture-without-code': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Take the picture again: the whole code, sharp, with a white border.',
	),
	'picture-with-several-codes': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Take a picture that shows only the code that is meant.',
	),
	usage: row('askHuman', 'slow', EXIT.usage, 'See --help.'),

	// Scanners.
	'scanner-denied': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Give the agent the right to it: link serial-scanner.conf or keyboard-scanner.conf of /usr/lib/idv-agent/drop-ins, as it says itself, then systemctl daemon-reload and systemctl restart idv-agent.',
	),
	'scanner-failed': row(
		'retry',
		'slow',
		EXIT.unavailable,
		'Plug the scanner in again; the agent goes on with it by itself.',
	),

	// This device.
	'settings-invalid': row(
		'askHuman',
		'slow',
		EXIT.configuration,
		'Correct the settings named in the message; idv-agent config check shows the rest.',
	),
	'settings-unreadable': row(
		'askHuman',
		'slow',
		EXIT.configuration,
		'See to it that it is there and that the user of the agent may read it.',
	),
	'provision-invalid': row(
		'askHuman',
		'slow',
		EXIT.badData,
		'Correct the file; it is taken at the next start, or by idv-agent provision.',
	),
	'provision-failed': row(
		'askHuman',
		'slow',
		EXIT.io,
		'Run it as root, with /etc writable and space on the disk; nothing was taken from the file.',
	),
	'restart-needed': row('askHuman', 'slow', EXIT.configuration, 'Start the agent again: systemctl restart idv-agent.'),
	'credential-unreadable': row(
		'askHuman',
		'slow',
		EXIT.configuration,
		'Put the file there, readable for the user of the agent, with one credential in it; the agent notices by itself.',
	),
	'state-unwritable': row(
		'askHuman',
		'slow',
		EXIT.io,
		'Give the user of the agent a writable state directory with free space.',
	),
	'state-unreadable': row(
		'askHuman',
		'slow',
		EXIT.io,
		'Make the state directory readable for the user of the agent; nothing in it was changed.',
	),
	'state-corrupt': row(
		'askHuman',
		'slow',
		EXIT.io,
		'Nothing to do if the agent is online; otherwise pair again. The damaged file was set aside next to the state.',
	),
	'state-in-use': row(
		'askHuman',
		'slow',
		EXIT.temporary,
		'Stop the other agent, or give this one a state directory of its own.',
	),
	'socket-failed': row(
		'askHuman',
		'slow',
		EXIT.io,
		'Give the user of the agent a run directory it may write to, with a short path.',
	),
	'agent-not-running': row(
		'askHuman',
		'slow',
		EXIT.unavailable,
		'Start it: systemctl start idv-agent, or idv-agent run.',
	),
	'access-denied': row(
		'askHuman',
		'slow',
		EXIT.refused,
		'Run the command as root or as a member of the group that owns the socket.',
	),
	'disk-low': row('askHuman', 'slow', EXIT.io, 'Make room on the file system of the state directory.'),
	'memory-low': row('askHuman', 'slow', EXIT.temporary, 'Close other programs, or give the device more memory.'),
	'unit-not-ready': row('askHuman', 'slow', EXIT.unavailable, 'Look at it: systemctl status idv-agent.'),
	'bundle-unwritable': row('askHuman', 'slow', EXIT.io, 'Name another file with --out.'),
	'identity-changed': row(
		'askHuman',
		'slow',
		EXIT.configuration,
		'If a part was replaced, run idv-agent identity accept; if this disk was copied from another device, unpair and pair it.',
	),

	'devices-offline': row(
		'askHuman',
		'slow',
		EXIT.unavailable,
		'Look at what the problems in the report say, or give a large fleet a longer --ramp and --for.',
	),

	// The local interface.
	'not-found': row('askHuman', 'slow', EXIT.usage, 'Ask agent.sock for /v1/openapi.json: it lists every route.'),
	'method-not-allowed': row('askHuman', 'slow', EXIT.usage, 'Use the method that the Allow header names.'),
	'body-invalid': row('askHuman', 'slow', EXIT.badData, 'Correct the fields named in the answer.'),
	'body-too-large': row('askHuman', 'slow', EXIT.badData, 'Send less: the limit stands in the message.'),
	internal: row(
		'askHuman',
		'slow',
		EXIT.internal,
		'This is a fault in the agent: please report it with the file that idv-agent support-bundle makes.',
	),
} as const satisfies Record<string, CatalogueRow>;

export type ErrorCode = keyof typeof CATALOGUE;

/** What went wrong, as plain data: crosses sockets, stands in states and in the status. */
export interface Failure {
	readonly code: ErrorCode;
	/** What went wrong this time: one sentence without a secret. */
	readonly message: string;
	/** What to do, never a rewording of the message. */
	readonly remedy: string;
	/** The least wait the service asked for. */
	readonly retryAfterMs?: number;
}

/** Builds a failure; the remedy is the catalogue's unless a better one is known here. */
export function failure(
	code: ErrorCode,
	message: string,
	more: { remedy?: string; retryAfterMs?: number } = {},
): Failure {
	const { remedy = CATALOGUE[code].remedy, retryAfterMs } = more;
	return retryAfterMs === undefined ? { code, message, remedy } : { code, message, remedy, retryAfterMs };
}

/** The only error that is thrown on purpose. Everything else that arrives at an edge is a fault of ours: `internal`. */
export class AgentError extends Error {
	override readonly name = 'AgentError';
	readonly failure: Failure;

	constructor(
		code: ErrorCode,
		message: string,
		more: { remedy?: string; retryAfterMs?: number; cause?: unknown } = {},
	) {
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

export function dispositionOf(code: ErrorCode): Disposition {
	return CATALOGUE[code].disposition;
}

export function paceOf(code: ErrorCode): Pace {
	return CATALOGUE[code].pace;
}

export function exitStatusOf(code: ErrorCode): number {
	return CATALOGUE[code].exit;
}

/** Any thrown value as a failure. */
export function toFailure(error: unknown): Failure {
	if (error instanceof AgentError) return error.failure;
	return failure('internal', error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** What of a failure is shown to people and programs. */
export function summaryOf({ code, message, remedy }: Failure): ProblemSummary {
	return { code, message, remedy };
}

/** A problem that an agent has named; `internal` for a code that this version does not know. */
export function asFailure({ code, message, remedy }: ProblemSummary): Failure {
	return failure(Object.hasOwn(CATALOGUE, code) ? (code as ErrorCode) : 'internal', message, { remedy });
}
