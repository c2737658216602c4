/**
 * The service over HTTP: registers the device, looks whether the service can be reached, and sends single requests.
 * Tries once with a deadline and reports; never retries, never follows a redirect, never keeps or prints a credential.
 */
import type { Dispatcher } from 'undici';
import { asError, type Failure, failure } from '../base/errors.ts';
import { type Authorization, formatAuthorization } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { cleanText } from '../protocol/problem.ts';
import { type AnswerText, readAnswerTexts, tokenIn } from '../protocol/registration-answer.ts';
import { readTokenLife, type TokenLife } from '../protocol/token-life.ts';
import { readWorkflowChoices, type WorkflowChoice } from '../protocol/workflow-choices.ts';
import { classifyHttpAnswer, isWebPage } from './classify-failure.ts';
import { classifyNetworkError } from './classify-network-error.ts';
import { clockSkewMs } from './clock-skew.ts';
import type { Network } from './network.edge.ts';

/** Largest answer that is taken from the registration endpoint, in bytes, as sent and once unpacked. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Longest silence before and inside an answer; the deadline ends an answer that drips. */
const IDLE_MS = 15_000;
/** How long the body of a refusal is waited for: the status has already decided. */
const DETAIL_MS = 3000;
const REGISTER_DEADLINE_MS = 30_000;
const PREFLIGHT_DEADLINE_MS = 10_000;
const UNPACKED_REMEDY = 'Ask the operator why the service packs an answer that this device did not ask to be packed.';

/** The part of the network that requests need. */
export type RequestNetwork = Pick<Network, 'dispatcher' | 'viaProxy'>;

export interface RegisterRequest {
	/** In its normal form (`normalizeBaseUrl`). */
	readonly baseUrl: string;
	/** `null` for self-registration. */
	readonly authorization: Authorization | null;
	/** Without a workflow for a code that names none: the refusal may list those to choose from. */
	readonly request: Omit<DeviceConnectionRequest, 'workflowId'> & { readonly workflowId?: string | undefined };
	/** Place of the token in the answer, as `service.tokenPointer` names it. */
	readonly tokenPointer?: string | null | undefined;
	/** For the whole attempt, in milliseconds. Default 30,000. */
	readonly deadlineMs?: number | undefined;
	readonly signal?: AbortSignal | undefined;
}

/**
 * `sent` says whether a one-time code may be used up. `no`: the request never left, or a proxy kept it. `answered`: the
 * service refused it. `perhaps`: anything else, such as a lost or garbled answer or a 5xx.
 */
export type RegisterResult =
	| {
			readonly ok: true;
			/** The Connection token: a secret. */
			readonly token: string;
			readonly life: TokenLife | null;
			/** As the answer repeats it; `null` where it does not. */
			readonly workflowId: string | null;
			/** How far this device's clock is ahead of the service's; negative when slow. */
			readonly clockSkewMs: number | null;
	  }
	| {
			readonly ok: false;
			readonly failure: Failure;
			readonly sent: 'no' | 'perhaps' | 'answered';
			readonly clockSkewMs: number | null;
			/** What a successful answer held in which no Connection token could be found: may hold secrets. */
			readonly unread?: readonly AnswerText[] | undefined;
			/** What the refusal lists to choose from. */
			readonly workflows?: readonly WorkflowChoice[] | undefined;
	  };

export interface Preflight {
	/** `null` when the service can be reached. */
	readonly failure: Failure | null;
	readonly clockSkewMs: number | null;
}

export interface ServiceRequest {
	readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
	readonly url: URL;
	readonly authorization: Authorization | null;
	/** Sent as JSON; left out, there is no body. */
	readonly body?: unknown;
	/** In place of `body`, sent as it is under the same content type: for a request that must not be understood. */
	readonly rawBody?: string | undefined;
	/** Default `application/json`. */
	readonly accept?: string | undefined;
	/** For the whole request, in milliseconds. */
	readonly deadlineMs: number;
	/** Largest body that is taken from a successful answer; of any other, so much is read and the rest dropped. */
	readonly maxBytes: number;
}

export interface ServiceAnswer {
	readonly status: number;
	/** Names in lower case. */
	readonly headers: Readonly<Record<string, string>>;
	readonly body: Uint8Array;
}

