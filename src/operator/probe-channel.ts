/** One channel of `idv probe`: opens it with any handshake, notes all for the transcript, watches it for a time. */
import { type RawData, WebSocket } from 'ws';
import { asError, type Failure } from '../base/errors.ts';
import type { Transcript } from '../base/transcript.ts';
import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { isWebPage } from '../connection/classify-failure.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import type { Network } from '../connection/network.edge.ts';
import { readRefusal } from '../connection/read-refusal.edge.ts';
import type { Observation } from './probe-decisions.ts';
import { type Handshake, type HandshakeAnswer, subprotocolHints } from './probe-search.ts';

const HANDSHAKE_MS = 15_000;
const MAX_PING_MS = 5000;
const MAX_MESSAGES = 10_000;
const CLOSE_MS = 3000;

export interface WatchPlan {
	readonly heartbeatsAtMs: readonly number[];
	readonly heartbeat: (sequence: number) => string;
	/** When to stop, asked again after each message. */
	readonly untilMs: (seen: Observation) => number;
	/** The answer to a message; `null` for none. */
	readonly answer?: (text: string) => string | null;
}

/** Ends of a channel that are about the service and not about the handshake (RFC 6455 7.4, IANA). */
const PASSING = [1001, 1011, 1012, 1013];
/** No answer to a handshake, because nothing is there that could give one. */
const GONE = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)$/;

/** As the `ws` package says it. */
const isLate = ({ message }: Error) => message === 'Opening handshake has timed out';

export interface Watched {
	/** Resolves at the end of the channel or of the plan. */
	watch(plan: WatchPlan): Promise<Observation>;
	/** Resolves when the channel is closed: a service may let a device have one only. */
	end(): Promise<void>;
}

export type EndedEarly = NonNullable<Observation['ended']>;

export interface Dialled extends HandshakeAnswer {
	/** Of a handshake that no answer came to: the line was cut, or nothing came in time. */
	readonly unanswered?: Failure;
	/** Of a channel that opened, and that the service ended before it counted. */
	readonly endedEarly?: EndedEarly;
	/** Open; `null` when the handshake was refused. */
	readonly channel: Watched | null;
	readonly retryAfter: string | undefined;
}

export interface DialOptions {
	readonly network: Network;
	readonly userAgent: string;
	readonly seconds: number;
	readonly transcript: Transcript;
	/** Ends a handshake or a watch early. */
	readonly signal: AbortSignal;
}

