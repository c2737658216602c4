/** One HTTP request and its answer, once: a deadline, bounds, the body unpacked, and whether it was written at all. */
import type { IncomingMessage } from 'node:http';
import { type Failure, failure } from '../base/errors.ts';
import { cleanText } from '../protocol/problem.ts';
import type { RequestNetwork } from './ask.edge.ts';
import { classifyNetworkError, type NetworkContext } from './classify-network-error.ts';

/** Longest silence before and inside an answer; the deadline ends an answer that drips. */
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
	const { url, method, headers, body, deadlineMs, maxBytes } = request;
	const context = { host: url.host, viaProxy: network.viaProxy(url) };
	const enough = new AbortController();
	const ends = [AbortSignal.timeout(deadlineMs), enough.signal, ...(request.signal ? [request.signal] : [])];
	const signal = AbortSignal.any(ends);
	let written = false;
	let answer: IncomingMessage;
	try {
		answer = await network.ask({
			...{ method, url, headers, signal },
			body: body ?? null,
			idleMs: IDLE_MS,
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
	const answerHeaders = flatHeaders(answer.headers);
	const { bytes, cut } = await readBody(answer, maxBytes, context);
	clearTimeout(detailTimer);
	enough.abort();
	const unpacked = unpack(bytes, answerHeaders['content-encoding'], maxBytes, context.host);
	return {
		kind: 'answered',
		status,
		headers: answerHeaders,
		bytes: unpacked.bytes,
		cut: cut ?? unpacked.cut,
	};
}

function asFailure(error: unknown, written: boolean, context: NetworkContext): { failure: Failure; written: boolean } {
	const found = classifyNetworkError(error, context);
	// What ran into the deadline unwritten was still on its way to a connection.
	if (written || found.code !== 'request-timeout') return { failure: found, written };
	const params = { host: context.host };
	const reason = context.viaProxy
		? failure('proxy-failed', `The proxy gave no connection to ${context.host} in time.`, { params })
		: failure('connect-timeout', `${context.host} did not accept a connection in time.`, { params });
	return { failure: reason, written };
}

async function readBody(body: AsyncIterable<Uint8Array>, maxBytes: number, context: NetworkContext) {
	const chunks: Uint8Array[] = [];
	let size = 0;
	let cut: Failure | null = null;
	try {
		for await (const chunk of body) {
			chunks.push(chunk.subarray(0, maxBytes - size));
			size += chunk.length;
			if (size <= maxBytes) continue;
			cut = failure('response-too-large', `The answer of ${context.host} is larger than ${maxBytes} bytes.`, {
				params: { host: context.host, maxBytes },
			});
			break;
		}
	} catch (error) {
		cut = classifyNetworkError(error, context);
	}
	return { bytes: Buffer.concat(chunks), cut };
}

/** A body that came packed although nothing asked for it; at most `maxBytes` of it. */
function unpack(
	bytes: Uint8Array,
	encoding: string | undefined,
	maxBytes: number,
	host: string,
): { bytes: Uint8Array; cut: Failure | null } {
	const coding = encoding?.trim().toLowerCase() ?? '';
	if (coding === '' || coding === 'identity' || bytes.length === 0) return { bytes, cut: null };
	const zlib = process.getBuiltinModule('node:zlib');
	const unpackers: Record<string, (packed: Uint8Array, options: { maxOutputLength: number }) => Uint8Array> = {
		gzip: zlib.gunzipSync,
		'x-gzip': zlib.gunzipSync,
		deflate: zlib.inflateSync,
		br: zlib.brotliDecompressSync,
		zstd: zlib.zstdDecompressSync,
	};
	const known = unpackers[coding];
	try {
		if (known) return { bytes: known(bytes, { maxOutputLength: Math.max(1, maxBytes) }), cut: null };
	} catch (error) {
		if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE')
			return { bytes, cut: failure('response-too-large', `The answer of ${host} is larger than ${maxBytes} bytes.`) };
	}
	const message = `${host} sent an answer with the Content-Encoding "${cleanText(coding, 40)}" that could not be unpacked.`;
	return { bytes, cut: failure('bad-response', message, { remedy: UNPACKED_REMEDY }) };
}

/** One line for each name. */
export function flatHeaders(headers: Record<string, string | string[] | undefined>): Record<string, string> {
	const lines: Record<string, string> = {};
	for (const [name, value] of Object.entries(headers))
		if (value !== undefined) lines[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
	return lines;
}
