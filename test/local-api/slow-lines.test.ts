/** What moves slowly but steadily is waited for, also where it moves only in the kernel; what stands still is not. */
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { loadForeignFunctions } from '../../src/base/foreign-functions.edge.ts';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { watchProgress } from '../../src/local-api/forward-progress.edge.ts';
import { createForwarder, type ForwardLimits } from '../../src/local-api/forwarder.edge.ts';
import { forwardProblem } from '../../src/local-api/server/forward-problems.ts';
import { type LocalRoute, localRoute, type RawExchange } from '../../src/local-api/server/local-server.edge.ts';
import { openLoopbackServer } from '../../src/local-api/server/loopback-server.edge.ts';
import { listen } from '../connection/network-peers.ts';
import { eventSource, open } from './local-server.ts';

const IDLE_MS = 240;
const PIECE = 16 * 1024;
/** More than the kernel holds for a Unix socket, so that most of it waits. */
const LONG = 'x'.repeat(600_000);

/** Reads a piece every few milliseconds, and no more after so many bytes. */
function readSlowly(path: string, request: string, most = Number.POSITIVE_INFINITY) {
	const got = { text: '' };
	const socket: Socket = connect({
		path,
		onread: {
			buffer: Buffer.alloc(PIECE),
			callback(count, buffer) {
				got.text += Buffer.from(buffer.buffer as ArrayBuffer, 0, count).toString('latin1');
				if (got.text.length < most) setTimeout(() => socket.resume(), IDLE_MS / 8);
				socket.pause();
				return true;
			},
		},
	});
	socket.on('error', () => {});
	onTestFinished(() => void socket.destroy());
	socket.write(request);
	return { socket, got };
}

/** For longer than nothing may move. */
function standStill(reader: Readable) {
	reader.pause();
	setTimeout(() => reader.resume(), IDLE_MS * 3);
}

const GET = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;

/** Reads what is left. */
async function whole(socket: Socket) {
	socket.on('end', () => socket.destroy());
	const reading = setInterval(() => socket.resume(), 1);
	if (!socket.closed) await once(socket, 'close');
	clearInterval(reading);
}

/** What has come to the service's own kernel is not on the way any more. Source: Linux, asm-generic/socket.h. */
function keepLittle(service: Server) {
	const { fd } = (service as unknown as { _handle: { fd: number } })._handle;
	const setsockopt = { arguments: ['i32', 'i32', 'i32', 'buffer', 'u32'], return: 'i32' } as const;
	const functions = loadForeignFunctions()?.dlopen(null, { setsockopt }).functions;
	const [SOL_SOCKET, SO_RCVBUF] = [1, 8];
	functions?.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, Buffer.from(Uint32Array.of(PIECE).buffer), 4);
}

async function givenRoute(serve: (socket: Socket) => void, limits: Partial<ForwardLimits> = {}) {
	const service = createServer((socket) => {
		socket.on('error', () => {});
		serve(socket);
	});
	const port = await listen(service);
	keepLittle(service);
	const network = await createNetwork({}, {});
	onTestFinished(() => network.close());
	const forward = createForwarder({
		network,
		target: () => ({ baseUrl: `http://127.0.0.1:${port}`, token: 'connection-token-0123456789' }),
		allow: () => [],
		limits: () => ({ idleMs: IDLE_MS, pieceMs: IDLE_MS, ...limits }),
	});
	return localRoute<RawExchange>({
		...{ method: '*', path: '/v1/service/', prefix: true, listeners: ['agent', 'browser'], body: 'raw' },
		async handle({ body: { request, response, target } }) {
			try {
				await forward(request, response, target);
				return { answered: true };
			} catch (error) {
				if (error instanceof AgentError) return forwardProblem(error);
				throw error;
			}
		},
	});
}

const givenForwarding = async (...given: Parameters<typeof givenRoute>) =>
	(await open([await givenRoute(...given)])).agentSocket;

