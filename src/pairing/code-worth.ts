/** What a refusal says of the code that was brought: every one says whether a person needs another. Pure. */
import { plainDuration } from '../base/durations.ts';
import { AgentError, asError, type Failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { CodeWorth } from '../connection/code-fate.ts';

const WORDS: Readonly<Record<CodeWorth, string>> = {
	valid: 'The code was not used and stays valid.',
	used: 'The code is used up.',
	invalid: 'As it was read, the code is not valid there.',
	uncertain: 'The code may have been used.',
};
export const wordsOf = (worth: CodeWorth) => WORDS[worth];
/** Before the service is asked only this is known: the code may have been used earlier, also by this device. */
export const NOT_SENT = 'The code was not sent.';
const NEXT: Readonly<Record<CodeWorth, string>> = {
	valid: 'Then scan the code again.',
	used: 'Ask for a new pairing code.',
	invalid: '',
	uncertain: 'Try the same code again; only if it is refused, ask for a new one.',
};

/** After so long a wait, a code is over. Source: assumed (errors). */
const LIFE_MS = 5 * 60_000;
const LATER = 'Then ask for a new pairing code: each works for a few minutes.';

/** A code that is not known there may have been cut, or typed in part: another one may not be needed. */
const WHOLE =
	'Scan or type the whole code once more; if it is refused again, ask for a new pairing code: each works once and for a few minutes.';

/** The words of the service are about something else than the code: the same will meet the next one. */
const NAMED = 'If the service names a cause, see to that first. ';

/** The refusal with the worth of the code, also for programs. @param next the sentence after its remedy. @param words of the worth. */
export function withWorth(cause: Failure, worth: CodeWorth, next = NEXT[worth], words = WORDS[worth]): Failure {
	// Words of the service that name the end of the code say it all.
	const isOver = cause.code === 'code-expired-or-used';
	const isSaid = isOver && cause.params?.['reason'] !== 'refused';
	const { remedy, params } = withWait(cause);
	const isForNext = next !== '' && next !== NEXT.used && (cause.retryAfterMs ?? 0) > LIFE_MS;
	return {
		...cause,
		message: joinSentences(cause.message, isSaid ? '' : words),
		remedy: joinSentences(
			isOver && !isSaid ? `${worth === 'uncertain' ? NAMED : ''}${WHOLE}` : remedy,
			isOver ? '' : isForNext ? LATER : next,
		),
		// The agent keeps no code: only a person can try it again.
		recovers: false,
		params: { ...params, pairingCode: worth },
	};
}

/** The wait that the service asks for, in words and for programs: a person tries again, not the agent. */
export function withWait(cause: Failure): Failure {
	const { remedy, params, retryAfterMs: waitMs } = cause;
	if (waitMs === undefined) return cause;
	const wait = `Wait ${plainDuration(waitMs)}, as the service asks`;
	const told = /^Wait a few minutes/.exec(remedy)?.[0] ?? '';
	return {
		...cause,
		remedy: told === '' ? joinSentences(wait, remedy) : wait + remedy.slice(told.length),
		params: { ...params, waitSeconds: Math.ceil(waitMs / 1000) },
	};
}

/** A code that was sent, and what it says of itself. */
export interface SentCode {
	/** Whether it was a token alone or ends with it: nothing shows that a scanner has changed or added a sign. */
	readonly endsWithToken: boolean;
	/** Whether the code itself named the workflow. */
	readonly namesWorkflow: boolean;
}

/** A refusal that may come from signs that are missing, added or changed: the next code would be refused as well. */
export function withReading(cause: Failure, { endsWithToken, namesWorkflow }: SentCode): Failure {
	const { code, message, remedy, params } = cause;
	if (endsWithToken && code === 'code-expired-or-used' && params?.['reason'] === 'refused')
		return { ...cause, remedy: joinSentences(remedy, SCANNER), params: { ...params, form: 'token' } };
	if (!namesWorkflow || code !== 'workflow-unknown' || params?.['pairingCode'] === 'used') return cause;
	const told = { message: joinSentences(message, BY_CODE), remedy: `${WHOLE_WORKFLOW}: ${remedy}` };
	return { ...cause, ...told, params: { ...params, workflowBy: 'code' } };
}

const SCANNER =
	'If a scanner has read it, check first with "idv-agent scanner test" that it types what is printed (y and z, capitals, nothing after it): it may change the next code too.';
const BY_CODE = 'The code itself names that workflow: its end may have been cut off.';
const WHOLE_WORKFLOW =
	'First scan or type the whole code once more: the name of its workflow may have been cut, or a sign of the scanner added to it. What to do if it is right';

/** A refusal before anything was sent. @param worth as it was before. */
export function unsent(error: unknown, worth: CodeWorth = 'valid'): unknown {
	return error instanceof AgentError ? asError(unsentFailure(error.failure, worth)) : error;
}

/** That of a text that is not a code, or of one that has paired this device, says its worth already. */
export const unsentFailure = (cause: Failure, worth: CodeWorth): Failure =>
	cause.params?.['pairingCode'] === undefined ? withWorth(cause, worth, '', NOT_SENT) : cause;

/** As another refusal has told it; `uncertain` where it did not. */
export const worthIn = ({ params }: Failure): CodeWorth =>
	Object.keys(WORDS).includes(String(params?.['pairingCode'])) ? (params?.['pairingCode'] as CodeWorth) : 'uncertain';
