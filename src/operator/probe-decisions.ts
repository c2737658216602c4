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
	readonly pongs: number;
	/** `null`: still open at the end. `code` is `null` where no close frame came. */
	readonly ended: { readonly atMs: number; readonly code: number | null } | null;
}

/** A message of the service by which it asks for an answer. */
export interface SeenPing {
	readonly kind: string;
	readonly text: string;
	readonly firstAtMs: number;
	readonly periodMs: number;
	/** Whether the channel was ended although nothing else was wrong: the answer is required. */
	readonly isFatal: boolean;
}

export interface Reading {
	readonly kindPointer: string | null;
	readonly idPointer: string | null;
	readonly acknowledgements: readonly string[];
	readonly ping: SeenPing | null;
	/** Every other kind that came. */
	readonly kinds: readonly string[];
}

const KIND_FIELDS = ['op', 'action', 'name', 'messageType', 'message_type', 'eventType', 'event_type', 'topic', 'cmd'];
const ID_FIELDS = ['messageId', 'message_id', 'eventId', 'event_id', 'notificationId', 'notification_id', 'uuid'];
const PING_LIKE = /ping|hello|keep-?_?alive|heart-?_?beat|alive|are.?you|probe|check|poll|beat|noop/i;

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
	const follows = (atMs: number) => seen.heartbeatsAtMs.some((sentMs) => atMs >= sentMs && atMs - sentMs <= answerMs);
	const answered = seen.heartbeatsAtMs.filter((sentMs) => seen.ended === null || seen.ended.atMs - sentMs > answerMs);
	const unasked = quiet?.messages.map(({ text }) => kindOf(text, kindPointer)) ?? [];
	const acknowledgements = kinds.filter((kind) => {
		const messages = of(kind);
		return (
			!unasked.includes(kind) &&
			answered.length > 0 &&
			messages.length >= answered.length &&
			messages.every(({ atMs }) => follows(atMs))
		);
	});
	const rest = kinds.filter((kind) => !acknowledgements.includes(kind));
	const isEnded = seen.ended !== null && seen.ended.code !== null;
	const pingKind =
		rest.find((kind) => PING_LIKE.test(kind)) ?? (isEnded ? rest.find((kind) => kind !== 'text') : undefined);
	if (pingKind === undefined) return { kindPointer, idPointer, acknowledgements, ping: null, kinds: rest };
	const [first, second] = of(pingKind);
	const firstAtMs = first?.atMs ?? 0;
	const periodMs = Math.max((second?.atMs ?? seen.ended?.atMs ?? 0) - firstAtMs, second ? 0 : firstAtMs);
	const ping = { kind: pingKind, text: first?.text ?? '', firstAtMs, periodMs, isFatal: seen.ended !== null };
	return { kindPointer, idPointer, acknowledgements, ping, kinds: rest.filter((kind) => kind !== pingKind) };
}

/** Whether the channel ended because of a heartbeat: soon after one, and not before any. */
export function endedByHeartbeat({ heartbeatsAtMs, ended }: Observation, withinMs: number): boolean {
	if (ended === null) return false;
	return heartbeatsAtMs.some((sentMs) => ended.atMs >= sentMs && ended.atMs - sentMs <= withinMs);
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

/** The findings of a handshake that was accepted. */
export function handshakeFindings({ path, inHeader, inQuery, subprotocols }: Handshake): Finding[] {
	const [place] = inQuery;
	const auth = inHeader || place === undefined ? 'header' : place.form === 'token' ? 'queryToken' : 'query';
	const [subprotocol] = subprotocols;
	const sure = { certainty: 'certain' } as const;
	return [
		{
			...sure,
			point: 'channel-path',
			tried: 'usual paths, one after another',
			found: path,
			...(path !== DEFAULT_CHANNEL_PATH && { settings: { channelPath: path } }),
		},
		{
			...sure,
			point: 'channel-handshake',
			tried: 'header and query together, then each alone',
			found: auth,
			...(auth !== 'header' && { settings: { channelAuth: auth } }),
		},
		...(place === undefined
			? []
			: [
					{
						...sure,
						point: 'query-name',
						tried: 'usual names together, then fewer',
						found: place.name,
						...(place.name !== 'authorization' && { settings: { queryName: place.name } }),
					},
				]),
		{
			...sure,
			point: 'subprotocol',
			tried: subprotocol === undefined ? 'none offered' : 'names that the service gave, and usual ones',
			found: subprotocol ?? 'none required',
			...(subprotocol !== undefined && { settings: { subprotocol } }),
		},
	];
}
