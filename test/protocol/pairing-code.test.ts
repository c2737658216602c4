import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { notACode } from '../../src/pairing/rules.ts';
import { readScannedText } from '../../src/pairing/scanned-text.ts';
import { asGivenCode, MAX_CODE_LENGTH, type PairingCode, readPairingCode } from '../../src/protocol/pairing-code.ts';

/** Any UTF-16 code unit, half characters too; fast-check's own `binary` takes 0.8 s to set up. */
const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));

const TOKEN = 'tr-0123456789abcdefABCDEF-_xyzw';
const SESSION = '64b7f0c2a1d3e4f5a6b7c8d9';
const LINK = `https://id.example.com/mobile?authorization=Token%20${TOKEN}&sessionId=${SESSION}`;

const CODE: PairingCode = {
	kind: 'pairingCode',
	baseUrl: 'https://id.example.com',
	token: TOKEN,
	workflowId: null,
	sessionId: SESSION,
	form: 'link',
};

function reasonFor(text: string): string {
	const found = readPairingCode(text);
	return found.kind === 'notACode' ? found.reason : `a ${found.form} with ${found.token}`;
}

describe('a deep link', () => {
	test('as it is seen in the field gives host, token and session', () => {
		expect(readPairingCode(LINK)).toEqual(CODE);
	});

	test('may name a workflow, or no session', () => {
		const base = `https://id.example.com/mobile?authorization=Token%20${TOKEN}`;
		expect(readPairingCode(`${base}&workflowId=wf-1`)).toEqual({ ...CODE, workflowId: 'wf-1', sessionId: null });
		expect(readPairingCode(base)).toEqual({ ...CODE, sessionId: null });
		expect(readPairingCode(`${base}&workflowId=&sessionId=`)).toEqual({ ...CODE, sessionId: null });
	});

	test('has its parameters in any order, beside any others', () => {
		const parameters = [
			`authorization=Token%20${TOKEN}`,
			`sessionId=${SESSION}`,
			'workflowId=wf-1',
			'utm_source=mail',
			'lang',
		];
		fc.assert(
			fc.property(fc.shuffledSubarray(parameters, { minLength: parameters.length }), (order) => {
				const found = readPairingCode(`https://id.example.com/mobile?${order.join('&')}`);
				expect(found).toEqual({ ...CODE, workflowId: 'wf-1' });
			}),
			{ numRuns: 50 },
		);
	});

	test.each([
		['a raw space', `Token ${TOKEN}`],
		['a plus sign', `Token+${TOKEN}`],
		['two spaces', `Token%20%20${TOKEN}`],
		['other capitals', `TOKEN%20${TOKEN}`],
		['no scheme word', TOKEN],
		['everything encoded', `Token%20${[...TOKEN].map((char) => `%${char.charCodeAt(0).toString(16)}`).join('')}`],
	])('may have %s in the credential', (_what, authorization) => {
		expect(readPairingCode(LINK.replace(`Token%20${TOKEN}`, authorization))).toEqual(CODE);
	});

	test.each(['Tokn', 'Tokenn', 'Tocen', 'Otken', 'Tokne', 'oken', 'Token:', 'T0ken'])(
		'forgives the slip %s in the scheme word',
		(word) => {
			expect(readPairingCode(LINK.replace('Token%20', `${word}%20`))).toEqual(CODE);
		},
	);

	test.each(['Tkn', 'Tokennn', 'Taking', 'Code'])('does not take %s for a slip', (word) => {
		expect(reasonFor(LINK.replace('Token%20', `${word}%20`))).toBe('badToken');
	});

	test.each(['Basic dXNlcjpwYXNz', 'Bearer abcdefgh', 'ApiKey abcdefgh', 'connection abcdefgh'])(
		'with %s is another credential',
		(other) => {
			expect(reasonFor(LINK.replace(`Token%20${TOKEN}`, encodeURIComponent(other)))).toBe('otherScheme');
			expect(reasonFor(other)).toBe('otherScheme');
		},
	);

	test.each([
		['ends of line', `${LINK}\r\n`],
		['white space around it', `  ${LINK}\t`],
		['a byte order mark', `\uFEFF${LINK}`],
		['a wrap after each 20 characters', LINK.replace(/.{20}/g, '$&\n')],
		['a wrap with an indent', `${LINK.slice(0, 30)} \r\n    ${LINK.slice(30)}`],
		['old ends of line', `${LINK.slice(0, 50)}\r${LINK.slice(50)}\r`],
	])('is read through %s', (_what, text) => {
		expect(readPairingCode(text)).toEqual(CODE);
	});

	test.each([
		['a port', 'https://id.example.com:8443/mobile', 'https://id.example.com:8443'],
		['the default port', 'https://id.example.com:443/mobile', 'https://id.example.com'],
		['a path before /mobile', 'https://id.example.com/tenant/a/mobile', 'https://id.example.com/tenant/a'],
		['a slash after /mobile', 'https://id.example.com/mobile/', 'https://id.example.com'],
		['another path', 'https://id.example.com/pair', 'https://id.example.com/pair'],
		['no path', 'https://id.example.com', 'https://id.example.com'],
		['capitals', 'HTTPS://ID.EXAMPLE.COM/mobile', 'https://id.example.com'],
		['plain http', 'http://localhost:8080/mobile', 'http://localhost:8080'],
		['letters that look alike, shown in punycode', 'https://іd.example.com/mobile', 'https://xn--d-evb.example.com'],
	])('with %s gives the base URL', (_what, address, baseUrl) => {
		expect(readPairingCode(`${address}?authorization=Token%20${TOKEN}`)).toMatchObject({ baseUrl, token: TOKEN });
	});

	test.each([
		['https://user@id.example.com/mobile', 'badBaseUrl'],
		['https://user:password@id.example.com/mobile', 'badBaseUrl'],
		['ftp://id.example.com/mobile', 'badBaseUrl'],
		['javascript:alert(1)//', 'badBaseUrl'],
		['idv://mobile', 'badBaseUrl'],
		['https://', 'otherText'],
		['https://a b/mobile', 'otherText'],
	])('at %s is refused as %s', (address, reason) => {
		expect(reasonFor(`${address}?authorization=Token%20${TOKEN}`)).toBe(reason);
	});

	test.each([
		['no token', 'https://id.example.com/mobile?sessionId=1', 'linkWithoutToken'],
		['an empty one', 'https://id.example.com/mobile?authorization=', 'badToken'],
		['a scheme alone', 'https://id.example.com/mobile?authorization=Token', 'badToken'],
		['a scheme and a space', 'https://id.example.com/mobile?authorization=Token%20&sessionId=1', 'badToken'],
		['a short one', 'https://id.example.com/mobile?authorization=Token%20abc', 'badToken'],
		['two', `${LINK}&authorization=Token%20${TOKEN}`, 'badToken'],
		['a control character in it', LINK.replace('tr-', 'tr-%00'), 'badToken'],
		['other letters in it', LINK.replace('tr-', 'тр-'), 'badToken'],
		['its percent signs lost', LINK.replaceAll('%', ''), 'damaged'],
		['its space lost', LINK.replace('Token%20', 'Token'), 'damaged'],
		['its space escaped twice', LINK.replace('%20', '%2520'), 'damaged'],
		['half an escape', LINK.replace('%20', '%2'), 'damaged'],
		['the escapes of a web page', LINK.replaceAll('&', '&amp;'), 'damaged'],
		['the escapes of a web page, by number', LINK.replaceAll('&', '&#38;'), 'damaged'],
		['a plus sign in its token, which may be a space', LINK.replace('tr-', 'tr+'), 'damaged'],
		['its path as its end', LINK.slice(0, LINK.indexOf('?')), 'damaged'],
		['the question mark as its end', LINK.slice(0, LINK.indexOf('?') + 1), 'damaged'],
		['an end before its token', LINK.slice(0, LINK.indexOf('authorization') + 7), 'damaged'],
		['an end within its space', LINK.slice(0, LINK.indexOf('%20') + 2), 'damaged'],
	])('with %s is %s', (_what, text, reason) => {
		expect(reasonFor(text)).toBe(reason);
	});

	test.each(['', ' ', '\r\n', '  \n'])('that was scanned twice in a row, with %j in between, is one', (between) => {
		const link = 'https://id.example.com/mobile?authorization=Token%20SECRETaB3_d-Ef9zYqM&workflowId=check-in_2';
		expect(readPairingCode(`${link}${between}${link}`)).toEqual(readPairingCode(link));
		expect(readPairingCode(`${link}${between}${link}${between}${link}`)).toEqual(readPairingCode(link));
	});

	test('with another link behind it is refused: no part of that is shown as the name of a workflow', () => {
		const link = (token: string) => `https://id.example.com/mobile?authorization=Token%20${token}&workflowId=check-in`;
		const text = `${link('SECRETaB3_d-Ef9zYqM')}authorization=Token SECRET`;
		expect(readPairingCode(text)).toEqual({ kind: 'notACode', reason: 'badWorkflow' });
	});

	test('with a workflow that could not be registered is refused', () => {
		expect(reasonFor(`${LINK}&workflowId=a%0Ab`)).toBe('badWorkflow');
		expect(reasonFor(`${LINK}&workflowId=${'x'.repeat(129)}`)).toBe('badWorkflow');
	});

	test('with a session that is no name pairs without a session', () => {
		expect(readPairingCode(LINK.replace(SESSION, 'a%20b'))).toEqual({ ...CODE, sessionId: null });
		expect(readPairingCode(LINK.replace(SESSION, 'x'.repeat(129)))).toEqual({ ...CODE, sessionId: null });
	});
});

