import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { proveAfterMs } from '../../src/connection/beside.ts';
import { type Connection, connectionOf, type LinkEvent, type LinkState } from '../../src/connection/link.ts';
import {
	CLOSE_CODES,
	type DesiredRegistration,
	type KnownConnection,
	NOTHING_SUPERVISED,
	RENEW_AFTER,
	RENEW_AGAIN_MS,
	RENEW_SPREAD,
	type Registration,
	type Supervision,
	type SupervisorEffect,
	type SupervisorEvent,
	type SupervisorStep,
	servesRegistration,
	supervise,
} from '../../src/connection/supervisor.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const half = () => 0.5;

function registration(workflowId: string, more: Partial<Registration> = {}): Registration {
	return { baseUrl: 'https://id.example', request: { deviceId: 'kiosk-7', workflowId }, credentialId: '', ...more };
}
/** Wanted by a device that has nothing but its Connections. */
function desired(workflowId: string, more: Partial<DesiredRegistration> = {}): DesiredRegistration {
	return { ...registration(workflowId), hasReusableCredential: false, selfRegistration: false, ...more };
}
const withKey = (workflowId: string, more: Partial<DesiredRegistration> = {}) =>
	desired(workflowId, { credentialId: 'key-1', hasReusableCredential: true, ...more });
const connection = (token: string, lifeMs: number | null = null, obtainedAtMs = 0): Connection => ({
	token,
	obtainedAtMs,
	lifeMs,
});
const known = (made: Registration, token: string): KnownConnection => ({
	registration: { baseUrl: made.baseUrl, request: made.request, credentialId: made.credentialId },
	connection: connection(token),
});

const lost = failure('connection-lost', 'Gone.');
const refused = failure('credential-refused', 'Refused.');
const revoked = failure('connection-revoked', 'Revoked.');

type Told = LinkEvent extends infer E ? (E extends LinkEvent ? Omit<E, 'atMs' | 'attempt'> : never) : never;
const registered = (token: string, lifeMs: number | null = null): Told => ({
	type: 'registered',
	connection: connection(token, lifeMs),
});
const registerFailed = (cause = refused): Told => ({ type: 'registerFailed', failure: cause, timedOut: false });
const confirmed: Told = { type: 'channelConfirmed' };
const timer: Told = { type: 'timerFired' };
const ended = (cause = lost, closeCode: number | null = null): Told => ({
	type: 'channelEnded',
	failure: cause,
	timedOut: false,
	closeCode,
});

function want(
	from: Supervision,
	sought: DesiredRegistration | null,
	saved: KnownConnection[] = [],
	atMs = 0,
): SupervisorStep {
	return supervise(from, { type: 'desiredChanged', desired: sought, known: saved, atMs }, half);
}
/** Something happens to the current or the next link, in answer to what it is doing. */
function tell(from: Supervision, which: 'current' | 'next', told: Told, atMs = 1000): SupervisorStep {
	const link = from[which];
	if (!link) throw new Error(`There is no ${which} link.`);
	const event = { attempt: link.state.attempt, atMs, ...told } as LinkEvent;
	return supervise(from, { type: 'link', generation: link.generation, event }, half);
}
function tellAll(from: Supervision, which: 'current' | 'next', ...told: Told[]): Supervision {
	return told.reduce((reached, one) => tell(reached, which, one).supervision, from);
}
/** `2 register`: what is done, and for which link. */
function said(effects: readonly SupervisorEffect[]): string[] {
	return effects.map((effect) => `${effect.generation} ${effect.type === 'link' ? effect.effect.type : effect.type}`);
}
/** The credential or token that the one request or channel among the effects is made with. */
function shown(effects: readonly SupervisorEffect[]): unknown[] {
	return effects.flatMap((effect): unknown[] => {
		if (effect.type !== 'link') return [];
		if (effect.effect.type === 'register') return [effect.effect.credential];
		return effect.effect.type === 'openChannel' ? [effect.effect.token] : [];
	});
}

const offline = want(NOTHING_SUPERVISED, desired('w1'), [known(desired('w1'), 'token-1')]).supervision;
const online = tell(offline, 'current', confirmed).supervision;
const onlineWithKey = tellAll(
	want(NOTHING_SUPERVISED, withKey('w1')).supervision,
	'current',
	registered('token-1'),
	confirmed,
);
/** Online with w1, and on its way to w2. */
const moving = want(onlineWithKey, withKey('w2')).supervision;

