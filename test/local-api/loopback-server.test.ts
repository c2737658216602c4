/** The route table on loopback: which pages and programs are let in, over real TCP sockets. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { createForwarder } from '../../src/local-api/forwarder.edge.ts';
import {
	type BrowserApplication,
	readBrowserApplications,
} from '../../src/local-api/server/browser-applications.edge.ts';
import {
	type EventSink,
	type LocalRoute,
	localRoute,
	type RawExchange,
} from '../../src/local-api/server/local-server.edge.ts';
import { openLoopbackServer } from '../../src/local-api/server/loopback-server.edge.ts';
import { listen, refusedPort } from '../connection/network-peers.ts';

const KIOSK: BrowserApplication = {
	name: 'kiosk',
	origin: 'https://kiosk.example.com',
	token: 'kiosk-token-0123456789012345678901',
};
const TILL: BrowserApplication = {
	name: 'till',
	origin: 'http://localhost:3000',
	token: 'till-token-01234567890123456789012',
};

const routes: LocalRoute[] = [
	{
		method: 'GET',
		path: '/v1/status',
		listeners: ['agent', 'admin', 'browser'],
		handle: ({ listener, query, headers }) => ({
			status: 200,
			body: { listener, query: [...query], authorization: headers.authorization ?? null },
		}),
	},
	localRoute({ method: 'POST', path: '/v1/pair', listeners: ['admin'], handle: () => ({ status: 204 }) }),
	{
		method: 'GET',
		path: '/livez',
		listeners: ['agent', 'admin', 'probe'],
		handle: () => ({ status: 200, body: { live: true } }),
	},
	{
		method: 'GET',
		path: '/metrics',
		listeners: ['agent', 'admin', 'probe'],
		handle: () => ({ status: 200, text: 'up 1\n' }),
	},
	localRoute<RawExchange>({
		body: 'raw',
		method: '*',
		path: '/v1/raw/',
		prefix: true,
		listeners: ['browser'],
		handle: ({ body: { request, target } }) => ({
			status: 200,
			body: { target, headers: request.headers, rawHeaders: request.rawHeaders, distinct: request.headersDistinct },
		}),
	}),
];

async function openForBrowsers(more: LocalRoute[] = [], applications = () => [KIOSK, TILL]) {
	const faults: unknown[] = [];
	const server = await openLoopbackServer({
		port: 0,
		listener: 'browser',
		applications,
		routes: [...routes, ...more],
		onFault: (error) => faults.push(error),
	});
	onTestFinished(() => server.close());
	return { ...server, faults };
}

async function openForProbes() {
	const server = await openLoopbackServer({ port: 0, listener: 'probe', routes });
	onTestFinished(() => server.close());
	return server;
}

interface Ask {
	readonly method?: string;
	readonly path?: string;
	readonly headers?: http.OutgoingHttpHeaders;
	readonly body?: string;
}

function ask(port: number, { method = 'GET', path = '/v1/status', headers = {}, body }: Ask) {
	return new Promise<{
		status: number;
		headers: http.IncomingHttpHeaders;
		text: string;
		body: Record<string, unknown>;
	}>((resolve, reject) => {
		const request = http.request({ port, host: '127.0.0.1', method, path, headers, agent: false }, (response) => {
			response.toArray().then((chunks) => {
				const text = Buffer.concat(chunks).toString();
				const { statusCode: status = 0, headers: got } = response;
				resolve({
					status,
					headers: got,
					text,
					body: /json/.test(got['content-type'] ?? '') && text ? JSON.parse(text) : {},
				});
			}, reject);
		});
		request.once('error', reject);
		request.end(body);
	});
}

/** The headers that a browser adds for a page of the application. */
const from = ({ origin, token }: BrowserApplication, more: http.OutgoingHttpHeaders = {}) => ({
	Origin: origin,
	Authorization: `Bearer ${token}`,
	...more,
});

const corsHeaders = (headers: http.IncomingHttpHeaders) =>
	Object.keys(headers).filter((name) => name.startsWith('access-control-'));

async function failureOf(promise: Promise<unknown>): Promise<AgentError> {
	const error = await promise.then(
		() => null,
		(thrown: unknown) => thrown,
	);
	if (error instanceof AgentError) return error;
	throw new Error(`expected an AgentError, got ${String(error)}`);
}

