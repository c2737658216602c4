import { describe, expect, test } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { createClock, givenService, heartbeat, openChannel, registerDevice, send } from './fixture.ts';

const SECOND = 1000;

/** Whether the service counts the device as online, and since when it heard it. */
function connectivity(service: EmbeddedService, deviceId = 'kiosk-1') {
	const device = service.devices().find((listed) => listed.deviceId === deviceId);
	return { online: device?.online, lastHeartbeatAt: device?.lastHeartbeatAt };
}

test('a device that may have one channel has its place back at once after a goodbye, and in time after a cut [F1890]', async () => {
	const clock = createClock();
	const service = await givenService({ now: clock.now, oneChannelHeldSeconds: 60 });
	const token = await registerDevice(service, 'kiosk-1');
	const first = await openChannel(service, token);
	const said = service.waitFor('channel-closed');
	first.socket.close(1000);
	await said;
	await openChannel(service, token);
	const cut = service.waitFor('channel-closed');
	service.dropSockets();
	await cut;
	clock.advance(59_999);
	await expect(openChannel(service, token)).rejects.toThrow();
	clock.advance(1);
	await openChannel(service, token);
});

describe('a device', () => {
	test('is listed with what it said of itself, offline until its channel opens', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1', 'check-in', {
			serial: 'SN-1',
			macAddress: '00-1B-21-0A-0B-0C',
			deviceType: 'kiosk',
		});
		const listed = {
			deviceId: 'kiosk-1',
			workflowId: 'check-in',
			online: false,
			lastHeartbeatAt: null,
			planRevision: null,
			planRefused: null,
			serial: 'SN-1',
			macAddress: '00:1b:21:0a:0b:0c',
			deviceType: 'kiosk',
		};
		const list = () =>
			send(service.url, { path: '/api/device', authorization: `Bearer ${service.credentials.bearer}` });
		expect((await list()).json).toEqual({ devices: [listed] });
		const online = service.waitFor('device-online');
		await openChannel(service, token);
		expect(await online).toMatchObject({ deviceId: 'kiosk-1', workflowId: 'check-in' });
		expect((await list()).json).toEqual({ devices: [{ ...listed, online: true }] });
	});

	test.each([
		['the cadence it announced', 10, 25 * SECOND],
		['30 s when it announced none', undefined, 75 * SECOND],
	])('is online for 2.5 times %s after its last sign of life', async (_what, heartbeatCadence, spanMs) => {
		const clock = createClock();
		const service = await givenService({ now: clock.now });
		const more = heartbeatCadence === undefined ? {} : { heartbeatCadence };
		const { socket } = await openChannel(service, await registerDevice(service, 'kiosk-1', 'check-in', more));

		clock.advance(spanMs);
		expect(connectivity(service)).toEqual({ online: true, lastHeartbeatAt: null });
		const heard = service.waitFor('heartbeat');
		socket.send(heartbeat('kiosk-1'));
		expect(await heard).toMatchObject({ deviceId: 'kiosk-1', heartbeat: { sequence: 1 } });
		clock.advance(spanMs);
		expect(connectivity(service)).toEqual({
			online: true,
			lastHeartbeatAt: new Date(clock.now() - spanMs).toISOString(),
		});

		const offline = service.waitFor('device-offline');
		clock.advance(1);
		expect(connectivity(service).online).toBe(false);
		service.clockMoved();
		expect(await offline).toMatchObject({ deviceId: 'kiosk-1', reason: 'silent' });

		const back = service.waitFor('device-online');
		socket.ping();
		await back;
		expect(connectivity(service).online).toBe(true);
	});

	test('stays online while one of its channels is left, with the workflow of the newest', async () => {
		const service = await givenService();
		const old = await openChannel(service, await registerDevice(service, 'kiosk-1', 'check-in'));
		const renewed = await openChannel(service, await registerDevice(service, 'kiosk-1', 'check-out'));
		expect(service.devices()).toMatchObject([{ workflowId: 'check-out', online: true }]);

		const oldClosed = service.waitFor('channel-closed');
		old.socket.close(1000);
		expect(await oldClosed).toMatchObject({ workflowId: 'check-in', code: 1000 });
		expect(connectivity(service).online).toBe(true);
		const offline = service.waitFor('device-offline');
		renewed.socket.close(1000);
		expect(await offline).toMatchObject({ reason: 'closed' });
		expect(connectivity(service).online).toBe(false);
	});

	test("is not marked as heard by another device's heartbeat, by session data or by rubbish", async () => {
		const service = await givenService();
		const { socket } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		socket.send(heartbeat('kiosk-2'));
		socket.send('{"type":"heartbeat"}');
		socket.send('not JSON');
		socket.send(new Uint8Array([1, 2, 3]));
		const heard = service.waitFor('heartbeat');
		socket.send(heartbeat('kiosk-1', 'check-in', 5));
		expect(await heard).toMatchObject({ heartbeat: { sequence: 5 } });
		expect(socket.readyState).toBe(socket.OPEN);
	});
});