export interface ServiceClient {
	/** Source: service-interface, Endpoints 2. Never throws. */
	registerDevice(registration: RegisterRequest): Promise<RegisterResult>;
	/**
	 * Name, connection, TLS and proxy, by a HEAD request to the base URL without a credential: any answer of the service
	 * will do. Never throws. `deadlineMs` default 10,000.
	 */
	preflight(baseUrl: string, deadlineMs?: number): Promise<Preflight>;
	/**
	 * One request, whatever the status of its answer.
	 * @throws AgentError when there is no answer, or a successful one that is cut off or larger than `maxBytes`.
	 */
	send(request: ServiceRequest): Promise<ServiceAnswer>;
}

/** @param userAgent value of the `User-Agent` header. */
export function createServiceClient(parts: { network: RequestNetwork; userAgent: string }): ServiceClient {
	const { network, userAgent } = parts;
	const attempt = (request: Omit<Request, 'headers'> & { headers?: Record<string, string> }) =>
		exchange(network, { ...request, headers: { 'user-agent': userAgent, ...request.headers } });

	return {
		async registerDevice(registration) {
			const { baseUrl, authorization, tokenPointer, signal } = registration;
			const url = endpointUrl(baseUrl, ENDPOINTS.deviceConnection);
			const exchanged = await attempt({
				method: 'POST',
				url,
				headers: requestHeaders(authorization, 'application/json', true),
				body: JSON.stringify(registration.request),
				deadlineMs: registration.deadlineMs ?? REGISTER_DEADLINE_MS,
				maxBytes: MAX_ANSWER_BYTES,
				signal,
			});
			if (exchanged.kind === 'failed')
				return {
					ok: false,
					failure: exchanged.failure,
					sent: exchanged.written ? 'perhaps' : 'no',
					clockSkewMs: null,
				};
			const { status, headers, bytes, cut } = exchanged;
			const skewMs = clockSkewMs(headers['date'], Date.now());
			const body = asText(bytes);
			const workflows = status >= 400 && status < 500 ? readWorkflowChoices(body) : [];
			const refused = (reason: Failure, unread?: readonly AnswerText[]): RegisterResult => ({
				ok: false,
				failure: reason,
				sent: spentBy(status),
				clockSkewMs: skewMs,
				...(unread?.length && { unread }),
				...(workflows.length && { workflows }),
			});
			const succeeded = status >= 200 && status < 300;
			if (succeeded && cut) return refused(cut);
			const texts = succeeded && !isWebPage(headers, body) ? readAnswerTexts({ body, headers }) : [];
			const token = tokenIn(texts, tokenPointer);
			const workflowId = texts.find(({ place }) => place === '/workflowId')?.text ?? null;
			if (token !== null) return { ok: true, token, life: readTokenLife(token), workflowId, clockSkewMs: skewMs };
			return refused(
				classifyHttpAnswer({
					status,
					headers,
					body,
					purpose: 'register',
					host: url.host,
					scheme: authorization?.scheme,
					workflowId: registration.request.workflowId,
					secrets: secretsOf(authorization),
					tokenPointer,
				}),
				texts,
			);
		},

		async preflight(baseUrl, deadlineMs = PREFLIGHT_DEADLINE_MS) {
			const url = new URL(baseUrl);
			const exchanged = await attempt({ method: 'HEAD', url, deadlineMs, maxBytes: 0 });
			if (exchanged.kind === 'failed') return { failure: exchanged.failure, clockSkewMs: null };
			const { status, headers } = exchanged;
			const verdict = classifyHttpAnswer({ status, headers, body: '', purpose: 'other', host: url.host });
			// Under TLS that was verified even a redirect is the service's own; in plain text it may be a portal's.
			const inTheWay =
				status === 407 || status === 511 || (url.protocol === 'http:' && verdict.code === 'captive-portal');
			return { failure: inTheWay ? verdict : null, clockSkewMs: clockSkewMs(headers['date'], Date.now()) };
		},

		async send(request) {
			const { method, url, authorization, accept = 'application/json', deadlineMs, maxBytes } = request;
			const body = request.rawBody ?? (request.body === undefined ? undefined : JSON.stringify(request.body));
			const headers = requestHeaders(authorization, accept, body !== undefined);
			const exchanged = await attempt({ method, url, headers, body, deadlineMs, maxBytes });
			if (exchanged.kind === 'failed') throw asError(exchanged.failure);
			const { status, bytes, cut } = exchanged;
			if (cut && status >= 200 && status < 300) throw asError(cut);
			return { status, headers: exchanged.headers, body: bytes };
		},
	};
}

