/** One handshake of `idv probe`, and what its answer tells. */
import { asError, type Failure } from '../base/errors.ts';
import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { isWebPage } from '../connection/classify-failure.ts';
import { formatAuthorization } from '../protocol/authorization.ts';
import { channelUrl } from '../protocol/endpoints.ts';
import { cleanText, readErrorWords } from '../protocol/problem.ts';
import { fillPath } from '../protocol/templates.ts';
import { PASSING } from './probe-ends.runner.ts';
import { isError, messagesOf, nextTokens, saysNo } from './probe-readings.runner.ts';
import { channelPlaces, type Handshake, type HandshakeAnswer, isRefusal, pathsOf } from './probe-search.ts';
import type { Run } from './probe-state.runner.ts';
import { type Life, openNoted } from './probe-wire.runner.ts';
import { namedQuery, neededParameters, subprotocolHints } from './probe-words.ts';

const HANDSHAKE_MS = 15_000;
/** Of one channel: texts that look like a secret and are none, such as ids of requests. */
const MAX_OFFERED = 3;
/** Of one such place: what was refused may have been the handshake. */
const MAX_TRIES = 3;

/** Where a text says that the channel is; which of it is of this device alone is known from then on. */
export function placesIn(run: Run, text: string) {
	const { target, request, names, channelPaths, ownPaths } = run;
	const places = channelPlaces(text, { baseUrl: target.baseUrl, ...request, names });
	for (const { own } of places) if (own !== null && !channelPaths.includes(own)) ownPaths.add(own);
	return places;
}

export interface Dialled extends HandshakeAnswer {
	readonly life: Life;
	/** Of a handshake that no answer came to: the line was cut, or nothing came in time. */
	readonly unanswered?: Failure;
	readonly retryAfter: string | undefined;
}

/**
 * One handshake, and once more with a Connection that a channel has named where that is refused, or where its place has such a name: a service
 * may give each for one channel only, and take back all where an old one is shown.
 */
export async function knock(run: Run, way: Handshake): Promise<Dialled> {
	const dialled = await run.pace.ask(() => dial(run, way));
	return renewed(
		run,
		dialled,
		({ life }) => life,
		() => run.pace.ask(() => dial(run, way)),
	);
}

/** @param lifeOf of an attempt. @returns what was tried, or the attempt that a Connection named by an earlier channel has opened. */
export async function renewed<Tried>(
	run: Run,
	tried: Tried,
	lifeOf: (tried: Tried) => Life | undefined,
	again: () => Promise<Tried>,
): Promise<Tried> {
	const life = lifeOf(tried);
	if (!life || run.next !== null || (!life.isOpen && !isRefusal(life.refusal?.status ?? 0))) return tried;
	const fits = (pointer: string) =>
		(!life.isOpen || /token|connection|credential|next/i.test(pointer)) &&
		(run.dismissed.get(pointer) ?? 0) < MAX_TRIES;
	for (const { pointer, token } of run.offered.filter((one) => fits(one.pointer)).slice(0, MAX_OFFERED)) {
		const { token: before, offered } = run;
		Object.assign(run, { token, next: { pointer, isProved: false } });
		const then = await again();
		const other = lifeOf(then);
		const isProved = !life.isOpen || (life.ended !== null && other?.ended === null);
		if (isProved) Object.assign(run, { next: { pointer, isProved } });
		if (other?.isOpen) return then;
		Object.assign(run, { token: before, next: null, offered });
		run.dismissed.set(pointer, life.isOpen ? MAX_TRIES : (run.dismissed.get(pointer) ?? 0) + 1);
	}
	return tried;
}

/**
 * A channel that stays open for a moment counts, and is closed again: a service may let a device have one only.
 * @param other shown in place of the Connection: what the channel says then is about no device.
 */
