import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError, type Failure } from '../../src/base/errors.ts';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { createForwarder, type ForwardLimits } from '../../src/local-api/forwarder.edge.ts';
import { secretValuesOf } from '../../src/settings/header-lines.ts';
import { listen, refusedPort } from '../connection/network-peers.ts';

const TOKEN = 'connection-token-0123456789';
const GATE = 'gate-7f3k-secret-of-the-site';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

interface Setup {
	readonly answer?: Answer;
	readonly limits?: Partial<ForwardLimits>;
	/** The caller is an application with so many places. */
	readonly uploads?: number;
	/** Its name, by what it asks for. */
	readonly nameOf?: (target: string) => string;
	readonly allow?: string[];
	readonly baseUrl?: string;
	readonly unpaired?: boolean;
}

/** A service, and the forwarder before it as the local interface would use it. */
async function forwarding({
	answer,
	limits,
	uploads,
	nameOf = () => 'kiosk',
	allow = [],
	baseUrl,
	unpaired = false,
}: Setup = {}) {
	const asked: IncomingMessage[] = [];
	const service = createServer((request, response) => {
		asked.push(request);
		(answer ?? ((_request, found) => found.end('ok')))(request, response);
	});
	const base = baseUrl ?? `http://127.0.0.1:${await listen(service)}/tenant`;
	const network = await createNetwork({}, {});
	onTestFinished(() => network.close());
	const forward = createForwarder({
		network,
		target: () => (unpaired ? null : { baseUrl: base, token: TOKEN }),
		allow: () => allow,
		serviceHeaders: () => ({ 'x-gate': GATE }),
		secretValues: () => [GATE],
		...(limits && { limits: () => limits }),
	});
	const failures: Failure[] = [];
	const failed = Promise.withResolvers<Failure>();
	const local = createServer((request, response) => {
		const target = (request.url ?? '').replace('/v1/service', '');
		const own = { name: nameOf(target), origin: '', token: '' };
		const application = uploads === undefined ? null : { ...own, shares: { uploads } };
		forward(request, response, target, application).catch((error: unknown) => {
			if (!(error instanceof AgentError)) throw error;
			failures.push(error.failure);
			failed.resolve(error.failure);
			if (!response.destroyed && !response.headersSent) response.writeHead(599).end(JSON.stringify(error.failure));
		});
	});
	const port = await listen(local);
	return { url: `http://127.0.0.1:${port}/v1/service`, local, port, asked, failures, failed: failed.promise };
}

async function ask(url: string, options: RequestInit = {}) {
	const response = await fetch(url, { redirect: 'manual', ...options });
	return { status: response.status, headers: response.headers, text: await response.text() };
}

const echo: Answer = (request, response) => void request.pipe(response);

test.each<[string, Answer]>([
	['the body', ({ headers }, response) => response.end(JSON.stringify({ sent: headers }))],
	['a header', ({ headers }, response) => response.setHeader('x-echo', headers['x-gate'] ?? '').end('ok')],
	['a picture', ({ headers }, response) => response.setHeader('content-type', 'image/png').end(headers['x-gate'])],
])('an answer that holds a secret header in %s is not passed on [F1565]', async (_where, answer) => {
	const { url } = await forwarding({
		answer(request, response) {
			delete request.headers.authorization;
			answer(request, response);
		},
	});
	const { status, headers, text } = await ask(`${url}/echo`);
	expect([status, JSON.parse(text).code]).toEqual([599, 'answer-withheld']);
	expect(text + JSON.stringify([...headers])).not.toContain(GATE);
});

test('a credential behind its scheme and each value of a cookie are secrets alone as well [F1576]', () => {
	const secretParts = (value: string) => secretValuesOf({ 'x-key': value }, null);
	expect(secretParts('Basic dXNlcjpwYXNzd29yZA==')).toEqual(['Basic dXNlcjpwYXNzd29yZA==', 'dXNlcjpwYXNzd29yZA==']);
	const cookie = 'sess=4f9a1c7be2; other=88d0e4aa31; lang=de';
	const pairs = ['sess=4f9a1c7be2', 'other=88d0e4aa31'];
	expect(secretParts(cookie)).toEqual([cookie, ...pairs, '4f9a1c7be2', '88d0e4aa31']);
	expect(secretParts(GATE)).toEqual([GATE]);
	// A password may be a word of many answers.
	const basic = { scheme: 'Basic', username: 'kiosk', password: 'password' } as const;
	expect(secretValuesOf({}, basic)).toEqual(['a2lvc2s6cGFzc3dvcmQ=']);
	expect(secretValuesOf({}, { scheme: 'ApiKey', credential: 'demo' })).toEqual([]);
	expect([secretParts('seven77'), secretParts('eight888')]).toEqual([[], ['eight888']]);
});