describe('after a start', () => {
	test('a saved Connection that fits goes straight to the channel', () => {
		const saved = [known(desired('w0'), 'token-0'), known(desired('w1'), 'token-1')];
		const { supervision, effects } = want(NOTHING_SUPERVISED, desired('w1'), saved);
		expect(said(effects)).toEqual(['1 openChannel']);
		expect(shown(effects)).toEqual(['token-1']);
		expect(supervision.next).toBeNull();
	});

	test('the newest of several that fit is taken', () => {
		const saved = [known(desired('w1'), 'older'), known(desired('w1'), 'newer')];
		expect(shown(want(NOTHING_SUPERVISED, desired('w1'), saved).effects)).toEqual(['newer']);
	});

	test('without a saved Connection the device registers', () => {
		const { effects } = want(NOTHING_SUPERVISED, withKey('w1'));
		expect(said(effects)).toEqual(['1 register']);
		expect(shown(effects)).toEqual([{ kind: 'reusable' }]);
	});

	test('the workflow of the last Connection is live first, and the wanted one next to it', () => {
		const { supervision, effects } = want(NOTHING_SUPERVISED, withKey('w2'), [known(withKey('w1'), 'token-1')]);
		expect(said(effects)).toEqual(['1 openChannel', '2 register']);
		expect(supervision.current?.registration.request.workflowId).toBe('w1');
		const moved = tellAll(
			tell(supervision, 'current', confirmed).supervision,
			'next',
			registered('token-2'),
			confirmed,
		);
		expect(moved.current?.registration.request.workflowId).toBe('w2');
		expect(moved.next).toBeNull();
	});

	test('with nothing to show it waits for a person', () => {
		const { supervision } = want(NOTHING_SUPERVISED, desired('w1'));
		expect(supervision.current?.state).toMatchObject({ name: 'blocked', failure: { code: 'unpaired' } });
	});
});

describe('a change of the workflow', () => {
	test('leaves the old link alone until the new one is online, then closes it', () => {
		const changed = want(onlineWithKey, withKey('w2'));
		expect(said(changed.effects)).toEqual(['2 register']);
		const opened = tell(changed.supervision, 'next', registered('token-2'));
		expect(said(opened.effects)).toEqual(['2 keepConnection', '2 openChannel']);
		expect(opened.supervision.current).toBe(onlineWithKey.current);
		const moved = tell(opened.supervision, 'next', confirmed);
		expect(said(moved.effects)).toEqual(['2 linkPromoted', '1 closeChannel', '1 linkEnded']);
		expect(moved.effects[0]).toMatchObject({ connection: { token: 'token-2' } });
		expect(moved.effects[1]).toMatchObject({ effect: { code: CLOSE_CODES.done } });
		expect(moved.supervision).toMatchObject({ current: { generation: 2 }, next: null });
	});

	test('that is refused leaves the device online on the old one', () => {
		const { supervision, effects } = tell(want(online, desired('w2')).supervision, 'next', registerFailed());
		expect(said(effects)).toEqual(['2 wait']);
		expect(supervision.current).toBe(online.current);
		expect(supervision.next?.state.name).toBe('registerWait');
	});

	test('back to the old one drops the new link', () => {
		const back = want(moving, withKey('w1'));
		expect(said(back.effects)).toEqual(['2 linkEnded']);
		expect(back.supervision).toMatchObject({ current: onlineWithKey.current, next: null });
	});

	test('once more replaces the new link by a newer one', () => {
		const again = want(moving, withKey('w3'));
		expect(said(again.effects)).toEqual(['2 linkEnded', '3 register']);
		expect(again.supervision.next?.registration.request.workflowId).toBe('w3');
	});

	test('that is looked at again without having changed does nothing', () => {
		expect(want(moving, withKey('w2'))).toEqual({ supervision: moving, effects: [] });
		expect(want(online, desired('w1'))).toEqual({ supervision: online, effects: [] });
	});

	test('uses a Connection that was saved for it', () => {
		const { effects } = want(online, desired('w2'), [known(desired('w2'), 'token-2'), known(desired('w1'), 'token-1')]);
		expect(shown(effects)).toEqual(['token-2']);
	});

	test('gives up a link that never had a Connection: there is nothing to break', () => {
		const typo = tell(want(NOTHING_SUPERVISED, withKey('w-typo')).supervision, 'current', registerFailed());
		const { supervision, effects } = want(typo.supervision, withKey('w1'));
		expect(said(effects)).toEqual(['1 linkEnded', '2 register']);
		expect(supervision.current?.generation).toBe(2);
		expect(supervision.next).toBeNull();
	});

	test('of the heartbeat cadence alone makes a new link too', () => {
		const { effects } = want(
			online,
			desired('w1', { request: { deviceId: 'kiosk-7', workflowId: 'w1', heartbeatCadence: 5 } }),
		);
		expect(said(effects)).toEqual(['2 register']);
	});
});

