/** The meaning of an error thrown by a socket, by TLS, or by a proxy, as a failure. Pure. */
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';
import { type ErrorCode, type Failure, failure, toFailure } from '../base/errors.ts';
import { cleanText } from '../protocol/problem.ts';

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

/** For the certificate of a proxy, by its code for that of the service; else {@link TRUST_PROXY}. */
const PROXY_REMEDIES: Readonly<Record<string, string>> = {
	'certificate-wrong-host':
		'Name the proxy in network.proxy as its certificate does, or have it show one for this name.',
	'certificate-expired': "Check this device's clock; if it is right, the proxy needs a new certificate.",
	'clock-wrong': "Check this device's clock; if it is right, the proxy needs a certificate that is valid already.",
};
const TRUST_PROXY = 'Check network.proxy; if it is the right proxy, put its authority into network.caFile.';

/** Largest status line and headers of an answer together, in bytes. */
export const MAX_HEAD_BYTES = 64 * 1024;

const NOT_RESOLVED = new Set(['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EAI_NONAME', 'ENODATA', 'ESERVFAIL']);
const UNREACHABLE = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENETDOWN', 'EADDRNOTAVAIL']);

/** Where an attempt went, for the message and for whose fault it is. */
export interface NetworkContext {
	/** Host and, if it is not the usual one, port. */
	readonly host: string;
	/** Host and port of a proxy that stands between: then it is the proxy that could not be reached. */
	readonly proxy?: string | null | undefined;
}

/** Looks through `cause` and `AggregateError`. What only our own mistake can cause is `internal`. */
export function classifyNetworkError(error: unknown, context: NetworkContext): Failure {
	const { host, proxy } = context;
	const facts = collect(error);
	const find = (known: ReadonlySet<string>) => facts.codes.find((code) => known.has(code));

	if (facts.proxy) return proxyAnswered(facts.proxy, host);
	const failed = (code: ErrorCode, message: string, reason?: string) =>
		failure(code, message, { params: { host, ...(reason !== undefined && { reason }) } });
	if (facts.codes.some((code) => code.endsWith('ALERT_NO_APPLICATION_PROTOCOL')) || facts.speaksHttp2)
		return failure('tls-failed', `${host} speaks HTTP/2 only.`, {
			params: { host, reason: 'http2' },
			remedy: 'Have the service, or the proxy in front of it, speak HTTP/1.1 as well: a WebSocket channel needs it.',
		});

	const unresolved = find(NOT_RESOLVED);
	// One address that answers says more than others that cannot be reached or are silent.
	const refused = facts.codes.find((code) => code === 'ECONNREFUSED');
	const timeout = refused ? undefined : facts.codes.find((code) => code === 'ETIMEDOUT');
	const unreachable = refused ?? find(UNREACHABLE);
	if (proxy && (unresolved || timeout || unreachable))
		return failed(
			'proxy-failed',
			`The proxy on the way to ${host} can't be reached (${unresolved ?? timeout ?? unreachable}).`,
			unresolved ?? timeout ?? unreachable,
		);
	const certificate = facts.codes.find((code) => Object.hasOwn(CERTIFICATE_CODES, code));
	if (facts.codes.includes('ERR_PROXY_TUNNEL')) {
		const told = failed('proxy-failed', `The proxy gave no connection to ${host}.`, certificate);
		if (certificate === undefined) return told;
		const message = `The certificate of the proxy on the way to ${host} is not trusted by this device (${certificate}).`;
		const remedy = PROXY_REMEDIES[`${CERTIFICATE_CODES[certificate]}`] ?? TRUST_PROXY;
		return { ...told, message, remedy };
	}

	if (certificate)
		return certificateFailure(CERTIFICATE_CODES[certificate] ?? 'tls-failed', certificate, host, facts.shown);
	if (facts.codes.some((code) => code.endsWith('ALERT_CERTIFICATE_REQUIRED'))) return wantsClientCertificate(host);
	if (facts.codes.includes('ERR_TLS_HANDSHAKE_TIMEOUT')) return stalledInTls(context);
	const tls = facts.codes.find((code) => code === 'EPROTO' || /^ERR_(SSL|TLS|OSSL)_/.test(code));
	const through = proxy ? ` through the proxy ${proxy}` : '';
	if (tls) return failed('tls-failed', `The TLS connection to ${host}${through} failed (${tls}).`, tls);

	const name = host.replace(/:\d+$/, '');
	if (unresolved) return failed('dns-failed', `The name ${name} can't be resolved (${unresolved}).`, unresolved);
	if (timeout) return failed('connect-timeout', `${host} did not accept a connection in time.`);
	if (unreachable === 'ECONNREFUSED') return refusedAt(facts.refusedBy, name, host);
	if (unreachable) return failed('service-unreachable', `${host} can't be reached (${unreachable}).`, unreachable);

	if (facts.names.includes('TimeoutError')) return failed('request-timeout', `${host} did not answer in time.`);
	if (facts.codes.includes('HPE_HEADER_OVERFLOW'))
		return failure('bad-response', `The headers of the answer of ${host} have more than ${MAX_HEAD_BYTES} bytes.`, {
			params: { host },
			remedy: 'Let the service, or the proxy in front of it, send fewer or shorter headers.',
		});
	if (facts.codes.some((code) => /^(?:Z|ZSTD|ERR__ERROR)_/.test(code)))
		return failure('bad-response', `The answer of ${host} is compressed, and its compression is damaged.`, {
			params: { host },
			remedy: 'Check what compresses answers: the service, or a proxy in front of it.',
		});
	if (facts.codes.some((code) => code.startsWith('HPE_')))
		return failure('bad-response', `The program that answers at ${host} does not speak proper HTTP.`, {
			params: { host },
			remedy: 'Check host and port in baseUrl, and any proxy between this device and the service.',
		});
	if (facts.names.includes('AbortError'))
		return failed('connection-lost', `The attempt to reach ${host} was given up.`);
	if (facts.ourFault) return toFailure(error);
	const [reason] = facts.codes;
	if (proxy) return lostThroughProxy(host, proxy, reason);
	return failed('connection-lost', `The connection to ${host} was lost${inBrackets(reason)}.`, reason);
}

