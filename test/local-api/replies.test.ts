import { once } from 'node:events';
import net from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { LocalReply, LocalRoute } from '../../src/local-api/server/local-server.edge.ts';
import { ask, failing, MEGABYTE, open } from './local-server.ts';

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
	])('of %s nothing is left in the error', async (_name, reply) => {
		const { agentSocket, faults } = await open([get(() => reply)]);
		const answer = await ask(agentSocket, {});
		expect(answer).toMatchObject({ status: 500, body: { code: 'internal' } });
		expect(answer.headers).not.toHaveProperty('x-left');
		expect(answer.headers['content-type']).toBe('application/problem+json');
		expect(faults).toHaveLength(1);
	});

	test('bytes go out untouched, and HEAD tells how many there are', async () => {
		const headers = { 'Content-Type': 'application/wasm' };
		const { agentSocket } = await open([get(() => ({ status: 206, headers, text: new Uint8Array([0, 255, 10]) }))]);
		const told = { status: 206, headers: { 'content-type': 'application/wasm', 'content-length': '3' } };
		expect(await ask(agentSocket, {})).toMatchObject({ ...told, text: '\0\ufffd\n' });
		expect(await ask(agentSocket, { method: 'HEAD' })).toMatchObject({ ...told, text: '' });
	});

	test('a stream whose caller has left is not begun', async () => {
		const begun = Promise.withResolvers<void>();
		const replied = Promise.withResolvers<void>();
		let streams = 0;
		const stream = () => {
			streams += 1;
			return () => {};
		};
		const { agentSocket, faults } = await open([
			get(async ({ signal }) => {
				begun.resolve();
				await once(signal, 'abort');
				setImmediate(replied.resolve);
				return { stream };
			}),
		]);
		const socket = net.connect(agentSocket);
		socket.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		await begun.promise;
		socket.destroy();
		await replied.promise;
		expect([streams, faults]).toEqual([0, []]);
	});

	test('a caller that stops reading is dropped', async () => {
		const dropped = Promise.withResolvers<void>();
		const route = get(({ signal }) => {
			signal.addEventListener('abort', () => dropped.resolve());
			return { status: 200, text: Buffer.alloc(16 * MEGABYTE, 'x') };
		});
		const { agentSocket, faults } = await open([route], { limits: { requestMs: 50 } });
		const stuck = net.connect(agentSocket);
		onTestFinished(() => void stuck.destroy());
		stuck.write('GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		await dropped.promise;
		expect(faults).toEqual([]);
	});
});
