/** The conclusions of `idv probe`: where the token is, what messages mean, which settings follow. Pure. */
import { readNotification } from '../protocol/channel.ts';
import { DEFAULT_CHANNEL_PATH } from '../protocol/endpoints.ts';
import { parseJson, resolvePointer } from '../protocol/json.ts';
import { type AnswerText, looksLikeToken, tokenIn } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import type { Handshake } from './probe-search.ts';

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
	const lives = membersOf(parseJson(body), 0).flatMap(([name, value]) => {
		if (/^(expires_?in(_?seconds)?|ttl|life(time)?(_?seconds)?|max_?age|valid_?for(_?seconds)?)$/i.test(name))
			return [Number(value)];
		if (!/^(expires?(_?at|_?on)?|expiry|expiration|valid_?until|exp)$/i.test(name)) return [];
		const at = typeof value === 'number' ? (value > 1e11 ? value : value * 1000) : Date.parse(String(value));
		return [Math.round((at - nowMs) / 1000)];
	});
	return lives.find((life) => Number.isInteger(life) && life >= 60 && life <= 315_360_000) ?? null;
}

function membersOf(value: unknown, depth: number): [string, unknown][] {
	if (typeof value !== 'object' || value === null || depth > 8) return [];
	return Object.entries(value).flatMap(([name, one]) => [
		[name, one] as [string, unknown],
		...membersOf(one, depth + 1),
	]);
}

/** One life of a channel, with times in milliseconds since it was opened. */
export interface Observation {
	readonly heartbeatsAtMs: readonly number[];
	readonly messages: readonly { readonly atMs: number; readonly text: string }[];
	/** When each ping that was answered had been sent. */
	readonly answeredPingsAtMs: readonly number[];
	/** `null`: still open at the end. `code` is `null` where no close frame came. */
	readonly ended: { readonly atMs: number; readonly code: number | null } | null;
}

/** A message of the service that ends the channel unless it is answered. */
export interface SeenPing {
	readonly kind: string;
	readonly text: string;
}

export interface Reading {
	readonly kindPointer: string | null;
	readonly idPointer: string | null;
	/** Kinds that are proved to answer heartbeats. */
	readonly acknowledgements: readonly string[];
	/** Every other kind that came. */
	readonly kinds: readonly string[];
}

const KIND_FIELDS = ['op', 'action', 'name', 'messageType', 'message_type', 'eventType', 'event_type', 'topic', 'cmd'];
const ID_FIELDS = ['messageId', 'message_id', 'eventId', 'event_id', 'notificationId', 'notification_id', 'uuid'];
/** What every message is called that names no kind: to ignore it would be to ignore notifications. */
const NAMELESS = ['unknown', 'text', 'binary'];
/** Answers to fewer heartbeats may be chance. */
const MIN_ANSWERED = 3;

