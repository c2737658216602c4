/** The life of a channel as `idv probe` reads it: how frames, kinds and ids are written, and which kinds answer heartbeats. Pure. */
import { readNotification } from '../protocol/channel.ts';
import { type FrameForm, messagesIn } from '../protocol/frame-messages.ts';
import { isObject, parseJson, resolvePointer } from '../protocol/json.ts';
import { type AnswerText, looksLikeToken, readAnswerTexts, tokenIn } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import type { Life } from './probe-wire.ts';

/** A place of the answer to a registration that may hold the token. */
export interface TokenPlace {
	/** `null`: found without a setting. */
	readonly pointer: string | null;
	/** A secret. */
	readonly token: string;
}

/** The token where it is expected, or else whatever looks like one, the likely ones first. */
export function tokenPlaces(texts: readonly AnswerText[], sent: readonly string[]): TokenPlace[] {
	const usual = tokenIn(texts);
	const isNamed = (place: string) => /token|connection|jwt/i.test(place) && !/refresh|id_?token|session/i.test(place);
	const rank = ({ pointer, token }: TokenPlace) =>
		(readTokenLife(token) ? 0 : 1) + (isNamed(pointer ?? '') ? 0 : 2) + (/refresh/i.test(pointer ?? '') ? 4 : 0);
	const others = texts
		.filter((text) => looksLikeToken(text) && !sent.includes(text.text) && text.place !== '')
		.map(({ place }) => ({ pointer: place, token: tokenIn(texts, place) ?? '' }))
		.filter(({ token }) => token !== '' && token !== usual)
		.sort((a, b) => rank(a) - rank(b));
	return [...(usual === null ? [] : [{ pointer: null, token: usual }]), ...others].slice(0, 4);
}

/** Seconds that an answer gives a Connection; `null` where it says nothing usable. */
export function namedLife(body: string, nowMs: number): number | null {
	const lives = membersOf(parseJson(body)).flatMap(({ name, value }) => {
		if (/^(expires_?in(_?seconds)?|ttl|life(time)?(_?seconds)?|max_?age|valid_?for(_?seconds)?)$/i.test(name))
			return [Number(value)];
		if (!/^(expires?(_?at|_?on)?|expiry|expiration|valid_?until|exp)$/i.test(name)) return [];
		const at = typeof value === 'number' ? (value > 1e11 ? value : value * 1000) : Date.parse(String(value));
		return [Math.round((at - nowMs) / 1000)];
	});
	return lives.find((life) => Number.isInteger(life) && life >= 60 && life <= 315_360_000) ?? null;
}

interface Member {
	readonly pointer: string;
	readonly name: string;
	readonly value: unknown;
}