/** @param address that has refused; `null` where it is not known. */
function refusedAt(address: string | null, name: string, host: string): Failure {
	const reason = 'ECONNREFUSED';
	const isNamed = address !== null && name.replace(/^\[|\]$/g, '') !== address;
	const isOwn = isNamed && name !== 'localhost' && /^(?:127\.|::1$|::ffff:127\.)/.test(address);
	return failure('service-unreachable', `${host} refuses connections${isNamed ? ` at ${address}` : ''} (${reason}).`, {
		params: { host, reason, ...(isNamed && { address }) },
		remedy: isOwn
			? 'The name leads to this device itself: look at its DNS server and at /etc/hosts.'
			: 'Check that the service runs and listens on this port, and the port in baseUrl; a firewall may refuse it, too.',
	});
}

export function wantsClientCertificate(host: string): Failure {
	return failure('tls-failed', `${host} asks for a client certificate that this device did not give.`, {
		params: { host, reason: 'client-certificate' },
		remedy: 'Name a certificate that the service accepts in network.clientCertificateFile and its key.',
	});
}

/** A proxy that gives no connection says so in an answer of its own. */
function lostThroughProxy(host: string, proxy: string, reason: string | undefined): Failure {
	const lost = `The connection to ${host} through the proxy ${proxy} was lost${inBrackets(reason)}`;
	return failure('connection-lost', `${lost} after the proxy had accepted it: the proxy or the service has ended it.`, {
		params: { host, proxy, ...(reason !== undefined && { reason }) },
		remedy:
			'If it happens often, check both the proxy and the service: this device cannot tell which of them ends connections.',
	});
}

