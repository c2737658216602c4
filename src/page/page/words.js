/* The words of the page, also of a state, in the language that is chosen: made from codes and parameters, never from English sentences. */
import english from './languages/en.js';

/** @import { ErrorCode, Params } from '../../base/errors.ts' */
/** @import { OtherKind } from '../../protocol/other-texts.ts' */
/** @import { Status } from '../../protocol/local-api.ts' */
/** @import { PageView } from '../view.ts' */
/** @import { PAGE_LANGUAGES } from '../../settings/table.ts' */
/** @typedef {Exclude<(typeof PAGE_LANGUAGES)[number], 'auto'>} Language */
/** @typedef {keyof typeof english.text} TextKey */
/**
 * Words for all that the agent says. `named`: a value after its name. `inSentence`: of a duration, where it is not as it stands alone.
 * @typedef {object} Sentences
 * @property {'ltr' | 'rtl'} direction
 * @property {string} named
 * @property {Record<Status['state'] | 'silent', string>} states
 * @property {Record<Status['summary']['code'], string>} summaries
 * @property {Record<ErrorCode, [what: string, todo: string]>} codes
 * @property {Record<OtherKind | 'other', string>} kinds
 * @property {Partial<Record<Intl.LDMLPluralRule, string>> & { other: string }} interruptions
 * @property {Record<string, string>} inSentence
 */
/** @typedef {Sentences & { text: Record<TextKey, string> }} Words A language has every text that English has. */

/** Each in its own words. @type {Record<Language, string>} */
export const LANGUAGES = { en: 'English', de: 'Deutsch', fr: 'Français', es: 'Español', ar: 'العربية' };
/** English comes with the page: it is shown where another language cannot be loaded. @type {Map<string, Words>} */
const loaded = new Map([['en', english]]);
let failures = 0;

/** Those of the language that is spoken, and its `tag`, which is not there until the first one is. @type {Words & { tag?: string }} */
export const words = { ...english };

/** The languages of the browser, best first; English where none of them is there. */
export function ofBrowser() {
	return navigator.languages.map((tag) => tag.replace(/-.*/, '')).find((tag) => Object.hasOwn(LANGUAGES, tag)) ?? 'en';
}

/** Rejects when the agent does not answer in time; the next call tries again. @param {string} tag @param {number} withinMs */
export async function load(tag, withinMs) {
	if (loaded.has(tag)) return;
	// Browsers may keep a failure under its address for as long as the page is open.
	const again = failures === 0 ? '' : `?again=${failures}`;
	/** @type {number | undefined} */
	let late;
	try {
		const file = import(/* @vite-ignore */ `/languages/${tag}.js${again}`);
		/** @type {Promise<never>} */
		const tooLate = new Promise((_resolve, reject) => {
			late = setTimeout(reject, withinMs);
		});
		loaded.set(tag, (await Promise.race([file, tooLate])).default);
	} catch (error) {
		failures += 1;
		throw error;
	} finally {
		clearTimeout(late);
	}
}

/** Puts a language that is loaded into everything in the page that has words of its own. @param {string} tag */
export function speak(tag) {
	Object.assign(words, loaded.get(tag), { tag });
	document.documentElement.lang = tag;
	document.documentElement.dir = words.direction;
	/** @type {Partial<Record<string, string>>} */
	const texts = words.text;
	for (const element of document.querySelectorAll('[data-text]'))
		element.textContent = texts[element.getAttribute('data-text') ?? ''] ?? '';
	for (const element of document.querySelectorAll('[data-label]'))
		element.setAttribute('aria-label', texts[element.getAttribute('data-label') ?? ''] ?? '');
}

/** Names and numbers in a sentence; each keeps its own direction of writing. @param {string} template @param {Params} params */
export function fill(template, params) {
	return template.replaceAll(/\{(\w+)\}/g, (_all, name) => `\u2068${cut(params[name] ?? '')}\u2069`);
}

/**
 * A name as the page has room for it, without signs that turn the direction of what follows.
 * @param {string | number} value @param {number} most in characters.
 */
export function cut(value, most = 72) {
	const signs = [
		...String(value)
			.slice(0, 8 * most)
			.replaceAll(/[\p{Cc}\p{Cf}]/gu, ''),
	];
	return signs.length > most ? [...signs.slice(0, most - 16), '…', ...signs.slice(-12)].join('') : signs.join('');
}

/** @param {TextKey} key @param {Params} params */
export function text(key, params = {}) {
	return fill(words.text[key], params);
}

/** What is wrong and what to do; a code that this page does not know is a fault of the program. @param {string} code */
export function problemWords(code) {
	/** @type {Partial<Record<string, Words['codes'][ErrorCode]>>} */
	const codes = words.codes;
	return codes[code] ?? words.codes.internal;
}

/**
 * Problems that a person at the screen cannot mend, beside those of which the words say to call support.
 * @type {readonly string[]} @satisfies {ErrorCode[]}
 */
const FOR_SUPPORT = [
	'state-corrupt',
	'credential-refused',
	'restart-needed',
	'state-in-use',
	'memory-low',
	'workflow-fixed',
];

