import { spawn } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { pipeline } from 'node:stream/promises';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import * as z from 'zod';
import { AgentError, type ErrorCode, failure } from '../../src/base/errors.ts';
import { type LocalRoute, localRoute, type RawExchange } from '../../src/local-api/server/local-server.edge.ts';
import { openLoopbackServer } from '../../src/local-api/server/loopback-server.edge.ts';
import { ask, echoRoutes, eventSource, exchange, failing, failureOf, json, open, untilClosed } from './local-server.ts';

/** Each request of `GET /v1/hold` waits for its answer until they are released. */
function heldRoute() {
	const { promise: held, resolve: release } = Promise.withResolvers<void>();
	let waiting = 0;
	const hold = localRoute({
		method: 'GET',
		path: '/v1/hold',
		listeners: ['agent'],
		async handle() {
			waiting += 1;
			await held;
			return { status: 200, body: {} };
		},
	});
	return { hold, waiting: () => waiting, release };
}

describe('routing', () => {
	test('answers a route with JSON, with its query and the socket it came in on', async () => {
		const { client } = await open(echoRoutes);
		expect(await client.request('agent', 'GET', '/v1/echo?a=1&a=%C3%BC&b=x?y')).toEqual({
			listener: 'agent',
			method: 'GET',
			path: '/v1/echo',
			query: [
				['a', '1'],
				['a', 'ü'],
				['b', 'x?y'],
			],
			since: null,
		});
		expect(await client.request('admin', 'GET', '/v1/echo')).toMatchObject({ listener: 'admin' });
	});

	test('hands the handler what the schema made of the body', async () => {
		const { client } = await open(echoRoutes);
		expect(await client.request('agent', 'POST', '/v1/echo', { name: 'ab' })).toEqual({ name: 'ab', times: 1 });
	});

	test('an answer without a body has none', async () => {
		const { client, adminSocket } = await open(echoRoutes);
		expect(await client.request('admin', 'POST', '/v1/reconnect')).toBeUndefined();
		expect(await client.request('admin', 'POST', '/v1/reconnect', { ignored: true })).toBeUndefined();
		expect(await ask(adminSocket, { method: 'POST', path: '/v1/reconnect' })).toMatchObject({ status: 204, text: '' });
	});

	test('an answer that is JSON already goes out as it is', async () => {
		const { agentSocket, client } = await open([
			{ ...failing(() => ''), handle: () => ({ status: 200, json: '{"n":1.0, "big":12345678901234567890}' }) },
		]);
		const answer = await ask(agentSocket, {});
		expect(answer.text).toBe('{"n":1.0, "big":12345678901234567890}');
		expect(answer.headers['content-type']).toBe('application/json');
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ n: 1 });
	});

	test('HEAD answers as GET does, without the body', async () => {
		const { agentSocket } = await open(echoRoutes);
		const get = await ask(agentSocket, {});
		const head = await ask(agentSocket, { method: 'HEAD' });
		expect(head).toMatchObject({ status: 200, text: '' });
		expect(head.headers['content-length']).toBe(get.headers['content-length']);
		expect(head.headers['content-type']).toBe('application/json');
	});

	test('an unknown path is 404, in whatever form [F111]', async () => {
		const { agentSocket } = await open(echoRoutes);
		for (const path of ['/', '/v1/echo/', '/v1/../v1/echo', '//v1/echo', '/v1/%65cho', '/constructor', '*']) {
			const answer = await ask(agentSocket, { path });
			expect(answer, path).toMatchObject({ status: 404, body: { status: 404, code: 'not-found' } });
			expect(answer.headers['content-type']).toBe('application/problem+json');
		}
	});

	test('a method that the route does not take is 405 and names those it takes [F113]', async () => {
		const { agentSocket } = await open(echoRoutes);
		const answer = await ask(agentSocket, { method: 'DELETE' });
		expect(answer).toMatchObject({ status: 405, body: { code: 'method-not-allowed' } });
		expect(answer.headers.allow).toBe('GET, HEAD, POST');
	});

	test('a route asked on the wrong socket is 403 and names the right one', async () => {
		const { agentSocket, adminSocket } = await open(echoRoutes);
		for (const method of ['POST', 'GET']) {
			const answer = await ask(agentSocket, { method, path: '/v1/reconnect' });
			expect(answer).toMatchObject({ status: 403, body: { code: 'access-denied' } });
			expect(answer.body['detail']).toBe('POST /v1/reconnect is answered on admin.sock, not on agent.sock.');
			expect(answer.body['remedy']).toContain(adminSocket);
		}
	});
});

