/** The faults of the soak, each by name: what it does and how it ends. Chooses none and checks nothing. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { EmbeddedService } from '../../../src/service/embedded-service.runner.ts';
import type { DeviceProcess } from '../device-process.ts';
import type { Line } from '../line.ts';

export interface Scene {
	readonly service: EmbeddedService;
	readonly line: Line;
	readonly device: DeviceProcess;
	/** Uniform in [from, to], whole. */
	between(from: number, to: number): number;
	pick<One>(list: readonly One[]): One;
	/** What the device's settings say, with a change. */
	settings(change?: object): object;
	/** File with the offset of the device's clock; `null` without libfaketime. */
	readonly clockFile: string | null;
	/** Whether the state lies on a small disk of its own. */
	readonly smallDisk: boolean;
	/** Keeps the consumer from reading until it is called with `false`. */
	blockConsumer(on: boolean): void;
}

export interface Fault {
	readonly name: string;
	/** How often it is chosen beside the others; default 1. */
	readonly weight?: number;
	/** A person is needed, or the wait is longer than the soak can watch: `reconnect` is asked when it ends. */
	readonly asksHuman?: boolean;
	/** Only where it can be made. */
	readonly needs?: 'clock' | 'smallDisk';
	/** Resolves when the fault has ended. */
	matchFault(scene: Scene): Promise<void>;
}

const CLOSE_CODES = [1000, 1001, 1003, 1007, 1008, 1009, 1011, 1012, 1013, 4401, 4403] as const;
const SLOW_STATUSES = [302, 403, 404, 426] as const;
const upgrade = { method: 'GET', path: '/ws/device' };
const registration = { method: 'POST', path: '/api/device/connection' };
const seconds = (count: number) => pause(count * 1000);

export const FAULTS: readonly Fault[] = [
	{
		name: 'every line cut',
		matchFault: async ({ service }) => service.dropSockets(),
	},
	{
		name: 'service restarts',
		matchFault: ({ service, between }) => service.restart({ until: seconds(between(0, 8)), hard: between(0, 1) === 1 }),
	},
	{
		name: 'service falls silent',
		async matchFault({ service, between }) {
			service.goSilent(true);
			await seconds(between(1, 20));
			service.goSilent(false);
		},
	},
	{
		name: 'channel closed with a code',
		weight: 2,
		matchFault: async ({ service, pick }) => void service.closeChannels(pick(CLOSE_CODES), 'soak'),
	},
	{
		name: 'channel refused for a while',
		weight: 2,
		async matchFault({ service, pick, between }) {
			const status = pick([401, 429, 500, 502, 503]);
			service.failNext(upgrade, { status, headers: { 'retry-after': pick(['1', '3', '-7', 'soon']) } }, between(1, 2));
			service.dropSockets();
		},
	},
	{
		name: 'channel refused as it stands',
		asksHuman: true,
		async matchFault({ service, pick }) {
			service.failNext(upgrade, { status: pick(SLOW_STATUSES), headers: { location: 'http://portal.test/' } });
			service.dropSockets();
			await seconds(7);
		},
	},
	{
		name: 'accepted and closed, again and again',
		async matchFault({ service, between }) {
			service.replyThenDrop(upgrade, between(1, 3));
			service.dropSockets();
		},
	},
	{
		name: 'Connection revoked',
		matchFault: async ({ service, between }) => void service.revoke('KIOSK-7', { announce: between(0, 1) === 1 }),
	},
	{
		name: 'answer to the registration lost',
		async matchFault({ service }) {
			service.dropBeforeReply(registration);
			service.revoke('KIOSK-7');
		},
	},
	{
		name: 'poison on the channel',
		weight: 2,
		async matchFault({ service, pick }) {
			const bad = pick([
				Buffer.from([0xff, 0xfe, 0xc0]),
				'x'.repeat(300 * 1024),
				'['.repeat(100_000),
				'',
				'{"type":7,"id":{}}',
			]);
			service.sendRaw(bad, { binary: false });
			service.sendRaw(Buffer.from([0, 1, 2, 255]), { binary: true });
		},
	},
	{
		name: 'line swallows everything',
		weight: 2,
		async matchFault({ line, between }) {
			line.hold();
			await seconds(between(2, 25));
			await line.heal();
		},
	},
	{
		name: 'nobody listens',
		async matchFault({ line, between }) {
			await line.refuse();
			await seconds(between(1, 15));
			await line.heal();
		},
	},
	{
		name: 'slow line',
		async matchFault({ line, between }) {
			line.delay(between(300, 1500));
			line.reset();
			await seconds(between(5, 15));
			await line.heal();
		},
	},
	{
		name: 'dripping line',
		async matchFault({ line, between }) {
			line.drip(between(20, 200));
			line.reset();
			await seconds(between(5, 20));
			await line.heal();
		},
	},
	{
		name: 'agent killed',
		async matchFault({ device, between }) {
			await device.end('SIGKILL');
			await seconds(between(0, 3));
			await device.start();
		},
	},
	{
		name: 'agent restarted',
		async matchFault({ device }) {
			await device.end('SIGTERM');
			await device.start();
		},
	},
	{
		name: 'event loop stands still',
		async matchFault({ device, between }) {
			process.kill(device.pid, 'SIGSTOP');
			await seconds(between(1, 25));
			process.kill(device.pid, 'SIGCONT');
		},
	},
	{
		name: 'workflow changed by a file',
		weight: 2,
		matchFault: ({ device, settings, pick }) =>
			device.writeSettings(settings({ workflowId: pick(['check-in', 'boarding']) })),
	},
	{
		name: 'bad settings pushed',
		async matchFault({ device, settings, between }) {
			await device.writeSettings(settings({ heartbeatCadence: 'often', basUrl: 1 }));
			await seconds(between(1, 5));
			await device.writeSettings(settings());
		},
	},
	{
		name: 'clock set',
		needs: 'clock',
		async matchFault({ clockFile, pick, between, service }) {
			writeFileSync(clockFile ?? '', pick(['+365d', '-365d', '-7h', '+3600']));
			if (between(0, 1) === 1) service.dropSockets();
			await seconds(between(1, 10));
			writeFileSync(clockFile ?? '', '+0');
		},
	},
	{
		name: 'disk full',
		needs: 'smallDisk',
		async matchFault({ device, settings, between, pick }) {
			const ballast = join(device.stateDir, '..', 'ballast');
			try {
				for (let size = 1 << 20; size >= 512; size /= 2)
					try {
						for (;;) writeFileSync(ballast, Buffer.alloc(size), { flag: 'a' });
					} catch {
						// Full for pieces of this size.
					}
				await device.writeSettings(settings({ workflowId: pick(['check-in', 'boarding']) }));
				await seconds(between(2, 10));
			} finally {
				rmSync(ballast, { force: true });
			}
		},
	},
	{
		name: 'consumer stuck',
		async matchFault({ blockConsumer, service, between }) {
			blockConsumer(true);
			for (let count = 0; count < 100; count += 1) {
				service.notify({ type: 'flood', id: `flood-${Date.now()}-${count}` });
				await pause(20);
			}
			await seconds(between(1, 10));
			blockConsumer(false);
		},
	},
];