function stalledInTls({ host, proxy }: NetworkContext): Failure {
	const accepts = proxy ? `The proxy ${proxy} accepts connections to ${host}` : `${host} accepts connections`;
	const whose = proxy ? "the service's" : 'its';
	return failure('tls-failed', `${accepts}, but ${whose} part of the TLS handshake does not arrive.`, {
		params: { host, ...(proxy && { proxy }), reason: 'stalled' },
		remedy:
			'If no device reaches it, the operator must look at what hangs there. If other devices do, something on the way of this device drops large packets: lower its MTU (try 1280), or have the network let ICMP "fragmentation needed" through.',
	});
}

/** Of a certificate: whose it is, and who signed it. */
export interface ShownNames {
	readonly subject: string;
	readonly issuer: string;
}

/** Of a certificate that is over or has not begun: the day of its end or begin, and the one that this device's clock shows. */
export interface OutOfTime {
	readonly on: string;
	readonly clock: string;
}

/** Beside an error of the handshake. */
interface ShownCertificates {
	readonly shown: ShownNames;
	readonly outOfTime?: OutOfTime | null;
	/** That was trusted last for the same host. */
	readonly trusted: ShownNames | null;
}

function certificateFailure(code: ErrorCode, reason: string, host: string, seen: ShownCertificates | null): Failure {
	const { on, clock } = seen?.outOfTime ?? {};
	const days = (bound: string) => (on ? `: it ${bound} on ${on}, and the clock shows ${clock}` : '');
	const said: Partial<Record<ErrorCode, string>> = {
		'clock-wrong': `The certificate of ${host} is not valid yet by this device's clock${days('begins')}.`,
		'certificate-expired': `The certificate of ${host} has expired by this device's clock${days('ended')}.`,
		'certificate-wrong-host': `The certificate that was shown for ${host} is for another host.`,
	};
	const message = said[code] ?? `The certificate of ${host} is not trusted by this device (${reason}).`;
	const isDoubtful = !clock || Date.parse(clock) >= EARLIEST_CLOCK_MS;
	const remedy = code === 'clock-wrong' && isDoubtful ? { remedy: NOT_YET } : {};
	const dates = on && clock ? { on, clock } : {};
	if (!seen) return failure(code, message, { params: { host, reason }, ...remedy });
	const { shown, trusted } = seen;
	const isOther = trusted && (trusted.subject !== shown.subject || trusted.issuer !== shown.issuer);
	const before = isOther ? ` The one that was trusted last is of ${inWords(trusted)}.` : '';
	const whose = { subject: shortName(shown.subject), issuer: shortName(shown.issuer) };
	return failure(code, `${message} It is of ${inWords(shown)}.${before}`, {
		params: { host, reason, ...dates, ...whose },
		...remedy,
	});
}

const NOT_YET =
	"If this device's clock shows the wrong day, set it or let it reach a time server; if the clock is right, the service's operator must install a certificate that is valid already.";

const inWords = ({ subject, issuer }: ShownNames) => `"${shortName(subject)}", signed by "${shortName(issuer)}"`;
/** Anyone may write anything into a certificate. */
const shortName = (name: string) => cleanText(name, 100) || 'without a name';

