/** The forward path before a service that does what it likes: what an application is answered, by whom, and with which effect. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, createServer, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { createForwarder, type ForwardLimits } from '../../src/local-api/forwarder.edge.ts';
import { forwardProblem } from '../../src/local-api/server/forward-problems.ts';
import { localRoute, type RawExchange } from '../../src/local-api/server/local-server.edge.ts';
import { listen, refusedPort } from '../connection/network-peers.ts';
import { exchange, open } from './local-server.ts';

const TOKEN = 'Connection-Token-0123456789';
const MAX_BYTES = 100_000;
const LIMITS = { maxBytes: MAX_BYTES, idleMs: 300, pieceMs: 300 };
/** Where a busy machine must not look like a service that is silent. */
const AT_LEISURE = { idleMs: 30_000 };

/** Answers each request, whose head is there, and whose body may still come; `null` refuses connections. */
type Hostile = (socket: Socket, head: string) => unknown;

/** The agent's socket before a service of bare connections. @param greet what the service does before it is asked. */
async function givenForwarding(
	hostile: Hostile | null,
	limits: Partial<ForwardLimits> = {},
	greet: (socket: Socket) => void = () => {},
) {
	const heads: string[] = [];
	const service = createServer((socket) => {
		let text = '';
		socket.on('data', (chunk) => {
			text += chunk.toString('latin1');
			// Bodies hold none of it.
			for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
				const head = /[A-Z]+ \/tenant.*/s.exec(text.slice(0, end))?.[0];
				text = text.slice(end + 4);
				if (head) void hostile?.(socket, heads[heads.push(head) - 1] ?? '');
			}
			if (text.length > 100_000) text = '';
		});
		greet(socket);
	});
	const port = hostile ? await listen(service) : await refusedPort();
	const network = await createNetwork({}, {});
	onTestFinished(() => network.close());
	const forward = createForwarder({
		network,
		target: () => ({ baseUrl: `http://127.0.0.1:${port}/tenant`, token: TOKEN }),
		allow: () => [],
		limits: () => ({ ...LIMITS, ...limits }),
	});
	const route = localRoute<RawExchange>({
		method: '*',
		path: '/v1/service/',
		prefix: true,
		listeners: ['agent'],
		body: 'raw',
		async handle({ body: { request, response, target } }) {
			try {
				await forward(request, response, target);
			} catch (error) {
				if (error instanceof AgentError) return forwardProblem(error);
				throw error;
			}
			return { answered: true };
		},
	});
	const { agentSocket, faults } = await open([route]);
	return { socketPath: agentSocket, port, heads, faults };
}

interface Told {
	readonly status: number;
	/** Of the agent's own answers. */
	readonly effect: string | null;
	readonly code: string | null;
	readonly text: string;
	/** Whether the connection ended within the answer. */
	readonly cut: boolean;
}

function ask(socketPath: string, method = 'GET', body?: string | Readable, path = '/v1/service/api/x'): Promise<Told> {
	return new Promise((resolve, reject) => {
		const length = typeof body === 'string' ? { 'content-length': Buffer.byteLength(body) } : {};
		const request = httpRequest({ socketPath, method, path, agent: false, headers: length }, (response) => {
			void read(response).then(resolve);
		});
		request.on('error', reject);
		if (body instanceof Readable) body.on('error', () => {}).pipe(request);
		else request.end(body);
	});
}

async function read(response: IncomingMessage): Promise<Told> {
	let text = '';
	let cut = false;
	try {
		for await (const chunk of response) text += (chunk as Buffer).toString('latin1');
	} catch {
		cut = true;
	}
	const { statusCode: status = 0, headers } = response;
	const isProblem = headers['content-type'] === 'application/problem+json';
	const code = isProblem ? (JSON.parse(text) as { code: string }).code : null;
	const effect = headers['idv-agent-effect'];
	return { status, effect: typeof effect === 'string' ? effect : null, code, text, cut };
}

const afterAsked =
	(...bytes: (string | Buffer)[]): Hostile =>
	(socket) => {
		for (const piece of bytes) socket.write(piece);
	};
const andClose =
	(...bytes: string[]): Hostile =>
	(socket) =>
		socket.end(bytes.join(''));
