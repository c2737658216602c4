/* The sentences about a code that was refused, or another text: what happened, what the code is still worth, what to do next. */
import { kindOf } from './codes.js';
import { duration, fill, problemWords, refusedWords, text, words } from './words.js';

/** @import { Params } from '../../base/errors.ts' */
/** @import { Found } from './codes.js' */
/** @import { TextKey } from './words.js' */
/** @typedef {{ code?: string, params?: Params | undefined }} Problem As the agent says it; without a code, nothing came from it. */

/** Of another text than a pairing code. @param {Found} one @param {Params | undefined} params */
export function notACode(one, { reason, kind: named } = {}) {
	const byFormat = kindOf(one);
	const isWords = typeof named === 'string' && Object.hasOwn(words.kinds, named);
	const kind = byFormat ?? (isWords ? /** @type {keyof typeof words.kinds} */ (named) : null);
	if (byFormat === null && ['damaged', 'badToken', 'badWorkflow', 'several'].includes(String(reason)))
		return [text('codeValid'), text('damaged')].join(' ');
	if (reason === 'otherLayout') return [text('codeValid'), text('otherLayout')].join(' ');
	if (reason === 'capitals') return [text('codeValid'), text('capitals')].join(' ');
	const [what, todo] = problemWords('not-a-pairing-code');
	// It may be a pairing code that was changed on the way; of a bar code of goods no person asks what it is worth.
	const worth = kind === null || kind === 'link' ? text('codeUnused') : '';
	const told = kind === null ? what : fill(words.kinds[kind], { kind: one.format });
	return [told, worth, todo].filter(Boolean).join(' ');
}

/** The agent has not even looked at the code. */
export function unasked() {
	return [text('silent'), text('codeValid'), text('silentDo'), text('thenAgain')].join(' ');
}

/** Of an answer to a pairing. @param {Problem} problem */
export function sentenceOf({ code: named, params = {} }) {
	if (named === undefined) return text('noAnswer');
	if (named === 'access-denied') {
		/** @type {Partial<Record<string, TextKey>>} */
		const keys = {
			wrong: 'pinWrong',
			missing: 'pinMissing',
			pause: 'pinPause',
			longerPin: 'pinShort',
			setting: 'pinSetting',
		};
		return text(keys[params.reason ?? ''] ?? 'pinWrong', { duration: duration(Number(params.seconds ?? 0)) });
	}
	if (named === 'pairing-unconfirmed' && params.reason === 'gone') return text('gone');
	if (named === 'already-paired' && params.reason === 'sameCode') return text('sameCode');
	if (named === 'already-paired' && params.reason === 'sameCodeRefused') return text('codeUsed');
	const isOver = named === 'code-expired-or-used' && params.pairingCode !== 'uncertain';
	if (isOver && params.reason === 'used') return text('codeUsed');
	const todo = todoOf(named, params);
	const isAgain = todo.startsWith(problemWords('code-expired-or-used')[1]);
	const what = isByCode({ code: named, params })
		? text('workflowOfCode')
		: isOver
			? problemWords(named)[0]
			: refusedWords(named);
	if (params.answer === 'kept') return [what, text('answerKept'), todo].join(' ');
	/** Beside the step that is the same, in more words, it is left out. @type {Partial<Record<string, string>>} */
	const worths = {
		valid: text('codeValid'),
		used: text('codeUsed'),
		uncertain: isAgain ? text('codeInDoubt') : text('codeUncertain'),
	};
	const worth = worths[isOver ? '' : (params.pairingCode ?? '')];
	// With the new code the same is missing.
	const isMore = worth !== text('codeUsed') || named === 'workflow-missing';
	return [what, worth, isMore ? todo : ''].filter(Boolean).join(' ');
}

/**
 * Whether the service does not know the workflow that the code itself names: it may have been cut, or have a sign of the scanner behind it.
 * @param {Problem} problem
 */
export function isByCode({ code, params }) {
	return code === 'workflow-unknown' && params?.workflowBy === 'code';
}

/** The next step after a code was refused. @param {string} code @param {Params} params */
function todoOf(code, params) {
	const [, todo] = problemWords(code);
	if (code === 'code-expired-or-used') {
		// A code that is known to have expired was read whole.
		if (params.reason === 'expired') return problemWords('credential-refused')[1];
		return params.form === 'token' ? `${todo} ${text('scannerChanges')}` : todo;
	}
	if (isByCode({ code, params })) return problemWords('code-expired-or-used')[1];
	return params.waitSeconds === undefined ? todo : text('tryIn', { duration: duration(Number(params.waitSeconds)) });
}
