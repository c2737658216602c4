/** What scanners make of a code before it arrives: another keyboard layout, capitals, signs around it. */
import { describe, expect, test } from 'vitest';
import { LAYOUTS, type Layout, retyped } from '../../src/pairing/keyboard-layouts.ts';
import { notACode } from '../../src/pairing/rules.ts';
import { readScannedText } from '../../src/pairing/scanned-text.ts';
import { kindOf } from '../../src/protocol/other-texts.ts';
import { asGivenCode } from '../../src/protocol/pairing-code.ts';

const CAPITALS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const SMALL = CAPITALS.toLowerCase();
const DIGITS = '0123456789';
const TOKEN = 'tr-AbCdEf_yzYZqwQWamAM0123456789';
const LINK = `https://id.example.com:8443/base/mobile?authorization=Token%20${TOKEN}&workflowId=check-in_2`;
const CODE = { baseUrl: 'https://id.example.com:8443/base', token: TOKEN, workflowId: 'check-in_2' };
const [US, ...OTHERS] = LAYOUTS;
const named = (name: string) => LAYOUTS.find((layout) => layout.name === name) as Layout;
/** As the keys of a scanner in one layout are read in another. */
const mangled = (text: string, scanner: Layout, device: Layout) => retyped(text, scanner, device)[0] ?? '';
const reasonOf = (text: string) => {
	const read = readScannedText(text);
	return read.code ? 'a code' : read.reason;
};

test('every layout has a character for each key, plain and with shift, and no key without one', () => {
	for (const { name, keys } of LAYOUTS) expect([name, [...keys].length, keys.includes(' ')]).toEqual([name, 94, false]);
});

describe.each(OTHERS.map(({ name }) => name))('with a keyboard layout that is %s', (name) => {
	const other = named(name);

	test('on the device, a link from a US scanner is read', () => {
		const text = mangled(LINK, US, other);
		expect(text).not.toContain('https://');
		expect(readScannedText(text)).toMatchObject({ code: CODE, typed: { device: name, capsLock: false } });
	});

	test('in the scanner, a link is read on a US device, unless a sign of every link has no key there', () => {
		if (['Arabic', 'Brazilian'].includes(name)) {
			expect([...LINK].every((sign) => other.keys.includes(sign))).toBe(false);
			return;
		}
		const text = mangled(LINK, other, US);
		expect(text).not.toContain('https://');
		expect(readScannedText(text)).toMatchObject({ code: CODE, typed: { device: 'US English' } });
	});

	test('a token alone of another form is never read as another one', () => {
		const text = mangled('ABCD-efgh_yz-1234-AQ', US, other);
		expect(readScannedText(text).code?.token ?? text).toBe(text);
	});
});

test.each([
	['German', 'httpsÖ--id.example.com-mobile_authoriyation´Token%20trßAyzd/workflowId´checkßin'],
	['French', 'httpsM!!id:exq,ple:co,!,obile§quthoriwqtion=Token5éàtr)Qwyd7zorkflozId=check)in'],
	['Spanish', "httpsÑ--id.example.com-mobile_authorization¡Token%20tr'Azyd/workflowId¡check'in"],
	['Turkish', 'httpsŞ..ıdçexampleçcom.mobıle:authorızatıon-Token%20tr*Azyd/workflowId-check*ın'],
	['Arabic', 'اففحس:ظظهيزثءشةحمثزؤخةظةخﻻهمث؟شعفاخقهئشفهخى=ﻹخنثى%20فق-ِئغي&صخقنبمخص÷ي=ؤاثؤن-هى'],
])('a link that was typed on a %s keyboard is read as it is printed', (device, text) => {
	const read = readScannedText(text);
	expect(read).toMatchObject({
		code: { baseUrl: 'https://id.example.com', token: 'tr-Azyd', workflowId: 'check-in' },
		typed: { device, scanner: 'US English' },
	});
});

test('a dead key that was joined with the letter after it is two keys again', () => {
	const text = 'httpsÖ--id.example.com-mobile_authoriyation´Token%20trßabcd/workflowIdćheckßin';
	expect(readScannedText(text)).toMatchObject({ code: { token: 'tr-abcd', workflowId: 'check-in' } });
});

