import { networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { readPairingCode } from '../../src/protocol/pairing-code.ts';
import { readTokenLife } from '../../src/protocol/token-life.ts';
import { dialectSchema, hasShape, parseDialect } from '../../src/service/dialect.ts';
import type { DialectOptions, EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { createRateLimit } from '../../src/service/rate-limit.ts';
import { createClock, credentialsOf, givenService, heartbeat, openChannel, registerDevice, send } from './fixture.ts';

const PATH = '/api/device/connection';
const body = { deviceId: 'kiosk-1', workflowId: 'check-in' };

const register = (service: EmbeddedService, more: object = {}) =>
	send(service.url, { path: PATH, authorization: credentialsOf(service).ApiKey, body: { ...body, ...more } });

/** A service of this dialect, and an open channel at it. */
async function givenChannel(dialect: DialectOptions) {
	const service = await givenService({ dialect });
	const channel = await openChannel(service, await registerDevice(service, 'kiosk-1'));
	return { service, ...channel };
}

test('every field has a default and says what it is', () => {
	for (const [name, schema] of Object.entries(dialectSchema.shape)) {
		expect({ [name]: schema.description }).toEqual({ [name]: expect.stringMatching(/\.$/) });
		expect(Object.keys(parseDialect())).toContain(name);
	}
	expect(() => parseDialect({ channelPath: 'x' })).toThrow('dialect.channelPath: must begin with a slash');
	expect(() => parseDialect({ chanelPath: '/x' } as DialectOptions)).toThrow('chanelPath');
});

describe('the answer to a registration', () => {
	test.each<[DialectOptions, (answer: { text: string; json: unknown; headers: object }) => unknown, unknown]>([
		[{ tokenPointer: '/data/1/a~1b' }, ({ json }) => json, { data: [null, { 'a/b': expect.any(String) }] }],
		[
			{ tokenPrefix: 'Connection ' },
			({ json }) => json,
			{ token: expect.stringMatching(/^Connection \S+\.\S+\.\S+$/) },
		],
		[{ tokenIn: 'header', tokenHeader: 'X-Token' }, ({ headers }) => headers, { 'x-token': expect.any(String) }],
		[{ tokenIn: 'text', tokenPrefix: 'T:' }, ({ text }) => text, expect.stringMatching(/^T:\S+\.\S+\.\S+$/)],
	])('%j', async (dialect, look, expected) => {
		const answer = await register(await givenService({ dialect }));
		expect(answer.status).toBe(201);
		if (typeof look(answer) === 'string') expect(look(answer)).toEqual(expected);
		else expect(look(answer)).toMatchObject(expected as object);
	});

	test('in a header leaves nothing of it in the body', async () => {
		expect((await register(await givenService({ dialect: { tokenIn: 'header' } }))).text).toBe('{}');
	});

	test('may be compressed, and so may a refusal', async () => {
		const service = await givenService({ dialect: { gzipAnswers: true, tokenIn: 'text' } });
		const ask = async (deviceId: string) => {
			const headers = { authorization: `ApiKey ${service.credentials.apiKey}`, 'content-type': 'application/json' };
			const asked = { method: 'POST', headers, body: JSON.stringify({ ...body, deviceId }) };
			const answer = await fetch(`${service.url}${PATH}`, asked);
			expect(answer.headers.get('content-encoding')).toBe('gzip');
			return answer.text();
		};
		expect(await ask('kiosk-1')).toMatch(/^\S+\.\S+\.\S+$/);
		expect(JSON.parse(await ask(''))).toMatchObject({ code: 'body-invalid' });
	});

	test('with an opaque Connection says nothing of its end, which still comes', async () => {
		const clock = createClock();
		const service = await givenService({
			now: clock.now,
			connectionTtlSeconds: 60,
			dialect: { connectionForm: 'opaque' },
		});
		const { json } = await register(service);
		expect(json).toEqual({ ...body, token: expect.stringMatching(/^[\w-]+$/) });
		expect(readTokenLife(json.token)).toBeNull();
		const channel = await openChannel(service, json.token);
		clock.advance(60_000);
		service.clockMoved();
		expect(await channel.closed).toMatchObject({ code: 1008 });
		await expect(openChannel(service, json.token)).rejects.toMatchObject({ status: 401 });
		await expect(openChannel(service, 'a.b.c')).rejects.toMatchObject({ status: 401 });
	});
});

describe('refusals', () => {
	test('may come with 403, and with another status on the channel', async () => {
		const service = await givenService({ dialect: { refusalStatus: 403, channelRefusalStatus: 410 } });
		const answer = await send(service.url, { path: PATH, authorization: 'Token tr-unknown', body });
		expect([answer.status, answer.json.status, answer.json.code]).toEqual([403, 403, 'token-unknown']);
		expect(answer.headers['www-authenticate']).toBeUndefined();
		await expect(openChannel(service, 'wrong')).rejects.toMatchObject({ status: 410 });
	});

	test.each<[string, boolean, number[]]>([
		['sliding', false, [201, 201, 429, 429, 201]],
		['sliding', true, [201, 201, 429, 429, 429]],
		['fixed', false, [201, 201, 429, 201, 201]],
		['fixed', true, [201, 201, 429, 201, 201]],
	])('of too many registrations: %s window, refused ones counted: %s', async (window, countsRefused, expected) => {
		const clock = createClock();
		const registrationLimit = { perMinute: 2, window: window as 'sliding', countsRefused };
		const service = await givenService({ now: clock.now, dialect: { registrationLimit } });
		clock.advance(30_000);
		const statuses: number[] = [];
		for (const waitMs of [0, 0, 20_000, 20_000, 25_000]) {
			clock.advance(waitMs);
			statuses.push((await register(service)).status);
		}
		expect(statuses).toEqual(expected);
	});

	test('of too many registrations last their minute, however many others have registered since [F1841]', () => {
		let nowMs = 0;
		const limit = { perMinute: 1, window: 'sliding', countsRefused: false, retryAfter: true } as const;
		const count = createRateLimit(limit, () => nowMs);
		for (let address = 0; address < 200; address += 1) count(`10.0.0.${address}`);
		nowMs = 59_999;
		for (let address = 200; address < 400; address += 1) count(`10.0.0.${address}`);
		expect(() => count('10.0.0.0')).toThrow('registered 1 times within a minute');
		nowMs = 60_000;
		count('10.0.0.0');
	});

	test('of too many registrations say when to try again, unless the dialect does not', async () => {
		const clock = createClock();
		for (const [retryAfter, header] of [
			[true, '60'],
			[false, undefined],
		] as const) {
			const service = await givenService({
				now: clock.now,
				dialect: { registrationLimit: { perMinute: 1, retryAfter } },
			});
			await register(service);
			const refused = await register(service);
			expect([refused.status, refused.json.code, refused.headers['retry-after']]).toEqual([
				429,
				'rate-limited',
				header,
			]);
		}
	});
});

describe('the channel', () => {
	test.each(['header', 'query'] as const)('may take its credential in the %s only', async (channelAuth) => {
		const service = await givenService({ dialect: { channelAuth } });
		const token = await registerDevice(service, 'kiosk-1');
		await openChannel(service, token, { by: channelAuth });
		const other = channelAuth === 'header' ? 'query' : 'header';
		const refused = await openChannel(service, token, { by: other }).catch((error) => error);
		expect(JSON.parse(refused.text)).toMatchObject({ status: 401, code: 'credential-missing' });
	});

	test('may name the query parameter otherwise, there and elsewhere', async () => {
		const service = await givenService({ dialect: { queryName: 'access_token' } });
		const token = await registerDevice(service, 'kiosk-1');
		const channel = `${service.url.replace('http', 'ws')}/ws/device`;
		const socket = new WebSocket(`${channel}?access_token=${encodeURIComponent(`Connection ${token}`)}`);
		await new Promise((resolve) => socket.on('open', resolve));
		socket.terminate();
		await expect(openChannel(service, token, { by: 'query' })).rejects.toMatchObject({ status: 401 });
		const query = `?access_token=${encodeURIComponent(`Bearer ${service.credentials.bearer}`)}`;
		expect((await send(service.url, { path: `/api/device${query}` })).status).toBe(200);
	});

	test('may require a subprotocol', async () => {
		const service = await givenService({ dialect: { subprotocol: 'idv.v1' } });
		const token = await registerDevice(service, 'kiosk-1');
		const refused = await openChannel(service, token).catch((error) => error);
		expect(JSON.parse(refused.text)).toMatchObject({ status: 400, code: 'subprotocol-missing' });
		const headers = { authorization: `Connection ${token}` };
		const socket = new WebSocket(`${service.url.replace('http', 'ws')}/ws/device`, ['other', 'idv.v1'], { headers });
		await new Promise((resolve) => socket.on('open', resolve));
		expect(socket.protocol).toBe('idv.v1');
		socket.terminate();
	});

	test('may leave pings unanswered', async () => {
		const { service, socket } = await givenChannel({ answersPing: false });
		let pongs = 0;
		socket.on('pong', () => (pongs += 1));
		socket.ping();
		const heard = service.waitFor('heartbeat');
		socket.send(heartbeat('kiosk-1'));
		await heard;
		service.notify({ type: 'last' });
		await new Promise((resolve) => socket.once('message', resolve));
		expect(pongs).toBe(0);
	});

	test('may send pings of its own that must be answered', async () => {
		const appPing = { kind: 'are-you-there', everySeconds: 0.05, answer: { here: true } };
		const { socket, nextMessage, closed } = await givenChannel({ appPing });
		for (let answered = 0; answered < 3; answered += 1) {
			expect(await nextMessage()).toEqual({ type: 'are-you-there' });
			socket.send('{ "here" : true }');
		}
		expect(await nextMessage()).toEqual({ type: 'are-you-there' });
		expect(await closed).toEqual({ code: 4408, reason: 'ping not answered' });
	});

	test('may acknowledge each heartbeat', async () => {
		const { socket, nextMessage } = await givenChannel({ heartbeatAck: 'heartbeat.ack' });
		socket.send('{"type":"something else"}');
		socket.send(heartbeat('kiosk-2'));
		socket.send(heartbeat('kiosk-1', 'check-in', 7));
		expect(await nextMessage()).toEqual({ type: 'heartbeat.ack', sequence: 7 });
	});

	test('may take heartbeats of another shape only', async () => {
		const { service, socket, closed } = await givenChannel({ heartbeats: { op: 'alive', device: '*', up: { s: 1 } } });
		const heard = service.waitFor('heartbeat');
		socket.send('{"device":"x","op":"alive","up":{"s":99}}');
		expect(await heard).toMatchObject({ deviceId: 'kiosk-1', heartbeat: { sequence: 1 } });
		expect(service.devices()[0]?.lastHeartbeatAt).not.toBeNull();
		socket.send(heartbeat('kiosk-1'));
		expect(await closed).toEqual({ code: 4400, reason: 'frame refused' });
	});

	test('may take no frame at all', async () => {
		const { socket, closed } = await givenChannel({ heartbeats: 'none' });
		socket.ping();
		await new Promise((resolve) => socket.once('pong', resolve));
		socket.send(heartbeat('kiosk-1'));
		expect(await closed).toMatchObject({ code: 4400 });
	});

	test('may be cut when nothing was said for a while, in either direction', async () => {
		const { socket, closed } = await givenChannel({ idleTimeoutSeconds: 0.2 });
		const openedAt = performance.now();
		const talking = setInterval(() => socket.ping(), 50);
		let pongs = 0;
		await new Promise<void>((resolve) => {
			socket.on('pong', () => {
				pongs += 1;
				if (pongs === 8) resolve();
			});
		});
		expect(performance.now() - openedAt).toBeGreaterThan(200);
		clearInterval(talking);
		expect(await closed).toMatchObject({ code: 1006 });
	});
});

test.each<[shape: unknown, value: unknown, fits: boolean]>([
	[{ a: '*' }, { a: 'x' }, true],
	[{ a: '*' }, { a: 1 }, false],
	[{ a: 'x' }, { a: 'y' }, false],
	[{ a: null }, { a: null }, true],
	[{ a: null }, { a: {} }, false],
	[{ a: 1, b: true }, { b: false, a: 2 }, true],
	[{ a: 1 }, { a: 1, b: 2 }, false],
	[{ a: 1 }, { b: 1 }, false],
	[{ a: {} }, { a: null }, false],
	[{}, undefined, false],
])('the shape %j and %j: %s', (shape, value, fits) => expect(hasShape(shape, value)).toBe(fits));

describe('codes and workflows', () => {
	const workflowNames = { 'check-in': 'Check in', 'check-out': 'Check out' };

	test('a code may leave its workflow out, and is still bound to it', async () => {
		const service = await givenService({ dialect: { codesNameWorkflow: false } });
		const { url } = service.createPairingCode('check-in');
		expect(readPairingCode(url)).toMatchObject({ kind: 'pairingCode', workflowId: null });
		const { token } = service.createPairingCode('check-in');
		const other = { path: PATH, authorization: `Token ${token}`, body: { ...body, workflowId: 'other' } };
		expect((await send(service.url, other)).json).toMatchObject({ code: 'workflow-mismatch' });
	});

	test('the workflows are listed by name to a credential that may register, and a code stays good', async () => {
		const service = await givenService({ dialect: { workflowNames } });
		const authorization = `Token ${service.createPairingCode(null).token}`;
		const workflows = [
			{ id: 'check-in', name: 'Check in' },
			{ id: 'check-out', name: 'Check out' },
		];
		const path = '/api/device/configuration';
		expect((await send(service.url, { path, authorization })).json).toEqual({ workflows });
		for (const [asked, code] of [
			[{ deviceId: 'kiosk-1' }, 'body-invalid'],
			[{ ...body, workflowId: 'nowhere' }, 'workflow-unknown'],
		])
			expect((await send(service.url, { path: PATH, authorization, body: asked })).json).toMatchObject({
				code,
				workflows,
			});
		const noDevice = await send(service.url, { path: PATH, authorization, body: { workflowId: 'check-in' } });
		expect(noDevice.json).not.toHaveProperty('workflows');
		const bound = `Token ${service.createPairingCode('check-out').token}`;
		expect((await send(service.url, { path, authorization: bound })).json.workflows).toEqual([workflows[1]]);
		expect((await send(service.url, { path })).status).toBe(401);
		expect((await send(service.url, { path: PATH, authorization, body })).status).toBe(201);
	});

	test('keys are created under the paths of the dialect only', async () => {
		const service = await givenService({ dialect: { apiKeyPaths: ['/api/security/apikey'] } });
		const ask = async (path: string) =>
			(
				await send(service.url, {
					path,
					authorization: credentialsOf(service).Basic,
					body: { name: 'k', permissions: ['a:b'] },
				})
			).status;
		expect([await ask('/api/security/apikeys'), await ask('/api/apikey'), await ask('/api/security/apikey')]).toEqual([
			404, 404, 201,
		]);
	});
});

describe('the address in codes', () => {
	const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
	const outside = addresses.find(({ internal, family }) => !internal && family === 'IPv4')?.address;

	test.each(['0.0.0.0', '::'])('of a service on %s is one that others can reach', async (host) => {
		const service = await givenService({ host, allowNonLoopback: true });
		const { hostname } = new URL(service.createPairingCode(null).url);
		expect(hostname).toBe(outside ?? (addresses.some(({ internal }) => !internal) ? hostname : '127.0.0.1'));
		expect((await send(service.url, { path: '/mobile' })).status).toBe(200);
	});

	test('is publicUrl where it is set', async () => {
		const service = await givenService({ publicUrl: 'https://id.example.com/idv' });
		expect(service.createPairingCode(null).url).toMatch(/^https:\/\/id\.example\.com\/idv\/mobile\?/);
	});
});
