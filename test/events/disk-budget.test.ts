/** The bytes that the state directory may need: as stated, and as events use them. */
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { diskNeed, fittingBytes, tooSmall } from '../../src/events/disk-budget.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { finish, givenHome } from '../cli/command.ts';

const MIB = 1024 * 1024;
const EVENTS = { durable: true, maxBytes: 4 * MIB };

test('a bound that is too large for the file system shrinks, and the warning says to what [F612]', () => {
	expect(diskNeed(EVENTS)).toBe(6 * MIB);
	expect(diskNeed({ ...EVENTS, durable: false })).toBe(MIB);
	for (const capacity of [null, 6 * MIB, 1e12]) {
		expect(fittingBytes(EVENTS.maxBytes, capacity)).toBe(EVENTS.maxBytes);
		expect(tooSmall('/state', EVENTS, capacity)).toBeNull();
	}
	for (let capacity = MIB + 100_000; capacity < 6 * MIB; capacity += 100_000)
		expect(diskNeed({ ...EVENTS, maxBytes: fittingBytes(EVENTS.maxBytes, capacity) })).toBeLessThanOrEqual(capacity);
	expect(tooSmall('/state', EVENTS, 2 * MIB)).toMatchObject({
		code: 'disk-low',
		message:
			'The file system of /state has 2 MiB; the agent may need 6 MiB. At most 0.8 MiB of events are kept, not 4 MiB.',
		remedy: 'Give it 6 MiB, or set events.maxBytes to 838860 or less.',
	});
	expect(fittingBytes(EVENTS.maxBytes, 100_000)).toBe(65_536);
});

test('whatever arrives, events use no more than is stated', async () => {
	const { directory } = await givenHome();
	const stateDir = path.join(directory, 'state');
	fs.mkdirSync(stateDir);
	const bounds = { maxCount: 100_000, maxBytes: MIB, maxAgeMs: 86_400_000 };
	const store = createEventStore({ directory: stateDir, epoch: 'run1', bounds });
	const used = () =>
		fs.readdirSync(stateDir).reduce((sum, name) => sum + fs.statSync(path.join(stateDir, name)).size, 0);
	const own = {
		at: new Date().toISOString(),
		type: 'notification',
		kind: 'a',
		workflowId: null,
		serviceId: null,
	} as const;
	for (let number = 0; number < 400; number += 1) {
		store.append({ ...own, format: 'json', content: JSON.stringify('x'.repeat((number * 7919) % 20_000)) });
		await store.settled();
		expect(used()).toBeLessThanOrEqual(diskNeed({ durable: true, maxBytes: MIB }) - MIB);
	}
	await store.close();
});

test('config show says it', async () => {
	const home = await givenHome({ events: { maxBytes: 2 * MIB } });
	const { stdout } = await home.agent(['config', 'show']);
	expect(stdout.trim().split('\n').at(-1)).toBe(
		`${home.stateDir} may need 3.5 MiB (events.maxBytes and a quarter of it, and 1 MiB).`,
	);
	const asked = await finish('idv-agent', ['config', 'show', '--json'], home.env);
	expect(JSON.parse(asked.stdout).disk).toEqual({ directory: home.stateDir, bytes: 3.5 * MIB });
});
