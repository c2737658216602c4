/** The end of a sentence about a value that a schema refuses. Pure. */
import type * as z from 'zod';

/** Names that one sentence lists. */
const MAX_NAMED = 20;

const TYPES: Readonly<Record<string, string>> = {
	string: 'a text',
	array: 'a list',
	object: 'an object in { }',
	record: 'an object in { }',
	int: 'a whole number',
	number: 'a number',
	boolean: 'true or false',
};

/** Short names of letters. Anything else may be a code or a secret in a wrong place, and an answer is logged and shown. */
function unknownNames(keys: readonly string[]): string {
	const named = keys.filter((key) => /^[A-Za-z](?:[A-Za-z]|[_-](?=[A-Za-z])){0,23}$/.test(key)).slice(0, MAX_NAMED);
	const others = keys.length - named.length;
	return [...named, ...(others > 0 ? [others === 1 ? 'another member' : `${others} other members`] : [])].join(', ');
}

/** Sentences of zod's own begin with a capital, ours do not. */
export function plainIssue(issue: z.core.$ZodIssue | undefined): string {
	if (issue && !/^[A-Z]/.test(issue.message)) return issue.message;
	switch (issue?.code) {
		case 'invalid_type': {
			const isMissing = issue.message.endsWith('received undefined');
			return isMissing ? 'is missing' : `must be ${TYPES[issue.expected] ?? issue.expected}`;
		}
		case 'too_small':
			return issue.origin === 'string' ? 'must not be empty' : `must be at least ${issue.minimum}`;
		case 'too_big':
			return issue.origin === 'array'
				? `must have at most ${issue.maximum} entries`
				: `must be at most ${issue.maximum}${issue.origin === 'string' ? ' characters' : ''}`;
		case 'unrecognized_keys':
			return `must not have ${unknownNames(issue.keys)}`;
		default:
			return 'is not valid';
	}
}