describe('an answer that holds the Connection', () => {
	const escaped = Array.from(TOKEN, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
	test.each<[string, Answer]>([
		['raw', ({ headers }, response) => response.end(`you sent ${headers.authorization}`)],
		[
			'in JSON, escaped',
			(_request, response) => response.setHeader('content-type', 'application/json').end(`{"a":"${escaped}"}`),
		],
		['percent-encoded', (_request, response) => response.end(encodeURIComponent(TOKEN).replaceAll('-', '%2D'))],
		['in a header', ({ headers }, response) => response.setHeader('x-echo', headers.authorization ?? '').end('ok')],
		[
			'over several chunks',
			(_request, response) => {
				response.write(TOKEN.slice(0, 9));
				setImmediate(() => response.end(TOKEN.slice(9)));
			},
		],
		['said to be a picture', (_request, response) => response.setHeader('content-type', 'image/png').end(TOKEN)],
		['said to be a drawing', (_request, response) => response.setHeader('content-type', 'image/svg+xml').end(TOKEN)],
	])('%s is not passed on, and the caller is told [F301]', async (_form, answer) => {
		const { url } = await forwarding({ answer });
		const { status, headers, text } = await ask(`${url}/echo`);
		expect(status).toBe(599);
		expect(JSON.parse(text)).toMatchObject({
			code: 'answer-withheld',
			remedy: expect.stringContaining('Do not forward this request'),
		});
		expect(text + JSON.stringify([...headers])).not.toContain(TOKEN.slice(0, 16));
		const other = await forwarding();
		expect(await ask(`${other.url}/other`)).toMatchObject({ status: 200, text: 'ok' });
	});

	test('after other bytes have gone: the connection is closed, and nothing of it comes', async () => {
		const { url } = await forwarding({
			answer(_request, response) {
				response.write('first part, ');
				setImmediate(() => response.end(`then ${TOKEN}`));
			},
		});
		let seen = '';
		await expect(
			(async () => {
				const response = await fetch(`${url}/echo`);
				for await (const chunk of response.body ?? []) seen += Buffer.from(chunk).toString();
			})(),
		).rejects.toThrow();
		expect('first part, then '.startsWith(seen)).toBe(true);
	});

	test('is asked for without compression', async () => {
		const { url, asked } = await forwarding();
		await ask(`${url}/a`, { headers: { 'accept-encoding': 'gzip, br' } });
		expect(asked[0]?.headers['accept-encoding']).toBe('identity');
	});
});

describe('passing on', () => {
	test('adds the Connection, keeps method, path, query, body and headers', async () => {
		const { url, asked } = await forwarding({
			answer(request, response) {
				response.setHeader('content-type', 'text/x-test');
				response.setHeader('set-cookie', 'a=b');
				response.statusCode = 201;
				request.pipe(response);
			},
		});
		const answer = await ask(`${url}/api/v1/x?y=1%202`, {
			method: 'PUT',
			body: 'hello',
			headers: { 'x-request-id': '7' },
		});
		expect(answer).toMatchObject({ status: 201, text: 'hello' });
		expect(answer.headers.get('content-type')).toBe('text/x-test');
		expect(answer.headers.get('set-cookie')).toBeNull();
		expect(answer.headers.get('cache-control')).toBe('no-store');
		expect(asked[0]).toMatchObject({ method: 'PUT', url: '/tenant/api/v1/x?y=1%202' });
		expect(asked[0]?.headers).toMatchObject({
			authorization: `Connection ${TOKEN}`,
			'x-request-id': '7',
			'content-length': '5',
		});
	});

	test('HEAD, an empty answer and an error of the service come through as they are', async () => {
		const { url } = await forwarding({
			answer(request, response) {
				response.writeHead(request.method === 'HEAD' ? 200 : request.method === 'DELETE' ? 204 : 418).end();
			},
		});
		expect(await ask(`${url}/a`, { method: 'HEAD' })).toMatchObject({ status: 200, text: '' });
		expect(await ask(`${url}/a`, { method: 'DELETE' })).toMatchObject({ status: 204 });
		expect(await ask(`${url}/a`)).toMatchObject({ status: 418 });
	});

	test('a large body goes both ways in chunks', async () => {
		const { url } = await forwarding({ answer: echo });
		const block = new Uint8Array(64 * 1024).fill(7);
		let blocks = 200;
		const body = new ReadableStream({
			pull(controller) {
				blocks -= 1;
				if (blocks < 0) controller.close();
				else controller.enqueue(block);
			},
		});
		const response = await fetch(`${url}/a`, { method: 'POST', body, duplex: 'half' } as RequestInit);
		expect((await response.arrayBuffer()).byteLength).toBe(200 * 64 * 1024);
	});

	test('a caller that reads slowly holds the service back', async () => {
		const block = Buffer.alloc(256 * 1024);
		const total = 400 * block.length;
		let sent = 0;
		let received = 0;
		let lead = 0;
		const { url } = await forwarding({
			limits: { maxBytes: total },
			answer(_request, response) {
				const write = () => {
					while (sent < total) {
						sent += block.length;
						if (!response.write(block)) return;
					}
					response.end();
				};
				response.on('drain', write);
				write();
			},
		});
		const request = httpRequest(`${url}/a`);
		request.end();
		const [response] = (await once(request, 'response')) as [IncomingMessage];
		for await (const chunk of response) {
			received += (chunk as Buffer).length;
			lead = Math.max(lead, sent - received);
			for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
		}
		expect(received).toBe(total);
		expect(lead).toBeLessThan(total / 3);
	});

	test('when the caller leaves, the service is left as well', async () => {
		const left = Promise.withResolvers<void>();
		const { url } = await forwarding({
			answer(_request, response) {
				response.write('begin');
				response.once('close', left.resolve);
			},
		});
		const request = httpRequest(`${url}/a`);
		request.end();
		const [response] = (await once(request, 'response')) as [IncomingMessage];
		await once(response, 'data');
		request.destroy();
		await left.promise;
	});

	test.each(['GET', 'POST'])('also while the service has not begun to answer a %s', async (method) => {
		const [asked, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
		const { url } = await forwarding({
			answer(_request, response) {
				response.once('close', left.resolve);
				asked.resolve();
			},
		});
		const request = httpRequest(`${url}/a`, { method });
		request.on('error', () => {});
		// Of a POST more is to come.
		if (method === 'POST') request.write('begin');
		else request.end();
		await asked.promise;
		request.destroy();
		await left.promise;
	});
});

describe('refusing', () => {
	test("a caller's own Authorization, a forbidden path, another method and an unpaired device, before anything is sent", async () => {
		const { url, asked, failures } = await forwarding({ allow: ['/api/v1'] });
		await ask(`${url}/api/v1/a`, { headers: { authorization: 'ApiKey x' } });
		await ask(`${url}/api/v2/a`);
		await ask(`${url}/api/v1/deeplink`, { method: 'POST' });
		await ask(`${url}/api/v1/a`, { method: 'OPTIONS' });
		expect(failures.map(({ code }) => code)).toEqual([
			'access-denied',
			'access-denied',
			'access-denied',
			'method-not-allowed',
		]);
		expect(asked).toEqual([]);
		const nobody = await forwarding({ unpaired: true });
		await ask(`${nobody.url}/a`);
		expect(nobody.failures).toMatchObject([{ code: 'unpaired' }]);
	});

	test('a redirect is neither followed nor shown; another Location becomes local', async () => {
		const { url, failures, asked } = await forwarding({
			answer(request, response) {
				const isCreated = request.url?.endsWith('/create');
				response
					.writeHead(isCreated ? 201 : 307, { location: isCreated ? '/tenant/api/7' : 'http://127.0.0.1:1/steal' })
					.end();
			},
		});
		const answer = await ask(`${url}/a`);
		expect(answer.headers.get('location')).toBeNull();
		expect(failures).toMatchObject([{ code: 'redirect-refused' }]);
		expect((await ask(`${url}/create`, { method: 'POST' })).headers.get('location')).toBe('/v1/service/api/7');
		expect(asked).toHaveLength(2);
	});

	test('an answer that is refused is not read on: its connection ends', async () => {
		const { url, asked } = await forwarding({
			limits: { idleMs: 600_000 },
			answer(_request, response) {
				response.writeHead(307, { location: '/elsewhere' });
				response.write('and so on');
			},
		});
		await ask(`${url}/a`);
		const [request] = asked;
		if (request && !request.socket.destroyed) await once(request.socket, 'close');
		expect(asked).toHaveLength(1);
	});

	test('a body that is too large, announced or not; the caller is told', async () => {
		const { url, failures } = await forwarding({ answer: echo, limits: { maxBytes: 1000 } });
		expect(await ask(`${url}/a`, { method: 'POST', body: 'x'.repeat(1001) })).toMatchObject({ status: 599 });
		const body = new Blob(['x'.repeat(5000)]).stream();
		expect(await ask(`${url}/a`, { method: 'POST', body, duplex: 'half' } as RequestInit)).toMatchObject({
			status: 599,
		});
		expect(failures.map(({ code }) => code)).toEqual(['body-too-large', 'body-too-large']);
	});

	test('an answer that is too large: refused when announced, cut off when not', async () => {
		const { url, failures } = await forwarding({
			limits: { maxBytes: 1000 },
			answer(request, response) {
				if (request.url?.endsWith('announced')) response.setHeader('content-length', 2000);
				response.write('x'.repeat(500));
				response.end('x'.repeat(1500));
			},
		});
		await ask(`${url}/announced`);
		expect(failures).toMatchObject([{ code: 'response-too-large' }]);
		// Said, if nothing of it has gone yet; else cut off.
		const sudden = await ask(`${url}/sudden`).catch(() => null);
		expect(sudden?.status ?? 599).toBe(599);
	});

	test('a service that is away, silent or too slow', async () => {
		const away = await forwarding({ baseUrl: `http://127.0.0.1:${await refusedPort()}` });
		await ask(`${away.url}/a`);
		expect(away.failures).toMatchObject([{ code: 'service-unreachable' }]);
		const silent = await forwarding({ answer: () => {}, limits: { idleMs: 50 } });
		await ask(`${silent.url}/a`);
		expect(silent.failures).toMatchObject([{ code: 'request-timeout' }]);
		const dripping = await forwarding({
			limits: { idleMs: 100 },
			answer(_request, response) {
				response.write('begin');
			},
		});
		await expect(ask(`${dripping.url}/a`)).rejects.toThrow();
	});

	test('a service that says nothing more, before its answer or within it', async () => {
		const limits = { idleMs: 100 };
		const silent = await forwarding({ answer: () => {}, limits });
		expect((await ask(`${silent.url}/a`)).text).toContain('"request-timeout"');
		const stops = await forwarding({ answer: (_request, response) => void response.write('a'.repeat(10_000)), limits });
		await expect(ask(`${stops.url}/a`)).rejects.toThrow();
	});

	test('what has waited too long for its turn', async () => {
		const { url, failures } = await forwarding({ uploads: 1, limits: { waitMs: 50 }, answer: () => {} });
		const gone = new AbortController();
		const first = ask(`${url}/a`, { signal: gone.signal }).catch(() => {});
		await ask(`${url}/b`);
		expect(failures).toMatchObject([{ code: 'service-overloaded', retryAfterMs: 1000 }]);
		gone.abort();
		await first;
	});
});

describe('many requests at once', () => {
	test('wait for their turn, however many they are, and are passed on in their order [F895]', async () => {
		const allAreHere = Promise.withResolvers<void>();
		const { url, asked, local } = await forwarding({
			uploads: 1,
			answer: (request, response) => void allAreHere.promise.then(() => echo(request, response)),
		});
		let count = 0;
		local.on('request', () => {
			count += 1;
			if (count === 100) allAreHere.resolve();
		});
		const texts = await Promise.all(Array.from({ length: 100 }, (_, index) => ask(`${url}/${index}`)));
		expect(texts.map(({ status }) => status)).toEqual(Array(100).fill(200));
		expect(asked).toHaveLength(100);
	});

	test('lose the turn of a caller who leaves while it waits', async () => {
		const arrived = Promise.withResolvers<ServerResponse>();
		const { url, asked } = await forwarding({
			uploads: 1,
			answer: ({ url: path }, response) => (path?.endsWith('/first') ? arrived.resolve(response) : response.end('ok')),
		});
		const first = ask(`${url}/first`);
		const response = await arrived.promise;
		const gone = new AbortController();
		const leaver = ask(`${url}/leaver`, { signal: gone.signal }).catch(() => 'left');
		gone.abort();
		expect(await leaver).toBe('left');
		const last = ask(`${url}/last`);
		response.end('done');
		expect(await Promise.all([first, last])).toMatchObject([{ text: 'done' }, { text: 'ok' }]);
		expect(asked.map(({ url: path }) => path)).toEqual(['/tenant/first', '/tenant/last']);
	});

	test('share kept connections, one after the other', async () => {
		const sockets = new Set<unknown>();
		const { url } = await forwarding({
			answer: ({ socket }, response) => {
				sockets.add(socket);
				response.end('ok');
			},
		});
		for (let count = 0; count < 20; count += 1) expect(await ask(`${url}/x`)).toMatchObject({ status: 200 });
		expect(sockets.size).toBe(1);
	});

	test('have connections of their own for each application, and for each body [F1100]', async () => {
		const sockets = new Map<unknown, string[]>();
		const { url } = await forwarding({
			uploads: 2,
			nameOf: (target) => target.slice(1, 2),
			answer: ({ socket, method, url: path = '' }, response) => {
				sockets.set(socket, [...(sockets.get(socket) ?? []), `${method} ${path.replace('/tenant', '')}`]);
				response.end('ok');
			},
		});
		for (const path of ['/a1', '/b1', '/a2', '/b2']) await ask(url + path);
		for (const path of ['/a3', '/a4']) await ask(url + path, { method: 'POST', body: 'tea' });
		await ask(`${url}/a5`, { method: 'DELETE' });
		expect([...sockets.values()]).toEqual([
			['GET /a1', 'GET /a2', 'DELETE /a5'],
			['GET /b1', 'GET /b2'],
			['POST /a3'],
			['POST /a4'],
		]);
	});
});
