/** Leases over restarts of the agent: by their file, and by a device whose change waits. */
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import type { Clock } from '../../src/base/clock.edge.ts';
import { leaseFile } from '../../src/workflow/lease-file.edge.ts';
import { keepLeases } from '../../src/workflow/leases.runner.ts';
import { givenAgent, givenPairedAgent, type RunningAgent, watchOffline } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

function givenDirectory(): string {
	const directory = mkdtempSync(join(tmpdir(), 'leases-'));
	onTestFinished(() => rmSync(directory, { recursive: true }));
	return directory;
}

/** A machine whose processes count monotonic time from their own start, as Node does. */
function givenMachine() {
	let bootMs = 5_000_000;
	let wallMs = 1_700_000_000_000;
	return {
		pass(ms: number) {
			bootMs += ms;
			wallMs += ms;
		},
		setClock(ms: number) {
			wallMs = ms;
		},
		reboot() {
			bootMs = 20_000;
		},
		now: () => bootMs,
		process(): Clock {
			const startMs = bootMs;
			return {
				monotonicMs: () => bootMs - startMs,
				sleptMs: () => startMs,
				wallMs: () => wallMs,
				schedule: () => () => {},
				soon: () => () => {},
			};
		},
	};
}

const NAMES = ['kiosk', 'desk', 'lobby:visit'] as const;
const WORKS = [undefined, 'one', 'two'] as const;
const step = fc.oneof(
	fc.record({
		kind: fc.constant('hold' as const),
		name: fc.constantFrom(...NAMES),
		work: fc.constantFrom(...WORKS),
		seconds: fc.integer({ min: 1, max: 3600 }),
	}),
	fc.record({
		kind: fc.constant('release' as const),
		name: fc.constantFrom(...NAMES),
		work: fc.constantFrom(...WORKS),
	}),
	fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(1_000_000) }),
	fc.record({ kind: fc.constant('clock' as const), ms: fc.nat(2_000_000_000_000) }),
	fc.record({ kind: fc.constant('restart' as const), ms: fc.nat(100_000) }),
);

test('leases end with their last work or their time, whatever restarts and settings of the clock are between', () => {
	fc.assert(
		fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
			const directory = mkdtempSync(join(tmpdir(), 'leases-'));
			const machine = givenMachine();
			const start = () =>
				keepLeases({ clock: machine.process(), requestReconcile: () => {}, store: leaseFile(directory) });
			let leases = start();
			const model = new Map<string, { name: string; untilMs: number }>();
			for (const one of steps) {
				if (one.kind === 'hold') {
					leases.hold(one.name, one.seconds, one.work);
					model.set(`${one.name} ${one.work}`, { name: one.name, untilMs: machine.now() + one.seconds * 1000 });
				} else if (one.kind === 'release') {
					leases.release(one.name, one.work);
					model.delete(`${one.name} ${one.work}`);
				} else if (one.kind === 'clock') machine.setClock(one.ms);
				else {
					machine.pass(one.ms);
					if (one.kind === 'restart') leases = start();
				}
				const held = [...model.values()].filter(({ untilMs }) => untilMs > machine.now());
				const names = leases.list().leases.map(({ name }) => name);
				expect(names.toSorted()).toEqual([...new Set(held.map(({ name }) => name))].toSorted());
			}
			machine.reboot();
			expect(start().list()).toEqual({ leases: [] });
			rmSync(directory, { recursive: true });
		}),
		{ numRuns: 200 },
	);
});

