import { mkdir, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { changesBetween, createChangeLog, seenIn } from '../../src/telemetry/changes.ts';
import { readMachineFigures } from '../../src/telemetry/machine.edge.ts';
import { encodeMetrics, encodeRequest } from '../../src/telemetry/otlp.ts';
import { givenHome, givenPairedAgent } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';
import { givenSink, readPush } from './otlp-sink.ts';

describe('the encoder', () => {
	test('writes what another reader of protobuf reads, whatever stands in it', () => {
		const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 200 }).filter((text) => text.isWellFormed());
		const labels = fc.dictionary(name, name, { maxKeys: 3 });
		const sample = fc.record({ labels, value: fc.double({ noNaN: true }) });
		const metric = fc.record({
			name,
			help: name,
			type: fc.constantFrom('counter' as const, 'gauge' as const),
			samples: fc.array(sample, { minLength: 1, maxLength: 3 }),
		});
		fc.assert(
			fc.property(fc.array(metric, { maxLength: 5 }), labels, fc.nat(4e9), (metrics, resource, atMs) => {
				const body = encodeRequest(resource, '1', [encodeMetrics(metrics, { atMs, startedAtMs: 1, describe: true })]);
				const read = readPush(body);
				expect(read.resource).toEqual(resource);
				expect(read.points).toEqual(
					metrics.flatMap((one) =>
						one.samples.map(({ labels: own, value }) => ({
							name: one.name,
							labels: own,
							value,
							atMs,
							isCounter: one.type === 'counter',
						})),
					),
				);
			}),
			{ numRuns: 100 },
		);
	});
});

describe('changes that wait', () => {
	const bytes = (size: number) => new Uint8Array(size);

	test('are bounded by bytes and by a day, the oldest go first', () => {
		const log = createChangeLog(1000);
		for (let n = 0; n < 50; n += 1) log.add(n, bytes(100));
		expect(log.pending()).toEqual(Array.from({ length: 10 }, () => bytes(100)));
		log.add(86_400_000 + 45, bytes(1));
		expect(log.pending().length).toBe(6);
	});

	test('that came while a delivery was under way stay, and what was delivered takes no room of them [F1833]', () => {
		const log = createChangeLog(20);
		log.add(1, bytes(10));
		const handedOut = log.pending();
		log.add(2, bytes(5));
		log.delivered(handedOut);
		expect(log.pending()).toEqual([bytes(5)]);
		log.add(3, bytes(15));
		expect(log.pending()).toEqual([bytes(5), bytes(15)]);
	});

	test('are the samples that differ, and 0 once for those that are gone', () => {
		const gauge = (name: string, labels: Record<string, string> | undefined, value: number) =>
			({ name, help: '', type: 'gauge', samples: [labels ? { labels, value } : { value }] }) as const;
		const before = seenIn([
			gauge('online', undefined, 1),
			gauge('problem', { code: 'a' }, 1),
			gauge('same', undefined, 3),
		]);
		const now = seenIn([
			gauge('online', undefined, 0),
			gauge('problem', { code: 'b' }, 1),
			gauge('same', undefined, 3),
		]);
		expect(changesBetween(before, now).map(({ name, samples }) => [name, samples[0]])).toEqual([
			['problem', { labels: { code: 'a' }, value: 0 }],
			['online', { value: 0 }],
			['problem', { labels: { code: 'b' }, value: 1 }],
		]);
	});
});

test('figures of the machine need no program: what is left on the disk for the agent, and the hottest zone [F1834]', async () => {
	const { directory } = await givenHome();
	const { blocks, bavail, bfree, bsize } = await statfs('/');
	const figures = await readMachineFigures('/', directory);
	expect(figures).toMatchObject({ diskSizeBytes: blocks * bsize, celsius: null });
	// Others write meanwhile. What only root may still write is not left for the agent.
	const isNear = (one: number) =>
		Math.abs((figures.diskFreeBytes ?? 0) - one * bsize) <= ((bfree - bavail) * bsize) / 2;
	expect({ left: bfree === bavail || isNear(bavail) }).toEqual({ left: true });
	expect((await readMachineFigures('/does/not/exist')).diskFreeBytes).toBeNull();
	for (const [name, text] of Object.entries({ zone0: '41500', zone1: '63250', zone2: '-274000', zone3: '250000' })) {
		await mkdir(join(directory, 'sys/class/thermal', `thermal_${name}`), { recursive: true });
		await writeFile(join(directory, 'sys/class/thermal', `thermal_${name}`, 'temp'), `${text}\n`);
	}
	expect((await readMachineFigures('/', directory)).celsius).toBe(63.25);
});

