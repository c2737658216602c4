import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	type Case,
	isLineDown,
	judge,
	type Look,
	MAX_BOOTS,
	MAX_RESTARTS,
	PROVED_MS,
} from '../../src/updates/judge.ts';

const CASE: Case = { from: '0.2.0', to: '0.3.0', before: 'online', judgeSeconds: 300 };
const LOOK: Look = {
	elapsedMs: 0,
	isBusy: false,
	installed: { version: '0.3.0', state: 'whole' },
	wasFinished: false,
	isReady: true,
	restarts: 0,
	boots: 1,
	state: 'connecting',
	onlineMs: 0,
	silentMs: 0,
	isLineDown: false,
};
const LATE = 300_000;

/** What the judge decides, in one word. */
function verdict(look: Partial<Look>, of: Partial<Case> = {}): string {
	const decided = judge({ ...CASE, ...of }, { ...LOOK, ...look });
	return decided.type === 'goBack' ? decided.fault : decided.type;
}

describe('a device that was online', () => {
	test.each<[string, Partial<Look>, string]>([
		['apt is still at work', { isBusy: true, installed: null }, 'wait'],
		['it connects', {}, 'wait'],
		['it is online for a moment', { state: 'online', onlineMs: PROVED_MS - 1 }, 'wait'],
		['it stays online', { state: 'online', onlineMs: PROVED_MS }, 'keep'],
		['it is not online in time', { state: 'offline', elapsedMs: LATE }, 'not-online'],
		['it is online at last', { state: 'online', onlineMs: 1, elapsedMs: LATE }, 'wait'],
		['its service refuses it', { state: 'blocked', elapsedMs: LATE }, 'not-online'],
		['it has forgotten its pairing', { state: 'unpaired', elapsedMs: LATE }, 'not-online'],
		['the service answers 429', { state: 'offline', elapsedMs: 10 * LATE, isLineDown: true }, 'wait'],
		['it never gets ready', { isReady: false, state: null, silentMs: LATE, elapsedMs: LATE }, 'not-ready'],
		['it is silent while the line is down', { isLineDown: true, state: null, silentMs: LATE }, 'not-ready'],
		['it dies for the third time', { restarts: MAX_RESTARTS, state: null }, 'crashes'],
		['it dies for the second time', { restarts: MAX_RESTARTS - 1, state: null }, 'wait'],
		['the machine starts again and again', { boots: MAX_BOOTS, state: null }, 'reboots'],
		[
			'the machine was restarted often, and it works',
			{ boots: MAX_BOOTS, state: 'online', onlineMs: PROVED_MS },
			'keep',
		],
		['dpkg was cut off before its scripts', { installed: { version: '0.3.0', state: 'unconfigured' } }, 'finish'],
		[
			'its script fails again',
			{ installed: { version: '0.3.0', state: 'unconfigured' }, wasFinished: true },
			'unfinished',
		],
		['dpkg was cut off between its files', { installed: { version: '0.3.0', state: 'half' } }, 'interrupted'],
		['the old version is in place', { installed: { version: '0.2.0', state: 'whole' } }, 'end'],
		['the package was removed', { installed: null }, 'end'],
	])('%s', (_what, look, expected) => expect(verdict(look)).toBe(expected));
});

describe('a device that was offline', () => {
	test.each<[string, Partial<Look>, string]>([
		['it waits for its line, ready and answering', { state: 'offline', elapsedMs: 100 * LATE }, 'wait'],
		['its line comes back', { state: 'online', onlineMs: PROVED_MS, elapsedMs: 100 * LATE }, 'keep'],
		['it is silent', { state: null, silentMs: LATE, elapsedMs: LATE }, 'not-ready'],
		['it dies', { restarts: MAX_RESTARTS }, 'crashes'],
	])('%s', (_what, look, expected) => expect(verdict(look, { before: 'offline' })).toBe(expected));
});

test('a device that a person had stopped is not started to be judged', () => {
	expect(verdict({ isReady: false, state: null, silentMs: LATE, elapsedMs: LATE }, { before: 'stopped' })).toBe('keep');
});

const looks = fc.record<Look>({
	elapsedMs: fc.nat(3_600_000),
	isBusy: fc.boolean(),
	installed: fc.option(
		fc.record({
			version: fc.constantFrom('0.2.0', '0.3.0', '0.4.0'),
			state: fc.constantFrom('whole', 'unconfigured', 'half'),
		}),
	),
	wasFinished: fc.boolean(),
	isReady: fc.boolean(),
	restarts: fc.nat(5),
	boots: fc.nat(5),
	state: fc.constantFrom('online', 'connecting', 'offline', 'blocked', 'unpaired', null),
	onlineMs: fc.nat(60_000),
	silentMs: fc.nat(3_600_000),
	isLineDown: fc.boolean(),
});

test('nothing is done while packages are being installed, and a working version is never taken back', () => {
	fc.assert(
		fc.property(looks, fc.constantFrom('online', 'offline', 'stopped'), (look, before) => {
			const { type } = judge({ ...CASE, before }, look);
			if (look.isBusy) expect(type).toBe('wait');
			const works = look.installed?.state === 'whole' && look.onlineMs >= PROVED_MS && look.restarts < MAX_RESTARTS;
			if (works && look.state === 'online') expect(type).not.toBe('goBack');
		}),
		{ numRuns: 2000 },
	);
});

test('a version is not believed when it blames a line that the version before gets through', () => {
	expect(isLineDown('service-unreachable', true)).toBe(false);
	expect(isLineDown('service-unreachable', false)).toBe(true);
	expect(isLineDown('service-overloaded', true)).toBe(true);
	expect(isLineDown('credential-refused', false)).toBe(false);
	expect(isLineDown(null, false)).toBe(false);
});
