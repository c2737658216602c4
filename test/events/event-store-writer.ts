/** A process with an event store of its own, for tests that kill it or take its disk away. */
import { writeSync } from 'node:fs';
import { createEventStore } from '../../src/events/store.edge.ts';

const [mode, directory = '', from = '0', epoch = ''] = process.argv.slice(2);
const bounds = { maxCount: 100_000, maxBytes: 256 * 1024 * 1024, maxAgeMs: 3_600_000 };
const say = (line: string) => writeSync(1, `${line}\n`);

const incoming = (number: number, content: string) => ({
	at: new Date().toISOString(),
	type: 'notification' as const,
	kind: 'test',
	workflowId: 'w',
	format: 'text' as const,
	content,
	serviceId: `service-${number}`,
});

/** Appends in bursts until it is killed, and says what is stored as soon as it is. */
if (mode === 'append') {
	const store = createEventStore({ directory, epoch, bounds });
	store.subscribe((entries) => {
		for (const { id, content } of entries) say(`${id} ${content}`);
	});
	let next = Number(from);
	const burst = () => {
		const end = next + 1 + (next % 7) * 3;
		for (; next < end; next += 1) store.append(incoming(next, String(next)));
		void store.settled().then(() => setImmediate(burst));
	};
	burst();
}

/** Appends more than its disk takes, says so, and goes on to the end when it is told that there is room again. */
if (mode === 'limited') {
	const store = createEventStore({
		directory,
		epoch,
		bounds,
		onNotice: (topic, notice) => say(`notice ${topic} ${notice?.code ?? 'over'}`),
	});
	store.subscribe((entries) => {
		for (const { id } of entries) say(`stored ${id}`);
	});
	for (let number = 0; number < 40; number += 1) {
		store.append(incoming(number, `${number}:`.padEnd(8192, 'x')));
		await store.settled();
	}
	say('full');
	process.stdin.once('data', () => {
		void store
			.recover()
			.then((isBack) => say(`recovered ${isBack}`))
			.then(() => store.close())
			.then(() => process.exit());
	});
}
