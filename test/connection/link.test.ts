import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { NO_FAILURES } from '../../src/connection/backoff.ts';
import {
	type Connection,
	type Credential,
	type LinkEvent,
	type LinkState,
	startLink,
	TRANSITIONS,
	transition,
} from '../../src/connection/link.ts';

const CONNECTION: Connection = { token: 'connection-1', obtainedAtMs: 0, lifeMs: null };
const RENEWED: Connection = { token: 'connection-2', obtainedAtMs: 0, lifeMs: null };
const REUSABLE: Credential = { kind: 'reusable' };
const OWN: Credential = { kind: 'connection', token: 'connection-1' };
const half = () => 0.5;
const MINUTE = 60_000;

const unreachable = failure('service-unreachable', 'No answer.');
const refused = failure('credential-refused', 'Refused.');
const forbidden = failure('access-forbidden', 'Not allowed.');
const lost = failure('connection-lost', 'Gone.');

/** An event that answers the state's own attempt. */
type Told = LinkEvent extends infer E ? (E extends LinkEvent ? Omit<E, 'atMs' | 'attempt'> : never) : never;
function tell(state: LinkState, event: Told, atMs = 1000) {
	return transition(state, { attempt: state.attempt, atMs, ...event } as LinkEvent, half);
}
function walk(state: LinkState, ...events: Told[]): LinkState {
	return events.reduce((reached, event) => tell(reached, event).state, state);
}
const ended = (cause = lost, more: { timedOut?: boolean; closeCode?: number } = {}): Told => ({
	type: 'channelEnded',
	failure: cause,
	timedOut: more.timedOut ?? false,
	closeCode: more.closeCode ?? null,
});
const registerFailed = (cause = unreachable): Told => ({ type: 'registerFailed', failure: cause, timedOut: false });
const timer: Told = { type: 'timerFired' };
const confirmed: Told = { type: 'channelConfirmed' };
const changed: Told = { type: 'settingsChanged', bears: true };

const states = {
	registering: startLink([REUSABLE], null, 0).state,
	registerWait: walk(startLink([REUSABLE], null, 0).state, registerFailed()),
	connecting: startLink([REUSABLE], CONNECTION, 0).state,
	online: walk(startLink([REUSABLE], CONNECTION, 0).state, confirmed),
	connectWait: walk(startLink([REUSABLE], CONNECTION, 0).state, ended()),
	blocked: walk(startLink([OWN], CONNECTION, 0).state, ended(forbidden)),
	closed: walk(startLink([REUSABLE], CONNECTION, 0).state, { type: 'closeRequested', code: 1000 }),
} satisfies Record<LinkState['name'], LinkState>;

