/**
 * An event store alone, at full speed until it is killed: `inbox.mjs DIRECTORY EPOCH SEED`. Says which events are handed on, and
 * which acknowledgement is asked for before it is. Cleans up after a millisecond, so that a cut is likely to meet a clean-up; in every third
 * run never. Its bound is small, so that files are begun and unlinked all the time.
 */
import { writeSync } from 'node:fs';
import { createEventStore } from '../../src/events/store.edge.ts';
import { randomNumbers } from '../fixtures/random-numbers.ts';

const [directory = '', epoch = '', seed = '0'] = process.argv.slice(2);
const random = randomNumbers(Number(seed));
const say = (line: string) => writeSync(1, `${line}\n`);
const store = createEventStore({
	...{ directory, epoch, cleanAfterMs: Number(seed) % 3 === 0 ? 3_600_000 : 1 },
	bounds: { maxCount: 100_000, maxBytes: 1024 * 1024, maxAgeMs: 86_400_000 },
	onNotice: (topic, notice) => say(`notice ${topic} ${notice?.code ?? 'over'}`),
});
const handedOn: string[] = [];
store.subscribe((entries) => {
	for (const { id, content } of entries) {
		say(`stored ${id} ${content}`);
		handedOn.push(id);
	}
});
store.join('kiosk');
say(`position ${store.positionOf('kiosk')}`);
for (let number = 0; ; number += 1) {
	for (let burst = 0; burst < random() * 4; burst += 1) {
		const content = `${epoch}/${number}/${burst}:${'x'.repeat(random() ** 4 * 12_000)}`;
		const made = { type: 'notification', kind: 'test', workflowId: 'w', format: 'text', serviceId: null } as const;
		store.append({ ...made, at: new Date().toISOString(), content });
	}
	await store.settled();
	// Some stay for long.
	const id = handedOn[Math.floor(handedOn.length * (1 - random() * 0.6))];
	if (id !== undefined && random() < 0.3) {
		say(`acknowledges ${id}`);
		store.acknowledge('kiosk', id);
		await store.settled();
	}
	await new Promise((resolve) => setTimeout(resolve, random() * 3));
}
