/** The search of `idv probe` for the channel: which handshake is next, and the least that a service accepts. Pure. */
import { DEFAULT_CHANNEL_PATH } from '../protocol/endpoints.ts';
import { FAMILY_SUBPROTOCOLS } from './probe-families.ts';

/** The most likely first. */
export const CHANNEL_PATHS: readonly string[] = [
	DEFAULT_CHANNEL_PATH,
	'/api/ws/device',
	'/ws/device/{deviceId}',
	// As Phoenix has it.
	'/ws/device/websocket',
	'/api/v1/ws/device',
	'/device/ws',
	'/api/device/ws',
	'/ws',
	'/v1/ws/device',
	'/api/ws/device/{deviceId}',
	'/ws/devices',
	'/ws/devices/{deviceId}',
	'/notifications',
	'/api/device/channel',
	'/websocket/device',
];
const SUBPROTOCOLS = [
	...['device', 'v1', 'device.v1', 'v1.device', 'ws-device', 'json', 'notifications', 'idv', 'idv.v1'],
	...FAMILY_SUBPROTOCOLS,
];
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
	/** The channel opened, and errors are all that came on it: the Connection may be refused in words. */
	readonly saysNo?: boolean;
	/** Names of subprotocols that the service may have named: from a header, or words of its refusal. */
	readonly hints: readonly string[];
	/** The one that the service chose. */
	readonly subprotocol: string | null;
	/** Places of the channel that the answer names. */
	readonly paths?: readonly string[];
	/** Query parameters that the answer asks for, as they stand in a path: `deviceId={deviceId}`. */
	readonly needs?: readonly string[];
	/** Query parameters that it names besides: the Connection may belong in them. */
	readonly names?: readonly string[];
	/** Where a redirect leads, without a query, which may hold a credential. */
	readonly location?: string | undefined;
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

type Search<Found = Handshake | null> = Generator<Handshake, Found, HandshakeAnswer>;

/** What is known of the handshake before. */
export interface Known {
	/** Names of query parameters, tried before the usual ones. */
	readonly queryNames?: readonly string[] | undefined;
	readonly subprotocol?: string | undefined;
	/** Paths that the operator or the service has named: every way is tried there before another path is. */
	readonly named?: readonly string[] | undefined;
}

/** Each step is one handshake to try; the last one before the return is the one. `null`: none was accepted. */
export function* findChannel(paths: readonly string[], candidates: number, known: Known = {}): Search {
	const answers: { readonly path: string; readonly answer: HandshakeAnswer }[] = [];
	const { queryNames = [], subprotocol, named = [] } = known;
	const own = queryNames.map((name) => ({ name, form: 'token' }) as const);
	const places = [...own, ...QUERY_PLACES.filter(({ name }) => !queryNames.includes(name))];
	let candidate = 0;
	let subprotocols: readonly string[] = subprotocol === undefined ? [] : [subprotocol];
	const allWays = (path: string): Handshake => ({ path, candidate, inHeader: true, inQuery: places, subprotocols });
	const left = [...paths];
	const asked = new Set<string>();
	const done = new Set<string>();
	for (let path = left.shift(); path !== undefined; path = left.shift()) {
		if (asked.has(path)) continue;
		asked.add(path);
		const tried = yield* attempt(allWays(path), candidates);
		if (tried.found) return tried.found;
		subprotocols = tried.subprotocols;
		for (const way of namedWays(allWays(tried.path), tried.answer.names ?? [], candidates)) {
			const { found } = yield* attempt(way, candidates);
			if (found) return found;
		}
		left.unshift(...(tried.answer.paths ?? []));
		answers.push(tried);
		// One path that refuses where others say that there is nothing is the one: it comes before all that are left.
		const isOdd = ({ answer }: (typeof answers)[number]) => !isElsewhere(answer);
		const odd = answers.every(isOdd) ? undefined : answers.find((one) => !done.has(one.path) && isOdd(one));
		const first = named.includes(path) ? tried : odd;
		const pursued = first ? yield* pursue(first.path, first.answer) : null;
		if (pursued) return pursued;
	}
	const refused = refusedAmong(answers);
	for (const { path, answer } of refused) {
		const found = done.has(path) ? null : yield* pursue(path, answer);
		if (found) return found;
	}
	// Some have a path only without a query.
	for (const { path } of refused.length > 0 ? [] : answers) {
		const { found } = yield* attempt({ ...allWays(path), inQuery: [] }, candidates);
		if (found) return found;
	}
	return null;

	function* pursue(path: string, answer: HandshakeAnswer): Search {
		done.add(path);
		const others = [...own.map(({ name }) => ({ name, form: 'scheme' }) as const), ...OTHER_FORMS];
		let best = { path, answer };
		if (isUnknown(answer))
			for (let index = 1; index < candidates && isUnknown(best.answer); index += 1) {
				const tried = yield* attempt({ ...allWays(path), candidate: index }, candidates);
				if (tried.found) return tried.found;
				if (!isLack(tried.answer)) continue;
				candidate = index;
				best = tried;
			}
		const base = allWays(best.path);
		const withDevice = { ...base, path: withQuery(base.path, ['deviceId={deviceId}']) };
		const more = Array.from({ length: candidates - 1 }, (_, index) => ({ ...base, candidate: index + 1 }));
		const ways: Handshake[] = [
			...(isLack(best.answer) ? [withDevice] : []),
			{ ...base, inHeader: false, inQuery: others },
			// Two credentials at once are refused by some.
			{ ...base, inQuery: [] },
			{ ...base, inHeader: false },
			...(subprotocols.length > 0 ? [] : offering(base, best.answer)),
			...(isUnknown(answer) ? [] : more),
		];
		for (const way of ways) {
			const { found } = yield* attempt(way, candidates);
			if (found) return found;
		}
		return null;
	}
}

