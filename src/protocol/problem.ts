/** Error bodies as RFC 9457 problem documents. Source: assumed (errors). */
import { firstMembers, isObject, parseJson } from './json.ts';
import { looksLikeToken } from './registration-answer.ts';

export const PROBLEM_CONTENT_TYPE = 'application/problem+json';

/** On every answer of the agent's own under `/v1/service/`, and on none of the service. */
export const EFFECT_HEADER = 'Idv-Agent-Effect';

export interface ProblemDocument {
	/** HTTP status, repeated in the body. */
	readonly status: number;
	/** The kind of problem, in a few words. */
	readonly title: string;
	/** The message. */
	readonly detail?: string;
	/** Permanent kebab-case name for programs. */
	readonly code?: string;
	readonly remedy?: string;
	/** The names and numbers in the detail, for the same text in another language. */
	readonly params?: Readonly<Record<string, string | number>> | undefined;
	/** Detail and remedy as one text for people. */
	readonly sentence?: string;
	/** Where in the request: one entry for each field. */
	readonly errors?: readonly { readonly path: string; readonly message: string }[];
}

/** Takes the place of a secret. */
export const SECRET_MARK = '[secret]';
/** Of each object of an error body, so many are looked through for words. */
const MAX_MEMBERS = 100;
/** Longest piece of foreign text that is passed on, in characters. */
const MAX_DETAIL = 200;

/**
 * The most telling words of an error body, made safe to print: a problem document's detail or title, the usual `message`,
 * `error_description` (RFC 6749) and `error` fields, or plain text. Empty for markup and for anything that cannot be read.
 */
