/** Whatever comes in on any listener of a running agent: a problem document each, no crash, no hang, nothing moved. */
import { request } from 'node:http';
import { connect, type NetConnectOpts } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { localRoutes } from '../../src/local-api/routes.runner.ts';
import { problemSchema } from '../../src/protocol/local-answers.ts';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { type AskedListener, addressOf, ask } from './local-asking.ts';

const ORIGIN = 'https://kiosk.example.com';
const TOKEN = 'kiosk-token-0123456789012345678901';
const AS_KIOSK = { Origin: ORIGIN, Authorization: `Bearer ${TOKEN}` };
const LISTENERS = ['agent', 'admin', 'browser', 'probe'] as const;
/** The table as it is: none of its handlers is called. */
const ROUTES = localRoutes(...([{}, {}] as unknown as Parameters<typeof localRoutes>));
const MAX_BODY = 16 * 1024;

async function givenDevice() {
	const service = await givenService();
	const home = await givenHome();
	const applicationsFile = await home.secretFile('applications', `kiosk ${ORIGIN} ${TOKEN}`);
	const settings = { local: { metricsPort: 0, http: { port: 0, applicationsFile } } };
	return { service, device: await givenPairedAgent(service, { home, settings }) };
}

const headersOn = (listener: AskedListener) => (listener === 'browser' ? AS_KIOSK : {});

async function expectAllIsWell(device: RunningAgent): Promise<void> {
	for (const socket of LISTENERS)
		expect(await ask(device, LOCAL_ROUTES.live, { socket, headers: headersOn(socket) })).toMatchObject({ status: 200 });
	expect(device.log.filter(({ msg }) => /fault/.test(msg))).toEqual([]);
}

test('every route refuses what it does not take, on each listener that has it', async () => {
	const { device } = await givenDevice();
	for (const { method, path, listeners, body } of ROUTES)
		for (const socket of listeners) {
			const headers = headersOn(socket);
			const json = { ...headers, 'content-type': 'application/json' };
			const refused = async (status: number, code: string, asked: Parameters<typeof ask>[2]) => {
				const answer = await ask(device, path, { socket, headers, ...asked });
				const what = `${asked?.method} ${path} on ${socket}`;
				expect([what, answer.status, answer.json?.code]).toEqual([what, status, code]);
				expect(problemSchema.parse(answer.json)).toMatchObject({ status });
				expect(answer.headers['content-type']).toBe('application/problem+json');
				return answer;
			};
			if (method === '*') {
				for (const wrong of ['TRACE', 'PROPFIND']) await refused(405, 'method-not-allowed', { method: wrong });
				continue;
			}
			for (const wrong of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'PROPFIND', 'SUBSCRIBE']) {
				if (ROUTES.some((route) => route.path === path && route.method === wrong)) continue;
				const { headers: got } = await refused(405, 'method-not-allowed', { method: wrong });
				expect(got['allow']).toContain(method);
			}
			const tooLarge = Buffer.alloc(MAX_BODY + 1, ' ');
			await refused(413, 'body-too-large', { method, bytes: tooLarge, headers: json });
			if (body === undefined) continue;
			for (const type of ['text/plain', 'application/json; charset=latin1', 'application/x-www-form-urlencoded'])
				await refused(415, 'body-invalid', { method, bytes: '{}', headers: { ...headers, 'content-type': type } });
			await refused(415, 'body-invalid', { method, bytes: '{}' });
			await refused(415, 'body-invalid', { method, bytes: '{}', headers: { ...json, 'content-encoding': 'gzip' } });
			for (const bytes of ['{', '{"a":1,}', "{'a':1}", 'NaN', '{}{}', Buffer.from('{"name":"\xff"}', 'latin1')])
				await refused(400, 'body-invalid', { method, bytes, headers: json });
			// Its body may be left out.
			if (path === LOCAL_ROUTES.unpair) continue;
			for (const bytes of [
				'null',
				'[]',
				'7',
				'"text"',
				'{}',
				'{"__proto__":{"name":"x"}}',
				'['.repeat(8000) + ']'.repeat(8000),
			])
				await refused(422, 'body-invalid', { method, bytes, headers: json });
			await refused(422, 'body-invalid', { method });
		}
	await expectAllIsWell(device);
	expect(device.agent.status()).toMatchObject({ state: 'online', workflow: { live: 'check-in' } });
	expect(device.agent.leases.list().leases).toEqual([]);
});

