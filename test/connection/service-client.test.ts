import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError, type Failure } from '../../src/base/errors.ts';
import type { RequestNetwork } from '../../src/connection/ask.edge.ts';
import { createNetwork, type NetworkSettings } from '../../src/connection/network.edge.ts';
import {
	createServiceClient,
	type RegisterRequest,
	type ServiceClient,
} from '../../src/connection/service-client.edge.ts';
import type { Authorization } from '../../src/protocol/authorization.ts';
import {
	connectProxy,
	ENDLESS,
	endlessServer,
	fixture,
	identity,
	listen,
	rawServer,
	refusedPort,
} from './network-peers.ts';

const CODE: Authorization = { scheme: 'Token', credential: 'tr-0123456789abcdef' };
const REQUEST = { deviceId: 'kiosk-7', workflowId: 'kyc-1', heartbeatCadence: 30 };

async function client(
	settings: NetworkSettings = {},
	environment: Record<string, string> = {},
): Promise<ServiceClient> {
	const network = await createNetwork(settings, environment);
	onTestFinished(() => network.close());
	return createServiceClient({ network, userAgent: 'idv-agent/test' });
}

async function register(baseUrl: string, more: Partial<RegisterRequest> = {}, settings: NetworkSettings = {}) {
	const made = await client(settings);
	return made.registerDevice({ baseUrl, authorization: CODE, request: REQUEST, deadlineMs: 5000, ...more });
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: string) => void;

/** A service over plain http; what was asked, in order. */
async function service(answer: Answer): Promise<{ url: string; port: number; asked: IncomingMessage[] }> {
	const asked: IncomingMessage[] = [];
	const server = createHttpServer(async (request, response) => {
		asked.push(request);
		let body = '';
		for await (const chunk of request.setEncoding('utf8')) body += chunk;
		answer(request, response, body);
	});
	const port = await listen(server);
	return { url: `http://127.0.0.1:${port}`, port, asked };
}

const saying = (status: number, body: string, headers: Record<string, string> = {}): Answer => {
	return (_request, response) => response.writeHead(status, headers).end(body);
};

const jwt = `e30.${btoa(JSON.stringify({ iat: 1000, exp: 2000 }))}.c2ln`;

