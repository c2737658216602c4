/**
 * The supervisor with its links against a runner that does what it is told, under random events: what must hold after
 * every step, and that there is always a way back online.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CATALOGUE, type ErrorCode, failure } from '../../src/base/errors.ts';
import { type Connection, connectionOf, type LinkEffect, type LinkEvent } from '../../src/connection/link.ts';
import {
	type DesiredRegistration,
	type Link,
	NOTHING_SUPERVISED,
	type Registration,
	type Supervision,
	type SupervisorEffect,
	type SupervisorEvent,
	servesRegistration,
	supervise,
} from '../../src/connection/supervisor.ts';
import {
	type DeviceState,
	EMPTY_STATE,
	type SavedConnection,
	withConnection,
	withOnlyConnection,
} from '../../src/state/device-state.ts';

const RUNS = 3000;
const DAY_MS = 24 * 60 * 60 * 1000;
const BASE_URLS = ['https://a.example', 'https://b.example'] as const;

type Which = 'current' | 'next';
type Fault = { code: ErrorCode; closeCode: number | null; timedOut: boolean; retryAfterMs: number | undefined };
type Action =
	| { do: 'want'; desired: DesiredRegistration | null }
	| { do: 'pair'; desired: DesiredRegistration; lifeMs: number | null }
	/** What a link waits for happens: its request, its channel or its timer. */
	| { do: 'succeed'; which: Which; lifeMs: number | null }
	| { do: 'fail'; which: Which; fault: Fault }
	| { do: 'answerLate'; which: Which; fault: Fault }
	| { do: 'revoke' | 'answerUnknown'; which: Which }
	| { do: 'retry' | 'change' | 'renew' | 'stop' | 'restart' }
	| { do: 'pass'; ms: number };

/** What a runner has under way for a link: never more than one thing. */
type UnderWay =
	| { type: 'request' | 'channel'; attempt: number }
	| { type: 'timer'; attempt: number; dueMs: number; delayMs: number };

/** The running device around the supervisor: its links' work, its one renewal timer and what it has saved. */
interface World {
	supervision: Supervision;
	nowMs: number;
	underWay: Map<number, UnderWay>;
	ended: Set<number>;
	renewal: { generation: number; atMs: number } | null;
	device: DeviceState;
	tokens: number;
	/** A device without any other credential: what it loses is lost. */
	hasOnlyConnections: boolean;
	/** Without links the saved Connections may be of the past, until the only link is online with one of them. */
	mayBeStale: boolean;
	random: () => number;
	/** Situations that occurred, in any world. */
	reached: Set<string>;
}

function must(holds: unknown, rule: string): asserts holds {
	if (!holds) throw new Error(rule);
}

function newWorld(chances: readonly number[], reached: Set<string>, hasOnlyConnections: boolean): World {
	let drawn = 0;
	return {
		supervision: NOTHING_SUPERVISED,
		nowMs: 0,
		underWay: new Map(),
		ended: new Set(),
		renewal: null,
		device: EMPTY_STATE,
		tokens: 0,
		hasOnlyConnections,
		mayBeStale: false,
		random: () => chances[drawn++ % chances.length] ?? 0.5,
		reached,
	};
}

function newConnection(world: World, baseUrl: string, lifeMs: number | null): Connection {
	world.tokens += 1;
	return { token: `${baseUrl} ${world.tokens}`, obtainedAtMs: world.nowMs, lifeMs };
}

function saved({ baseUrl, request, credentialId }: Registration, token: string): SavedConnection {
	return { baseUrl, request, credentialId, token, obtainedAt: '' };
}

/** Lets one event happen, performs the effects and checks every rule. */
function happen(world: World, event: SupervisorEvent): void {
	const before = world.supervision;
	if (event.type === 'link' && 'attempt' in event.event)
		if (world.underWay.get(event.generation)?.attempt === event.event.attempt)
			if (event.event.type !== 'channelConfirmed') world.underWay.delete(event.generation);
	const { supervision, effects } = supervise(before, event, world.random);
	world.supervision = supervision;
	for (const effect of effects) perform(world, before, event, effect);
	checkLinks(world, before, event);
	noteReached(world, before);
}

