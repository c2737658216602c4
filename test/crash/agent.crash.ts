/**
 * Nothing that has reached the inbox is lost: the real agent is killed at random moments while notifications pour in, and
 * started again. What had reached it is read from its file after each kill, and a second reader tells what was shown.
 * `CRASH_ROUNDS` (50), `CRASH_NOTIFICATIONS` (200 a round), `CRASH_SEED` (printed) set how often, how much, and which.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { bundle } from '../../scripts/bundle.ts';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { readInboxFile, type StoredEvent } from './inbox-file.ts';
import { createKiosk, type Received } from './kiosk.ts';
import {
	createSender,
	eventsOf,
	expectDurableBeforeShown,
	expectEveryReadingWhole,
	expectEverythingDelivered,
	expectGapsForTheLost,
	expectOneIdEach,
	reachedOf,
} from './promises.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const ROUNDS = Number(process.env['CRASH_ROUNDS'] ?? 50);
const TOTAL = Number(process.env['CRASH_NOTIFICATIONS'] ?? ROUNDS * 200);
const SEED = Number(process.env['CRASH_SEED'] ?? Date.now() % 1e6);

let directory: string;
beforeAll(async () => {
	directory = mkdtempSync(join(tmpdir(), 'idv-crash-'));
	await bundle({ root: ROOT, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir: join(directory, 'dist') });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test(`killed ${ROUNDS} times during ${TOTAL} notifications, seed ${SEED}`, async () => {
	const random = randomNumbers(SEED);
	const service = await startService();
	onTestFinished(() => service.close());
	const sender = createSender(service, random);
	const agent = createAgent(service);
	onTestFinished(() => agent.kill());
	const socketPath = join(agent.runDir, 'agent.sock');
	const kiosk = createKiosk({ socketPath, name: 'kiosk', random, chanceOfDeath: 0.005 });
	const onlooker = createKiosk({ socketPath, name: null, random, chanceOfDeath: 0 });
	onTestFinished(() => {
		kiosk.close();
		onlooker.close();
	});

	const leftBehind: StoredEvent[][] = [];
	for (let round = 0; round < ROUNDS; round += 1) {
		const online = service.waitFor('device-online', () => true, 30_000);
		online.catch(() => {});
		const ready = agent.start().then(() => {
			kiosk.connect();
			onlooker.connect();
		});
		ready.catch(() => {});
		// Now and then the start itself is interrupted.
		if (random() < 0.8) await Promise.all([ready, online]);
		const sending = sender.send(Math.round((TOTAL * (round + 1)) / ROUNDS));
		await pause(random() * 400);
		await agent.kill();
		await Promise.all([sending, ready.catch(() => {})]);
		leftBehind.push(readInboxFile(agent.stateDir));
	}
	const online = service.waitFor('device-online', () => true, 30_000);
	await agent.start();
	await online;
	await sender.send(TOTAL + 1);
	kiosk.connect();
	onlooker.connect();
	const isLast = ({ serviceId }: Received) => serviceId === `n-${TOTAL + 1}`;
	await Promise.all([kiosk.until(isLast), onlooker.until(isLast)]);
	await agent.kill();
	leftBehind.push(readInboxFile(agent.stateDir));

	// What all applications have acknowledged is deleted: to the onlooker a gap stands in its place, under the last one's id.
	const isStandIn = ({ type, from }: Received) => type === 'gap' && from === null;
	const shown = eventsOf(onlooker).filter((event) => !isStandIn(event));
	const seen = [...eventsOf(kiosk), ...shown];
	const stored = leftBehind.flat();
	const reached = reachedOf(kiosk, stored);
	const lost = sender.sent.filter(({ serviceId }) => !reached.has(serviceId));
	console.log(
		`${reached.size} of ${TOTAL + 1} reached the inbox, ${lost.length} were sent while nobody was there; ` +
			`the kiosk died ${kiosk.deaths()} times and got ${eventsOf(kiosk).length} events`,
	);
	expect(reached.size).toBeGreaterThan(TOTAL / 10);

	expectDurableBeforeShown(seen, stored);
	expectOneIdEach(seen, stored);
	expectEveryReadingWhole(kiosk);
	expectEverythingDelivered(kiosk, reached);
	expectGapsForTheLost(kiosk, lost);
});

/** The agent as it is shipped, with a key to register by. */
function createAgent(service: EmbeddedService) {
	const stateDir = join(directory, 'state');
	const runDir = join(directory, 'run');
	const keyFile = join(directory, 'key');
	writeFileSync(keyFile, service.credentials.apiKey, { mode: 0o600 });
	const group = String(process.getgid?.() ?? 0);
	const settings = {
		...{ baseUrl: service.url, workflowId: 'document-check', deviceId: 'crash', 'credential.apiKeyFile': keyFile },
		...{ 'events.maxCount': 100_000, 'local.agentGroup': group, 'local.adminGroup': group },
	};
	const sets = Object.entries(settings).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
	const args = [join(directory, 'dist', 'idv-agent.cjs'), 'run', '--state-dir', stateDir, '--run-dir', runDir, ...sets];
	let child: ChildProcess | null = null;
	return {
		stateDir,
		runDir,
		/** Resolves when its sockets answer. */
		async start() {
			const started = spawn(process.execPath, args, {
				stdio: ['ignore', 'pipe', 'inherit'],
				env: { ...process.env, NODE_COMPILE_CACHE: join(directory, 'cache') },
			});
			child = started;
			if (!started.stdout) throw new Error('It has no standard output.');
			const lines = createInterface({ input: started.stdout });
			for await (const line of lines)
				if (line.includes('"msg":"started"')) {
					started.stdout.resume();
					return;
				}
			throw new Error(`The agent ended before it had started (${started.signalCode ?? started.exitCode}).`);
		},
		async kill() {
			const killed = child;
			child = null;
			if (!killed || killed.exitCode !== null || killed.signalCode !== null) return;
			const exited = once(killed, 'exit');
			killed.kill('SIGKILL');
			await exited;
		},
	};
}
