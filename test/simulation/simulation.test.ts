import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { sharedProblems, trackFigures } from '../../src/simulation/figures.ts';
import { runRollout, splitIntoRings } from '../../src/simulation/rings.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';
import { givenFleet, watchFleet } from './simulated-fleet.ts';

describe('simulated devices', () => {
	test('are devices to the service: each with an id, a workflow and heartbeats of its own', async () => {
		const service = await givenService({ selfRegistration: true });
		const heard = new Set<string>();
		service.on('heartbeat', ({ deviceId }) => void heard.add(deviceId));
		const allHeard = service.waitFor('heartbeat', () => heard.size === 12);
		const clock = createSteppedClock();
		const fleet = await givenFleet(service, { devices: 12, clock });
		const { everOnline, handshakes, allOnlineAfterMs } = await fleet.untilAllOnline();
		clock.advance(29_999);
		await allHeard;
		expect(service.devices().map(({ online, workflowId, deviceType }) => [online, workflowId, deviceType])).toEqual(
			Array(12).fill([true, 'first', 'kiosk']),
		);
		expect([...heard].sort()).toEqual(Array.from({ length: 12 }, (_, i) => `sim-${String(i + 1).padStart(5, '0')}`));
		expect(fleet.figures().heartbeats).toBe(12);
		expect({ everOnline, handshakes }).toMatchObject({
			everOnline: 12,
			handshakes: { begun: 12, opened: 12, failed: 0 },
		});
		expect(allOnlineAfterMs).not.toBeNull();
	});

	test('start evenly over the ramp', async () => {
		const service = await givenService({ selfRegistration: true });
		const clock = createSteppedClock();
		const fleet = await givenFleet(service, { devices: 10, rampMs: 10_000, clock });
		const started = [0, 1, 2, 3].map((seconds) => {
			if (seconds > 0) clock.advance(1000);
			return 10 - fleet.figures().phases.notStarted;
		});
		expect(started).toEqual([1, 2, 3, 4]);
		clock.advance(6000);
		await fleet.untilAllOnline();
	});

	test("come back from an outage by the product's own backoff, and the outage is counted", async () => {
		const service = await givenService({ selfRegistration: true });
		const clock = createSteppedClock();
		const fleet = await givenFleet(service, { devices: 20, clock });
		await fleet.untilAllOnline();
		const over = Promise.withResolvers<void>();
		const back = service.restart({ hard: true, until: over.promise });
		await fleet.until('all offline', ({ phases }) => phases.waiting === 20);
		expect(fleet.figures().outages).toMatchObject([{ fewestOnline: 0, backAfterMs: null }]);
		over.resolve();
		await back;
		// The first return is spread over 5 s: by then every device has tried.
		clock.advance(5000);
		await fleet.untilAllOnline();
		expect(fleet.figures()).toMatchObject({
			losses: 20,
			outages: [{ backAfterMs: 5000, handshakes: 20, fewestOnline: 0 }],
			handshakes: { begun: 40, opened: 40, failed: 0 },
		});
		expect(fleet.problems()).toEqual([]);
	});

	test('have the most frequent of their problems told first', () => {
		const problem = (code: 'credential-refused' | 'service-unreachable') => ({ ...failure(code, 'No.'), since: '' });
		const [rare, common] = [problem('service-unreachable'), problem('credential-refused')];
		const shared = sharedProblems([rare, common, null, common] as Parameters<typeof sharedProblems>[0]);
		expect(shared.map(({ code, devices }) => [code, devices])).toEqual([
			['credential-refused', 2],
			['service-unreachable', 1],
		]);
	});

	test('say together what keeps them from being online', async () => {
		const service = await givenService();
		const clock = createSteppedClock();
		const fleet = await givenFleet(service, { devices: 5, clock });
		await fleet.until('refused', ({ phases }) => phases.waiting === 5);
		expect(fleet.problems()).toMatchObject([{ code: 'credential-refused', devices: 5 }]);
		expect(fleet.figures().registrations).toEqual({ begun: 5, failed: 5 });
		expect(fleet.figures().everOnline).toBe(0);
	});

	test('move in rings, 100 of them, and the service never sees one offline', async () => {
		const service = await givenService({ selfRegistration: true });
		const fleet = await givenFleet(service, { devices: 100, cadence: 10 });
		await fleet.untilAllOnline();
		const seen = watchFleet(service);
		const before: [begins: number, registered: number][] = [];
		await fleet.move({
			workflowId: 'second',
			rings: [5, 40],
			ringMs: 500,
			onRing: ({ from }) => before.push([from, seen.registeredFor('second').length]),
		});
		const { move } = await fleet.until('moved', ({ move }) => move?.live === 100);
		expect(seen.offlineMs()).toEqual([]);
		expect(move).toMatchObject({ told: 100, live: 100, refused: 0, losses: 0 });
		expect(service.devices().filter(({ online, workflowId }) => online && workflowId === 'second').length).toBe(100);
		expect(before.map(([begins]) => begins)).toEqual([0, 5, 40]);
		// Nobody of a later ring was moved before that ring began.
		for (const [begins, registered] of before) expect(registered).toBeLessThanOrEqual(begins);
	});

	test('that start after their ring has gone begin with the new workflow', async () => {
		const service = await givenService({ selfRegistration: true });
		const clock = createSteppedClock();
		const fleet = await givenFleet(service, { devices: 4, rampMs: 4000, clock });
		await fleet.move({ workflowId: 'second', rings: [100], ringMs: 0 });
		const seen = watchFleet(service);
		clock.advance(4000);
		await fleet.until('moved', ({ move }) => move?.live === 4);
		expect(seen.registeredFor('first')).toEqual([]);
	});
});