function noteReached({ supervision: { current, next, desired }, reached }: World, before: Supervision): void {
	if (current) reached.add(`current ${current.state.name}`);
	if (next) reached.add(`next ${next.state.name}`);
	if (current && current.generation === before.next?.generation) reached.add(`moved by ${current.reason}`);
	if (desired && next?.reason === 'renewal' && !servesRegistration(next.registration, desired))
		reached.add('renewal before a move');
	if (current?.state.name === 'connectWait' && current.state.failure.code === 'connection-replaced')
		reached.add('superseded');
}

function perform(world: World, before: Supervision, event: SupervisorEvent, effect: SupervisorEffect): void {
	const { generation } = effect;
	must(!world.ended.has(generation), 'nothing is done for a link that is over');
	switch (effect.type) {
		case 'link':
			performForLink(world, before, event, effect.generation, effect.registration, effect.effect);
			return;
		case 'linkEnded':
			must(world.underWay.get(generation)?.type !== 'channel', 'a channel is closed before its link ends');
			world.ended.add(generation);
			world.underWay.delete(generation);
			return;
		case 'linkPromoted':
			must(world.supervision.current?.generation === generation, 'the promoted link is the current one');
			world.device = withOnlyConnection(world.device, effect.connection.token);
			return;
		case 'renewAt':
			must(effect.atMs >= world.nowMs, 'a renewal lies ahead');
			world.renewal = effect;
	}
}

function performForLink(
	world: World,
	before: Supervision,
	event: SupervisorEvent,
	generation: number,
	registration: Registration,
	effect: LinkEffect,
): void {
	const { desired } = world.supervision;
	const busy = world.underWay.get(generation);
	if (effect.type === 'closeChannel') {
		world.underWay.delete(generation);
		return;
	}
	if (effect.type === 'keepConnection') {
		world.device = withConnection(world.device, saved(registration, effect.connection.token));
		return;
	}
	// A retry, or a setting that was corrected, may overtake a timer; so may a channel that is back, for a renewal that would come too late.
	const hurries =
		event.type === 'retryRequested' ||
		event.type === 'settingsChanged' ||
		isLastChance(before, generation, event) ||
		// A renewal that waits is tried once more before the Connection ends [F1740].
		(event.type === 'renewalDue' && before.next?.generation === generation && before.next.reason === 'renewal') ||
		// The new Connection of a next link that fails with it may bring the current one online.
		(before.next !== null && event.type === 'link' && event.event.type === 'channelEnded') ||
		// The link that made room comes back where that did not help.
		before.next?.roomAtMs !== undefined;
	const overtakes = busy?.type === 'timer' && hurries;
	must(!busy || overtakes, 'a link has one thing under way');
	if (effect.type === 'wait') {
		must(effect.delayMs > 0 && effect.delayMs <= DAY_MS, 'a wait is more than nothing and at most a day');
		const dueMs = world.nowMs + effect.delayMs;
		world.underWay.set(generation, { type: 'timer', attempt: effect.attempt, dueMs, delayMs: effect.delayMs });
		return;
	}
	const was = [before.current, before.next].find((link) => link?.generation === generation);
	const goesOn = hurries || (event.type === 'link' && event.event.type === 'timerFired');
	must(!was || !('untilMs' in was.state) || goesOn, 'no wait is cut short');
	const token = effect.type === 'openChannel' ? effect.token : tokenOf(effect.credential);
	must(token === null || token.startsWith(`${registration.baseUrl} `), 'a Connection goes to no other service');
	if (effect.type === 'register' && effect.credential.kind === 'reusable')
		must(
			desired?.hasReusableCredential && desired.credentialId === registration.credentialId,
			'a reusable credential goes to the services that it was set for',
		);
	const type = effect.type === 'register' ? 'request' : 'channel';
	world.underWay.set(generation, { type, attempt: effect.attempt });
}

function isLastChance({ current, next }: Supervision, generation: number, event: SupervisorEvent): boolean {
	if (event.type !== 'link' || event.event.type !== 'channelConfirmed') return false;
	if (event.generation !== current?.generation || generation !== next?.generation || next.reason !== 'renewal')
		return false;
	const connection = connectionOf(current.state);
	if (connection === null || connection.lifeMs === null || next.state.name !== 'registerWait') return false;
	return next.state.untilMs >= connection.obtainedAtMs + connection.lifeMs;
}

function tokenOf(credential: Extract<LinkEffect, { type: 'register' }>['credential']): string | null {
	return credential.kind === 'connection' ? credential.token : null;
}

