import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { Readable } from 'node:stream';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import type { LocalReply, LocalRoute } from '../../src/local-api/server/local-server.ts';
import { ask, endless, exchange, failing, IN_BETWEEN, MEGABYTE, open } from './local-server.ts';

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

	test('a content whose caller has left is not begun', async () => {
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

	test('a caller that stops reading is dropped; one that waits for a slow source is not', async () => {
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