/** Whether a one-time code may be used up after an answer with this status. */
function spentBy(status: number): 'no' | 'perhaps' | 'answered' {
	if (status === 407) return 'no';
	// 408: the service did not see the request end. 303: it did what was asked and shows the result elsewhere.
	if (status === 408 || status === 303) return 'perhaps';
	return status >= 300 && status < 500 ? 'answered' : 'perhaps';
}

function requestHeaders(authorization: Authorization | null, accept: string, hasBody: boolean): Record<string, string> {
	return {
		accept,
		...(authorization && { authorization: formatAuthorization(authorization) }),
		...(hasBody && { 'content-type': 'application/json' }),
	};
}

function secretsOf(authorization: Authorization | null): string[] {
	if (!authorization) return [];
	const sent = formatAuthorization(authorization).slice(authorization.scheme.length + 1);
	return authorization.scheme === 'Basic' ? [sent, authorization.password] : [sent];
}

interface Request {
	readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
	readonly url: URL;
	readonly headers: Readonly<Record<string, string>>;
	readonly body?: string | undefined;
	readonly deadlineMs: number;
	readonly maxBytes: number;
	readonly signal?: AbortSignal | undefined;
}

type Exchange =
	/** No answer. `written`: the request, or a part of it, was handed to the connection. */
	| { readonly kind: 'failed'; readonly failure: Failure; readonly written: boolean }
	| {
			readonly kind: 'answered';
			readonly status: number;
			readonly headers: Readonly<Record<string, string>>;
			readonly bytes: Uint8Array;
			/** Why the body is not whole. */
			readonly cut: Failure | null;
	  };

async function exchange(network: RequestNetwork, request: Request): Promise<Exchange> {
	const { url, method, headers, body, deadlineMs, maxBytes } = request;
	const context = { host: url.host, viaProxy: network.viaProxy(url) };
	const enough = new AbortController();
	const ends = [AbortSignal.timeout(deadlineMs), enough.signal, ...(request.signal ? [request.signal] : [])];
	const signal = AbortSignal.any(ends);
	let written = false;
	let answer: Dispatcher.ResponseData;
	try {
		const dispatcher = (await network.dispatcher()).compose(
			(dispatch) => (options, handler) =>
				dispatch(
					options,
					noting(handler, () => {
						written = true;
					}),
				),
		);
		const answering = dispatcher.request({
			origin: url.origin,
			path: `${url.pathname}${url.search}`,
			method,
			headers,
			body: body ?? null,
			reset: true,
			headersTimeout: IDLE_MS,
			bodyTimeout: IDLE_MS,
			signal,
		});
		// undici ends a request that still waits for its connection only when the connection is there.
		answer = await Promise.race([answering, aborted(signal)]);
	} catch (error) {
		return { kind: 'failed', ...asFailure(error, written, context) };
	}

	const succeeded = answer.statusCode >= 200 && answer.statusCode < 300;
	const detailTimer = succeeded ? undefined : setTimeout(() => enough.abort(), DETAIL_MS);
	const answerHeaders = flat(answer.headers);
	const { bytes, cut } = await readBody(answer.body, maxBytes, context);
	clearTimeout(detailTimer);
	enough.abort();
	const unpacked = unpack(bytes, answerHeaders['content-encoding'], maxBytes, context.host);
	return {
		kind: 'answered',
		status: answer.statusCode,
		headers: answerHeaders,
		bytes: unpacked.bytes,
		cut: cut ?? unpacked.cut,
	};
}

