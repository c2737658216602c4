/**
 * What a person is told to do helps: each trouble is made, its remedy is read, then carried out to the letter, and then
 * it works. Here are those that need nothing but an agent; `test/faults/remedies.test.ts` has the rest.
 */
import { cp } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { fixture, identity, listen } from '../connection/network-peers.ts';
import { DEVICE_ID, givenAgent, givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { ask } from '../local-api/local-asking.ts';
import { givenService, registerDevice } from '../service/fixture.ts';

const GROUP = String(process.getgid?.() ?? 0);

/** Tries something that is refused with this code. @returns the remedy. */
async function remedyOf(code: string, trying: Promise<unknown>): Promise<string> {
	const error = await trying.then(
		() => expect.fail(`${code} was expected`),
		(reason: { failure?: { code: string; remedy: string } }) => reason,
	);
	expect(error.failure?.code, String(error)).toBe(code);
	return error.failure?.remedy ?? '';
}

async function change({ home, daemon }: RunningAgent, settings: object): Promise<void> {
	await home.writeSettings(settings);
	await daemon.reload();
}

describe('a code that was refused', () => {
	test('as one for another origin: baseUrl is changed, or the origin is trusted, or another host is confirmed [F087]', async () => {
		const [own, other] = [await givenService(), await givenService()];
		const code = other.createPairingCode('check-in').url;
		const device = await givenAgent({ settings: { baseUrl: own.url } });
		expect(await remedyOf('code-for-other-origin', device.pair(code))).toContain('change baseUrl');
		// What the remedy does not say would not help.
		await change(device, { baseUrl: own.url, pairing: { trustedOrigins: [other.url] } });
		await remedyOf('code-for-other-origin', device.pair(code));
		await change(device, { pairing: { trustedOrigins: [own.url] } });
		expect(await remedyOf('code-for-other-origin', device.pair(code))).toContain(
			'add this one to pairing.trustedOrigins',
		);
		await change(device, {});
		const wrong = device.agent.pair({ code, trustOrigin: own.url });
		expect(await remedyOf('code-for-other-origin', wrong)).toContain('look at the host again');
		expect(other.requests).toEqual([]);
		await change(device, { pairing: { trustedOrigins: [own.url, other.url] } });
		await device.agent.pair({ code });
		await device.untilLive('check-in');
		await device.agent.unpair();
		await change(device, { baseUrl: other.url });
		await device.agent.pair({ code: other.createPairingCode('boarding').url });
		await device.untilLive('boarding');
	});

	test('for its plain http, for the workflow that was named, or as used: another one, or less, is taken [F085]', async () => {
		const service = await givenService({ tls: identity('server'), workflows: ['check-in', 'boarding'] });
		const baseUrl = service.url;
		const settings = { pairing: { trustedOrigins: [baseUrl] }, network: { caFile: fixture('ca.pem') } };
		const device = await givenAgent({ settings });
		const made = service.createPairingCode('check-in');
		const plain = `http://192.0.2.7/mobile${new URL(made.url).search}`;
		expect(await remedyOf('insecure-origin', device.pair(plain))).toContain('Use a code with an https address');
		const both = device.pair(made.url, { workflowId: 'boarding' });
		expect(await remedyOf('workflow-conflict', both)).toContain('Leave --workflow out');
		expect(new URL(made.url).protocol).toBe('https:');
		await device.pair(made.url);
		await device.untilLive('check-in');
		const other = service.createPairingCode('boarding').url;
		await (await givenAgent({ settings })).pair(other);
		const again = device.pair(other, { replace: true });
		expect(await remedyOf('code-expired-or-used', again)).toContain('Ask for a new pairing code');
		await device.pair(service.createPairingCode('boarding').url, { replace: true });
		await device.untilLive('boarding');
	});

	test('as incomplete: baseUrl is set, and the very same one works [F083]', async () => {
		const service = await givenService();
		const { token } = service.createPairingCode('check-in');
		const device = await givenAgent({ settings: { workflowId: 'check-in' } });
		expect(await remedyOf('code-incomplete', device.pair(token))).toContain('Set baseUrl first');
		await change(device, { workflowId: 'check-in', baseUrl: service.url });
		await device.pair(token);
		await device.untilLive('check-in');
	});
});

test('a channel that something else rejects: with the right baseUrl the device is online [F079]', async () => {
	const service = await givenService();
	const port = await listen(createServer((_request, response) => void response.writeHead(426).end()));
	const home = await givenHome();
	const token = await registerDevice(service, DEVICE_ID, 'check-in');
	const settings = {
		workflowId: 'check-in',
		credential: { connectionFile: await home.secretFile('connection', token) },
	};
	const device = await givenAgent({ home, settings: { ...settings, baseUrl: `http://127.0.0.1:${port}` } });
	const { problem } = await device.untilStatus((status) => status.problem?.code === 'channel-rejected');
	expect(problem?.remedy).toContain('check baseUrl');
	await change(device, { ...settings, baseUrl: service.url });
	await device.untilLive('check-in');
});

test('a certificate of another host: with the host name that it is for the device is online [F069]', async () => {
	const [service, other] = [
		await givenService({ tls: identity('server') }),
		await givenService({ tls: identity('wrong-host') }),
	];
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = { workflowId: 'check-in', credential: { apiKeyFile }, network: { caFile: fixture('ca.pem') } };
	const device = await givenAgent({ home, settings: { ...settings, baseUrl: other.url } });
	const { problem } = await device.untilStatus((status) => status.problem?.code === 'certificate-wrong-host');
	expect(problem?.remedy).toContain('Check the host name in baseUrl');
	await change(device, { ...settings, baseUrl: service.url });
	await device.untilLive('check-in');
});

test('a start without a file that the settings name: put there, readable, it starts [F103]', async () => {
	const home = await givenHome();
	const caFile = join(home.directory, 'ca.pem');
	const start = () => givenAgent({ home, settings: { baseUrl: 'https://id.example.com', network: { caFile } } });
	expect(await remedyOf('settings-unreadable', start())).toContain('Make sure the file exists');
	await cp(fixture('ca.pem'), caFile);
	expect((await start()).agent.status()).toMatchObject({ state: 'unpaired', warnings: [] });
});

test('changed settings that wait for a restart are in force after one, and nothing is said any more [F131]', async () => {
	const home = await givenHome();
	const settings = { local: { agentGroup: GROUP, adminGroup: GROUP } };
	const device = await givenAgent({ home, settings });
	await change(device, { ...settings, events: { durable: false } });
	expect(device.agent.status().warnings).toMatchObject([
		{ code: 'restart-needed', remedy: 'Start the agent again: systemctl restart idv-agent.' },
	]);
	await device.stop();
	expect((await givenAgent({ home })).agent.status().warnings).toEqual([]);
});

test('a request that the local interface refuses: asked as it says, it is answered [F112]', async () => {
	const device = await givenPairedAgent(await givenService());
	const unknown = await ask(device, '/v1/state');
	expect(unknown).toMatchObject({ status: 404, json: { code: 'not-found' } });
	const [listed = ''] = /\/v1\/\S+\.json/.exec(unknown.json.remedy) ?? [];
	const paths = Object.keys((await ask(device, listed)).json.paths);
	expect(await ask(device, paths.find((path) => /stat/.test(path)) ?? '')).toMatchObject({ status: 200 });

	const method = await ask(device, '/v1/status', { method: 'DELETE' });
	expect(method.json).toMatchObject({ code: 'method-not-allowed', remedy: expect.stringContaining('Allow header') });
	const [allowed = ''] = method.headers.allow?.split(', ') ?? [];
	expect(await ask(device, '/v1/status', { method: allowed })).toMatchObject({ status: 200 });

	const elsewhere = await ask(device, '/v1/reconnect', { method: 'POST' });
	expect(elsewhere.json).toMatchObject({ code: 'access-denied', remedy: expect.stringContaining('admin.sock') });
	expect((await ask(device, '/v1/reconnect', { method: 'POST', socket: 'admin' })).status).toBeLessThan(300);

	const lease = (body: unknown) => ask(device, '/v1/leases', { method: 'POST', body });
	const wrong = await lease({ name: 'kiosk', seconds: 'many' });
	expect(wrong.json).toMatchObject({ code: 'body-invalid', remedy: 'Correct the fields named in the answer.' });
	const named = wrong.json.errors.map(({ path }: { path: string }) => path);
	expect(await lease({ name: 'kiosk', ...Object.fromEntries(named.map((field: string) => [field, 5])) })).toMatchObject(
		{
			status: 200,
		},
	);
	const large = await lease({ name: 'kiosk', why: 'x'.repeat(100_000) });
	expect(large.json).toMatchObject({ code: 'body-too-large', remedy: expect.stringContaining('Send less') });
	expect(Number(/at most (\d+) bytes/.exec(large.json.detail)?.[1])).toBeGreaterThan(20);
	expect(await lease({ name: 'kiosk' })).toMatchObject({ status: 200 });
});