describe('a channel', () => {
	test('answers pings', async () => {
		const service = await givenService();
		const { socket } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		const pong = new Promise<string>((resolve) => socket.on('pong', (data) => resolve(data.toString())));
		socket.ping('are you there');
		expect(await pong).toBe('are you there');
	});

	test('ends with 1009 for a frame above 256 KiB', async () => {
		const service = await givenService();
		const { socket, closed } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		socket.send('x'.repeat(256 * 1024 + 1));
		expect(await closed).toMatchObject({ code: 1009 });
	});

	test('ends with 1008 when its Connection expires, and the Connection opens no other', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now, connectionTtlSeconds: 60 });
		const token = await registerDevice(service, 'kiosk-1', 'check-in', { heartbeatCadence: 3600 });
		const { closed, socket } = await openChannel(service, token);
		clock.advance(60 * SECOND - 1);
		service.clockMoved();
		expect(socket.readyState).toBe(socket.OPEN);
		clock.advance(1);
		service.clockMoved();
		expect(await closed).toEqual({ code: 1008, reason: 'connection expired' });
		const refused = await openChannel(service, token).catch((error) => error);
		expect(JSON.parse(refused.text)).toMatchObject({ status: 401, code: 'connection-expired' });
	});

	test('ends by itself, by the real clock, when its Connection expires', async () => {
		const service = await givenService({ connectionTtlSeconds: 3 });
		const { closed } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		expect(await closed).toMatchObject({ code: 1008 });
	});

	test('lives on beside a new registration by default', async () => {
		const service = await givenService();
		const token = await registerDevice(service, 'kiosk-1');
		const old = await openChannel(service, token);
		await registerDevice(service, 'kiosk-1', 'check-out');
		service.notify({ type: 'hello' });
		expect(await old.nextMessage()).toEqual({ type: 'hello' });
		await openChannel(service, token);
	});

	test('ends with 4409 at a new registration where that is switched on; its Connection is revoked', async () => {
		const service = await givenService({ endOldChannelOnRegistration: true });
		const token = await registerDevice(service, 'kiosk-1');
		const old = await openChannel(service, token);
		const bystander = await openChannel(service, await registerDevice(service, 'kiosk-2'));
		const renewed = await openChannel(service, await registerDevice(service, 'kiosk-1', 'check-out'));
		expect(await old.closed).toEqual({ code: 4409, reason: 'replaced by a newer registration' });
		const refused = await openChannel(service, token).catch((error) => error);
		expect(JSON.parse(refused.text)).toMatchObject({ status: 401, code: 'connection-revoked' });
		expect([renewed.socket.readyState, bystander.socket.readyState]).toEqual([1, 1]);
	});

	test('ends with 4401 when its device is revoked, after being told if that is asked for', async () => {
		const service = await givenService();
		const [first, second] = [await registerDevice(service, 'kiosk-1'), await registerDevice(service, 'kiosk-1')];
		const channel = await openChannel(service, second);
		const bystander = await openChannel(service, await registerDevice(service, 'kiosk-2'));
		expect(service.revoke('kiosk-1', { announce: true })).toBe(2);
		expect(await channel.nextMessage()).toEqual({ type: 'connection.revoked' });
		expect(await channel.closed).toEqual({ code: 4401, reason: 'connection revoked' });
		for (const token of [first, second]) {
			await expect(openChannel(service, token)).rejects.toMatchObject({ status: 401 });
		}
		expect(bystander.socket.readyState).toBe(bystander.socket.OPEN);
		expect(service.revoke('nobody')).toBe(0);
		await openChannel(service, await registerDevice(service, 'kiosk-1'));
	});

	test('is one of a bounded number', async () => {
		const service = await givenService({ maxDevices: 1 });
		const token = await registerDevice(service, 'kiosk-1');
		await openChannel(service, token);
		await openChannel(service, token);
		const refused = await openChannel(service, token).catch((error) => error);
		expect(refused).toMatchObject({ status: 503, headers: { 'retry-after': '60' } });
		await expect(registerDevice(service, 'kiosk-2')).rejects.toThrow('service-full');
	});
});