/** @param answerMs how soon an acknowledgement comes. @param quiet without heartbeats: nothing is acknowledged. */
export function readMessages(seen: Observation, answerMs: number, quiet: Observation | null = null): Reading {
	const documents = seen.messages
		.map(({ text }) => parseJson(text))
		.filter((one) => typeof one === 'object' && one !== null);
	const isMute = documents.length > 0 && documents.every((one) => kindOf(JSON.stringify(one), null) === 'unknown');
	const kindPointer = isMute ? pointerTo(documents, KIND_FIELDS) : null;
	const idPointer = documents.some((one) => resolvePointer(one, '/id') !== undefined)
		? null
		: pointerTo(documents, ID_FIELDS);
	const kinds = [...new Set(seen.messages.map(({ text }) => kindOf(text, kindPointer)))];
	const of = (kind: string) => seen.messages.filter(({ text }) => kindOf(text, kindPointer) === kind);
	const answered = seen.heartbeatsAtMs.filter((sentMs) => seen.ended === null || seen.ended.atMs - sentMs > answerMs);
	const unasked = quiet?.messages.map(({ text }) => kindOf(text, kindPointer)) ?? [];
	const acknowledgements = kinds.filter((kind) => {
		const messages = of(kind);
		return (
			!NAMELESS.includes(kind) &&
			!unasked.includes(kind) &&
			answered.length >= MIN_ANSWERED &&
			messages.length === answered.length &&
			answered.every((sentMs) => messages.some(({ atMs }) => atMs >= sentMs && atMs - sentMs <= answerMs)) &&
			messages.every(({ text }, index) => saysNothingElse(parseJson(text), kind, index + 1))
		);
	});
	return { kindPointer, idPointer, acknowledgements, kinds: kinds.filter((kind) => !acknowledgements.includes(kind)) };
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

/** A time of today in any spelling. */
function isMoment(value: unknown): boolean {
	const isDate = typeof value === 'string' && /^\d{4}-\d\d-\d\d[T ]/.test(value);
	const ms = isDate ? Date.parse(value) : Number(value);
	return [ms, ms * 1000].some((one) => Math.abs(one - Date.now()) < 86_400_000);
}

/** The kinds that may be a ping: they came before each of these ends, which are alike. One end alone shows nothing. */
export function pingsBefore(seen: readonly Observation[], { kinds, kindPointer }: Reading): SeenPing[] {
	const [first, ...others] = seen;
	if (!first || others.some((one) => !endedAlike(first, one))) return [];
	return kinds
		.filter((kind) => !NAMELESS.includes(kind))
		.map((kind) => ({ kind, text: first.messages.find(({ text }) => kindOf(text, kindPointer) === kind)?.text ?? '' }))
		.filter(({ kind }) =>
			seen.every(({ messages }) => messages.some(({ text }) => kindOf(text, kindPointer) === kind)),
		);
}

/** Whether the service ended both, with the same code and at about the same age. */
export function endedAlike({ ended: one }: Observation, { ended: other }: Observation): boolean {
	if (!one || !other || one.code === null || one.code !== other.code) return false;
	return Math.abs(one.atMs - other.atMs) <= Math.max(300, one.atMs / 4);
}

/** Whether the channel ended because of a heartbeat: soon after one, and not before any. */
export function endedByHeartbeat({ heartbeatsAtMs, ended }: Observation, withinMs: number): boolean {
	if (ended === null) return false;
	return heartbeatsAtMs.some((sentMs) => ended.atMs >= sentMs && ended.atMs - sentMs <= withinMs);
}

/** Whether something came from the service after the last heartbeat: an open channel alone may be to one that has died. */
export function livesAfterHeartbeats({ heartbeatsAtMs, answeredPingsAtMs, messages }: Observation): boolean {
	const lastMs = Math.max(...heartbeatsAtMs);
	return answeredPingsAtMs.some((atMs) => atMs >= lastMs) || messages.some(({ atMs }) => atMs > lastMs);
}

/** Texts that may answer a ping, the likely ones first, as `service.pongBody` is written. */
export function pongsFor({ text, kind }: Pick<SeenPing, 'text' | 'kind'>, kindPointer: string | null): string[] {
	const message = parseJson(text);
	if (typeof message !== 'object' || message === null) return ['pong'];
	const fields = message as Readonly<Record<string, unknown>>;
	const key = kindPointer?.slice(1) ?? ['type', 'event', 'kind'].find((name) => fields[name] === kind) ?? 'type';
	const id = 'id' in fields ? { id: '{id}' } : {};
	const reply = kind
		.replace(/ping/, 'pong')
		.replace(/PING/, 'PONG')
		.replace(/Ping/, 'Pong')
		.replace(/request/, 'response');
	const kinds = [reply, 'pong', kind, `${kind}.ack`, 'ack', 'alive'];
	const pongs = [...new Set(kinds)].map((answer) => JSON.stringify({ [key]: answer, ...id }));
	return [...pongs, JSON.stringify({ ...fields, ...id }), 'pong'].filter((one, at, all) => all.indexOf(one) === at);
}

export function kindOf(text: string, kindPointer: string | null): string {
	return readNotification({ type: 'text', text }, { kindPointer }).kind;
}

/** The first of the fields that every document has as a text, at the top or one level below. */
function pointerTo(documents: readonly unknown[], names: readonly string[]): string | null {
	const [first] = documents;
	const groups = Object.entries(Object(first)).flatMap(([name, value]) =>
		typeof value === 'object' ? [`/${name}`] : [],
	);
	const pointers = ['', ...groups].flatMap((group) => names.map((name) => `${group}/${name}`));
	const isThere = (pointer: string) => documents.every((one) => typeof resolvePointer(one, pointer) === 'string');
	return documents.length === 0 ? null : (pointers.find(isThere) ?? null);
}

/** How sure a finding is: tried and confirmed, seen, or not seen. */
export type Certainty = 'certain' | 'likely' | 'not seen';

export interface Finding {
	/** Of the ledger (`src/protocol/assumptions.ts`). */
	readonly point: string;
	readonly tried: string;
	readonly found: string;
	readonly certainty: Certainty;
	/** Settings that follow, without `service.`; left out where the default holds. */
	readonly settings?: Readonly<Record<string, unknown>>;
}

/** The contents of the settings file: the address, and each value that differs from its default. */
export function settingsFrom(baseUrl: string, workflowId: string | undefined, findings: readonly Finding[]): object {
	const service = Object.assign({}, ...findings.map(({ settings }) => settings));
	return {
		baseUrl,
		...(workflowId !== undefined && { workflowId }),
		...(Object.keys(service).length > 0 && { service }),
	};
}

/** The findings of a handshake that was accepted. @param certainty `certain` only where it was proved alone. */
export function handshakeFindings(
	{ path, inHeader, inQuery, subprotocols }: Handshake,
	certainty: Certainty,
): Finding[] {
	const [place] = inQuery;
	const auth = inHeader || place === undefined ? 'header' : place.form === 'token' ? 'queryToken' : 'query';
	const [subprotocol] = subprotocols;
	return [
		{
			certainty,
			point: 'channel-path',
			tried: 'usual paths, one after another',
			found: path,
			...(path !== DEFAULT_CHANNEL_PATH && { settings: { channelPath: path } }),
		},
		{
			certainty,
			point: 'channel-handshake',
			tried: 'header and query together, then each alone',
			found: auth,
			...(auth !== 'header' && { settings: { channelAuth: auth } }),
		},
		...(place === undefined
			? []
			: [
					{
						certainty,
						point: 'query-name',
						tried: 'usual names together, then fewer',
						found: place.name,
						...(place.name !== 'authorization' && { settings: { queryName: place.name } }),
					},
				]),
		{
			certainty,
			point: 'subprotocol',
			tried: subprotocol === undefined ? 'none offered' : 'names that the service gave, and usual ones',
			found: subprotocol ?? 'none required',
			...(subprotocol !== undefined && { settings: { subprotocol } }),
		},
	];
}