/** Reads an answer to its end; of a stream that begins, only the head. */
function exchange(device: RunningAgent, { listener, method, path, headers, content }: Sent): Promise<Got> {
	return new Promise((resolve, reject) => {
		const asking = request(
			{
				...addressOf(device, listener),
				method,
				path,
				agent: false,
				headers: {
					...headersOn(listener),
					...headers,
					...(content.times > 0 && { 'content-length': bytesOf(content).length }),
				},
			},
			(response) => {
				const { statusCode: status = 0 } = response;
				const type = response.headers['content-type'] ?? '';
				if (status === 200 && type === 'text/event-stream') {
					resolve({ status, type, text: '' });
					asking.destroy();
					return;
				}
				response.toArray().then((chunks) => resolve({ status, type, text: Buffer.concat(chunks).toString() }), reject);
			},
		);
		asking.on('error', reject);
		asking.end(bytesOf(content));
	});
}
interface Sent {
	readonly listener: AskedListener;
	readonly method: string;
	readonly path: string;
	readonly headers: Readonly<Record<string, string>>;
	readonly content: Content;
}
/** Kept short, for who has to read a counterexample. One byte for each character. */
interface Content {
	readonly text: string;
	readonly times: number;
}
const bytesOf = ({ text, times }: Content) => Buffer.from(text.repeat(times), 'latin1');
interface Got {
	readonly status: number;
	readonly type: string;
	readonly text: string;
}

const word = fc.oneof(
	fc.constantFrom('', 'kiosk', 'a-1', 'tou5mrr6w30w-2', '-1', '0', '1e9', 'NaN', '%00', '%ff', '..', 'x'.repeat(300)),
	fc.string({ maxLength: 20 }).map(encodeURIComponent),
);
const parameter = fc.tuple(fc.constantFrom('since', 'consumer', 'access_token', 'other', ''), word);
// The clock of the test does not move: a caller that asks to wait would wait for ever.
const query = fc
	.array(fc.oneof(parameter, fc.tuple(fc.constant('wait'), fc.constantFrom('0', '-1', 'x', '61', ''))))
	.map((pairs) => pairs.map(([name, value]) => `${name}=${value}`).join('&'));
const path = fc.oneof(
	{ weight: 6, arbitrary: fc.constantFrom(...ROUTES.map((route) => route.path)) },
	{
		weight: 1,
		arbitrary: fc.tuple(fc.constantFrom(...ROUTES.map((route) => route.path)), word).map((parts) => parts.join('')),
	},
	{ weight: 1, arbitrary: fc.webPath().map((text) => text || '/') },
);
const member = fc.constantFrom(
	'code',
	'workflowId',
	'replace',
	'trustOrigin',
	'consumer',
	'id',
	'name',
	'seconds',
	'__proto__',
);
const value = fc.oneof(
	fc.jsonValue({ maxDepth: 2 }),
	fc.constantFrom('kiosk', 'check-in', 'boarding', 30, true, 'a-1'),
);
const text = fc.oneof(
	fc.dictionary(member, value, { maxKeys: 4 }).map((document) => JSON.stringify(document)),
	fc.json(),
	fc.json().map((whole) => whole.slice(0, -1)),
	fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)), maxLength: 64 }),
);
const content: fc.Arbitrary<Content> = fc.oneof(
	{ weight: 4, arbitrary: fc.record({ text, times: fc.constantFrom(0, 1) }) },
	{
		weight: 1,
		arbitrary: fc.record({ text: fc.constantFrom('[', ' '), times: fc.constantFrom(MAX_BODY, MAX_BODY + 1, 40_000) }),
	},
);
const headers = fc.dictionary(
	fc.constantFrom(
		'accept',
		'content-type',
		'last-event-id',
		'authorization',
		'origin',
		'host',
		'expect',
		'cookie',
		'x-other',
	),
	fc.oneof(
		fc.constantFrom('application/json', 'text/event-stream', '*/*', 'a-1', 'Bearer x', ORIGIN, '100-continue', 'null'),
		fc.string({ unit: 'binary-ascii', maxLength: 20 }).map((text) => text.replaceAll(/[^\t\x20-\x7e]/g, '')),
	),
	{ maxKeys: 4 },
);
const sent: fc.Arbitrary<Sent> = fc.record({
	listener: fc.constantFrom(...LISTENERS),
	method: fc.constantFrom(
		'GET',
		'GET',
		'POST',
		'POST',
		'PUT',
		'HEAD',
		'PATCH',
		'DELETE',
		'OPTIONS',
		'TRACE',
		'PROPFIND',
	),
	path: fc.tuple(path, query).map(([where, search]) => (search === '' ? where : `${where}?${search}`)),
	headers,
	content,
});