describe('a device with telemetry.otlpUrl', () => {
	test('sends its figures with its name, labels and version, and secrets nowhere', async () => {
		const service = await givenService();
		const sink = await givenSink();
		const home = await givenHome();
		const headersFile = await home.secretFile(
			'headers',
			'# for the store\nAuthorization: Bearer store-secret-1\nX-Scope: kiosks',
		);
		const sets = [`telemetry.otlpUrl=${sink.url}`, `telemetry.headersFile=${headersFile}`, 'fleet.labels=lobby,berlin'];
		const running = await givenPairedAgent(service, { home, sets });
		const idle = running.clock.pending;
		running.clock.advance(5000);
		await sink.untilAsked(1);
		await running.untilTimers(idle);
		// The first heartbeat comes within the cadence.
		running.clock.advance(66_000);
		await sink.untilAsked(2);
		const push = sink.pushes.at(-1);
		expect(push?.headers).toMatchObject({
			authorization: 'Bearer store-secret-1',
			'x-scope': 'kiosks',
			'content-type': 'application/x-protobuf',
			// Nothing is left open between two deliveries that no handshake makes dear.
			connection: 'keep-alive',
		});
		expect(push?.resource).toEqual({ device: 'KIOSK-0001', labels: 'berlin,lobby' });
		const value = (name: string) => push?.points.find((point) => point.name === `idv_agent_${name}`)?.value;
		expect(value('online')).toBe(1);
		for (const name of [
			'heartbeat_age_seconds',
			'disk_free_bytes',
			'scanner_present',
			'reconnects_total',
			'channel_cuts_recent',
			'events_kept',
			'report_time_seconds',
		])
			expect([name, value(name)]).toEqual([name, expect.any(Number)]);
		expect(push?.points.find(({ name }) => name === 'idv_agent_workflow')?.labels).toEqual({ workflow: 'check-in' });
		expect(running.logText()).not.toMatch(/store-secret-1|secret-in-query/);
	});

	test('delivers what changed during an outage of the store, each with its moment [F395]', async () => {
		const service = await givenService();
		const sink = await givenSink();
		const sets = [`telemetry.otlpUrl=${sink.url}`, 'telemetry.intervalSeconds=60'];
		const { clock, agent, passWait, untilTimers, untilStatus, untilLive } = await givenPairedAgent(service, { sets });
		const idle = clock.pending;
		const push = async (count: number) => {
			clock.advance(66_000);
			await sink.untilAsked(count);
			await untilTimers(idle);
		};
		await push(1);
		sink.status = 503;
		const beganMs = clock.wallMs();
		service.closeChannels(1011);
		await untilStatus(({ state }) => state !== 'online', 'offline');
		await passWait();
		await untilLive('check-in');
		for (const count of [2, 3, 4]) await push(count);
		expect(agent.status().warnings).toMatchObject([
			{ code: 'telemetry-failed', message: expect.stringMatching(/answered 503/) },
		]);
		sink.status = 200;
		await push(5);
		expect(agent.status().warnings).toEqual([]);
		const online = sink.pushes.at(-1)?.points.filter(({ name }) => name === 'idv_agent_online') ?? [];
		expect(online.map(({ value }) => value)).toEqual([0, 1, 1]);
		expect(online[0]?.atMs).toBe(beganMs);
		expect(online[2]?.atMs).toBeGreaterThan(beganMs + 180_000);
		await push(6);
		expect(sink.pushes.at(-1)?.points.filter(({ name }) => name === 'idv_agent_online').length).toBe(1);
	});

	test('tells a store the time of the service where the clock of the device is hours fast [F1354]', async () => {
		const service = await givenService();
		const sink = await givenSink();
		const sets = [`telemetry.otlpUrl=${sink.url}`, 'telemetry.intervalSeconds=60'];
		const clock = createSteppedClock(Date.now() + 2 * 3_600_000);
		const device = await givenPairedAgent(service, { sets, clock });
		expect(device.agent.status().warnings).toMatchObject([{ code: 'clock-wrong' }]);
		clock.advance(66_000);
		await sink.untilAsked(1);
		const at = sink.pushes.at(-1)?.points.find(({ name }) => name === 'idv_agent_online')?.atMs ?? 0;
		expect(Math.abs(at - (clock.wallMs() - 2 * 3_600_000))).toBeLessThan(120_000);
		const skew = sink.pushes.at(-1)?.points.find(({ name }) => name === 'idv_agent_clock_skew_seconds')?.value ?? 0;
		expect(Math.abs(skew - 7200)).toBeLessThan(120);
	});

	test('says at once what waiting will not mend, and no more once no store is named [F1840]', async () => {
		const service = await givenService();
		const sink = await givenSink();
		sink.status = 401;
		const running = await givenPairedAgent(service, { settings: { telemetry: { otlpUrl: sink.url } } });
		running.clock.advance(5000);
		const { warnings } = await running.untilStatus((status) => status.warnings.length > 0, 'a warning');
		expect(warnings).toMatchObject([
			{
				code: 'telemetry-failed',
				message: expect.stringMatching(/^The metrics store at 127.0.0.1:\d+ answered 401\.$/),
			},
		]);
		await running.home.writeSettings({ telemetry: {} });
		await running.daemon.reload();
		expect(running.agent.status().warnings).toEqual([]);
	});

	test('follows its settings: another store, and none', async () => {
		const service = await givenService();
		const [one, two] = [await givenSink(), await givenSink()];
		const running = await givenPairedAgent(service, { settings: { telemetry: { otlpUrl: one.url } } });
		const use = async (telemetry: object) => {
			await running.home.writeSettings({ telemetry });
			await running.daemon.reload();
		};
		// The settings are read once more when the change of their file is noticed, and a push under way begins anew.
		const passUntil = async (asked: Promise<void>) => {
			let isOver = false;
			const forget = running.clock.onTimers(() => setImmediate(() => isOver || running.clock.advance(5000)));
			running.clock.advance(5000);
			await asked;
			isOver = true;
			forget();
		};
		await passUntil(one.untilAsked(1));
		await use({ otlpUrl: two.url });
		await passUntil(two.untilAsked(1));
		await use({});
		const { length } = two.pushes;
		running.clock.advance(300_000);
		await use({ otlpUrl: one.url });
		await passUntil(one.untilAsked(2));
		expect(two.pushes.length).toBe(length);
	});
});

test('the life of the Connection in use is among the figures, and the end of a key that says it', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	await device.untilLive('check-in');
	const { connectionStartMs, connectionEndMs, keyEndMs, certificateEndMs } = device.agent.ends();
	expect((connectionEndMs ?? 0) - (connectionStartMs ?? 0)).toBe(86_400_000);
	expect({ keyEndMs, certificateEndMs }).toEqual({ keyEndMs: null, certificateEndMs: null });
});
