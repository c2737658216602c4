/** The last day of the page: what it keeps of many changes, of a clock that is set, and of the time before a restart. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { pastOf, type TimelineSegment, withState } from '../../src/page/timeline.ts';
import type { PageView } from '../../src/page/view.ts';
import type { HistoryEntry } from '../../src/status/history.ts';
import { givenAgent, givenPairedAgent } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

const HOUR = 3_600_000;
type Timeline = readonly TimelineSegment[];

/** How long each state lasted, in milliseconds. */
function lengths(timeline: Timeline, nowMs: number): Record<string, number> {
	const sums: Record<string, number> = {};
	for (const [index, { fromMs, state }] of timeline.entries())
		sums[state] = (sums[state] ?? 0) + (timeline[index + 1]?.fromMs ?? nowMs) - fromMs;
	return sums;
}

test('a day is held, with the state in which it began', () => {
	const step = 24 * 60_000;
	let timeline: Timeline = [{ fromMs: 0, state: 'connecting' }];
	timeline = withState(timeline, 'online', 10 * step);
	timeline = withState(timeline, 'online', 20 * step);
	expect(timeline).toHaveLength(2);
	timeline = withState(timeline, 'offline', 80 * step);
	expect(timeline).toEqual([
		{ fromMs: 10 * step, state: 'online' },
		{ fromMs: 80 * step, state: 'offline' },
	]);
});

test('a thousand changes in a minute leave the day before them as it was [F770]', () => {
	let timeline: Timeline = [{ fromMs: 0, state: 'online' }];
	let now = 20 * HOUR;
	for (let change = 0; change < 1000; change += 1) {
		now += 60;
		timeline = withState(timeline, change % 2 === 0 ? 'offline' : 'online', now);
	}
	expect(timeline.length).toBeLessThanOrEqual(200);
	expect(timeline[0]).toEqual({ fromMs: 0, state: 'online' });
	expect(lengths(timeline, now)['online']).toBeGreaterThanOrEqual(20 * HOUR);
	expect(lengths(timeline, now)['offline']).toBeLessThan(60_000);
});

test('time that goes back takes the day with it: each state has lasted as long as before', () => {
	const before: Timeline = [
		{ fromMs: 0, state: 'online' },
		{ fromMs: 20 * HOUR, state: 'offline' },
	];
	for (const backMs of [1000, 24 * HOUR]) {
		const now = 20 * HOUR - backMs;
		expect(lengths(withState(before, 'online', now), now)).toEqual({ online: 20 * HOUR, offline: 0 });
	}
});

test('the timeline is bounded, in order, without two of a kind in a row, and loses no time of the last day', () => {
	const states = fc.constantFrom('online' as const, 'offline' as const, 'connecting' as const);
	const changes = fc.array(fc.record({ passMs: fc.nat(300_000), state: states }), { minLength: 250, maxLength: 400 });
	fc.assert(
		fc.property(changes, (steps) => {
			let now = 0;
			let timeline: Timeline = [];
			for (const { passMs, state } of steps) {
				now += passMs;
				timeline = withState(timeline, state, now);
				const from = timeline.map(({ fromMs }) => fromMs);
				const isDay = (from[0] ?? 0) <= Math.max(steps[0]?.passMs ?? 0, now - 24 * HOUR);
				const isInOrder = from.every((ms, index) => ms >= (from[index - 1] ?? 0));
				const isShort = timeline.every((segment, index) => segment.state !== timeline[index - 1]?.state);
				const isNow = timeline.at(-1)?.state === state && timeline.length <= 200;
				if (!isDay || !isInOrder || !isShort || !isNow) expect({ now, timeline }).toBeNull();
			}
		}),
		{ numRuns: 50 },
	);
});

const at = (hours: number) => new Date(hours * HOUR).toISOString();
const state = (hours: number, name: 'online' | 'offline') =>
	({ at: at(hours), kind: 'state', state: name, host: null, workflowId: null, by: null, cause: null }) as const;
const started = (hours: number, after: 'stop' | 'kill' | 'shutdown' | 'power cut' | 'nothing') =>
	({ at: at(hours), kind: 'started', version: '1', after }) as const;

test.each<[string, HistoryEntry[], Record<string, number>]>([
	[
		'a machine that was off for five hours',
		[
			...[started(30, 'nothing'), state(30, 'online'), { at: at(40), kind: 'ended' } as const],
			...[started(45, 'shutdown'), state(46, 'online')],
		],
		{ online: 12, none: 5, connecting: 1 },
	],
	[
		'an agent that was killed, of which it is not known when it was',
		[started(30, 'nothing'), state(30, 'online'), state(35, 'offline'), started(40, 'kill'), state(41, 'online')],
		{ online: 12, none: 5, connecting: 1 },
	],
	[
		'an agent that was killed after its last event',
		[
			...[started(30, 'nothing'), state(30, 'online'), { at: at(38), kind: 'clock', byMs: HOUR } as const],
			...[{ ...started(44, 'kill'), aliveAt: at(40) }, state(45, 'online')],
		],
		{ online: 9 + 3, none: 4, connecting: 1 },
	],
	[
		'a power cut, of which it is not known when it was, and a clock that was set since',
		[
			...[started(30, 'nothing'), state(30, 'online'), state(35, 'offline')],
			...[{ at: at(40), kind: 'clock', byMs: HOUR } as const, started(40, 'power cut'), state(41, 'online')],
		],
		{ online: 12, none: 4, connecting: 1 },
	],
	[
		'a clock that was set back by ten hours, then forward by one',
		[
			...[started(40, 'nothing'), state(40, 'online'), { at: at(34), kind: 'clock', byMs: -10 * HOUR } as const],
			...[state(36, 'offline'), { at: at(40), kind: 'clock', byMs: HOUR } as const, state(46, 'online')],
		],
		{ online: 4 + 2 + 2, offline: 3 + 6 },
	],
])(
	'the history of %s is the past of the page, and time without a sign of an agent is a gap [F820]',
	(_what, history, hours) => {
		const told = lengths(pastOf(history, 48 * HOUR), 48 * HOUR);
		const asHours = Object.fromEntries(Object.entries(told).map(([name, ms]) => [name, ms / HOUR]));
		expect(Object.fromEntries(Object.entries(asHours).filter(([, sum]) => sum > 0))).toEqual(hours);
	},
);

test('a restart leaves the page its last day, and a clock that is set back by a day the length of each state [F771]', async () => {
	const service = await givenService();
	const settings = { page: { port: 0 } };
	const clock = createSteppedClock();
	const first = await givenPairedAgent(service, { settings, clock });
	clock.advance(20 * HOUR);
	await first.untilState('online');
	await first.stop();
	const { home } = first;
	const next = await givenAgent({ settings, home, clock });
	await next.untilState('online');
	clock.advance(HOUR);
	const view = async () => {
		const answer = await fetch(`${next.daemon.addresses.page}api/view`, { headers: { connection: 'close' } });
		return (await answer.json()) as PageView;
	};
	const online = async () => {
		const { timeline, nowMs } = await view();
		return Math.round((lengths(timeline, nowMs)['online'] ?? 0) / HOUR);
	};
	expect(await online()).toBe(21);
	clock.setWall(clock.wallMs() - 24 * HOUR);
	expect(await online()).toBe(21);
	expect((await view()).timeline.every(({ fromMs }, _index, all) => fromMs >= (all[0]?.fromMs ?? 0))).toBe(true);
});
