/** Every refusal of the embedded service, as RFC 9457 problem documents. Source: assumed (errors). */
import type { ProblemDocument } from '../protocol/problem.ts';

interface ProblemRow {
	readonly status: number;
	readonly title: string;
	readonly remedy: string;
}

const row = (status: number, title: string, remedy: string): ProblemRow => ({ status, title, remedy });

/** One row for each code. A code is never renamed and never reused. */
export const PROBLEMS = {
	'request-malformed': row(400, 'Malformed request', 'Send a well-formed HTTP/1.1 request.'),
	'body-malformed': row(400, 'Malformed body', 'Send one JSON document in UTF-8.'),
	'query-invalid': row(400, 'Invalid query', 'Correct the parameters named in errors.'),
	'upgrade-malformed': row(400, 'Malformed upgrade', 'Open a WebSocket (RFC 6455, version 13) on the channel path.'),
	'subprotocol-missing': row(400, 'Subprotocol missing', 'Offer the WebSocket subprotocol named in detail.'),
	'credential-missing': row(401, 'No credential', 'Send an Authorization header with one of the accepted schemes.'),
	'credential-malformed': row(401, 'Unreadable credential', 'Send exactly one "<scheme> <credential>".'),
	'credential-unknown': row(401, 'Unknown credential', 'Check the credential, or ask the operator for one.'),
	'api-key-expired': row(401, 'API key expired', 'Create a new API key.'),
	'token-unknown': row(401, 'Unknown Short Token', 'Ask for a new pairing code from this service.'),
	'token-spent': row(401, 'Short Token already used', 'Ask for a new pairing code; each works once.'),
	'token-expired': row(401, 'Short Token expired', 'Ask for a new pairing code and use it sooner.'),
	'connection-invalid': row(401, 'Invalid Connection', 'Register the device again.'),
	'connection-expired': row(401, 'Connection expired', 'Register the device again.'),
	'connection-revoked': row(401, 'Connection revoked', 'Pair the device again, or ask the operator why.'),
	'scheme-not-allowed': row(403, 'Not with this scheme', 'Use a credential of a scheme that this endpoint allows.'),
	'permission-missing': row(403, 'Permission missing', 'Use an API key that holds the permissions named in detail.'),
	'device-mismatch': row(403, 'Another device', 'Register with the deviceId that the Connection was issued for.'),
	'workflow-mismatch': row(403, 'Another workflow', 'Register for the workflow that the code was made for.'),
	'not-found': row(404, 'Not found', 'Check the path against the interface description.'),
	'workflow-unknown': row(404, 'Unknown workflow', 'Use a workflow that exists here; the spelling must match exactly.'),
	'method-not-allowed': row(405, 'Method not allowed', 'Use a method that the Allow header names.'),
	'not-acceptable': row(406, 'Not acceptable', 'Accept image/png, image/svg+xml or application/json.'),
	'request-timeout': row(408, 'Request timeout', 'Send the whole request at once.'),
	'channel-occupied': row(409, 'Another channel', 'Close the other channel of this device first.'),
	'body-too-large': row(413, 'Body too large', 'Send at most 64 KiB.'),
	'content-type-unsupported': row(415, 'Unsupported content type', 'Send Content-Type: application/json.'),
	'body-invalid': row(422, 'Invalid body', 'Correct the fields named in errors.'),
	'rate-limited': row(429, 'Too many registrations', 'Wait as long as Retry-After says, or a minute.'),
	'upgrade-required': row(426, 'Upgrade required', 'Open a WebSocket on this path.'),
	internal: row(500, 'Internal error', 'This is a fault in the embedded service: please report it.'),
	'service-full': row(503, 'Service full', 'Try again later, or start the service with higher limits.'),
} as const satisfies Record<string, ProblemRow>;

export type ProblemCode = keyof typeof PROBLEMS;

/** A request that is refused on purpose; everything else that is thrown is answered as `internal`. */
export class ProblemResponse extends Error {
	override readonly name = 'ProblemResponse';
	readonly problem: ProblemDocument & { readonly code: ProblemCode } & Pick<ProblemExtras, 'workflows'>;
	readonly headers: Readonly<Record<string, string>>;

	constructor(code: ProblemCode, detail: string, more: ProblemExtras = {}) {
		super(detail);
		const { title, remedy } = PROBLEMS[code];
		const { errors, workflows, headers = {}, status = PROBLEMS[code].status } = more;
		this.problem = { status, title, detail, code, remedy, ...(errors && { errors }), ...(workflows && { workflows }) };
		this.headers = headers;
	}
}

export interface ProblemExtras {
	/** Paths are JSON pointers into the body, or `?name` for a query parameter. */
	readonly errors?: readonly { readonly path: string; readonly message: string }[];
	readonly headers?: Readonly<Record<string, string>>;
	/** Default: as the code's row has it. */
	readonly status?: number;
	/** The workflows that the client may choose from, where the dialect lists them. */
	readonly workflows?: readonly NamedWorkflow[] | undefined;
}

export interface NamedWorkflow {
	readonly id: string;
	readonly name: string;
}

/** The refusal when something that is kept in memory has reached its bound. */
export function serviceFull(what: string): ProblemResponse {
	return new ProblemResponse('service-full', `The service has no room for more ${what}.`, {
		headers: { 'retry-after': '60' },
	});
}
