/**
 * What an error of the network, an HTTP answer or a close code means: one place that turns them into failures.
 * Pure: opens nothing and reads no clock. A message names the host and the status, never a credential and never a query string.
 */

import { type ErrorCode, type Failure, failure, type Params, toFailure } from '../base/errors.ts';
import { createSecretRegistry, redact, SECRET_MARK } from '../base/redact.ts';
import { joinSentences } from '../base/sentences.ts';
import type { AuthorizationScheme } from '../protocol/authorization.ts';
import { cleanText, readErrorDetail } from '../protocol/problem.ts';
import { readHttpDate } from './clock-skew.ts';

/** For what is found by its form alone. */
const NO_SECRETS = createSecretRegistry();
/** The longest wait that is taken from a `Retry-After`: a day. */
export const MAX_ASKED_WAIT_MS = 24 * 60 * 60 * 1000;

const CERTIFICATE_CODES: Readonly<Record<string, ErrorCode>> = {
	CERT_NOT_YET_VALID: 'clock-wrong',
	CERT_HAS_EXPIRED: 'certificate-expired',
	ERR_TLS_CERT_ALTNAME_INVALID: 'certificate-wrong-host',
	HOSTNAME_MISMATCH: 'certificate-wrong-host',
	DEPTH_ZERO_SELF_SIGNED_CERT: 'certificate-untrusted',
	SELF_SIGNED_CERT_IN_CHAIN: 'certificate-untrusted',
	UNABLE_TO_GET_ISSUER_CERT: 'certificate-untrusted',
	UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'certificate-untrusted',
	UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'certificate-untrusted',
	UNABLE_TO_DECRYPT_CERT_SIGNATURE: 'certificate-untrusted',
	UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY: 'certificate-untrusted',
	CERT_SIGNATURE_FAILURE: 'certificate-untrusted',
	CERT_UNTRUSTED: 'certificate-untrusted',
	CERT_REJECTED: 'certificate-untrusted',
	CERT_REVOKED: 'certificate-untrusted',
	CERT_CHAIN_TOO_LONG: 'certificate-untrusted',
	PATH_LENGTH_EXCEEDED: 'certificate-untrusted',
	INVALID_CA: 'certificate-untrusted',
	INVALID_PURPOSE: 'certificate-untrusted',
};

const NOT_RESOLVED = new Set(['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EAI_NONAME', 'ENODATA', 'ESERVFAIL']);
const CONNECT_TIMEOUTS = new Set(['ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT']);
const UNREACHABLE = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENETDOWN', 'EADDRNOTAVAIL']);
const ANSWER_TIMEOUTS = new Set(['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT']);
const PROXY_BROKEN = new Set(['UND_ERR_PRX_CONN', 'UND_ERR_PRX_TLS', 'ERR_PROXY_TUNNEL', 'ERR_PROXY_INVALID_CONFIG']);

/** Where an attempt went, for the message and for whose fault it is. */
export interface NetworkContext {
	/** Host and, if it is not the usual one, port. */
	readonly host: string;
	/** Whether a proxy stands between: then it is the proxy that could not be reached. */
	readonly viaProxy?: boolean | undefined;
}

/**
 * What an error thrown by a socket, by TLS, by a proxy or by undici means. Looks through `cause` and `AggregateError`.
 * What it does not know is a lost connection; what only our own mistake can cause is `internal`.
 */
