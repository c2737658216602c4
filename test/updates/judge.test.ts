import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { countRestarts, type Stretch, stretchAfter } from '../../src/updates/health.ts';
import {
	beforeOf,
	type Case,
	HUNG_MS,
	isBefore,
	judge,
	type Look,
	MAX_BOOTS,
	MAX_RESTARTS,
	MAX_WAIT_MS,
	PATIENCE,
} from '../../src/updates/judge.ts';

const CASE: Case = { from: '0.2.0', fromBuild: 'a', to: '0.3.0', before: 'online', judgeSeconds: 300 };
const LOOK: Look = {
	elapsedMs: 0,
	isBusy: false,
	busyMs: 0,
	standsIn: null,
	installed: { version: '0.3.0', build: 'b', state: 'whole' },
	wasFinished: false,
	stuckMs: 0,
	isReady: true,
	restarts: 0,
	boots: 1,
	state: 'connecting',
	awayMs: 0,
	healthyMs: 0,
	hasBeaten: true,
	silentMs: 0,
	downMs: 0,
	waitedMs: 0,
};
const LATE = 300_000;
const STUCK: Partial<Look> = { installed: { version: '0.3.0', build: 'b', state: 'unconfigured' }, stuckMs: 1 };

/** What the judge decides, in one word. */
function verdict(look: Partial<Look>, of: Partial<Case> = {}): string {
	const decided = judge({ ...CASE, ...of }, { ...LOOK, ...look });
	return decided.type === 'goBack' ? decided.fault : decided.type;
}

describe('a device that was online', () => {
	test.each<[string, Partial<Look>, string]>([
		['apt is still at work', { isBusy: true, installed: null }, 'wait'],
		['it connects', {}, 'wait'],
		['it is well for less than its time', { state: 'online', healthyMs: LATE - 1 }, 'wait'],
		['it is well for its time', { state: 'online', healthyMs: LATE }, 'keep'],
		['it is well and has sent no heartbeat yet', { state: 'online', healthyMs: LATE, hasBeaten: false }, 'wait'],
		['it never sends a heartbeat', { state: 'online', healthyMs: 2 * LATE, hasBeaten: false }, 'no-heartbeat'],
		['it is not online in time', { state: 'offline', awayMs: LATE }, 'tryLine'],
		['it is online at last', { state: 'online', healthyMs: 1, elapsedMs: LATE }, 'wait'],
		['it comes and goes', { state: 'online', healthyMs: 1, elapsedMs: PATIENCE * LATE }, 'tryLine'],
		['its service refuses it', { state: 'blocked', awayMs: LATE }, 'tryLine'],
		['it has forgotten its pairing', { state: 'unpaired', awayMs: LATE }, 'tryLine'],
		['the service was away for a day', { state: 'offline', waitedMs: MAX_WAIT_MS }, 'service-away'],
		['the service is back after a day', { state: 'online', waitedMs: MAX_WAIT_MS, healthyMs: 1 }, 'wait'],
		['it never gets ready', { isReady: false, state: null, silentMs: LATE, elapsedMs: LATE }, 'not-ready'],
		['it is silent while the service is away', { waitedMs: LATE, state: null, silentMs: LATE }, 'not-ready'],
		['it dies for the third time', { restarts: MAX_RESTARTS, state: null }, 'crashes'],
		['it dies for the second time', { restarts: MAX_RESTARTS - 1, state: null }, 'wait'],
		['the machine starts again and again', { boots: MAX_BOOTS, state: null }, 'reboots'],
		['the machine was restarted often, and it works', { boots: MAX_BOOTS, state: 'online', healthyMs: LATE }, 'keep'],
		[
			'dpkg was cut off before its scripts',
			{ installed: { version: '0.3.0', build: 'b', state: 'unconfigured' } },
			'finish',
		],
		['dpkg has no room for its scripts, and it works', { ...STUCK, state: 'online' }, 'finish'],
		['dpkg has no room for its scripts, and it dies', { ...STUCK, restarts: MAX_RESTARTS }, 'crashes'],
		['dpkg has no room for its scripts, and it is silent', { ...STUCK, state: null, downMs: LATE }, 'not-ready'],
		['dpkg has had no room for a quarter of an hour', { ...STUCK, stuckMs: HUNG_MS, state: 'online' }, 'unfinished'],
		[
			'its script fails again',
			{ installed: { version: '0.3.0', build: 'b', state: 'unconfigured' }, wasFinished: true },
			'unfinished',
		],
		[
			'dpkg was cut off between its files',
			{ installed: { version: '0.3.0', build: 'b', state: 'half' } },
			'interrupted',
		],
		['the old version is in place', { installed: { version: '0.2.0', build: 'a', state: 'whole' } }, 'end'],
		['its version was built again', { installed: { version: '0.2.0', build: 'b', state: 'whole' } }, 'wait'],
		[
			'its version was built again, and dies',
			{ installed: { version: '0.2.0', build: 'b', state: 'whole' }, restarts: MAX_RESTARTS },
			'crashes',
		],
		['apt hangs, and it dies', { isBusy: true, busyMs: HUNG_MS, restarts: 167 }, 'standIn'],
		['apt hangs, and it is silent', { isBusy: true, busyMs: HUNG_MS, downMs: LATE, state: null }, 'standIn'],
		['apt hangs, and it is not online', { isBusy: true, busyMs: HUNG_MS, downMs: LATE }, 'standIn'],
		['apt hangs, and it works', { isBusy: true, busyMs: HUNG_MS, state: 'online' }, 'wait'],
		['apt takes long, and it dies', { isBusy: true, busyMs: HUNG_MS - 1, restarts: 167 }, 'wait'],
		['the one before runs in its place', { isBusy: true, busyMs: HUNG_MS, standsIn: 'crashes', restarts: 9 }, 'wait'],
		['apt is free again', { standsIn: 'crashes', state: 'online', healthyMs: LATE }, 'crashes'],
		['the package was removed', { installed: null }, 'end'],
	])('%s', (_what, look, expected) => expect(verdict(look)).toBe(expected));
});

