import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isCredential } from '../../src/protocol/authorization.ts';
import {
	holdsWordsOnly,
	likelyFirst,
	looksLikeToken,
	type RegistrationAnswer,
	readAnswerTexts,
	tokenIn,
} from '../../src/protocol/registration-answer.ts';

const findConnectionToken = (answer: RegistrationAnswer, pointer?: string | null) =>
	tokenIn(readAnswerTexts(answer), pointer);

const TOKEN = 'eyJhbGciOi.J9.c2ln-_';
/** Any UTF-16 code unit, half characters too; fast-check's own `binary` takes 0.8 s to set up. */
const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));

describe('the Connection token in an answer', () => {
	test.each([
		['`token`', { token: TOKEN }],
		['`connectionToken`', { connectionToken: TOKEN }],
		['`authorization`', { authorization: `Connection ${TOKEN}` }],
		['`connection.token`', { id: 7, connection: { id: 'c', token: TOKEN } }],
		['a JSON string', TOKEN],
		['a JSON string with its scheme', `connection  ${TOKEN}`],
	])('is found in %s', (_where, document) => {
		expect(findConnectionToken({ body: JSON.stringify(document) })).toBe(TOKEN);
		expect(findConnectionToken({ body: ` \r\n${JSON.stringify(document, null, '\t')}\n` })).toBe(TOKEN);
		expect(findConnectionToken({ body: `\uFEFF${JSON.stringify(document)}` })).toBe(TOKEN);
	});

	test('is looked for by name and form before an id', () => {
		const opaque = 'a1b2c3d4e5f6a7b8c9d0e1f2';
		const body = {
			note: 'hello there',
			deviceId: opaque,
			refreshToken: opaque,
			key: opaque,
			data: { session: { secret: opaque } },
			sig: 'eyJhbGciOi.J9aa.c2ln-_',
		};
		const places = likelyFirst(readAnswerTexts({ body: JSON.stringify(body) })).map(({ place }) => place);
		expect(places).toEqual(['/data/session/secret', '/sig', '/key', '/deviceId', '/refreshToken', '/note']);
	});

	test('is found in a text body, with or without its scheme', () => {
		expect(findConnectionToken({ body: `${TOKEN}\n` })).toBe(TOKEN);
		expect(findConnectionToken({ body: `Connection ${TOKEN}` })).toBe(TOKEN);
		expect(findConnectionToken({ body: `\uFEFFCONNECTION\t${TOKEN}\r\n` })).toBe(TOKEN);
	});

	test('the first known place wins, and one that holds no token is passed over', () => {
		const other = 'other-token-0001';
		expect(findConnectionToken({ body: JSON.stringify({ connectionToken: other, token: TOKEN }) })).toBe(TOKEN);
		expect(findConnectionToken({ body: JSON.stringify({ token: null, connectionToken: other }) })).toBe(other);
		expect(findConnectionToken({ body: JSON.stringify({ token: '', connection: { token: other } }) })).toBe(other);
		expect(findConnectionToken({ body: JSON.stringify({ token: { value: TOKEN } }) })).toBeNull();
	});

	test('a configured pointer is the only place that counts', () => {
		const body = JSON.stringify({ token: 'not-this-one', data: [{ 'a/b': { 'c~d': TOKEN } }] });
		expect(findConnectionToken({ body }, '/data/0/a~1b/c~0d')).toBe(TOKEN);
		expect(findConnectionToken({ body }, '/data/1')).toBeNull();
		expect(findConnectionToken({ body }, '/data')).toBeNull();
		expect(findConnectionToken({ body }, 'token')).toBeNull();
		expect(findConnectionToken({ body: TOKEN }, '/token')).toBeNull();
		expect(findConnectionToken({ body: JSON.stringify(TOKEN) }, '')).toBe(TOKEN);
	});

	test.each([
		['an empty body', ''],
		['white space', ' \n '],
		['a page', '<!doctype html><title>Sign in</title>'],
		['a page without a space', '<html><body>Sign-in</body></html>'],
		['null', 'null'],
		['a number', '1234567890'],
		['an empty object', '{}'],
		['an array', `["${TOKEN}"]`],
		['a short word', 'ok'],
		['a sentence', 'Device registered successfully'],
		['a token with a space in it', JSON.stringify({ token: 'abcdef ghijkl' })],
		['a token with a line end in it', JSON.stringify({ token: 'abcdef\r\nHost:x' })],
		['a token that is too long', JSON.stringify({ token: 'x'.repeat(8193) })],
		['a token in other letters', JSON.stringify({ token: 'пароль-пароль' })],
		['an answer that was cut off', `{"token":"${TOKEN}`],
		['an array that was cut off', `["${TOKEN}"`],
		['a string that was cut off', `"${TOKEN}`],
		['a prototype in place of a field', '{"__proto__":{"token":"abcdefghijkl"}}'],
	])('%s holds none', (_what, body) => {
		expect(findConnectionToken({ body })).toBeNull();
	});

	test.each([
		['a script', 'window.location="http://portal/login";'],
		['a form with an error', 'error=invalid_token'],
		['words run together', 'ServiceUnavailable'],
		['a word behind a label', 'Connection established'],
		['two words', 'already-used'],
		['words in a row', 'device-not-registered'],
		['what stands for a token in a manual', 'YOUR_TOKEN_HERE'],
		['an error with its number', 'error:42'],
		['a path', '/login?next=1'],
		['what a request is found again by', '{"error":null,"traceId":"4bf92f3577b34da6a3ce929d0e0e4736"}'],
		['the same in another spelling', '{"meta":{"correlation_id":"4bf92f3577b34da6a3ce929d0e0e4736"}}'],
		['a template that was not filled in', '{"token":"{{TOKEN_OF_DEVICE}}"}'],
		['an error in place of the token', '{"token":"error"}'],
		['a code of an error there', '{"token":"invalid_token"}'],
		['what a program writes for nothing', '{"connectionToken":"undefined"}'],
		['an error behind its scheme', '{"authorization":"Bearer error=\\"invalid_token\\""}'],
		['the reason for a refusal in small letters', 'quota_exceeded'],
		['the name of a thing in capitals', '{"token":"CONNECTION_TOKEN"}'],
		['a name of an error in the web', 'urn:ietf:params:oauth:error:42'],
		['the name of a page', 'login.html'],
		['a date', '2026-11-29'],
		['a host with its port', 'id.example.com:8443'],
		['a program with its version', 'nginx/1.25.3'],
		['the address of a card', '00:11:22:33:44:55'],
		['a token that is masked', '{"token":"kq7Z****"}'],
	])('%s is none, unless its place is named [F1478]', (_what, body) => {
		const texts = readAnswerTexts({ body });
		expect(tokenIn(texts)).toBeNull();
		expect(texts.filter(looksLikeToken)).toEqual([]);
		expect(tokenIn([{ place: '/key', text: 'error' }], '/key')).toBe('error');
	});

	test.each(['Fehler', 'erreur', 'OK', 'autorizado', 'Connection abgelehnt'])(
		'is not a word of any language, wherever it is: %s [F1518]',
		(word) => {
			const texts = [{ place: '/connection/token', text: word }];
			for (const body of [{ token: word }, { authorization: word }, word])
				expect(findConnectionToken({ body: JSON.stringify(body) })).toBeNull();
			expect(texts.filter(looksLikeToken)).toEqual([]);
			expect(tokenIn(texts, '/connection/token')).toBe(word.split(' ').at(-1));
		},
	);

	test('of letters alone, in a place that says what it is, is none, and a person may name that place [F1541]', () => {
		expect(findConnectionToken({ body: '{"token":"kjhsdfkjhqwe"}' })).toBeNull();
		expect(holdsWordsOnly([{ place: '/token', text: 'kjhsdfkjhqwe' }])).toBe(false);
		for (const words of ['notAllowed', 'device_blocked', 'OK'])
			expect(holdsWordsOnly([{ place: '/token', text: words }])).toBe(true);
	});

	test.each([
		'tr-01HX',
		'abc|def',
		'c2VjcmV0LWVycm9y==',
		'conn:0/a',
		'0f8fad5bd9cb469fa16570867728950e',
		'error-01',
		'aBcDefGhIjkl',
		'x.y~z',
	])('stays one where it is looked for: %s [F1478]', (token) => {
		expect(findConnectionToken({ body: JSON.stringify({ token }) })).toBe(token);
		if (token.length >= 8) expect(findConnectionToken({ body: token })).toBe(token);
	});

	test('whatever comes, it does not throw, and what is found could be sent in a header', () => {
		const body = fc.oneof(
			fc.json(),
			fc.string({ unit: codeUnit }),
			fc.json().map((text) => text.slice(0, -1)),
		);
		const pointer = fc.option(
			fc.string().map((text) => `/${text}`),
			{ nil: undefined },
		);
		fc.assert(
			fc.property(body, pointer, (text, at) => {
				const token = findConnectionToken({ body: text }, at);
				return token === null || isCredential(token);
			}),
			{ numRuns: 1000 },
		);
	});
});