export function classifyNetworkError(error: unknown, context: NetworkContext): Failure {
	const { host, viaProxy = false } = context;
	const facts = collect(error);
	const find = (known: ReadonlySet<string>) => facts.codes.find((code) => known.has(code));

	if (facts.proxyStatus !== null) return proxyAnswered(facts.proxyStatus, host);
	const failed = (code: ErrorCode, message: string, reason?: string) =>
		failure(code, message, { params: { host, ...(reason !== undefined && { reason }) } });
	if (find(PROXY_BROKEN)) return failed('proxy-failed', `The proxy gave no connection to ${host}.`);

	const certificate = facts.codes.find((code) => Object.hasOwn(CERTIFICATE_CODES, code));
	if (certificate) return certificateFailure(CERTIFICATE_CODES[certificate] ?? 'tls-failed', certificate, host);
	if (facts.codes.some((code) => code.endsWith('ALERT_CERTIFICATE_REQUIRED'))) return wantsClientCertificate(host);
	const tls = facts.codes.find((code) => code === 'EPROTO' || /^ERR_(SSL|TLS|OSSL)_/.test(code));
	if (tls) return failed('tls-failed', `The TLS connection to ${host} failed (${tls}).`, tls);

	const unresolved = find(NOT_RESOLVED);
	const timeout = find(CONNECT_TIMEOUTS);
	const unreachable = find(UNREACHABLE);
	if (viaProxy && (unresolved || timeout || unreachable))
		return failed(
			'proxy-failed',
			`The proxy on the way to ${host} can't be reached (${unresolved ?? timeout ?? unreachable}).`,
			unresolved ?? timeout ?? unreachable,
		);
	if (unresolved) return failed('dns-failed', `The name ${host} can't be resolved (${unresolved}).`, unresolved);
	if (timeout) return failed('connect-timeout', `${host} did not accept a connection in time.`);
	if (unreachable) return failed('service-unreachable', `${host} can't be reached (${unreachable}).`, unreachable);

	if (find(ANSWER_TIMEOUTS) || facts.names.includes('TimeoutError'))
		return failed('request-timeout', `${host} did not answer in time.`);
	if (facts.codes.includes('UND_ERR_RES_EXCEEDED_MAX_SIZE'))
		return failed('response-too-large', `The answer of ${host} is too large.`);
	const garbled = facts.codes.some((code) => code.startsWith('HPE_') || code === 'UND_ERR_HEADERS_OVERFLOW');
	if (garbled || facts.names.includes('HTTPParserError'))
		return failure('bad-response', `What answers at ${host} does not speak proper HTTP.`, {
			params: { host },
			remedy: 'Check host and port in baseUrl, and what stands between this device and the service.',
		});
	if (facts.names.includes('AbortError'))
		return failed('connection-lost', `The attempt to reach ${host} was given up.`);
	if (facts.ourFault) return toFailure(error);
	return failed('connection-lost', `The connection to ${host} was lost${inBrackets(facts.codes[0])}.`, facts.codes[0]);
}

function wantsClientCertificate(host: string): Failure {
	return failure('tls-failed', `${host} asks for a client certificate that this device did not give.`, {
		params: { host, reason: 'client-certificate' },
		remedy: 'Name a certificate that the service accepts in network.clientCertificateFile and its key.',
	});
}

function certificateFailure(code: ErrorCode, reason: string, host: string): Failure {
	const said: Partial<Record<ErrorCode, string>> = {
		'clock-wrong': `The certificate of ${host} is not valid yet by this device's clock.`,
		'certificate-expired': `The certificate of ${host} has expired by this device's clock.`,
		'certificate-wrong-host': `The certificate that was shown for ${host} is for another host.`,
	};
	const message = said[code] ?? `The certificate of ${host} is not trusted by this device (${reason}).`;
	return failure(code, message, { params: { host, reason } });
}

function proxyAnswered(status: number, host: string): Failure {
	// A proxy that is asked for a tunnel answers 4xx when it will not and 5xx when it can't.
	const params = { host, status };
	return status >= 400 && status < 500
		? failure('proxy-refused', `The proxy refused a connection to ${host} (${status}).`, { params })
		: failure('proxy-failed', `The proxy could not make a connection to ${host} (${status}).`, { params });
}

interface Facts {
	readonly codes: readonly string[];
	readonly names: readonly string[];
	/** What the proxy itself answered to the request for a tunnel. */
	readonly proxyStatus: number | null;
	readonly ourFault: boolean;
}

function collect(error: unknown): Facts {
	const codes: string[] = [];
	const names: string[] = [];
	let proxyStatus: number | null = null;
	let ourFault = false;
	const seen = new Set<unknown>();
	const queue: unknown[] = [error];
	while (queue.length > 0 && seen.size < 32) {
		const one = queue.shift();
		if (typeof one !== 'object' || one === null || seen.has(one)) continue;
		seen.add(one);
		const { code, name, message, statusCode, cause, errors } = one as Record<string, unknown>;
		if (typeof code === 'string') codes.push(code);
		if (typeof name === 'string') names.push(name);
		if (code === 'ERR_PROXY_TUNNEL' && typeof statusCode === 'number') proxyStatus = statusCode;
		// undici tells the status of a refused tunnel only in words.
		const told = /^Proxy (?:response|Authentication Required) \((\d{3})\)/.exec(String(message ?? ''))?.[1];
		if (told) proxyStatus = Number(told);
		if (code === 'UND_ERR_INVALID_ARG' || (typeof code === 'string' && code.startsWith('ERR_INVALID_')))
			ourFault = true;
		if (
			typeof code !== 'string' &&
			(one instanceof TypeError || one instanceof RangeError || one instanceof SyntaxError)
		)
			ourFault = true;
		queue.push(cause);
		if (Array.isArray(errors)) queue.push(...errors);
	}
	return { codes, names, proxyStatus, ourFault };
}