test('two layouts of which neither is the US one are told as well', () => {
	const text = mangled(LINK, named('German'), named('French'));
	expect(readScannedText(text)).toMatchObject({ code: CODE, typed: { device: 'French' } });
});

/** Of layouts that are not known here, what their keys type where a US keyboard types these. */
const UNKNOWN: Record<string, readonly [there: string, plain?: string]> = {
	Russian: ['йцукенгшщзхъфывапролджэячсмитьбю.ЙЦУКЕНГШЩЗХЪФЫВАПРОЛДЖЭЯЧСМИТЬБЮ,'],
	Dvorak: [`',.pyfgcrl/=aoeuidhtns-;qjkxbmwvz"<>PYFGCRL?+AOEUIDHTNS_:QJKXBMWVZ`],
	Hebrew: ['/\'קראטוןםפ][שדגכעיחלךף,זסבהנמצתץ.QWERTYUIOP}{ASDFGHJKL:"ZXCVBNM><?'],
	'Arabic on a Mac': ['ضصثقفغعهخحجةشسيبلاتنمكؤظطذدزرو.؟َِّٰٕ:ًٌْٓ][}{ـ،أآ«»إ"١٢٣٤٥٦٧٨٩٠'],
};
const PLAIN = 'qwertyuiop[]asdfghjkl;\'zxcvbnm,./QWERTYUIOP{}ASDFGHJKL:"ZXCVBNM<>?';

test.each(Object.entries(UNKNOWN))('a link as a %s layout mangles it is named as that [F823]', (_name, [there]) => {
	const signs = [...there];
	const text = [...LINK].map((sign) => signs[PLAIN.indexOf(sign)] ?? sign).join('');
	expect(text).not.toContain('authorization');
	expect(reasonOf(text)).toBe('otherLayout');
	expect(reasonOf(text.slice(text.indexOf(signs[PLAIN.indexOf('?')] ?? '') + 8))).not.toBe('a code');
});

test('what could have been typed in two ways is named, and not guessed [F752]', () => {
	// On Windows one key types the two characters that two other keys type: b, or g and h.
	const text = mangled(LINK.replace(TOKEN, 'tr-AghA'), US, named('Arabic')).replaceAll('ﻻ', 'لا').replaceAll('ﻹ', 'لإ');
	expect(reasonOf(text)).toBe('otherLayout');
});

test.each([
	['the mark of its kind', `]Q1${LINK}`],
	['the mark of its kind, in another layout', mangled(`]Q1${LINK}`, US, named('German'))],
	['control characters', `\u0002${LINK}\u001d\u0003\r\n`],
	['a letter for its kind', `Q${LINK}`],
	['what QR codes of addresses begin with', `URL:${LINK}`],
	['the mark of its kind, around JSON', `]Q3${JSON.stringify(CODE)}`],
	['a sign after it', `${LINK}#`],
	['a sign before and after it', `*${LINK}*`],
])('%s around a code is passed over', (_what, text) => {
	expect(readScannedText(text)).toMatchObject({ code: CODE });
});

describe('signs that a scanner adds', () => {
	const last = `https://id.example.com:8443/base/mobile?workflowId=check-in_2&authorization=Token%20${TOKEN}`;
	const printed = [LINK, last, `https://go.example.net/x?next=${encodeURIComponent(last)}`, JSON.stringify(CODE)];

	test.each(['$', '}', '$}', '"', ';', '|', '>', ']', '§'])(
		'after the code, and no token has there, are passed over: %s [F1160]',
		(sign) => {
			for (const text of [...printed, `${last}\r\n`, `]Q1${last}`])
				expect([text, readScannedText(text.replace(/\s*$/, (end) => sign + end))]).toMatchObject([
					text,
					{ code: CODE, typed: null },
				]);
		},
	);

	test.each(['$', '}', '*', '!', '#', '%'])(
		'after or before a token of the usual form are passed over: %s [F1160]',
		(sign) => {
			const usual = 'tr-qtlNusrncXoHKiTmUKwluf-Fsxc4';
			for (const text of [`${usual}${sign}`, `${sign}${usual}`, `]Q1${usual}${sign}`])
				expect([text, readScannedText(text)]).toMatchObject([text, { code: { token: usual, form: 'token' } }]);
		},
	);

	test('are kept where a code may have them: escaped, behind a workflow, or in a token of its own form [F1160]', () => {
		for (const [text, part] of [
			[`${last}%24`, { token: `${TOKEN}$` }],
			[`${LINK}!`, { workflowId: 'check-in_2!' }],
			[`${last}:`, { token: `${TOKEN}:` }],
			[`${last}X`, { token: `${TOKEN}X` }],
		] as const)
			expect([text, readScannedText(text)]).toMatchObject([text, { code: part }]);
	});

	test.each(['{', '*', '$', '<'])('before the code are not called a keyboard layout: %s [F1160]', (sign) => {
		for (const text of printed)
			expect([text, readScannedText(sign + text)]).toMatchObject([text, { code: CODE, typed: null }]);
	});
});

