/** The service over HTTP, each request once, with a deadline. Never follows a redirect or prints a credential. */
import { systemClock } from '../base/clock.edge.ts';
import { asError, type Failure } from '../base/errors.ts';
import { type Authorization, formatAuthorization, secretsOf } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { ENDPOINTS, placeUnder } from '../protocol/endpoints.ts';
import {
	type AnswerText,
	looksLikeToken,
	readAnswerTexts,
	tokenIn,
	withoutSent,
} from '../protocol/registration-answer.ts';
import { fillPath } from '../protocol/templates.ts';
import { readTokenLife, type TokenLife } from '../protocol/token-life.ts';
import { readWorkflowChoices, type WorkflowChoice } from '../protocol/workflow-choices.ts';
import type { RequestNetwork } from './ask.edge.ts';
import { classifyHttpAnswer, fateIn, isWebPage } from './classify-failure.ts';
import { clockSkewMs, readServiceMs } from './clock-skew.ts';
import { type CodeWorth, worthAfter } from './code-fate.ts';
import { type ExchangeRequest, exchangeOverNetwork } from './exchange.edge.ts';
import { refusalIn } from './unread-answer.ts';

/** Largest answer that is taken from the registration endpoint, in bytes, as sent and once unpacked. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
const REGISTER_DEADLINE_MS = 30_000;
const PREFLIGHT_DEADLINE_MS = 10_000;

export interface ServiceClientParts {
	readonly network: RequestNetwork;
	readonly userAgent: string;
	readonly wallMs?: () => number;
	/** Headers of every request to a service. Default: none. */
	readonly headersFor?: (baseUrl: string) => Readonly<Record<string, string>>;
	/** What else no message repeats. Default: none. */
	readonly secretValues?: readonly string[];
	readonly exchange?: typeof exchangeOverNetwork;
}

export interface RegisterRequest {
	/** In its normal form (`normalizeBaseUrl`). */
	readonly baseUrl: string;
	/** `null` for self-registration. */
	readonly authorization: Authorization | null;
	/** Without a workflow for a code that names none: the refusal may list those to choose from. */
	readonly request: Omit<DeviceConnectionRequest, 'workflowId'> & { readonly workflowId?: string | undefined };
	/** Place of the token in the answer, as `service.tokenPointer` names it. */
	readonly tokenPointer?: string | null | undefined;
	/** As `service.registrationPath` has it; default the published one. */
	readonly registrationPath?: string | undefined;
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
			/** As a refusal, what an answer says that has a token and says no, or not yet: it is told where no channel opens with the token. */
			readonly said?: Failure | undefined;
			/** As the answer repeats it; `null` where it does not. */
			readonly workflowId: string | null;
			/** How far this device's clock is ahead of the service's; negative when slow. */
			readonly clockSkewMs: number | null;
			/** The `Date` of the answer, milliseconds since 1970. */
			readonly serviceMs?: number | undefined;
	  }
	| {
			readonly ok: false;
			readonly failure: Failure;
			readonly sent: 'no' | 'perhaps' | 'answered';
			/** Of the one-time code, if one was sent. */
			readonly worth: CodeWorth;
			/** Whether the service says in its own words that the code is good. */
			readonly saysUnused?: boolean;
			readonly clockSkewMs: number | null;
			/** What a successful answer held in which no Connection token could be found: may hold secrets. */
			readonly unread?: readonly AnswerText[] | undefined;
			/** Whether another address of the name was not tried yet: then this is not the last word. */
			readonly hasOther?: boolean;
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
	/** More of them, in lower case. */
	readonly headers?: Readonly<Record<string, string>> | undefined;
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
	/** Of the request. */
	readonly path?: string;
}

export interface ServiceClient {
	/** Source: service-interface, Endpoints 2. Never throws. */
	registerDevice(registration: RegisterRequest): Promise<RegisterResult>;
	/** A HEAD request to the base URL without a credential: any answer will do. Never throws. Default 10,000 ms. */
	preflight(baseUrl: string, deadlineMs?: number): Promise<Preflight>;
	/**
	 * @throws AgentError without an answer, or for a good one that is cut off or larger than `maxBytes`. Its parameter
	 * `sent` is `no` where the request never left, else `perhaps`.
	 */
	send(request: ServiceRequest): Promise<ServiceAnswer>;
}

