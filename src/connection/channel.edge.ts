/**
 * One life of the channel `ws/device`, from the upgrade to its end.
 * Opens once and reports; never reconnects, never reads what a frame says, never follows a redirect, never prints a credential.
 */
import type { Agent, IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { type RawData, WebSocket } from 'ws';
import { type Clock, idleClock, SHARED_MS } from '../base/clock.edge.ts';
import { type Failure, failure } from '../base/errors.ts';
import { type Frame, MAX_FRAME_BYTES } from '../protocol/channel.ts';
import { boundHead, HTTP_1 } from './ask.edge.ts';
import { COUNTS_AFTER_MS } from './backoff.ts';
import { secretsOf } from './channel-address.ts';
import { classifyClose, classifyFrameError } from './classify-close.ts';
import { classifyHttpAnswer } from './classify-failure.ts';
import { classifyHandshakeError, fellSilent, lateHandshake } from './classify-network-error.ts';
import { clockSkewMs, readServiceMs } from './clock-skew.ts';
import { type LineEnd, measureSilence } from './line-rhythm.ts';
import { asOwnSide, watchOwnSide } from './own-side.edge.ts';
import { type ReadRefusal, readRefusal } from './read-refusal.edge.ts';

export type { LineEnd };

/** How long a close handshake may take before the connection is cut. */
const CLOSE_MS = 3000;
/** How long a refusal's body is read. */
const DETAIL_MS = 2000;
/** What may wait to be sent before more is refused. */
const MAX_BUFFERED_BYTES = 1024 * 1024;
const KEEP_ALIVE_MS = 60_000;
const MAX_REASON_BYTES = 123;
/** So much of a frame shows that the line moves it. */
const MOVING_BYTES = 1024;
/** A machine that slept longer than this is taken for gone by its service and by the routers on the way. */
export const MAX_SLEEP_MS = 5000;

/** Times in milliseconds. */
export interface ChannelOptions {
	/** `ws:` or `wss:`, with the credential in its query if that is where it goes. */
	readonly url: URL;
	/** Value of the `Authorization` header; `null` when the query carries it. */
	readonly authorization: string | null;
	readonly userAgent: string;
	/** What else no message repeats. */
	readonly secretValues?: readonly string[] | undefined;
	/** Besides those of the handshake. */
	readonly headers?: Readonly<Record<string, string>> | undefined;
	readonly agent?: Agent | undefined;
	/** Host and port of the proxy that `agent` goes through. */
	readonly proxy?: string | null | undefined;
	/** For everything up to the upgrade, however the bytes come. */
	readonly handshakeMs: number;
	/** When an open channel counts, even if the service says nothing. Default 3,000. */
	readonly proveAfterMs?: number | undefined;
	/** Whether nothing that the service says makes it count sooner. */
	readonly provesByAge?: boolean | undefined;
	/** A ping goes out so often, and one at once when the channel opens; 0 for only that one. */
	readonly pingIntervalMs: number;
	/** So long without a byte from the service ends the channel; 0 for a service that answers no ping. */
	readonly silenceLimitMs: number;
	/** How long the service may take to answer a goodbye. Default 3,000. */
	readonly closeMs?: number | undefined;
	/**
	 * How long the machine has slept in all, reckoned from any moment. Asked when a timer of the channel comes due: a channel
	 * that slept for more than 5 s is ended, since its silence would be noticed only two pings later. Default: never slept.
	 */
	readonly sleptMs?: (() => number) | undefined;
	/** The subprotocol to ask for; left out, none. */
	readonly subprotocol?: string | undefined;
	/** Largest message that is handed on; of a larger one only the size is. Default {@link MAX_FRAME_BYTES}. */
	readonly maxMessageBytes?: number | undefined;
	/** Name of the query parameter that carries the credential, so that no message repeats it. */
	readonly queryName?: string | undefined;
	/** Only to name it when the service does not know it. */
	readonly workflowId?: string | undefined;
	/** Default the machine's. */
	readonly clock?: Pick<Clock, 'monotonicMs' | 'wallMs' | 'schedule' | 'soon'> | undefined;
	/** Makes the socket; default that of `ws`. */
	readonly createSocket?: ((...made: ConstructorParameters<typeof WebSocket>) => WebSocket) | undefined;
}

/** `opened` and `confirmed` come at most once, `ended` exactly once and last. */
export type ChannelEvent =
	/** The upgrade was accepted. The skew is how far this device's clock is ahead of the service's. */
	| {
			readonly type: 'opened';
			readonly clockSkewMs: number | null;
			/** The `Date` of the upgrade, milliseconds since 1970. */
			readonly serviceMs?: number | undefined;
			readonly localAddress: string | null;
			readonly headers?: IncomingHttpHeaders | undefined;
	  }
	/** The service has said something, or has kept the channel open for a while: some accept and then close. */
	| { readonly type: 'confirmed' }
	/** A ping was answered. */
	| { readonly type: 'answered' }
	| { readonly type: 'frame'; readonly frame: Frame }
	| {
			readonly type: 'ended';
			readonly failure: Failure;
			/** The code that the service sent; `null` when it sent none, or when this side ended the channel. */
			readonly closeCode: number | null;
			/** Whether the handshake ran into its deadline. */
			readonly timedOut: boolean;
			/** What its line was like; `null` for a channel that was never open. */
			readonly line: LineEnd | null;
			/** Of a 101 that was not what was asked for: the service has taken the credential all the same. */
			readonly headers?: IncomingHttpHeaders | undefined;
	  };

export interface Channel {
	/** `false`, and nothing sent, when the channel is not open or more than 1 MiB would wait to be sent. */
	sendText(text: string): boolean;
	/** Says goodbye; the connection is cut if the service has not answered after `closeMs`. Frames still come until then. */
	close(code: number, reason: string): void;
	/** Cuts the connection; no frame comes any more. @param because default: it was closed by the agent. */
	terminate(because?: Failure): void;
	/** Bytes that wait to be sent. */
	readonly bufferedAmount: number;
}

/** Opens the channel. Every outcome arrives as an event, after the call has returned. */
export function openChannel(options: ChannelOptions, listener: (event: ChannelEvent) => void): Channel {
	const { url, handshakeMs, proveAfterMs = COUNTS_AFTER_MS, clock = idleClock } = options;
	const { sleptMs = () => 0 } = options;
	const pingIntervalMs = options.pingIntervalMs || Number.POSITIVE_INFINITY;
	const silenceLimitMs = options.silenceLimitMs || Number.POSITIVE_INFINITY;
	const context = { host: url.host, proxy: options.proxy };
	const params = { host: url.host };
	const secrets = secretsOf(options);

	let phase: 'connecting' | 'refused' | 'open' | 'cut' | 'ended' = 'connecting';
	let verdict: { failure: Failure; timedOut: boolean } | null = null;
	let lastError: Error | null = null;
	let hasAnswered = false;
	let refusal: ReadRefusal | null = null;
	let told: Partial<ChannelEvent & { type: 'opened' }> = {};
	let connection: Socket | null = null;
	let confirmed = false;

	const isOpen = () => phase === 'open';
	let cancelCheck = () => {};
	let deadlineMs = clock.monotonicMs() + handshakeMs;
	let confirmAtMs = 0;
	let pingAtMs = 0;
	let pingsWithFrames = pingIntervalMs <= SHARED_MS || pingIntervalMs === Number.POSITIVE_INFINITY;
	let [heardAtMs, frameAtMs] = [0, 0];
	let [heardBytes, sleptBeforeMs] = [0, 0];
	let silence: ReturnType<typeof measureSilence> | null = null;
	let lostOwnSide = (): Failure | null => null;

	const socket = connect();
	if (!socket) return { sendText: () => false, close() {}, terminate() {}, bufferedAmount: 0 };

	socket.on('upgrade', (response) => {
		const { headers } = response;
		told = { clockSkewMs: clockSkewMs(headers.date, clock.wallMs()), serviceMs: readServiceMs(headers.date), headers };
	});
	socket.on('open', () => {
		const nowMs = clock.monotonicMs();
		phase = 'open';
		sleptBeforeMs = sleptMs();
		confirmAtMs = nowMs + proveAfterMs;
		pingAtMs = nowMs + pingIntervalMs;
		silence = measureSilence(nowMs);
		heard();
		// Before the listener, which may end the channel at once.
		ping();
		listener({ type: 'opened', clockSkewMs: null, ...told, localAddress: connection?.localAddress ?? null });
		schedule();
	});
	socket.on('ping', heard);
	socket.on('pong', () => {
		heard();
		hasAnswered = true;
		lostOwnSide = watchOwnSide(url.host, connection?.localAddress);
		confirm();
		if (isOpen()) listener({ type: 'answered' });
	});
	socket.on('message', (data: RawData, isBinary) => {
		if (phase !== 'open') return;
		heard();
		confirm();
		const bytes = data as Buffer;
		const frame = asFrame(bytes, isBinary);
		if (isOpen()) listener({ type: 'frame', frame });
	});
	socket.on('unexpected-response', (_request, response) => {
		phase = 'refused';
		deadlineMs = Math.min(deadlineMs, clock.monotonicMs() + DETAIL_MS);
		refusal = readRefusal(response, () => socket.terminate());
		schedule();
	});
	socket.on('error', (error) => {
		lastError ??= error;
	});
	socket.on('close', (code, reason) => end(code, reason.toString('utf8')));
	schedule();

	return {
		sendText(text) {
			const bytes = Buffer.byteLength(text);
			if (socket.readyState !== WebSocket.OPEN || socket.bufferedAmount + bytes > MAX_BUFFERED_BYTES) return false;
			const nowMs = clock.monotonicMs();
			silence?.moved('out', nowMs);
			socket.send(text);
			if (pingsWithFrames) return true;
			// From the first heartbeat on pings are due a moment before the next ones: both share a wakeup (`base/clock.edge.ts`).
			pingsWithFrames = true;
			ping();
			pingAtMs = nowMs + pingIntervalMs - SHARED_MS;
			schedule();
			return true;
		},
		close(code, reason) {
			if (phase === 'connecting' || phase === 'refused') cut(closedHere());
			if (socket.readyState !== WebSocket.OPEN) return;
			verdict = { failure: closedHere(), timedOut: false };
			socket.close(code, Buffer.byteLength(reason) <= MAX_REASON_BYTES ? reason : '');
		},
		terminate: (because = closedHere()) => cut(because),
		get bufferedAmount() {
			return socket.bufferedAmount;
		},
	};

	function connect(): WebSocket | null {
		try {
			const { createSocket = (...made) => new WebSocket(...made), subprotocol } = options;
			return createSocket(url, subprotocol === undefined ? [] : [subprotocol], {
				agent: options.agent,
				// Named, because an environment variable of Node's can switch verification off.
				rejectUnauthorized: true,
				headers: {
					...options.headers,
					'User-Agent': options.userAgent,
					...(options.authorization !== null && { Authorization: options.authorization }),
				},
				perMessageDeflate: false,
				maxPayload: MAX_FRAME_BYTES,
				followRedirects: false,
				// Between two bytes only; the deadline for the whole handshake is ours.
				handshakeTimeout: handshakeMs,
				...{ closeTimeout: options.closeMs ?? CLOSE_MS, ...HTTP_1 },
				finishRequest(request) {
					boundHead(request).once('socket', (opened) => {
						connection = opened;
						opened.setKeepAlive(true, KEEP_ALIVE_MS);
					});
					request.end();
				},
			});
		} catch (error) {
			lastError = error as Error;
			queueMicrotask(() => end(1006, ''));
			return null;
		}
	}

	function asFrame(bytes: Buffer, isBinary: boolean): Frame {
		const { maxMessageBytes = MAX_FRAME_BYTES } = options;
		if (bytes.length > maxMessageBytes) return { type: 'oversized', bytes: bytes.length, limitBytes: maxMessageBytes };
		return isBinary ? { type: 'binary', bytes } : { type: 'text', text: bytes.toString('utf8') };
	}

	/** A whole frame has come. */
	function heard(): void {
		frameAtMs = clock.monotonicMs();
		moved();
	}

	function moved(): void {
		heardAtMs = clock.monotonicMs();
		heardBytes = connection?.bytesRead ?? 0;
		silence?.moved('in', heardAtMs);
	}

	function ping(): void {
		silence?.moved('out', clock.monotonicMs());
		socket?.ping();
	}

	function confirm(isOfAge = false): void {
		if (confirmed || phase !== 'open' || (options.provesByAge && !isOfAge)) return;
		confirmed = true;
		listener({ type: 'confirmed' });
	}

	function cut(because: Failure, timedOut = false): void {
		if (phase === 'ended' || phase === 'cut') return;
		verdict ??= { failure: because, timedOut };
		phase = 'cut';
		cancelCheck();
		socket?.terminate();
	}

	function closedHere(): Failure {
		return failure('connection-lost', `The channel to ${context.host} was closed by the agent.`, { params });
	}

	/** One timer for whatever is due next. An inbound frame only moves its own mark, so a busy channel costs no timers. */
	function schedule(): void {
		cancelCheck();
		if (phase === 'cut' || phase === 'ended') return;
		const dueMs = phase === 'open' ? nextDueMs() : deadlineMs;
		const delayMs = Math.ceil(dueMs - clock.monotonicMs());
		// Looked at only after the sockets: when this process has been stalled, what came in meanwhile counts.
		cancelCheck = clock.schedule(delayMs, () => {
			cancelCheck = clock.soon(check);
		});
	}

	function nextDueMs(): number {
		return Math.min(pingAtMs, confirmed ? Number.POSITIVE_INFINITY : confirmAtMs, heardAtMs + silenceLimitMs);
	}

	function check(): void {
		const nowMs = clock.monotonicMs();
		if (phase === 'refused' && nowMs >= deadlineMs) socket?.terminate();
		else if (phase === 'connecting' && nowMs >= deadlineMs) {
			const late = handshakeTimedOut();
			cut(late.failure, late.timedOut);
		} else if (phase === 'open') checkOpen(nowMs);
		schedule();
	}

	function checkOpen(nowMs: number): void {
		const asleepMs = sleptMs() - sleptBeforeMs;
		if (asleepMs > MAX_SLEEP_MS) {
			const slept = `This device slept for ${Math.round(asleepMs / 1000)} s`;
			cut(failure('connection-lost', `${slept}; its channel to ${context.host} is opened again.`, { params }));
			return;
		}
		// A large frame on a slow line is a sign of life before it is complete; one byte now and then is none.
		if (connection && connection.bytesRead - heardBytes >= MOVING_BYTES) moved();
		if (nowMs - heardAtMs >= silenceLimitMs) {
			const seconds = Math.round(silenceLimitMs / 1000);
			cut(lostOwnSide() ?? asOwnSide(fellSilent({ ...context, seconds, hasAnswered }), context));
			return;
		}
		if (!confirmed && nowMs >= confirmAtMs) confirm(true);
		if (phase !== 'open' || nowMs < pingAtMs) return;
		// From the deadline that was missed: after a stall one ping, not a burst.
		pingAtMs += pingIntervalMs * (Math.floor((nowMs - pingAtMs) / pingIntervalMs) + 1);
		if (socket?.readyState === WebSocket.OPEN && socket.bufferedAmount <= MAX_BUFFERED_BYTES) ping();
	}

	function handshakeTimedOut() {
		const { connecting, authorized } = (connection ?? {}) as Partial<TLSSocket>;
		const seconds = Math.round(handshakeMs / 1000);
		return lateHandshake({ ...context, seconds, stands: connecting === false, isInTls: authorized === false });
	}

	function end(code: number, reason: string): void {
		if (phase === 'ended') return;
		const last = { ...outcome(code, reason), headers: silence ? undefined : told.headers };
		phase = 'ended';
		cancelCheck();
		listener({ type: 'ended', ...last, failure: asOwnSide(last.failure, context), line: lineEnd(code) });
	}

	function lineEnd(code: number): LineEnd | null {
		if (!silence) return null;
		const nowMs = clock.monotonicMs();
		if (connection && connection.bytesRead !== heardBytes) moved();
		// 1006 did not come from the service: `ws` reports it when there was no close frame.
		const saidGoodbye = code !== 1006;
		const withoutCloseFrame = !saidGoodbye && verdict === null;
		const isDead = verdict?.failure.code === 'channel-silent';
		const death = isDead ? { deadAfterMs: silence.deadAfterMs() } : {};
		return {
			...silence.end(nowMs),
			...death,
			sinceFrameMs: nowMs - frameAtMs,
			withoutCloseFrame,
			saidGoodbye,
			sleptMs: sleptMs() - sleptBeforeMs,
		};
	}

	function outcome(code: number, reason: string): { failure: Failure; closeCode: number | null; timedOut: boolean } {
		if (verdict) return { ...verdict, closeCode: null };
		if (refusal) {
			const { workflowId } = options;
			const asked = { purpose: 'channel', host: url.host, path: url.pathname, workflowId, secrets } as const;
			const answer = { ...refusal(), ...asked, secure: url.protocol === 'wss:', wallMs: clock.wallMs() };
			return { failure: classifyHttpAnswer(answer), closeCode: null, timedOut: false };
		}
		if (phase === 'connecting') {
			if (lastError?.message === 'Opening handshake has timed out') return { ...handshakeTimedOut(), closeCode: null };
			return { failure: classifyHandshakeError(lastError, context), closeCode: null, timedOut: false };
		}
		const badFrame = classifyFrameError(lastError, context);
		if (badFrame) return { failure: badFrame, closeCode: null, timedOut: false };
		const closeCode = code === 1005 || code === 1006 ? null : code;
		return { failure: classifyClose({ code, reason, ...context, secrets }), closeCode, timedOut: false };
	}
}
