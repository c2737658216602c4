import { createHash, randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { eachView } from '../../src/base/encoded-text.ts';
import {
	createSecretRegistry,
	MAX_SECRETS,
	MIN_SECRET_LENGTH,
	redact,
	registryOf as registryOfAll,
	SECRET_MARK,
} from '../../src/base/redact.ts';
import { plantedForms } from './planted-forms.ts';

const none = createSecretRegistry();

const registryOf = (...secrets: string[]) => registryOfAll(secrets);

describe('a registered secret is found by its value', () => {
	const secret = 'pass/word+with "quotes" & 100% = 🙂';
	const base64 = (text: string) => Buffer.from(text).toString('base64');
	test.each([
		['as it is', secret],
		['percent-encoded', encodeURIComponent(secret)],
		['percent-encoded in lower case', encodeURIComponent(secret).replace(/%../g, (code) => code.toLowerCase())],
		['percent-encoded twice', encodeURIComponent(encodeURIComponent(secret))],
		['form-encoded', new URLSearchParams({ x: secret }).toString().slice(2)],
		['escaped in JSON', JSON.stringify(secret).slice(1, -1)],
		['escaped in JSON in JSON', JSON.stringify(JSON.stringify(secret)).slice(3, -3)],
	])('%s', (_form, written) => {
		expect(redact(`before ${written} after`, registryOf(secret))).toBe(`before ${SECRET_MARK} after`);
	});

	test.each(['', 'u:', 'us:', 'user:', 'someone:'])('inside base64 after %j', (before) => {
		for (const after of ['', ':', ':x', ':xyz']) {
			const written = base64(`${before}${secret}${after}`);
			const clean = redact(`see ${written} here`, registryOf(secret));
			expect(clean).toContain(SECRET_MARK);
			// What is left of it: only the group of three bytes that the secret shares with its neighbours.
			const rest = clean.replace('see ', '').replace(' here', '').replace(SECRET_MARK, '');
			expect(rest.length).toBeLessThanOrEqual(base64(before).length + base64(after).length + 4);
			const urlForm = Buffer.from(`${before}${secret}${after}`).toString('base64url');
			expect(redact(urlForm, registryOf(secret))).toContain(SECRET_MARK);
		}
	});

	test('the longest secret goes first, whatever the order in which they were added', () => {
		expect(redact('abcdef-ghijkl', registryOf('abcdef', 'abcdef-ghijkl'))).toBe(SECRET_MARK);
		expect(redact('abcdef-ghijkl', registryOf('abcdef-ghijkl', 'abcdef'))).toBe(SECRET_MARK);
	});

	test('a text too short to be a secret is not taken for one', () => {
		const short = 'x'.repeat(MIN_SECRET_LENGTH - 1);
		expect(redact(`${short} plain`, registryOf(short))).toBe(`${short} plain`);
	});

	test('the list is bounded: the one added longest ago goes, and adding again keeps one young', () => {
		const registry = createSecretRegistry();
		const secretOf = (number: number) => createHash('sha256').update(`${number}`).digest('base64url').slice(0, 24);
		for (let number = 0; number < MAX_SECRETS; number += 1) registry.add(secretOf(number));
		registry.add(secretOf(0));
		registry.add(secretOf(MAX_SECRETS));
		expect(redact(secretOf(0), registry)).toBe(SECRET_MARK);
		expect(redact(secretOf(1), registry)).toBe(secretOf(1));
		expect(redact(secretOf(MAX_SECRETS), registry)).toBe(SECRET_MARK);
	});

	test('a configured secret outlives any number of Connections, and so does the one that it replaced', () => {
		const registry = createSecretRegistry();
		registry.add('pF7-configured-9Qz', true);
		registry.add('xK2-replacement-3Wv', true);
		for (let number = 0; number < 5 * MAX_SECRETS; number += 1) registry.add(`issued-${randomUUID()}`);
		for (const secret of ['pF7-configured-9Qz', 'xK2-replacement-3Wv'])
			expect(redact(`said ${secret}.`, registry)).toBe(`said ${SECRET_MARK}.`);
	});

	test('one that is configured and issued stays until both are gone', () => {
		const registry = createSecretRegistry(1);
		registry.add('pF7-configured-9Qz', true);
		registry.add('pF7-configured-9Qz');
		registry.add('issued-afterwards-5Tn');
		expect(redact('pF7-configured-9Qz', registry)).toBe(SECRET_MARK);
		registry.add('xK2-replacement-3Wv', true);
		expect(redact('pF7-configured-9Qz', registry)).toBe('pF7-configured-9Qz');
		for (const left of ['issued-afterwards-5Tn', 'xK2-replacement-3Wv'])
			expect(redact(left, registry)).toBe(SECRET_MARK);
	});

	test('after any number of others the list finds what a new one finds', () => {
		const secret = fc.string({ unit: fc.constantFrom('a', 'b', 'c', '-', '+', '%'), minLength: 6, maxLength: 16 });
		fc.assert(
			fc.property(fc.array(secret, { minLength: 4, maxLength: 40 }), fc.array(secret), (list, texts) => {
				const registry = createSecretRegistry(3);
				for (const each of list) registry.add(each);
				const [...left] = new Set(list.toReversed());
				const fresh = registryOf(...left.slice(0, 3));
				for (const text of [...list, ...texts]) expect(registry.mask(text)).toBe(fresh.mask(text));
			}),
			{ numRuns: 300 },
		);
	});

	test('a planted secret never survives, in any form and among any other text', () => {
		const visible = fc.string({ unit: fc.integer({ min: 0x21, max: 0x7e }).map((c) => String.fromCharCode(c)) });
		const secrets = fc
			.array(
				visible.filter((text) => text.length >= MIN_SECRET_LENGTH && !SECRET_MARK.includes(text)),
				{ minLength: 1, maxLength: 4 },
			)
			.map((list) => [...new Set(list)]);
		const written = fc.constantFrom<(secret: string) => string>(
			(secret) => secret,
			encodeURIComponent,
			(secret) => encodeURIComponent(encodeURIComponent(secret)),
			(secret) => JSON.stringify({ message: `refused ${secret}` }),
			(secret) => `https://user:${encodeURIComponent(secret)}@h.example/p?x=${encodeURIComponent(secret)}#${secret}`,
			(secret) => Buffer.from(`someone:${secret}`).toString('base64'),
			(secret) => `Authorization: Token ${secret}`,
		);
		fc.assert(
			fc.property(secrets, fc.array(fc.tuple(fc.string(), written)), fc.string(), (list, parts, end) => {
				const text = parts.map(([before, write], at) => before + write(list[at % list.length] ?? '')).join('') + end;
				const clean = redact(text, registryOf(...list));
				for (const secret of list) {
					expect(clean).not.toContain(secret);
					expect(clean).not.toContain(encodeURIComponent(secret));
					expect(clean).not.toContain(JSON.stringify(secret).slice(1, -1));
				}
			}),
			{
				numRuns: 500,
				examples: [
					[['!!"%00'], [['', (secret) => JSON.stringify({ message: `refused ${secret}` })]], ''],
					[['0+!!!!', '!!!!!!'], [['%0', encodeURIComponent]], ''],
				],
			},
		);
	});
});

describe('an unknown secret is found by how it is written', () => {
	const token = 'tR4nsient.Credential-0';
	test.each([
		[`Authorization: Connection ${token}`, 'Authorization: [secret]'],
		['Authorization: Digest username="x"', 'Authorization: [secret]"x"'],
		[`proxy-authorization:Basic ${token}\nHost: h`, 'proxy-authorization:[secret]\nHost: h'],
		[`Set-Cookie: session=${token}; Path=/`, 'Set-Cookie: [secret]'],
		[`sent Bearer ${token}, got 401`, 'sent Bearer [secret], got 401'],
		[`BEARER  ${token}`, 'BEARER  [secret]'],
		[`(apikey ${token})`, '(apikey [secret])'],
		['Token abcdefghijklmnopqrstuvwxyz', 'Token [secret]'],
		['bearer token A1b2C3d4', 'bearer token [secret]'],
		['Token%20abc', 'Token%20[secret]'],
		['token%2520abc%26next', 'token%2520[secret]'],
		['Connection+abc', 'Connection+[secret]'],
		[`{"token":"${token}","id":7}`, '{"token":"[secret]","id":7}'],
		[`{\\"connectionToken\\": \\"${token}\\", \\"id\\": 7}`, '{\\"connectionToken\\": \\"[secret]\\", \\"id\\": 7}'],
		['{"client_secret":"two words"}', '{"client_secret":"[secret]"}'],
		['/mobile?authorization=Token abc&sessionId=1', '/mobile?[secret]'],
		['authorization=Token abc&sessionId=1', 'authorization=[secret]&sessionId=1'],
		['go%3Fauthorization%3DToken%2520abc', 'go%3Fauthorization%3D[secret]'],
		['tried api-key=abc and password=def', 'tried api-key=[secret] and password=[secret]'],
		[
			'https://h.example/mobile?authorization=Token%20abc&sessionId=1 opened',
			'https://h.example/mobile?[secret] opened',
		],
		['https://h.example/mobile?authorization=Token abc&sessionId=1', 'https://h.example/mobile?[secret]'],
		['wss://h.example/ws/device?x=1', 'wss://h.example/ws/device?[secret]'],
		['http://user:word@proxy.example:3128/', 'http://[secret]@proxy.example:3128/'],
		['https://h.example/#access', 'https://h.example/#[secret]'],
		['GET /ws/device?x=1 HTTP/1.1', 'GET /ws/device?[secret] HTTP/1.1'],
		['got eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.c2ln back', 'got [secret] back'],
		['scanned tr-AbCdEfGhIjKlMnOpQrStUvWxYz12', 'scanned [secret]'],
	])('%s', (text, expected) => {
		expect(redact(text, none)).toBe(expected);
	});

	test('a token after a scheme never survives, between any words and in any capitals', () => {
		const scheme = fc
			.constantFrom('Connection', 'Bearer', 'Token', 'ApiKey', 'Basic')
			.chain((word) => fc.constantFrom(word, word.toLowerCase(), word.toUpperCase()));
		const credential = fc
			.tuple(fc.stringMatching(/^[A-Za-z0-9_-]{8,64}$/), fc.nat(9))
			.map(([text, digit]) => `${text}${digit}`);
		const gap = fc.constantFrom(' ', '  ', '\t', '%20', '+', '%2520', ' Token ');
		fc.assert(
			fc.property(fc.string(), scheme, gap, credential, (before, word, space, secret) => {
				expect(redact(`${before} ${word}${space}${secret}`, none)).not.toContain(secret);
			}),
			{ numRuns: 500 },
		);
	});
});

describe('ordinary text stays', () => {
	test.each([
		'Connection lost after 3 s: the service closed the channel (1006).',
		'Connection refused by id.example.com:443',
		'The Connection token is refused; pairing token expired.',
		'Token 2 of 5',
		'TOKEN EXPIRED',
		'Basic authorization is not allowed here',
		'Online with workflow onboarding-2 at https://id.example.com/prefix.',
		'Does it work? Look at /var/lib/idv-agent/state.json',
		'2026-11-21 INFO  waiting  code=dns-failed host=id.example.com delayMs=1500',
	])('%s', (text) => {
		expect(redact(text, registryOf('some-live-secret'))).toBe(text);
	});

	test('scrubbing twice changes nothing more, and JSON stays JSON', () => {
		const piece = fc.oneof(
			fc.string(),
			fc.constantFrom('Authorization: ', 'Token ', '"token":"', 'https://', '?key=', '\\', '"', '%3F', 'eyJ', ' '),
		);
		fc.assert(
			fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
				const once = redact(JSON.stringify({ msg: pieces.join('') }), none);
				expect(redact(once, none)).toBe(once);
				expect(() => JSON.parse(once)).not.toThrow();
			}),
			{ numRuns: 500 },
		);
	});
});

