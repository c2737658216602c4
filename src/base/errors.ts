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

/** The next to act after a failed link: the agent, which waits; the agent, which registers again; or a person. */
export type Disposition = 'retry' | 'reregister' | 'askHuman';

/**
 * How attempts after a failed link are spaced; numbers in `connection/backoff.ts`. A `surprising` answer asks for a person,
 * unless what worked lately says that something else has answered; `slow` is for all that did not come from outside.
 */
export type RetryClass = 'unreachable' | 'overloaded' | 'refused' | 'occupied' | 'surprising' | 'slow';

interface RetryBehaviour {
	readonly disposition: Disposition;
	readonly retryClass: RetryClass;
}

/** The parts of a row that several codes share. */
interface Behaviour {
	readonly exit: number;
	/** Whether the agent carries on without a person once the cause is gone. */
	readonly recovers: boolean;
	/** Only for failures of a link. */
	readonly retry?: RetryBehaviour;
}

interface CatalogueRow extends Behaviour {
	/** An instruction for a person; says nothing of what the agent does. */
	readonly remedy: string;
}

const ASK_HUMAN: RetryBehaviour = { disposition: 'askHuman', retryClass: 'surprising' };

/** Not a failure of a link; a person must act. */
const ask = (exit: number): Behaviour => ({ exit, recovers: false });
/** Not a failure of a link; the agent watches the cause and carries on. */
const recovers = (exit: number): Behaviour => ({ exit, recovers: true });
/** A failure of a link. */
const retried = (retryClass: RetryClass, exit: number = EXIT.unavailable): Behaviour => ({
	exit,
	recovers: true,
	retry: { disposition: 'retry', retryClass },
});
/** A failure of a link that waits for a person. */
const blocked = (exit: number): Behaviour => ({ ...ask(exit), retry: ASK_HUMAN });
/** A failure of a link after which the device registers again. */
const REFUSED: Behaviour = { ...ask(EXIT.refused), retry: { disposition: 'reregister', retryClass: 'refused' } };

function rows<Code extends string>(behaviour: Behaviour, remedies: Record<Code, string>): Record<Code, CatalogueRow> {
	const entries = Object.entries<string>(remedies).map(([code, remedy]) => [code, { ...behaviour, remedy }]);
	return Object.fromEntries(entries);
}

