/**
 * Which links there should be: compares the wanted registration with the links that exist and moves the device from one
 * to the next without a moment offline. Pure; the links' own lives are in `link.ts`, everything performed is in `agent/`.
 */
import { dispositionOf, failure } from '../base/errors.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import {
	type Connection,
	type Credential,
	connectionOf,
	type LinkEffect,
	type LinkEvent,
	type LinkState,
	type Step,
	startLink,
	transition,
} from './link.ts';
import { FULL_BUDGET, type RegistrationBudget, refund, spend } from './registration-budget.ts';

/** Everything that a registration depends on: a change of any of it makes a new link. */
export interface Registration {
	readonly baseUrl: string;
	readonly request: DeviceConnectionRequest;
	/** Names the reusable credential (a hash, never the credential); empty when there is none. */
	readonly credentialId: string;
}

/** The registration that is wanted and how it may be had. */
export interface DesiredRegistration extends Registration {
	readonly hasReusableCredential: boolean;
	readonly selfRegistration: boolean;
}

/** A registration that was made before, and its Connection. */
export interface KnownConnection {
	readonly registration: Registration;
	readonly connection: Connection;
}

export interface Link {
	readonly generation: number;
	readonly registration: Registration;
	/** `renewal` and `pairing` make a link even though the registration stays the same. */
	readonly reason: 'desired' | 'renewal' | 'pairing';
	readonly state: LinkState;
}

export interface Supervision {
	readonly desired: DesiredRegistration | null;
	/** The link that counts: the one the device is online with, or was last. */
	readonly current: Link | null;
	/** The link that takes its place as soon as it is online. */
	readonly next: Link | null;
	/** Rises with every link, never falls. */
	readonly lastGeneration: number;
	/** What bounds the pace at which the service makes this device register. */
	readonly budget: RegistrationBudget;
}

export type SupervisorEvent =
	/** The wanted registration was looked at again; `known` are the Connections at hand, newest last. */
	| {
			readonly type: 'desiredChanged';
			readonly desired: DesiredRegistration | null;
			readonly known: readonly KnownConnection[];
			readonly atMs: number;
	  }
	/** A one-time code has brought a Connection. */
	| {
			readonly type: 'paired';
			readonly desired: DesiredRegistration;
			readonly connection: Connection;
			readonly atMs: number;
	  }
	| { readonly type: 'renewalDue'; readonly generation: number; readonly atMs: number }
	| { readonly type: 'retryRequested'; readonly atMs: number }
	/** Settings were loaded; where they bear on every failure (`settings-bearing.ts`) all waits end. Online links stay as they are. */
	| { readonly type: 'settingsChanged'; readonly bears: boolean; readonly atMs: number }
	| { readonly type: 'stopRequested'; readonly atMs: number }
	| { readonly type: 'link'; readonly generation: number; readonly event: LinkEvent };

export type SupervisorEffect =
	| {
			readonly type: 'link';
			readonly generation: number;
			readonly registration: Registration;
			readonly effect: LinkEffect;
	  }
	/** The link is over: nothing of it may be left running. */
	| { readonly type: 'linkEnded'; readonly generation: number }
	/** The link is online and the one that counts. */
	| { readonly type: 'linkPromoted'; readonly generation: number; readonly connection: Connection }
	/** Renew the Connection of this link at this monotonic time. */
	| { readonly type: 'renewAt'; readonly generation: number; readonly atMs: number };

export interface SupervisorStep {
	readonly supervision: Supervision;
	readonly effects: readonly SupervisorEffect[];
}

export const NOTHING_SUPERVISED: Supervision = {
	desired: null,
	current: null,
	next: null,
	lastGeneration: 0,
	budget: FULL_BUDGET,
};

/** A Connection is renewed when this share of its life is over, plus a random part of the spread. */
export const RENEW_AFTER = 0.8;
/** So that devices which were paired together do not renew together. */
export const RENEW_SPREAD = 0.05;
/** The least time until a renewal is considered again, while nothing comes of it. */
export const RENEW_AGAIN_MS = 60_000;

/** WebSocket close codes that the agent itself sends. */
export const CLOSE_CODES = { done: 1000, goingAway: 1001 } as const;