/** An answer that is not the one that was hoped for. */
export interface HttpAnswer {
	readonly status: number;
	/** Names in lower case. */
	readonly headers: Readonly<Record<string, string>>;
	/** As much of the body as was read. */
	readonly body: string;
	/** What was asked for: a Connection token, the upgrade to `ws/device`, or anything else. */
	readonly purpose: 'register' | 'channel' | 'other';
	readonly host: string;
	/** What the request was authorized with. */
	readonly scheme?: AuthorizationScheme | undefined;
	/** The workflow in the request. */
	readonly workflowId?: string | undefined;
	/** Credentials that the answer may repeat; they are cut out of the message. */
	readonly secrets?: readonly string[] | undefined;
}

/**
 * What an HTTP answer means. The status decides; the body is detail.
 * Source: assumed (service-interface, Errors: "not shown").
 */
export function classifyHttpAnswer(answer: HttpAnswer): Failure {
	const { status, purpose, host, headers } = answer;
	const said = (code: ErrorCode, more: { remedy?: string; retryAfterMs?: number } = {}) =>
		failure(code, `${host} answered ${status}${withDetail(answer)}`, { ...more, params: paramsOf(answer) });
	const retryAfterMs = readRetryAfter(headers['retry-after'], headers['date']);
	const patience = retryAfterMs === undefined ? {} : { retryAfterMs };

	if (status >= 200 && status < 300) return unexpectedSuccess(answer);
	if (status >= 300 && status < 400) return redirected(answer);
	if (status >= 400 && status < 500 && saysUnknownWorkflow(answer)) {
		const which = answer.workflowId === undefined ? 'this workflow' : `the workflow ${answer.workflowId}`;
		return failure('workflow-unknown', `${host} does not know ${which} (${status}).`, { params: paramsOf(answer) });
	}
	// nginx lets the handshake pass and says so in a page. Source: its ngx_http_special_response.c, codes 495 and 496.
	if (status === 400 && /\bSSL certificate (?:error|was sent)/i.test(answer.body)) return wantsClientCertificate(host);
	switch (status) {
		case 401:
			return isCodeRefused(answer) ? codeRefused(answer) : said('credential-refused');
		case 403:
			return said('access-forbidden');
		case 407:
			return proxyAnswered(status, host);
		case 408:
		case 504:
			return said('request-timeout', patience);
		case 429:
		case 503:
			return said('service-overloaded', patience);
		case 511:
			return said('captive-portal');
		case 404:
		case 405:
		case 410:
		case 501:
			return nothingThere(answer, said);
	}
	if (status >= 500 && status < 600) return said('service-failed', patience);
	if (status >= 400 && status < 500) return said(purpose === 'channel' ? 'channel-rejected' : 'request-rejected');
	return said('bad-response', { remedy: 'The operator must look at what answers at this address.' });
}

function isCodeRefused(answer: HttpAnswer): boolean {
	return answer.purpose === 'register' && answer.scheme === 'Token';
}

/** What happened to the code, as far as the service's words tell, and those words. Source: assumed. */
function codeRefused(answer: HttpAnswer): Failure {
	const { status, host, body } = answer;
	const words = `${problemCode(body)} ${readErrorDetail(body)}`;
	const [reason, what] = /\bexpired\b/i.test(words)
		? ['expired', 'This code has expired']
		: /\b(?:spent|used|redeemed|consumed)\b/i.test(words)
			? ['used', 'This code was used already']
			: ['refused', 'This code is not accepted'];
	return failure('code-expired-or-used', `${what}: ${host} answered ${status}${withDetail(answer)}`, {
		params: { ...paramsOf(answer), reason },
	});
}

type Said = (code: ErrorCode, more?: { remedy?: string }) => Failure;

function nothingThere(answer: HttpAnswer, said: Said): Failure {
	if (answer.status === 410 && isCodeRefused(answer)) return codeRefused(answer);
	if (answer.purpose === 'channel') return said(answer.status === 405 ? 'channel-rejected' : 'channel-not-found');
	return said('bad-response', { remedy: 'Check baseUrl: the service has no such endpoint at this address.' });
}

function unexpectedSuccess(answer: HttpAnswer): Failure {
	const { status, purpose, host, headers, body } = answer;
	const isPage = /\bhtml\b/i.test(headers['content-type'] ?? '') || /^\s*<(?:!doctype|html)/i.test(body);
	const params = { host, status };
	if (isPage)
		return failure('captive-portal', `${host} answered ${status} with a web page instead of the service.`, { params });
	if (purpose === 'channel')
		return failure('channel-rejected', `${host} answered ${status} instead of opening the channel.`, { params });
	const missing =
		purpose === 'register' ? 'without a Connection token that could be read' : 'in a form that is not known';
	return failure('bad-response', `${host} answered ${status} ${missing}.`, { params });
}