/** Alone: what opens the channel beside the header does not hold the Connection. */
function namedWays(base: Handshake, names: readonly string[], candidates: number): Handshake[] {
	const { path, inQuery } = base;
	const isNew = (name: string) => !inQuery.some((one) => one.name === name) && withQuery(path, [name]) !== path;
	const forms = names.filter(isNew).flatMap((name) => (['token', 'scheme'] as const).map((form) => ({ name, form })));
	return forms.flatMap((one) =>
		Array.from({ length: candidates }, (_, candidate) => ({ ...base, candidate, inHeader: false, inQuery: [one] })),
	);
}

const offering = (base: Handshake, answer: HandshakeAnswer): Handshake[] => [
	...(wantsSubprotocol(answer) ? [] : [{ ...base, subprotocols: subprotocolsFor(answer) }]),
	{ ...base, inQuery: [], subprotocols: subprotocolsFor(answer) },
];

/** Whether an answer is about the Connection. */
export const isUnknown = ({ status }: HandshakeAnswer) => status === 401 || status === 403;
/** Whether it is about something else, which may have been looked at first. */
export const isLack = ({ status }: HandshakeAnswer) => status === 400 || status === 422;

/** The paths that seem to be there, the likely ones first; among equal answers, the usual paths. */
function refusedAmong<Answered extends { readonly answer: HandshakeAnswer }>(answers: readonly Answered[]): Answered[] {
	const times = (fingerprint: string) => answers.filter(({ answer }) => answer.fingerprint === fingerprint).length;
	const most = Math.max(...answers.map(({ answer }) => times(answer.fingerprint)));
	// A service may refuse with 404 as well, but then it hardly says the same as where there is nothing.
	const isOdd = ({ answer }: Answered) => times(answer.fingerprint) < most;
	const isThere = (one: Answered) => !isElsewhere(one.answer) || (isOdd(one) && one.answer.status === 404);
	const rank = (one: Answered) => (isOdd(one) ? 0 : 10) + ([400, 426, 401, 403].includes(one.answer.status) ? 0 : 4);
	return answers.filter(isThere).sort((a, b) => rank(a) - rank(b));
}

const wantsSubprotocol = ({ status }: HandshakeAnswer) => status === 400 || status === 426;

interface Attempted {
	/** With what the service has asked for in its query. */
	readonly path: string;
	readonly answer: HandshakeAnswer;
	readonly found: Handshake | null;
	/** With those that the service looks past: the answer is about something else then. */
	readonly subprotocols: readonly string[];
}

