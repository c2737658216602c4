/**
 * Which links there should be: compares the wanted registration with the links that exist and moves the device from one
 * to the next without a moment offline. Pure; the links' own lives are in `link.ts`, everything performed is in `agent/`.
 */
import { admitted } from './admission.ts';
import { asSeenBeside, goesElsewhere, hasCountedBeside, sharedConnection } from './beside.ts';
import {
	type Connection,
	type Credential,
	connectionOf,
	type LinkEffect,
	type LinkEvent,
	type Step,
	startLink,
	transition,
} from './link.ts';
import { refund } from './registration-budget.ts';
import {
	asHeld,
	changedBack,
	doubted,
	endsAsSecond,
	madeRoom,
	promoted,
	ROOM_AFTER_MS,
	roomFor,
	withoutBefore,
	withPlaceTaken,
} from './room.ts';
import {
	asKnown,
	CLOSE_CODES,
	type DesiredRegistration,
	isSameLink,
	type KnownConnection,
	LAST_RENEWALS_MS,
	type Link,
	mayUseEarlier,
	mayUseReusable,
	provenBefore,
	RENEW_AFTER,
	RENEW_AGAIN_MS,
	RENEW_SPREAD,
	type Registration,
	type Supervision,
	type SupervisorEffect,
	type SupervisorEvent,
	type SupervisorStep,
	servesRegistration,
} from './supervision.ts';

export * from './supervision.ts';

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
				// A device whose agent ends is not unpaired.
				supervision: { ...supervision, desired: null, current: closed(supervision.current, event.atMs), next: null },
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
	// It was online by the way that there was then: now that has a name.
	if (current && current.registration.way === undefined && desired.way !== undefined) {
		const named = { ...current, registration: { ...current.registration, way: desired.way } };
		return reconcile({ ...supervision, current: named }, known, atMs, random);
	}
	if (current && isOnItsWay(current, desired)) {
		if (!next || isOnItsWay(next, desired)) return { supervision, effects: [] };
		const alone = { ...supervision, next: null };
		const dropped = drop(next, atMs, random);
		if (next.roomAtMs === undefined || current.state.name !== 'connectWait')
			return { supervision: alone, effects: dropped };
		// There is nothing any more that it leaves its place to.
		return followedBy(dropped, stepLink(alone, current, { type: 'retryRequested', atMs }, random));
	}
	if (next && isOnItsWay(next, desired)) return { supervision, effects: [] };
	const free = makeRoom(supervision, atMs, random);
	const usable = registersOtherwise(free.supervision.current, desired) ? null : newestFor(desired, known);
	const started = free.supervision.current
		? start(free.supervision, desired, 'desired', usable, atMs, random)
		: startFirst(free.supervision, desired, known, atMs, random);
	return followedBy(free.effects, started);
}

/** Whether a link leads to what is wanted: it is for that registration, and can register with all there is as long as it has to. */
function isOnItsWay({ registration, state }: Link, desired: DesiredRegistration): boolean {
	if (!isSameLink(registration, desired)) return false;
	if (state.name === 'closed' || state.connection) return true;
	const has = (kind: Credential['kind']) => state.credentials.some((credential) => credential.kind === kind);
	return has('reusable') === desired.hasReusableCredential && has('selfRegistration') === desired.selfRegistration;
}