describe('capitals', () => {
	const exchanged = [...LINK]
		.map((sign) => (sign === sign.toUpperCase() ? sign.toLowerCase() : sign.toUpperCase()))
		.join('');

	test('and small letters that are exchanged are read, also in another layout', () => {
		expect(readScannedText(exchanged)).toMatchObject({ code: CODE, typed: { capsLock: true, scanner: 'US English' } });
		const german = mangled(LINK, US, named('German'));
		const locked = [...german].map((sign) =>
			sign === 'ß' ? 'ß' : sign === sign.toUpperCase() ? sign.toLowerCase() : sign.toUpperCase(),
		);
		expect(readScannedText(locked.join(''))).toMatchObject({ code: CODE, typed: { capsLock: true, device: 'German' } });
	});

	test('only are named: nothing says which letters were small [F753]', () => {
		expect(reasonOf(LINK.toUpperCase())).toBe('capitals');
	});

	test('that are lost are named: the token may have had some; a slip in the word Token alone is read [F824]', () => {
		expect(reasonOf(LINK.toLowerCase())).toBe('capitals');
		expect(reasonOf(`https://go.example.net/open?next=${encodeURIComponent(LINK)}`.toLowerCase())).toBe('capitals');
		expect(readScannedText(LINK.replace('Token', 'token'))).toMatchObject({ code: CODE });
		for (const device of LAYOUTS.filter(({ name }) => /^(?:German|French|Spanish|Turkish)$/.test(name)))
			expect(reasonOf(mangled(LINK.toLowerCase(), US, device))).toBe('capitals');
		const digits = LINK.replace(TOKEN, '0123456789').toLowerCase();
		expect(readScannedText(digits)).toMatchObject({ code: { token: '0123456789' } });
	});

	test('or percent signs that are lost, a text that is cut or escaped like a web page, are no other token [F825]', () => {
		for (const text of [LINK.replaceAll('%', ''), LINK.replaceAll('&', '&amp;'), LINK.slice(0, 50)])
			expect(reasonOf(text)).toBe('damaged');
	});
});

test.each([
	['a link of a web page', 'https://example.com/menu?table=4&lang=de', 'linkWithoutToken'],
	['a link in capitals', 'HTTPS://EXAMPLE.COM/A?B=C12345', 'linkWithoutToken'],
	['a damaged code', 'https://id.example.com/mobile?authorization=Token%20', 'badToken'],
	['a Wi-Fi code', 'WIFI:S:net;T:WPA;P:pass1234;;', 'linkWithoutToken'],
	['a bar code of goods', '40063813339314006381', 'otherText'],
	['a serial number', 'SN-4711/2026 Rev. B, 230V', 'otherText'],
	['a German word', 'Straßenbahnhaltestelle', 'otherText'],
	['an Arabic sentence', 'هذا نص طويل ليس رمز اقتران 12345', 'otherText'],
	['an address', "42, rue de l'Église, 75000 Paris", 'otherText'],
])('%s is not taken for a code of another layout', (_what, text, reason) => {
	expect(reasonOf(text)).toBe(reason);
});

