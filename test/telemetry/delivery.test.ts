import { chmod } from 'node:fs/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { readRejected } from '../../src/telemetry/otlp.ts';
import { type Delivery, deliver } from '../../src/telemetry/push.edge.ts';
import { connectProxy, fixture, identity, rawServer } from '../connection/network-peers.ts';
import { givenHome, givenPairedAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { givenSink } from './otlp-sink.ts';

const delivery = (url: string, more: Partial<Delivery> = {}): Delivery => ({
	url: new URL(url),
	headers: {},
	body: new Uint8Array(10),
	deadlineMs: 20_000,
	signal: new AbortController().signal,
	...more,
});

async function send(one: Delivery) {
	const network = await createNetwork({}, {});
	onTestFinished(() => network.close());
	return deliver(network, one);
}

/** An answer with field 1 (partial_success): rejected_data_points, error_message. */
function partial(points: number, message: string): Uint8Array {
	const text = Buffer.from(message);
	const inner = Buffer.concat([Buffer.from([8, points, 18, text.length]), text]);
	return Buffer.concat([Buffer.from([10, inner.length]), inner]);
}

async function given(sets: readonly string[] = [], tls?: Parameters<typeof givenSink>[0]) {
	const sink = await givenSink(tls);
	const home = await givenHome();
	const service = await givenService();
	const start = (more: readonly string[] = [`telemetry.otlpUrl=${sink.url}`]) =>
		givenPairedAgent(service, { home, sets: [...sets, ...more] });
	return { sink, home, start, service };
}

describe('the way to the store', () => {
	test('trusts the authority of network.caFile, whatever NODE_TLS_REJECT_UNAUTHORIZED says', async () => {
		const { sink, start } = await given([`network.caFile=${fixture('ca.pem')}`], identity('server'));
		const { clock } = await start();
		clock.advance(5000);
		await sink.untilAsked(1);
		expect(sink.pushes.length).toBe(1);
		process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
		onTestFinished(() => void delete process.env['NODE_TLS_REJECT_UNAUTHORIZED']);
		await expect(send(delivery(sink.url))).rejects.toMatchObject({ code: /CERT|VERIFY|ISSUER/ });
	});

	test('leads through the proxy of network.proxy, in a tunnel', async () => {
		const { sink, start } = await given([`network.caFile=${fixture('ca.pem')}`], identity('server'));
		const proxy = await connectProxy({ targetPort: Number(new URL(sink.url).port), password: 'kiosk:p@ss' });
		const { clock } = await start([
			'telemetry.otlpUrl=https://service.test/v1/metrics',
			`network.proxy=http://kiosk:p%40ss@127.0.0.1:${proxy.port}`,
		]);
		clock.advance(5000);
		await sink.untilAsked(1);
		expect(proxy.heads[0]).toMatch(/^CONNECT service\.test:443 /);
		expect(sink.pushes[0]?.resource).toMatchObject({ device: 'KIOSK-0001' });
	});

	test('packs what is large', async () => {
		const { port, heads } = await rawServer((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'));
		const sized = (size: number) => send(delivery(`http://127.0.0.1:${port}/`, { body: new Uint8Array(size) }));
		await sized(8192);
		await sized(100_000);
		expect(heads.map((head) => /content-encoding: gzip/.test(head))).toEqual([false, true]);
		expect(Number(/content-length: (\d+)/.exec(heads[1] ?? '')?.[1])).toBeLessThan(1000);
	});

	test('ends at the deadline of a store that never answers, when it is called off, and after the first bytes of an answer without end [F1840]', async () => {
		const silent = await rawServer(() => {});
		const off = new AbortController();
		const sent = send(delivery(`http://127.0.0.1:${silent.port}/`, { signal: off.signal }));
		off.abort(new Error('other settings'));
		await expect(sent).rejects.toThrow('other settings');
		const broken = await rawServer((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf'));
		await expect(send(delivery(`http://127.0.0.1:${broken.port}/`))).rejects.toThrow();
		await expect(send(delivery(`http://127.0.0.1:${silent.port}/`, { deadlineMs: 50 }))).rejects.toThrow();
		const endless = await rawServer((socket) => {
			socket.write('HTTP/1.1 200 OK\r\n\r\n');
			const more = () => void (socket.writable && socket.write(Buffer.alloc(65_536), more));
			more();
		});
		const answer = await send(delivery(`http://127.0.0.1:${endless.port}/`));
		expect({ status: answer.status, bytes: answer.body.length }).toEqual({ status: 200, bytes: 4096 });
	});
});

describe('an answer of the store', () => {
	test.each<[string, number, Record<string, string>, RegExp]>([
		['400', 400, {}, /answered 400\.$/],
		['413', 413, {}, /answered 413\.$/],
		['a redirect', 301, { location: 'http://127.0.0.1:1/' }, /answered 301\.$/],
	])('%s is a warning at once, and what changed before is not sent again', async (_, code, headers, words) => {
		const { sink, start, service } = await given(['telemetry.intervalSeconds=60']);
		Object.assign(sink, { status: code, headers });
		const { clock, untilStatus, untilTimers, passWait, untilLive } = await start();
		const idle = clock.pending;
		service.closeChannels(1011);
		await untilStatus(({ state }) => state !== 'online');
		await passWait();
		await untilLive('check-in');
		clock.advance(5000);
		await untilStatus(({ warnings }) => warnings.some(({ message }) => words.test(message)));
		await untilTimers(idle);
		sink.status = 200;
		clock.advance(66_000);
		await sink.untilAsked(2);
		const online = sink.pushes[0]?.points.filter(({ name }) => name === 'idv_agent_online').map(({ value }) => value);
		// A redirect may be a portal's: what waits is kept until a store answers.
		expect(online?.includes(0)).toBe(code === 301);
		expect(online?.at(-1)).toBe(1);
	});

	test('429 is obeyed, in seconds and as a date, and no push comes before [F1835]', async () => {
		const { sink, start } = await given(['telemetry.intervalSeconds=60']);
		const { clock, untilTimers } = await start();
		const idle = clock.pending;
		const asked = async (count: number) => {
			await sink.untilAsked(count);
			await untilTimers(idle);
		};
		const date = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms).toUTCString();
		Object.assign(sink, { status: 429, headers: { 'retry-after': '600' } });
		clock.advance(5000);
		await asked(1);
		clock.advance(599_000);
		expect(clock.pending).toBe(idle);
		sink.headers = { 'retry-after': date(900_000), date: date(0) };
		clock.advance(1000);
		await asked(2);
		clock.advance(899_000);
		expect(clock.pending).toBe(idle);
		sink.status = 200;
		clock.advance(1000);
		await asked(3);
		expect(sink.pushes.length).toBe(1);
	});

	test('that took a part is told, and the part is not sent again', async () => {
		const { sink, start } = await given(['telemetry.intervalSeconds=60']);
		sink.answer = partial(3, 'too many\nlabels');
		const { clock, untilStatus, untilTimers } = await start();
		const idle = clock.pending;
		clock.advance(5000);
		const { warnings } = await untilStatus((status) => status.warnings.length > 0);
		expect(warnings[0]?.message).toMatch(/^The metrics store at \S+ did not take 3 figures: too many labels\.$/);
		await untilTimers(idle);
		sink.answer = new Uint8Array();
		clock.advance(66_000);
		await untilStatus((status) => status.warnings.length === 0);
		expect(sink.pushes.length).toBe(2);
	});

	test('is read only where it is one', () => {
		expect(readRejected(partial(3, 'no'))).toEqual({ points: 3, message: 'no' });
		for (const bytes of [[], [10, 0], [10, 2, 8, 0], [10, 5, 8], [0xff], [10, 2, 9, 1]])
			expect(readRejected(Uint8Array.from(bytes))).toBeNull();
		expect(readRejected(Buffer.from('<html>signed out</html>'))).toBeNull();
	});
});

describe('telemetry.headersFile', () => {
	test.each<[string, string, RegExp]>([
		['without a colon', 'X-A: 1\nBearer abc-secret', /headers: line 2 is not Name: value\.$/],
		[
			'with a header of the request itself',
			'Content-Length: 5',
			/line 1 names Content-Length, which the agent sets itself/,
		],
		['with a value that is not ASCII', 'Authorization: gehe\u00efm-secret', /line 1 is not Name: value/],
	])('%s is named by its line, and nothing is sent', async (_, text, words) => {
		const { sink, home, start } = await given();
		const headersFile = await home.secretFile('headers', text);
		const running = await start([`telemetry.otlpUrl=${sink.url}`, `telemetry.headersFile=${headersFile}`]);
		running.clock.advance(5000);
		await running.untilStatus(({ warnings: [first] }) => words.test(first?.message ?? ''));
		expect(sink.pushes.length).toBe(0);
		expect(running.logText()).not.toMatch(/secret/);
	});

	test('that is missing is named, and one that others can read is a warning of its own', async () => {
		const { sink, home, start } = await given();
		const path = await home.secretFile('headers', '\ufeffX-Scope: kiosks\r\nAuthorization: Bearer abc-secret\r\n');
		const flags = [`telemetry.otlpUrl=${sink.url}`, `telemetry.headersFile=${path}`, 'fleet.labels=kiosks'];
		const running = await start(flags);
		running.clock.advance(5000);
		await sink.untilAsked(1);
		expect(sink.pushes[0]?.headers).toMatchObject({ authorization: 'Bearer abc-secret', 'x-scope': 'kiosks' });
		// An ordinary word in a header is no secret: the label stays.
		expect(sink.pushes[0]?.resource).toMatchObject({ labels: 'kiosks' });
		await chmod(path, 0o644);
		await running.daemon.reload();
		await running.untilStatus(({ warnings }) =>
			warnings.some(({ message }) => /headers .*others could read/.test(message)),
		);
		const other = await given();
		const without = await other.start([`telemetry.otlpUrl=${sink.url}`, 'telemetry.headersFile=/does/not/exist']);
		without.clock.advance(5000);
		await without.untilStatus(({ warnings }) =>
			warnings.some(({ message }) => message.startsWith('telemetry.headersFile /does/not/exist cannot be read: ')),
		);
	});
});

test.each([
	'http://metrics.example.com/v1/metrics',
	'ftp://127.0.0.1/',
	'https://user:pass@metrics.example.com/',
	'metrics.example.com',
])('telemetry.otlpUrl %s is refused', async (url) => {
	const service = await givenService();
	await expect(givenPairedAgent(service, { sets: [`telemetry.otlpUrl=${url}`] })).rejects.toMatchObject({
		code: 'settings-invalid',
		message: expect.stringMatching(/telemetry\.otlpUrl must be an https address/),
	});
});
