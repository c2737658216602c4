/** What really leaves the device when an application asks the service through the agent: seen on the wire. */
import { expect, test } from 'vitest';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { givenAgent, givenHome, givenLine, type Line } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { ask } from './local-asking.ts';

const ORIGIN = 'https://kiosk.example.com';
const TOKEN = 'kiosk-token-0123456789012345678901';

/** The lines of the head of the request for a path, as they went over the line. */
function headOf(line: Line, path: string): string[] {
	const all = line.heard();
	const from = all.indexOf(` ${path} HTTP/1.1\r\n`);
	expect(from, `no request for ${path}`).toBeGreaterThan(0);
	return all.slice(from, all.indexOf('\r\n\r\n', from)).split('\r\n').slice(1);
}

/** A code of the service that leads a device onto the line. */
const codeOn = (line: Line, service: EmbeddedService) =>
	service.createPairingCode('check-in').url.replaceAll(new URL(service.url).host, new URL(line.url).host);

test('the Connection of the device goes to the service, and no credential of anybody else', async () => {
	const service = await givenService();
	const line = await givenLine(service);
	const home = await givenHome();
	const applicationsFile = await home.secretFile('applications', `kiosk ${ORIGIN} ${TOKEN}`);
	const device = await givenAgent({
		home,
		settings: { forward: { headers: ['X-Kept'] }, local: { http: { port: 0, applicationsFile } } },
	});
	await device.pair(codeOn(line, service));
	await device.untilState('online');
	const connection = `Connection ${await home.savedToken()}`;

	const asApplication = {
		cookie: 'session=of-the-application',
		'proxy-authorization': 'Basic b2YtYW5vdGhlcg==',
		'x-forwarded-for': '192.0.2.7',
		connection: 'close, authorization, x-named',
		'x-named': 'for-this-hop-only',
		'x-kept': 'for-the-service',
	};
	const asPage = { Origin: ORIGIN, Referer: `${ORIGIN}/page`, Authorization: `Bearer ${TOKEN}` };
	const body = { question: 1 };
	const asked = [
		await ask(device, `${LOCAL_ROUTES.service}api/one?limit=5`, { headers: asApplication }),
		await ask(device, `${LOCAL_ROUTES.service}api/two`, { method: 'POST', headers: asApplication, body }),
		await ask(device, `${LOCAL_ROUTES.service}api/three?access_token=${TOKEN}`, { socket: 'browser', headers: asPage }),
	];
	expect(asked.map(({ status }) => status)).toEqual([404, 404, 404]);

	for (const path of ['/api/one?limit=5', '/api/two', '/api/three']) {
		const head = headOf(line, path);
		expect(head.filter((text) => /^(?:proxy-)?authorization:/i.test(text))).toEqual([`authorization: ${connection}`]);
		expect(head.filter((text) => /^(?:cookie|origin|referer|x-forwarded|x-named|forwarded)/i.test(text))).toEqual([]);
	}
	expect(headOf(line, '/api/two')).toContain('x-kept: for-the-service');
	expect(line.heard()).toContain(JSON.stringify(body));
	expect(line.heard()).not.toContain(TOKEN);
	for (const { text, headers } of asked)
		expect(JSON.stringify([text, headers])).not.toContain(connection.slice('Connection '.length));
});

test('a caller that brings a credential of its own is refused, and nothing leaves the device', async () => {
	const service = await givenService();
	const line = await givenLine(service);
	const device = await givenAgent();
	await device.pair(codeOn(line, service));
	await device.untilState('online');
	for (const [path, headers] of [
		['api/mine', { authorization: 'ApiKey ak-0123456789' }],
		['api/mine?authorization=ApiKey%20ak-0123456789', {}],
		['api/mine?a=1&%61uthorization=x', {}],
		['api/device/connection', {}],
		['api//device/connection', {}],
		['api/x/../device/connection', {}],
		['api/%64evice/connection', {}],
		['api/device%2fconnection', {}],
		['API/Device/Connection/', {}],
		['/127.0.0.1/api/mine', {}],
	] as const)
		for (const method of ['GET', 'POST'])
			expect(await ask(device, LOCAL_ROUTES.service + path, { method, headers })).toMatchObject({
				status: 403,
				json: { code: 'access-denied' },
			});
	expect(line.heard()).not.toContain('ak-0123456789');
	expect(line.heard()).not.toContain('/api/mine');
	// The pairing itself, and nothing after it.
	expect(line.heard().match(/POST \/api\/device\/connection /g)).toHaveLength(1);
});
