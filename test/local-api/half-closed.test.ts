import { once } from 'node:events';
import net from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { localRoute } from '../../src/local-api/server/local-server.edge.ts';
import { openLoopbackServer } from '../../src/local-api/server/loopback-server.edge.ts';
import { ask, echoRoutes, eventSource, open } from './local-server.ts';

/** A caller that closes its own side when it likes, and reads on. */
async function call(path: string) {
	const socket = net.connect({ path, allowHalfOpen: true }).setEncoding('latin1');
	onTestFinished(() => void socket.destroy());
	await once(socket, 'connect');
	let got = '';
	socket.on('data', (chunk) => {
		got += chunk;
	});
	return {
		socket,
		got: () => got,
		async until(text: string) {
			while (!got.includes(text)) await once(socket, 'data');
		},
		/** The agent has seen the end before it answers a later request, and has looked whether this caller is there. */
		async endsSeen(bytes = '') {
			await new Promise<void>((resolve) => socket.end(bytes, resolve));
			await ask(path, {});
		},
		async whole() {
			if (!socket.readableEnded) await once(socket, 'end');
			return got;
		},
	};
}

const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';
const HEAD = 'POST /v1/slow HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\n';
const BODY = '{"name":"ab"}';
const WITH_LENGTH = `Content-Length: ${BODY.length}\r\n\r\n${BODY}`;

describe('a caller that closes its own side', () => {
	test.each([
		['a body of a known length', `${HEAD}${WITH_LENGTH}`, '', 1],
		['a body and Expect', `${HEAD}Expect: 100-continue\r\n${WITH_LENGTH}`, CONTINUE, 1],
		['a body in chunks', `${HEAD}Transfer-Encoding: chunked\r\n\r\nd\r\n${BODY}\r\n0\r\n\r\n`, '', 1],
		['two requests', `${HEAD}${WITH_LENGTH}${HEAD}Expect: 100-continue\r\n${WITH_LENGTH}`, '', 2],
		['a request of HTTP/1.0', `${HEAD}${WITH_LENGTH}`.replace('1.1', '1.0'), '', 1],
	])(
		'after %s gets each whole answer, however long it takes, and the last says that it is the last [F869]',
		async (_, bytes, before, count) => {
			const reached = Promise.withResolvers<void>();
			const answers = Promise.withResolvers<void>();
			const slow = localRoute({
				...{ method: 'POST', path: '/v1/slow', listeners: ['agent'], body: z.object({ name: z.string() }) },
				async handle({ body }) {
					reached.resolve();
					await answers.promise;
					return { status: 200, body };
				},
			});
			const { agentSocket } = await open([slow], { limits: { lingerMs: 1 } });
			const caller = await call(agentSocket);
			await caller.endsSeen(bytes);
			await reached.promise;
			// What reads the first line as the status gets no other one.
			expect(caller.got()).toBe(before);
			answers.resolve();
			const answered = (await caller.whole()).replaceAll(CONTINUE, '').split(/(?=HTTP\/1\.1 )/);
			expect(answered).toHaveLength(count);
			for (const text of answered) expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\n\r\n\{"name":"ab"\}$/s);
			expect(answered.at(-1)).toMatch(/^connection: close\r$/im);
		},
	);

	test('in the middle of an event goes on with its stream: the event arrives as it is [F870]', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route, ...echoRoutes]);
		const caller = await call(agentSocket);
		caller.socket.write('GET /v1/events HTTP/1.0\r\n\r\n');
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		sink?.sendPart(Buffer.from('id: 1\ndata: "one'), false);
		await caller.until('one');
		await caller.endsSeen();
		sink?.sendPart(Buffer.from('two"\n\n'), true);
		sink?.send({ id: '2', data: '2' });
		sink?.close();
		expect(await caller.whole()).toMatch(/\r\n\r\nid: 1\ndata: "onetwo"\n\nid: 2\ndata: 2\n\nevent: closed\n/);
	});

	test('between two events gets those that follow', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route]);
		const caller = await call(agentSocket);
		caller.socket.write('GET /v1/events HTTP/1.1\r\nHost: agent\r\n\r\n');
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		sink?.send({ id: '1', data: '1' });
		await caller.until('id: 1');
		await caller.endsSeen();
		sink?.send({ id: '2', data: '2' });
		sink?.close();
		expect(await caller.whole()).toMatch(/id: 2\ndata: 2\n\n.*event: closed/s);
	});

	test('and leaves while it waits is noticed, without a byte of an answer before it [F1053]', async () => {
		const reached = Promise.withResolvers<AbortSignal>();
		const slow = localRoute({
			...{ method: 'GET', path: '/v1/slow', listeners: ['agent'] },
			async handle({ signal }) {
				reached.resolve(signal);
				await new Promise((resolve) => signal.addEventListener('abort', resolve));
				return { status: 204 };
			},
		});
		const { agentSocket } = await open([slow], { limits: { lingerMs: 1 } });
		const caller = await call(agentSocket);
		await caller.endsSeen('GET /v1/slow HTTP/1.1\r\nHost: agent\r\n\r\n');
		const signal = await reached.promise;
		expect([signal.aborted, caller.got()]).toEqual([false, '']);
		caller.socket.destroy();
		await once(signal, 'abort');
	});

	test('on loopback is answered as on a socket, and one that leaves while it waits is noticed [F1174]', async () => {
		for (const leaves of [false, true]) {
			const reached = Promise.withResolvers<AbortSignal>();
			const answers = Promise.withResolvers<void>();
			const slow = localRoute({
				...{ method: 'GET', path: '/v1/slow', listeners: ['probe'] },
				async handle({ signal }) {
					reached.resolve(signal);
					await answers.promise;
					return { status: 200, body: { name: 'ab' } };
				},
			});
			const { port, close } = await openLoopbackServer({
				port: 0,
				listener: 'probe',
				routes: [slow],
				limits: { lingerMs: 20 },
			});
			onTestFinished(close);
			const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1');
			onTestFinished(() => void socket.destroy());
			let got = '';
			socket.on('data', (chunk) => {
				got += chunk;
			});
			socket.end(`GET /v1/slow HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`);
			const signal = await reached.promise;
			// The agent has seen the end before it answers a later request, and has looked whether this caller is there.
			expect((await fetch(`http://127.0.0.1:${port}/v1/none`)).status).toBe(404);
			expect([signal.aborted, got]).toEqual([false, '']);
			if (leaves) {
				socket.destroy();
				if (!signal.aborted) await once(signal, 'abort');
				continue;
			}
			answers.resolve();
			await once(socket, 'end');
			expect(got).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\n\r\n\{"name":"ab"\}$/s);
		}
	});

	test('and leaves later ends its stream at once', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route]);
		const caller = await call(agentSocket);
		caller.socket.write('GET /v1/events HTTP/1.1\r\nHost: agent\r\n\r\n');
		await source.untilConsumers(1);
		caller.socket.destroy();
		await source.untilConsumers(0);
		expect(source.cleanUps()).toBe(1);
	});
});