describe('registering', () => {
	test('is answered with a date to wait for and none of the answer: the clock of this device tells how long', async () => {
		const wallMs = Date.UTC(2030, 0, 1);
		const { url } = await service((_request, response) => {
			response.sendDate = false;
			response.writeHead(503, { 'retry-after': new Date(wallMs + 40_000).toUTCString() }).end();
		});
		const network = await createNetwork({}, {});
		onTestFinished(() => network.close());
		const made = createServiceClient({ network, userAgent: 'idv-agent/test', wallMs: () => wallMs });
		const result = await made.registerDevice({ baseUrl: url, authorization: CODE, request: REQUEST });
		expect(result).toMatchObject({ failure: { code: 'service-overloaded', retryAfterMs: 40_000 } });
	});

	test('posts the device with the credential and brings the Connection back', async () => {
		let seen: unknown;
		const { url } = await service((request, response, body) => {
			const { authorization, accept, connection } = request.headers;
			const agent = request.headers['user-agent'];
			const type = request.headers['content-type'];
			const { method, url: path } = request;
			seen = { method, path, authorization, accept, agent, type, connection, body: JSON.parse(body) };
			response.setHeader('date', new Date(Date.now() + 3_600_000).toUTCString());
			response.end(JSON.stringify({ token: `Connection ${jwt}` }));
		});
		const result = await register(`${url}/prefix`);
		expect(seen).toEqual({
			method: 'POST',
			path: '/prefix/api/device/connection',
			authorization: 'Token tr-0123456789abcdef',
			accept: 'application/json',
			agent: 'idv-agent/test',
			type: 'application/json',
			connection: 'close',
			body: REQUEST,
		});
		expect(result).toMatchObject({ ok: true, token: jwt, life: { issuedAtSeconds: 1000, expiresAtSeconds: 2000 } });
		expect(result.clockSkewMs).toBeLessThan(-3_590_000);
		expect(result.clockSkewMs).toBeGreaterThan(-3_610_000);
	});

	test('sends no credential when it registers itself', async () => {
		const { url, asked } = await service(saying(200, '"connection-token"'));
		expect(await register(url, { authorization: null })).toMatchObject({
			ok: true,
			token: 'connection-token',
			life: null,
		});
		expect(asked[0]?.headers.authorization).toBeUndefined();
	});

	test.each(['{"token":"connection-token"}', '"connection-token"', jwt])(
		'reads %j although the service calls it a page, as PHP and Tornado do, and a page as a page [F1316]',
		async (body) => {
			const { url } = await service(saying(200, body, { 'content-type': 'text/html; charset=UTF-8' }));
			expect(await register(url)).toMatchObject({ ok: true, token: body === jwt ? jwt : 'connection-token' });
			const page = await service(saying(200, 'Welcome to the hotel', { 'content-type': 'text/html' }));
			expect(await register(page.url)).toMatchObject({ failure: { code: 'captive-portal' } });
		},
	);

	test.each([
		[401, 'Unauthorized', 'code-expired-or-used'],
		[403, '403 Forbidden\n', 'access-forbidden'],
		[503, 'Service Unavailable', 'service-overloaded'],
		[401, 'Please sign in to our network', 'access-forbidden'],
	])('%i %j that is called HTML, as the package ws does, is %s [F1616]', async (status, body, code) => {
		const { url } = await service(saying(status, body, { 'content-type': 'text/html' }));
		expect(await register(url)).toMatchObject({ failure: { code } });
	});

	test.each([
		['at the usual place, and the Connection elsewhere', { token: CODE.credential, pass: { word: jwt } }, null],
		['with its scheme', { authorization: `Token ${CODE.credential}`, connection: { token: jwt } }, jwt],
		[
			'in an address',
			{ token: `https://id.example/mobile?authorization=Token%20${CODE.credential}`, connectionToken: jwt },
			jwt,
		],
		['in capitals and quotes', { token: `"${CODE.credential.toUpperCase()}"`, connectionToken: jwt }, jwt],
		['escaped', { token: `Token%20${CODE.credential}`, authorization: jwt }, jwt],
		['beside the id of the device', { token: REQUEST.deviceId, connectionToken: jwt, echo: CODE.credential }, jwt],
	])('takes a code that the answer repeats for no Connection: %s [F1499]', async (_, answer, token) => {
		const { url } = await service(saying(201, JSON.stringify(answer)));
		const result = await register(url);
		expect(result.ok ? result.token : null).toBe(token);
		expect(JSON.stringify(result)).not.toContain(CODE.credential);
		const key: Authorization = { scheme: 'ApiKey', credential: CODE.credential };
		expect(await register(url, { authorization: key })).toMatchObject({ ok: true, token: token ?? CODE.credential });
		expect(await register(url, { tokenPointer: '/pass/word' })).toMatchObject(token ? { ok: false } : { token: jwt });
	});

	test('names no place of a code that is all that the answer repeats [F1540]', async () => {
		const inBase64 = Buffer.from(CODE.credential).toString('base64');
		const said = [`Token ${CODE.credential}`, CODE.credential, inBase64, `/t/${CODE.credential}`];
		for (const answer of [...said.map((token) => JSON.stringify({ token })), `"${CODE.credential}"`, CODE.credential]) {
			const { url } = await service(saying(201, answer));
			const result = await register(url);
			expect(result).toMatchObject({ ok: false, failure: { code: 'answer-unreadable' } });
			const { message, remedy } = (result as { failure: Failure }).failure;
			expect(`${message} ${remedy}`).toMatch(/The answer only repeats what the device has sent\. No setting reads/);
			expect(remedy).not.toContain('tokenPointer');
		}
	});

	test('finds the token where it is told to look', async () => {
		const { url } = await service(saying(201, '{"a":{"b":"connection-token"}}'));
		expect(await register(url, { tokenPointer: '/a/b' })).toMatchObject({ ok: true, token: 'connection-token' });
	});

	const answers: [number, string, string, Record<string, string>?, string?][] = [
		[400, 'request-rejected', 'answered'],
		[401, 'code-expired-or-used', 'answered'],
		[403, 'access-forbidden', 'answered'],
		[404, 'workflow-unknown', 'answered', {}, '{"code":"workflow-unknown"}'],
		[404, 'bad-response', 'answered'],
		[407, 'proxy-refused', 'no'],
		[408, 'service-failed', 'perhaps'],
		[422, 'request-rejected', 'answered'],
		[429, 'service-overloaded', 'answered', { 'retry-after': '9' }],
		[500, 'service-failed', 'perhaps'],
		[503, 'service-overloaded', 'perhaps', { 'retry-after': '9' }],
		[200, 'captive-portal', 'perhaps', { 'content-type': 'text/html' }, '<html>Sign in</html>'],
		[200, 'answer-unreadable', 'perhaps', {}, '{"ok":true}'],
		[200, 'code-expired-or-used', 'answered', {}, '{"success":false,"message":"Short token expired"}'],
		[
			200,
			'code-expired-or-used',
			'answered',
			{},
			'{"error":{"message":"Unknown token"},"trace":"0123456789abcdef0123"}',
		],
		[202, 'request-rejected', 'perhaps', {}, '{"status":"pending","poll":"/api/requests/0123456789abcdef0123"}'],
		[204, 'answer-unreadable', 'perhaps'],
		[303, 'redirect-refused', 'perhaps', { location: '/api/device/connection/1' }],
		[308, 'redirect-refused', 'answered', { location: '/v2/api/device/connection' }],
	];
	test.each(answers)('an answer of %i is %s, code used: %s', async (status, code, sent, headers = {}, body = '') => {
		const { url } = await service(saying(status, body, headers));
		const result = await register(url);
		expect(result).toMatchObject({ ok: false, sent, failure: { code } });
		if (headers['retry-after']) expect(result).toMatchObject({ failure: { retryAfterMs: 9000 } });
		expect(result.clockSkewMs).not.toBeNull();
	});

	test('does not carry the credential to where a redirect points', async () => {
		const elsewhere = await service(saying(200, '"connection-token"'));
		const { url } = await service(saying(307, '', { location: `http://localhost:${elsewhere.port}/steal` }));
		expect(await register(url)).toMatchObject({ ok: false, failure: { code: 'captive-portal' } });
		expect(elsewhere.asked).toEqual([]);
	});

	test('cuts the credential out of what the service says', async () => {
		const { url } = await service(saying(422, `{"detail":"Token ${CODE.credential} is odd"}`));
		const result = await register(url);
		expect(JSON.stringify(result)).not.toContain(CODE.credential);
		expect(result).toMatchObject({ failure: { message: expect.stringContaining('422: Token [secret] is odd.') } });
	});
});