/** One row for each permanent code: its remedy, under what the agent does. A code is never renamed and never reused. */
export const CATALOGUE = {
	...rows(retried('unreachable'), {
		'dns-failed': 'Check the network cable or Wi-Fi and the DNS server of this site.',
		'service-unreachable': 'Check the network and that the firewall lets this device reach the host.',
		'connect-timeout': 'Check that no firewall drops connections to the host.',
		'connection-lost': 'If it happens often, check the line.',
		'connection-replaced':
			'If it happens again, look for a second device with the same deviceId: each new channel ends the older one.',
		'channel-silent':
			'If it lasts, check the line, or set service.silenceLimitSeconds to 0 for a service that answers no ping.',
		'channel-flapping':
			'Check the line and the proxies and load balancers on the way, or whether another device has the same deviceId; the cause is in brackets.',
		'notifications-at-risk':
			'Wait a few minutes: the agent learns how often to ping. If it lasts, check the firewall on the way, or set service.silenceLimitSeconds to 0 for a service that answers no ping.',
		'duplicate-device':
			'Look for a second device with this deviceId (a copied disk, or the same deviceId in its settings): unpair it, give it a deviceId of its own and pair it.',
		'clock-wrong': "Set this device's clock, or let it reach a time server.",
		'tls-failed': 'Check that the host speaks TLS on this port and that no proxy breaks it.',
		'proxy-failed': 'Check network.proxy and that the proxy runs; the credential of this device is not in question.',
		'captive-portal':
			"Sign in to this site's network (a captive portal or proxy answers in place of the service), or check baseUrl.",
		'service-failed': 'If it lasts, the operator of the service must look at it.',
		'handshake-timeout': 'If it lasts, check the line and the proxies on the way: one of them or the service is slow.',
		'request-timeout': 'If it lasts, check the line and the proxies on the way: one of them or the service is slow.',
	}),
	...rows(retried('unreachable', EXIT.temporary), {
		'registering-too-often':
			'Wait a few minutes. If it lasts, look at what changes this device so often: its settings, its fleet plan or its service.',
	}),
	...rows(retried('occupied'), {
		'channel-occupied':
			'Wait: the service still holds another channel of this device, as it does after a device was cut off. If it lasts, look for a second device with the same deviceId.',
	}),
	...rows(retried('overloaded'), {
		'poison-message': 'The operator must look at what the service sends: a message was too large or not valid.',
	}),
	...rows(retried('overloaded', EXIT.temporary), {
		'service-overloaded': 'Wait a few minutes; if it lasts, the operator of the service must look at it.',
	}),
	...rows(retried('surprising'), {
		'certificate-expired':
			"If this device's clock shows the wrong day, set it or let it reach a time server; if the clock is right, the service's operator must renew the certificate.",
		'certificate-untrusted':
			'Sign in to this network if a captive portal answers. Only if the operator says that this site inspects TLS or the service has its own authority, set network.caFile or network.systemCa.',
		'certificate-wrong-host':
			'Check the host name in baseUrl; a captive portal or a proxy may be answering in its place.',
		'redirect-refused':
			'Set baseUrl to the address that the service really has; a credential is never sent on to another address.',
		'bad-response':
			'If the Connection token is elsewhere in the answer, set service.tokenPointer; otherwise the operator must look at the service.',
		'response-too-large': 'Check that baseUrl points at the service; the operator must look at what answers there.',
	}),
	...rows(retried('surprising', EXIT.badData), {
		'answer-unreadable': 'Set service.tokenPointer to the place of the Connection token in the answer.',
	}),
	...rows(REFUSED, {
		'credential-refused':
			'Pair this device again with a new code (idv-agent pair), or give it a credential that the service accepts.',
		'connection-revoked':
			'Pair this device again with a new code (idv-agent pair), or ask the operator why it was revoked.',
	}),
	...rows(blocked(EXIT.unavailable), {
		'proxy-refused':
			'Name the proxy in network.proxy with a user and password it accepts, or have it allow this host; the credential of this device is not in question.',
		'channel-not-found': 'Check baseUrl and service.channelPath.',
		'channel-rejected': 'Check baseUrl, service.channelPath and service.channelAuth against the service.',
	}),
	...rows(blocked(EXIT.badData), {
		'request-rejected':
			"Compare the device settings with what the service expects; see the service's reply in the message.",
		'workflow-unknown': 'Set a workflow that exists in the service; the spelling must match exactly.',
	}),
	...rows(blocked(EXIT.refused), {
		'access-forbidden': 'Ask the operator to allow this device or key for this workflow.',
	}),
	...rows(recovers(EXIT.unavailable), {
		'plan-unreachable': 'If it lasts, check fleet.planUrl and what serves it; the plan from before stays in force.',
		'scanner-failed': 'Reconnect the scanner.',
		'telemetry-failed':
			'Check telemetry.otlpUrl, telemetry.headersFile and what serves them; the device works without it.',
	}),
	...rows(recovers(EXIT.configuration), {
		'credential-unreadable': "Put the file there, readable for the agent's user, with one credential in it.",
	}),
	...rows(ask(EXIT.badData), {
		'not-a-pairing-code': 'Scan a pairing code made for devices (idv qrcode makes one).',
		'code-incomplete': 'Set baseUrl first, or use a pairing code that carries the address of the service.',
		'plan-invalid': 'Correct the plan; idv fleet check says what is wrong with it.',
		'plan-untrusted': 'Sign the plan with idv fleet sign and the key that belongs to fleet.publicKeys.',
		'plan-outdated':
			'Publish a plan with a higher revision; after a revision that was far too high, with a higher epoch (idv-fleet-plan/2).',
		'plan-for-other-fleet': 'Check fleet.planUrl and fleet.name; a plan names its fleet in "fleet" (idv-fleet-plan/2).',
		'plan-unattested': 'Publish a plan that is signed with a key of fleet.publicKeys (idv fleet sign).',
		'plan-expired':
			'Publish the plan again with a higher revision and a later validUntil; if that was done, check what serves fleet.planUrl.',
		'inventory-invalid': 'Correct the lines that are named.',
		'picture-unreadable': 'Give a PNG, JPEG or WebP file that this user may read.',
		'picture-without-code': 'Take the picture again: the whole code, sharp, with a white border.',
		'picture-with-several-codes': 'Take a picture that shows only the code that is meant.',
		'provision-invalid': 'Correct it; the next start takes the file, or idv-agent provision.',
		'body-invalid': 'Correct the fields named in the answer.',
		'body-too-large': 'Send less; the message names the limit.',
	}),
	...rows(ask(EXIT.refused), {
		'code-expired-or-used': 'Ask for a new pairing code; each works once and for a few minutes.',
		'code-for-other-origin': 'Use a code of the service that this device belongs to.',
		'origin-unconfirmed':
			'Look at the host; if it is the right one, pair with --trust and its origin, or add it to pairing.trustedOrigins.',
		'pairing-unconfirmed': 'Confirm the scanned code on the screen of this device, or pair with idv-agent pair.',
		'insecure-origin': 'Use a code with an https address; plain http is only for this machine itself.',
		'already-paired': 'Use --replace if this device is really meant to move.',
		'scanner-denied':
			'Grant access: link serial-scanner.conf or keyboard-scanner.conf of /usr/lib/idv-agent/drop-ins (its header explains how), then systemctl daemon-reload and systemctl restart idv-agent.',
		'answer-withheld': 'Do not forward this request: the reply would show the Connection to an application.',
		'access-denied': 'Run the command as root or as a member of the group that owns the socket.',
		'update-taken-back':
			'Look at its log with idv-agent update show; publish a newer version, or let apt try this one again with idv-agent update forget.',
		'update-refused':
			'Publish a plan that orders a version which this device may have; idv-agent update show says what it has refused.',
	}),
	...rows(ask(EXIT.usage), {
		'workflow-missing': 'Name the workflow: pair --workflow ID, or workflowId in the settings.',
		'workflow-conflict': 'Leave --workflow out, or use a code for the workflow that is meant.',
		usage: 'See --help.',
		'not-found': 'Ask agent.sock for /v1/openapi.json: it lists every route.',
		'method-not-allowed': 'Use the method that the Allow header names.',
	}),
	...rows(ask(EXIT.configuration), {
		'open-to-first-comer': 'Set baseUrl, or pairing.trustedOrigins, to the service that this device is meant for.',
		'workflow-fixed': 'Change workflowId where it is set, or use a code without a workflow.',
		'file-exposed': 'Make root the owner of the file, with mode 0644, or 0640 if it holds a secret.',
		'fleet-key-invalid': 'Give a key that idv fleet keygen has made.',
		'settings-invalid': 'Correct the settings named in the message; idv-agent config check shows the rest.',
		'credential-ending': 'Put a newer credential into its file before this one ends; a changed file is tried at once.',
		'settings-unreadable': "Make sure the file exists and the agent's user can read it.",
		'restart-needed': 'Start the agent again: systemctl restart idv-agent.',
		'identity-changed':
			'If a part was replaced, run idv-agent identity accept; if this disk was copied from another device, unpair and pair it.',
	}),
	...rows(ask(EXIT.temporary), {
		'pairing-uncertain':
			'Try the same code again. If it is refused, check whether the device is listed in the service, and ask for a new pairing code.',
		'settings-not-followed':
			'Correct the settings that the message names; a changed setting is tried at once, idv-agent reconnect tries the same settings again.',
		'pairing-under-way': 'Wait for the other pairing to end and look at the status.',
		'plan-not-followed':
			'Correct the workflow in the plan, or have the service accept it; the device stays where it was.',
		'state-in-use': 'Stop the other agent, or give this one a state directory of its own.',
		'memory-low': 'Close other programs, or give the device more memory.',
	}),
	...rows(ask(EXIT.unavailable), {
		unpaired: 'Scan a pairing code, run idv-agent pair, or provision an API key.',
		'agent-not-running': 'Start it: systemctl start idv-agent, or idv-agent run.',
		'tools-missing': 'Install the package idv-tools, on a machine for operators or developers.',
		'updates-missing': 'Install the package: apt install idv-agent-updates. Or take update.* out of the settings.',
		'unit-not-ready': 'Look at it: systemctl status idv-agent.',
		'devices-offline': 'Look at what the problems in the report say, or give a large fleet a longer --ramp and --for.',
	}),
	...rows(ask(EXIT.io), {
		'update-failed': 'Look at what apt says in the message, and at the repositories of this device: apt update.',
		'update-not-alone':
			'Make the change to the other packages on the device first: apt full-upgrade shows it. The order is tried again.',
		'provision-failed': 'Run it as root, with /etc writable and space on the disk; nothing was taken from the file.',
		'state-unwritable': 'Give the user of the agent a writable state directory with free space.',
		'state-unreadable':
			'Run a command as root (sudo). For the agent, make its state directory readable for its user, or replace a disk that reports errors; nothing in it was changed.',
		'state-corrupt': 'Pair again unless the agent is online. The damaged file was set aside next to the state.',
		'socket-failed': 'Give the user of the agent a run directory it may write to, with a short path.',
		'disk-low': 'Make room on the file system of the state directory.',
		'bundle-unwritable': 'Name another file with --out.',
	}),
	...rows(ask(EXIT.internal), {
		'update-unprepared': 'The update is not supervised; report this message.',
		internal: 'This is a fault in the agent: please report it with the file that idv-agent support-bundle makes.',
	}),
} satisfies Record<string, CatalogueRow>;

