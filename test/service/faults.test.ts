import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { createFaults } from '../../src/service/faults.ts';
import { credentialsOf, givenService, heartbeat, openChannel, registerDevice, send } from './fixture.ts';

const PATH = '/api/device/connection';
const CHANNEL = '/ws/device';
const body = { deviceId: 'kiosk-1', workflowId: 'check-in' };

describe('failNext', () => {
	test('answers the next matching requests in place of the service, and spends nothing', async () => {
		const service = await givenService();
		const { token } = service.createPairingCode(null);
		const register = () => send(service.url, { path: PATH, authorization: `Token ${token}`, body });
		service.failNext(PATH, { status: 503, headers: { 'Retry-After': '7' } }, 2);
		expect((await send(service.url, { path: '/mobile' })).status).toBe(200);
		const answers = [await register(), await register(), await register()];
		expect(answers.map((answer) => answer.status)).toEqual([503, 503, 201]);
		expect(answers[0]?.headers).toMatchObject({ 'retry-after': '7', 'content-type': 'application/problem+json' });
		expect(answers[0]?.json).toMatchObject({ status: 503, title: 'Service Unavailable' });
	});

	test('gives any body, and strikes upgrades as well', async () => {
		const service = await givenService();
		service.failNext(
			{ method: 'GET', path: /^\/mob/ },
			{ status: 200, headers: { 'content-type': 'text/html' }, body: '<p>portal' },
		);
		service.failNext({}, { status: 418, body: { tea: true } });
		const [portal, teapot] = [
			await send(service.url, { path: '/mobile' }),
			await send(service.url, { path: '/mobile' }),
		];
		expect([portal.text, portal.headers['content-type']]).toEqual(['<p>portal', 'text/html']);
		expect([teapot.status, teapot.json]).toEqual([418, { tea: true }]);

		const token = await registerDevice(service, 'kiosk-1');
		service.failNext(CHANNEL, { status: 302, headers: { location: 'https://elsewhere.example/' } });
		await expect(openChannel(service, token)).rejects.toMatchObject({
			status: 302,
			headers: { location: 'https://elsewhere.example/' },
			text: '',
		});
		await openChannel(service, token);
	});
});

describe('hold', () => {
	test('keeps matching requests unanswered until it is released', async () => {
		const service = await givenService();
		const release = service.hold('/mobile');
		let answered = 0;
		const held = [1, 2].map(async () => {
			const answer = await send(service.url, { path: '/mobile' });
			answered += 1;
			return answer.status;
		});
		await release.received;
		expect((await send(service.url, { path: '/nowhere' })).status).toBe(404);
		expect(answered).toBe(0);
		release();
		expect(await Promise.all(held)).toEqual([200, 200]);
	});

	test('keeps an upgrade unanswered, and forgets it when its line is cut', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1');
		const release = service.hold(CHANNEL);
		const opening = expect(openChannel(service, token)).rejects.toThrow('socket hang up');
		await release.received;
		service.dropSockets();
		await opening;
		const logged = service.waitFor('request');
		release();
		expect(await logged).toMatchObject({ path: CHANNEL, status: null });
		expect(service.devices()).toMatchObject([{ online: false }]);
	});
});

describe('dropBeforeReply', () => {
	test('does what was asked and loses the answer', async () => {
		const service = await givenService();
		const { token } = service.createPairingCode(null);
		const register = () => send(service.url, { path: PATH, authorization: `Token ${token}`, body });
		service.dropBeforeReply({ method: 'POST', path: PATH });
		await expect(register()).rejects.toThrow('socket hang up');
		expect(service.devices()).toMatchObject([{ deviceId: 'kiosk-1' }]);
		expect((await register()).json).toMatchObject({ code: 'token-spent' });
		expect(service.requests.map((entry) => entry.status)).toEqual([null, 401]);
	});

	test('cuts an upgrade before any answer', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1');
		service.dropBeforeReply(CHANNEL);
		await expect(openChannel(service, token)).rejects.toThrow('socket hang up');
	});
});