describe('a one-time code is not used up', () => {
	test('when the name can not be resolved', async () => {
		expect(await register('http://no-such-host.invalid')).toMatchObject({
			ok: false,
			sent: 'no',
			failure: { code: 'dns-failed' },
			clockSkewMs: null,
		});
	});

	test('when nobody listens', async () => {
		expect(await register(`http://127.0.0.1:${await refusedPort()}`)).toMatchObject({
			sent: 'no',
			failure: { code: 'service-unreachable' },
		});
	});

	const certificates = [
		['expired', 'certificate-expired'],
		['not-yet-valid', 'clock-wrong'],
		['wrong-host', 'certificate-wrong-host'],
	] as const;
	test.each(certificates)('when the certificate is %s: %s', async (name, code) => {
		let asked = 0;
		const port = await listen(
			createHttpsServer(identity(name), (_request, response) => {
				asked += 1;
				response.end();
			}),
		);
		const result = await register(`https://localhost:${port}`, {}, { caFile: fixture('ca.pem') });
		expect(result).toMatchObject({ sent: 'no', failure: { code } });
		expect(asked).toBe(0);
	});

	test('when the certificate is of an unknown authority', async () => {
		const port = await listen(createHttpsServer(identity('server')));
		const result = await register(`https://localhost:${port}`);
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'certificate-untrusted' } });
	});

	test('when the port does not speak TLS', async () => {
		const { port } = await service(saying(200, ''));
		expect(await register(`https://127.0.0.1:${port}`)).toMatchObject({ sent: 'no', failure: { code: 'tls-failed' } });
	});

	test('when the service wants a client certificate before it takes a request', async () => {
		const port = await listen(
			createHttpsServer({ ...identity('server'), requestCert: true, rejectUnauthorized: true, maxVersion: 'TLSv1.2' }),
		);
		const result = await register(`https://localhost:${port}`, {}, { caFile: fixture('ca.pem') });
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'tls-failed' } });
	});

	test('when TLS never comes about within the deadline, which is kept: the port has accepted [F1674]', async () => {
		const port = await listen(createTcpServer());
		const startedMs = performance.now();
		const result = await register(`https://127.0.0.1:${port}`, { deadlineMs: 100 });
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'tls-failed', params: { reason: 'stalled' } } });
		const seen = await (await client()).preflight(`https://127.0.0.1:${port}`, 100);
		expect(seen.failure).toMatchObject({ code: 'tls-failed', message: expect.stringContaining('accepts connections') });
		expect(performance.now() - startedMs).toBeLessThan(6000);
	});

	test('when it is given up before it began', async () => {
		const { url, asked } = await service(saying(200, '"connection-token"'));
		const result = await register(url, { signal: AbortSignal.abort() });
		expect(result).toMatchObject({ ok: false, sent: 'no' });
		expect(asked).toEqual([]);
	});
});

