/** One delivery of metrics to a store: tried once, with a deadline. Follows no redirect and says no more of the address than its host. */
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { readBounded } from '../base/bodies.edge.ts';
import { systemClock } from '../base/clock.edge.ts';
import type { RequestNetwork } from '../connection/ask.edge.ts';
import { readRetryAfter } from '../connection/classify-failure.ts';

export interface Delivery {
	readonly url: URL;
	readonly headers: Readonly<Record<string, string>>;
	readonly body: Uint8Array;
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

/** For the next delivery, where the interval is a usual one. */
const KEPT_MS = 120_000;

/** @throws whatever the line does; an answer of any status is returned. */
export async function deliver(
	network: Pick<RequestNetwork, 'ask'>,
	{ url, headers, body, deadlineMs, signal }: Delivery,
): Promise<DeliveryAnswer> {
	const isLarge = body.length > PACKED_FROM_BYTES;
	const bytes = isLarge ? await packed(body, { level: 1 }) : body;
	const answer = await network.ask({
		method: 'POST',
		url,
		headers: {
			...headers,
			'content-type': 'application/x-protobuf',
			...(isLarge && { 'content-encoding': 'gzip' }),
			'content-length': String(bytes.length),
		},
		body: bytes,
		idleMs: deadlineMs,
		signal: AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]),
		// A handshake for each delivery would cost more than the delivery.
		keeps: KEPT_MS,
	});
	const { bytes: beginning, cut } = await readBounded(answer, MAX_ANSWER_BYTES);
	if (cut instanceof Error) throw cut;
	return {
		status: answer.statusCode ?? 0,
		retryAfterMs: readRetryAfter(answer.headers['retry-after'], answer.headers.date, systemClock.wallMs()) ?? null,
		body: beginning,
	};
}