/** @param pings whether the channel pings; one without shows how long it may be silent. */
export async function openWatched(
	{ network, userAgent, seconds, transcript, signal }: DialOptions,
	{ url, authorization }: { readonly url: URL; readonly authorization: string | null },
	{ subprotocols }: Handshake,
	pings: boolean,
): Promise<Dialled> {
	const exchange = transcript.next();
	const offered = subprotocols.join(', ');
	transcript.note({
		kind: 'request',
		exchange,
		method: 'GET',
		path: url.pathname,
		query: Object.fromEntries(url.searchParams),
		headers: {
			upgrade: 'websocket',
			...(authorization !== null && { authorization }),
			...(offered && { 'sec-websocket-protocol': offered }),
		},
		body: '',
	});
	let isRefused = false;
	const refused = (status: number, headers: Readonly<Record<string, string>> = {}, body = ''): Dialled => {
		// A socket that is given up after its answer says so as well.
		if (!isRefused) transcript.note({ kind: 'answer', exchange, status, headers, body });
		isRefused = true;
		const hints = subprotocolHints(headers['sec-websocket-protocol'], body);
		const isPage = isWebPage(headers, body);
		const fingerprint = `${status} ${body.replaceAll(url.pathname, '').slice(0, 500)}`;
		return { status, isPage, hints, subprotocol: null, fingerprint, channel: null, retryAfter: headers['retry-after'] };
	};

	const socket = new WebSocket(url, [...subprotocols], {
		agent: network.channelAgent(url),
		rejectUnauthorized: true,
		headers: { 'User-Agent': userAgent, ...(authorization !== null && { Authorization: authorization }) },
		perMessageDeflate: false,
		followRedirects: false,
		handshakeTimeout: HANDSHAKE_MS,
	});
	let giveUp = () => {};
	const outcome = await new Promise<'open' | Dialled>((resolve, reject) => {
		giveUp = () => {
			reject(signal.reason);
			socket.terminate();
		};
		signal.addEventListener('abort', giveUp);
		socket.once('open', () => {
			// What comes with the upgrade waits until it is listened to.
			socket.pause();
			resolve('open');
		});
		// Whatever it is, a handshake that fails without an answer says nothing about the path.
		socket.on('error', (error: NodeJS.ErrnoException) => {
			const code = error.code ?? '';
			const failure = classifyNetworkError(error, { host: url.host, viaProxy: network.viaProxy(url) });
			if (GONE.test(code)) reject(asError(failure));
			else resolve({ ...refused(0), ...((/^E[A-Z]+$/.test(code) || isLate(error)) && { unanswered: failure }) });
		});
		socket.once('unexpected-response', (_request, response) => {
			const refusal = readRefusal(response, () => {
				const { status, headers, body } = refusal();
				resolve(refused(status, headers, body));
				socket.terminate();
			});
		});
	}).finally(() => signal.removeEventListener('abort', giveUp));
	if (outcome !== 'open') return outcome;
	transcript.note({ kind: 'open', exchange, subprotocol: socket.protocol });

	const openedMs = performance.now();
	const sinceOpen = () => performance.now() - openedMs;
	const sent: number[] = [];
	const messages: { atMs: number; text: string }[] = [];
	const answeredPingsAtMs: number[] = [];
	let isLeaving = false;
	let ended: Observation['ended'] = null;
	let onChange = () => {};
	const seen = (): Observation => ({ heartbeatsAtMs: sent, messages, answeredPingsAtMs, ended });
	const frame = (direction: 'toService' | 'toDevice', kind: 'text' | 'binary' | 'ping' | 'pong', body = '') =>
		transcript.note({ kind: 'frame', exchange, direction, frame: kind, body });
	const say = (text: string) => {
		if (socket.readyState !== WebSocket.OPEN) return;
		frame('toService', 'text', text);
		socket.send(text);
	};
	let answerTo: WatchPlan['answer'];
	socket.on('message', (data: RawData, isBinary) => {
		const bytes = data as Buffer;
		const text = isBinary ? '' : bytes.toString('utf8');
		frame('toDevice', isBinary ? 'binary' : 'text', isBinary ? `[${bytes.length} bytes]` : text);
		if (!isBinary && messages.length < MAX_MESSAGES) messages.push({ atMs: sinceOpen(), text });
		const answer = isBinary ? null : (answerTo?.(text) ?? null);
		if (answer !== null) say(answer);
		onChange();
	});
	socket.on('pong', (payload) => {
		answeredPingsAtMs.push(Number(payload.toString('utf8')));
		frame('toDevice', 'pong');
	});
	socket.on('ping', () => frame('toDevice', 'ping'));
	socket.once('close', (code, reason) => {
		clearInterval(pinging);
		ended = { atMs: sinceOpen(), code: code === 1006 || code === 1005 ? null : code };
		transcript.note({
			kind: 'close',
			exchange,
			direction: isLeaving ? 'toService' : 'toDevice',
			code: ended.code,
			reason: reason.toString('utf8'),
		});
		onChange();
	});
	socket.resume();
	const ping = () => {
		if (socket.readyState !== WebSocket.OPEN) return;
		frame('toService', 'ping');
		// A pong says back what its ping said.
		socket.ping(String(sinceOpen()));
	};
	const pinging = pings ? setInterval(ping, Math.min(MAX_PING_MS, (seconds * 1000) / 8)) : undefined;
	if (pings) ping();

	// A service that ends the channel before has refused it.
	const settleMs = Math.min(COUNTS_AFTER_MS, (seconds * 1000) / 8);
	await new Promise<void>((resolve) => {
		const timer = setTimeout(resolve, settleMs);
		onChange = () => {
			if (ended === null) return;
			clearTimeout(timer);
			resolve();
		};
		onChange();
	});
	onChange = () => {};
	const { protocol } = socket;
	const base = {
		isPage: false,
		hints: [],
		fingerprint: '101',
		subprotocol: protocol === '' ? null : protocol,
		retryAfter: undefined,
	};
	const early = ended as Observation['ended'];
	if (early)
		return { ...base, status: PASSING.includes(early.code ?? 0) ? 503 : 401, channel: null, endedEarly: early };
	return {
		...base,
		status: 101,
		channel: {
			watch(plan) {
				answerTo = plan.answer;
				// What came before the plan was there gets its answer too.
				for (const { text } of messages) {
					const answer = plan.answer?.(text) ?? null;
					if (answer !== null) say(answer);
				}
				return new Promise((resolve) => {
					const beats = plan.heartbeatsAtMs.map((atMs, index) =>
						setTimeout(
							() => {
								if (socket.readyState !== WebSocket.OPEN) return;
								sent.push(sinceOpen());
								say(plan.heartbeat(index + 1));
								if (pings) ping();
							},
							Math.max(0, atMs - sinceOpen()),
						),
					);
					let timer: NodeJS.Timeout | undefined;
					const look = () => {
						clearTimeout(timer);
						signal.removeEventListener('abort', look);
						const leftMs = plan.untilMs(seen()) - sinceOpen();
						if (ended === null && leftMs > 0 && !signal.aborted) {
							timer = setTimeout(look, leftMs);
							signal.addEventListener('abort', look);
							return;
						}
						for (const beat of beats) clearTimeout(beat);
						onChange = () => {};
						resolve(seen());
					};
					onChange = look;
					look();
				});
			},
			async end() {
				isLeaving = true;
				clearInterval(pinging);
				if (ended !== null) return;
				socket.close(1000, '');
				const late = setTimeout(() => socket.terminate(), CLOSE_MS);
				await new Promise<void>((resolve) => {
					onChange = resolve;
				});
				clearTimeout(late);
			},
		},
	};
}
