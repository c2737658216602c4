/** The meaning of an HTTP answer or a close code. Names host and status, never a credential or a query. Pure. */
import { type ErrorCode, type Failure, failure, type Params } from '../base/errors.ts';
import { cutOut } from '../base/escapes.ts';
import { joinSentences } from '../base/sentences.ts';
import type { AuthorizationScheme } from '../protocol/authorization.ts';
import { parseJson } from '../protocol/json.ts';
import { cleanText, namedReason, PHRASE, readErrorDetail, readErrorWords } from '../protocol/problem.ts';
import { looksLikeToken, readAnswerTexts, withoutSent } from '../protocol/registration-answer.ts';
import { proxyAnswered, wantsClientCertificate } from './classify-network-error.ts';
import { readHttpDate, readServiceMs } from './clock-skew.ts';
import { type CodeFate, codeFateIn, isOfFirewall } from './code-fate.ts';
import { refusalIn, unreadAnswer } from './unread-answer.ts';

export const SUBPROTOCOL_REMEDY = 'Set service.subprotocol to the one that the service asks for in its answer.';
/** For what is found by its form alone. */
const UPGRADE_REMEDY =
	'If a proxy such as nginx is in front of the service, let it pass on the headers Upgrade and Connection; otherwise check baseUrl and service.channelPath.';
const FIREWALL_REMEDY =
	'A firewall or a proxy in front of the service refused this request with a page of its own: have it let this device through.';
const PAGE_REMEDY =
	'A web page of the service, or of a firewall or proxy in front of it, refused this request: ask the operator of the service to allow this device, and the operator of the firewall or proxy to let it through.';
const pageRemedy = ({ headers, body }: HttpAnswer) => (isOfFirewall(headers, body) ? FIREWALL_REMEDY : PAGE_REMEDY);
/** Of a body that says no, in characters: its words come early in it, also before a stack trace. */
const MAX_REFUSAL = 256 * 1024;
/** The longest wait that is taken from a `Retry-After`: a day. */
export const MAX_ASKED_WAIT_MS = 24 * 60 * 60 * 1000;

/** An answer that is not the one that was hoped for. */
export interface HttpAnswer {
	readonly status: number;
	/** Names in lower case. */
	readonly headers: Readonly<Record<string, string>>;
	/** As much of the body as was read. */
	readonly body: string;
	/** The purpose of the request: a Connection token, the upgrade to `ws/device`, or anything else. */
	readonly purpose: 'register' | 'channel' | 'other';
	readonly host: string;
	/** Of the request, to which a redirect may be relative. Default `/`. */
	readonly path?: string | undefined;
	/** This device's clock, milliseconds since 1970: for an answer that does not tell the time. */
	readonly wallMs?: number | undefined;
	/** What the request was authorized with. */
	readonly scheme?: AuthorizationScheme | undefined;
	readonly workflowId?: string | undefined;
	/** Where the settings say that the token is; for a registration. */
	readonly tokenPointer?: string | null | undefined;
	/** A registration that the caller takes for one that goes on elsewhere, whatever its texts look like. */
	readonly isUndone?: boolean | undefined;
	/** Whether the answer came through TLS that was verified: then a portal cannot have sent it. */
	readonly secure?: boolean | undefined;
	/** Credentials that the answer may repeat; they are cut out of the message. */
	readonly secrets?: readonly string[] | undefined;
}

/** The status decides; the body is detail. Source: assumed (errors). */
export function classifyHttpAnswer(answer: HttpAnswer): Failure {
	const isGood = answer.status >= 200 && answer.status < 300;
	// The words of a refusal are looked for in several ways, each of which reads all of it.
	const failed = classifyStatus(isGood ? answer : { ...answer, body: answer.body.slice(0, MAX_REFUSAL) });
	const { 'retry-after': asked, date } = answer.headers;
	// A refused credential has a pace of its own, and a portal does not speak for the service.
	const hasOwnPace = answer.status === 401 || failed.code === 'captive-portal';
	const retryAfterMs = hasOwnPace ? undefined : readRetryAfter(asked, date, answer.wallMs);
	return retryAfterMs === undefined ? failed : { ...failed, retryAfterMs };
}