describe('replyThenDrop', () => {
	test('does what was asked and cuts the answer in the middle', async () => {
		const service = await givenService();
		const { token } = service.createPairingCode(null);
		service.replyThenDrop(PATH);
		const answer = new Promise<{ head: string; rest: string; length: number }>((resolve, reject) => {
			const socket = connect(service.port, '127.0.0.1');
			const json = JSON.stringify(body);
			socket.write(
				`POST ${PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Token ${token}\r\nContent-Type: application/json\r\nContent-Length: ${json.length}\r\n\r\n${json}`,
			);
			const chunks: Buffer[] = [];
			socket.on('data', (chunk: Buffer) => chunks.push(chunk));
			socket.on('error', reject);
			socket.on('close', () => {
				const [head = '', rest = ''] = Buffer.concat(chunks).toString().split('\r\n\r\n');
				resolve({ head, rest, length: Number(/content-length: (\d+)/.exec(head)?.[1]) });
			});
		});
		const { head, rest, length } = await answer;
		expect(head).toMatch(/^HTTP\/1.1 201 Created/);
		expect(rest.length).toBe(Math.floor(length / 2));
		expect(service.devices()).toHaveLength(1);
	});

	test('accepts a channel and ends it at once', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1');
		service.replyThenDrop(CHANNEL);
		const channel = await openChannel(service, token);
		expect(await channel.closed).toMatchObject({ code: 1006 });
		await openChannel(service, token);
	});
});

describe('a fault', () => {
	test('strikes in the order in which it was asked for, each its number of times', () => {
		const faults = createFaults();
		faults.failNext('/a', { status: 500 }, 2);
		faults.dropBeforeReply({ method: 'POST' });
		faults.failNext('/a', { status: 501 });
		const kinds = ['GET', 'POST', 'POST', 'GET', 'GET'].map((method) => {
			const { action } = faults.matchFault(method, '/a');
			return action.kind === 'fail' ? action.answer.status : action.kind;
		});
		expect(kinds).toEqual([500, 500, 'dropBeforeReply', 501, 'none']);
	});
});

describe('goSilent', () => {
	test('leaves the channel open and dead: no pong, no frame, no heartbeat, until it ends', async () => {
		const service = await givenService();
		const { socket, nextMessage } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		let pongs = 0;
		const pong = new Promise<void>((resolve) => {
			socket.on('pong', () => {
				pongs += 1;
				resolve();
			});
		});
		service.goSilent(true);
		socket.ping();
		socket.send(heartbeat('kiosk-1'));
		expect(service.notify({ type: 'lost' })).toBe(0);
		// HTTP goes on: its answer shows that the service had its turn.
		expect((await send(service.url, { path: '/mobile' })).status).toBe(200);
		expect([pongs, service.devices()[0]?.lastHeartbeatAt, socket.readyState]).toEqual([0, null, socket.OPEN]);

		const heard = service.waitFor('heartbeat');
		service.goSilent(false);
		await Promise.all([heard, pong]);
		service.notify({ type: 'heard' });
		expect(await nextMessage()).toEqual({ type: 'heard' });
	});

	test('holds for channels that open meanwhile, and the service still closes', async () => {
		const service = await givenService();
		service.goSilent(true);
		const { socket, closed } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		let pongs = 0;
		socket.on('pong', () => {
			pongs += 1;
		});
		socket.ping();
		expect(service.notify({})).toBe(0);
		expect((await send(service.url, { path: '/mobile' })).status).toBe(200);
		expect(pongs).toBe(0);
		await service.close();
		expect(await closed).toMatchObject({ code: 1006 });
	});
});

describe('faults of open channels', () => {
	test('dropSockets cuts every line and goes on listening', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1');
		const [one, two] = [await openChannel(service, token), await openChannel(service, token)];
		const release = service.hold('/mobile');
		const held = send(service.url, { path: '/mobile' });
		held.catch(() => {});
		await release.received;
		service.dropSockets();
		expect([(await one.closed).code, (await two.closed).code]).toEqual([1006, 1006]);
		await expect(held).rejects.toThrow();
		release();
		await openChannel(service, token);
	});

	test('closeChannels closes with any code and reason', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1');
		for (const [code, reason] of [
			[1001, ''],
			[1013, 'try again later'],
			[4403, 'forbidden'],
		] as const) {
			const channel = await openChannel(service, token);
			expect(service.closeChannels(code, reason)).toBe(1);
			expect(await channel.closed).toEqual({ code, reason });
		}
	});

	test('sendRaw sends frames as they are, invalid UTF-8 included', async () => {
		const service = await givenService();
		const channel = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		expect(service.sendRaw('not JSON {')).toBe(1);
		service.sendRaw(new Uint8Array([0, 255]), { binary: true });
		expect(await channel.nextFrame()).toEqual({ data: Buffer.from('not JSON {'), isBinary: false });
		expect(await channel.nextFrame()).toEqual({ data: Buffer.from([0, 255]), isBinary: true });
		const failed = new Promise<Error>((resolve) => channel.socket.on('error', resolve));
		service.sendRaw(Buffer.from([0xff, 0xfe]));
		expect(await failed).toMatchObject({ code: 'WS_ERR_INVALID_UTF8' });
	});
});

