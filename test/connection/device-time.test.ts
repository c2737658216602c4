/** The device's time and its plan, over clocks that jump, restarts and a service that may be wrong: what was decided holds. */
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Failure } from '../../src/base/errors.ts';
import { believedMs, isImpossible } from '../../src/connection/clock-skew.ts';
import { keepDeviceTime } from '../../src/connection/device-time.runner.ts';
import { applyDue, confirmed, NO_PLAN, nextDueMs, planTarget } from '../../src/fleet/record.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { keepPersistedState } from '../../src/state/persisted-state.runner.ts';
import type { PlanRecord } from '../../src/state/plan-record.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const NOW = Date.UTC(2030, 5, 1);
const SECOND = 1000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const YEAR = 366 * DAY;

/** A start of the agent with a state and a clock; what it saved and what it warned of. */
function start(state: DeviceState, wallMs: number) {
	const clock = createSteppedClock(wallMs);
	const saves: DeviceState[] = [];
	const store = { save: async (saved: DeviceState) => void saves.push(saved) };
	const stateWriter = keepPersistedState(state, store, clock, () => {});
	const seen = { warning: null as Failure | null, jumps: 0 };
	const time = keepDeviceTime({
		clock,
		stateWriter,
		onWarning(warning) {
			seen.warning = warning;
		},
		onJump() {
			seen.jumps += 1;
		},
	});
	/** The service answers, at the true time. */
	const hear = (serviceMs: number, isProven = true) =>
		time.heard({ serviceMs, skewMs: clock.wallMs() - serviceMs }, isProven);
	return { clock, time, stateWriter, saves, seen, hear };
}