export type ErrorCode = keyof typeof CATALOGUE;

/** The names and numbers in a message, for the same sentence in another language: never a secret. */
export type Params = Readonly<Record<string, string | number>>;

/** A failure as plain data: crosses sockets, stands in states and in the status. */
export interface Failure {
	readonly code: ErrorCode;
	/** The failure this time, in one sentence without a secret. */
	readonly message: string;
	/** An instruction, never a rewording of the message. */
	readonly remedy: string;
	/** Whether the agent carries on without a person once the cause is gone; absent where it does not. */
	readonly recovers?: boolean | undefined;
	/** The names and numbers in the message; absent where it has none. */
	readonly params?: Params | undefined;
	/** The least wait the service asked for. */
	readonly retryAfterMs?: number | undefined;
}

export type FailureDetails = Partial<Omit<Failure, 'code' | 'message'>>;

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

	get code(): ErrorCode {
		return this.failure.code;
	}
}

/** Wraps a Failure in an error that can be thrown. */
export const asError = (told: Failure): AgentError => new AgentError(told.code, told.message, told);

/** How a link goes on after this failure; one that is not a failure of a link waits for a person. */
function retryOf(code: ErrorCode): RetryBehaviour {
	const row: CatalogueRow = CATALOGUE[code];
	return row.retry ?? { disposition: 'askHuman', retryClass: 'slow' };
}

