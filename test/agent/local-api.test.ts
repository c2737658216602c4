import { request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createEventStreamParser, type ServerSentEvent } from '../../src/edges/local-client.ts';
import {
	eventPageSchema,
	eventSchema,
	identityReportSchema,
	LOCAL_ROUTES,
	LOCAL_SOCKETS,
	pairPreviewSchema,
	pairResultSchema,
	statusSchema,
} from '../../src/protocol/local-api.ts';
import { givenService } from '../service/fixture.ts';
import { DEVICE_ID, givenAgent, givenPairedAgent, type RunningAgent } from './harness.ts';

interface Asked {
	readonly socket?: keyof typeof LOCAL_SOCKETS;
	readonly method?: string;
	readonly headers?: Readonly<Record<string, string>>;
	readonly body?: unknown;
	readonly signal?: AbortSignal;
}

interface Answered {
	readonly status: number;
	readonly text: string;
	// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came.
	readonly json: any;
}

/** One plain request on a socket, as curl would make it. */
function ask(device: RunningAgent, path: string, asked: Asked = {}): Promise<Answered> {
	const { socket = 'agent', method = 'GET', headers = {}, body, signal } = asked;
	const socketPath = join(device.home.paths.runDir, LOCAL_SOCKETS[socket]);
	const payload = body === undefined ? undefined : JSON.stringify(body);
	return new Promise((resolve, reject) => {
		const options = {
			socketPath,
			path,
			method,
			agent: false,
			headers: { ...(payload && { 'content-type': 'application/json' }), ...headers },
			...(signal ? { signal } : {}),
		};
		const asking = request(options, (response) => {
			const chunks: Buffer[] = [];
			response.on('data', (chunk: Buffer) => chunks.push(chunk));
			response.on('error', reject);
			response.on('end', () => {
				const text = Buffer.concat(chunks).toString();
				resolve({ status: response.statusCode ?? 0, text, json: text ? JSON.parse(text) : undefined });
			});
		});
		asking.on('error', reject);
		asking.end(payload);
	});
}

interface OpenStream {
	/** The next event that has not been taken yet; `null` when the stream is over. */
	next(): Promise<ServerSentEvent | null>;
	close(): void;
}

/** A stream of Server-Sent Events that ends with the test. */
function openStream(device: RunningAgent, path: string, headers: Readonly<Record<string, string>> = {}): OpenStream {
	const socketPath = join(device.home.paths.runDir, LOCAL_SOCKETS.agent);
	const events: (ServerSentEvent | null)[] = [];
	let taker: (() => void) | null = null;
	const offer = (more: readonly (ServerSentEvent | null)[]) => {
		events.push(...more);
		taker?.();
	};
	const parse = createEventStreamParser();
	const asking = request(
		{ socketPath, path, agent: false, headers: { accept: 'text/event-stream', ...headers } },
		(response) => {
			response.on('data', (chunk: Buffer) => offer(parse(chunk)));
			response.on('error', () => {});
			response.on('close', () => offer([null]));
		},
	);
	asking.on('error', () => {});
	asking.end();
	const close = () => void asking.destroy();
	onTestFinished(close);
	return {
		async next() {
			if (events.length === 0)
				await new Promise<void>((resolve) => {
					taker = resolve;
				});
			return events.shift() ?? null;
		},
		close,
	};
}

const dataOf = (event: ServerSentEvent | null) => JSON.parse(event?.data ?? 'null');
const admin = (method: string, body?: unknown): Asked => ({ socket: 'admin', method, body });

async function givenDevice() {
	const service = await givenService();
	return { service, device: await givenPairedAgent(service) };
}

