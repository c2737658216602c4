/**
 * The worth of a one-time code after the answer to its registration: by the words of the service, by the status,
 * and by where the line broke. Pure.
 */
import type { Failure } from '../base/errors.ts';
import { readFieldErrors } from '../protocol/problem.ts';
import { looksLikeToken, readAnswerTexts } from '../protocol/registration-answer.ts';

/** `valid`: it was not looked at. `invalid`: it has expired, or the service does not know it. `uncertain`: trying it again tells. */
export type CodeWorth = 'valid' | 'used' | 'invalid' | 'uncertain';

/** What the words of a service say. `unused`: it stays valid. `refused`: unknown or invalid. */
export type CodeFate = 'unused' | 'expired' | 'used' | 'refused';

const CODE =
	'(?:(?:the|this|that|your|a|an|short|one time|time|pairing|device|registration|enrol?lment|activation|provided|given|jwt) )*(?:token|code|jwt)';
/** Behind what is over. */
const WHEN = '(?: (?:(?:at|on|since) .*\\d.*|20\\d\\d .*))?';
const SPENT = '(?:used|spent|redeemed|consumed|claimed)';
const STILL = '(?:(?:(?:is )?still|stays|remains|is) (?:valid|good|usable)|can (?:still )?be used (?:again|once more))';
const NO_GOOD =
	'(?:unknown|invalid|bad|incorrect|wrong|expired|revoked|unrecogni[sz]ed|not (?:found|valid|known|recogni[sz]ed|accepted))';
/** A whole statement with the code as its subject. One that says more ("... for this workflow") may say another thing. */
const STATEMENTS: readonly (readonly [CodeFate, RegExp])[] = (
	[
		[
			'unused',
			`${CODE} (?:is |was |has )?(?:(?:not|never) (?:yet )?(?:been )?${SPENT}|unused)(?:,? (?:and|so) (?:it )?${STILL})?`,
		],
		['unused', `${CODE} ${STILL}(?:,? and unused)?(?:,? but (?!.*(?:${SPENT}|token|code)).*)?`],
		[
			'expired',
			`${CODE} (?:is |was |has )?(?:already )?expired${WHEN}|expired ${CODE}|${CODE} (?:is )?no longer valid`,
		],
		[
			'used',
			`${CODE} (?:is |was |has )?(?:already )?(?:been )?${SPENT}(?: (?:already|before|earlier|twice|up))?${WHEN}`,
		],
		['used', `${CODE} (?:is |was |has )?already (?:been )?${SPENT} by .*`],
		['used', `(?:already )?${SPENT} ${CODE}|${CODE} can (?:only be used|be used only) once`],
		['refused', `${CODE} (?:(?:is |was |has been )?${NO_GOOD}(?: or (?:is |has )?${NO_GOOD})?|does not exist)`],
		['refused', `(?:${NO_GOOD} (?:or )?)+${CODE}|no such ${CODE}`],
	] as const
).map(([fate, words]) => [fate, new RegExp(`(?:^|, )(?:${words})$`)]);

/** The end of another thing, beside which the code may be good. */
const OF_OTHER =
	/^(?:[a-z]+ ){0,3}(?:certificate|licen[sc]e|subscription|contract|account|workflow)s? (?:(?:has|is|was) )?expired$/;

/**
 * What the words of a service say for certain; `null` where it is in doubt: a try more costs less than a code that is
 * good or one that is not. Source: assumed (errors).
 */
export function codeFateIn(words: string): CodeFate | null {
	const said = words
		.replace(/([a-z])([A-Z])/g, '$1 $2')
		.replace(/[_\s-]+/g, ' ')
		.toLowerCase()
		.split(/[.;:!?()]/)
		.map((part) => part.trim());
	// Behind a statement, a word that denies it.
	if (/(?:used|spent|redeemed|consumed|expired|valid)\W{1,3}(?:false|no|0)\b/i.test(words)) return null;
	const find = (part: string) => STATEMENTS.find(([, form]) => form.test(part))?.[0];
	const fates = new Set(said.map(find).filter((fate) => fate !== undefined));
	// Words that say why it was not used mean no code that stays valid.
	if (
		fates.has('unused') &&
		(fates.size > 1 || /expire|too late|no longer/.test(said.filter((part) => !OF_OTHER.test(part)).join(' ')))
	)
		return null;
	return (['unused', 'used', 'expired', 'refused'] as const).find((fate) => fates.has(fate)) ?? null;
}

