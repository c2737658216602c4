/**
 * One process with the daemon and a service in it: loses the channel so many times, and prints what it holds once its
 * history is full and at the end. Time is stepped, so that no wait is waited for; sockets, files and memory are real. Wants `--expose-gc`.
 */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { COUNTS_AFTER_MS } from '../../src/connection/backoff.ts';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const times = Number(process.argv[2]);
/** The device's history has reached its bound by then. */
const WARM_UP = 700;
const directory = mkdtempSync(join(tmpdir(), 'idv-reconnects-'));
const service = await startService({ workflows: ['check-in'], maxLoggedRequests: 20 });
const clock = createSteppedClock();
const keyFile = join(directory, 'key');
writeFileSync(keyFile, service.credentials.apiKey, { mode: 0o600 });
const group = String(process.getgid?.() ?? 0);
const daemon = await startDaemon({
	version: '0.0.0-test',
	paths: {
		configFile: join(directory, 'none.json'),
		configFileIsExplicit: false,
		confDirectory: join(directory, 'conf.d'),
		stateDir: join(directory, 'state'),
		runDir: join(directory, 'run'),
		credentialsDirectory: null,
	},
	env: {},
	sets: [
		`baseUrl=${service.url}`,
		'workflowId=check-in',
		`credential.apiKeyFile=${keyFile}`,
		`local.agentGroup=${group}`,
		`local.adminGroup=${group}`,
		'events.maxCount=20',
	],
	clock,
	logTo: { write() {} },
});
const { agent } = daemon;

const until = (fits: () => boolean): Promise<void> =>
	new Promise((resolve) => {
		const look = () => {
			if (!fits()) return;
			stop();
			resolve();
		};
		const stop = agent.onStatus(look);
		look();
	});

const collect = globalThis.gc ?? (() => {});

function measure(): Record<string, number> {
	for (let round = 0; round < 4; round += 1) collect();
	const { heapUsed, external, arrayBuffers } = process.memoryUsage();
	const handles = process.getActiveResourcesInfo();
	return {
		heapBytes: heapUsed + external + arrayBuffers,
		descriptors: readdirSync('/proc/self/fd').length,
		timers: handles.filter((kind) => kind === 'Timeout').length,
		handles: handles.filter((kind) => kind.endsWith('Wrap')).length,
		clockTimers: clock.pending,
		processListeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
	};
}

/** What is left once the sockets on their way out are gone; a leak never is, and is measured when the time is up. */
async function measureSettled(): Promise<Record<string, number>> {
	const deadlineMs = performance.now() + 5000;
	const counted = ['descriptors', 'timers', 'handles'] as const;
	for (;;) {
		const now = measure();
		const isSettled = counted.every((what) => (now[what] ?? 0) <= (early[what] ?? 0));
		if (isSettled || performance.now() > deadlineMs) return now;
		await new Promise((resolve) => setImmediate(resolve));
	}
}

async function loseAndReturn(number: number): Promise<void> {
	const before = agent.status().channel.reconnects;
	// One that ends earlier makes the next one prove itself by age, and sockets know nothing of stepped time: 3 s each, so only some do.
	clock.advance(COUNTS_AFTER_MS);
	if (number % 100 !== 2) {
		if (number % 2 === 0) service.dropSockets();
		else service.closeChannels(1012);
	} else {
		service.replyThenDrop('/ws/device');
		service.dropSockets();
	}
	await until(() => agent.status().state !== 'online');
	for (;;) {
		await until(() => agent.status().state === 'online' || agent.status().channel.nextAttemptAt !== null);
		if (agent.status().state === 'online' && agent.status().channel.reconnects > before) return;
		clock.advance(300_000);
		await until(() => agent.status().channel.nextAttemptAt === null);
	}
}

await until(() => agent.status().state === 'online');
let early: Record<string, number> = {};
for (let number = 1; number <= times; number += 1) {
	await loseAndReturn(number);
	// What is not reached from the event loop any more is closed in a later turn.
	await new Promise((resolve) => setImmediate(resolve));
	if (number === Math.max(WARM_UP, times / 10)) early = measure();
}
const late = await measureSettled();
const { reconnects } = agent.status().channel;
await daemon.stop();
await service.close();
rmSync(directory, { recursive: true, force: true });
process.stdout.write(`${JSON.stringify({ reconnects, early, late })}\n`);
