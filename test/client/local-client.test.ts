import { once } from 'node:events';
import { chmod, readFile, stat } from 'node:fs/promises';
import net from 'node:net';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentProblem } from '../../src/client/agent-problem.ts';
import { createEventStreamParser, MAX_ANSWER_BYTES, type ServerSentEvent } from '../../src/client/agent-socket.edge.ts';
import { createLocalClient } from '../../src/client/local-client.edge.ts';
import { consume, echoRoutes, eventSource, failureOf, makeDirectory, open } from '../local-api/local-server.ts';

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

	test('a wait that the answer names is told in milliseconds [F1878]', async () => {
		const runDir = await makeDirectory();
		const body = '{"code":"service-overloaded"}';
		const answer = answerOf('503 Full', 'application/problem+json\r\nRetry-After: 7', body);
		await pretend(runDir, (socket) => socket.end(answer));
		const { failure } = await failureOf(createLocalClient({ runDir }).request('agent', 'GET', '/v1/status'));
		expect(failure).toMatchObject({ code: 'service-overloaded', retryAfterMs: 7000 });
	});

	test('a socket that this user may not use: says which one and whose it is, and a permitted user gets an answer [F109]', async () => {
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
		expect(await client.request('admin', 'GET', '/v1/echo')).toMatchObject({ listener: 'admin' });
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
		['an error without words', answerOf('500 X', 'text/plain', ''), { code: 'bad-response' }],
		['an error that is a list', answerOf('400 X', 'application/json', '[1]'), { code: 'bad-response' }],
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

	test('an answer is read no further than its caller has room for [F1915]', async () => {
		const runDir = await makeDirectory();
		const answer = answerOf('200 OK', 'application/json', JSON.stringify('x'.repeat(2000)));
		await pretend(runDir, (socket) => void socket.end(answer));
		const ask = (maxBytes?: number) =>
			createLocalClient({ runDir, ...(maxBytes && { maxBytes }) }).request('agent', 'GET', '/');
		expect(await ask()).toHaveLength(2000);
		expect((await failureOf(ask(1000))).message).toBe('More than 1000 bytes came.');
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
		const ended = client.events('/v1/events', { silenceMs: 300 }, async ({ id }) => {
			seen.push(id);
			begun.resolve();
			await gate.promise;
			if (id === '3') throw own;
		});
		const settled = expect(ended).rejects.toBe(own);
		await begun.promise;
		// By the time this one complains, the other has been at work for longer than it puts up with silence.
		expect((await failureOf(client.events('/v1/events', { silenceMs: 600 }, () => {}))).code).toBe('request-timeout');
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
		['one event', 'id: 1\nevent: a\ndata: x\n\n', [{ id: '1', event: 'a', data: 'x' }]],
		['several lines', 'data: a\ndata: \ndata: b\n\n', [{ id: null, event: 'message', data: 'a\n\nb' }]],
		['a comment', ': hi\n\n: hi\ndata: x\n\n', [{ id: null, event: 'message', data: 'x' }]],
		['only one space is taken off', 'data:  x: y \n\n', [{ id: null, event: 'message', data: ' x: y ' }]],
		['separators of lines in JSON', 'data: "\u2028\r"\n\n', [{ id: null, event: 'message', data: '"\u2028\r"' }]],
		['no data, no event', 'id: 7\nevent: a\n\ndata: x\n\n', [{ id: null, event: 'message', data: 'x' }]],
		['an unfinished event', 'data: x\n', []],
	])('%s', (_name, text, events) => {
		expect(parseAll([bytesOf(text)])).toEqual(events);
	});

	test('the same events come out wherever the bytes are cut', () => {
		const field = fc.constantFrom('data: ', 'id: ', 'event: ', ': ');
		const value = fc.oneof(fc.string({ unit: 'grapheme', maxLength: 6 }), fc.constantFrom('', 'ü€😀', '{"a":1}'));
		const lineEnd = fc.constantFrom('\n', '\n\n');
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
			for (let size = 0; size <= MAX_ANSWER_BYTES + 1_000_000; size += 1_000_000) parse(lines);
		};
		expect(pour).toThrow(AgentProblem);
	});
});
