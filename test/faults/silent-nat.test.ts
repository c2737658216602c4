/**
 * A NAT that forgets a quiet connection without a word, of nftables: the agent finds out how often to ping, says that notifications are at
 * risk until that is proved, and each one that was lost meanwhile is in a gap. Minutes long, with the pings that a device has by default.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { test as plain } from 'vitest';
import { LOCAL_ROUTES, type Status } from '../../src/protocol/local-api.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import { givenDevice } from './device-process.ts';
import { givenTwoHosts } from './two-hosts.ts';

const test = process.env['FAULTS'] === 'short' ? plain.skip : plain.concurrent;
const MINUTE = 60_000;
const NOTIFIED_EACH_MS = 50_000;

test.for([25, 12])(
	'a NAT that forgets a line after %i s of silence costs five channels at most, then none; notifications are at risk until then, and none is lost without a gap [F866]',
	{ timeout: 20 * MINUTE },
	async (seconds, { expect, onTestFinished: atTheEnd }) => {
		const hosts = await givenTwoHosts({ atTheEnd });
		const tls = identity('server');
		const service = await startService({ host: hosts.address, allowNonLoopback: true, tls, workflows: ['check-in'] });
		atTheEnd(() => service.close());
		const device = await givenDevice({ prefix: hosts.prefix, atTheEnd });
		await device.writeSettings({
			baseUrl: `https://service.test:${service.port}`,
			workflowId: 'check-in',
			deviceId: `NAT-${seconds}`,
			network: { caFile: fixture('ca.pem') },
			credential: { apiKeyFile: await device.secretFile('key', service.credentials.apiKey) },
		});
		await hosts.startNames();
		hosts.forgetQuietLines(service.port, seconds);
		await device.start();
		await device.untilState('online');

		const sent: { readonly id: string; readonly at: string }[] = [];
		const notified = setInterval(() => {
			sent.push({ id: `n-${sent.length}`, at: new Date().toISOString() });
			service.notify({ type: 'note', id: sent.at(-1)?.id });
		}, NOTIFIED_EACH_MS);
		atTheEnd(() => clearInterval(notified));
		const status = () => device.client.request('agent', 'GET', LOCAL_ROUTES.status) as Promise<Status>;
		const deaths = () =>
			device
				.output()
				.split('\n')
				.filter((line) => line.includes('"code":"channel-silent"')).length;
		const isAtRisk = ({ warnings }: Status) => warnings.some(({ code }) => code === 'notifications-at-risk');

		const until = async (fits: (now: Status) => boolean, minutes: number) => {
			const endMs = performance.now() + minutes * MINUTE;
			for (let now = await status(); performance.now() < endMs; now = await status()) {
				if (fits(now)) return true;
				await pause(500);
			}
			return false;
		};
		expect(await until((now) => now.channel.reconnects > 0, 5)).toBe(true);
		expect(isAtRisk(await status())).toBe(true);
		expect(await until((now) => !isAtRisk(now), 12)).toBe(true);
		const died = deaths();
		expect(died).toBeLessThanOrEqual(5);
		await pause(2 * MINUTE);
		expect(deaths()).toBe(died);
		expect(isAtRisk(await status())).toBe(false);

		clearInterval(notified);
		const events = await device.events();
		const gaps = events.filter(({ type }) => type === 'gap').map(({ data }) => data as { from: string; to: string });
		const arrived = new Set(events.map(({ data }) => (data as { id?: string }).id));
		const lost = sent.filter(({ id }) => !arrived.has(id));
		console.log(
			`${seconds} s: ${died} channels died; of ${sent.length} notifications ${lost.length} lost, each in a gap`,
		);
		expect(lost.length).toBeGreaterThan(0);
		expect(lost.filter(({ at }) => !gaps.some(({ from, to }) => from <= at && at <= to))).toEqual([]);
	},
);
