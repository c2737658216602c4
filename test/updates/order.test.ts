import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { FleetPlan } from '../../src/fleet/plan-format.ts';
import { planSchemaOf } from '../../src/fleet/plan-format.ts';
import { rolloutPercentile, shareOfSpread } from '../../src/fleet/targeting.ts';
import { mayUpdate, type OrderFacts, orderFor, untilWindowMs } from '../../src/updates/order.ts';
import { NO_OUTCOMES, type Outcomes, pinning, withTakenBack } from '../../src/updates/record.ts';

const NOW = new Date('2026-11-22T04:30:00+00:00');
const device = (deviceId: string) => ({
	deviceId,
	serial: null,
	macAddress: null,
	deviceType: 'kiosk',
	labels: ['hall'],
});

function plan(rings: readonly object[], more: object = {}): FleetPlan {
	const document = {
		format: 'idv-fleet-plan/2',
		revision: 7,
		spreadSeconds: 0,
		defaults: { rollout: { to: {}, rings } },
		...more,
	};
	return planSchemaOf(document).parse(document);
}

const facts = (more: Partial<OrderFacts> = {}): OrderFacts => ({
	installed: '0.2.0',
	isEnabled: true,
	window: null,
	outcomes: NO_OUTCOMES,
	edition: { epoch: 0, revision: 7 },
	validUntil: undefined,
	now: NOW,
	...more,
});
const ORDER = { version: '0.3.0', percent: 100, atMs: null };

describe('the order of a plan', () => {
	test('is for the devices of its ring, from its time', () => {
		const later = plan([
			{ percent: 10, startAt: '2026-11-22T05:00:00Z', agent: { version: '0.3.0' } },
			{ percent: 100 },
		]);
		for (let number = 0; number < 200; number += 1) {
			const id = `kiosk-${number}`;
			const order = orderFor(later, device(id), NOW.getTime());
			if (rolloutPercentile(id) < 10)
				expect(order).toMatchObject({ version: '0.3.0', atMs: Date.parse('2026-11-22T05:00:00Z') });
			else expect(order).toBeNull();
		}
	});

	test('is that of the ring which began last, and the spread is kept', () => {
		const twice = plan(
			[
				{ percent: 100, startAt: '2026-11-20T05:00:00Z', agent: { version: '0.3.0' } },
				{ percent: 100, startAt: '2026-11-21T05:00:00Z', agent: { version: '0.3.1' } },
				{ percent: 100, startAt: '2026-11-29T05:00:00Z', agent: { version: '0.4.0' } },
			],
			{ spreadSeconds: 600 },
		);
		const offsetMs = Math.round(shareOfSpread('kiosk-1') * 600_000);
		expect(orderFor(twice, device('kiosk-1'), NOW.getTime())).toMatchObject({
			version: '0.3.1',
			atMs: Date.parse('2026-11-21T05:00:00Z') + offsetMs,
		});
	});

	test('is none in a plan that names no version, in format 1, and for a rule with a rollout of its own', () => {
		expect(
			orderFor(
				plan([{ percent: 100, agent: { version: '0.3.0' } }], { defaults: { workflowId: 'w' } }),
				device('a'),
				0,
			),
		).toBeNull();
		const first = {
			format: 'idv-fleet-plan/1',
			revision: 1,
			defaults: { rollout: { to: {}, rings: [{ percent: 100, agent: { version: '0.3.0' } }] } },
		};
		expect(planSchemaOf(first).safeParse(first).success).toBe(false);
		const own = plan([{ percent: 100, agent: { version: '0.3.0' } }], {
			rules: [
				{ name: 'hall', match: { labels: ['hall'] }, rollout: { to: { workflowId: 'w' }, rings: [{ percent: 100 }] } },
			],
		});
		expect(orderFor(own, device('a'), NOW.getTime())).toBeNull();
	});

	test('carries every version that dpkg has', () => {
		for (const version of ['1:0.2.0-1~x', '0.3.0+site2', '2026.11.22~rc1'])
			expect(orderFor(plan([{ percent: 100, agent: { version } }]), device('a'), 0)).toMatchObject({ version });
	});

	test.each([
		'latest',
		'0.3.0; reboot',
		'0.3.0$(reboot)',
		'0.3.0\nPin-Priority: 1001',
		'0.3.0*',
		'0.3.0-',
		'0.3.0+',
		'0.3.0=1',
		'0.3.0/sid',
		'-o=x',
		'../0.3.0',
		'',
		' 0.3.0',
		`0.${'3'.repeat(10_000)}`,
	])('never carries %j', (version) => {
		const document = {
			format: 'idv-fleet-plan/2',
			revision: 1,
			defaults: { rollout: { to: {}, rings: [{ percent: 100, agent: { version } }] } },
		};
		expect(planSchemaOf(document).safeParse(document).success).toBe(false);
	});
});