describe('a bare token', () => {
	const PRINTED = 'tr-qtlNusrncZoHKiTmUKwluf7FszcG';
	const exchanged = [...PRINTED].map((sign) => (/[a-z]/.test(sign) ? sign.toUpperCase() : sign.toLowerCase())).join('');

	/** Has neither y nor z, which some layouts exchange, nor b, which Arabic types with one key or with two. */
	const PLAINER = 'tr-qtlNusrncXoHKiTmUKwluf-Fsxc4';

	test.each(OTHERS.map(({ name }) => name))(
		'of the usual form, where %s is one of the layouts, is read or named, and never sent as another [F941]',
		(name) => {
			for (const token of [PRINTED, PLAINER, TOKEN].flatMap((one) => [one, `Token ${one}`, `]Q1${one}`])) {
				for (const text of [mangled(token, named(name), US), mangled(token, US, named(name))]) {
					if (text === '') continue;
					const { code, ...named } = readScannedText(text);
					expect([text, code?.token ?? named]).toEqual([
						text,
						code ? token.replace(/^.*tr-/, 'tr-') : { reason: 'otherLayout' },
					]);
				}
			}
		},
	);

	test.each(['German', 'French', 'Spanish', 'Turkish', 'Arabic', 'Italian', 'Swedish'])(
		'of the usual form is read on a %s device, where it can be one alone [F1075]',
		(device) => {
			const read = readScannedText(mangled(PLAINER, US, named(device)));
			expect(read).toMatchObject({
				code: { token: PLAINER, form: 'token' },
				typed: { scanner: 'US English', capsLock: false },
			});
			const locked = readScannedText(mangled(PLAINER, named(device), US));
			if (device !== 'Arabic')
				expect(locked).toMatchObject({ code: { token: PLAINER }, typed: { device: 'US English' } });
		},
	);

	test('of the usual form that could be two is named: with y or z, a US device does not tell a German scanner from a Spanish one', () => {
		expect(reasonOf(mangled(PRINTED, named('German'), US))).toBe('otherLayout');
		expect(readScannedText(mangled(PRINTED, US, named('German')))).toMatchObject({ code: { token: PRINTED } });
	});

	test('of the usual form whose capitals and small letters were exchanged is read; in capitals alone it is named [F1075]', () => {
		for (const text of [exchanged, `Token ${exchanged}`, `]Q1${exchanged}`])
			expect(readScannedText(text)).toMatchObject({ code: { token: PRINTED }, typed: { capsLock: true } });
		for (const text of [PRINTED.toUpperCase(), `TOKEN ${PRINTED.toUpperCase()}`, `]Q1${PRINTED.toUpperCase()}`])
			expect([text, reasonOf(text)]).toEqual([text, 'capitals']);
		expect(reasonOf(PRINTED)).toBe('a code');
	});

	test('of another form is sent as it is', () => {
		for (const token of ['TR-4711-2026-0815-99', 'ABCD/EFGH/1234/5678', 'tr/short-token-123', 'A'.repeat(31)])
			expect([token, reasonOf(token)]).toEqual([token, 'a code']);
	});
});

test.each([
	['wifi', 'WIFI:S:Gast;T:WPA;P:geheim12;;'],
	['wifi', 'WIFI:S:x;T:WPA;P:y;;'],
	['contact', 'BEGIN:VCARD\nVERSION:3.0\nN:Meier;Eva\nEND:VCARD'],
	['contact', 'MECARD:N:Meier;TEL:123;;'],
	['link', 'https://www.example.com/menu?table=4&lang=de'],
	['link', 'https://a.io/'],
])('in any layout a code of another thing (%s) is called what it is: %s [F945]', (kind, printed) => {
	const texts = OTHERS.flatMap((other) => [mangled(printed, US, other), mangled(printed, other, US)]);
	for (const text of [printed, ...texts.filter((some) => some !== '')]) {
		const read = readScannedText(text);
		const reason = read.code ? 'badToken' : read.reason;
		expect([text, notACode(reason, text).params?.['kind']]).toEqual([text, kind]);
		expect(notACode(reason, text).message).not.toContain('stays valid');
	}
});