const WORK = {
	registering: 'request',
	connecting: 'channel',
	online: 'channel',
	registerWait: 'timer',
	connectWait: 'timer',
	blocked: 'timer',
	closed: undefined,
} as const;

function checkLinks(world: World, before: Supervision, event: SupervisorEvent): void {
	const { current, next, desired, lastGeneration } = world.supervision;
	const links = [current, next].filter((link) => link !== null).filter(({ state }) => state.name !== 'closed');
	must(current !== null || next === null, 'a next link has a current one before it');
	must(next?.state.name !== 'online', 'a link that is online is the current one');
	must(lastGeneration >= before.lastGeneration, 'generations never fall');
	// The one that came back to its place is the younger one.
	if (next) must(next.generation !== current?.generation, 'the two links are told apart');
	must(world.underWay.size === links.length, 'only links that are alive have work under way');
	for (const link of links) {
		const { state } = link;
		const busy = world.underWay.get(link.generation);
		must(busy?.type === WORK[state.name], `${state.name} has its own work under way`);
		must(busy && state.attempt === busy.attempt, 'the work under way is the attempt that the link knows');
		const was = [before.current, before.next].find((known) => known?.generation === link.generation);
		if (was) must(!connectionOf(was.state) || connectionOf(state), 'a Connection is never lost while its link lives');
		else must(link.generation > before.lastGeneration, 'a new link has a new generation');
	}
	if (desired && current) {
		const isOnItsWay = servesRegistration((next ?? current).registration, desired);
		const comesFirst = next?.reason === 'renewal' && (!('untilMs' in next.state) || next.state.connection !== null);
		must(isOnItsWay || comesFirst, 'a link is on its way to what is wanted, or a renewal comes before it');
	}
	must(current !== null || desired === null, 'what is wanted has a link');
	if (current?.state.name === 'online') {
		const { token, lifeMs } = current.state.connection;
		must(lifeMs === null || world.renewal?.generation === current.generation, 'the renewal is planned');
		const isSaved = world.device.connections.some((connection) => connection.token === token);
		if (isSaved && !next) world.mayBeStale = false;
		const isExcused = world.mayBeStale || !world.hasOnlyConnections;
		must(isSaved || isExcused, 'the Connection that the device lives on is saved');
		must(world.device.connections.length > 0, 'a device that is online has a Connection to start with');
	}
	// A service that permits one channel: once for each link that wants it.
	const makesRoom = next?.roomAtMs !== before.next?.roomAtMs;
	if (before.current?.state.name === 'online' && desired && !makesRoom && !mayInterrupt(event, before.current))
		must(current?.state.name === 'online', 'nothing but its own end takes the device offline');
}

function mayInterrupt(event: SupervisorEvent, online: Link): boolean {
	if (event.type === 'retryRequested') return true;
	if (event.type !== 'link' || event.generation !== online.generation) return false;
	return event.event.type === 'channelEnded' || event.event.type === 'connectionRevoked';
}

function act(world: World, action: Action): void {
	const atMs = world.nowMs;
	switch (action.do) {
		case 'want':
			want(world, action.desired);
			return;
		case 'pair': {
			const desired = possible(world, action.desired);
			const connection = newConnection(world, desired.baseUrl, action.lifeMs);
			world.device = withConnection(world.device, saved(desired, connection.token));
			happen(world, { type: 'paired', desired, connection, atMs });
			return;
		}
		case 'succeed':
			succeed(world, action.which, action.lifeMs);
			return;
		case 'fail':
			fail(world, action.which, action.fault, 0);
			return;
		case 'answerLate': {
			const unchanged = world.supervision;
			fail(world, action.which, action.fault, -1);
			must(sameLinks(unchanged, world.supervision), 'an answer to an older attempt changes nothing');
			return;
		}
		case 'answerUnknown': {
			const unchanged = world.supervision;
			const generation = world.supervision.lastGeneration + 1;
			happen(world, { type: 'link', generation, event: { type: 'connectionRevoked', atMs } });
			must(unchanged === world.supervision, 'an event of an unknown link changes nothing');
			return;
		}
		case 'revoke': {
			const link = world.supervision[action.which];
			if (link)
				happen(world, { type: 'link', generation: link.generation, event: { type: 'connectionRevoked', atMs } });
			return;
		}
		case 'retry':
			happen(world, { type: 'retryRequested', atMs });
			return;
		case 'change':
			happen(world, { type: 'settingsChanged', bears: true, atMs });
			return;
		case 'renew': {
			if (!world.renewal) return;
			const { generation, atMs: dueMs } = world.renewal;
			world.renewal = null;
			world.nowMs = Math.max(world.nowMs, dueMs);
			happen(world, { type: 'renewalDue', generation, atMs: world.nowMs });
			return;
		}
		case 'stop':
			world.mayBeStale = true;
			happen(world, { type: 'stopRequested', atMs });
			must(world.underWay.size === 0, 'a stop leaves nothing under way');
			// After it nothing happens any more: what goes on is a start that wants nothing yet.
			world.supervision = { ...NOTHING_SUPERVISED, lastGeneration: world.supervision.lastGeneration };
			return;
		case 'restart': {
			const { desired, lastGeneration } = world.supervision;
			world.supervision = { ...NOTHING_SUPERVISED, lastGeneration };
			world.underWay.clear();
			world.renewal = null;
			world.mayBeStale = true;
			want(world, desired);
			return;
		}
		case 'pass':
			world.nowMs += action.ms;
	}
}