/** The next supervision and what has to be done, in this order. */
export function supervise(supervision: Supervision, event: SupervisorEvent, random: () => number): SupervisorStep {
	switch (event.type) {
		case 'desiredChanged':
			return reconcile({ ...supervision, desired: event.desired }, event.known, event.atMs, random);
		case 'paired': {
			const free = makeRoom({ ...supervision, desired: event.desired }, event.atMs, random);
			const started = start(free.supervision, event.desired, 'pairing', event.connection, event.atMs, random);
			return followedBy(free.effects, started);
		}
		case 'renewalDue':
			return renew(supervision, event.generation, event.atMs, random);
		case 'retryRequested': {
			const retry: LinkEvent = { type: 'retryRequested', atMs: event.atMs };
			const { current, next } = supervision;
			// What waits is the move: to open the live channel again as well would only put the device offline.
			if (next && current?.state.name === 'online') return stepLink(supervision, next, retry, random);
			return stepBoth(supervision, retry, random);
		}
		case 'settingsChanged':
			return stepBoth(supervision, event, random);
		case 'stopRequested':
			return {
				supervision: { ...supervision, desired: null, current: null, next: null },
				effects: [
					...drop(supervision.next, event.atMs, random, CLOSE_CODES.goingAway),
					...drop(supervision.current, event.atMs, random, CLOSE_CODES.goingAway),
				],
			};
		case 'link': {
			const link = [supervision.current, supervision.next].find((known) => known?.generation === event.generation);
			return link ? stepLink(supervision, link, event.event, random) : { supervision, effects: [] };
		}
	}
}

/** Whether a Connection made for one registration serves the other. */
export function servesRegistration(made: Registration, desired: Registration): boolean {
	const keys = ['deviceId', 'workflowId', 'serial', 'macAddress', 'deviceType', 'heartbeatCadence'] as const;
	return (
		made.baseUrl === desired.baseUrl &&
		keys.every((key) => made.request[key] === desired.request[key]) &&
		// A credential that was taken away does not take away what was obtained with it.
		(desired.credentialId === '' || made.credentialId === desired.credentialId)
	);
}

/** Derives the links from what is wanted. */
function reconcile(
	supervision: Supervision,
	known: readonly KnownConnection[],
	atMs: number,
	random: () => number,
): SupervisorStep {
	const { desired, current, next } = supervision;
	if (!desired) {
		const effects = [...drop(next, atMs, random), ...drop(current, atMs, random)];
		return { supervision: { ...supervision, current: null, next: null }, effects };
	}
	if (current && isOnItsWay(current, desired)) {
		if (!next || isOnItsWay(next, desired)) return { supervision, effects: [] };
		return { supervision: { ...supervision, next: null }, effects: drop(next, atMs, random) };
	}
	if (next && isOnItsWay(next, desired)) return { supervision, effects: [] };
	const free = makeRoom(supervision, atMs, random);
	const started = free.supervision.current
		? start(free.supervision, desired, 'desired', newestFor(desired, known), atMs, random)
		: startFirst(free.supervision, desired, known, atMs, random);
	return followedBy(free.effects, started);
}

/** Whether a link leads to what is wanted: it is for that registration, and can register with all there is as long as it has to. */
function isOnItsWay({ registration, state }: Link, desired: DesiredRegistration): boolean {
	if (!servesRegistration(registration, desired)) return false;
	if (state.name === 'closed' || state.connection) return true;
	const has = (kind: Credential['kind']) => state.credentials.some((credential) => credential.kind === kind);
	return has('reusable') === desired.hasReusableCredential && has('selfRegistration') === desired.selfRegistration;
}

/** Ends what a new link takes the place of: the next link, and a current one that never had a Connection to be online with. */
function makeRoom(supervision: Supervision, atMs: number, random: () => number): SupervisorStep {
	const { current, next } = supervision;
	const isWorthKeeping = current !== null && connectionOf(current.state) !== null;
	return {
		supervision: { ...supervision, current: isWorthKeeping ? current : null, next: null },
		effects: [...drop(next, atMs, random), ...(isWorthKeeping ? [] : drop(current, atMs, random))],
	};
}

/** After a start: the saved Connection that fits; else the saved one that still works, and the wanted one next to it. */
function startFirst(
	supervision: Supervision,
	desired: DesiredRegistration,
	known: readonly KnownConnection[],
	atMs: number,
	random: () => number,
): SupervisorStep {
	const fitting = newestFor(desired, known);
	const last = known.at(-1);
	if (fitting || !last) return start(supervision, desired, 'desired', fitting, atMs, random);
	const old = start(supervision, last.registration, 'desired', last.connection, atMs, random);
	const moved = reconcile(old.supervision, known, atMs, random);
	return followedBy(old.effects, moved);
}

