/** What a person is told to do helps: each trouble is made, its code is shown, its remedy is carried out, the device is online. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { test as plain } from 'vitest';
import { type ServiceOptions, startService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import { type AtTheEnd, type DeviceProcess, givenDevice } from './device-process.ts';
import { givenLine } from './line.ts';

const test = plain.concurrent;
/** What takes longer than CI has. */
const long = process.env['FAULTS'] === 'short' ? test.skip : test;

const API_KEY = 'ak-remedies-0123456789';
const KEY = { name: 'kiosks', permissions: ['ephemeral_device:write'], token: API_KEY };

async function givenService(atTheEnd: AtTheEnd, options: ServiceOptions = {}) {
	const service = await startService({ workflows: ['check-in'], apiKeys: [KEY], ...options });
	atTheEnd(() => service.close());
	return service;
}

/** A device with an API key; `settings` writes its settings with this base URL. */
async function givenKiosk(atTheEnd: AtTheEnd) {
	const device = await givenDevice({ atTheEnd });
	const apiKeyFile = await device.secretFile('key', API_KEY);
	const settings = (baseUrl: string, more: object = {}) =>
		device.writeSettings({ baseUrl, workflowId: 'check-in', deviceId: 'KIOSK-7', credential: { apiKeyFile }, ...more });
	return { device, settings };
}

async function untilHelped(device: DeviceProcess): Promise<void> {
	await device.reconnect();
	await device.untilState('online');
}

test.for([
	['expired', 'certificate-expired', "If this device's clock shows the wrong day"],
	['not-yet-valid', 'clock-wrong', "If this device's clock shows the wrong day"],
	['wrong-host', 'certificate-wrong-host', 'Check the host name'],
] as const)(
	'a certificate that is %s is %s; with a good one the device is online [F048]',
	async ([certificate, code, words], context) => {
		const { expect, onTestFinished } = context;
		const bad = await givenService(onTestFinished, { tls: identity(certificate) });
		const { device, settings } = await givenKiosk(onTestFinished);
		await settings(`https://localhost:${bad.port}`, { network: { caFile: fixture('ca.pem') } });
		await device.start();
		const { problem } = await device.untilProblem(code);
		expect(problem?.remedy).toContain(words);
		// Whether the certificate or the clock is wrong, a person sees by the dates.
		if (certificate === 'expired')
			expect(problem?.message).toMatch(/it ended on 2020-01-02, and the clock shows 20\d\d-\d\d-\d\d\./);
		expect(bad.requests).toEqual([]);
		await bad.close();
		await givenService(onTestFinished, { tls: identity('server'), port: bad.port });
		await untilHelped(device);
	},
);

test.for([
	['redirect-refused', 308, {}, ''],
	['response-too-large', 200, {}, 'x'.repeat(5 * 1024 * 1024)],
	['bad-response', 404, {}, 'nothing here'],
	['captive-portal', 200, { 'content-type': 'text/html' }, '<!doctype html><title>Welcome to the hotel</title>'],
] as const)(
	'%s: another address than the service has is named, and the right baseUrl helps [F051]',
	async ([code, status, headers, body], context) => {
		const { expect, onTestFinished } = context;
		const service = await givenService(onTestFinished);
		const other = createServer((_request, response) => {
			response
				.writeHead(status, status === 308 ? { location: `${service.url}/api/device/connection` } : headers)
				.end(body);
		});
		await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
		onTestFinished(() => void other.close());
		const { device, settings } = await givenKiosk(onTestFinished);
		await settings(`http://127.0.0.1:${(other.address() as AddressInfo).port}`);
		await device.start();
		const { problem } = await device.untilProblem(code);
		expect(problem?.remedy).toContain('baseUrl');
		expect(service.requests).toEqual([]);
		await settings(service.url);
		await untilHelped(device);
	},
);

test.for([
	[403, 'access-forbidden', {}],
	[404, 'channel-not-found', {}],
	[426, 'channel-rejected', {}],
	[302, 'captive-portal', { location: 'http://portal.test/login' }],
	[511, 'captive-portal', {}],
] as const)(
	'%i to the channel is %s; when whoever is named has mended it, reconnect helps [F052]',
	async ([status, code, headers], context) => {
		const { expect, onTestFinished } = context;
		const service = await givenService(onTestFinished);
		service.failNext('/ws/device', { status, headers });
		const { device, settings } = await givenKiosk(onTestFinished);
		await settings(service.url);
		await device.start();
		const { problem } = await device.untilProblem(code);
		expect(problem?.message).toContain(String(status));
		await untilHelped(device);
		expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	},
);

test('request-rejected: the words of the service are shown, and a corrected setting is tried at once [F073]', async ({
	expect,
	onTestFinished,
}) => {
	const service = await givenService(onTestFinished);
	service.failNext('/api/device/connection', { status: 422, body: { detail: 'deviceType kiosk is not known here' } });
	const { device, settings } = await givenKiosk(onTestFinished);
	await settings(service.url);
	await device.start();
	const { sentence } = await device.untilProblem('request-rejected');
	expect(sentence).toContain('deviceType kiosk is not known here');
	await settings(service.url, { deviceType: 'scanner' });
	await device.untilState('online');
});

test.for([
	['too large', 'x'.repeat(17 * 1024 * 1024), {}],
	['no UTF-8', Buffer.from([0xff, 0xc0]), { binary: false }],
] as const)(
	'poison-message: after a message that is %s the device is back by itself [F080]',
	async ([_name, data, options], context) => {
		const { expect, onTestFinished } = context;
		const service = await givenService(onTestFinished);
		const { device, settings } = await givenKiosk(onTestFinished);
		await settings(service.url);
		await device.start();
		await device.untilState('online');
		service.sendRaw(data, options);
		const { problem } = await device.untilProblem('poison-message');
		expect(problem).toMatchObject({ remedy: expect.stringContaining('what the service sends'), recovers: true });
		await untilHelped(device);
		service.notify({ type: 'sound' });
		await device.untilEvent(({ kind }) => kind === 'sound');
	},
);

test('a service that needs 18 s to answer a registration is waited for: its code is not lost [F1829]', async ({
	expect,
	onTestFinished,
}) => {
	const service = await givenService(onTestFinished);
	const device = await givenDevice({ atTheEnd: onTestFinished });
	await device.writeSettings({ baseUrl: service.url, deviceId: 'KIOSK-7' });
	await device.start();
	const release = service.hold('/api/device/connection');
	const code = service.createPairingCode('check-in').url;
	const pairing = device.pair(code);
	await release.received;
	await setTimeout(18_000);
	release();
	await pairing;
	await device.untilState('online');
	expect(service.requests.filter(({ method }) => method === 'POST')).toHaveLength(1);
});

long(
	'request-timeout and handshake-timeout: a service that says nothing is waited for, and nothing is to be done when it speaks [F067]',
	async ({ expect, onTestFinished }) => {
		const service = await givenService(onTestFinished);
		const line = await givenLine(service.port, onTestFinished);
		const { device, settings } = await givenKiosk(onTestFinished);
		await settings(`http://127.0.0.1:${line.port}`);
		line.hold();
		await device.start();
		await device.untilProblem('request-timeout');
		await line.heal();
		await untilHelped(device);
		line.hold();
		service.dropSockets();
		line.reset();
		const { problem } = await device.untilProblem('handshake-timeout');
		expect(problem).toMatchObject({ remedy: expect.stringMatching(/^If it lasts/), recovers: true });
		await line.heal();
		await untilHelped(device);
	},
);