test.each([
	['tel:+49301234567', 'telephone number'],
	['mailto:a@b.de', 'e-mail'],
	['geo:52.5,13.4', 'place'],
	['otpauth://totp/x?secret=ABC', 'another application'],
	['4006381333931', 'bar code'],
	[']E04006381333931', 'bar code'],
	['www.restaurant-muenchen.de/karte1', 'a link'],
	['example.com/menu/today-2026', 'a link'],
	['EXAMPLE.COM/MENU/TODAY-2026', 'a link'],
	['tel+498912345678', 'telephone number'],
	['HTTP://EXAMPLE.COM/A1', 'a link'],
	['JJD000390007869712345', 'bar code'],
	['978-3-16-148410-0', 'bar code'],
	['1Z999AA10123456784', 'bar code'],
	['DE89370400440532013000', 'number of an account'],
	['RF18539007547034', 'number of an account'],
	['MT:Y.K9042C00KA0648G00', 'another application'],
	['(01)04012345678901', 'bar code'],
	['www.example.com', 'a link'],
	['AB12:CD34', 'some other text'],
	['{"name":"x"}', 'some other text'],
])('%s is called what it is: %s [F1481]', (text, words) => {
	const read = readScannedText(text);
	expect(read.code ? '' : notACode(read.reason, text).message).toContain(words);
});

test.each([
	'550e8400-e29b-41d4-a716-446655440000',
	'DE89370400440532013001',
	'aB3.xY/zQ9kLmN0pRsT',
	'tr-0123456789.abcdef/01234567ab',
	'TELK49891234567890',
])('a token that only looks a little like another thing stays one: %s [F1481]', (token) =>
	expect(readScannedText(token)).toMatchObject({ code: { token } }),
);

/** With what each is, as issuers and standards print it. */
const PRINTED: readonly (readonly [kind: string, text: string])[] = [
	['document', 'L898902C36UTO7408122F1204159ZE184226B1234510'],
	['document', 'L898902C36UTO7408122F1204159ZE184226B<<<<<10'],
	['document', 'P<UTOERIKSSON<<ANNA<MARIA<<<<<<<<<<<<<<<<<<<'],
	['document', 'D231458907UTO7408122F1204159ABCDEF16'],
	['document', 'I<UTOD231458907<<<<<<<<<<<<<<<'],
	['document', '7408122F1204159UTO<<<<<<<<<<<6'],
	['document', '7408122F1204159UTO12345678ABC6'],
	['document', 'RSSMRA85T10A562S'],
	['document', 'BADD110313HCMLNS09'],
	['document', '11010519491231002X'],
	['payment', '00020101021129370016A000000677010111011300668012345675802TH53037646304A4CF'],
	['payment', '00020101021226370009SG.PAYNOW010120210201403121W030115204000053037025802SG5903ACM6009Singapore63047A1B'],
	[
		'payment',
		'00020126580014BR.GOV.BCB.PIX0136123e4567-e12b-12d1-a456-4266554400005204000053039865802BR5913Fulano de Tal6008BRASILIA62070503***63041D3D',
	],
	['payment', 'bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq'],
	['payment', '0x52908400098527886E0F7030069857D2E4169EE7'],
	['payment', 'LNURL1DP68GURN8GHJ7UM9WFMXJCM99E3K7MF0V9CXJ0M385EKVCENXC6R2C35'],
	['payment', 'lnbc2500u1pvjluezpp5qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxxatsyp3k7enxv4js'],
	['document', '12.345.678/0001-95'],
	['payment', 'DE33100205000001194700'],
	['payment', 'DE33 1002 0500 0001 1947 00'],
	['payment', 'FR1420041010050500013M02606'],
	['payment', 'MT84MALT011000012345MTLCAST001S'],
	['payment', 'GB29NWBK60161331926819'],
	['product', '1HGCM82633A004352'],
	['product', '1M8GDM9AXKP042788'],
	['product', 'JJD0099999999999'],
	['product', '01040123451234561721123110ABC123'],
	['product', '(01)04012345123456(17)211231(10)ABC123'],
	['product', '+A123BJC5D6E71G'],
	['product', '+H123PARTNO1234567890120C/$$420020216LOT123456789012'],
];

test.each(PRINTED)('what a person may hold before a kiosk is never sent as a token: %s %s [F1670]', (kind, text) => {
	// A scanner may write all capitals small, and mark what it has read.
	for (const scanned of [text, `]Q1${text}`, ...(/[a-z]/.test(text) ? [] : [text.toLowerCase()])]) {
		const read = readScannedText(scanned);
		const reason = read.code ? 'badToken' : read.reason;
		expect([scanned, read.code, notACode(reason, scanned).params?.['kind']]).toEqual([scanned, null, kind]);
		expect(asGivenCode(scanned)).toBe(scanned);
	}
});