function membersOf(value: unknown, most = 8, above = ''): Member[] {
	if (typeof value !== 'object' || value === null || most === 0) return [];
	return Object.entries(value).flatMap(([name, one]) => {
		const pointer = `${above}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
		return [{ pointer, name, value: one }, ...membersOf(one, most - 1, pointer)];
	});
}

/** A place for the next Connection in an upgrade or a message: the texts that could be one, by their place. */
export function nextTokens({ headers, heard }: Pick<Life, 'headers' | 'heard'>): TokenPlace[] {
	const ofHeaders = readAnswerTexts({ body: '', headers }).filter(({ place }) => !/^header:sec-/.test(place));
	const ofMessages = heard.flatMap(({ frame }) => (frame.type === 'text' ? readAnswerTexts({ body: frame.text }) : []));
	const named = ofMessages.filter(({ place }) => /(?:token|connection|credential|next)[^/]*$/i.test(place));
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
}

const FORM: FrameForm = { frameContents: 'auto', jsonInBinary: false };

export function messagesOf(heard: Life['heard'], form: ReadingSettings = {}): Message[] {
	return heard.flatMap(({ atMs, frame }) =>
		messagesIn(frame, { ...FORM, ...form }).flatMap((one) => (one.type === 'text' ? [{ atMs, text: one.text }] : [])),
	);
}

/** Words about the channel may be written in another way than notifications. */
export function kindOf(text: string, { kindPointer }: ReadingSettings): string {
	const { kind } = readNotification({ type: 'text', text }, { kindPointer });
	return kind === 'unknown' ? readNotification({ type: 'text', text }).kind : kind;
}

/** How the service writes messages, from all that came. */
export function readForm(heard: Life['heard']): ReadingSettings {
	const jsonInBinary = heard.some(
		({ frame }) => frame.type === 'binary' && isJson(new TextDecoder().decode(frame.bytes)),
	);
	const binary = jsonInBinary ? { jsonInBinary } : {};
	const whole = messagesOf(heard, { frameContents: 'one', ...binary }).map(({ text }) => text);
	const isList = (text: string) => {
		const list = parseJson(text);
		return Array.isArray(list) && list.length > 0 && list.every(isObject);
	};
	const areLines = (text: string) => {
		const lines = text.split('\n').filter((line) => line.trim() !== '');
		return lines.length > 1 && lines.every((line) => isJson(line) || isWord(line));
	};
	const isSplit = (text: string) => messagesIn({ type: 'text', text }, FORM).length > 1;
	const form: ReadingSettings = whole.some(isList)
		? { ...binary, frameContents: 'array' }
		: whole.some((text) => parseJson(text) === undefined && areLines(text) && !isSplit(text))
			? { ...binary, frameContents: 'lines' }
			: binary;
	const documents = messagesOf(heard, form)
		.map(({ text }) => parseJson(text))
		.filter((one) => typeof one === 'object' && one !== null);
	const kindPointer = kindPlace(documents);
	const idPointer = idPlace(documents);
	return {
		...form,
		...(kindPointer !== null && { kindPointer }),
		...(idPointer !== null && { notificationIdPointer: idPointer }),
	};
}

const isJson = (text: string) => typeof parseJson(text) === 'object';
const isWord = (text: string) => /^[\w.:-]{1,64}$/.test(text.trim());

const KIND_NAME =
	/^(?:type|event|kind|name|op|action|topic|cmd|command|method|t|what|subject|category|code|(?:message|msg|event|notification)[_-]?(?:type|kind|name))$/i;
/** What messages of every kind are called alike. */
const ENVELOPE = /^(?:notifications?|events?|messages?|msg|data|push|envelope|notify|updates?|publish)$/i;
const isKindWord = (value: unknown): value is string =>
	typeof value === 'string' &&
	/^[A-Za-z][\w.:/-]{0,63}$/.test(value) &&
	!/\d{5,}|^[0-9a-f]{8}-/i.test(value) &&
	!looksLikeToken({ place: '', text: value });

/** Where the kind is, if not at `type`, `event` or `kind` at the top; `null` where it is there, or nowhere. */
function kindPlace(documents: readonly unknown[]): string | null {
	const usual = (one: unknown) => {
		const kind = kindOf(JSON.stringify(one), {});
		return kind !== 'unknown' && !ENVELOPE.test(kind) ? kind : null;
	};
	const unnamed = documents.filter((one) => usual(one) === null);
	if (unnamed.length === 0) return null;
	const places = unnamed.flatMap((one) => membersOf(one, 3));
	const rank = (pointer: string) => {
		const values = unnamed.map((one) => resolvePointer(one, pointer));
		const words = values.filter((value) => isKindWord(value) && !ENVELOPE.test(value));
		const numbers = values.filter((value) => Number.isInteger(value) && Number(value) < 100_000);
		const name = pointer.slice(pointer.lastIndexOf('/') + 1);
		const isNamed = KIND_NAME.test(name);
		const dotted = words.filter((word) => /[a-z][._:/-][a-z]/i.test(String(word))).length;
		const fits = isNamed ? Math.max(words.length, numbers.length) : dotted;
		const isTelling = isNamed || new Set(words).size > 1;
		if (fits === 0 || !isTelling || /id$/i.test(name)) return Number.NEGATIVE_INFINITY;
		const depth = pointer.split('/').length;
		return (
			100 * (fits / unnamed.length) + (isNamed ? 10 : 0) + (dotted > 0 ? 6 : 0) + (words.length > 0 ? 4 : 0) - depth
		);
	};
	const [best] = [...new Set(places.map(({ pointer }) => pointer))]
		.map((pointer) => ({ pointer, rank: rank(pointer) }))
		.filter((one) => one.rank > 50)
		.sort((a, b) => b.rank - a.rank);
	return best?.pointer ?? null;
}

const ID_NAMES = [
	/^(?:message|msg|event|notification|delivery)[_-]?(?:id|uuid|no|number|ref)$/i,
	/^(?:id|_id|uuid|guid|@id|mid|eid|nid)$/i,
	/^(?:seq|sequence|offset|cursor|ref|reference|key|nr|no|number|n)$/i,
	/(?:id|uuid|guid|seq|nr|ref)$/i,
];
/** Ids of what a message is about. */
const OTHER_ID =
	/session|device|workflow|person|user|tenant|account|correlation|trace|client|channel|connection|request/i;

/** Where the id of a message is, if not at `id`; `null` where it is there, or nowhere. */
function idPlace(documents: readonly unknown[]): string | null {
	const scalar = (value: unknown) => typeof value === 'string' || typeof value === 'number';
	const rank = (pointer: string) => {
		const found = documents.filter((one) => scalar(resolvePointer(one, pointer)));
		const texts = new Set(found.map((one) => withoutMoments(JSON.stringify(one))));
		const values = new Set(found.map((one) => String(resolvePointer(one, pointer))));
		const name = pointer.slice(pointer.lastIndexOf('/') + 1);
		const at = ID_NAMES.findIndex((pattern) => pattern.test(name));
		if (at === -1 || OTHER_ID.test(name) || OTHER_ID.test(pointer) || values.size < texts.size) return -1;
		const depth = pointer.split('/').length - 2;
		return 100 * (found.length / documents.length) + (pointer === '/id' ? 30 : 0) - 8 * at - 3 * depth;
	};
	const places = new Set(documents.flatMap((one) => membersOf(one, 3)).map(({ pointer }) => pointer));
	const [best] = [...places].map((pointer) => ({ pointer, rank: rank(pointer) })).sort((a, b) => b.rank - a.rank);
	return best && best.rank > 20 && best.pointer !== '/id' ? best.pointer : null;
}

/** What every message is called that names no kind: to ignore it would be to ignore notifications. */
export const NAMELESS = ['unknown', 'text', 'binary'];
/** Answers to fewer heartbeats may be chance. */
const MIN_ANSWERED = 3;

/** Kinds that are proved to answer heartbeats. @param answerMs how soon an answer comes. @param beatsAtMs when heartbeats were sent. */
export function heartbeatAnswers(
	{ heard, ended }: Pick<Life, 'heard' | 'ended'>,
	beatsAtMs: readonly number[],
	answerMs: number,
	form: ReadingSettings,
): string[] {
	const messages = messagesOf(heard, form);
	const lastMs = Math.max(...messages.map(({ atMs }) => atMs), ...beatsAtMs.slice(-1), ended?.atMs ?? 0);
	const answered = beatsAtMs.filter(
		(sentMs) => lastMs - sentMs > answerMs || messages.some(({ atMs }) => atMs > sentMs),
	);
	const kinds = [...new Set(messages.map(({ text }) => kindOf(text, form)))];
	return kinds.filter((kind) => {
		const own = messages.filter(({ text }) => kindOf(text, form) === kind);
		return (
			!NAMELESS.includes(kind) &&
			answered.length >= MIN_ANSWERED &&
			own.length === answered.length &&
			answered.every((sentMs) => own.some(({ atMs }) => atMs >= sentMs && atMs - sentMs <= answerMs)) &&
			own.every(({ text }, index) => saysNothingElse(parseJson(text), kind, index + 1))
		);
	});
}

/**
 * Whether a message has nothing but its kind, the heartbeat's own number, times, and yes or no. One with any other word or
 * number in it may share its kind with notifications, which would be dropped with it.
 */
function saysNothingElse(message: unknown, kind: string, sequence: number): boolean {
	if (typeof message === 'object' && message !== null)
		return Object.values(message).every((value) => saysNothingElse(value, kind, sequence));
	const isOwn = message === kind || message === sequence || message === String(sequence);
	return isOwn || message === null || typeof message === 'boolean' || isMoment(message);
}

/** Whether a message has nothing but its kind, a number and times in it. */
export function isBare(text: string, form: ReadingSettings): boolean {
	const document = parseJson(text);
	const fields = isObject(document) ? Object.values(document) : [];
	const rest = fields.filter((value) => typeof value !== 'number');
	return fields.length > 0 && saysNothingElse(rest, kindOf(text, form), 0);
}

/** A time of today in any spelling. */
function isMoment(value: unknown): boolean {
	const isDate = typeof value === 'string' && /^\d{4}-\d\d-\d\d[T ]/.test(value);
	const ms = isDate ? Date.parse(value) : Number(value);
	return [ms, ms * 1000].some((one) => Math.abs(one - Date.now()) < 86_400_000);
}

/** Messages with an id that came again: a service may repeat each until it is acknowledged. */
export function repeated(messages: readonly Message[], form: ReadingSettings): number {
	const ids = messages.flatMap(({ text }) => {
		const { kind, serviceId } = readNotification({ type: 'text', text }, form);
		return serviceId === null ? [] : [`${kind} ${serviceId}`];
	});
	return ids.length - new Set(ids).size;
}

/** A repetition may count itself, and say when it was sent. */
function withoutMoments(text: string): string {
	const document = parseJson(text);
	if (!isObject(document)) return text;
	const left = membersOf(document, 3).filter(
		({ name, value }) =>
			typeof value !== 'object' &&
			!isMoment(value) &&
			!/attempt|retr|redeliver|deliver(?:y|ies)|count|sent/i.test(name),
	);
	return JSON.stringify(left.map(({ pointer, value }) => [pointer, value]));
}
