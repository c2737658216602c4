/**
 * Real proxies and fronts that end silent lines: the agent finds the idle timeout out, pings in time, and no channel is cut
 * any more. Nine devices side by side, for IDLE_MINUTES (10) and the three minutes that learning may take.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { test as plain, type TestContext } from 'vitest';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import { givenDevice } from './device-process.ts';
import { haproxy, nginx, squid } from './proxies.ts';
import { SERVICE_NAME } from './two-hosts.ts';

const MINUTES = Number(process.env['IDLE_MINUTES'] ?? 10);
const LEARNING_MINUTES = 3;
const test = process.env['FAULTS'] === 'short' ? plain.skip : plain.concurrent;

type Kind = 'nginx' | 'haproxy' | 'squid';

async function watch(kind: Kind, idleSeconds: number, trafficMs: number | null, context: TestContext): Promise<void> {
	const { expect, onTestFinished: atTheEnd } = context;
	const address = '127.0.0.1';
	const isFront = kind !== 'squid';
	const service = await startService({ workflows: ['check-in'], ...(isFront ? {} : { tls: identity('server') }) });
	atTheEnd(() => service.close());
	const options = { address, atTheEnd, idleSeconds };
	const front = { ...options, servicePort: service.port };
	const proxy =
		kind === 'nginx' ? await nginx(front) : kind === 'haproxy' ? await haproxy(front) : await squid(options);
	const device = await givenDevice({ atTheEnd });
	const apiKeyFile = await device.secretFile('key', service.credentials.apiKey);
	await device.writeSettings({
		// Loopback addresses never go through a proxy; the name is known to squid alone.
		baseUrl: isFront ? `https://${address}:${proxy.port}` : `https://${SERVICE_NAME}:${service.port}`,
		workflowId: 'check-in',
		deviceId: `${kind}-${idleSeconds}`,
		network: { caFile: fixture('ca.pem'), ...(isFront ? {} : { proxy: proxy.url }) },
		credential: { apiKeyFile },
	});
	await device.start();
	await device.untilState('online');
	const traffic = trafficMs === null ? null : setInterval(() => service.notify({ type: 'traffic' }), trafficMs);
	atTheEnd(() => clearInterval(traffic ?? undefined));
	await pause((MINUTES + LEARNING_MINUTES) * 60_000);
	const cuts = device
		.output()
		.split('\n')
		.filter((line) => line.includes('"msg":"offline: '))
		.map((line) => JSON.parse(line).time);
	expect(cuts.length).toBeLessThanOrEqual(5);
	const status = await device.untilState('online');
	// A line that was cut is known for what it is; a ping of 30 s may keep one of 30 s open for a while.
	if (cuts.length >= 3) {
		const found = status.channel.idleTimeout?.seconds ?? 0;
		// squid looks once a second, and its clock has whole seconds: it was seen to cut a line of 30 s after 29.
		expect(found).toBeGreaterThanOrEqual(idleSeconds - 1);
		expect(found).toBeLessThanOrEqual(idleSeconds + 2);
	}
	console.log(
		`${kind} ${idleSeconds} s, traffic ${trafficMs}: ${cuts.length} cuts, ping ${status.channel.idleTimeout?.pingSeconds ?? 30} s`,
	);
}

test.for<[Kind, number, number | null]>([
	['nginx', 20, null],
	['nginx', 25, 9000],
	['nginx', 30, 70_000],
	['haproxy', 20, 70_000],
	['haproxy', 30, null],
	['haproxy', 60, 9000],
	['squid', 20, 9000],
	['squid', 25, null],
	['squid', 30, 70_000],
])(
	'%s that ends lines after %i s of silence (a notification every %s ms) cuts five times at most [F143]',
	{
		timeout: (MINUTES + LEARNING_MINUTES + 3) * 60_000,
	},
	([kind, idleSeconds, trafficMs], context) => watch(kind, idleSeconds, trafficMs, context),
);