describe('rings', () => {
	test('take every device once, in order, and none is empty', () => {
		const percents = fc.array(fc.double({ min: 0.01, max: 100, noNaN: true }), { maxLength: 6 });
		fc.assert(
			fc.property(fc.integer({ min: 1, max: 5000 }), percents, (devices, shares) => {
				const rings = splitIntoRings(
					shares.toSorted((a, b) => a - b),
					devices,
				);
				expect(rings.every(({ from, to }) => to > from)).toBe(true);
				expect([0, ...rings.map(({ to }) => to)]).toEqual([...rings.map(({ from }) => from), devices]);
			}),
		);
	});

	test('are told one after the other, evenly; a stall is made up for, and a cancelled round tells nobody more', () => {
		const clock = createSteppedClock();
		const told: number[] = [];
		const round = runRollout(clock, { rings: splitIntoRings([20], 10), ringMs: 1000 }, (number) => told.push(number));
		expect(told).toEqual([0]);
		clock.advance(999);
		expect(told).toEqual([0, 1]);
		clock.advance(1);
		expect(told).toEqual([0, 1, 2]);
		clock.stall(500);
		expect(told).toEqual([0, 1, 2, 3, 4, 5, 6]);
		round.cancel();
		clock.advance(10_000);
		expect(told.length).toBe(7);
		expect(clock.pending).toBe(0);
	});
});

describe('figures', () => {
	test('count the handshakes of the busiest second, in all and during an outage', () => {
		const figures = trackFigures(2, 0);
		for (const atMs of [100, 200, 900, 1000, 1100]) figures.handshakeBegan(atMs);
		for (const device of [0, 1]) figures.moved('connecting', 'online', true, 1500 + device);
		figures.moved('online', 'waiting', false, 5000);
		for (const atMs of [5100, 5200, 6300]) figures.handshakeBegan(atMs);
		figures.moved('waiting', 'online', false, 6400);
		const { handshakes, outages } = figures.read(7000);
		expect(handshakes).toMatchObject({ begun: 8, peak: 3 });
		expect(outages).toEqual([{ atMs: 5000, fewestOnline: 1, backAfterMs: 1400, handshakes: 3, peakHandshakes: 2 }]);
	});

	test('remember the newest outages of a long run [F1849]', () => {
		const figures = trackFigures(1, 0);
		for (let minute = 0; minute < 100; minute += 1) {
			figures.moved('connecting', 'online', minute === 0, minute * 60_000);
			figures.moved('online', 'connecting', false, minute * 60_000 + 1000);
		}
		const { outages } = figures.read(6_000_000);
		expect([outages.length, outages[0]?.atMs, outages.at(-1)?.atMs]).toEqual([32, 4_081_000, 5_941_000]);
	});

	test('take an outage for over when 99 % are back', () => {
		const figures = trackFigures(200, 0);
		for (let device = 0; device < 200; device += 1) figures.moved('connecting', 'online', true, 100);
		for (let device = 0; device < 10; device += 1) figures.moved('online', 'waiting', false, 1000);
		for (let device = 0; device < 7; device += 1) figures.moved('waiting', 'online', false, 2000);
		expect(figures.read(2500).outages).toMatchObject([{ fewestOnline: 190, backAfterMs: null }]);
		figures.moved('waiting', 'online', false, 3000);
		expect(figures.read(3500).outages).toMatchObject([{ fewestOnline: 190, backAfterMs: 2000 }]);
	});

	test('know no outage before the fleet was online, nor while 99 % are', () => {
		const figures = trackFigures(200, 0);
		for (let device = 0; device < 198; device += 1) figures.moved('connecting', 'online', true, device);
		expect(figures.read(300).outages).toEqual([]);
		figures.moved('online', 'waiting', false, 400);
		expect(figures.read(500).outages.length).toBe(1);
		figures.moved('waiting', 'online', false, 600);
		figures.moved('connecting', 'online', true, 700);
		figures.moved('online', 'waiting', false, 800);
		expect(figures.read(900).outages.length).toBe(1);
		expect(figures.read(900).allOnlineAfterMs).toBeNull();
	});
});
