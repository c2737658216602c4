import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { applyBrakes, asAssigned, type Brakes } from '../../src/fleet/brakes.ts';
import { checkLimits } from '../../src/fleet/lint.ts';
import { nextPlan, RINGS, type Step } from '../../src/fleet/next-plan.ts';
import { planSchemaOf } from '../../src/fleet/plan-format.ts';
import { type InventoryDevice, previewPlan } from '../../src/fleet/preview.ts';
import { compilePlan, planFor, rolloutPercentile } from '../../src/fleet/targeting.ts';
import { MAX_LISTED_VALUES } from '../../src/fleet/terms.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const HOUR = 3_600_000;
const iso = (ms: number) => new Date(ms).toISOString();
const document = (more: object, revision = 7) =>
	({ format: 'idv-fleet-plan/1', revision, ...more }) as Record<string, unknown>;
const planOf = (more: object, revision = 7) => planSchemaOf(more).parse(document(more, revision));
const device = (deviceId: string, labels: string[] = [], workflowId: string | null = 'old'): InventoryDevice => ({
	deviceId,
	serial: null,
	macAddress: null,
	deviceType: null,
	labels,
	workflowId,
});
const INVENTORY = Array.from({ length: 100 }, (_, n) => device(`K-${n}`, [n < 5 ? 'lobby' : 'yard']));
/** Names that devices are known to have had. */
const KNOWN = { workflows: ['old', 'new'], versions: ['0.3.0', '0.3.1', '0.4.0', '0.9.0', '0.10.0', '0.11.0'] };
const said = (plan: ReturnType<typeof planOf>, brakes: Partial<Brakes>) =>
	applyBrakes(plan, { nowMs: NOW, known: KNOWN, allowEmptyRing: true, allowRepeat: true, ...brakes }).map(
		({ level, path, what }) => `${level} /${path.join('/')} ${what}`,
	);
const lobby = (rings: object[] | null, match: object = { labels: ['lobby'] }) =>
	planOf({
		rules: [
			{ name: 'lobby', match, workflowId: 'old', ...(rings && { rollout: { to: { workflowId: 'new' }, rings } }) },
		],
	});
const update = (version: string, percent: number) => ({
	format: 'idv-fleet-plan/2',
	revision: 7,
	defaults: { rollout: { to: {}, rings: [{ percent, agent: { version } }] } },
});

describe('a device whose ordered version changes is one that moves', () => {
	const inForce = (version: string, percent: number) => ({ plan: planOf(update(version, percent)), isSame: false });
	const next = (version: string, percent: number) => planOf({ ...update(version, percent), revision: 8 });
	const reached = (percent: number) => INVENTORY.filter(({ deviceId }) => rolloutPercentile(deviceId) < percent).length;

	test.each<[string, string, number, number]>([
		['more devices get it', '0.3.0', 50, reached(50) - reached(10)],
		['those that had another get it', '0.4.0', 10, reached(10)],
		['both', '0.4.0', 50, reached(50)],
	])('%s: %s for %i %', (_, version, percent, count) => {
		const brakes = { inventory: INVENTORY, previous: inForce('0.3.0', 10), maxMoves: 0 };
		expect(said(next(version, percent), brakes)).toEqual([
			`error /defaults moves ${count} of 100 devices (${count} %), and 0 % may move; if that is meant, pass --allow-moves ${count}`,
		]);
		expect(said(next(version, percent), { ...brakes, allowMoves: count })).toEqual([]);
		expect(said(next('0.3.0', 10), brakes)).toEqual([]);
	});

	test('an older version than one that a ring has brought is a note, and one that stays in the plan is none', () => {
		const previous = inForce('0.10.0', 10);
		expect(said(next('0.9.0', 10), { previous })).toEqual([
			'note /defaults/rollout/rings/0/agent/version is older than 0.10.0, which the previous plan ordered: a device that has had 0.10.0 does not install it',
		]);
		expect(said(next('0.11.0', 10), { previous })).toEqual([]);
		const rings = ['0.9.0', '0.10.0'].map((version) => ({ percent: 10, agent: { version } }));
		const both = planOf({ ...update('0.9.0', 10), revision: 8, defaults: { rollout: { to: {}, rings } } });
		expect(said({ ...both, revision: 9 }, { previous: { plan: both, isSame: false } })).toEqual([]);
	});

	test('all of them at once are a slip, unless no plan says that it is new', () => {
		const all = /^error \/defaults moves all 100 devices at once/;
		const previous = inForce('0.3.0', 10);
		expect(said(next('0.4.0', 100), { inventory: INVENTORY, previous }).join('\n')).toMatch(new RegExp(all, 'm'));
		expect(said(next('0.4.0', 100), { inventory: INVENTORY }).join('\n')).not.toMatch(new RegExp(all, 'm'));
	});

	test('a device that gets a workflow and a version is one device', () => {
		const both = { to: { workflowId: 'new' }, rings: [{ percent: 100, agent: { version: '0.3.0' } }] };
		const plan = planOf({ format: 'idv-fleet-plan/2', defaults: { workflowId: 'old', rollout: both } });
		const devices = INVENTORY.slice(0, 3);
		expect(said(plan, { inventory: devices, maxMoves: 0 }).join('\n')).toMatch(/moves 3 of 3 devices \(100 %\)/);
	});
});

