import { chmod, mkdir, readdir, readFile, realpath, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import type { ScannerReport } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { MACHINES } from '../fixtures/machines.ts';
import { plugScanner } from '../fixtures/scanners/plug.ts';
import {
	type AgentSetup,
	DEVICE_ID,
	givenAgent,
	givenHome,
	givenPairedAgent,
	type RunningAgent,
	registrations,
} from '../harness/harness.ts';
import { givenService, send } from '../service/fixture.ts';

/** A running agent whose site writes down what its hooks are told, and the root of its machine. */
async function givenDevice(setup: AgentSetup = {}) {
	const home = setup.home ?? (await givenHome());
	const file = join(home.directory, 'told');
	await writeFile(file, '');
	const hook = join(home.directory, 'hook.sh');
	await writeFile(hook, `#!/bin/sh\ncat >> ${file}\n`);
	await chmod(hook, 0o755);
	const hooks = { onPaired: [hook], onPairingFailed: [hook], onPairingUnconfirmed: [hook] };
	const device = await givenAgent({
		...setup,
		home,
		settings: { ...setup.settings, hooks },
	});
	const machines = (await readdir(home.directory)).filter((name) => name.startsWith('machine-'));
	const born = await Promise.all(machines.map(async (name) => (await stat(join(home.directory, name))).birthtimeMs));
	const machine = machines[born.indexOf(Math.max(...born))] ?? '';
	const root = await realpath(join(home.directory, machine));
	return {
		...device,
		root,
		async change(settings: object): Promise<void> {
			await device.home.writeSettings({ ...settings, hooks });
			await device.daemon.reload();
		},
		told: () => readFile(file, 'utf8'),
		report: async () => (await device.client.request('agent', 'GET', '/v1/scanners')) as ScannerReport,
		untilListening: (path: string) =>
			device.untilLogged((line) => line.msg === 'listening for pairing codes' && line['path'] === path),
		/** The refusal that stands in the status, as soon as it has this code. */
		untilRefused: async (code: string) =>
			(
				await device.untilStatus(({ warnings }) => warnings.some((warning) => warning.code === code), code)
			).warnings.find((warning) => warning.code === code),
	};
}

/** As many lines about the hook as it was called. */
const hookCalls = ({ log }: Pick<RunningAgent, 'log'>, hook: string) =>
	log.filter(({ msg }) => msg.startsWith(`${hook} ended`)).length;

const tlsFile = (name: string) => join(import.meta.dirname, '../fixtures/tls', name);
/** What a service thinks the time is, where it is not the time. */
const clockOf = new WeakMap<EmbeddedService, number>();

const trusting = ({ url }: { readonly url: string }) => ({
	settings: { pairing: { trustedOrigins: [url], loopbackByScanner: true } },
});
const onLoopback = { settings: { pairing: { loopbackByScanner: true } } };

/** What the page asks its agent. */
async function ask({ daemon }: Pick<RunningAgent, 'daemon'>, what: string, body?: object): Promise<unknown> {
	const page = daemon.addresses.page ?? '';
	const headers = { origin: page.slice(0, -1), 'content-type': 'application/json', connection: 'close' };
	const options = body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) };
	return (await fetch(`${page}api/${what}`, options)).json();
}

