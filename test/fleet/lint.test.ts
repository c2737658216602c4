import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkPlan } from '../../src/fleet/lint.ts';
import { type FleetPlan, planSchemaOf } from '../../src/fleet/plan-format.ts';
import { diffPlans, type InventoryDevice, previewPlan } from '../../src/fleet/preview.ts';
import { compilePlan, type PlannedDevice, planFor } from '../../src/fleet/targeting.ts';

const given = (document: object): FleetPlan =>
	planSchemaOf(document).parse({ format: 'idv-fleet-plan/1', revision: 1, ...document });

/** Rules by their matches; each says something of its own. */
const rulesOf = (...matches: object[]) =>
	given({ rules: matches.map((match, index) => ({ name: `r${index}`, match, workflowId: `w${index}` })) });
const found = (plan: FleetPlan, level: string) =>
	checkPlan(plan).flatMap((finding) => (finding.level === level ? [`/${finding.path.join('/')} ${finding.what}`] : []));

describe('a rule that can never count', () => {
	test.each<[string, object[], RegExp]>([
		[
			'fits the same',
			[{ deviceIds: ['a', 'b'] }, { deviceIds: ['b'] }],
			/^\/rules\/1 \(r1\) can never apply: .* rule r0 before it/,
		],
		['fits less of a kind', [{ labels: ['x', 'y'] }, { labels: ['x'], deviceTypes: ['kiosk'] }], /rule r0/],
		['is covered by a pattern', [{ deviceIds: ['K-*'] }, { deviceIds: ['K-1', 'K-2*'] }], /rule r0/],
		['is taken by several together', [{ serials: ['a'] }, { serials: ['b'] }, { serials: ['a', 'b'] }], /rules r0, r1/],
	])('%s', (_, matches, words) => {
		expect(found(rulesOf(...matches), 'error')).toEqual([expect.stringMatching(words)]);
	});

	test.each<[string, object[]]>([
		['a value is its own', [{ deviceIds: ['a'] }, { deviceIds: ['a', 'b'] }]],
		['a pattern is wider', [{ deviceIds: ['K-1*'] }, { deviceIds: ['K-*'] }]],
		['the one before asks for more', [{ labels: ['x'], deviceTypes: ['kiosk'] }, { labels: ['x'] }]],
		['kinds are different', [{ labels: ['x'] }, { deviceTypes: ['kiosk'] }]],
	])('is none where %s', (_, matches) => {
		expect(found(rulesOf(...matches), 'error')).toEqual([]);
	});

	test('counts for no device at all', () => {
		const values = fc.uniqueArray(fc.constantFrom('a', 'b', 'ab', 'a*', 'ab*'), { minLength: 1, maxLength: 3 });
		const plain = fc.uniqueArray(fc.constantFrom('x', 'y', 'z'), { minLength: 1, maxLength: 3 });
		const match = fc
			.record({ deviceIds: values, labels: plain, deviceTypes: plain }, { requiredKeys: [] })
			.filter((kinds) => Object.keys(kinds).length > 0);
		const device: fc.Arbitrary<PlannedDevice> = fc.record({
			deviceId: fc.constantFrom('a', 'b', 'ab', 'abc', 'ac'),
			labels: fc.subarray(['x', 'y', 'z', 'q']),
			deviceType: fc.constantFrom('x', 'y', 'z', null),
			serial: fc.constant(null),
			macAddress: fc.constant(null),
		});
		let hidden = 0;
		fc.assert(
			fc.property(
				fc.array(match, { minLength: 2, maxLength: 5 }),
				fc.array(device, { minLength: 20, maxLength: 40 }),
				(matches, devices) => {
					const plan = rulesOf(...matches);
					const compiled = compilePlan(plan);
					const names = checkPlan(plan).flatMap(({ level, path }) => (level === 'error' ? [`r${path[1]}`] : []));
					hidden += names.length;
					for (const one of devices) expect(names).not.toContain(planFor(compiled, one, 0).rule);
				},
			),
			{ numRuns: 500 },
		);
		expect(hidden).toBeGreaterThan(50);
	});
});