export function readErrorDetail(body: string): string {
	const trimmed = body.trim();
	if (trimmed.startsWith('<')) return '';
	const document = parseJson(trimmed);
	if (document === undefined) return cleanWords(trimmed, MAX_DETAIL);
	const { detail, message, title, error_description: ofError, error, errors, reason, code } = Object(document);
	const first = Object(isObject(error) ? error : Object(Array.isArray(document) ? document : errors)[0]);
	const inside = [first.detail, first.message, first.title];
	const lists = [...firstMembers(Object(document), MAX_MEMBERS)].filter(([key]) => OF_FIELDS.test(key));
	const sentence = /\s/.test(String(code)) ? code : undefined;
	const words = [
		detail,
		message,
		title,
		ofError,
		error,
		...inside,
		reason,
		document,
		...lists.map(([, one]) => one),
		sentence,
	];
	const text = words.map(asWords).find((value) => value !== undefined) ?? '';
	const fields = readFieldErrors(body).filter((one) => !OF_SECRET.test(one.field) || !ONE_VALUE.test(one.message));
	const named = fields
		.map((one) => `${one.field}${IS_VERB.test(one.message) ? '' : ':'} ${one.message.replace(/\.$/, '')}`)
		.join(', ');
	// Some put the list itself into the text.
	const isFirst = text === '' || /^[[{]/.test(text) || fields.some((one) => one.message === text);
	return cleanWords(named === '' || text.includes(named) ? text : isFirst ? named : `${text} (${named})`, MAX_DETAIL);
}

/** A text, or a list of nothing else. */
function asWords(value: unknown): string | undefined {
	const texts = Array.isArray(value) ? value.slice(0, MAX_FIELDS) : [value];
	return texts.length > 0 && texts.every((one) => typeof one === 'string') ? texts.join('. ') : undefined;
}

/** Words of which the field is the subject. */
const IS_VERB = /^(?:has|have|is|was|does)\b/;
/** Of an error body, so many fields are named. */
const MAX_FIELDS = 5;
/** Names of lists and objects of what is wrong with fields, and those of a list's elements. */
const OF_FIELDS = /^(?:\w*errors?|details?|issues|\w*violations|invalid[-_]?params|messages?|\d+)$/i;
/** An error as a whole: its texts do not name fields. */
const WHOLE = /^(?:error|\d+)$/i;
const AT = /^(?:field(?:_?name)?|(?:property|instance)?_?path|pointer|name|property|loc|param(?:eter)?|target)$/i;
const SAID = ['message', 'msg', 'defaultMessage', 'detail', 'description', 'reason', 'error', 'title'];

interface FieldError {
	readonly field: string;
	readonly message: string;
}

/**
 * The words of an error body about each field, as most frameworks give them: in lists with the field and the message under their usual
 * names, or in objects of texts or lists by field.
 */
export function readFieldErrors(body: string): FieldError[] {
	return fieldsIn(parseJson(body.trim()), 0).slice(0, MAX_FIELDS);
}

function fieldsIn(value: unknown, depth: number): FieldError[] {
	if (typeof value !== 'object' || value === null || depth > 4) return [];
	const members = [...firstMembers(value, MAX_MEMBERS)];
	if (Array.isArray(value)) {
		const own = members.flatMap(([, one]) => fieldOf(one));
		if (own.length > 0) return own;
	}
	for (const [key, one] of members) {
		if (!OF_FIELDS.test(key)) continue;
		const found = fieldsIn(one, depth + 1);
		if (found.length > 0) return found;
		if (isObject(one) && !WHOLE.test(key)) {
			const byField = fieldsBy(one, '', depth, true);
			if (byField.length > 0) return byField;
		}
	}
	return isObject(value) ? fieldsBy(value, '', depth, false) : [];
}

/** @param isWhole whether all its texts are about a field; otherwise only lists of sentences are. */
function fieldsBy(value: object, before: string, depth: number, isWhole: boolean): FieldError[] {
	return [...firstMembers(value, MAX_MEMBERS)].flatMap(([key, one]) => {
		if (isObject(one) && depth < 4) return fieldsBy(one, `${before}${key}.`, depth + 1, isWhole);
		const text = Array.isArray(one) ? one[0] : isWhole ? one : null;
		if (typeof text !== 'string' || (!isWhole && (OF_FIELDS.test(key) || !/\s|\.$/.test(text)))) return [];
		return [{ field: `${before}${key}`, message: text }];
	});
}

/** Of an element of a list. */
function fieldOf(one: unknown): FieldError[] {
	const members = isObject(one) ? [...firstMembers({ ...one, ...Object(one['source']) }, MAX_MEMBERS)] : [];
	const [, at = ''] =
		members.find(([key, text]) => AT.test(key) && (typeof text === 'string' || Array.isArray(text))) ?? [];
	const field = Array.isArray(at) ? at.join('.') : String(at);
	const message = SAID.map((key) => Object(one)[key]).find((text) => typeof text === 'string');
	return field !== '' && message !== undefined ? [{ field, message }] : [];
}

/** Keys whose texts are for programs, or are shown already. */
const NO_WORDS =
	/code|status|type|id$|path|ur[il]|instance|method|time|trace|remedy|sentence|token|^(?:field|target|pointer|property|param)/i;
/** Names of credentials: what stands there may be one that the request has sent, and says nothing to people. */
const OF_SECRET =
	/(?:api|access|private|device)[-_]?key|secret|pass(?:word|wd|phrase|code)|auth(?:ori[sz]ation)?$|cookie|credential|token|jwt|bearer|session|signature/i;
/** One word that is none of a sentence. */
const ONE_VALUE = /^[a-z]*[^a-z\s]\S*$/;
const HINT = /hint|help|how|advice|instruct|expected|problem/i;

/** The words of a status alone (RFC 9110, 15): whatever they are called, they say no more than it does. */
export const PHRASE =
	/^\s*(?:[45]\d\d )?(?:unauthorized|forbidden|not found|bad request|method not allowed|conflict|gone|upgrade required|too many requests|internal server error|bad gateway|service unavailable|gateway timeout)\.?\s*$/i;
/** Keys of a word that names the reason for programs; of an address (RFC 9457, `type`) its last part does. */
const REASONS = /^(?:error_?)?(?:code|type|reason)$/i;
/** Or a number that HTTP does not have as a status. */
const REASON = /(?:^|[/:#])(?!(?:blank|error)$)([a-z][\w.-]{1,63}|\d{4,9})$/i;

function reasonsIn(value: unknown): string[] {
	const members = typeof value === 'object' && value ? [...firstMembers(value, MAX_MEMBERS)] : [];
	const own = members.map(([key, one]) => (REASONS.test(key) && REASON.exec(String(one))?.[1]) || '');
	return [...own, ...members.flatMap(([key, one]) => (OF_FIELDS.test(key) ? reasonsIn(one) : []))];
}

/** The reason that an error body gives in one word, without any other; empty if it gives none. */
export function namedReason(body: string): string {
	const words = reasonsIn(parseJson(body.trim()));
	return words.find((text) => text !== '' && !looksLikeToken({ place: '', text })) ?? '';
}

/**
 * {@link readErrorDetail} with the hint beside it; where no usual field has words, all texts of the body; where these say no more than the
 * status, the word for programs.
 */
export function readErrorWords(body: string): string {
	const detail = readErrorDetail(body);
	const texts = (value: unknown, depth: number): string[] =>
		[...firstMembers(isObject(value) && depth < 3 ? value : {}, MAX_MEMBERS)].flatMap(([key, one]) => {
			if (OF_SECRET.test(key) && !/(?:error|problem)s?$/i.test(key)) return [];
			if (isObject(one)) return texts(one, depth + 1);
			return typeof one === 'string' && !NO_WORDS.test(key) && (detail === '' || HINT.test(key)) ? [one] : [];
		});
	const words = [
		...new Set([detail, ...texts(parseJson(body.trim()), 0).map((one) => cleanWords(one, MAX_DETAIL))]),
	].filter(Boolean);
	if (words.every((one) => PHRASE.test(one) || one === SECRET_MARK)) words.push(namedReason(body));
	return cleanWords(words.filter(Boolean).join('. '), MAX_DETAIL);
}

/** A name or a scheme of credentials, and the value behind it: behind a blank or a colon one with letters and digits, as words have none. */
const NAMED =
	/\b((?:[\w-]*(?:key|secret|password|passwd|passphrase|cookie|credentials?|token|jwt|session|signature)|authorization|basic|bearer|digest|connection)["']?(?:=["']?|(?:\s*:\s*|\s+|%20)["']?(?=[\w.~+/%|-]*\d)(?=[\w.~+/%|-]*[a-z])(?=\S{6})))(?:(?:basic|bearer|token|connection|apikey)(?:%20|[\s+]+))?[\w.~+/=%|:-]+/gi;
/** Signed tokens, and keys whose first letters say what they are. */
const KEYS = /\beyJ[\w-]{6,}[\w.-]*|\b(?:[aprs]k|gh[oprsu]|pat|tr|xox[a-z])[-_](?=[\w-]*[\dA-Z])[\w-]{8,}/g;
const PLAIN = /^(?:[\da-f]{1,36}|[\dA-F]{1,36}|\d+|[A-Za-z]+)$/;
/** A part of the name of a thing: a word with a number. */
const NUMBERED = /^(?:\d*[A-Za-z]|[A-Za-z]?[a-z]+(?:[A-Z][a-z]+)*\d{1,8}|[A-Z]+\d{1,8})$/;
const LEAST_RUN = 20;
const isDrawn = (part: string) => !PLAIN.test(part) && (part.length >= LEAST_RUN || !NUMBERED.test(part));

/** The text without what has the form of a credential. Up to 36 hexadecimal digits stay, and UUIDs: a service finds a request again by them. */
function withoutCredentials(text: string): string {
	const ofForm = text.replace(NAMED, `$1${SECRET_MARK}`).replace(KEYS, SECRET_MARK);
	return ofForm.replace(/[\w~+/=|.-]{20,}/g, (word) => {
		const drawn = word.split(/[^A-Za-z\d]+/).filter(isDrawn);
		return drawn.join('').length >= LEAST_RUN / 2 ? SECRET_MARK : word;
	});
}

/** Words of a service as every sentence has them: as {@link cleanText}, without what may be a credential, also of another one. */
export function cleanWords(text: string, maxLength: number): string {
	// Before it is cut short: half of a credential has another form.
	return cleanText(withoutCredentials(cleanText(text, maxLength * 2)), maxLength);
}

/** Foreign text on one line: without control, invisible and direction-changing characters, and cut short. */
export function cleanText(text: string, maxLength: number): string {
	const oneLine = text
		.slice(0, maxLength * 4)
		.replace(/[\p{C}\p{Zl}\p{Zp}\s]+/gu, ' ')
		.trim();
	// The cut may go through a character of two halves.
	return oneLine.length > maxLength ? `${oneLine.slice(0, maxLength - 1).replace(/\p{Cs}$/u, '')}…` : oneLine;
}