/** `link` as a parameter of `outer` links, so many deep. */
function nest(link: string, depth: number, outer = 'https://go.example.net/open?next='): string {
	return depth === 0 ? link : nest(`${outer}${encodeURIComponent(link)}`, depth - 1, outer);
}

describe('a link inside another', () => {
	test.each([1, 2, 3])('is found %i deep', (depth) => {
		expect(readPairingCode(nest(LINK, depth))).toEqual({ ...CODE, form: 'nestedLink' });
	});

	test('is not looked for any deeper', () => {
		expect(reasonFor(nest(LINK, 4))).toBe('linkWithoutToken');
	});

	test.each([
		['an application link', 'idv-app://open?link=', ''],
		['an intent', 'intent://scan/?url=', '#Intent;scheme=https;end'],
		['a shortener with other parameters', 'https://l.example.net/?a=1&u=', '&b=https%3A%2F%2Fexample.org'],
		['the part behind the number sign', 'https://app.example.net/#link=', ''],
	])('is found in %s', (_what, before, after) => {
		expect(readPairingCode(`${before}${encodeURIComponent(LINK)}${after}`)).toEqual({ ...CODE, form: 'nestedLink' });
	});

	test('is found as the whole part behind the number sign', () => {
		expect(readPairingCode(`https://app.example.net/#${LINK}`)).toEqual({ ...CODE, form: 'nestedLink' });
	});

	test.each(['url', 'link', 'qr'])('is found in an object under a name of its own: %s [F1675]', (name) => {
		const text = JSON.stringify({ [name]: LINK, expiresIn: 300 });
		for (const printed of [text, text.replaceAll('/', '\\/').replaceAll('&', '\\u0026')])
			expect(readScannedText(printed)).toMatchObject({ code: { ...CODE, form: 'nestedLink' }, typed: null });
		expect(reasonFor(JSON.stringify({ [name]: 'https://example.com/menu' }))).toBe('linkWithoutToken');
	});

	test.each([`url=${LINK}`, JSON.stringify({ data: { qr: { deeplink: LINK } } })])(
		'is found behind a name, and within objects of objects: %s [F1689]',
		(text) =>
			expect(readScannedText(text)).toMatchObject({ code: { token: CODE.token, baseUrl: CODE.baseUrl }, typed: null }),
	);

	test('with the escapes of JSON and without its object is not whole, and no part of it is sent as the token [F1676]', () => {
		for (const text of [LINK.replaceAll('/', '\\/'), LINK].map((one) => one.replaceAll('&', '\\u0026')))
			expect(readScannedText(text)).toEqual({ code: null, reason: 'damaged' });
	});

	test('gives its own host, not that of the outer one', () => {
		const found = readPairingCode(`https://user:pass@outer.example/?u=${encodeURIComponent(LINK)}`);
		expect(found).toMatchObject({ baseUrl: 'https://id.example.com' });
	});

	test('with a fault of its own says which', () => {
		expect(reasonFor(nest(LINK.replace('https://', 'https://user@'), 1))).toBe('badBaseUrl');
	});

	test('of any shape is read in good time', () => {
		const many = `https://h/?${Array.from({ length: 150 }, () => `a=${encodeURIComponent('https://h/?b=https://h')}`).join('&')}`;
		expect(many.length).toBeLessThan(MAX_CODE_LENGTH * 2);
		const hashes = `https://h/${'#https://h/?a=https://h'.repeat(180)}`;
		expect(hashes.length).toBeLessThan(MAX_CODE_LENGTH);
		const before = process.cpuUsage();
		expect(reasonFor(many.slice(0, MAX_CODE_LENGTH))).toBe('linkWithoutToken');
		expect(reasonFor(hashes)).toBe('linkWithoutToken');
		expect(process.cpuUsage(before).user).toBeLessThan(5_000_000);
	});
});