describe('the credentials of a new link', () => {
	test('are a reusable one, then the Connection itself, then none', () => {
		const { supervision, effects } = want(onlineWithKey, withKey('w2', { selfRegistration: true }));
		expect(shown(effects)).toEqual([{ kind: 'reusable' }]);
		const second = tell(supervision, 'next', registerFailed());
		expect(shown(second.effects)).toEqual([{ kind: 'connection', token: 'token-1' }]);
		const third = tell(second.supervision, 'next', registerFailed());
		expect(shown(third.effects)).toEqual([{ kind: 'selfRegistration' }]);
		expect(said(tell(third.supervision, 'next', registerFailed()).effects)).toEqual(['2 wait']);
	});

	test('do not include a Connection to another service', () => {
		const elsewhere = withKey('w1', { baseUrl: 'https://other.example' });
		const { supervision, effects } = want(onlineWithKey, elsewhere);
		expect(shown(effects)).toEqual([{ kind: 'reusable' }]);
		expect(said(tell(supervision, 'next', registerFailed()).effects)).toEqual(['2 wait']);
		const alone = want(online, desired('w1', { baseUrl: 'https://other.example' }));
		expect(alone.supervision.next?.state).toMatchObject({ name: 'blocked', failure: { code: 'unpaired' } });
	});

	test('never show a new key to the old service', () => {
		const elsewhere = withKey('w1', { baseUrl: 'https://other.example', credentialId: 'key-2' });
		const changed = want(onlineWithKey, elsewhere).supervision;
		// The channel has counted: a new Connection would be shown again first.
		const closed = tell(changed, 'current', ended(refused, 1008), 10_000).supervision;
		const { supervision, effects } = tell(closed, 'current', timer, 20_000);
		expect(said(effects)).toEqual(['1 wait']);
		expect(supervision.current?.state).toMatchObject({ name: 'connectWait', connection: { token: 'token-1' } });
		expect(shown(tell(supervision, 'current', timer).effects)).toEqual(['token-1']);
	});

	test('never show a new key to the old service after a restart either', () => {
		const elsewhere = withKey('w1', { baseUrl: 'https://other.example', credentialId: 'key-2' });
		const { supervision } = want(NOTHING_SUPERVISED, elsewhere, [known(withKey('w1'), 'token-1')]);
		expect(supervision.current?.state).toMatchObject({ credentials: [] });
		expect(supervision.next?.state).toMatchObject({ credentials: [{ kind: 'reusable' }] });
	});

	test('show the old service the key that it has had, while another service is tried with the same one', () => {
		const elsewhere = withKey('w1', { baseUrl: 'https://other.example' });
		const { supervision } = want(NOTHING_SUPERVISED, elsewhere, [known(withKey('w1'), 'token-1')]);
		const both = [supervision.current, supervision.next].map((link) => link?.state);
		expect(both).toMatchObject([{ credentials: [{ kind: 'reusable' }] }, { credentials: [{ kind: 'reusable' }] }]);
	});

	test('that arrive make a link that has no Connection register with them at once', () => {
		const waiting = want(NOTHING_SUPERVISED, desired('w1')).supervision;
		expect(shown(want(waiting, withKey('w1')).effects)).toEqual([{ kind: 'reusable' }]);
		const self = want(waiting, desired('w1', { selfRegistration: true }));
		expect(said(self.effects)).toEqual(['1 linkEnded', '2 register']);
		const onlineElsewhere = want(online, desired('w1', { baseUrl: 'https://other.example' })).supervision;
		const opened = want(onlineElsewhere, desired('w1', { baseUrl: 'https://other.example', selfRegistration: true }));
		expect(said(opened.effects)).toEqual(['2 linkEnded', '3 register']);
	});

	test('that are taken away leave a link with its Connection as it is', () => {
		expect(want(onlineWithKey, desired('w1'))).toMatchObject({ supervision: { next: null }, effects: [] });
	});
});

describe('whether a Connection serves another registration', () => {
	test.each<[string, Registration, Registration, boolean]>([
		['the same', registration('w1'), registration('w1'), true],
		['another workflow', registration('w1'), registration('w2'), false],
		['another service', registration('w1'), registration('w1', { baseUrl: 'https://other.example' }), false],
		[
			'another serial',
			registration('w1'),
			registration('w1', { request: { ...registration('w1').request, serial: 'S1' } }),
			false,
		],
		['a credential that was added', registration('w1'), registration('w1', { credentialId: 'key-1' }), false],
		[
			'a credential that was changed',
			registration('w1', { credentialId: 'key-1' }),
			registration('w1', { credentialId: 'key-2' }),
			false,
		],
		['a credential that was taken away', registration('w1', { credentialId: 'key-1' }), registration('w1'), true],
	])('%s', (_, made, sought, serves) => {
		expect(servesRegistration(made, sought)).toBe(serves);
	});
});