describe('a key in PEM', () => {
	const body = 'MIGHAgEAMBMGByqGSM49AgEGCCqGSM49';
	test.each([
		[
			'whole',
			`see -----BEGIN EC PRIVATE KEY-----\n${body}\n-----END EC PRIVATE KEY----- here`,
			`see ${SECRET_MARK} here`,
		],
		['cut off', `see -----BEGIN PRIVATE KEY-----\n${body}`, `see ${SECRET_MARK}`],
		[
			'in JSON',
			JSON.stringify({ key: 1, x: `-----BEGIN PRIVATE KEY-----\n${body}` }),
			`{"key":1,"x":"${SECRET_MARK}"}`,
		],
	])('is taken out %s', (_how, text, clean) => {
		expect(redact(text, none)).toBe(clean);
	});

	test('a certificate is no secret', () => {
		const text = `-----BEGIN CERTIFICATE-----\n${body}\n-----END CERTIFICATE-----`;
		expect(redact(text, none)).toBe(text);
	});
});

test.each(['password', 'Connection', 'Authorization', 'api_key'])(
	'who has %s as a password does not hide by it what stands behind that word',
	(word) => {
		expect(redact('password=hunter2hunter2 Connection abc123def456', registryOf(word))).toBe(
			`password=${SECRET_MARK} Connection ${SECRET_MARK}`,
		);
	},
);