describe('an answer that nobody has described', () => {
	const jwtPart = fc.string({
		unit: fc.constantFrom(...'abcdefghijkABCDEFGHIJK0123456789-_'),
		minLength: 8,
		maxLength: 60,
	});
	const token = fc.oneof(
		fc.tuple(jwtPart, jwtPart, jwtPart).map((parts) => `ey${parts.join('.')}`),
		fc.stringMatching(/^[a-z]{2}-[A-Za-z0-9]{26}7f$/),
		fc.uuid(),
	);
	const name = fc.oneof(
		fc.constantFrom('data', 'result', 'session', 'a/b', 'c~d', 'accessToken', 'value', 'deviceToken', 'ü'),
		fc.string({ minLength: 1, maxLength: 12 }).filter((key) => key !== '__proto__'),
	);
	const filler = fc.oneof(
		fc.constantFrom('ok', 'kiosk', '2030-01-01T00:00:00Z', 'https://id.example/x', ''),
		fc.integer(),
		fc.boolean(),
	);
	const prefix = fc.constantFrom(
		'',
		'Connection ',
		'connection  ',
		'Bearer ',
		'Token ',
		'Connection%20',
		'Authorization: Connection ',
	);
	/** Each step wraps the answer once more. */
	const step = fc.oneof(
		fc.tuple(fc.constant('object' as const), name, filler),
		fc.tuple(fc.constant('array' as const), name, filler),
		fc.tuple(fc.constant('text' as const), name, filler),
	);
	const wrap = (inner: unknown, [kind, key, other]: readonly [string, string, unknown]): unknown => {
		if (kind === 'array') return [other, inner];
		return { other, [key]: kind === 'text' && typeof inner === 'object' ? JSON.stringify(inner) : inner };
	};

	test('shows a place at which the token can be read, 1,000 times', () => {
		fc.assert(
			fc.property(token, prefix, fc.array(step, { maxLength: 40 }), fc.boolean(), (secret, before, steps, inHeader) => {
				const text = `${before}${secret}`;
				const answer = inHeader
					? { body: '{"status":"ok"}', headers: { 'x-device-token': text, date: 'Sun, 22 Nov 2026 00:00:00 GMT' } }
					: { body: JSON.stringify(steps.reduce<unknown>(wrap, text)) };
				const texts = readAnswerTexts(answer);
				const found = tokenIn(texts);
				if (found !== null) return found === secret;
				return texts.some((one) => looksLikeToken(one) && tokenIn(texts, one.place) === secret);
			}),
			{ numRuns: 1000 },
		);
	});

	test.each([
		['a form', { body: 'status=ok&connection_token=tr-0123456789' }, '/connection_token'],
		['a link', { body: '{"link":"https://id.example/x?authorization=Connection%20tr-0123456789"}' }, '/link'],
		['a header', { body: '', headers: { 'x-connection': 'tr-0123456789' } }, 'header:X-Connection'],
		['a short token in a named place', { body: '{"t":"abc"}' }, '/t', 'abc'],
		['JSON in a text', { body: '{"data":"{\\"t\\":\\"tr-0123456789\\"}"}' }, '/data/t'],
	])('is read at a place that is named: %s', (_what, answer, place, expected = 'tr-0123456789') => {
		expect(findConnectionToken(answer, place)).toBe(expected);
	});

	test('an id of digits only looks like a token', () => {
		// Found by the property above.
		expect(looksLikeToken({ place: '/1', text: '00000000-0000-1000-8000-000000000000' })).toBe(true);
	});

	test('headers that every service sends are no candidates', () => {
		const headers = {
			etag: '"0123456789abcdef0123"',
			connection: 'keep-alive',
			date: 'x',
			'x-request-id': 'abc',
			'x-key': 'abc',
		};
		expect(readAnswerTexts({ body: '{}', headers }).map(({ place }) => place)).toEqual(['header:x-key']);
	});

	test('a huge or deep answer is read as far as the bounds go', () => {
		const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`;
		expect(readAnswerTexts({ body: deep })).toEqual([]);
		const wide = JSON.stringify(Array.from({ length: 20_000 }, () => 'x'));
		expect(readAnswerTexts({ body: wide })).toHaveLength(1000);
	});
});
