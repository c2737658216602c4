/** Ends of a channel that are about the service, and say nothing about what the device should say. Pure. */
import { isPing } from './probe-asides.runner.ts';
import { greeting, greets, isError, messagesOf, OVER } from './probe-readings.runner.ts';
import type { Life } from './probe-wire.runner.ts';

/** RFC 6455 7.4.1, and the registry of IANA: the service goes or starts again, had an error, or has no room. */
export const PASSING: readonly (number | null)[] = [1001, 1011, 1012, 1013];
const RESTARTS: readonly (number | null)[] = [1001, 1012];
/** Some end a channel with such a code because of what the device did not say, and then name it. */
const NAMES =
	/send|expect|must|missing|requir|first|subscri|auth|log.?in|hello|identif|regist|heart|beat|alive|p[io]ng|idle|silen|respon|repl[yi]|answer|result|ack|confirm|time.{0,2}out|\bnot?\b|without|[{<]/i;
/** Of the age at which a service ends its channels: those that end by one timer differ by less. */
const NEARLY = 0.9;

export interface Restart {
	readonly code: number | null;
	readonly atMs: number;
}

/** The end of a channel that worked until then, where its words blame no one; `null` for one without, or with another end. */
function endOfWork({ ended, heard }: Life): Restart | null {
	if (!ended || NAMES.test(ended.reason) || OVER.test(ended.reason)) return null;
	const form = { jsonInBinary: true } as const;
	const hello = greeting(heard, form);
	const isTold = (text: string) => text === hello || isError(text) || greets(text) || isPing(text, form);
	return messagesOf(heard, form).every(({ text }) => isTold(text)) ? null : ended;
}

/** Whether a channel ended as others did that the service ends whatever the device says. */
export const isLike = ({ code, atMs }: Restart, restarts: readonly Restart[]) =>
	restarts.some((one) => one.code === code && atMs > NEARLY * one.atMs);

/** The end of a channel that worked until the service restarted it. @param known of other channels. */
export function restartOf(life: Life, known: readonly Restart[]): Restart | null {
	const end = endOfWork(life);
	return end && (RESTARTS.includes(end.code) || isLike(end, known)) ? end : null;
}

/** The same channel, as one that lasted for as long as it was watched. */
export function untilRestart(life: Life, known: readonly Restart[]): Life {
	const restart = restartOf(life, known);
	return restart ? { ...life, ended: null, leftMs: restart.atMs } : life;
}

/**
 * The ends of channels that the service ended after the same time and with the same code, whichever; none where one of them did not work for as
 * long as counts, or where the end refuses the Connection. @param isHeard the service is known to take what the device says: an end without a
 * word may else come from what it does not hear, such as a heartbeat at another place.
 */
export function usualEnds(lives: readonly Life[], leastMs: number, isHeard: boolean): Restart[] {
	const ends = lives.flatMap((life) => (life.failure?.code === 'connection-lost' && endOfWork(life)) || []);
	const isTold = isHeard || lives.every(({ ended }) => ended?.reason !== '' || PASSING.includes(ended.code));
	const isUsual = isTold && ends.every((one) => one.atMs >= leastMs && ends.every((other) => isLike(one, [other])));
	return isUsual && ends.length > 1 && ends.length === lives.length ? ends : [];
}

/** @returns `null` where only one was seen, which may be chance. */
export function tellRestarts(restarts: readonly Restart[]): string | null {
	const codes = [...new Set(restarts.map(({ code }) => code ?? 'no close code'))].join(', ');
	const seconds = Math.round(Math.max(...restarts.map(({ atMs }) => atMs)) / 100) / 10;
	return restarts.length < 2 ? null : `the service ends each channel after ${seconds} s (${codes})`;
}