/** The meaning of a proxy's own answer to the request for a tunnel. */
export function proxyAnswered(told: ProxyAnswer, host: string): Failure {
	// A proxy that is asked for a tunnel answers 4xx when it will not and 5xx when it can't.
	const { statusCode: status, offers = '' } = told;
	const params = { host, status };
	const schemes = challengeSchemes(offers);
	if (status === 407 && schemes.length > 0 && !schemes.some((scheme) => scheme.toLowerCase() === 'basic')) {
		const asked = schemes.slice(0, 5).join(', ');
		return failure('proxy-refused', `The proxy refused a connection to ${host} (407): it asks for ${asked}.`, {
			params,
			remedy:
				'Have the proxy offer Basic to this device, or let this host through without a sign-in: this agent signs in by Basic only.',
		});
	}
	if (status === 429)
		return failure('proxy-failed', `The proxy has too much to do (429): it did not connect to ${host}.`, {
			params,
			remedy:
				'Wait a few minutes. If it lasts, ask the operator of the proxy; the credential of this device is not in question.',
		});
	if (status >= 400 && status < 500)
		return failure('proxy-refused', `The proxy refused a connection to ${host} (${status}).`, { params });
	if (status >= 500 && status < 600 && status !== 511)
		return failure('proxy-failed', `The proxy runs, but could not connect to ${host} (${status}).`, {
			params,
			remedy: `Check that ${host} is up and that the proxy can resolve and reach it; the credential of this device is not in question.`,
		});
	return failure(
		'proxy-failed',
		`The proxy sent ${sentInstead(told)} (${status}) instead of a connection to ${host}.`,
		{
			params,
			remedy:
				"Sign in to this site's network if the proxy requires that, or have it let this device through; otherwise check network.proxy. The credential of this device is not in question.",
		},
	);
}

function sentInstead({ statusCode: status, location }: ProxyAnswer): string {
	if (status >= 200 && status < 300) return 'a web page';
	if (status < 300 || status >= 400) return 'an answer of its own';
	const to = location === undefined ? null : URL.parse(location)?.host;
	return to ? `a redirect to ${cleanText(to, 100)}` : 'a redirect';
}

interface ProxyAnswer {
	readonly statusCode: number;
	/** The header `Proxy-Authenticate`: the ways to sign in. */
	readonly offers?: string | undefined;
	/** The header of the same name. */
	readonly location?: string | undefined;
}

const TOKEN = /^[!#$%&'*+.^_`|~\w-]+/;

/** The ways to sign in that a header with challenges names, each once. Source: RFC 9110, 11.3. */
export function challengeSchemes(header: string): readonly string[] {
	const unquoted = header.replace(/"(?:\\.|[^"\\])*"?/g, '""');
	const schemes = new Map<string, string>();
	for (const element of unquoted.split(',')) {
		const [scheme = ''] = TOKEN.exec(element.trim()) ?? [];
		// A parameter of the challenge before it.
		if (scheme === '' || /^\s*=/.test(element.trim().slice(scheme.length))) continue;
		if (!schemes.has(scheme.toLowerCase())) schemes.set(scheme.toLowerCase(), scheme.slice(0, 30));
	}
	return [...schemes.values()];
}

interface Facts {
	readonly codes: readonly string[];
	readonly names: readonly string[];
	/** What the proxy itself answered to the request for a tunnel. */
	readonly proxy: ProxyAnswer | null;
	readonly ourFault: boolean;
	/** Whether what could not be read as HTTP/1.1 begins as HTTP/2 does. */
	readonly speaksHttp2: boolean;
	readonly shown: ShownCertificates | null;
	/** The first address that has refused. */
	readonly refusedBy: string | null;
}

