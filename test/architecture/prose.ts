/** Takes the words out of files that a reader meets, and finds five patterns in them that plain technical English does without. */

/** Each with the words to write in its place. */
const PATTERNS: readonly { readonly pattern: RegExp; readonly instead: string }[] = [
	{
		pattern: /\b(?:nobody|somebody|anybody|whoever|whom(?! the Software))\b/gi,
		instead: 'say who: a user, a caller, no one',
	},
	{ pattern: /\banew\b/gi, instead: 'again' },
	{ pattern: /\bby itself\b/gi, instead: 'automatically' },
	{
		// Not a question, and with its comma before the sentence ends.
		pattern:
			/(?<=^|[.;:!?]\s|\n\n)(?:What|Who)\s(?:(?![.?!](?:\s|$)|\n\n)[\s\S])*?,(?=\s)(?!(?:(?!\n\n|[.!]\s)[\s\S])*\?)/g,
		instead: 'begin with a noun',
	},
	{ pattern: /(?<!\bthere )\b(?:is|are) no (?!longer\b|more\b|one\b)[a-z]+/gi, instead: 'is not a' },
];

/** Comments and strings of TypeScript and JavaScript, paragraphs apart; documents and other files without their code. */
export function wordsOf(path: string, source: string): string {
	if (path.endsWith('.md')) return source.replaceAll(/^```.*?^```/gms, '').replaceAll(/`[^`\n]*`/g, 'code');
	if (!/\.(?:ts|js)$/.test(path)) return source.replaceAll(/^\s*#\s?/gm, '');
	const token =
		/'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|(?:^\s*\/\/[^\n]*\n?)+|\/\/[^\n]*/gm;
	return [...source.matchAll(token)]
		.map(([text]) => (/^\s*\//.test(text) ? commentText(text) : text.slice(1, -1)).trim())
		.join('\n\n');
}

function commentText(comment: string): string {
	return comment
		.replaceAll(/^\s*(?:\/\*\*?|\*\/|\*|\/\/)[ \t]?/gm, '')
		.replace(/\*\/$/, '')
		.replaceAll(/`[^`\n]*`/g, 'code');
}

/** `"the words": what to write instead`, one for each hit. */
export function findAwkward(words: string): string[] {
	return PATTERNS.flatMap(({ pattern, instead }) =>
		[...words.matchAll(pattern)].map(([found]) => `"${found.replaceAll(/\s+/g, ' ').slice(0, 70)}": ${instead}`),
	);
}
