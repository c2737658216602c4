import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { readBounded } from '../../src/base/bodies.edge.ts';

/** An answer of so many bytes in chunks of a size. */
async function givenAnswer(bytes: number, chunk: number): Promise<IncomingMessage> {
	const server = createServer((_request, response) => {
		const socket = response.socket;
		socket?.on('error', () => {});
		socket?.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
		const one = `${chunk.toString(16)}\r\n${'x'.repeat(chunk)}\r\n`;
		socket?.end(`${one.repeat(bytes / chunk)}0\r\n\r\n`);
	});
	server.listen(0, '127.0.0.1');
	await once(server, 'listening');
	onTestFinished(() => void server.close());
	const asked = request({ port: (server.address() as AddressInfo).port, agent: false }).end();
	const [answer] = await once(asked, 'response');
	return answer;
}

test('a body in pieces of a byte ends early: they cost hundreds of times their size', async () => {
	const { bytes, cut } = await readBounded(await givenAnswer(2_000_000, 1), 2 * 1024 * 1024);
	expect(cut).toMatchObject({ message: 'it comes in pieces of a few bytes' });
	expect(bytes.length).toBeLessThan(200_000);
});

test.each([32, 1000, 100_000])('one in chunks of %i bytes is read whole', async (chunk) => {
	const { bytes, cut } = await readBounded(
		await givenAnswer(32 * 62_500 - ((32 * 62_500) % chunk), chunk),
		2 * 1024 * 1024,
	);
	expect([bytes.length, cut]).toEqual([32 * 62_500 - ((32 * 62_500) % chunk), null]);
});