function redirected(answer: HttpAnswer): Failure {
	const { status, host, headers } = answer;
	const location = headers['location'];
	const target = location === undefined ? null : URL.parse(location, `https://${host}`);
	const params = { host, status };
	if (!target)
		return failure('redirect-refused', `${host} answered ${status} without an address to go to.`, { params });
	// A portal leads to a host of its own; the service itself moves a path or a scheme.
	return target.hostname !== URL.parse(`https://${host}`)?.hostname
		? failure(
				'captive-portal',
				`${host} answered ${status} and points at another host, ${cleanText(target.host, 100)}.`,
				{ params: { ...params, otherHost: cleanText(target.host, 100) } },
			)
		: failure('redirect-refused', `${host} answered ${status} and points at another address of its own.`, { params });
}

function saysUnknownWorkflow(answer: HttpAnswer): boolean {
	if (answer.status === 401 || answer.status === 407 || answer.purpose === 'other') return false;
	if (problemCode(answer.body) === 'workflow-unknown') return true;
	if (![400, 404, 409, 422].includes(answer.status)) return false;
	return /\bworkflow\b.{0,150}\b(?:unknown|not found|not exist|invalid)|\b(?:unknown|no such|invalid) workflow\b/i.test(
		readErrorDetail(answer.body),
	);
}

/** The `code` of a problem document; empty for a body that is none: then its words are all there is. */
function problemCode(body: string): string {
	try {
		return String((JSON.parse(body) as { code?: unknown } | null)?.code ?? '');
	} catch {
		return '';
	}
}

function withDetail(answer: HttpAnswer): string {
	const detail = detailOf(answer);
	return detail === '' ? '.' : `: ${joinSentences(detail)}`;
}

/** What the service said, without secrets; empty for nothing that can be read. */
function detailOf({ body, secrets = [] }: HttpAnswer): string {
	// Before it is cut and after: half of a secret is not known as one, and escapes hide one.
	return withoutSecrets(readErrorDetail(withoutSecrets(body, secrets)), secrets);
}

function paramsOf(answer: HttpAnswer): Params {
	const { host, status, workflowId } = answer;
	const detail = detailOf(answer);
	return { host, status, ...(workflowId !== undefined && { workflowId }), ...(detail !== '' && { detail }) };
}

/**
 * Cuts credentials out of somebody else's text: known ones, and whatever looks like one. Shorter than four characters is
 * no secret but a letter.
 */
function withoutSecrets(text: string, secrets: readonly string[]): string {
	const known = secrets
		.filter((secret) => secret.length >= 4)
		.reduce((rest, secret) => rest.replaceAll(secret, SECRET_MARK), text);
	return redact(known, NO_SECRETS);
}

/**
 * A `Retry-After` in milliseconds, at most {@link MAX_ASKED_WAIT_MS}: seconds, or a date reckoned from the answer's own
 * `Date`, since this device's clock may be wrong. `undefined` when it says nothing usable. Source: RFC 9110, 10.2.3.
 */
export function readRetryAfter(retryAfter: string | undefined, date: string | undefined): number | undefined {
	const text = retryAfter?.trim() ?? '';
	const waitMs = /^\d+$/.test(text) ? Number(text) * 1000 : readHttpDate(text) - readHttpDate(date);
	return waitMs > 0 ? Math.min(waitMs, MAX_ASKED_WAIT_MS) : undefined;
}

const CLOSE_WORDS: Readonly<Record<number, string>> = {
	1000: 'normal end',
	1001: 'going away',
	1002: 'protocol error',
	1003: 'unsupported data',
	1005: 'no reason given',
	1007: 'invalid data',
	1008: 'policy violation',
	1009: 'message too big',
	1011: 'internal error',
	1012: 'service restart',
	1013: 'try again later',
	1014: 'bad gateway',
};

/** How a channel was closed. */
export interface ChannelClose {
	/** Of the close frame; 1005 for a frame without a code, 1006 for none at all. */
	readonly code: number;
	readonly reason: string;
	readonly host: string;
	readonly secrets?: readonly string[] | undefined;
}

/** What the end of an open channel means. Source: RFC 6455, 7.4; 4401, 4403 and 4409 assumed, after the HTTP statuses. */
export function classifyClose(close: ChannelClose): Failure {
	const { code, host } = close;
	if (code === 1006) return failure('connection-lost', `The connection to ${host} was lost.`, { params: { host } });
	const words = CLOSE_WORDS[code];
	const reason = cleanText(withoutSecrets(close.reason, close.secrets ?? []), 123);
	const message = `${host} closed the channel with ${code}${inBrackets(words)}${reason === '' ? '.' : `: ${joinSentences(reason)}`}`;
	const params = { host, closeCode: code, ...(reason !== '' && { detail: reason }) };
	if (code === 1008 || code === 4401 || code === 4403) return failure('credential-refused', message, { params });
	if (code === 4409) return failure('connection-replaced', message, { params });
	return failure('connection-lost', message, { params });
}

function inBrackets(text: string | undefined): string {
	return text === undefined ? '' : ` (${text})`;
}
