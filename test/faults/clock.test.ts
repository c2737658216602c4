/** Clocks that are wrong, are set, and stand still while the machine sleeps: libfaketime around a real agent process. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test as plain } from 'vitest';
import { type EmbeddedService, type ServiceOptions, startService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import { faketimeLibrary } from './debian.ts';
import { type AtTheEnd, type DeviceProcess, givenDevice } from './device-process.ts';

const test = plain.concurrent;

interface Site {
	readonly service: EmbeddedService;
	readonly device: DeviceProcess;
	/** Sets the device's clock: an offset such as `+365d`, `-2h`, `+0`. */
	setClock(offset: string): void;
	/** The machine wakes after so many seconds asleep. */
	wakeAfter(seconds: number): void;
}

/** A device on this machine that reaches its service by TLS, not started; its clock begins with the offset. */
async function givenSite(
	atTheEnd: AtTheEnd,
	options: ServiceOptions & { clock?: string; cadence?: number } = {},
): Promise<Site> {
	const { clock = '+0', cadence = 5, ...more } = options;
	const service = await startService({ tls: identity('server'), workflows: ['check-in', 'boarding'], ...more });
	atTheEnd(() => service.close());
	let uptimeFile = '';
	const device = await givenDevice({
		atTheEnd,
		// Mounted over the kernel's own file, for this process only; it is written in place.
		get prefix() {
			return [
				'unshare',
				'--mount',
				'--propagation',
				'private',
				'sh',
				'-c',
				'mount --bind "$0" /proc/uptime && exec "$@"',
				uptimeFile,
			];
		},
		get environment() {
			return {
				LD_PRELOAD: faketimeLibrary(),
				FAKETIME_TIMESTAMP_FILE: clockFile,
				FAKETIME_DONT_FAKE_MONOTONIC: '1',
				FAKETIME_NO_CACHE: '1',
			};
		},
	});
	const clockFile = join(device.directory, 'clock');
	uptimeFile = join(device.directory, 'uptime');
	const setClock = (offset: string) => writeFileSync(clockFile, offset);
	const uptime = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
	const setUptime = (seconds: number) => writeFileSync(uptimeFile, `${seconds.toFixed(2).padStart(16)} 0.00\n`);
	setClock(clock);
	setUptime(uptime);
	await device.writeSettings({
		baseUrl: `https://localhost:${service.port}`,
		workflowId: 'check-in',
		heartbeatCadence: cadence,
		deviceId: 'KIOSK-7',
		network: { caFile: fixture('ca.pem') },
		credential: { apiKeyFile: await device.secretFile('key', service.credentials.apiKey) },
	});
	return { service, device, setClock, wakeAfter: (seconds) => setUptime(uptime + seconds) };
}

const DAYS_SINCE_1970 = Math.floor(Date.now() / 86_400_000);

test('a device that boots in 1970 says that its clock is wrong, and is online soon after a time server has set it [F045]', async ({
	expect,
	onTestFinished,
}) => {
	const { device, setClock } = await givenSite(onTestFinished, { clock: `-${DAYS_SINCE_1970 - 1}d` });
	await device.start();
	const { sentence, startedAt, problem } = await device.untilProblem('clock-wrong');
	expect(startedAt).toMatch(/^1970-/);
	expect(sentence).toContain("this device's clock");
	expect(problem?.remedy).toContain("Set this device's clock");
	setClock('+0');
	const online = await device.untilState('online');
	expect(online.warnings.map(({ code }) => code)).not.toContain('clock-wrong');
});

test('a clock that goes a year ahead and back costs no connection, no credential and no event [F046]', async ({
	expect,
	onTestFinished,
}) => {
	const { service, device, setClock } = await givenSite(onTestFinished);
	await device.start();
	await device.untilState('online');
	service.notify({ type: 'before' });
	await device.untilEvent(({ kind }) => kind === 'before');
	setClock('+365d');
	service.notify({ type: 'ahead' });
	await device.untilEvent(({ kind }) => kind === 'ahead');
	// The next channel is opened in the wrong year: by local reckoning its Connection ended long ago.
	service.dropSockets();
	await device.untilStatus(
		({ state, channel }) => state === 'online' && channel.reconnects === 1,
		'online in the wrong year',
	);
	expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	setClock('+0');
	service.dropSockets();
	await device.untilStatus(
		({ state, warnings, channel }) => state === 'online' && channel.reconnects >= 2 && warnings.length === 0,
		'online without a warning',
	);
	service.notify({ type: 'after' });
	await device.untilEvent(({ kind }) => kind === 'after');
	const kinds = (await device.events()).map(({ kind }) => kind).filter((kind) => kind !== 'gap');
	expect(kinds).toEqual(['before', 'ahead', 'after']);
	// What happens by itself is saved in the background, at the end at the latest.
	await device.end();
	expect(JSON.parse(await device.state()).connections).toHaveLength(1);
	expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
});

test('a device that starts a year ahead comes online, and stays so when its clock is set back [F047]', async ({
	expect,
	onTestFinished,
}) => {
	const { service, device, setClock } = await givenSite(onTestFinished, { clock: '+365d' });
	await device.start();
	await device.untilState('online');
	setClock('+0');
	service.notify({ type: 'after' });
	await device.untilEvent(({ kind }) => kind === 'after');
	expect(service.requests.filter(({ path }) => path === '/ws/device')).toHaveLength(1);
});

test('a machine that slept for two hours has its channel opened anew at the next ping, and its gap spans the two hours [F044]', async ({
	expect,
	onTestFinished,
}) => {
	const { service, device, setClock, wakeAfter } = await givenSite(onTestFinished);
	await device.start();
	await device.untilState('online');
	const beforeMs = Date.now();
	setClock('+2h');
	wakeAfter(7200);
	const { problem } = await device.untilState('offline');
	expect(problem).toMatchObject({ code: 'connection-lost', message: expect.stringMatching(/slept for 7\d\d\d s/) });
	await device.untilState('online');
	const gap = await device.untilEvent(({ type, at }) => type === 'gap' && Date.parse(at) - beforeMs > 7_000_000);
	const { from, to } = gap.data as { from: string; to: string };
	expect(Date.parse(from)).toBeLessThanOrEqual(beforeMs + 60_000);
	expect(Date.parse(to) - Date.parse(from)).toBeGreaterThan(7_000_000);
	service.notify({ type: 'awake' });
	await device.untilEvent(({ kind }) => kind === 'awake');
});

test('an event loop that stood still for longer than two pings loses neither its channel nor a message, and sends one heartbeat [F033]', async ({
	expect,
	onTestFinished,
}) => {
	const { service, device } = await givenSite(onTestFinished, { cadence: 2 });
	await device.start();
	await device.untilState('online');
	const silent = service.waitFor('device-offline', ({ reason }) => reason === 'silent', 60_000);
	process.kill(device.pid, 'SIGSTOP');
	await silent;
	service.notify({ type: 'meanwhile' });
	const sequences: number[] = [];
	const five = service.waitFor(
		'heartbeat',
		({ heartbeat }) => {
			sequences.push(heartbeat.sequence);
			return sequences.length === 3;
		},
		60_000,
	);
	process.kill(device.pid, 'SIGCONT');
	await device.untilEvent(({ kind }) => kind === 'meanwhile');
	await five;
	const status = await device.untilState('online');
	expect(status.channel.reconnects).toBe(0);
	expect(service.requests.filter(({ path }) => path === '/ws/device')).toHaveLength(1);
});
