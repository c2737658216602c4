import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { planSchemaOf } from '../../src/fleet/plan-format.ts';
import { type DeviceReport, type ProgressContext, standingOf, sumUp } from '../../src/fleet/progress.ts';
import { assignmentAt, compilePlan, planFor, rolloutPercentile, shareOfSpread } from '../../src/fleet/targeting.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const HOUR = 3_600_000;
const CONTEXT: ProgressContext = { nowMs: NOW, staleMs: HOUR, graceMs: 0, publishedMs: null };
const iso = (ms: number) => new Date(ms).toISOString();

const planOf = (more: object) =>
	compilePlan(planSchemaOf(null).parse({ format: 'idv-fleet-plan/1', revision: 7, spreadSeconds: 600, ...more }));
const rollout = (rings: object[]) =>
	planOf({ defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings, spreadSeconds: 0 } } });

const ordered = (version: string) => {
	const rings = [{ percent: 100, startAt: iso(NOW - 24 * HOUR), agent: { version } }];
	const plan = { format: 'idv-fleet-plan/2', revision: 7, spreadSeconds: 0, defaults: { rollout: { to: {}, rings } } };
	return compilePlan(planSchemaOf(plan).parse(plan));
};

const report = (more: Partial<DeviceReport> = {}): DeviceReport => ({
	deviceId: 'K-1',
	serial: null,
	macAddress: null,
	deviceType: null,
	labels: null,
	online: true,
	workflowId: 'old',
	heardAtMs: NOW - 1000,
	offlineSinceMs: null,
	planRevision: 7,
	planRefused: null,
	refusal: null,
	hindrance: null,
	next: null,
	agentVersion: null,
	problem: null,
	...more,
});

const ALL = { percent: 100 };
const TOMORROW = { percent: 100, startAt: iso(NOW + 24 * HOUR) };
const YESTERDAY = { percent: 100, startAt: iso(NOW - 24 * HOUR) };

const every = (heartbeatCadence: number, ring?: object) => {
	const words = { settings: { heartbeatCadence } };
	const said = ring ? { settings: { heartbeatCadence: 30 }, rollout: { to: words, rings: [ring] } } : words;
	return planOf({ spreadSeconds: 0, defaults: { workflowId: 'old', ...said } });
};

