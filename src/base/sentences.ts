/** How a failure is told: the one place where message, remedy and recovery become a text. Never cuts or repairs one. */
import type { ProblemDocument } from '../protocol/problem.ts';
import type { Failure } from './errors.ts';

/** `over`: what was asked for has failed, and nothing tries it again. `ongoing`: the agent still works on it. */
export type Course = 'over' | 'ongoing';

const RECOVERY = 'The agent retries automatically.';
const ENDS = ['.', '!', '?', '…'];

/** Message, remedy and, if the agent still works on it and can go on without a person, a sentence that says so. */
export function sentenceOf(
	{ message, remedy, recovers = false }: Pick<Failure, 'message' | 'remedy' | 'recovers'>,
	course: Course,
): string {
	const parts = [message, remedy, recovers && course === 'ongoing' ? RECOVERY : ''];
	return joinSentences(...parts);
}

/** Sentences beside each other; each ends, and empty ones are left out. */
export function joinSentences(...parts: readonly string[]): string {
	return parts
		.map((part) => part.trim())
		.filter((part) => part !== '')
		.map((part) => (ENDS.includes(part.at(-1) ?? '') ? part : `${part}.`))
		.join(' ');
}

/** The document for a request of ours that was refused: nothing tries it again. */
export function problemDocument(
	{ code, message, remedy, params }: Failure,
	{ status, title }: Pick<ProblemDocument, 'status' | 'title'>,
	errors?: ProblemDocument['errors'],
): ProblemDocument {
	const sentence = sentenceOf({ message, remedy }, 'over');
	return {
		status,
		title,
		code,
		detail: message,
		remedy,
		...(params && { params }),
		sentence,
		...(errors && { errors }),
	};
}
