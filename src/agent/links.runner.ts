/** Performs what the supervisor decides: hands it events, has its effects performed, and keeps the renewal timer. */

import { isoNow } from '../base/clock.edge.ts';
import { dispositionOf, type Failure, toFailure } from '../base/errors.ts';
import { proveAfterMs } from '../connection/beside.ts';
import { accessOf, type Connections } from '../connection/connection-tokens.runner.ts';
import { createLinkRunner, type LinkRunnerOptions } from '../connection/link.runner.ts';
import { connectionOf, failureOf, type LinkEffect } from '../connection/link.ts';
import {
	type Asked,
	isOfProvenPlace,
	placesOfNext,
	type Shown,
	shownBy,
	toldOfNext,
	withNextProven,
	withNextRefused,
} from '../connection/next-connections.ts';
import { judgeReusable, refusedBesideOnline, refusesEarlier, withJudged } from '../connection/refused-credential.ts';
import {
	type DesiredRegistration,
	type Link,
	NOTHING_SUPERVISED,
	RENEW_AFTER,
	RENEW_SPREAD,
	type Registration,
	type Supervision,
	type SupervisorEffect,
	type SupervisorEvent,
	servesRegistration,
	type supervise,
} from '../connection/supervisor.ts';
import { withOnlyConnection } from '../state/device-state.ts';
import type { Base } from './base.runner.ts';

export type Links = ReturnType<typeof superviseLinks>;

/** To the other saved Connection, and back: both may have been refused for a moment. */
const MOST_CHANGES = 2;