function asFailure(
	error: unknown,
	written: boolean,
	context: { host: string; viaProxy: boolean },
): { failure: Failure; written: boolean } {
	const found = classifyNetworkError(error, context);
	// What ran into the deadline unwritten was still on its way to a connection.
	if (written || found.code !== 'request-timeout') return { failure: found, written };
	const params = { host: context.host };
	const reason = context.viaProxy
		? failure('proxy-failed', `The proxy gave no connection to ${context.host} in time.`, { params })
		: failure('connect-timeout', `${context.host} did not accept a connection in time.`, { params });
	return { failure: reason, written };
}

/** Rejects with the signal's reason. */
function aborted(signal: AbortSignal): Promise<never> {
	return new Promise((_, reject) => {
		if (signal.aborted) reject(signal.reason);
		signal.addEventListener('abort', () => reject(signal.reason), { once: true });
	});
}

/** The same handler, which tells as well when its request is about to be written. */
function noting(handler: Dispatcher.DispatchHandler, onWrite: () => void): Dispatcher.DispatchHandler {
	return {
		onRequestStart(controller, context) {
			handler.onRequestStart?.(controller, context);
			// The request ends here, unwritten, if it was given up while it waited for its connection.
			if (!controller.aborted) onWrite();
		},
		onRequestUpgrade: (...event) => handler.onRequestUpgrade?.(...event),
		onResponseStart: (...event) => handler.onResponseStart?.(...event),
		onResponseData: (...event) => handler.onResponseData?.(...event),
		onResponseEnd: (...event) => handler.onResponseEnd?.(...event),
		onResponseError: (...event) => handler.onResponseError?.(...event),
	};
}

async function readBody(
	body: AsyncIterable<Uint8Array>,
	maxBytes: number,
	context: { host: string; viaProxy: boolean },
): Promise<{ bytes: Uint8Array; cut: Failure | null }> {
	const chunks: Uint8Array[] = [];
	let size = 0;
	let cut: Failure | null = null;
	try {
		for await (const chunk of body) {
			chunks.push(chunk.subarray(0, maxBytes - size));
			size += chunk.length;
			if (size <= maxBytes) continue;
			cut = failure('response-too-large', `The answer of ${context.host} is larger than ${maxBytes} bytes.`, {
				params: { host: context.host, maxBytes },
			});
			break;
		}
	} catch (error) {
		cut = classifyNetworkError(error, context);
	}
	return { bytes: Buffer.concat(chunks), cut };
}

/** A body that came packed although nothing asked for it; at most `maxBytes` of it. */
function unpack(
	bytes: Uint8Array,
	encoding: string | undefined,
	maxBytes: number,
	host: string,
): { bytes: Uint8Array; cut: Failure | null } {
	const coding = encoding?.trim().toLowerCase() ?? '';
	if (coding === '' || coding === 'identity' || bytes.length === 0) return { bytes, cut: null };
	const zlib = process.getBuiltinModule('node:zlib');
	const unpackers: Record<string, (packed: Uint8Array, options: { maxOutputLength: number }) => Uint8Array> = {
		gzip: zlib.gunzipSync,
		'x-gzip': zlib.gunzipSync,
		deflate: zlib.inflateSync,
		br: zlib.brotliDecompressSync,
		zstd: zlib.zstdDecompressSync,
	};
	const known = unpackers[coding];
	try {
		if (known) return { bytes: known(bytes, { maxOutputLength: Math.max(1, maxBytes) }), cut: null };
	} catch (error) {
		if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE')
			return { bytes, cut: failure('response-too-large', `The answer of ${host} is larger than ${maxBytes} bytes.`) };
	}
	const message = `${host} sent an answer with the Content-Encoding "${cleanText(coding, 40)}" that could not be unpacked.`;
	return { bytes, cut: failure('bad-response', message, { remedy: UNPACKED_REMEDY }) };
}

/** Text in the encoding that its byte order mark names; UTF-8 without one. */
function asText(bytes: Uint8Array): string {
	const [first, second] = bytes;
	const encoding =
		first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : 'utf-8';
	return new TextDecoder(encoding).decode(bytes);
}

function flat(headers: Record<string, string | string[] | undefined>): Record<string, string> {
	const lines: Record<string, string> = {};
	for (const [name, value] of Object.entries(headers))
		if (value !== undefined) lines[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
	return lines;
}
