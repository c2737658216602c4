/** Errors as problem documents: which HTTP status each has, and which words go out. Never the inside of an unexpected one. */
import http from 'node:http';
import {
	type AgentError,
	type ErrorCode,
	EXIT,
	exitStatusOf,
	type Failure,
	type FailureDetails,
	failure,
} from '../../base/errors.ts';
import { problemDocument } from '../../base/sentences.ts';
import { PROBLEM_CONTENT_TYPE, type ProblemDocument } from '../../protocol/problem.ts';

/** An error document before it is sent. */
export interface Refusal {
	readonly failure: Failure;
	readonly status: number;
	readonly headers?: Readonly<Record<string, string>>;
	readonly errors?: ProblemDocument['errors'];
}

/** What an exit status of the catalogue is in HTTP. */
const STATUS_OF_EXIT: Readonly<Record<number, number>> = {
	[EXIT.usage]: 400,
	[EXIT.badData]: 422,
	[EXIT.unavailable]: 503,
	[EXIT.internal]: 500,
	[EXIT.io]: 500,
	[EXIT.temporary]: 503,
	[EXIT.refused]: 403,
	[EXIT.configuration]: 409,
};

/** Where HTTP has a better word than the exit status gives. */
const STATUS_OF_CODE: { readonly [Code in ErrorCode]?: number } = {
	'not-found': 404,
	'method-not-allowed': 405,
	'body-too-large': 413,
	'already-paired': 409,
	'pairing-under-way': 409,
	// 503 would invite a client to send a one-time code once more.
	'pairing-uncertain': 502,
	'workflow-missing': 422,
	'state-unwritable': 507,
};

export function refusalOf(error: AgentError): Refusal {
	const status = STATUS_OF_CODE[error.code] ?? STATUS_OF_EXIT[exitStatusOf(error.code)] ?? 500;
	const { retryAfterMs } = error.failure;
	if (retryAfterMs === undefined) return { failure: error.failure, status };
	return { failure: error.failure, status, headers: { 'Retry-After': String(Math.ceil(retryAfterMs / 1000)) } };
}

export function refuse(
	status: number,
	code: ErrorCode,
	message: string,
	more: Pick<FailureDetails, 'remedy' | 'params'> & Pick<Refusal, 'headers' | 'errors'> = {},
): Refusal {
	const { headers, errors, ...details } = more;
	return { status, failure: failure(code, message, details), ...(headers && { headers }), ...(errors && { errors }) };
}

export function problemOf({ failure: told, status, errors }: Refusal): ProblemDocument {
	return problemDocument(told, { status, title: http.STATUS_CODES[status] ?? 'Error' }, errors);
}

/** The connection is of no use any more: what is missing may still come. */
export function tooSlow(): Refusal {
	return refuse(408, 'request-timeout', 'The request did not arrive in time.', {
		remedy: 'Send it in one go.',
		headers: { Connection: 'close' },
	});
}

/**
 * The answer to what is no HTTP request at all.
 * @param code what Node says is wrong, or `CONNECT` for that method, which no handler is asked about.
 */
export function rawProblem(code: string | undefined): string {
	const refusal =
		code === 'ERR_HTTP_REQUEST_TIMEOUT'
			? tooSlow()
			: code === 'HPE_HEADER_OVERFLOW'
				? refuse(431, 'body-too-large', 'The headers of the request are too large.', { remedy: 'Send fewer headers.' })
				: code === 'CONNECT'
					? refuse(405, 'method-not-allowed', 'This is no proxy: it does not take CONNECT.', {
							headers: { Allow: 'GET' },
						})
					: refuse(400, 'usage', 'This is not a valid HTTP/1.1 request.', { remedy: 'Use an HTTP client.' });
	const body = JSON.stringify(problemOf(refusal));
	const head = [
		`HTTP/1.1 ${refusal.status} ${http.STATUS_CODES[refusal.status]}`,
		`Content-Type: ${PROBLEM_CONTENT_TYPE}`,
		`Content-Length: ${Buffer.byteLength(body)}`,
		'Connection: close',
		...Object.entries(refusal.headers ?? {})
			.filter(([name]) => name !== 'Connection')
			.map(([name, value]) => `${name}: ${value}`),
	];
	return `${head.join('\r\n')}\r\n\r\n${body}`;
}