describe('the status', () => {
	test('is the same on both sockets and has the form that it promises', async () => {
		const { device } = await givenDevice();
		const answers = [
			await ask(device, LOCAL_ROUTES.status),
			await ask(device, LOCAL_ROUTES.status, { socket: 'admin' }),
		];
		for (const { status, json } of answers) {
			expect(status).toBe(200);
			expect(statusSchema.parse(json)).toEqual(device.agent.status());
		}
		expect(answers[0]?.json).toMatchObject({ schemaVersion: 1, state: 'online', deviceId: DEVICE_ID });
	});

	test('comes as a stream with every change, until the agent stops', async () => {
		const { device } = await givenDevice();
		const stream = openStream(device, LOCAL_ROUTES.status);
		const first = await stream.next();
		expect(first?.event).toBe('status');
		expect(dataOf(first)).toMatchObject({ state: 'online', workflow: { live: 'check-in' } });
		await device.agent.setWorkflow('boarding');
		const seen: unknown[] = [];
		while (seen.at(-1) !== 'boarding') seen.push(dataOf(await stream.next()).workflow.live);
		expect(new Set(seen)).toEqual(new Set(['check-in', 'boarding']));
		await device.stop();
		const rest: (ServerSentEvent | null)[] = [];
		while (rest.at(-1) !== null) rest.push(await stream.next());
		expect(rest.at(-2)).toMatchObject({ event: 'closed', data: '{"reason":"stopping"}' });
	});

	test('in two words for a supervisor: alive always, ready when online', async () => {
		const { service, device } = await givenDevice();
		expect(await ask(device, LOCAL_ROUTES.live)).toMatchObject({ status: 200, json: { live: true } });
		expect(await ask(device, LOCAL_ROUTES.ready)).toMatchObject({ status: 200, json: { ready: true } });
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		expect(await ask(device, LOCAL_ROUTES.live)).toMatchObject({ status: 200 });
		const { status, json } = await ask(device, LOCAL_ROUTES.ready);
		expect([status, json.ready]).toEqual([503, false]);
		expect(json.sentence).toMatch(/^Offline for 0 s: /);
	});

	test('of the identity says where each value came from', async () => {
		const { device } = await givenDevice();
		const { json } = await ask(device, LOCAL_ROUTES.identity);
		expect(identityReportSchema.parse(json)).toMatchObject({
			pinned: true,
			deviceId: { value: DEVICE_ID, source: 'pinned' },
			macAddress: { value: null },
		});
	});
});

describe('events in one answer', () => {
	test('are everything that is kept, then only what is new', async () => {
		const { service, device } = await givenDevice();
		service.notify({ type: 'session.started', id: 'n-1', sessionId: 'abc' });
		await device.untilEvent(({ kind }) => kind === 'session.started');
		const { json } = await ask(device, LOCAL_ROUTES.events);
		const page = eventPageSchema.parse(json);
		expect(page.events.map(({ type, kind }) => [type, kind])).toEqual([
			['gap', 'gap'],
			['notification', 'session.started'],
		]);
		expect(page.events[1]).toMatchObject({
			workflowId: 'check-in',
			format: 'json',
			data: { type: 'session.started', id: 'n-1', sessionId: 'abc' },
		});
		expect(page.next).toBe(page.events[1]?.id);
		const after = `${LOCAL_ROUTES.events}?since=${page.next}`;
		expect((await ask(device, after)).json).toEqual({ events: [], next: page.next });
		service.notify({ type: 'second' });
		await device.untilEvent(({ kind }) => kind === 'second');
		expect((await ask(device, after)).json.events).toMatchObject([{ kind: 'second' }]);
	});

	test('come in pages, in order and without loss', async () => {
		const { service, device } = await givenDevice();
		for (let number = 1; number <= 250; number += 1) service.notify({ type: 'n', number });
		await device.untilEvent(({ number }) => number === 251);
		const numbers: unknown[] = [];
		let since = '';
		for (let pages = 1; ; pages += 1) {
			const { json } = await ask(device, `${LOCAL_ROUTES.events}?since=${since}`);
			if (json.events.length === 0) break;
			expect(pages).toBeLessThanOrEqual(3);
			numbers.push(...json.events.map(({ data }: { data: { number?: number } }) => data.number));
			since = json.next;
		}
		expect(numbers).toEqual([undefined, ...Array.from({ length: 250 }, (_, index) => index + 1)]);
	});

	test('are waited for', async () => {
		const { service, device } = await givenDevice();
		const { next } = (await ask(device, LOCAL_ROUTES.events)).json;
		const before = device.clock.pending;
		const waiting = ask(device, `${LOCAL_ROUTES.events}?since=${next}&wait=30`);
		await device.untilTimers(before + 1);
		service.notify({ type: 'at.last' });
		expect((await waiting).json.events).toMatchObject([{ kind: 'at.last' }]);
		expect(device.clock.pending).toBe(before);
	});

	test('are waited for no longer than was asked, and not for somebody who has gone', async () => {
		const { device } = await givenDevice();
		const { next } = (await ask(device, LOCAL_ROUTES.events)).json;
		const before = device.clock.pending;
		const path = `${LOCAL_ROUTES.events}?since=${next}&wait=20`;
		const waiting = ask(device, path);
		await device.untilTimers(before + 1);
		device.clock.advance(20_000);
		expect((await waiting).json).toEqual({ events: [], next });

		const leaving = new AbortController();
		const left = ask(device, path, { signal: leaving.signal });
		await device.untilTimers(before + 1);
		leaving.abort();
		await expect(left).rejects.toThrow('aborted');
		await device.untilTimers(before);
	});

	test('are refused for parameters that make no sense', async () => {
		const { device } = await givenDevice();
		for (const query of ['since=abc', 'since=a-b', 'wait=-1', 'wait=61', 'wait=soon', 'wait=NaN']) {
			const { status, json } = await ask(device, `${LOCAL_ROUTES.events}?${query}`);
			expect([query, status, json.code]).toEqual([query, 422, 'body-invalid']);
			expect(json.detail).toContain(query.split('=')[0]);
		}
	});

	test('carry a deeply nested notification untouched', async () => {
		const { service, device } = await givenDevice();
		const deep = `{"type":"deep","data":${'['.repeat(50_000)}1.0${']'.repeat(50_000)}}`;
		service.sendRaw(deep);
		await device.untilEvent(({ kind }) => kind === 'deep');
		const socketPath = join(device.home.paths.runDir, LOCAL_SOCKETS.agent);
		const text = await new Promise<string>((resolve, reject) => {
			const asking = request({ socketPath, path: LOCAL_ROUTES.events, agent: false }, (response) => {
				const chunks: Buffer[] = [];
				response.on('data', (chunk: Buffer) => chunks.push(chunk));
				response.on('end', () => resolve(Buffer.concat(chunks).toString()));
			});
			asking.on('error', reject);
			asking.end();
		});
		expect(text.includes(`"data":${deep}}`)).toBe(true);
	});
});