describe('bodies', () => {
	test.each([
		['no JSON type', { headers: { 'Content-Type': 'text/plain' }, body: '{"name":"ab"}' }, 415],
		['no type', { body: '{"name":"ab"}' }, 415],
		['another character set', { headers: { 'Content-Type': 'application/json; charset=latin1' }, body: '{}' }, 415],
		[
			'compressed',
			{ headers: { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' }, body: '{"name":"ab"}' },
			415,
		],
		['malformed', { headers: { 'Content-Type': 'application/json' }, body: '{"name":' }, 400],
		[
			'not UTF-8',
			{ headers: { 'Content-Type': 'application/json' }, body: Buffer.from('{"name":"\xff"}', 'latin1') },
			400,
		],
		['deeply nested', { headers: { 'Content-Type': 'application/json' }, body: '['.repeat(16_000) }, 400],
		['missing', {}, 422],
	])('%s: refused as body-invalid', async (_name, request, status) => {
		const { agentSocket, faults } = await open(echoRoutes);
		const answer = await ask(agentSocket, { method: 'POST', ...request });
		expect(answer).toMatchObject({ status, body: { status, code: 'body-invalid' } });
		expect(faults).toEqual([]);
	});

	test('what does not fit the schema is 422 and says where', async () => {
		const { agentSocket, client } = await open(echoRoutes);
		const answer = await ask(agentSocket, json({ name: 'a', times: 'x' }));
		expect(answer).toMatchObject({ status: 422, body: { code: 'body-invalid' } });
		expect(answer.body['errors']).toEqual([
			{ path: 'name', message: 'is too short' },
			{ path: 'times', message: expect.any(String) },
		]);
		const error = await failureOf(client.request('agent', 'POST', '/v1/echo', { name: 'a' }));
		expect(error.failure).toMatchObject({ code: 'body-invalid', message: 'name is too short.' });
	});

	test.each(['with its length told', 'in chunks'])(
		'a body of a megabyte, %s, is 413 and the sender learns it [F115]',
		async (how) => {
			const { agentSocket } = await open(echoRoutes);
			const body = Buffer.alloc(1024 * 1024, 0x20);
			const headers = how === 'in chunks' ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': body.length };
			const answer = await ask(agentSocket, { method: 'POST', headers, body });
			expect(answer).toMatchObject({ status: 413, body: { code: 'body-too-large' } });
			expect(answer.body['detail']).toContain('16384');
		},
	);

	test('a body may have as many bytes as the limit says, and no more', async () => {
		const route: LocalRoute = {
			method: 'POST',
			path: '/v1/echo',
			listeners: ['agent'],
			body: z.string(),
			handle: () => ({ status: 204 }),
		};
		const { agentSocket } = await open([route], { limits: { bodyBytes: 10 } });
		expect(await ask(agentSocket, json('12345678'))).toMatchObject({ status: 204 });
		expect(await ask(agentSocket, json('123456789'))).toMatchObject({ status: 413 });
	});

	test('a caller that never stops writing is cut off', async () => {
		const { agentSocket } = await open(echoRoutes, { limits: { lingerMs: 20, requestMs: 600_000 } });
		const socket = net.connect(agentSocket);
		const closed = untilClosed(socket.resume());
		const spaces = `10000\r\n${' '.repeat(0x10000)}\r\n`;
		const pour = () => {
			while (!socket.destroyed && socket.write(spaces));
		};
		socket.on('drain', pour);
		socket.write('POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
		pour();
		await closed;
		expect(await ask(agentSocket, {})).toMatchObject({ status: 200 });
	});
});

describe('errors', () => {
	test.each<[ErrorCode, number]>([
		['access-forbidden', 403],
		['code-for-other-origin', 403],
		['already-paired', 409],
		['workflow-fixed', 409],
		['pairing-under-way', 409],
		['usage', 400],
		['workflow-missing', 422],
		['not-a-pairing-code', 422],
		['unpaired', 503],
		['service-unreachable', 503],
		['service-overloaded', 503],
		['pairing-uncertain', 502],
		['state-unwritable', 507],
		['state-corrupt', 500],
		['internal', 500],
	])(
		'%s from a handler is a problem document with status %i, and the same error at the client',
		async (code, status) => {
			const { agentSocket, client, faults } = await open([
				failing(() => new AgentError(code, 'It went wrong.', { remedy: 'Do this.', params: { host: 'h' } })),
			]);
			const answer = await ask(agentSocket, {});
			expect(answer.status).toBe(status);
			expect(answer.body).toEqual({
				status,
				title: http.STATUS_CODES[status],
				code,
				detail: 'It went wrong.',
				remedy: 'Do this.',
				params: { host: 'h' },
				sentence: 'It went wrong. Do this.',
			});
			const error = await failureOf(client.request('agent', 'GET', '/v1/echo'));
			expect(error.failure).toEqual(
				failure(code, 'It went wrong.', { remedy: 'Do this.', params: { host: 'h' }, recovers: false }),
			);
			expect(faults).toEqual([]);
		},
	);

	test('the wait that the service asked for reaches the caller', async () => {
		const { agentSocket, client } = await open([
			failing(() => new AgentError('service-overloaded', 'Busy.', { retryAfterMs: 1500 })),
		]);
		expect((await ask(agentSocket, {})).headers['retry-after']).toBe('2');
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).failure.retryAfterMs).toBe(2000);
	});

	test.each<[string, LocalRoute]>([
		['a thrown error', failing(() => new Error('secret path /x/y'))],
		['a thrown text', failing(() => 'secret path /x/y')],
		['an answer that is no JSON', { ...failing(() => ''), handle: () => ({ status: 200, body: { secret: 1n } }) }],
		[
			'a stream that does not start',
			{
				...failing(() => ''),
				handle: () => ({
					stream() {
						throw new Error('secret path /x/y');
					},
				}),
			},
		],
	])('%s is internal, with nothing of it in the answer, and reported once [F116]', async (_name, route) => {
		const { agentSocket, faults } = await open([route]);
		const answer = await ask(agentSocket, {});
		expect(answer).toMatchObject({ status: 500, body: { code: 'internal' } });
		expect(answer.text).not.toMatch(/secret|BigInt|\/x/);
		expect(faults).toHaveLength(1);
	});
});

describe('limits', () => {
	test('headers beyond 8 KiB are 431', async () => {
		const { agentSocket } = await open(echoRoutes);
		const got = await exchange(agentSocket, `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(9000)}\r\n\r\n`);
		expect(got).toMatch(/^HTTP\/1\.1 431 .*"body-too-large"/s);
	});

	test('a head that stops half-way is told that it had no effect', async () => {
		const { agentSocket } = await open(echoRoutes, { limits: { requestMs: 30 } });
		expect(await exchange(agentSocket, 'POST /v1/service/a HTTP/1.1\r\n')).toContain('\r\nIdv-Agent-Effect: none\r\n');
	});

	test.each([
		'GET',
		'GET / HTTP/1.1\r\nHost: x\r\n',
		'POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{',
	])('a request that stops half-way (%j) is 408 and closed', async (start) => {
		const { agentSocket } = await open(echoRoutes, { limits: { requestMs: 30 } });
		expect(await exchange(agentSocket, start)).toMatch(/^HTTP\/1\.1 408 .*"request-timeout"/s);
	});

	test.each([
		['no Host', 'GET /v1/echo HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
		['an expectation', 'GET /v1/echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: cake\r\n\r\n', 417],
	])('a request with %s is refused with a document', async (_name, bytes, status) => {
		const { agentSocket } = await open(echoRoutes);
		expect(await exchange(agentSocket, bytes)).toMatch(
			new RegExp(`^HTTP/1\\.1 ${status} .*problem\\+json.*"usage"`, 's'),
		);
	});

	test('a request with two Host headers is refused on every listener, whichever of them is its own [F1179]', async () => {
		const { agentSocket } = await open(echoRoutes);
		const routes = [{ ...failing(() => ''), listeners: ['probe'] as const, handle: () => ({ status: 204 }) }];
		const { port, close } = await openLoopbackServer({ port: 0, listener: 'probe', routes });
		onTestFinished(close);
		const own = `127.0.0.1:${port}`;
		for (const path of [agentSocket, port])
			for (const hosts of [
				[own, 'evil.example'],
				['evil.example', own],
				[own, own],
			]) {
				const socket = typeof path === 'number' ? net.connect(path, '127.0.0.1') : net.connect(path);
				const lines = hosts.map((host) => `Host: ${host}\r\n`).join('');
				socket.write(`GET /v1/echo HTTP/1.1\r\nConnection: close\r\n${lines}\r\n`);
				expect(Buffer.concat(await socket.toArray()).toString()).toMatch(/^HTTP\/1\.1 400 .*"usage"/s);
			}
	});

	test('what is not HTTP is 400 and closed', async () => {
		const { agentSocket } = await open(echoRoutes);
		expect(await exchange(agentSocket, '\x16\x03\x01 hello')).toMatch(/^HTTP\/1\.1 400 .*"usage"/s);
	});

	test('one connection too many takes the place of the one that has been silent for longest; the others go on', async () => {
		const { agentSocket } = await open(echoRoutes, { limits: { connections: 2 } });
		const sockets: net.Socket[] = [];
		onTestFinished(() => {
			for (const socket of sockets) socket.destroy();
		});
		for (let at = 0; at < 386; at += 1) {
			const socket = net.connect(agentSocket);
			sockets.push(socket.on('error', () => {}));
			await once(socket, 'connect');
		}
		const [asked, silent, held] = sockets as [net.Socket, net.Socket, net.Socket];
		const closed = once(silent, 'close');
		asked.write('POST /v1/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n');
		expect(String((await once(asked, 'data'))[0])).toMatch(/^HTTP\/1\.1 100 /);
		const late = net.connect(agentSocket);
		sockets.push(late);
		await closed;
		asked.write('{"name":');
		for (const socket of [late, held]) {
			socket.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
			const [chunk] = await once(socket, 'data');
			expect(String(chunk)).toMatch(/^HTTP\/1\.1 200 /);
		}
		expect(asked.closed).toBe(false);
	});

	test('a burst of one program beyond its bound is answered to the last request: with 503 and Retry-After, and none is cut off [F894]', async () => {
		const { hold, waiting, release } = heldRoute();
		const { agentSocket } = await open([hold]);
		let refused = 0;
		const answers = Array.from({ length: 300 }, () =>
			ask(agentSocket, { path: '/v1/hold' }).then(
				({ status, headers }) => {
					refused += status === 503 ? 1 : 0;
					return `${status} ${headers['retry-after'] ?? ''}`;
				},
				({ code }) => code,
			),
		);
		await expect.poll(() => waiting() + refused).toBe(300);
		expect(waiting()).toBe(112);
		release();
		const counts = Object.groupBy(await Promise.all(answers), (answer) => answer);
		expect(Object.entries(counts).map(([answer, of]) => [answer, of?.length])).toEqual(
			expect.arrayContaining([
				['200 ', 112],
				['503 1', 188],
			]),
		);
	});

	test('where every connection has a request under way, one more is told so and when to try again', async () => {
		const { hold, waiting, release } = heldRoute();
		const { agentSocket, client } = await open([hold], { limits: { connections: 2 } });
		const first = [1, 2].map(() => client.request('agent', 'GET', '/v1/hold'));
		await expect.poll(waiting).toBe(2);
		expect(await exchange(agentSocket, 'GET /v1/hold HTTP/1.1\r\nHost: x\r\n\r\n')).toMatch(
			/^HTTP\/1\.1 503 .*Retry-After: 1\r\n.*"service-overloaded".*as many requests under way/s,
		);
		await expect(client.request('agent', 'GET', '/v1/hold')).rejects.toMatchObject({ code: 'service-overloaded' });
		release();
		await Promise.all(first);
	});

	test.each([
		['waits for answers', 'GET /v1/hold HTTP/1.1\r\nHost: x\r\n\r\n'],
		['asks nothing', ''],
		['never ends its requests', 'POST /v1/echo HTTP/1.1\r\nHost: x\r\n'],
	])(
		'a program that takes all places and %s, with another like it, keeps no third out and ends nothing of it [F667]',
		async (_, bytes) => {
			const { hold, release } = heldRoute();
			const { agentSocket, client } = await open([hold, ...echoRoutes]);
			const own = client.request('agent', 'GET', '/v1/hold');
			const idle = net.connect(agentSocket);
			onTestFinished(() => void idle.destroy());
			await once(idle, 'connect');
			const flood = `let opened = 0;
			const open = () => {
				const socket = require('node:net').connect(${JSON.stringify(agentSocket)}, () => {
					socket.write(${JSON.stringify(bytes)});
					opened += 1;
					if (opened === 130) process.stdout.write('often');
				});
				socket.on('error', () => {}).on('data', () => socket.destroy()).on('close', () => setTimeout(open, 5));
			};
			for (let at = 0; at < 130; at += 1) open();`;
			for (let program = 0; program < 2; program += 1) {
				const other = spawn(process.execPath, ['-e', flood], { stdio: ['ignore', 'pipe', 'inherit'] });
				onTestFinished(async () => {
					const gone = once(other, 'exit');
					other.kill();
					await gone;
				});
				await once(other.stdout, 'data');
			}
			for (let turn = 0; turn < 20; turn += 1) expect((await ask(agentSocket, {})).status).toBe(200);
			idle.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
			expect(String((await once(idle, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 /);
			release();
			await own;
		},
	);

	test('a connection that has sent a request is not cut off to make room, also where the program opened many before it asked [F1693]', async () => {
		const { hold, release } = heldRoute();
		const { agentSocket } = await open([hold], { limits: { connections: 1 } });
		// Twice, so that the first crowd is gone before it has been there for a second, and that passes while the second one is there.
		const flood = `const { connect } = require('node:net');
			const crowd = () => new Promise((done) => {
				const seen = {};
				const say = (what) => {
					seen[what] = (seen[what] ?? 0) + 1;
					if (Object.values(seen).reduce((sum, count) => sum + count) === 500) done(seen);
				};
				const sockets = Array.from({ length: 501 }, () =>
					connect(${JSON.stringify(agentSocket)})
						.on('error', ({ code }) => say(code))
						.once('data', (bytes) => say(String(bytes).slice(9, 12))));
				sockets.at(-1).once('connect', () => setTimeout(() => {
					for (const socket of sockets) socket.write('GET /v1/hold HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n');
				}, 600));
			}).then((seen) => console.log(JSON.stringify(seen)));
			crowd().then(() => setTimeout(crowd, 100));`;
		const other = spawn(process.execPath, ['-e', flood], { stdio: ['ignore', 'pipe', 'inherit'] });
		onTestFinished(() => void other.kill());
		for (let crowd = 0; crowd < 2; crowd += 1)
			expect(JSON.parse(String((await once(other.stdout, 'data'))[0]))).toEqual({ 503: 500 });
		release();
	});

	test('requests that are sent without reading are answered one after the other, and not without end', async () => {
		let [running, most] = [0, 0];
		const page = localRoute({
			method: 'GET',
			path: '/v1/page',
			listeners: ['agent'],
			async handle() {
				running += 1;
				most = Math.max(most, running);
				await setImmediate();
				running -= 1;
				return { status: 200, body: {} };
			},
		});
		const { agentSocket } = await open([page]);
		const request = 'GET /v1/page HTTP/1.1\r\nHost: x\r\n\r\n';
		const last = request.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
		const answers = await exchange(agentSocket, request.repeat(49) + last);
		expect(answers.match(/HTTP\/1\.1 200/g)).toHaveLength(50);
		expect(most).toBe(1);
		const many = await exchange(agentSocket, request.repeat(500));
		expect(many.match(/HTTP\/1\.1 200/g)).toHaveLength(64);
		expect(many).toMatch(/HTTP\/1\.1 503 .*Connection: close.*"service-overloaded"[^\n]*$/s);
		const others = Array.from({ length: 30 }, () => exchange(agentSocket, request.repeat(5000)).catch(() => ''));
		await Promise.all(others);
		expect(await exchange(agentSocket, last)).toMatch(/^HTTP\/1\.1 200/);
	});

	test('a burst of half requests leaves no more connections than there may be, and others are answered', async () => {
		const { agentSocket, client } = await open(echoRoutes, { limits: { connections: 4 } });
		const sockets = Array.from({ length: 420 }, () => net.connect(agentSocket));
		onTestFinished(() => {
			for (const socket of sockets) socket.destroy();
		});
		for (const socket of sockets) socket.on('error', () => {}).write('POST /v1/echo HTTP/1.1\r\nHost: x\r\n');
		await Promise.all(sockets.slice(0, 32).map((socket) => once(socket, 'close')));
		expect(await client.request('agent', 'GET', '/v1/echo')).toBeDefined();
		expect(sockets.filter(({ closed }) => closed)).toHaveLength(32);
	});
});

describe('whatever is sent', () => {
	test('gets an answer or a clean close, and the server goes on', async () => {
		const source = eventSource((_request, sink) => sink.close());
		const { agentSocket, adminSocket, client, faults } = await open([
			...echoRoutes,
			source.route,
			localRoute<RawExchange>({
				body: 'raw',
				method: '*',
				path: '/v1/service/',
				prefix: true,
				listeners: ['agent', 'admin'],
				async handle({ body: { request, response } }) {
					await pipeline(request, response).catch(() => response.destroy());
					return { answered: true };
				},
			}),
		]);

		const token = fc.string({ unit: fc.constantFrom(...'abcXYZ019-_ :,\t%{}"\x01ü'), maxLength: 20 });
		const path = fc.oneof(
			fc.constantFrom(
				'/v1/echo',
				'/v1/events',
				'/v1/reconnect',
				'/v1/service/a',
				'/',
				'*',
				'http://h/v1/echo',
				'/v1/echo?since=%ff&&=&x',
			),
			token.map((text) => `/${text}`),
		);
		const header = fc.oneof(
			fc.tuple(token, token).map(([name, value]) => `${name}: ${value}`),
			fc.constantFrom(
				'Content-Type: application/json',
				'Content-Length: 5',
				'Content-Length: -1',
				'Content-Length: 99999999999',
				'Transfer-Encoding: chunked',
				'Expect: 100-continue',
				'Expect: nonsense',
				'Connection: Upgrade',
				'Upgrade: websocket',
				'Connection: close',
				'Last-Event-ID: ÿ',
			),
		);
		const body = fc.oneof(
			fc.json(),
			fc.string({ maxLength: 50 }),
			fc.constantFrom('', '5\r\nhello\r\n0\r\n\r\n', 'zz\r\n', '{"name":"ab"}', ' '.repeat(20_000)),
		);
		const method = fc.constantFrom(
			'GET',
			'POST',
			'HEAD',
			'PUT',
			'DELETE',
			'OPTIONS',
			'CONNECT',
			'TRACE',
			'get',
			'BREW',
		);
		const request = fc
			.tuple(
				method,
				path,
				fc.constantFrom('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'X'),
				fc.array(header, { maxLength: 5 }),
				body,
			)
			.map(([verb, target, version, headers, content]) =>
				Buffer.from(`${[`${verb} ${target} ${version}`, 'Host: x', ...headers].join('\r\n')}\r\n\r\n${content}`),
			);
		const anything = fc.oneof(
			{ weight: 4, arbitrary: request },
			{ weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
			// Two at once on one connection.
			{ weight: 1, arbitrary: fc.tuple(request, request).map((two) => Buffer.concat(two)) },
		);

		await fc.assert(
			fc.asyncProperty(anything, fc.boolean(), async (bytes, admin) => {
				const got = await exchange(admin ? adminSocket : agentSocket, bytes, { halfClose: true });
				expect(got === '' || got.startsWith('HTTP/1.1 '), got.slice(0, 100)).toBe(true);
				expect(got).not.toMatch(/^HTTP\/1\.1 500|"internal"/);
			}),
			{ numRuns: 500 },
		);
		expect(faults).toEqual([]);
		expect(source.sinks.size).toBe(0);
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ listener: 'agent' });
	});
});
