import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	decideForward,
	headersToCaller,
	headersToService,
	localLocation,
	MAX_FORWARD_LENGTH,
} from '../../src/local-api/forward-rules.ts';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import { forwardedHeaderSchema } from '../../src/protocol/forwarded-headers.ts';

const BASE = 'https://id.example.com/tenant';
const decide = (target: string, allow: string[] = [], base = BASE) => decideForward(target, base, allow);
const endpoints = Object.values(ENDPOINTS).flat();

describe('paths', () => {
	test.each([
		[
			'/api/v1/sessions/65a1b2c3?expand=steps&limit=5',
			'https://id.example.com/tenant/api/v1/sessions/65a1b2c3?expand=steps&limit=5',
		],
		['/api/v1/sessions/', 'https://id.example.com/tenant/api/v1/sessions/'],
		['/api/person/J%C3%BCrgen', 'https://id.example.com/tenant/api/person/J%C3%BCrgen'],
		['/', 'https://id.example.com/tenant/'],
		['/a?b=c?d', 'https://id.example.com/tenant/a?b=c?d'],
		['/a|b"<c>^`{d}', 'https://id.example.com/tenant/a%7Cb%22%3Cc%3E%5E%60%7Bd%7D'],
		['/a|b?c={d}', 'https://id.example.com/tenant/a%7Cb?c={d}'],
	])('%s is passed on', (target, url) => {
		expect(decide(target)).toMatchObject({ ok: true, url: { href: url } });
	});

	test.each([
		'',
		'api/v1',
		'/../admin',
		'/a/../../admin',
		'/a/./b',
		'/a//b',
		'//evil.example/a',
		'/a/..',
		'/.../a',
		'/a/%2e%2e/b',
		'/a/.%2E/b',
		'/a%2fb',
		'/a%5cb',
		'/a\\b',
		'/a%252e%252e/b',
		'/a/%c0%ae%c0%ae/b',
		'/a/%EF%BC%8E%EF%BC%8E/b',
		'/a%EF%BC%8Fb',
		'/a/%E2%80%A4%E2%80%A4/b',
		'/a;b=c',
		'/a%3bb',
		'/a%00',
		'/a%0d%0aHost:x',
		'/a%',
		'/a%zz',
		'/a b',
		'/a#b',
		'/ü',
		'/a?b#c',
		'/a?b c',
		'http://evil.example/a',
	])('%s is refused', (target) => {
		expect(decide(target)).toMatchObject({ ok: false, failure: { code: 'access-denied' } });
	});

	test('a path that is too long is refused', () => {
		expect(decide(`/${'a'.repeat(MAX_FORWARD_LENGTH - 1)}`).ok).toBe(true);
		expect(decide(`/${'a'.repeat(MAX_FORWARD_LENGTH)}`).ok).toBe(false);
	});

	test.each(endpoints)('%s is refused in every spelling', (endpoint) => {
		const encoded = [...endpoint].map((c) => (c === '/' ? c : `%${c.charCodeAt(0).toString(16)}`)).join('');
		for (const spelling of [
			endpoint,
			`${endpoint}/`,
			`${endpoint}/x`,
			`${endpoint}?workflowId=w`,
			`${endpoint}.json`,
			endpoint.toUpperCase(),
			endpoint.replace('api', 'aP%69'),
			endpoint.replace('i', '%C4%B1'),
			endpoint.replace('e', '%EF%BD%85'),
			`/gateway${endpoint}`,
			encoded,
		])
			expect([spelling, decide(spelling).ok]).toEqual([spelling, false]);
	});

	test('an endpoint that only the base URL makes one is refused as well', () => {
		expect(decide('/device/connection', [], 'https://id.example.com/api').ok).toBe(false);
		expect(decide('/device/connection', [], 'https://id.example.com').ok).toBe(true);
	});

	test('with a list, only what begins with one of its paths, at a whole segment', () => {
		const allow = ['/api/v1/sessions', '/api/person/'];
		expect(
			['/api/v1/sessions', '/api/v1/sessions/1?x', '/api/person', '/api/%70erson/1'].map(
				(path) => decide(path, allow).ok,
			),
		).toEqual([true, true, true, true]);
		expect(['/api/v1/sessionsX', '/api/v1', '/', '/API/person'].map((path) => decide(path, allow).ok)).toEqual([
			false,
			false,
			false,
			false,
		]);
		expect(decide('/api/apikey', ['/api']).ok).toBe(false);
	});

	test.each([
		'authorization=Connection%20x',
		'a=1&Authorization=x',
		'a=1;authorization=x',
		'%61uthorization=x',
		'%2561uthorization=x',
		'%252561uthorization=x',
		'authorization[]=x',
		'authorization%00=x',
		'authorization',
	])('the query %s is refused', (query) => {
		expect(decide(`/a?${query}`)).toMatchObject({ ok: false });
	});

	test('no path escapes the base URL or reaches an authorization endpoint', () => {
		const piece = fc.oneof(
			{ weight: 4, arbitrary: fc.constantFrom(...endpoints.flatMap((path) => path.split('/')).filter(Boolean)) },
			{
				weight: 3,
				arbitrary: fc.constantFrom(
					'.',
					'..',
					'%2e',
					'%2E%2e',
					'%2f',
					'%5c',
					'\\',
					';x',
					'%252e',
					'%25',
					'',
					' ',
					'?',
					'#',
					'@',
				),
			},
			fc.string({ maxLength: 6 }),
			fc.string({ unit: 'binary', maxLength: 3 }).map((text) => encodeURIComponent(text.toWellFormed())),
		);
		const spelled = fc.tuple(piece, fc.nat()).map(([text, seed]) =>
			[...text]
				.map((c, index) => {
					const way = (seed >> (index % 8)) & 3;
					if (way === 1) return c.toUpperCase();
					return way === 2 && c.charCodeAt(0) < 128 ? `%${c.charCodeAt(0).toString(16).padStart(2, '0')}` : c;
				})
				.join(''),
		);
		const path = fc.array(fc.oneof(piece, spelled), { maxLength: 6 }).map((pieces) => `/${pieces.join('/')}`);
		fc.assert(
			fc.property(path, (target) => {
				const decision = decide(target);
				if (!decision.ok) return;
				const { origin, pathname, href } = decision.url;
				expect(origin).toBe('https://id.example.com');
				expect(pathname.startsWith('/tenant/')).toBe(true);
				// As it was looked at, so it is sent.
				const looked = target.split('?')[0]?.replaceAll(/["<>^`{|}]/g, encodeURIComponent);
				expect(href.split('?')[0]).toBe(`${BASE}${looked}`);
				let seen = pathname;
				for (let round = 0; round < 3; round += 1) {
					try {
						seen = decodeURIComponent(seen);
					} catch {
						break;
					}
				}
				const plain = seen
					.normalize('NFKC')
					.toLowerCase()
					.replaceAll('\\', '/')
					.replaceAll(/;[^/]*/g, '');
				const resolved = new URL(`https://x${plain.replaceAll(/\/+/g, '/')}`).pathname;
				expect(resolved.startsWith('/tenant/')).toBe(true);
				for (const endpoint of endpoints) expect(resolved.includes(endpoint)).toBe(false);
			}),
			{ numRuns: 5000 },
		);
	});
});

describe('headers', () => {
	test('nothing of one hop, of the local caller or of other paths goes to the service', () => {
		const sent = headersToService({
			accept: 'application/json',
			'content-type': 'image/jpeg',
			'content-length': '5',
			'x-request-id': '1',
			host: 'localhost',
			connection: 'keep-alive, X-Private',
			'x-private': '1',
			'keep-alive': '1',
			'transfer-encoding': 'chunked',
			upgrade: 'h2c',
			te: 'trailers',
			'proxy-authorization': 'Basic x',
			authorization: 'ApiKey x',
			cookie: 'a=b',
			origin: 'http://localhost',
			'x-original-url': '/api/apikey',
			'x-forwarded-host': 'evil',
			'x-http-method-override': 'POST',
			'sec-fetch-site': 'none',
			expect: '100-continue',
		});
		expect(Object.keys(sent).sort()).toEqual(['accept', 'content-length', 'content-type', 'x-request-id']);
	});

	test('others go only if the settings name them, and some never', () => {
		const asked = [
			'x-tenant',
			'x-host',
			'x-client-ip',
			'x_http_method_override',
			'x-http-method',
			'range',
			'x-original-url',
			'x-auth-token',
		];
		const headers = Object.fromEntries(asked.map((name) => [name, '1']));
		expect(headersToService(headers)).toEqual({});
		expect(headersToService(headers, ['x-tenant', 'range'])).toEqual({ 'x-tenant': '1', range: '1' });
		const taken = asked.filter((name) => forwardedHeaderSchema.safeParse(name).success);
		expect(taken).toEqual(['x-tenant', 'range', 'x-auth-token']);
		expect(forwardedHeaderSchema.parse('X-Tenant')).toBe('x-tenant');
		for (const name of [
			'Authorization',
			'proxy-authorization',
			'Cookie',
			'host',
			'connection',
			'x-forwarded-for',
			'a b',
			'',
		])
			expect(forwardedHeaderSchema.safeParse(name).success, name).toBe(false);
	});

	test('nothing of one hop, no cookie and no permission comes back', () => {
		const back = headersToCaller({
			'content-type': 'application/json',
			etag: '"1"',
			connection: 'close',
			'set-cookie': ['a=b'],
			'www-authenticate': 'Bearer',
			location: 'https://evil.example',
			'access-control-allow-origin': '*',
			'transfer-encoding': 'chunked',
			'retry-after': '5',
		});
		expect(Object.keys(back).sort()).toEqual(['content-type', 'etag', 'retry-after']);
	});

	test('Location becomes a local path, or goes', () => {
		const asked = new URL(`${BASE}/api/v1/sessions`);
		const locally = (location: string) => localLocation(location, asked, BASE);
		expect(locally('/tenant/api/v1/sessions/7?x=1')).toBe('/v1/service/api/v1/sessions/7?x=1');
		expect(locally('sessions/7')).toBe('/v1/service/api/v1/sessions/7');
		for (const location of [
			'https://evil.example/tenant/a',
			'/other/a',
			'/tenant/api/apikey',
			'/tenant/mobile?authorization=Token%20x',
			'http://[',
		])
			expect(locally(location)).toBeNull();
	});
});