test.each([
	['a part of it', '{"leases":[{"name":"kiosk"'],
	['another form', '{"leases":{}}'],
	['a time that is none', '{"leases":[{"name":"kiosk","work":"","sinceMs":null,"untilMs":1}],"waiting":null}'],
	['a lease for a year', '{"leases":[{"name":"kiosk","work":"","sinceMs":0,"untilMs":31536000000}],"waiting":null}'],
	[
		'more than 64 KiB [F1186]',
		`{"leases":[{"name":"kiosk","work":"","sinceMs":0,"untilMs":5100000}],"waiting":null,"x":"${'x'.repeat(65_536)}"}`,
	],
	['a name that is none', '{"leases":[{"name":"a b","work":"","sinceMs":0,"untilMs":5100000}],"waiting":null}'],
])('a file with %s counts for nothing, and the next lease is kept', (_, text) => {
	const directory = givenDirectory();
	writeFileSync(join(directory, 'leases.json'), text);
	const machine = givenMachine();
	const start = () => keepLeases({ clock: machine.process(), requestReconcile: () => {}, store: leaseFile(directory) });
	const leases = start();
	expect(leases.list()).toEqual({ leases: [] });
	leases.hold('kiosk', 60);
	expect(start().list().leases).toMatchObject([{ name: 'kiosk' }]);
});

/** Ends, and starts again in the same directory and time. */
async function restart(device: RunningAgent): Promise<RunningAgent> {
	const { clock, home } = device;
	await device.stop();
	clock.advance(5000);
	return givenAgent({ clock, home });
}

test('a change that waits for a lease still waits after a restart of the agent, and is made when the lease is released [F670]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service, { clock: createSteppedClock() });
	device.agent.leases.hold('kiosk', 300, 'one');
	device.agent.leases.hold('kiosk', 300, 'two');
	await device.agent.setWorkflow('document-check');
	const again = await restart(device);
	const offline = watchOffline(service);
	expect((await again.untilLive('check-in')).workflow).toMatchObject({ wanted: 'document-check', live: 'check-in' });
	expect(again.agent.status().workflow.waitsUntil).not.toBeNull();
	again.agent.leases.release('kiosk', 'one');
	expect(again.agent.status().workflow).toMatchObject({ live: 'check-in' });
	again.agent.leases.release('kiosk', 'two');
	await again.untilLive('document-check');
	expect(offline).toEqual([]);
});

test('restarts make a change wait no longer than workflow.maxDeferSeconds in all', async () => {
	const service = await givenService();
	const sets = ['workflow.maxDeferSeconds=100'];
	const clock = createSteppedClock();
	let device = await givenPairedAgent(service, { clock, sets });
	const { home } = device;
	device.agent.leases.hold('kiosk', 3600);
	await device.agent.setWorkflow('document-check');
	for (let turn = 0; turn < 3; turn += 1) {
		clock.advance(20_000);
		await device.stop();
		clock.advance(5000);
		device = await givenAgent({ clock, home, sets });
		await device.untilLive('check-in');
		device.agent.leases.hold('kiosk', 3600);
	}
	clock.advance(24_000);
	expect(device.agent.status().workflow.live).toBe('check-in');
	clock.advance(1000);
	await device.untilLive('document-check');
});

test('a lease that ran out while the agent was away holds nothing up', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service, { clock: createSteppedClock() });
	device.agent.leases.hold('kiosk', 4);
	await device.agent.setWorkflow('document-check');
	const again = await restart(device);
	await again.untilLive('document-check');
	expect(again.agent.leases.list()).toEqual({ leases: [] });
});

test('a lease of an application that is in the file no more does not come back with a restart; others cannot read them [F1861]', () => {
	const directory = givenDirectory();
	let changes = 0;
	const requestReconcile = () => {
		changes += 1;
	};
	const begin = () => keepLeases({ clock: createSteppedClock(), requestReconcile, store: leaseFile(directory) });
	const leases = begin();
	for (const name of ['kiosk', 'lobby:visit', 'desk:visit']) leases.hold(name, 60);
	for (let turn = 0; turn < 2; turn += 1) leases.releaseOthers(['desk:']);
	expect(changes).toBe(4);
	expect(statSync(join(directory, 'leases.json')).mode & 0o777).toBe(0o600);
	expect(begin().held.map(({ name }) => name)).toEqual(['kiosk', 'desk:visit']);
});
