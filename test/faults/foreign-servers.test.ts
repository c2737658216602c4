/** The agent against services that other people's libraries make: what differs is a setting, never code. */
import { test as plain } from 'vitest';
import { type DeviceProcess, givenDevice } from './device-process.ts';
import { type ForeignServer, startFaye, startNpmWebsocket, startPython } from './foreign/servers.ts';

const test = plain.concurrent;

const TOKEN = 'foreign-connection-0123456789';
const count = (server: ForeignServer, word: string) => server.told.filter((line) => line === word).length;

/** Cuts the channel and waits until the device is back on a new one. */
async function untilBack(server: ForeignServer, device: DeviceProcess): Promise<void> {
	server.drop();
	await server.until(/^closed/);
	await device.untilStatus(({ state, channel }) => state === 'online' && channel.reconnects === 1, 'back online');
}

test('python3-websockets: a Connection by an operator, another path, the credential in the query, plain text [F061]', async ({
	expect,
	onTestFinished,
}) => {
	const server = await startPython('websockets_server.py', [TOKEN], onTestFinished);
	const device = await givenDevice({ atTheEnd: onTestFinished });
	await device.writeSettings({
		baseUrl: `http://127.0.0.1:${server.port}/tenant`,
		workflowId: 'check-in',
		heartbeatCadence: 1,
		credential: { connectionFile: await device.secretFile('connection', TOKEN) },
		service: { channelPath: '/hub/notifications', channelAuth: 'query' },
	});
	await device.start();
	await device.untilState('online');
	expect(JSON.parse((await server.until(/^message .*"sequence":2/)).slice(8))).toMatchObject({ type: 'heartbeat' });
	server.send('Session 4711 has started');
	const event = await device.untilEvent(({ format }) => format === 'text');
	expect(event).toMatchObject({ kind: 'text', data: 'Session 4711 has started' });
	await untilBack(server, device);
	expect(server.told).not.toContain('unexpected header');
	expect(device.output()).not.toContain(TOKEN);
});

test('python3-aiohttp: Basic, the token deep in the answer, no pong, other message fields [F062]', async ({
	expect,
	onTestFinished,
}) => {
	const server = await startPython('aiohttp_server.py', ['kiosks', 'pass word', TOKEN], onTestFinished);
	const device = await givenDevice({ atTheEnd: onTestFinished });
	await device.writeSettings({
		baseUrl: `http://127.0.0.1:${server.port}/idv`,
		workflowId: 'check-in',
		deviceId: 'KIOSK-7',
		heartbeatCadence: 1,
		credential: { basicFile: await device.secretFile('basic', 'kiosks:pass word') },
		service: {
			tokenPointer: '/data/session/key',
			channelPath: '/push',
			silenceLimitSeconds: 0,
			kindPointer: '/meta/event',
			notificationIdPointer: '/meta/uuid',
		},
	});
	await device.start();
	await device.untilState('online');
	expect(server.told).toContain('registered KIOSK-7 check-in');
	// Twelve pings without an answer are more than the silence that ends a channel by default.
	await server.until(/^message .*"sequence":12/);
	expect(count(server, 'ping')).toBeGreaterThanOrEqual(10);
	const message = JSON.stringify({ meta: { event: 'session.ready', uuid: 'u-1' }, payload: [1] });
	server.send(message);
	server.send(message);
	server.send(JSON.stringify({ meta: { event: 'session.over', uuid: 'u-2' } }));
	await device.untilEvent(({ kind }) => kind === 'session.over');
	const kinds = (await device.events()).filter(({ type }) => type === 'notification').map(({ kind }) => kind);
	expect(kinds).toEqual(['session.ready', 'session.over']);
	expect(count(server, 'open')).toBe(1);
	await untilBack(server, device);
});

test('npm websocket: an API key, a plain text answer, no pong, bytes, and a refusal by close code [F063]', async ({
	expect,
	onTestFinished,
}) => {
	const server = await startNpmWebsocket(onTestFinished, 'foreign-key-0001', TOKEN);
	const device = await givenDevice({ atTheEnd: onTestFinished });
	await device.writeSettings({
		baseUrl: `http://127.0.0.1:${server.port}`,
		workflowId: 'check-in',
		heartbeatCadence: 1,
		credential: { apiKeyFile: await device.secretFile('key', 'foreign-key-0001') },
		service: { channelPath: '/v2/devices/stream', silenceLimitSeconds: 0, heartbeatMode: 'off' },
	});
	await device.start();
	await device.untilState('online');
	await server.until(/^ping/);
	server.send('#\u0000\u0001');
	const event = await device.untilEvent(({ format }) => format === 'binary');
	expect(Buffer.from(String(event.data), 'base64').toString()).toBe('#\u0000\u0001');
	expect(server.told.some((line) => line.startsWith('message'))).toBe(false);
	server.send('close 4401');
	await device.untilStatus(({ state, channel }) => state === 'online' && channel.reconnects === 1, 'online again');
	// A new Connection is shown again first; one whose channel has lasted for 3 s is replaced.
	expect([1, 2]).toContain(server.told.filter((line) => line.startsWith('registered')).length);
});

test('faye-websocket: a pairing code, the answer is a JSON string, heartbeats as pings, kinds in `event` [F064]', async ({
	expect,
	onTestFinished,
}) => {
	const shortToken = 'tr-0123456789abcdefghijklmnopqr';
	const server = await startFaye(onTestFinished, shortToken, TOKEN);
	const device = await givenDevice({ atTheEnd: onTestFinished });
	await device.writeSettings({
		baseUrl: `http://127.0.0.1:${server.port}`,
		workflowId: 'check-in',
		heartbeatCadence: 1,
		service: { heartbeatMode: 'ping' },
	});
	await device.start();
	await device.pair(shortToken);
	await device.untilState('online');
	server.send(JSON.stringify({ event: 'session.started', n: 1 }));
	const { data } = await device.untilEvent(({ kind }) => kind === 'session.started');
	expect(data).toEqual({ event: 'session.started', n: 1 });
	expect(server.told.some((line) => line.startsWith('message'))).toBe(false);
	await untilBack(server, device);
});

test('with the settings of another service each of them is named by what it answers, and costs no credential [F072]', async ({
	expect,
	onTestFinished,
}) => {
	const server = await startNpmWebsocket(onTestFinished, 'foreign-key-0001', TOKEN);
	const device = await givenDevice({ atTheEnd: onTestFinished });
	const settings = {
		baseUrl: `http://127.0.0.1:${server.port}`,
		workflowId: 'check-in',
		credential: { apiKeyFile: await device.secretFile('key', 'foreign-key-0001') },
	};
	await device.writeSettings({ ...settings, service: { tokenPointer: '/data/token' } });
	await device.start();
	expect((await device.untilProblem('answer-unreadable')).problem?.remedy).toContain('service.tokenPointer');
	await device.writeSettings(settings);
	await device.untilProblem('credential-refused');
	await device.writeSettings({ ...settings, service: { channelPath: '/v2/devices/stream', silenceLimitSeconds: 0 } });
	await device.untilState('online');
});