export function superviseLinks(
	parts: Base &
		Omit<LinkRunnerOptions, 'report' | 'nextPlaces'> & {
			readonly decide: typeof supervise;
			readonly connections: Connections;
			readonly report: Pick<
				LinkRunnerOptions['report'],
				'answered' | 'frame' | 'heartbeat' | 'lineEnded' | 'serviceTime'
			>;
			/** Called when the device is online with this service, before older Connections are dropped. */
			readonly onPromoted: (registration: Pick<DesiredRegistration, 'baseUrl' | 'request'>) => void;
			readonly onFailedAttempt: (cause: Failure) => void;
			/** Called after every step, before anything else follows from it. */
			readonly onStep: (before: Supervision, after: Supervision) => void;
			/** Called after that: what is desired may depend on the step. */
			readonly onChange: () => void;
		},
) {
	const { clock, random, decide, connections } = parts;
	let supervision = NOTHING_SUPERVISED;
	/** A Connection that no link uses may be tried: it came with a late answer. */
	let isLate = false;
	/** How often the device may still change between its saved ones, until it is online. */
	let changes = MOST_CHANGES;
	/** The link that was handed the Connection of another one. */
	let triedProven = 0;
	/** The Connection that each link has opened its last channel with. */
	const shown = new Map<number, Shown>();
	let stopped = false;
	let cancelRenewal = () => {};
	/** When the Connection in use is renewed, monotonic. */
	let renewalAtMs = Number.POSITIVE_INFINITY;
	let isPromoted = false;
	const runner = createLinkRunner({
		...parts,
		nextPlaces: ({ baseUrl }, own) => placesOfNext(parts.stateWriter.state, baseUrl, askedForNext(), own),
		report: {
			...parts.report,
			stored: () => parts.events.safe(),
			event(generation, event) {
				if (event.type === 'registered') judge(generation, event.attempt);
				if (event.type === 'registerFailed' || event.type === 'channelEnded') parts.onFailedAttempt(event.failure);
				if (event.type === 'channelEnded' && dispositionOf(event.failure.code) === 'reregister') refusedBy(generation);
				dispatch({ type: 'link', generation, event });
			},
			lineEnded(...end) {
				if (supervision.current ?? supervision.next) parts.report.lineEnded(...end);
			},
			heartbeat(generation, sentAt) {
				if (supervision.current?.generation === generation) parts.report.heartbeat(generation, sentAt);
			},
			answered(generation, at) {
				if (supervision.current?.generation === generation) parts.report.answered(generation, at);
			},
			lateConnection(registration, issued) {
				connections.keep(registration, issued);
				isLate = true;
				startOverIfRefused();
			},
		},
	});

	function refusedBy(generation: number): void {
		const [link, by] = [linkOf(generation), shown.get(generation)];
		if (link && by) parts.stateWriter.keep((state) => withNextRefused(state, link.registration.baseUrl, by));
	}

	function askedForNext(): Asked {
		const [inForce, newest] = [parts.runtime(), parts.ways.wanted()].map(
			({ resolved }) => resolved.settings.service.nextConnection,
		);
		const { hasReusableCredential = false, selfRegistration = false } = supervision.desired ?? {};
		return { inForce: inForce ?? null, newest: newest ?? null, mayRegister: hasReusableCredential || selfRegistration };
	}

	function dispatch(event: SupervisorEvent): void {
		if (stopped) return;
		const before = supervision;
		const refused = event.type === 'paired' ? before.current : null;
		// It stays so behind a Connection that works: the day this one ends, the device needs the credential.
		if (refused && failureOf(refused.state)?.code === 'credential-refused') keepJudged('refused', refused.registration);
		const besideOnline = refusedBesideOnline(event, before);
		if (besideOnline) keepJudged('refused', besideOnline);
		if (refusesEarlier(event, before)) parts.stateWriter.keep((state) => ({ ...state, workedCredential: null }));
		step(event);
		parts.onStep(before, supervision);
		parts.onChange();
		startOverIfRefused();
		tryProvenIfRefused();
	}

	const linkOf = (generation?: number) =>
		[supervision.current, supervision.next].find((one) => one?.generation === generation);

	/** Before the link goes on: its state says which credential has worked. */
	function judge(generation: number, attempt: number): void {
		const link = linkOf(generation);
		const judged = link?.state.attempt === attempt ? judgeReusable(link.state) : null;
		if (link && judged) keepJudged(judged, link.registration);
	}

	function keepJudged(judged: 'works' | 'refused', registration: Registration): void {
		const at = isoNow({ wallMs: () => parts.time.best().ms });
		parts.stateWriter.keep((state) => withJudged(state, judged, registration, at));
	}

	function step(event: SupervisorEvent): void {
		const { supervision: after, effects } = decide(supervision, event, random);
		supervision = after;
		for (const effect of effects) perform(effect);
		if (isPromoted) clockChanged();
		isPromoted = false;
	}

	/** Has the Connection in use renewed by its age, as the clock has it now. @param latestMs not later than this, monotonic. */
	function renewByAge(latestMs: number): void {
		const { current } = supervision;
		const known = connections.known().find(({ connection: { token } }) => token === accessOf(supervision)?.token);
		const { lifeMs = null, obtainedAtMs = 0 } = known?.connection ?? {};
		if (current?.state.name !== 'online' || lifeMs === null) return;
		const atMs = obtainedAtMs + lifeMs * (RENEW_AFTER + RENEW_SPREAD * random());
		if (atMs < latestMs) perform({ type: 'renewAt', generation: current.generation, atMs });
	}

	/** It may be older than it seemed: a device may start with a clock of 1970, and timers stand still while it sleeps. */
	const clockChanged = () => renewByAge(renewalAtMs);
	parts.onClockJump(clockChanged);

	function startAfresh(): void {
		isLate = false;
		changes = MOST_CHANGES;
	}

	/**
	 * A registration whose link is over may have ended the Connection in use: then the one that it brought is what is left. And what a setting
	 * takes for the next Connection may be none: a device without a credential goes back to the one that it was online with.
	 */
	function startOverIfRefused(): void {
		const { desired, current, next } = supervision;
		if (stopped || !desired || !isRefused(current)) return;
		// The answer that is on its way to the other link may name the Connection that is left.
		if (next?.state.name === 'connecting') return;
		const mayRegister = desired.hasReusableCredential || desired.selfRegistration;
		if (!isLate && (changes === 0 || mayRegister)) return;
		const used = [...[...shown.values()].map(({ token }) => token), next && connectionOf(next.state)?.token];
		const other = connections.known().findLast(({ connection: { token } }) => !used.includes(token));
		if (!other) return;
		changes -= isLate ? 0 : 1;
		isLate = false;
		// The settings, and this device at this service, have worked by the one before it.
		const worked = connections.known().some(({ connection }) => connection.worked);
		step(desiring(null));
		dispatch(desiring(desired, [worked ? { ...other, connection: { ...other.connection, worked } } : other]));
	}

	/** Beside a channel that is open, other settings are tried by a Connection that it has shown to be good, where theirs is refused. */
	function tryProvenIfRefused(): void {
		const { desired, current, next } = supervision;
		if (stopped || !next || next.generation === triedProven || desired?.hasReusableCredential) return;
		// A renewal wants another one.
		if (next.reason === 'renewal') return;
		if (current?.state.name !== 'online' || !isRefused(next)) return;
		if (!servesRegistration(current.registration, next.registration)) return;
		const newest = connectionOf(current.state)?.token;
		const opened = shown.get(current.generation)?.token;
		// Where each opens one channel, the one that has opened the live channel is spent.
		const isNext =
			newest !== undefined && isOfProvenPlace(parts.stateWriter.state, current.registration.baseUrl, newest);
		const proven = connections
			.known()
			.find(
				({ connection: { token } }) =>
					token === (isNext ? newest : opened) && token !== shown.get(next.generation)?.token,
			);
		if (!proven) return;
		triedProven = next.generation;
		const { connection } = proven;
		const event = { type: 'connectionChanged', connection, atMs: clock.monotonicMs() } as const;
		dispatch({ type: 'link', generation: next.generation, event });
	}

	function isRefused(link: Link | null): link is Link {
		if (!link || !('untilMs' in link.state)) return false;
		const { code } = link.state.failure;
		return code === 'connection-replaced' || dispositionOf(code) === 'reregister';
	}

	function desiring(desired: DesiredRegistration | null, usable = connections.known()): SupervisorEvent {
		const known = desired ? usable : [];
		return { type: 'desiredChanged', desired, known, atMs: clock.monotonicMs() };
	}

	function tried<Effect extends LinkEffect>(generation: number, effect: Effect): Effect {
		if (effect.type !== 'openChannel' || !effect.provesByAge) return effect;
		const limitMs = parts.settings().fleet.changeLimitSeconds * 1000;
		return { ...effect, proveAfterMs: proveAfterMs(generation, supervision, limitMs) };
	}

	/** What has to be saved first may not fit: then that is what the link waits for. */
	function register(generation: number, registration: Registration, effect: Extract<LinkEffect, { type: 'register' }>) {
		const { attempt } = effect;
		const go = () => runner.perform(generation, registration, effect);
		const keeping = parts.identity.keep(registration.request.deviceId);
		if (keeping === null) return go();
		const isStill = () => !stopped && linkOf(generation)?.state.attempt === attempt;
		const fail = (error: unknown) => {
			const failed = { failure: toFailure(error), timedOut: false, unsent: true, hasOther: false };
			const event = { type: 'registerFailed', attempt, atMs: clock.monotonicMs(), ...failed } as const;
			dispatch({ type: 'link', generation, event });
		};
		void keeping.then(() => isStill() && go(), fail);
	}

	parts.onStateSaved(() => {
		const { current, next } = supervision;
		const waits = [current, next].some((link) => link && failureOf(link.state)?.code === 'state-unwritable');
		if (waits) dispatch({ type: 'retryRequested', atMs: clock.monotonicMs() });
	});

	function perform(effect: SupervisorEffect): void {
		switch (effect.type) {
			case 'link':
				if (effect.effect.type === 'keepConnection') connections.keep(effect.registration, effect.effect.connection);
				else if (effect.effect.type === 'register') register(effect.generation, effect.registration, effect.effect);
				else {
					if (effect.effect.type === 'openChannel')
						shown.set(effect.generation, shownBy(parts.stateWriter.state, effect.effect.token));
					runner.perform(effect.generation, effect.registration, tried(effect.generation, effect.effect));
				}
				return;
			case 'linkEnded':
				runner.end(effect.generation);
				shown.delete(effect.generation);
				return;
			case 'linkPromoted': {
				// The one that comes on the channel is not proven by it.
				const by = shown.get(effect.generation) ?? shownBy(parts.stateWriter.state, effect.connection.token);
				startAfresh();
				isPromoted = true;
				const { current } = supervision;
				if (current) parts.cameOnlineBy(current.registration);
				if (current) parts.onPromoted(current.registration);
				if (current) parts.stateWriter.keep((state) => withNextProven(state, current.registration.baseUrl, by));
				parts.stateWriter.keep((state) => withOnlyConnection(state, by.token));
				parts.keepSettings();
				return;
			}
			case 'renewAt': {
				cancelRenewal();
				const { generation } = effect;
				renewalAtMs = effect.atMs;
				cancelRenewal = clock.schedule(renewalAtMs - clock.monotonicMs(), () =>
					dispatch({ type: 'renewalDue', generation, atMs: clock.monotonicMs() }),
				);
				return;
			}
			default:
				effect satisfies never;
		}
	}

	return {
		get supervision() {
			return supervision;
		},
		dispatch,
		/** Hands over the desired registration, with the saved Connections. */
		desire: (desired: DesiredRegistration | null) => dispatch(desiring(desired)),
		/** What is told of `service.nextConnection`. */
		toldOfNext(): Failure | null {
			const { current } = supervision;
			return current && toldOfNext(parts.stateWriter.state, current.registration.baseUrl, askedForNext());
		},
		/** Whether a link is on its way to be online, or what took its place; beside it another service may be tried. */
		isConnecting(generation: number): boolean {
			const { current, next } = supervision;
			const state = (current?.generation === generation ? current : (next ?? current))?.state.name;
			return state === 'registering' || state === 'connecting';
		},
		/** `service.connectionLifeSeconds` has changed: the Connection in use is renewed when it says so. */
		lifeChanged: () => renewByAge(Number.POSITIVE_INFINITY),
		/** Ends every link and gives up every request, until a registration is desired again. */
		drop() {
			cancelRenewal();
			const before = supervision;
			step(desiring(null));
			parts.onStep(before, supervision);
			runner.abandon();
			startAfresh();
		},
		/**
		 * Closes the channels with 1001. After this nothing is dispatched any more.
		 * @returns whether no channel had been left just before, once they have gone.
		 */
		async stop(): Promise<boolean> {
			stopped = true;
			const wasSettled = !runner.isLeaving;
			cancelRenewal();
			const before = supervision;
			step({ type: 'stopRequested', atMs: clock.monotonicMs() });
			parts.onStep(before, supervision);
			parts.onChange();
			await runner.drained();
			return wasSettled;
		},
		/** Gives up the requests of links that are over. */
		abandon: runner.abandon,
	};
}