describe('root', () => {
	test.each<[string, Partial<OrderFacts>, string | null]>([
		['carries it out', {}, '0.3.0'],
		['does nothing where a site has not switched it on', { isEnabled: false }, null],
		['does nothing for the version that is installed', { installed: '0.3.0' }, null],
		['does nothing for another spelling of it', { installed: '0.3.0-0' }, null],
		['waits for the window', { window: '23:00-04:00', now: new Date(2026, 10, 22, 4, 30) }, null],
		['goes on in the window', { window: '23:00-05:00', now: new Date(2026, 10, 22, 4, 30) }, '0.3.0'],
	])('%s', (_what, more, expected) => {
		expect(mayUpdate(ORDER, facts(more))).toBe(expected);
		// A date that is over opens no window, and a window brings nothing before its date.
		expect(mayUpdate({ ...ORDER, atMs: facts(more).now.getTime() }, facts(more))).toBe(expected);
		expect(mayUpdate({ ...ORDER, atMs: facts(more).now.getTime() + 1 }, facts(more))).toBeNull();
	});

	const taken: Outcomes = withTakenBack(NO_OUTCOMES, {
		version: '0.3.0',
		by: '0.2.0',
		at: '2026-11-22T03:00:00Z',
		fault: 'crashes',
		log: [],
	});
	test.each<[string, Partial<OrderFacts> & { ordered?: string }, RegExp]>([
		['a version that was taken back', { outcomes: taken }, /was taken back on .* \(crashes\)/],
		['another spelling of it', { outcomes: taken, ordered: '0.3.0-0' }, /was taken back on/],
		['a version that apt reads as an order to remove', { ordered: '0.3.0-' }, /must not end in \+ or -/],
		['an older version than it has', { installed: '0.10.0' }, /0\.3\.0 is older than 0\.10\.0/],
		['an older version than it had', { outcomes: { ...NO_OUTCOMES, kept: '0.3.1' } }, /is older than 0\.3\.1/],
		['a plan that is over', { validUntil: '2026-11-01T00:00:00Z' }, /was valid until/],
		['a plan from before', { outcomes: { ...NO_OUTCOMES, plan: { epoch: 0, revision: 8 } } }, /older than revision 8/],
		[
			'a plan of an earlier epoch',
			{ outcomes: { ...NO_OUTCOMES, plan: { epoch: 1, revision: 1 } } },
			/older than revision 1/,
		],
	])('refuses %s', (_what, { ordered = ORDER.version, ...more }, message) => {
		expect(() => mayUpdate({ ...ORDER, version: ordered }, facts(more))).toThrow(message);
	});
});

