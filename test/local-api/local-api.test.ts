import { once } from 'node:events';
import { cpSync, readdirSync, rmSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createEventStreamParser, type ServerSentEvent } from '../../src/client/agent-socket.edge.ts';
import { pageOfEvents, streamEvents, streamStatus } from '../../src/local-api/event-routes.runner.ts';
import type { EventSink } from '../../src/local-api/server/local-server.edge.ts';
import {
	eventPageSchema,
	eventSchema,
	identityReportSchema,
	leaseReportSchema,
	pairPreviewSchema,
	pairResultSchema,
	statusSchema,
} from '../../src/protocol/local-answers.ts';
import { LOCAL_ROUTES, LOCAL_SOCKETS } from '../../src/protocol/local-api.ts';
import { DEVICE_ID, givenAgent, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { type Answered, type Asked, ask } from './local-asking.ts';

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

describe('what was not acknowledged', () => {
	const path = `${LOCAL_ROUTES.events}?consumer=kiosk`;
	const kinds = ({ json }: Answered) => eventPageSchema.parse(json).events.map(({ kind }) => kind);
	const ack = (device: RunningAgent, body: unknown) => ask(device, LOCAL_ROUTES.ack, { method: 'POST', body });

	test('is not kept for a consumer that is out of use', async () => {
		const { service, device } = await givenDevice();
		await ask(device, `${LOCAL_ROUTES.events}?consumer=old`);
		service.notify({ type: 'a' });
		await device.untilEvent(({ kind }) => kind === 'a');
		await ack(device, { consumer: 'kiosk', id: device.agent.status().newestEventId });
		expect(kinds(await ask(device, LOCAL_ROUTES.events))).toEqual(['gap', 'a']);
		const forget = { method: 'POST', body: { consumer: 'old' } };
		expect((await ask(device, LOCAL_ROUTES.forget, forget)).json).toEqual({ consumer: 'old', known: true });
		expect((await ask(device, LOCAL_ROUTES.forget, forget)).json).toEqual({ consumer: 'old', known: false });
		expect(kinds(await ask(device, LOCAL_ROUTES.events))).toEqual([]);
	});

	test('is delivered again after a restart of the agent, under the same ids; the rest is not', async () => {
		const { service, device } = await givenDevice();
		for (const type of ['a', 'b', 'c']) service.notify({ type, id: type });
		await device.untilEvent(({ kind }) => kind === 'c');
		const before = await ask(device, path);
		expect(kinds(before)).toEqual(['gap', 'a', 'b', 'c']);
		const [, a, b, c] = eventPageSchema.parse(before.json).events;
		expect((await ack(device, { consumer: 'kiosk', id: a?.id })).json).toEqual({ consumer: 'kiosk', position: a?.id });
		await device.stop();

		const again = await givenAgent({ home: device.home, clock: device.clock });
		await again.untilState('online');
		const after = eventPageSchema.parse((await ask(again, path)).json).events;
		expect(after.map(({ id }) => id).slice(0, 2)).toEqual([b?.id, c?.id]);
		expect(after[2]).toMatchObject({ type: 'gap', data: { from: c?.at } });
		// What the service repeats after a restart is the same message still.
		service.notify({ type: 'b', id: 'b' });
		service.notify({ type: 'd', id: 'd' });
		await again.untilEvent(({ kind }) => kind === 'd');
		expect(kinds(await ask(again, path))).toEqual(['b', 'c', 'gap', 'd']);
		const stream = openStream(again, path);
		expect((await stream.next())?.id).toBe(b?.id);
	});

	test('has a gap from before any line can have died unnoticed when the agent has crashed', async () => {
		const { service, device } = await givenDevice();
		service.notify({ type: 'a', id: 'a' });
		await device.untilEvent(({ kind }) => kind === 'a');
		await device.stop();
		const again = await givenAgent({ home: device.home, clock: device.clock });
		await again.untilState('online');
		service.notify({ type: 'b', id: 'b' });
		const b = await again.untilEvent(({ kind }) => kind === 'b');
		const { stateDir } = device.home.paths;
		const asItWas = join(device.home.directory, 'as-it-was');
		cpSync(stateDir, asItWas, { recursive: true });
		await again.stop();
		rmSync(stateDir, { recursive: true });
		cpSync(asItWas, stateDir, { recursive: true });

		const crashed = await givenAgent({ home: device.home, clock: device.clock });
		await crashed.untilState('online');
		const { events } = eventPageSchema.parse((await ask(crashed, path)).json);
		const { from } = (events.at(-1)?.data ?? {}) as { from: string };
		const earlierMs = Date.parse(b.at) - Date.parse(from);
		expect(earlierMs).toBeGreaterThan(60_000);
		expect(earlierMs).toBeLessThan(70_000);
	});

	test('is asked for by a name and an id that mean something [F114]', async () => {
		const { device } = await givenDevice();
		expect(await ask(device, `${LOCAL_ROUTES.events}?consumer=no%20name`)).toMatchObject({ status: 422 });
		for (const body of [
			{ consumer: 'kiosk', id: 'nobody-7' },
			{ consumer: 'no name', id: 'e-1' },
			{ consumer: 'kiosk' },
		])
			expect(await ack(device, body)).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
	});
});

describe('a lease', () => {
	const hold = (device: RunningAgent, body: unknown) => ask(device, LOCAL_ROUTES.leases, { method: 'POST', body });

	test('that has not the form is refused in words', async () => {
		const { device } = await givenDevice();
		const said = async (body: unknown) => ((await hold(device, body)).json as { detail: string }).detail;
		expect(await said({ name: 'kiosk', seconds: -1 })).toBe('seconds must be at least 1.');
		expect(await said({ name: 'kiosk', seconds: 'x' })).toBe('seconds must be a number.');
		expect(await said({ seconds: 60 })).toBe('name is missing.');
		expect(await said({ name: 'a b', seconds: 1e9 })).toMatch(
			/^name must be 1 to 64 letters, .*; seconds must be at most \d+\.$/,
		);
		expect(await said([])).toBe('The body must be an object in { }.');
	});

	test('keeps the workflow as it is until it is released, and the status says so', async () => {
		const { device } = await givenDevice();
		const { status, json } = await hold(device, { name: 'kiosk', seconds: 120 });
		expect([status, leaseReportSchema.parse(json).leases.map(({ name }) => name)]).toEqual([200, ['kiosk']]);
		await device.agent.setWorkflow('boarding');
		const waiting = device.agent.status();
		expect(waiting.workflow).toMatchObject({ wanted: 'boarding', live: 'check-in' });
		expect(waiting.sentence).toMatch(/boarding waits for an application, at most 2 min/);
		expect(Date.parse(waiting.workflow.waitsUntil ?? '')).toBe(device.clock.wallMs() + 120_000);
		await ask(device, LOCAL_ROUTES.leaseRelease, { method: 'POST', body: { name: 'kiosk' } });
		expect((await device.untilLive('boarding')).workflow.waitsUntil).toBeNull();
		expect((await ask(device, LOCAL_ROUTES.leases)).json).toEqual({ leases: [] });
	});

	test('runs out, and holds nothing up for longer than workflow.maxDeferSeconds', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { sets: ['workflow.maxDeferSeconds=20'] });
		await hold(device, { name: 'kiosk', seconds: 3600 });
		await device.agent.setWorkflow('boarding');
		expect(device.agent.status().workflow.live).toBe('check-in');
		device.clock.advance(20_000);
		await device.untilLive('boarding');
		await hold(device, { name: 'kiosk', seconds: 5 });
		await device.agent.setWorkflow('check-in');
		device.clock.advance(5000);
		await device.untilLive('check-in');
	});

	test('does not hold up a pairing', async () => {
		const { service, device } = await givenDevice();
		await hold(device, { name: 'kiosk' });
		await device.pair(service.createPairingCode('boarding').url, { replace: true });
		await device.untilLive('boarding');
	});

	test('has a name and a time', async () => {
		const { device } = await givenDevice();
		for (const body of [{ name: 'a b' }, { name: 'kiosk', seconds: 0 }, { name: 'kiosk', seconds: 3601 }, {}])
			expect(await hold(device, body)).toMatchObject({ status: 422, json: { code: 'body-invalid' } });
	});
});

