/** `idv-agent/client` against a running agent and the embedded service. */
import { spawn } from 'node:child_process';
import { getEventListeners, once, setMaxListeners } from 'node:events';
import { createReadStream, mkdtempSync, openAsBlob, rmSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import { connect, createServer as listen } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, onTestFinished, test, vi } from 'vitest';
import {
	type AgentClient,
	AgentProblem,
	createClient,
	type EventOptions,
	type LocalEvent,
	type ServiceRequest,
} from '../../src/client/client.runner.ts';
import { givenAgent, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const clientOf = ({ home }: RunningAgent) => createClient({ socketPath: join(home.paths.runDir, 'agent.sock') });

async function givenDevice() {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	return { service, device, client: clientOf(device) };
}

const problemOf = (asking: Promise<unknown>): Promise<AgentProblem> =>
	asking.then(
		() => expect.fail('nothing was refused'),
		(error: unknown) => (error instanceof AgentProblem ? error : expect.fail(String(error))),
	);

test('the status is that of the agent', async () => {
	const { device, client } = await givenDevice();
	expect(await client.status()).toEqual(device.agent.status());
	expect((await client.identity()).deviceId.value).toBe(device.agent.status().deviceId);
});

test('an event is acknowledged when the loop asks for the next one, and comes again after a loop that failed', async () => {
	const { service, device, client } = await givenDevice();
	for (const id of ['1', '2', '3']) service.notify({ type: `kind-${id}`, id });
	await device.untilEvent(({ kind }) => kind === 'kind-3');
	const read = async (until: string) => {
		const kinds: string[] = [];
		for await (const { type, kind } of client.events({ consumer: 'kiosk' })) {
			if (type === 'gap') continue;
			kinds.push(kind);
			if (kind === until) throw Object.assign(new Error('the application fails here'), { kinds });
		}
	};
	await expect(read('kind-2')).rejects.toMatchObject({ kinds: ['kind-1', 'kind-2'] });
	await expect(read('kind-3')).rejects.toMatchObject({ kinds: ['kind-2', 'kind-3'] });
	const { events } = await client.eventPage({ consumer: 'kiosk' });
	expect(events.map(({ kind }) => kind)).toEqual(['kind-3']);
	const last = events.at(-1)?.id ?? '';
	expect(await client.acknowledge('kiosk', last)).toEqual({ consumer: 'kiosk', position: last });
	expect((await client.eventPage({ consumer: 'kiosk' })).events).toEqual([]);
	expect(await client.forget('kiosk')).toEqual({ consumer: 'kiosk', known: true });
});

test('a loop waits for the next event, also across a restart of the agent, and ends with its signal', async () => {
	const { service, device, client } = await givenDevice();
	const retried: string[] = [];
	const stop = new AbortController();
	const away = Promise.withResolvers<void>();
	const seen: LocalEvent[] = [];
	const reading = (async () => {
		const onRetry = ({ code }: AgentProblem) => {
			retried.push(code);
			away.resolve();
		};
		for await (const event of client.events({ consumer: 'kiosk', signal: stop.signal, onRetry })) {
			seen.push(event);
			if (event.kind === 'after') stop.abort();
		}
	})();
	service.notify({ type: 'before', id: '1' });
	await device.untilEvent(({ kind }) => kind === 'before');
	await device.stop();
	await away.promise;
	const again = await givenAgent({ home: device.home });
	await again.untilLive('check-in');
	service.notify({ type: 'after', id: '2' });
	await reading;
	// Its wait may be under way when the agent ends.
	expect(retried.filter((code) => code !== 'agent-not-running' && code !== 'connection-lost')).toEqual([]);
	expect(seen.filter(({ type }) => type === 'notification').map(({ kind }) => kind)).toEqual(['before', 'after']);
	expect((await clientOf(again).eventPage({ consumer: 'kiosk' })).events).toEqual([]);
});

test('without a consumer it resumes after an id, and acknowledges nothing', async () => {
	const { service, device, client } = await givenDevice();
	for (const id of ['1', '2', '3']) service.notify({ type: `kind-${id}`, id });
	const { id: since } = await device.untilEvent(({ kind }) => kind === 'kind-1');
	const kinds: string[] = [];
	for await (const { kind } of client.events({ since })) if (kinds.push(kind) === 2) break;
	expect((await client.eventPage({ since })).events.map(({ kind }) => kind)).toEqual(['kind-2', 'kind-3']);
	expect(kinds).toEqual(['kind-2', 'kind-3']);
});

test('a signal that is aborted while nothing comes ends the loop, and leaves no connection', async () => {
	const { device, client } = await givenDevice();
	const { id: since } = await device.untilEvent(({ type }) => type === 'gap');
	const stop = new AbortController();
	onTestFinished(() => stop.abort());
	const reading = (async () => {
		for await (const { kind } of client.events({ since, signal: stop.signal })) return kind;
		return 'ended';
	})();
	await client.status();
	stop.abort();
	expect(await reading).toBe('ended');
});

test('a lease is held while the work is done, and released also when the work fails', async () => {
	const { client } = await givenDevice();
	const names = async () => (await client.leases()).leases.map(({ name }) => name);
	expect(await client.withLease('kiosk', names)).toEqual(['kiosk']);
	await expect(client.withLease('kiosk', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
	expect(await names()).toEqual([]);
	await client.hold('by-hand', 30);
	expect(await names()).toEqual(['by-hand']);
	expect((await client.release('by-hand')).leases).toEqual([]);
});

test('works under one name overlap, in several clients: the last one that ends releases the lease [F490]', async () => {
	const { device, client } = await givenDevice();
	const names = () => device.agent.leases.list().leases.map(({ name }) => name);
	const work = (of: AgentClient) => {
		const [begun, over] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
		const ended = of.withLease('kiosk', async () => {
			begun.resolve();
			await over.promise;
			return names();
		});
		return { begun: begun.promise, end: over.resolve, ended };
	};
	const [long, short] = [work(client), work(clientOf(device))];
	await Promise.all([long.begun, short.begun]);
	short.end();
	expect(await short.ended).toEqual(['kiosk']);
	expect(names()).toEqual(['kiosk']);
	// It begins while the last one before it ends.
	long.end();
	const next = long.ended.then(() => work(client));
	const seen = await Promise.all(Array.from({ length: 30 }, () => client.withLease('kiosk', async () => names())));
	expect(seen).toEqual(seen.map(() => ['kiosk']));
	const { begun, end, ended } = await next;
	await begun;
	end();
	expect(await ended).toEqual(['kiosk']);
	expect(names()).toEqual([]);
});

test('a lease is renewed as soon as the agent is back, and nothing renews it once it is released', async () => {
	vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
	onTestFinished(() => void vi.useRealTimers());
	const paths: string[] = [];
	const renewed = Promise.withResolvers<void>();
	const { client } = await givenServer(({ url = '' }, response) => {
		paths.push(url);
		if (paths.length === 4) renewed.resolve();
		response.writeHead(paths.length === 2 || paths.length === 3 ? 503 : 200).end('{"leases":[]}');
	});
	await client.withLease('kiosk', async () => {
		// One turn: the agent is away then, and a second later too.
		vi.advanceTimersByTime(20_000);
		await renewed.promise;
	});
	vi.advanceTimersByTime(60_000);
	expect(paths).toEqual([...Array(4).fill('/v1/leases'), '/v1/leases/release']);
});

test('work that ends while the agent is away releases its lease as soon as the agent is back [F896]', async () => {
	let isAway = false;
	const released = Promise.withResolvers<string>();
	const tried = Promise.withResolvers<void>();
	const { client } = await givenServer(({ url = '' }, response) => {
		if (url.endsWith('/release')) (isAway ? tried : released).resolve(url as never);
		if (isAway) return void response.destroy();
		response.end('{"leases":[]}');
	});
	const work = client.withLease('kiosk', async () => {
		isAway = true;
		return 'done';
	});
	await tried.promise;
	expect(await work).toBe('done');
	isAway = false;
	expect(await released.promise).toBe('/v1/leases/release');
});

test('new work under the name of a lease whose release waits for the agent begins at once, and is not released by it', async () => {
	let isAway = false;
	const paths: string[] = [];
	const { client } = await givenServer(({ url = '' }, response) => {
		if (isAway) return void response.destroy();
		paths.push(url);
		response.end('{"leases":[]}');
	});
	await client.withLease('kiosk', async () => {
		isAway = true;
	});
	isAway = false;
	const begunMs = performance.now();
	await client.withLease('kiosk', async () => {
		// Longer than the pause after which the release would be tried again.
		await expect
			.poll(() => client.status().then(() => performance.now() - begunMs), { timeout: 3000 })
			.toBeGreaterThan(1200);
	});
	expect(paths.filter((path) => path.endsWith('/release'))).toHaveLength(1);
});

test('service waits for a slow service as long as the agent says that it is there, and no longer than its deadline for one that does not [F897]', async () => {
	let looks = 0;
	const slow = Promise.withResolvers<void>();
	const { socketPath } = await givenServer(async ({ url = '' }, response) => {
		if (url === '/livez' && ++looks === 3) slow.resolve();
		if (url !== '/livez') await slow.promise;
		response.writeHead(url === '/livez' ? 503 : 200).end('late');
	});
	const patient = createClient({ socketPath, deadlineMs: 500 });
	expect(await (await patient.service('api/slow')).text()).toBe('late');

	const silent = await givenServer(() => {});
	const problem = await problemOf(createClient({ socketPath: silent.socketPath, deadlineMs: 50 }).service('api/x'));
	expect(problem).toMatchObject({ status: 0, code: 'request-timeout' });
});

test('an answer of 101, which no request asks for, is told as a connection that ended [F1771]', async () => {
	const { client } = await givenServer((_request, response) => {
		response.socket?.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
	});
	expect(await problemOf(client.status())).toMatchObject({ status: 0, code: 'connection-lost' });
	expect(await problemOf(client.service('api/x'))).toMatchObject({ status: 0, code: 'connection-lost' });
});

test('the body of an answer is waited for in the same way: as long as the agent says that it is there, and no longer than its deadline [F1178]', async () => {
	for (const isThere of [true, false]) {
		let looks = 0;
		const late = Promise.withResolvers<void>();
		const { socketPath } = await givenServer(async ({ url = '' }, response) => {
			if (url === '/livez' && ++looks === 3) late.resolve();
			if (url === '/livez') return void (isThere && response.writeHead(503).end());
			response.write('la');
			await late.promise;
			response.end('te');
		});
		// A machine that is busy may keep this process waiting for longer than a short deadline.
		const answer = await createClient({ socketPath, deadlineMs: isThere ? 500 : 50 }).service('api/slow');
		const reading = answer.text();
		if (isThere) expect(await reading).toBe('late');
		else expect(await problemOf(reading)).toMatchObject({ status: 0, code: 'request-timeout' });
	}
});

test('a stream of bytes of another realm is sent, as by fetch', async () => {
	const { client } = await givenEcho();
	const stream = new ReadableStream({
		start(controller) {
			controller.enqueue(runInNewContext('new Uint8Array([65, 66])'));
			controller.close();
		},
	});
	expect(await (await client.service('a', { method: 'POST', body: stream })).text()).toContain('AB');
});

test('one signal serves many requests at once without a warning, as with fetch', async () => {
	const { client } = await givenServer((_, response) => void response.end('{}'));
	const warned = vi.fn();
	process.on('warning', warned);
	onTestFinished(() => void process.off('warning', warned));
	const { signal } = new AbortController();
	// As in Node 18 and 20.
	setMaxListeners(10, signal);
	await Promise.all(Array.from({ length: 30 }, async () => (await client.service('a', { signal })).text()));
	expect(warned).not.toHaveBeenCalled();
});

test('a lease outlives the work of this process as long as that of another one goes on under its name', async () => {
	const { device, client } = await givenDevice();
	const names = () => device.agent.leases.list().leases.map(({ name }) => name);
	// What another process has: a client that shares nothing with this one.
	vi.resetModules();
	const { createClient: createOther } = await import('../../src/client/client.runner.ts');
	const other = createOther({ socketPath: join(device.home.paths.runDir, 'agent.sock') });
	await other.withLease('kiosk', async () => {
		await client.withLease('kiosk', async () => {});
		expect(names()).toEqual(['kiosk']);
	});
	expect(names()).toEqual([]);
});

test('a lease is renewed at once when another call finds the agent back, and when it was only asked for the status', async () => {
	vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
	onTestFinished(() => void vi.useRealTimers());
	let isAway = false;
	const held = [Promise.withResolvers<void>(), Promise.withResolvers<void>(), Promise.withResolvers<void>()];
	let holds = 0;
	const { client } = await givenServer(({ url }, response) => {
		if (isAway) return void response.destroy();
		if (url === '/v1/leases') held[holds++]?.resolve();
		response.end('{"leases":[],"events":[{"id":"a-1"}]}');
	});
	await client.withLease('kiosk', async () => {
		isAway = true;
		expect((await problemOf(client.status())).code).toBe('connection-lost');
		isAway = false;
		await client.status();
		await held[1]?.promise;
		isAway = true;
		const onRetry = () => {
			isAway = false;
		};
		for await (const { id } of client.events({ onRetry })) if (id) break;
		await held[2]?.promise;
	});
	expect(holds).toBe(3);
});

test('the service answers through the agent, whatever its status, with bodies both ways', async () => {
	const { service, client } = await givenDevice();
	service.failNext('/api/tea', { status: 418, headers: { 'x-pot': 'short' }, body: { stout: true } });
	const answer = await client.service('api/tea?cups=2', { method: 'POST', body: { sugar: 1 } });
	expect([answer.status, answer.headers.get('x-pot'), await answer.json()]).toEqual([418, 'short', { stout: true }]);
	service.failNext('/api/none', { status: 204 });
	const empty = await client.service('/api/none', { method: 'DELETE' });
	expect([empty.status, await empty.text()]).toEqual([204, '']);
	const refused = await client.service('api/device/connection', { method: 'POST', body: 'text' });
	expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([403, 'access-denied']);
});

test('a DELETE goes to the service with its body, and its answer is that of the service', async () => {
	const { service, client } = await givenDevice();
	service.failNext('/api/tea', { status: 202, body: { deleted: 1 } });
	const answer = await client.service('api/tea', { method: 'DELETE', body: { cups: [1, 2] } });
	expect([answer.status, await answer.json()]).toEqual([202, { deleted: 1 }]);
});

/** A server on a socket; says how often it was asked. */
async function givenServer(handle: RequestListener) {
	const directory = await mkdtemp(join(tmpdir(), 'idv-client-'));
	const socketPath = join(directory, 'agent.sock');
	let asked = 0;
	const server = createServer((request, response) => {
		asked += 1;
		handle(request, response);
	});
	await once(server.listen(socketPath), 'listening');
	onTestFinished(async () => {
		server.closeAllConnections();
		server.close();
		await rm(directory, { recursive: true });
	});
	const connections = () => promisify(server.getConnections.bind(server))();
	return { socketPath, client: createClient({ socketPath }), asked: () => asked, connections };
}

/** Answers each request with its method, content type, framing and body. */
const givenEcho = () =>
	givenServer(async (request, response) => {
		const { method, headers } = request;
		const body = await text(request);
		const framing = headers['content-length'] ?? headers['transfer-encoding'] ?? null;
		response.end(JSON.stringify([method, headers['content-type'] ?? null, framing, body]));
	});

type Body = ServiceRequest['body'];
const bytes = new TextEncoder().encode('xteax');
const JSON_TYPE = 'application/json';
const TEXT_TYPE = 'text/plain;charset=UTF-8';
const streamOf = (...pieces: unknown[]) => ReadableStream.from(pieces) as ReadableStream;
async function* generate() {
	yield bytes.subarray(1, 2);
	yield bytes.subarray(2, 4);
}
test.each<[string, () => Body, string | null, string, string?]>([
	['a string', () => 'tea', TEXT_TYPE, 'tea'],
	['an empty string', () => '', TEXT_TYPE, ''],
	['a Buffer', () => Buffer.from('tea'), null, 'tea'],
	['a view of a part', () => bytes.subarray(1, 4), null, 'tea'],
	['a DataView', () => new DataView(bytes.buffer, 1, 3), null, 'tea'],
	['an ArrayBuffer', () => bytes.buffer.slice(1, 4), null, 'tea'],
	['a String object', () => new String('tea'), 'text/plain;charset=UTF-8', 'tea'],
	['an ArrayBuffer of another realm', () => runInNewContext('Uint8Array.of(116, 101, 97).buffer'), null, 'tea'],
	['a typed array of wider numbers', () => Uint16Array.from([0x6574, 0x61]), null, 'tea\0'],
	[
		'search parameters',
		() => new URLSearchParams({ a: 'ä b' }),
		'application/x-www-form-urlencoded;charset=UTF-8',
		'a=%C3%A4+b',
	],
	['a Blob', () => new Blob(['tea'], { type: 'text/x-tea' }), 'text/x-tea', 'tea'],
	['a Blob without a type', () => new Blob(['tea']), null, 'tea'],
	['an empty Blob', () => new Blob([]), null, ''],
	['a web stream', () => streamOf(bytes.subarray(1, 2), bytes.subarray(2, 4)), null, 'tea', 'chunked'],
	['an empty stream', () => streamOf(), null, '', 'chunked'],
	['the body of an answer', () => new Response('tea').body, null, 'tea', 'chunked'],
	['a Node stream', () => Readable.from([Buffer.from('te'), Buffer.from('a')]), null, 'tea', 'chunked'],
	['an async generator', generate, null, 'tea', 'chunked'],
	[
		'plain data',
		() => ({ a: [1, null, true], when: new Date(0) }),
		JSON_TYPE,
		'{"a":[1,null,true],"when":"1970-01-01T00:00:00.000Z"}',
	],
	['a number', () => 5, JSON_TYPE, '5'],
])(
	'the client sends %s whole, by every method, with its content type and length',
	async (_, body, type, said, framing) => {
		const { client } = await givenEcho();
		for (const method of ['POST', 'put', 'PATCH', 'DELETE']) {
			const answer = await client.service('api/tea', { method, body: body() });
			expect(await answer.json()).toEqual([
				method.toUpperCase(),
				type,
				framing ?? String(Buffer.byteLength(said)),
				said,
			]);
		}
	},
);

test('the client sends no body for null, as fetch does, and headers in every form but those of the connection', async () => {
	const { client } = await givenEcho();
	for (const body of [null, undefined]) {
		expect(await (await client.service('x', { method: 'POST', body })).json()).toEqual(['POST', null, '0', '']);
		expect(await (await client.service('x', { body })).json()).toEqual(['GET', null, null, '']);
	}
	const forms = [
		{ 'content-type': 'a/b', 'Content-Length': '99', Expect: '100-continue' },
		[['content-type', 'a/b']],
		new Headers({ 'Content-Type': 'a/b' }),
	];
	for (const headers of forms as ServiceRequest['headers'][])
		for (const body of ['t', { t: 1 }, new Blob(['t'], { type: 'c/d' })])
			expect(await (await client.service('x', { method: 'POST', headers, body })).json()).toMatchObject({
				0: 'POST',
				1: 'a/b',
			});
});

test('the client sends a form with its files', async () => {
	const { client } = await givenEcho();
	const body = new FormData();
	body.set('page', new File(['front'], 'card.png', { type: 'image/png' }));
	const answer = await client.service('api/scans', { method: 'POST', body });
	const [, type, length, said] = (await answer.json()) as [string, string, string, string];
	const [, boundary = '?'] = /^multipart\/form-data; boundary=(.+)$/.exec(type) ?? [];
	expect(said).toMatch(/name="page"; filename="card\.png"\r\nContent-Type: image\/png\r\n\r\nfront\r\n/);
	expect(said.split(boundary)).toHaveLength(3);
	expect(length).toBe(String(said.length));
});

test('a path goes as fetch writes it: encoded where it must be, and without its fragment', async () => {
	const { client } = await givenServer(({ url }, response) => response.end(url));
	const asked = await client.service('/api/tea ä😀?q=%C3%A4#cup', {});
	expect(await asked.text()).toBe('/v1/service/api/tea%20%C3%A4%F0%9F%98%80?q=%C3%A4');
});

const circle: { self?: unknown } = {};
circle.self = circle;
const locked = new Blob(['tea']).stream();
locked.getReader();
class OtherForm {
	readonly [Symbol.toStringTag] = 'FormData';
}
test.each<[string, ServiceRequest, RegExp, string?]>([
	// @ts-expect-error the types refuse it as well
	['a Map', { body: new Map([['a', 1]]) }, /of the kind Map/],
	['a Set within', { body: { cups: new Set([1]) } }, /"cups" in the body is of the kind Set/],
	['a Blob within', { body: { list: [new Blob(['tea'])] } }, /"0" in the body is of the kind Blob/],
	['bytes within', { body: { photo: new Uint8Array(3) } }, /"photo" .* Uint8Array/],
	['a stream within', { body: { photo: Readable.from(['tea']) } }, /"photo" in the body is a stream/],
	// @ts-expect-error the types refuse it as well
	['a Response', { body: new Response('tea') }, /of the kind Response/],
	// @ts-expect-error the types refuse it as well
	['a promise', { body: Promise.resolve({}) }, /of the kind Promise/],
	// @ts-expect-error the types refuse it as well
	['a form of another library', { body: new OtherForm() }, /of the kind FormData/],
	['an error', { body: new Error('tea') }, /of the kind Error/],
	// @ts-expect-error the types refuse it as well
	['a function', { body: () => 'tea' }, /of the kind Function/],
	// @ts-expect-error the types refuse it as well
	['a symbol', { body: Symbol('tea') }, /of the kind Symbol/],
	['a bigint', { body: { cups: 1n } }, /cannot be sent: Do not know how to serialize a BigInt/],
	['a number that is none', { body: { cups: Number.NaN } }, /"cups" in the body is NaN/],
	['a date that is none', { body: { at: new Date(Number.NaN) } }, /"at" in the body is a date without a time/],
	['a function', { body: { cups: () => 1 } as never }, /"cups" in the body is of the kind Function/],
	['data that is nothing in JSON', { body: { toJSON: () => undefined } }, /is nothing in JSON/],
	['a circle', { body: circle }, /cannot be sent: Converting circular/],
	['a locked stream', { body: locked }, /cannot be sent: .*locked/],
	['a body with GET', { method: 'GET', body: 'tea' }, /cannot be sent: .*GET/],
	['a body with HEAD', { method: 'HEAD', body: { cups: 1 } }, /cannot be sent: .*HEAD/],
	['a method that fetch forbids', { method: 'TRACE' }, /cannot be sent: .*TRACE/, 'usage'],
	['a method that is none', { method: 'tea time' }, /cannot be sent: .*tea time/, 'usage'],
	['a header with a line end', { headers: { 'x-tea': 'a\nb' } }, /cannot be sent/, 'usage'],
])('the client refuses %s before anything is sent', async (_, request, words, code = 'body-invalid') => {
	const { client, asked } = await givenEcho();
	const problem = await problemOf(client.service('api/tea', { method: 'POST', ...request }));
	expect([problem.status, problem.code]).toEqual([0, code]);
	expect(problem.message).toMatch(words);
	expect(asked()).toBe(0);
});

test('the client refuses a path that names another host and a consumer without a name before anything is sent [F868]', async () => {
	const { client, asked } = await givenEcho();
	const USAGE = { status: 0, code: 'usage' };
	for (const path of ['//h', '//h/x', '///x', '/\\h'])
		expect(await problemOf(client.service(path))).toMatchObject({ ...USAGE, message: expect.stringContaining('host') });
	// @ts-expect-error the types refuse it as well
	expect(await problemOf(client.service('//h'))).toMatchObject(USAGE);
	// @ts-expect-error the types refuse it as well
	expect(await problemOf(client.service(`/\\${'h'}`))).toMatchObject(USAGE);
	// @ts-expect-error the types refuse it as well
	expect(await problemOf(client.events({ consumer: '' }).next())).toMatchObject(USAGE);
	// @ts-expect-error the types refuse it as well
	expect(await problemOf(client.eventPage({ consumer: '' }))).toMatchObject(USAGE);
	const options: EventOptions = { consumer: String() };
	expect(await problemOf(client.eventPage(options))).toMatchObject(USAGE);
	expect(asked()).toBe(0);
});

const USAGE = { status: 0, code: 'usage', message: expect.stringMatching(/; nothing was sent\.$/) };
const NO_NAMES = ['', 'a b', 'ü', 'x'.repeat(65), 7, null, ['kiosk'], undefined] as string[];
const never = async () => expect.fail('it was run');
test.each<[string, (client: AgentClient) => Iterable<Promise<unknown>>]>([
	['the name of a consumer to acknowledge for', (to) => NO_NAMES.map((name) => to.acknowledge(name, 'a-1'))],
	['the name of a consumer to forget', (to) => NO_NAMES.map((name) => to.forget(name))],
	['the name of a lease', (to) => NO_NAMES.flatMap((name) => [to.hold(name), to.release(name)])],
	['the name of work', (to) => NO_NAMES.map((name) => to.withLease(name, never))],
	['work', (to) => ['run', null, {}].map((work) => to.withLease('kiosk', work as never))],
	['an id', (to) => ['', 7, null, undefined].map((id) => to.acknowledge('kiosk', id as string))],
	[
		'a time',
		(to) => [0, -1, 3601, Number.NaN, Number.POSITIVE_INFINITY, '60', null].map((time) => to.hold('a', time as number)),
	],
	[
		'options of a loop and of a page',
		(to) =>
			[
				...NO_NAMES.slice(0, -1).map((consumer) => ({ consumer })),
				...[7, {}, ['a-1']].map((since) => ({ since })),
				...['abort', {}, 7].map((signal) => ({ signal })),
				...['kiosk', null, 7, { onRetry: 'log' }],
			].flatMap((options) => [to.events(options as never).next(), to.eventPage(options as never)]),
	],
	[
		'a request to the service',
		(to) =>
			[
				...['FOO', 'OPTIONS', 'patch', 'QUERY', '', null, 7].map((method) => ({ method })),
				...['abort', {}, 7].map((signal) => ({ signal })),
				...['POST', 7],
			].map((request) => to.service('api/tea', request as never)),
	],
])('what cannot be sent is refused as usage, before anything leaves: %s [F892]', async (_, calls) => {
	const { client, asked } = await givenEcho();
	for (const call of calls(client)) expect(await problemOf(call)).toMatchObject(USAGE);
	expect(asked()).toBe(0);
});

test('a client is not made for what is no path or no time: an empty path would lead to another program', () => {
	for (const options of ['/run/agent.sock', null, { socketPath: '' }, { socketPath: 7 }, { socketPath: 'a\0' }])
		expect(() => createClient(options as never)).toThrow(expect.objectContaining(USAGE));
	for (const deadlineMs of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, '15', null])
		expect(() => createClient({ deadlineMs: deadlineMs as number })).toThrow(expect.objectContaining(USAGE));
});

test('the types refuse an empty name or id and a method that is not passed on, and take variables and null', async () => {
	const { client } = await givenEcho();
	for (const refused of [
		// @ts-expect-error the types refuse it as well
		client.acknowledge('', 'a-1'),
		// @ts-expect-error the types refuse it as well
		client.acknowledge('kiosk', ''),
		// @ts-expect-error the types refuse it as well
		client.forget(''),
		// @ts-expect-error the types refuse it as well
		client.hold(''),
		// @ts-expect-error the types refuse it as well
		client.release(''),
		// @ts-expect-error the types refuse it as well
		client.withLease('', never),
		// @ts-expect-error the types refuse it as well
		client.service('x', { method: 'FOO' }),
		// @ts-expect-error the types refuse it as well
		client.service('x', { method: 'patch' }),
	])
		expect(await problemOf(refused)).toMatchObject(USAGE);
	const taken: ServiceRequest = { method: String('delete'), signal: null };
	for (const request of [taken, { method: 'Post' } as const, null])
		expect((await client.service('x', request)).status).toBe(200);
	// It is asked for: the echo is no page.
	expect(await problemOf(client.eventPage({ since: null }))).toMatchObject({ code: 'bad-response' });
});

test('a stream is read as fast as the agent takes it, and let go when the agent is gone', async () => {
	const arrived = Promise.withResolvers<IncomingMessage>();
	const { client } = await givenServer((request) => arrived.resolve(request));
	const cancelled = Promise.withResolvers<void>();
	let read = 0;
	const body = new ReadableStream({
		pull(controller) {
			read += 1;
			controller.enqueue(new Uint8Array(65_536));
		},
		cancel: () => cancelled.resolve(),
	});
	const asking = problemOf(client.service('api/scans', { method: 'POST', body }));
	const request = await arrived.promise;
	await once(request, 'readable');
	// What the kernel and both ends hold, and not the 64 MiB that were offered meanwhile.
	for (let turn = 0; turn < 1000; turn += 1) await new Promise(setImmediate);
	expect(read).toBeLessThan(64);
	request.socket.destroy();
	expect((await asking).code).toBe('connection-lost');
	await cancelled.promise;
});

async function* failing(error: unknown) {
	yield bytes;
	throw error;
}
const gone = (code: string | number) => Object.assign(new Error('the camera is gone'), { code });
test.each<[string, () => Body | Promise<Body>, RegExp]>([
	['a stream that gives text', () => streamOf('tea'), /must give bytes/],
	['a file that is not there', () => createReadStream('/nonexistent/page.jpg'), /ENOENT.*page\.jpg/],
	...['EACCES', 'EPIPE', 'ECONNRESET', 'ECONNREFUSED', 'HPE_INVALID', 'ABORT_ERR', 'tea', 7].map(
		(code): [string, () => Body, RegExp] => [
			`a stream that fails with ${code}`,
			() => Readable.from(failing(gone(code))),
			/^the camera is gone$/,
		],
	),
	['an iterable that fails', () => failing(gone('EPERM')), /^the camera is gone$/],
	['a Blob of a file that has changed', blobThatChanged, /could not be read/],
])('%s ends the request and its connection with its own error [F696]', async (_, body, words) => {
	const { client, connections } = await givenServer(() => {});
	const asking = client.service('api/scans', { method: 'POST', body: await body() });
	const error = await asking.catch((why: unknown) => why);
	expect(error).not.toBeInstanceOf(AgentProblem);
	expect((error as Error).message).toMatch(words);
	await vi.waitUntil(async () => (await connections()) === 0);
});
async function blobThatChanged(): Promise<Blob> {
	const directory = await mkdtemp(join(tmpdir(), 'idv-blob-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	await writeFile(join(directory, 'page.jpg'), 'a page');
	const blob = await openAsBlob(join(directory, 'page.jpg'));
	await writeFile(join(directory, 'page.jpg'), 'another page');
	return blob;
}

test.each([undefined, null])(
	'a stream that fails with %s ends the request with a TypeError, as for fetch [F1055]',
	async (nothing) => {
		const { client } = await givenServer(() => {});
		const body = () => new ReadableStream({ pull: (controller) => controller.error(nothing) });
		for (const given of [body(), failing(nothing)]) {
			const error = await client.service('api/scans', { method: 'POST', body: given }).catch((why: unknown) => why);
			expect(error).toBeInstanceOf(TypeError);
			expect(error).toMatchObject({ message: expect.stringContaining(String(nothing)) });
		}
	},
);

test('a stream that fails after the answer has begun ends the answer with its own error', async () => {
	const { client } = await givenServer((_, response) => void response.write('half'));
	const begun = Promise.withResolvers<void>();
	const camera = gone('EPIPE');
	async function* body() {
		yield bytes;
		await begun.promise;
		throw camera;
	}
	const answer = await client.service('api/scans', { method: 'POST', body: body() });
	begun.resolve();
	await expect(answer.text()).rejects.toBe(camera);
});

/** Takes the head of a request, says `bytes` and is gone before the client writes the body. */
async function givenHasty(said: string) {
	const directory = await mkdtemp(join(tmpdir(), 'idv-client-'));
	const isGone = Promise.withResolvers<void>();
	const server = listen((socket) => {
		socket.on('error', () => {});
		socket.once('data', () => {
			socket.write(said);
			socket.destroy();
			isGone.resolve();
		});
	});
	await once(server.listen(join(directory, 'agent.sock')), 'listening');
	onTestFinished(async () => {
		server.close();
		await rm(directory, { recursive: true });
	});
	let isLetGo = false;
	async function* late() {
		try {
			// The head leaves with the first piece.
			yield bytes;
			await isGone.promise;
			for (let piece = 0; piece < 9; piece += 1) yield bytes;
		} finally {
			isLetGo = true;
		}
	}
	const { service } = createClient({ socketPath: join(directory, 'agent.sock') });
	return { asking: service('api/scans', { method: 'POST', body: late() }), isLetGo: () => isLetGo };
}

test('an answer that is there is handed over although the agent closed before the body was written [F697]', async () => {
	const { asking, isLetGo } = await givenHasty('HTTP/1.1 404 None\r\nContent-Length: 3\r\n\r\ntea');
	const answer = await asking;
	expect([answer.status, await answer.text()]).toEqual([404, 'tea']);
	await vi.waitUntil(isLetGo);
});

test('an agent that took a request and said nothing is not told as one that does not run', async () => {
	const { asking, isLetGo } = await givenHasty('');
	const { status, code, remedy } = await problemOf(asking);
	expect([status, code]).toEqual([0, 'connection-lost']);
	expect(remedy).toMatch(/check before you repeat/);
	await vi.waitUntil(isLetGo);
});

test('a signal that lasts keeps nothing of requests that are over [F698]', async () => {
	const { client } = await givenServer((request, response) => {
		request.resume();
		if (request.url?.endsWith('gone')) response.destroy();
		else if (request.url?.endsWith('cut')) response.write('half', () => response.destroy());
		else if (request.url?.endsWith('more')) response.write('half');
		else
			response.writeHead(Number(/(200|204|600)$/.exec(request.url ?? '')?.[0] ?? 200)).end('{"events":[{"id":"a-1"}]}');
	});
	const stop = new AbortController();
	const { signal } = stop;
	const said = (asking: Promise<unknown>) => asking.catch((error: Error) => error.name);
	const ask = (path: string, request?: ServiceRequest) => client.service(path, { ...request, signal });
	await (await ask('200')).text();
	await (await ask('more')).body?.cancel();
	for (const method of ['HEAD', 'DELETE']) await ask(method === 'HEAD' ? '200' : '204', { method });
	expect(await said(ask('gone'))).toBe('AgentProblem');
	expect(await said((await ask('cut')).text())).toBe('AgentProblem');
	expect(await said(ask('600'))).toBe('AgentProblem');
	expect(await said(ask('200', { method: 'POST', body: failing(new RangeError('gone')) }))).toBe('RangeError');
	expect(await said(ask('200', { method: 'TRACE' }))).toBe('AgentProblem');
	const lost = createClient({ socketPath: '/nonexistent/agent.sock' });
	expect(await said(lost.service('200', { signal }))).toBe('AgentProblem');
	for await (const { id } of client.events({ signal })) if (id) break;
	await vi.waitUntil(() => getEventListeners(signal, 'abort').length === 0);
	// No one reads this one, and no one can any more.
	await ask('more');
	setFlagsFromString('--expose-gc');
	const collect = runInNewContext('gc') as () => void;
	await vi.waitUntil(() => {
		collect();
		return getEventListeners(signal, 'abort').length === 0;
	});
	stop.abort();
});

test('no request is one like any other for null, as for fetch', async () => {
	const { client } = await givenEcho();
	expect(await (await client.service('x', null)).json()).toEqual(['GET', null, null, '']);
});

test.each([new Error('closing time'), 'a word', { any: 'thing' }])(
	'an abort gives the reason of the signal: %s',
	async (reason) => {
		const begun = Promise.withResolvers<void>();
		const { client } = await givenServer((request, response) => {
			begun.resolve();
			if (request.url?.endsWith('begun')) response.write('half');
			if (request.url?.endsWith('whole')) response.end('whole');
		});
		const said = (asking: Promise<unknown>) => asking.catch((error: unknown) => ({ error }));
		expect(await said(client.service('x', { signal: AbortSignal.abort(reason) }))).toEqual({ error: reason });
		const waiting = new AbortController();
		const asked = said(client.service('silent', { signal: waiting.signal }));
		await begun.promise;
		waiting.abort(reason);
		expect(await asked).toEqual({ error: reason });
		for (const path of ['begun', 'whole']) {
			const stop = new AbortController();
			const answer = await client.service(path, { signal: stop.signal });
			stop.abort(reason);
			expect(await said(answer.text())).toEqual({ error: reason });
		}
	},
);

test('an answer is a standard Response: status text, repeated headers, bytes, and no body where there is none', async () => {
	const { client } = await givenServer(({ url, method }, response) => {
		const status = Number(url?.split('/').at(-1));
		response.writeHead(
			status,
			'Tea is ready',
			[
				['Set-Cookie', 'a=1'],
				['Set-Cookie', 'b=2'],
			].flat(),
		);
		response.end(method === 'HEAD' || status === 204 ? undefined : 'tea');
	});
	const answer = await client.service('200');
	expect([answer.ok, answer.statusText, answer.headers.getSetCookie()]).toEqual([true, 'Tea is ready', ['a=1', 'b=2']]);
	const copy = answer.clone();
	const reader = answer.body?.getReader({ mode: 'byob' });
	const first = await reader?.read(new Uint8Array(2));
	expect(Buffer.from(first?.value ?? []).toString()).toBe('te');
	expect([await copy.text(), copy.bodyUsed]).toEqual(['tea', true]);
	for (const [path, method] of [
		['204', 'GET'],
		['304', 'GET'],
		['205', 'POST'],
		['200', 'HEAD'],
	] as const)
		expect((await client.service(path, { method })).body).toBeNull();
	expect((await client.service('599')).status).toBe(599);
});

test.each([600, 999])('the status %d, which no Response can have, is told', async (status) => {
	const { client } = await givenServer((_, response) => response.writeHead(status).end('tea'));
	const problem = await problemOf(client.service('x'));
	expect([problem.status, problem.code]).toEqual([0, 'bad-response']);
	expect(problem.message).toContain(String(status));
});

test('an answer that breaks off is told as such while its body is read', async () => {
	const { client } = await givenServer((_, response) => {
		response.write('half', () => response.destroy());
	});
	const answer = await client.service('x');
	const problem = await problemOf(answer.text());
	expect([problem.status, problem.code]).toEqual([0, 'connection-lost']);
	expect(problem.message).toMatch(/^The answer was cut off/);
});

test.each<unknown>([7, null, undefined, new URL('http://service/api/x'), ['x']])(
	'a path that is no string is refused in plain words before anything is sent: %s',
	async (path) => {
		const { client, asked } = await givenEcho();
		const problem = await problemOf(client.service(path as string));
		expect([problem.status, problem.code, asked()]).toEqual([0, 'usage', 0]);
		expect(problem.message).toBe('The request cannot be sent: The path is not a string; nothing was sent.');
	},
);

test('an answer with headers of 60 KiB, which the agent passes on, is read', async () => {
	const { client } = await givenServer((_, response) => response.setHeader('x', 'x'.repeat(60 * 1024)).end('tea'));
	expect(await (await client.service('x')).text()).toBe('tea');
});

test('a refusal of the agent has its code, status and remedy', async () => {
	const { client } = await givenDevice();
	const { status, code, remedy } = await problemOf(client.acknowledge('kiosk', 'not-an-id'));
	expect([status, code]).toEqual([422, 'body-invalid']);
	expect(remedy).not.toBe('');
	const loop = async () => {
		for await (const { kind } of client.events({ since: 'not an id' })) return kind;
	};
	expect((await problemOf(loop())).code).toBe('body-invalid');
});

test('no agent: each call says so', async () => {
	const client = createClient({ socketPath: '/nonexistent/agent.sock' });
	for (const asking of [client.status(), client.service('api/x')]) {
		const problem = await problemOf(asking);
		expect([problem.status, problem.code]).toEqual([0, 'agent-not-running']);
		expect(problem.message).toContain('/nonexistent/agent.sock');
	}
});

test('an agent that runs and has too many callers is called that, and asked again [F1287]', async () => {
	const directory = mkdtempSync(join(tmpdir(), 'client-'));
	onTestFinished(() => rmSync(directory, { recursive: true }));
	const socketPath = join(directory, 'agent.sock');
	const code = `require('net').createServer().listen({ path: ${JSON.stringify(socketPath)}, backlog: 1 }, () => console.log('listens'))`;
	const busy = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
	onTestFinished(() => void busy.kill('SIGKILL'));
	await once(busy.stdout, 'data');
	busy.kill('SIGSTOP');
	const before = Array.from({ length: 4 }, () => connect(socketPath).on('error', () => {}));
	onTestFinished(() => before.forEach((socket) => void socket.destroy()));
	await expect
		.poll(async () => (await problemOf(createClient({ socketPath }).status())).code)
		.toBe('service-overloaded');
	const over = new AbortController();
	const tried: string[] = [];
	const loop = async () => {
		const onRetry = ({ code }: AgentProblem) => void tried.push(code);
		for await (const { kind } of createClient({ socketPath }).events({ signal: over.signal, onRetry })) return kind;
	};
	const ended = loop();
	await expect.poll(() => tried).toEqual(['service-overloaded']);
	over.abort();
	expect(await ended).toBeUndefined();
});

/** An agent of which only the events answer: pages by the id that they were asked for. */
function givenPages(pageAfter: (since: string | null) => readonly string[]) {
	return givenAnswers((since) => {
		const ids = pageAfter(since);
		return { events: ids.map((id) => ({ id })), next: ids.at(-1) ?? null };
	});
}

async function givenAnswers(answerAfter: (since: string | null) => unknown) {
	const directory = mkdtempSync(join(tmpdir(), 'client-'));
	const server = createServer((request, response) => {
		const since = new URL(request.url ?? '', 'http://agent').searchParams.get('since');
		response.end(JSON.stringify(answerAfter(since)));
	});
	server.listen(join(directory, 'agent.sock'));
	await once(server, 'listening');
	onTestFinished(() => {
		server.close();
		rmSync(directory, { recursive: true });
	});
	return createClient({ socketPath: join(directory, 'agent.sock') });
}

test.each<[string, Readonly<Record<string, string[]>>, number]>([
	['of one page', { null: ['a-1', 'a-2'], 'a-2': ['a-1', 'a-2'] }, 2],
	['of pages with a gap', { null: ['a-1', 'a-2'], 'a-2': ['b-00', 'a-1', 'b-2'], 'b-2': ['a-1', 'a-2'] }, 7],
	['of several pages', { null: ['a-1', 'a-2'], 'a-2': ['b-3'], 'b-3': ['b-4'], 'b-4': ['a-1', 'a-2'] }, 8],
])('a loop that gets the same events again and again ends with an error: a circle %s', async (_, pages, most) => {
	const client = await givenPages((since) => pages[String(since)] ?? []);
	const seen: string[] = [];
	const loop = async () => {
		for await (const { id } of client.events()) seen.push(id);
	};
	const { status, code, message } = await problemOf(loop());
	expect([status, code]).toEqual([0, 'no-progress']);
	expect(message).toContain('again and again');
	expect(seen).toHaveLength(most);
});

test.each([null, [], 'tea'])('a call ends with an error where the agent answers with %j', async (answer) => {
	const client = await givenAnswers(() => answer);
	for (const asking of [client.status(), client.acknowledge('kiosk', 'a-1'), client.leases(), client.forget('kiosk')]) {
		const { status, code, message } = await problemOf(asking);
		expect([status, code, message]).toEqual([0, 'bad-response', 'The answer is not a document of the agent.']);
	}
});

test.each<[string, unknown]>([
	['events that are no list', { events: 'none', next: 'a-1' }],
	['an event that is nothing', { events: [null], next: 'a-1' }],
	['events without an id', { events: [{ kind: 'tea' }], next: 'a-1' }],
	['events of which one has an id without a number', { events: [{ id: 'a-1' }, { id: 'tea' }], next: 'a-1' }],
	['an answer without events', { status: 'online' }],
])('a loop and a page end with an error where the agent answers with %s', async (_, answer) => {
	const client = await givenAnswers(() => answer);
	const loop = async () => {
		for await (const event of client.events()) expect(event).toBeUndefined();
	};
	for (const asking of [loop(), client.eventPage()]) {
		const { status, code, message } = await problemOf(asking);
		expect([status, code]).toEqual([0, 'bad-response']);
		expect(message).toBe('The answer is not a page of events.');
	}
});

test('a loop asks an agent that does not wait once a second', async () => {
	let asked = 0;
	const client = await givenAnswers(() => ({ events: [], next: `a-${++asked}` }));
	const enough = AbortSignal.timeout(1500);
	for await (const event of client.events({ signal: enough })) expect(event).toBeUndefined();
	expect(asked).toBe(2);
});

test('a loop follows an agent that lost its newest events, more than once', async () => {
	const pages: Record<string, string[]> = {
		null: ['a-1', 'a-9'],
		'a-9': ['b-02', 'b-3', 'b-4'],
		'b-4': ['c-00', 'c-1'],
	};
	const client = await givenPages((since) => pages[String(since)] ?? ['d-00', 'd-1']);
	const seen: string[] = [];
	for await (const { id } of client.events()) if (seen.push(id) === 9) break;
	expect(seen).toEqual(['a-1', 'a-9', 'b-02', 'b-3', 'b-4', 'c-00', 'c-1', 'd-00', 'd-1']);
});