describe('a JSON code', () => {
	const json = (fields: Record<string, unknown>) =>
		JSON.stringify({ baseUrl: 'https://id.example.com/', token: TOKEN, ...fields });

	test('gives what it names', () => {
		const expected = { ...CODE, sessionId: null, form: 'json' };
		expect(readPairingCode(json({}))).toEqual(expected);
		expect(readPairingCode(json({ workflowId: 'wf-1', sessionId: SESSION }))).toEqual({
			...expected,
			workflowId: 'wf-1',
			sessionId: SESSION,
		});
		expect(readPairingCode(json({ workflowId: '', sessionId: '' }))).toEqual(expected);
		expect(readPairingCode(json({ token: `Token ${TOKEN}` }))).toEqual(expected);
		expect(readPairingCode(JSON.stringify(JSON.parse(json({})), null, '  '))).toEqual(expected);
	});

	test.each([undefined, null])('may leave everything but the token out, or say %s', (nothing) => {
		expect(readPairingCode(json({ baseUrl: nothing, workflowId: nothing, sessionId: nothing }))).toEqual({
			...CODE,
			baseUrl: null,
			sessionId: null,
			form: 'json',
		});
	});

	test.each([
		[{ token: undefined }, 'linkWithoutToken'],
		[{ token: 7 }, 'linkWithoutToken'],
		[{ token: 'a\u0000bcdef' }, 'badToken'],
		[{ token: 'Bearer abcdefgh' }, 'otherScheme'],
		[{ baseUrl: 7 }, 'badBaseUrl'],
		[{ baseUrl: '' }, 'badBaseUrl'],
		[{ baseUrl: 'id.example.com' }, 'badBaseUrl'],
		[{ baseUrl: 'https://user@id.example.com' }, 'badBaseUrl'],
		[{ baseUrl: 'https://id.example.com?x=1' }, 'badBaseUrl'],
		[{ workflowId: 7 }, 'badWorkflow'],
		[{ workflowId: 'a\nb' }, 'badWorkflow'],
	])('with %j is refused as %s', (fields, reason) => {
		expect(reasonFor(json(fields))).toBe(reason);
	});

	test('that is cut, or has its names in other letters, is named as damaged', () => {
		expect(reasonFor('{"token":')).toBe('damaged');
		expect(reasonFor(json({}).slice(0, -9))).toBe('damaged');
		expect(reasonFor(json({}).replaceAll('"', '&quot;'))).toBe('damaged');
		expect(reasonFor(json({}).toLowerCase())).toBe('damaged');
		expect(reasonFor(json({}).toUpperCase())).toBe('damaged');
	});

	test('that is not JSON is other text', () => {
		expect(reasonFor(`${'{"a":'.repeat(800)}`)).toBe('otherText');
	});
});

