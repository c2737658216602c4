/** The life of a channel as `idv probe` reads it: how frames, kinds and ids are written. Pure. */
import { readNotification, readWord } from '../protocol/channel.ts';
import { type FrameForm, messagesIn } from '../protocol/frame-messages.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { readErrorDetail, readErrorWords } from '../protocol/problem.ts';
import { type AnswerText, looksLikeToken, readAnswerTexts, tokenIn } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import type { Life } from './probe-wire.runner.ts';

/** A place of the answer to a registration that may hold the token. */
export interface TokenPlace {
	/** `null`: found without a setting. */
	readonly pointer: string | null;
	/** A secret. */
	readonly token: string;
}

/**
 * The token where it is expected, or else whatever looks like one, the likely ones first: what is beside the id of the device before what may be
 * another's. @param sent the id of the device first.
 */
export function tokenPlaces(texts: readonly AnswerText[], sent: readonly string[]): TokenPlace[] {
	const usual = tokenIn(texts);
	const isNamed = (place: string) => /token|connection|jwt/i.test(place) && !/refresh|id_?token|session/i.test(place);
	const above = (place: string) => place.slice(0, place.lastIndexOf('/'));
	const owned = texts.flatMap(({ place, text }) => (text.toLowerCase() === sent[0]?.toLowerCase() ? above(place) : []));
	const isWithin = (place: string) => owned.some((object) => object !== '' && place.startsWith(`${object}/`));
	const usualPlace = texts.find((one) => tokenIn([one], one.place) === usual)?.place ?? '';
	const isUsualOwn = isWithin(usualPlace) || owned.includes(above(usualPlace));
	const rank = ({ pointer, token }: TokenPlace) => {
		if (pointer === null) return isUsualOwn ? -9 : -1;
		const isToken = readTokenLife(token) !== null;
		const isOwn = (isToken || (isNamed(pointer) && !/id$/i.test(pointer))) && isWithin(pointer);
		return (isToken ? 0 : 1) + (isNamed(pointer) ? 0 : 2) + (/refresh/i.test(pointer) ? 4 : 0) - (isOwn ? 8 : 0);
	};
	const others = texts
		.filter((text) => looksLikeToken(text) && !sent.includes(text.text) && text.place !== '')
		.map(({ place }) => ({ pointer: place, token: tokenIn(texts, place) ?? '' }))
		.filter(({ token }) => token !== '' && token !== usual);
	return [...(usual === null ? [] : [{ pointer: null, token: usual }]), ...others]
		.sort((a, b) => rank(a) - rank(b))
		.slice(0, 4);
}

/** The names that an answer gives the device, in small letters. */
export const madeNames = (body: string): string[] =>
	membersOf(parseJson(body))
		.filter(
			({ name }) =>
				/(?:id|ref|no|nr|number)$|serial|guid/i.test(name) && !/tenant|account|org|customer|site|workflow/i.test(name),
		)
		.map(({ value }) => String(Object(value) === value ? '' : value).toLowerCase())
		.filter((text) => /\d|.{12}/.test(text));

/** A name that tells how long something lives, with its unit, if any. */
const LIVES =
	/^(?:(?:connection|token|access|channel)_?)?(?:expires_?in|ttl|life(?:time)?|max_?age|valid_?for|validity)(?:_?(?:in_?)?(s|secs?|seconds|ms|millis(?:econds)?|mins?|minutes|hours?|days?))?$/i;
const ENDS_AT = /(?:expir\w*|expires?|valid_?(?:until|to|through)|not_?after|exp)(?:_?(?:at|on|date|time|utc|ms))*$/i;
const UNITS: readonly (readonly [unit: RegExp, seconds: number])[] = [
	[/^mi?l?li|^ms/i, 0.001],
	[/^mi/i, 60],
	[/^h/i, 3600],
	[/^d/i, 86_400],
];

/** An ISO 8601 duration without years and months, or a number in a unit. */
function secondsOf(value: unknown, unit = ''): number {
	const parts = /^P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/i.exec(String(value));
	const lengths = [604_800, 86_400, 3600, 60, 1];
	if (parts) return Math.floor(lengths.reduce((sum, one, at) => sum + one * Number(parts[at + 1] ?? 0), 0));
	return Math.floor(Number(value) * (UNITS.find(([name]) => name.test(unit))?.[1] ?? 1));
}