function sameLinks(one: Supervision, other: Supervision): boolean {
	return one.current?.state === other.current?.state && one.next?.state === other.next?.state;
}

function possible(world: World, desired: DesiredRegistration): DesiredRegistration {
	if (!world.hasOnlyConnections) return desired;
	return { ...desired, credentialId: '', hasReusableCredential: false, selfRegistration: false };
}

function want(world: World, desired: DesiredRegistration | null): void {
	if (!desired) world.mayBeStale = true;
	const known = world.device.connections.map(({ baseUrl, request, credentialId, token }) => ({
		registration: { baseUrl, request, credentialId },
		connection: { token, obtainedAtMs: world.nowMs, lifeMs: null },
	}));
	const sought = desired && possible(world, desired);
	happen(world, { type: 'desiredChanged', desired: sought, known, atMs: world.nowMs });
}

function succeed(world: World, which: Which, lifeMs: number | null): void {
	const link = world.supervision[which];
	const busy = link && world.underWay.get(link.generation);
	if (!busy) return;
	const { attempt } = busy;
	if (busy.type === 'timer') world.nowMs = Math.max(world.nowMs, busy.dueMs);
	const atMs = world.nowMs;
	const event: LinkEvent =
		busy.type === 'timer'
			? { type: 'timerFired', attempt, atMs }
			: busy.type === 'channel'
				? { type: 'channelConfirmed', attempt, atMs }
				: { type: 'registered', attempt, atMs, connection: newConnection(world, link.registration.baseUrl, lifeMs) };
	happen(world, { type: 'link', generation: link.generation, event });
}

function fail(world: World, which: Which, fault: Fault, older: number): void {
	const link = world.supervision[which];
	const busy = link && world.underWay.get(link.generation);
	if (!busy || busy.type === 'timer') return;
	const { code, closeCode, timedOut, retryAfterMs } = fault;
	const said = failure(code, 'It failed.', retryAfterMs === undefined ? {} : { retryAfterMs });
	const answer = { attempt: busy.attempt + older, failure: said, timedOut, atMs: world.nowMs };
	const event: LinkEvent =
		busy.type === 'request' ? { type: 'registerFailed', ...answer } : { type: 'channelEnded', ...answer, closeCode };
	happen(world, { type: 'link', generation: link.generation, event });
}

/** From now on the service accepts whatever it is asked; waits pass. A service that nothing can be shown to is paired with. */
function recover(world: World): void {
	for (let turn = 0; turn < 60; turn += 1) {
		const { desired, current, next } = world.supervision;
		if (!desired) return;
		if (current?.state.name === 'online' && !next && servesRegistration(current.registration, desired)) return;
		const aim = next ?? current;
		if (aim?.state.name === 'blocked' && hasNothingToShow(aim, desired))
			act(world, { do: 'pair', desired, lifeMs: null });
		else {
			const order = (['current', 'next'] as const).filter(
				(which) => world.supervision[which] && !isOnline(world, which),
			);
			const first = order.sort((one, other) => dueOf(world, one) - dueOf(world, other))[0];
			must(first, 'something is under way as long as the device is not where it is wanted');
			succeed(world, first, null);
		}
	}
	throw new Error('there is a way back online');
}

