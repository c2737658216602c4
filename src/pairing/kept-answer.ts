/**
 * The answer to a one-time code in which no Connection token could be found, as it is set aside: its form, how long it is
 * kept, and what is told of it. Pure; the file is in `kept-answer.edge.ts`. Never puts a text of the answer into a message.
 */

import * as z from 'zod';
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';
import { type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { unreadAnswer } from '../connection/unread-answer.ts';
import { deviceConnectionRequestSchema } from '../protocol/device-connection.ts';
import { later } from '../protocol/later.ts';
import { type AnswerText, likelyFirst, looksLikeToken, tokenIn } from '../protocol/registration-answer.ts';
import { type DeviceState, newestCode } from '../state/device-state.ts';

export const KEPT_MS = 24 * 60 * 60 * 1000;
/** Of one answer, in bytes of its texts and their places. */
export const MAX_KEPT_BYTES = 64 * 1024;

export const keptAnswerSchema = later(() =>
	z.object({
		schemaVersion: z.literal(1),
		/** Of the state's attempt: without an attempt that is written down, the answer is over. */
		attemptId: z.string(),
		/** ISO 8601. */
		at: z.string(),
		status: z.number(),
		/** What is needed to finish the pairing. */
		baseUrl: z.url(),
		request: deviceConnectionRequestSchema,
		sessionId: z.string().nullable(),
		assignsWorkflow: z.boolean(),
		confirmsOrigin: z.string().nullable(),
		/** Those that look like a token first: may be secrets. */
		texts: z.array(z.object({ place: z.string(), text: z.string() })).min(1),
	}),
);
export type KeptAnswer = z.infer<typeof keptAnswerSchema>;

/** The texts that are kept, none that is empty: those that look like a token first, at most {@link MAX_KEPT_BYTES}; a text is kept whole or not at all. */
export function keepableTexts(texts: readonly AnswerText[]): AnswerText[] {
	let left = MAX_KEPT_BYTES;
	return likelyFirst(texts).filter(({ place, text }) => {
		if (text.trim() === '') return false;
		const size = bytesOf(place) + bytesOf(text);
		if (size > left) return false;
		left -= size;
		return true;
	});
}

/**
 * The answer as it is at a start of the agent, and how long it is still kept; `null` when it is over. One from the future,
 * or from a clock that was never set, is as old as this start: a clock that jumps neither ends it early nor keeps it long.
 */
export function atStart(
	kept: KeptAnswer,
	wallMs: number,
): { readonly kept: KeptAnswer; readonly leftMs: number } | null {
	const atMs = Date.parse(kept.at);
	if (!(atMs >= EARLIEST_CLOCK_MS && atMs <= wallMs))
		return { kept: { ...kept, at: new Date(wallMs).toISOString() }, leftMs: KEPT_MS };
	const leftMs = atMs + KEPT_MS - wallMs;
	return leftMs > 0 ? { kept, leftMs } : null;
}

/** The Connection token in it by the settings of now; `null` while there is none. */
export function keptToken(kept: KeptAnswer, tokenPointer: string | null): string | null {
	return tokenIn(kept.texts, tokenPointer);
}

/**
 * @param attempt of the state: where it is of a newer code, or past, the answer is told as that to an earlier code.
 * @param unsaved why it is in memory only; `null` when it is on the disk.
 * @param isRefused whether the service has said since that the same code is used up.
 */
export function describeKept(
	kept: KeptAnswer,
	attempt: DeviceState['attempt'],
	tokenPointer: string | null,
	unsaved: string | null,
	isRefused = false,
): Failure {
	const { host } = new URL(kept.baseUrl);
	const unread = unreadAnswer({ status: kept.status, host, texts: kept.texts, tokenPointer });
	// Whatever stands before the service answers "ok" as well: then the code may still be good.
	const isUsed = isRefused || kept.texts.some(looksLikeToken);
	const isEarlier = newestCode(attempt, kept.attemptId) !== 'kept';
	const at = kept.at.replace(/\.\d+Z$/, 'Z');
	const next = isUsed ? 'no other code is needed' : `${isEarlier ? 'its' : 'the'} code may have been used`;
	const whose = isEarlier ? `An earlier code, at ${at}:` : '';
	const where =
		unsaved === null
			? `The answer is kept for 24 hours: ${next}`
			: `The answer could not be saved (${unsaved}) and is kept in memory only: ${next}${isUsed ? ' for 24 hours, unless the agent ends before' : ''}`;
	const remedy = isUsed || isEarlier ? unread.remedy : `Try the same code again. If it is refused: ${unread.remedy}`;
	return failure('answer-unreadable', joinSentences(`${whose} ${unread.message}`.trim(), where), {
		remedy: joinSentences(remedy, 'The device then pairs with the answer that is kept.'),
		// A person has to set it; the agent asks the service for nothing meanwhile.
		recovers: false,
		params: {
			...unread.params,
			pairingCode: isUsed ? 'used' : 'uncertain',
			...(isUsed && { answer: 'kept' }),
			...(isEarlier && { earlierAt: at }),
		},
	});
}

function bytesOf(text: string): number {
	return new TextEncoder().encode(text).length;
}
