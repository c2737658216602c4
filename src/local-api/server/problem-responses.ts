/** Errors as problem documents: which HTTP status each has, and the words that are sent. Never the inside of an unexpected one. */
import {
	type AgentError,
	type ErrorCode,
	EXIT,
	exitStatusOf,
	type Failure,
	type FailureDetails,
	failure,
} from '../../base/errors.ts';
import type { ProblemDocument } from '../../protocol/problem.ts';

/** A problem document before it is sent. */
export interface ProblemResponse {
	readonly failure: Failure;
	readonly status: number;
	readonly headers?: Readonly<Record<string, string>>;
	readonly errors?: ProblemDocument['errors'];
}

/** The HTTP status of an exit status of the catalogue. */
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

/** Codes for which HTTP has a more precise status. */
const STATUS_OF_CODE: { readonly [Code in ErrorCode]?: number } = {
	'not-found': 404,
	'answer-withheld': 502,
	'method-not-allowed': 405,
	'body-too-large': 413,
	'already-paired': 409,
	'pairing-under-way': 409,
	// 503 would invite a client to send a one-time code once more.
	'pairing-uncertain': 502,
	'workflow-missing': 422,
	'state-unwritable': 507,
};

export function toProblemResponse(error: AgentError): ProblemResponse {
	const status = STATUS_OF_CODE[error.code] ?? STATUS_OF_EXIT[exitStatusOf(error.code)] ?? 500;
	const { retryAfterMs } = error.failure;
	const headers = retryAfterMs === undefined ? {} : { 'Retry-After': String(Math.ceil(retryAfterMs / 1000)) };
	return { failure: error.failure, status, headers };
}

export function problemResponse(
	status: number,
	code: ErrorCode,
	message: string,
	more: Pick<FailureDetails, 'remedy' | 'params'> & Pick<ProblemResponse, 'headers' | 'errors'> = {},
): ProblemResponse {
	const { headers, errors, ...details } = more;
	return { status, failure: failure(code, message, details), ...(headers && { headers }), ...(errors && { errors }) };
}

/** The connection is closed: the rest of the request may still arrive on it. */
export function tooSlow(): ProblemResponse {
	return problemResponse(408, 'request-timeout', 'The request did not arrive in time.', {
		remedy: 'Send it in one go.',
		headers: { Connection: 'close' },
	});
}

/** The problem with bytes that are not HTTP. @param code of Node's error, or `CONNECT` for that method. @param headerBytes at most. */
export function unreadable(code: string | undefined, headerBytes: number): ProblemResponse {
	if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return tooSlow();
	if (code === 'HPE_HEADER_OVERFLOW')
		return problemResponse(431, 'body-too-large', `Path, query and headers have more than ${headerBytes} bytes.`, {
			remedy: 'Send a shorter query, and fewer or shorter headers.',
		});
	if (code === 'CONNECT')
		return problemResponse(405, 'method-not-allowed', 'This server is not a proxy; CONNECT is not supported.', {
			headers: { Allow: 'GET' },
		});
	return problemResponse(400, 'usage', 'This is not a valid HTTP/1.1 request.', { remedy: 'Use an HTTP client.' });
}