function* attempt(way: Handshake, candidates: number): Search<Attempted> {
	const { subprotocols } = way;
	const answer = yield way;
	if (answer.status === 101) {
		const best = (answer.saysNo && (yield* withAnother(way, candidates))) || { way, answer };
		return { path: way.path, answer, subprotocols, found: yield* narrow(best.way, best.answer) };
	}
	const path = withQuery(way.path, answer.needs ?? []);
	if (path !== way.path) return yield* attempt({ ...way, path }, candidates);
	if (!wantsSubprotocol(answer) || subprotocols.length > 0) return { path, answer, subprotocols, found: null };
	const offers = { ...way, subprotocols: subprotocolsFor(answer) };
	const again = yield* attempt(offers, candidates);
	// It looks past the subprotocol at something else.
	const isNamed = again.answer.names?.some((name) => !answer.names?.includes(name));
	if (again.found || isUnknown(again.answer) || isNamed) return again;
	return { path, answer, subprotocols, found: null };
}

/** Where any text opens the channel, the service may still serve the right one only: the first one that it says no to in no words. */
function* withAnother(
	way: Handshake,
	candidates: number,
): Search<{ readonly way: Handshake; readonly answer: HandshakeAnswer } | null> {
	for (let candidate = 0; candidate < candidates; candidate += 1) {
		if (candidate === way.candidate) continue;
		const answer = yield { ...way, candidate };
		if (answer.status === 101 && !answer.saysNo) return { way: { ...way, candidate }, answer };
	}
	return null;
}

/** @param parameters those that are there already are left out. */
function withQuery(path: string, parameters: readonly string[]): string {
	const isThere = (one: string) => path.split(/[?&]/).some((own) => own.split('=')[0] === one.split('=')[0]);
	return parameters
		.filter((one) => !isThere(one))
		.reduce((all, one) => `${all}${all.includes('?') ? '&' : '?'}${one}`, path);
}

/** Whether a status is about the handshake itself. */
export const isRefusal = (status: number) =>
	status >= 300 && status < 500 && ![408, 409, 423, 425, 429].includes(status);

/** Whether the Connection is shown at one place only. */
export const isNarrow = ({ inHeader, inQuery }: Handshake) => inQuery.length + (inHeader ? 1 : 0) === 1;

/** The least of an accepted handshake that is still accepted: the header where it suffices; the whole where that could not be found out. */
function* narrow(accepted: Handshake, { subprotocol, saysNo = false }: HandshakeAnswer): Search<Handshake> {
	const chosen = { ...accepted, subprotocols: subprotocol === null ? [] : [subprotocol] };
	let isUnclear = false;
	const isAccepted = function* (way: Handshake): Search<boolean> {
		if (isUnclear) return false;
		const { status, saysNo: isNo } = yield way;
		// What a service answers for another reason says nothing about the handshake.
		isUnclear = status !== 101 && !isRefusal(status);
		return status === 101 && (saysNo || !isNo);
	};
	const header = { ...chosen, inQuery: [] };
	if (chosen.inHeader && (yield* isAccepted(header))) return header;
	const inQuery = (inQuery: readonly QueryPlace[]) => ({ ...chosen, inHeader: false, inQuery });
	let places = chosen.inQuery;
	for (let size = 1; places.length > 1; size = Math.ceil(places.length / 2)) {
		const part = places.slice(0, size);
		const isIn = yield* isAccepted(inQuery(part));
		if (isIn && size === 1) return inQuery(part);
		places = isIn ? part : places.slice(size);
	}
	// Together they may be accepted and alone none is.
	return places.length === 1 && (yield* isAccepted(inQuery(places))) ? inQuery(places) : chosen;
}

/** Whether there is no channel at this path, as far as a status tells. */
function isElsewhere({ status, isPage }: Pick<HandshakeAnswer, 'status' | 'isPage'>): boolean {
	return (
		isPage || status === 404 || status === 405 || status === 200 || status === 0 || (status >= 300 && status < 400)
	);
}

/** The answers to the handshakes at each path, in their order. */
export type PathAnswers = ReadonlyMap<string, readonly Pick<HandshakeAnswer, 'status' | 'isPage' | 'location'>[]>;

/** `404, 307 (to /ws/) or 401`. */
export function statusesOf(answers: readonly Pick<HandshakeAnswer, 'status' | 'location'>[]): string {
	const said = answers.map(({ status, location }) => `${status || 'nothing'}${location ? ` (to ${location})` : ''}`);
	const all = [...new Set(said)];
	return [all.slice(0, -1).join(', '), ...all.slice(-1)].filter(Boolean).join(' or ');
}