function newestFor(desired: Registration, known: readonly KnownConnection[]): Connection | null {
	return known.findLast((saved) => servesRegistration(saved.registration, desired))?.connection ?? null;
}

/** A move that is refused must not cost the Connection that is left: the renewal goes before it, and it waits its turn. */
function renew(supervision: Supervision, generation: number, atMs: number, random: () => number): SupervisorStep {
	const { desired, current, next } = supervision;
	if (!desired || current?.generation !== generation) return { supervision, effects: [] };
	const lifeMs = connectionOf(current.state)?.lifeMs ?? 0;
	const laterMs = atMs + Math.max(RENEW_AGAIN_MS, lifeMs * RENEW_SPREAD);
	const again: SupervisorEffect = { type: 'renewAt', generation, atMs: laterMs };
	const isStuck = next?.reason === 'desired' && 'untilMs' in next.state && !next.state.connection;
	if (next && !isStuck) return { supervision, effects: [again] };
	const dropped = drop(next, atMs, random);
	const registration = servesRegistration(current.registration, desired) ? desired : current.registration;
	const started = start({ ...supervision, next: null }, registration, 'renewal', null, atMs, random);
	return { supervision: started.supervision, effects: [...dropped, ...started.effects, again] };
}

function start(
	supervision: Supervision,
	{ baseUrl, request, credentialId }: Registration,
	reason: Link['reason'],
	connection: Connection | null,
	atMs: number,
	random: () => number,
): SupervisorStep {
	const generation = supervision.lastGeneration + 1;
	const registration = { baseUrl, request, credentialId };
	const started = startLink(credentialsFor(registration, supervision), connection, atMs, reason === 'pairing');
	const { step, budget } = admitted(started, supervision, registration, atMs, random);
	const link: Link = { generation, registration, reason, state: step.state };
	const place = supervision.current ? { next: link } : { current: link };
	return {
		supervision: { ...supervision, ...place, lastGeneration: generation, budget },
		effects: ofLink(link, step.effects),
	};
}

/** The one order (docs/architecture.md, Credentials): a reusable credential, then the Connection itself, then none at all where that is switched on. */
function credentialsFor(registration: Registration, { desired, current }: Supervision): Credential[] {
	const credentials: Credential[] = [];
	if (mayUseReusable(registration, desired)) credentials.push({ kind: 'reusable' });
	const connection = current && connectionOf(current.state);
	// A Connection is shown to the service that issued it and to no other.
	if (connection && current.registration.baseUrl === registration.baseUrl)
		credentials.push({ kind: 'connection', token: connection.token });
	if (desired?.selfRegistration && desired.baseUrl === registration.baseUrl)
		credentials.push({ kind: 'selfRegistration' });
	return credentials;
}

/** The reusable credential that is set now is for the service that is set now. */
function mayUseReusable(registration: Registration, desired: DesiredRegistration | null): boolean {
	return (
		desired?.hasReusableCredential === true &&
		desired.baseUrl === registration.baseUrl &&
		desired.credentialId === registration.credentialId
	);
}

/**
 * The step of a link as far as it may register: with a credential which is not its own any more, or more often than the
 * budget allows, the registration has failed before it is sent.
 */
function admitted(
	step: Step,
	{ desired, budget }: Pick<Supervision, 'desired' | 'budget'>,
	registration: Registration,
	atMs: number,
	random: () => number,
): { readonly step: Step; readonly budget: RegistrationBudget } {
	const asked = step.effects.find((effect) => effect.type === 'register');
	if (!asked) return { step, budget };
	const isWithheld = asked.credential.kind === 'reusable' && !mayUseReusable(registration, desired);
	const spent = isWithheld ? { budget, heldBack: NO_LONGER_SET } : spend(budget, atMs);
	if (!spent.heldBack) return { step, budget: spent.budget };
	const failed = { type: 'registerFailed', attempt: asked.attempt, timedOut: false, atMs } as const;
	const after = transition(step.state, { ...failed, failure: spent.heldBack }, random);
	const effects = [...step.effects.filter((effect) => effect !== asked), ...after.effects];
	// A credential that is withheld leaves the next one to be tried.
	return admitted({ state: after.state, effects }, { desired, budget: spent.budget }, registration, atMs, random);
}

const NO_LONGER_SET = failure(
	'credential-refused',
	'The credential that this registration was made with is no longer set.',
);

