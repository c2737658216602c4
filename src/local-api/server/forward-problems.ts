/** Answers of the agent in the place of the service: which side failed, and whether the request can have had an effect. */
import { AgentError, type ErrorCode, type Failure } from '../../base/errors.ts';
import { EFFECT_HEADER } from '../../protocol/problem.ts';
import { type ProblemResponse, toProblemResponse } from './problem-responses.ts';

/** `none`: nothing of the request has left this device. `possible`: the service may have carried it out. */
export type Effect = 'none' | 'possible';

/** A request that has failed after it may have left. */
export class ForwardError extends AgentError {
	/** The HTTP status; left out, the one of its code. */
	readonly status: number | undefined;

	constructor({ code, message, ...details }: Failure & { readonly cause?: unknown }, status?: number) {
		super(code, message, details);
		this.status = status;
	}
}

const STATUS: { readonly [Code in ErrorCode]?: number } = {
	'request-timeout': 504,
	'response-too-large': 507,
};

/** Never a 503 for what may have had an effect: policies repeat it. */
export function forwardProblem(error: AgentError): ProblemResponse {
	const known = toProblemResponse(error);
	if (!(error instanceof ForwardError)) return known;
	const status = error.status ?? STATUS[error.code] ?? (known.status === 503 ? 502 : known.status);
	return { failure: error.failure, status, headers: effectHeader('possible') };
}

export const effectHeader = (effect: Effect) => ({ [EFFECT_HEADER]: effect });