const answer = (body: string, head = '') =>
	`HTTP/1.1 200 OK\r\n${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const compressed = (coding: string, bytes: Buffer): [string, Buffer] => [
	`HTTP/1.1 200 OK\r\nContent-Encoding: ${coding}\r\nContent-Length: ${bytes.length}\r\n\r\n`,
	bytes,
];
const redirect = (status: number, location: string) =>
	afterAsked(`HTTP/1.1 ${status} Away\r\n${location ? `Location: ${location}\r\n` : ''}Content-Length: 0\r\n\r\n`);
type Row = [string, Hostile | null, Partial<Told>];
const CHUNKED = 'Transfer-Encoding: chunked\r\n\r\n';
/** More than the guard of answers holds back, and little of it repeats. */
const LONG = Buffer.from(Array.from({ length: 20_000 }, (_, at) => 33 + ((at * at * 7919) % 89)));
/** A failure of the service that may follow an effect. */
const possible = (status: number, code: string): Partial<Told> => ({ status, code, effect: 'possible' });
/** What the service itself has said. */
const passed = (status: number, text: string): Partial<Told> => ({
	...{ status, text, effect: null, code: null, cut: false },
});

describe('a service that', () => {
	test('is asked nothing over HTTP/1.0, where a cut answer would look whole to the application [F1803]', async () => {
		const { socketPath, heads } = await givenForwarding(() => {});
		const socket = connect(socketPath);
		socket.end('GET /v1/service/api/x HTTP/1.0\r\n\r\n');
		let text = '';
		for await (const chunk of socket) text += String(chunk);
		expect(text).toMatch(/^HTTP\/1\.1 422 .*idv-agent-effect: none.*"code":"body-invalid"/is);
		expect(heads).toEqual([]);
	});

	test('is given no body in a coding of the transfer that it would not be told of [F1770]', async () => {
		const { socketPath, heads } = await givenForwarding(() => {});
		const headers = { 'transfer-encoding': 'gzip, chunked' };
		const told = await new Promise<Told>((resolve, reject) => {
			const request = httpRequest({ socketPath, method: 'POST', path: '/v1/service/api/x', headers }, (response) =>
				read(response).then(resolve, reject),
			);
			request.on('error', reject).end('packed');
		});
		expect(told).toMatchObject({ status: 422, code: 'body-invalid', effect: 'none' });
		expect(heads).toEqual([]);
	});

	test('resets the connection within a body without a length: the answer is not passed on as whole [F1767]', async () => {
		let asked: Socket | undefined;
		const { socketPath } = await givenForwarding((socket) => {
			asked = socket;
			socket.write('HTTP/1.1 200 OK\r\n\r\nhalf');
		});
		const request = httpRequest({ socketPath, path: '/v1/service/api/x', agent: false }).end();
		const [response] = (await once(request, 'response')) as [IncomingMessage];
		const told = read(response);
		asked?.resetAndDestroy();
		expect(await told).toMatchObject({ status: 200, text: 'half', cut: true });
	});

	test.each<Row>([
		['refuses connections', null, { status: 503, code: 'service-unreachable', effect: 'none' }],
		['closes when it is asked', andClose(), possible(502, 'connection-lost')],
		['resets when it is asked', (socket) => socket.resetAndDestroy(), possible(502, 'connection-lost')],
		['never answers', () => {}, possible(504, 'request-timeout')],
		['stops within its head', afterAsked('HTTP/1.1 200 OK\r\nX-Half'), possible(504, 'request-timeout')],
		[
			'stops before its body',
			afterAsked('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n'),
			{ status: 200, text: '', cut: true },
		],
		['closes within its head', andClose('HTTP/1.1 200 OK\r\nX-Ha'), { status: 502, effect: 'possible' }],
		['speaks another protocol', afterAsked('SSH-2.0-OpenSSH_9.9\r\n'), possible(502, 'bad-response')],
		[
			'speaks HTTP/2',
			afterAsked('\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\0\xff\xff'),
			{ status: 502, effect: 'possible' },
		],
		[
			'sends a head without end',
			afterAsked(`HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(100_000)}`),
			possible(502, 'bad-response'),
		],
		['sends no status', afterAsked('HTTP/1.1 what\r\n\r\n'), possible(502, 'bad-response')],
		[
			'sends two lengths',
			afterAsked('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc'),
			{ status: 502, effect: 'possible' },
		],
		[
			'sends a negative length',
			afterAsked('HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n'),
			possible(502, 'bad-response'),
		],
		[
			'sends length and chunks',
			afterAsked('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'),
			{ status: 502, effect: 'possible' },
		],
		[
			'sends a NUL in a header',
			afterAsked('HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n'),
			possible(502, 'bad-response'),
		],
		[
			'changes the protocol',
			afterAsked('HTTP/1.1 101 Switching Protocols\r\nUpgrade: tea\r\nConnection: upgrade\r\n\r\n'),
			{ status: 502, effect: 'possible' },
		],
		['only announces', andClose('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'), { status: 502, effect: 'possible' }],
		[
			'announces before it answers',
			afterAsked('HTTP/1.1 102 Processing\r\n\r\n'.repeat(3), 'HTTP/1.1 103 Early Hints\r\n\r\n', answer('tea')),
			passed(200, 'tea'),
		],
		['ends its answer by closing', andClose('HTTP/1.0 200 OK\r\n\r\ntea'), passed(200, 'tea')],
		[
			'sends trailers',
			afterAsked('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntea\r\n0\r\nX-After: 1\r\n\r\n'),
			passed(200, 'tea'),
		],
		[
			'goes on where nothing waits for that',
			afterAsked('HTTP/1.1 100 Continue\r\n\r\n'.repeat(2), answer('tea')),
			passed(200, 'tea'),
		],
		['compresses what was to be plain', afterAsked(...compressed('gzip', gzipSync('tea'))), passed(200, 'tea')],
		[
			'compresses twice',
			afterAsked(...compressed('Deflate, br', brotliCompressSync(deflateSync('tea')))),
			passed(200, 'tea'),
		],
		['compresses nothing', afterAsked(compressed('gzip', Buffer.alloc(0))[0]), passed(200, '')],
		...(['gzip', 'deflate', 'br', 'zstd', 'deflate, gzip'] as const).map(
			(coding): Row => [
				`compresses nothing by ${coding}, in chunks`,
				afterAsked(`HTTP/1.1 200 OK\r\nContent-Encoding: ${coding}\r\n${CHUNKED}0\r\n\r\n`),
				passed(200, ''),
			],
		),
		['compresses nothing and closes', andClose('HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n'), passed(200, '')],
		[
			'closes within what was to be compressed, before any of it',
			andClose(`HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n${CHUNKED}`),
			possible(502, 'connection-lost'),
		],
		['has a coding of its own', afterAsked(...compressed('own', Buffer.from('tea'))), passed(200, 'tea')],
		['names 5 codings', afterAsked(...compressed('br,'.repeat(5), Buffer.from('tea'))), passed(200, 'tea')],
		['names 4,000 codings', afterAsked(...compressed('br,'.repeat(4_000), Buffer.from('tea'))), passed(200, 'tea')],
		[
			'damages what it compresses',
			afterAsked(...compressed('gzip', gzipSync('tea').subarray(0, 9))),
			possible(502, 'bad-response'),
		],
		...(
			[
				['gzip', gzipSync(LONG), { status: 200, cut: true }],
				['deflate', deflateSync(LONG), { status: 200, cut: true }],
				['deflate', deflateRawSync(LONG), { status: 200, cut: true }],
				['br', brotliCompressSync(LONG), { status: 200, cut: true }],
				// Nothing of a block can be had before its end.
				['zstd', zstdCompressSync(LONG), possible(502, 'bad-response')],
				['gzip', Buffer.concat([gzipSync(LONG), gzipSync('tea')]), { status: 200, cut: true }],
			] as const
		).map(
			([coding, whole, expected], at): Row => [
				`ends ${coding} a byte too early (${at})`,
				afterAsked(...compressed(coding, whole.subarray(0, -1))),
				expected,
			],
		),
		[
			'compresses too much',
			afterAsked(...compressed('gzip', gzipSync(Buffer.alloc(50 * MAX_BYTES)))),
			{ status: 200, cut: true },
		],
		[
			'sends the Connection back, compressed',
			afterAsked(...compressed('gzip', gzipSync(`you sent ${TOKEN}`))),
			possible(502, 'answer-withheld'),
		],
		[
			'sends less than it announces',
			andClose('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntea'),
			{ status: 200, cut: true },
		],
		[
			'sends chunks without an end',
			andClose('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntea\r\n'),
			{ status: 200, cut: true },
		],
		[
			'falls silent within its body',
			afterAsked('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntea'),
			{ status: 200, cut: true },
		],
		[
			'announces too much',
			afterAsked(`HTTP/1.1 200 OK\r\nContent-Length: ${MAX_BYTES + 1}\r\n\r\n`),
			possible(507, 'response-too-large'),
		],
		[
			'sends the Connection back, compressed, and says so after 1,200 other headers [F1283]',
			afterAsked(
				`HTTP/1.1 200 OK\r\n${'X: 1\r\n'.repeat(1200)}`,
				...compressed('gzip', gzipSync(TOKEN)).map((part) =>
					typeof part === 'string' ? part.replace(/^.*\r\n/, '') : part,
				),
			),
			possible(502, 'answer-withheld'),
		],
		[
			'sends the Connection as the name of a header [F1285]',
			afterAsked(answer('tea', `${TOKEN}: 1\r\n`)),
			possible(502, 'answer-withheld'),
		],
		['sends the Connection back', afterAsked(answer(`you sent ${TOKEN}`)), possible(502, 'answer-withheld')],
		[
			'sends the Connection in a header',
			afterAsked(answer('tea', `X-Echo: ${TOKEN}\r\n`)),
			possible(502, 'answer-withheld'),
		],
		[
			'leads the Connection elsewhere',
			redirect(302, `https://other.example/?${TOKEN}`),
			possible(502, 'answer-withheld'),
		],
		['leads elsewhere', redirect(303, 'https://other.example/way?secret=1'), possible(502, 'redirect-refused')],
		['leads nowhere', redirect(307, ''), possible(502, 'redirect-refused')],
		['leads to what is no address', redirect(308, 'http://['), possible(502, 'redirect-refused')],
		['refuses with 400', redirect(400, ''), passed(400, '')],
		['has nothing new', afterAsked('HTTP/1.1 304 Not Modified\r\n\r\n'), passed(304, '')],
		[
			'has no room',
			afterAsked('HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy'),
			passed(503, 'busy'),
		],
		['pretends to be the agent', afterAsked(answer('tea', 'Idv-Agent-Effect: none\r\n')), passed(200, 'tea')],
		['has a status of its own', afterAsked('HTTP/1.1 799 Odd\r\nContent-Length: 3\r\n\r\ntea'), passed(799, 'tea')],
	])('%s: an application knows who answered, and whether it had an effect [F671]', async (_, hostile, expected) => {
		const { socketPath, faults } = await givenForwarding(hostile);
		for (const [method, body] of [['GET'], ['POST', 'x'.repeat(1000)]] as const) {
			const told = await ask(socketPath, method, body);
			expect(told).toMatchObject(expected);
			// What may have had an effect must not look like what can be repeated.
			if (told.effect === 'possible') expect(told.status).not.toBe(503);
			expect(told.text).not.toContain(TOKEN);
		}
		expect(faults).toEqual([]);
	});

	test.each(['0.9', '1.2', '2.0', '9.9'])(
		'says that it speaks HTTP/%s: nothing of that is passed on [F1819]',
		async (version) => {
			const { socketPath } = await givenForwarding(afterAsked(answer('tea').replace('1.1', version)));
			expect(await ask(socketPath)).toMatchObject(possible(502, 'bad-response'));
		},
	);

	test.each(['identity', 'gzip, chunked', 'GZIP,chunked', 'deflate, gzip, chunked', 'br, chunked', 'own, chunked'])(
		'packs the transfer by %s, unasked: refused, and nothing of it is passed on [F1104]',
		async (coding) => {
			const packed = gzipSync(`you sent ${TOKEN}`);
			const head = `HTTP/1.1 200 OK\r\nTransfer-Encoding: ${coding}\r\n\r\n${packed.length.toString(16)}\r\n`;
			const { socketPath } = await givenForwarding(afterAsked(head, packed, '\r\n0\r\n\r\n'));
			for (const body of [undefined, 'a']) {
				const told = await ask(socketPath, body ? 'POST' : 'GET', body);
				expect(told).toMatchObject(possible(502, 'bad-response'));
				expect(told.text).toContain('Transfer-Encoding');
			}
		},
	);

	test.each([
		['gzip', gzipSync('tea')],
		['x-gzip', gzipSync('tea')],
		['gzip', Buffer.concat([gzipSync('tea'), gzipSync(' for two')])],
		['deflate', deflateSync('tea')],
		['deflate', deflateRawSync('tea')],
		['deflate', deflateRawSync('tea', { level: 0 })],
		['deflate', deflateRawSync(LONG)],
		['deflate', deflateRawSync('')],
		['deflate, gzip', gzipSync(deflateRawSync('tea'))],
		['gzip, Deflate', deflateRawSync(gzipSync('tea'))],
		['own', Buffer.from('tea')],
		['own, gzip', gzipSync('tea')],
	])('packs by %s (%#): an application reads what fetch reads [F1050]', async (coding, bytes) => {
		// In pieces of a byte at first, as a network may bring them.
		const hostile: Hostile = (socket) => {
			socket.write(compressed(coding, bytes)[0]);
			socket.write(bytes.subarray(0, 1), () => socket.write(bytes.subarray(1)));
		};
		const { socketPath, port } = await givenForwarding(hostile);
		const asFetch = await (await fetch(`http://127.0.0.1:${port}/tenant/api/x`)).arrayBuffer();
		expect(await ask(socketPath)).toMatchObject(passed(200, Buffer.from(asFetch).toString('latin1')));
	});

	test.each<[string, Hostile, RegExp]>([
		['of headers that are too large', afterAsked(answer('', `X: ${'x'.repeat(70_000)}\r\n`)), /headers .* 65536 bytes/],
		['of a damaged gzip', afterAsked(...compressed('gzip', Buffer.from('no gzip'))), /compression is damaged/],
		[
			'of a cut br',
			afterAsked(...compressed('br', brotliCompressSync('tea').subarray(0, 2))),
			/compression is damaged/,
		],
		['of a damaged deflate', afterAsked(...compressed('deflate', Buffer.from('no deflate'))), /compression is damaged/],
		['of a damaged zstd', afterAsked(...compressed('zstd', Buffer.from('no zstd'))), /compression is damaged/],
	])('an answer %s is named for what it is, and not as no HTTP [F678]', async (_, hostile, words) => {
		const { socketPath } = await givenForwarding(hostile);
		const { code, detail, remedy } = JSON.parse((await ask(socketPath)).text);
		expect([code, detail]).toEqual(['bad-response', expect.stringMatching(words)]);
		expect(remedy).not.toContain('port');
	});

	test('an answer with headers of 60 KiB is passed on', async () => {
		const long = 'x'.repeat(60 * 1024);
		const { socketPath } = await givenForwarding(afterAsked(answer('tea', `X-Long: ${long}\r\n`)));
		const request = httpRequest({ socketPath, path: '/v1/service/x', agent: false, maxHeaderSize: 80 * 1024 }).end();
		const [response] = (await once(request, 'response')) as [IncomingMessage];
		expect(response.headers['x-long']).toBe(long);
		expect(await read(response)).toMatchObject(passed(200, 'tea'));
	});

	test.each([
		['Content-Length: 0', '', ''],
		['Content-Length: 3', '', ''],
		['Content-Length: 3', 'tea', ''],
		['Transfer-Encoding: chunked', '3\r\ntea\r\n0\r\n\r\n', ''],
		['Content-Length: 3', '', 'content-length: 3\r\n'],
		['Content-Length: 3', 'tea', 'content-length: 3\r\n'],
	])(
		'says with 204, or 304, %s and "%s": an answer without a body, and the next one after it [F1054]',
		async (line, body, length) => {
			const status = length ? '304 Not Modified' : '204 No Content';
			const hostile: Hostile = (socket, head) =>
				socket.write(head.includes('/tenant/next') ? answer('next') : `HTTP/1.1 ${status}\r\n${line}\r\n\r\n${body}`);
			const { socketPath } = await givenForwarding(hostile);
			const request = (path: string, more = '') => `GET /v1/service/${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`;
			const told = await exchange(socketPath, request('first') + request('next', 'Connection: close\r\n'));
			const [first = '', next = ''] = told.split(/(?<=\r\n\r\n)/);
			expect(first).toMatch(new RegExp(`^HTTP/1.1 ${status}\r\n`));
			expect(/^(?:content-length|transfer-encoding): .*\r\n/im.exec(first)?.[0] ?? '').toBe(length);
			expect(next).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
		},
	);

	test('a redirect is named with its target, without its query, and with the path to ask for where there is one', async () => {
		const away = await givenForwarding(redirect(303, 'https://user:word@other.example/way?secret=1#part'));
		const told = JSON.parse((await ask(away.socketPath, 'POST', '{}')).text);
		expect(told).toMatchObject({
			detail: 'The service answered with a redirect (303) to https://other.example/way.',
			params: { status: 303, target: 'https://other.example/way' },
		});
		expect(JSON.stringify(told)).not.toMatch(/secret|word/);
		const within = await givenForwarding(redirect(303, '/tenant/api/done/7?x=1'));
		expect(JSON.parse((await ask(within.socketPath, 'POST', '{}')).text)).toMatchObject({
			remedy: expect.stringContaining('/v1/service/api/done/7'),
			params: { path: '/v1/service/api/done/7' },
		});
	});

	test.each([
		'myapp://callback.example/path?code=secret',
		'mailto:someone@b.example',
		'data:text/plain,secret',
		'blob:https://other.example/1',
	])(
		'a redirect to %s is named with its scheme, and with nothing that it does not lead to [F898]',
		async (location) => {
			const { socketPath } = await givenForwarding(redirect(302, location));
			const { detail, params } = JSON.parse((await ask(socketPath, 'POST', '{}')).text);
			const scheme = location.slice(0, location.indexOf(':') + 1);
			expect(params).toMatchObject({ status: 302, target: scheme });
			expect(detail).toBe(`The service answered with a redirect (302) to ${scheme}.`);
		},
	);

	test.each([
		['?', '?'],
		['??', '??'],
		['?a=1?', '?a=1?'],
		["?filter=(name='tea')&&b", "?filter=(name='tea')&&b"],
		['?%7e=%c3%A4&a={b}|c', '?%7e=%c3%A4&a={b}|c'],
		['?a="<b>"', '?a=%22%3Cb%3E%22'],
	])('is asked with the query %s as it is, but for what no URL may hold [F1051]', async (query, asked) => {
		const { socketPath, heads } = await givenForwarding(afterAsked(answer('tea')));
		expect(await ask(socketPath, 'GET', undefined, `/v1/service/x${query}`)).toMatchObject(passed(200, 'tea'));
		expect(heads[0]).toMatch(`GET /tenant/x${asked} HTTP/1.1\r\n`);
	});

	test('answers twice: the second answer is nobody’s', async () => {
		const { socketPath } = await givenForwarding((socket, head) => {
			const [, path = ''] = /^\w+ \/tenant(\S+)/.exec(head) ?? [];
			socket.write(answer(path) + answer('of the first'));
		});
		for (let turn = 0; turn < 5; turn += 1)
			expect(await ask(socketPath, 'GET', undefined, `/v1/service/${turn}`)).toMatchObject(passed(200, `/${turn}`));
	});

	test.each(['before the next request', 'with it'])(
		'answers again %s: what comes on a connection that waits ends it, and is nobody’s [F1101]',
		async (when) => {
			const sockets: Socket[] = [];
			const { socketPath } = await givenForwarding((socket, head) => {
				sockets.push(socket.on('error', () => {}));
				socket.write(answer(head.includes('/next') ? 'next' : 'first'));
			}, AT_LEISURE);
			const caller = connect(socketPath);
			const asked = (path: string, more = '') => `GET /v1/service/${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`;
			caller.write(asked('first'));
			await once(caller, 'data');
			const again = () => new Promise((resolve) => sockets[0]?.write(answer('of the first'), resolve));
			if (when.startsWith('before')) await again();
			caller.write(asked('next', 'Connection: close\r\n'));
			if (when === 'with it') void again();
			expect(String(await caller.toArray())).toMatch(/\r\n\r\nnext$/);
			expect(new Set(sockets).size).toBe(2);
		},
	);

	test('answers an upload at once, and again after it: the next request gets its own answer [F1102]', async () => {
		let first: Socket | undefined;
		const { socketPath } = await givenForwarding((socket, head) => {
			if (first) first.write(answer('of the upload'));
			first ??= socket;
			socket.write(answer(head.startsWith('POST') ? 'early' : 'next'));
		}, AT_LEISURE);
		expect(await ask(socketPath, 'POST', 'x'.repeat(3000))).toMatchObject(passed(200, 'early'));
		expect(await ask(socketPath, 'GET', undefined, '/v1/service/next')).toMatchObject(passed(200, 'next'));
	});

	test('sends more than is permitted: cut off, and not read on', async () => {
		let sent = 0;
		const { socketPath } = await givenForwarding((socket) => {
			socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
			const pour = () => {
				while (!socket.destroyed && socket.write(`2000\r\n${'x'.repeat(0x2000)}\r\n`)) sent += 0x2000;
			};
			socket.on('drain', pour);
			pour();
		});
		const told = await ask(socketPath).catch(() => ({ cut: true, text: '' }));
		expect([told.cut || told.text.includes('response-too-large')]).toEqual([true]);
		expect(told.text.length).toBeLessThanOrEqual(MAX_BYTES);
		expect(sent).toBeLessThan(50 * MAX_BYTES);
	});

	test('takes its time, but goes on: the answer comes whole, however long it takes in all', async () => {
		const { socketPath } = await givenForwarding((socket) => {
			socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n');
			const left = [...'slow teas'];
			const drip = setInterval(() => {
				socket.write(left.shift() ?? '');
				if (left.length === 0) clearInterval(drip);
			}, LIMITS.idleMs / 4);
			socket.on('close', () => clearInterval(drip));
		});
		expect(await ask(socketPath)).toMatchObject(passed(200, 'slow teas'));
	});

	test.each([
		['its body', 'Content-Length: 3\r\n\r\n', Buffer.from('tea')],
		['its chunks', CHUNKED, Buffer.from('3\r\ntea\r\n0\r\n\r\n')],
		[
			'what it compresses',
			`Content-Encoding: gzip\r\nContent-Length: ${gzipSync('tea').length}\r\n\r\n`,
			gzipSync('tea'),
		],
	])('sends its head at once, and %s when the application has that: both arrive [F675]', async (_, head, bytes) => {
		for (const isCut of [false, true]) {
			const hasHead = Promise.withResolvers<void>();
			const { socketPath, faults } = await givenForwarding(
				async (socket) => {
					socket.write(`HTTP/1.1 200 OK\r\n${head}`);
					await hasHead.promise;
					socket.end(isCut ? '' : bytes);
				},
				{ idleMs: 60_000 },
			);
			const request = httpRequest({ socketPath, path: '/v1/service/api/x', agent: false }).end();
			const [response] = (await once(request, 'response')) as [IncomingMessage];
			hasHead.resolve();
			expect(await read(response)).toMatchObject({ status: 200, text: isCut ? '' : 'tea', cut: isCut });
			expect(faults).toEqual([]);
		}
	});

	test('says back what comes, to an application that sends once it has the head: both go on together [F677]', async () => {
		const { socketPath } = await givenForwarding(
			(socket) => {
				socket.write('HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n');
				socket.on('data', (chunk) => String(chunk).includes('tea') && socket.write('tea'));
			},
			{ idleMs: 60_000 },
		);
		const request = httpRequest({ socketPath, method: 'POST', path: '/v1/service/api/x', agent: false });
		request.flushHeaders();
		const [response] = (await once(request, 'response')) as [IncomingMessage];
		request.write('tea');
		expect(await read(response)).toMatchObject(passed(200, 'tea'));
		request.on('error', () => {}).destroy();
	});

	test.each([
		['and keeps the connection', false],
		['and closes', true],
	])('answers before it has read %s: its answer arrives [F672]', async (_, closes) => {
		const early = `HTTP/1.1 413 Too Much\r\n${closes ? 'Connection: close\r\n' : ''}Content-Length: 5\r\n\r\nmuch!`;
		for (let turn = 0; turn < 10; turn += 1) {
			const { socketPath } = await givenForwarding(
				(socket) => {
					socket.pause();
					if (closes) socket.end(early);
					else socket.write(early);
				},
				{ maxBytes: 2 ** 30 },
			);
			const told = await ask(socketPath, 'POST', Readable.from(Array(600).fill(Buffer.alloc(16_384))));
			expect(told).toMatchObject(passed(413, 'much!'));
		}
	});

	test.each([0, 1, 100_000, 3_000_000])(
		'answers after %i bytes of an upload, and refuses the rest: its answer arrives [F661]',
		async (bytes) => {
			for (let turn = 0; turn < 10; turn += 1) {
				const { socketPath } = await givenForwarding(
					(socket) => {
						const before = socket.bytesRead;
						const look = () => {
							if (socket.bytesRead - before < bytes) return;
							socket.off('data', look).pause();
							// Closed with bytes that nobody has read: the other side is reset.
							socket.write('HTTP/1.1 413 Too Much\r\nConnection: close\r\nContent-Length: 5\r\n\r\nmuch!', () =>
								socket.destroy(),
							);
						};
						socket.on('data', look);
						look();
					},
					{ maxBytes: 2 ** 30 },
				);
				const told = await ask(socketPath, 'POST', Readable.from(Array(600).fill(Buffer.alloc(16_384))));
				expect(told).toMatchObject(passed(413, 'much!'));
			}
		},
	);

	test('reads nothing and says nothing: a large upload ends with 504', async () => {
		const { socketPath } = await givenForwarding((socket) => socket.pause(), { maxBytes: 2 ** 30 });
		const body = Readable.from(Array(4000).fill(Buffer.alloc(16_384)));
		expect(await ask(socketPath, 'POST', body)).toMatchObject(possible(504, 'request-timeout'));
	});

	test.each([
		['at once', (socket: Socket) => socket.destroy()],
		['after a while', (socket: Socket) => setImmediate(() => socket.end())],
	])('closes each new connection %s: the request is not repeated by 503', async (_, greet) => {
		const { socketPath, heads } = await givenForwarding(() => {}, {}, greet);
		expect(await ask(socketPath, 'POST', 'a')).toMatchObject({ status: 502, effect: 'possible' });
		expect(heads.length).toBeLessThan(2);
	});

	test('closes a kept connection with the next request: that one is not sent twice', async () => {
		const { socketPath, heads } = await givenForwarding((socket, head) => {
			if (head.includes('/first')) socket.write(answer('first'));
			else socket.destroy();
		});
		expect(await ask(socketPath, 'DELETE', undefined, '/v1/service/first')).toMatchObject(passed(200, 'first'));
		expect(await ask(socketPath, 'DELETE')).toMatchObject(possible(502, 'connection-lost'));
		expect(heads).toHaveLength(2);
	});
});