function collect(error: unknown): Facts {
	const codes: string[] = [];
	const names: string[] = [];
	let proxy: ProxyAnswer | null = null;
	let ourFault = false;
	let speaksHttp2 = false;
	let shown: ShownCertificates | null = null;
	let refusedBy: string | null = null;
	const seen = new Set<unknown>();
	const queue: unknown[] = [error];
	while (queue.length > 0 && seen.size < 32) {
		const one = queue.shift();
		if (typeof one !== 'object' || one === null || seen.has(one)) continue;
		seen.add(one);
		const { code, name, message, cause, errors, rawPacket, data } = one as Record<string, unknown>;
		if (isHttp2Settings(rawPacket) || isHttp2Settings(data)) speaksHttp2 = true;
		// If the TLS alert arrives during the write, only the text of the error identifies it.
		if (/alert no application protocol/.test(String(message ?? ''))) speaksHttp2 = true;
		if (typeof code === 'string') codes.push(code);
		if ('certificate' in one) shown = one.certificate as ShownCertificates;
		if (typeof name === 'string') names.push(name);
		if (code === 'ECONNREFUSED' && 'address' in one && refusedBy === null) refusedBy = String(one.address);
		if (code === 'ERR_PROXY_TUNNEL' && 'statusCode' in one) proxy = one as ProxyAnswer;
		if (typeof code === 'string' && code.startsWith('ERR_INVALID_')) ourFault = true;
		if (
			typeof code !== 'string' &&
			(one instanceof TypeError || one instanceof RangeError || one instanceof SyntaxError)
		)
			ourFault = true;
		queue.push(cause);
		if (Array.isArray(errors)) queue.push(...errors);
	}
	return { codes, names, proxy, ourFault, speaksHttp2, shown, refusedBy };
}

/** The first frame of every HTTP/2 server: its settings, on stream 0. Source: RFC 9113, 3.4 and 6.5. */
function isHttp2Settings(bytes: unknown): boolean {
	const at = (index: number) =>
		typeof bytes === 'string' ? bytes.charCodeAt(index) : bytes instanceof Uint8Array ? bytes[index] : undefined;
	return at(0) === 0 && at(1) === 0 && at(3) === 4 && at(4) === 0 && at(5) === 0;
}

export function inBrackets(text: string | undefined): string {
	return text === undefined ? '' : ` (${text})`;
}

/** As `classifyNetworkError`, for an upgrade to a WebSocket. */
export function classifyHandshakeError(error: Error | null, context: NetworkContext): Failure {
	// What `ws` finds wrong with an upgrade has no code and no secret in it.
	if (error && error.constructor === Error && !('code' in error))
		return failure('channel-rejected', `${context.host} did not upgrade to a WebSocket: ${error.message}.`, {
			params: { host: context.host },
		});
	return classifyNetworkError(error, context);
}

/**
 * A channel that did not open in time. A host that does not even take a connection is away; one that takes it and says nothing may be
 * slow, and has longer the next time. @param late.stands whether there is a connection, and late.isInTls whether its TLS handshake is under way.
 */
export function lateHandshake(
	late: NetworkContext & { readonly seconds: number; readonly stands: boolean; readonly isInTls?: boolean },
): {
	readonly failure: Failure;
	readonly timedOut: boolean;
} {
	const { host, seconds, stands, proxy } = late;
	const through = proxy ? ` through the proxy ${proxy}` : '';
	const message = `${host} did not open the channel${through} within ${seconds} s.`;
	if (late.isInTls) return { failure: stalledInTls(late), timedOut: true };
	if (stands || proxy)
		return { failure: failure('handshake-timeout', message, { params: { host, seconds } }), timedOut: true };
	const away = failure('connect-timeout', `${host} did not accept a connection in time.`, { params: { host } });
	return { failure: away, timedOut: false };
}

/** A channel on which nothing came for so long. @param silent.hasAnswered whether a ping on it was answered: then the service answers pings. */
export function fellSilent(
	silent: NetworkContext & { readonly seconds: number; readonly hasAnswered: boolean },
): Failure {
	const { host, proxy, seconds } = silent;
	const message = `${host} has said nothing on the channel for ${seconds} s.`;
	const params = { host, seconds };
	if (!silent.hasAnswered) return failure('channel-silent', message, { params });
	const look = proxy
		? `the proxy ${proxy} does not pass anything on, or the network on either side of it is silent. If it lasts, look at the proxy first`
		: 'the line is silent. If it lasts, check the network of this site and the devices on the way (router, firewall)';
	const remedy = `Pings were answered on this channel before: ${look}.`;
	return failure('channel-silent', message, { params, remedy });
}