describe('worth a look', () => {
	test('are rules that may both fit and say different things', () => {
		expect(found(rulesOf({ deviceIds: ['a', 'b'] }, { deviceIds: ['b', 'c'] }), 'note')).toEqual([
			'/rules/1 (r1) may match devices of rule r0 (b); that rule comes first and applies',
		]);
		expect(found(rulesOf({ labels: ['x'] }, { deviceTypes: ['kiosk'] }), 'note')).toHaveLength(1);
		expect(found(rulesOf({ labels: ['x'] }, { labels: ['y'] }), 'note')).toHaveLength(1);
		expect(found(rulesOf({ deviceIds: ['a'] }, { deviceIds: ['b'] }), 'note')).toEqual([]);
		const same = given({ rules: ['x', 'y'].map((name) => ({ name, match: { labels: [name] }, workflowId: 'w' })) });
		expect(checkPlan(same)).toEqual([]);
	});

	test('are rings that add nobody, and rollouts that change nothing', () => {
		const rings = [
			{ percent: 50, startAt: '2026-12-01T00:00:00Z' },
			{ percent: 20, startAt: '2026-12-02T00:00:00Z' },
			{ percent: 100, startAt: '2026-12-03T00:00:00Z' },
		];
		expect(
			found(given({ defaults: { workflowId: 'a', rollout: { to: { workflowId: 'b' }, rings } } }), 'note'),
		).toEqual(['/defaults/rollout/rings/1 adds no device: ring 0 is as large and starts no later']);
		const idle = { workflowId: 'a', rollout: { to: { workflowId: 'a' }, rings: [{ percent: 100 }] } };
		expect(found(given({ defaults: idle }), 'note')).toEqual(['/defaults/rollout/to changes nothing']);
		const agent = (version: string) => ({ agent: { version } });
		const first = (percent: number, version: string) => ({ percent, ...agent(version) });
		const overruled = (...orders: object[]) =>
			found(given({ format: 'idv-fleet-plan/2', defaults: { rollout: { to: {}, rings: orders } } }), 'note');
		expect(overruled(first(1, '0.4.0'), first(50, '0.3.0'))).toEqual([
			'/defaults/rollout/rings/0 orders 0.4.0 for no device: ring 1 is as large, and it orders 0.3.0',
		]);
		expect(overruled(first(50, '0.4.0'), first(50, '0.3.0')).join()).toContain('rings/0 orders 0.4.0 for no device');
		expect(overruled(first(1, '0.3.0'), first(50, '0.3.0')).join()).not.toContain('for no device');
		expect(overruled(first(100, '0.3.0'), first(1, '0.4.0'))).toEqual([]);
		const [then, later] = [{ startAt: '2026-12-01T00:00:00Z' }, { startAt: '2026-12-02T00:00:00Z' }];
		const timed = overruled({ ...first(1, '0.4.0'), ...then }, { ...first(50, '0.3.0'), ...then });
		expect(timed.join()).toContain('rings/0 orders 0.4.0 for no device');
		expect(overruled({ ...first(1, '0.4.0'), ...then }, { ...first(50, '0.3.0'), ...later })).toEqual([]);
		expect(overruled(first(1, '0.3.0'), first(50, '0.4.0'))).toEqual([]);
		const updating = [
			{ percent: 100, startAt: '2026-12-01T00:00:00Z', ...agent('0.3.0') },
			{ percent: 10, startAt: '2026-12-02T00:00:00Z', ...agent('0.3.1') },
		];
		const orders = { format: 'idv-fleet-plan/2', defaults: { workflowId: 'a', rollout: { to: {}, rings: updating } } };
		expect(found(given(orders), 'note').join()).not.toMatch(/changes nothing|adds no device/);
		expect(found(given({ rules: [{ name: 'r', match: { labels: ['x'] } }] }), 'note')).toEqual([
			'/rules/0 (r) says nothing that the defaults do not',
		]);
	});
});