/** Whether the ways differ in how the device registers: only a registration shows whether the other one is good. */
function registersOtherwise(current: Link | null, desired: DesiredRegistration): boolean {
	const mayRegister = desired.hasReusableCredential || desired.selfRegistration;
	const [now, then] = [current?.registration.way, desired.way].map((way) => way?.split('-')[1]);
	return mayRegister && now !== undefined && then !== undefined && now !== then;
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

/** After a start: the saved Connection that fits and has worked; else the saved one that still works, and the wanted one next to it. */
function startFirst(
	supervision: Supervision,
	desired: DesiredRegistration,
	known: readonly KnownConnection[],
	atMs: number,
	random: () => number,
): SupervisorStep {
	const evident = known.map((saved) => asKnown(saved, known));
	const fitting = newestFor(desired, evident, isSameLink);
	const first = fitting?.worked ? undefined : provenBefore(desired, evident, fitting !== null);
	if (!first) return start(supervision, desired, 'desired', fitting, atMs, random);
	const old = start(supervision, first.registration, 'desired', first.connection, atMs, random);
	const moved = reconcile(old.supervision, known, atMs, random);
	return followedBy(old.effects, moved);
}

function newestFor(
	desired: Registration,
	known: readonly KnownConnection[],
	serves = servesRegistration,
): Connection | null {
	return known.findLast((saved) => serves(saved.registration, desired))?.connection ?? null;
}

/** A move that is refused must not cost the Connection that is left: the renewal goes before it, and it waits its turn. */
function renew(supervision: Supervision, generation: number, atMs: number, random: () => number): SupervisorStep {
	const { desired, current, next } = supervision;
	if (!desired || current?.generation !== generation) return { supervision, effects: [] };
	const { obtainedAtMs = 0, lifeMs } = connectionOf(current.state) ?? {};
	const laterMs = atMs + Math.max(RENEW_AGAIN_MS, (lifeMs ?? 0) * RENEW_SPREAD);
	const lastMs = lifeMs ? LAST_RENEWALS_MS.map((ms) => obtainedAtMs + lifeMs - ms) : [];
	const dueMs = Math.min(laterMs, ...lastMs.filter((ms) => ms > atMs));
	const again: SupervisorEffect = { type: 'renewAt', generation, atMs: dueMs };
	const isStuck = next?.reason === 'desired' && 'untilMs' in next.state && !next.state.connection;
	if (next && !isStuck) {
		const { state } = next;
		// For as long as the service asks to be left alone, it is.
		const isLast =
			next.reason === 'renewal' &&
			state.name === 'registerWait' &&
			lastMs.some((ms) => atMs >= ms) &&
			atMs >= state.sinceMs + (state.failure.retryAfterMs ?? 0);
		if (!isLast) return { supervision, effects: [again] };
		return followedBy([again], stepLink(supervision, next, { type: 'retryRequested', atMs }, random));
	}
	const dropped = drop(next, atMs, random);
	const registration = isSameLink(current.registration, desired) ? desired : current.registration;
	const started = start({ ...supervision, next: null }, registration, 'renewal', null, atMs, random);
	return { supervision: started.supervision, effects: [...dropped, ...started.effects, again] };
}

function start(
	supervision: Supervision,
	{ baseUrl, request, credentialId, way }: Registration,
	reason: Link['reason'],
	connection: Connection | null,
	atMs: number,
	random: () => number,
): SupervisorStep {
	const generation = supervision.lastGeneration + 1;
	const registration = { baseUrl, request, credentialId, ...(way !== undefined && { way }) };
	const credentials = credentialsFor(registration, supervision);
	const hasCounted = connection?.worked || hasCountedBeside(registration, supervision, atMs);
	const by = reason !== 'renewal' && isOwnChange(supervision, registration) ? 'site' : 'service';
	const isOther = goesElsewhere(registration, supervision);
	const started = startLink(credentials, connection, atMs, reason === 'pairing', hasCounted, isOther);
	const { step, budget } = admitted(started, { ...supervision, by }, registration, atMs, random);
	const link = { generation, registration, reason, state: step.state } satisfies Link;
	const placed = supervision.current ? { ...supervision, next: link } : { ...supervision, current: link };
	return { supervision: { ...placed, lastGeneration: generation, budget }, effects: ofLink(link, step.effects) };
}

/** Whether a new link is not what a message of the service or the end of a Connection asks for. */
function isOwnChange({ desired, current, next }: Supervision, { request, ...to }: Registration): boolean {
	const last = (next ?? current)?.registration;
	const isSame =
		last !== undefined && isSameLink(last, { ...to, request: { ...request, workflowId: last.request.workflowId } });
	return !(isSame && (desired?.isMoved || request.workflowId === last.request.workflowId));
}

/** The one order (docs/architecture.md, Credentials): a reusable credential, then the Connection itself, then the reusable one from before, then none at all where that is switched on. */
function credentialsFor(registration: Registration, { desired, current }: Supervision): Credential[] {
	const credentials: Credential[] = [];
	if (mayUseReusable(registration, desired)) credentials.push({ kind: 'reusable' });
	const connection = current && connectionOf(current.state);
	// A Connection is shown to the service that issued it and to no other.
	if (connection && current.registration.baseUrl === registration.baseUrl)
		credentials.push({ kind: 'connection', token: connection.token });
	if (mayUseEarlier(registration, desired)) credentials.push({ kind: 'earlier' });
	if (desired?.selfRegistration && desired.baseUrl === registration.baseUrl)
		credentials.push({ kind: 'selfRegistration' });
	return credentials;
}

function stepBoth(supervision: Supervision, event: LinkEvent, random: () => number): SupervisorStep {
	const first = stepLink(supervision, supervision.current, event, random);
	return followedBy(first.effects, stepLink(first.supervision, first.supervision.next, event, random));
}

function stepLink(given: Supervision, link: Link | null, event: LinkEvent, random: () => number): SupervisorStep {
	const supervision = link ? withPlaceTaken(given, link, event) : given;
	const broken = link && breakBeforeMake(supervision, link, event, random);
	if (broken) return broken;
	const happened = link && asSeenBeside(supervision, link, event);
	if (!happened) return { supervision, effects: [] };
	const { generation, registration, reason } = link;
	const { desired } = supervision;
	// What did not reach the service has cost it nothing; a request whose answer is lost may have reached it.
	const isFree = event.type === 'registerFailed' && event.unsent === true;
	const before = isFree ? refund(supervision.budget) : supervision.budget;
	const moving = transition(link.state, happened, random);
	const { step, budget } = admitted(
		moving,
		{ desired, budget: before, by: 'service' },
		registration,
		event.atMs,
		random,
	);
	const moved: Link = { ...withoutBefore(link, event.atMs), state: step.state };
	const effects = ofLink(link, step.effects);
	const isNext = supervision.next?.generation === generation;
	const cameOnline = step.state.name === 'online' && link.state.name !== 'online';

	if (!cameOnline) {
		const stepped = { ...supervision, budget, [isNext ? 'next' : 'current']: moved };
		const shared = event.type === 'channelEnded' ? sharedConnection(stepped) : null;
		if (shared) {
			const taken = { type: 'connectionChanged', connection: shared, atMs: event.atMs } as const;
			return followedBy(effects, stepLink(stepped, stepped.current, taken, random));
		}
		// A renewal that went before a move and has to wait gives its place back.
		const isMoveNext = reason === 'renewal' && desired && !isSameLink(registration, desired);
		if (!isNext || !isMoveNext || !('untilMs' in step.state) || step.state.connection)
			return { supervision: stepped, effects };
		return followedBy(effects, reconcile(stepped, [], event.atMs, random));
	}
	const connection = (step.state as { connection: Connection }).connection;
	effects.push({ type: 'linkPromoted', generation, connection });
	const { obtainedAtMs, lifeMs } = connection;
	const lasts = (share: number) => obtainedAtMs + (lifeMs === null ? Number.POSITIVE_INFINITY : lifeMs * share);
	const dueMs = lasts(lifeMs === null ? 1 : RENEW_AFTER + RENEW_SPREAD * random());
	if (lifeMs !== null) effects.push({ type: 'renewAt', generation, atMs: Math.max(event.atMs, dueMs) });
	if (!isNext) {
		const next = doubted(supervision.next, true);
		const online = { ...supervision, budget, current: moved, next };
		if (next?.reason !== 'renewal' || next.state.name !== 'registerWait') return { supervision: online, effects };
		// It has registered again itself: there is nothing to renew.
		if (dueMs > event.atMs) {
			effects.push(...drop(next, event.atMs, random));
			return followedBy(effects, reconcile({ ...online, next: null }, [], event.atMs, random));
		}
		// The service is back, and the Connection would end before the renewal is tried again.
		if (next.state.untilMs < lasts(1)) return { supervision: online, effects };
		return followedBy(effects, stepLink(online, next, { type: 'retryRequested', atMs: event.atMs }, random));
	}
	effects.push(...drop(supervision.current, event.atMs, random));
	const alone = { ...supervision, budget, current: promoted(moved, supervision.current, event.atMs), next: null };
	return followedBy(effects, reconcile(alone, [], event.atMs, random));
}

/** The service permits one channel of a device: the old one is closed for the new one, and comes back where that does not help. */
function breakBeforeMake(
	supervision: Supervision,
	link: Link,
	event: LinkEvent,
	random: () => number,
): SupervisorStep | null {
	const { current } = supervision;
	const room = roomFor(supervision, link, event);
	if (!current || !room || event.type !== 'channelEnded') return null;
	const { atMs } = event;
	switch (room) {
		case 'wanted': {
			const closed = transition(
				current.state,
				{ type: 'roomWanted', failure: madeRoom(link, event.failure), atMs },
				random,
			);
			const again = transition(link.state, { ...event, againInMs: ROOM_AFTER_MS }, random);
			const next = { ...link, state: again.state, roomAtMs: atMs };
			const made = { ...supervision, current: { ...current, state: closed.state }, next };
			return { supervision: made, effects: [...ofLink(current, closed.effects), ...ofLink(link, again.effects)] };
		}
		case 'in vain': {
			const told = endsAsSecond(link, event) ? asHeld(room, link, event) : event;
			const { places, failing, back, effects } = changedBack(supervision, current, link);
			const failed = stepped(places, failing, transition(failing.state, told, random));
			return followedBy(
				[...failed.effects, ...ofLink(back, effects)],
				stepLink(failed.supervision, back, { type: 'retryRequested', atMs }, random),
			);
		}
		case 'held':
		case 'left':
		case 'again': {
			const places = room === 'held' ? { ...supervision, next: doubted(supervision.next, false) } : supervision;
			const told = asHeld(room, link, event, link === current);
			return stepped(places, link, transition(link.state, told, random));
		}
	}
}

function stepped(supervision: Supervision, link: Link, { state, effects }: Step): SupervisorStep {
	const place = link === supervision.current ? 'current' : 'next';
	return { supervision: { ...supervision, [place]: { ...link, state } }, effects: ofLink(link, effects) };
}

function followedBy(before: readonly SupervisorEffect[], { supervision, effects }: SupervisorStep): SupervisorStep {
	return { supervision, effects: [...before, ...effects] };
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

function closed(link: Link | null, sinceMs: number): Link | null {
	return link && { ...link, state: { name: 'closed', sinceMs, attempt: 0 } };
}

function ofLink({ generation, registration }: Link, effects: readonly LinkEffect[]): SupervisorEffect[] {
	return effects.map((effect) => ({ type: 'link', generation, registration, effect }));
}
