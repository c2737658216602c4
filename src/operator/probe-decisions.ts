/**
 * What `idv probe` tries next, and which settings follow from what it has seen: candidates, narrowing down, conclusions.
 * Pure: sends nothing, waits for nothing, and never returns a credential.
 */
import { readNotification } from '../protocol/channel.ts';
import { DEFAULT_CHANNEL_PATH } from '../protocol/endpoints.ts';
import { resolvePointer } from '../protocol/json-pointer.ts';
import { type AnswerText, looksLikeToken, tokenIn } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';

/** The most likely first. */
export const CHANNEL_PATHS: readonly string[] = [
	DEFAULT_CHANNEL_PATH,
	'/api/ws/device',
	'/api/v1/ws/device',
	'/v1/ws/device',
	'/ws',
	'/device/ws',
	'/api/device/ws',
	'/ws/devices',
	'/websocket/device',
	'/socket/device',
	'/api/device/channel',
	'/notifications',
];
const SUBPROTOCOLS = ['device', 'v1', 'device.v1', 'v1.device', 'ws-device', 'json', 'notifications', 'idv', 'idv.v1'];
/** Handshakes that offer more look like an attack to some proxies. */
const MAX_SUBPROTOCOLS = 20;

/** `scheme`: `Connection TOKEN`; `token`: the token alone. */
export interface QueryPlace {
	readonly name: string;
	readonly form: 'scheme' | 'token';
}

/** One handshake: everything in it that differs between services. */
export interface Handshake {
	readonly path: string;
	/** Which of the texts that may be the token. */
	readonly candidate: number;
	readonly inHeader: boolean;
	readonly inQuery: readonly QueryPlace[];
	readonly subprotocols: readonly string[];
}

export interface HandshakeAnswer {
	/** 101 for a channel that stays open; a close frame that follows at once counts as 401. */
	readonly status: number;
	readonly isPage: boolean;
	/** Names of subprotocols that the service may have named: from a header, or words of its refusal. */
	readonly hints: readonly string[];
	/** The one that the service chose. */
	readonly subprotocol: string | null;
	/** The same for answers that say the same, whatever the path. */
	readonly fingerprint: string;
}

/** Each name in the form that services use with it; the other forms come later. */
const QUERY_PLACES: readonly QueryPlace[] = [
	{ name: 'authorization', form: 'scheme' },
	{ name: 'token', form: 'token' },
	{ name: 'access_token', form: 'token' },
	{ name: 'auth', form: 'scheme' },
	{ name: 'connectionToken', form: 'token' },
	{ name: 'connection_token', form: 'token' },
	{ name: 'connection', form: 'token' },
	{ name: 'key', form: 'token' },
];
const OTHER_FORMS = QUERY_PLACES.map(
	({ name, form }) => ({ name, form: form === 'token' ? 'scheme' : 'token' }) as const,
);

type Search = Generator<Handshake, Handshake | null, HandshakeAnswer>;

/**
 * Looks for the handshake that the service accepts: each step is one handshake to try. The last one that is tried before it
 * returns one is that one, so its channel can be kept.
 * @returns `null` when nothing was accepted.
 */
export function* findChannel(paths: readonly string[], candidates: number): Search {
	const answers: { readonly path: string; readonly answer: HandshakeAnswer }[] = [];
	for (const path of paths) {
		const answer = yield allWays(path);
		if (answer.status === 101) return yield* narrow(allWays(path), answer);
		answers.push({ path, answer });
		// Nothing but a path that exists answers so.
		const found = wantsSubprotocol(answer) ? yield* offer(allWays(path), answer) : null;
		if (found) return found;
	}
	for (const { path, answer } of refusedAmong(answers)) {
		const base = allWays(path);
		const ways: Handshake[] = [
			{ ...base, inHeader: false, inQuery: OTHER_FORMS },
			// Two credentials at once are refused by some.
			{ ...base, inQuery: [] },
			{ ...base, inHeader: false, inQuery: QUERY_PLACES.slice(0, 1) },
			...(wantsSubprotocol(answer) ? [] : [{ ...base, subprotocols: subprotocolsFor(answer) }]),
			{ ...base, inQuery: [], subprotocols: subprotocolsFor(answer) },
		];
		for (let candidate = 1; candidate < candidates; candidate += 1) ways.push({ ...base, candidate });
		for (const way of ways) {
			const found = yield* attempt(way);
			if (found) return found;
		}
	}
	return null;
}

const allWays = (path: string): Handshake => ({
	path,
	candidate: 0,
	inHeader: true,
	inQuery: QUERY_PLACES,
	subprotocols: [],
});

