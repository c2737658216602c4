/** The search of `idv probe` for the channel: which handshake is next, and the least that a service accepts. Pure. */
import { DEFAULT_CHANNEL_PATH } from '../protocol/endpoints.ts';

/** The most likely first. */
export const CHANNEL_PATHS: readonly string[] = [
	DEFAULT_CHANNEL_PATH,
	'/api/ws/device',
	'/ws/device/{deviceId}',
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
	/** Places of the channel that the answer names. */
	readonly paths?: readonly string[];
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
	const allWays = (path: string): Handshake => ({
		...{ path, candidate: 0, inHeader: true, inQuery: places },
		subprotocols: subprotocol === undefined ? [] : [subprotocol],
	});
	const left = [...paths];
	const done = new Set<string>();
	for (let path = left.shift(); path !== undefined; path = left.shift()) {
		if (answers.some((one) => one.path === path)) continue;
		const answer = yield allWays(path);
		if (answer.status === 101) return yield* narrow(allWays(path), answer);
		left.unshift(...(answer.paths ?? []));
		answers.push({ path, answer });
		// Nothing but a path that exists answers so.
		const offered = wantsSubprotocol(answer) ? yield* offer(allWays(path), answer) : null;
		const found = offered ?? (named.includes(path) ? yield* pursue(path, answer) : yield* pursueOdd());
		if (found) return found;
	}
	for (const { path, answer } of refusedAmong(answers)) {
		const found = done.has(path) ? null : yield* pursue(path, answer);
		if (found) return found;
	}
	return null;

	/** One path that refuses where others say that there is nothing is the one: it comes before all that are left. */
	function* pursueOdd(): Search {
		if (!answers.some(({ answer }) => isElsewhere(answer))) return null;
		const odd = answers.find(({ path, answer }) => !done.has(path) && !isElsewhere(answer));
		return odd ? yield* pursue(odd.path, odd.answer) : null;
	}

	function* pursue(path: string, answer: HandshakeAnswer): Search {
		done.add(path);
		const base = allWays(path);
		const others = [...own.map(({ name }) => ({ name, form: 'scheme' }) as const), ...OTHER_FORMS];
		const ways: Handshake[] = [
			{ ...base, inHeader: false, inQuery: others },
			// Two credentials at once are refused by some.
			{ ...base, inQuery: [] },
			{ ...base, inHeader: false, inQuery: places.slice(0, 1) },
			...(wantsSubprotocol(answer) ? [] : [{ ...base, subprotocols: subprotocolsFor(answer) }]),
			{ ...base, inQuery: [], subprotocols: subprotocolsFor(answer) },
		];
		for (let candidate = 1; candidate < candidates; candidate += 1) ways.push({ ...base, candidate });
		for (const way of ways) {
			const found = yield* attempt(way);
			if (found) return found;
		}
		return null;
	}
}

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

/** Whether a status is about the handshake itself. */
const isRefusal = (status: number) => status >= 300 && status < 500 && ![408, 409, 423, 425, 429].includes(status);

/** The least of an accepted handshake that is still accepted: the header where it suffices. `null`: that could not be found out. */
function* narrow(accepted: Handshake, { subprotocol }: HandshakeAnswer): Search {
	const chosen = { ...accepted, subprotocols: subprotocol === null ? [] : [subprotocol] };
	let isUnclear = false;
	const isAccepted = function* (way: Handshake): Generator<Handshake, boolean, HandshakeAnswer> {
		if (isUnclear) return false;
		const { status } = yield way;
		// What a service answers for another reason says nothing about the handshake.
		isUnclear = status !== 101 && !isRefusal(status);
		return status === 101;
	};
	const header = { ...chosen, inHeader: true, inQuery: [] };
	if (chosen.inHeader && (yield* isAccepted(header))) return header;
	const inQuery = (inQuery: readonly QueryPlace[]) => ({ ...chosen, inHeader: false, inQuery });
	let places = chosen.inQuery;
	const [first] = places;
	if (first && places.length > 1) {
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

/** The first answers of the paths in words. @returns `isSeen`: some seem to be there and others not. */
export function answersInWords(answers: ReadonlyMap<string, HandshakeAnswer>): {
	readonly isSeen: boolean;
	readonly words: string;
} {
	const all = [...answers];
	const there = all.filter(([, answer]) => !isElsewhere(answer));
	const others = all.filter((one) => !there.includes(one));
	const statuses = (some: typeof all) =>
		[...new Set(some.map(([, { status }]) => (status === 0 ? 'nothing' : status)))].join(' or ');
	if (there.length === 0 || others.length === 0) return { isSeen: false, words: `each path answered ${statuses(all)}` };
	const named = there.map(([path, { status }]) => `${path} answered ${status}`).join(', ');
	return { isSeen: true, words: `${named}, every other path ${statuses(others)}` };
}

function subprotocolsFor({ hints }: HandshakeAnswer): string[] {
	return [...new Set([...hints, ...SUBPROTOCOLS])].slice(0, MAX_SUBPROTOCOLS);
}

/** Words of a refusal that may be the name of a subprotocol, what stands behind the word itself first. */
export function subprotocolHints(header: string | undefined, body: string): string[] {
	const named = (header ?? '').split(',').map((name) => name.trim());
	const said = body.slice(0, 2000).replaceAll('\\"', '"');
	const after = [...said.matchAll(/protocols?[\s"':=[(]+(?:is\s+|named\s+|must be\s+)?["'`]?([\w.~-]+)/gi)].map(
		(hit) => hit[1],
	);
	const quoted = [...said.matchAll(/["'`]([\w.~-]{2,64})["'`]/g)].map((hit) => hit[1]);
	return [...named, ...after, ...quoted]
		.map((word) => (word ?? '').replace(/\.+$/, ''))
		.filter((word) => /^[\w~.-]{2,64}$/.test(word))
		.slice(0, 8);
}

/**
 * Where a text says that the channel is, as `service.channelPath` has it: an address, or a path that tells by its words. The id of the
 * device and its workflow become fields; a credential in the query goes.
 */
export function channelPlaces(
	text: string,
	{ baseUrl, deviceId, workflowId }: Asked,
): { place: string; query: string[] }[] {
	const base = new URL(baseUrl);
	const found = text.match(/(?:wss?|https?):\/\/[^\s"'<>\\]+|\/[\w./{}:%~?=&-]*[\w}]/g) ?? [];
	return found.flatMap((word) => {
		const url = URL.parse(word, base);
		if (
			!url ||
			!/\b(?:ws|wss|websocket|socket|channel|stream|notif\w*|push|realtime|rt|live|hub|events|feed)\b/i.test(word)
		)
			return [];
		const names = [...url.searchParams.keys()];
		const path = url.pathname
			.replaceAll(encodeURIComponent(deviceId), '{deviceId}')
			.replace(/%7B(?:device_?id|id)%7D|<(?:string:)?device_?id>|:device_?id\b/gi, '{deviceId}')
			.replaceAll(encodeURIComponent(workflowId), '{workflowId}')
			.replace(/%7Bworkflow_?(?:id)?%7D|:workflow_?id\b/gi, '{workflowId}');
		const isOwn = url.host === base.host;
		const prefix = base.pathname.replace(/\/$/, '');
		if (isOwn && !path.startsWith(`${prefix}/`)) return [];
		return [
			{
				place: isOwn ? path.slice(prefix.length) : `${url.protocol.replace('http', 'ws')}//${url.host}${path}`,
				query: names,
			},
		];
	});
}

interface Asked {
	readonly baseUrl: string;
	readonly deviceId: string;
	readonly workflowId: string;
}