describe('applications in a browser', () => {
	test('a page of a known origin with its token is answered, and may read the answer', async () => {
		const { port } = await openForBrowsers();
		for (const application of [KIOSK, TILL]) {
			const answer = await ask(port, { headers: from(application), path: '/v1/status?a=1' });
			expect(answer).toMatchObject({ status: 200, body: { listener: 'browser', query: [['a', '1']] } });
			expect(answer.headers).toMatchObject({
				'access-control-allow-origin': application.origin,
				'access-control-expose-headers': '*',
				vary: 'Origin',
				'cache-control': 'no-store',
			});
			expect(answer.headers).not.toHaveProperty('access-control-allow-credentials');
		}
	});

	test.each([
		['a header of 9,000 characters', `X-Long: ${'x'.repeat(9000)}`, 431],
		['a header that is none', 'X Y', 400],
	])(
		'%s is refused in an answer that a page of a known origin, and no other, may read [F1052]',
		async (_, line, status) => {
			const { port } = await openForBrowsers();
			const refusal = async (origin: string, host = `127.0.0.1:${port}`) => {
				const socket = net.connect(port, '127.0.0.1');
				socket.write(`GET /v1/status HTTP/1.1\r\nHost: ${host}\r\norigin:${origin}\r\n${line}\r\n\r\n`);
				return Buffer.concat(await socket.toArray()).toString();
			};
			const readable = await refusal(KIOSK.origin);
			expect(readable).toMatch(
				new RegExp(`^HTTP/1.1 ${status} .*\r\nAccess-Control-Allow-Origin: ${KIOSK.origin}\r\n`, 's'),
			);
			expect(readable).toMatch(/\r\nAccess-Control-Expose-Headers: \*\r\n.*"code":"/s);
			for (const told of [await refusal('https://evil.example'), await refusal(KIOSK.origin, 'evil.example')]) {
				expect(told).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
				expect(told).not.toMatch(/access-control-/i);
			}
		},
	);

	test('an error is readable for the page as well', async () => {
		const { port } = await openForBrowsers();
		const answer = await ask(port, { headers: from(KIOSK), path: '/v1/nothing' });
		expect(answer).toMatchObject({ status: 404, body: { code: 'not-found' } });
		expect(answer.headers['access-control-allow-origin']).toBe(KIOSK.origin);
	});

	test.each([
		undefined,
		'null',
		'*',
		'https://kiosk.example.com/',
		'https://kiosk.example.com:443',
		'https://KIOSK.example.com',
		'http://kiosk.example.com',
		'https://kiosk.example.com.evil.example',
		'https://evil.kiosk.example.com',
		'https://kiosk.example.com, https://evil.example',
		'http://localhost:3001',
		'http://localhost',
	])('origin %s is not let in, with or without a token, and gets no CORS', async (origin) => {
		const { port } = await openForBrowsers();
		for (const authorization of [{}, { Authorization: `Bearer ${KIOSK.token}` }])
			for (const method of ['GET', 'OPTIONS', 'POST']) {
				const headers = { ...authorization, ...(origin !== undefined && { Origin: origin }) };
				const answer = await ask(port, { method, headers });
				expect(answer).toMatchObject({ status: 403, body: { code: 'access-denied' } });
				expect(corsHeaders(answer.headers)).toEqual([]);
			}
	});

	test.each<[string, http.OutgoingHttpHeaders]>([
		['no token', {}],
		['an empty one', { Authorization: 'Bearer ' }],
		['another', { Authorization: `Bearer ${KIOSK.token}x` }],
		['that of another origin', { Authorization: `Bearer ${TILL.token}` }],
		['another scheme', { Authorization: `Token ${KIOSK.token}` }],
	])('%s: 401, which the page can read', async (_name, headers) => {
		const { port } = await openForBrowsers();
		const answer = await ask(port, { headers: { Origin: KIOSK.origin, ...headers } });
		expect(answer).toMatchObject({ status: 401, body: { code: 'access-denied' } });
		expect(answer.headers).toMatchObject({
			'www-authenticate': 'Bearer',
			'access-control-allow-origin': KIOSK.origin,
		});
		expect(answer.text).not.toContain(KIOSK.token);
	});

	test('a token that is withdrawn or made new counts at once', async () => {
		let now: readonly BrowserApplication[] = [KIOSK];
		const { port } = await openForBrowsers([], () => [...now]);
		const status = async (application: BrowserApplication) => (await ask(port, { headers: from(application) })).status;
		expect([await status(KIOSK), await status(TILL)]).toEqual([200, 403]);
		now = [{ ...KIOSK, token: 'x'.repeat(32) }, TILL];
		expect([await status(KIOSK), await status(TILL)]).toEqual([401, 200]);
		now = [];
		expect([await status(KIOSK), await status(TILL)]).toEqual([403, 403]);
	});

	test('two applications of one origin have a token each', async () => {
		const second = { ...KIOSK, name: 'second', token: 'second-token-0123456789012345678901' };
		const { port } = await openForBrowsers([], () => [KIOSK, second]);
		expect(await ask(port, { headers: from(KIOSK) })).toMatchObject({ status: 200 });
		expect(await ask(port, { headers: from(second) })).toMatchObject({ status: 200 });
	});

	test('a preflight is answered without a token, for known origins', async () => {
		const { port } = await openForBrowsers();
		const headers = {
			Origin: KIOSK.origin,
			'Access-Control-Request-Method': 'PUT',
			'Access-Control-Request-Headers': 'authorization,x-request-id',
			'Access-Control-Request-Private-Network': 'true',
		};
		const answer = await ask(port, { method: 'OPTIONS', path: '/v1/raw/a', headers });
		expect(answer).toMatchObject({ status: 204, text: '' });
		expect(answer.headers).toMatchObject({
			'access-control-allow-origin': KIOSK.origin,
			'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
			'access-control-allow-headers': 'authorization,x-request-id',
			'access-control-allow-private-network': 'true',
			'access-control-max-age': '600',
		});
	});

	test('what belongs to administration or to probes is not answered here', async () => {
		const { port } = await openForBrowsers();
		expect(await ask(port, { method: 'POST', path: '/v1/pair', headers: from(KIOSK) })).toMatchObject({
			status: 403,
			body: {
				detail: 'POST /v1/pair is answered on admin.sock, not on the port for applications in a browser.',
				remedy: 'Ask on admin.sock, as root or as a member of the group that owns it.',
			},
		});
		expect(await ask(port, { path: '/metrics', headers: from(KIOSK) })).toMatchObject({ status: 403 });
	});

	test('no handler sees the token, wherever it stood', async () => {
		const { port } = await openForBrowsers();
		const asked = await ask(port, {
			method: 'POST',
			path: `/v1/raw/x?a=1&access_token=${KIOSK.token}&b=%3F?&access_token=`,
			headers: from(KIOSK, { 'X-Other': 'kept' }),
			body: 'body',
		});
		expect(asked).toMatchObject({ status: 200, body: { target: '/x?a=1&b=%3F?', headers: { 'x-other': 'kept' } } });
		expect(asked.text).not.toContain(KIOSK.token);
		expect(asked.body['headers']).not.toHaveProperty('authorization');
		const only = await ask(port, { path: '/v1/raw/x?access_token=', headers: from(KIOSK) });
		expect(only.body).toMatchObject({ target: '/x' });
	});

	test('requests are passed on to the service with its own credential in place of the token', async () => {
		const seen: http.IncomingHttpHeaders[] = [];
		const service = http.createServer((request, response) => {
			seen.push(request.headers);
			request.pipe(response.setHeader('Access-Control-Allow-Origin', '*'));
		});
		const baseUrl = `http://127.0.0.1:${await listen(service)}`;
		const network = await createNetwork({}, {});
		onTestFinished(() => network.close());
		const token = 'connection-token';
		const forward = createForwarder({ network, target: () => ({ baseUrl, token }), allow: () => [] });
		const { port } = await openForBrowsers([
			localRoute<RawExchange>({
				body: 'raw',
				method: '*',
				path: '/v1/service/',
				prefix: true,
				listeners: ['browser'],
				handle: async ({ body }) => {
					await forward(body.request, body.response, body.target);
					return { answered: true };
				},
			}),
		]);
		const answer = await ask(port, { method: 'PUT', path: '/v1/service/a', headers: from(KIOSK), body: 'hello' });
		expect(answer).toMatchObject({ status: 200, text: 'hello' });
		expect(answer.headers['access-control-allow-origin']).toBe(KIOSK.origin);
		expect(seen[0]?.authorization).toBe(`Connection ${token}`);
		expect(JSON.stringify(seen)).not.toContain(KIOSK.token);
		const refused = await ask(port, { path: '/v1/service/api/device/connection', headers: from(KIOSK) });
		expect(refused).toMatchObject({ status: 403, body: { code: 'access-denied' } });
	});

	test('an EventSource, which can send no headers, puts the token into the query', async () => {
		const opened = Promise.withResolvers<EventSink>();
		const { port, close } = await openForBrowsers([
			{
				method: 'GET',
				path: '/v1/events',
				listeners: ['browser'],
				handle: ({ since, query }) => ({
					stream(sink) {
						sink.send({ id: '8', data: JSON.stringify({ since, query: [...query] }) });
						opened.resolve(sink);
						return () => {};
					},
				}),
			},
		]);
		const path = `/v1/events?since=7&access_token=${KIOSK.token}`;
		const headers = { Origin: KIOSK.origin, Accept: 'text/event-stream' };
		const streamed = ask(port, { path, headers });
		(await opened.promise).send({ id: '9', data: '{}' });
		await close();
		expect(await streamed).toMatchObject({
			status: 200,
			headers: { 'content-type': 'text/event-stream', 'access-control-allow-origin': KIOSK.origin },
			text: 'id: 8\ndata: {"since":"7","query":[["since","7"]]}\n\nid: 9\ndata: {}\n\nevent: closed\ndata: {"reason":"stopping"}\n\n',
		});
	});

	test('for anything but an event stream the token in the query does not count', async () => {
		const { port } = await openForBrowsers();
		const path = `/v1/status?access_token=${KIOSK.token}`;
		expect(await ask(port, { path, headers: { Origin: KIOSK.origin } })).toMatchObject({ status: 401 });
		const headers = { Origin: KIOSK.origin, Accept: 'text/event-stream' };
		expect(await ask(port, { method: 'POST', path, headers })).toMatchObject({ status: 401 });
	});
});

describe('names that lead here', () => {
	test.each(['127.0.0.1', 'localhost', 'LocalHost'])('%s with the port is the name of the agent', async (name) => {
		const browsers = await openForBrowsers();
		const probes = await openForProbes();
		const asked = { headers: from(KIOSK, { Host: `${name}:${browsers.port}` }) };
		expect(await ask(browsers.port, asked)).toMatchObject({ status: 200 });
		expect(await ask(probes.port, { path: '/livez', headers: { Host: `${name}:${probes.port}` } })).toMatchObject({
			status: 200,
		});
	});

	test.each([
		'evil.example',
		'127.0.0.1',
		'localhost.evil.example',
		'127.0.0.1.nip.io',
		'127.0.0.2',
		'0.0.0.0',
		'[::1]',
	])('%j is not, with or without the port: a caller that was led here gets no answer', async (name) => {
		const browsers = await openForBrowsers();
		const probes = await openForProbes();
		for (const portOf of [(port: number) => (name === '127.0.0.1' ? ':1' : `:${port}`), () => '']) {
			const toBrowsers = await ask(browsers.port, { headers: from(KIOSK, { Host: name + portOf(browsers.port) }) });
			expect(toBrowsers).toMatchObject({ status: 403, body: { code: 'access-denied' } });
			expect(corsHeaders(toBrowsers.headers)).toEqual([]);
			const headers = { Host: name + portOf(probes.port) };
			expect(await ask(probes.port, { path: '/livez', headers })).toMatchObject({ status: 403 });
		}
	});

	test.each([
		['evil.example', '127.0.0.1', 403],
		['127.0.0.1', 'evil.example', 200],
	])(
		'in a request line with the whole address it is %s that counts, not the header %s',
		async (name, other, status) => {
			const { port } = await openForProbes();
			const headers = { Host: `${other}:${port}` };
			expect(await ask(port, { path: `http://${name}:${port}/livez`, headers })).toMatchObject({ status });
		},
	);

	test.each([
		['no Host', 'HTTP/1.1', '', /^HTTP\/1\.1 400 .*"usage"/s],
		['no Host in the old version', 'HTTP/1.0', '', /^HTTP\/1\.1 403 .*"access-denied"/s],
		['an empty one', 'HTTP/1.1', 'Host: \r\n', /^HTTP\/1\.1 403 .*"access-denied"/s],
	])('%s is none of them', async (_name, version, host, expected) => {
		const { port } = await openForProbes();
		const socket = net.connect(port, '127.0.0.1');
		socket.end(`GET /livez ${version}\r\n${host}Connection: close\r\n\r\n`);
		expect(Buffer.concat(await socket.toArray()).toString()).toMatch(expected);
	});
});

describe('probes', () => {
	test('health and metrics are answered to any program, nothing else is', async () => {
		const { port } = await openForProbes();
		expect(await ask(port, { path: '/livez' })).toMatchObject({ status: 200, body: { live: true } });
		const metrics = await ask(port, { path: '/metrics', headers: { 'Sec-Fetch-Site': 'none' } });
		expect(metrics).toMatchObject({ status: 200, text: 'up 1\n', headers: { 'x-content-type-options': 'nosniff' } });
		expect(await ask(port, { path: '/v1/status' })).toMatchObject({
			status: 403,
			body: { detail: 'GET /v1/status is answered on agent.sock, not on the port for health and metrics.' },
		});
		expect(await ask(port, { path: '/v1/raw/a' })).toMatchObject({ status: 403 });
		expect(await ask(port, { method: 'POST', path: '/livez' })).toMatchObject({ status: 405 });
	});

	test.each<[string, http.OutgoingHttpHeaders]>([
		['a page', { Origin: 'https://evil.example' }],
		['a page of a known application', { Origin: KIOSK.origin }],
		['a picture in a page', { 'Sec-Fetch-Site': 'cross-site' }],
		['a page on another port of this device', { 'Sec-Fetch-Site': 'same-site' }],
	])('%s gets nothing', async (_name, headers) => {
		const { port } = await openForProbes();
		const answer = await ask(port, { path: '/metrics', headers });
		expect(answer).toMatchObject({ status: 403, body: { code: 'access-denied' } });
		expect(corsHeaders(answer.headers)).toEqual([]);
	});
});

describe('the port', () => {
	test('is open on 127.0.0.1 only', async () => {
		const { port } = await openForProbes();
		const socket = net.connect(port, '127.0.0.2');
		const [error] = await once(socket, 'error');
		expect(error).toMatchObject({ code: 'ECONNREFUSED' });
	});

	test('that is taken is an error that says so', async () => {
		const { port } = await openForProbes();
		const error = await failureOf(openLoopbackServer({ port, listener: 'probe', routes }));
		expect(error.failure).toMatchObject({
			code: 'socket-failed',
			message: expect.stringContaining(`127.0.0.1:${port}`),
		});
		expect(error.failure.remedy).toContain('another port');
	});

	test('is the one that was asked for, and free again after the close', async () => {
		const desired = await refusedPort();
		for (const _round of [1, 2]) {
			const server = await openLoopbackServer({ port: desired, listener: 'probe', routes });
			expect(server.port).toBe(desired);
			expect(await ask(desired, { path: '/livez' })).toMatchObject({ status: 200 });
			await Promise.all([server.close(), server.close()]);
		}
	});
});

test('whatever a stranger says, it is not let in', async () => {
	const { port, faults } = await openForBrowsers();
	const value = fc.oneof(
		fc.string({ unit: fc.constantFrom(...'aZ09 -._~:/?#[]@,;*%'), maxLength: 30 }),
		fc.constantFrom(
			KIOSK.origin,
			TILL.origin,
			'null',
			`Bearer ${KIOSK.token}`,
			`127.0.0.1:${port}`,
			`localhost:${port}`,
		),
	);
	// For an empty one the client would send its own.
	const host = value.filter((text) => text !== '');
	const path = fc.constantFrom('/v1/status', '/v1/raw/a', `/v1/status?access_token=${TILL.token}`, '/v1/pair', '/');
	const method = fc.constantFrom('GET', 'POST', 'OPTIONS', 'HEAD', 'DELETE');
	await fc.assert(
		fc.asyncProperty(host, value, value, path, method, async (name, origin, authorization, target, verb) => {
			const headers = { Host: name, Origin: origin, Authorization: authorization, Accept: 'text/event-stream' };
			const answer = await ask(port, { method: verb, path: target, headers });
			const isOwn = [`127.0.0.1:${port}`, `localhost:${port}`].includes(name.trim().toLowerCase());
			const application = [KIOSK, TILL].find((known) => known.origin === origin.trim());
			if (!isOwn || !application) {
				expect(answer.status).toBe(403);
				expect(corsHeaders(answer.headers)).toEqual([]);
				return;
			}
			expect(answer.headers['access-control-allow-origin']).toBe(application.origin);
			const sent = /^Bearer +(\S+)$/.exec(authorization.trim())?.[1];
			const inQuery = verb === 'GET' && sent === undefined && target.includes(application.token);
			if (verb === 'OPTIONS') expect(answer.status).toBe(204);
			else expect(answer.status === 401).toBe(sent !== application.token && !inQuery);
		}),
		{ numRuns: 300 },
	);
	expect(faults).toEqual([]);
});

describe('the applications file', () => {
	const line = ({ name, origin, token }: BrowserApplication) => `${name} ${origin} ${token}`;

	async function write(text: string, mode = 0o600): Promise<string> {
		const directory = await mkdtemp(join(tmpdir(), 'idv-loopback-'));
		onTestFinished(() => rm(directory, { recursive: true }));
		const file = join(directory, 'applications');
		await writeFile(file, text);
		await chmod(file, mode);
		return file;
	}

	test('names each application with origin and token', async () => {
		const second = { ...KIOSK, origin: 'chrome-extension://abcdefghijklmnop' };
		const text = `# kiosk of the lobby\n\n${line(KIOSK)}\r\n\t${TILL.name}\t${TILL.origin}  ${TILL.token} \n${line(second)}`;
		expect(await readBrowserApplications(await write(text))).toEqual([KIOSK, TILL, second]);
	});

	test.each([0o600, 0o640, 0o400, 0o440])('may have mode %o', async (mode) => {
		expect(await readBrowserApplications(await write(line(KIOSK), mode))).toEqual([KIOSK]);
	});

	test.each([0o644, 0o660, 0o604, 0o602, 0o601, 0o650, 0o777])(
		'is refused with mode %o: other users could use the tokens',
		async (mode) => {
			const error = await failureOf(readBrowserApplications(await write(line(KIOSK), mode)));
			expect(error.failure).toMatchObject({
				code: 'credential-unreadable',
				message: expect.stringContaining(`0${mode.toString(8)}`),
				remedy: expect.stringContaining('chmod 0640'),
			});
		},
	);

	test.skipIf(process.getuid?.() !== 0)('is refused if it belongs to a stranger (needs root)', async () => {
		const file = await write(line(KIOSK));
		await chown(file, 12_345, 0);
		expect((await failureOf(readBrowserApplications(file))).failure).toMatchObject({
			code: 'credential-unreadable',
			message: expect.stringContaining('another user'),
		});
	});

	test('is refused if it is missing, no file, or too large', async () => {
		const file = await write(`#${' '.repeat(65_536)}`);
		const messages = [];
		execFileSync('mkfifo', ['-m', '600', `${file}.fifo`]);
		for (const path of [`${file}.missing`, join(file, '..'), `${file}.fifo`, file]) {
			const { failure } = await failureOf(readBrowserApplications(path));
			expect(failure.code).toBe('credential-unreadable');
			messages.push(failure.message);
		}
		expect(messages).toEqual([
			expect.stringContaining('ENOENT'),
			expect.stringContaining('not a regular file'),
			expect.stringContaining('not a regular file'),
			expect.stringContaining('larger than 65536 bytes'),
		]);
	});

	test.each<[string, string]>([
		['no application', '# nobody\n'],
		['a line with too little', `kiosk ${KIOSK.token}`],
		['a line with too much', `${line(KIOSK)} more`],
		['a line with two tokens', `${line(KIOSK)} short-secret-0123456789abcdef`],
		['a scheme before the token', line({ ...KIOSK, token: `Bearer ${KIOSK.token}` })],
		['a name with other characters', line({ ...KIOSK, name: 'ki:osk' })],
		...[
			'null',
			'*',
			'https://*.example.com',
			'kiosk.example.com',
			'https://kiosk.example.com/',
			'https://kiosk.example.com/page',
			'https://kiosk.example.com:443',
			'https://Kiosk.example.com',
			'https://user@kiosk.example.com',
			'http://kiosk.example.com',
			'file://',
		].map((origin): [string, string] => [`the origin ${origin}`, line({ ...KIOSK, origin })]),
		['a short token', line({ ...KIOSK, token: 'short-secret' })],
		['a token with other characters', line({ ...KIOSK, token: `${KIOSK.token}\u00fc` })],
		['one token for two', `${line(KIOSK)}\n${line({ ...TILL, token: KIOSK.token })}`],
	])('%s: refused, without a secret in the message', async (_name, text) => {
		const { failure } = await failureOf(readBrowserApplications(await write(text)));
		expect(failure.code).toBe('settings-invalid');
		expect(JSON.stringify(failure)).not.toMatch(/token-0|short-secret/);
	});

	test('the message names the line', async () => {
		const file = await write(`# one\n${line(KIOSK)}\nwrong\n`);
		expect((await failureOf(readBrowserApplications(file))).message).toContain(`${file} cannot be used: line 3: `);
	});
});
