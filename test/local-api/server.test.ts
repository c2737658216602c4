/** The local server and its client together, over real Unix sockets in a directory of their own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, link, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import * as z from 'zod';
import { AgentError, type ErrorCode, failure } from '../../src/base/errors.ts';
import {
	createEventStreamParser,
	createLocalClient,
	type LocalClient,
	MAX_STREAM_LINE,
	type ServerSentEvent,
} from '../../src/local-api/client.edge.ts';
import {
	type EventSink,
	type LocalReply,
	type LocalRequest,
	type LocalRoute,
	type LocalServer,
	type LocalServerOptions,
	localRoute,
	openLocalServer,
	type RawExchange,
	rawRoute,
} from '../../src/local-api/server/local-server.ts';

interface Opened {
	readonly runDir: string;
	readonly agentSocket: string;
	readonly adminSocket: string;
	readonly server: LocalServer;
	readonly client: LocalClient;
	readonly faults: unknown[];
}

async function makeDirectory(): Promise<string> {
	const directory = await mkdtemp(join(tmpdir(), 'idv-local-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	return directory;
}

async function open(routes: LocalRoute[], options: Partial<LocalServerOptions> = {}): Promise<Opened> {
	const runDir = options.runDir ?? (await makeDirectory());
	const faults: unknown[] = [];
	const server = await openLocalServer({ runDir, routes, onFault: (error) => faults.push(error), ...options });
	onTestFinished(() => server.close());
	const client = createLocalClient({ runDir });
	return {
		runDir,
		agentSocket: join(runDir, 'agent.sock'),
		adminSocket: join(runDir, 'admin.sock'),
		server,
		client,
		faults,
	};
}

interface Answer {
	readonly status: number;
	readonly headers: http.IncomingHttpHeaders;
	readonly text: string;
	readonly body: Record<string, unknown>;
}

interface Ask {
	readonly method?: string;
	readonly path?: string;
	readonly headers?: http.OutgoingHttpHeaders;
	readonly body?: string | Uint8Array;
}

/** One request by Node's own client, whatever is asked. */
function ask(socketPath: string, { method = 'GET', path = '/v1/echo', headers, body }: Ask): Promise<Answer> {
	return new Promise((resolve, reject) => {
		const request = http.request({ socketPath, method, path, headers, agent: false }, async (response) => {
			const text = Buffer.concat(await response.toArray()).toString();
			const { statusCode: status = 0, headers: got } = response;
			resolve({
				status,
				headers: got,
				text,
				body: /json/.test(got['content-type'] ?? '') && text ? JSON.parse(text) : {},
			});
		});
		request.once('error', reject);
		request.end(body);
	});
}

/** Until the connection is gone; a reset is one way of being gone. */
function untilClosed(socket: net.Socket): Promise<void> {
	socket.on('error', () => {});
	return new Promise((resolve) => {
		if (socket.closed) resolve();
		else socket.once('close', () => resolve());
	});
}

/** Writes bytes and gives back all that comes until the other side closes; a reset counts as a close. */
async function exchange(socketPath: string, bytes: string | Uint8Array, more: { halfClose?: boolean } = {}) {
	const socket = net.connect(socketPath);
	let got = '';
	socket.on('data', (chunk) => {
		got += chunk.toString('latin1');
	});
	if (more.halfClose) socket.end(bytes);
	else socket.write(bytes);
	await untilClosed(socket);
	return got;
}

const json = (document: unknown): Ask => ({
	method: 'POST',
	headers: { 'Content-Type': 'application/json' },
	body: JSON.stringify(document),
});

const echoSchema = z.strictObject({ name: z.string().min(2, 'is too short'), times: z.int().default(1) });

/** One route of each sort that the tests here ask for. */
const echoRoutes: LocalRoute[] = [
	{
		method: 'GET',
		path: '/v1/echo',
		sockets: ['agent', 'admin'],
		handle: ({ socket, method, path, query, since }) => ({
			status: 200,
			body: { socket, method, path, query: [...query], since },
		}),
	},
	localRoute({
		method: 'POST',
		path: '/v1/echo',
		sockets: ['agent', 'admin'],
		body: echoSchema,
		handle: ({ body }) => ({ status: 201, body: { name: body.name, times: body.times } }),
	}),
	{ method: 'POST', path: '/v1/reconnect', sockets: ['admin'], handle: () => ({ status: 204 }) },
];

const failing = (error: () => unknown): LocalRoute => ({
	method: 'GET',
	path: '/v1/echo',
	sockets: ['agent', 'admin'],
	handle() {
		throw error();
	},
});

async function failureOf(promise: Promise<unknown>): Promise<AgentError> {
	const error = await promise.then(
		() => null,
		(thrown: unknown) => thrown,
	);
	if (error instanceof AgentError) return error;
	throw new Error(`expected an AgentError, got ${String(error)}`);
}