describe('a registration', () => {
	test('beyond 16 Connections of one device revokes the oldest', async () => {
		const service = await givenService();
		const tokens: string[] = [];
		for (let n = 0; n < 17; n += 1) tokens.push(await registerDevice(service, 'kiosk-1'));
		await expect(openChannel(service, tokens[0] ?? '')).rejects.toMatchObject({ status: 401 });
		await openChannel(service, tokens[1] ?? '');
	});

	test('of a new device takes the place of one whose Connections have all expired', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now, maxDevices: 1, connectionTtlSeconds: 60 });
		await registerDevice(service, 'kiosk-1');
		await expect(registerDevice(service, 'kiosk-2')).rejects.toThrow('service-full');
		clock.advance(60 * SECOND);
		await registerDevice(service, 'kiosk-2');
		expect(service.devices().map((device) => device.deviceId)).toEqual(['kiosk-2']);
	});
});

describe('a notification', () => {
	test('reaches the devices that match, untouched, and says how many', async () => {
		const service = await givenService();
		const [one, two] = [
			await openChannel(service, await registerDevice(service, 'kiosk-1', 'a')),
			await openChannel(service, await registerDevice(service, 'kiosk-2', 'b')),
		];
		expect(service.notify({ type: 'all' })).toBe(2);
		expect(service.notify({ type: 'one' }, { deviceId: 'kiosk-1' })).toBe(1);
		expect(service.notify({ type: 'b' }, { workflowId: 'b' })).toBe(1);
		expect(service.notify({ type: 'none' }, { deviceId: 'kiosk-1', workflowId: 'b' })).toBe(0);
		expect(service.notify({ type: 'none' }, { deviceId: 'nobody' })).toBe(0);
		for (const value of [null, 'text', [1, { a: null }], undefined]) service.notify(value, { deviceId: 'kiosk-2' });

		expect([await one.nextMessage(), await one.nextMessage()]).toEqual([{ type: 'all' }, { type: 'one' }]);
		const seen = [];
		for (let n = 0; n < 6; n += 1) seen.push(await two.nextMessage());
		expect(seen).toEqual([{ type: 'all' }, { type: 'b' }, null, 'text', [1, { a: null }], null]);
	});

	test('that changes the workflow goes to one device', async () => {
		const service = await givenService();
		const { nextMessage } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		expect(service.changeWorkflow('kiosk-1', 'check-out')).toBe(1);
		expect(await nextMessage()).toEqual({ type: 'workflow.changed', id: expect.any(String), workflowId: 'check-out' });
		expect(service.changeWorkflow('kiosk-2', 'check-out')).toBe(0);
	});

	test('cuts a device that takes nothing off the line, before it fills the memory [F1841]', async () => {
		const service = await givenService({ maxBufferedBytes: 1024 * 1024 });
		const { socket } = await openChannel(service, await registerDevice(service, 'kiosk-1'));
		socket.pause();
		const offline = service.waitFor('device-offline');
		const filler = 'x'.repeat(512 * 1024);
		let sent = 0;
		while (service.notify(filler) === 1) sent += 1;
		await offline;
		expect(sent).toBeGreaterThan(1);
		// The kernel takes some of it as well.
		expect(sent).toBeLessThan(100);
	});
});