describe('what moves only in the kernel', () => {
	test.each([
		['its answer arrives', 1_000_000, 200],
		['and stops half-way, 504 does', 500_000, 504],
	])('of an upload is waited for: where the service reads slowly, %s [F1170]', async (_, most, status) => {
		const socketPath = await givenForwarding((socket) => {
			let count = 0;
			socket.on('data', (chunk) => {
				count += chunk.length;
				socket.pause();
				if (count >= 1_000_000) socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
				else if (count < most) setTimeout(() => socket.resume(), IDLE_MS / 4);
			});
		});
		const request = httpRequest({ socketPath, method: 'POST', path: '/v1/service/a', agent: false });
		request.end(Buffer.alloc(1_000_000, 'x'));
		const [response] = await once(request, 'response');
		expect(response.resume().statusCode).toBe(status);
	});

	test('of a download is waited for: it comes whole to an application that reads slowly, and is left where it stops [F1171]', async () => {
		for (const most of [LONG.length, 100_000]) {
			const left = Promise.withResolvers<void>();
			const socketPath = await givenForwarding((socket) => {
				socket.on('close', left.resolve);
				socket.once('data', () => socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${LONG.length}\r\n\r\n${LONG}`));
			});
			const { socket, got } = readSlowly(socketPath, GET('/v1/service/a'), most);
			await left.promise;
			await whole(socket);
			expect(got.text.endsWith(LONG)).toBe(most === LONG.length);
		}
	});

	test.each([['POST'], ['GET']])(
		'of a %s is waited for as long as a piece of the kernel may take, also where nothing may stand still for so long [F1817]',
		async (method) => {
			const socketPath = await givenForwarding(
				(socket) => {
					let left = method === 'POST' ? LONG.length : 1;
					socket.on('data', (chunk) => {
						left -= chunk.length;
						if (left <= 0) socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${LONG.length}\r\n\r\n${LONG}`);
					});
					if (method === 'POST') socket.once('data', () => standStill(socket));
				},
				{ pieceMs: 60_000 },
			);
			const request = httpRequest({ socketPath, method, path: '/v1/service/a', agent: false });
			request.end(method === 'POST' ? LONG : undefined);
			const [response] = await once(request, 'response');
			expect(response.statusCode).toBe(200);
			standStill(response);
			await once(
				response.on('data', () => {}),
				'end',
			);
		},
	);

	test('of an answer of the agent is waited for, and left where its reader stops [F1172]', async () => {
		for (const most of [LONG.length, 100_000]) {
			const left = Promise.withResolvers<void>();
			const long: LocalRoute = {
				...{ method: 'GET', path: '/v1/long', listeners: ['agent'] },
				handle({ signal }) {
					signal.addEventListener('abort', () => left.resolve());
					return { status: 200, text: LONG };
				},
			};
			const { agentSocket } = await open([long], { limits: { requestMs: IDLE_MS } });
			const { socket, got } = readSlowly(agentSocket, GET('/v1/long'), most);
			await left.promise;
			await whole(socket);
			expect(got.text.endsWith(LONG)).toBe(most === LONG.length);
		}
	});

	test('of a stream is waited for, and its reader is slow where it stops [F1173]', async () => {
		for (const most of [LONG.length, 100_000]) {
			const source = eventSource((_, sink) => {
				sink.send({ data: LONG });
				if (most === LONG.length) void sink.drained().then(() => sink.close());
			});
			const limits = { keepAliveMs: IDLE_MS, requestMs: IDLE_MS };
			const { agentSocket } = await open([source.route], { limits });
			const { socket, got } = readSlowly(agentSocket, GET('/v1/events'), most);
			await source.untilConsumers(1);
			await source.untilConsumers(0);
			await whole(socket);
			expect(got.text.includes('{"reason":"finished"}')).toBe(most === LONG.length);
		}
	});
});

describe('an answer that comes early to a page that writes on', () => {
	const [ANSWER, UPLOAD] = [200_000, 8_000_000];
	const origin = 'https://kiosk.example.com';
	const token = 'kiosk-token-0123456789012345678901';

	test.each([
		['and reads it in the end comes whole', UPLOAD, 60_000, ANSWER],
		['and never reads is left', Number.POSITIVE_INFINITY, 20, 0],
	])('%s [F1820]', async (_, upload, requestMs, least) => {
		const route = await givenRoute((socket) => {
			const head = `HTTP/1.1 413 Too Much\r\nContent-Length: ${ANSWER}\r\n\r\n`;
			socket.once('data', () => socket.pause().end(head + 'x'.repeat(ANSWER)));
		});
		const { port, close } = await openLoopbackServer({
			...{ port: 0, listener: 'browser', routes: [route], limits: { lingerMs: 1, requestMs } },
			applications: () => [{ name: 'kiosk', origin, token }],
		});
		onTestFinished(close);
		const socket = connect(port, '127.0.0.1').on('error', () => {});
		onTestFinished(() => void socket.destroy());
		const closed = new Promise((resolve) => socket.once('close', resolve));
		socket.write(
			`POST /v1/service/a HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\nOrigin: ${origin}\r\n`,
		);
		socket.write(`Authorization: Bearer ${token}\r\nTransfer-Encoding: chunked\r\n\r\n`);
		for (let sent = 0; sent < upload && !socket.closed; sent += PIECE) {
			if (!socket.write(`${PIECE.toString(16)}\r\n${'u'.repeat(PIECE)}\r\n`))
				await Promise.race([closed, once(socket, 'drain').catch(() => {})]);
		}
		let got = 0;
		socket.on('data', ({ length }) => {
			got += length;
		});
		await closed;
		expect(got).toBeGreaterThanOrEqual(least);
	});
});

describe('the watch over an exchange', () => {
	test.each([
		['nothing waits in the kernel', () => 0, 4000, 1000],
		['what waits there does not change', () => 9, 500, 1250],
		['what waits there does not change for as long as a piece may take', () => 9, 4000, 4250],
	])('ends it when nothing has moved for its time, and %s', (_, onTheWay, pieceMs, ms) => {
		vi.useFakeTimers();
		onTestFinished(() => void vi.useRealTimers());
		const idle = vi.fn();
		const { stop } = watchProgress({ idleMs: 1000, pieceMs }, idle, onTheWay);
		vi.advanceTimersByTime(ms - 1);
		expect(idle).not.toHaveBeenCalled();
		vi.advanceTimersByTime(1);
		expect(idle).toHaveBeenCalledOnce();
		stop();
	});

	test('does not end it while a byte leaves the kernel within its time, however many are left', () => {
		vi.useFakeTimers();
		onTestFinished(() => void vi.useRealTimers());
		const idle = vi.fn();
		let left = 1_000_000;
		const { stop } = watchProgress({ idleMs: 1000, pieceMs: 1000 }, idle, () => left);
		for (let round = 0; round < 1000; round += 1) {
			vi.advanceTimersByTime(990);
			left -= 1;
		}
		expect(idle).not.toHaveBeenCalled();
		vi.advanceTimersByTime(1250);
		expect(idle).toHaveBeenCalledOnce();
		stop();
	});
});