describe('a secret in every form that the generator writes', () => {
	const secrets = {
		'a Short Token': 'tr-9fQx2LmZ_7vT-bK4wR8sYc1PdH0u',
		'an API key': 'aK/7+d9=Qz3&x"Lm\\Tf5<Wp2v',
		'a JWT': `eyJhbGciOiJIUzI1NiJ9.${Buffer.from('{"sub":"kiosk-7","exp":1790000000}').toString('base64url')}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk`,
		'a password': 'Zt4/8k+Qw9',
	};
	test.each(Object.entries(secrets))('%s is found, with nothing that helps left over', (_what, secret) => {
		const registry = registryOf(secret);
		const forms = plantedForms(secret);
		expect(forms.size).toBeGreaterThanOrEqual(200);
		const left = [...forms].filter(([name, form]) => {
			// Half of a short password is fewer characters than any secret has.
			if (secret.length < 2 * MIN_SECRET_LENGTH && !/^[^,]* in |^[^,]*$/.test(name)) return false;
			const clean = registry.mask(`The service said: ${form} (400).`);
			// What surrounds a secret inside base64 may stay, and a character that it shares with it.
			const rest = clean.replace('The service said: ', '').replace(' (400).', '').replaceAll(SECRET_MARK, '');
			return !clean.includes(SECRET_MARK) || rest.replaceAll(/\s/g, '').length > 24 + form.length / 8;
		});
		expect(left.map(([name]) => name)).toEqual([]);
	});

	test('the shortest secret is found where base64 holds it escaped: nothing that may be one is passed over', () => {
		const registry = registryOf('p4s/w0', 'a long secret beside it, of which a piece is enough');
		for (const text of ['p4s%2Fw0', 'p4s\\u002fw0', 'p4s&sol;w0']) {
			const hidden = Buffer.from(text).toString('base64').replace(/=+$/, '');
			expect(registry.mask(`in ${hidden}, hidden`)).toBe(`in ${SECRET_MARK}, hidden`);
			expect(registry.mask(`in ${Buffer.from(text).toString('hex')}, hidden`)).toBe(`in ${SECRET_MARK}, hidden`);
		}
	});

	test('hostile text costs no more than its length', () => {
		const registry = registryOf(secrets['a JWT'], 'QUFBQUFBQUFB'.repeat(40));
		const nested = (depth: number): string =>
			depth === 0 ? 'A'.repeat(500) : Buffer.from(nested(depth - 1)).toString('base64');
		for (const text of ['QUFB'.repeat(2000), nested(6), '%25'.repeat(3000), '\\\\'.repeat(4000), '&#'.repeat(4000)]) {
			let looked = 0;
			eachView(text, 0, ({ bytes }) => {
				looked += bytes.length;
			});
			expect(looked).toBeLessThan(200 * text.length);
			registry.mask(text);
		}
	});

	test('a line of JSON stays one, wherever a secret begins', () => {
		const registry = registryOf('nsecretly7', 'u00e4bcd9', 'x/y7z9\\q');
		for (const text of ['\nsecretly7', 'äbcd9', 'x/y7z9\\q', '\\nsecretly7', '"x/y7z9\\q"']) {
			const clean = registry.mask(JSON.stringify({ text }).replaceAll('ä', '\\u00e4'));
			expect(clean).toContain(SECRET_MARK);
			expect(() => JSON.parse(clean)).not.toThrow();
		}
	});

	test('half of a password that is a word like any other stays in a sentence', () => {
		const registry = registryOf('online-kiosk', 'secret-connection');
		expect(registry.mask('The kiosk is online; its connection is a secret.')).toBe(
			'The kiosk is online; its connection is a secret.',
		);
	});
});