describe('events as a stream', () => {
	test('begin with what is kept and go on with what comes', async () => {
		const { service, device } = await givenDevice();
		service.notify({ type: 'first' });
		await device.untilEvent(({ kind }) => kind === 'first');
		const stream = openStream(device, LOCAL_ROUTES.events);
		const kept = [await stream.next(), await stream.next()];
		expect(kept.map((event) => event?.event)).toEqual(['gap', 'notification']);
		service.notify({ type: 'second', deep: { text: 'line\nline' } });
		const second = await stream.next();
		expect(eventSchema.parse(dataOf(second))).toMatchObject({ id: second?.id, kind: 'second' });
		expect(dataOf(second).data).toEqual({ type: 'second', deep: { text: 'line\nline' } });
	});

	test('resume after the last id that was read: by header, by query, and the header wins', async () => {
		const { service, device } = await givenDevice();
		for (const type of ['a', 'b', 'c']) service.notify({ type });
		await device.untilEvent(({ kind }) => kind === 'c');
		const [, a, b] = device.events();
		const kindAfter = async (path: string, headers: Readonly<Record<string, string>> = {}) => {
			const stream = openStream(device, path, headers);
			const { kind } = dataOf(await stream.next());
			stream.close();
			return kind;
		};
		expect(await kindAfter(LOCAL_ROUTES.events, { 'last-event-id': a?.id ?? '' })).toBe('b');
		expect(await kindAfter(`${LOCAL_ROUTES.events}?since=${b?.id}`)).toBe('c');
		expect(await kindAfter(`${LOCAL_ROUTES.events}?since=${b?.id}`, { 'last-event-id': a?.id ?? '' })).toBe('b');
		expect(await ask(device, LOCAL_ROUTES.events, { headers: { 'last-event-id': 'no id' } })).toMatchObject({
			status: 422,
		});
	});

	test('survive a restart of the agent: an id of before brings everything that is there now', async () => {
		const { device } = await givenDevice();
		const before = device.events().at(-1)?.id ?? '';
		await device.stop();
		const again = await givenAgent({ home: device.home, chance: () => 0.25 });
		await again.untilState('online');
		const stream = openStream(again, LOCAL_ROUTES.events, { 'last-event-id': before });
		const first = await stream.next();
		expect(first?.event).toBe('gap');
		expect(first?.id).not.toBe(before);
	});

	test('lose nothing to a reader that is away while they come', async () => {
		const { service, device } = await givenDevice();
		const stream = openStream(device, LOCAL_ROUTES.events);
		let last = (await stream.next())?.id ?? '';
		stream.close();
		for (let number = 0; number < 300; number += 1) service.notify({ type: 'n', number });
		const again = openStream(device, LOCAL_ROUTES.events, { 'last-event-id': last });
		for (let number = 0; number < 300; number += 1) {
			const event = await again.next();
			expect(dataOf(event).data.number).toBe(number);
			last = event?.id ?? '';
		}
		expect(last).toBe(device.agent.status().newestEventId);
	});
});