describe('a request for the service', () => {
	test('is passed on with the Connection, and no credential comes back or goes in', async () => {
		const { service, device } = await givenDevice();
		const passed = await ask(device, `${LOCAL_ROUTES.service}api/no-such-thing?limit=5`);
		expect(passed.status).toBe(404);
		expect(service.requests.at(-1)).toMatchObject({ method: 'GET', path: '/api/no-such-thing' });
		const asked = service.requests.length;
		const refused = { status: 403, json: { code: 'access-denied' } };
		for (const path of ['api/device/connection', 'api/security/apikeys', 'API/v1/deeplink', 'api/%2e%2e/x'])
			expect(await ask(device, LOCAL_ROUTES.service + path, { method: 'POST', body: {} })).toMatchObject(refused);
		const headers = { authorization: 'ApiKey own' };
		expect(await ask(device, `${LOCAL_ROUTES.service}api/x`, { headers })).toMatchObject(refused);
		expect(service.requests).toHaveLength(asked);
	});

	test('is only for paths that the settings allow, and for a device with a Connection', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { sets: ['forward.allow=/api/sessions'] });
		expect(await ask(device, `${LOCAL_ROUTES.service}api/sessions/7`)).toMatchObject({ status: 404 });
		expect(await ask(device, `${LOCAL_ROUTES.service}api/other`)).toMatchObject({ status: 403 });
		await device.agent.unpair();
		expect((await ask(device, `${LOCAL_ROUTES.service}api/sessions/7`)).json).toMatchObject({ code: 'unpaired' });
	});
});

