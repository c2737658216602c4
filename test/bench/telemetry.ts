/**
 * What a delivery of metrics costs a device: processor time and bytes, against a store on loopback in another process.
 * `node test/bench/telemetry.ts [pushes]`. Asserts nothing.
 */
import { fork } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createCounters } from '../../src/base/counters.ts';
import { agentMetrics, deviceLabels, fieldMetrics, stateMetrics } from '../../src/status/metrics.ts';
import { encodeMetrics, encodeRequest } from '../../src/telemetry/otlp.ts';
import { deliver } from '../../src/telemetry/push.edge.ts';
import { statusOf } from '../telemetry/store/simulated-devices.ts';

if (process.argv[2] === 'store') {
	const server = createServer((request, response) => {
		request.resume().on('end', () => response.end());
	});
	server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
} else {
	const pushes = Number(process.argv[2] ?? 500);
	const store = fork(import.meta.filename, ['store']);
	const port = await new Promise((resolve) => store.once('message', resolve));
	const url = new URL(`http://127.0.0.1:${port}/v1/metrics`);
	const counters = createCounters();
	const gauges = {
		eventsKept: 1,
		eventBytes: 100,
		eventsDurable: true,
		consumers: 1,
		leases: 0,
		residentBytes: 4e7,
		clockSkewSeconds: 0,
	};
	const machine = { diskFreeBytes: 1e9, diskSizeBytes: 1e10, celsius: 50, scannerPresent: true };
	let bytes = 0;
	const push = async () => {
		const status = statusOf(1, 0.5, Date.now());
		const ages = { heartbeatMs: 1, acknowledgedMs: 1, planCheckedMs: 1 };
		const metrics = [
			...agentMetrics(status, counters, gauges),
			...stateMetrics(status),
			...fieldMetrics(machine, ages, Date.now()),
		];
		const body = encodeRequest(deviceLabels(status), '0.2.0', [
			encodeMetrics(metrics, { atMs: Date.now(), startedAtMs: 1 }),
		]);
		bytes = body.length;
		await deliver({ url, headers: {}, body, agent: undefined, deadlineMs: 5000, signal: new AbortController().signal });
	};
	for (let n = 0; n < 50; n += 1) await push();
	const before = process.cpuUsage();
	for (let n = 0; n < pushes; n += 1) await push();
	const { user, system } = process.cpuUsage(before);
	console.log(
		`${((user + system) / 1000 / pushes).toFixed(2)} ms of processor time a push (${pushes} pushes), ${bytes} bytes before gzip`,
	);
	store.kill();
}