/** The answers of the paths in words. @returns `isSeen`: some seem to be there and others not. */
export function answersInWords(answers: PathAnswers) {
	const isThere = (one: [string, PathAnswers extends ReadonlyMap<string, infer Answers> ? Answers : never]) =>
		!one[1].every(isElsewhere);
	const there = [...answers].filter(isThere);
	const others = [...answers].filter((one) => !isThere(one));
	const said = (some: typeof there) => statusesOf(some.flatMap(([, all]) => all));
	const isSeen = there.length > 0 && others.length > 0;
	const named = there.map(([path, all]) => `${path} answered ${statusesOf(all)}`).join(', ');
	const words = isSeen ? `${named}, every other path ${said(others)}` : `each path answered ${said([...answers])}`;
	return { isSeen, words };
}

const subprotocolsFor = ({ hints }: HandshakeAnswer) =>
	[...new Set([...hints, ...SUBPROTOCOLS])].slice(0, MAX_SUBPROTOCOLS);

export interface Place {
	/** As `service.channelPath` has it for every device: an address, or a path that tells by its words. */
	readonly place: string;
	/** As it is written, where another device cannot have the same: it holds a name that the service has made for this one. */
	readonly own: string | null;
	/** Names of query parameters. */
	readonly query: readonly string[];
}

/** The paths of places in the order in which they are tried. */
export const pathsOf = (places: readonly Place[]) =>
	places.flatMap(({ place, own }) => (own === null ? [place] : [place, own]));

const OF_MANY = /^(?:t|tenants?|accounts?|org\w*|customers?|sites?|realms?|projects?)$/i;
const OF_ONE =
	/^(?:devices?|terminals?|kiosks?|units?|clients?|connections?|sessions?|channels?|sockets?|ws|registrations?)$/i;

/** Whether a part of a path is what the service calls this device. */
function isMade(part: string, before: string, names: readonly string[]): boolean {
	if (names.includes(part.toLowerCase())) return true;
	// `v2` and a date are versions.
	if (OF_MANY.test(before) || !/\d/.test(part) || /^v\d|^\d{4}-\d\d/i.test(part)) return false;
	return OF_ONE.test(before) ? /\d{3}/.test(part) : /\d{6}|[0-9a-f]{8}|^[\w-]{20,}$/i.test(part);
}

/**
 * Where a text says that the channel is. The id of the device and its workflow become fields, as does what the service calls the device; a
 * credential in the query goes.
 */
export function channelPlaces(text: string, { baseUrl, deviceId, workflowId, names = [] }: Asked): Place[] {
	const base = new URL(baseUrl);
	const found =
		text.match(/(?:wss?|https?):\/\/[^\s"'<>\\]+|\/(?:[\w./{}:%~?=&-]|<[\w:]+>)*(?:[\w}]\/?|<[\w:]+>\/?)/g) ?? [];
	return found.flatMap((word) => {
		const url = URL.parse(word, base);
		if (
			!url ||
			!/\b(?:ws|wss|websocket|socket|channel|stream|notif\w*|push|realtime|rt|live|hub|events|feed|gateway)\b/i.test(
				word,
			)
		)
			return [];
		const path = url.pathname
			.replaceAll(encodeURIComponent(deviceId), '{deviceId}')
			.replace(/%7B(?:device_?id|id)%7D|%3C(?:string:)?(?:device_?)?id%3E|:device_?id\b/gi, '{deviceId}')
			.replaceAll(encodeURIComponent(workflowId), '{workflowId}')
			.replace(/%(?:7B|3C)workflow_?(?:id)?%(?:7D|3E)|:workflow_?id\b/gi, '{workflowId}');
		const parts = path
			// Some services write it in capitals: as it is, it would be the path of this device alone.
			.replaceAll(new RegExp(RegExp.escape(encodeURIComponent(deviceId)), 'gi'), '{deviceId}')
			.split('/');
		const shared = parts.map((one, at) => (isMade(one, parts[at - 1] ?? '', names) ? '{deviceId}' : one)).join('/');
		const isOwn = url.host === base.host;
		const prefix = base.pathname.replace(/\/$/, '');
		if (isOwn && !path.startsWith(`${prefix}/`)) return [];
		const placed = (one: string) =>
			isOwn ? one.slice(prefix.length) : `${url.protocol.replace('http', 'ws')}//${url.host}${one}`;
		return [
			{
				place: placed(shared),
				own: shared === path ? null : placed(path),
				query: [...url.searchParams.keys()],
			},
		];
	});
}

interface Asked {
	readonly baseUrl: string;
	readonly deviceId: string;
	readonly workflowId: string;
	/** Of the device, that the service has made, in small letters. */
	readonly names?: readonly string[];
}
