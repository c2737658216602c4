/**
 * The failure for a registration's answer in which no Connection token could be found: where its texts are, and the setting
 * that names the right one. Never repeats a text; names of places are cleaned like everything that a service says.
 * An answer with a good status may also say no: then its own words matter, and no setting does.
 */
import { type Failure, failure } from '../base/errors.ts';
import { firstMembers, isObject, parseJson } from '../protocol/json.ts';
import { cleanText } from '../protocol/problem.ts';
import {
	type AnswerText,
	holdsWordsOnly,
	likelyFirst,
	looksLikeToken,
	type RegistrationAnswer,
	readAnswerTexts,
} from '../protocol/registration-answer.ts';

/** Places that a message names, at most. */
const MAX_NAMED_PLACES = 20;
/** Of one place, in characters: one that looks right is copied into the settings, also from 40 levels deep. */
const MAX_LIKELY_PLACE = 700;
const MAX_OTHER_PLACE = 80;

/** Members of an answer that say whether it is a yes, by their names. */
const YES = /^(?:is_?)?(?:success(?:ful)?|ok|accepted|approved|allowed|granted|authori[sz]ed)$/i;
const NO = /^(?:is_?)?(?:denied|rejected|refused|failed|forbidden|error)$/i;
const STATE = /^(?:status|state|result|outcome|decision)$/i;
const REFUSED = /^(?:error|fail|denied|rejected|refused|invalid|expired|forbidden|unauthori[sz]ed)/i;
const NUMBER = /^(?:status|status_?code|code|error_?code)$/i;
const MAX_MEMBERS = 100;

/**
 * Whether an answer with a good status says no, or not yet: by a member such as `success`, `error` or `status`, or as a 202 without anything
 * that could be a token; `words` where it holds nothing but what it says to people. Source: assumed (errors); RFC 9110, 15.3.3.
 */
export function refusalIn(
	answer: { readonly status: number } & RegistrationAnswer,
): 'refused' | 'pending' | 'words' | null {
	const texts = readAnswerTexts(answer);
	const words = holdsWordsOnly(texts) ? 'words' : null;
	const document = parseJson(answer.body.trim());
	if (!isObject(document)) return words;
	const { error, errors } = document;
	const isError = (value: unknown) => (typeof value === 'string' && value !== '') || value === true || isObject(value);
	const says = (names: RegExp, words: RegExp) =>
		[...firstMembers(document, MAX_MEMBERS)].some(([name, value]) => names.test(name) && words.test(String(value)));
	if (isError(error) || (Array.isArray(errors) && errors.length > 0)) return 'refused';
	if (says(YES, /^(?:false|no|0)$/i) || says(NO, /^(?:true|yes|1)$/i)) return 'refused';
	if (says(STATE, /^(?:pending|waiting|queued|processing|in[-_ ]?progress|awaiting)/i)) return 'pending';
	if (says(STATE, REFUSED) || says(NUMBER, /^[45]\d\d(?:\d\d)?$/)) return 'refused';
	return answer.status === 202 && !texts.some(looksLikeToken) ? 'pending' : words;
}

/** Nothing in the answer is a text: no setting names a place in it. */
const NOTHING_TO_NAME =
	'No setting reads a Connection from such an answer: the operator must have the service send it as a text in JSON, as plain text, in a header or in a cookie.';

/** As a message names it; `""` is what the setting has. */
const WHOLE_BODY = 'the whole body ("")';
/** As a file of settings has it. */
const lineFor = (place: string) => `"service": {"tokenPointer": ${JSON.stringify(cleanText(place, MAX_LIKELY_PLACE))}}`;

export interface UnreadAnswer {
	readonly status: number;
	readonly host: string;
	readonly texts: readonly AnswerText[];
	/** Only for the words about one without any text. */
	readonly body?: string;
	/** Whether it repeats what the device has sent: that is not among the texts. */
	readonly isRepeated?: boolean;
	/** Where the settings say that the token is. */
	readonly tokenPointer?: string | null | undefined;
}

/** The service said yes and sent no token where one is looked for: the places at which texts are, never what they say. */
export function unreadAnswer({ status, host, texts, body = '', isRepeated, tokenPointer }: UnreadAnswer): Failure {
	const named = (places: readonly AnswerText[], maxLength: number) =>
		places.slice(0, MAX_NAMED_PLACES).map(({ place }) => (place === '' ? WHOLE_BODY : cleanText(place, maxLength)));
	const likely = named(likelyFirst(texts).filter(looksLikeToken), MAX_LIKELY_PLACE);
	const others = named(
		texts.filter((one) => !looksLikeToken(one)),
		MAX_OTHER_PLACE,
	).slice(0, MAX_NAMED_PLACES - likely.length);
	const asked = tokenPointer === '' ? WHOLE_BODY : cleanText(tokenPointer ?? '', 80);
	const looked = asked === '' ? 'where one is usually found' : `at ${asked}`;
	// The two bytes of the mark at its start have become two of the characters for unreadable bytes.
	const isWide = /^\uFFFD{0,2}(?:[^\0]\0|\0[^\0])/.test(body);
	const found = isWide
		? 'The answer is in UTF-16, and JSON is in UTF-8 (RFC 8259)'
		: texts.length === 0
			? isRepeated
				? 'The answer only repeats what the device has sent'
				: body.trim().startsWith('<')
					? 'The answer is XML'
					: body.trim() !== '' && parseJson(body) === undefined
						? 'The answer cannot be read, or was cut'
						: 'The answer holds no text at all'
			: likely.length > 0
				? `What looks like a token is at: ${likely.join(', ')}${others.length > 0 ? `; other texts are at: ${others.join(', ')}` : ''}`
				: `Texts are at: ${others.join(', ')}`;
	const message = `${host} answered ${status}, but its answer has no Connection token ${looked}. ${found}.`;
	const [first] = likelyFirst(texts);
	return failure('answer-unreadable', message, {
		params: { host, status, places: [...likely, ...others].join(', ') },
		remedy:
			texts.length === 0 || isWide
				? NOTHING_TO_NAME
				: `Set service.tokenPointer to the place of the Connection token, such as ${lineFor(first?.place ?? '')}.`,
	});
}