/** Those for a person at the device. @param {PageView} view */
export function warningsOf({ status }) {
	const isForSupport = (/** @type {string} */ code) =>
		FOR_SUPPORT.includes(code) || problemWords(code)[1] === problemWords('internal')[1];
	const codes = status.warnings.map(({ code }) => code);
	return codes.filter((code) => !isForSupport(code) && code !== status.summary.params.problem);
}

/** Why a code was refused, where it may have been used. @param {string} code */
export function refusedWords(code) {
	return code === 'code-expired-or-used' ? text('codeRefused') : problemWords(code)[0];
}

/** The state in one sentence and what to do, from codes and parameters. @param {PageView} view */
export function statusWords(view) {
	const { status, standing, pinNeed } = view;
	const { code, params } = status.summary;
	const told = [status.problem, ...status.warnings].find((one) => one !== null && one.code === params.problem);
	const seconds = Number(params.seconds ?? 0);
	const summary =
		params.refusal === undefined
			? fill(words.summaries[code] ?? words.summaries.blocked, { ...params, duration: duration(seconds) })
			: [refusedWords(String(params.refusal)), text('codeUncertain')].join(' ');
	const [what, todo] = told ? toldWords(told) : ['', ''];
	// Where a person has to act, how long it has lasted only takes their time.
	const sentence = [told && !told.recovers && status.state !== 'online' ? '' : summary, what].filter(Boolean).join(' ');
	if (standing !== 'paired' && pinNeed === 'setting') return { sentence, next: text('pinSetting') };
	if (standing !== 'paired' && pinNeed === 'longerPin') return { sentence, next: text('pinShort') };
	if (told) return { sentence, next: [todo, told.recovers ? text('retries') : ''].filter(Boolean).join(' ') };
	if (standing === 'first') return { sentence, next: problemWords('unpaired')[1] };
	const isAllWell = code === 'online' && warningsOf(view).length === 0;
	return {
		sentence,
		next: status.state === 'offline' ? text('retries') : isAllWell ? text('nothingToDo') : '',
	};
}

/** After these the agent waits for a person, unless something else may have answered for a moment. */
const REFUSALS = ['access-forbidden', 'request-rejected'];

/**
 * What the agent still tries automatically may be a service in a bad minute: a new code is asked for when a person has to act.
 * @param {{ code: string, recovers?: boolean | undefined, params?: Params | undefined }} told
 */
function toldWords({ code, recovers, params }) {
	const [what, todo] = problemWords(code);
	// The service has ended the channel itself: no cable is at fault.
	if (code === 'connection-lost' && params?.closeCode !== undefined) return [what, problemWords('service-failed')[1]];
	const isRefused = todo === problemWords('credential-refused')[1] || REFUSALS.includes(code);
	// Another code would not help where the service has just issued what it refuses.
	if (isRefused && !recovers && params?.shown === 'fresh') return [text('refusedForNow'), problemWords('internal')[1]];
	const isForPerson = isRefused || code === 'proxy-refused' || todo === problemWords('internal')[1];
	return recovers && isForPerson
		? [isRefused ? text('refusedForNow') : what, problemWords('service-failed')[1]]
		: [what, todo];
}

/** One kind of digits: names and addresses have them as well. */
const locale = () => `${words.tag}-u-nu-latn`;

/** As it stands in a sentence. @param {number} seconds */
export function duration(seconds) {
	/** @type {[number, string]} */
	const [value, unit] =
		seconds < 120
			? [Math.max(1, Math.round(seconds)), 'second']
			: seconds < 7200
				? [Math.round(seconds / 60), 'minute']
				: seconds < 172_800
					? [Math.round(seconds / 3600), 'hour']
					: [Math.round(seconds / 86_400), 'day'];
	const alone = new Intl.NumberFormat(locale(), { style: 'unit', unit, unitDisplay: 'long' }).format(value);
	return Object.entries(words.inSentence).reduce((said, [form, inside]) => said.replace(form, inside), alone);
}

/** @param {number} count */
export function interruptions(count) {
	const forms = words.interruptions;
	const form = forms[new Intl.PluralRules(words.tag).select(count)] ?? forms.other;
	return form.replace('{count}', new Intl.NumberFormat(locale()).format(count));
}

/** A moment as people say it: the time today, else with the day. @param {string} iso @param {number} now */
export function moment(iso, now) {
	const at = new Date(iso);
	const time = at.toLocaleTimeString(locale(), { hour: '2-digit', minute: '2-digit' });
	if (at.toDateString() === new Date(now).toDateString()) return text('today', { time });
	return at.toLocaleString(locale(), {
		weekday: 'long',
		day: 'numeric',
		month: 'long',
		hour: '2-digit',
		minute: '2-digit',
	});
}

/** How long ago, as people say it. @param {string} iso @param {number} now */
export function ago(iso, now) {
	const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
	/** @type {[number, Intl.RelativeTimeFormatUnit]} */
	const [value, unit] =
		seconds < 120 ? [seconds, 'second'] : seconds < 7200 ? [seconds / 60, 'minute'] : [seconds / 3600, 'hour'];
	return new Intl.RelativeTimeFormat(locale(), { numeric: 'auto' }).format(-Math.round(value), unit);
}