export async function dial(run: Run, way: Handshake, other?: string): Promise<Dialled> {
	const { network, seconds, signal, transcript } = run;
	const own = way.candidate === run.candidate ? run.token : (run.places[way.candidate]?.token ?? '');
	const token = other ?? own;
	const full = formatAuthorization({ scheme: 'Connection', credential: token });
	const query = new URLSearchParams(way.inQuery.map(({ name, form }) => [name, form === 'token' ? token : full]));
	const path = fillPath(way.path, run.request);
	const countsMs = Math.min(COUNTS_AFTER_MS, (seconds * 1000) / 8);
	const url = channelUrl(run.target.baseUrl, path, way.inQuery.length > 0 ? query : undefined);
	const options = {
		...{ url, authorization: way.inHeader ? full : null, agent: network.channelAgent(url) },
		...{ proxy: network.proxyName(url), userAgent: `idv/${run.version}`, handshakeMs: HANDSHAKE_MS },
		headers: run.headers,
		...{ pingIntervalMs: 0, silenceLimitMs: 0, provesByAge: true },
		// A message may name the Connection for the next one.
		proveAfterMs:
			run.hasOpened && !run.next?.pointer.startsWith('/') ? countsMs : Math.min(COUNTS_AFTER_MS, seconds * 500),
	};
	const life = await new Promise<Life>((resolve, reject) => {
		const giveUp = () => opened.channel.terminate();
		const opened = openNoted(
			options,
			(event) => {
				if (event.type === 'confirmed') opened.channel.close(1000, '');
				if (event.type !== 'ended') return;
				signal.removeEventListener('abort', giveUp);
				if (signal.aborted) reject(signal.reason);
				else resolve(opened.life);
			},
			transcript,
			way.subprotocols,
		);
		signal.addEventListener('abort', giveUp);
	});
	const answer = answerOf(run, life, url, countsMs, way.subprotocols.length > 0);
	if (other !== undefined) return { ...answer, life };
	run.hasOpened ||= life.isOpen;
	if (life.isOpen && answer.status === 101) Object.assign(run, { token, candidate: way.candidate, isTaken: true });
	follow(run, life);
	return { ...answer, life };
}

/** What a channel says of the next Connection. */
export function follow(run: Run, life: Life): void {
	if (!life.isOpen) return;
	const named = nextTokens(life).filter(({ token }) => token !== run.token);
	const { next } = run;
	if (next) run.token = named.findLast(({ pointer }) => pointer === next.pointer)?.token ?? run.token;
	// A channel that was opened with an old one may be ended without a word of the next.
	// Where each message brings another one, only the newest opens the next.
	else if (named.length > 0)
		run.offered = named.filter(({ pointer }, at) => at === named.findLastIndex((one) => one.pointer === pointer));
}

function answerOf(run: Run, life: Life, url: URL, countsMs: number, hasOffered: boolean): Omit<Dialled, 'life'> {
	const { refusal, ended, failure } = life;
	const base = { isPage: false, hints: [], fingerprint: '101', subprotocol: life.subprotocol, retryAfter: undefined };
	const hasLasted = ended === null || ended.atMs >= countsMs;
	if (life.isOpen && failure?.code === 'channel-rejected')
		return { ...base, status: 426, fingerprint: '426', hints: subprotocolHints('', ended?.reason) };
	const lasting = hasLasted ? 101 : PASSING.includes(ended.code ?? 0) ? 503 : 401;
	if (life.isOpen) {
		const errors =
			lasting === 401 ? messagesOf(life.heard, { jsonInBinary: true }).filter(({ text }) => isError(text)) : [];
		return { ...base, status: lasting, saysNo: saysNo(life), names: errors.flatMap(({ text }) => namedQuery(text)) };
	}
	const { 'sec-websocket-accept': accepted, 'sec-websocket-protocol': chosen } = life.headers;
	// The library ends a channel whose service chooses no subprotocol of those offered, or one that was not: it opens with what was chosen.
	if (accepted !== undefined && chosen !== undefined) return { ...base, status: 426, hints: subprotocolHints(chosen) };
	if (accepted !== undefined && hasOffered) return { ...base, status: 101 };
	if (!refusal) {
		const isLate = ['connection-lost', 'handshake-timeout'].includes(failure?.code ?? '');
		if (failure && !isLate && failure.code !== 'channel-rejected') throw asError(failure);
		return { ...base, status: 0, fingerprint: '0', ...(failure && isLate && { unanswered: failure }) };
	}
	const { status, headers, body } = refusal;
	if (isRefusal(status) && status !== 404 && !isWebPage(headers, body)) run.words.push(readErrorWords(body));
	const told = `${headers['location'] ?? ''} ${headers['link'] ?? ''} ${body}`;
	return {
		...base,
		status,
		isPage: isWebPage(headers, body),
		hints: subprotocolHints(headers['sec-websocket-protocol'], body),
		needs: isRefusal(status) ? neededParameters(body) : [],
		names: isRefusal(status) ? namedQuery(body) : [],
		paths: pathsOf(placesIn(run, told)).filter((place) => !url.pathname.endsWith(place)),
		location:
			status >= 300 && status < 400 ? cleanText(headers['location']?.replace(/[?#].*/, '') ?? '', 120) : undefined,
		fingerprint: `${status} ${body.replaceAll(url.pathname, '').slice(0, 500)}`,
		retryAfter: headers['retry-after'],
	};
}
