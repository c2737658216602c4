import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { NO_FAILURES } from '../../src/connection/backoff.ts';
import { classifyClose } from '../../src/connection/classify-close.ts';
import {
	type Connection,
	type Credential,
	connectionOf,
	failureOf,
	type LinkEffect,
	type LinkEvent,
	type LinkState,
	startLink,
	TRANSITIONS,
	transition,
} from '../../src/connection/link.ts';
import { randomFrom } from './virtual-fleet.ts';

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
const ended = (cause = lost, more: { timedOut?: boolean; closeCode?: number | null } = {}): Told => ({
	type: 'channelEnded',
	failure: cause,
	timedOut: more.timedOut ?? false,
	closeCode: more.closeCode ?? null,
});
const registerFailed = (cause = unreachable): Told => ({ type: 'registerFailed', failure: cause, timedOut: false });
const timer: Told = { type: 'timerFired' };
const confirmed: Told = { type: 'channelConfirmed' };
const replaced: Told = {
	type: 'connectionChanged',
	connection: { token: 'next', obtainedAtMs: 0, lifeMs: null },
};
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
	['registerWait', replaced, 'connectWait', ['wait']],
	['registerWait', { type: 'closeRequested', code: 1000 }, 'closed', []],
	['connecting', confirmed, 'online', []],
	['connecting', ended(), 'connectWait', ['wait']],
	['connecting', { type: 'connectionRevoked' }, 'registerWait', ['closeChannel', 'wait']],
	['connecting', replaced, 'connecting', ['keepConnection']],
	['connecting', changed, 'connecting', []],
	['connecting', { type: 'closeRequested', code: 1000 }, 'closed', ['closeChannel']],
	['online', ended(), 'connectWait', ['wait']],
	['online', { type: 'connectionRevoked' }, 'registerWait', ['closeChannel', 'wait']],
	['online', { type: 'roomWanted', failure: lost }, 'connectWait', ['closeChannel', 'wait']],
	['online', replaced, 'online', ['keepConnection']],
	['online', { type: 'retryRequested' }, 'connecting', ['closeChannel', 'openChannel']],
	['online', { type: 'closeRequested', code: 1001 }, 'closed', ['closeChannel']],
	['connectWait', timer, 'connecting', ['openChannel']],
	['connectWait', { type: 'retryRequested' }, 'connecting', ['openChannel']],
	['connectWait', changed, 'connecting', ['openChannel']],
	['connectWait', replaced, 'connectWait', ['wait']],
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
			if (
				[
					'retryRequested',
					'settingsChanged',
					'closeRequested',
					'connectionRevoked',
					'connectionChanged',
					'roomWanted',
				].includes(event.type)
			)
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

	test('an unknown workflow waits for a person, and is tried again for as long as it has been unknown', () => {
		const unknown = failure('workflow-unknown', 'No such workflow.');
		const { state, effects } = tell(states.registering, registerFailed(unknown));
		expect(state).toMatchObject({ name: 'blocked', next: 'register' });
		expect(effects).toMatchObject([{ type: 'wait', delayMs: 22_500 }]);
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
			// Of two that are tried in turn the second follows soon.
			for (const wait of waits.filter((ms) => ms > 5000).slice(1, 5)) {
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

	test('of a new Connection counts, and an outage between does not: then it is shown again all the same [F1590]', () => {
		const fresh = walk(tell(startLink([REUSABLE], CONNECTION, 0).state, ended(refused)).state, timer, {
			type: 'registered',
			connection: RENEWED,
		});
		let state = fresh;
		for (const atMs of [1000, 2000, 3000]) state = walk(tell(state, ended(lost), atMs).state, timer);
		expect(tell(state, ended(refused), 4000).state).toMatchObject({ name: 'connectWait', connection: RENEWED });
	});

	test.each([
		['the handshake, then in words', [{}, { closeCode: 4401 }]],
		['in words, then the handshake', [{ closeCode: 4401 }, {}]],
	])(
		'of a new Connection by %s is of one that was known: another one is made at once [F1590]',
		(_, [first, second]) => {
			const stale = tell(startLink([REUSABLE], CONNECTION, 0).state, ended(refused)).state;
			const fresh = walk(stale, timer, { type: 'registered', connection: RENEWED });
			const shown = tell(fresh, ended(refused, first), 500);
			expect(shown.state).toMatchObject({ name: 'connectWait', connection: RENEWED });
			expect(tell(shown.state, timer, 4000).state.name).toBe('connecting');
			const over = tell(tell(shown.state, timer, 4000).state, ended(refused, second), 5000);
			expect(over.state.name).toBe('registerWait');
			expect(over.effects).toMatchObject([{ type: 'wait', delayMs: 2500 }]);
			// In the same way, it is shown once more, at the pace of a refusal.
			const same = tell(tell(shown.state, timer, 4000).state, ended(refused, first), 5000);
			expect(same.state.name).toBe('connectWait');
		},
	);

	test('again and again never waits for a person while new Connections can be had: it is made slower, up to an hour [F019]', () => {
		const { blockedAtMs, waits } = refusedFor(
			startLink([REUSABLE, OWN], CONNECTION, 0).state,
			600 * MINUTE,
			'accepted',
		);
		expect(blockedAtMs).toBeNull();
		// Each new one is shown thrice.
		expect(waits.slice(0, 6)).toEqual([2500, 3500, 45_000, 2500, 3500, 45_000]);
		expect(waits.at(-1)).toBe(45 * MINUTE);
	});

	test.each(
		[forbidden, failure('channel-not-found', 'Nothing there.'), failure('channel-rejected', 'Not this one.')].flatMap(
			(cause) => [REUSABLE, { kind: 'selfRegistration' } as const].map((credential) => [cause, credential] as const),
		),
	)(
		'with $0.code registers once where a credential makes new ones ($1.kind), and only then needs a person [F140]',
		(cause, credential) => {
			const stale = tell(startLink([credential], CONNECTION, 0).state, ended(cause));
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
			expect(tell(walk(fresh, confirmed), ended(cause), 5000).state.name).toBe('registerWait');
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
			expect(tell(state, ended(refused), 5000).state).toMatchObject({
				failure: { code: 'credential-refused', remedy: expect.not.stringContaining('service.channelAuth') },
			});
	});

	test('that was issued a moment ago, and whose open channel the service ends, names no setting by which it is shown [F1520]', () => {
		const fresh = walk(startLink([], CONNECTION, 0, true).state, confirmed);
		const closed = classifyClose({ code: 1008, reason: 'device is blocked', host: 'id.example' });
		const first = tell(fresh, ended(closed, { closeCode: 1008 }), 1700).state;
		const remedy = expect.stringMatching(/The service opened the channel for this new Connection(?!.*channelAuth)/);
		const message = 'id.example closed the channel with 1008 (policy violation): device is blocked.';
		expect(first).toMatchObject({ failure: { message, remedy, params: { shown: 'fresh' } } });
		// The handshake that is refused a moment later was taken before.
		const answered = failure('credential-refused', 'id.example answered 401.', { params: { status: 401 } });
		const opened = 'id.example answered 401. The channel opened with these settings before, and the service ended it';
		const silent = tell(fresh, ended(refused), 1700).state;
		for (const [state, how] of [
			[first, 'with code 1008'],
			[silent, 'without a close code'],
		] as const)
			expect(tell(walk(state, timer), ended(answered), 3000).state).toMatchObject({
				failure: { message: `${opened} ${how}.`, remedy },
			});
	});

	test('that was issued a moment ago names no setting once a channel has counted with the same ones [F1037]', () => {
		const renewed = { type: 'registered', connection: RENEWED } as const;
		const counted = tell(walk(startLink([REUSABLE], CONNECTION, 0).state, confirmed), ended(refused), 5000).state;
		const short = tell(walk(counted, timer, renewed, confirmed), ended(refused), 6000).state;
		for (const cause of [refused, forbidden])
			for (const state of [
				tell(walk(counted, timer, renewed), ended(cause), 6000).state,
				tell(walk(short, timer, renewed), ended(cause), 7000).state,
				tell(startLink([REUSABLE], CONNECTION, 0, true, true).state, ended(cause)).state,
			])
				expect(failureOf(state)?.remedy).toMatch(/This device was online with these settings(?!.*channelAuth)/);
	});

	test('again and again brings a fresh one within 30 s each time that a channel of the last one has counted [F977]', () => {
		let state = states.online;
		for (let atMs = 45_000; atMs < 20 * MINUTE; atMs += 45_000) {
			const { state: waiting, effects } = tell(state, ended(refused), atMs);
			expect(waiting).toMatchObject({ name: 'registerWait', failure: { recovers: true } });
			const [wait] = effects;
			expect(wait?.type === 'wait' && wait.delayMs).toBeLessThanOrEqual(30_000);
			const renewed = tell(tell(waiting, timer, atMs).state, { type: 'registered', connection: RENEWED }, atMs).state;
			state = tell(renewed, confirmed, atMs).state;
		}
	});

	test.each([forbidden, failure('channel-not-found', 'Nothing there.')])(
		'with $code asks for no person while a fresh Connection is had in its place',
		(cause) => {
			const online = walk(startLink([REUSABLE], CONNECTION, 0).state, confirmed);
			expect(tell(online, ended(cause), 100 * MINUTE).state).toMatchObject({
				name: 'registerWait',
				failure: { recovers: true, remedy: expect.stringMatching(/^Wait a few minutes: .* If it lasts: /) },
			});
		},
	);

	test('asks a device that was online lately to wait first, and for a person only when it has lasted', () => {
		const online = walk(startLink([], CONNECTION, 0).state, confirmed);
		const first = tell(online, ended(refused), 5000).state;
		expect(first).toMatchObject({
			failure: { recovers: true, remedy: expect.stringMatching(/^Wait a few minutes: .* If it lasts: Pair/) },
		});
		const again = (state: LinkState, atMs: number) => tell(tell(state, timer, atMs).state, ended(refused), atMs).state;
		let state = first;
		for (let minute = 1; minute <= 15; minute += 1) state = again(state, minute * MINUTE);
		expect(state).toMatchObject({ name: 'blocked', failure: { remedy: refused.remedy } });
		expect(state).not.toHaveProperty('failure.recovers', true);
	});

	test('says that the device registers again, and not to pair it, while its key makes Connections or made them lately [F1140]', () => {
		const online = walk(startLink([REUSABLE, OWN], CONNECTION, 0).state, confirmed);
		const revoked = tell(online, { type: 'connectionRevoked' }, 5000).state;
		const once = tell(online, ended(refused, { closeCode: 1008 }), 5000).state;
		for (const state of [revoked, once])
			expect(state).toMatchObject({
				name: 'registerWait',
				failure: { recovers: true, remedy: expect.stringMatching(/^At its next try this device registers again/) },
			});
		let state = once;
		const remedies = new Set<string>();
		for (let atMs = 8000; atMs < 40 * MINUTE; atMs += 20_000) {
			state = tell(state, timer, atMs).state;
			for (let tries = 0; tries < 2; tries += 1)
				state = tell(state, state.name === 'registering' ? registerFailed(refused) : ended(refused), atMs).state;
			remedies.add(failureOf(state)?.remedy ?? '');
		}
		expect(state.name).toBe('blocked');
		expect([...remedies]).toEqual([expect.stringMatching(/^At its next try .* put a valid one into its file/)]);
	});

	test('is back within a minute after 20 s in which everything was refused, with its Connection lost meanwhile [F1141]', () => {
		for (let seed = 1; seed <= 200; seed += 1) {
			const random = randomFrom(seed);
			let state: LinkState = walk(startLink([REUSABLE, OWN], CONNECTION, 0).state, confirmed);
			let atMs = MINUTE;
			let registrations = 0;
			do {
				const isBad = atMs < MINUTE + 20_000;
				const isNew = state.name !== 'registering' && connectionOf(state)?.token === RENEWED.token;
				const accepted: Told = state.name === 'registering' ? { type: 'registered', connection: RENEWED } : confirmed;
				const isRefused = isBad || (state.name !== 'registering' && !isNew);
				const no = state.name === 'registering' ? registerFailed(refused) : ended(refused);
				if (state.name === 'registering') registrations += 1;
				const told = { attempt: state.attempt, atMs, ...(isRefused ? no : accepted) } as LinkEvent;
				const step = transition(state, told, random);
				state = step.state;
				for (const effect of step.effects)
					if (effect.type === 'wait') {
						atMs += effect.delayMs;
						state = transition(state, { type: 'timerFired', attempt: effect.attempt, atMs }, random).state;
					}
			} while (state.name !== 'online' && atMs < 5 * MINUTE);
			expect.soft(state.name, `seed ${seed}`).toBe('online');
			expect.soft(atMs - MINUTE - 20_000, `seed ${seed}`).toBeLessThanOrEqual(MINUTE);
			expect.soft(registrations, `seed ${seed}`).toBeLessThanOrEqual(6);
		}
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

describe('a private close code', () => {
	const closed = (closeCode: number) =>
		ended(classifyClose({ code: closeCode, reason: '', host: 'id.example' }), { closeCode });
	const early = (state: LinkState, code: number) => walk(state, timer, closed(code));
	const hourOld = (credentials: readonly Credential[], code: number) =>
		tell(walk(startLink(credentials, CONNECTION, 0).state, confirmed), closed(code), 60 * MINUTE).state;

	test.each([4000, 4001, 4003, 4123, 4999])('%i that ends fresh channels again and again is a refusal', (code) => {
		const first = early(hourOld([REUSABLE], code), code);
		expect(first).toMatchObject({ name: 'connectWait', failure: { code: 'connection-lost' } });
		const second = early(first, code);
		expect(second).toMatchObject({ name: 'registerWait', failure: { code: 'credential-refused' } });
		// One fresh registration; after that the time rule.
		const fresh = walk(second, timer, { type: 'registered', connection: RENEWED }, closed(code));
		expect(fresh).toMatchObject({ name: 'connectWait', failure: { code: 'credential-refused' } });
		expect(fresh).toHaveProperty(
			'failure.remedy',
			expect.stringContaining('This device was online with these settings'),
		);
		expect(early(early(hourOld([], code), code), code)).toMatchObject({
			name: 'connectWait',
			failure: { code: 'credential-refused' },
		});
	});

	test('of RFC 6455 that ends three fresh channels, or a cut that does, has one new Connection tried [F1383]', () => {
		const cut = { ...ended(), wasOpen: true };
		const early = (state: LinkState, code: number | null) =>
			code === null ? tell(tell(state, timer).state, cut).state : walk(state, timer, closed(code));
		for (const code of [1000, 1001, 1011, 1012, 1013, 3000, null])
			for (const credentials of [[REUSABLE], [{ kind: 'selfRegistration' } as const], []]) {
				const second = early(early(hourOld(credentials, code ?? 1006), code), code);
				expect(second.name).toBe('connectWait');
				const third = early(second, code);
				const isTried = credentials.length > 0;
				expect([code, third.name]).toEqual([code, isTried ? 'registerWait' : 'connectWait']);
				if (!isTried) continue;
				const registered = walk(third, timer, { type: 'registered', connection: RENEWED });
				const fresh = tell(registered, code === null ? cut : closed(code)).state;
				expect(early(early(fresh, code), code).name).toBe('connectWait');
			}
	});

	test('brings the next registration soon, and each one later than the last: the Connection may be forgotten in its first second [F1410]', () => {
		const codes = { cut: { ...ended(), wasOpen: true }, plain: closed(1001), unknown: ended(forbidden) };
		for (const end of Object.values(codes)) {
			let { state } = startLink([REUSABLE], null, 0);
			const registeredAtSeconds: number[] = [];
			for (let atSeconds = 0; atSeconds < 3600; atSeconds += 10) {
				const atMs = atSeconds * 1000;
				if (state.name === 'registering') registeredAtSeconds.push(atSeconds);
				state =
					state.name === 'registering'
						? tell(state, { type: 'registered', connection: RENEWED }, atMs).state
						: tell(tell(state, timer, atMs).state, end, atMs).state;
				if (state.name === 'registerWait') state = tell(state, timer, atMs).state;
			}
			expect(registeredAtSeconds[1]).toBeLessThanOrEqual(60);
			expect(registeredAtSeconds.length).toBeLessThan(12);
			expect(registeredAtSeconds.at(-1)).toBeGreaterThan(1000);
		}
	});

	test('is none where channels lived, where codes differ, and for the codes of RFC 6455', () => {
		const start = hourOld([REUSABLE], 4001);
		expect(early(early(start, 4001), 4002)).toHaveProperty('failure.code', 'connection-lost');
		for (const code of [1000, 1001, 1011, 1013])
			expect(early(early(early(start, code), code), code)).toHaveProperty('failure.code', 'connection-lost');
		const lived = tell(walk(early(start, 4001), timer, confirmed), closed(4001), 5000).state;
		expect(early(lived, 4001)).toHaveProperty('failure.code', 'connection-lost');
		// Its words say that another channel has taken its place.
		const replaced = ended(
			classifyClose({ code: 4000, reason: 'replaced by a newer connection', host: 'id.example' }),
			{ closeCode: 4000 },
		);
		expect(walk(start, timer, confirmed, replaced, timer, confirmed, replaced)).toHaveProperty(
			'failure.code',
			'connection-replaced',
		);
	});
});

describe('a channel that must prove itself by its age', () => {
	const byAge = ({ effects }: { effects: readonly LinkEffect[] }) => effects.some((one) => 'provesByAge' in one);
	const lost = (closeCode: number | null) => ended(failure('connection-lost', 'Lost.'), { closeCode });

	test('is the first of a pairing, and each after one that ended before it counted', () => {
		expect(byAge(startLink([], CONNECTION, 0, true))).toBe(true);
		const first = startLink([], CONNECTION, 0);
		expect(byAge(first)).toBe(false);
		const online = tell(first.state, confirmed).state;
		for (const code of [null, 1008, 1011, 4001]) {
			const early = tell(online, lost(code), 3999).state;
			const again = tell(early, timer);
			expect(byAge(again)).toBe(true);
			expect(byAge(tell(walk(again.state, lost(4001)), timer))).toBe(true);
			// A handshake that fails proves nothing, and doubts nothing.
			expect(byAge(tell(walk(again.state, lost(null)), timer))).toBe(true);
		}
		expect(byAge(tell(walk(first.state, lost(null)), timer))).toBe(false);
		expect(byAge(tell(tell(online, lost(1008), 4000).state, timer))).toBe(false);
	});

	test('is each by another way than before, whatever is forgiven meanwhile, until one has lasted [F1409]', () => {
		const first = startLink([], CONNECTION, 0, false, false, true);
		expect(byAge(first)).toBe(true);
		const room = { ...lost(1008), againInMs: 700 } as Told;
		const again = tell(walk(first.state, changed, room), timer);
		expect(byAge(again)).toBe(true);
		// A setting that is changed has it tried at once.
		expect(byAge(tell(walk(again.state, room), changed))).toBe(true);
		const online = tell(again.state, confirmed, 10_000).state;
		expect(byAge(tell(tell(online, lost(null), 80_000).state, timer))).toBe(false);
	});

	test('counts from then on', () => {
		const doubted = walk(tell(walk(startLink([], CONNECTION, 0).state, confirmed), lost(null), 1100).state, timer);
		const online = tell(doubted, confirmed, 10_000).state;
		expect(online).toMatchObject({ name: 'online', sinceMs: 7000 });
		expect(byAge(tell(tell(online, lost(4001), 10_001).state, timer))).toBe(false);
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
		expect(again.effects).toMatchObject([{ type: 'openChannel', handshakeMs: 25_000 }]);
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
