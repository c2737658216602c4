import { execFileSync } from 'node:child_process';
import { readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { finish } from '../../cli/command.ts';
import { type AgentSetup, givenAgent } from '../../harness/harness.ts';
import { givenService } from '../../service/fixture.ts';
import { plugSerial, requireSocat } from './serial-line.ts';

beforeAll(requireSocat);

/** An unpaired agent that trusts the service, and the root of its machine. */
async function givenDevice(scanner: object = {}, setup: AgentSetup = {}) {
	const service = await givenService();
	const device = await givenAgent({
		...setup,
		settings: { pairing: { trustedOrigins: [service.url], loopbackByScanner: true }, scanner },
	});
	const machine = (await readdir(device.home.directory)).find((name) => name.startsWith('machine-')) ?? '';
	const root = await realpath(join(device.home.directory, machine));
	const count = (text: string) => device.log.filter(({ msg }) => msg.includes(text)).length;
	return {
		...device,
		service,
		root,
		code: () => service.createPairingCode('check-in').url,
		count,
		untilCount: (text: string, desired: number) =>
			device.untilLogged((line) => line === device.log.at(-1) && count(text) >= desired),
		untilListening: (path: string) =>
			device.untilLogged((line) => line.msg === 'listening for pairing codes' && line['path'] === path),
	};
}

describe('a serial scanner', () => {
	test.each([
		['cr', '\r'],
		['lf', '\n'],
		['auto', '\r\n'],
	])('with suffix %s pairs the device, and is let go', async (suffix, end) => {
		const device = await givenDevice({ suffix });
		const scanner = await plugSerial(device.root);
		await device.untilListening(scanner.path);
		expect(await scanner.users()).toBe(1);
		await scanner.send(`${device.code()}${end}`);
		await device.untilLive('check-in');
		await expect.poll(scanner.users, { timeout: 20_000 }).toBe(0);
	});

	test('without a suffix is understood by the quiet after the code', async () => {
		const device = await givenDevice({ suffix: 'none' });
		const scanner = await plugSerial(device.root);
		await device.untilListening(scanner.path);
		const code = device.code();
		await scanner.send(code);
		// The clock that the agent goes by stands still until the quiet is waited for.
		await device.untilTimers(1);
		while (device.agent.status().state === 'unpaired' && device.count('scanned') === 0) {
			await new Promise((resolve) => setImmediate(resolve));
			if (device.clock.pending > 0) device.clock.advance(300);
		}
		await device.untilLive('check-in');
	});

	test('that is pulled out and plugged in again goes on, in whatever socket', async () => {
		const device = await givenDevice();
		const first = await plugSerial(device.root);
		await device.untilListening(first.path);
		await first.unplug();
		await device.untilCount('was unplugged', 1);
		const again = await plugSerial(device.root);
		await device.untilCount('listening for pairing codes', 2);
		await again.unplug();
		await device.untilCount('was unplugged', 2);
		const other = await plugSerial(device.root, 'usb-Datalogic_Gryphon-if00');
		const second = await plugSerial(device.root, 'usb-Zebra_DS9308-if00');
		await device.untilListening(other.path);
		await device.untilListening(second.path);
		await second.send(`${device.code()}\r`);
		await device.untilLive('check-in');
	});

	test('is understood after a burst, after binary garbage and after a megabyte without an end', async () => {
		const device = await givenDevice({ suffix: 'cr' });
		const scanner = await plugSerial(device.root);
		await device.untilListening(scanner.path);
		await scanner.send(Array.from({ length: 500 }, (_, index) => `40063813${index}\r`).join(''));
		await device.untilCount('scanned', 500);
		const garbage = new Uint8Array(65_536).map((_, index) => (index * 2_654_435_761) >>> 24);
		await scanner.send(garbage);
		await scanner.send('x'.repeat(1_000_000));
		const before = device.count('scanned');
		await scanner.send('\r');
		await device.untilCount('scanned', before + 1);
		await scanner.send(`${device.code()}\r`);
		await device.untilLive('check-in');
		expect(device.service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	});

	test('named by scanner.device needs no lasting name', async () => {
		const { root } = await givenDevice({ kind: 'off' });
		const scanner = await plugSerial(root);
		const device = await givenDevice({ device: await realpath(scanner.path) });
		await device.untilListening(await realpath(scanner.path));
		await scanner.send(`${device.code()}\r`);
		await device.untilLive('check-in');
	});
});

test('scanner.baudRate is the speed of the line', async () => {
	const device = await givenDevice({ baudRate: 19_200 });
	const scanner = await plugSerial(device.root);
	await device.untilListening(scanner.path);
	expect(execFileSync('stty', ['-F', scanner.path, 'speed'], { encoding: 'utf8' })).toBe('19200\n');
});

describe('idv-agent scanner test', () => {
	test('shows what a serial scanner reads, never the secret in it, and spends nothing', async () => {
		const { root, service } = await givenDevice({ kind: 'off' });
		const scanner = await plugSerial(root);
		const { url, token } = service.createPairingCode('check-in');
		const reading = finish('idv-agent', ['scanner', 'test', '--device', scanner.path, '--count', '2'], {});
		await expect.poll(scanner.users, { timeout: 20_000 }).toBe(1);
		await scanner.send(`${url}\r\n4006381333931\r\n`);
		const { status, stdout } = await reading;
		expect(stdout).toContain(
			`a pairing code for ${service.url}, Short Token (one use), workflow check-in; its token is masked`,
		);
		expect(stdout).toMatch(/no pairing code \(13 characters\): 400…1\n/);
		expect(stdout).not.toContain(token);
		expect(status).toBe(0);
		expect(service.requests).toEqual([]);
	});
});