const NO_REASON =
	'The service gives no reason: ask its operator why it refuses what this device sends (deviceId, workflowId, serial, macAddress, deviceType).';

function classifyStatus(answer: HttpAnswer): Failure {
	const { status, purpose, host, headers } = answer;
	const said = (code: ErrorCode, more: { remedy?: string } = {}) => {
		const detail = detailOf(answer);
		return failure(code, `${host} answered ${status}${afterColon(detail)}`, {
			...more,
			params: paramsOf(answer, detail),
		});
	};
	if (status >= 200 && status < 300) return unexpectedSuccess(answer);
	const isPage = isWebPage(headers, answer.body);
	if (status >= 300 && status < 400) return redirected(answer);
	// Services differ in the status for a code that is over; their words do not.
	if (status >= 400 && status !== 407 && isByCode(answer) && (fateIn(answer) ?? 'unused') !== 'unused')
		return codeRefused(answer);
	if (status >= 400 && status < 500 && saysUnknownWorkflow(answer)) {
		const which = answer.workflowId === undefined ? 'this workflow' : `the workflow ${answer.workflowId}`;
		return failure('workflow-unknown', `${host} does not know ${which} (${status}).`, {
			params: paramsOf(answer, detailOf(answer)),
		});
	}
	// nginx lets the handshake pass and says so in a page. Source: its ngx_http_special_response.c, codes 495 and 496.
	if (status === 400 && /\bSSL certificate (?:error|was sent)/i.test(answer.body)) return wantsClientCertificate(host);
	switch (status) {
		case 401:
			if (isByCode(answer) && isPage) return said('access-forbidden', { remedy: pageRemedy(answer) });
			// In plain text any network on the way may have sent it, and a service sends no page to a device.
			if (isPage && answer.secure === false) return pageInstead(answer);
			return isByCode(answer) ? codeRefused(answer) : said('credential-refused');
		case 403:
			return said('access-forbidden', isPage ? { remedy: pageRemedy(answer) } : {});
		case 407:
			return proxyAnswered({ statusCode: status, offers: headers['proxy-authenticate'] }, host);
		// Whatever is behind a gateway may only restart: no more than 429 and 503 say that it has too much to do.
		case 408:
			return said('service-failed');
		case 429:
		case 503:
			return said('service-overloaded');
		case 511:
			return said('captive-portal');
		case 404:
		case 405:
		case 410:
		case 501:
			return nothingThere(answer, said);
	}
	// A device has one channel at a time with some services. Source: RFC 9110, 15.5.10.
	if (status === 409 && purpose === 'channel') return said('channel-occupied');
	if (status >= 500 && status < 600) return said('service-failed');
	if (status >= 400 && status < 500)
		return purpose === 'channel'
			? said('channel-rejected', rejectionRemedy(answer))
			: said('request-rejected', detailOf(answer) === '' ? { remedy: NO_REASON } : {});
	return said('bad-response', { remedy: 'The operator must look at what answers at this address.' });
}

/** Whether a one-time code was sent. */
function isByCode(answer: HttpAnswer): boolean {
	return answer.purpose === 'register' && answer.scheme === 'Token';
}

/** The fate of the code, as far as the service's words tell. */
export function fateIn({ body }: Pick<HttpAnswer, 'body'>): CodeFate | null {
	return codeFateIn(`${namedReason(body)}. ${readErrorWords(body)}`);
}

const FATES = {
	expired: 'This code has expired',
	used: 'This code was used already',
	refused: 'This code is not accepted',
};

function codeRefused(answer: HttpAnswer): Failure {
	const { status, host } = answer;
	const reason = fateIn(answer) ?? 'refused';
	const detail = detailOf(answer);
	// It says that the code is good: what it refuses is something else.
	if (reason === 'unused')
		return failure('request-rejected', `${host} answered ${status}${afterColon(detail)}`, {
			params: paramsOf(answer, detail),
		});
	return failure('code-expired-or-used', `${FATES[reason]}: ${host} answered ${status}${afterColon(detail)}`, {
		params: { ...paramsOf(answer, detail), reason },
	});
}