describe('a one-time code is perhaps used up', () => {
	test('when the answer is lost', async () => {
		const { port, heads } = await rawServer((socket) => socket.destroy());
		const result = await register(`http://127.0.0.1:${port}`);
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'connection-lost' } });
		// Nothing sends it again behind our back.
		expect(heads).toHaveLength(1);
	});

	test('when the answer does not come', async () => {
		const { port } = await rawServer(() => {});
		const result = await register(`http://127.0.0.1:${port}`, { deadlineMs: 100 });
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'request-timeout' } });
	});

	test('when the head of the answer drips past the deadline', async () => {
		const { port } = await rawServer((socket) => {
			socket.write('HTTP/1.1 200 OK\r\n');
			const drip = setInterval(() => socket.write('x-drip: 1\r\n'), 20);
			socket.on('close', () => clearInterval(drip));
		});
		const result = await register(`http://127.0.0.1:${port}`, { deadlineMs: 150 });
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'request-timeout' } });
	});

	test.each(ENDLESS)(
		'when %s come without end in place of an answer, in time and through a proxy [F1599]',
		async (_, text) => {
			const { port, sent } = await endlessServer(text);
			const result = await register(`http://127.0.0.1:${port}`, { deadlineMs: 60_000 });
			expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'bad-response' } });
			const proxy = await endlessServer(text);
			const network = await createNetwork({ proxy: `http://127.0.0.1:${proxy.port}` }, {});
			onTestFinished(() => network.close());
			const signal = AbortSignal.timeout(60_000);
			const asked = {
				method: 'GET',
				url: new URL('https://id.example'),
				headers: {},
				body: null,
				idleMs: 60_000,
				signal,
			};
			await expect(network.ask(asked)).rejects.toMatchObject({ code: 'ERR_PROXY_TUNNEL' });
			for (const bytes of [await sent, await proxy.sent]) expect(bytes).toBeLessThan(16 * 1024 * 1024);
		},
	);

	test('when the body of the answer drips past the deadline [F016]', async () => {
		const { port } = await rawServer((socket) => {
			socket.write('HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n');
			const drip = setInterval(() => socket.write('x'), 20);
			socket.on('close', () => clearInterval(drip));
		});
		const result = await register(`http://127.0.0.1:${port}`, { deadlineMs: 150 });
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'request-timeout' } });
	});

	test('when the answer breaks off', async () => {
		const { port } = await rawServer((socket) =>
			socket.end('HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"token":"abc'),
		);
		const result = await register(`http://127.0.0.1:${port}`);
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'connection-lost' } });
	});

	test('when the answer is no HTTP', async () => {
		const { port } = await rawServer((socket) => socket.end('SSH-2.0-OpenSSH_9\r\n\r\n'));
		const result = await register(`http://127.0.0.1:${port}`);
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'bad-response' } });
	});

	test('when the answer is fifty megabytes, of which few are read [F015]', async () => {
		let written = 0;
		const { url } = await service((_request, response) => {
			const block = Buffer.alloc(1024 * 1024, 'x');
			const pour = () => {
				while (written < 50 && !response.destroyed) {
					written += 1;
					if (!response.write(block)) return response.once('drain', pour);
				}
				return response.end();
			};
			pour();
		});
		const result = await register(url);
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'response-too-large' } });
		expect(written).toBeLessThan(50);
	});

	test('when it is given up while it waits for the answer', async () => {
		const given = new AbortController();
		const { port } = await rawServer(() => given.abort());
		const result = await register(`http://127.0.0.1:${port}`, { signal: given.signal });
		expect(result).toMatchObject({ sent: 'perhaps', failure: { code: 'connection-lost' } });
	});
});

