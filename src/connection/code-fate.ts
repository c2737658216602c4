/**
 * The worth of a one-time code after the answer to its registration: by the words of the service, by the status,
 * and by where the line broke. Pure.
 */
import type { Failure } from '../base/errors.ts';
import { parseJson } from '../protocol/json.ts';

/** `valid`: it was not looked at. `invalid`: it has expired, or the service does not know it. `uncertain`: trying it again tells. */
export type CodeWorth = 'valid' | 'used' | 'invalid' | 'uncertain';

/** What the words of a service say. `unused`: it stays valid. `refused`: unknown or invalid. */
export type CodeFate = 'unused' | 'expired' | 'used' | 'refused';

const CODE =
	'(?:(?:the|this|that|your|short|one time|one|time|pairing|device|access|ephemeral) )*(?:token|code|ticket|otp|link)';
const SPENT = '(?:used|spent|redeemed|consumed)';
const wordsAbout = (before: string, after: string) =>
	new RegExp(`\\b${CODE}\\b[^.;]{0,40}\\b(?:${after})\\b|\\b(?:${before}) ${CODE}\\b`);
const EXPIRED = wordsAbout('expired', 'expired');
const USED = wordsAbout(
	`(?:already )?${SPENT}`,
	`(?:already|been|was|were|is|twice) (?:\\w+ )?${SPENT}|${SPENT} (?:already|before|up|twice|earlier)|(?:spent|redeemed|consumed)`,
);
const REFUSED = wordsAbout(
	'unknown|invalid|bad|revoked|unrecogni[sz]ed|no such',
	'unknown|invalid|revoked|unrecogni[sz]ed|not (?:found|valid|known|recogni[sz]ed|accepted)|does not exist',
);
const UNUSED = new RegExp(
	`\\b(?:not|never) (?:yet )?(?:been )?(?:yet )?${SPENT}\\b|\\bun(?:used|spent|consumed)\\b|\\b(?:still|stays|remains) (?:valid|good|usable)\\b`,
);
/** One sentence for every reason ("invalid or expired token"): which one it is, nothing says. */
const ANY_REASON =
	/\b(?:invalid|unknown|incorrect|wrong|not (?:found|valid|known))\b[^.;]{0,24}\bor\b[^.;]{0,24}\bexpired\b|\bexpired\b[^.;]{0,24}\bor\b[^.;]{0,24}\b(?:invalid|unknown|incorrect|wrong|not (?:found|valid|known))\b/;
/** Other tokens than ours. */
const OTHERS = /\b(?:csrf|xsrf)\b|\bunexpected token\b|\btokens? (?:in|at) (?:json|position)\b/;

/** Source: assumed (errors). @param isRefused whether the status says already that the code is refused: then fewer words are needed. */
export function codeFateIn(words: string, isRefused: boolean): CodeFate | null {
	const plain = words
		.replace(/([a-z])([A-Z])/g, '$1 $2')
		.replace(/[_\s-]+/g, ' ')
		.toLowerCase();
	if (OTHERS.test(plain)) return null;
	if (isRefused ? /\bexpired\b/.test(plain) : EXPIRED.test(plain))
		return ANY_REASON.test(plain) ? 'refused' : 'expired';
	if (UNUSED.test(plain)) return 'unused';
	if (isRefused ? new RegExp(`\\b${SPENT}\\b`).test(plain) : USED.test(plain)) return 'used';
	return REFUSED.test(plain) ? 'refused' : null;
}

/** Refusals of the request itself, before anything looks at the code. Source: RFC 9110, 15; RFC 6585. */
const BEFORE_THE_CODE: readonly number[] = [
	300, 305, 307, 308, 405, 406, 407, 411, 413, 414, 415, 416, 417, 421, 425, 426, 428, 429, 431, 451, 501, 505, 511,
];

/** What only a service says that has registered a device. Source: assumed (token-place). */
const OF_A_DEVICE = /token|connection|credential|jwt|device|workflow/i;
/** A member without a value is none of them. */
const EMPTY_MEMBERS = /"[^"]*"\s*:\s*(?:null|"\s*"|\{\s*\}|\[\s*\])/g;

export interface CodeAnswer {
	readonly status: number;
	/** Whether a page for people came in place of an answer. */
	readonly isPage: boolean;
	readonly fate: CodeFate | null;
	/** Whether a good status came with a body that says no, or not yet. */
	readonly saidNo: boolean;
	readonly body: string;
	readonly failure: Pick<Failure, 'code' | 'params'>;
}

/** The worth of a code after an answer that brought no Connection. */
export function worthAfter({ status, isPage, fate, saidNo, body, failure: { code, params } }: CodeAnswer): CodeWorth {
	if (code === 'code-expired-or-used') return params?.['reason'] === 'used' ? 'used' : 'invalid';
	if (fate === 'unused') return 'valid';
	// Whatever stands before the service answers `{}` or "ok" as well, and cuts what it passes on.
	const isWhole = code === 'answer-unreadable' && (!/^\s*[[{]/.test(body) || parseJson(body) !== undefined);
	if (status >= 200 && status < 300)
		return isWhole && !isPage && !saidNo && OF_A_DEVICE.test(body.replace(EMPTY_MEMBERS, '')) ? 'used' : 'uncertain';
	// A path that is not there is told in a page or in words; JSON comes from what stands behind it.
	const isNotThere =
		status === 404 && params?.['detail'] === undefined && code === 'bad-response' && !/^\s*[[{]/.test(body);
	const isFirewall = status === 403 && isPage;
	const isPortal = code === 'captive-portal' && status !== 303;
	return isNotThere || isFirewall || isPortal || BEFORE_THE_CODE.includes(status) ? 'valid' : 'uncertain';
}
