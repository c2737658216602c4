import { chmod, mkdir, readdir, readFile, realpath, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import type { ScannerReport } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.ts';
import { MACHINES } from '../fixtures/machines.ts';
import { plugScanner } from '../fixtures/scanners/plug.ts';
import {
	type AgentSetup,
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
	const device = await givenAgent({
		...setup,
		home,
		settings: { ...setup.settings, hooks: { onPaired: [hook], onPairingFailed: [hook] } },
	});
	const machines = (await readdir(home.directory)).filter((name) => name.startsWith('machine-'));
	const born = await Promise.all(machines.map(async (name) => (await stat(join(home.directory, name))).birthtimeMs));
	const machine = machines[born.indexOf(Math.max(...born))] ?? '';
	const root = await realpath(join(home.directory, machine));
	return {
		...device,
		root,
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

const isScan = ({ msg }: { readonly msg: string }) => msg.startsWith('scanned');

const trusting = (service: EmbeddedService) => ({ settings: { pairing: { trustedOrigins: [service.url] } } });

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

describe('a first pairing without a screen', () => {
	test('is confirmed by scanning the same code again, and remembered; nothing is spent before', async () => {
		const service = await givenService();
		const device = await givenDevice();
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const { url } = service.createPairingCode('check-in');
		scanner.scan(url);
		expect(await device.untilRefused('origin-unconfirmed')).toMatchObject({
			remedy: expect.stringContaining('scan the same code again within 30 s'),
		});
		expect(service.requests).toEqual([]);
		device.clock.advance(5000);
		scanner.scan(url);
		await device.untilLive('check-in');
		expect((await device.home.untilSaved(({ pairing }) => pairing !== null)).confirmedOrigins).toEqual([service.url]);
	});

	test('is not confirmed by a scanner that goes on reading, by another code in between, or after 30 s', async () => {
		const service = await givenService();
		const device = await givenDevice();
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const one = service.createPairingCode('check-in').url;
		const two = service.createPairingCode('check-in').url;
		const scan = async (code: string) => {
			const before = device.log.filter(isScan).length;
			scanner.scan(code);
			await device.untilLogged(() => device.log.filter(isScan).length > before);
		};
		const asked = () => device.log.filter(({ msg }) => msg === 'scanned').length;

		await scan(one);
		// Held before the scanner for two seconds.
		for (let read = 0; read < 4; read += 1) {
			device.clock.advance(500);
			await scan(one);
		}
		expect(asked()).toBe(1);
		device.clock.advance(5000);
		await scan(two);
		device.clock.advance(5000);
		await scan(one);
		device.clock.advance(30_001);
		await scan(one);
		expect(asked()).toBe(4);
		await device.untilLogged(() => hookCalls(device, 'onPairingFailed') === 4);
		expect(service.requests).toEqual([]);
		device.clock.advance(2000);
		await scan(one);
		await device.untilLive('check-in');
	});
});

test('a copy of another device is paired for itself by a scan, and contacts nobody before', async () => {
	const service = await givenService();
	const original = await givenPairedAgent(service, { machine: MACHINES['PC with serial numbers of the maker'] });
	await original.stop();
	const requests = service.requests.length;
	const device = await givenDevice({ machine: MACHINES['Raspberry Pi'], home: original.home });
	expect(device.agent.status()).toMatchObject({ state: 'blocked', problem: { code: 'identity-changed' } });
	const scanner = await plugScanner(device.root);
	await device.untilListening(scanner.path);
	expect(service.requests.length).toBe(requests);
	scanner.scan(service.createPairingCode('check-in').url);
	expect(await device.untilLive('check-in')).toMatchObject({ deviceId: '10000000a1b2c3d4', warnings: [] });
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
			says: /some other text, not a pairing code/,
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
			says: /can't be reached .*The code was not used and stays valid/,
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
			says: /not valid yet by this device's clock.*The code was not used and stays valid/,
			setup: () => ({ settings: { network: { caFile: tlsFile('ca.pem') } } }),
			scan: async () => {
				const tls = {
					key: await readFile(tlsFile('server.key'), 'utf8'),
					cert: await readFile(tlsFile('not-yet-valid.pem'), 'utf8'),
				};
				return (await givenService({ tls })).createPairingCode('check-in').url;
			},
		},
	])('$what', async ({ code, says, setup, scan }) => {
		const service: EmbeddedService = await givenService({ now: () => clockOf.get(service) ?? Date.now() });
		const device = await givenDevice(setup?.(service) ?? {});
		const scanner = await plugScanner(device.root);
		await device.untilListening(scanner.path);
		const text = await scan(service);
		scanner.scan(text);
		let told = await untilTold(device, 1);
		if (told.code === 'origin-unconfirmed') {
			device.clock.advance(3000);
			scanner.scan(text);
			told = await untilTold(device, 2);
		}
		expect(told).toMatchObject({ code, message: expect.stringMatching(says), remedy: expect.stringMatching(/\S/) });
		expect(await device.untilRefused(code)).toMatchObject({ message: told.message });
		expect(device.agent.status().state).toBe('unpaired');

		const other = await givenService();
		await device.home.writeSettings({ baseUrl: other.url });
		await device.daemon.reload();
		scanner.scan(other.createPairingCode('check-in').url);
		await device.untilLive('check-in');
		expect(device.agent.status().warnings).toEqual([]);
	});
});