describe('an old channel that the service ends because the new link has registered', () => {
	const both = tell(moving, 'next', registered('token-2')).supervision;

	test.each([
		[1008, refused],
		[4401, refused],
		[1008, revoked],
	])('with %i is no refusal', (closeCode, cause) => {
		const { supervision, effects } = tell(both, 'current', ended(cause, closeCode));
		expect(said(effects)).toEqual(['1 wait']);
		expect(supervision.current?.state).toMatchObject({
			name: 'connectWait',
			failure: { code: 'connection-replaced' },
			backoff: { refusedAtMs: null },
		});
		const moved = tell(supervision, 'next', confirmed);
		expect(said(moved.effects)).toEqual(['2 linkPromoted', '1 linkEnded']);
	});

	test('long after that registration keeps the words of the service, and registers no second time [F1035]', () => {
		const { supervision, effects } = tell(both, 'current', ended(refused, 1008), 12_000);
		expect(said(effects)).toEqual(['1 wait']);
		const { code, message } = refused;
		expect(supervision.current?.state).toMatchObject({ name: 'connectWait', failure: { code, message } });
	});

	test('is left for another way or another service only once a channel there has lasted, with the Connection of now or a new one [F1409]', () => {
		const [way, other] = ['a-r', 'b-r'];
		const start = withKey('w1', { way });
		const begun = want(NOTHING_SUPERVISED, start, [known(start, 'token-1')]).supervision;
		const online = tell(begun, 'current', confirmed).supervision;
		const changes = [
			{ way: other },
			{ way: other, baseUrl: 'https://other.example' },
			{ way, baseUrl: 'https://other.example' },
		];
		for (const change of changes) {
			const wanted = want(online, withKey('w1', change));
			const opened = tell(wanted.supervision, 'next', registered('token-2'));
			const asks = [...wanted.effects, ...opened.effects].flatMap((one) =>
				one.type === 'link' && one.effect.type === 'openChannel' ? [one.effect.provesByAge] : [],
			);
			expect(asks).toEqual([true]);
			expect(said([...wanted.effects, ...opened.effects])).not.toContain('2 linkPromoted');
		}
		// A move by the same way is quick.
		const moved = tell(want(online, withKey('w2', { way })).supervision, 'next', registered('token-2'));
		expect(moved.effects.some((one) => one.type === 'link' && 'provesByAge' in one.effect)).toBe(false);
	});

	test('is left for another way or service only once a channel there has lasted 15 s, or a quarter of the limit, also while it is away [F1413]', () => {
		const [way, other] = ['a-r', 'b-r'];
		const start = withKey('w1', { way });
		const begun = want(NOTHING_SUPERVISED, start, [known(start, 'token-1')]).supervision;
		const online = tell(begun, 'current', confirmed).supervision;
		const [gone, limitMs] = [ended(failure('connection-lost', 'Gone.'), null), 300_000];
		for (const change of [{ way: other }, { way, baseUrl: 'https://other.example' }]) {
			const tried = want(online, withKey('w1', change)).supervision;
			const generation = tried.next?.generation ?? 0;
			expect([300, 40, 10].map((seconds) => proveAfterMs(generation, tried, seconds * 1000))).toEqual([
				15_000, 10_000, 3000,
			]);
			// One end of the old channel takes no device away.
			expect(proveAfterMs(generation, tell(tried, 'current', gone).supervision, limitMs)).toBe(15_000);
			expect(proveAfterMs(tried.current?.generation ?? 0, tried, limitMs)).toBeUndefined();
			const paired = { ...tried, next: tried.next && { ...tried.next, reason: 'pairing' as const } };
			expect(proveAfterMs(generation, paired, limitMs)).toBeUndefined();
		}
		const moved = want(online, withKey('w2', { way })).supervision;
		expect(proveAfterMs(moved.next?.generation ?? 0, moved, limitMs)).toBeUndefined();
	});

	test('takes the new Connection where the way that is tried fails with it, and no earlier [F1252]', () => {
		const [way, other] = ['a-r', 'b-r'];
		const online = want(NOTHING_SUPERVISED, withKey('w1', { way }), [
			known(withKey('w1', { way }), 'token-1'),
		]).supervision;
		const tried = want(tell(online, 'current', confirmed).supervision, withKey('w1', { way: other })).supervision;
		const gone = ended(failure('channel-not-found', '404.'), null);
		const renewed = tell(tell(tried, 'next', gone).supervision, 'next', { type: 'timerFired' }, 9000).supervision;
		const fresh = tell(renewed, 'next', registered('token-2'), 9000).supervision;
		const early = tell(fresh, 'current', ended(refused, 1008), 20_000).supervision;
		expect(connectionOf(early.current?.state as LinkState)?.token).toBe('token-1');
		const failed = tell(fresh, 'next', gone, 9000).supervision;
		const shared = tell(failed, 'current', ended(refused, 1008), 20_000).supervision.current?.state;
		expect(shared).toMatchObject({ name: 'connectWait', connection: { token: 'token-2' } });
		expect((shared as { untilMs: number }).untilMs).toBeLessThanOrEqual(25_000);
		// One that waits already takes it at once, and saves it when it is online with it.
		const waiting = tell(tried, 'current', ended(refused, 1008)).supervision;
		const again = tell(tell(waiting, 'next', gone).supervision, 'next', { type: 'timerFired' }, 9000).supervision;
		const failing = tell(tell(again, 'next', registered('token-3'), 9000).supervision, 'next', gone, 9500);
		expect(said(failing.effects)).toEqual(['2 wait', '1 wait']);
		// Once: what fails with it again and again does not hurry the other.
		const retried = tell(failing.supervision, 'next', { type: 'timerFired' }, 12_000).supervision;
		expect(said(tell(retried, 'next', gone, 12_100).effects)).toEqual(['2 wait']);
		const opened = tell(failing.supervision, 'current', { type: 'timerFired' }, 14_500);
		expect(shown(opened.effects)).toEqual(['token-3']);
		const back = tell(opened.supervision, 'current', confirmed, 14_600);
		expect(said(back.effects)).toEqual(['1 keepConnection', '1 linkPromoted']);
		// For another workflow it is another Connection.
		const moved = tell(both, 'next', ended(failure('channel-not-found', '404.'), null), 1000).supervision;
		const kept = tell(moved, 'current', ended(refused, 1008), 20_000).supervision;
		expect(connectionOf(kept.current?.state as LinkState)?.token).toBe('token-1');
	});

	test('is closed for one by another way only where that has ended early twice: both may have been cut at once [F1431]', () => {
		const [way, other] = ['a-r', 'b-r'];
		const saved = [known(withKey('w1'), 'token-1')];
		const begun = want(NOTHING_SUPERVISED, withKey('w1', { way }), saved).supervision;
		const tried = want(tell(begun, 'current', confirmed).supervision, withKey('w1', { way: other }), saved).supervision;
		const cut = { ...ended(), wasOpen: true, openMs: 1000 } as Told;
		const once = tell(tried, 'next', cut).supervision;
		expect(once.current?.state.name).toBe('online');
		const again = tell(tell(once, 'next', timer, 5000).supervision, 'next', cut, 6000).supervision;
		expect(again.current?.state).toMatchObject({ name: 'connectWait', failure: { code: 'channel-occupied' } });
		// Then it is short of time: the device is offline meanwhile. Beside one that has come back there is time again.
		const opened = tell(again, 'next', timer, 6700).supervision;
		expect(proveAfterMs(2, opened, 300_000)).toBe(3000);
		const back = tell(tell(opened, 'next', ended(), 9000).supervision, 'current', confirmed, 9100).supervision;
		expect(proveAfterMs(2, tell(back, 'next', timer, 20_000).supervision, 300_000)).toBe(15_000);
		// What a service says of the place is clear at once, and so is a move by the same way.
		const said = failure('channel-occupied', 'One channel.');
		expect(tell(tried, 'next', ended(said)).supervision.current?.state.name).toBe('connectWait');
		expect(tell(both, 'next', cut).supervision.current?.state.name).toBe('connectWait');
	});

	test('is not made room for where the new one was open for some seconds: that is no second channel that a service minds [F1417]', () => {
		for (const [openMs, stays] of [
			[2900, false],
			[4000, true],
			[12_000, true],
		] as const) {
			const late = { ...ended(refused, 1008), wasOpen: true, openMs } as Told;
			const { supervision } = tell(both, 'next', late);
			expect([openMs, supervision.current?.state.name === 'online']).toEqual([openMs, stays]);
		}
	});

	test('is not made room for where the new one ended itself, as no confirmation came [F1257]', () => {
		const silent = { ...ended(failure('handshake-timeout', 'Not confirmed.')), wasOpen: true } as Told;
		const { supervision } = tell(both, 'next', silent);
		expect([supervision.current?.state.name, supervision.next?.state.name]).toEqual(['online', 'connectWait']);
		const lost = tell(both, 'next', { ...ended(), wasOpen: true } as Told).supervision;
		expect(lost.current?.state.name).toBe('connectWait');
	});

	test('that has come back leaves the Connection of the new one to be saved again once that is online [F1280]', () => {
		// The channel of a new Connection counts, and every one after it ends at once: the old one comes back.
		const gone = ended(failure('channel-not-found', '404.'), 4403);
		const failing = tell(tell(both, 'next', confirmed).supervision, 'current', gone, 1100).supervision;
		const tried = tell(failing, 'current', timer, 1800).supervision;
		const back = tell(tried, 'current', gone, 4000);
		expect(said(back.effects)).toEqual(['2 wait', '3 keepConnection', '3 openChannel']);
		const again = tell(tell(back.supervision, 'current', confirmed, 4100).supervision, 'next', timer, 10_000);
		const promoted = tell(again.supervision, 'next', confirmed, 13_000);
		expect(said(promoted.effects)).toEqual(['2 keepConnection', '2 linkPromoted', '3 closeChannel', '3 linkEnded']);
	});

	test('and told so by a message is left to end by itself', () => {
		const event: SupervisorEvent = { type: 'link', generation: 1, event: { type: 'connectionRevoked', atMs: 1000 } };
		expect(supervise(both, event, half)).toEqual({ supervision: both, effects: [] });
	});

	test('is no refusal either before the answer has come, and the new link registers once [F435]', () => {
		const { supervision, effects } = tell(moving, 'current', ended(refused, 1008));
		expect(said(effects)).toEqual(['1 wait']);
		// Why it ended is not known yet: the words of the service stay.
		const { code, message } = refused;
		expect(supervision.current?.state).toMatchObject({
			name: 'connectWait',
			failure: { code, message, recovers: true },
			backoff: { refusedAtMs: null },
		});
		const answered = tell(supervision, 'next', registered('token-2'));
		expect(said(answered.effects)).toEqual(['2 keepConnection', '2 openChannel']);
		expect(said(tell(answered.supervision, 'next', confirmed).effects)).toEqual(['2 linkPromoted', '1 linkEnded']);
	});

	test('is a refusal after the registration has failed: then the old Connection has been tried once more', () => {
		const waiting = tellAll(tell(moving, 'current', ended(refused, 1008)).supervision, 'next', registerFailed(lost));
		const tried = tell(waiting, 'current', timer);
		expect(said(tried.effects)).toEqual(['1 openChannel']);
		expect(tell(tried.supervision, 'current', ended(refused)).supervision.current?.state).toMatchObject({
			name: 'registerWait',
			failure: { code: 'credential-refused' },
			backoff: { refusedAtMs: 1000 },
		});
	});

	test('is a refusal while the new link has no Connection and waits', () => {
		const waiting = tellAll(moving, 'next', registerFailed(lost));
		expect(tell(waiting, 'current', ended(refused, 1008)).supervision.current?.state).toMatchObject({
			failure: { code: 'credential-refused' },
			backoff: { refusedAtMs: 1000 },
		});
	});

	test('is a refusal when the new link’s own channel is refused for good', () => {
		const forbidden = failure('access-forbidden', 'Not allowed.');
		const blocked = tell(both, 'next', ended(forbidden)).supervision;
		expect(blocked.next?.state.name).toBe('blocked');
		expect(tell(blocked, 'current', ended(refused, 1008)).supervision.current?.state).toMatchObject({
			failure: { code: 'credential-refused' },
		});
	});

	test('lost for another reason is simply lost', () => {
		expect(tell(both, 'current', ended(lost, 1006)).supervision.current?.state).toMatchObject({
			failure: { code: 'connection-lost' },
		});
	});
});