describe('a bare token', () => {
	const bare = { ...CODE, baseUrl: null, sessionId: null, form: 'token' };

	test.each([
		['alone', TOKEN],
		['with its scheme', `Token ${TOKEN}`],
		['with a slip in its scheme', `tokne ${TOKEN}`],
		['with an end of line', `${TOKEN}\n`],
		['in groups with a scheme', `Token ${TOKEN.match(/.{1,4}/g)?.join(' ')}`],
		['in lines', `${TOKEN.slice(0, 16)}\n  ${TOKEN.slice(16)}`],
		['twice, each in a line of its own [F1244]', `${TOKEN}\r\n${TOKEN}\r\n`],
		['with its scheme, three times', `Token ${TOKEN}\n\nToken ${TOKEN}\nToken ${TOKEN}`],
	])('is read %s', (_what, text) => {
		expect(readPairingCode(text)).toEqual(bare);
	});

	test('is not made of two others, each in a line of its own [F1244]', () => {
		const [one, other] = ['tr-0123456789abcdef0123456789ab', 'tr-1123456789abcdef0123456789ab'];
		expect(reasonFor(`${one}\n${other}\n`)).toBe('several');
		expect(reasonFor(`Token ${one}\nToken ${other}`)).toBe('several');
	});

	test.each([
		['a serial number', 'SN-00042-B'],
		['a bar code', '4006381333931'],
		['a long bar code', '00340123450000000018'],
		['a sentence', 'Please scan the other code'],
		['15 characters', 'abcdefghijklmno'],
		['marks that no token has', 'abcdefgh*ijklmnop'],
		['a contact', 'BEGIN:VCARD'],
		['an e-mail address', 'someone@example.com.and.more'],
	])('is not %s', (_what, text) => {
		expect(readPairingCode(text).kind).toBe('notACode');
	});
});

