/** One look at the fleet plan where it is served. Follows no redirect, sends no credential, retries nothing, tells no more of the address than its host. */
import { readBounded, unpack } from '../base/bodies.edge.ts';
import { systemClock } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import type { Answer, RequestNetwork } from '../connection/ask.edge.ts';
import { readRetryAfter } from '../connection/classify-failure.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import { isLoopback } from '../protocol/endpoints.ts';

/** Longest silence on the line, in milliseconds; the deadline ends an answer that drips. */
const IDLE_MS = 15_000;
const MAX_ETAG_LENGTH = 1024;

export interface PlanRequest {
	/** https, or http to this machine itself. */
	readonly url: URL;
	/** Of the plan that is known; `null` to have it in any case. */
	readonly etag: string | null;
	readonly userAgent: string;
	/** For the whole of it, in milliseconds. */
	readonly deadlineMs: number;
	/** Largest plan, packed and unpacked. */
	readonly maxBytes: number;
	readonly signal: AbortSignal;
}

/** The plan as before, or its exact bytes. */
export type FoundPlan =
	| { readonly kind: 'unchanged' }
	| { readonly kind: 'changed'; readonly bytes: Uint8Array; readonly etag: string | null };

/** @throws AgentError `plan-unreachable` when there is no whole answer, `plan-invalid` when it cannot be a plan. */
export async function fetchPlan(network: RequestNetwork, request: PlanRequest): Promise<FoundPlan> {
	const { url, maxBytes, etag: known } = request;
	const { host } = url;
	if (url.protocol !== 'https:' && !isLoopback(url.href))
		throw new AgentError('plan-unreachable', `The fleet plan at ${host} is not fetched without encryption.`);
	const signal = AbortSignal.any([request.signal, AbortSignal.timeout(request.deadlineMs)]);
	let answer: Answer;
	let body: Uint8Array;
	try {
		answer = await network.ask({
			...{ method: 'GET', url, body: null, idleMs: IDLE_MS, signal },
			headers: {
				accept: 'application/json',
				'accept-encoding': 'gzip',
				'user-agent': request.userAgent,
				...(known !== null && { 'if-none-match': known }),
			},
		});
		const { statusCode = 0 } = answer;
		if (statusCode !== 200) {
			answer.destroy();
			if (statusCode === 304 && known !== null) return { kind: 'unchanged' };
			throw refusal(
				host,
				statusCode,
				readRetryAfter(answer.headers['retry-after'], answer.headers.date, systemClock.wallMs()),
			);
		}
		body = await readWhole(answer, maxBytes, host);
	} catch (error) {
		if (error instanceof AgentError) throw error;
		const { message } = classifyNetworkError(signal.aborted ? signal.reason : error, {
			host,
			proxy: network.proxyName(url),
		});
		throw new AgentError('plan-unreachable', `The fleet plan was not fetched: ${message}`, { cause: error });
	}
	const etag = answer.headers.etag ?? null;
	const bytes = asPlain(body, answer.headers['content-encoding'], maxBytes, host);
	return { kind: 'changed', bytes, etag: etag !== null && etag.length <= MAX_ETAG_LENGTH ? etag : null };
}

/** A redirect leads elsewhere than the settings say, and a page that signs a network in is not a plan. */
function refusal(host: string, status: number, retryAfterMs: number | undefined): AgentError {
	if (status < 300 || status >= 400 || status === 304) {
		const message = `${host} answered ${status} instead of the fleet plan.`;
		return new AgentError('plan-unreachable', message, { retryAfterMs });
	}
	const message = `${host} answered with a redirect (${status}) instead of the fleet plan.`;
	const remedy = 'Set fleet.planUrl to the address that the plan really has, or sign in to this network.';
	return new AgentError('plan-unreachable', message, { remedy });
}

/** The body, which has to be as long as it was said to be. */
async function readWhole(answer: Answer, maxBytes: number, host: string): Promise<Uint8Array> {
	const { bytes, cut } = await readBounded(answer, maxBytes);
	if (cut === 'too-large') throw tooLarge(host, maxBytes);
	if (cut) throw cut;
	if (answer.complete === false)
		throw new AgentError('plan-unreachable', `The fleet plan of ${host} was cut off on the way.`);
	return bytes;
}

function asPlain(body: Uint8Array, encoding: string | undefined, maxBytes: number, host: string): Uint8Array {
	const plain = unpack(body, encoding, maxBytes);
	if (typeof plain !== 'string') return plain;
	if (plain === 'too-large') throw tooLarge(host, maxBytes);
	if (plain === 'unknown-coding')
		throw new AgentError('plan-invalid', `${host} sent the fleet plan with an unsupported Content-Encoding.`, {
			remedy: 'Have the server send it as it is, or with gzip.',
		});
	throw new AgentError('plan-invalid', `The answer of ${host} cannot be unpacked as its Content-Encoding says.`, {
		remedy: 'Look at what the server really sends; the plan from before stays in force.',
	});
}

function tooLarge(host: string, maxBytes: number): AgentError {
	return new AgentError('plan-invalid', `The fleet plan of ${host} is larger than ${maxBytes} bytes.`, {
		remedy: 'Choose devices by labels, types or ID prefixes instead of long lists.',
	});
}