describe('pairing', () => {
	const paired = (from: Supervision, sought: DesiredRegistration, token = 'fresh') =>
		supervise(from, { type: 'paired', desired: sought, connection: connection(token), atMs: 500 }, half);

	test('an unpaired device goes straight to the channel with the fresh Connection', () => {
		const { supervision, effects } = paired(NOTHING_SUPERVISED, desired('w1'));
		expect(said(effects)).toEqual(['1 openChannel']);
		expect(shown(effects)).toEqual(['fresh']);
		expect(supervision.current?.reason).toBe('pairing');
	});

	test('with the same registration moves to the fresh Connection, make before break', () => {
		const { supervision, effects } = paired(online, desired('w1'));
		expect(said(effects)).toEqual(['2 openChannel']);
		expect(want(supervision, desired('w1')).effects).toEqual([]);
		expect(said(tell(supervision, 'next', confirmed).effects)).toEqual([
			'2 linkPromoted',
			'1 closeChannel',
			'1 linkEnded',
		]);
	});

	test('with another service keeps the device online until that one answers', () => {
		const { supervision } = paired(online, desired('w1', { baseUrl: 'https://other.example' }));
		expect(supervision.current).toBe(online.current);
		expect(supervision.next?.state).toMatchObject({ name: 'connecting', credentials: [] });
	});

	test('replaces a move that is under way, and a link that only waits for a credential', () => {
		expect(said(paired(moving, withKey('w3')).effects)).toEqual(['2 linkEnded', '3 openChannel']);
		const waiting = want(NOTHING_SUPERVISED, desired('w1')).supervision;
		const { supervision, effects } = paired(waiting, desired('w1'));
		expect(said(effects)).toEqual(['1 linkEnded', '2 openChannel']);
		expect(supervision.current?.generation).toBe(2);
	});
});

