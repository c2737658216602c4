import { expect, test } from 'vitest';
import { givenService } from '../../service/fixture.ts';
import { givenFleet, watchFleet } from '../../simulation/simulated-fleet.ts';

const DEVICES = 2000;
const CADENCE_SECONDS = 5;

test('2,000 devices move from one workflow to another in rings, none offline for a heartbeat', async () => {
	const service = await givenService({ selfRegistration: true });
	const fleet = await givenFleet(service, { devices: DEVICES, cadence: CADENCE_SECONDS, rampMs: 15_000 });
	await fleet.untilAllOnline();
	const seen = watchFleet(service);
	const before: [begins: number, registered: number][] = [];
	await fleet.move({
		workflowId: 'second',
		rings: [1, 10, 50],
		ringMs: 10_000,
		onRing: ({ from }) => before.push([from, seen.registeredFor('second').length]),
	});
	const { move, losses } = await fleet.until('moved', ({ move }) => move?.live === DEVICES);
	const offlineMs = seen.offlineMs();
	console.log(
		`${DEVICES} devices moved in ${((move?.doneAfterMs ?? 0) / 1000).toFixed(1)} s; seen offline by the service: ${offlineMs.length}, longest ${Math.max(0, ...offlineMs)} ms; longest time between two heartbeats of a device: ${seen.longestSilenceMs()} ms at a cadence of ${CADENCE_SECONDS} s`,
	);
	expect(service.devices().filter(({ online, workflowId }) => online && workflowId === 'second').length).toBe(DEVICES);
	expect(offlineMs.filter((ms) => ms >= CADENCE_SECONDS * 1000)).toEqual([]);
	expect(losses).toBe(0);
	expect(move?.refused).toBe(0);
	expect(before.map(([begins]) => begins)).toEqual([0, 20, 200, 1000]);
	for (const [begins, registered] of before) expect(registered).toBeLessThanOrEqual(begins);
});