function stepBoth(supervision: Supervision, event: LinkEvent, random: () => number): SupervisorStep {
	const first = stepLink(supervision, supervision.current, event, random);
	return followedBy(first.effects, stepLink(first.supervision, first.supervision.next, event, random));
}

function stepLink(supervision: Supervision, link: Link | null, event: LinkEvent, random: () => number): SupervisorStep {
	const happened = link && asSuperseded(supervision, link, event);
	if (!happened) return { supervision, effects: [] };
	const { generation, registration, reason } = link;
	const { desired } = supervision;
	// What did not reach the service has cost it nothing; a request whose answer is lost may have reached it.
	const isFree = event.type === 'registerFailed' && event.unsent === true;
	const before = isFree ? refund(supervision.budget) : supervision.budget;
	const moving = transition(link.state, happened, random);
	const { step, budget } = admitted(moving, { desired, budget: before }, registration, event.atMs, random);
	const moved: Link = { ...link, state: step.state };
	const effects = ofLink(link, step.effects);
	const isNext = supervision.next?.generation === generation;
	const cameOnline = step.state.name === 'online' && link.state.name !== 'online';

	if (!cameOnline) {
		const stepped = { ...supervision, budget, [isNext ? 'next' : 'current']: moved };
		// A renewal that went before a move and has to wait gives its place back.
		const isMoveNext = reason === 'renewal' && desired && !servesRegistration(registration, desired);
		if (!isNext || !isMoveNext || !('untilMs' in step.state) || step.state.connection)
			return { supervision: stepped, effects };
		return followedBy(effects, reconcile(stepped, [], event.atMs, random));
	}
	const connection = (step.state as { connection: Connection }).connection;
	effects.push({ type: 'linkPromoted', generation, connection });
	if (connection.lifeMs !== null) {
		const share = RENEW_AFTER + RENEW_SPREAD * random();
		const dueMs = Math.max(event.atMs, connection.obtainedAtMs + connection.lifeMs * share);
		effects.push({ type: 'renewAt', generation, atMs: dueMs });
	}
	if (!isNext) {
		const online = { ...supervision, budget, current: moved };
		const { next } = supervision;
		// The service is back, and the Connection would end before the renewal is tried again.
		const endsAtMs = connection.obtainedAtMs + (connection.lifeMs ?? Number.POSITIVE_INFINITY);
		const isLate = next?.reason === 'renewal' && next.state.name === 'registerWait' && next.state.untilMs >= endsAtMs;
		if (!isLate) return { supervision: online, effects };
		return followedBy(effects, stepLink(online, next, { type: 'retryRequested', atMs: event.atMs }, random));
	}
	effects.push(...drop(supervision.current, event.atMs, random));
	return followedBy(effects, reconcile({ ...supervision, budget, current: moved, next: null }, [], event.atMs, random));
}

function followedBy(before: readonly SupervisorEffect[], { supervision, effects }: SupervisorStep): SupervisorStep {
	return { supervision, effects: [...before, ...effects] };
}

/**
 * When the service ends the old link because the new one has registered, nothing was refused. Its answer may still be on the way: if the
 * registration fails, the old Connection has been tried once more.
 */
function asSuperseded(supervision: Supervision, link: Link, event: LinkEvent): LinkEvent | null {
	const { current, next } = supervision;
	if (link !== current || next === null || next.state.name === 'blocked') return event;
	if (next.registration.baseUrl !== link.registration.baseUrl) return event;
	const isRegistered = connectionOf(next.state) !== null;
	if (!isRegistered && next.state.name !== 'registering') return event;
	if (event.type === 'connectionRevoked') return isRegistered ? null : event;
	if (event.type !== 'channelEnded' || dispositionOf(event.failure.code) !== 'reregister') return event;
	const message = 'The service ended the old channel because of the new registration.';
	return { ...event, failure: failure('connection-replaced', message) };
}

function drop(
	link: Link | null,
	atMs: number,
	random: () => number,
	code: number = CLOSE_CODES.done,
): SupervisorEffect[] {
	if (!link) return [];
	const step = transition(link.state, { type: 'closeRequested', code, atMs }, random);
	return [...ofLink(link, step.effects), { type: 'linkEnded', generation: link.generation }];
}

function ofLink({ generation, registration }: Link, effects: readonly LinkEffect[]): SupervisorEffect[] {
	return effects.map((effect) => ({ type: 'link', generation, registration, effect }));
}
