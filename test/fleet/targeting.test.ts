import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type FleetPlan, planSchemaOf } from '../../src/fleet/plan-format.ts';
import {
	assignmentAt,
	compilePlan,
	fittingRules,
	type PlannedDevice,
	planFor,
	rolloutPercentile,
	shareOfSpread,
} from '../../src/fleet/targeting.ts';
import type { DevicePlan } from '../../src/state/plan-record.ts';

function given(document: object): FleetPlan {
	return planSchemaOf({}).parse({ format: 'idv-fleet-plan/1', revision: 1, ...document });
}

function device(more: Partial<PlannedDevice> = {}): PlannedDevice {
	return { deviceId: 'K-1', serial: null, macAddress: null, deviceType: null, labels: [], ...more };
}

const partOf = (document: object, of = device()): DevicePlan => planFor(compilePlan(given(document)), of, 0).part;
const word = (workflowId: string | null, heartbeatCadence: number | null = null) => ({ workflowId, heartbeatCadence });
const deviceIds = fc.stringMatching(/^[A-Z]{1,4}-\d{1,6}$/);

describe('which rule is a device', () => {
	const fits: [string, object, Partial<PlannedDevice>, boolean][] = [
		['its id', { deviceIds: ['K-1'] }, {}, true],
		['another id', { deviceIds: ['K-10'] }, {}, false],
		['the beginning of its id', { deviceIds: ['K-*'] }, {}, true],
		['an id that only ends so', { deviceIds: ['-1*'] }, {}, false],
		['its serial', { serials: ['S-9', 'S-1'] }, { serial: 'S-1' }, true],
		['the beginning of a serial', { serials: ['S*'] }, { serial: 'S-1' }, true],
		['a serial where it has none', { serials: ['S-1'] }, {}, false],
		[
			'its MAC address in other letters',
			{ macAddresses: ['00-1B-21-0A-0B-0C'] },
			{ macAddress: '00:1b:21:0a:0b:0c' },
			true,
		],
		['its type', { deviceTypes: ['scanner', 'kiosk'] }, { deviceType: 'kiosk' }, true],
		['one of its labels', { labels: ['lobby', 'x'] }, { labels: ['berlin', 'lobby'] }, true],
		['none of its labels', { labels: ['lobby'] }, { labels: ['berlin'] }, false],
		[
			'all of several kinds',
			{ labels: ['lobby'], deviceTypes: ['kiosk'] },
			{ labels: ['lobby'], deviceType: 'kiosk' },
			true,
		],
		['one of two kinds', { labels: ['lobby'], deviceTypes: ['kiosk'] }, { labels: ['lobby'] }, false],
	];
	test.each(fits)('by %s', (_, match, more, expected) => {
		const part = partOf({ rules: [{ name: 'r', match, workflowId: 'w' }] }, device(more));
		expect(part.rule).toBe(expected ? 'r' : null);
	});

	test('the first that fits counts, and the others are told', () => {
		const rules = ['a', 'b', 'c'].map((name) => ({
			name,
			match: { deviceIds: [name === 'a' ? 'X' : 'K-*'] },
			workflowId: name,
		}));
		const compiled = compilePlan(given({ rules }));
		expect(planFor(compiled, device(), 0)).toMatchObject({ rule: 'b', ...word('b') });
		expect(fittingRules(compiled, device())).toEqual(['b', 'c']);
	});

	test('and without one the defaults, or nothing', () => {
		expect(partOf({ defaults: { workflowId: 'w', settings: { heartbeatCadence: 60 } } })).toEqual({
			rule: null,
			base: word('w', 60),
			move: null,
		});
		expect(partOf({})).toEqual({ rule: null, base: word(null), move: null });
	});
});

describe('what a rule leaves open', () => {
	const defaults = { workflowId: 'w', settings: { heartbeatCadence: 60 } };
	const rule = (more: object) => ({ defaults, rules: [{ name: 'r', match: { deviceIds: ['K-1'] }, ...more }] });

	test('stands in the defaults', () => {
		expect(partOf(rule({ settings: { heartbeatCadence: 10 } })).base).toEqual(word('w', 10));
		expect(partOf(rule({ workflowId: 'x' })).base).toEqual(word('x', 60));
	});

	test('null takes the workflow out of the plan', () => {
		expect(partOf(rule({ workflowId: null })).base).toEqual(word(null, 60));
	});

	test('a rule that leaves the workflow to the defaults moves with them, and keeps its own cadence', () => {
		const rollout = { to: { workflowId: 'new', settings: { heartbeatCadence: 5 } }, rings: [{ percent: 100 }] };
		const document = (more: object) => ({ ...rule(more), defaults: { ...defaults, rollout } });
		expect(partOf(document({ settings: { heartbeatCadence: 10 } })).move).toMatchObject({ to: word('new', 10) });
		expect(partOf(document({ workflowId: 'own' })).move).toBeNull();
	});
});