describe('a device that was offline', () => {
	test.each<[string, Partial<Look>, string]>([
		['it is not online in time', { state: 'offline', awayMs: LATE }, 'tryLine'],
		['it is online at last', { state: 'online', healthyMs: LATE, waitedMs: LATE }, 'keep'],
		['it was not online for a day', { state: 'blocked', waitedMs: MAX_WAIT_MS }, 'keep'],
		['it is silent', { state: null, silentMs: LATE, elapsedMs: LATE }, 'not-ready'],
		['it dies', { restarts: MAX_RESTARTS }, 'crashes'],
	])('%s', (_what, look, expected) => expect(verdict(look, { before: 'offline' })).toBe(expected));
});

test('a build is known by its version and by its bytes, where they can be read', () => {
	expect(isBefore(CASE, { version: '0.2.0', build: 'a' })).toBe(true);
	expect(isBefore(CASE, { version: '0.2.0', build: 'b' })).toBe(false);
	expect(isBefore(CASE, { version: '0.3.0', build: 'a' })).toBe(false);
	expect(isBefore(CASE, { version: '0.2.0', build: null })).toBe(true);
	expect(isBefore({ ...CASE, fromBuild: null }, { version: '0.2.0', build: 'b' })).toBe(true);
});

test('a device that a person had stopped is not started to be judged', () => {
	expect(verdict({ ...STUCK, state: null, downMs: LATE }, { before: 'stopped' })).toBe('finish');
	expect(verdict({ isReady: false, state: null, silentMs: LATE, elapsedMs: LATE }, { before: 'stopped' })).toBe('keep');
});

