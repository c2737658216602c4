import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CATALOGUE, type ErrorCode } from '../../src/base/errors.ts';
import { classifyClose } from '../../src/connection/classify-close.ts';
import {
	classifyHttpAnswer,
	type HttpAnswer,
	MAX_ASKED_WAIT_MS,
	readRetryAfter,
} from '../../src/connection/classify-failure.ts';
import { classifyNetworkError, lateHandshake } from '../../src/connection/classify-network-error.ts';
import { clockSkewMs } from '../../src/connection/clock-skew.ts';

const coded = (code: string, more: object = {}) => Object.assign(new Error(`about ${code}`), { code }, more);
const host = 'id.example.com';

describe('an error of the network', () => {
	const rows: [ErrorCode, unknown][] = [
		['dns-failed', coded('ENOTFOUND')],
		['dns-failed', coded('EAI_AGAIN')],
		['service-unreachable', coded('ECONNREFUSED')],
		['service-unreachable', coded('EHOSTUNREACH')],
		['service-unreachable', coded('ENETUNREACH')],
		['service-unreachable', new AggregateError([coded('ECONNREFUSED'), coded('ENETUNREACH')])],
		['tls-failed', coded('ERR_TLS_HANDSHAKE_TIMEOUT')],
		['connect-timeout', coded('ETIMEDOUT')],
		['connect-timeout', new AggregateError([coded('ENETUNREACH'), coded('ETIMEDOUT')])],
		['request-timeout', new DOMException('slow', 'TimeoutError')],
		['connection-lost', coded('ECONNRESET')],
		['connection-lost', coded('EPIPE')],
		['connection-lost', coded('ECONNABORTED')],
		['connection-lost', coded('ECONNABORTED', { cause: coded('ECONNRESET') })],
		['connection-lost', new DOMException('stop', 'AbortError')],
		['connection-lost', new Error('of a kind nobody has seen')],
		['connection-lost', 'not even an error'],
		['clock-wrong', coded('CERT_NOT_YET_VALID')],
		['certificate-expired', coded('CERT_HAS_EXPIRED')],
		['certificate-untrusted', coded('SELF_SIGNED_CERT_IN_CHAIN')],
		['certificate-untrusted', coded('DEPTH_ZERO_SELF_SIGNED_CERT')],
		['certificate-untrusted', coded('UNABLE_TO_VERIFY_LEAF_SIGNATURE')],
		['certificate-untrusted', coded('UNABLE_TO_GET_ISSUER_CERT_LOCALLY')],
		['certificate-wrong-host', coded('ERR_TLS_CERT_ALTNAME_INVALID')],
		['tls-failed', coded('EPROTO')],
		['tls-failed', coded('ERR_SSL_WRONG_VERSION_NUMBER')],
		['bad-response', coded('HPE_INVALID_CONSTANT')],
		['proxy-failed', coded('ERR_PROXY_TUNNEL')],
		['proxy-failed', coded('ERR_PROXY_TUNNEL', { statusCode: 503 })],
		['proxy-refused', coded('ERR_PROXY_TUNNEL', { statusCode: 407 })],
		['proxy-refused', coded('ERR_PROXY_TUNNEL', { statusCode: 401 })],
		['internal', new TypeError('x is not a function')],
		['internal', coded('ERR_INVALID_CHAR')],
	];
	test.each(rows)('is %s for %o', (code, error) => {
		const found = classifyNetworkError(error, { host });
		expect(found.code).toBe(code);
		// Of our own mistake the host is not to blame.
		if (code === 'internal') return;
		expect(found.params).toMatchObject({ host });
		expect(found.message).toContain(host);
		expect(found.remedy).toMatch(/\S/);
	});

	test('a certificate that is not valid yet is told with both days and both possible causes [F1145]', () => {
		const outOfTime = { on: '2031-05-01', clock: '2026-11-27' };
		const certificate = { shown: { subject: 'a', issuer: 'b' }, trusted: null, outOfTime };
		const found = classifyNetworkError(coded('CERT_NOT_YET_VALID', { certificate }), { host });
		expect(found.message).toContain("by this device's clock: it begins on 2031-05-01, and the clock shows 2026-11-27.");
		expect(found.remedy).toMatch(
			/^If this device's clock shows the wrong day.*if the clock is right, the service's operator/,
		);
		const unset = { ...certificate, outOfTime: { ...outOfTime, clock: '1970-01-02' } };
		const never = classifyNetworkError(coded('CERT_NOT_YET_VALID', { certificate: unset }), { host });
		expect(never.remedy).toContain("Set this device's clock");
	});

	const reasons: [string, object][] = [
		['ENOTFOUND', { host, reason: 'ENOTFOUND' }],
		['ECONNREFUSED', { host, reason: 'ECONNREFUSED' }],
		['EPROTO', { host, reason: 'EPROTO' }],
		['ECONNRESET', { host, reason: 'ECONNRESET' }],
		['CERT_HAS_EXPIRED', { host, reason: 'CERT_HAS_EXPIRED' }],
		['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', { host, reason: 'client-certificate' }],
		['ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL', { host, reason: 'http2' }],
		['ETIMEDOUT', { host }],
		['HPE_INVALID_CONSTANT', { host }],
	];
	test.each(reasons)('with %s says to a program what the words say to a person', (code, params) => {
		expect(classifyNetworkError(coded(code), { host }).params).toEqual(params);
	});

	test('what speaks no HTTP is looked for where host and port are set', () => {
		expect(classifyNetworkError(coded('HPE_INVALID_CONSTANT'), { host }).remedy).toContain(
			'Check host and port in baseUrl',
		);
	});

	test.each(['ENETUNREACH', 'ETIMEDOUT', 'EHOSTUNREACH'])(
		'of a host that refuses is no cable, whatever another address of it says (%s)',
		(other) => {
			const error = new AggregateError([coded(other), coded('ECONNREFUSED')]);
			expect(classifyNetworkError(error, { host: 'id.example' })).toMatchObject({
				code: 'service-unreachable',
				params: { reason: 'ECONNREFUSED' },
				remedy: expect.stringMatching(/^Check that the service runs/),
			});
		},
	);

	test.each(['ENOTFOUND', 'ECONNREFUSED', 'ETIMEDOUT'])('on the way to the proxy with %s has its reason', (code) => {
		const { params, message } = classifyNetworkError(coded(code), { host, proxy: 'proxy.test:3128' });
		expect(params).toEqual({ host, reason: code });
		expect(message).toContain(code);
	});

	test.each([
		[399, 'proxy-failed'],
		[400, 'proxy-refused'],
		[429, 'proxy-failed'],
		[499, 'proxy-refused'],
		[500, 'proxy-failed'],
	])('a proxy that answers %i: %s, with the status', (statusCode, code) => {
		const found = classifyNetworkError(coded('ERR_PROXY_TUNNEL', { statusCode }), { host, proxy: 'proxy.test:3128' });
		expect(found).toMatchObject({ code, params: { host, status: statusCode } });
	});

	test('a proxy that wants a sign-in to its network (511) says nothing of the host behind it [F566]', () => {
		const found = classifyNetworkError(coded('ERR_PROXY_TUNNEL', { statusCode: 511 }), {
			host,
			proxy: 'proxy.test:3128',
		});
		expect(found).toMatchObject({
			code: 'proxy-failed',
			remedy: expect.stringMatching(/^Sign in to this site's network/),
		});
	});

	test('is told from an HTTP/2 server by the first bytes of its settings, whole and nothing less', () => {
		const settings = [0, 0, 18, 4, 0, 0];
		const of = (rawPacket: unknown) => classifyNetworkError(coded('HPE_INVALID_CONSTANT', { rawPacket }), { host });
		expect(of(Uint8Array.from(settings)).params).toEqual({ host, reason: 'http2' });
		expect(of(String.fromCharCode(...settings)).params).toEqual({ host, reason: 'http2' });
		expect(classifyNetworkError(coded('X', { data: Uint8Array.from(settings) }), { host }).code).toBe('tls-failed');
		for (const at of [0, 1, 3, 4, 5]) {
			const other = settings.with(at, 7);
			expect([at, of(Uint8Array.from(other)).code]).toEqual([at, 'bad-response']);
		}
		const told = new Error('x:error:0:tlsv1 alert no application protocol:y');
		expect(classifyNetworkError(told, { host }).params).toEqual({ host, reason: 'http2' });
	});

	test('is looked for in 32 causes, and no further', () => {
		const behind = (depth: number) => {
			let error: Error = coded('ENOTFOUND');
			for (let n = 1; n < depth; n += 1) error = new Error('outer', { cause: error });
			return classifyNetworkError(error, { host }).code;
		};
		expect([behind(32), behind(33)]).toEqual(['dns-failed', 'connection-lost']);
	});

	test('is found behind causes and among several', () => {
		const deep = new Error('a', { cause: new Error('b', { cause: new AggregateError([coded('CERT_HAS_EXPIRED')]) }) });
		expect(classifyNetworkError(deep, { host }).code).toBe('certificate-expired');
	});

	test('does not go round in circles', () => {
		const circle = new Error('a');
		circle.cause = circle;
		expect(classifyNetworkError(circle, { host }).code).toBe('connection-lost');
	});

	test.each(['ENOTFOUND', 'ECONNREFUSED', 'ETIMEDOUT'])(
		'is the proxy that fails with %s when one stands between',
		(code) => {
			expect(classifyNetworkError(coded(code), { host, proxy: 'proxy.test:3128' }).code).toBe('proxy-failed');
		},
	);

	test('keeps the blame for its certificate at the host behind a proxy', () => {
		expect(classifyNetworkError(coded('CERT_HAS_EXPIRED'), { host, proxy: 'proxy.test:3128' }).code).toBe(
			'certificate-expired',
		);
	});

	test('says how to help when a client certificate is missing', () => {
		const found = classifyNetworkError(coded('ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED'), { host });
		expect(found.code).toBe('tls-failed');
		expect(found.remedy).toContain('network.clientCertificateFile');
	});

	test.each([
		['SELF_SIGNED_CERT_IN_CHAIN', 'network.caFile'],
		['ERR_TLS_CERT_ALTNAME_INVALID', 'Name the proxy in network.proxy as its certificate does'],
		['CERT_HAS_EXPIRED', 'needs a new certificate'],
	])('of a proxy whose certificate is refused as %s says what helps', (code, words) => {
		const tunnel = Object.assign(coded('ERR_PROXY_TUNNEL'), { cause: coded(code) });
		const found = classifyNetworkError(tunnel, { host, proxy: 'proxy.test:3128' });
		expect(found).toMatchObject({ code: 'proxy-failed', remedy: expect.stringContaining(words) });
	});

	test.each(['ENOTFOUND', 'ERR_PROXY_TUNNEL', 'EPROTO', 'X'])('with %s is never passed on in its own words', (code) => {
		const error = Object.assign(new Error('http://user:hunter22@proxy/?authorization=hunter22'), { code });
		expect(classifyNetworkError(error, { host }).message).not.toContain('hunter22');
	});
});

describe('an HTTP answer', () => {
	const answered = (status: number, more: Partial<HttpAnswer> = {}) =>
		classifyHttpAnswer({ status, headers: {}, body: '', purpose: 'register', host, ...more });

	const registerRows: [number, ErrorCode, Partial<HttpAnswer>][] = [
		[401, 'code-expired-or-used', { scheme: 'Token' }],
		[410, 'code-expired-or-used', { scheme: 'Token' }],
		[401, 'credential-refused', { scheme: 'ApiKey' }],
		[401, 'credential-refused', {}],
		[403, 'access-forbidden', { scheme: 'Token' }],
		[404, 'bad-response', {}],
		[404, 'workflow-unknown', { body: '{"code":"workflow-unknown"}' }],
		[422, 'workflow-unknown', { body: '{"detail":"The workflow kyc-1 is unknown."}' }],
		[400, 'workflow-unknown', { body: 'no such workflow' }],
		[403, 'workflow-unknown', { body: 'unknown workflow w2' }],
		[403, 'access-forbidden', { body: 'the key is for another workflow and invalid here' }],
		[401, 'credential-refused', { body: '{"code":"workflow-unknown"}' }],
		[400, 'request-rejected', {}],
		[409, 'request-rejected', {}],
		[413, 'request-rejected', {}],
		[422, 'request-rejected', {}],
		[407, 'proxy-refused', {}],
		[408, 'service-failed', {}],
		[504, 'service-failed', {}],
		[429, 'service-overloaded', {}],
		[503, 'service-overloaded', {}],
		[500, 'service-failed', {}],
		[502, 'service-failed', {}],
		[500, 'service-failed', { body: '{"detail":"The workflow was not found."}' }],
		[503, 'service-overloaded', { body: '{"code":"workflow-unknown"}' }],
		[511, 'captive-portal', {}],
		[200, 'answer-unreadable', { body: '{}' }],
		[200, 'request-rejected', { body: '{"ok":false,"error":"quota"}' }],
		[200, 'captive-portal', { headers: { 'content-type': 'text/html; charset=utf-8' }, body: 'Welcome' }],
		[200, 'captive-portal', { body: '\n<!DOCTYPE html><title>Sign in</title>' }],
		[301, 'redirect-refused', { headers: { location: '/elsewhere' } }],
		[307, 'redirect-refused', { headers: { location: 'http://id.example.com/api' } }],
		[302, 'captive-portal', { headers: { location: 'http://portal.hotel.test/login?mac=1' } }],
		[302, 'redirect-refused', {}],
		[302, 'redirect-refused', { headers: { location: 'file:///etc/passwd' } }],
		[999, 'bad-response', {}],
	];
	test.each(registerRows)('%i to a registration is %s with %o', (status, code, more) => {
		expect(answered(status, more).code).toBe(code);
	});

	const channelRows: [number, ErrorCode][] = [
		[200, 'channel-rejected'],
		[400, 'channel-rejected'],
		[401, 'credential-refused'],
		[403, 'access-forbidden'],
		[404, 'channel-not-found'],
		[410, 'channel-not-found'],
		[426, 'channel-rejected'],
		[503, 'service-overloaded'],
		[500, 'service-failed'],
	];
	test.each(channelRows)('%i to an upgrade is %s', (status, code) => {
		expect(answered(status, { purpose: 'channel', scheme: 'Connection' }).code).toBe(code);
	});

	test('names host, status and the own words of the service', () => {
		expect(answered(422, { body: '{"detail":"deviceId is taken"}' }).message).toBe(
			'id.example.com answered 422: deviceId is taken.',
		);
	});

	test('a refusal without a word sends no one to words that are not there [F1304]', () => {
		expect(answered(451).remedy).toMatch(/^The service gives no reason: ask its operator/);
		expect(answered(451, { body: '{"detail":"deviceId is taken"}' }).remedy).toContain('reply in the message');
	});

	test.each(['No required SSL certificate was sent', 'The SSL certificate error'])(
		'400 with %j wants a client certificate',
		(said) => {
			const found = answered(400, {
				body: `<html><title>400 ${said}</title></html>`,
				headers: { 'content-type': 'text/html' },
			});
			expect(found.code).toBe('tls-failed');
			expect(found.remedy).toContain('network.clientCertificateFile');
		},
	);

	test('names the workflow that is unknown', () => {
		const found = answered(404, { body: '{"code":"workflow-unknown"}', workflowId: 'kyc-1' });
		expect(found.message).toContain('kyc-1');
	});

	test.each([
		['{"error":"not found","hint":"enroll with POST /v2/enroll"}', /^Set service\.registrationPath to \/v2\/enroll,/],
		['Cannot POST /api/device/connection', /^Check baseUrl/],
	])('names the path of registration that a 404 does: %s', (body, remedy) => {
		expect(answered(404, { body, path: '/api/device/connection' }).remedy).toMatch(remedy);
	});

	test.each([
		['{"code":"WORKFLOW_NOT_FOUND"}', 'workflow-unknown'],
		['{"error":{"type":"WorkflowNotFound"},"message":"Sorry"}', 'workflow-unknown'],
		['{"code":"WORKFLOW_DISABLED","message":"Device not found"}', 'request-rejected'],
		['{"code":"DEVICE_NOT_FOUND"}', 'request-rejected'],
		['{"detail":"The device kiosk-7 does not exist."}', 'request-rejected'],
		...[
			'workflow_not_found',
			'WorkflowNotFound',
			'unknown-workflow',
			'Could not find workflow w1',
			'No workflow with id "w1"',
		].map((message) => [JSON.stringify({ message }), 'workflow-unknown']),
		...["workflowId w1 doesn't exist", 'Workflow with id w1 could not be found', 'There is no workflow w1'].map(
			(error) => [JSON.stringify({ error }), 'workflow-unknown'],
		),
		['{"error":"device_not_found"}', 'request-rejected'],
		['{"code":"tenant_suspended"}', 'request-rejected'],
		['{"code":"The quota of this site is used up."}', 'request-rejected'],
		['{"code":"NOT_FOUND"}', 'bad-response'],
		['{"code":"ROUTE_NOT_FOUND","message":"The path /api/device/connection was not found"}', 'bad-response'],
	])('of 404 blames baseUrl for nothing that the service has looked up: %s is %s [F1683]', (body, code) => {
		const found = answered(404, { body, scheme: 'Token' });
		expect(found.code).toBe(code);
		expect(found.remedy.includes('baseUrl')).toBe(code === 'bad-response');
	});

	test('names the host a portal points at without its query', () => {
		const found = answered(302, { headers: { location: 'http://portal.hotel.test/login?mac=00112233' } });
		expect(found.message).toContain('portal.hotel.test');
		expect(found.message).not.toContain('mac');
	});

	test('carries the wait that the service asks for', () => {
		expect(answered(503, { headers: { 'retry-after': '7' } }).retryAfterMs).toBe(7000);
	});

	test.each([
		['a line end', 'conn-tok-\n5e1f3c9a7b2d4f60'],
		['a sign that no one sees', 'conn-tok-\u200b5e1f3c9a7b2d4f60'],
		['a mark of a page', 'conn-<br>tok-5e1f3c9a7b2d4f60'],
		['an escape of a terminal', 'conn-\x1b[31mtok-5e1f3c9a7b2d4f60'],
		['base64', btoa('Connection conn-tok-5e1f3c9a7b2d4f60')],
		['base64 for addresses', btoa('x conn-tok-5e1f3c9a7b2d4f60 y').replaceAll('+', '-').replaceAll('/', '_')],
	])('with %s in or around a credential does not show it [F1610]', (_, text) => {
		const found = answered(403, { body: `no: ${text}.`, secrets: ['conn-tok-5e1f3c9a7b2d4f60'] });
		expect(found.message).not.toMatch(/5e1f3c9a|NWUxZjNj|NlMWYz/);
		expect(answered(403, { body: 'no: nothing here.', secrets: ['conn-tok-5e1f3c9a7b2d4f60'] }).message).toContain(
			'nothing here',
		);
	});

	test('never repeats a credential, whatever the service echoes', () => {
		const token = fc.stringMatching(/^[\w./+=-]{8,40}$/);
		const found = answered(300, { body: '', secrets: ['+/a+=-/.'], headers: { location: '/+/a+=-/.' } });
		expect(found.message).not.toContain('a+=-');
		fc.assert(
			fc.property(token, fc.integer({ min: 100, max: 999 }), fc.string(), (secret, status, noise) => {
				for (const body of [`${noise}${secret}`, JSON.stringify({ detail: `${noise} ${secret} is not known` })]) {
					const found = answered(status, { body, secrets: [secret], headers: { location: `/${secret}` } });
					expect(found.message).not.toContain(secret);
				}
			}),
		);
	});

	test('never throws and always has a row in the catalogue', () => {
		const headers = fc.dictionary(fc.constantFrom('location', 'retry-after', 'date', 'content-type'), fc.string());
		const purpose = fc.constantFrom('register', 'channel', 'other');
		fc.assert(
			fc.property(fc.integer(), headers, fc.string(), purpose, (status, lines, body, why) => {
				const found = answered(status, { headers: lines, body, purpose: why });
				expect(CATALOGUE).toHaveProperty([found.code]);
				expect(found.message).toMatch(/[.!?…]$/);
			}),
		);
	});
});

describe('Retry-After', () => {
	test('of a captive portal is no word of the service', () => {
		const headers = { 'retry-after': '600', 'content-type': 'text/html' };
		for (const [status, location] of [
			[302, 'http://portal.example/'],
			[511, ''],
			[200, ''],
		] as const) {
			const told = { ...headers, ...(location && { location }) };
			const answer = { status, headers: told, body: '<html>sign in', purpose: 'channel', host: 'id.example' } as const;
			const failure = classifyHttpAnswer(answer);
			expect([failure.code, failure.retryAfterMs]).toEqual(['captive-portal', undefined]);
		}
	});

	const date = 'Wed, 21 Oct 2015 07:28:00 GMT';

	test('is read in seconds', () => expect(readRetryAfter('120', undefined)).toBe(120_000));
	test('is read as a date, by the clock of the answer [F021]', () =>
		expect(readRetryAfter('Wed, 21 Oct 2015 07:28:30 GMT', date)).toBe(30_000));
	test('is read as a date by the clock of this device where the answer tells no time, unless that clock is far off', () => {
		const wallMs = Date.parse(date) - 30_000;
		expect(readRetryAfter(date, undefined, wallMs)).toBe(30_000);
		expect(readRetryAfter(date, 'no date', wallMs)).toBe(30_000);
		expect(readRetryAfter(date, undefined, Date.UTC(1970, 0, 1))).toBeUndefined();
		expect(readRetryAfter(date, undefined)).toBeUndefined();
		const headers = { 'retry-after': date };
		const answer = { status: 503, headers, body: '', purpose: 'channel', host: 'id.example', wallMs } as const;
		expect(classifyHttpAnswer(answer).retryAfterMs).toBe(30_000);
	});
	test.each(['', '-5', '0', '1e9x', 'soon', 'Wed, 21 Oct 2015 07:27:00 GMT'])('%j asks for nothing', (text) =>
		expect(readRetryAfter(text, date)).toBeUndefined(),
	);
	test('is never longer than a day', () => {
		expect(readRetryAfter('99999999999999999999', undefined)).toBe(MAX_ASKED_WAIT_MS);
		fc.assert(
			fc.property(fc.string(), fc.string(), (text, now) => {
				const waitMs = readRetryAfter(text, now);
				expect(waitMs === undefined || (waitMs > 0 && waitMs <= MAX_ASKED_WAIT_MS)).toBe(true);
			}),
		);
	});
});

describe('the clock skew', () => {
	const serviceMs = Date.UTC(2026, 0, 2, 3, 4, 5);
	const header = new Date(serviceMs).toUTCString();

	test('is negative for a clock that is slow', () => expect(clockSkewMs(header, serviceMs - 5000)).toBe(-5000));
	test('is not known of a service whose date was before this agent [F1332]', () =>
		expect(clockSkewMs('Fri, 01 Jan 1999 00:00:00 GMT', serviceMs)).toBeNull());
	test('of a service in 1970 makes no wait that it asks for longer [F1332]', () => {
		const inTenSeconds = new Date(serviceMs + 10_000).toUTCString();
		expect(readRetryAfter(inTenSeconds, 'Thu, 01 Jan 1970 00:00:00 GMT', serviceMs)).toBe(10_000);
	});
	test('is positive for a clock that is fast', () => expect(clockSkewMs(header, serviceMs + 5000)).toBe(5000));
	test.each([undefined, '', 'yesterday', '12345'])('is unknown with the header %j', (text) =>
		expect(clockSkewMs(text, 0)).toBeNull(),
	);
});

describe('a close code', () => {
	const rows: [number, ErrorCode][] = [
		[1000, 'connection-lost'],
		[1001, 'connection-lost'],
		[1006, 'connection-lost'],
		[1008, 'credential-refused'],
		[1011, 'connection-lost'],
		[1012, 'connection-lost'],
		[1013, 'connection-lost'],
		[4401, 'credential-refused'],
		[4403, 'credential-refused'],
		[4409, 'connection-replaced'],
		[4999, 'connection-lost'],
	];
	test.each(rows)('%i is %s', (code, expected) => {
		expect(classifyClose({ code, reason: '', host }).code).toBe(expected);
	});

	test.each([
		[4406, ''],
		[1002, 'Subprotocol not acceptable'],
	])('%i "%s" asks for a subprotocol, and for no new pairing [F1083]', (code, reason) => {
		const found = classifyClose({ code, reason, host });
		expect(found.code).toBe('channel-rejected');
		expect(found.remedy).toMatch(/^Set service\.subprotocol/);
	});

	test('is told in words with the reason, cleaned and without the credential', () => {
		const found = classifyClose({
			code: 1011,
			reason: 'no\u202e room\nfor tr-12345678',
			host,
			secrets: ['tr-12345678'],
		});
		expect(found.message).toBe('id.example.com closed the channel with 1011 (internal error): no room for [secret].');
	});

	test('is told without the credential of another one, which it names [F1681]', () => {
		const found = classifyClose({ code: 1011, reason: 'no room for Bearer Zk9Wd3Hf7Bn1', host });
		expect(found.message).toMatch(/: no room for Bearer \[secret\]\.$/);
	});
});

test.each(['ApiKey', 'Connection', undefined] as const)(
	'a page with 401 over plain HTTP is a portal and no word about the credential (%s) [F764]',
	(scheme) => {
		const page = { status: 401, headers: { 'content-type': 'text/html' }, body: '<html>Sign in' };
		const from = { ...page, purpose: 'register', host: 'id.example', scheme } as const;
		expect(classifyHttpAnswer({ ...from, secure: false }).code).toBe('captive-portal');
		expect(classifyHttpAnswer({ ...from, secure: true }).code).not.toBe('captive-portal');
		const plain = { ...from, headers: {}, body: '{"error":"no"}', secure: false };
		expect(classifyHttpAnswer(plain).code).toBe('credential-refused');
	},
);

describe('the cause is told by what distinguishes it', () => {
	const channel = (status: number, headers: Record<string, string>, body = '', secure = true) =>
		classifyHttpAnswer({ status, headers, body, purpose: 'channel', host: 'id.example', secure });

	test.each([
		[
			'nginx that keeps Upgrade to itself',
			channel(404, { server: 'nginx/1.22' }),
			'channel-not-found',
			/Upgrade and Connection/,
		],
		['a service that misses the upgrade', channel(426, {}), 'channel-rejected', /Upgrade and Connection/],
		[
			'a service that asks for a WebSocket',
			channel(400, {}, 'Can "Upgrade" only to "WebSocket"'),
			'channel-rejected',
			/Upgrade/,
		],
		[
			'a service that asks for a subprotocol',
			channel(400, { server: 'nginx' }, '{"message":"Sec-WebSocket-Protocol must offer idv.device.v1"}'),
			'channel-rejected',
			/^Set service\.subprotocol/,
		],
		['a path that is not there', channel(404, {}), 'channel-not-found', /^Check baseUrl and service\.channelPath/],
		[
			'a web application that answers for every path',
			channel(200, {}, '<!doctype html>'),
			'channel-not-found',
			/service\.channelPath/,
		],
		[
			'a portal, which cannot verify itself',
			channel(200, {}, '<!doctype html>', false),
			'captive-portal',
			/captive portal/,
		],
		['a firewall', channel(403, { 'content-type': 'text/html' }, '<html>blocked'), 'access-forbidden', /firewall/],
	])('%s', (_what, { code, remedy }, expected, words) => {
		expect({ code, remedy }).toEqual({ code: expected, remedy: expect.stringMatching(words) });
	});

	test('a redirect to https names where it leads, without its query', () => {
		const { message, remedy } = classifyHttpAnswer({
			status: 301,
			headers: { location: 'https://id.example/app/api?authorization=Token%20tr-1' },
			body: '',
			purpose: 'register',
			host: 'id.example',
		});
		expect(message).toContain('points at https://id.example/app/api.');
		expect(remedy).toContain('https://id.example');
		expect(message + remedy).not.toContain('tr-1');
	});

	test('a proxy that runs but cannot reach the service', () => {
		const error = Object.assign(new Error('x'), { code: 'ERR_PROXY_TUNNEL', statusCode: 503 });
		expect(classifyNetworkError(error, { host: 'id.example', proxy: 'proxy.test:3128' })).toMatchObject({
			code: 'proxy-failed',
			message: 'The proxy runs, but could not connect to id.example (503).',
			remedy: expect.stringContaining('resolve and reach'),
		});
	});

	test.each([
		['the alert of TLS', { code: 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL' }],
		['the first bytes', { code: 'HPE_INVALID_CONSTANT', rawPacket: Buffer.from([0, 0, 18, 4, 0, 0, 0, 0, 0]) }],
	])('a service that speaks HTTP/2 only, by %s', (_what, fields) => {
		const error = Object.assign(new Error('x'), fields);
		const { code, message } = classifyNetworkError(error, { host: 'id.example' });
		expect({ code, message }).toEqual({ code: 'tls-failed', message: 'id.example speaks HTTP/2 only.' });
	});
});

test('a channel that is late says whether there is a host at all: only one that takes connections has too much to do', () => {
	const late = { host: 'id.example', seconds: 15 };
	expect(lateHandshake({ ...late, stands: false })).toMatchObject({
		failure: { code: 'connect-timeout' },
		timedOut: false,
	});
	expect(lateHandshake({ ...late, stands: true })).toMatchObject({
		failure: { code: 'handshake-timeout' },
		timedOut: true,
	});
	// What a proxy does behind its tunnel is not seen from here.
	expect(lateHandshake({ ...late, stands: false, proxy: 'proxy.test:3128' }).timedOut).toBe(true);
});

describe('the right cause', () => {
	test.each([
		'Basic',
		'BASIC realm="Digest"',
		'Negotiate abc=, basic realm="x"',
		'Digest realm="a",Basic charset=utf-8',
	])('of a 407 is user and password where the proxy offers %s', (offers) => {
		const error = Object.assign(new Error(), { code: 'ERR_PROXY_TUNNEL', statusCode: 407, offers });
		const { message, remedy } = classifyNetworkError(error, { host: 'id.example', proxy: 'proxy.test:3128' });
		expect(message).toBe('The proxy refused a connection to id.example (407).');
		expect(remedy).toContain('user and password');
	});

	const answer = { headers: {}, body: '', purpose: 'channel', host: 'id.example' } as const;

	test.each(['/login', 'v2/device', '?lang=en'])(
		'of a redirect to the own path %s is the path, not the address',
		(location) => {
			const failed = classifyHttpAnswer({ ...answer, status: 302, headers: { location } });
			expect(failed).toMatchObject({ code: 'redirect-refused', message: expect.stringContaining('its own path /') });
			expect(failed.remedy).toContain('service.channelPath');
		},
	);

	test.each(['/v2/register', 'https://id.example/v2/register'])(
		'of a registration that has moved to %s is the setting for its path',
		(location) => {
			const asked = {
				...answer,
				purpose: 'register',
				path: '/api/device/connection',
				status: 308,
				headers: { location },
			} as const;
			expect(classifyHttpAnswer(asked).remedy).toContain('service.registrationPath to /v2/register');
			expect(classifyHttpAnswer(asked).remedy).not.toContain('channelPath');
		},
	);

	test.each([
		['next', '/api/device/next'],
		['../login', '/api/login'],
		['?again=1', '/api/device/connection'],
		['/login', '/login'],
	])('of a redirect to %s is the path that it means under the one that was asked for', (location, path) => {
		const asked = { ...answer, path: '/api/device/connection', status: 302, headers: { location } };
		expect(classifyHttpAnswer(asked).message).toBe(`id.example answered 302 and points at its own path ${path}.`);
	});

	test('of a host that refuses connections is the service, not the cable', () => {
		const failed = classifyNetworkError(Object.assign(new Error(), { code: 'ECONNREFUSED' }), { host: 'id.example' });
		expect(failed.remedy).toMatch(/service runs and listens/);
		expect(failed.remedy).not.toMatch(/cable|network/);
	});

	test('of a name whose address refuses connections names the address, and a name that leads to this device [F1238]', () => {
		const told = (host: string, address: string) =>
			classifyNetworkError(Object.assign(new Error(), { code: 'ECONNREFUSED', address, port: 443 }), { host });
		expect(told('id.example:8443', '192.0.2.9')).toMatchObject({
			message: 'id.example:8443 refuses connections at 192.0.2.9 (ECONNREFUSED).',
			remedy: expect.stringContaining('service runs and listens'),
			params: { address: '192.0.2.9' },
		});
		for (const address of ['127.0.0.1', '127.9.9.9', '::1'])
			expect(told('id.example', address).remedy).toContain('leads to this device itself');
		for (const [host, address] of [
			['127.0.0.1:8490', '127.0.0.1'],
			['[::1]:8490', '::1'],
		] as const)
			expect(told(host, address)).toMatchObject({ message: `${host} refuses connections (ECONNREFUSED).` });
		expect(told('localhost:8490', '127.0.0.1').remedy).toContain('service runs and listens');
		const unknown = classifyNetworkError(Object.assign(new Error(), { code: 'ENOTFOUND' }), {
			host: 'id.example:8443',
		});
		expect(unknown.message).toBe("The name id.example can't be resolved (ENOTFOUND).");
	});

	test.each([
		['Digest realm="squid", nonce="a"', 'Digest'],
		['Negotiate, NTLM', 'Negotiate, NTLM'],
		['Digest realm="Basic access, Basic", qop="auth", algorithm=MD5, stale = false', 'Digest'],
		['Digest realm="say \\"Basic\\", Basic realm=", nonce=Basic', 'Digest'],
		['digest realm="a", Digest realm="b", algorithm=SHA-256, Hoba max-age=1', 'digest, Hoba'],
		['NTLM TlRMTVNTUAAC==,Negotiate', 'NTLM, Negotiate'],
		[', ,Bearer', 'Bearer'],
	])('of a proxy that offers %s is that way to sign in', (offers, named) => {
		const error = { code: 'ERR_PROXY_TUNNEL', statusCode: 407, offers };
		const failed = classifyNetworkError(Object.assign(new Error(), error), {
			host: 'id.example',
			proxy: 'proxy.test:3128',
		});
		expect(failed).toMatchObject({ code: 'proxy-refused', message: expect.stringContaining(`asks for ${named}.`) });
		expect(failed.remedy).toContain('Basic');
		const both = classifyNetworkError(Object.assign(new Error(), { ...error, offers: `${offers}, Basic realm="x"` }), {
			host: 'h',
			proxy: 'proxy.test:3128',
		});
		expect(both.message).not.toContain('asks for');
		const headers = { 'proxy-authenticate': offers };
		const answered = { status: 407, headers, body: '', purpose: 'register', host: 'id.example' } as const;
		expect(classifyHttpAnswer(answered)).toMatchObject({ code: failed.code, message: failed.message });
	});
});
