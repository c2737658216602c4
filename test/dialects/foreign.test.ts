/** Servers that other people's libraries make: `idv probe` finds their settings, with the path of the channel given. */
import { test as plain } from 'vitest';
import { type ForeignServer, startFaye, startNpmWebsocket } from '../faults/foreign/servers.ts';
import { givenPlace } from './device.ts';

const test = plain.concurrent;
const TOKEN = 'foreign-connection-0123456789';
const SHORT_TOKEN = 'tr-0123456789abcdefghijklmnopqr';

const flagsFor = ({ port }: ForeignServer, out: string) => [
	...['--url', `http://127.0.0.1:${port}`, '--workflow', 'check-in', '--yes', '--seconds', '2', '--out', out],
];

test('npm websocket: an API key, a plain text answer, another path, no pong', async ({ expect, onTestFinished }) => {
	const server = await startNpmWebsocket(onTestFinished, 'foreign-key-0001', TOKEN);
	const place = await givenPlace(onTestFinished);
	const flags = [...flagsFor(server, place.settingsFile), '--channel-path', '/v2/devices/stream'];
	const probed = await place.probe(flags, { IDV_AUTHORIZATION: 'ApiKey foreign-key-0001' });
	expect(probed).toMatchObject({ status: 0, stderr: '' });
	const apiKeyFile = await place.secretFile('key', 'foreign-key-0001');
	const device = await place.startDevice({ deviceId: 'KIOSK-1', credential: { apiKeyFile } });
	await device.untilStatus(({ state }) => state === 'online');
	server.send('{"type":"session.started"}');
	await device.untilEvent(({ kind }) => kind === 'session.started');
});

test('faye-websocket: a code, the answer is a JSON string', async ({ expect, onTestFinished }) => {
	const server = await startFaye(onTestFinished, SHORT_TOKEN, TOKEN);
	const place = await givenPlace(onTestFinished);
	const probed = await place.probe([...flagsFor(server, place.settingsFile), '--code-file', '-'], {}, SHORT_TOKEN);
	expect(probed).toMatchObject({ status: 0, stderr: '' });
	const device = await place.startDevice({ deviceId: 'KIOSK-1' });
	await device.agent.pair({ code: SHORT_TOKEN });
	await device.untilStatus(({ state }) => state === 'online');
	server.send('{"event":"session.started"}');
	await device.untilEvent(({ kind }) => kind === 'session.started');
});
