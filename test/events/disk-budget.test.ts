/** The bytes that the state directory may need: as stated, and as events use them. */
import fs from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { openAudit } from '../../src/audit/audit.runner.ts';
import { openShaper } from '../../src/base/shapes.edge.ts';
import { handOverPlan } from '../../src/daemon/updates.runner.ts';
import { diskNeed, fittingBytes, tooSmall } from '../../src/events/disk-budget.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { MAX_PLAN_BYTES } from '../../src/fleet/terms.ts';
import { MAX_HISTORY_BYTES } from '../../src/status/history.runner.ts';
import { PLAN_FILE } from '../../src/updates/package.ts';
import { finish, givenHome } from '../cli/command.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const MIB = 1024 * 1024;
const EVENTS = { durable: true, maxBytes: 4 * MIB };
const SMALL = { maxMessageBytes: 64 * 1024 };
const BOUNDS = { events: EVENTS, service: SMALL, update: { enabled: false } };

test('a bound that is too large for the file system shrinks, and the warning says to what [F612]', () => {
	expect(diskNeed(BOUNDS)).toBe(6 * MIB);
	expect(diskNeed({ ...BOUNDS, events: { ...EVENTS, durable: false } })).toBe(MIB);
	for (const capacity of [null, 6 * MIB, 1e12]) {
		expect(fittingBytes(BOUNDS, capacity)).toBe(EVENTS.maxBytes);
		expect(tooSmall('/state', BOUNDS, capacity)).toBeNull();
	}
	for (let capacity = MIB + 100_000; capacity < 6 * MIB; capacity += 100_000)
		for (const enabled of [false, true]) {
			const bounds = { ...BOUNDS, update: { enabled } };
			const maxBytes = fittingBytes(bounds, capacity);
			if (maxBytes > 65_536)
				expect(diskNeed({ ...bounds, events: { durable: true, maxBytes } })).toBeLessThanOrEqual(capacity);
		}
	expect(tooSmall('/state', BOUNDS, 2 * MIB)).toMatchObject({
		code: 'disk-low',
		message:
			'The file system of /state has 2 MiB; the agent may need 6 MiB. At most 0.8 MiB of events are kept, not 4 MiB.',
		remedy: 'Give it 6 MiB, or set events.maxBytes to 838860 or less.',
	});
	expect(fittingBytes(BOUNDS, 100_000)).toBe(65_536);
});

test('whatever arrives, is asked and is handed over, the state directory needs no more than is stated [F705]', async () => {
	const { directory } = await givenHome();
	const stateDir = path.join(directory, 'state');
	fs.mkdirSync(stateDir);
	const bounds = { maxCount: 100_000, maxBytes: MIB, maxAgeMs: 86_400_000 };
	const need = diskNeed({ events: { durable: true, maxBytes: MIB }, service: SMALL, update: { enabled: true } });
	let most = 0;
	const look = () => {
		const used = fs.readdirSync(stateDir).reduce((sum, name) => sum + fs.statSync(path.join(stateDir, name)).size, 0);
		most = Math.max(most, used);
	};
	const store = createEventStore({ directory: stateDir, epoch: 'run1', bounds });
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
		look();
	}
	expect(most).toBeLessThanOrEqual(1.25 * MIB);
	const audit = await openAudit({
		...{ stateDir, version: '1', clock: createSteppedClock(), shaper: openShaper() },
		...{ journal: async () => {}, onSaved: () => {} },
	});
	for (let number = 0; number < 3000; number += 1)
		audit.record({ action: 'setWorkflow', entrance: 'admin.sock', result: 'ok', host: 'x'.repeat(300) });
	await audit.read();
	look();
	const { renameSync } = fs;
	vi.spyOn(fs, 'renameSync').mockImplementation((from, to) => {
		look();
		renameSync(from, to);
	});
	for (const letter of ['a', 'b', 'c']) {
		const done = Promise.withResolvers<void>();
		handOverPlan(Buffer.alloc(MAX_PLAN_BYTES, letter), {
			...{ stateDir, audit },
			log: { info: () => done.resolve(), warn: (text) => done.reject(new Error(text)) },
		});
		await done.promise;
	}
	vi.restoreAllMocks();
	// A kill has left a plan half written.
	fs.writeFileSync(path.join(stateDir, `${PLAN_FILE}.new`), Buffer.alloc(MAX_PLAN_BYTES));
	look();
	await audit.close();
	await store.close();
	expect(most).toBeGreaterThan(2 * MAX_PLAN_BYTES);
	expect(most + MAX_HISTORY_BYTES).toBeLessThanOrEqual(need);
});

