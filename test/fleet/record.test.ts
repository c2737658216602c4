import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { applyDue, checkRevision, NO_PLAN, nextDueMs, receivePlan } from '../../src/fleet/record.ts';
import type { PlanRecord, TakenPlan } from '../../src/state/plan-record.ts';

const EMPTY: PlanRecord = { source: 's', basis: 'b', ...NO_PLAN };
const NOW = Date.UTC(2026, 11, 1);

function part(revision: number, workflowId: string | null, more: Partial<TakenPlan> = {}): TakenPlan {
	return {
		revision,
		digest: `d${revision}`,
		rule: null,
		base: { workflowId, heartbeatCadence: null },
		move: null,
		...more,
	};
}

const nowhere = { workflowId: null, heartbeatCadence: 30 };
const at = (more: Partial<Parameters<typeof receivePlan>[2]> = {}) => ({
	wallMs: NOW,
	spreadSeconds: 600,
	share: 0.5,
	fallback: nowhere,
	...more,
});
const holding = (plan: TakenPlan): PlanRecord => ({ ...EMPTY, taken: plan });

describe('a revision', () => {
	test('rises', () => {
		expect(checkRevision(EMPTY, part(1, 'w'))).toBe('new');
		expect(checkRevision(holding(part(3, 'w')), part(4, 'w'))).toBe('new');
		expect(checkRevision(holding(part(3, 'w')), part(3, 'w'))).toBe('known');
		expect(() => checkRevision(holding(part(3, 'w')), part(2, 'w'))).toThrow(
			/revision 2, but this device knows revision 3/,
		);
	});

	test('says one thing only', () => {
		expect(() => checkRevision(holding(part(3, 'w')), part(3, 'w', { digest: 'other' }))).toThrow(/something else/);
	});

	test('counts from when it is received, not from when it is taken', () => {
		const waiting = receivePlan(holding(part(3, 'a')), part(4, 'b'), at());
		expect(waiting).toMatchObject({ taken: { revision: 3 }, waiting: { revision: 4 } });
		expect(() => checkRevision(waiting, part(3, 'a'))).toThrow(/knows revision 4/);
	});
});

describe('a plan', () => {
	test('that changes nothing for a device is taken at once', () => {
		expect(receivePlan(holding(part(1, 'a')), part(2, 'a'), at())).toMatchObject({
			taken: { revision: 2 },
			waiting: null,
		});
		const fallback = { workflowId: 'a', heartbeatCadence: 30 };
		expect(receivePlan(EMPTY, part(2, 'a'), at({ fallback }))).toMatchObject({
			taken: { revision: 2 },
			waiting: null,
		});
		expect(receivePlan(EMPTY, part(2, null), at({ fallback }))).toMatchObject({
			taken: { revision: 2 },
			waiting: null,
		});
	});

	test('is taken at once by a device that has nothing to do', () => {
		expect(receivePlan(EMPTY, part(1, 'a'), at())).toMatchObject({ taken: { revision: 1 }, waiting: null });
	});

	test('that changes something is taken after the share of the spread', () => {
		const received = receivePlan(holding(part(1, 'a')), part(2, 'b'), at());
		expect(received.waiting?.atMs).toBe(NOW + 300_000);
		expect(nextDueMs(received, NOW)).toBe(NOW + 300_000);
		expect(applyDue(received, NOW + 299_999)).toBe(received);
		expect(applyDue(received, NOW + 300_000)).toMatchObject({ taken: part(2, 'b'), waiting: null });
		const cadence = part(2, 'a', { base: { workflowId: 'a', heartbeatCadence: 5 } });
		expect(receivePlan(holding(part(1, 'a')), cadence, at()).waiting).not.toBeNull();
	});

	test('that ends what the plan said waits as well, unless the others say the same', () => {
		const ended = (workflowId: string) =>
			receivePlan(holding(part(1, 'a')), part(2, null), at({ fallback: { workflowId, heartbeatCadence: 30 } })).waiting;
		expect(ended('b')).not.toBeNull();
		expect(ended('a')).toBeNull();
	});

	test('without a spread is taken at once', () => {
		expect(receivePlan(holding(part(1, 'a')), part(2, 'b'), at({ spreadSeconds: 0 })).taken?.revision).toBe(2);
	});

	test('that takes a waiting one back is taken at once, and nothing waits any more', () => {
		const waiting = receivePlan(holding(part(1, 'a')), part(2, 'b'), at());
		expect(receivePlan(waiting, part(3, 'a'), at())).toMatchObject({ taken: { revision: 3 }, waiting: null });
	});

	test('waits no longer than its spread, whatever the clock does', () => {
		fc.assert(
			fc.property(
				fc.integer({ min: 0, max: 86_400 }),
				fc.double({ min: 0, max: 0.999, noNaN: true }),
				fc.integer({ min: -1e12, max: 1e12 }),
				(spreadSeconds, share, jumpMs) => {
					const received = receivePlan(holding(part(1, 'a')), part(2, 'b'), at({ spreadSeconds, share }));
					const jumped = applyDue(received, NOW + jumpMs);
					const dueMs = nextDueMs(jumped, NOW + jumpMs);
					return dueMs === null ? jumped.waiting === null : dueMs - (NOW + jumpMs) <= spreadSeconds * 1000;
				},
			),
		);
	});

	test('with a move to come is looked at then', () => {
		const move = { to: { workflowId: 'b', heartbeatCadence: null }, percent: 100, atMs: NOW + 5000 };
		expect(nextDueMs(holding(part(1, 'a', { move })), NOW)).toBe(NOW + 5000);
		expect(nextDueMs(holding(part(1, 'a', { move })), NOW + 5000)).toBeNull();
	});
});
