/** The pace of `idv probe`: how many requests it may make, ten in a minute at most, and no sooner than the service asks. */
import type { Clock } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import { readRetryAfter } from '../connection/classify-failure.ts';

export const MAX_REQUESTS = 30;
/** A site's devices may share ten requests a minute behind one address. */
const PER_MINUTE = 10;
/** With a margin for requests that arrive sooner than their predecessors did. */
const MINUTE_MS = 61_000;
/** A service that asks for a longer wait is left alone. */
const MAX_WAIT_MS = 300_000;
/** Waits in vain before the probe ends with what it has. */
const MAX_REPEATS = 2;
/** Waits for refusals that are about this moment, where the service names none. */
const USUAL_WAIT_MS: Readonly<Record<number, number>> = { 409: 10_000, 423: 10_000, 429: 60_000 };
/** Of a service that may only be starting; a gateway says the same of every path that it does not have. */
const PASSING_STATUSES = [500, 502, 503, 504];
const PASSING_WAIT_MS = 5000;
/** In one probe. */
const MAX_PASSING = 4;

interface Answered {
	readonly status: number;
	readonly retryAfter: string | undefined;
	/** The service has taken the request, and wants the same again in the time that it names. */
	readonly isPending?: boolean;
	/** Why no answer came. */
	readonly unanswered?: { readonly code: string };
}

export type Pace = ReturnType<typeof createPace>;

/** @param signal ends a wait with its reason. @param onWait is told of each wait in seconds, and whether an answer was the reason. */
export function createPace(
	host: string,
	clock: Pick<Clock, 'monotonicMs' | 'wallMs' | 'schedule'>,
	signal: AbortSignal,
	onWait: (seconds: number, isAsked: boolean) => void,
) {
	const sentAtMs: number[] = [];
	let notBeforeMs = 0;
	let passing = 0;

	/** Waits until one more request may be made, and counts it. */
	async function turn(): Promise<void> {
		signal.throwIfAborted();
		if (sentAtMs.length >= MAX_REQUESTS)
			throw overloaded(`All ${MAX_REQUESTS} requests that the probe may make to ${host} are used.`);
		const tenth = sentAtMs.at(-PER_MINUTE);
		const untilMs = Math.max(notBeforeMs, tenth === undefined ? 0 : tenth + MINUTE_MS);
		const leftMs = untilMs - clock.monotonicMs();
		if (leftMs > 0) {
			if (leftMs > 1000) onWait(Math.ceil(leftMs / 1000), untilMs === notBeforeMs);
			await wait(clock, leftMs, signal);
		}
		sentAtMs.push(clock.monotonicMs());
	}

	return {
		get used() {
			return sentAtMs.length;
		},
		left: () => MAX_REQUESTS - sentAtMs.length,
		turn,
		/** Whether one more request may be made at once; then it counts. */
		take(): boolean {
			const tenth = sentAtMs.at(-PER_MINUTE) ?? Number.NEGATIVE_INFINITY;
			const may = sentAtMs.length < MAX_REQUESTS && tenth + MINUTE_MS <= clock.monotonicMs();
			if (may) sentAtMs.push(clock.monotonicMs());
			return may;
		},
		/**
		 * One request, made again after a wait where the answer is about this moment only.
		 * @param isOnce the request may be repeated only after an answer that has surely not used it up (429), or that asks for it.
		 * @throws AgentError `service-overloaded` when it lasts, or the wait is too long.
		 */
		async ask<Answer extends Answered>(request: () => Promise<Answer>, isOnce = false): Promise<Answer> {
			for (let repeats = 0; ; repeats += 1) {
				await turn();
				const answer = await request();
				const { status, retryAfter } = answer;
				const saidMs = readRetryAfter(retryAfter, new Date(clock.wallMs()).toUTCString());
				const isPassing = PASSING_STATUSES.includes(status) || answer.unanswered?.code === 'connection-lost';
				const isAwaited = answer.isPending && repeats === 0 && saidMs !== undefined && saidMs <= MAX_WAIT_MS;
				const isMomentary = status === 429 || isAwaited || (!isOnce && (status in USUAL_WAIT_MS || isPassing));
				const isUnasked = isPassing && saidMs === undefined;
				if (!isMomentary || (isUnasked && (repeats === MAX_REPEATS || passing === MAX_PASSING))) return answer;
				if (isUnasked) passing += 1;
				const waitMs = saidMs ?? USUAL_WAIT_MS[status] ?? PASSING_WAIT_MS * 2 ** repeats;
				if (waitMs > MAX_WAIT_MS)
					throw overloaded(
						`The service asks for a wait of ${Math.round(waitMs / 1000)} s, longer than ${MAX_WAIT_MS / 1000} s.`,
					);
				if (repeats === MAX_REPEATS) {
					if (status !== 429 && status !== 503) return answer;
					throw overloaded(`The service answered ${status} to every repetition.`);
				}
				notBeforeMs = clock.monotonicMs() + waitMs;
			}
		},
	};
}

/** @throws the reason of the signal. */
function wait(clock: Pick<Clock, 'schedule'>, ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((resolve, reject) => {
		const cancel = clock.schedule(ms, () => {
			signal.removeEventListener('abort', stop);
			resolve();
		});
		const stop = () => {
			cancel();
			reject(signal.reason);
		};
		signal.addEventListener('abort', stop, { once: true });
	});
}

const overloaded = (message: string) => new AgentError('service-overloaded', message);