describe('a rollout', () => {
	const rollout = (rings: object[], more: object = {}) => ({
		defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings, ...more } },
	});
	const startAt = '2026-12-01T04:00:00+02:00';
	const startMs = Date.UTC(2026, 11, 1, 2);

	test('keeps every device of a ring that is made larger, and takes it no later', () => {
		const percent = fc.integer({ min: 1, max: 10_000 }).map((hundredths) => hundredths / 100);
		fc.assert(
			fc.property(deviceIds, percent, percent, (deviceId, one, other) => {
				const [small, large] = [Math.min(one, other), Math.max(one, other)];
				const isIn = (size: number) => partOf(rollout([{ percent: size }]), device({ deviceId })).move !== null;
				return !isIn(small) || isIn(large);
			}),
		);
	});

	test('holds as many devices as it says, also of ids that count up', () => {
		for (const name of ['KIOSK-', 'SN', '0000-'])
			for (const percent of [1, 10, 50]) {
				const ids = Array.from({ length: 20_000 }, (_, index) => `${name}${String(index).padStart(5, '0')}`);
				const share = ids.filter((id) => rolloutPercentile(id) < percent).length / 200;
				expect(Math.abs(share - percent), `${name} ${percent} %: ${share}`).toBeLessThan(Math.max(0.3, percent / 20));
			}
	});

	test('of all holds every device', () => {
		fc.assert(
			fc.property(fc.string(), (deviceId) => rolloutPercentile(deviceId) < 100 && rolloutPercentile(deviceId) >= 0),
		);
		expect(partOf(rollout([{ percent: 100 }])).move).toMatchObject({ to: word('new'), percent: 100, atMs: null });
	});

	test('spreads a start over all its seconds, always alike for a device and whatever its ring', () => {
		const ids = Array.from({ length: 10_000 }, (_, index) => `K-${index}`);
		const buckets = new Array<number>(10).fill(0);
		for (const deviceId of ids) {
			const part = partOf(rollout([{ percent: 100, startAt }], { spreadSeconds: 1000 }), device({ deviceId }));
			const offsetMs = (part.move?.atMs ?? 0) - startMs;
			expect(offsetMs).toBe(Math.round(shareOfSpread(deviceId) * 1_000_000));
			// The first ring is as spread out as any other.
			if (rolloutPercentile(deviceId) < 30)
				buckets[Math.floor(offsetMs / 100_000)] = (buckets[Math.floor(offsetMs / 100_000)] ?? 0) + 1;
		}
		for (const count of buckets) expect(count).toBeGreaterThan(200);
	});

	test('spreads over ten minutes unless the plan or the rollout says otherwise', () => {
		const atMs = (document: object) => partOf(document).move?.atMs ?? 0;
		const share = shareOfSpread('K-1');
		expect(atMs(rollout([{ percent: 100, startAt }])) - startMs).toBe(Math.round(share * 600_000));
		expect(atMs({ ...rollout([{ percent: 100, startAt }]), spreadSeconds: 0 })).toBe(startMs);
		const both = { ...rollout([{ percent: 100, startAt }], { spreadSeconds: 60 }), spreadSeconds: 0 };
		expect(atMs(both) - startMs).toBe(Math.round(share * 60_000));
	});

	test('moves a device with the earliest ring that holds it', () => {
		const place = rolloutPercentile('K-1');
		const late = '2026-12-05T00:00:00Z';
		const rings = [{ percent: place / 2 }, { percent: 100, startAt: late }, { percent: place + 0.01, startAt }];
		expect(partOf({ ...rollout(rings), spreadSeconds: 0 }).move).toMatchObject({
			atMs: startMs,
			percent: place + 0.01,
		});
		expect(partOf(rollout([...rings, { percent: 100 }])).move).toMatchObject({ atMs: null });
		expect(partOf(rollout([{ percent: place }])).move).toBeNull();
	});

	test('begins at its moment, and a plan without a start at once', () => {
		const part = partOf({ ...rollout([{ percent: 100, startAt }]), spreadSeconds: 0 });
		expect(assignmentAt(part, startMs - 1)).toEqual(word('old'));
		expect(assignmentAt(part, startMs)).toEqual(word('new'));
		expect(assignmentAt(partOf(rollout([{ percent: 100 }])), 0)).toEqual(word('new'));
	});

	test('to what holds already is none', () => {
		const same = { defaults: { workflowId: 'w', rollout: { to: { workflowId: 'w' }, rings: [{ percent: 100 }] } } };
		expect(partOf(same).move).toBeNull();
	});
});
