import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	channelUrl,
	DEFAULT_CHANNEL_PATH,
	ENDPOINTS,
	endpointUrl,
	isLoopback,
	normalizeBaseUrl,
} from '../../src/protocol/endpoints.ts';

describe('an endpoint under a base URL', () => {
	test('has the published paths, and the one from the field', () => {
		const base = 'https://id.example.com';
		expect(endpointUrl(base, ENDPOINTS.pairingCode).href).toBe(`${base}/api/deeplink/qrcode`);
		expect(endpointUrl(base, ENDPOINTS.deviceConnection).href).toBe(`${base}/api/device/connection`);
		expect(ENDPOINTS.apiKeys.map((path) => endpointUrl(base, path).href)).toEqual([
			`${base}/api/security/apikeys`,
			`${base}/api/apikey`,
			`${base}/api/security/apikey`,
		]);
		expect(endpointUrl(base, ENDPOINTS.sessionStart).href).toBe(`${base}/api/v1/deeplink`);
	});

	test.each([
		['https://h/tenant', '/api/x', 'https://h/tenant/api/x'],
		['https://h/tenant/', 'api/x', 'https://h/tenant/api/x'],
		['https://h/a/b//', '//api/x', 'https://h/a/b/api/x'],
		['https://h:8443', '/api/x', 'https://h:8443/api/x'],
		['https://h?old=1#part', '/api/x', 'https://h/api/x'],
	])('%s and %s are %s', (base, path, url) => {
		expect(endpointUrl(base, path).href).toBe(url);
	});

	test('takes a query and encodes it', () => {
		const query = new URLSearchParams({ workflowId: 'a b&c' });
		expect(endpointUrl('https://h', '/x', query).href).toBe('https://h/x?workflowId=a+b%26c');
	});

	test('never leaves the host, whatever the path', () => {
		fc.assert(
			fc.property(fc.string(), (path) => {
				expect(endpointUrl('https://id.example.com/tenant', path).host).toBe('id.example.com');
			}),
		);
	});
});

describe('the URL of the channel', () => {
	test.each([
		['https://id.example.com/t', 'wss://id.example.com/t/ws/device'],
		['http://localhost:8080', 'ws://localhost:8080/ws/device'],
		['https://id.example.com:8443', 'wss://id.example.com:8443/ws/device'],
	])('under %s is %s', (base, url) => {
		expect(channelUrl(base, DEFAULT_CHANNEL_PATH).href).toBe(url);
	});
});

const anyBaseUrl = fc
	.record({
		scheme: fc.constantFrom('http', 'HTTPS'),
		host: fc.oneof(fc.domain(), fc.ipV4(), fc.constantFrom('bücher.example', '[2001:DB8::0:1]', 'LOCALHOST')),
		port: fc.constantFrom('', ':', ':80', ':443', ':8443'),
		path: fc.array(fc.oneof(fc.string().map(encodeURIComponent), fc.constantFrom('', '..', '%2e%2E', 'ü'))),
	})
	.map(({ scheme, host, port, path }) => `${scheme}://${[host + port, ...path].join('/')}`);

describe('the one form of a base URL', () => {
	test.each([
		['https://ID.Example.COM/', 'https://id.example.com'],
		[' https://id.example.com:443/tenant// ', 'https://id.example.com/tenant'],
		['http://localhost:80', 'http://localhost'],
		['http://localhost:443', 'http://localhost:443'],
		['https://id.example.com:8443', 'https://id.example.com:8443'],
		['https://bücher.example', 'https://xn--bcher-kva.example'],
		['https://аррӏе.com', 'https://xn--80ak6aa92e.com'],
		['https://id.example.com?', 'https://id.example.com'],
		['https://h/a/../b', 'https://h/b'],
		['https:\\\\id.example.com\\x', 'https://id.example.com/x'],
		['http://0x7f.1', 'http://127.0.0.1'],
		['https://[2001:DB8::1]/', 'https://[2001:db8::1]'],
	])('of %j is %s', (text, normal) => {
		expect(normalizeBaseUrl(text)).toBe(normal);
		expect(normalizeBaseUrl(normal)).toBe(normal);
	});

	test.each([
		'',
		'id.example.com',
		'/tenant',
		'ftp://id.example.com',
		'ws://id.example.com',
		'file:///etc/passwd',
		'javascript:alert(1)',
		'https://user@id.example.com',
		'https://user:password@id.example.com',
		'https://:password@id.example.com',
		'https://id.example.com?x=1',
		'https://id.example.com#x',
		'https://',
		'https://a b',
		'https://id.example.com:99999',
	])('does not exist for %j', (text) => {
		expect(normalizeBaseUrl(text)).toBeNull();
	});

	test('is its own form, for every URL', () => {
		fc.assert(
			fc.property(anyBaseUrl, (url) => {
				const normal = normalizeBaseUrl(url);
				return normal !== null && normalizeBaseUrl(normal) === normal;
			}),
		);
	});
});

describe('a host that can only be this machine', () => {
	test.each([
		'http://localhost',
		'http://LOCALHOST:8080/x',
		'http://127.0.0.1',
		'http://127.1.2.3:1',
		'http://[::1]:8080',
		'http://[0:0:0:0:0:0:0:1]',
		'http://0x7f.1',
		'http://2130706433',
		'http://0177.0.0.1',
	])('%s', (url) => {
		expect(isLoopback(url)).toBe(true);
	});

	test.each([
		'http://127.0.0.1.evil.example',
		'http://localhost.evil.example',
		'http://evil.example/127.0.0.1',
		'http://evil.example?localhost',
		'http://localhost@evil.example',
		'http://127.0.0.1@evil.example',
		'http://xlocalhost',
		'http://mylocalhost.local',
		'http://128.0.0.1',
		'http://10.127.0.1',
		'http://0.0.0.0',
		'http://[::]',
		'http://[::2]',
		'http://[2001:db8::1]',
		'http://ⓛocalhost.example',
		'localhost',
		'not a url',
		'',
	])('%j is not', (url) => {
		expect(isLoopback(url)).toBe(false);
	});
});