describe('a device whose setting changes is one that moves', () => {
	const every = (seconds: number | null) => (seconds === null ? {} : { settings: { heartbeatCadence: seconds } });
	const part = (seconds: number | null, more: object = {}) =>
		planOf({ spreadSeconds: 0, defaults: { workflowId: 'old', ...every(seconds), ...more } }, 8);
	const byRing = (more: object) =>
		part(30, { rollout: { to: { settings: { heartbeatCadence: 3600 } }, rings: [{ percent: 50, ...more }] } });
	const half = INVENTORY.filter(({ deviceId }) => rolloutPercentile(deviceId) < 50).length;

	test.each<[string, ReturnType<typeof planOf>, number | null, number, string | null]>([
		['another one', part(3600), 30, 100, '3600'],
		['one where there was none', part(3600), null, 100, '3600'],
		['none where there was one', part(null), 3600, 100, null],
		['another one by a ring', byRing({}), 30, half, '3600'],
		['another one by a ring to come', byRing({ startAt: iso(NOW + HOUR) }), 30, half, '3600'],
		['the same one', part(30), 30, 0, ''],
	])('%s', (_, plan, before, count, to) => {
		const previous = { plan: planOf({ defaults: { workflowId: 'old', ...every(before) } }), isSame: false };
		const brakes = { inventory: INVENTORY, previous, maxMoves: 0.01 };
		const moved = said(plan, brakes).filter((line) => line.includes('may move'));
		expect(moved).toEqual(count === 0 ? [] : [expect.stringContaining(`moves ${count} of 100 devices`)]);
		const now = asAssigned(INVENTORY, previous.plan, NOW);
		const { groups, moves } = previewPlan(compilePlan(plan), now, NOW);
		expect(moves).toBe(count);
		const from = before === null ? null : String(before);
		const group = { what: 'heartbeatCadence', devices: count, from, to };
		expect(groups).toMatchObject(count === 0 ? [] : [group]);
	});

	test('for a whole part without a ring it is named, a later step of its rollout is not [F721]', () => {
		const words = 'moves 100 % of its devices at once';
		const previous = { plan: planOf({ defaults: { workflowId: 'old' } }), isSame: false };
		const at = (findings: string[]) => findings.filter((line) => line.includes(words)).map((line) => line.slice(0, 25));
		expect(at(said(part(3600), { inventory: INVENTORY, previous }))).toEqual(['error /defaults/settings ']);
		const begun = { plan: byRing({}), isSame: false };
		expect(at(said({ ...part(3600), revision: 9 }, { inventory: INVENTORY, previous: begun }))).toEqual([]);
	});
});

