/** Ends of a channel that are about the service, and say nothing about what the device should say. Pure. */
import { greets, isError, messagesOf, OVER } from './probe-readings.ts';
import type { Life } from './probe-wire.ts';

/** RFC 6455 7.4.1, and the registry of IANA. */
const RESTARTS: readonly (number | null)[] = [1001, 1012];
/** Some end a channel with such a code because of what the device did not say, and then name it. */
const NAMES =
	/send|expect|must|missing|requir|first|subscri|auth|log.?in|hello|identif|regist|heart|beat|alive|p[io]ng|idle|silen|respon|ack|confirm|time.?out|[{<]/i;

export interface Restart {
	readonly code: number | null;
	readonly atMs: number;
}

/** The end of a channel that worked until the service restarted it; `null` for one without, or with another end. */
export function restartOf({ ended, heard }: Life): Restart | null {
	if (!ended || !RESTARTS.includes(ended.code) || NAMES.test(ended.reason) || OVER.test(ended.reason)) return null;
	const texts = messagesOf(heard, { jsonInBinary: true }).map(({ text }) => text);
	return texts.some((text) => !isError(text) && !greets(text)) ? ended : null;
}

/** The same channel, as one that lasted for as long as it was watched. */
export function untilRestart(life: Life): Life {
	const restart = restartOf(life);
	return restart ? { ...life, ended: null, leftMs: restart.atMs } : life;
}

/** @returns `null` where only one was seen, which may be chance. */
export function tellRestarts(restarts: readonly Restart[]): string | null {
	const codes = [...new Set(restarts.map(({ code }) => code))].join(', ');
	const seconds = Math.round(Math.max(...restarts.map(({ atMs }) => atMs)) / 100) / 10;
	return restarts.length < 2 ? null : `the service ends each channel after ${seconds} s (${codes})`;
}