test('a window is open between its times, over midnight too, to the millisecond, and is never farther away than a day [F1837]', () => {
	expect(untilWindowMs('02:00-05:00', new Date(2026, 0, 1, 1, 59, 30))).toBe(30_000);
	expect(untilWindowMs('22:00-02:00', new Date(2026, 0, 1, 1, 59))).toBe(0);
	expect(untilWindowMs('22:00-02:00', new Date(2026, 0, 1, 2, 0))).toBe(20 * 3_600_000);
	const minutes = fc
		.nat(1439)
		.map((all) => `${`${Math.floor(all / 60)}`.padStart(2, '0')}:${`${all % 60}`.padStart(2, '0')}`);
	fc.assert(
		fc.property(
			minutes,
			minutes,
			fc.date({ min: new Date(2020, 0, 1), max: new Date(2030, 0, 1), noInvalidDate: true }),
			(from, to, now) => {
				const waitMs = untilWindowMs(`${from}-${to}`, now);
				expect(waitMs).toBeGreaterThanOrEqual(0);
				expect(waitMs).toBeLessThanOrEqual(86_400_000);
				const [hour, minute] = from.split(':').map(Number);
				const opens = new Date(
					now.getFullYear(),
					now.getMonth(),
					now.getDate(),
					now.getHours(),
					now.getMinutes(),
					now.getSeconds(),
					now.getMilliseconds() + waitMs,
				);
				const found = [opens.getHours(), opens.getMinutes(), opens.getSeconds(), opens.getMilliseconds()];
				if (waitMs > 0) expect(found).toEqual([hour, minute, 0, 0]);
			},
		),
	);
});

test('a window keeps the time of the place, also on the days on which its clocks are changed', () => {
	const zone = process.env['TZ'];
	onTestFinished(() => {
		if (zone === undefined) delete process.env['TZ'];
		else process.env['TZ'] = zone;
	});
	process.env['TZ'] = 'Europe/Berlin';
	const open = (window: string, at: string) => untilWindowMs(window, new Date(at)) === 0;
	// 02:00 to 03:00 is not on that day: the window before it is not longer, and the one in it comes on the next.
	expect(open('01:00-02:00', '2026-03-29T01:00:00Z')).toBe(false);
	expect(open('02:00-03:00', '2026-03-29T01:00:00Z')).toBe(false);
	expect(open('02:00-04:00', '2026-03-29T01:30:00Z')).toBe(true);
	expect(open('02:00-03:00', '2026-03-30T00:30:00Z')).toBe(true);
	// In autumn the hour is there twice.
	expect(open('02:00-03:00', '2026-10-25T00:30:00Z')).toBe(true);
	expect(open('02:00-03:00', '2026-10-25T01:30:00Z')).toBe(true);
	expect(open('02:00-03:00', '2026-10-25T02:00:00Z')).toBe(false);
	// Who waits, and looks again at least every hour, gets there.
	for (const from of ['2026-03-28T12:00:00Z', '2026-10-24T12:00:00Z'])
		for (const window of ['02:00-03:00', '02:30-02:31', '22:00-01:00', '03:00-03:30']) {
			let at = Date.parse(from);
			for (let looks = 0; untilWindowMs(window, new Date(at)) > 0; looks += 1) {
				expect(looks).toBeLessThan(48);
				at += Math.min(3_600_000, untilWindowMs(window, new Date(at)));
			}
		}
});

test('a window between equal times is the whole day', () => {
	for (const hour of [0, 12, 21, 22, 23]) expect(untilWindowMs('22:00-22:00', new Date(2026, 0, 1, hour))).toBe(0);
});

test('apt is kept from each version that was taken back, and from nothing else', () => {
	expect(pinning(NO_OUTCOMES)).toBeNull();
	let outcomes = NO_OUTCOMES;
	for (let number = 1; number <= 12; number += 1)
		outcomes = withTakenBack(outcomes, {
			version: `0.3.${number}`,
			by: '0.2.0',
			at: '2026-11-22T03:00:00Z',
			fault: 'crashes',
			log: Array(500).fill('x'),
		});
	expect(outcomes.takenBack.map(({ version }) => version)).toEqual([
		'0.3.5',
		'0.3.6',
		'0.3.7',
		'0.3.8',
		'0.3.9',
		'0.3.10',
		'0.3.11',
		'0.3.12',
	]);
	expect(outcomes.takenBack[0]?.log).toHaveLength(100);
	expect(pinning(outcomes)?.match(/^Pin: version .*$/gm)).toHaveLength(8);
});
