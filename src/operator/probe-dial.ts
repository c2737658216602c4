/** One handshake of `idv probe`, and what its answer tells. */
import { asError, type Failure } from '../base/errors.ts';
import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { isWebPage } from '../connection/classify-failure.ts';
import { formatAuthorization } from '../protocol/authorization.ts';
import { channelUrl } from '../protocol/endpoints.ts';
import { fillPath } from '../protocol/templates.ts';
import { nextTokens, type TokenPlace } from './probe-readings.ts';
import { channelPlaces, type Handshake, type HandshakeAnswer, subprotocolHints } from './probe-search.ts';
import type { Run } from './probe-state.ts';
import { type Life, openNoted } from './probe-wire.ts';

const HANDSHAKE_MS = 15_000;
/** Ends of a channel that are about the service and not about the handshake (RFC 6455 7.4, IANA). */
export const PASSING = [1001, 1011, 1012, 1013];

export const asked = ({ target, request }: Run) => ({ baseUrl: target.baseUrl, ...request });

export interface Dialled extends HandshakeAnswer {
	readonly life: Life;
	/** Of a handshake that no answer came to: the line was cut, or nothing came in time. */
	readonly unanswered?: Failure;
	readonly retryAfter: string | undefined;
}

/** One handshake. A channel that stays open for a moment counts, and is closed again: a service may let a device have one only. */
export async function dial(run: Run, way: Handshake, places: readonly TokenPlace[]): Promise<Dialled> {
	const { network, seconds, signal, transcript } = run;
	const token = way.candidate === 0 ? run.token : (places[way.candidate]?.token ?? '');
	const full = formatAuthorization({ scheme: 'Connection', credential: token });
	const query = new URLSearchParams(way.inQuery.map(({ name, form }) => [name, form === 'token' ? token : full]));
	const url = channelUrl(
		run.target.baseUrl,
		fillPath(way.path, run.request),
		way.inQuery.length > 0 ? query : undefined,
	);
	const life = await new Promise<Life>((resolve, reject) => {
		const opened = openNoted(
			{
				...{
					url,
					authorization: way.inHeader ? full : null,
					agent: network.channelAgent(url),
					viaProxy: network.viaProxy(url),
				},
				...{ userAgent: `idv/${run.version}`, handshakeMs: HANDSHAKE_MS, pingIntervalMs: 0, silenceLimitMs: 0 },
				...{ provesByAge: true, proveAfterMs: Math.min(COUNTS_AFTER_MS, (seconds * 1000) / 8) },
			},
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
		const giveUp = () => opened.channel.terminate();
		signal.addEventListener('abort', giveUp);
	});
	if (life.isOpen) run.offered = nextTokens(life).filter((next) => next.token !== run.token);
	if (life.isOpen && run.nextConnection !== null)
		run.token = nextTokens(life).find(({ pointer }) => pointer === run.nextConnection)?.token ?? run.token;
	return { ...answerOf(run, life, url), life };
}

function answerOf(run: Run, life: Life, url: URL): Omit<Dialled, 'life'> {
	const { refusal, ended, failure } = life;
	const base = { isPage: false, hints: [], fingerprint: '101', subprotocol: life.subprotocol, retryAfter: undefined };
	if (life.isOpen) return { ...base, status: ended === null ? 101 : PASSING.includes(ended.code ?? 0) ? 503 : 401 };
	if (!refusal) {
		const isLate =
			failure?.code === 'connection-lost' ||
			failure?.code === 'handshake-timeout' ||
			failure?.code === 'channel-rejected';
		if (failure && !isLate) throw asError(failure);
		return {
			...base,
			status: 0,
			fingerprint: '0',
			...(failure && failure.code !== 'channel-rejected' && { unanswered: failure }),
		};
	}
	const { status, headers, body } = refusal;
	const told = `${headers['location'] ?? ''} ${headers['link'] ?? ''} ${body}`;
	return {
		status,
		isPage: isWebPage(headers, body),
		hints: subprotocolHints(headers['sec-websocket-protocol'], body),
		subprotocol: null,
		paths: channelPlaces(told, asked(run))
			.map(({ place }) => place)
			.filter((place) => !url.pathname.endsWith(place)),
		fingerprint: `${status} ${body.replaceAll(url.pathname, '').slice(0, 500)}`,
		retryAfter: headers['retry-after'],
	};
}
