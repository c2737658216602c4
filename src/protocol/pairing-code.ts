/** A scanned, typed or photographed text: a code that pairs a device, or why it does not. Never throws. */
import { isCredential, parseAuthorization } from './authorization.ts';
import { workflowIdSchema } from './device-connection.ts';
import { DEEP_LINK_PATH, normalizeBaseUrl } from './endpoints.ts';
import { isObject, parseJson } from './json.ts';
import { kindOf } from './other-texts.ts';

/** Longest text that is looked at, in characters. The largest QR code holds 4,296. */
export const MAX_CODE_LENGTH = 4296;
/** How deep a link is looked for inside the parameters of other links. */
const MAX_NESTING = 3;

/** A one-time code. `baseUrl` is `null` when it is a bare token, which means something only with a configured service. */
export interface PairingCode {
	readonly kind: 'pairingCode';
	readonly baseUrl: string | null;
	/** The Short Token: a secret that works once. */
	readonly token: string;
	readonly workflowId: string | null;
	/** Present when the link also starts a session. */
	readonly sessionId: string | null;
	readonly form: 'link' | 'nestedLink' | 'json' | 'token';
}

export type NotACodeReason =
	| 'empty'
	| 'tooLong'
	| 'controlCharacters'
	| 'otherText'
	| 'linkWithoutToken'
	| 'otherScheme'
	| 'badBaseUrl'
	| 'badToken'
	| 'badWorkflow'
	/** A pairing code of which something is missing, or was changed on the way: its token may be another. */
	| 'damaged'
	/** Pairing codes that differ: nothing says which is meant. */
	| 'several';

export interface NotACode {
	readonly kind: 'notACode';
	readonly reason: NotACodeReason;
}

export type ScannedCode = PairingCode | NotACode;

/** Reads any of the forms of service-interface, Facts from the field, a JSON object `{baseUrl, token, workflowId}` or a bare token. */
export function readPairingCode(scanned: string): ScannedCode {
	if (scanned.length > MAX_CODE_LENGTH) return notACode('tooLong');
	// A scanner ends a code with CR or LF, and a person wraps a long one: line ends are not part of it.
	const lines = scanned
		.replace(/^\uFEFF/, '')
		.split(/[\r\n]+/)
		.map((line) => line.trim())
		.filter(Boolean);
	const [first = '', ...others] = lines;
	const isAgain = others.every((line) => line === first);
	const several = isAgain ? null : readSeveral(lines);
	if (several) return several;
	const [token, ...more] = LINK.test(first) || isAgain ? [] : lines.filter((line) => USUAL_TOKEN.test(line));
	if (token !== undefined && more.length === 0) return readBareToken(token);
	if (!isAgain && !LINK.test(first) && !isWrapped(lines)) return notACode('otherText');
	const text = readOnce(isAgain ? first : lines.join(''));
	return readSeveral([text]) ?? readText(text);
}

/** The one code that several whole ones are, on lines or run together; `null` where it is not several. */
function readSeveral(lines: readonly string[]): ScannedCode | null {
	const texts = lines.flatMap((line) => line.split(BEGINS_AGAIN));
	if (texts.length < 2 || !texts.every((text) => LINK.test(text) || USUAL_TOKEN.test(text))) return null;
	const read = texts.map((text) => readText(text.trim()));
	const [one, ...others] = read.filter((code) => code.kind === 'pairingCode');
	if (!one || others.length < read.length - 1) return null;
	return others.every(({ token }) => token === one.token) ? one : notACode('several');
}