/** @param userAgent the header's value. @param wallMs the device's clock. @param exchange makes one request. */
export function createServiceClient(parts: ServiceClientParts): ServiceClient {
	const { network, userAgent, wallMs = systemClock.wallMs, exchange = exchangeOverNetwork } = parts;
	const { headersFor = () => ({}), secretValues = [] } = parts;
	const attempt = (request: Omit<ExchangeRequest, 'headers'> & { headers: Readonly<Record<string, string>> }) =>
		exchange(network, {
			...request,
			headers: { 'user-agent': userAgent, ...request.headers },
			// A device that gives up on a slow service loses the code.
			...(request.headers['authorization']?.startsWith('Token ') && { idleMs: request.deadlineMs }),
		});

	return {
		async registerDevice(registration) {
			const {
				baseUrl,
				authorization,
				tokenPointer,
				signal,
				registrationPath = ENDPOINTS.deviceConnection,
			} = registration;
			const { deviceId, workflowId: asked = '' } = registration.request;
			const url = placeUnder(baseUrl, fillPath(registrationPath, { deviceId, workflowId: asked }));
			const exchanged = await attempt({
				method: 'POST',
				url,
				headers: { ...headersFor(baseUrl), ...requestHeaders(authorization, 'application/json', true) },
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
					worth: exchanged.written ? 'uncertain' : 'valid',
					clockSkewMs: null,
				};
			const { status, headers, bytes, cut } = exchanged;
			const skewMs = clockSkewMs(headers['date'], wallMs());
			const body = asText(bytes);
			const workflows = status >= 400 && status < 500 ? readWorkflowChoices(body) : [];
			const saidNo = status >= 200 && status < 300 ? refusalIn({ status, headers, body }) : null;
			const isPage = isWebPage(headers, body);
			const fate = fateIn({ body });
			const refused = (failure: Failure, unread?: readonly AnswerText[]): RegisterResult => {
				const worth = worthAfter({ status, headers, isPage, fate, saidNo: saidNo !== null, body, failure });
				const isAnswer = saidNo === 'refused' || failure.code === 'code-expired-or-used' || worth === 'valid';
				return {
					ok: false,
					failure,
					sent: isAnswer && status !== 407 ? 'answered' : spentBy(status),
					worth,
					saysUnused: fate === 'unused',
					clockSkewMs: skewMs,
					...(unread?.length && { unread }),
					...(workflows.length && { workflows }),
				};
			};
			const succeeded = status >= 200 && status < 300;
			if (succeeded && cut) return refused(cut);
			const texts = succeeded && !isPage ? readAnswerTexts({ body, headers }) : [];
			const sent = authorization ? secretsOf(authorization) : [];
			const isCode = authorization?.scheme === 'Token';
			const ofDevice = Object.values(registration.request).filter((one) => typeof one === 'string');
			const others = withoutSent(texts, [...sent, ...ofDevice]);
			// A code that the answer repeats is not the Connection; an API key may be, and what a person names.
			const usable = isCode ? withoutSent(texts, sent) : texts;
			const named = tokenPointer != null || !isCode ? tokenIn(usable, tokenPointer) : null;
			const token = tokenIn(others, tokenPointer) ?? named;
			const workflowId = texts.find(({ place }) => place === '/workflowId')?.text ?? null;
			// A word for the failure may stand where the token does.
			const isNo = saidNo === 'refused' && tokenPointer == null && !looksLikeToken({ place: '', text: token ?? '' });
			const classified = (others: readonly string[] = []) =>
				classifyHttpAnswer({
					status,
					headers,
					body,
					purpose: 'register',
					host: url.host,
					path: url.pathname,
					secure: url.protocol === 'https:',
					wallMs: wallMs(),
					scheme: authorization?.scheme,
					workflowId: registration.request.workflowId,
					secrets: [...sent, ...others, ...secretValues],
					tokenPointer,
				});
			if (token !== null && !isNo) {
				const said = saidNo === null || saidNo === 'words' ? {} : { said: classified([token]) };
				const told = { clockSkewMs: skewMs, serviceMs: readServiceMs(headers['date']), ...said };
				return { ok: true, token, life: readTokenLife(token), workflowId, ...told };
			}
			return refused(classified(), saidNo === null ? usable : []);
		},

		async preflight(baseUrl, deadlineMs = PREFLIGHT_DEADLINE_MS) {
			const url = new URL(baseUrl);
			const exchanged = await attempt({
				method: 'HEAD',
				url,
				headers: headersFor(baseUrl),
				deadlineMs,
				maxBytes: 0,
			});
			if (exchanged.kind === 'failed') return { failure: exchanged.failure, clockSkewMs: null };
			const { status, headers } = exchanged;
			const verdict = classifyHttpAnswer({
				status,
				headers,
				body: '',
				purpose: 'other',
				host: url.host,
				path: url.pathname,
			});
			// Under TLS that was verified even a redirect is the service's own; in plain text it may be a portal's.
			const inTheWay =
				status === 407 || status === 511 || (url.protocol === 'http:' && verdict.code === 'captive-portal');
			return { failure: inTheWay ? verdict : null, clockSkewMs: clockSkewMs(headers['date'], wallMs()) };
		},

		async send(request) {
			const { method, url, authorization, accept = 'application/json', deadlineMs, maxBytes } = request;
			const body = request.rawBody ?? (request.body === undefined ? undefined : JSON.stringify(request.body));
			const headers = { ...requestHeaders(authorization, accept, body !== undefined), ...request.headers };
			const exchanged = await attempt({ method, url, headers, body, deadlineMs, maxBytes });
			if (exchanged.kind === 'failed') {
				const { failure: lost, written } = exchanged;
				throw asError({ ...lost, params: { ...lost.params, sent: written ? 'perhaps' : 'no' } });
			}
			const { status, bytes, cut } = exchanged;
			if (cut && status >= 200 && status < 300) throw asError(cut);
			return { status, headers: exchanged.headers, body: bytes, path: url.pathname };
		},
	};
}

/** Whether a one-time code may be used up after an answer with this status. */
export function spentBy(status: number): 'no' | 'perhaps' | 'answered' {
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

/** Text in the encoding that its byte order mark names; UTF-8 without one. */
function asText(bytes: Uint8Array): string {
	const [first, second] = bytes;
	const encoding =
		first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : 'utf-8';
	return new TextDecoder(encoding).decode(bytes);
}