describe('pairing', () => {
	test('is looked at first, without anything being spent', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		const { status, json } = await ask(device, LOCAL_ROUTES.pairInspect, admin('POST', { code }));
		expect(status).toBe(200);
		expect(pairPreviewSchema.parse(json)).toMatchObject({
			ready: false,
			host: new URL(service.url).host,
			workflowId: 'check-in',
			problem: { code: 'origin-unconfirmed' },
		});
		const trustOrigin = new URL(service.url).origin;
		const confirmed = await ask(device, LOCAL_ROUTES.pairInspect, admin('POST', { code, trustOrigin }));
		expect(confirmed.json).toMatchObject({ ready: true, problem: null, tokenKind: 'Short Token (one use)' });
		expect(confirmed.text).not.toContain('tr-');
		expect(service.requests).toEqual([]);

		const paired = await ask(device, LOCAL_ROUTES.pair, admin('POST', { code, trustOrigin }));
		expect(pairResultSchema.parse(paired.json)).toMatchObject({ online: true, workflowId: 'check-in' });
		expect(paired.text).not.toContain('eyJ');
	});

	test('that is refused is answered with a problem that has a code, a message and what to do', async () => {
		const { service, device } = await givenDevice();
		const code = service.createPairingCode('check-in').url;
		const pair = (body: unknown) => ask(device, LOCAL_ROUTES.pair, admin('POST', body));
		expect(await pair({ code })).toMatchObject({ status: 409, json: { code: 'already-paired' } });
		expect((await pair({ code })).json.remedy).toContain('--replace');
		expect(await pair({ code: 'hello' })).toMatchObject({ status: 422, json: { code: 'not-a-pairing-code' } });
		expect(await pair({ code, replace: 'yes' })).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
		expect(await pair({ code, replce: true })).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
		expect(await pair({ code: 'x'.repeat(5000) })).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
		expect(await pair({})).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
		service.dropBeforeReply({ method: 'POST' });
		expect(await pair({ code, replace: true })).toMatchObject({ status: 502, json: { code: 'pairing-uncertain' } });
		expect(await pair({ code, replace: true })).toMatchObject({ status: 403, json: { code: 'code-expired-or-used' } });
	});

	test('and whatever else moves the device is not for applications', async () => {
		const { device } = await givenDevice();
		for (const [method, path] of [
			['POST', LOCAL_ROUTES.pair],
			['POST', LOCAL_ROUTES.pairInspect],
			['PUT', LOCAL_ROUTES.workflow],
			['POST', LOCAL_ROUTES.reconnect],
			['POST', LOCAL_ROUTES.unpair],
		] as const) {
			const { status, json } = await ask(device, path, { method, body: {} });
			expect([path, status, json.code]).toEqual([path, 403, 'access-denied']);
		}
		expect(device.agent.status().state).toBe('online');
	});

	test('ends with unpairing', async () => {
		const { device } = await givenDevice();
		const { status, json } = await ask(device, LOCAL_ROUTES.unpair, admin('POST'));
		expect([status, json.state]).toEqual([200, 'unpaired']);
	});
});

describe('the workflow', () => {
	test('is set, and the answer says what is wanted', async () => {
		const { device } = await givenDevice();
		const { status, json } = await ask(device, LOCAL_ROUTES.workflow, admin('PUT', { workflowId: 'boarding' }));
		expect(status).toBe(200);
		expect(statusSchema.parse(json).workflow).toMatchObject({ wanted: 'boarding', source: 'workflow set' });
		await device.untilLive('boarding');
	});

	test('is refused where the settings decide, where it is none, and where there is no pairing', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { workflowId: 'check-in' } });
		const set = (running: RunningAgent, workflowId: string) =>
			ask(running, LOCAL_ROUTES.workflow, admin('PUT', { workflowId }));
		expect(await set(device, 'boarding')).toMatchObject({ status: 409, json: { code: 'workflow-fixed' } });
		expect(await set(device, ' ')).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
		expect(await set(await givenAgent(), 'boarding')).toMatchObject({ status: 503, json: { code: 'unpaired' } });
	});
});

test('reconnect tries at once', async () => {
	const { service, device } = await givenDevice();
	const gone = device.untilState('offline');
	service.dropSockets();
	await gone;
	const { status, json } = await ask(device, LOCAL_ROUTES.reconnect, admin('POST'));
	expect([status, json.channel.state]).toEqual([200, 'connecting']);
	await device.untilState('online');
});
