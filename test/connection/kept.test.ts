/** A request on a kept connection goes the same way out as any other, and fails in the same words. */
import { createServer as createHttpServer, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { text } from 'node:stream/consumers';
import { createServer as createTlsServer } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { classifyNetworkError } from '../../src/connection/classify-network-error.ts';
import { createNetwork, type NetworkSettings } from '../../src/connection/network.edge.ts';
import { connectProxy, fixture, identity, listen, rawServer, refusedPort } from './network-peers.ts';

const CA = { caFile: fixture('ca.pem') };
const ok = () => createHttpServer((_request, response) => response.end('ok'));
const secure = (certificate: string) =>
	createHttpsServer(identity(certificate), (_request, response) => response.end('ok'));

interface Case {
	readonly url: string;
	readonly settings?: NetworkSettings;
	readonly idleMs?: number;
}

/** What comes of one request by each of the two functions. */
async function bothWays({ url, settings = CA, idleMs = 5000 }: Case): Promise<readonly string[]> {
	const network = await createNetwork(settings, {});
	onTestFinished(() => network.close());
	const target = new URL(url);
	const asked = { method: 'GET', url: target, headers: {}, body: null, idleMs, signal: new AbortController().signal };
	const outcome = async (way: typeof network.ask) => {
		try {
			const answer = await way(asked);
			return `${answer.statusCode} ${await text(answer)}`;
		} catch (error) {
			return classifyNetworkError(error, { host: target.host, proxy: network.proxyName(target) }).code;
		}
	};
	return [await outcome(network.ask), await outcome((given) => network.ask({ ...given, keeps: 4000 }))];
}

const rows: [string, string, () => Promise<Case>][] = [
	['an answer in plain http', '200 ok', async () => ({ url: `http://127.0.0.1:${await listen(ok())}/` })],
	['an own authority', '200 ok', async () => ({ url: `https://localhost:${await listen(secure('server'))}/` })],
	[
		'a certificate of another host',
		'certificate-wrong-host',
		async () => ({ url: `https://localhost:${await listen(secure('wrong-host'))}/` }),
	],
	[
		'a certificate that has ended',
		'certificate-expired',
		async () => ({ url: `https://localhost:${await listen(secure('expired'))}/` }),
	],
	[
		'an authority that is not trusted',
		'certificate-untrusted',
		async () => ({ url: `https://localhost:${await listen(secure('server'))}/`, settings: {} }),
	],
	[
		'a port without a listener',
		'service-unreachable',
		async () => ({ url: `http://127.0.0.1:${await refusedPort()}/` }),
	],
	[
		'a tunnel of a proxy, in plain http',
		'200 ok',
		async () => {
			const { port } = await connectProxy({ targetPort: await listen(ok()) });
			return { url: 'http://service.test/', settings: { ...CA, proxy: `http://127.0.0.1:${port}` } };
		},
	],
	[
		'a proxy that refuses',
		'proxy-refused',
		async () => {
			const { port } = await connectProxy({ status: 407 });
			return { url: 'https://service.test/', settings: { ...CA, proxy: `http://127.0.0.1:${port}` } };
		},
	],
	[
		'a service that speaks HTTP/2 only',
		'tls-failed',
		async () => {
			const server = createTlsServer({ ...identity('server'), ALPNProtocols: ['h2'] });
			return { url: `https://localhost:${await listen(server)}/` };
		},
	],
	[
		'an answer that is no HTTP',
		'bad-response',
		async () => {
			const { port } = await rawServer((socket) => socket.end('SSH-2.0-OpenSSH\r\n\r\n'));
			return { url: `http://127.0.0.1:${port}/` };
		},
	],
	[
		'an answer that is cut',
		'connection-lost',
		async () => {
			const { port } = await rawServer((socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut'));
			return { url: `http://127.0.0.1:${port}/` };
		},
	],
	[
		'a service that says nothing',
		'request-timeout',
		async () => ({ url: `http://127.0.0.1:${(await rawServer(() => {})).port}/`, idleMs: 50 }),
	],
];

test.each(rows)('%s comes to %s by both ways', async (_name, expected, given) => {
	expect(await bothWays(await given())).toEqual([expected, expected]);
});

test('a network that retires lets an answer end that is under way, and closes what is kept for a next request [F1606]', async () => {
	const held = Promise.withResolvers<ServerResponse>();
	const server = createHttpServer((request, response) => {
		if (request.url !== '/held') return void response.end('ok');
		response.write('first ');
		held.resolve(response);
	});
	// Neither the server nor the rest of a time closes what is kept.
	server.keepAliveTimeout = 0;
	const port = await listen(server);
	const network = await createNetwork({}, {});
	onTestFinished(() => network.close());
	const get = (path: string) =>
		network.ask({
			...{ method: 'GET', url: new URL(`http://127.0.0.1:${port}${path}`), headers: {}, body: null, idleMs: 5000 },
			...{ signal: new AbortController().signal, keeps: 600_000 },
		});
	const [answer, other] = await Promise.all([get('/held'), get('/other')]);
	await text(other);
	const open = () => new Promise<number>((resolve) => server.getConnections((_, count) => resolve(count)));
	expect(await open()).toBe(2);
	network.retire();
	await expect.poll(open).toBe(1);
	(await held.promise).end('second');
	expect(await text(answer)).toBe('first second');
	await expect.poll(open).toBe(0);
});

test('a connection is kept no longer than the server says, which may close it under the next request [F1858]', async () => {
	const closed = Promise.withResolvers<void>();
	const head = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\nKeep-Alive: timeout=2\r\n\r\n';
	const { port } = await rawServer((socket) => void socket.once('close', closed.resolve).write(`${head}ok`));
	const network = await createNetwork({}, {});
	onTestFinished(() => network.close());
	const answer = await network.ask({
		...{ method: 'GET', url: new URL(`http://127.0.0.1:${port}/`), headers: {}, body: null, idleMs: 5000 },
		...{ signal: new AbortController().signal, keeps: 600_000 },
	});
	expect(await text(answer)).toBe('ok');
	await closed.promise;
});
