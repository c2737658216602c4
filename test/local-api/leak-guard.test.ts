import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createLeakGuard } from '../../src/local-api/leak-guard.ts';

const TOKEN = 'eyJ0/abc+DEF.ghi-jkl_mno=';

const unicode = (text: string) =>
	Array.from(text, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
const percent = (text: string) =>
	Array.from(text, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`).join('');
const FORMS: [string, string][] = [
	['as it is', TOKEN],
	['JSON, slashes escaped', TOKEN.replaceAll('/', '\\/')],
	['JSON, all escaped', unicode(TOKEN)],
	['JSON in JSON', JSON.stringify(unicode(TOKEN)).slice(1, -1)],
	['percent', encodeURIComponent(TOKEN)],
	['percent, all', percent(TOKEN)],
	['percent twice', encodeURIComponent(encodeURIComponent(TOKEN))],
	['HTML', Array.from(TOKEN, (letter) => `&#${letter.charCodeAt(0)};`).join('')],
	['HTML, without semicolons', Array.from(TOKEN, (letter) => `&#${letter.charCodeAt(0)}`).join('')],
	['HTML, with zeros', Array.from(TOKEN, (letter) => `&#${String(letter.charCodeAt(0)).padStart(20, '0')};`).join('')],
	[
		'HTML twice, half without semicolons',
		Array.from(TOKEN, (letter) => `&amp#x${letter.charCodeAt(0).toString(16)}`).join(''),
	],
	['half and half', TOKEN.slice(0, 9) + unicode(TOKEN.slice(9, 14)) + percent(TOKEN.slice(14))],
];

/** What gets through when the text comes in pieces; `null` when it is stopped. */
function passed(text: string, sizes: readonly number[]): string | null {
	const guard = createLeakGuard(TOKEN);
	let out = '';
	const bytes = Buffer.from(text);
	for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
		const size = sizes[turn % sizes.length] ?? 1;
		const safe = guard.push(bytes.subarray(at, at + size));
		if (!safe) return null;
		out += Buffer.from(safe).toString('latin1');
		at += size;
	}
	const rest = guard.push(new Uint8Array(), true);
	return rest && Buffer.from(out + Buffer.from(rest).toString('latin1'), 'latin1').toString();
}

describe.each(FORMS)('the secret %s [F1285]', (_name, form) => {
	test('is stopped at the very end, too', () => expect(passed(`x ${form}`, [1])).toBeNull());

	test.each([[1], [2], [3], [7], [5, 1, 11], [1000]])(
		'is stopped in pieces of %j, and nothing of it has gone out',
		(...sizes) => {
			const guard = createLeakGuard(TOKEN);
			const text = `{"headers":{"authorization":"Connection ${form}"},"more":1}`;
			let out = '';
			let stopped = false;
			for (let at = 0, turn = 0; at < text.length && !stopped; turn += 1) {
				const size = sizes[turn % sizes.length] ?? 1;
				const safe = guard.push(Buffer.from(text.slice(at, at + size)));
				if (safe) out += Buffer.from(safe).toString();
				else stopped = true;
				at += size;
			}
			expect(stopped).toBe(true);
			expect('{"headers":{"authorization":"Connection '.startsWith(out)).toBe(true);
		},
	);
});

const reference = (letter = '', zeros = 0) => `&#${'0'.repeat(zeros)}${letter.charCodeAt(0)};`;

test.each([33, 40, 48, 3000, 70_000])(
	'the secret is stopped where references have %i zeros before their number, also one of them alone [F1374]',
	(zeros) => {
		const hex = (letter: string) => `&#x${'0'.repeat(zeros)}${letter.charCodeAt(0).toString(16)};`;
		const middle = TOKEN.slice(0, 9) + reference(TOKEN[9], zeros) + TOKEN.slice(10);
		const forms = [
			middle,
			middle.replaceAll('&', '&amp;'),
			encodeURIComponent(middle),
			reference(TOKEN[0], zeros) + TOKEN.slice(1),
			TOKEN.slice(0, -1) + reference(TOKEN.at(-1), zeros),
			TOKEN.slice(0, -1) + reference(TOKEN.at(-1), zeros).slice(0, -1),
			TOKEN.slice(0, 9) + hex(TOKEN[9] ?? '') + TOKEN.slice(10),
			Array.from(TOKEN, (letter) => reference(letter, zeros)).join(''),
			Array.from(TOKEN, hex).join(''),
		];
		for (const form of forms)
			for (const size of [Math.ceil(form.length / 7), 65_536]) expect(passed(`x ${form}`, [size])).toBeNull();
	},
);

test('zeros that lead to nothing pass, unless they are so many that they would have to be kept [F1374]', () => {
	for (const text of [
		`x &#${'0'.repeat(20_000)} y`,
		`x &#${'0'.repeat(20_000)}`,
		'0'.repeat(300_000),
		`&#x${'0'.repeat(40)}41; y`,
	])
		expect(passed(text, [10_000])).toBe(text);
	expect(passed(`x &#${'0'.repeat(70_000)}`, [10_000])).toBeNull();
});

test.each(['AMP', 'AMP;', 'amp', 'amp;'])(
	'the secret is stopped where references of it are escaped by &%s [F1375]',
	(name) => {
		const form = Array.from(TOKEN, (letter) => reference(letter).replace('&', `&${name}`)).join('');
		expect(passed(`x ${form}`, [5])).toBeNull();
		expect(passed(`x ${TOKEN.slice(0, -1)}${reference(TOKEN.at(-1)).replace('&', `&${name}`)}`, [1])).toBeNull();
	},
);

test('every other text passes unchanged, in whatever pieces it comes, and only what may become the secret waits', () => {
	const piece = fc.oneof(
		fc.string(),
		fc.string({ unit: 'binary' }),
		fc.constantFrom('eyJ0', TOKEN.slice(0, -1), TOKEN.slice(1), '\\', '\\u00', '%', '%25', '&#', '&#x65', 'eyJ0\\u002'),
	);
	fc.assert(
		fc.property(fc.array(piece), fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (pieces, sizes) => {
			const text = pieces.map((part) => part.toWellFormed()).join('|');
			expect(passed(text, sizes)).toBe(text);
		}),
		{ numRuns: 500 },
	);
	const guard = createLeakGuard(TOKEN);
	expect(Buffer.from(guard.push(Buffer.from('data: tick eyJ0/ab')) ?? []).toString()).toBe('data: tick ');
	expect(Buffer.from(guard.push(Buffer.from('!\n\n')) ?? []).toString()).toBe('eyJ0/ab!\n\n');
});
