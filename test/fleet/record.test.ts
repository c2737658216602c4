import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	applyDue,
	checkFleet,
	checkRevision,
	confirmed,
	endedTrust,
	isWithdrawn,
	NO_PLAN,
	nextDueMs,
	type PlanTrust,
	planTarget,
	raisedFloors,
	receivePlan,
	recordFor,
	withoutWithdrawn,
} from '../../src/fleet/record.ts';
import { MAX_FLOORS, type PlanRecord, type TakenPlan } from '../../src/state/plan-record.ts';

const EMPTY: PlanRecord = { source: 's', basis: 'b', ...NO_PLAN };
const NOW = Date.UTC(2026, 11, 1);

function part(revision: number, workflowId: string | null, more: Partial<TakenPlan> = {}): TakenPlan {
	return {
		epoch: 0,
		revision,
		digest: `d${revision}`,
		fleet: null,
		validUntilMs: null,
		keys: [],
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
const UNSIGNED: PlanTrust = { source: 's', name: null, keys: [] };
const holding = (plan: TakenPlan, trust = UNSIGNED): PlanRecord => ({
	...EMPTY,
	taken: plan,
	floors: raisedFloors(EMPTY, plan, trust, plan.keys ?? []),
});
const check = (record: PlanRecord, plan: TakenPlan, trust = UNSIGNED) => checkRevision(record, plan, trust);

describe('a revision', () => {
	test('rises', () => {
		expect(check(EMPTY, part(1, 'w'))).toBe('new');
		expect(check(holding(part(3, 'w')), part(4, 'w'))).toBe('new');
		expect(check(holding(part(3, 'w')), part(3, 'w'))).toBe('known');
		expect(() => check(holding(part(3, 'w')), part(2, 'w'))).toThrow(/revision 2, but this device knows revision 3/);
	});

	test('says one thing only', () => {
		expect(() => check(holding(part(3, 'w')), part(3, 'w', { digest: 'other' }))).toThrow(/other content/);
	});

	test('counts from when it is received, not from when it is taken', () => {
		const floors = raisedFloors(EMPTY, part(4, 'b'), UNSIGNED, []);
		const waiting = receivePlan({ ...holding(part(3, 'a')), floors }, part(4, 'b'), at());
		expect(waiting).toMatchObject({ taken: { revision: 3 }, waiting: { revision: 4 } });
		expect(() => check(waiting, part(3, 'a'))).toThrow(/knows revision 4/);
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

describe('a floor of revisions', () => {
	const by = (...keys: string[]): PlanTrust => ({ ...UNSIGNED, keys });
	const HIGHEST = Number.MAX_SAFE_INTEGER;

	test('of an unsigned plan binds nothing once keys are set', () => {
		const slipped = holding(part(HIGHEST, 'w'));
		expect(() => check(slipped, part(7, 'w'))).toThrow(/knows revision/);
		expect(check(slipped, part(7, 'w', { keys: ['a'] }), by('a'))).toBe('new');
	});

	test('goes with the last key that has attested it', () => {
		const signed = part(9, 'w', { keys: ['a', 'b'] });
		const both = holding(signed, by('a', 'b'));
		const slipped = { ...both, floors: raisedFloors(both, part(HIGHEST, 'w'), by('a', 'b'), ['a']) };
		expect(() => check(slipped, part(10, 'w'), by('a', 'b'))).toThrow(/knows revision 9007199254740991/);
		expect(() => check(slipped, part(8, 'w'), by('b'))).toThrow(/knows revision 9 already/);
		expect(check(slipped, part(10, 'w'), by('b'))).toBe('new');
		expect(check(slipped, part(1, 'w'), by('c'))).toBe('new');
	});

	test('counts for every plan that any key of the fleet signs', () => {
		const record = holding(part(9, 'w', { keys: ['a'] }), by('a', 'b'));
		expect(() => check(record, part(8, 'w', { keys: ['b'] }), by('a', 'b'))).toThrow(/knows revision 9/);
	});

	test('is left behind by a higher epoch, and by nothing else', () => {
		const slipped = holding(part(HIGHEST, 'w'));
		const recovered = part(1, 'w', { epoch: 1, digest: 'e1' });
		expect(check(slipped, recovered)).toBe('new');
		const floors = raisedFloors(slipped, recovered, UNSIGNED, []);
		expect(() => check({ ...slipped, floors }, part(HIGHEST, 'w'))).toThrow(
			/epoch 0, revision 9007199254740991, but this device knows epoch 1, revision 1/,
		);
	});

	test('belongs to the fleet: by name where both have one, else by address', () => {
		const north: PlanTrust = { ...UNSIGNED, name: 'north' };
		const record = { ...holding(part(9, 'w'), north), name: 'north' };
		const moved = { ...north, source: 'elsewhere' };
		expect(() => check(recordFor(record, moved), part(8, 'w'), moved)).toThrow(/knows revision 9/);
		const south = { ...north, name: 'south' };
		const asSouth = recordFor(record, south);
		expect(asSouth).toMatchObject({ taken: null, name: 'south' });
		expect(check(asSouth, part(1, 'w'), south)).toBe('new');
		const back = recordFor({ ...asSouth, floors: raisedFloors(asSouth, part(1, 'w'), south, []) }, north);
		expect(() => check(back, part(8, 'w'), north)).toThrow(/knows revision 9/);
		const unnamed = holding(part(9, 'w'));
		expect(() => check(recordFor(unnamed, north), part(8, 'w'), north)).toThrow(/knows revision 9/);
	});

	test('never comes down, whatever order plans come in, unless its keys go', () => {
		const key = fc.constantFrom('a', 'b', 'c');
		const seen = fc.record({
			epoch: fc.integer({ min: 0, max: 2 }),
			revision: fc.integer({ min: 1, max: 9 }),
			keys: fc.uniqueArray(key, { minLength: 1 }),
		});
		fc.assert(
			fc.property(fc.array(seen, { maxLength: 40 }), fc.uniqueArray(key, { minLength: 1 }), (plans, keys) => {
				const all = by('a', 'b', 'c');
				let record = EMPTY;
				const taken: TakenPlan[] = [];
				for (const { epoch, revision, keys } of plans) {
					const plan = part(revision, 'w', { epoch, keys, digest: `${epoch}-${revision}` });
					try {
						check(record, plan, all);
					} catch {
						continue;
					}
					taken.push(plan);
					record = { ...record, floors: raisedFloors(record, plan, all, keys) };
				}
				const attested = taken.filter((plan) => keys.some((one) => plan.keys?.includes(one)));
				const refuses = (plan: TakenPlan) => {
					try {
						check(record, { ...plan, digest: 'other' }, by(...keys));
						return false;
					} catch {
						return true;
					}
				};
				return record.floors.length <= MAX_FLOORS && attested.every(refuses);
			}),
		);
	});
});

describe('a key that is withdrawn', () => {
	const move = { to: { workflowId: 'evil', heartbeatCadence: null }, percent: 100, atMs: NOW + 5000 };
	const trust: PlanTrust = { ...UNSIGNED, keys: ['b'] };
	const at = { isSameBasis: false, wallMs: NOW };

	test('begins nothing more: what its plan says now goes on', () => {
		const stolen = { ...holding(part(9, 'w', { keys: ['a'], move })), waiting: null };
		const waiting = { ...part(10, 'evil', { keys: ['a'] }), atMs: NOW + 1, spreadSeconds: 10 };
		const left = withoutWithdrawn({ ...stolen, waiting }, trust, at);
		expect(left).toMatchObject({ taken: { base: { workflowId: 'w' }, move: null }, waiting: null });
		expect(isWithdrawn(left, trust.keys)).toBe(true);
	});

	test('changes nothing where another key has signed the plan as well', () => {
		const record = holding(part(9, 'w', { keys: ['a', 'b'], move }));
		expect(withoutWithdrawn(record, trust, at)).toBe(record);
		expect(isWithdrawn(record, trust.keys)).toBe(false);
	});

	test('is told from the keys of an agent of 0.1 by what the plan was chosen by', () => {
		const old = { ...EMPTY, taken: part(9, 'w', { keys: null, move }) };
		const same = withoutWithdrawn(old, trust, { ...at, isSameBasis: true });
		expect(same).toMatchObject({ taken: { keys: ['b'], move }, floors: [{ revision: 9, key: 'b' }] });
		const other = withoutWithdrawn(old, trust, at);
		expect(other).toMatchObject({ taken: { keys: [], move: null }, floors: [] });
	});
});

test('a plan is for the fleet that the device belongs to', () => {
	const north = { ...UNSIGNED, name: 'north' };
	expect(() => checkFleet('north', north)).not.toThrow();
	expect(() => checkFleet('south', north)).toThrow(/is for fleet south; this device belongs to fleet north/);
	expect(() => checkFleet(undefined, north)).toThrow(/names no fleet/);
	expect(() => checkFleet('south', UNSIGNED)).not.toThrow();
});

test('the trust of a plan ends at its validUntil, and is looked at then', () => {
	const record = holding(part(9, 'w', { validUntilMs: NOW + 5000 }));
	expect(nextDueMs(record, NOW)).toBe(NOW + 5000);
	expect(endedTrust(record, NOW + 4999)).toBeNull();
	expect(endedTrust(record, NOW + 5000)).toMatchObject({
		code: 'plan-expired',
		message: expect.stringMatching(/frozen or forgotten/),
	});
	expect(endedTrust(holding(part(9, 'w')), NOW)).toBeNull();
});

describe('a plan that is over before the device has taken it', () => {
	const old = holding(part(8, 'old'));
	const over = part(9, 'new', { validUntilMs: NOW - 1 });
	const said = (record: PlanRecord, wallMs = NOW) => planTarget(record, wallMs)?.workflowId;

	test('is taken and says nothing new, at once and however often it is read [F1261]', () => {
		const kept = receivePlan(old, over, at());
		expect(kept).toMatchObject({ taken: { revision: 9 }, waiting: null });
		expect([said(kept), said(receivePlan(kept, over, at())), confirmed(kept, NOW).followed]).toEqual([
			'old',
			'old',
			null,
		]);
		expect(endedTrust(kept, NOW)?.message).toMatch(/keeps running as it is/);
		const next = receivePlan(kept, part(10, 'new'), at({ spreadSeconds: 0 }));
		expect([said(next), next.taken?.held]).toEqual(['new', undefined]);
	});

	test('moves nothing when its end comes before its moment in the spread', () => {
		const waits = receivePlan(old, part(9, 'new', { validUntilMs: NOW + 1000 }), at());
		expect([said(waits), waits.waiting?.revision]).toEqual(['old', 9]);
		const ended = applyDue(waits, NOW + 1000);
		expect([said(ended, NOW + 900_000), ended.taken?.revision, ended.waiting]).toEqual(['old', 9, null]);
	});

	test('goes on where it was taken before, also chosen by other labels', () => {
		const taken = confirmed(receivePlan(old, { ...over, validUntilMs: NOW + 1 }, at({ share: 0 })), NOW);
		expect(said(taken, NOW + 10)).toBe('new');
		const other = { ...over, validUntilMs: NOW + 1, base: { workflowId: 'third', heartbeatCadence: null } };
		expect(said(receivePlan(taken, other, at({ wallMs: NOW + 10, share: 0 })))).toBe('third');
	});

	test('is the plan of a device that has none', () => {
		expect(said(receivePlan(EMPTY, over, at({ fallback: { ...nowhere, workflowId: 'own' }, share: 0 })))).toBe('new');
	});

	test('is followed, and stays so, once the clock shows an earlier time', () => {
		const before = applyDue(receivePlan(old, over, at()), NOW - 10);
		expect(said(before, NOW - 10)).toBe('new');
		expect(said(confirmed(before, NOW - 10))).toBe('new');
	});

	test('moves nothing where a slow clock has taken it, and the time is known before it is followed [F1353]', () => {
		const taken = receivePlan(old, { ...over, validUntilMs: NOW + 1 }, at({ share: 0 }));
		expect([said(taken), said(taken, NOW + 10)]).toEqual(['new', 'old']);
		expect(endedTrust(taken, NOW + 10)?.message).toMatch(/keeps running as it is/);
	});

	test('moves nothing where a ring and the end have passed while the device was off [F1394]', () => {
		const to = { workflowId: 'moved', heartbeatCadence: null };
		const ringed = part(9, 'old', { validUntilMs: NOW + 20, move: { to, percent: 100, atMs: NOW + 10 } });
		const followed = confirmed(receivePlan(old, ringed, at()), NOW);
		expect(confirmed(followed, NOW + 1)).toBe(followed);
		expect([said(followed, NOW + 10), said(followed, NOW + 20)]).toEqual(['moved', 'old']);
		expect(confirmed(followed, NOW + 20)).toBe(followed);
		const made = confirmed(followed, NOW + 15);
		expect([said(made, NOW + 20), said(confirmed(made, NOW + 20), NOW + 20)]).toEqual(['moved', 'moved']);
		// The first plan of a device is that of its neighbours, whenever it comes.
		expect(said(receivePlan(EMPTY, ringed, at({ wallMs: NOW + 30, share: 0 })), NOW + 30)).toBe('moved');
	});

	test('begins nothing when the clock goes back after its key was withdrawn', () => {
		const trust = { ...UNSIGNED, keys: ['a'] };
		const basis = { isSameBasis: true, wallMs: NOW };
		const left = withoutWithdrawn(receivePlan(old, over, at()), trust, basis);
		expect([said(left), said(applyDue(left, NOW - 10), NOW - 10)]).toEqual(['old', 'old']);
	});
});

test('of more floors than are kept the newest stay', () => {
	let record = EMPTY;
	for (let fleet = 0; fleet < MAX_FLOORS + 3; fleet += 1) {
		const trust = { source: `s${fleet}`, name: null, keys: [] };
		record = { ...record, floors: raisedFloors(record, part(fleet, 'w'), trust, []) };
	}
	expect(record.floors.map(({ revision }) => revision)).toEqual([...Array(MAX_FLOORS).keys()].map((at) => at + 3));
});