describe('what a preview says of versions', () => {
	const preview = (rings: object[], version: string | null = null) =>
		previewPlan(
			compilePlan(planOf({ format: 'idv-fleet-plan/2', spreadSeconds: 0, defaults: { rollout: { to: {}, rings } } })),
			INVENTORY.map((one) => ({ ...one, version })),
			NOW,
		);
	const [V3, V4] = ['0.3.0', '0.4.0'].map((version) => ({ agent: { version } }));
	const [SOON, LATER] = [HOUR, 2 * HOUR].map((ms) => iso(NOW + ms));

	test('each version that a device gets, now and later, and when', () => {
		const rings = [
			{ percent: 100, ...V3 },
			{ percent: 100, startAt: SOON, ...V4 },
			{ percent: 100, startAt: LATER, ...V4 },
		];
		expect(preview(rings, '0.2.0')).toMatchObject({
			moves: 100,
			groups: [
				{ what: 'version', from: '0.2.0', to: '0.3.0', rule: null, percent: 100, devices: 100, first: null },
				{ what: 'version', from: '0.3.0', to: '0.4.0', percent: 100, devices: 100, first: SOON, last: SOON },
			],
		});
		expect(preview([{ percent: 100, ...V3 }], '0.3.0')).toMatchObject({ moves: 0, groups: [] });
	});

	test('a ring without a time keeps its devices from those listed before it, whenever these begin', () => {
		const rings = [
			{ percent: 100, startAt: SOON, ...V3 },
			{ percent: 100, ...V4 },
		];
		expect(preview(rings).groups).toMatchObject([{ from: null, to: '0.4.0', first: null }]);
	});
});

const OVER = [
	{ percent: 1, startAt: iso(NOW - 2 * HOUR) },
	{ percent: 100, startAt: iso(NOW - HOUR) },
];
const overTo = (workflowId: string, revision: number) => {
	const words = { workflowId: 'old', rollout: { to: { workflowId }, rings: OVER } };
	return planOf({ rules: [{ name: 'lobby', match: { labels: ['lobby'] }, ...words }] }, revision);
};

test('the rings of a rollout that is over do not take another workflow to all devices at once [F1349]', () => {
	const found = (workflowId: string) =>
		applyBrakes(overTo(workflowId, 8), {
			nowMs: NOW,
			previous: { plan: overTo('new', 7), isSame: false },
			inventory: INVENTORY,
			known: { workflows: ['newer'], versions: [] },
		}).map(({ level, what }) => [level, what.slice(0, 14)]);
	const past = ['error', 'is in the past'];
	expect([found('new'), found('newer')]).toEqual([[], [past, past]]);
});