/** What the agent says of an error; the service's own errors are passed on as they are. */
function expectAnswer({ method, path: asked, listener }: Sent, { status, type, text }: Got): void {
	expect(status).toBeGreaterThanOrEqual(200);
	if (status < 400 || method === 'HEAD') return;
	if (asked.startsWith(LOCAL_ROUTES.ready) && status === 503 && type === 'application/json') return;
	if (asked.startsWith(LOCAL_ROUTES.service) && (listener === 'agent' || listener === 'browser')) return;
	expect(type).toBe('application/problem+json');
	const problem = problemSchema.parse(JSON.parse(text));
	expect(problem.status).toBe(status);
	expect(problem.code).not.toBe('internal');
	expect(problem.remedy).not.toBe('');
}

test('two thousand requests of any kind get an answer each, and the agent goes on', { timeout: 120_000 }, async () => {
	const { device } = await givenDevice();
	// Whatever else it does, it goes on being the paired device that most routes are about.
	const harmless = sent.map((one) =>
		one.path.startsWith(LOCAL_ROUTES.unpair) ? { ...one, listener: 'agent' as const } : one,
	);
	await fc.assert(
		fc.asyncProperty(fc.array(harmless, { minLength: 10, maxLength: 10 }), async (together) => {
			const got = await Promise.all(together.map((one) => exchange(device, one)));
			for (const [index, one] of together.entries()) expectAnswer(one, got[index] ?? expect.fail());
		}),
		{ numRuns: 200, endOnFailure: true },
	);
	await expectAllIsWell(device);
});

/** Writes bytes, says that no more come, and reads what is answered: of a stream only the beginning. */
function pour(options: NetConnectOpts, bytes: Uint8Array): Promise<string> {
	return new Promise((resolve) => {
		let text = '';
		const socket = connect({ ...options, allowHalfOpen: true }, () => socket.end(bytes));
		socket.on('data', (chunk) => {
			text += chunk.toString('latin1');
			if (/^HTTP\/1\.1 200 .*text\/event-stream.*\r\n\r\n/is.test(text)) socket.destroy();
		});
		socket.on('error', () => {});
		socket.on('close', () => resolve(text));
	});
}

test('bytes of any kind get an answer or a clean close, on each listener', { timeout: 120_000 }, async () => {
	const { device } = await givenDevice();
	const line = fc
		.tuple(
			fc.constantFrom('GET', 'POST', 'CONNECT', 'BREW', 'get'),
			path,
			fc.constantFrom('HTTP/1.1', 'HTTP/1.0', 'HTTP/3', ''),
		)
		.map((parts) => parts.join(' '));
	const header = fc.oneof(
		fc.constantFrom('Host: x', 'Content-Length: 5', 'Content-Length: -1', 'Transfer-Encoding: chunked', 'Expect: x'),
		fc.constantFrom('Upgrade: websocket', 'Connection: Upgrade', 'Connection: close', `Origin: ${ORIGIN}`, ' folded'),
		fc.string({ maxLength: 20 }),
	);
	const head = fc.tuple(line, fc.array(header, { maxLength: 5 })).map(([first, rest]) => [first, ...rest].join('\r\n'));
	const message = fc
		.tuple(head, content)
		.map(([text, body]) => Buffer.concat([Buffer.from(`${text}\r\n\r\n`), bytesOf(body)]));
	const damaged = fc.tuple(message, fc.nat(400), fc.nat(255)).map(([bytes, at, byte]) => {
		const copy = Buffer.from(bytes);
		copy[at % Math.max(1, copy.length)] = byte;
		return copy;
	});
	const anything = fc.oneof(message, damaged, fc.uint8Array({ maxLength: 200 }));
	await fc.assert(
		fc.asyncProperty(
			fc.constantFrom(...LISTENERS),
			fc.array(anything, { minLength: 5, maxLength: 5 }),
			async (listener, all) => {
				const { socketPath, hostname, port } = addressOf(device, listener);
				const to = socketPath ? { path: socketPath } : { host: String(hostname), port: Number(port) };
				for (const text of await Promise.all(all.map((bytes) => pour(to, bytes)))) {
					expect(text === '' || text.startsWith('HTTP/1.1 ')).toBe(true);
					expect(text).not.toMatch(/^HTTP\/1\.1 500|"internal"/);
				}
			},
		),
		{ numRuns: 100, endOnFailure: true },
	);
	await expectAllIsWell(device);
});

test('CONNECT is refused like any other method', async () => {
	const { device } = await givenDevice();
	const { socketPath = '' } = addressOf(device, 'agent');
	const text = await pour({ path: socketPath }, Buffer.from('CONNECT id.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n'));
	expect(text).toMatch(/^HTTP\/1\.1 405 .*"method-not-allowed"/s);
});
