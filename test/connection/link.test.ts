import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
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

const states = {
	registering: startLink([REUSABLE], null, 0).state,
	registerWait: walk(startLink([REUSABLE], null, 0).state, registerFailed()),
	connecting: startLink([REUSABLE], CONNECTION, 0).state,
	online: walk(startLink([REUSABLE], CONNECTION, 0).state, confirmed),
	connectWait: walk(startLink([REUSABLE], CONNECTION, 0).state, ended()),
	blocked: walk(startLink([REUSABLE], CONNECTION, 0).state, ended(forbidden)),
	closed: walk(startLink([REUSABLE], CONNECTION, 0).state, { type: 'closeRequested', code: 1000 }),
} satisfies Record<LinkState['name'], LinkState>;

const rows: [keyof typeof states, Told, LinkState['name'], string[]][] = [
	['registering', { type: 'registered', connection: CONNECTION }, 'connecting', ['keepConnection', 'openChannel']],
	['registering', registerFailed(), 'registerWait', ['wait']],
	['registering', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['registerWait', timer, 'registering', ['register']],
	['registerWait', { type: 'retryRequested' }, 'registering', ['register']],
	['registerWait', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['connecting', confirmed, 'online', []],
	['connecting', ended(), 'connectWait', ['wait']],
	['connecting', { type: 'connectionRevoked' }, 'registerWait', ['closeChannel', 'wait']],
	['connecting', { type: 'closeRequested', code: 1000 }, 'closed', ['closeChannel']],
	['online', ended(), 'connectWait', ['wait']],
	['online', { type: 'connectionRevoked' }, 'registerWait', ['closeChannel', 'wait']],
	['online', { type: 'retryRequested' }, 'connecting', ['closeChannel', 'openChannel']],
	['online', { type: 'closeRequested', code: 1001 }, 'closed', ['closeChannel']],
	['connectWait', timer, 'connecting', ['openChannel']],
	['connectWait', { type: 'retryRequested' }, 'connecting', ['openChannel']],
	['connectWait', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['blocked', timer, 'connecting', ['openChannel']],
	['blocked', { type: 'retryRequested' }, 'connecting', ['openChannel']],
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
			if (event.type === 'retryRequested' || event.type === 'closeRequested' || event.type === 'connectionRevoked')
				continue;
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

	test('connects again with the same Connection when there is none, and blocks at the third refusal in 10 minutes', () => {
		let state = startLink([OWN], CONNECTION, 0).state;
		for (const atMs of [1000, 60_000]) {
			state = tell(state, ended(refused), atMs).state;
			expect(state.name).toBe('connectWait');
			state = tell(state, timer, atMs).state;
		}
		const third = tell(state, ended(refused), 9 * MINUTE);
		expect(third.state).toMatchObject({ name: 'blocked', next: 'connect', connection: CONNECTION });
		expect(third.effects).toMatchObject([{ type: 'wait', delayMs: 37.5 * MINUTE }]);
	});

	test('again and again never waits for a person while new Connections can be had: it is made slower, up to two minutes [F019]', () => {
		let state = startLink([REUSABLE, OWN], CONNECTION, 0).state;
		const waits: number[] = [];
		for (let atMs = 0; atMs < 8 * MINUTE; atMs += MINUTE) {
			const step = tell(state, ended(refused, { closeCode: 4401 }), atMs);
			expect(step.state.name).toBe('registerWait');
			waits.push(...step.effects.flatMap((effect) => (effect.type === 'wait' ? [effect.delayMs] : [])));
			const registering = tell(step.state, timer, atMs).state;
			state = tell(registering, { type: 'registered', connection: CONNECTION }, atMs).state;
		}
		expect(waits.slice(2)).toEqual([22_500, 33_750, 50_625, 75_937.5, 90_000, 90_000]);
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
	test('forgets what failed before once the channel was open for a minute', () => {
		const flapping = walk(
			startLink([], CONNECTION, 0).state,
			ended(),
			timer,
			ended(),
			timer,
			ended(),
			timer,
			confirmed,
		);
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
		const flapping = walk(
			startLink([], CONNECTION, 0).state,
			ended(),
			timer,
			ended(),
			timer,
			ended(),
			timer,
			confirmed,
		);
		const retried = tell(flapping, { type: 'retryRequested' }, 1000 + 61_000).state;
		expect(tell(retried, ended(), 70_000).effects).toMatchObject([{ delayMs: 2500 }]);
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