function rejectionRemedy(answer: HttpAnswer): { remedy?: string } {
	if (/sub-?protocol|sec-websocket-protocol/i.test(answer.body)) return { remedy: SUBPROTOCOL_REMEDY };
	return lacksUpgrade(answer) ? { remedy: UPGRADE_REMEDY } : {};
}

/** An upgrade was asked for, and what answers says that it was not: something on the way has taken it out. */
function lacksUpgrade(answer: HttpAnswer): boolean {
	return (
		answer.status === 426 ||
		(answer.status === 400 && (isBehindProxy(answer) || /upgrade|websocket/i.test(answer.body)))
	);
}

function isBehindProxy({ headers }: HttpAnswer): boolean {
	return (
		/nginx|openresty|apache|haproxy|envoy|caddy|traefik|varnish|iis/i.test(`${headers['server']} ${headers['via']}`) ||
		headers['via'] !== undefined
	);
}

/** A thing that a service looks up; no part of a path. */
const THING =
	'(?<![/\\w])(?:device|serial|session|tenant|customer|account|organi[sz]ation|location|licen[sc]e|user|kiosk)s?(?![/\\w])';
const UNKNOWN_THING = new RegExp(
	`${THING}.{0,150}\\b(?:unknown|not (?:found|exist|known|registered))|\\b(?:unknown|no such) ${THING}`,
	'i',
);
const ENDED_THING = /\b(?:suspended|disabled|deactivated|inactive|blocked|locked|revoked|quota|limit)\b/i;

type Said = (code: ErrorCode, more?: { remedy?: string }) => Failure;

function nothingThere(answer: HttpAnswer, said: Said): Failure {
	if (answer.status === 410 && isByCode(answer)) return codeRefused(answer);
	if (answer.purpose === 'channel') {
		const code = answer.status === 405 ? 'channel-rejected' : 'channel-not-found';
		return said(code, isBehindProxy(answer) ? { remedy: UPGRADE_REMEDY } : {});
	}
	// What was looked up there is not the path.
	if (
		answer.purpose === 'register' &&
		saidIn(answer).some((text) => UNKNOWN_THING.test(text) || ENDED_THING.test(text))
	)
		return said('request-rejected');
	const named = answer.purpose === 'register' && namedPath(answer);
	const remedy = named
		? `Set service.registrationPath to ${named}, which the service names.`
		: 'Check baseUrl: the service has no such endpoint at this address.';
	return said('bad-response', { remedy });
}

/** Another path that an answer says a registration is posted to. */
export function namedPath({ body, path }: Pick<HttpAnswer, 'body' | 'path'>): string | undefined {
	const paths = [...body.slice(0, 2000).matchAll(/\bPOST\b\W{1,9}?(\/[\w.~-]+(?:\/[\w.~-]+)*)/g)].map(([, one]) => one);
	return paths.find((one) => one !== undefined && one !== path && !body.includes(`Cannot POST ${one}`));
}

function unexpectedSuccess(answer: HttpAnswer): Failure {
	const { status, purpose, host, headers, body } = answer;
	const params = { host, status };
	if (isWebPage(headers, body)) {
		if (purpose !== 'channel' || answer.secure !== true) return pageInstead(answer);
		// The certificate was verified, so this is the service's own host: a web application answers for every path.
		const message = `${host} answered ${status} with a web page where the channel should be.`;
		return failure('channel-not-found', message, {
			params,
			remedy:
				'Set service.channelPath to the path of the channel; a web application of the service answers at this one.',
		});
	}
	if (purpose === 'channel')
		return failure('channel-rejected', `${host} answered ${status} instead of opening the channel.`, { params });
	if (purpose === 'register' && (answer.isUndone || refusalIn(answer) !== null)) return saidNo(answer);
	if (purpose === 'register') {
		const all = readAnswerTexts(answer);
		const texts = withoutSent(all, answer.secrets ?? []);
		return unreadAnswer({ ...answer, texts, isRepeated: texts.length < all.length });
	}
	return failure('bad-response', `${host} answered ${status} in a form that is not known.`, { params });
}