const rows: [keyof typeof states, Told, LinkState['name'], string[]][] = [
	['registering', { type: 'registered', connection: CONNECTION }, 'connecting', ['keepConnection', 'openChannel']],
	['registering', registerFailed(), 'registerWait', ['wait']],
	['registering', changed, 'registering', []],
	['registering', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['registerWait', timer, 'registering', ['register']],
	['registerWait', { type: 'retryRequested' }, 'registering', ['register']],
	['registerWait', changed, 'registering', ['register']],
	['registerWait', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['connecting', confirmed, 'online', []],
	['connecting', ended(), 'connectWait', ['wait']],
	['connecting', { type: 'connectionRevoked' }, 'registerWait', ['closeChannel', 'wait']],
	['connecting', changed, 'connecting', []],
	['connecting', { type: 'closeRequested', code: 1000 }, 'closed', ['closeChannel']],
	['online', ended(), 'connectWait', ['wait']],
	['online', { type: 'connectionRevoked' }, 'registerWait', ['closeChannel', 'wait']],
	['online', { type: 'retryRequested' }, 'connecting', ['closeChannel', 'openChannel']],
	['online', { type: 'closeRequested', code: 1001 }, 'closed', ['closeChannel']],
	['connectWait', timer, 'connecting', ['openChannel']],
	['connectWait', { type: 'retryRequested' }, 'connecting', ['openChannel']],
	['connectWait', changed, 'connecting', ['openChannel']],
	['connectWait', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['blocked', timer, 'connecting', ['openChannel']],
	['blocked', { type: 'retryRequested' }, 'connecting', ['openChannel']],
	['blocked', changed, 'connecting', ['openChannel']],
	['blocked', { type: 'closeRequested', code: 1000 }, 'closed', []],
];

describe('each row of the transition table', () => {
	test.each(rows)('%s, %o → %s', (from, event, to, effects) => {
		const step = tell(states[from], event);
		expect(step.state.name).toBe(to);
		expect(step.effects.map((effect) => effect.type)).toEqual(effects);
	});

	test('has a case here', () => {
		const listed = Object.entries(TRANSITIONS).flatMap(([from, row]) =>
			Object.keys(row).map((type) => `${from} ${type}`),
		);
		const tested = rows.map(([from, event]) => `${from} ${event.type}`);
		expect(new Set(tested)).toEqual(new Set(listed));
	});

	test('and a pair that is not in the table changes nothing', () => {
		const all = new Map(rows.map(([, event]) => [event.type, event]));
		for (const [name, state] of Object.entries(states))
			for (const [type, event] of all) {
				if (type in TRANSITIONS[name as LinkState['name']]) continue;
				expect(tell(state, event)).toEqual({ state, effects: [] });
			}
	});
});

test('an event that answers an older attempt changes nothing', () => {
	for (const state of Object.values(states))
		for (const [, event] of rows) {
			if (['retryRequested', 'settingsChanged', 'closeRequested', 'connectionRevoked'].includes(event.type)) continue;
			const stale = { ...event, attempt: state.attempt - 1, atMs: 5000 } as LinkEvent;
			expect(transition(state, stale, half)).toEqual({ state, effects: [] });
		}
});

describe('registering', () => {
	test('takes the next credential at once when one is refused', () => {
		const step = tell(startLink([REUSABLE, OWN], null, 0).state, registerFailed(refused));
		expect(step.effects).toEqual([{ type: 'register', attempt: 2, credential: OWN }]);
	});

	test('does not try the next credential for a failure that is nobody’s refusal', () => {
		const step = tell(startLink([REUSABLE, OWN], null, 0).state, registerFailed(unreachable));
		expect(step.state.name).toBe('registerWait');
	});

	test('begins again with the first credential after a wait', () => {
		const waiting = walk(startLink([REUSABLE, OWN], null, 0).state, registerFailed(refused), registerFailed(refused));
		expect(tell(waiting, timer).effects).toMatchObject([{ type: 'register', credential: REUSABLE }]);
	});

	test('without any credential waits for a person', () => {
		const { state, effects } = startLink([], null, 0);
		expect(state).toMatchObject({ name: 'blocked', failure: { code: 'unpaired' } });
		expect(effects).toHaveLength(1);
	});

	test('an unknown workflow waits for a person, at the slow pace', () => {
		const unknown = failure('workflow-unknown', 'No such workflow.');
		const { state, effects } = tell(states.registering, registerFailed(unknown));
		expect(state).toMatchObject({ name: 'blocked', next: 'register' });
		expect(effects).toMatchObject([{ type: 'wait', delayMs: 7.5 * MINUTE }]);
	});
});

describe('a refused channel', () => {
	test('registers again when there is a reusable credential', () => {
		const waiting = tell(states.online, ended(refused, { closeCode: 1008 }));
		expect(waiting.state.name).toBe('registerWait');
		expect(tell(waiting.state, timer).effects).toMatchObject([{ type: 'register', credential: REUSABLE }]);
	});

	/** What happens when everything is refused for so long, from the first refusal on: when a person was asked, and the waits. */
	function refusedFor(first: LinkState, lastsMs: number, register: 'refused' | 'accepted', random = half) {
		let state = first;
		let atMs = 1000;
		let blockedAtMs: number | null = null;
		const waits: number[] = [];
		while (atMs < lastsMs) {
			const answer: Told =
				state.name !== 'registering'
					? ended(refused)
					: register === 'refused'
						? registerFailed(refused)
						: { type: 'registered', connection: { ...CONNECTION, obtainedAtMs: atMs } };
			const step = transition(state, { attempt: state.attempt, atMs, ...answer } as LinkEvent, random);
			state = step.state;
			if (state.name === 'blocked') blockedAtMs ??= atMs - 1000;
			for (const effect of step.effects)
				if (effect.type === 'wait') {
					waits.push(effect.delayMs);
					atMs += effect.delayMs;
					state = transition(state, { type: 'timerFired', attempt: effect.attempt, atMs }, random).state;
				}
		}
		return { blockedAtMs, waits };
	}

	test.each([
		['without another credential', [OWN]],
		['with a key that is refused as well', [REUSABLE, OWN]],
	])('%s needs a person after 10 to 15 min, not before', (_, credentials) => {
		for (const random of [() => 0, half, () => 0.999_999]) {
			const { blockedAtMs, waits } = refusedFor(
				startLink(credentials, CONNECTION, 0).state,
				30 * MINUTE,
				'refused',
				random,
			);
			expect(blockedAtMs).toBeGreaterThanOrEqual(10 * MINUTE);
			expect(blockedAtMs).toBeLessThanOrEqual(15 * MINUTE);
			for (const wait of waits.slice(2, 6)) {
				expect(wait).toBeGreaterThanOrEqual(30_000);
				expect(wait).toBeLessThanOrEqual(120_000);
			}
		}
	});

	test('of a device that was online within a day is borne for longer, and tried more often afterwards', () => {
		const DAY = 24 * 60 * MINUTE;
		const never = refusedFor(startLink([OWN], CONNECTION, 0).state, DAY / 2, 'refused');
		const lately = walk(walk(startLink([OWN], CONNECTION, 0).state, confirmed), ended(lost), timer);
		const recent = refusedFor(lately, DAY / 2, 'refused');
		expect(recent.blockedAtMs).toBeGreaterThan(never.blockedAtMs ?? 0);
		expect(recent.blockedAtMs).toBeLessThanOrEqual(15 * MINUTE);
		expect(never.waits.at(-1)).toBe(45 * MINUTE);
		expect(recent.waits.at(-1)).toBe(22.5 * MINUTE);
	});

	test('asks for a person and goes on with the same Connection, more slowly the longer it lasts', () => {
		const { waits } = refusedFor(startLink([OWN], CONNECTION, 0).state, 300 * MINUTE, 'refused');
		const ladder = waits.slice(waits.findIndex((wait) => wait > 2 * MINUTE));
		expect(ladder.map((wait) => Math.round(wait / MINUTE))).toEqual([8, 11, 15, 19, 23, 26, 30, 34, 38, 41, 45]);
	});

	test('again and again never waits for a person while new Connections can be had: it is made slower, up to an hour [F019]', () => {
		const { blockedAtMs, waits } = refusedFor(
			startLink([REUSABLE, OWN], CONNECTION, 0).state,
			600 * MINUTE,
			'accepted',
		);
		expect(blockedAtMs).toBeNull();
		expect(waits.slice(0, 4)).toEqual([2500, 45_000, 45_000, 69_375]);
		expect(waits.at(-1)).toBe(45 * MINUTE);
	});

	test.each([forbidden, failure('channel-not-found', 'Nothing there.')])(
		'with $code registers once where a reusable credential is there, and only then needs a person [F140]',
		(cause) => {
			const stale = tell(states.online, ended(cause));
			expect(stale.state.name).toBe('registerWait');
			expect(stale.effects).toMatchObject([{ type: 'wait', delayMs: 2500 }]);
			const fresh = walk(stale.state, timer, { type: 'registered', connection: RENEWED });
			expect(fresh.name).toBe('connecting');
			const again = tell(fresh, ended(cause));
			expect(again.state).toMatchObject({ name: 'blocked', next: 'connect', connection: RENEWED });
			// A Connection may have ended since.
			const later = tell(walk(again.state, timer), ended(cause), 61 * MINUTE);
			expect(later.state.name).toBe('registerWait');
			// One that was online has proved good: what is refused is the next one's turn.
			expect(walk(fresh, confirmed, ended(cause)).name).toBe('registerWait');
		},
	);

	test('with 403 needs a person at once where nothing but the Connection is there', () => {
		expect(tell(startLink([OWN], CONNECTION, 0).state, ended(forbidden)).state.name).toBe('blocked');
	});

	test('that was issued a moment ago names the setting by which it is shown, and no other one does', () => {
		const fresh = walk(startLink([REUSABLE], null, 0).state, { type: 'registered', connection: CONNECTION });
		const named = { failure: { code: 'credential-refused', remedy: expect.stringContaining('service.channelAuth') } };
		expect(tell(fresh, ended(refused)).state).toMatchObject(named);
		expect(tell(startLink([], CONNECTION, 0, true).state, ended(refused)).state).toMatchObject(named);
		for (const state of [states.connecting, states.online, walk(fresh, confirmed)])
			expect(tell(state, ended(refused)).state).toMatchObject({ failure: refused });
	});

	test('keeps the Connection through every refusal and tries it in turn with registering', () => {
		let state: LinkState = states.connecting;
		const tried: string[] = [];
		for (let round = 0; round < 6; round += 1) {
			const failed = state.name === 'registering' ? registerFailed(refused) : ended(refused);
			state = tell(state, failed).state;
			expect(state).toHaveProperty('connection', CONNECTION);
			state = tell(state, timer).state;
			tried.push(state.name);
		}
		expect(tried).toEqual(['registering', 'connecting', 'registering', 'connecting', 'registering', 'connecting']);
	});
});

describe('waiting', () => {
	/** Cut three times, and confirmed. */
	const flapping = walk(startLink([], CONNECTION, 0).state, ended(), timer, ended(), timer, ended(), timer, confirmed);

	test('forgets what failed before once the channel has outlived what used to cut it', () => {
		const cut: Told = { type: 'channelEnded', failure: lost, timedOut: false, closeCode: null, outlived: true };
		expect(tell(flapping, cut, 1000 + 31_000).effects).toMatchObject([{ delayMs: 2500 }]);
	});

	test('forgets what failed before once the channel was open for a minute', () => {
		expect(tell(flapping, ended(), 1000 + 59_000).effects).toMatchObject([{ delayMs: 12_000 }]);
		expect(tell(flapping, ended(), 1000 + 61_000).effects).toMatchObject([{ delayMs: 2500 }]);
	});

	test('is spread wider when the service says that it restarts', () => {
		expect(tell(states.online, ended(lost, { closeCode: 1012 })).effects).toMatchObject([{ delayMs: 7500 }]);
	});

	test('gives the next handshake longer after a timeout', () => {
		const slow = failure('handshake-timeout', 'Too slow.');
		const again = tell(walk(states.connecting, ended(slow, { timedOut: true })), timer);
		expect(again.effects).toMatchObject([{ type: 'openChannel', handshakeMs: 30_000 }]);
	});

	test('says why and until when', () => {
		expect(states.connectWait).toMatchObject({ failure: lost, untilMs: 1000 + 2500 });
	});

	test('is not longer after a retry that a person asked for on a channel that was open for a minute', () => {
		const retried = tell(flapping, { type: 'retryRequested' }, 1000 + 61_000).state;
		expect(tell(retried, ended(), 70_000).effects).toMatchObject([{ delayMs: 2500 }]);
	});

	test('ends at once when a setting changes that bears on it, however long it was, and begins with short waits again', () => {
		const tired = { ...NO_FAILURES, failures: 9, overloadWindowMs: 900_000, refusedForMs: 50 * MINUTE, refusedAtMs: 0 };
		for (const name of ['registerWait', 'connectWait', 'blocked', 'registering', 'connecting'] as const) {
			const { state } = tell({ ...states[name], backoff: tired } as LinkState, changed);
			const again = state.name === 'registering' ? registerFailed() : ended();
			expect(tell(state, again).effects).toMatchObject([{ type: 'wait', delayMs: 2500 }]);
		}
	});

	test('is not shortened by another setting, unless only a person could have helped', () => {
		const other: Told = { type: 'settingsChanged', bears: false };
		expect(tell(states.connectWait, other)).toEqual({ state: states.connectWait, effects: [] });
		expect(tell(states.registerWait, other)).toEqual({ state: states.registerWait, effects: [] });
		expect(tell(states.blocked, other).effects).toMatchObject([{ type: 'openChannel' }]);
		expect(tell(states.connecting, other)).toEqual({ state: states.connecting, effects: [] });
	});

	test('leaves its reason known during the next attempt, until that one succeeds', () => {
		const again = walk(states.connectWait, timer);
		expect(again).toMatchObject({ name: 'connecting', failure: lost });
		expect(walk(again, confirmed)).not.toHaveProperty('failure');
		expect(walk(states.registerWait, timer)).toMatchObject({ name: 'registering', failure: unreachable });
		expect(walk(states.online, { type: 'retryRequested' })).toMatchObject({ name: 'connecting', failure: null });
	});
});

test('a new Connection is kept before its channel is opened', () => {
	const step = tell(states.registering, { type: 'registered', connection: RENEWED });
	expect(step.effects).toMatchObject([
		{ type: 'keepConnection', connection: RENEWED },
		{ type: 'openChannel', token: 'connection-2', handshakeMs: 15_000 },
	]);
});