describe('brakes', () => {
	test.each<[string, ReturnType<typeof planOf>, Partial<Brakes>, RegExp]>([
		[
			'a mistyped label',
			lobby(null, { labels: ['loby'] }),
			{ inventory: INVENTORY },
			/^error \/rules\/0\/match\/labels matches no device of the inventory: loby; did you mean lobby\?$/,
		],
		[
			'ids of no device',
			lobby(null, { deviceIds: ['K-1', 'X-9', 'Y-*'] }),
			{ inventory: INVENTORY },
			/deviceIds matches no device of the inventory: X-9, Y-\*/,
		],
		[
			'kinds that no device has together',
			lobby(null, { labels: ['lobby'], deviceIds: ['K-99'] }),
			{ inventory: INVENTORY },
			/^error \/rules\/0\/match \(lobby\) matches no device/,
		],
		[
			'an unknown workflow',
			lobby([{ percent: 1 }]),
			{ workflows: ['old', 'news'] },
			/^error \/rules\/0\/rollout\/to\/workflowId is not a workflow that --workflows names \(new\); did you mean news\?$/,
		],
		[
			'a start in the past',
			lobby([{ percent: 1, startAt: iso(NOW - HOUR) }]),
			{},
			/^note \/rules\/0\/rollout\/rings\/0\/startAt is in the past/,
		],
		[
			'a start in the past that is new',
			lobby([{ percent: 1, startAt: iso(NOW - HOUR) }]),
			{ previous: { plan: planOf({}, 6), isSame: false } },
			/^error .*startAt is in the past/,
		],
		[
			'a start in the past, in a plan that only an inventory is beside',
			lobby([{ percent: 1, startAt: iso(NOW - HOUR) }]),
			{ inventory: INVENTORY },
			/^error .*startAt is in the past: .*leave it out if that is meant, or name the plan in force with --previous/,
		],
		[
			'100 % at once beside an inventory',
			lobby([{ percent: 100 }]),
			{ inventory: INVENTORY, maxMoves: 1 },
			/^error \/rules\/0\/rollout\/rings moves 100 % of its devices at once/,
		],
		[
			'another workflow for a whole rule without a rollout',
			planOf({ rules: [{ name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'new' }] }, 8),
			{ previous: { plan: lobby([{ percent: 10, startAt: iso(NOW + HOUR) }]), isSame: false } },
			/^note \/rules\/0\/workflowId moves 100 % of its devices at once/,
		],
		[
			'another workflow for the whole fleet, of which some devices have it',
			planOf({ defaults: { workflowId: 'new' } }, 8),
			{ previous: { plan: lobby([{ percent: 100 }]), isSame: false }, inventory: INVENTORY },
			/^error \/defaults\/workflowId moves 100 % of its devices at once/,
		],
		[
			'another version of the agent for all of them',
			planSchemaOf({ format: 'idv-fleet-plan/2' }).parse({ ...update('0.3.1', 100), revision: 8 }),
			{ previous: { plan: planSchemaOf({ format: 'idv-fleet-plan/2' }).parse(update('0.3.0', 10)), isSame: false } },
			/^error \/defaults\/rollout\/rings moves 100 % of its devices at once/,
		],
		[
			'100 % at once',
			lobby([{ percent: 100, startAt: iso(NOW + HOUR) }]),
			{},
			/^note \/rules\/0\/rollout\/rings moves 100 % of its devices at once/,
		],
		[
			'100 % at once after nothing',
			lobby([{ percent: 100 }]),
			{ previous: { plan: planOf({}, 6), isSame: false } },
			/^error .*moves 100 % of its devices at once/,
		],
		[
			'every device of the inventory',
			planOf({ defaults: { workflowId: 'new' } }),
			{ inventory: INVENTORY },
			/^error \/defaults moves all 100 devices at once; if that is meant, pass --allow-moves 100$/,
		],
		[
			'all but one device of the inventory',
			planOf({ defaults: { workflowId: 'new' } }),
			{ inventory: [device('K-there', [], 'new'), ...INVENTORY] },
			/^error \/defaults moves 100 of 101 devices at once; if that is meant, pass --allow-moves 100$/,
		],
		[
			'more moves than may be',
			lobby([{ percent: 100 }]),
			{ inventory: INVENTORY, maxMoves: 0.04 },
			/^error \/rules moves 5 of 100 devices \(5 %\), and 4 % may move; .*--allow-moves 5$/,
		],
		[
			'an older revision',
			planOf({}, 6),
			{ previous: { plan: planOf({}, 7), isSame: false } },
			/^error \/revision is lower than that of the previous plan \(7\)/,
		],
		[
			'a published revision with other content',
			planOf({}, 7),
			{ previous: { plan: planOf({}, 7), isSame: false } },
			/^error \/revision was published with other content: .* then give it revision 8$/,
		],
	])('name %s', (_, plan, brakes, words) => {
		expect(said(plan, brakes).join('\n')).toMatch(new RegExp(words.source, 'm'));
	});

	test('let pass what is meant', () => {
		const staged = lobby([{ percent: 10 }, { percent: 100, startAt: iso(NOW + HOUR) }]);
		const workflows = ['old', 'new'];
		expect(said(staged, { inventory: INVENTORY, workflows, maxMoves: 0.05 })).toEqual([]);
		expect(
			said(lobby([{ percent: 100 }]), {
				inventory: INVENTORY,
				maxMoves: 0.01,
				allowMoves: 5,
				previous: { plan: staged, isSame: false },
			}).filter((line) => !line.includes('/revision')),
		).toEqual([]);
		expect(said(planOf({ defaults: { workflowId: 'new' } }), { inventory: INVENTORY, allowMoves: 100 })).toEqual([]);
		expect(said(staged, { previous: { plan: staged, isSame: true } })).toEqual([]);
		// The last step of a rollout: its workflow becomes the rule's own.
		const last = planOf({ rules: [{ name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'new' }] }, 8);
		const half = { plan: lobby([{ percent: 50 }]), isSame: false };
		expect(said(last, { previous: half, inventory: INVENTORY })).toEqual([]);
		expect(said(last, { previous: half })).toEqual([]);
		// A number of devices that are meant to move counts for how fast they do, too.
		const jump = { previous: { plan: lobby(null), isSame: false }, inventory: INVENTORY };
		expect(said(last, { ...jump, allowMoves: 5 })).toEqual([]);
		expect(said(last, { ...jump, allowMoves: 4 }).join('\n')).toMatch(
			/moves 5 of \d+ devices, and --allow-moves 4 permits fewer/,
		);
		// A ring of the previous plan has begun in its time.
		const begun = lobby([{ percent: 10, startAt: iso(NOW - HOUR) }]);
		expect(said({ ...begun, revision: 8 }, { previous: { plan: begun, isSame: false } })).toEqual([]);
	});
});