describe('a device', () => {
	test.each<[string, ReturnType<typeof planOf>, Partial<DeviceReport>, Partial<ProgressContext>, string]>([
		['that runs the target', rollout([ALL]), { workflowId: 'new' }, {}, 'atTarget'],
		['of no fleet that runs the target', rollout([ALL]), { workflowId: 'new', fleet: null }, {}, 'atTarget'],
		['of a fleet that the plan does not name', rollout([ALL]), { workflowId: 'new', fleet: 'south' }, {}, 'overdue'],
		[
			'that runs the target under an older revision',
			rollout([ALL]),
			{ workflowId: 'new', planRevision: 6 },
			{},
			'atTarget',
		],
		['whose ring is not due has not moved', rollout([TOMORROW]), {}, {}, 'dueLater'],
		['whose ring began yesterday and that has not moved', rollout([YESTERDAY]), {}, {}, 'overdue'],
		['has the grace that is given', rollout([YESTERDAY]), {}, { graceMs: 25 * HOUR }, 'dueLater'],
		[
			'has the grace that is given at its own moment, too',
			rollout([YESTERDAY]),
			{ next: { revision: 7, atMs: NOW - HOUR } },
			{ graceMs: 2 * HOUR },
			'dueLater',
		],
		[
			'whose own moment is longer ago',
			rollout([YESTERDAY]),
			{ next: { revision: 7, atMs: NOW - 2 * HOUR } },
			{ graceMs: 2 * HOUR },
			'overdue',
		],
		['in no ring is where it should be', rollout([{ percent: 0.01 }]), {}, {}, 'atTarget'],
		['that moved before its time', rollout([TOMORROW]), { workflowId: 'new' }, {}, 'overdue'],
		[
			'that moved within the grace before it',
			rollout([TOMORROW]),
			{ workflowId: 'new' },
			{ graceMs: 24 * HOUR },
			'atTarget',
		],
		['that the plan leaves alone', planOf({}), { workflowId: 'other' }, {}, 'atTarget'],
		['that refused this revision', rollout([ALL]), { planRefused: 7 }, {}, 'refused'],
		['that refused an older one and is late', rollout([ALL]), { planRefused: 6 }, {}, 'overdue'],
		['whose version is the ordered one', ordered('0.3.0'), { agentVersion: '0.3.0' }, {}, 'atTarget'],
		['that has another version', ordered('0.3.0'), { agentVersion: '0.2.0' }, {}, 'overdue'],
		[
			'that took the ordered version back',
			ordered('0.3.0'),
			{ agentVersion: '0.2.0', takenBack: [{ version: '0.3.0', fault: 'crashes' }] },
			{},
			'refused',
		],
		[
			'that took an older version back',
			ordered('0.3.0'),
			{ agentVersion: '0.3.0', takenBack: [{ version: '0.2.9', fault: 'crashes' }] },
			{},
			'atTarget',
		],
		['whose heartbeats are as the plan says', every(3600), { heartbeatCadence: 3600, planRevision: 6 }, {}, 'atTarget'],
		['whose heartbeats are not', every(3600), { heartbeatCadence: 30 }, {}, 'overdue'],
		['that does not say them under this revision', every(3600), {}, {}, 'atTarget'],
		['that does not say them under an older one', every(3600), { planRevision: 6 }, {}, 'overdue'],
		['whose heartbeats change by a ring to come', every(3600, TOMORROW), { heartbeatCadence: 30 }, {}, 'dueLater'],
		['whose heartbeats had to change by a ring', every(3600, YESTERDAY), { heartbeatCadence: 30 }, {}, 'overdue'],
		['that is offline', rollout([ALL]), { online: false, workflowId: 'new' }, {}, 'offline'],
		['that said online two hours ago', rollout([ALL]), { workflowId: 'new', heardAtMs: NOW - 2 * HOUR }, {}, 'offline'],
		['that sends no heartbeats and is online', rollout([ALL]), { workflowId: 'new', heardAtMs: null }, {}, 'atTarget'],
		[
			'that waits for its share of the spread',
			rollout([ALL]),
			{ next: { revision: 7, atMs: NOW + 60_000 } },
			{},
			'dueLater',
		],
		[
			'whose share of the spread was another revision',
			rollout([ALL]),
			{ next: { revision: 6, atMs: NOW + 60_000 } },
			{},
			'overdue',
		],
		['just after the plan was published', rollout([ALL]), {}, { publishedMs: NOW - 1 }, 'dueLater'],
		['long after the plan was published', rollout([ALL]), {}, { publishedMs: NOW - HOUR }, 'overdue'],
	])('%s', (_, plan, said, context, standing) => {
		expect(standingOf(plan, null, report(said), { ...CONTEXT, ...context }).standing).toBe(standing);
	});

	test('that only the inventory knows was never seen', () => {
		const known = { deviceId: 'K-9', serial: null, macAddress: null, deviceType: null, labels: [] };
		expect(standingOf(rollout([ALL]), known, null, CONTEXT)).toMatchObject({ standing: 'neverSeen', target: 'new' });
	});

	test('says when it moves, since when it is offline, and why it does not follow', () => {
		const later = standingOf(rollout([TOMORROW]), null, report(), CONTEXT);
		expect(later.atMs).toBe(NOW + 24 * HOUR);
		const offline = standingOf(rollout([ALL]), null, report({ online: false, offlineSinceMs: NOW - 5 }), CONTEXT);
		expect(offline).toMatchObject({ atMs: NOW - 5, hasFailed: true });
		const stale = standingOf(rollout([ALL]), null, report({ heardAtMs: NOW - 2 * HOUR }), CONTEXT);
		expect(stale).toMatchObject({ atMs: NOW - 2 * HOUR, reason: expect.stringMatching(/nothing was heard since/) });
		const refused = standingOf(rollout([ALL]), null, report({ planRefused: 7, refusal: 'No such workflow.' }), CONTEXT);
		expect(refused.reason).toBe('No such workflow.');
	});

	test('is chosen by its own labels, as the device chooses; by those of the inventory where it reports none', () => {
		const plan = planOf({ rules: [{ name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'new' }] });
		const known = { deviceId: 'K-1', serial: null, macAddress: null, deviceType: null, labels: ['yard'] };
		expect(standingOf(plan, null, report({ labels: ['lobby'] }), CONTEXT).target).toBe('new');
		expect(standingOf(plan, known, report({ labels: ['lobby'] }), CONTEXT).target).toBe('new');
		expect(standingOf(plan, { ...known, labels: ['lobby'] }, report(), CONTEXT).target).toBe('new');
		expect(standingOf(plan, { ...known, labels: ['lobby'] }, report({ labels: [] }), CONTEXT).target).toBeNull();
	});
});

