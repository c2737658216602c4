import net from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Ask, ask, consume, echoRoutes, eventSource, failing, open, untilClosed } from './local-server.ts';

describe('event streams', () => {
	test('events arrive in order with id, name and data, line ends included', async () => {
		const source = eventSource();
		const { client, agentSocket } = await open([source.route]);
		const consumer = consume(client);
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		sink?.sendAll(Buffer.from(': two\n: lines\n\n'));
		sink?.send({ id: '1', event: 'notification', data: '{"text":"ü"}' });
		sink?.send({ id: '2\nevent: closed', data: '{\r\n"pretty":\n1}' });
		sink?.send({ data: '""' });
		sink?.close();
		expect(await consumer.ended).toEqual({ reason: 'finished' });
		expect(consumer.events).toEqual([
			{ id: '1', event: 'notification', data: '{"text":"ü"}' },
			{ id: '2event: closed', event: 'message', data: '{\n"pretty":\n1}' },
			{ id: null, event: 'message', data: '""' },
		]);
		expect(sink?.send({ data: '1' })).toBe(false);
		expect(await ask(agentSocket, { method: 'HEAD', path: '/v1/events' })).toMatchObject({
			status: 200,
			headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' },
		});
		expect(source.cleanUps()).toBe(1);
	});

	test.each<[string, Ask, string | null]>([
		['nothing', {}, null],
		['?since=', { path: '/v1/echo?since=7' }, '7'],
		['an empty ?since=', { path: '/v1/echo?since=' }, null],
		['Last-Event-ID', { headers: { 'Last-Event-ID': '9' } }, '9'],
		['both: the header wins', { path: '/v1/echo?since=7', headers: { 'Last-Event-ID': '9' } }, '9'],
	])('a consumer resumes by %s', async (_name, request, since) => {
		const { agentSocket } = await open(echoRoutes);
		expect((await ask(agentSocket, request)).body['since']).toBe(since);
	});

	test('a consumer that comes back gets what it has missed', async () => {
		const source = eventSource(({ since }, sink) => {
			for (let id = Number(since ?? 0) + 1; id <= 5; id += 1) sink.send({ id: String(id), data: '{}' });
			sink.close();
		});
		const { client } = await open([source.route]);
		const consumer = consume(client, { since: '3' });
		await consumer.ended;
		expect(consumer.events.map(({ id }) => id)).toEqual(['4', '5']);
		expect(source.cleanUps()).toBe(1);
	});

	test('a long replay that waits for the consumer is not cut off', async () => {
		const count = 64;
		const data = JSON.stringify('x'.repeat(64 * 1024));
		const source = eventSource(async (_request, sink) => {
			for (let id = 1; id <= count; id += 1) {
				sink.send({ id: String(id), data });
				await sink.drained();
			}
			sink.close();
		});
		const { client } = await open([source.route]);
		const consumer = consume(client);
		expect(await consumer.ended).toEqual({ reason: 'finished' });
		expect(consumer.events).toHaveLength(count);
	});

	test('fifty consumers get every event', async () => {
		const source = eventSource();
		const { client } = await open([source.route]);
		const consumers = Array.from({ length: 50 }, () => consume(client));
		await source.untilConsumers(50);
		for (let id = 1; id <= 20; id += 1) source.broadcast(id, { id });
		await Promise.all(consumers.map((consumer) => consumer.until(20)));
		for (const { events } of consumers)
			expect(events.map(({ id }) => Number(id))).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
		for (const sink of [...source.sinks]) sink.close();
		await Promise.all(consumers.map((consumer) => consumer.ended));
		expect(source.cleanUps()).toBe(50);
	});

	test('a slow consumer is closed and told so; the others go on', async () => {
		const source = eventSource();
		const { client, agentSocket } = await open([source.route]);
		const slow = net.connect(agentSocket);
		slow.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		const quick = consume(client);
		await source.untilConsumers(2);

		const data = 'x'.repeat(64 * 1024);
		let sent = 0;
		while (source.sinks.size === 2 && sent < 100) {
			sent += 1;
			source.broadcast(sent, data);
			await quick.until(sent);
		}
		expect(source.sinks.size).toBe(1);
		// The queue holds a megabyte, the kernel some more.
		expect(sent).toBeGreaterThan(16);
		source.broadcast(sent + 1, 'after');
		await quick.until(sent + 1);

		let tail = '';
		slow.on('data', (chunk) => {
			tail = (tail + chunk.toString()).slice(-200);
		});
		await untilClosed(slow);
		expect(tail).toContain('event: closed\ndata: {"reason":"slow"}\n\n');
	});

	test('a slow consumer that never reads again is dropped', async () => {
		const source = eventSource();
		const { agentSocket, server } = await open([source.route], {
			limits: { streamQueueBytes: 1000, requestMs: 30, closeGraceMs: 60_000 },
		});
		const stuck = net.connect(agentSocket);
		onTestFinished(() => void stuck.destroy());
		stuck.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		source.broadcast(1, 'x'.repeat(4 * 1024 * 1024));
		source.broadcast(2, 'x');
		expect(source.sinks.size).toBe(0);
		// With a minute of grace this ends in time only because the connection is gone.
		await server.close();
	});

	test('one that has stopped reading is closed with a reason, however little it is behind', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { keepAliveMs: 10, requestMs: 60_000 } });
		const stuck = net.connect(agentSocket);
		onTestFinished(() => void stuck.destroy());
		stuck.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		source.broadcast(1, 'x'.repeat(700_000));
		expect(sink?.isBehind).toBe(true);
		await source.untilConsumers(0);
		let tail = '';
		stuck.on('data', (chunk) => {
			tail = (tail + chunk.toString()).slice(-200);
		});
		await untilClosed(stuck);
		expect(tail).toContain('event: closed\ndata: {"reason":"slow"}\n\n');
	});

	test('a consumer that is waited for and takes nothing at all is closed as slow', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { keepAliveMs: 50, requestMs: 50 } });
		const stuck = net.connect(agentSocket);
		stuck.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		await source.untilConsumers(1);
		const [sink] = source.sinks;
		expect(sink?.isBehind).toBe(false);
		source.broadcast(1, 'x'.repeat(900_000));
		expect(sink?.isBehind).toBe(true);
		await sink?.drained();
		expect(source.sinks.size).toBe(0);
		stuck.destroy();
	});

	test('one event of any size goes out', async () => {
		const source = eventSource();
		const { client } = await open([source.route], { limits: { streamQueueBytes: 100 } });
		const consumer = consume(client);
		await source.untilConsumers(1);
		const data = 'x'.repeat(1_500_000);
		expect(source.broadcast(1, data)).toEqual([true]);
		await consumer.until(1);
		expect(consumer.events[0]?.data).toBe(JSON.stringify(data));
	});

	test('a quiet stream carries comments', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { keepAliveMs: 10 } });
		const socket = net.connect(agentSocket);
		onTestFinished(() => void socket.destroy());
		socket.write('GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n');
		let got = '';
		for await (const chunk of socket) {
			got += String(chunk);
			if ((got.match(/: keep-alive\n\n/g)?.length ?? 0) >= 2) break;
		}
		expect(got).toMatch(/^HTTP\/1\.1 200 .*text\/event-stream/s);
	});

	test('no comment comes between the parts of an event, and comments come again after the last', async () => {
		const source = eventSource();
		const { agentSocket } = await open([source.route], { limits: { keepAliveMs: 10 } });
		const listen = async () => {
			const socket = net.connect(agentSocket);
			onTestFinished(() => void socket.destroy());
			socket.write('GET /v1/events HTTP/1.0\r\nHost: x\r\n\r\n');
			let got = '';
			socket.on('data', (chunk) => {
				got += String(chunk);
			});
			await expect.poll(() => got).toContain('keep-alive');
			return () => got;
		};
		const large = await listen();
		const [sink] = source.sinks;
		sink?.sendPart(Buffer.from('data: "begun,'), false);
		// A stream that was opened later has its turn later.
		await listen();
		sink?.sendPart(Buffer.from(' ended"\n\n'), true);
		await expect.poll(large).toMatch(/ended"\n\n: keep-alive\n\n/);
		expect(large()).toContain('data: "begun, ended"\n\n');
	});

	test('a consumer that leaves is cleaned up once', async () => {
		const source = eventSource();
		const { client } = await open([source.route]);
		const leave = new AbortController();
		const consumer = consume(client, { signal: leave.signal });
		await source.untilConsumers(1);
		source.broadcast(1, {});
		await consumer.until(1);
		leave.abort();
		expect(await consumer.ended).toEqual({ reason: 'aborted' });
		await source.untilConsumers(0);
		expect(source.cleanUps()).toBe(1);
	});

	test('a cleaning up that fails is reported and does no harm', async () => {
		const { client, faults } = await open([
			{
				...failing(() => ''),
				handle: () => ({
					stream(sink) {
						sink.close('done');
						return () => {
							throw new Error('cleaning up');
						};
					},
				}),
			},
		]);
		expect(await client.events('/v1/echo', {}, () => {})).toEqual({ reason: 'done' });
		expect(faults).toEqual([new Error('cleaning up')]);
	});
});