function pageInstead({ host, status }: HttpAnswer): Failure {
	const message = `${host} answered ${status} with a web page instead of the service.`;
	return failure('captive-portal', message, { params: { host, status } });
}

const BY_OPERATOR = 'The operator must complete the registration of this device; then pair it again.';

/** The status says yes and the body no, or not yet. */
function saidNo(answer: HttpAnswer): Failure {
	const { host, status, headers } = answer;
	const refusal = refusalIn(answer);
	const isPending = answer.isUndone || refusal === 'pending';
	if (!isPending && isByCode(answer) && (fateIn(answer) ?? 'unused') !== 'unused') return codeRefused(answer);
	const detail = detailOf(answer);
	const where = headers['location']?.replace(/[?#].*/, '');
	const what = isPending
		? `has not finished the registration of this device${where ? ` (Location: ${cleanText(cutOut(where, answer.secrets ?? []), 200)})` : ''}`
		: refusal === 'words'
			? 'has sent no Connection'
			: 'has not registered this device';
	return failure('request-rejected', `${host} answered ${status} and ${what}${afterColon(detail)}`, {
		params: paramsOf(answer, detail),
		...(isPending && { remedy: headers['retry-after'] === undefined ? BY_OPERATOR : 'Then pair it again.' }),
	});
}

/** Whether an answer is a page for people. JSON and a bare token are none: PHP and Tornado call all text `text/html`. */
export function isWebPage(headers: Readonly<Record<string, string>>, body: string): boolean {
	if (/^\s*<(?:!doctype|html)/i.test(body)) return true;
	// Frameworks call their own words HTML, too: `ws` answers 401 with "Unauthorized".
	if (!/\bhtml\b/i.test(headers['content-type'] ?? '') || PHRASE.test(body)) return false;
	return parseJson(body) === undefined && !looksLikeToken({ place: '', text: body.trim() });
}

function redirected(answer: HttpAnswer): Failure {
	const { status, host, headers, purpose } = answer;
	const location = headers['location'];
	// A plain answer can only have come to a plain request.
	const asked = `${answer.secure === false ? 'http' : 'https'}://${host}${answer.path ?? '/'}`;
	const target = location === undefined ? null : URL.parse(location, asked);
	const params = { host, status };
	// `file:` and `data:` have no host.
	if (!target?.host)
		return failure('redirect-refused', `${host} answered ${status} without an address to go to.`, { params });
	// A path that echoes a credential is not shown at all: what a URL makes of it may no longer be known as one.
	const echoes = (answer.secrets ?? []).some((secret) => secret.length >= 4 && location?.includes(secret));
	const shown = cleanText(cutOut(`${target.origin}${echoes ? '' : target.pathname}`, answer.secrets ?? []), 200);
	const moved = `The service has moved to another path, or asks for a sign-in: ${purpose === 'register' ? `if the registration is there, set service.registrationPath to ${pathOf(shown)} (without the path in baseUrl)` : 'check the path in baseUrl, and service.channelPath'}.`;
	if (location !== undefined && !/^(?:[a-z][a-z\d+.-]*:|[/\\]{2})/i.test(location))
		return failure('redirect-refused', `${host} answered ${status} and points at its own path ${pathOf(shown)}.`, {
			params: { ...params, address: cleanText(target.origin, 120) },
			remedy: moved,
		});
	const isUpgrade = target.protocol === 'https:' && answer.secure === false;
	const isMoved = purpose === 'register' && target.host === host && !isUpgrade && answer.path !== undefined;
	// A portal leads to a host of its own; the service itself moves a path or a scheme.
	return target.hostname !== URL.parse(`https://${host}`)?.hostname
		? failure(
				'captive-portal',
				`${host} answered ${status} and points at another host, ${cleanText(target.host, 100)}.`,
				{ params: { ...params, otherHost: cleanText(target.host, 100) } },
			)
		: failure('redirect-refused', `${host} answered ${status} and points at ${shown}.`, {
				params: { ...params, address: cleanText(target.origin, 120) },
				remedy: isMoved
					? moved
					: `Set baseUrl to the address that the service really has${target.protocol === 'https:' ? ` (here it begins with ${cleanText(target.origin, 120)})` : ''}; a credential is never sent on to another address.`,
			});
}

const pathOf = (address: string) => URL.parse(address)?.pathname ?? address;

const UNKNOWN_WORKFLOW =
	/\bworkflow(?:[ _-]?id)?\b.{0,150}(?:\bunknown|(?:\bnot|n't) (?:be )?(?:found|exist))|\b(?:unknown|no such|find(?: the| a)?) workflow\b|\bno workflow\b(?! (?:was |is )?(?:given|set|specified|provided|selected))/i;

function saysUnknownWorkflow(answer: HttpAnswer): boolean {
	if (answer.status === 401 || answer.status === 407 || answer.purpose === 'other') return false;
	if (namedReason(answer.body) === 'workflow-unknown') return true;
	if (![400, 403, 404, 409, 422].includes(answer.status)) return false;
	const said = saidIn(answer);
	if (said.some((text) => UNKNOWN_WORKFLOW.test(text))) return true;
	// What 403 calls invalid for a workflow is the credential.
	const isInvalid = (text: string) => /\bworkflow\b.{0,150}\binvalid|\binvalid workflow\b/i.test(text);
	return answer.status !== 403 && said.some(isInvalid);
}

/** The reason of a refusal, its words apart, and what it says to people. */
function saidIn({ body }: HttpAnswer): string[] {
	return [namedReason(body), readErrorDetail(body)].map((text) =>
		text.includes(' ') ? text : text.replace(/(?<=[a-z])(?=[A-Z])|[_.-]+/g, ' '),
	);
}

function afterColon(detail: string): string {
	return detail === '' ? '.' : `: ${joinSentences(detail)}`;
}

/** The words of the service, without what it was sent; empty for nothing that can be read. */
function detailOf({ body, secrets = [] }: HttpAnswer): string {
	// Before it is cut and after: half of a secret is not known as one, and escapes hide one.
	return cutOut(readErrorWords(cutOut(body, secrets)), secrets);
}

function paramsOf({ host, status, workflowId }: HttpAnswer, detail: string): Params {
	return { host, status, ...(workflowId !== undefined && { workflowId }), ...(detail !== '' && { detail }) };
}

/**
 * A `Retry-After` in milliseconds, at most {@link MAX_ASKED_WAIT_MS}: seconds, or a date. A date is reckoned from the answer's own
 * `Date`, since this device's clock may be wrong; only without one from that clock, which is not believed where the wait would be longer.
 * `undefined` when it says nothing usable. Source: RFC 9110, 10.2.3.
 */
export function readRetryAfter(
	retryAfter: string | undefined,
	date: string | undefined,
	wallMs = Number.NaN,
): number | undefined {
	const text = retryAfter?.trim() ?? '';
	if (/^\d+$/.test(text)) return Math.min(Number(text) * 1000, MAX_ASKED_WAIT_MS) || undefined;
	const untilMs = readHttpDate(text);
	// A time of now beside a clock that was never set is not counted by that clock.
	const toldMs = readServiceMs(text) === undefined ? readHttpDate(date) : (readServiceMs(date) ?? Number.NaN);
	const waitMs = untilMs - (Number.isNaN(toldMs) ? wallMs : toldMs);
	if (Number.isNaN(toldMs) && waitMs > MAX_ASKED_WAIT_MS) return undefined;
	return waitMs > 0 ? Math.min(waitMs, MAX_ASKED_WAIT_MS) : undefined;
}