function readText(text: string): ScannedCode {
	if (text === '') return notACode('empty');
	if (/[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/u.test(text)) return notACode('controlCharacters');
	if (text.startsWith('{')) return readJsonCode(text);
	// A form, or a text that names its link.
	const [, named] = /^\w+=(https?:.+)$/is.exec(text) ?? [];
	if (named) return readLink(named, 0);
	if (/^[a-z][a-z0-9+.-]*:/i.test(text) && !WITH_COLON.test(text)) return readLink(text, 0);
	return readBareToken(text);
}

/**
 * A code with a colon: before the first one is more than a scheme or a label has (letters alone, or up to three words with a number),
 * and nothing is an address, a port, a time or a group of digits.
 */
const WITH_COLON =
	/^(?!\d*[a-z+./_~-]*:|[a-z]*\d{0,4}(?:[+./_~-][a-z]*\d{0,4}){0,2}:)(?!.*(?:\/\/|:\/|\d\d?:\d\d:\d\d))(?![\w-]+(?:\.[\w-]+)*:\d{1,5}(?:\/|$))(?![\da-f:.-]+$)[\w.~+/:-]+=*$/i;

/** The form of Short Tokens in the field, some with their scheme. Source: service-interface, Facts from the field. */
const USUAL_TOKEN = /^(?:token\s+)?tr-[\w-]{26,30}$/i;

/** A link in a parameter of another one, or in an object, belongs to that. */
const BEGINS_AGAIN = /(?<=[^="])(?=https?:\/\/|\{")/i;

const LINK = /^(?:[a-z][a-z0-9+.-]*:|\{)/i;

/** One word that was broken at the width of a line; the lines of an address or of a bill differ in length. */
function isWrapped(lines: readonly string[]): boolean {
	const [{ length } = '', ...others] = lines;
	return others.every((line, at) => (at < others.length - 1 ? line.length === length : line.length <= length));
}

/** A link or an object that was scanned several times in a row, with nothing or spaces in between, is one. */
function readOnce(text: string): string {
	const again = LINK.test(text) ? text.indexOf(text.slice(0, 12), 12) : -1;
	if (again < 0) return text;
	const one = text.slice(0, again).trim();
	return text.split(one).every((between) => between.trim() === '') ? one : text;
}

function readLink(text: string, depth: number): ScannedCode {
	const url = URL.parse(text);
	if (!url) return notACode('otherText');
	const authorization = url.searchParams.getAll('authorization');
	if (authorization.length > 0) return readDeepLink(url, authorization, depth);

	const { hash, searchParams } = url;
	// Link shorteners and app stores carry the real link in one of their own parameters, or behind the `#`.
	const inner = [...searchParams.values(), ...new URLSearchParams(hash.slice(1)).values(), hash.slice(1)];
	const found = depth < MAX_NESTING ? readInner(inner, depth) : null;
	if (found) return found;
	return notACode(isCutOff(url) ? 'damaged' : 'linkWithoutToken');
}

/** The first link among these that is a pairing code, or was one. */
function readInner(texts: readonly unknown[], depth: number): ScannedCode | null {
	for (const text of texts) {
		if (typeof text !== 'string' || !/^\s*https?:/i.test(text)) continue;
		const found = readLink(text.trim(), depth + 1);
		if (found.kind === 'pairingCode' || found.reason !== 'linkWithoutToken') return found;
	}
	return null;
}

/** Whether it ends within the path or the parameters of a pairing code, before there is a token. */
function isCutOff({ pathname, searchParams }: URL): boolean {
	const [last = '', value = ''] = [...searchParams].at(-1) ?? [];
	const isBegun = last.length > 1 && value === '' && 'authorization'.startsWith(last);
	return pathname.endsWith(DEEP_LINK_PATH) && (isBegun || searchParams.size === 0);
}

/** Whether it ends within the name of its next parameter: of what was cut, more may be missing. */
function isCutInAName({ search, hash }: URL): boolean {
	const [, last = ''] = /&([a-z]+)$/i.exec(search + hash) ?? [];
	return last !== '' && ['workflowId', 'sessionId'].some((name) => name.startsWith(last));
}

/** Escapes of web pages and of JSON, and halves of escapes: what is left out, and where, is not known. A `+` is a space or itself. */
const ALTERED = /\\|&(?:amp|#0*38|#x0*26);|%(?![\da-f]{2})|[?&]authorization=[^&#+%\s]*(?:%20|[+\s])[^&#]*\+/i;

function readDeepLink(url: URL, authorization: readonly string[], depth: number): ScannedCode {
	if (authorization.length !== 1) return notACode('badToken');
	if (ALTERED.test(url.search + url.hash) || isCutInAName(url)) return notACode('damaged');
	// Its first signs are gone, up to its port at most.
	if (/^(?:t?t?ps?|s):$|\./.test(url.protocol) || /^\d+\//.test(url.pathname)) return notACode('damaged');
	const token = readToken(authorization[0] ?? '');
	if (typeof token !== 'string') return token;
	const prefix = url.pathname.replace(/\/+$/, '');
	const path = prefix.endsWith(DEEP_LINK_PATH) ? prefix.slice(0, -DEEP_LINK_PATH.length) : prefix;
	if (url.username || url.password) return notACode('badBaseUrl');
	const code = pairingCode({
		baseUrl: `${url.protocol}//${url.host}${path}`,
		token,
		workflowId: url.searchParams.get('workflowId') || null,
		sessionId: url.searchParams.get('sessionId') || null,
		form: depth === 0 ? 'link' : 'nestedLink',
	});
	// Of two workflows nothing says which is meant.
	const isOne = new Set(url.searchParams.getAll('workflowId')).size < 2;
	return isOne || code.kind === 'notACode' ? code : notACode('damaged');
}

function readJsonCode(text: string): ScannedCode {
	const document = parseJson(text) as Record<string, unknown> | undefined;
	if (document === undefined) return notACode(/baseUrl|token\W/i.test(text) ? 'damaged' : 'otherText');
	// In other letters the names are others, and so may the token be.
	const names = ['baseUrl', 'token', 'workflowId', 'sessionId'];
	const changed = (name: string) => names.some((known) => name !== known && name.toLowerCase() === known.toLowerCase());
	if (Object.keys(document).some(changed)) return notACode('damaged');
	const { baseUrl, token, workflowId, sessionId } = document;
	// The whole link may stand there under a name of its own.
	if (token === undefined) return readInner(textsIn(document, 0), 0) ?? notACode('linkWithoutToken');
	if (typeof token !== 'string') return notACode('linkWithoutToken');
	const found = readToken(token);
	if (typeof found !== 'string') return found;
	if (baseUrl !== undefined && baseUrl !== null && typeof baseUrl !== 'string') return notACode('badBaseUrl');
	if (workflowId !== undefined && workflowId !== null && typeof workflowId !== 'string') return notACode('badWorkflow');
	return pairingCode({
		baseUrl: baseUrl ?? null,
		token: found,
		workflowId: workflowId || null,
		sessionId: typeof sessionId === 'string' && sessionId ? sessionId : null,
		form: 'json',
	});
}

const textsIn = (value: unknown, depth: number): unknown[] =>
	isObject(value) && depth < MAX_NESTING ? Object.values(value).flatMap((one) => textsIn(one, depth + 1)) : [value];

function readBareToken(text: string): ScannedCode {
	const token = readToken(text);
	if (typeof token !== 'string')
		return token.reason === 'badToken' && !/^token\b/i.test(text) ? notACode('otherText') : token;
	// With its scheme before it, as in the header, a token may have any form.
	if (SCHEME_WORD.test(text) && PLAUSIBLE.test(token))
		return pairingCode({ baseUrl: null, token, workflowId: null, sessionId: null, form: 'token' });
	// A shelf label or a serial number must not be taken for a secret: tokens are long and hardly ever only digits.
	const isWord = /^[\w.~+/-]+=*$/.test(token) || WITH_COLON.test(token);
	if (token.length < 16 || kindOf(token) !== null || /^\d+$/.test(token) || !isWord) return notACode('otherText');
	return pairingCode({ baseUrl: null, token, workflowId: null, sessionId: null, form: 'token' });
}

const SCHEME_WORD = /^\s*token\s/i;
/** One word that is neither a piece of a link nor the beginning of a signed token. */
const PLAUSIBLE = /^(?!https?\b|eyJ)(?!.*\/\/)[\w.~+/:-]{4,}={0,2}$/i;

/** The form of a code that {@link asGivenCode} takes, in words. */
export const SHORT_TOKEN_FORM =
	'one word of at least four letters, digits and . ~ _ + / : -; without a digit, or with letters alone before a colon, as "Token WORD"';

/**
 * A text of which a person says that it is the code, as what it then means: the interface gives a Short Token no form, so one word with a digit
 * may be one, however short; one without, or of the form of another thing, is more often a slip, and takes its scheme before it. A text that a scanner, a picture or the camera gives has to look like a code.
 */
export function asGivenCode(text: string): string {
	const read = readPairingCode(text);
	const isOther = read.kind === 'notACode' && (read.reason === 'otherText' || read.reason === 'linkWithoutToken');
	const named = `Token ${text.trim()}`;
	const isNamed = kindOf(text) !== null && !/^\d+$/.test(text.trim());
	return isOther &&
		!isNamed &&
		/\d/.test(text) &&
		PLAUSIBLE.test(text.trim()) &&
		readPairingCode(named).kind === 'pairingCode'
		? named
		: text;
}

/** `Token <token>`, with a slip in the scheme word forgiven, or the token alone. */
function readToken(text: string): string | NotACode {
	const trimmed = text.trim();
	const [word = '', ...rest] = trimmed.split(/\s+/);
	// A person who types a long token groups it: white space inside is theirs, not the service's.
	const token = rest.length > 0 && isNearly(word, 'token') ? rest.join('') : trimmed.replaceAll(/\s+/g, '');
	if (rest.length > 0 && !isNearly(word, 'token')) {
		if (parseAuthorization(trimmed)) return notACode('otherScheme');
		return notACode('badToken');
	}
	// A link whose token was left empty holds the scheme word alone, which is long enough to look like a token.
	if (rest.length === 0 && isNearly(word, 'token')) return notACode('badToken');
	// The space after the scheme was lost, or the signs that stand for it.
	if (rest.length === 0 && /^token./i.test(word)) return notACode('damaged');
	if (CUT_JWT.test(token)) return notACode('damaged');
	return token.length >= 4 && isCredential(token) ? token : notACode('badToken');
}

/** A signed token has three parts, and its first begins with `{"alg"` or `{"typ"`. No other form of a token tells its length. */
const CUT_JWT = /^eyJ(?:hbGci|0eXAi)[\w-]*(?:\.[\w-]*)?\.?$/;

function pairingCode(code: Omit<PairingCode, 'kind'>): ScannedCode {
	const baseUrl = code.baseUrl === null ? null : normalizeBaseUrl(code.baseUrl);
	if (code.baseUrl !== null && baseUrl === null) return notACode('badBaseUrl');
	if (code.workflowId !== null && !isWorkflow(code.workflowId)) return notACode('badWorkflow');
	if (code.sessionId !== null && !/^[\w.~-]{1,128}$/.test(code.sessionId))
		return { kind: 'pairingCode', ...code, baseUrl, sessionId: null };
	return { kind: 'pairingCode', ...code, baseUrl };
}

/** The name of a workflow is shown: what holds a part of another link may hold its token. */
const isWorkflow = (text: string) => workflowIdSchema.safeParse(text).success && !/:\/\/|authorization\b/i.test(text);

function notACode(reason: NotACodeReason): NotACode {
	return { kind: 'notACode', reason };
}

/** Whether two words are the same but for capitals and at most one slip: a letter wrong, missing, doubled or swapped. */
function isNearly(word: string, known: string): boolean {
	const typed = word.toLowerCase();
	if (typed === known) return true;
	if (Math.abs(typed.length - known.length) > 1) return false;
	let start = 0;
	while (start < Math.min(typed.length, known.length) && typed[start] === known[start]) start += 1;
	const rest = (text: string, skip: number) => text.slice(start + skip);
	return (
		rest(typed, 1) === rest(known, 1) ||
		rest(typed, 1) === rest(known, 0) ||
		rest(typed, 0) === rest(known, 1) ||
		(rest(typed, 2) === rest(known, 2) && typed[start] === known[start + 1] && typed[start + 1] === known[start])
	);
}