describe('any other text', () => {
	test.each([
		['', 'empty'],
		[' \r\n\t', 'empty'],
		['\uFEFF', 'empty'],
		[`https://h/?x=${'a'.repeat(MAX_CODE_LENGTH)}`, 'tooLong'],
		[`${LINK}\u0000`, 'controlCharacters'],
		[`\u001B[31m${LINK}`, 'controlCharacters'],
		[LINK.replace('id.', 'id\u202E.'), 'controlCharacters'],
		[LINK.replace('id.', 'i\u200Bd.'), 'controlCharacters'],
		['a\uD800b', 'controlCharacters'],
		['WIFI:T:WPA;S:site;P:secret;;', 'linkWithoutToken'],
		['mailto:someone@example.com', 'linkWithoutToken'],
		['https://example.com', 'linkWithoutToken'],
	])('%j is no code: %s', (text, reason) => {
		expect(reasonFor(text)).toBe(reason);
	});

	test('a text of the greatest length is still read', () => {
		const text = `${LINK}&pad=`.padEnd(MAX_CODE_LENGTH, 'x');
		expect(readPairingCode(text)).toEqual(CODE);
		expect(reasonFor(`${text}x`)).toBe('tooLong');
	});
});

/** Every character that the text can mean: its own, and those behind its percent and JSON escapes. */
function charactersOf(text: string): Set<string> {
	const characters = new Set(text);
	let layer = text;
	for (let depth = 0; depth < 6; depth += 1) {
		// Line ends inside an escape go away, here as in every URL.
		layer = layer
			.replace(/[\t ]*[\r\n\t]+[\t ]*/g, '')
			.replace(/%([0-9a-f]{2})/gi, (_escape, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
			.replace(/\\u([0-9a-f]{4})/gi, (_escape, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
		for (const character of layer) characters.add(character);
	}
	return characters;
}

function expectSafe(text: string): void {
	const found = readPairingCode(text);
	if (found.kind === 'notACode') return;
	const known = charactersOf(text);
	// Plain comparisons: five thousand runs of `expect` for each character would take a minute.
	const invented = [...found.token].filter((character) => !known.has(character));
	const unsafe = /[^\x21-\x7e]/.test(found.token);
	if (invented.length > 0 || unsafe)
		expect.fail(`${JSON.stringify(text)} gave the token ${JSON.stringify(found.token)}`);
	if (found.baseUrl !== null && !/^https?:\/\/[^/@\s\p{C}]+(\/[^\s\p{C}]*)?$/u.test(found.baseUrl))
		expect.fail(`${JSON.stringify(text)} gave the base URL ${JSON.stringify(found.baseUrl)}`);
	if (found.workflowId !== null && /\p{C}/u.test(found.workflowId))
		expect.fail(`${JSON.stringify(text)} gave the workflow ${JSON.stringify(found.workflowId)}`);
}

const VALID = [
	LINK,
	`Token ${TOKEN}`,
	TOKEN,
	nest(LINK, 2),
	`https://app.example.net/#link=${encodeURIComponent(LINK)}`,
	JSON.stringify({ baseUrl: 'https://id.example.com', token: TOKEN, workflowId: 'wf-1', sessionId: SESSION }),
];

const piece = fc.oneof(
	fc.string({ unit: codeUnit, maxLength: 3 }),
	fc.constantFrom(
		' ',
		'\n',
		'\t',
		'%',
		'%00',
		'%20',
		'%0d%0a',
		'+',
		'&',
		'#',
		'?',
		'@',
		'\\',
		'"',
		'\u0000',
		'\u202E',
		'authorization=',
		'Token ',
	),
);
const edit = fc.record({ at: fc.nat({ max: 400 }), remove: fc.nat({ max: 4 }), insert: piece });
const mutated = fc
	.tuple(fc.constantFrom(...VALID), fc.array(edit, { minLength: 1, maxLength: 4 }))
	.map(([text, edits]) =>
		edits.reduce((before, { at, remove, insert }) => {
			const start = at % (before.length + 1);
			return before.slice(0, start) + insert + before.slice(start + remove);
		}, text),
	);

describe('whatever is scanned', () => {
	test('5,000 random texts neither throw nor give a token that the text does not hold', () => {
		const anything = fc.oneof(
			fc.string({ unit: codeUnit }),
			fc.string(),
			fc.string().map((rest) => `https://id.example.com/${rest}`),
			fc.json(),
		);
		fc.assert(fc.property(anything, expectSafe), { numRuns: 5000 });
	});

	test('5,000 damaged codes neither throw nor give a token that the text does not hold', () => {
		fc.assert(fc.property(mutated, expectSafe), { numRuns: 5000 });
	});

	test('the same codes without damage give their token', () => {
		for (const text of VALID) expect(readPairingCode(text)).toMatchObject({ kind: 'pairingCode', token: TOKEN });
	});
});

describe('a text of which a person says that it is the code', () => {
	test.each(['482913', '12345678901234567890', 'AB12-CD34', 'AB12:CD34', 'a1b2'])(
		'is one if it is a word: %s',
		(text) => {
			expect(reasonFor(text)).toMatch(/otherText|linkWithoutToken/);
			expect(readPairingCode(asGivenCode(` ${text}\n`))).toMatchObject({ form: 'token', token: text });
		},
	);

	test.each([
		LINK,
		TOKEN,
		'https://id.exam',
		'http:',
		'eyJhbGciOi',
		'a=b',
		'x%20abcd',
		'zwei Wörter',
		'abc',
		'garbage',
		'',
		'{"token":1}',
	])('stays as it is otherwise: %s', (text) => expect(asGivenCode(text)).toBe(text));

	test.each([
		'tel:+49301234',
		'TEL:0301234567',
		'sms:+4930123',
		'SMSTO:+4930123:hi',
		'bitcoin:1BoatSLRHtKNngkdXEeobR76',
		'urn:x1',
	])('is none where it begins as the code of another thing: %s [F1461]', (text) =>
		expect(readPairingCode(asGivenCode(text)).kind).toBe('notACode'),
	);

	test.each([
		...['callto:123456', 'mmsto:123456', 'isbn:9783161484100', 'sip:100', 'skype:echo123', 'xmpp:a1', 'javascript:1'],
		...['lightning:lnbc1234', 'shortcut:1234', 'spotify:track:4u', 'LPA:1', 'DPP:K:MDk1', 'MT:Y.K9042C00KA0648G00'],
		...[
			'SN:1234567890',
			'IMEI:490154203237518',
			'BEGIN:VCARD1',
			'tel+498912345678',
			'example.com/a1',
			'www.example.com/x1',
		],
		...['DE89370400440532013000', '1Z999AA10123456784'],
	])('is none where a scanner names it or refuses it, but with its scheme: %s [F1480]', (text) => {
		expect(readPairingCode(asGivenCode(text)).kind).toBe('notACode');
		expect(readPairingCode(asGivenCode(`Token ${text}`))).toMatchObject({ form: 'token', token: text });
	});
});

describe('a text of a label', () => {
	test.each([
		...['192.168.10.24', '10.0.0.1:8443', '10.0.0.0/24', '00:1B:44:11:3A:B7', '00-1b-44-11-3a-b7', 'ab:cd:ef:12:34:56'],
		...['2026-11-29', '29.11.2026', '11/29/2026', '2026-11-29T10:00:00Z', '2026-11-29 10:00'],
	])('is not taken for a code: %s [F1521]', (text) => {
		expect(asGivenCode(text)).toBe(text);
		expect(readPairingCode(text).kind).toBe('notACode');
		expect(notACode('otherText', text).message).toBe(
			'This is a bar code of a product or a label, not a pairing code. Nothing was sent.',
		);
	});

	test.each(['1234-56-78', '1.2.3', '00:1B:44', '12-34', '2026-1129', '99-88-7777', 'ab12-cd34', '00-1B:44-11:3A-B7'])(
		'may be a code where its form is no other thing’s: %s [F1521]',
		(text) => expect(asGivenCode(text)).toBe(`Token ${text}`),
	);
});

describe('a text of several lines', () => {
	const USUAL = 'tr-0123456789abcdefghijklmnopqr';
	const BILL = ['BCD', '002', '1', 'SCT', 'BFSWDE33BER', 'Mustermann', 'DE33100205000001194700', 'EUR10'];

	test.each([
		['a bill', BILL.join('\n')],
		['an address', 'Name1\nStreet5\n12345'],
	])('is not one word: %s [F1504]', (_, text) => {
		expect(readPairingCode(text)).toEqual({ kind: 'notACode', reason: 'otherText' });
		expect(asGivenCode(text)).toBe(text);
	});

	test.each(['\n', '\r\n', ' ', ''])(
		'that holds different codes is none of them, with %j in between [F1522]',
		(between) => {
			const codes = ['0', '1', '2'].map(
				(sign) => `https://id${sign}.example/mobile?authorization=Token%20tr-${sign.repeat(28)}`,
			);
			const [one, other, third] = [...codes, JSON.stringify({ baseUrl: 'https://id.example', token: USUAL })];
			for (const text of [
				[one, other],
				[`${one}&workflowId=w1`, `${other}&workflowId=w1`],
				[one, other, third],
				[one, codes[2], one],
				[JSON.stringify({ baseUrl: 'https://id.example', token: `${USUAL}0` }), codes[0]],
			])
				expect(reasonFor(text.join(between))).toBe('several');
			expect(readScannedText([one, other].join(between))).toEqual({ code: null, reason: 'several' });
			expect(notACode('several').message).toBe('These are several pairing codes at once. The code was not sent.');
			expect(readPairingCode([one, one].join(between))).toEqual(readPairingCode(one ?? ''));
		},
	);

	test('is one code where it holds the same one as a link and as its token, and no other code [F1522]', () => {
		const link = `https://id.example/mobile?authorization=Token%20${USUAL}&workflowId=w1`;
		expect(readPairingCode(`${link}\n${USUAL}`)).toMatchObject({ form: 'link', token: USUAL, workflowId: 'w1' });
		expect(reasonFor(`${link}\n${USUAL}0`)).toBe('several');
		const inner = `https://id.example/mobile?next=${link}`;
		expect(readPairingCode(inner)).toMatchObject({ form: 'nestedLink', token: USUAL });
	});

	test('is the token that one of them is [F1504]', () => {
		for (const text of [`Room 12\n${USUAL}`, `${USUAL}\nname1`, `abc1\ndef2\nToken ${USUAL}\n`])
			expect(readPairingCode(text)).toMatchObject({ form: 'token', token: USUAL });
	});

	test('is one word that was broken at the width of a line, and a link in any way', () => {
		expect(readPairingCode('0123456789abcdef\nghijklmnopqrstuv\nwxyz')).toMatchObject({
			token: '0123456789abcdefghijklmnopqrstuvwxyz',
		});
		expect(readPairingCode(`https://one.example/\napplinks?authorization=Token%20\n${USUAL}`)).toMatchObject({
			baseUrl: expect.stringContaining('one.example'),
			token: USUAL,
		});
	});
});