describe('renewal', () => {
	const living = want(NOTHING_SUPERVISED, withKey('w1')).supervision;
	const withLife = (lifeMs: number | null, random: number) => {
		const opened = tell(living, 'current', registered('token-1', lifeMs)).supervision;
		const attempt = opened.current?.state.attempt ?? 0;
		const event: LinkEvent = { type: 'channelConfirmed', attempt, atMs: 1000 };
		return supervise(opened, { type: 'link', generation: 1, event }, () => random);
	};
	const old = withLife(DAY, 0).supervision;
	const due = (from: Supervision, generation = 1, atMs = 0.8 * DAY) =>
		supervise(from, { type: 'renewalDue', generation, atMs }, half);
	/** Without a key, so that the Connection is all there is. */
	const alone = tellAll(
		supervise(
			NOTHING_SUPERVISED,
			{ type: 'paired', desired: desired('w1'), connection: connection('token-1', DAY), atMs: 0 },
			half,
		).supervision,
		'current',
		confirmed,
	);
	const stuck = tellAll(want(alone, desired('w-typo')).supervision, 'next', registerFailed());

	test.each([
		{ random: 0, share: RENEW_AFTER },
		{ random: 0.5, share: RENEW_AFTER + RENEW_SPREAD / 2 },
	])('is due at $share of the Connection’s life when chance says $chance', ({ random, share }) => {
		expect(withLife(DAY, random).effects).toContainEqual({ type: 'renewAt', generation: 1, atMs: share * DAY });
		expect(share).toBeGreaterThanOrEqual(0.8);
		expect(share).toBeLessThan(0.85);
	});

	test('that gets a surprising answer is tried again soon: the same registration works', () => {
		const surprising = registerFailed(failure('bad-response', '404.'));
		const renewing = due(alone).supervision;
		expect(tell(renewing, 'next', surprising, 0.8 * DAY).supervision.next?.state.name).toBe('registerWait');
		// A move has shown nothing of its own yet: an answer that may speak of it asks for a person.
		const moving = want(alone, desired('w2')).supervision;
		expect(tell(moving, 'next', surprising).supervision.next?.state.name).toBe('registerWait');
		const unknown = registerFailed(failure('workflow-unknown', '404.'));
		expect(tell(moving, 'next', unknown).supervision.next?.state.name).toBe('blocked');
	});

	test('is due at once when that time has passed', () => {
		expect(withLife(1000, 0.5).effects).toContainEqual({ type: 'renewAt', generation: 1, atMs: 1000 });
	});

	test('is not planned for a Connection that does not say how long it lives', () => {
		expect(said(withLife(null, 0.5).effects)).toEqual(['1 linkPromoted']);
	});

	test.each([
		{ waitMs: 600_000, done: ['1 linkPromoted', '1 renewAt', '2 register'] },
		{ waitMs: 60_000, done: ['1 linkPromoted', '1 renewAt'] },
	])(
		'that waits $waitMs ms when the channel is back is tried at once only if the Connection would end before',
		({ waitMs, done }) => {
			const endMs = DAY;
			const cut = tell(due(alone).supervision, 'current', ended(), endMs - 310_000).supervision;
			const busy = failure('service-overloaded', 'busy', { retryAfterMs: waitMs });
			const waiting = tell(cut, 'next', registerFailed(busy), endMs - 300_000).supervision;
			expect(waiting.next?.state.name).toBe('registerWait');
			const dialled = tell(waiting, 'current', timer, endMs - 290_000).supervision;
			expect(said(tell(dialled, 'current', confirmed, endMs - 280_000).effects)).toEqual(done);
		},
	);

	test('that waits is given up when the link whose Connection had ended has registered anew itself [F1319]', () => {
		const busy = failure('service-overloaded', 'busy', { retryAfterMs: 600_000 });
		const cut = tell(
			tell(due(old).supervision, 'next', registerFailed(busy), 0.8 * DAY).supervision,
			'current',
			ended(revoked),
			DAY,
		);
		const asked =
			cut.supervision.current?.state.name === 'registerWait' ? tell(cut.supervision, 'current', timer, DAY) : cut;
		const fresh = { type: 'registered', connection: { ...connection('token-2', DAY), obtainedAtMs: DAY } } as const;
		const opened = tell(asked.supervision, 'current', fresh, DAY).supervision;
		expect(opened.next).toMatchObject({ reason: 'renewal', state: { name: 'registerWait' } });
		const { supervision, effects } = tell(opened, 'current', confirmed, DAY + 1000);
		expect(said(effects)).toEqual(['1 linkPromoted', '1 renewAt', '2 linkEnded']);
		expect(supervision).toMatchObject({ current: { state: { name: 'online' } }, next: null });
	});

	test('registers anew and moves over, make before break', () => {
		const { supervision, effects } = due(old);
		expect(said(effects)).toEqual(['2 register', '1 renewAt']);
		expect(supervision.next).toMatchObject({
			reason: 'renewal',
			registration: registration('w1', { credentialId: 'key-1' }),
		});
		const moved = tell(tellAll(supervision, 'next', registered('token-2', DAY)), 'next', confirmed, DAY);
		expect(said(moved.effects)).toEqual(['2 linkPromoted', '2 renewAt', '1 closeChannel', '1 linkEnded']);
	});

	test('that is refused leaves the old channel open', () => {
		const second = tell(due(old).supervision, 'next', registerFailed());
		expect(shown(second.effects)).toEqual([{ kind: 'connection', token: 'token-1' }]);
		const { supervision } = tell(second.supervision, 'next', registerFailed());
		expect(supervision.current).toBe(old.current);
		expect(supervision.next?.state.name).toBe('registerWait');
	});

	test('of a link that is no longer the current one does nothing', () => {
		expect(due(old, 7)).toEqual({ supervision: old, effects: [] });
		expect(due(NOTHING_SUPERVISED)).toEqual({ supervision: NOTHING_SUPERVISED, effects: [] });
	});

	test('is considered again while another link is being made', () => {
		const changed = want(old, withKey('w2')).supervision;
		const again = 0.8 * DAY + RENEW_SPREAD * DAY;
		expect(due(changed)).toEqual({
			supervision: changed,
			effects: [{ type: 'renewAt', generation: 1, atMs: again }],
		});
		const brief = withLife(2000, 0).supervision;
		expect(due(want(brief, withKey('w2')).supervision, 1, 1600).effects).toEqual([
			{ type: 'renewAt', generation: 1, atMs: 1600 + RENEW_AGAIN_MS },
		]);
	});

	test('goes before a move that cannot succeed: the old Connection must not run out over it', () => {
		const { supervision, effects } = due(stuck);
		expect(said(effects)).toEqual(['2 linkEnded', '3 register', '1 renewAt']);
		expect(supervision.next).toMatchObject({ reason: 'renewal', registration: { request: { workflowId: 'w1' } } });
		const moved = tell(tellAll(supervision, 'next', registered('token-2')), 'next', confirmed);
		expect(said(moved.effects)).toEqual(['3 linkPromoted', '1 closeChannel', '1 linkEnded', '4 register']);
		expect(moved.supervision.next?.registration.request.workflowId).toBe('w-typo');
		expect(shown(moved.effects)).toEqual([{ kind: 'connection', token: 'token-2' }]);
	});

	test('that went before a move gives its place back when it is refused too', () => {
		const { supervision, effects } = tell(due(stuck).supervision, 'next', registerFailed());
		expect(said(effects)).toEqual(['3 wait', '3 linkEnded', '4 register']);
		expect(supervision.next).toMatchObject({ reason: 'desired', registration: { request: { workflowId: 'w-typo' } } });
		expect(supervision.current).toBe(alone.current);
	});

	test('that has its Connection is not given up for a move', () => {
		const opened = tellAll(due(stuck).supervision, 'next', registered('token-2'));
		const { supervision, effects } = tell(opened, 'next', ended());
		expect(said(effects)).toEqual(['3 wait']);
		expect(supervision.next?.state).toMatchObject({ name: 'connectWait', connection: { token: 'token-2' } });
	});
});