describe('routing', () => {
	test('answers a route with JSON, with its query and the socket it came in on', async () => {
		const { client } = await open(echoRoutes);
		expect(await client.request('agent', 'GET', '/v1/echo?a=1&a=%C3%BC&b=x?y')).toEqual({
			socket: 'agent',
			method: 'GET',
			path: '/v1/echo',
			query: [
				['a', '1'],
				['a', 'ü'],
				['b', 'x?y'],
			],
			since: null,
		});
		expect(await client.request('admin', 'GET', '/v1/echo')).toMatchObject({ socket: 'admin' });
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

	test('an unknown path is 404, in whatever form', async () => {
		const { agentSocket } = await open(echoRoutes);
		for (const path of ['/', '/v1/echo/', '/v1/../v1/echo', '//v1/echo', '/v1/%65cho', '/constructor', '*']) {
			const answer = await ask(agentSocket, { path });
			expect(answer, path).toMatchObject({ status: 404, body: { status: 404, code: 'not-found' } });
			expect(answer.headers['content-type']).toBe('application/problem+json');
		}
	});

	test('a method that the route does not take is 405 and names those it takes', async () => {
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
		'a body of a megabyte, %s, is 413 and the sender learns it',
		async (how) => {
			const { agentSocket } = await open(echoRoutes);
			const body = Buffer.alloc(1024 * 1024, 0x20);
			const headers = how === 'in chunks' ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': body.length };
			const answer = await ask(agentSocket, { method: 'POST', headers, body });
			expect(answer).toMatchObject({ status: 413, body: { code: 'body-too-large' } });
			expect(answer.body['detail']).toContain('16384');
		},
	);

	test('a route may allow more, or less', async () => {
		const route: LocalRoute = {
			method: 'POST',
			path: '/v1/echo',
			sockets: ['agent'],
			body: z.string(),
			maxBodyBytes: 10,
			handle: () => ({ status: 204 }),
		};
		const { agentSocket } = await open([route]);
		expect(await ask(agentSocket, json('12345678'))).toMatchObject({ status: 204 });
		expect(await ask(agentSocket, json('123456789'))).toMatchObject({ status: 413 });
	});

	test('whoever never stops writing is cut off', async () => {
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
	])('%s is internal, with nothing of it in the answer, and reported once', async (_name, route) => {
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

	test('what is not HTTP is 400 and closed', async () => {
		const { agentSocket } = await open(echoRoutes);
		expect(await exchange(agentSocket, '\x16\x03\x01 hello')).toMatch(/^HTTP\/1\.1 400 .*"usage"/s);
	});

	test('one connection too many is closed; those that are open go on', async () => {
		const { agentSocket } = await open(echoRoutes, { limits: { connections: 2 } });
		const held = [net.connect(agentSocket), net.connect(agentSocket)];
		onTestFinished(() => {
			for (const socket of held) socket.destroy();
		});
		await Promise.all(held.map((socket) => once(socket, 'connect')));
		expect(await exchange(agentSocket, '')).toBe('');
		held[0]?.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		const [chunk] = held[0] ? await once(held[0], 'data') : [];
		expect(String(chunk)).toMatch(/^HTTP\/1\.1 200 /);
	});
});

/** A source of events whose consumers the test can see. */
function eventSource(replay: (request: LocalRequest, sink: EventSink) => void = () => {}) {
	const sinks = new Set<EventSink>();
	let cleanUps = 0;
	let waiting: (() => void) | null = null;
	const changed = () => waiting?.();
	const route: LocalRoute = {
		method: 'GET',
		path: '/v1/events',
		sockets: ['agent'],
		handle: (request): LocalReply => ({
			stream(sink) {
				sinks.add(sink);
				replay(request, sink);
				changed();
				return () => {
					sinks.delete(sink);
					cleanUps += 1;
					changed();
				};
			},
		}),
	};
	return {
		route,
		sinks,
		cleanUps: () => cleanUps,
		broadcast: (id: number, data: unknown) =>
			[...sinks].map((sink) => sink.send({ id: String(id), event: 'notification', data: JSON.stringify(data) })),
		async untilConsumers(count: number) {
			while (sinks.size !== count) {
				await new Promise<void>((resolve) => {
					waiting = resolve;
				});
			}
		},
	};
}

/** A consumer by the client, with what it got so far. */
function consume(client: LocalClient, options: { since?: string; signal?: AbortSignal; silenceMs?: number } = {}) {
	const events: ServerSentEvent[] = [];
	let waiting: (() => void) | null = null;
	const ended = client.events('/v1/events', options, (event) => {
		events.push(event);
		waiting?.();
	});
	return {
		events,
		ended,
		async until(count: number) {
			while (events.length < count) {
				await new Promise<void>((resolve) => {
					waiting = resolve;
				});
			}
		},
	};
}

describe('event streams', () => {
	test('events arrive in order with id, name and data, line ends included', async () => {
		const source = eventSource();
		const { client, agentSocket } = await open([source.route]);
		const consumer = consume(client);
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		sink?.comment('two\nlines');
		sink?.send({ id: '1', event: 'notification', data: '{"text":"ü"}' });
		sink?.send({ id: '2\nevent: closed', data: '{\r\n"pretty":\n1}' });
		sink?.send({ data: '""' });
		sink?.close();
		expect(await consumer.ended).toEqual({ reason: 'finished' });
		expect(consumer.events).toEqual([
			{ id: '1', event: 'notification', data: '{"text":"ü"}' },
			{ id: '2event: closed', event: 'message', data: '{\n"pretty":\n1}' },
			{ id: '2event: closed', event: 'message', data: '""' },
		]);
		expect(sink?.send({ data: '1' })).toBe(false);
		expect(await ask(agentSocket, { method: 'HEAD', path: '/v1/events' })).toMatchObject({
			status: 200,
			headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' },
		});
		expect(source.cleanUps()).toBe(1);
	});

	test.each<[string, Ask, string | null]>([
		['nothing', {}, null],
		['?since=', { path: '/v1/echo?since=7' }, '7'],
		['an empty ?since=', { path: '/v1/echo?since=' }, null],
		['Last-Event-ID', { headers: { 'Last-Event-ID': '9' } }, '9'],
		['both: the header wins', { path: '/v1/echo?since=7', headers: { 'Last-Event-ID': '9' } }, '9'],
	])('a consumer resumes by %s', async (_name, request, since) => {
		const { agentSocket } = await open(echoRoutes);
		expect((await ask(agentSocket, request)).body['since']).toBe(since);
	});

	test('a consumer that comes back gets what it has missed', async () => {
		const source = eventSource(({ since }, sink) => {
			for (let id = Number(since ?? 0) + 1; id <= 5; id += 1) sink.send({ id: String(id), data: '{}' });
			sink.close();
		});
		const { client } = await open([source.route]);
		const consumer = consume(client, { since: '3' });
		await consumer.ended;
		expect(consumer.events.map(({ id }) => id)).toEqual(['4', '5']);
		expect(source.cleanUps()).toBe(1);
	});

	test('a long replay that waits for the consumer is not cut off', async () => {
		const count = 64;
		const data = JSON.stringify('x'.repeat(64 * 1024));
		const source = eventSource(async (_request, sink) => {
			for (let id = 1; id <= count; id += 1) {
				sink.send({ id: String(id), data });
				await sink.drained();
			}
			sink.close();
		});
		const { client } = await open([source.route]);
		const consumer = consume(client);
		expect(await consumer.ended).toEqual({ reason: 'finished' });
		expect(consumer.events).toHaveLength(count);
	});

	test('fifty consumers get every event', async () => {
		const source = eventSource();
		const { client } = await open([source.route]);
		const consumers = Array.from({ length: 50 }, () => consume(client));
		await source.untilConsumers(50);
		for (let id = 1; id <= 20; id += 1) source.broadcast(id, { id });
		await Promise.all(consumers.map((consumer) => consumer.until(20)));
		for (const { events } of consumers)
			expect(events.map(({ id }) => Number(id))).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
		for (const sink of [...source.sinks]) sink.close();
		await Promise.all(consumers.map((consumer) => consumer.ended));
		expect(source.cleanUps()).toBe(50);
	});

	test('a slow consumer is closed and told so; the others go on', async () => {
		const source = eventSource();
		const { client, agentSocket } = await open([source.route]);
		const slow = net.connect(agentSocket);
		slow.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		const quick = consume(client);
		await source.untilConsumers(2);

		const data = 'x'.repeat(64 * 1024);
		let sent = 0;
		while (source.sinks.size === 2 && sent < 100) {
			sent += 1;
			source.broadcast(sent, data);
			await quick.until(sent);
		}
		expect(source.sinks.size).toBe(1);
		// The queue holds a megabyte, the kernel some more.
		expect(sent).toBeGreaterThan(16);
		source.broadcast(sent + 1, 'after');
		await quick.until(sent + 1);

		let tail = '';
		slow.on('data', (chunk) => {
			tail = (tail + chunk.toString()).slice(-200);
		});
		await untilClosed(slow);
		expect(tail).toContain('event: closed\ndata: {"reason":"slow"}\n\n');
	});

	test('a slow consumer that never reads again is dropped', async () => {
		const source = eventSource();
		const { agentSocket, server } = await open([source.route], {
			limits: { streamQueueBytes: 1000, requestMs: 30, closeGraceMs: 60_000 },
		});
		const stuck = net.connect(agentSocket);
		onTestFinished(() => void stuck.destroy());
		stuck.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		source.broadcast(1, 'x'.repeat(4 * 1024 * 1024));
		source.broadcast(2, 'x');
		expect(source.sinks.size).toBe(0);
		// With a minute of grace this ends in time only because the connection is gone.
		await server.close();
	});

	test('one that has stopped reading is closed with a reason, however little it is behind', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { keepAliveMs: 10, requestMs: 60_000 } });
		const stuck = net.connect(agentSocket);
		onTestFinished(() => void stuck.destroy());
		stuck.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		source.broadcast(1, 'x'.repeat(700_000));
		expect(sink?.isBehind).toBe(true);
		await source.untilConsumers(0);
		let tail = '';
		stuck.on('data', (chunk) => {
			tail = (tail + chunk.toString()).slice(-200);
		});
		await untilClosed(stuck);
		expect(tail).toContain('event: closed\ndata: {"reason":"slow"}\n\n');
	});

	test('a consumer that is waited for and takes nothing at all is closed as slow', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { requestMs: 50 } });
		const stuck = net.connect(agentSocket);
		stuck.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		expect(sink?.isBehind).toBe(false);
		source.broadcast(1, 'x'.repeat(900_000));
		expect(sink?.isBehind).toBe(true);
		await sink?.drained();
		expect(source.sinks.size).toBe(0);
		stuck.destroy();
	});

	test('one event of any size goes out', async () => {
		const source = eventSource();
		const { client } = await open([source.route], { limits: { streamQueueBytes: 100 } });
		const consumer = consume(client);
		await source.untilConsumers(1);
		const data = 'x'.repeat(1_500_000);
		expect(source.broadcast(1, data)).toEqual([true]);
		await consumer.until(1);
		expect(consumer.events[0]?.data).toBe(JSON.stringify(data));
	});

	test('a quiet stream carries comments', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { keepAliveMs: 10 } });
		const socket = net.connect(agentSocket);
		onTestFinished(() => void socket.destroy());
		socket.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		let got = '';
		for await (const chunk of socket) {
			got += String(chunk);
			if ((got.match(/: keep-alive\n\n/g)?.length ?? 0) >= 2) break;
		}
		expect(got).toMatch(/^HTTP\/1\.1 200 .*text\/event-stream/s);
	});

	test('a consumer that leaves is cleaned up once', async () => {
		const source = eventSource();
		const { client } = await open([source.route]);
		const leave = new AbortController();
		const consumer = consume(client, { signal: leave.signal });
		await source.untilConsumers(1);
		source.broadcast(1, {});
		await consumer.until(1);
		leave.abort();
		expect(await consumer.ended).toEqual({ reason: 'aborted' });
		await source.untilConsumers(0);
		expect(source.cleanUps()).toBe(1);
	});

	test('a cleaning up that fails is reported and does no harm', async () => {
		const { client, faults } = await open([
			{
				...failing(() => ''),
				handle: () => ({
					stream(sink) {
						sink.close('done');
						return () => {
							throw new Error('cleaning up');
						};
					},
				}),
			},
		]);
		expect(await client.events('/v1/echo', {}, () => {})).toEqual({ reason: 'done' });
		expect(faults).toEqual([new Error('cleaning up')]);
	});
});