test.each([
	['letters, digits, - and _', `${CAPITALS}${SMALL}${DIGITS}-_`],
	['letters, digits, + and /', `${CAPITALS}${SMALL}${DIGITS}+/`],
	['capitals and digits', CAPITALS + DIGITS],
	['small letters and digits', SMALL + DIGITS],
	['base32', `${CAPITALS}234567`],
	['hexadecimal digits', `${DIGITS}ABCDEF`],
])('a token of %s is never taken for another thing by chance [F1671]', (_what, signs) => {
	// By form and check digits it is one of two million at most; these are the same ones in every run.
	let seed = 1;
	const next = () => {
		seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
		return signs[Math.floor((seed / 2 ** 32) * signs.length)];
	};
	const taken: string[] = [];
	for (let count = 0; count < 2000; count += 1) {
		const token = Array.from({ length: 16 + (count % 49) }, next).join('');
		if (/\D/.test(token) && kindOf(token) !== null) taken.push(token);
	}
	expect(taken).toEqual([]);
});

const SIGNS_WITH_COLON = `${CAPITALS}${SMALL}${DIGITS}.~_+/:-`;
test.each([16, 32, 64])(
	'of codes of all signs, %i long, a colon keeps no more than one of six from being read [F1687]',
	(length) => {
		let seed = length;
		const next = () => {
			seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
			return SIGNS_WITH_COLON[Math.floor((seed / 2 ** 32) * SIGNS_WITH_COLON.length)];
		};
		const codes = Array.from({ length: 300 }, () => Array.from({ length }, next).join(''));
		const refused = codes.filter((code) => readScannedText(code).code === null);
		expect(refused.length).toBeLessThan(codes.length / 6);
		expect(refused.filter((code) => !code.includes(':'))).toEqual([]);
	},
);

test.each([
	...[
		'otpauth://totp/x?secret=ABCDEFGH234',
		'upi://pay?pa=a@b&am=100000',
		'bitcoin:1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa',
	],
	...[
		'MT:Y.K9042C00KA0648G00',
		'pt:ABCDEF0123456789XYZ',
		'LPA:1$rsp.example.com$ABC',
		'DPP:C:81/1;M:aabb;',
		'X-HM://0023ISYWYABCD',
	],
	...[
		'h323:user12345678901',
		's3://bucket/key1234567',
		'fb123456789012://authorize',
		'pkcs11:id=1234567890',
		'web3:0123456789abcdefgh',
	],
	...[
		'com.googleusercontent.apps.1234-abc:/oauth2',
		'z39.50r://host1/db12345',
		'whatsapp://send?text=a1',
		'cpe:2.3:a:vendor:prod1',
	],
	...[
		'SN:4CE0460D0GABC123456',
		'S/N:4CE0460D0GABC123456',
		'IMEI1:356938035643809',
		'700123:SN00012345678',
		'P1-serial:ABC12345678',
	],
	...[
		'kiosk-1.example.com:8443',
		'host9.example:65535/x',
		'2001:db8:85a3:0:0:8a2e:370:7334',
		'00:1a:22:33:44:55:66:77',
	],
	...['30.11.2026-06:55:50', '2026-11-30T06:55:50Z', 'HTTP/1.1:abcdefghijk'],
])('and what has its colon as a scheme, a label, a port or a time is no code: %s [F1688]', (text) => {
	expect(readScannedText(text).code).toBeNull();
});

test('a link whose first signs are lost is named as not whole, wherever it begins; so is one with two workflows [F1236]', () => {
	for (let cut = 1; cut <= LINK.length - 16; cut += 1) {
		const found = readScannedText(LINK.slice(cut));
		if (found.code === null) expect([LINK.slice(cut), found.reason]).toEqual([LINK.slice(cut), 'damaged']);
		else expect(found.code.token).toBe(TOKEN);
	}
	expect(readScannedText(`${LINK}&workflowId=another`)).toEqual({ code: null, reason: 'damaged' });
});
