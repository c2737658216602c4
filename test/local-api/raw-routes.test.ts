import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { pipeline } from 'node:stream/promises';
import { describe, expect, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import {
	type LocalReply,
	type LocalRequest,
	type LocalRoute,
	localRoute,
	type RawExchange,
} from '../../src/local-api/server/local-server.edge.ts';
import { ask, echoRoutes, endless, exchange, IN_BETWEEN, MEGABYTE, open, untilClosed } from './local-server.ts';

describe('prefixes and raw bodies', () => {
	const service = (
		handle: (exchange: RawExchange, request: LocalRequest) => LocalReply | Promise<LocalReply>,
	): LocalRoute =>
		localRoute<RawExchange>({
			body: 'raw',
			method: '*',
			path: '/v1/service/',
			prefix: true,
			listeners: ['agent'],
			handle: (request) => handle(request.body, request),
		});
	const sendBack = async ({ request, response }: RawExchange): Promise<LocalReply> => {
		await pipeline(request, response);
		return { answered: true };
	};
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
			listeners: ['agent'],
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
		const { agentSocket } = await open([service(sendBack)]);
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
				service((exchange) => {
					begun.resolve();
					return sendBack(exchange);
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

	test('a handler may answer on its own', async () => {
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

	test('a caller that continues to write after the answer of a raw route is cut off', async () => {
		const { agentSocket } = await open([service(() => ({ status: 202 }))], { limits: { lingerMs: 20 } });
		const bytes = 'POST /v1/service/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{';
		expect(await exchange(agentSocket, bytes)).toMatch(/^HTTP\/1\.1 202 /);
	});
});