describe('an answer that cannot be read', () => {
	const hidden = { data: { id: 'kiosk-7', access: 'tr-0123456789abcdefghijklmn' } };

	test('comes back with its texts, and names their places but not what they say', async () => {
		const { url } = await service(saying(201, JSON.stringify(hidden), { 'x-session': 'tr-abcdefghijklmn0123456789' }));
		const result = await register(url);
		if (result.ok) throw new Error('it was read');
		expect(result.unread).toContainEqual({ place: '/data/access', text: hidden.data.access });
		expect(result.failure).toMatchObject({
			code: 'answer-unreadable',
			message: expect.stringMatching(
				/looks like a token is at: \/data\/access, header:x-session; other texts are at: \/data\/id/,
			),
			remedy: expect.stringContaining('service.tokenPointer'),
		});
		expect(JSON.stringify(result.failure)).not.toMatch(/tr-|kiosk-7/);
	});

	test.each([
		['/data/access', hidden.data.access],
		['header:X-Session', 'tr-abcdefghijklmn0123456789'],
	])('is read with service.tokenPointer %s', async (tokenPointer, token) => {
		const { url } = await service(saying(201, JSON.stringify(hidden), { 'x-session': 'tr-abcdefghijklmn0123456789' }));
		expect(await register(url, { tokenPointer })).toMatchObject({ ok: true, token });
	});

	test.each([
		['gzip', gzipSync],
		['deflate', deflateSync],
		['deflate', deflateRawSync],
		['br', brotliCompressSync],
	])('is unpacked first: %s (%#)', async (encoding, pack) => {
		const body = pack(JSON.stringify({ token: 'tr-0123456789' }));
		const { url } = await service((_request, response) => {
			response.writeHead(200, { 'content-encoding': encoding }).end(body);
		});
		expect(await register(url)).toMatchObject({ ok: true, token: 'tr-0123456789' });
	});

	test.each([
		['a coding that is not known', 'pack200', Buffer.from('x'), 'bad-response'],
		['a body that is not packed', 'gzip', Buffer.from('{"token":"tr-0123456789"}'), 'bad-response'],
		['a small body that unpacks to a huge one', 'gzip', gzipSync(Buffer.alloc(64 * 1024 * 1024)), 'response-too-large'],
	])('%s is named', async (_what, encoding, body, code) => {
		const { url } = await service((_request, response) => {
			response.writeHead(200, { 'content-encoding': encoding }).end(body);
		});
		expect(await register(url)).toMatchObject({ ok: false, sent: 'perhaps', failure: { code } });
	});

	test('in UTF-16 is read by its byte order mark', async () => {
		const { url } = await service((_request, response) => {
			response.end(Buffer.from('\uFEFF{"token":"tr-0123456789"}', 'utf16le'));
		});
		expect(await register(url)).toMatchObject({ ok: true, token: 'tr-0123456789' });
	});

	test('of three megabytes is read as any other', async () => {
		const { url } = await service(saying(200, JSON.stringify({ pad: 'x'.repeat(3 << 20), token: 'tr-0123456789' })));
		expect(await register(url)).toMatchObject({ ok: true, token: 'tr-0123456789' });
	});

	test('a page for people is no answer', async () => {
		const { url } = await service(saying(200, '<html>tr-0123456789abcdefghijklmn</html>'));
		const result = await register(url);
		expect(result).toMatchObject({ ok: false, failure: { code: 'captive-portal' } });
		expect(result).not.toHaveProperty('unread');
	});
});

test('a refusal stands even when its body does not end', async () => {
	const { port } = await rawServer((socket) => {
		socket.write('HTTP/1.1 401 Unauthorized\r\ncontent-length: 5000\r\n\r\nused up');
	});
	const result = await register(`http://127.0.0.1:${port}`, { deadlineMs: 200 });
	expect(result).toMatchObject({
		sent: 'answered',
		failure: { code: 'code-expired-or-used', message: expect.stringContaining('401: used up.') },
	});
});

