/** What a refusal says of the code that was brought: every one says whether a person needs another. Pure. */
import { AgentError, asError, type Failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { CodeWorth } from '../connection/code-fate.ts';

const WORDS: Readonly<Record<CodeWorth, string>> = {
	valid: 'The code was not used and stays valid.',
	used: 'The code is used up.',
	invalid: 'As it was read, the code is not valid there.',
	uncertain: 'The code may have been used.',
};
const NEXT: Readonly<Record<CodeWorth, string>> = {
	valid: 'Then scan the code again.',
	used: 'Ask for a new pairing code.',
	invalid: '',
	uncertain: 'Try the same code again; only if it is refused, ask for a new one.',
};

/** A code that is not known there may have been cut, or typed in part: another one may not be needed. */
const WHOLE =
	'Scan or type the whole code once more; if it is refused again, ask for a new pairing code: each works once and for a few minutes.';

/** The refusal with the worth of the code, also for programs. @param next the sentence after its remedy. */
export function withWorth(cause: Failure, worth: CodeWorth, next = NEXT[worth]): Failure {
	// Words of the service that name the end of the code say it all.
	const isOver = cause.code === 'code-expired-or-used';
	const isSaid = isOver && cause.params?.['reason'] !== 'refused';
	return {
		...cause,
		message: joinSentences(cause.message, isSaid ? '' : WORDS[worth]),
		remedy: joinSentences(isOver && !isSaid ? WHOLE : cause.remedy, isOver ? '' : next),
		// The agent keeps no code: only a person can try it again.
		recovers: false,
		params: { ...cause.params, pairingCode: worth },
	};
}

/** A refusal before anything was sent. That of a text that is not a code says so already. */
export function unsent(error: unknown): unknown {
	return error instanceof AgentError && error.code !== 'not-a-pairing-code'
		? asError(withWorth(error.failure, 'valid', ''))
		: error;
}

/** As another refusal has told it; `uncertain` where it did not. */
export const worthIn = ({ params }: Failure): CodeWorth =>
	Object.keys(WORDS).includes(String(params?.['pairingCode'])) ? (params?.['pairingCode'] as CodeWorth) : 'uncertain';
