/** The meaning of the end of an open channel: its close frame, or a frame that no channel may bring. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import { cutOut } from '../base/escapes.ts';
import { joinSentences } from '../base/sentences.ts';
import { MAX_FRAME_BYTES } from '../protocol/channel.ts';
import { cleanWords } from '../protocol/problem.ts';
import { SUBPROTOCOL_REMEDY } from './classify-failure.ts';
import { inBrackets } from './classify-network-error.ts';

const CLOSE_WORDS: Readonly<Record<number, string>> = {
	1000: 'normal end',
	1001: 'going away',
	1002: 'protocol error',
	1003: 'unsupported data',
	1005: 'no reason given',
	1007: 'invalid data',
	1008: 'policy violation',
	1009: 'message too big',
	1011: 'internal error',
	1012: 'service restart',
	1013: 'try again later',
	1014: 'bad gateway',
};

/** Whether the reason of a close says in words that another channel has taken the place of this one. */
export const saysReplaced = (reason: string): boolean =>
	/\b(?:replaced|superseded|duplicate|(?:another|newer|new) (?:device|connection|session|channel|client|login))\b/i.test(
		reason,
	);

export interface ChannelClose {
	/** Of the close frame; 1005 for a frame without a code, 1006 for none at all. */
	readonly code: number;
	readonly reason: string;
	readonly host: string;
	/** Host and port of the proxy that it goes through. */
	readonly proxy?: string | null | undefined;
	readonly secrets?: readonly string[] | undefined;
}

/** The meaning of the end of an open channel. Source: RFC 6455, 7.4; 4401, 4403 and 4409, after the HTTP statuses: assumed (close-codes). */
export function classifyClose(close: ChannelClose): Failure {
	const { code, host, proxy } = close;
	if (code === 1006) {
		const through = proxy ? ` through the proxy ${proxy}` : '';
		const params = { host, ...(proxy && { proxy }) };
		return failure('connection-lost', `The connection to ${host}${through} was lost.`, { params });
	}
	const words = CLOSE_WORDS[code];
	const reason = cleanWords(cutOut(close.reason, close.secrets ?? []), 123);
	const message = `${host} closed the channel with ${code}${inBrackets(words)}${reason === '' ? '.' : `: ${joinSentences(reason)}`}`;
	const params = { host, closeCode: code, ...(reason !== '' && { detail: reason }) };
	if (code === 1008 || code === 4401 || code === 4403) return failure('credential-refused', message, { params });
	if (code === 4409 || (code >= 4000 && saysReplaced(reason)))
		return failure('connection-replaced', message, { params });
	// Source: 4406 is that of graphql-transport-ws, after the HTTP status.
	if (code >= 1002 && (code === 4406 || /sub-?protocol/i.test(reason)))
		return failure('channel-rejected', message, { params, remedy: SUBPROTOCOL_REMEDY });
	return failure('connection-lost', message, { params });
}

/** A frame that no channel may bring, as the package `ws` names it; `null` for another error. */
export function classifyFrameError(
	error: Error | null,
	{ host, proxy }: Pick<ChannelClose, 'host' | 'proxy'>,
): Failure | null {
	const reason = (error as { code?: unknown } | null)?.code;
	if (typeof reason !== 'string' || !reason.startsWith('WS_ERR_')) return null;
	// Some gateways write a code that never goes over the wire, such as 1006: they have ended the channel (RFC 6455, 7.4.1).
	const illegal = /invalid status code (\d+)/.exec(error?.message ?? '')?.[1];
	if (illegal && Number(illegal) !== 1006) return classifyClose({ code: Number(illegal), reason: '', host, proxy });
	if (illegal) return failure('connection-lost', `${host} closed the channel with ${illegal}.`, { params: { host } });
	const message =
		reason === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH'
			? `${host} sent a message larger than ${MAX_FRAME_BYTES / 1024 / 1024} MiB, which ends the channel.`
			: `${host} sent a message that can't be taken (${reason}).`;
	return failure('poison-message', message, { params: { host, reason } });
}