describe('through a proxy', () => {
	const through = (port: number) => ({ proxy: `http://127.0.0.1:${port}`, caFile: fixture('ca.pem') });

	const statuses = [
		[401, 'proxy-refused'],
		[403, 'proxy-refused'],
		[407, 'proxy-refused'],
		[502, 'proxy-failed'],
		[503, 'proxy-failed'],
	] as const;
	test.each(statuses)("the proxy's own %i is never the service's: %s", async (status, code) => {
		const proxy = await connectProxy({ status });
		const result = await register('https://service.test', {}, through(proxy.port));
		expect(result).toMatchObject({ sent: 'no', failure: { code, message: expect.stringContaining(String(status)) } });
		expect(proxy.heads).toHaveLength(1);
		expect(proxy.heads.join()).not.toContain(CODE.credential);
	});

	test("the service's own 401 is the service's", async () => {
		const server = createHttpsServer(identity('server'), (_request, response) => response.writeHead(401).end());
		const proxy = await connectProxy({ targetPort: await listen(server) });
		const result = await register('https://service.test', {}, through(proxy.port));
		expect(result).toMatchObject({ sent: 'answered', failure: { code: 'code-expired-or-used' } });
	});

	test('a proxy that is not there has failed', async () => {
		const result = await register('https://service.test', {}, through(await refusedPort()));
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'proxy-failed' } });
	});

	test('a proxy that hangs up has failed', async () => {
		const proxy = await connectProxy({ behaviour: 'drop' });
		const result = await register('https://service.test', {}, through(proxy.port));
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'proxy-failed' } });
	});

	test('a proxy that does not answer has failed at the deadline', async () => {
		const proxy = await connectProxy({ behaviour: 'hang' });
		const result = await register('https://service.test', { deadlineMs: 150 }, through(proxy.port));
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'proxy-failed' } });
	});

	test('the certificate of the service is checked all the same', async () => {
		const proxy = await connectProxy({ targetPort: await listen(createHttpsServer(identity('expired'))) });
		const result = await register('https://service.test', {}, through(proxy.port));
		expect(result).toMatchObject({ sent: 'no', failure: { code: 'certificate-expired' } });
	});
});

test('a Connection is found behind another cookie of the answer [F1855]', async () => {
	const cookies = ['lang=de; Path=/', 'device=cn-0123456789abcdef; Path=/; HttpOnly'];
	const { url } = await service((_request, response) => response.writeHead(201, { 'set-cookie': cookies }).end('{}'));
	const found = await register(url, { tokenPointer: 'cookie:device' });
	expect(found).toMatchObject({ ok: true, token: 'cn-0123456789abcdef' });
});

test('a refusal whose body does not come is told in seconds, not at the deadline [F1856]', async () => {
	const { port } = await rawServer((socket) => socket.write('HTTP/1.1 403 No\r\ncontent-length: 9\r\n\r\n'));
	// Longer than a test may take.
	const refused = await register(`http://127.0.0.1:${port}`, { deadlineMs: 600_000 });
	expect(refused).toMatchObject({ ok: false, failure: { params: { status: 403 } } });
});

test('a silent service is left after 15 s, but not while it has a code: the code would be lost [F1857]', async () => {
	const silences: number[] = [];
	const network: RequestNetwork = {
		proxyName: () => null,
		async ask({ idleMs }) {
			silences.push(idleMs);
			throw new Error('This is all that is looked at.');
		},
	};
	const made = createServiceClient({ network, userAgent: 'idv-agent/test' });
	for (const authorization of [CODE, { scheme: 'ApiKey', credential: 'ak-0123456789abcdef' } as const])
		await made.registerDevice({ baseUrl: 'https://id.example', authorization, request: REQUEST, deadlineMs: 40_000 });
	expect(silences).toEqual([40_000, 15_000]);
});

