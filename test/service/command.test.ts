import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { notifyEmbeddedService, runServiceCommand } from '../../src/service/command.runner.ts';
import { credentialsOf, givenService, heartbeat, openChannel, registerDevice, send } from './fixture.ts';

/** Runs the command and collects what it prints. */
async function givenCommand() {
	let printed = '';
	const service = await runServiceCommand({}, { write: (text) => (printed += text) });
	onTestFinished(() => service.close());
	return { service, printed: () => printed };
}

describe('the service command', () => {
	test('prints where it listens and the credentials, and says that they are for a trial', async () => {
		const { service, printed } = await givenCommand();
		const { basic, bearer, apiKey } = service.credentials;
		for (const secret of [`${basic.username}:${basic.password}`, bearer, apiKey]) expect(printed()).toContain(secret);
		expect(printed()).toContain(`Listening at  ${service.url}\n`);
		expect(printed()).toMatch(/trial/);
	});

	test('prints one line for each event, with no secret in it', async () => {
		const { service, printed } = await givenCommand();
		const start = printed().length;
		const token = await registerDevice(service, 'kiosk-1');
		const { socket } = await openChannel(service, token);
		const heard = service.waitFor('heartbeat');
		socket.send(heartbeat('kiosk-1', 'check-in', 3));
		await heard;
		service.notify({ type: 'hello\nthere' });
		const offline = service.waitFor('device-offline');
		socket.close(1000);
		await offline;

		const lines = printed().slice(start).trimEnd().split('\n');
		expect(lines.map((line) => line.replace(/^\S+Z {2}/, '').replaceAll(/ +/g, ' '))).toEqual([
			'registered kiosk-1 for check-in',
			'request POST /api/device/connection 201 (ApiKey)',
			'device-online kiosk-1 with check-in',
			'request GET /ws/device 101 (Connection)',
			'heartbeat kiosk-1 number 3',
			'notified hello there to 1 device',
			'channel-closed kiosk-1 with check-in (code 1000)',
			'device-offline kiosk-1 (closed)',
		]);
		for (const secret of [token, service.credentials.apiKey]) expect(lines.join('\n')).not.toContain(secret);
	});
});

describe('a running embedded service', () => {
	test.each(['no answer', 'half of one'])('that gives %s in time is said to give none [F1889]', async (what) => {
		const server = createServer((_, response) => void (what === 'no answer' || response.write('{"reached":')));
		await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
		onTestFinished(() => void server.close().closeAllConnections());
		const { port } = server.address() as AddressInfo;
		const target = { url: `http://127.0.0.1:${port}`, authorization: { scheme: 'Bearer', credential: 'x' } } as const;
		const sent = notifyEmbeddedService(target, { message: {} }, 200);
		await expect(sent).rejects.toMatchObject({ code: 'service-failed', message: expect.stringContaining('No answer') });
	});

	test('sends what it is asked to from outside', async () => {
		const service = await givenService();
		const channel = await openChannel(service, await registerDevice(service, 'kiosk-1', 'check-in'));
		await openChannel(service, await registerDevice(service, 'kiosk-2', 'check-out'));
		const target = { url: service.url, authorization: credentialsOf(service).Basic };
		expect(await notifyEmbeddedService(target, { message: { type: 'hello' } })).toBe(2);
		expect(await notifyEmbeddedService(target, { message: 'text', deviceId: 'kiosk-1' })).toBe(1);
		expect(await notifyEmbeddedService(target, { message: null, workflowId: 'check-in' })).toBe(1);
		expect(await notifyEmbeddedService(target, { message: {}, deviceId: 'nobody' })).toBe(0);
		const changed = await send(service.url, {
			path: '/api/embedded/workflow',
			authorization: credentialsOf(service).Bearer,
			body: { deviceId: 'kiosk-1', workflowId: 'new' },
		});
		expect(changed.json).toEqual({ reached: 1 });
		const seen = [await channel.nextMessage(), await channel.nextMessage(), await channel.nextMessage()];
		expect([...seen, await channel.nextMessage()]).toEqual([
			{ type: 'hello' },
			'text',
			null,
			{ type: 'workflow.changed', id: expect.any(String), workflowId: 'new' },
		]);
	});

	test('refuses in plain words that name no credential', async () => {
		const service = await givenService();
		const authorization = { scheme: 'Bearer', credential: 'a-wrong-secret' } as const;
		const refused = await notifyEmbeddedService({ url: service.url, authorization }, { message: 1 }).catch((e) => e);
		expect(refused.message).toBe(`127.0.0.1:${service.port} answered 401: The access token is not known.`);
		await service.close();
		const gone = await notifyEmbeddedService({ url: service.url, authorization }, { message: 1 }).catch((e) => e);
		expect(gone.message).toBe(`No answer from 127.0.0.1:${service.port}: is the embedded service running there?`);
	});

	test('that is something else, or leads elsewhere, is told so, and nothing is sent on [F1841]', async () => {
		const service = await givenService();
		service.failNext('/api/embedded/notify', { status: 200, body: 'fine' });
		const target = { url: service.url, authorization: credentialsOf(service).Basic };
		await expect(notifyEmbeddedService(target, { message: 1 })).rejects.toThrow('is not an embedded service');
		const elsewhere = await givenService();
		const headers = { location: `${elsewhere.url}/api/embedded/notify` };
		service.failNext('/api/embedded/notify', { status: 307, headers });
		await expect(notifyEmbeddedService(target, { message: 1 })).rejects.toThrow('No answer from');
		expect(elsewhere.requests).toEqual([]);
	});

	test('wants a message, and a workflow that exists', async () => {
		const service = await givenService({ workflows: ['check-in'] });
		const authorization = credentialsOf(service).Basic;
		const notify = await send(service.url, { path: '/api/embedded/notify', authorization, body: {} });
		expect([notify.status, notify.json.errors]).toEqual([422, [{ path: '/message', message: 'must be given' }]]);
		const body = { deviceId: 'kiosk-1', workflowId: 'nowhere' };
		const workflow = await send(service.url, { path: '/api/embedded/workflow', authorization, body });
		expect([workflow.status, workflow.json.code]).toEqual([404, 'workflow-unknown']);
	});
});

describe('a base path', () => {
	test('stands before every endpoint, the channel and the links', async () => {
		const service = await givenService({ basePath: '/idv/' });
		expect(service.url).toBe(`http://127.0.0.1:${service.port}/idv`);
		await openChannel(service, await registerDevice(service, 'kiosk-1'));
		const { url } = service.createPairingCode(null);
		expect((await send(url, { path: '' })).status).toBe(200);
		const outside = await send(service.url.replace('/idv', ''), { path: '/mobile' });
		expect([outside.status, service.requests.at(-1)?.path]).toEqual([404, '/mobile']);
	});

	test('and another channel path are served where they are set', async () => {
		const service = await givenService({ dialect: { channelPath: '/notify/me' } });
		const token = await registerDevice(service, 'kiosk-1');
		await expect(openChannel(service, token)).rejects.toMatchObject({ status: 404 });
		await openChannel(service, token, { path: '/notify/me' });
	});
});
