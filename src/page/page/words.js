/* The words of the page in the language that is chosen: made from codes and parameters, never from English sentences. */
import english from './languages/en.js';

/** Each in its own words. */
export const LANGUAGES = { en: 'English', de: 'Deutsch', fr: 'Français', es: 'Español', ar: 'العربية' };
/** English comes with the page: it is shown where another language cannot be loaded. */
const loaded = new Map([['en', english]]);
let failures = 0;

/** Those of the language that is spoken, and its `tag`; empty until the first one is. */
export const words = {};

/** The languages of the browser, best first; English where none of them is there. */
export function ofBrowser() {
	return navigator.languages.map((tag) => tag.split('-')[0]).find((tag) => Object.hasOwn(LANGUAGES, tag)) ?? 'en';
}

/** Rejects when the agent does not answer in time; the next call tries again. */
export async function load(tag, withinMs) {
	if (loaded.has(tag)) return;
	// Browsers may keep a failure under its address for as long as the page is open.
	const again = failures === 0 ? '' : `?again=${failures}`;
	let late;
	try {
		const file = import(/* @vite-ignore */ `/languages/${tag}.js${again}`);
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

/** Puts a language that is loaded into everything in the page that has words of its own. */
export function speak(tag) {
	Object.assign(words, loaded.get(tag), { tag });
	document.documentElement.lang = tag;
	document.documentElement.dir = words.direction;
	for (const element of document.querySelectorAll('[data-text]'))
		element.textContent = words.text[element.dataset.text];
	for (const element of document.querySelectorAll('[data-label]'))
		element.setAttribute('aria-label', words.text[element.dataset.label]);
}

/** Names and numbers in a sentence; each keeps its own direction of writing. */
export function fill(template, params) {
	return template.replaceAll(/\{(\w+)\}/g, (_all, name) => `\u2068${shown(params[name] ?? '')}\u2069`);
}

/** A name as a sentence has room for it, without signs that turn the direction of what follows. */
function shown(value) {
	const signs = [
		...String(value)
			.slice(0, 500)
			.replaceAll(/[\p{Cc}\p{Cf}]/gu, ''),
	];
	return signs.length > 72 ? [...signs.slice(0, 56), '…', ...signs.slice(-12)].join('') : signs.join('');
}

export function text(key, params = {}) {
	return fill(words.text[key], params);
}

/** What is wrong and what to do; a code that this page does not know is a fault of the program. */
export function problemWords(code) {
	return words.codes[code] ?? words.codes.internal;
}

/** One kind of digits: names and addresses have them as well. */
const locale = () => `${words.tag}-u-nu-latn`;

/** As it stands in a sentence. */
export function duration(seconds) {
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

export function interruptions(count) {
	const forms = words.interruptions;
	const form = forms[new Intl.PluralRules(words.tag).select(count)] ?? forms.other;
	return form.replace('{count}', new Intl.NumberFormat(locale()).format(count));
}

/** A moment as people say it: the time today, else with the day. */
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

/** How long ago, as people say it. */
export function ago(iso, now) {
	const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
	const [value, unit] =
		seconds < 120 ? [seconds, 'second'] : seconds < 7200 ? [seconds / 60, 'minute'] : [seconds / 3600, 'hour'];
	return new Intl.RelativeTimeFormat(locale(), { numeric: 'auto' }).format(-Math.round(value), unit);
}