test('a file system that is too small for the largest messages keeps fewer events, and the warning says of both what fits [F1002]', () => {
	const large = { ...BOUNDS, service: { maxMessageBytes: 3 * MIB } };
	expect(diskNeed(large)).toBe(9 * MIB);
	for (let capacity = MIB + 200_000; capacity < 9 * MIB; capacity += 100_000) {
		const remedy = tooSmall('/state', large, capacity)?.remedy ?? '';
		const numberOf = (name: string) => /\d+/.exec(remedy.split(name)[1] ?? '')?.[0];
		const maxBytes = Number(numberOf('events.maxBytes'));
		expect(maxBytes).toBe(fittingBytes(large, capacity));
		const maxMessageBytes = Number(numberOf('service.maxMessageBytes') ?? large.service.maxMessageBytes);
		const fitting = { ...large, events: { durable: true, maxBytes }, service: { maxMessageBytes } };
		expect(tooSmall('/state', fitting, capacity)).toBeNull();
	}
});

test('a message that is larger than events.maxBytes is kept alone until the next event, within what is stated [F1003]', async () => {
	const { directory } = await givenHome();
	const bounds = { maxCount: 1000, maxBytes: 65_536, maxAgeMs: 86_400_000 };
	const need = diskNeed({ ...BOUNDS, events: { durable: true, maxBytes: 65_536 }, service: { maxMessageBytes: MIB } });
	const store = createEventStore({ directory, epoch: 'run1', bounds });
	const bytesNow = () =>
		fs.readdirSync(directory).reduce((sum, name) => sum + fs.statSync(path.join(directory, name)).size, 0);
	let most = 0;
	const { unlinkSync } = fs;
	vi.spyOn(fs, 'unlinkSync').mockImplementation((name) => {
		most = Math.max(most, bytesNow());
		unlinkSync(name);
	});
	onTestFinished(() => void vi.restoreAllMocks());
	const about = { type: 'notification', kind: 'a', workflowId: null, serviceId: null } as const;
	const send = async (bytes: number) => {
		const content = Buffer.alloc(bytes).toString('base64');
		store.append({ ...about, at: new Date().toISOString(), format: 'binary', content });
		await store.settled();
		return store.after(null, 100, Number.POSITIVE_INFINITY).entries.map((event) => event.content.length);
	};
	for (const bytes of [100, MIB, MIB]) await send(bytes);
	expect(await send(MIB)).toEqual([Math.ceil(MIB / 3) * 4]);
	for (const consumer of ['one', 'two']) {
		store.join(consumer);
		await store.settled();
		const { entries } = store.after(null, 100, Number.POSITIVE_INFINITY);
		expect(entries.map(({ content }) => content.length)).toEqual([Math.ceil(MIB / 3) * 4]);
	}
	expect(await send(99)).toEqual([132]);
	expect(bytesNow()).toBeLessThan(65_536);
	await store.close();
	expect(most).toBeGreaterThan(2.5 * MIB);
	expect(most).toBeLessThan(need - 900 * 1024);
	const home = await givenHome({ events: { maxBytes: 65_536 } });
	expect((await home.agent(['config', 'check'])).stderr).toContain(
		'service.maxMessageBytes is more than events.maxBytes: a message larger than that is kept alone, until the next event.',
	);
});

test('config show says it', async () => {
	const home = await givenHome({ events: { maxBytes: 2 * MIB }, service: SMALL });
	const { stdout } = await home.agent(['config', 'show']);
	expect(stdout.trim().split('\n').at(-1)).toBe(
		`${home.stateDir} may need 3.5 MiB (events.maxBytes and a quarter of it, and 1 MiB).`,
	);
	const updated = await givenHome({ events: { maxBytes: 2 * MIB }, service: SMALL, update: { enabled: true } });
	expect((await updated.agent(['config', 'show'])).stdout).toContain(
		`${updated.stateDir} may need 7.5 MiB (events.maxBytes and a quarter of it, and 1 MiB; 4 MiB for plans, since`,
	);
	const show = async (events: object) => (await (await givenHome({ events })).agent(['config', 'show'])).stdout;
	expect(await show({})).toContain(
		'may need 6.3 MiB (events.maxBytes and the largest message, service.maxMessageBytes and a third, and 1 MiB).',
	);
	expect(await show({ maxBytes: 65_536 })).toContain(
		'may need 3.7 MiB (two of the largest messages, service.maxMessageBytes and a third, and 1 MiB).',
	);
	const asked = await finish('idv-agent', ['config', 'show', '--json'], home.env);
	expect(JSON.parse(asked.stdout).disk).toEqual({ directory: home.stateDir, bytes: 3.5 * MIB });
});