describe('an unpaired device', () => {
	test('is paired by a scan, without a shell, and lets its scanner go', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		expect(await device.report()).toMatchObject({ listening: false, devices: [] });
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		expect(await device.report()).toMatchObject({ listening: true, devices: [{ path: scanner.path, open: true }] });
		const code = service.createPairingCode('check-in');
		scanner.scan(code.url);
		await device.untilLive('check-in');
		await device.untilLogged(({ msg }) => msg.startsWith('onPaired ended'));
		expect(await device.report()).toMatchObject({
			listening: false,
			sentence: expect.stringContaining('paired'),
			devices: [{ open: false }],
		});
		expect(device.logText()).not.toContain(code.token);
	});

	test('listens again after it was unpaired', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		scanner.scan(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
		await device.agent.unpair();
		await device.untilLogged(() => device.log.filter(({ msg }) => msg === 'listening for pairing codes').length === 2);
		scanner.scan(service.createPairingCode('check-out').url);
		await device.untilLive('check-out');
	});

	test('survives that its scanner is pulled out, and goes on with another in another socket', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		const first = await plugScanner(device.root);
		await device.untilListening(first.path);
		first.unplug();
		await device.untilLogged(({ msg }) => msg.includes('was unplugged'));
		const second = await plugScanner(device.root, 'Honeywell_HF680', 7);
		const third = await plugScanner(device.root, 'Zebra_DS9308', 8);
		await device.untilListening(second.path);
		await device.untilListening(third.path);
		third.scan(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
	});

	test('listens again to a scanner whose line has ended while its node stays [F1944]', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		scanner.hangUp();
		await device.untilLogged(() => device.log.filter(({ msg }) => msg === 'listening for pairing codes').length === 2);
		scanner.comeBack();
		scanner.scan(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
	});

	test('leaves ordinary keyboards alone, and every scanner where the settings say so', async () => {
		const device = await givenDevice();
		const keyboard = await plugScanner(device.root, 'Logitech_USB_Keyboard');
		const scanner = await plugScanner(device.root, 'Honeywell_HF680', 4);
		await device.untilListening(scanner.path);
		const { devices } = await device.report();
		expect(devices.find(({ path }) => path === keyboard.path)).toMatchObject({ chosen: false, open: false });
		await device.home.writeSettings({ scanner: { kind: 'off' } });
		await device.daemon.reload();
		expect(await device.report()).toMatchObject({ listening: false, sentence: expect.stringContaining('off') });
		await device.home.writeSettings({ scanner: { device: keyboard.path } });
		await device.daemon.reload();
		await device.untilListening(keyboard.path);
	});

	test('goes on by itself with the one of its settings when that is plugged in again [F127]', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		const first = await plugScanner(device.root);
		await device.home.writeSettings({ ...trusting(service).settings, scanner: { device: first.path } });
		await device.daemon.reload();
		await device.untilListening(first.path);
		first.unplug();
		expect(await device.untilRefused('scanner-failed')).toMatchObject({
			remedy: expect.stringContaining('Reconnect the scanner'),
		});
		const again = await plugScanner(device.root);
		expect(again.path).toBe(first.path);
		await device.untilStatus(({ warnings }) => warnings.length === 0);
		again.scan(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
	});

	test('says that the scanner of its settings is not there', async () => {
		const device = await givenDevice({ settings: { scanner: { device: '/dev/serial/by-id/usb-gone' } } });
		expect(await device.untilRefused('scanner-failed')).toMatchObject({
			message: 'There is no scanner at /dev/serial/by-id/usb-gone.',
		});
	});

	test('takes another scanner at once when the settings name it, and withdraws what was wrong before', async () => {
		const device = await givenDevice({ settings: { scanner: { device: '/dev/serial/by-id/usb-gone' } } });
		await device.untilRefused('scanner-failed');
		const scanner = await plugScanner(device.root);
		await device.home.writeSettings({ scanner: { device: scanner.path } });
		await device.daemon.reload();
		await device.untilListening(scanner.path);
		expect(device.agent.status().warnings).toEqual([]);
		expect((await device.report()).devices).toMatchObject([{ path: scanner.path, open: true }]);
	});

	test('tries a scanner again that it could not open', async () => {
		const device = await givenDevice();
		await mkdir(join(device.root, 'dev/input/by-id'), { recursive: true });
		// A file in the place of a device: it can be found and not be polled.
		const path = join(device.root, 'dev/input/by-id/usb-Newland_scanner-event-kbd');
		await writeFile(path, '');
		expect(await device.untilRefused('scanner-failed')).toMatchObject({ message: expect.stringContaining(path) });
		expect(await device.report()).toMatchObject({
			listening: false,
			devices: [{ problem: { code: 'scanner-failed' } }],
		});
		await device.untilTimers(1);
	});
});