describe('the end', () => {
	test('a stop closes both links with 1001, and the device is not unpaired by it', () => {
		const both = tell(moving, 'next', registered('token-2')).supervision;
		const { supervision, effects } = supervise(both, { type: 'stopRequested', atMs: 2000 }, half);
		expect(said(effects)).toEqual(['2 closeChannel', '2 linkEnded', '1 closeChannel', '1 linkEnded']);
		expect(effects.filter((effect) => effect.type === 'link').map(({ effect }) => effect)).toEqual([
			{ type: 'closeChannel', code: 1001 },
			{ type: 'closeChannel', code: 1001 },
		]);
		expect(supervision).toMatchObject({ desired: null, current: { state: { name: 'closed' } }, next: null });
	});

	test('of every wish closes both links with 1000', () => {
		const { supervision, effects } = want(moving, null);
		expect(said(effects)).toEqual(['2 linkEnded', '1 closeChannel', '1 linkEnded']);
		expect(supervision).toEqual({ ...NOTHING_SUPERVISED, lastGeneration: 2, budget: moving.budget });
		expect(want(NOTHING_SUPERVISED, null)).toEqual({ supervision: NOTHING_SUPERVISED, effects: [] });
	});

	test('of a link is the end of its events: a later link has another generation', () => {
		const gone = want(moving, withKey('w1')).supervision;
		const late: SupervisorEvent = {
			type: 'link',
			generation: 2,
			event: { type: 'registered', attempt: 1, connection: connection('late'), atMs: 3000 },
		};
		expect(supervise(gone, late, half)).toEqual({ supervision: gone, effects: [] });
		expect(want(gone, withKey('w2')).supervision.next?.generation).toBe(3);
	});
});

test('a person’s retry reaches both links', () => {
	const waiting = tell(tellAll(moving, 'next', registerFailed(), registerFailed()), 'current', ended()).supervision;
	const { effects } = supervise(waiting, { type: 'retryRequested', atMs: 2000 }, half);
	expect(said(effects)).toEqual(['1 openChannel', '2 register']);
});

test('a person’s retry of a move leaves the channel alone that is online', () => {
	const waiting = tellAll(moving, 'next', registerFailed(), registerFailed());
	const { supervision, effects } = supervise(waiting, { type: 'retryRequested', atMs: 2000 }, half);
	expect(said(effects)).toEqual(['2 register']);
	expect(supervision.current?.state.name).toBe('online');
});

test('a link that comes back online is promoted again without ending anything', () => {
	const lostOnce = tell(tell(online, 'current', ended()).supervision, 'current', timer).supervision;
	const { supervision, effects } = tell(lostOnce, 'current', confirmed);
	expect(said(effects)).toEqual(['1 linkPromoted']);
	expect(supervision.current?.state.name).toBe('online');
});