test.each([
	['text/event-stream', true],
	['application/json;q=0.5, TEXT/event-stream; q=0.1', true],
	['text/event-stream;q=0, application/json', false],
	['application/json, text/event-stream; q=0.000', false],
	['text/event-streams', false],
])('who accepts %s gets a stream: %s', async (accept, isStream) => {
	const device = await givenAgent();
	const { headers } = await ask(device, LOCAL_ROUTES.status, { headers: { accept }, leave: true });
	expect(headers['content-type']).toBe(isStream ? 'text/event-stream' : 'application/json');
});

test('metrics are there for a scraper on both sockets', async () => {
	const { service, device } = await givenDevice();
	service.notify({ type: 'a', id: 'a' });
	await device.untilEvent(({ kind }) => kind === 'a');
	const stream = openStream(device, LOCAL_ROUTES.events);
	await stream.next();
	for (const socket of ['agent', 'admin'] as const) {
		const { status, text } = await ask(device, LOCAL_ROUTES.metrics, { socket });
		expect(status).toBe(200);
		for (const line of [
			/state\{.*state="online"\} 1/,
			/notifications_total\{.*\} 1/,
			/gaps_total\{.*\} 1/,
			/event_streams\{.*\} 1/,
		])
			expect(text).toMatch(new RegExp(`^idv_agent_${line.source}$`, 'm'));
	}
});

test('metrics count the time since an acknowledgement by the clock that the agent goes by', async () => {
	const { service, device } = await givenDevice();
	service.notify({ type: 'a', id: 'a' });
	const { id } = await device.untilEvent(({ kind }) => kind === 'a');
	await ask(device, LOCAL_ROUTES.ack, { method: 'POST', body: { consumer: 'app', id } });
	device.clock.advance(7_000);
	const { text } = await ask(device, LOCAL_ROUTES.metrics);
	expect(text).toMatch(/^idv_agent_application_ack_age_seconds\{.*\} 7$/m);
});

test('the page is served where the settings ask for it, and pairs only an unpaired device', async () => {
	const service = await givenService();
	const device = await givenAgent({ sets: ['page.port=0', `pairing.trustedOrigins=${service.url}`] });
	const url = device.daemon.addresses.page ?? expect.fail('no page');
	expect(await (await fetch(url)).text()).toContain('<html');
	const { url: code } = service.createPairingCode('check-in');
	const headers = { 'content-type': 'application/json', origin: new URL(url).origin };
	const body = JSON.stringify({ code, trustOrigin: new URL(code).origin });
	const pair = () => fetch(`${url}api/pair`, { method: 'POST', headers, body });
	expect((await pair()).status).toBe(200);
	expect((await pair()).status).toBe(409);
	expect(await (await fetch(`${url}api/view`)).json()).toMatchObject({
		status: { state: 'online' },
		standing: 'paired',
	});
});

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
		// The status may tell of a second event at once a moment later.
		device.clock.advance(100);
		expect(device.clock.pending).toBe(before);
	});

	test('that were waited for leave nothing behind that later ones would call', async () => {
		const { service, device } = await givenDevice();
		const { next } = (await ask(device, LOCAL_ROUTES.events)).json;
		const query = new URLSearchParams({ wait: '30' });
		const begun = Promise.withResolvers<void>();
		let ends = 0;
		const schedule = () => {
			begun.resolve();
			return () => {
				ends += 1;
			};
		};
		const asked = { query, signal: new AbortController().signal, application: null };
		const waiting = pageOfEvents(device.agent, { schedule }, next, asked as never);
		await begun.promise;
		for (const type of ['first', 'second']) {
			service.notify({ type });
			await device.untilEvent(({ kind }) => kind === type);
			await waiting;
		}
		expect(ends).toBe(1);
	});

	test('are waited for no longer than was asked, and not for a caller that has left', async () => {
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

	test('carry a deeply nested notification untouched [F030]', async () => {
		const { service, device } = await givenDevice();
		const nested = (kind: string, depth: number) =>
			`{"type":"${kind}","data":${'['.repeat(depth)}1.0${']'.repeat(depth)}}`;
		const [deep, deeper] = [nested('deep', 400), nested('deeper', 50_000)];
		service.sendRaw(deep);
		service.sendRaw(deeper);
		await device.untilEvent(({ kind }) => kind === 'deeper');
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
		expect(text.includes(`"data":${JSON.stringify(deeper)}}`)).toBe(true);
	});
});