describe('a first code on a device that knows no service', () => {
	test('proves nothing by being scanned, however often: it waits for a confirmation, and the hook is told the host', async () => {
		const service = await givenService();
		const device = await givenDevice(onLoopback);
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const { url, token } = service.createPairingCode('check-in');
		const { host } = new URL(service.url);
		for (let scans = 1; scans <= 3; scans += 1) {
			scanner.scan(url);
			await device.untilLogged(() => hookCalls(device, 'onPairingUnconfirmed') === scans);
			device.clock.advance(2500);
		}
		expect(await device.untilRefused('origin-unconfirmed')).toMatchObject({
			params: { host },
			remedy: `If ${host} is right, confirm it on the screen of this device, or pair with idv-agent pair; otherwise ask for the origin of this code.`,
		});
		const [told] = (await device.told()).split('\n').map((line) => JSON.parse(line || 'null'));
		expect(told).toMatchObject({ code: 'origin-unconfirmed', host, baseUrl: service.url, workflowId: 'check-in' });
		expect(await device.told()).not.toContain(token);
		expect(service.requests).toEqual([]);
		expect(device.agent.status().state).toBe('unpaired');
		await device.agent.pair({ code: url, trustOrigin: service.url });
		await device.untilLive('check-in');
		expect(device.agent.status().warnings).toEqual([]);
	});

	test('is not taken because the host was confirmed for an earlier pairing', async () => {
		const service = await givenService();
		const device = await givenDevice(onLoopback);
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
		await device.agent.unpair();
		const { length } = service.requests;
		await device.untilLogged(() => device.log.filter(({ msg }) => msg === 'listening for pairing codes').length === 2);
		scanner.scan(service.createPairingCode('check-in').url);
		await device.untilRefused('origin-unconfirmed');
		expect(service.requests).toHaveLength(length);
	});

	test('that leads to this machine itself is refused, even where it is trusted, unless a trial allows it', async () => {
		const service = await givenService();
		const device = await givenDevice({ settings: { baseUrl: service.url } });
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const code = service.createPairingCode('check-in').url;
		scanner.scan(code);
		expect(await device.untilRefused('insecure-origin')).toMatchObject({
			message: `This code leads to ${service.url}, which is this machine itself. The code was not sent.`,
		});
		expect(service.requests).toEqual([]);
		await device.change({ baseUrl: service.url, pairing: { loopbackByScanner: true } });
		device.clock.advance(5000);
		scanner.scan(code);
		await device.untilLive('check-in');
	});
});

test('a first code that was scanned is paired on the page with the PIN, and not without it', async () => {
	const service = await givenService();
	const home = await givenHome();
	const pinFile = await home.secretFile('pin', '471100');
	const device = await givenDevice({ home, settings: { ...onLoopback.settings, page: { port: 0, pinFile } } });
	const scanner = await plugScanner(device.root);
	await device.untilListening(scanner.path);
	scanner.scan(service.createPairingCode('check-in').url);
	await device.untilRefused('origin-unconfirmed');
	expect(await ask(device, 'view')).toMatchObject({ pinNeed: 'pin', proposal: { id: 1, workflowId: 'check-in' } });
	expect(await ask(device, 'pair', { proposal: 1, pin: '000000' })).toMatchObject({ params: { reason: 'wrong' } });
	expect(service.requests).toEqual([]);
	expect(await ask(device, 'pair', { proposal: 1, pin: '471100' })).toMatchObject({ online: true });
	await device.untilLive('check-in');
});

test('a copy of another device is not paired by a scanner; `pair` pairs it for the same service without --replace', async () => {
	const service = await givenService();
	const original = await givenPairedAgent(service, { machine: MACHINES['PC with serial numbers of the maker'] });
	await original.stop();
	const requests = service.requests.length;
	const machine = MACHINES['Raspberry Pi'];
	const device = await givenDevice({ machine, home: original.home, settings: trusting(service).settings });
	expect(device.agent.status()).toMatchObject({ state: 'blocked', problem: { code: 'identity-changed' } });
	expect(device.agent.standing()).toBe('copy');
	await plugScanner(device.root);
	expect(await device.report()).toMatchObject({ listening: false });
	const { url } = service.createPairingCode('check-in');
	expect(device.agent.inspectPairing({ code: url }, 'scanner').problem).toMatchObject({ code: 'identity-changed' });
	expect(service.requests.length).toBe(requests);
	await device.client.request('admin', 'POST', '/v1/pair', { code: url });
	expect(await device.untilLive('check-in')).toMatchObject({ deviceId: '10000000a1b2c3d4', warnings: [] });
});

