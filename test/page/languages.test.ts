/** The words of the page: complete in every language, made from codes, and English only in English. */
import { globSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { CATALOGUE } from '../../src/base/errors.ts';
import { PAGE_FILES } from '../../src/page/files.edge.ts';
import { statusSchema } from '../../src/protocol/local-answers.ts';
import { PAGE_LANGUAGES } from '../../src/settings/table.ts';

const PAGE = join(import.meta.dirname, '../../src/page/page');
/** A table by it lacks each new language until it has a row: the type check names the place. */
type Language = Exclude<(typeof PAGE_LANGUAGES)[number], 'auto'>;
const TAGS = PAGE_LANGUAGES.filter((tag) => tag !== 'auto');

interface Words {
	readonly direction: 'ltr' | 'rtl';
	/** A value after its name. */
	readonly named: string;
	readonly states: Record<string, string>;
	readonly summaries: Record<string, string>;
	readonly codes: Record<string, readonly [what: string, todo: string]>;
	readonly kinds: Record<string, string>;
	readonly interruptions: Record<string, string>;
	/** Of a duration, where it is not as it stands alone. */
	readonly inSentence: Record<string, string>;
	readonly text: Record<string, string>;
}
const WORDS = new Map<string, Words>();
for (const tag of TAGS) WORDS.set(tag, (await import(join(PAGE, `languages/${tag}.js`))).default);
const wordsOf = (tag: string): Words => WORDS.get(tag) as Words;
const EN = wordsOf('en');
const {
	ago,
	duration,
	interruptions,
	LANGUAGES,
	moment,
	words: spoken,
} = (await import(join(PAGE, 'words.js'))) as PageWords;
interface PageWords {
	readonly words: object;
	readonly LANGUAGES: Record<string, string>;
	readonly ago: (iso: string, nowMs: number) => string;
	readonly duration: (seconds: number) => string;
	readonly interruptions: (count: number) => string;
	readonly moment: (iso: string, nowMs: number) => string;
}
/** By seconds, where the form in a sentence is another than that alone. */
const DUALS: Record<string, Record<number, string>> = {
	ar: { 2: 'ثانيتين', 120: 'دقيقتين', 7200: 'ساعتين', 172800: 'يومين' },
	de: { 172800: '2 Tagen' },
};
/** The noun as it agrees with its numeral: of 1, 2, 3, 11 and 100. */
const AGREEING: Record<Language, readonly string[]> = {
	en: ['One interruption.', '2 interruptions.', '3 interruptions.', '11 interruptions.', '100 interruptions.'],
	de: [
		'Eine Unterbrechung.',
		'2 Unterbrechungen.',
		'3 Unterbrechungen.',
		'11 Unterbrechungen.',
		'100 Unterbrechungen.',
	],
	fr: ['1 interruption.', '2 interruptions.', '3 interruptions.', '11 interruptions.', '100 interruptions.'],
	es: ['Una interrupción.', '2 interrupciones.', '3 interrupciones.', '11 interrupciones.', '100 interrupciones.'],
	ar: ['انقطاع واحد.', 'انقطاعان.', '3 انقطاعات.', '11 انقطاعًا.', '100 انقطاع.'],
};
/** After a comma, before the second of two causes. */
const OR: Record<Language, string> = { en: ', or', de: ', oder', fr: ', ou', es: ', o', ar: '، أو' };
const QUOTED: Record<Language, RegExp> = {
	en: /“[^“”„]+”/g,
	de: /„[^“”„]+“/g,
	fr: /«[^«»]+»/g,
	es: /«[^«»]+»/g,
	ar: /«[^«»]+»/g,
};
/** Texts that are the same word as in English, by their place (`text.serial`). */
const SAME_WORD: Partial<Record<Language, readonly string[]>> = {};
const BUTTONS = ['tryNow', 'enterCode', 'show', 'go', 'camera', 'cameraStop', 'picture', 'close', 'yes', 'no'];

/** Where the project says which languages there are, each with those it names. */
function placesOf(): Record<string, readonly string[]> {
	const screen = readFileSync(join(PAGE, '../../../docs/screen.md'), 'utf8');
	const setting = /\| `page\.language` \| (.*?), or `auto`/.exec(screen)?.[1] ?? '';
	return {
		'a file of src/page/page/languages/': readdirSync(join(PAGE, 'languages')).map((name) => name.replace('.js', '')),
		'LANGUAGES of src/page/page/words.js': Object.keys(LANGUAGES),
		'what the server of the page serves': Object.keys(PAGE_FILES).flatMap(
			(path) => /^\/languages\/(\w+)\.js$/.exec(path)?.[1] ?? [],
		),
		'page.language in docs/screen.md': [...setting.matchAll(/`(\w+)`/g)].map(([, tag]) => tag ?? ''),
	};
}

/** The places that lack one of the languages. */
const lacking = (tags: readonly string[]) =>
	Object.entries(placesOf()).flatMap(([place, named]) => (tags.every((tag) => named.includes(tag)) ? [] : [place]));

test('every place names each language, and another is missed at all of them but the list itself', () => {
	expect(lacking(TAGS)).toEqual([]);
	for (const named of Object.values(placesOf())) expect(named.length).toBe(TAGS.length);
	// The server follows the list, as the build does.
	expect(lacking([...TAGS, 'xx'])).toEqual(Object.keys(placesOf()));
});

test('no other file has a list of its own', () => {
	const root = join(PAGE, '../../..');
	const files = globSync(['src/**/*.{ts,js}', 'scripts/**/*.ts'], { cwd: root });
	expect(files.length).toBeGreaterThan(300);
	const lists = files.filter((file) => /'de', 'fr'|'fr', 'de'/.test(readFileSync(join(root, file), 'utf8')));
	expect(lists).toEqual(['src/settings/table.ts']);
});

/** Every sentence by its place. */
function sentences({ states, summaries, codes, kinds, text }: Words): Map<string, string> {
	const flat = (group: string, entries: Record<string, string>) =>
		Object.entries(entries).map(([key, value]) => [`${group}.${key}`, value] as const);
	const ofCodes = Object.entries(codes).flatMap(
		([code, [what, todo]]) =>
			[
				[`codes.${code}.what`, what],
				[`codes.${code}.todo`, todo],
			] as const,
	);
	return new Map([
		...flat('states', states),
		...flat('summaries', summaries),
		...ofCodes,
		...flat('kinds', kinds),
		...flat('text', text),
	]);
}
const parameters = (sentence: string) => (sentence.match(/\{\w+\}/g) ?? []).toSorted();

/** By language, words with a second meaning that a person at the screen takes first. */
const TWO_MEANINGS: Record<string, RegExp> = {
	// "Wipe", "site" or "website", and "put off"; "relied on" beside "access"; what answers a question, not a request; "subsidy" where it is not technical.
	ar: /امسح|ممسوح|الموقع|مؤجل|اعتماد|إجابة|(?<!س)تجيب|دعم(?! الفني)/,
	// "Name" or "login"; "tap" or "type"; "save" or "register".
	fr: /\bce site\b|\bidentifiant\b|\b[Tt]ap(?:ez|er|é)|\bréenregistr|\bs’enregistre/,
	// A stand, or the people who help; a command, or an order of things.
	es: /\bdispositivo\b|\beste lugar\b|\bcredencial\b|\bsoporte\b(?! técnico)|\borden\b/,
	// "Disk" or "memory"; "news"; the state has another word; "tap" or "type"; what the device may not do reads as forbidden to the person.
	de: /\bDer Speicher\b|\bLetzte Nachrichten\b|\bonline\b(?!\})|\b[Tt]ipp(?:en|t)\b|\bdarf nicht verwendet\b/,
	// A pairing code is the only code; "perhaps not" or "not allowed".
	en: /\bcode (?:that stands|shown)\b|\bmay not\b|\bsigns\b/,
};

