/** One delivery of metrics to a store: tried once, with a deadline. Follows no redirect and says no more of the address than its host. */
import { type Agent as HttpAgent, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { readRetryAfter } from '../connection/classify-failure.ts';

export interface Delivery {
	readonly url: URL;
	readonly headers: Readonly<Record<string, string>>;
	readonly body: Uint8Array;
	/** Of the device's network; `undefined` where the direct way does. */
	readonly agent: HttpAgent | undefined;
	readonly deadlineMs: number;
	readonly signal: AbortSignal;
}

/** The store's status, and the wait that it asks for. */
export interface DeliveryAnswer {
	readonly status: number;
	readonly retryAfterMs: number | null;
	/** The beginning of its body. */
	readonly body: Uint8Array;
}

const packed = promisify(gzip);
/** Less than this costs more to pack than to send. */
const PACKED_FROM_BYTES = 8192;
/** An answer says nothing in more bytes than these, and a store that never ends it is not listened to. */
const MAX_ANSWER_BYTES = 4096;
/** A handshake for each delivery would cost more than the delivery. */
const keptOpen = new HttpsAgent({ keepAlive: true, keepAliveMsecs: 30_000, maxSockets: 1 });

/** @throws whatever the line does; an answer of any status is returned. */
export async function deliver({ url, headers, body, agent, deadlineMs, signal }: Delivery): Promise<DeliveryAnswer> {
	const isSecure = url.protocol === 'https:';
	const isLarge = body.length > PACKED_FROM_BYTES;
	const bytes = isLarge ? await packed(body, { level: 1 }) : body;
	const ended = AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]);
	return new Promise((resolve, reject) => {
		const options = {
			method: 'POST',
			signal: ended,
			headers: {
				...headers,
				'content-type': 'application/x-protobuf',
				...(isLarge && { 'content-encoding': 'gzip' }),
				'content-length': bytes.length,
			},
			// Node's own for plain http would keep its connection when this agent has ended.
			agent: agent ?? (isSecure && keptOpen),
			// Or NODE_TLS_REJECT_UNAUTHORIZED would decide.
			rejectUnauthorized: true,
		};
		const request = (isSecure ? requestHttps : requestHttp)(url, options, (response) => {
			const { headers: answered, statusCode = 0 } = response;
			const chunks: Uint8Array[] = [];
			let size = 0;
			const settle = () =>
				resolve({
					status: statusCode,
					retryAfterMs: readRetryAfter(answered['retry-after'], answered.date) ?? null,
					body: Buffer.concat(chunks),
				});
			response.on('data', (chunk: Uint8Array) => {
				chunks.push(chunk.subarray(0, MAX_ANSWER_BYTES - size));
				size += chunk.length;
				if (size < MAX_ANSWER_BYTES) return;
				settle();
				response.destroy();
			});
			response.on('error', reject);
			response.on('end', settle);
		});
		request.on('error', reject);
		request.end(bytes);
	});
}

export function closeDeliveries(): void {
	keptOpen.destroy();
}