describe('a device that its service has refused three times', () => {
	/** Its Connection is refused until the returned service takes a new code. */
	async function givenRefused(pairing: object = {}, page: object = {}) {
		const service = await givenService();
		const device = await givenDevice({
			settings: {
				page,
				pairing: { trustedOrigins: [service.url], loopbackByScanner: true, ...pairing },
			},
		});
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
		expect(device.agent.standing()).toBe('paired');
		service.revoke(DEVICE_ID);
		while (device.agent.standing() !== 'refused') await device.passWait();
		await device.untilLogged(() => device.log.filter(({ msg }) => msg === 'listening for pairing codes').length === 2);
		return { service, device, scanner, pairedBefore: registrations(service).length };
	}

	test('proposes a scanned code of the same service, and keeps its Connection until it is confirmed [F240]', async () => {
		const { service, device, scanner } = await givenRefused();
		const old = await device.home.savedToken();
		scanner.scan(service.createPairingCode('check-in').url);
		expect(await device.untilRefused('pairing-unconfirmed')).toMatchObject({
			params: { host: new URL(service.url).host },
		});
		expect(await device.home.savedToken()).toBe(old);
		expect(device.agent.status().state).not.toBe('online');
	});

	test('is online again once the page has confirmed what was scanned, and only with what the screen shows', async () => {
		const { service, device, scanner } = await givenRefused({}, { port: 0 });
		scanner.scan(service.createPairingCode('check-in').url);
		await device.untilRefused('pairing-unconfirmed');
		const { proposal } = (await ask(device, 'view')) as { proposal: { id: number; host: string } };
		expect(proposal).toMatchObject({ host: new URL(service.url).host, workflowId: 'check-in' });
		expect(await ask(device, 'pair', { proposal: proposal.id + 1 })).toMatchObject({ code: 'pairing-unconfirmed' });
		expect(await ask(device, 'pair', { proposal: proposal.id })).toMatchObject({ online: true });
		await device.untilLive('check-in');
		expect(await ask(device, 'view')).toMatchObject({ proposal: null, standing: 'paired' });
	});

	test('takes it from `pair` without --replace', async () => {
		const { service, device } = await givenRefused();
		await device.client.request('admin', 'POST', '/v1/pair', { code: service.createPairingCode('check-in').url });
		await device.untilLive('check-in');
		expect(device.agent.standing()).toBe('paired');
	});

	test('takes it from the scanner alone where pairing.rescueByScanner says so', async () => {
		const { service, device, scanner } = await givenRefused({ rescueByScanner: true });
		scanner.scan(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
	});

	test.each<[string, (service: EmbeddedService) => string | Promise<string>, RegExp]>([
		[
			'a link to a session',
			({ createPairingCode }) => `${createPairingCode('check-in').url}&sessionId=0123456789abcdef01234567`,
			/link to a session/,
		],
		['another workflow', ({ createPairingCode }) => createPairingCode('check-out').url, /would change it to check-out/],
		['another service', async () => (await givenService()).createPairingCode('check-in').url, /not among the origins/],
	])('takes no code for %s, by scanner or by hand', async (_what, makeCode, words) => {
		const { service, device, pairedBefore } = await givenRefused({ rescueByScanner: true });
		const code = await makeCode(service);
		for (const by of ['scanner', 'person'] as const) {
			expect(device.agent.inspectPairing({ code }, by)).toMatchObject({
				ready: false,
				problem: { message: expect.stringMatching(words) },
			});
			await expect(device.agent.pair({ code }, by)).rejects.toThrow(words);
		}
		expect(registrations(service)).toHaveLength(pairedBefore);
	});
});

describe('while a pairing is under way', () => {
	test('another scan is ignored with a sentence, and the pairing succeeds', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const release = service.hold(ENDPOINTS.deviceConnection);
		scanner.scan(service.createPairingCode('check-in').url);
		await release.received;
		scanner.scan(service.createPairingCode('check-out').url);
		expect(await device.untilRefused('pairing-under-way')).toMatchObject({
			message: expect.stringContaining('this scan was ignored'),
		});
		release();
		await device.untilLive('check-in');
		expect(registrations(service)).toEqual([201]);
	});

	test('the same code from the terminal, which a keyboard scanner types into as well, has the same answer', async () => {
		const service = await givenService();
		const device = await givenDevice(trusting(service));
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const release = service.hold(ENDPOINTS.deviceConnection);
		const code = service.createPairingCode('check-in').url;
		scanner.scan(code);
		await release.received;
		const typed = device.client.request('admin', 'POST', '/v1/pair', { code: `${code}\n` });
		const other = device.client.request('admin', 'POST', '/v1/pair', { code: service.createPairingCode('w').url });
		await expect(other).rejects.toMatchObject({ code: 'pairing-under-way' });
		release();
		expect(await typed).toMatchObject({ workflowId: 'check-in', online: true });
		expect(registrations(service)).toEqual([201]);
		await device.untilLogged(() => hookCalls(device, 'onPaired') > 0 && hookCalls(device, 'onPairingFailed') > 0);
		expect((await device.told()).trim().split('\n')).toHaveLength(2);
	});
});

