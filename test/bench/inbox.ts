/**
 * How fast events are kept: in memory, and durably with one event a turn, 50 a turn, and as many as arrive.
 * `node test/bench/inbox.ts [directory]`; without one, a temporary directory. Prints rows a second.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Incoming } from '../../src/events/event.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { createEventBuffer } from '../../src/simulation/in-memory-stores.ts';

const directory = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'inbox-bench-'));
const bounds = { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: 86_400_000 };
const event = (number: number): Incoming => ({
	at: '2026-11-21T05:00:00.000Z',
	type: 'notification',
	kind: 'session.started',
	workflowId: 'onboarding',
	format: 'json',
	content: `{"type":"session.started","id":"n-${number}","sessionId":"65a1b2c3d4e5f60718293a4b"}`,
	serviceId: `n-${number}`,
});

async function measure(name: string, rows: number, work: () => Promise<void> | void): Promise<void> {
	const startedAt = performance.now();
	await work();
	const seconds = (performance.now() - startedAt) / 1000;
	console.log(
		`${name.padEnd(34)} ${Math.round(rows / seconds)
			.toLocaleString('en')
			.padStart(10)} rows/s`,
	);
}

await measure('memory', 200_000, () => {
	const inbox = createEventBuffer('memory', bounds);
	for (let number = 0; number < 200_000; number += 1) inbox.append(event(number));
});

for (const [batch, rows] of [
	[1, 5000],
	[50, 100_000],
	[512, 200_000],
] as const) {
	const store = createEventStore({ directory, epoch: `batch${batch}`, bounds });
	await measure(`durable, ${batch} in a turn`, rows, async () => {
		for (let number = 0; number < rows; number += batch) {
			for (let one = 0; one < batch; one += 1) store.append(event(number + one + batch * 1e6));
			await store.settled();
		}
	});
	await store.close();
}
{
	const store = createEventStore({ directory, epoch: 'acknowledged', bounds });
	store.join('kiosk');
	await measure('durable, 50 in a turn, acknowledged', 100_000, async () => {
		for (let number = 0; number < 100_000; number += 50) {
			let id = '';
			for (let one = 0; one < 50; one += 1) id = store.append(event(number + one + 7e8))?.id ?? id;
			await store.settled();
			store.acknowledge('kiosk', id);
		}
	});
	await store.close();
}
rmSync(directory, { recursive: true });
