/** Messages that may be pings of the application's own making, and what may answer them. Pure. */
import { readNumber, WORD_NAMES } from '../protocol/channel.ts';
import { isObject, parseJson, resolvePointer } from '../protocol/json.ts';
import { ABOUT_ACK } from './probe-acks.runner.ts';
import {
	GREETS,
	isError,
	isMoment,
	isTalk,
	type Message,
	NAMELESS,
	type ReadingSettings,
	wordOf,
} from './probe-readings.runner.ts';
import type { Life } from './probe-wire.runner.ts';

export const ABOUT_PING = /p[io]ng|keep.?alive|alive|idle|respon|echo/i;
export const REPLIES = /respon|echo|answer|repl(?:y|ie)/i;
/** A name of an answer in the words of a service, such as `KeepAliveResponse` or `beat.ack`; no word of a sentence. */
const NAMES = /\b\w[\w.:-]*?(?:[Pp]ong|PONG|[Rr]esponse|[Rr]eply|[Aa]nswer|[._:-]ack|Ack)\b/g;
const MAX_PINGED = 3;
const MAX_NAMED = 2;
/** After a frame of the device: what always comes as soon answers it. */
const ANSWER_MS = 100;

/** The word of a message, or a frame that is one word itself, such as `PING`; `''` for other texts. */
export function pingName(text: string, form: ReadingSettings): string {
	const word = wordOf(text, form);
	const name = NAMELESS.includes(word) ? (isObject(parseJson(text)) ? '' : text.trim()) : word;
	return /^\S{1,64}$/.test(name) ? name : '';
}

/** By its name, or because it has nothing but its kind, a number and times in it. @param number where its own number is, by the words of the service, which may be a text. */
export function mayBePing(text: string, form: ReadingSettings, number?: string): boolean {
	const name = pingName(text, form);
	const document = parseJson(text);
	const others = Object.entries(Object(document)).filter(
		([key, value]) => typeof value !== 'number' && value !== name && `/${key}` !== number,
	);
	return ABOUT_PING.test(name) || (isObject(document) && name !== '' && others.length === 0);
}

/** Kinds that came before the end may be pings of the application's own making; an error is none, one that answers the device is the last of them. */
export function pongs(
	{ said, ended }: Life,
	messages: readonly Message[],
	form: ReadingSettings,
	number?: string,
): ReturnType<typeof pongGuess>[] {
	const rank = ({ text }: Message) => {
		const kind = pingName(text, form);
		const isAnswer = messages
			.filter((one) => pingName(one.text, form) === kind)
			.every(({ atMs }) => said.some((one) => atMs >= one.atMs && atMs - one.atMs < ANSWER_MS));
		const answers = (isAnswer || GREETS.test(kind) ? 1 : 0) + (/ack|pong|respon|answer/i.test(kind) ? 4 : 0);
		return (/ping/i.test(kind) ? 2 : 0) + (ABOUT_PING.test(kind) ? 1 : 0) - answers;
	};
	const { reason = '' } = ended ?? {};
	// The end came for want of an answer to it, and not of an acknowledgement.
	const isMissed = (name: string) => reason.includes(name) && REPLIES.test(reason) && !ABOUT_ACK.test(reason);
	// Nothing is ever said to what may be a notification.
	const own = messages.filter(({ text }) => {
		const name = pingName(text, form);
		return !isError(text) && name !== '' && (mayBePing(text, form, number) || isMissed(name));
	});
	const told = [reason, ...messages.map(({ text }) => text).filter((text) => isTalk(text, form))].join('\n');
	const kinds = messages.map(({ text }) => pingName(text, form));
	const named = [...new Set(told.match(NAMES))].filter((name) => !kinds.includes(name)).slice(0, MAX_NAMED);
	const byKind = new Map(own.map((one) => [pingName(one.text, form), one]));
	return [...byKind]
		.sort(([, a], [, b]) => rank(b) - rank(a))
		.slice(0, MAX_PINGED)
		.flatMap(([pingKind, { text }]) =>
			pongsFor(pingKind, text, form, named).map((pongBody) => pongGuess(pingKind, pongBody)),
		);
}

export const pongGuess = (pingKind: string, pongBody: string) => ({
	point: 'application-ping',
	settings: { pingKind, ...(pongBody !== '{"type":"pong"}' && { pongBody }) } as Readonly<Record<string, unknown>>,
});

/** Texts that may answer a ping, the likely ones first, as `service.pongBody` is written. @param named answers that the service names. */
export function pongsFor(kind: string, text: string, form: ReadingSettings, named: readonly string[] = []): string[] {
	const message = parseJson(text);
	const reply = kind.replace(/(p)i(ng)/i, (_, p, ng) => `${p}${ng === 'NG' ? 'O' : 'o'}${ng}`);
	if (!isObject(message)) return [...new Set([...named, reply, 'pong'])];
	const key = WORD_NAMES.find((name) => message[name] === kind) ?? form.kindPointer?.split('/').at(-1) ?? 'type';
	const { kindPointer = '', notificationIdPointer = '/id' } = form;
	const replies = [...new Set([...named, reply, 'pong', kind, `${kind}.ack`])];
	// One whose kind is further down is answered by one like it.
	if (kindPointer.lastIndexOf('/') > 0 && String(resolvePointer(message, kindPointer)) === kind) {
		const id = resolvePointer(message, notificationIdPointer);
		const inIts = (answer: string) => (_: string, value: unknown) =>
			String(value) === kind ? answer : value !== null && value === id ? '{id}' : isMoment(value) ? undefined : value;
		return replies.map((answer) => JSON.stringify(message, inIts(answer)));
	}
	// A ping without an id wants none in its answer, wherever other messages have theirs.
	const name = notificationIdPointer.slice(1);
	const own = name in message ? name : readNumber(message, kind)?.[0];
	const whole = own !== undefined && !isMoment(message[own]) ? { [own]: '{id}' } : {};
	return replies.map((answer) => JSON.stringify({ [key]: answer, ...whole }));
}
