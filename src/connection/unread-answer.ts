/**
 * The failure for a registration's answer in which no Connection token could be found: where its texts are, and the setting
 * that names the right one. Never repeats a text; names of places are cleaned like everything that a service says.
 */
import { type Failure, failure } from '../base/errors.ts';
import { cleanText } from '../protocol/problem.ts';
import { type AnswerText, likelyFirst, looksLikeToken } from '../protocol/registration-answer.ts';

/** Places that a message names, at most. */
const MAX_NAMED_PLACES = 20;
/** Of one place, in characters: one that looks right is copied into the settings, also from 40 levels deep. */
const MAX_LIKELY_PLACE = 700;
const MAX_OTHER_PLACE = 80;

export interface UnreadAnswer {
	readonly status: number;
	readonly host: string;
	readonly texts: readonly AnswerText[];
	/** Where the settings say that the token is. */
	readonly tokenPointer?: string | null | undefined;
}

/** The service said yes and sent no token where one is looked for: the places at which texts are, never what they say. */
export function unreadAnswer({ status, host, texts, tokenPointer }: UnreadAnswer): Failure {
	const named = (places: readonly AnswerText[], maxLength: number) =>
		places
			.slice(0, MAX_NAMED_PLACES)
			.map(({ place }) => (place === '' ? 'the whole body' : cleanText(place, maxLength)));
	const likely = named(likelyFirst(texts).filter(looksLikeToken), MAX_LIKELY_PLACE);
	const others = named(
		texts.filter((one) => !looksLikeToken(one)),
		MAX_OTHER_PLACE,
	).slice(0, MAX_NAMED_PLACES - likely.length);
	const looked = tokenPointer ? `at ${cleanText(tokenPointer, 80)}` : 'where one is usually found';
	const found =
		texts.length === 0
			? 'The answer holds no text at all'
			: likely.length > 0
				? `What looks like a token is at: ${likely.join(', ')}${others.length > 0 ? `; other texts are at: ${others.join(', ')}` : ''}`
				: `Texts are at: ${others.join(', ')}`;
	const message = `${host} answered ${status}, but its answer has no Connection token ${looked}. ${found}.`;
	const [first] = likely;
	return failure('answer-unreadable', message, {
		params: { host, status, places: [...likely, ...others].join(', ') },
		remedy:
			tokenPointer && likely.length > 0 && first === 'the whole body'
				? 'Remove service.tokenPointer: the whole answer looks like the token.'
				: `Set service.tokenPointer to the place of the Connection token${first === undefined ? '' : `, such as ${first}`}.`,
	});
}