/** Neither a credential nor a Connection, its own or another link's: only a person can help. */
function hasNothingToShow({ state }: Link, desired: DesiredRegistration): boolean {
	if (state.name === 'closed' || state.connection || desired.hasReusableCredential || desired.selfRegistration)
		return false;
	return state.credentials.every(({ kind }) => kind === 'reusable');
}

function isOnline(world: World, which: Which): boolean {
	return world.supervision[which]?.state.name === 'online';
}

function dueOf(world: World, which: Which): number {
	const busy = world.underWay.get(world.supervision[which]?.generation ?? 0);
	return busy?.type === 'timer' ? busy.dueMs : 0;
}

const desiredRegistration = fc
	.record({
		workflow: fc.integer({ min: 1, max: 3 }),
		baseUrl: fc.constantFrom(...BASE_URLS),
		key: fc.constantFrom('', '', 'key-1', 'key-2'),
		selfRegistration: fc.constantFrom(false, false, false, true),
	})
	.map(
		({ workflow, baseUrl, key, selfRegistration }): DesiredRegistration => ({
			baseUrl,
			request: { deviceId: 'device', workflowId: `w${workflow}` },
			credentialId: key,
			hasReusableCredential: key !== '',
			selfRegistration,
		}),
	);
const codes = Object.keys(CATALOGUE) as ErrorCode[];
const fault = fc.record({
	// Refusals are rare in the catalogue and many in this world: they are what decides.
	code: fc.oneof(fc.constantFrom(...codes), fc.constantFrom<ErrorCode>('credential-refused', 'connection-revoked')),
	closeCode: fc.constantFrom(null, 1000, 1001, 1006, 1008, 1011, 1012, 1013, 4401, 4403),
	timedOut: fc.boolean(),
	retryAfterMs: fc.constantFrom(undefined, undefined, -1, 0, 30_000, DAY_MS, Number.POSITIVE_INFINITY, Number.NaN),
});
const which = fc.constantFrom<Which>('current', 'next');
const lifeMs = fc.constantFrom(null, 1000, 600_000, DAY_MS);
const action: fc.Arbitrary<Action> = fc.oneof(
	{ weight: 5, arbitrary: fc.record({ do: fc.constant('succeed' as const), which, lifeMs }) },
	{ weight: 4, arbitrary: fc.record({ do: fc.constant('fail' as const), which, fault }) },
	{ weight: 3, arbitrary: fc.record({ do: fc.constant('want' as const), desired: desiredRegistration }) },
	{ weight: 1, arbitrary: fc.record({ do: fc.constant('pair' as const), desired: desiredRegistration, lifeMs }) },
	{ weight: 1, arbitrary: fc.record({ do: fc.constant('answerLate' as const), which, fault }) },
	{ weight: 1, arbitrary: fc.record({ do: fc.constantFrom('revoke' as const, 'answerUnknown' as const), which }) },
	{
		weight: 2,
		arbitrary: fc.record({
			do: fc.constantFrom('retry' as const, 'change' as const, 'renew' as const, 'renew' as const),
		}),
	},
	{ weight: 1, arbitrary: fc.record({ do: fc.constantFrom('stop' as const, 'restart' as const, 'restart' as const) }) },
	{ weight: 1, arbitrary: fc.constant({ do: 'want' as const, desired: null }) },
	{ weight: 1, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.nat({ max: 900_000 }) }) },
);
const chances = fc.array(fc.constantFrom(0.0001, 0.25, 0.5, 0.9999), { minLength: 1, maxLength: 4 });

test('whatever happens, every rule holds after every step and there is a way back online', () => {
	const reached = new Set<string>();
	const walk = fc.array(action, { maxLength: 40, size: 'max' });
	fc.assert(
		fc.property(fc.boolean(), desiredRegistration, walk, chances, (hasOnlyConnections, first, actions, drawn) => {
			const world = newWorld(drawn, reached, hasOnlyConnections);
			act(world, { do: 'want', desired: first });
			for (const next of actions) act(world, next);
			recover(world);
		}),
		{ numRuns: RUNS },
	);
	// What was never reached was never tested.
	const states = ['registering', 'registerWait', 'connecting', 'connectWait', 'blocked'];
	expect([...reached].sort()).toEqual(
		[
			...states.flatMap((state) => [`current ${state}`, `next ${state}`]),
			'current online',
			'current closed',
			'moved by desired',
			'moved by pairing',
			'moved by renewal',
			'renewal before a move',
			'superseded',
		].sort(),
	);
});