/** Refusals of the request itself, before anything looks at the code. Source: RFC 9110, 15; RFC 6585. */
const BEFORE_THE_CODE: readonly number[] = [
	300, 305, 307, 308, 405, 406, 407, 411, 413, 414, 415, 416, 417, 421, 425, 426, 428, 429, 431, 451, 501, 505, 511,
];

/** Words that only a service has in its answer that has registered a device, in another form than JSON. Source: assumed (token-place). */
const OF_A_DEVICE = /token|connection|credential|jwt|device|workflow/i;

/** Words about a code or a token, and no name of a member and no number of an error: then no status alone says that the code is good. */
const OF_CODE =
	/(?<!\b(?:error|status|response|http|reason|country|exit|source)[\s_-]?)\b(?!(?:error|status|http)code)(?:token|[a-z]*code|jeton|código|codigo)s?\b(?!"?\s*[:=]|\W{0,2}\d)/i;
/** That something is over, in the languages of the page: what is over may be the code. */
const IS_OVER =
	/(?<!\p{L})(?:consumed|expired|abgelaufen|verbraucht|verwendet|benutzt|expirée?|utilisée?|caducad[oa]|usad[oa]|vencid[oa]|صلاحية|مستخدم)(?!\p{L})/iu;
const OF_CREDENTIAL = /token|code|auth|credential/i;
const MAX_LOOKED_AT = 4096;

/** The marks of firewalls on pages of their own. A CDN puts its name (`cf-ray`, scripts) on every answer that it passes on, so that it is not one. Source: assumed (errors). */
const OF_FIREWALL =
	/\bray id\b|\| cloudflare|error code:? 10\d\d|request (?:was )?blocked|edgesuite|incapsula|imperva|sucuri|requested url was rejected|forti(?:net|gate|web)|barracuda|mod_?security|web application firewall/i;
const BY_FIREWALL = /^(?:server: (?:akamaighost|awselb)|cf-mitigated|x-amzn-waf|x-sucuri-block)/i;

/** Whether a page bears the mark of a firewall: a framework of the service has pages of its own, too, for what the service refuses. */
export function isOfFirewall(headers: CodeAnswer['headers'], body: string): boolean {
	return OF_FIREWALL.test(body) || Object.entries(headers).some((one) => BY_FIREWALL.test(one.join(': ')));
}

export interface CodeAnswer {
	readonly status: number;
	/** Names in lower case. */
	readonly headers: Readonly<Record<string, string>>;
	/** Whether a page for people came in place of an answer. */
	readonly isPage: boolean;
	readonly fate: CodeFate | null;
	/** Whether a good status came with a body that says no, or not yet. */
	readonly saidNo: boolean;
	readonly body: string;
	readonly failure: Pick<Failure, 'code' | 'params'>;
}

/** The worth of a code after an answer that brought no Connection. */
export function worthAfter({
	status,
	headers,
	isPage,
	fate,
	saidNo,
	body,
	failure: { code, params },
}: CodeAnswer): CodeWorth {
	if (code === 'code-expired-or-used') {
		if (params?.['reason'] === 'used') return 'used';
		// Words that are not about the code: it may be good, and what is told is about something else.
		return fate === null && params?.['detail'] !== undefined ? 'uncertain' : 'invalid';
	}
	if (fate === 'unused') return 'valid';
	// Whatever stands before the service answers `{}`, "ok" or a number as well, and cuts what it passes on.
	const bringsText = /^\s*</.test(body) ? OF_A_DEVICE.test(body) : readAnswerTexts({ body }).some(looksLikeToken);
	if (status >= 200 && status < 300)
		return code === 'answer-unreadable' && !isPage && !saidNo && bringsText ? 'used' : 'uncertain';
	// A path that is not there is told in a page or in words; JSON comes from what stands behind it.
	const isNotThere =
		status === 404 && params?.['detail'] === undefined && code === 'bad-response' && !/^\s*[[{]/.test(body);
	// What is wrong with other fields is looked for before a code is used up.
	const fields = [400, 422].includes(status) && fate === null ? readFieldErrors(body) : [];
	const isForm = fields.length > 0 && !fields.some((one) => OF_CREDENTIAL.test(`${one.field} ${one.message}`));
	const isFirewall = status === 403 && isPage && isOfFirewall(headers, body);
	const isPortal = code === 'captive-portal' && status !== 303;
	const isBefore = isNotThere || isForm || isFirewall || isPortal || BEFORE_THE_CODE.includes(status);
	const words = body.slice(0, MAX_LOOKED_AT).replaceAll('_', ' ');
	return isBefore && !OF_CODE.test(words) && !IS_OVER.test(words) ? 'valid' : 'uncertain';
}