describe('an application that', () => {
	test('stops within its upload is told 408, and that the service may have acted', async () => {
		const { socketPath } = await givenForwarding(() => {});
		const body = new Readable({ read() {} });
		body.push('half');
		expect(await ask(socketPath, 'POST', body)).toMatchObject(possible(408, 'request-timeout'));
	});

	test.each([
		['no HTTP', 'tea\r\n\r\n', 400, 'none'],
		[
			'headers that are too large',
			`GET /v1/service/x HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
			431,
			'none',
		],
		['a query that is too long', `GET /v1/service/x?${'x'.repeat(20_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 431, 'none'],
		['a request without a host', 'GET /v1/service/x HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'none'],
		['a request for a tunnel', 'CONNECT service:443 HTTP/1.1\r\nHost: a\r\n\r\n', 405, 'none'],
		[
			'an upload that stops being HTTP',
			'POST /v1/service/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntea\r\nno chunk\r\n',
			400,
			'possible',
		],
	])('sends %s is told whether it had an effect [F663]', async (_, bytes, status, effect) => {
		const { socketPath } = await givenForwarding(() => {});
		const socket = connect(socketPath);
		socket.write(bytes);
		let text = '';
		for await (const chunk of socket) text += String(chunk);
		expect(text).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .*\r\nIdv-Agent-Effect: ${effect}\r\n`, 's'));
		if (status === 431) expect(text).toContain('Path, query and headers have more than 8192 bytes.');
	});

	test.each([65, 200, 5000])(
		'sends %i requests without reading gets each answer of the service, in order, and the next is refused without effect [F676]',
		async (count) => {
			const { socketPath, heads } = await givenForwarding((socket, head) => {
				const [, path = ''] = /^\w+ \/tenant(\S+)/.exec(head) ?? [];
				socket.write(answer(path));
			}, AT_LEISURE);
			const socket = connect(socketPath);
			let text = '';
			socket.on('data', (chunk) => {
				text += String(chunk);
			});
			// What is not looked at may be refused.
			socket.on('error', () => {});
			for (let at = 0; at < count; at += 1) socket.write(`GET /v1/service/${at} HTTP/1.1\r\nHost: a\r\n\r\n`);
			await new Promise((resolve) => socket.once('close', resolve));
			const answers = text.split('HTTP/1.1 ').slice(1);
			const refusal = answers.pop();
			expect(answers.map((one) => /\/\d+$/.exec(one)?.[0])).toEqual(heads.map((_, at) => `/${at}`));
			expect(heads.length).toBeGreaterThanOrEqual(64);
			expect(refusal).toMatch(/^503 .*Idv-Agent-Effect: none\r\n.*Connection: close\r\n.*"service-overloaded"/s);
		},
	);

	test('announces too much is refused before anything leaves; one that sends it is told that some has left', async () => {
		const { socketPath, heads } = await givenForwarding(() => {});
		const told = await ask(socketPath, 'POST', 'x'.repeat(MAX_BYTES + 1));
		expect([told, heads]).toMatchObject([{ status: 413, code: 'body-too-large', effect: 'none' }, []]);
		const streamed = Readable.from(Array(100).fill(Buffer.alloc(16_384)));
		expect(await ask(socketPath, 'POST', streamed)).toMatchObject(possible(413, 'body-too-large'));
	});

	test.each([
		['never ends its uploads', 'POST', '/unread'],
		['never reads its answers', 'GET', '/large'],
		['asks for what takes long', 'GET', '/slow'],
	])('%s, with others like it, keeps no other program from the service [F673]', async (_, method, path) => {
		const reached = Promise.withResolvers<void>();
		let slow = 0;
		const { socketPath } = await givenForwarding(
			(socket, head) => {
				if (head.includes('/quick')) return void socket.write(answer('quick'));
				slow += 1;
				if (slow === 6) reached.resolve();
				if (path === '/unread') return void socket.pause();
				if (path === '/slow') return;
				socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${2 ** 30}\r\n\r\n`);
				const pour = () => {
					while (!socket.destroyed && socket.write(Buffer.alloc(65_536)));
				};
				socket.on('drain', pour);
				pour();
			},
			{ maxBytes: 2 ** 30, idleMs: 60_000, each: 2 },
		);
		const flood = `for (let at = 0; at < 20; at += 1) {
			const asked = require('node:http').request({ socketPath: ${JSON.stringify(socketPath)}, method: '${method}', path: '/v1/service${path}', agent: false });
			asked.on('error', () => {}).on('response', (response) => response.pause());
			if ('${method}' === 'POST') asked.write(Buffer.alloc(1_000_000));
			else asked.end();
		}`;
		for (let program = 0; program < 3; program += 1) {
			const other = spawn(process.execPath, ['-e', flood], { stdio: 'ignore' });
			onTestFinished(async () => {
				const gone = once(other, 'exit');
				other.kill();
				await gone;
			});
		}
		await reached.promise;
		expect(await ask(socketPath, 'GET', undefined, '/v1/service/quick')).toMatchObject(passed(200, 'quick'));
		expect(slow).toBe(6);
	});

	test.each([
		['GET http://agent/v1/service/api/x?a=b', '/tenant/api/x?a=b'],
		['GET HTTPS://user@[::1]:80/v1/service/', '/tenant/'],
		['GET ws://agent/v1/service/api/x', '/tenant/api/x'],
	])('writes the whole address in its request line, %s, is answered as without it [F890]', async (line, path) => {
		const { socketPath, heads } = await givenForwarding(andClose(answer('tea')));
		const got = await exchange(socketPath, `${line} HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n`);
		expect(got).toMatch(/^HTTP\/1\.1 200 OK\r\n.*tea/s);
		expect(heads).toEqual([expect.stringContaining(`GET ${path} HTTP/1.1\r\n`)]);
	});

	test.each([
		'GET http://agent/v1/service/api/%zz HTTP/1.1\r\nHost: a',
		'GET http://agent/v1/service HTTP/1.1\r\nHost: a',
		'GET ftp://agent/v1/service/../x HTTP/1.1\r\nHost: a',
		'GET /v1/service HTTP/1.1\r\nHost: a',
		'GET /v1/service?page=2 HTTP/1.1\r\nHost: a',
		'OPTIONS /v1/service/api/x HTTP/1.1\r\nHost: a',
		'OPTIONS http://agent/v1/service/api/x HTTP/1.1\r\nHost: a',
		'GET http://agent/v1/service/api/x HTTP/1.1',
		'GET /v1/service/api/x HTTP/1.1\r\nHost: a\r\nExpect: tea',
		'GET /v1/service/api/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x',
		'GET /v1/service/../x HTTP/1.1\r\nHost: a',
	])('asks what is refused, %j, is told in each answer of the agent that it had no effect [F891]', async (head) => {
		const { socketPath, heads } = await givenForwarding(() => {});
		const admin = socketPath.replace(/agent\.sock$/, 'admin.sock');
		for (const socket of [socketPath, admin])
			expect(await exchange(socket, `${head}\r\nConnection: close\r\n\r\n`)).toMatch(
				/^HTTP\/1\.1 4\d\d .*\r\nIdv-Agent-Effect: none\r\n.*problem\+json/s,
			);
		expect(heads).toEqual([]);
	});

	test.each([
		['a body', 'Content-Length: 3\r\n', 'tea'],
		['a body in chunks', 'Transfer-Encoding: chunked\r\n', '3\r\ntea\r\n0\r\n\r\n'],
		['no body', '', ''],
	])('sends headers beyond ASCII with %s: they go on byte for byte, both ways [F1103]', async (_, length, body) => {
		const odd = 'Content-Disposition: attachment; filename="\xe9 \xc3\xa9.png"\r\nX-Request-Id: \xe9\xff\x80\r\n';
		for (const isLate of [false, true]) {
			const { socketPath, heads } = await givenForwarding((socket) => {
				socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 3\r\n${odd}\r\n`, 'latin1');
				if (isLate) setTimeout(() => socket.write('tea'), 150);
				else socket.write('tea');
			}, AT_LEISURE);
			const caller = connect(socketPath);
			caller.write(
				`POST /v1/service/x HTTP/1.1\r\nHost: a\r\n${length}${odd}Connection: close\r\n\r\n${body}`,
				'latin1',
			);
			const told = Buffer.concat(await caller.toArray()).toString('latin1');
			for (const line of odd.split('\r\n')) {
				expect(heads[0]?.toLowerCase()).toContain(line.toLowerCase());
				expect(told.toLowerCase()).toContain(line.toLowerCase());
			}
		}
	});

	test.each(['GET', 'POST'])('closes its own side after a %s gets its answer [F674]', async (method) => {
		const { socketPath } = await givenForwarding((socket) => {
			setImmediate(() => socket.write(answer('tea')));
		});
		const socket = connect(socketPath);
		socket.end(`${method} /v1/service/api/x HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\n\r\n`);
		let text = '';
		for await (const chunk of socket) text += String(chunk);
		expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n.*tea/s);
	});

	test('leaves while the service thinks: the service is left as well', async () => {
		const left = Promise.withResolvers<void>();
		const reached = Promise.withResolvers<void>();
		const { socketPath } = await givenForwarding(
			(socket) => {
				socket.on('close', left.resolve);
				reached.resolve();
			},
			{ idleMs: 600_000 },
		);
		const request = httpRequest({ socketPath, path: '/v1/service/api/x', agent: false });
		request.on('error', () => {}).end();
		await reached.promise;
		request.destroy();
		await left.promise;
	});
});