describe('the preflight', () => {
	test.each([200, 401, 404, 405, 500])('is content with %i and sends no credential', async (status) => {
		const { url, asked } = await service(saying(status, ''));
		const result = await (await client()).preflight(`${url}/prefix`);
		expect(result.failure).toBeNull();
		expect(result.clockSkewMs).not.toBeNull();
		expect(asked[0]?.method).toBe('HEAD');
		expect(asked[0]?.url).toBe('/prefix');
		expect(asked[0]?.headers.authorization).toBeUndefined();
	});

	test('finds a portal that leads elsewhere in plain text', async () => {
		const { url } = await service(saying(302, '', { location: 'http://portal.test/login' }));
		expect((await (await client()).preflight(url)).failure?.code).toBe('captive-portal');
	});

	test.each([
		[302, undefined],
		[511, 'captive-portal'],
	])(
		'takes a redirect under verified TLS as an answer of the service, and no demand to log in: %i [F1854]',
		async (status, code) => {
			const server = createHttpsServer(identity('server'), (_request, response) =>
				response.writeHead(status, { location: 'https://login.example.com/' }).end(),
			);
			const made = await client({ caFile: fixture('ca.pem') });
			expect((await made.preflight(`https://localhost:${await listen(server)}`)).failure?.code).toBe(code);
		},
	);

	test('names what stands in the way', async () => {
		const made = await client();
		expect((await made.preflight('http://no-such-host.invalid')).failure?.code).toBe('dns-failed');
		expect((await made.preflight(`http://127.0.0.1:${await refusedPort()}`)).failure?.code).toBe('service-unreachable');
	});

	test('finds a proxy that wants a password', async () => {
		const proxy = await connectProxy({ password: 'a:b' });
		const made = await client({}, { HTTPS_PROXY: `http://127.0.0.1:${proxy.port}` });
		expect((await made.preflight('https://service.test')).failure?.code).toBe('proxy-refused');
	});

	test('fails where a client certificate is asked for only after the handshake', async () => {
		const port = await listen(
			createHttpsServer({ ...identity('server'), requestCert: true, rejectUnauthorized: true, minVersion: 'TLSv1.3' }),
		);
		const made = await client({ caFile: fixture('ca.pem') });
		expect((await made.preflight(`https://localhost:${port}`)).failure).not.toBeNull();
	});

	test('ends at its deadline', async () => {
		const { port } = await rawServer(() => {});
		const result = await (await client()).preflight(`http://127.0.0.1:${port}`, 100);
		expect(result.failure?.code).toBe('request-timeout');
	});
});

describe('a single request', () => {
	const limits = { deadlineMs: 5000, maxBytes: 1000 };

	test('brings status, headers and bytes back', async () => {
		const { url } = await service((request, response, body) => {
			response.writeHead(201, { 'x-seen': `${request.method} ${request.headers.accept} ${body}` });
			response.end(Buffer.from([0, 1, 255]));
		});
		const answer = await (await client()).send({
			method: 'POST',
			url: new URL(`${url}/api/security/apikeys`),
			authorization: { scheme: 'Basic', username: 'operator', password: 'secret' },
			body: { name: 'key' },
			accept: 'image/png',
			...limits,
		});
		expect(answer.status).toBe(201);
		expect(answer.headers['x-seen']).toBe('POST image/png {"name":"key"}');
		expect([...answer.body]).toEqual([0, 1, 255]);
	});

	test('gives a refusal back as an answer', async () => {
		const { url, asked } = await service(saying(403, '{"detail":"no"}'));
		const answer = await (await client()).send({ method: 'GET', url: new URL(url), authorization: null, ...limits });
		expect([answer.status, new TextDecoder().decode(answer.body)]).toEqual([403, '{"detail":"no"}']);
		expect(asked[0]?.headers['content-type']).toBeUndefined();
	});

	test('cuts a long refusal short', async () => {
		const { url } = await service(saying(500, 'x'.repeat(5000)));
		const answer = await (await client()).send({ method: 'GET', url: new URL(url), authorization: null, ...limits });
		expect([answer.status, answer.body.length]).toEqual([500, 1000]);
	});

	const thrown = async (url: string) => {
		const made = await client();
		const request = { method: 'GET', url: new URL(url), authorization: null, ...limits } as const;
		const error: unknown = await made.send(request).catch((found: unknown) => found);
		expect(error).toBeInstanceOf(AgentError);
		return (error as AgentError).code;
	};

	test('throws when there is no answer', async () => {
		expect(await thrown(`http://127.0.0.1:${await refusedPort()}`)).toBe('service-unreachable');
	});

	test('throws when the answer is too large', async () => {
		const { url } = await service(saying(200, 'x'.repeat(1001)));
		expect(await thrown(url)).toBe('response-too-large');
	});

	test('takes an answer of exactly the limit', async () => {
		const { url } = await service(saying(200, 'x'.repeat(1000)));
		const answer = await (await client()).send({ method: 'GET', url: new URL(url), authorization: null, ...limits });
		expect(answer.body).toHaveLength(1000);
	});
});
