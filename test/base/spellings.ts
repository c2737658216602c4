/** Secrets of every usual kind, and the ways to write one down: named encodings, and compositions drawn from a seed. */
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { plantedForms } from './planted-forms.ts';

export const SECRETS = {
	'a Short Token': 'tr-9fQx2LmZ_7vT-bK4wR8sYc1PdH0u',
	'an API key': 'aK/7+d9=Qz3&x"Lm\\Tf5<Wp2v',
	'a JWT': `eyJhbGciOiJIUzI1NiJ9.${Buffer.from('{"sub":"kiosk-7","exp":1790000000}').toString('base64url')}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk`,
	'a password': 'Zt4/8k+Qw9',
	'a word for a password': 'Xylofoon-Kwijzq9',
	'an opaque Connection': 'c0nn.5a1f77e2b9d04c38a6e1f0927bd3c4aa',
} as const;

type Write = (text: string) => string;

const every =
	(size: number, separator: string): Write =>
	(text) =>
		text.replace(new RegExp(`.{${size}}(?=.)`, 'gs'), `$&${separator}`);
const packed =
	(pack: (bytes: Buffer) => Buffer): Write =>
	(text) =>
		pack(Buffer.from(text)).toString('base64');

const LAYERS: readonly Write[] = [
	encodeURIComponent,
	(text) => Buffer.from(text).toString('base64'),
	(text) => Buffer.from(text).toString('base64url'),
	(text) => Buffer.from(text).toString('hex'),
	(text) => JSON.stringify(text).slice(1, -1),
	(text) => Array.from(Buffer.from(text)).join(','),
	(text) => Array.from(Buffer.from(text)).join('.'),
	(text) => Array.from(text, (letter) => `&#${letter.codePointAt(0)};`).join(''),
	(text) => Array.from(text, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
	(text) => [...text].reverse().join(''),
	(text) => text.toUpperCase(),
	(text) => text.toLowerCase(),
	(text) =>
		text.replaceAll(/[A-Za-z]/g, (letter) =>
			String.fromCharCode(
				(letter.charCodeAt(0) % 32) + 12 > 26 ? letter.charCodeAt(0) - 13 : letter.charCodeAt(0) + 13,
			),
		),
	packed(gzipSync),
	packed(deflateSync),
	packed(brotliCompressSync),
	...[1, 2, 3, 4, 6].flatMap((size) =>
		[' ', '-', '.', ':', '/', '_', '\u200b', ', '].map((separator) => every(size, separator)),
	),
];

/** 120 of them: half named, half of two to four layers drawn from the seed. */
export function spellings(secret: string, seed: number): [name: string, text: string][] {
	let state = seed;
	const draw = (count: number) => {
		state = (Math.imul(state, 1103515245) + 12345) >>> 0;
		return (state >>> 8) % count;
	};
	const named = [...plantedForms(secret)].filter(([name]) => !/^\w+ half|^all but|^the middle|, then /.test(name));
	const drawn = Array.from({ length: 60 }, (_, at): [string, string] => {
		const layers = Array.from({ length: 2 + draw(3) }, () => draw(LAYERS.length));
		return [`composition ${at}: ${layers}`, layers.reduce((text, layer) => LAYERS[layer]?.(text) ?? text, secret)];
	});
	return [...named.slice(0, 60), ...drawn];
}

const PIECE = 7;
const fold = (text: string) => text.toLowerCase().replaceAll(/[^\p{L}\p{N}]/gu, '');

/** A piece of the secret, or of the way it was written, that is left in a text; `null` if none is. */
export function leftOf(text: string, secret: string, spelled: string): string | null {
	const shown = fold(text.replaceAll(/\[(?:jwt|dotted|token|word|digits|number|text|page)-\d+-[0-9a-f]{6}\]/g, ' | '));
	for (const whole of [fold(secret), fold(spelled)])
		for (let at = 0; at + PIECE <= whole.length; at += 1)
			if (shown.includes(whole.slice(at, at + PIECE))) return whole.slice(at, at + PIECE);
	return null;
}