describe('the warning about the clock', () => {
	test('ends at most 30 s after the clock is right, without another answer of the service [F362]', () => {
		const { clock, seen, hear } = start(EMPTY_STATE, NOW - 50 * YEAR);
		hear(NOW);
		expect(seen.warning?.message).toMatch(/^This device's clock is \d+ days slow\.$/);
		clock.advance(60 * SECOND);
		expect(seen.warning).not.toBeNull();
		clock.setWall(NOW + 60 * SECOND);
		clock.advance(30 * SECOND);
		expect(seen.warning).toBeNull();
		expect(clock.pending, 'no look while the clock is right').toBe(0);
	});

	test('begins when a clock that was right is set wrong, at the next wakeup', () => {
		const { clock, time, seen, hear } = start(EMPTY_STATE, NOW);
		hear(NOW);
		clock.setWall(NOW + 3 * DAY);
		time.look();
		expect(seen.warning?.message).toBe("This device's clock is 3 days fast.");
		time.stop();
	});

	test('is not raised by a machine that slept: its clock went on, as the service did', () => {
		const { clock, time, seen, hear } = start(EMPTY_STATE, NOW);
		hear(NOW);
		clock.sleep(8 * HOUR);
		time.look();
		expect(seen).toEqual({ warning: null, jumps: 1 });
		expect(time.nowMs()).toBe(NOW + 8 * HOUR);
		expect(time.correctedMs).toBe(0);
	});

	test('hides no sleep: the time of the service has gone on meanwhile [F1863]', () => {
		const { clock, time, hear } = start(EMPTY_STATE, NOW + 3 * DAY);
		hear(NOW);
		clock.sleep(8 * HOUR);
		time.look();
		expect(time.nowMs()).toBe(NOW + 8 * HOUR);
		time.stop();
	});
});

describe('the floor', () => {
	test('is the newest time of the service, also after a restart with the clock of 1970', () => {
		const first = start(EMPTY_STATE, NOW);
		first.hear(NOW);
		first.clock.advance(DAY);
		first.stateWriter.keep((state) => ({ ...state, generatedId: 'other' }));
		expect(first.saves.at(-1)?.serviceTimeMs).toBe(NOW + DAY);
		const second = start(first.saves.at(-1) ?? EMPTY_STATE, 0);
		expect(second.time.nowMs()).toBe(NOW + DAY);
		second.clock.setWall(NOW + 2 * DAY);
		expect(second.time.nowMs()).toBe(NOW + 2 * DAY);
	});

	test('is saved of its own at most once a day, and with any other change', async () => {
		const { clock, time, saves, hear, stateWriter } = start(EMPTY_STATE, NOW);
		for (let hour = 0; hour < 72; hour += 1) {
			hear(NOW + hour * HOUR);
			await turn();
			clock.advance(HOUR);
		}
		expect(saves.length).toBe(3);
		stateWriter.keep((state) => ({ ...state, generatedId: 'other' }));
		expect(saves.at(-1)?.serviceTimeMs).toBe(time.nowMs());
	});

	test('is saved with what follows from the same answer, not before it', async () => {
		const { saves, hear, stateWriter } = start(EMPTY_STATE, NOW);
		hear(NOW);
		await null;
		stateWriter.keep((state) => ({ ...state, generatedId: 'other' }));
		await turn();
		expect(saves).toMatchObject([{ generatedId: 'other', serviceTimeMs: NOW }]);
	});

	test('is a ceiling as well: a clock that is days ahead of what the service says now is not believed [F436]', () => {
		const { clock, time, hear } = start({ ...EMPTY_STATE, serviceTimeMs: NOW }, NOW + 40 * DAY);
		expect(time.nowMs(), 'it may have been switched off for so long').toBe(NOW + 40 * DAY);
		hear(NOW + HOUR, false);
		expect(time.nowMs()).toBe(NOW + 40 * DAY);
		hear(NOW + HOUR);
		expect(time.nowMs()).toBe(NOW + HOUR);
		clock.advance(2 * DAY);
		expect(time.nowMs()).toBe(NOW + HOUR + 2 * DAY);
		clock.setWall(NOW + 2 * DAY + 10 * HOUR);
		expect(time.nowMs()).toBe(NOW + 2 * DAY + 10 * HOUR);
		time.stop();
		expect(believedMs(NOW, NOW - 50 * YEAR, true), 'its clock was never set').toBe(NOW);
	});

	test('is a ceiling over a restart as well: a clock that was days ahead is so until the service says otherwise [F1498]', () => {
		const first = start(EMPTY_STATE, NOW + 2 * DAY);
		first.hear(NOW);
		first.stateWriter.keep((state) => ({ ...state, generatedId: 'other' }));
		first.time.stop();
		const again = start(first.saves.at(-1) ?? EMPTY_STATE, NOW + 2 * DAY + HOUR);
		expect(again.time.nowMs()).toBe(NOW + HOUR);
		again.stateWriter.keep((state) => ({ ...state, generatedId: 'more' }));
		expect(again.saves.at(-1)?.clockAheadMs, 'not yet told otherwise').toBe(2 * DAY);
		again.time.stop();
		const mended = start(again.saves.at(-1) ?? EMPTY_STATE, NOW + 2 * HOUR);
		expect(mended.time.nowMs(), 'its clock was set meanwhile').toBe(NOW);
		mended.hear(NOW + 2 * HOUR);
		expect(mended.time.nowMs()).toBe(NOW + 2 * HOUR);
		mended.time.forget();
		expect(mended.time.nowMs()).toBe(NOW + 2 * HOUR);
		mended.time.stop();
	});

	test('is not moved by an answer that anybody on the way can give', () => {
		const { time, hear } = start(EMPTY_STATE, NOW);
		hear(NOW + 10 * DAY, false);
		expect(time.nowMs()).toBe(NOW);
		time.stop();
	});

	test('follows a service that corrects itself, and a year ahead of a clock that was set is not believed [F363]', () => {
		const { time, hear } = start(EMPTY_STATE, NOW);
		hear(NOW + 30 * YEAR);
		expect(time.nowMs()).toBe(NOW);
		hear(NOW + 10 * DAY);
		expect(time.nowMs()).toBe(NOW + 10 * DAY);
		hear(NOW);
		expect(time.nowMs()).toBe(NOW);
		time.stop();
		expect(believedMs(0, NOW + 30 * YEAR, true)).toBe(NOW + 30 * YEAR);
		expect(believedMs(NOW, NOW + 366 * DAY, true)).toBe(NOW + 366 * DAY);
		expect(believedMs(NOW, NOW + 366 * DAY + 1, true)).toBe(NOW);
	});

	test('a poisoned one is over as soon as the clock was set, or the service says otherwise', () => {
		const poisoned = { ...EMPTY_STATE, serviceTimeMs: NOW + 70 * YEAR };
		expect(start(poisoned, NOW).time.nowMs()).toBe(NOW);
		const { time, hear } = start(poisoned, 0);
		hear(NOW);
		expect(time.nowMs()).toBe(NOW);
		time.stop();
	});
});

test('a time before any clock was set, or still to come, is impossible', () => {
	expect([0, NOW - YEAR, NOW + HOUR].map((at) => isImpossible(at, NOW))).toEqual([true, false, true]);
});

const PLAIN = { epoch: 0, fleet: null, validUntilMs: null, keys: null };

describe('a plan, under random clocks', () => {
	const to = { workflowId: 'b', heartbeatCadence: null };
	const base = { workflowId: 'a', heartbeatCadence: null };
	const planOf = (revision: number, atMs: number): PlanRecord => ({
		source: 's',
		basis: 'b',
		...NO_PLAN,
		taken: { revision, digest: `d${revision}`, ...PLAIN, rule: null, base, move: { to, percent: 100, atMs } },
	});
	const jump = fc.oneof(
		fc.record({
			do: fc.constant('set' as const),
			wallMs: fc.constantFrom(0, NOW - 20 * HOUR, NOW, NOW + 3 * DAY, NOW + 5 * YEAR),
		}),
		fc.record({ do: fc.constant('restart' as const), wallMs: fc.constantFrom(0, NOW - DAY, NOW, NOW + 9 * YEAR) }),
		fc.record({ do: fc.constant('pass' as const), ms: fc.nat(2 * DAY) }),
		fc.record({ do: fc.constant('hear' as const), aheadMs: fc.constantFrom(0, 0, -DAY, 40 * YEAR) }),
		fc.record({ do: fc.constant('revise' as const), laterMs: fc.constantFrom(-DAY, 0) }),
	);

	test('a move that the device was online with is never undone by time, and none waits when its time has come', () => {
		let held = 0;
		fc.assert(
			fc.property(fc.array(jump, { maxLength: 30 }), (jumps) => {
				let startAt = NOW + HOUR;
				let plan = planOf(1, startAt);
				let trueMs = NOW;
				let device = start(EMPTY_STATE, NOW);
				let isMoved = false;
				for (const one of jumps) {
					if (one.do === 'set') device.clock.setWall(one.wallMs);
					else if (one.do === 'pass') {
						device.clock.advance(one.ms);
						trueMs += one.ms;
					} else if (one.do === 'hear') device.hear(trueMs + one.aheadMs);
					else if (one.do === 'revise') {
						// Postponed it is judged again: not here.
						startAt = Math.min(startAt, NOW + HOUR + one.laterMs);
						plan = { ...plan, taken: planOf((plan.taken?.revision ?? 0) + 1, startAt).taken };
					} else {
						device.time.stop();
						device = start(JSON.parse(JSON.stringify(device.stateWriter.state)), one.wallMs);
						plan = JSON.parse(JSON.stringify(plan));
					}
					const nowMs = device.time.nowMs();
					plan = applyDue(plan, nowMs);
					const target = planTarget(plan, nowMs)?.workflowId;
					if (isMoved) expect(target).toBe('b');
					if (nowMs >= startAt) expect(target).toBe('b');
					else if (!isMoved) expect(nextDueMs(plan, nowMs)).not.toBeNull();
					// The device gets online each time, as the plan says.
					const after = confirmed(plan, nowMs);
					if (target === 'b' && after.moved) {
						if (isMoved && nowMs < startAt) held += 1;
						isMoved = true;
					}
					expect(confirmed(after, nowMs), 'nothing is written twice').toBe(after);
					plan = after;
				}
				device.time.stop();
			}),
			{ numRuns: 500 },
		);
		expect(held, 'a clock that went back was among them').toBeGreaterThan(50);
	});

	test('a move that a newer plan postpones or takes back is judged again: people decide, time does not', () => {
		const moved = confirmed(planOf(1, NOW), NOW + HOUR);
		expect(moved.moved).toEqual({ to, atMs: NOW + HOUR });
		const postponed = { ...moved, taken: planOf(2, NOW + DAY).taken };
		expect(planTarget(postponed, NOW + 2 * HOUR)?.workflowId).toBe('a');
		const back: PlanRecord = { ...moved, taken: { revision: 3, digest: 'd3', ...PLAIN, rule: null, base, move: null } };
		expect(planTarget(back, NOW)?.workflowId).toBe('a');
		// Once the device is there, what it did before is over: a later rollout to the same workflow waits for its time.
		const again = { ...confirmed(back, NOW + 2 * HOUR), taken: planOf(4, NOW + 30 * 60_000).taken };
		expect(planTarget(again, NOW)?.workflowId).toBe('a');
	});
});