describe('each refusal has its own sentence, for the site as well, and the next scan works', () => {
	/** What the hook was told last, as soon as it was called so often. */
	async function untilTold(device: Awaited<ReturnType<typeof givenDevice>>, count: number) {
		await device.untilLogged(() => hookCalls(device, 'onPairingFailed') >= count);
		return JSON.parse((await device.told()).trim().split('\n')[count - 1] ?? '');
	}
	const future = Date.now() + 3_600_000;

	test.each<{
		what: string;
		code: string;
		says: RegExp;
		setup?: (service: EmbeddedService) => AgentSetup;
		scan: (service: EmbeddedService) => string | Promise<string>;
	}>([
		{
			what: 'not a pairing code',
			code: 'not-a-pairing-code',
			says: /a bar code of a product or a label, not a pairing code/,
			scan: () => '4006381333931',
		},
		{
			what: 'for another host',
			code: 'code-for-other-origin',
			says: /This code is for https:\/\/stranger\.example, but this device is configured for/,
			setup: ({ url }) => ({ settings: { baseUrl: url } }),
			scan: () => 'https://stranger.example/mobile?authorization=Token%20tr-A1b2C3d4E5f6G7h8I9j0K1l2M3n4',
		},
		{
			what: 'expired',
			code: 'code-expired-or-used',
			says: /This code has expired/,
			scan: (service) => {
				const { url } = service.createPairingCode('check-in');
				clockOf.set(service, future);
				return url;
			},
		},
		{
			what: 'used already',
			code: 'code-expired-or-used',
			says: /This code was used already/,
			scan: async (service) => {
				const { url, token } = service.createPairingCode('check-in');
				const body = { deviceId: 'another', workflowId: 'check-in' };
				const authorization = { scheme: 'Token', credential: token } as const;
				await send(service.url, {
					method: 'POST',
					path: ENDPOINTS.deviceConnection,
					authorization: `${authorization.scheme} ${token}`,
					body,
				});
				return url;
			},
		},
		{
			what: 'no network',
			code: 'service-unreachable',
			says: /refuses connections .*The code was not sent/,
			scan: async (service) => {
				const { url } = service.createPairingCode('check-in');
				await service.close();
				return url;
			},
		},
		{
			what: 'the service says no',
			code: 'access-forbidden',
			says: /answered 403: Not this kiosk, ask Ann\./,
			scan: (service) => {
				const body = { title: 'No', detail: 'Not this\u0007 kiosk,\n ask Ann.' };
				service.failNext(ENDPOINTS.deviceConnection, { status: 403, body });
				return service.createPairingCode('check-in').url;
			},
		},
		{
			what: 'the clock of this device is wrong',
			code: 'clock-wrong',
			says: /not valid yet by this device's clock: it begins on \d{4}-\d\d-\d\d, and the clock shows 20.*The code was not sent/,
			setup: () => ({ settings: { network: { caFile: tlsFile('ca.pem') } } }),
			scan: async () => {
				const tls = {
					key: await readFile(tlsFile('server.key'), 'utf8'),
					cert: await readFile(tlsFile('not-yet-valid.pem'), 'utf8'),
				};
				return (await givenService({ tls })).createPairingCode('check-in').url;
			},
		},
	])('$what, which the site is told once [F1870]', async ({ code, says, setup, scan }) => {
		const service: EmbeddedService = await givenService({ now: () => clockOf.get(service) ?? Date.now() });
		const device = await givenDevice(setup?.(service) ?? {});
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const text = await scan(service);
		if (text.startsWith('http') && code !== 'code-for-other-origin')
			await device.change({ ...setup?.(service).settings, ...trusting({ url: new URL(text).origin }).settings });
		scanner.scan(text);
		const told = await untilTold(device, 1);
		expect(told).toMatchObject({ code, message: expect.stringMatching(says), remedy: expect.stringMatching(/\S/) });
		expect(await device.untilRefused(code)).toMatchObject({ message: told.message });
		expect(device.agent.status().state).toBe('unpaired');

		const other = await givenService();
		await device.change({ baseUrl: other.url, pairing: { loopbackByScanner: true } });
		scanner.scan(other.createPairingCode('check-in').url);
		await device.untilLive('check-in');
		expect(device.agent.status().warnings).toEqual([]);
		await device.untilLogged(() => hookCalls(device, 'onPaired') > 0);
		expect((await device.told()).trim().split('\n')).toHaveLength(2);
	});
});