const looks = fc.record<Look>({
	elapsedMs: fc.nat(3_600_000),
	isBusy: fc.boolean(),
	busyMs: fc.nat(3_600_000),
	standsIn: fc.constant(null),
	installed: fc.option(
		fc.record({
			version: fc.constantFrom('0.2.0', '0.3.0', '0.4.0'),
			build: fc.constantFrom('a', 'b', null),
			state: fc.constantFrom('whole', 'unconfigured', 'half'),
		}),
	),
	wasFinished: fc.boolean(),
	stuckMs: fc.nat(3_600_000),
	isReady: fc.boolean(),
	restarts: fc.nat(5),
	boots: fc.nat(5),
	state: fc.constantFrom('online', 'connecting', 'offline', 'blocked', 'unpaired', null),
	awayMs: fc.nat(3_600_000),
	healthyMs: fc.nat(900_000),
	hasBeaten: fc.boolean(),
	silentMs: fc.nat(3_600_000),
	downMs: fc.nat(3_600_000),
	waitedMs: fc.nat(2 * MAX_WAIT_MS),
});

test('nothing is installed while packages are being installed, and a working version is never taken back', () => {
	fc.assert(
		fc.property(looks, fc.constantFrom('online', 'offline', 'stopped'), (look, before) => {
			const { type } = judge({ ...CASE, before }, look);
			if (look.isBusy) expect(['wait', 'standIn']).toContain(type);
			const works = look.installed?.state === 'whole' && look.healthyMs >= LATE && look.restarts < MAX_RESTARTS;
			if (works && look.hasBeaten && look.state === 'online')
				expect(type).toBe(look.isBusy ? type : look.installed && isBefore(CASE, look.installed) ? 'end' : 'keep');
		}),
		{ numRuns: 2000 },
	);
});

test('what a device was before is refused, stopped or unpaired, or else online as soon as its service is there', () => {
	expect(beforeOf('online', 'plan-unreachable')).toBe('online');
	expect(beforeOf('offline', 'service-unreachable')).toBe('online');
	// A load balancer without its service answers 404.
	expect(beforeOf('blocked', 'channel-not-found')).toBe('online');
	expect(beforeOf('connecting', null)).toBe('online');
	expect(beforeOf('blocked', 'credential-refused')).toBe('offline');
	expect(beforeOf('unpaired', null)).toBe('offline');
	expect(beforeOf(null, null)).toBe('offline');
});

/** The stretch after looks every two seconds: how many, by which run, and whether it was online. */
const after = (
	looks: readonly (readonly [count: number, runId: string | null, isOnline: boolean])[],
): number | null => {
	let stretch: Stretch | null = null;
	let atMs = 0;
	for (const [count, runId, isOnline] of looks)
		for (let left = count; left > 0; left -= 1) {
			atMs += 2000;
			stretch = stretchAfter(stretch, { atMs, runId, state: isOnline ? 'online' : 'connecting' }, LATE);
		}
	return stretch && atMs - stretch.sinceMs;
};

test.each<[string, Parameters<typeof after>[0], number | null]>([
	['being online begins a stretch', [[1, 'a', true]], 0],
	['a version that is not online yet has none', [[5, 'a', false]], null],
	['a stretch lasts while it is online', [[100, 'a', true]], 198_000],
	[
		'another run begins another, however fast it was online',
		[
			[100, 'a', true],
			[10, 'b', true],
		],
		18_000,
	],
	[
		'a unit that is down ends it',
		[
			[100, 'a', true],
			[1, null, false],
		],
		null,
	],
	[
		'a short break does not end it',
		[
			[50, 'a', true],
			[10, 'a', false],
			[10, 'a', true],
		],
		138_000,
	],
	[
		'breaks of more than a fifth of the time end it',
		[
			[50, 'a', true],
			[31, 'a', false],
		],
		null,
	],
	[
		'many short breaks end it as well',
		Array.from(
			{ length: 8 },
			() =>
				[
					[2, 'a', true],
					[4, 'a', false],
				] as const,
		).flat(),
		null,
	],
])('%s', (_what, looks, expected) => expect(after(looks)).toBe(expected));

test('restarts are counted over the whole trial, also when systemd begins again to count', () => {
	let counted = { restarts: 0, unitRestarts: 7 };
	const tell = (told: number, isOld = false) => {
		counted = countRestarts(counted, told, isOld);
		return counted.restarts;
	};
	expect([tell(7, true), tell(8, true), tell(0), tell(1), tell(1), tell(0), tell(1)]).toEqual([0, 0, 0, 1, 1, 1, 2]);
});