test.each(TAGS)('%s has no word that means something else at the screen [F1070]', (tag) => {
	const found = TWO_MEANINGS[tag];
	for (const [place, sentence] of sentences(wordsOf(tag))) if (found) expect(sentence, place).not.toMatch(found);
});

describe.each(TAGS)('%s', (tag) => {
	const words = wordsOf(tag);

	test('has every code of the catalogue, every state and every summary, and no other', () => {
		expect(Object.keys(words.codes).toSorted()).toEqual(Object.keys(CATALOGUE).toSorted());
		expect(Object.keys(words.states).toSorted()).toEqual([...statusSchema.shape.state.options, 'silent'].toSorted());
		expect(Object.keys(words.summaries).toSorted()).toEqual(statusSchema.shape.summary.shape.code.options.toSorted());
	});

	test('has the same texts with the same names in them as English', () => {
		const own = sentences(words);
		const english = sentences(EN);
		expect([...own.keys()].toSorted()).toEqual([...english.keys()].toSorted());
		for (const [place, sentence] of own) {
			expect(sentence.trim(), place).not.toBe('');
			expect(parameters(sentence), place).toEqual(parameters(english.get(place) ?? ''));
		}
	});

	describe('says a number', () => {
		beforeEach(() => void Object.assign(spoken, words, { tag }));

		test('in the one kind of digits that names and addresses have', () => {
			const at = new Date(2026, 10, 21, 13, 45).toISOString();
			const said = [1, 2, 40, 119, 300, 3600, 7200, 100_000, 999_999].map(duration);
			said.push(ago(at, Date.parse(at) + 300_000), moment(at, 0), ...[0, 1, 2, 3, 11, 100, 1234].map(interruptions));
			for (const one of said) expect(one.replaceAll(/\d/g, ''), one).not.toMatch(/\p{Nd}/u);
		});

		test('in the form that its sentence needs', () => {
			// Of a duration in a sentence, Arabic has the oblique dual and German the dative; none is the form that stands alone.
			const said = [2, 120, 7200, 172_800].map(duration).join();
			expect(said).not.toMatch(/(?:ثانيتان|دقيقتان|ساعتان|يومان)|Tage\b/);
			expect(said).toBe([2, 120, 7200, 172_800].map((seconds) => DUALS[tag]?.[seconds] ?? duration(seconds)).join());
		});

		test('with a noun that agrees with it [F937]', () => {
			expect([1, 2, 3, 11, 100].map(interruptions)).toEqual(AGREEING[tag]);
		});

		test('of interruptions as a sentence of its own', () => {
			for (const count of [0, 1, 2, 3, 11, 100, 1_000_000]) {
				const told = interruptions(count);
				expect(told).toMatch(/^[\p{Lu}\p{Lo}\d].*\.$/u);
				expect(told).not.toContain('{');
			}
		});
	});

	test('does not blame the network alone for what answers in place of a service that has moved [F1680]', () => {
		const [what, todo] = words.codes['captive-portal'] ?? [];
		// Two causes, each with its own step.
		expect(what).toContain(`${OR[tag]} `);
		expect(todo).toMatch(/support|soporte|assistance|بالدعم/i);
	});

	test('is short enough for the smallest screen', () => {
		const { states, text, codes, summaries } = words;
		const longest = (sentences: readonly string[]) => Math.max(...sentences.map((one) => one.length));
		expect(longest(Object.values(states))).toBeLessThanOrEqual(22);
		expect(longest(BUTTONS.map((key) => text[key] ?? ''))).toBeLessThanOrEqual(26);
		expect(longest(Object.values(summaries))).toBeLessThanOrEqual(125);
		for (const [code, [what, todo]] of Object.entries(codes)) {
			expect(what.length, `${code}: ${what}`).toBeLessThanOrEqual(100);
			expect(todo.length, `${code}: ${todo}`).toBeLessThanOrEqual(110);
		}
		expect(longest(Object.values(text))).toBeLessThanOrEqual(150);
		expect(longest(Object.values(words.kinds))).toBeLessThanOrEqual(60);
	});

	test('has a form for every plural that the language has', () => {
		const { pluralCategories } = new Intl.PluralRules(tag).resolvedOptions();
		expect(Object.keys(words.interruptions).toSorted()).toEqual(pluralCategories.toSorted());
	});

	test('is written in its own letters and direction', () => {
		const isArabic = tag === 'ar';
		expect(words.direction).toBe(isArabic ? 'rtl' : 'ltr');
		for (const [place, sentence] of sentences(words))
			expect(/\p{Script=Arabic}/u.test(sentence), `${place}: ${sentence}`).toBe(isArabic);
	});
});