describe('what no device would notice', () => {
	const [ring] = [lobby([{ percent: 1 }])];
	const none = { inventory: INVENTORY, allowEmptyRing: false };

	test('a ring that reaches no device is named, with the share that would reach one', () => {
		const inLobby = INVENTORY.slice(0, 5).map(({ deviceId }) => rolloutPercentile(deviceId));
		const [what = ''] = said(ring, none);
		expect(what).toMatch(/^error \/rules\/0\/rollout\/rings\/0\/percent reaches none of 5 devices of the inventory: /);
		const least = Number(/: ([\d.]+) % would reach one; if that is meant, pass --allow-empty-ring$/.exec(what)?.[1]);
		expect(inLobby.filter((place) => place < least)).toHaveLength(1);
		expect(said(lobby([{ percent: least }]), none)).toEqual([]);
		expect(said(ring, { ...none, allowEmptyRing: true })).toEqual([]);
		expect(said(lobby([{ percent: least }, { percent: least + 0.01 }]), none)).toEqual([
			expect.stringContaining('/rings/1/percent adds no device of the inventory to a smaller ring'),
		]);
		// One that was allowed once is not asked for again by the next ring.
		const previous = { plan: ring, isSame: false };
		const next = { ...lobby([{ percent: 1 }, { percent: least }]), revision: 8 };
		expect(said(next, { ...none, previous })).toEqual([]);
	});

	test('a ring whose devices an earlier rule takes is named', () => {
		const rule = (name: string, more: object) => ({ name, match: { labels: ['lobby'] }, ...more });
		const rollout = { to: { workflowId: 'new' }, rings: [{ percent: 50 }] };
		const taken = planOf({ rules: [rule('first', { workflowId: 'old' }), rule('second', { rollout })] });
		const words = 'reaches no device of the inventory: other rules take them all, .*; if that is meant, pass';
		expect(said(taken, none)).toEqual([
			expect.stringMatching(new RegExp(`^error /rules/1/rollout/rings/0/percent ${words} --allow-empty-ring$`)),
		]);
		expect(said(taken, { ...none, allowEmptyRing: true })).toEqual([]);
	});

	const tenth = { to: { workflowId: 'new' }, rings: [{ percent: 10 }] };
	const ofDefaults = (more: object) => ({
		format: 'idv-fleet-plan/2',
		defaults: { workflowId: 'old', rollout: tenth },
		...more,
	});
	const all = { name: 'all', match: { deviceIds: ['K-*'] } };
	test.each<[string, object, boolean]>([
		[
			'of the defaults whose devices a rule with a workflow of its own takes',
			{ rules: [{ ...all, workflowId: 'old' }] },
			true,
		],
		['of the defaults whose devices a rule takes that leaves the workflow to them', { rules: [all] }, false],
		[
			'that begins after the end of the trust',
			{
				validUntil: iso(NOW + HOUR),
				defaults: { workflowId: 'old', rollout: { ...tenth, rings: [{ percent: 10, startAt: iso(NOW + 2 * HOUR) }] } },
			},
			true,
		],
		[
			'of a rule that says what its devices are told already',
			{ rules: [{ ...all, workflowId: 'new', rollout: tenth }], defaults: {} },
			true,
		],
	])('a ring %s', (_, plan, isEmpty) => {
		const said100 = said(planOf(ofDefaults(plan)), { ...none, maxMoves: 1 });
		expect(said100.filter((line) => line.includes('reaches no device of the inventory'))).toHaveLength(isEmpty ? 1 : 0);
	});

	test('a ring counts the devices that planFor says are in it, whatever the plan [F722]', () => {
		const rings = [{ percent: 10 }, { percent: 50, agent: { version: '0.3.0' } }];
		const rollout = { to: { workflowId: 'new' }, rings };
		// A rule with a workflow of its own leaves versions to the defaults, and nothing else.
		const rules = [{ ...all, workflowId: 'old' }];
		const plan = planOf({ format: 'idv-fleet-plan/2', defaults: { workflowId: 'old', rollout }, rules });
		expect(said(plan, { ...none, maxMoves: 1 })).toEqual([
			expect.stringMatching(
				/^error \/defaults\/rollout\/rings\/0\/percent reaches no device of the inventory: other rules/,
			),
		]);
	});

	test('a workflow or a version that no device has had is named with the one that is nearly it', () => {
		const known = { workflows: [], versions: [] };
		const typo = planOf({ defaults: { workflowId: 'olld' } });
		const brakes = { inventory: INVENTORY, known, allowMoves: 100 };
		expect(said(typo, brakes)).toEqual([
			'error /defaults/workflowId (olld) is a workflow that no device has had yet, and old is one that devices have; if that is meant, pass --allow-workflow olld',
		]);
		expect(said(typo, { ...brakes, known: { ...known, workflows: ['olld'] } })).toEqual([]);
		const version = planOf(update('0.5.0', 50));
		expect(said(version, { ...brakes, allowEmptyRing: true })).toEqual([
			expect.stringMatching(/\(0\.5\.0\) is a version that no device has had yet; .* --allow-version 0\.5\.0$/),
		]);
		// The plan in force has been asked for its own names when it was signed.
		const previous = { plan: version, isSame: false };
		expect(said({ ...version, revision: 8 }, { ...brakes, previous })).toEqual([]);
	});

	test('the plan that is in force already is no new one', () => {
		const previous = { plan: planOf({}), isSame: true };
		expect(said(planOf({}), { previous, allowRepeat: false })).toEqual([
			'error /revision is published already, with the same content; if that is meant, pass --allow-repeat',
		]);
	});
});

