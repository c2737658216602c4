/** One HTTP request and its answer, once: a deadline, bounds, the body unpacked, and whether it was written at all. */
import { readBounded, unpack } from '../base/bodies.edge.ts';
import { type Failure, failure } from '../base/errors.ts';
import { cleanText } from '../protocol/problem.ts';
import type { Answer, RequestNetwork } from './ask.edge.ts';
import { classifyNetworkError, type NetworkContext } from './classify-network-error.ts';
import { asOwnSide } from './own-side.edge.ts';

/** Longest silence where a request says no other; the deadline ends an answer that drips. */
const IDLE_MS = 15_000;
/** How long the body of a refusal is waited for: the status has already decided. */
const DETAIL_MS = 3000;
const UNPACKED_REMEDY = 'Ask the operator why the service packs an answer that this device did not ask to be packed.';

export interface ExchangeRequest {
	readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
	readonly url: URL;
	readonly headers: Readonly<Record<string, string>>;
	readonly body?: string | undefined;
	readonly deadlineMs: number;
	/** Longest silence before and inside the answer; default 15 s. */
	readonly idleMs?: number | undefined;
	readonly maxBytes: number;
	readonly signal?: AbortSignal | undefined;
}

export type Exchange =
	/** No answer. `written`: the request, or a part of it, was handed to the connection. */
	| { readonly kind: 'failed'; readonly failure: Failure; readonly written: boolean }
	| {
			readonly kind: 'answered';
			readonly status: number;
			readonly headers: Readonly<Record<string, string>>;
			readonly bytes: Uint8Array;
			/** Why the body is not whole. */
			readonly cut: Failure | null;
	  };

/** Asks once with a deadline. Never throws. */
export async function exchangeOverNetwork(network: RequestNetwork, request: ExchangeRequest): Promise<Exchange> {
	const { url, method, headers, deadlineMs, maxBytes } = request;
	const context = { host: url.host, proxy: network.proxyName(url) };
	const enough = new AbortController();
	const ends = [AbortSignal.timeout(deadlineMs), enough.signal, ...(request.signal ? [request.signal] : [])];
	const signal = AbortSignal.any(ends);
	let written = false;
	let answer: Answer;
	try {
		answer = await network.ask({
			...{ method, url, headers, signal },
			body: request.body ?? null,
			idleMs: request.idleMs ?? IDLE_MS,
			onWrite() {
				written = true;
			},
		});
	} catch (error) {
		return { kind: 'failed', ...asFailure(error, written, context) };
	}

	const { statusCode: status = 0 } = answer;
	const succeeded = status >= 200 && status < 300;
	const detailTimer = succeeded ? undefined : setTimeout(() => enough.abort(), DETAIL_MS);
	const body = await readBody(answer, maxBytes, context);
	clearTimeout(detailTimer);
	enough.abort();
	return { kind: 'answered', status, headers: flatHeaders(answer.headers), ...body };
}

function asFailure(error: unknown, written: boolean, context: NetworkContext): { failure: Failure; written: boolean } {
	const found = asOwnSide(classifyNetworkError(error, context), context);
	// Nothing was written before the deadline: the connection was still being made.
	if (written || found.code !== 'request-timeout') return { failure: found, written };
	const params = { host: context.host };
	const reason = context.proxy
		? failure('proxy-failed', `The proxy ${context.proxy} gave no connection to ${context.host} in time.`, { params })
		: failure('connect-timeout', `${context.host} did not accept a connection in time.`, { params });
	return { failure: asOwnSide(reason, context), written };
}

/** The body as it is meant, and why it is not whole. */
async function readBody(
	answer: Answer,
	maxBytes: number,
	context: NetworkContext,
): Promise<{ bytes: Uint8Array; cut: Failure | null }> {
	const { host } = context;
	const tooLarge = () =>
		failure('response-too-large', `The answer of ${host} is larger than ${maxBytes} bytes.`, {
			params: { host, maxBytes },
		});
	const { bytes, cut } = await readBounded(answer, maxBytes);
	const failed = cut === null ? null : cut === 'too-large' ? tooLarge() : classifyNetworkError(cut, context);
	const coding = answer.headers['content-encoding'];
	const plain = unpack(bytes, coding, maxBytes);
	if (typeof plain !== 'string') return { bytes: plain, cut: failed };
	const detail = cleanText(String(coding), 40);
	const message = `${host} sent an answer with the Content-Encoding "${detail}" that could not be unpacked.`;
	const more = { params: { host, detail }, remedy: UNPACKED_REMEDY };
	const unread = plain === 'too-large' ? tooLarge() : failure('bad-response', message, more);
	return { bytes, cut: failed ?? unread };
}

/** One line for each name. */
export function flatHeaders(headers: Record<string, string | string[] | undefined>): Record<string, string> {
	const lines: Record<string, string> = {};
	for (const [name, value] of Object.entries(headers))
		if (value !== undefined) lines[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
	return lines;
}