describe('restart', () => {
	test('closes channels with 1012, is away while asked, and comes back on the same port with all it knew', async () => {
		const service = await givenService();
		const { url, port } = service;
		const token = await registerDevice(service, 'kiosk-1');
		const { token: code } = service.createPairingCode(null);
		const channel = await openChannel(service, token);
		const away = Promise.withResolvers<void>();
		const back = service.restart({ until: away.promise });
		expect(await channel.closed).toEqual({ code: 1012, reason: 'service restarts' });
		await expect(send(url, { path: '/mobile' })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
		away.resolve();
		await back;
		expect([service.url, service.port]).toEqual([url, port]);
		await openChannel(service, token);
		const answer = await send(url, { path: PATH, authorization: `Token ${code}`, body });
		expect(answer.status).toBe(201);
	});

	test('can cut the lines instead, and stay down for a time', async () => {
		const service = await givenService();
		const channel = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		await service.restart({ hard: true, downMs: 20 });
		expect(await channel.closed).toMatchObject({ code: 1006 });
		expect((await send(service.url, { path: '/mobile' })).status).toBe(200);
	});

	test('does not come back when the service is closed meanwhile', async () => {
		const service = await givenService();
		const back = service.restart({ downMs: 3_600_000 });
		await service.close();
		await back;
		await expect(send(service.url, { path: '/mobile' })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
	});
});

describe('the log of requests', () => {
	test('keeps the newest: method, path, status, scheme and time, and no secret', async () => {
		const service = await givenService({ maxLoggedRequests: 2, now: () => 42 });
		const { token } = service.createPairingCode(null);
		await send(service.url, { path: '/mobile' });
		await send(service.url, { path: `/api/device?authorization=Token%20${token}` });
		const seen = service.waitFor('request', ({ method }) => method === 'POST');
		await send(service.url, { path: PATH, authorization: credentialsOf(service).Basic, body });
		expect(await seen).toBe(service.requests[1]);
		expect(service.requests).toEqual([
			{ method: 'GET', path: '/api/device', status: 403, authorizationScheme: 'Token', at: 42 },
			{ method: 'POST', path: PATH, status: 201, authorizationScheme: 'Basic', at: 42 },
		]);
		await expect(openChannel(service, 'wrong')).rejects.toMatchObject({ status: 401 });
		expect(service.requests.at(-1)).toMatchObject({ path: CHANNEL, status: 401, authorizationScheme: 'Connection' });
	});

	test('can be waited on, listened to and left', async () => {
		const service = await givenService();
		const paths: string[] = [];
		const off = service.on('request', ({ path }) => paths.push(path));
		await send(service.url, { path: '/one' });
		off();
		await send(service.url, { path: '/two' });
		expect(paths).toEqual(['/one']);
		await expect(service.waitFor('request', () => true, 1)).rejects.toThrow('No such "request" event within 1 ms.');
		const never = expect(service.waitFor('heartbeat')).rejects.toThrow('closed before the event came');
		await service.close();
		await never;
	});
});

describe('close', () => {
	test('leaves no socket, server or timer behind, whatever was going on', async () => {
		const left = () => process.getActiveResourcesInfo().filter((name) => /TCP|Timeout/.test(name)).length;
		const before = left();
		const service = await startService();
		const { socket } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		const gone = new Promise((resolve) => socket.on('close', resolve));
		const release = service.hold('/mobile');
		const held = expect(send(service.url, { path: '/mobile' })).rejects.toThrow();
		await release.received;
		service.goSilent(true);
		await Promise.all([service.close(), service.close()]);
		await Promise.all([gone, held]);
		// Fewer, if what an earlier test closed was still on its way out at the beginning.
		expect(left()).toBeLessThanOrEqual(before);
	});
});