describe('limits of a device', () => {
	test('are seen in the plan, with another way to write it', () => {
		const ids = (count: number) => Array.from({ length: count }, (_, n) => `KIOSK-${n}`);
		const of = (count: number) => lobby(null, { deviceIds: ids(count) });
		expect(checkLimits(of(MAX_LISTED_VALUES), 400_000)).toEqual([]);
		const [found] = checkLimits(of(MAX_LISTED_VALUES + 1), 400_000);
		expect(found).toMatchObject({ level: 'error', path: ['rules', 0, 'match', 'deviceIds'] });
		const two = { ...of(MAX_LISTED_VALUES + 1), rules: [...of(2).rules, ...of(MAX_LISTED_VALUES).rules] };
		expect(checkLimits(two, 400_000)[0]?.path).toEqual(['rules', 1, 'match', 'deviceIds']);
		expect(found?.what).toMatch(/25000 at most; give these devices a label .* or write KIOSK-\* if/);
		expect(checkLimits(of(1), 2_000_000)[0]?.what).toMatch(
			/^has about 26\d{5} bytes once it is signed, and devices take 2097152 at most/,
		);
	});
});

describe('the next plan', () => {
	const take = (written: Record<string, unknown>, step: Step, rule?: string) =>
		nextPlan(written, planSchemaOf(written).parse(written), step, { nowMs: NOW, rule });
	const ring: Step = { kind: 'next-ring', percents: RINGS };
	const rollout = (rings: object[]) =>
		document({ defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } } });

	test.each<[string, object[], Step, object[] | null]>([
		[
			'begins the first ring of the ladder after the one that has begun',
			[{ percent: 1 }],
			ring,
			[{ percent: 1 }, { percent: 10 }],
		],
		[
			'begins the ring that the plan lists',
			[{ percent: 5 }, { percent: 20, startAt: iso(NOW + HOUR) }],
			ring,
			[{ percent: 5 }, { percent: 20 }],
		],
		['has nothing to begin after 100 %', [{ percent: 100, startAt: iso(NOW - HOUR) }], ring, null],
		[
			'takes a time',
			[{ percent: 1 }],
			{ ...ring, startAt: iso(NOW + HOUR) } as Step,
			[{ percent: 1 }, { percent: 10, startAt: iso(NOW + HOUR) }],
		],
		[
			'stops rings that have not begun',
			[{ percent: 1 }, { percent: 100, startAt: iso(NOW + 1) }],
			{ kind: 'pause' },
			[{ percent: 1 }],
		],
		['has nothing to pause', [{ percent: 1 }], { kind: 'pause' }, null],
	])('%s', (_, rings, step, expected) => {
		const { document: next, changes } = take(rollout(rings), step);
		if (expected === null) return expect({ next, changes }).toEqual({ next: rollout(rings), changes: [] });
		expect(next).toMatchObject({ revision: 8, defaults: { rollout: { rings: expected } } });
		expect(JSON.stringify((next['defaults'] as { rollout: { rings: unknown } }).rollout.rings)).toBe(
			JSON.stringify(expected),
		);
	});

	const V3 = { agent: { version: '0.3.0', windows: ['02:00'] }, extensions: { 'example.com/x': [1] } };
	const V4 = { agent: { version: '0.4.0' } };
	const [PAST, SOON, LATER] = [-HOUR, HOUR, 2 * HOUR].map((ms) => ({ startAt: iso(NOW + ms) }));
	test.each<[string, object[], object[]]>([
		[
			'the widest ring grows with all that it says',
			[{ percent: 1, ...V3 }],
			[
				{ percent: 1, ...V3 },
				{ percent: 10, ...V3 },
			],
		],
		[
			'a ring that the plan lists begins with all that it says, and its time alone is gone',
			[
				{ percent: 1, ...PAST, ...V3 },
				{ percent: 50, ...LATER, ...V4 },
				{ percent: 10, ...SOON, ...V3 },
			],
			[
				{ percent: 1, ...PAST, ...V3 },
				{ percent: 10, ...V3 },
				{ percent: 50, ...LATER, ...V4 },
			],
		],
		[
			'a version that came last grows, although another one has reached all',
			[
				{ percent: 100, ...V3 },
				{ percent: 1, ...PAST, ...V4 },
			],
			[
				{ percent: 100, ...V3 },
				{ percent: 1, ...PAST, ...V4 },
				{ percent: 10, ...V4 },
			],
		],
		[
			'a ring of another version is to come, although this one has reached all',
			[
				{ percent: 100, ...V3 },
				{ percent: 5, ...SOON, ...V4 },
			],
			[
				{ percent: 100, ...V3 },
				{ percent: 5, ...V4 },
			],
		],
	])('%s', (_, rings, expected) => {
		const written = { ...rollout(rings), format: 'idv-fleet-plan/2' };
		const { document: next } = take(written, ring);
		expect(next).toEqual({ ...rollout(expected), format: 'idv-fleet-plan/2', revision: 8 });
	});

	test('whatever a plan says, the next ring changes shares and times of rings, and no device loses its version [F451]', () => {
		const drawn = fc.record(
			{
				percent: fc.constantFrom(1, 5, 10, 50, 100),
				startAt: fc.integer({ min: -48, max: 48 }).map((hours) => iso(NOW + hours * HOUR)),
				agent: fc.record({ version: fc.constantFrom('0.3.0', '0.4.0'), windows: fc.anything({ maxDepth: 1 }) }),
				extensions: fc.dictionary(fc.string({ minLength: 1, maxLength: 8 }), fc.jsonValue()),
			},
			{ requiredKeys: ['percent'] },
		);
		fc.assert(
			fc.property(fc.array(drawn, { minLength: 1, maxLength: 5 }), (rings) => {
				const words = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings, extensions: { keep: 1 } } };
				const written = JSON.parse(JSON.stringify(document({ defaults: words, format: 'idv-fleet-plan/2' })));
				const plan = planSchemaOf(written).parse(written);
				const { document: next, changes } = nextPlan(written, plan, ring, { nowMs: NOW });
				if (changes.length === 0) return void expect(next).toBe(written);
				const said = (of: unknown) => {
					const { rollout } = (of as { defaults: { rollout: { rings: object[] } } }).defaults;
					return rollout.rings.map((one) => {
						const { percent, startAt, ...rest } = one as { percent: number; startAt?: string };
						return JSON.stringify(rest);
					});
				};
				// Everything that a ring said is still said, and nothing else is.
				expect([...new Set(said(next))].sort()).toEqual([...new Set(said(written))].sort());
				expect({ ...next, defaults: 0, revision: 0 }).toEqual({ ...written, defaults: 0, revision: 0 });
				const after = compilePlan(planSchemaOf(next).parse(next));
				for (let n = 0; n < 20; n += 1) {
					const one = device(`K-${n}`);
					const { version } = planFor(compilePlan(plan), one, NOW - HOUR);
					if (version !== null) expect(planFor(after, one, NOW).version).toBeTruthy();
				}
			}),
		);
	});

	test.each<[string, object[], object]>([
		['more devices get the version', [{ percent: 1, ...V3 }], { version: '0.3.0', before: 1, after: 10 }],
		[
			'a version that no device has yet begins',
			[
				{ percent: 100, ...V3 },
				{ percent: 5, ...SOON, ...V4 },
			],
			{ version: '0.4.0', before: 0, after: 5 },
		],
	])('says which version a step brings: %s', (_, rings, expected) => {
		const written = { ...rollout(rings), format: 'idv-fleet-plan/2' };
		expect(take(written, ring).changes).toEqual([{ rule: null, to: 'new', ...expected }]);
	});

	const V2 = { agent: { version: '0.2.0' } };
	test.each<[string, object[], object | null, string | null]>([
		[
			'rings of the version before stay',
			[
				{ percent: 100, ...V2 },
				{ percent: 10, ...PAST, ...V4 },
				{ percent: 50, ...SOON, ...V4 },
			],
			{ to: { workflowId: 'new' }, rings: [{ percent: 100, ...V2 }] },
			'0.2.0',
		],
		[
			'the rings of a version that the record has are ordered again',
			[{ percent: 10, ...V4 }],
			{ to: {}, rings: [{ percent: 30, ...V2 }] },
			'0.2.0',
		],
		[
			'a workflow goes back, and the version that is ordered stays',
			[{ percent: 100, ...V2 }, { percent: 10 }],
			{ to: {}, rings: [{ percent: 100, ...V2 }] },
			'0.2.0',
		],
		['nothing was before', [{ percent: 10, agent: { version: '0.1.0' } }], null, null],
		[
			'a newer version that a later ring has taken from all of its devices is not ordered',
			[
				{ percent: 1, ...V4 },
				{ percent: 50, agent: { version: '0.3.0' } },
			],
			null,
			null,
		],
	])('back, with versions: %s', (_, rings, expected, versionAfter) => {
		const written = { ...rollout(rings), format: 'idv-fleet-plan/2' };
		const step: Step = {
			kind: 'rollback',
			before: (_rule, version) => (version === '0.4.0' ? [{ percent: 30, ...V2 }] : []),
		};
		const { document: next, changes } = take(written, step);
		expect((next['defaults'] as { rollout?: object }).rollout ?? null).toEqual(expected);
		expect(changes).toMatchObject([{ after: 0, versionAfter }]);
	});

	test('back: every device is where it was before the rollout', () => {
		const { document: next, changes } = take(rollout([{ percent: 100 }]), { kind: 'rollback' });
		expect(planFor(compilePlan(planSchemaOf(next).parse(next)), device('K-1'), NOW).workflowId).toBe('old');
		expect(changes).toEqual([{ rule: null, to: 'new', version: null, versionAfter: null, before: 100, after: 0 }]);
	});

	test('keeps what it does not know, the format, the epoch and the rollouts of other rules', () => {
		const words = (name: string) => ({
			name,
			match: { labels: [name] },
			workflowId: 'old',
			rollout: { to: { workflowId: 'new' }, rings: [{ percent: 1 }], extensions: { a: 1 } },
		});
		const written = {
			...document({ rules: [words('a'), words('b')] }),
			format: 'idv-fleet-plan/2',
			epoch: 3,
			extensions: { 'example.com/x': [1] },
		};
		const { document: next } = take(written, ring, 'b');
		const grown = { ...words('b'), rollout: { ...words('b').rollout, rings: [{ percent: 1 }, { percent: 10 }] } };
		expect(next).toEqual({ ...written, revision: 8, rules: [words('a'), grown] });
	});
});