/** The paths that seem to be there, the likely ones first; among equal answers, the usual paths. */
function refusedAmong<Answered extends { readonly answer: HandshakeAnswer }>(answers: readonly Answered[]): Answered[] {
	const times = (fingerprint: string) => answers.filter(({ answer }) => answer.fingerprint === fingerprint).length;
	const most = Math.max(...answers.map(({ answer }) => times(answer.fingerprint)));
	// A service may refuse with 404 as well, but then it hardly says the same as where there is nothing.
	const isOdd = ({ answer }: Answered) => times(answer.fingerprint) < most;
	const isThere = (one: Answered) => !isElsewhere(one.answer) || (isOdd(one) && one.answer.status === 404);
	const rank = (one: Answered) =>
		(isOdd(one) ? 0 : 10) + ([400, 426, 401, 403].indexOf(one.answer.status) >>> 0 > 3 ? 4 : 0);
	const there = answers.filter(isThere).sort((a, b) => rank(a) - rank(b));
	return there.length > 0 ? there : answers.slice(0, 3);
}

function wantsSubprotocol({ status }: HandshakeAnswer): boolean {
	return status === 400 || status === 426;
}

function* attempt(way: Handshake): Search {
	const answer = yield way;
	if (answer.status === 101) return yield* narrow(way, answer);
	return wantsSubprotocol(answer) && way.subprotocols.length === 0 ? yield* offer(way, answer) : null;
}

function* offer(way: Handshake, refusal: HandshakeAnswer): Search {
	const offered = { ...way, subprotocols: subprotocolsFor(refusal) };
	const answer = yield offered;
	return answer.status === 101 ? yield* narrow(offered, answer) : null;
}

/** The least of an accepted handshake that is still accepted: the header where it suffices. */
function* narrow(accepted: Handshake, { subprotocol }: HandshakeAnswer): Search {
	const chosen = { ...accepted, subprotocols: subprotocol === null ? [] : [subprotocol] };
	const isAccepted = function* (way: Handshake): Generator<Handshake, boolean, HandshakeAnswer> {
		return (yield way).status === 101;
	};
	const header = { ...chosen, inHeader: true, inQuery: [] };
	if (chosen.inHeader && (yield* isAccepted(header))) return header;
	const inQuery = (inQuery: readonly QueryPlace[]) => ({ ...chosen, inHeader: false, inQuery });
	let places = chosen.inQuery;
	const [first] = places;
	if (first?.name === 'authorization' && places.length > 1) {
		if (yield* isAccepted(inQuery([first]))) return inQuery([first]);
		places = places.slice(1);
	}
	let isSure = false;
	while (places.length > 1) {
		const half = places.slice(0, Math.ceil(places.length / 2));
		isSure = yield* isAccepted(inQuery(half));
		places = isSure ? half : places.slice(half.length);
	}
	if (places.length === 1 && (isSure || (yield* isAccepted(inQuery(places))))) return inQuery(places);
	// Together they are accepted and alone none is.
	return null;
}

/** Whether there is no channel at this path, as far as a status tells. */
function isElsewhere({ status, isPage }: HandshakeAnswer): boolean {
	return (
		isPage || status === 404 || status === 405 || status === 200 || status === 0 || (status >= 300 && status < 400)
	);
}

function subprotocolsFor({ hints }: HandshakeAnswer): string[] {
	return [...new Set([...hints, ...SUBPROTOCOLS])].slice(0, MAX_SUBPROTOCOLS);
}

/** Words of a refusal that may be the name of a subprotocol, what stands behind the word itself first. */
export function subprotocolHints(header: string | undefined, body: string): string[] {
	const named = (header ?? '').split(',').map((name) => name.trim());
	const said = body.slice(0, 2000);
	const after = [...said.matchAll(/protocols?[\s"':=[(]+(?:is\s+|named\s+|must be\s+)?["'`]?([\w.~-]+)/gi)].map(
		(hit) => hit[1],
	);
	const quoted = [...said.matchAll(/["'`]([\w.~-]{2,64})["'`]/g)].map((hit) => hit[1]);
	return [...named, ...after, ...quoted]
		.map((word) => (word ?? '').replace(/\.+$/, ''))
		.filter((word) => /^[\w~.-]{2,64}$/.test(word))
		.slice(0, 8);
}

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
	let document: unknown;
	try {
		document = JSON.parse(body);
	} catch {
		return null;
	}
	const lives = membersOf(document, 0).flatMap(([name, value]) => {
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

/**
 * @param answerMs how soon after a heartbeat its acknowledgement comes.
 * @param quiet a channel without heartbeats: what came there acknowledges none.
 */
export function readMessages(seen: Observation, answerMs: number, quiet: Observation | null = null): Reading {
	const documents = seen.messages
		.map(({ text }) => parsed(text))
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

/** What may answer a ping, the likely ones first, as `service.pongBody` is written. */
export function pongsFor({ text, kind }: Pick<SeenPing, 'text' | 'kind'>, kindPointer: string | null): string[] {
	const message = parsed(text);
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

function parsed(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
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

/** What the settings file says: only what differs from the defaults, and the address. */
export function settingsFrom(baseUrl: string, workflowId: string | undefined, findings: readonly Finding[]): object {
	const service = Object.assign({}, ...findings.map(({ settings }) => settings));
	return {
		baseUrl,
		...(workflowId !== undefined && { workflowId }),
		...(Object.keys(service).length > 0 && { service }),
	};
}

/** What is known of the handshake, once one is accepted. */
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