describe('a preview', () => {
	const inventory = (count: number, more: Partial<InventoryDevice> = {}): InventoryDevice[] =>
		Array.from({ length: count }, (_, index) => ({
			deviceId: `K-${index}`,
			serial: null,
			macAddress: null,
			deviceType: null,
			labels: [],
			workflowId: 'a',
			...more,
		}));
	const NOW = Date.UTC(2026, 10, 1);

	test('counts who moves from what to what, when, and who stays', () => {
		const rollout = { to: { workflowId: 'c' }, rings: [{ percent: 100, startAt: '2026-12-01T00:00:00Z' }] };
		const plan = given({
			defaults: { workflowId: null },
			rules: [
				{ name: 'late', match: { labels: ['late'] }, workflowId: 'b', rollout },
				{ name: 'stay', match: { labels: ['stay'] }, workflowId: 'a' },
			],
		});
		const devices = [...inventory(3, { labels: ['late'] }), ...inventory(2, { labels: ['stay'] }), ...inventory(4)];
		const preview = previewPlan(compilePlan(plan), devices, NOW);
		expect(preview).toMatchObject({ devices: 9, moves: 3, stays: 2, leftAlone: 4 });
		expect(preview.groups).toMatchObject([
			{ from: 'a', to: 'b', rule: 'late', devices: 3, first: null },
			{ from: 'b', to: 'c', rule: 'late', devices: 3, percent: 100 },
		]);
		const { first, last } = preview.groups[1] ?? {};
		expect(Date.parse(first ?? '')).toBeGreaterThanOrEqual(Date.UTC(2026, 11, 1));
		expect(Date.parse(last ?? '')).toBeLessThan(Date.UTC(2026, 11, 1, 0, 10));
	});

	test('does not repeat a move that has been made', () => {
		const rollout = { to: { workflowId: 'a' }, rings: [{ percent: 100, startAt: '2026-10-01T00:00:00Z' }] };
		const plan = given({ defaults: { workflowId: 'old', rollout } });
		expect(previewPlan(compilePlan(plan), inventory(5), NOW)).toMatchObject({ moves: 0, stays: 5 });
		expect(previewPlan(compilePlan(plan), inventory(5), Date.UTC(2026, 8, 1)).groups).toMatchObject([
			{ from: 'a', to: 'old', devices: 5 },
			{ from: 'old', to: 'a', devices: 5 },
		]);
	});

	test('agrees with what each device will decide', () => {
		const share = fc.integer({ min: 1, max: 100 });
		fc.assert(
			fc.property(share, fc.boolean(), (percent, isLater) => {
				const ring = { percent, ...(isLater && { startAt: '2026-12-01T00:00:00Z' }) };
				const compiled = compilePlan(
					given({ defaults: { workflowId: 'a', rollout: { to: { workflowId: 'b' }, rings: [ring] } } }),
				);
				const devices = inventory(200);
				const inRing = devices.filter((device) => planFor(compiled, device, NOW).part.move !== null).length;
				expect(previewPlan(compiled, devices, NOW).moves).toBe(inRing);
			}),
		);
	});
});

test('a difference between plans is told in words, long lists by their ends', () => {
	const before = given({
		defaults: { workflowId: 'a' },
		rules: [
			{ name: 'x', match: { deviceIds: ['1', '2', '3', '4', '5'] }, workflowId: 'b' },
			{ name: 'y', match: { labels: ['y'] }, workflowId: 'c' },
			{ name: 'z', match: { labels: ['z'] }, workflowId: null },
		],
	});
	const after = given({
		revision: 2,
		defaults: { workflowId: 'a', settings: { heartbeatCadence: 60 } },
		rules: [
			{ name: 'z', match: { labels: ['z'] }, workflowId: 'd' },
			{ name: 'x', match: { deviceIds: ['1', '6'] }, workflowId: 'b' },
			{
				name: 'n',
				match: { labels: ['n'] },
				workflowId: 'e',
				rollout: { to: { workflowId: 'f' }, rings: [{ percent: 5 }] },
			},
		],
	});
	const told = diffPlans(before, after).map(({ what, before: old, after: now }) => `${what}: ${old} → ${now}`);
	expect(told).toEqual([
		'revision: 1 → 2',
		'defaults, heartbeatCadence: null → 60',
		'rule y: c → null',
		'rule z, workflowId: left alone → d',
		'rule x, deviceIds: −2 −3 −4 and 1 more → +6',
		'rule n: null → e, to f: 5 %',
		'order of the rules: x, z → z, x',
	]);
	expect(diffPlans(before, before)).toEqual([]);
});