test('French has a space that does not break before each colon, semicolon, question mark and quotation mark, and so has the page [F822]', () => {
	const words = wordsOf('fr');
	for (const [place, sentence] of [...sentences(words), ['named', words.named]] as const) {
		expect(sentence, place).not.toMatch(/[^\u00a0\u202f][:;?!»]|«[^\u00a0\u202f]/);
	}
	// No colon of the page's own: it would be without a space.
	expect(readFileSync(join(PAGE, 'index.html'), 'utf8')).not.toMatch(/<\/span>\s*:/);
	for (const script of ['page.js', 'pair.js', 'refusals.js'])
		expect(readFileSync(join(PAGE, script), 'utf8')).not.toMatch(/\}: (?:\\u2068)?\$\{(?!message|content|value)/);
});

test.each(TAGS)(
	'%s writes its marks as its readers do: an ellipsis, quotation marks, the two of a question [F1071]',
	(tag) => {
		for (const [place, sentence] of sentences(wordsOf(tag))) {
			// German alone has a space before the mark where whole words are left out.
			expect(sentence, place).not.toMatch(tag === 'de' ? /[^ ]…/ : /\s…/);
			expect(sentence.replaceAll(QUOTED[tag], ''), place).not.toMatch(/["“”„«»']/);
			if (tag === 'es') expect(sentence, place).toMatch(/^(?:[^¿?¡!]|¿[^¿?]+\?|¡[^¡!]+!)*$/);
			if (tag === 'ar') expect(sentence, place).not.toMatch(/[,;?]/);
		}
	},
);

test.each(TAGS.filter((tag) => tag !== 'en'))('%s is nowhere English by mistake', (tag) => {
	const english = sentences(EN);
	const same = [...sentences(wordsOf(tag))].filter(([place, sentence]) => sentence === english.get(place));
	expect(same.map(([place]) => place)).toEqual(SAME_WORD[tag] ?? []);
});

test('the page asks for no text that is not there, and for every one that is', () => {
	const html = readFileSync(join(PAGE, 'index.html'), 'utf8');
	const scripts = ['page.js', 'pair.js', 'codes.js', 'refusals.js', 'words.js'].map((name) =>
		readFileSync(join(PAGE, name), 'utf8'),
	);
	const asked = [
		...[...html.matchAll(/data-(?:text|label)="(\w+)"/g)].map(([, key]) => key),
		...scripts.flatMap((source) => [
			...[...source.matchAll(/\btext\('(\w+)'/g)].map(([, key]) => key),
			...[...source.matchAll(/\b(?:key|dataset\.label|wrong|missing|pause|longerPin|setting)(?:: |\s=\s)'(\w+)'/g)].map(
				([, key]) => key,
			),
			...[...source.matchAll(/\? '(camera\w+)' : '(camera\w+)'/g)].flatMap(([, one, other]) => [one, other]),
		]),
	];
	expect([...new Set(asked)].toSorted()).toEqual(Object.keys(EN.text).toSorted());
});

test('the words that stand in the page before it has a language are the English ones', () => {
	const html = readFileSync(join(PAGE, 'index.html'), 'utf8');
	const shown = [...html.matchAll(/data-text="(\w+)"[^>]*>([^<]*)</g)];
	expect(shown.length).toBeGreaterThan(15);
	for (const [, key = '', words] of shown) expect(words).toBe(EN.text[key]);
});
