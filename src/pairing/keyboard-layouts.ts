/**
 * Keyboard layouts by the place of each key, and a text as another layout would have typed it. Source:
 * xkeyboard-config, and Windows where it differs; a dead key is its accent alone. Pure.
 */

export interface Layout {
	readonly name: string;
	/** By position: 47 keys from the one left of the 1, row by row, first plain, then with shift. */
	readonly keys: string;
}

/** The first is what scanners type as delivered, and what this agent reads a keyboard scanner as. */
export const LAYOUTS: readonly [Layout, ...Layout[]] = [
	{
		name: 'US English',
		keys: "`1234567890-=qwertyuiop[]\\asdfghjkl;'zxcvbnm,./" + '~!@#$%^&*()_+QWERTYUIOP{}|ASDFGHJKL:"ZXCVBNM<>?',
	},
	{
		name: 'German',
		keys: '^1234567890ß´qwertzuiopü+#asdfghjklöäyxcvbnm,.-' + '°!"§$%&/()=?`QWERTZUIOPÜ*\'ASDFGHJKLÖÄYXCVBNM;:_',
	},
	{
		name: 'French',
		keys: '²&é"\'(-è_çà)=azertyuiop^$*qsdfghjklmùwxcvbn,;:!' + '~1234567890°+AZERTYUIOP¨£µQSDFGHJKLM%WXCVBN?./§',
	},
	{
		name: 'Spanish',
		keys: "º1234567890'¡qwertyuiop`+çasdfghjklñ´zxcvbnm,.-" + 'ª!"·$%&/()=?¿QWERTYUIOP^*ÇASDFGHJKLÑ¨ZXCVBNM;:_',
	},
	{
		name: 'Turkish',
		keys: '"1234567890*-qwertyuıopğü,asdfghjklşizxcvbnmöç.' + "é!'^+%&/()=?_QWERTYUIOPĞÜ;ASDFGHJKLŞİZXCVBNMÖÇ:",
	},
	{
		name: 'Arabic',
		keys:
			'ذ1234567890-=ضصثقفغعهخحجد\\شسيبلاتنمكطئءؤرﻻىةوزظ' +
			'\u0651!@#$%^&*)(_+\u064e\u064b\u064f\u064cﻹإ`÷×؛<>…\u0650\u064d][ﻷأـ،/:"~\u0652}{ﻵآ\',.؟',
	},
	{
		name: 'Italian',
		keys: "\\1234567890'ìqwertyuiopè+ùasdfghjklòàzxcvbnm,.-" + '|!"£$%&/()=?^QWERTYUIOPé*§ASDFGHJKLç°ZXCVBNM;:_',
	},
	{
		name: 'Portuguese',
		keys: "\\1234567890'«qwertyuiop+´~asdfghjklçºzxcvbnm,.-" + '|!"#$%&/()=?»QWERTYUIOP*`^ASDFGHJKLÇªZXCVBNM;:_',
	},
	{
		name: 'Brazilian',
		keys: "'1234567890-=qwertyuiop´[]asdfghjklç~zxcvbnm,.;" + '"!@#$%¨&*()_+QWERTYUIOP`{}ASDFGHJKLÇ^ZXCVBNM<>:',
	},
	{
		name: 'Swiss',
		keys: "§1234567890'^qwertzuiopü¨$asdfghjklöäyxcvbnm,.-" + '°+"*ç%&/()=?`QWERTZUIOPè!£ASDFGHJKLéàYXCVBNM;:_',
	},
	{
		name: 'Belgian',
		keys: '²&é"\'(§è!çà)-azertyuiop^$µqsdfghjklmùwxcvbn,;:=' + '³1234567890°_AZERTYUIOP¨*£QSDFGHJKLM%WXCVBN?./+',
	},
	{
		name: 'Latin American',
		keys: "|1234567890'¿qwertyuiop´+}asdfghjklñ{zxcvbnm,.-" + '°!"#$%&/()=?¡QWERTYUIOP¨*]ASDFGHJKLÑ[ZXCVBNM;:_',
	},
	{
		name: 'Swedish',
		keys: "§1234567890+´qwertyuiopå¨'asdfghjklöäzxcvbnm,.-" + '½!"#¤%&/()=?`QWERTYUIOPÅ^*ASDFGHJKLÖÄZXCVBNM;:_',
	},
	{
		name: 'Norwegian',
		keys: "|1234567890+\\qwertyuiopå¨'asdfghjkløæzxcvbnm,.-" + '§!"#¤%&/()=?`QWERTYUIOPÅ^*ASDFGHJKLØÆZXCVBNM;:_',
	},
	{
		name: 'Danish',
		keys: "½1234567890+´qwertyuiopå¨'asdfghjklæøzxcvbnm,.-" + '§!"#¤%&/()=?`QWERTYUIOPÅ^*ASDFGHJKLÆØZXCVBNM;:_',
	},
	{
		name: 'Canadian French',
		keys: '#1234567890-=qwertyuiop^¸<asdfghjkl;`zxcvbnm,.é' + '|!"/$%?&*()_+QWERTYUIOP^¨>ASDFGHJKL:`ZXCVBNM\'.É',
	},
];

