/**
 * The answer to a registration: every text in it with its place, and which of them is the Connection token. The interface
 * says that a token comes back, not where. Decides nothing about what happens to an answer without one, and prints no text.
 * Source: assumed (token-place).
 */
import { isCredential } from './authorization.ts';
import { firstMembers, parseJson } from './json.ts';

/** A text of an answer, and its place as `service.tokenPointer` names it: a JSON pointer (RFC 6901), `header:NAME`, or `cookie:NAME`. */
export interface AnswerText {
	/** `''` is the whole body: a JSON string or number, or plain text. A pointer may lead on into a string that holds JSON. */
	readonly place: string;
	/** May be a secret. */
	readonly text: string;
}

export interface RegistrationAnswer {
	readonly body: string;
	/** Names in lower case. */
	readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Places in which a Connection token is looked for, in this order; then a bare JSON string or plain text. Source: assumed (token-place). */
export const TOKEN_POINTERS = ['/token', '/connectionToken', '/authorization', '/connection/token'] as const;

/** The bounds of what is read of one answer: a huge one costs no more than a large one. */
const MAX_TEXTS = 1000;
/** Of lists and objects, whatever is in them. */
const MAX_VALUES = 10_000;
const MAX_DEPTH = 100;
/** Of a body that is a form, in characters. */
const MAX_FORM = 64 * 1024;
/** A bare text shorter than this is a word such as "ok", not a secret. In a named place any length is taken. */
const LEAST_BARE_TOKEN = 8;
/** An id, a time or a status: it is the token where a person says so. */
const BARE_NUMBER = /^\d{1,19}$/;

/** A scheme or a label before the token itself: `Connection `, `Bearer `, `token=`. */
const LABEL = /^(?:authorization|connection|bearer|token|apikey|jwt)(?:\s*[:=]\s*|\s+|%20|\+)(?=\S)/i;
const SCHEME = /^[A-Za-z][A-Za-z-]{0,31}:?\s+(\S{16,})$/;
const JWT = /^[\w-]{4,}\.[\w-]{4,}\.[\w-]*$/;
const OPAQUE = /^(?=.*\d)[\w.~+/=|-]{20,}$/;
/** A word for a failure, alone or run together with others: `error`, `ServiceUnavailable`, `invalid_token`. */
const FAILURE =
	/(?:^|[_.-])(?:errors?|err|not|already|too|your|exception|fail|failed|failure|fault|invalid|expired|revoked|denied|refused|rejected|forbidden|unauthori[sz]ed|unavailable|unknown|missing|exceeded|quota|reached|blocked|locked|disabled|conflict|busy|maintenance|timeout|overloaded|pending|a?waiting|queued|processing|approval|undefined|null|none|nil|nan|false)(?:$|[_.-])/i;
/** Signs of programs, forms and addresses that no token has: base64 has `=` at its end only. */
const OF_PROGRAM =
	/["'`<>;()\\?&$@{}]|\*{3}|^(?:https?:\/\/|urn:|0x)|^(?:error|err|fail|fault|status|success|message|msg|reason|detail|result)\w*(?:=(?!=*$)|:)/i;
/** Words of a language, also run together. */
const WORDS = /^(?:[A-Z]?[a-z]+(?:[A-Z_.-]+[a-z]{2,})*|[A-Z_-]+)$/;
/** A text of letters that is shorter, and looks like a word of any language, is none that a service has drawn. */
const LEAST_WORDS = 20;
/** A long word with a digit, which is neither a time nor a path of short parts, or bytes of another encoding: such a text is never shown. */
const PERHAPS_SECRET = /(?:^|\s)(?!\d{4}-\d\d-\d\d|(?:\/[\w.-]{0,11})+(?:\s|$))(?=\S*\d)\S{12,}|[\0\uFFFD]/;
/** A number of a status, a version, also of a program, a date, a time, a path, the name of a file, a host with its port or the address of a card. */
const NO_SECRET =
	/^(?:.{1,3}|(?:[a-z]+\/)?v?\d+(?:\.\d+)+|\d{4}-\d\d-\d\d(?:[T ].*)?|\d\d?:\d\d(?::\d\d)?|(?:\/[\w.-]{0,11})+|[\w-]+\.(?:html?|php|aspx?|txt|js(?:on)?|css|xml)|[\w.-]+:\d{1,5}|[\da-f]{2}(?:[:-][\da-f]{2}){5})$/i;
/** What the request has said of the device: the answer may repeat it. */
const OF_THE_REQUEST = /(?:device|workflow)_?(?:id|type)$|serial|mac_?address/i;
const NAME_OF_WORDS = /(?:message|msg|detail|reason|title|description|faultstring|hint|error)s?$/i;
/** Where a service, or what stands before it, has what it finds a request again by. */
const OF_REQUEST =
	/^(?:header:|.*\/)[^/]*(?:(?:request|correlation|transaction|trace|span|cf)[-_]?id|traceparent|cf-ray)$/i;
const OUTSIDE = /^(?:header|cookie):/;
const TELLING_NAME = /token|auth|credential|secret|jwt|connection/i;
/** Headers that every service sends; none is a secret of the device's. */
const USUAL_HEADERS =
	/^(?:accept-.*|access-control-.*|age|allow|alt-svc|cache-control|connection|content-.*|cross-origin-.*|date|etag|expires|keep-alive|last-modified|link|location|nel|p3p|permissions-policy|pragma|proxy-.*|rate-?limit.*|referrer-policy|report-to|retry-after|server.*|strict-transport-security|trailer|transfer-encoding|upgrade|vary|via|warning|www-authenticate|x-content-type-options|x-frame-options|x-powered-by|x-rate-?limit.*|x-xss-protection)$/;

/**
 * The Connection token among the texts of an answer: at `tokenPointer` if it is set, else in the first of the known places,
 * else the whole body. A scheme before it is dropped. A word for a failure is none, unless a person has named its place.
 * @returns `null` when there is none that could be sent back in a header.
 */
export function tokenIn(texts: readonly AnswerText[], tokenPointer?: string | null): string | null {
	const at = (place: string) => texts.find((one) => samePlace(one.place, place));
	if (tokenPointer !== undefined && tokenPointer !== null) {
		const found = at(tokenPointer);
		return found ? asToken(found.text) : null;
	}
	for (const place of TOKEN_POINTERS) {
		const token = credible(at(place)?.text ?? '');
		if (token !== null) return token;
	}
	const bare = credible(at('')?.text ?? '');
	return bare !== null && bare.length >= LEAST_BARE_TOKEN && !BARE_NUMBER.test(bare) && !NO_SECRET.test(bare)
		? bare
		: null;
}

/** Every text of an answer, in the order of the document, headers last; none of a page or of JSON whose end is missing. */
export function readAnswerTexts({ body, headers = {} }: RegistrationAnswer): AnswerText[] {
	const texts: AnswerText[] = [];
	// `trim` also takes a byte order mark away, at which JSON ends in an error.
	const trimmed = body.trim();
	const document = parseJson(trimmed);
	// A number has digits that only its text still has.
	if (document !== undefined && typeof document !== 'number') collect(document, '', 0, { texts, left: MAX_VALUES });
	else if (trimmed.length < MAX_FORM && trimmed.includes('&') && /^[^\s<>{}"[\]]+=[^\s<>]*$/.test(trimmed))
		for (const [name, text] of new URLSearchParams(trimmed)) texts.push({ place: `/${escaped(name)}`, text });
	else if (trimmed !== '' && !/^[<{["]/.test(trimmed)) texts.push({ place: '', text: trimmed });
	for (const [name, text] of Object.entries(headers))
		if (name === 'set-cookie') texts.push(...cookiesIn(text));
		else if (!USUAL_HEADERS.test(name) && !OF_REQUEST.test(`header:${name}`))
			texts.push({ place: `header:${name}`, text });
	return texts;
}

/** The texts without those that only repeat what the device has sent itself, with a scheme, in an address or in capitals, too. */
export function withoutSent(texts: readonly AnswerText[], sent: readonly string[]): AnswerText[] {
	const inBase64 = sent.filter((one) => /^[ -~]+$/.test(one)).map((one) => btoa(one));
	const known = [...sent, ...inBase64].map((one) => one.toLowerCase());
	const lastOf = (text: string) =>
		text
			.trim()
			.split(/[\s/]+/)
			.at(-1) ?? '';
	return texts.filter(
		({ text }) => ![asToken(text) ?? '', lastOf(text)].some((one) => known.includes(one.toLowerCase())),
	);
}

/** Several are on one line, with commas also in their dates. */
function cookiesIn(header: string): AnswerText[] {
	return header.split(/,\s*(?=[\w!#$%&'*+.^`|~-]+=)/).flatMap((cookie) => {
		const [, name, text] = /^\s*([\w!#$%&'*+.^`|~-]+)=([^;]*)/.exec(cookie) ?? [];
		return name === undefined || text === undefined ? [] : [{ place: `cookie:${name}`, text }];
	});
}

/** Whether a text could be the token that was not found yet: by its form, or by the name of its place. */
export function looksLikeToken({ place, text }: AnswerText): boolean {
	const token = credible(text);
	if (token === null || /^https?:\/\//i.test(token) || OF_REQUEST.test(place)) return false;
	const name = nameOf(place);
	return JWT.test(token) || OPAQUE.test(token) || (token.length >= LEAST_BARE_TOKEN && TELLING_NAME.test(name));
}

/** Whether there are texts, and none of them could be the token, however short: no setting finds it in such an answer. */
export function holdsWordsOnly(texts: readonly AnswerText[]): boolean {
	const said = texts.filter(({ text }) => text.trim() !== '');
	const inBody = said.filter(({ place }) => !OUTSIDE.test(place));
	return inBody.length > 0 && !said.some(mayBeToken);
}

function mayBeToken(one: AnswerText): boolean {
	if (OF_THE_REQUEST.test(nameOf(one.place)) || OF_REQUEST.test(one.place)) return false;
	if (OUTSIDE.test(one.place) || looksLikeToken(one)) return looksLikeToken(one);
	if (PERHAPS_SECRET.test(one.text)) return true;
	const sent = asToken(one.text);
	// A Connection of letters alone, where the place says what it is: a person may name that place.
	if (sent !== null && sent.length >= LEAST_BARE_TOKEN && isUsualPlace(one.place) && !isFailure(sent)) return true;
	const token = credible(one.text);
	if (token === null || NO_SECRET.test(token) || /id$/i.test(nameOf(one.place))) return false;
	return !(WORDS.test(token) && (token.length < LEAST_WORDS || NAME_OF_WORDS.test(nameOf(one.place))));
}

const nameOf = (place: string) => place.slice(place.lastIndexOf('/') + 1);

/** The token in a text, unless it is made of words for people or of a program. */
function credible(text: string): string | null {
	const token = asToken(text);
	if (token === null || OF_PROGRAM.test(token)) return null;
	if (token.length < LEAST_WORDS && /^[a-z]+$/i.test(token) && WORDS.test(token)) return null;
	if (/^[A-Z]+(?:[_-][A-Z]+)+$/.test(token)) return null;
	return isFailure(token) ? null : token;
}

const isUsualPlace = (place: string) => (TOKEN_POINTERS as readonly string[]).includes(place);
const isFailure = (token: string) =>
	/^[A-Za-z_.-]+$/.test(token) && FAILURE.test(token.replace(/([a-z])([A-Z])/g, '$1_$2'));

/** The texts that could be the token first: those that say so by name or form, then others, then ids, which rarely are one. */
export function likelyFirst(texts: readonly AnswerText[]): AnswerText[] {
	const rank = (one: AnswerText) => {
		if (!looksLikeToken(one)) return mayBeToken(one) && asToken(one.text) !== null ? 3 : 4;
		const name = nameOf(one.place);
		// The id of a connection is none, and what refreshes it opens no channel.
		if (/id$|refresh/i.test(name)) return 2;
		if (TELLING_NAME.test(name) || JWT.test(asToken(one.text) ?? '')) return 0;
		return 1;
	};
	return texts.toSorted((a, b) => rank(a) - rank(b));
}

/** The token in a text, without the scheme or label before it; `null` for what no header could carry. */
function asToken(text: string): string | null {
	let token = text
		.trim()
		.replace(/^(["'])(.*)\1$/s, '$2')
		.trim();
	const carried = /^[a-z][a-z0-9+.-]*:\/\//i.test(token) ? URL.parse(token)?.searchParams.get('authorization') : null;
	token = carried ?? token;
	for (let labels = 0; labels < 3 && LABEL.test(token); labels += 1) token = token.replace(LABEL, '').trim();
	const last = SCHEME.exec(token)?.[1] ?? '';
	if (JWT.test(last) || OPAQUE.test(last)) token = last;
	return isCredential(token) ? token : null;
}

function collect(value: unknown, place: string, depth: number, found: { texts: AnswerText[]; left: number }): void {
	if (found.texts.length >= MAX_TEXTS || depth > MAX_DEPTH) return;
	if (typeof value === 'string') {
		const within = /^\s*[{[]/.test(value) ? parseJson(value) : undefined;
		if (within === undefined) found.texts.push({ place, text: value });
		else collect(within, place, depth + 1, found);
	} else if (typeof value === 'object' && value !== null)
		for (const [key, one] of firstMembers(value, found.left)) {
			found.left -= 1;
			if (found.left < 0) return;
			if (typeof one === 'string' || typeof one === 'object')
				collect(one, `${place}/${escaped(key)}`, depth + 1, found);
		}
}

function samePlace(known: string, asked: string): boolean {
	return known === asked || (asked.startsWith('header:') && known === asked.toLowerCase());
}

function escaped(key: string): string {
	return key.replaceAll('~', '~0').replaceAll('/', '~1');
}