test('a device is at its target exactly if it is live with what the agent itself would do', () => {
	const ring = fc.record({
		percent: fc.integer({ min: 1, max: 100 }),
		startAt: fc.option(
			fc.integer({ min: -48, max: 48 }).map((hours) => iso(NOW + hours * HOUR)),
			{ nil: undefined },
		),
	});
	fc.assert(
		fc.property(
			fc.array(ring, { minLength: 1, maxLength: 4 }),
			fc.nat(5000),
			fc.constantFrom('old', 'new'),
			(rings, id, live) => {
				const plan = rollout(JSON.parse(JSON.stringify(rings)));
				const deviceId = `K-${id}`;
				const device = { deviceId, serial: null, macAddress: null, deviceType: null, labels: [] };
				const part = planFor(plan, device, NOW).part;
				const target = assignmentAt(part, NOW).workflowId;
				const { standing } = standingOf(plan, device, report({ deviceId, workflowId: live }), CONTEXT);
				const moves = part.move !== null && assignmentAt(part, NOW) !== part.move.to;
				expect(standing).toBe(target !== live ? 'overdue' : moves ? 'dueLater' : 'atTarget');
			},
		),
		{ numRuns: 500 },
	);
});

describe('a fleet', () => {
	const plan = rollout([{ percent: 10 }, TOMORROW]);
	const ids = Array.from({ length: 1000 }, (_, index) => `K-${index}`);
	const inFirst = new Set(ids.filter((id) => rolloutPercentile(id) < 10));
	const fleet = (of: (id: string) => Partial<DeviceReport> | null) =>
		ids.map((deviceId) => {
			const said = of(deviceId);
			const known = { deviceId, serial: null, macAddress: null, deviceType: null, labels: [] };
			return standingOf(plan, known, said && report({ deviceId, ...said }), CONTEXT);
		});

	test('is judged by the ring that has begun, not by all its devices', () => {
		const bad = [...inFirst].slice(0, 5);
		const { judged, refused, dueLater, atTarget } = sumUp(
			fleet((id) => (bad.includes(id) ? { planRefused: 7 } : inFirst.has(id) ? { workflowId: 'new' } : {})),
		);
		expect({ refused, dueLater, atTarget }).toEqual({
			refused: 5,
			dueLater: 1000 - inFirst.size,
			atTarget: inFirst.size - 5,
		});
		expect(judged).toEqual({ devices: inFirst.size, reported: inFirst.size, failed: 5 });
	});

	test('counts as failed what was not heard of, however long ago, once its ring has begun [F452]', () => {
		const begun = rollout([{ ...YESTERDAY, percent: 100 }]);
		const one = (said: Partial<DeviceReport>) =>
			sumUp([standingOf(begun, null, report({ online: false, ...said }), CONTEXT)]).judged;
		expect(one({ offlineSinceMs: NOW - 30 * HOUR })).toEqual({ devices: 1, reported: 0, failed: 1 });
		expect(one({ offlineSinceMs: NOW - HOUR })).toEqual({ devices: 1, reported: 1, failed: 1 });
		const silent = sumUp(fleet(() => null));
		expect(silent.judged).toEqual({ devices: inFirst.size, reported: 0, failed: inFirst.size });
		const known = { deviceId: 'K-1', serial: null, macAddress: null, deviceType: null, labels: [] };
		const never = (graceMs: number, ring: object) =>
			sumUp([standingOf(rollout([ring]), known, null, { ...CONTEXT, graceMs })]).judged;
		expect(never(25 * HOUR, YESTERDAY)).toEqual({ devices: 1, reported: 0, failed: 0 });
		expect(never(23 * HOUR, YESTERDAY)).toEqual({ devices: 1, reported: 0, failed: 1 });
		expect(never(0, TOMORROW)).toEqual({ devices: 0, reported: 0, failed: 0 });
	});

	test('has not reported while a share of the spread is to come', () => {
		const context = { ...CONTEXT, publishedMs: NOW - 1 };
		const progress = sumUp([standingOf(rollout([ALL]), null, report(), context)]);
		expect(progress).toMatchObject({ dueLater: 1, judged: { devices: 1, reported: 0, failed: 0 } });
		expect(progress.steps).toMatchObject([{ later: 1 }]);
	});

	test('is due at its own moment of the spread after the plan was published [F1848]', () => {
		const plan = planOf({ defaults: { workflowId: 'new' } });
		const { standing, atMs } = standingOf(plan, null, report(), { ...CONTEXT, publishedMs: NOW });
		expect({ standing, atMs }).toEqual({
			standing: 'dueLater',
			atMs: NOW + Math.round(shareOfSpread('K-1') * 600_000),
		});
	});

	test('counts devices of a ring to come by what they have, so that one that is offline is one among all of them [F1343]', () => {
		const later = ids.filter((id) => !inFirst.has(id));
		const stepWith = (said: Partial<DeviceReport>) =>
			sumUp(fleet((id) => (inFirst.has(id) ? { workflowId: 'new' } : id === later[0] ? said : {}))).steps.filter(
				({ isRing }) => !isRing,
			);
		const step = { devices: later.length, reported: later.length, failed: 1, later: 0 };
		expect(stepWith({ online: false, offlineSinceMs: NOW - 60_000 })).toMatchObject([step]);
		expect(stepWith({ workflowId: 'other' })).toMatchObject([step]);
	});

	test('that chooses by labels says of a device whose own are not told that they may differ [F1340]', () => {
		const byLabel = planOf({
			spreadSeconds: 0,
			rules: [{ name: 'A', match: { labels: ['north'] }, workflowId: 'new' }],
		});
		const known = { deviceId: 'K-1', serial: null, macAddress: null, deviceType: null, labels: ['north'] };
		const { standing, reason } = standingOf(byLabel, known, report(), CONTEXT);
		expect([standing, reason]).toEqual([
			'overdue',
			'no reason is reported: its own settings may name it, or its labels differ from those of the inventory',
		]);
	});

	test('that is over is the reason of a device that did not do it in time, and no guess about labels [F1426]', () => {
		const validUntil = iso(NOW - HOUR);
		const plan = {
			...{ format: 'idv-fleet-plan/2', revision: 7, spreadSeconds: 0, validUntil },
			rules: [{ name: 'A', match: { labels: ['north'] }, workflowId: 'new' }],
		};
		const known = { deviceId: 'K-1', serial: null, macAddress: null, deviceType: null, labels: ['north'] };
		const { reason } = standingOf(compilePlan(planSchemaOf(plan).parse(plan)), known, report(), CONTEXT);
		expect(reason).toBe(`the plan was valid until ${validUntil}: nothing begins by it any more`);
	});

	test('groups reasons without the names of devices, the most frequent first', () => {
		const { reasons, rings } = sumUp(
			fleet((id) => ({
				planRefused: 7,
				refusal: Number(id.slice(2)) % 3 === 0 ? 'No room.' : `${id}: unknown workflow.`,
			})),
		);
		expect(reasons.map(({ reason, devices }) => [reason, devices])).toEqual([
			['the device: unknown workflow.', 666],
			['No room.', 334],
		]);
		expect(rings.map(({ percent, devices }) => [percent, devices])).toEqual([
			[10, inFirst.size],
			[100, 1000 - inFirst.size],
		]);
	});
});