/** What X11 makes of a dead key and a letter is one character: its accent by the mark that it is composed with. */
const ACCENTS: Readonly<Record<string, string>> = {
	'\u0300': '`',
	'\u0301': '´',
	'\u0302': '^',
	'\u0303': '~',
	'\u0308': '¨',
	'\u030a': '°',
	'\u030c': 'ˇ',
	'\u0327': '¸',
};
/** Typed by one key each on X11; on Windows as two characters, which two other keys type as well. */
const LIGATURES: readonly (readonly [string, string])[] = [
	['ﻻ', 'لا'],
	['ﻷ', 'لأ'],
	['ﻹ', 'لإ'],
	['ﻵ', 'لآ'],
];
/** So many characters that two ways of typing have in common; with more there is no telling. */
const MAX_FORKS = 5;

/** By place on the keyboard; what has no key of its own, such as a space, is itself. */
type Keys = readonly (number | string)[];

/**
 * The text as a keyboard of another layout meant it: each character is the key that types it here, and what that key types
 * there. Several where two ways of typing lead to the same; none where a character has no key.
 */
export const retyped = (text: string, here: Layout, there: Layout): readonly string[] =>
	keysOf(text, here).map((keys) => typedBy(keys, there));

/** The keys that type a text; each way in which they can. */
export function keysOf(text: string, here: Layout): readonly Keys[] {
	let ways = [text];
	const isX11 = LIGATURES.some(([sign]) => text.includes(sign));
	for (const [key, pair] of LIGATURES.filter(([sign]) => here.keys.includes(sign) && !isX11))
		ways = ways.flatMap((way) => eitherWay(way.split(pair), pair, key));
	const known = new Map<string, Keys | null>();
	const keysFor = (sign: string) => {
		const found = known.get(sign);
		if (found !== undefined) return found;
		const keys = keysOfSign(sign, here);
		known.set(sign, keys);
		return keys;
	};
	return ways.flatMap((way) => {
		const keys: (number | string)[] = [];
		for (const sign of way) {
			const found = keysFor(sign);
			if (!found) return [];
			keys.push(...found);
		}
		return [keys];
	});
}

export function typedBy(keys: Keys, { keys: signs }: Layout): string {
	return keys.map((key) => (typeof key === 'number' ? signs[key] : key)).join('');
}

function eitherWay(parts: readonly string[], one: string, other: string): string[] {
	if (parts.length > MAX_FORKS + 1) return [];
	const [first = '', ...rest] = parts;
	return rest.reduce((ways, part) => ways.flatMap((way) => [way + one + part, way + other + part]), [first]);
}

function keysOfSign(sign: string, { keys }: Layout): Keys | null {
	if (sign <= ' ') return [sign];
	const plain = { '‘': '`', '’': "'", ẞ: 'ß' }[sign] ?? sign;
	const place = keys.indexOf(plain);
	if (place >= 0) return [place];
	const [letter = '', mark = ''] = sign.normalize('NFD');
	const accent = ACCENTS[mark];
	if (accent === undefined || !keys.includes(accent) || !keys.includes(letter)) return null;
	return [keys.indexOf(accent), keys.indexOf(letter)];
}