/** The life of a Connection as an answer tells it. @returns `seconds`: `null` where none is usable; `unread`: the place of what tells of one, and is not. */
export function namedLife(
	body: string,
	nowMs: number,
): { readonly seconds: number | null; readonly unread: string | null } {
	const lives = membersOf(parseJson(body)).flatMap(({ name, value, pointer }) => {
		const lived = LIVES.exec(name);
		if (!['string', 'number'].includes(typeof value) || value === '') return [];
		if (lived) return [{ pointer, seconds: secondsOf(value, lived[1]) }];
		if (!ENDS_AT.test(name) || /code|pair|password|cert/i.test(name)) return [];
		// As .NET wrote times for long.
		const [, ticks] = /^\/Date\((\d+)(?:[+-]\d{4})?\)\/$/.exec(String(value)) ?? [];
		const number = ticks === undefined ? value : Number(ticks);
		const at = typeof number === 'number' ? (number > 1e11 ? number : number * 1000) : Date.parse(String(value));
		return [{ pointer, seconds: Math.round((at - nowMs) / 1000) }];
	});
	const isUsable = (life: number) => Number.isInteger(life) && life >= 10 && life <= 315_360_000;
	const seconds = lives.find((one) => isUsable(one.seconds))?.seconds ?? null;
	return { seconds, unread: seconds === null ? (lives[0]?.pointer ?? null) : null };
}

/** Words of an end that are about the life of the Connection: no heartbeat and no message keeps a channel from it. */
export const OVER =
	/^(?!.*time.?out).*(?:\b(?:token|connection|session|credential|jwt|authorization)\b.{0,20}\bexpired\b|\bexpired\b.{0,10}\b(?:token|session|credential|jwt)|max(?:imum)? (?:age|life))/i;

interface Member {
	readonly pointer: string;
	readonly name: string;
	readonly value: unknown;
}