export const dispositionOf = (code: ErrorCode): Disposition => retryOf(code).disposition;
export const retryClassOf = (code: ErrorCode): RetryClass => retryOf(code).retryClass;
/** "Try again" says that the same can still succeed: of a pairing code that is used up it cannot. */
export function exitStatusOf(code: ErrorCode, params: Params = {}): number {
	const { exit } = CATALOGUE[code];
	const isSpent = params['pairingCode'] === 'used' || params['pairingCode'] === 'invalid';
	return isSpent && exit === EXIT.temporary ? EXIT.refused : exit;
}
/** The code; `internal` for one that this version does not know. */
export const knownCode = (code: string): ErrorCode =>
	Object.hasOwn(CATALOGUE, code) ? (code as ErrorCode) : 'internal';

/** Any thrown value as a failure. */
export function toFailure(error: unknown): Failure {
	if (error instanceof AgentError) return error.failure;
	if (error instanceof Error && 'syscall' in error && error.syscall === 'uv_cwd')
		return failure('usage', 'The directory in which this command was started does not exist any more.', {
			remedy: 'Change to another directory, and try again.',
		});
	return failure('internal', error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** A problem that another process has named; `internal` for a code that this version does not know. */
export function asFailure(named: Omit<Failure, 'code'> & { readonly code: string }): Failure {
	return { ...named, code: knownCode(named.code) };
}