describe('events as a stream', () => {
	test('end with their reader, as the status does: nothing is called for one that has left', async () => {
		const { service, device } = await givenDevice();
		const sent: string[] = [];
		const sinkOf = (name: string): EventSink => {
			const send = () => sent.push(name) > 0;
			return { send, sendAll: send, sendPart: send, close() {}, isBehind: false, drained: () => Promise.resolve() };
		};
		const leave = [streamEvents(device.agent, null, sinkOf('events')), streamStatus(device.agent, sinkOf('status'))];
		const notify = async (type: string) => {
			service.notify({ type });
			const { id } = await device.untilEvent(({ kind }) => kind === type);
			// The status tells of a second event a moment later.
			device.clock.advance(100);
			await device.untilStatus(({ newestEventId }) => newestEventId === id);
		};
		await notify('first');
		await expect.poll(() => new Set(sent).size).toBe(2);
		for (const end of leave) end();
		sent.length = 0;
		await notify('second');
		expect(sent).toEqual([]);
	});

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
		const [, a, b] = await device.events();
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
		const before = (await device.events()).at(-1)?.id ?? '';
		await device.stop();
		const again = await givenAgent({ home: device.home, random: () => 0.25 });
		await again.untilState('online');
		const stream = openStream(again, LOCAL_ROUTES.events, { 'last-event-id': before });
		const first = await stream.next();
		expect(first?.event).toBe('gap');
		expect(first?.id).not.toBe(before);
	});

	test('are on no disk where the settings say so, and a restart loses them', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { events: { durable: false } } });
		service.notify({ type: 'first' });
		await device.untilEvent(({ kind }) => kind === 'first');
		expect((await ask(device, LOCAL_ROUTES.metrics)).text).toMatch(/^idv_agent_events_durable\{.*\} 0$/m);
		const before = (await device.events()).at(-1)?.id ?? '';
		await device.stop();
		expect(readdirSync(device.home.paths.stateDir)).not.toContain('events.db');
		const again = await givenAgent({ home: device.home, random: () => 0.25 });
		await again.untilState('online');
		const { json } = await ask(again, `${LOCAL_ROUTES.events}?since=${before}`);
		expect(json.events).toMatchObject([{ type: 'gap' }]);
	});

	test('wait in the store for a reader that has stopped reading: it is not closed and misses nothing', async () => {
		const { service, device } = await givenDevice();
		const socketPath = join(device.home.paths.runDir, LOCAL_SOCKETS.agent);
		const asking = request({ socketPath, path: LOCAL_ROUTES.events, headers: { accept: 'text/event-stream' } }).end();
		const [response] = (await once(asking, 'response')) as [IncomingMessage];
		onTestFinished(() => void response.destroy());
		const filler = 'x'.repeat(50_000);
		for (let number = 0; number < 60; number += 1) service.notify({ type: 'n', number, filler });
		await device.untilEvent(({ content }) => content.includes('"number":59,'));
		const numbers: number[] = [];
		const parse = createEventStreamParser();
		for await (const chunk of response) {
			for (const event of parse(chunk as Buffer))
				if (event.event === 'notification') numbers.push(JSON.parse(event.data).data.number);
				else expect(event.event).toBe('gap');
			if (numbers.length >= 60) break;
		}
		expect(numbers).toEqual(Array.from({ length: 60 }, (_, number) => number));
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
			changes: [`pairs this device with ${new URL(service.url).host}`, 'runs workflow check-in'],
			problem: { code: 'origin-unconfirmed' },
		});
		const foreign = 'https://bücher.example/mobile?authorization=Token%20tr-abcdefghijklmnopqrstuvwxyz01';
		const shown = await ask(device, LOCAL_ROUTES.pairInspect, admin('POST', { code: foreign }));
		expect(shown.json).toMatchObject({ host: 'xn--bcher-kva.example', hostInUnicode: 'bücher.example' });
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

	test('that has a code or a secret for the name of a member does not get it back [F1185]', async () => {
		const { service, device } = await givenDevice();
		const { url } = service.createPairingCode('check-in');
		for (const name of [url, new URL(url).search.slice(0, 39), 'tr-9fQx2LmZ7vTbK4', '482913', 'correct horse']) {
			const { status, json } = await ask(device, LOCAL_ROUTES.pair, admin('POST', { code: url, [name]: 1 }));
			expect({ status, code: json.code }).toEqual({ status: 422, code: 'body-invalid' });
			expect(JSON.stringify(json)).toContain('must not have another member');
			expect(JSON.stringify(json)).not.toContain(name.slice(0, 12));
		}
		const slip = await ask(device, LOCAL_ROUTES.pair, admin('POST', { code: url, replce: true }));
		expect(slip.json.detail).toContain('must not have replce');
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