/** A body that is never ready before it is asked for, and how much of it was taken. */
function endless(chunkBytes: number, chunks = Number.POSITIVE_INFINITY) {
	const chunk = Buffer.alloc(chunkBytes, 'x');
	const taken = { bytes: 0 };
	const content = new Readable({
		read() {
			if (taken.bytes >= chunks * chunkBytes) return void this.push(null);
			taken.bytes += chunkBytes;
			this.push(chunk);
		},
	});
	return { content, taken };
}

const MEGABYTE = 1024 * 1024;
/** What kernel and streams may hold between two ends. */
const IN_BETWEEN = 4 * MEGABYTE;

describe('replies', () => {
	const get = (handle: LocalRoute['handle']): LocalRoute => ({ ...failing(() => ''), handle });

	test('text and headers of the route go out as they are', async () => {
		const headers = { 'Content-Type': 'text/plain; version=0.0.4', 'Cache-Control': 'max-age=5', Link: ['<a>', '<b>'] };
		const { agentSocket } = await open([get(() => ({ status: 203, headers, text: 'up 1\n' }))]);
		const answer = await ask(agentSocket, {});
		expect(answer).toMatchObject({ status: 203, text: 'up 1\n' });
		expect(answer.headers).toMatchObject({
			'content-type': 'text/plain; version=0.0.4',
			'cache-control': 'max-age=5',
			'content-length': '5',
			link: '<a>, <b>',
		});
		expect(await ask(agentSocket, { method: 'HEAD' })).toMatchObject({
			status: 203,
			text: '',
			headers: { link: '<a>, <b>' },
		});
	});

	test('text says that it is text, and nothing is kept', async () => {
		const { agentSocket } = await open([get(() => ({ status: 200, text: 'ü' }))]);
		const answer = await ask(agentSocket, {});
		expect(answer.headers).toMatchObject({ 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' });
	});

	test.each<[string, LocalReply]>([
		['a body that is no JSON', { status: 200, headers: { 'X-Left': '1', 'Content-Type': 'a/b' }, body: 1n }],
		['a header that is none', { status: 200, headers: { 'X-Left': '1', 'X-Bad': 'a\nb' }, text: '' }],
		[
			'a content that fails at once',
			{ status: 200, headers: { 'X-Left': '1', 'Content-Length': '9' }, content: Readable.from(failsAfter([])) },
		],
	])('of %s nothing is left in the error', async (_name, reply) => {
		const { agentSocket, faults } = await open([get(() => reply)]);
		const answer = await ask(agentSocket, {});
		expect(answer).toMatchObject({ status: 500, body: { code: 'internal' } });
		expect(answer.headers).not.toHaveProperty('x-left');
		expect(answer.headers['content-type']).toBe('application/problem+json');
		expect(faults).toHaveLength(1);
	});

	async function* failsAfter(chunks: readonly string[], error: Error = new Error('secret')) {
		yield* chunks;
		throw error;
	}

	test('a content is sent in pieces, whole; HEAD leaves it alone', async () => {
		const sources: Readable[] = [];
		const { agentSocket } = await open([
			get(() => {
				const content = Readable.from(['a', Buffer.from('ü'), 'c']);
				sources.push(content);
				return { status: 206, headers: { 'Content-Type': 'x/y' }, content };
			}),
		]);
		const answer = await ask(agentSocket, {});
		expect(answer).toMatchObject({ status: 206, text: 'aüc', headers: { 'content-type': 'x/y' } });
		expect(await ask(agentSocket, { method: 'HEAD' })).toMatchObject({ status: 206, text: '' });
		expect(sources.map(({ destroyed, readableDidRead }) => [destroyed, readableDidRead])).toEqual([
			[true, true],
			[true, false],
		]);
		const empty = await open([get(() => ({ status: 200, content: Readable.from([]) }))]);
		expect(await ask(empty.agentSocket, {})).toMatchObject({ status: 200, text: '' });
	});

	test('a content is read only as fast as the caller takes it', async () => {
		const { content, taken } = endless(64 * 1024, 1024);
		const { agentSocket } = await open([get(() => ({ status: 200, content }))]);
		const request = http.get({ socketPath: agentSocket, path: '/v1/echo', agent: false });
		const [response] = (await once(request, 'response')) as [http.IncomingMessage];
		let received = 0;
		let lead = 0;
		for await (const chunk of response) {
			received += chunk.length;
			lead = Math.max(lead, taken.bytes - received);
			await new Promise(setImmediate);
		}
		expect(received).toBe(64 * MEGABYTE);
		expect(lead).toBeLessThan(IN_BETWEEN);
	});

	test('a content ends when the caller leaves', async () => {
		const { content } = endless(1024);
		const ended = once(content, 'close');
		const { agentSocket, faults } = await open([get(() => ({ status: 200, content }))]);
		const request = http.get({ socketPath: agentSocket, path: '/v1/echo', agent: false });
		const [response] = (await once(request, 'response')) as [http.IncomingMessage];
		await once(response, 'data');
		response.destroy();
		await ended;
		expect(faults).toEqual([]);
	});

	test('a content that nobody waits for any more is not begun', async () => {
		const { content, taken } = endless(1024);
		const begun = Promise.withResolvers<AbortSignal>();
		const { agentSocket } = await open([
			get(async ({ signal }) => {
				begun.resolve(signal);
				await once(signal, 'abort');
				return { status: 200, content };
			}),
		]);
		const ended = once(content, 'close');
		const socket = net.connect(agentSocket);
		socket.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		await begun.promise;
		socket.destroy();
		await ended;
		expect(taken.bytes).toBe(0);
	});

	test('a content that fails first is an error like any other; one that fails later is cut off', async () => {
		const busy = new AgentError('service-overloaded', 'Busy.');
		const { agentSocket, faults } = await open([
			get(() => ({ status: 200, content: Readable.from(failsAfter([], busy)) })),
			{ ...get(() => ({ status: 200, content: Readable.from(failsAfter(['begun'])) })), path: '/v1/later' },
		]);
		expect(await ask(agentSocket, {})).toMatchObject({ status: 503, body: { code: 'service-overloaded' } });
		expect(faults).toEqual([]);
		// Without its last chunk, of length 0.
		const cut = await exchange(agentSocket, 'GET /v1/later HTTP/1.1\r\nHost: x\r\n\r\n');
		expect(cut).toMatch(/^HTTP\/1\.1 200 .*\r\n\r\n5\r\nbegun\r\n$/s);
		expect(faults).toEqual([new Error('secret')]);
	});

	test('who stops reading is dropped; who waits for a slow source is not', async () => {
		const slow = new Readable({ read() {} });
		const { content } = endless(64 * 1024);
		const { agentSocket, faults } = await open(
			[get(() => ({ status: 200, content })), { ...get(() => ({ status: 200, content: slow })), path: '/v1/slow' }],
			{ limits: { requestMs: 50 } },
		);
		const request = http.get({ socketPath: agentSocket, path: '/v1/slow', agent: false });
		slow.push('begun ');
		const [response] = (await once(request, 'response')) as [http.IncomingMessage];
		const stuck = net.connect(agentSocket);
		onTestFinished(() => void stuck.destroy());
		stuck.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		await once(content, 'close');
		slow.push('and done');
		slow.push(null);
		expect(Buffer.concat(await response.toArray()).toString()).toBe('begun and done');
		expect(faults).toEqual([]);
	});
});

describe('prefixes and raw bodies', () => {
	const service = (
		handle: (exchange: RawExchange, request: LocalRequest) => LocalReply | Promise<LocalReply>,
	): LocalRoute =>
		rawRoute({
			method: '*',
			path: '/v1/service/',
			prefix: true,
			sockets: ['agent'],
			handle: (request) => handle(request.body, request),
		});
	const describing = service(({ request, target }, { method, path, query }) => ({
		status: 200,
		body: { by: 'service', method, verb: request.method, path, target, query: [...query] },
	}));

	test('a prefix takes everything under it, by any method, as it stands in the request line', async () => {
		const { agentSocket } = await open([describing]);
		for (const verb of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'])
			expect((await ask(agentSocket, { method: verb, path: '/v1/service/a/..%2Fb//?c=d&e' })).body).toEqual({
				by: 'service',
				method: verb,
				verb,
				path: '/v1/service/a/..%2Fb//',
				target: '/a/..%2Fb//?c=d&e',
				query: [
					['c', 'd'],
					['e', ''],
				],
			});
		expect((await ask(agentSocket, { path: '/v1/service/' })).body).toMatchObject({
			target: '/',
			path: '/v1/service/',
		});
		expect(await ask(agentSocket, { method: 'HEAD', path: '/v1/service/a' })).toMatchObject({ status: 200, text: '' });
		expect(await ask(agentSocket, { method: 'OPTIONS', path: '/v1/service/a' })).toMatchObject({
			status: 405,
			headers: { allow: 'GET, HEAD, POST, PUT, PATCH, DELETE' },
		});
	});

	test('a prefix takes nothing beside it', async () => {
		const { agentSocket, adminSocket } = await open([describing]);
		for (const path of [
			'/v1/service',
			'/v1/services/a',
			'/v1/serv',
			'/v1/%73ervice/a',
			'//v1/service/a',
			'/V1/service/a',
		])
			expect(await ask(agentSocket, { path }), path).toMatchObject({ status: 404 });
		expect(await ask(adminSocket, { path: '/v1/service/a' })).toMatchObject({
			status: 403,
			body: { detail: '/v1/service/a is answered on agent.sock, not on admin.sock.' },
		});
	});

	test('an exact path wins over a prefix, and a longer prefix over a shorter', async () => {
		const named = (path: string, prefix: boolean): LocalRoute => ({
			method: 'GET',
			path,
			prefix,
			sockets: ['agent'],
			handle: () => ({ status: 200, body: { by: path } }),
		});
		const { agentSocket } = await open([
			describing,
			named('/v1/service/a/', true),
			named('/v1/service/a/b', false),
			named('/', true),
		]);
		const by = async (path: string) => (await ask(agentSocket, { path })).body['by'];
		expect(await by('/v1/service/x')).toBe('service');
		expect(await by('/v1/service/a/x')).toBe('/v1/service/a/');
		expect(await by('/v1/service/a/b')).toBe('/v1/service/a/b');
		expect(await by('/v1/service/a/b/')).toBe('/v1/service/a/');
		expect(await by('/else')).toBe('/');
	});

	test('a body is passed on while it still arrives', async () => {
		const { agentSocket } = await open([service(({ request }) => ({ status: 200, content: request }))]);
		const request = http.request({ socketPath: agentSocket, method: 'PUT', path: '/v1/service/a', agent: false });
		request.write('first ');
		const [response] = (await once(request, 'response')) as [http.IncomingMessage];
		expect(String((await once(response, 'data'))[0])).toBe('first ');
		request.end('second');
		expect(Buffer.concat(await response.toArray()).toString()).toBe('second');
	});

	test('a body is read only as fast as the handler takes it, however long it is', async () => {
		let lead = 0;
		const { content, taken } = endless(64 * 1024, 1024);
		const { agentSocket } = await open([
			service(async ({ request }) => {
				let received = 0;
				for await (const chunk of request) {
					received += chunk.length;
					lead = Math.max(lead, taken.bytes - received);
					await new Promise(setImmediate);
				}
				return { status: 200, body: received };
			}),
		]);
		const request = http.request({ socketPath: agentSocket, method: 'POST', path: '/v1/service/a', agent: false });
		const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
		await pipeline(content, request);
		const [response] = await answered;
		expect(Buffer.concat(await response.toArray()).toString()).toBe(String(64 * MEGABYTE));
		expect(lead).toBeLessThan(IN_BETWEEN);
	});

	test('the deadline for ordinary bodies is not one for raw ones', async () => {
		const begun = Promise.withResolvers<void>();
		const { agentSocket } = await open(
			[
				...echoRoutes,
				service(({ request }) => {
					begun.resolve();
					return { status: 200, content: request };
				}),
			],
			{ limits: { requestMs: 50 } },
		);
		const request = http.request({ socketPath: agentSocket, method: 'PUT', path: '/v1/service/a', agent: false });
		const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
		request.write('early ');
		await begun.promise;
		for (const late of ['POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{', 'GET / HTTP/1.1\r\n'])
			expect(await exchange(agentSocket, late)).toMatch(/^HTTP\/1\.1 408 /);
		request.end('late');
		const [response] = await answered;
		expect(Buffer.concat(await response.toArray()).toString()).toBe('early late');
	});

	test('a handler may answer by itself', async () => {
		const { agentSocket, faults } = await open([
			service(async ({ request, response }) => {
				response.writeHead(201, { 'X-Own': 'yes' });
				await pipeline(request, response);
				return { answered: true };
			}),
		]);
		const answer = await ask(agentSocket, { method: 'POST', path: '/v1/service/a', body: 'body' });
		expect(answer).toMatchObject({ status: 201, text: 'body', headers: { 'x-own': 'yes' } });
		expect(faults).toEqual([]);
	});

	test('one that did not, although it says so, is internal', async () => {
		const { agentSocket, faults } = await open([service(() => ({ answered: true }))]);
		expect(await ask(agentSocket, { path: '/v1/service/a' })).toMatchObject({
			status: 500,
			body: { code: 'internal' },
		});
		expect(faults).toHaveLength(1);
	});

	test('an error in the middle of a body reaches its sender, who is then cut off', async () => {
		const { agentSocket } = await open(
			[
				...echoRoutes,
				service(async ({ request }) => {
					await once(request, 'data');
					throw new AgentError('service-unreachable', 'Away.');
				}),
			],
			{ limits: { lingerMs: 20 } },
		);
		const socket = net.connect(agentSocket);
		let got = '';
		socket.on('data', (chunk) => {
			got += String(chunk);
		});
		const closed = untilClosed(socket);
		const spaces = `10000\r\n${' '.repeat(0x10000)}\r\n`;
		const pour = () => {
			while (!socket.destroyed && socket.write(spaces));
		};
		socket.on('drain', pour);
		socket.write('POST /v1/service/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
		pour();
		await closed;
		expect(got).toMatch(/^HTTP\/1\.1 503 .*"service-unreachable"/s);
		expect(await ask(agentSocket, {})).toMatchObject({ status: 200 });
	});

	test('whoever goes on writing after the answer of a raw route is cut off', async () => {
		const { agentSocket } = await open([service(() => ({ status: 202 }))], { limits: { lingerMs: 20 } });
		const bytes = 'POST /v1/service/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{';
		expect(await exchange(agentSocket, bytes)).toMatch(/^HTTP\/1\.1 202 /);
	});
});

/** A process that listens on a path until it is killed. */
async function startListener(path: string) {
	const code = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.stdout.write('up'))`;
	const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
	const exited = once(child, 'exit');
	onTestFinished(async () => {
		child.kill('SIGKILL');
		await exited;
	});
	await once(child.stdout, 'data');
	return {
		async kill() {
			child.kill('SIGKILL');
			await exited;
		},
	};
}

describe('sockets', () => {
	test('are open to owner and group only, whatever the umask', async () => {
		const umask = process.umask(0);
		onTestFinished(() => void process.umask(umask));
		const { agentSocket, adminSocket, server } = await open(echoRoutes);
		expect(process.umask()).toBe(0);
		for (const path of [agentSocket, adminSocket]) expect((await stat(path)).mode & 0o777).toBe(0o660);
		expect(server.notices).toEqual([]);
	});

	test('a group is given by name or number', async () => {
		const groups = (await readFile('/etc/group', 'utf8')).split('\n').map((line) => line.split(':'));
		const mine = process.getuid?.() === 0 ? groups.map(([, , gid]) => Number(gid)) : (process.getgroups?.() ?? []);
		const [name = '', , gid = ''] = groups.findLast((fields) => fields[2] && mine.includes(Number(fields[2]))) ?? [];
		const { agentSocket, adminSocket, server } = await open(echoRoutes, {
			groups: { agent: name, admin: Number(gid) },
		});
		expect(server.notices).toEqual([]);
		for (const path of [agentSocket, adminSocket]) {
			const { gid: found, mode } = await stat(path);
			expect([found, mode & 0o777]).toEqual([Number(gid), 0o660]);
		}
	});

	test('with a group that does not exist only the owner gets in, and a notice says so', async () => {
		const { adminSocket, agentSocket, server } = await open(echoRoutes, { groups: { admin: 'no-such-group' } });
		expect(server.notices).toMatchObject([{ code: 'socket-failed' }]);
		expect(server.notices[0]?.message).toContain('no-such-group');
		expect((await stat(adminSocket)).mode & 0o777).toBe(0o600);
		expect((await stat(agentSocket)).mode & 0o777).toBe(0o660);
		expect(await ask(adminSocket, {})).toMatchObject({ status: 200 });
	});

	test('what a crash has left behind is replaced', async () => {
		const runDir = await makeDirectory();
		const crashed = await startListener(join(runDir, 'agent.sock'));
		await crashed.kill();
		const client = createLocalClient({ runDir });
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).code).toBe('agent-not-running');
		await open(echoRoutes, { runDir });
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ socket: 'agent' });
	});

	test('a live one is left alone', async () => {
		const first = await open(echoRoutes);
		const error = await failureOf(openLocalServer({ runDir: first.runDir, routes: [] }));
		expect(error.failure).toMatchObject({ code: 'socket-failed' });
		expect(error.message).toContain(first.agentSocket);
		expect(await first.client.request('agent', 'GET', '/v1/echo')).toMatchObject({ socket: 'agent' });
		expect(await first.client.request('admin', 'GET', '/v1/echo')).toMatchObject({ socket: 'admin' });
	});

	test('when one of the two cannot be had, the other is not left behind', async () => {
		const runDir = await makeDirectory();
		await startListener(join(runDir, 'admin.sock'));
		expect((await failureOf(openLocalServer({ runDir, routes: [] }))).code).toBe('socket-failed');
		await expect(stat(join(runDir, 'agent.sock'))).rejects.toMatchObject({ code: 'ENOENT' });
	});

	test('a file of another kind in its place is kept', async () => {
		const runDir = await makeDirectory();
		await writeFile(join(runDir, 'agent.sock'), 'precious');
		expect((await failureOf(openLocalServer({ runDir, routes: [] }))).code).toBe('socket-failed');
		expect(await readFile(join(runDir, 'agent.sock'), 'utf8')).toBe('precious');
	});

	test('the run directory is made; one that cannot be is an error', async () => {
		const parent = await makeDirectory();
		await writeFile(join(parent, 'file'), '');
		const { client } = await open(echoRoutes, { runDir: join(parent, 'a', 'b') });
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ socket: 'agent' });
		const error = await failureOf(openLocalServer({ runDir: join(parent, 'file', 'x'), routes: [] }));
		expect(error.failure).toMatchObject({ code: 'socket-failed', message: expect.stringContaining('ENOTDIR') });
	});

	test('a path of 107 bytes works, a longer one is refused by name', async () => {
		const parent = await makeDirectory();
		const runDirOf = (bytes: number) => join(parent, 'd'.repeat(bytes - parent.length - '//agent.sock'.length));
		const fits = await open(echoRoutes, { runDir: runDirOf(107) });
		expect(Buffer.byteLength(fits.agentSocket)).toBe(107);
		expect(await fits.client.request('agent', 'GET', '/v1/echo')).toMatchObject({ socket: 'agent' });

		const error = await failureOf(openLocalServer({ runDir: runDirOf(108), routes: [] }));
		expect(error.failure).toMatchObject({ code: 'socket-failed', message: expect.stringContaining('108') });
		const client = createLocalClient({ runDir: runDirOf(108) });
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).code).toBe('socket-failed');
	});

	test('a socket that was opened beforehand is taken over and stays', async () => {
		const runDir = await makeDirectory();
		const elsewhere = join(runDir, 'first.sock');
		const opener = net.createServer().listen(elsewhere);
		await once(opener, 'listening');
		// Closing the opener removes its name; the socket lives on under the other.
		await link(elsewhere, join(runDir, 'agent.sock'));
		const { fd } = (opener as unknown as { _handle: { fd: number } })._handle;
		const program = `
			const { openLocalServer } = await import(process.argv[1]);
			const routes = [{ method: 'GET', path: '/v1/echo', sockets: ['agent'], handle: () => ({ status: 200, body: 'given' }) }];
			const server = await openLocalServer({ runDir: process.argv[2], routes, listen: { agent: { fd: 3 } } });
			process.stdin.once('data', async () => {
				await server.close();
				process.exit();
			});
			process.stdout.write('up');`;
		const source = new URL('../../src/local-api/server/local-server.ts', import.meta.url).href;
		const child = spawn(process.execPath, ['--input-type=module', '-e', program, source, runDir], {
			stdio: ['pipe', 'pipe', 'inherit', fd],
		});
		const exited = once(child, 'exit');
		onTestFinished(() => void child.kill('SIGKILL'));
		opener.close();
		await once(child.stdout as NodeJS.ReadableStream, 'data');
		const client = createLocalClient({ runDir });
		expect(await client.request('agent', 'GET', '/v1/echo')).toBe('given');
		expect((await failureOf(client.request('admin', 'GET', '/v1/echo'))).code).toBe('access-denied');
		child.stdin?.write('stop');
		expect(await exited).toEqual([0, null]);
		expect((await stat(join(runDir, 'agent.sock'))).isSocket()).toBe(true);
		await expect(stat(join(runDir, 'admin.sock'))).rejects.toMatchObject({ code: 'ENOENT' });
	});
});

describe('closing', () => {
	test('removes the sockets, as often as it is asked', async () => {
		const { server, agentSocket, adminSocket, client } = await open(echoRoutes);
		await Promise.all([server.close(), server.close()]);
		await server.close();
		for (const path of [agentSocket, adminSocket]) await expect(stat(path)).rejects.toMatchObject({ code: 'ENOENT' });
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).code).toBe('agent-not-running');
	});

	test('tells the consumers of streams', async () => {
		const source = eventSource();
		const { server, client } = await open([source.route]);
		const consumers = [consume(client), consume(client)];
		await source.untilConsumers(2);
		source.broadcast(1, 'last');
		await server.close();
		for (const consumer of consumers) {
			expect(await consumer.ended).toEqual({ reason: 'stopping' });
			expect(consumer.events.map(({ data }) => data)).toEqual(['"last"']);
		}
		expect(source.cleanUps()).toBe(2);
	});

	test('a stream that would begin only then ends at once', async () => {
		const begun = Promise.withResolvers<void>();
		const go = Promise.withResolvers<void>();
		const source = eventSource();
		const route: LocalRoute = {
			...source.route,
			async handle(request) {
				begun.resolve();
				await go.promise;
				return source.route.handle(request);
			},
		};
		const { server, client } = await open([route], { limits: { closeGraceMs: 60_000 } });
		const consumer = consume(client);
		await begun.promise;
		const closed = server.close();
		go.resolve();
		expect(await consumer.ended).toEqual({ reason: 'stopping' });
		await closed;
		expect(source.cleanUps()).toBe(1);
	});

	test('lets a request under way finish, and keeps no connection for the next', async () => {
		const begun = Promise.withResolvers<void>();
		const go = Promise.withResolvers<LocalReply>();
		const { server, agentSocket } = await open(
			[
				{
					...failing(() => ''),
					handle() {
						begun.resolve();
						return go.promise;
					},
				},
			],
			{ limits: { closeGraceMs: 60_000 } },
		);
		const idle = net.connect(agentSocket);
		await once(idle, 'connect');
		const idleClosed = untilClosed(idle.resume());
		const answer = exchange(agentSocket, 'GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		await begun.promise;
		const closed = server.close();
		go.resolve({ status: 200, body: 'done' });
		expect(await answer).toMatch(/^HTTP\/1\.1 200 .*Connection: close.*"done"$/s);
		await closed;
		await idleClosed;
	});

	test('does not wait for ever, and tells the handler', async () => {
		const begun = Promise.withResolvers<AbortSignal>();
		const { server, client, faults } = await open(
			[
				{
					...failing(() => ''),
					async handle({ signal }) {
						begun.resolve(signal);
						await once(signal, 'abort');
						throw new AgentError('usage', 'nobody reads this');
					},
				},
			],
			{ limits: { closeGraceMs: 20 } },
		);
		const asked = failureOf(client.request('agent', 'GET', '/v1/echo'));
		const signal = await begun.promise;
		const aborted = once(signal, 'abort');
		await server.close();
		expect((await asked).failure).toMatchObject({ code: 'agent-not-running' });
		await aborted;
		expect(faults).toEqual([]);
	});
});

/** Something else on the agent's socket: answers each connection with these bytes, and leaves the rest to the test. */
async function pretend(runDir: string, say: (socket: net.Socket) => void): Promise<void> {
	const sockets = new Set<net.Socket>();
	const server = net.createServer((socket) => {
		sockets.add(socket);
		socket.on('error', () => {});
		socket.once('data', () => say(socket));
	});
	server.listen(join(runDir, 'agent.sock'));
	await once(server, 'listening');
	onTestFinished(async () => {
		for (const socket of sockets) socket.destroy();
		server.close();
		await once(server, 'close');
	});
}

const answerOf = (status: string, type: string, body: string) =>
	`HTTP/1.1 ${status}\r\nContent-Type: ${type}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;
const streamHead = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n';

describe('the client', () => {
	test('no socket: the agent does not run', async () => {
		const runDir = await makeDirectory();
		const client = createLocalClient({ runDir });
		const error = await failureOf(client.request('admin', 'GET', '/v1/status'));
		expect(error.failure).toMatchObject({ code: 'agent-not-running' });
		expect(error.message).toContain(join(runDir, 'admin.sock'));
		expect((await failureOf(client.events('/v1/events', {}, () => {}))).code).toBe('agent-not-running');
	});

	test('a socket that this user may not use: says which one and whose it is, and whoever may has an answer', async () => {
		const { runDir, adminSocket, client } = await open(echoRoutes);
		await chmod(runDir, 0o755);
		await chmod(adminSocket, 0);
		const root = process.getuid?.() === 0;
		if (root) process.seteuid?.(65534);
		onTestFinished(() => {
			if (root) process.seteuid?.(0);
		});
		const error = await failureOf(client.request('admin', 'GET', '/v1/status'));
		if (root) process.seteuid?.(0);
		const { gid } = await stat(adminSocket);
		const group = new RegExp(`^(\\w[\\w-]*):[^:]*:${gid}:`, 'm').exec(await readFile('/etc/group', 'utf8'))?.[1];
		expect(error.failure).toMatchObject({
			code: 'access-denied',
			remedy: expect.stringContaining(`group ${group ?? gid}`),
		});
		expect(error.message).toContain(adminSocket);
		if (!root) await chmod(adminSocket, 0o600);
		expect(await client.request('admin', 'GET', '/v1/echo')).toMatchObject({ socket: 'admin' });
	});

	test('an agent that does not answer in time', async () => {
		const runDir = await makeDirectory();
		await pretend(runDir, () => {});
		const client = createLocalClient({ runDir });
		const error = await failureOf(client.request('agent', 'GET', '/v1/status', undefined, { deadlineMs: 20 }));
		expect(error.failure).toMatchObject({ code: 'request-timeout', message: expect.stringContaining('0.02 s') });
		expect((await failureOf(client.events('/v1/events', { silenceMs: 20 }, () => {}))).code).toBe('request-timeout');
	});

	test.each<[string, string, Partial<Record<'code' | 'message' | 'remedy', string>>]>([
		[
			'a code of another version',
			answerOf('418 Teapot', 'application/problem+json', '{"code":"too-new","detail":"Tea.","remedy":"Drink."}'),
			{ code: 'internal', message: 'Tea.', remedy: 'Drink.' },
		],
		[
			'a code that every object has',
			answerOf('500 X', 'application/problem+json', '{"code":"toString","title":"Oh"}'),
			{ code: 'internal', message: 'Oh' },
		],
		['an error without words', answerOf('500 X', 'text/plain', ''), { code: 'internal' }],
		['an error that is a list', answerOf('400 X', 'application/json', '[1]'), { code: 'internal' }],
		['an answer that is no JSON', answerOf('200 OK', 'text/html', '<p>'), { code: 'bad-response' }],
		['something else than HTTP', 'SSH-2.0-x\r\n', { code: 'bad-response' }],
		['an answer cut short', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{', { code: 'agent-not-running' }],
		['no answer', '', { code: 'agent-not-running' }],
	])('%s', async (_name, bytes, expected) => {
		const runDir = await makeDirectory();
		await pretend(runDir, (socket) => socket.end(bytes));
		const client = createLocalClient({ runDir });
		expect((await failureOf(client.request('agent', 'GET', '/v1/status'))).failure).toMatchObject(expected);
		expect((await failureOf(client.events('/v1/events', {}, () => {}))).failure).toMatchObject(
			bytes.startsWith('HTTP/1.1 200') ? { code: 'bad-response' } : expected,
		);
	});

	test('a stream that breaks off without a reason is a failure, after its events', async () => {
		const runDir = await makeDirectory();
		await pretend(runDir, (socket) => socket.end(`${streamHead}id: 1\ndata: 1\n\ndata: half`));
		const got: string[] = [];
		const error = await failureOf(
			createLocalClient({ runDir }).events('/v1/events', {}, ({ data }) => void got.push(data)),
		);
		expect(error.code).toBe('agent-not-running');
		expect(got).toEqual(['1']);
	});

	test('a stream that goes silent is a failure', async () => {
		const runDir = await makeDirectory();
		await pretend(runDir, (socket) => void socket.write(`${streamHead}data: 1\n\n`));
		const consumer = consume(createLocalClient({ runDir }), { silenceMs: 30 });
		expect((await failureOf(consumer.ended)).code).toBe('request-timeout');
		expect(consumer.events).toHaveLength(1);
	});

	test('a line without end is a failure, not all of the memory', async () => {
		const runDir = await makeDirectory();
		await pretend(runDir, (socket) => {
			socket.write(`${streamHead}data: `);
			const pour = () => {
				while (!socket.destroyed && socket.write('x'.repeat(65_536)));
			};
			socket.on('drain', pour);
			pour();
		});
		const error = await failureOf(createLocalClient({ runDir }).events('/v1/events', {}, () => {}));
		expect(error.code).toBe('response-too-large');
	});

	test('waits for its consumer, however long, and passes on what the consumer throws', async () => {
		const source = eventSource((_request, sink) => {
			for (const id of ['1', '2']) sink.send({ id, data: '{}' });
		});
		const { client } = await open([source.route]);
		const begun = Promise.withResolvers<void>();
		const gate = Promise.withResolvers<void>();
		const seen: (string | null)[] = [];
		const own = new TypeError('of the consumer');
		const ended = client.events('/v1/events', { silenceMs: 50 }, async ({ id }) => {
			seen.push(id);
			begun.resolve();
			await gate.promise;
			if (id === '3') throw own;
		});
		const settled = expect(ended).rejects.toBe(own);
		await begun.promise;
		// By the time this one complains, the other has been at work for longer than it puts up with silence.
		expect((await failureOf(client.events('/v1/events', { silenceMs: 100 }, () => {}))).code).toBe('request-timeout');
		expect(seen).toEqual(['1']);
		source.broadcast(3, {});
		gate.resolve();
		await settled;
		expect(seen).toEqual(['1', '2', '3']);
		await source.untilConsumers(0);
	});

	test('does not even connect when it is told to stop before', async () => {
		const client = createLocalClient({ runDir: await makeDirectory() });
		expect(await client.events('/v1/events', { signal: AbortSignal.abort() }, () => {})).toEqual({ reason: 'aborted' });
	});
});

describe('reading a stream', () => {
	const parseAll = (pieces: readonly Uint8Array[]) => pieces.flatMap(createEventStreamParser());
	const bytesOf = (text: string) => new TextEncoder().encode(text);

	test.each<[string, string, ServerSentEvent[]]>([
		['LF', 'id: 1\nevent: a\ndata: x\n\n', [{ id: '1', event: 'a', data: 'x' }]],
		['CRLF', 'id: 1\r\nevent: a\r\ndata: x\r\n\r\n', [{ id: '1', event: 'a', data: 'x' }]],
		['CR', 'id: 1\revent: a\rdata: x\r\r', [{ id: '1', event: 'a', data: 'x' }]],
		['several lines', 'data: a\ndata\ndata:b\n\n', [{ id: null, event: 'message', data: 'a\n\nb' }]],
		[
			'comments and unknown fields',
			': hi\nretry: 5\nother: 1\ndata: x\n\n',
			[{ id: null, event: 'message', data: 'x' }],
		],
		['only one space is taken off', 'data:  x: y \n\n', [{ id: null, event: 'message', data: ' x: y ' }]],
		['no data, no event', 'id: 7\nevent: a\n\ndata: x\n\n', [{ id: '7', event: 'message', data: 'x' }]],
		['an id with NUL is ignored', 'id: a\0b\ndata: x\n\n', [{ id: null, event: 'message', data: 'x' }]],
		['a byte order mark', '\uFEFFdata: x\n\n', [{ id: null, event: 'message', data: 'x' }]],
		['an unfinished event', 'data: x\n', []],
	])('%s', (_name, text, events) => {
		expect(parseAll([bytesOf(text)])).toEqual(events);
	});

	test('the same events come out wherever the bytes are cut', () => {
		const field = fc.constantFrom('data: ', 'data:', 'id: ', 'event: ', ': ', 'other: ', 'data', '');
		const value = fc.oneof(fc.string({ unit: 'grapheme', maxLength: 6 }), fc.constantFrom('', 'ü€😀', '{"a":1}'));
		const lineEnd = fc.constantFrom('\n', '\r\n', '\r', '\n\n', '\r\n\r\n', '\r\r');
		const text = fc
			.array(
				fc.tuple(field, value, lineEnd).map((parts) => parts.join('')),
				{ maxLength: 12 },
			)
			.map((lines) => lines.join(''));
		fc.assert(
			fc.property(text, fc.array(fc.nat(200), { maxLength: 12 }), (whole, cuts) => {
				const bytes = bytesOf(whole);
				const edges = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
				const pieces = edges.slice(1).map((edge, index) => bytes.subarray(edges[index], edge));
				const single = Array.from(bytes, (byte) => Uint8Array.of(byte));
				const expected = parseAll([bytes]);
				expect(parseAll(pieces)).toEqual(expected);
				expect(parseAll(single)).toEqual(expected);
			}),
			{ numRuns: 300 },
		);
	});

	test('many short lines of one event are bounded like one long line', () => {
		const parse = createEventStreamParser();
		const lines = bytesOf(`data: ${'x'.repeat(1000)}\n`.repeat(1000));
		const pour = () => {
			for (let size = 0; size <= MAX_STREAM_LINE + 1_000_000; size += 1_000_000) parse(lines);
		};
		expect(pour).toThrow(AgentError);
	});
});

describe('whatever is sent', () => {
	test('gets an answer or a clean close, and the server goes on', async () => {
		const source = eventSource((_request, sink) => sink.close());
		const { agentSocket, adminSocket, client, faults } = await open([
			...echoRoutes,
			source.route,
			rawRoute({
				method: '*',
				path: '/v1/service/',
				prefix: true,
				sockets: ['agent', 'admin'],
				handle: ({ body }) => ({ status: 200, content: body.request }),
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
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ socket: 'agent' });
	});
});