export function membersOf(value: unknown, most = 8, above = ''): Member[] {
	if (typeof value !== 'object' || value === null || most === 0) return [];
	return Object.entries(value).flatMap(([name, one]) => {
		const pointer = `${above}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
		return [{ pointer, name, value: one }, ...membersOf(one, most - 1, pointer)];
	});
}

export interface NextPlace {
	/** As `service.nextConnection` names it. */
	readonly pointer: string;
	/** A secret. */
	readonly token: string;
}

/** The texts of an upgrade and of messages that could be the next Connection. */
export function nextTokens({ headers, heard }: Pick<Life, 'headers' | 'heard'>): NextPlace[] {
	const ofHeaders = readAnswerTexts({ body: '', headers }).filter(({ place }) => !/^header:sec-/.test(place));
	const ofMessages = messagesOf(heard, { jsonInBinary: true }).flatMap(({ text }) => readAnswerTexts({ body: text }));
	const named = ofMessages.filter(({ place }) => /token|connection|credential|next/i.test(place));
	return [...ofHeaders, ...named].filter(looksLikeToken).flatMap((text) => {
		const token = tokenIn([text], text.place);
		return token === null ? [] : [{ pointer: text.place, token }];
	});
}

export interface Message {
	readonly atMs: number;
	readonly text: string;
}

/** The settings by which messages are read; only those that differ from their defaults. */
export interface ReadingSettings {
	readonly frameContents?: FrameForm['frameContents'];
	readonly jsonInBinary?: true;
	readonly kindPointer?: string;
	readonly notificationIdPointer?: string;
	/** Kinds that came where the device acknowledged nothing: none of them answers an acknowledgement. No setting. */
	readonly unasked?: readonly string[];
}

const FORM: FrameForm = { frameContents: 'auto', jsonInBinary: false };

export function messagesOf(heard: readonly Ranked[], form: ReadingSettings = {}): Message[] {
	return heard.flatMap(({ atMs, frame }) =>
		messagesIn(frame, { ...FORM, ...form }).flatMap((one) => (one.type === 'text' ? [{ atMs, text: one.text }] : [])),
	);
}

/** Words about the channel may be written in another way than notifications. */
export function kindOf(text: string, { kindPointer }: ReadingSettings): string {
	const { kind } = readNotification({ type: 'text', text }, { kindPointer });
	return kind === 'unknown' ? readNotification({ type: 'text', text }).kind : kind;
}

/** The same, or the word that a message without a kind has under a usual name, such as `{"cmd":"PING"}`. */
export function wordOf(text: string, form: ReadingSettings): string {
	const kind = kindOf(text, form);
	return kind === 'unknown' ? (readWord(parseJson(text)) ?? kind) : kind;
}

export type Ranked = Life['heard'][number] & {
	readonly rank?: 0 | 1 | 2;
	/** Of rank 1, on a channel where nothing came unasked: it does not show how notifications are written. */
	readonly isAnswer?: boolean;
	/** Of a channel on which nothing was acknowledged. */
	readonly isUnacked?: boolean;
};

/** So seldom does chance put every message of a channel right after something that the device said. */
const CHANCE = 0.01;

/** Whether all messages come so soon after what the device said that they answer it. @param answerMs how soon an answer comes. */
function areAnswers(messages: readonly { readonly atMs: number }[], { heard, said }: Life, answerMs: number): boolean {
	const times = [...heard, ...said].map(({ atMs }) => atMs);
	const lifeMs = Math.max(1, Math.max(...times) - Math.min(...times));
	return [answerMs / 4, answerMs].some((withinMs) => {
		const share = Math.min(1, (said.length * withinMs) / lifeMs);
		const isAfter = ({ atMs }: { readonly atMs: number }) =>
			said.some((one) => atMs >= one.atMs && atMs - one.atMs <= withinMs);
		return share ** messages.length < CHANCE && messages.every(isAfter);
	});
}

/**
 * How far frames are from notifications: 0 came unasked; 1 may answer a heartbeat, or greets; 2 answers a first message, or is an error.
 * @param first how many messages the device said at once. @param answerMs how soon an answer comes.
 */
export function ranked(life: Life, first: number, answerMs: number): Ranked[] {
	const { heard, said } = life;
	const hello = greeting(heard, { jsonInBinary: true });
	const isHello = (text: string) => text === hello && (HELLO.test(wordOf(text, {})) || PLACEHOLDER.test(text));
	let answers = first;
	const all = heard.map((one): Ranked => {
		const texts = messagesOf([one], { jsonInBinary: true }).map(({ text }) => text);
		const after = (at: readonly Life['said'][number][]) =>
			at.some(({ atMs }) => one.atMs >= atMs && one.atMs - atMs <= answerMs);
		// It crosses what the device says first, and answers nothing.
		const isGreeting = texts.every(isHello);
		const isFirst = !isGreeting && after(said.slice(0, first)) && answers-- > 0;
		const rank = texts.every(isError) || isFirst ? 2 : after(said) || isGreeting || texts.every(greets) ? 1 : 0;
		return { ...one, rank };
	});
	const told = all.filter(({ rank }) => rank === 1);
	const isAnswer = !all.some(({ rank }) => rank === 0) && areAnswers(told, life, answerMs);
	return isAnswer ? all.map((one) => ({ ...one, isAnswer })) : all;
}

/** Those that show best how notifications are written. */
export const deciding = (heard: readonly Ranked[]) =>
	[0, 1]
		.map((rank) => heard.filter((one) => (one.rank ?? 0) === rank && !one.isAnswer))
		.find(({ length }) => length > 0) ?? [];

export const ERROR = /error|fail|denied|reject|invalid|unknown/i;
const ERROR_KIND = /(?:^|[./:_-])err(?:or)?$|^(?:nack|invalid|unauthori[sz]ed|unknown)\b/i;
export const GREETS =
	/^(?:hello|hi|welcome|connected|connection|ready|open(?:ed)?|challenge|auth\w*|login|init|greeting|error|ping|info|ok)\b/i;

/** Other words of greetings and of answers. */
export const GREETS_TOO =
	/[./:_](?:hello|welcome|greeting|p[io]ng|connection_established|connected|subscribed|subscription_succeeded)$|^(?:heart_?beat|hb|pong|subscribed|confirm_subscription|keep_?alive)(?![a-z])/i;

/** It is said to every device as soon as it comes. */
export const HELLO = /(?:^|[./:_-])(?:hello|welcome|greetings?|connection_established)$/i;

/**
 * The first message of a channel, where it only greets, or says what to say: what it holds is about the talk, where its kind is a greeting also
 * with an id. A plain text greets where no other message begins with the same word, such as `0{"sid":…}` or `INFO {…}`.
 */
export function greeting(heard: readonly Ranked[], form: ReadingSettings): string | null {
	const [first, ...others] = messagesOf(heard, form);
	const begins = (text: string) => /^\W*\w*/.exec(text)?.[0];
	const isGreeting = (text: string) =>
		/^(?:hello|hi|welcome|connected|ready|greetings?)$/i.test(wordOf(text, form)) ||
		isTalk(text, form) ||
		(wordOf(text, form) === 'text' && !others.some((one) => begins(one.text) === begins(text)));
	return first && isGreeting(first.text) ? first.text : null;
}

export const kindsIn = (text: string) =>
	membersOf(parseJson(text), 2).flatMap(({ name, value }) =>
		KIND_NAME.test(name) && typeof value === 'string' ? [value.replaceAll('_', '.')] : [],
	);
export const greets = (text: string) => kindsIn(text).some((kind) => GREETS.test(kind));

/**
 * Whether a person may be shown a message: it is about the talk, and asks for something. Never what may be a notification, whatever its kind
 * is called.
 */
export function isTalk(text: string, form: ReadingSettings): boolean {
	const word = wordOf(text, form);
	const { serviceId } = readNotification({ type: 'text', text }, form);
	if (serviceId !== null && !(/^err(?:or)?$/i.test(word) && isError(text))) return false;
	if (isError(text) || PLACEHOLDER.test(text)) return true;
	return GREETS.test(word.replaceAll('_', '.')) || (NAMELESS.includes(word) && ASKING.test(readErrorWords(text)));
}

const ASKING = /^\W*(?:please|send|must|expect\w*|missing|requir\w*|say|tell)\b/i;
/** `<seq>`, `{seq}`, `${seq}`, `{{seq}}`, `%seq%`, and what stands for anything. */
export const PLACEHOLDER =
	/<([\w. -]{1,40})>|\$?\{\{?\s*([\w.]{1,40})\s*\}?\}|%(\w{1,40})%|^(?:\.{3}|\u2026|YOUR\W?\w+)$/i;

/**
 * Whether a message is about an error of the talk, by its kind or a field of that name, or because it says no in words (`"success":false`). One
 * with an id, and that of a session, tells of the session.
 */
export function isError(text: string): boolean {
	const document = parseJson(text);
	const { error, errors, success, ok, id, data, payload, body } = Object(document);
	// A notification may say so of what it is about.
	const isBare = id === undefined && ![data, payload, body].some(isObject);
	if ((success === false || ok === false) && isBare && readErrorDetail(text) !== '') return true;
	if (id != null && membersOf(document, 2).some(({ name, value }) => value && /^session_?id$/i.test(name)))
		return false;
	// Of a plain text the first word says what it is.
	const [word = ''] = text.trim().split(/[\s:]/, 1);
	return Boolean(error ?? errors) || [word, ...kindsIn(text)].some((kind) => ERROR_KIND.test(kind));
}

/**
 * Whether an error is of a kind that tells of something else than the talk: each has an id of its own that the device has not said, and they do
 * not come as answers. @param answerMs how soon an answer comes. @param least how many show it.
 */
export function tellsOfOthers(
	life: Life,
	form: ReadingSettings,
	answerMs: number,
	least = 2,
): (text: string) => boolean {
	const errors = messagesOf(life.heard, form).filter(({ text }) => isError(text));
	const said = new Set(life.said.flatMap((one) => membersOf(parseJson(one.text)).map(({ value }) => String(value))));
	const kinds = [...Map.groupBy(errors, ({ text }) => wordOf(text, form))].filter(([, own]) => {
		const ids = new Set(own.flatMap(({ text }) => readNotification({ type: 'text', text }, form).serviceId ?? []));
		const isOfEnd = life.ended !== null && own.length === 1;
		const isNew = ids.size === own.length && [...ids].some((id) => !said.has(id));
		return own.length >= least && isNew && !isOfEnd && !areAnswers(own, life, answerMs);
	});
	const words = kinds.map(([word]) => word);
	return (text) => isError(text) && words.includes(wordOf(text, form));
}

/** Whether a channel brought something, and errors alone. */
export function saysNo({ heard }: Pick<Life, 'heard'>): boolean {
	const texts = messagesOf(heard, { jsonInBinary: true }).map(({ text }) => text);
	return texts.length > 0 && texts.every(isError);
}

export const KIND_NAME =
	/^[@$_]?(?:type|event|evt|kind|name|op|opcode|action|topic|cmd|command|method|t|what|subject|category|code|(?:message|msg|event|notification)[_-]?(?:type|kind|name))$/i;

/** A repetition may count itself, and say when it was sent. */
export function withoutRepeating(document: unknown): string {
	const left = membersOf(document).filter(
		({ name, value }) =>
			typeof value !== 'object' &&
			!isMoment(value) &&
			!/^dup|attempt|retr|tr(?:y|ies)$|deliver(?:y|ies|ed)|resen[dt]|repeat|again|count|sent/i.test(name),
	);
	return JSON.stringify(left.map(({ pointer, value }) => [pointer, value]));
}

/** What every message is called that names no kind: to ignore it would be to ignore notifications. */
export const NAMELESS = ['unknown', 'text', 'binary'];
/** Whether a text was made from a template: its fixed parts are in it. */
export function likeTemplate(template: string): (text: string) => boolean {
	const parts = template.split(/"?\{\w+\}"?/).filter((part) => part.length > 1);
	return (text) => parts.every((part) => text.includes(part));
}

/** A time of today in any spelling. */
export function isMoment(value: unknown): boolean {
	const isDate = typeof value === 'string' && /^\d{4}-\d\d-\d\d[T ]/.test(value);
	const ms = isDate ? Date.parse(value) : Number(value);
	return [ms, ms * 1000].some((one) => Math.abs(one - Date.now()) < 86_400_000);
}

/** The ids of messages, `null` for one without; none where different messages have the same one. */
export function idsOf(messages: readonly Pick<Message, 'text'>[], form: ReadingSettings): (string | null)[] {
	const ids = messages.map(({ text }) => readNotification({ type: 'text', text }, form).serviceId);
	const isConstant =
		new Set(ids).size === 1 && new Set(messages.map(({ text }) => withoutRepeating(parseJson(text)))).size > 1;
	return isConstant ? ids.map(() => null) : ids;
}

/** Messages that came again as they were. One alone may be no notification, unless it holds up all others. */
export function repeated(messages: readonly Message[], form: ReadingSettings, afterMs = 0): Message[] {
	const isOfMany = new Set(idsOf(messages, form).filter((id) => id !== null)).size > 1;
	return isOfMany || isHeldUp(messages, form) ? cameAgain(messages, form, afterMs) : [];
}

/** Whether one message with an id came again and again, and nothing after it but talk: the service may wait for its acknowledgement. */
function isHeldUp(messages: readonly Message[], form: ReadingSettings): boolean {
	const again = cameAgain(messages, form);
	const held = again[0] && sameness(again[0], form);
	const since = messages.slice(messages.findIndex((one) => sameness(one, form) === held));
	const isTold = ({ text }: Message) => isTalk(text, form) || GREETS_TOO.test(wordOf(text, form));
	return again.length > 1 && since.every((one) => sameness(one, form) === held || isTold(one));
}

/** The contents of a message, the same each time that it comes again; `null` for one without an id. */
function sameness({ text }: Message, form: ReadingSettings): string | null {
	const { kind, serviceId } = readNotification({ type: 'text', text }, form);
	return serviceId === null ? null : `${kind} ${serviceId} ${withoutRepeating(parseJson(text))}`;
}

/** Messages with an id that came again as they were, unacknowledged. @param afterMs what comes again sooner may have crossed its acknowledgement. */
export function cameAgain(messages: readonly Message[], form: ReadingSettings, afterMs = 0): Message[] {
	const cameMs = new Map<string, number>();
	return messages.filter((message) => {
		const { atMs } = message;
		const one = sameness(message, form);
		if (one === null) return false;
		const first = cameMs.get(one);
		if (first === undefined) cameMs.set(one, atMs);
		return first !== undefined && atMs - first >= afterMs;
	});
}
