/**
 * `npm run bench:storm`: thousands of simulated agents, an outage of the service, and the time until 99 % are back; the
 * product's policy beside those of other clients, on the same simulator with real sockets. Asserts nothing: machines are noisy.
 *
 * `npm run bench:storm -- --devices 5000 --outage-seconds 30 --limit 500 --give-up-seconds 60 --policies idv-agent,gRPC`
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { trimHeap } from '../../src/daemon/heap.edge.ts';
import { openSimulatedRuntime } from '../../src/simulation/runtime.runner.ts';
import { type Simulation, startSimulation } from '../../src/simulation/simulation.runner.ts';
import { readMemory } from './measure.ts';
import { POLICIES, type RetryPolicy, superviseBy } from './retry-policies.ts';
import type { News, Order } from './storm-service.ts';

const { values } = parseArgs({
	options: {
		devices: { type: 'string', default: '5000' },
		'outage-seconds': { type: 'string', default: '30' },
		limit: { type: 'string', default: '500' },
		'give-up-seconds': { type: 'string', default: '60' },
		policies: { type: 'string', default: POLICIES.map(({ name }) => name).join(',') },
	},
});
const devices = Number(values.devices);
const limit = Number(values.limit);
const giveUpMs = Number(values['give-up-seconds']) * 1000;
const outageSeconds = Number(values['outage-seconds']);
const chosen = values.policies.split(',').map((name) => {
	const policy = POLICIES.find((known) => known.name === name);
	if (!policy)
		throw new Error(`No policy is called ${name}; there are: ${POLICIES.map((one) => one.name).join(', ')}.`);
	return policy;
});
/** Starts a second: no part of what is measured. */
const RAMP_PER_SECOND = 250;
const KIB = 1024;

checkFiles(3 * devices + 500);
const service = fork(join(import.meta.dirname, 'storm-service.ts'));
try {
	const { url } = await news(service, 'ready');
	const runtime = await openSimulatedRuntime({
		version: 'bench',
		env: {},
		sets: [`baseUrl=${url}`, 'credential.selfRegistration=true'],
	});
	let policy = chosen[0] as RetryPolicy;
	trimHeap();
	const before = { ...readMemory(process.pid), rss: process.memoryUsage.rss() };
	const simulation = startSimulation({
		devices,
		runtime,
		version: 'bench',
		workflowId: 'storm',
		rampMs: (devices / RAMP_PER_SECOND) * 1000,
		createSupervise: () => superviseBy(() => policy),
	});
	await untilOnline(simulation, devices);
	trimHeap();
	const after = { ...readMemory(process.pid), rss: process.memoryUsage.rss() };
	const each = (kind: keyof typeof after) => `${((after[kind] - before[kind]) / devices / KIB).toFixed(1)} KiB ${kind}`;
	console.log(`${devices} devices online. Each has added ${each('rss')}, ${each('pss')}, ${each('anonymous')}.`);
	console.log(`Outage of ${outageSeconds} s; then ${limit} connections a second, so ${devices / limit} s at best.\n`);
	console.log('policy                   99 % back, s   peak handshakes/s   wasted a device');
	for (policy of chosen) console.log(await storm(simulation, policy));
	await simulation.stop();
	await runtime.close();
} finally {
	service.disconnect();
}

async function storm(simulation: Simulation, { name }: RetryPolicy): Promise<string> {
	await untilOnline(simulation, devices);
	order(service, { type: 'outage', seconds: outageSeconds, limit });
	await news(service, 'back');
	const backAtMs = performance.now();
	const begun = simulation.figures().handshakes.begun;
	const enough = Math.ceil(0.99 * devices);
	const isBack = await Promise.race([untilOnline(simulation, enough).then(() => true), delay(giveUpMs)]);
	const tookSeconds = (performance.now() - backAtMs) / 1000;
	const { handshakes, phases } = simulation.figures();
	const counting = news(service, 'counted');
	order(service, { type: 'count' });
	const { peak } = await counting;
	order(service, { type: 'unlimited' });
	const wasted = Math.max(0, handshakes.begun - begun - phases.online - phases.connecting) / devices;
	const time = isBack ? tookSeconds.toFixed(1) : `more than ${Math.round(giveUpMs / 1000)}`;
	return `${name.padEnd(23)}  ${time.padStart(12)}   ${String(peak).padStart(17)}   ${wasted.toFixed(2).padStart(15)}`;
}

function untilOnline(simulation: Simulation, count: number): Promise<void> {
	return new Promise((resolve) => {
		const look = () => {
			if (simulation.figures().phases.online < count) return;
			forget();
			resolve();
		};
		const forget = simulation.onChange(look);
		look();
	});
}

function delay(ms: number): Promise<false> {
	return new Promise((resolve) => void setTimeout(() => resolve(false), ms).unref());
}

function order(to: ChildProcess, what: Order): void {
	to.send(what);
}

async function news<Type extends News['type']>(from: ChildProcess, type: Type): Promise<Extract<News, { type: Type }>> {
	for (;;) {
		const [said] = (await once(from, 'message')) as [News];
		if (said.type === type) return said as Extract<News, { type: Type }>;
	}
}

function checkFiles(needed: number): void {
	const limit = Number(/^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? needed);
	if (limit < needed) throw new Error(`This needs ${needed} open files, and ${limit} are allowed: ulimit -n ${needed}`);
}
