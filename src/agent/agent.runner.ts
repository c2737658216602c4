/**
 * The running agent: hands events to the supervisor, has its effects performed, and answers what the local interface asks.
 * Decides nothing that a pure file could decide; touches nothing that an edge could touch.
 */

import { writeTimes } from '../base/clock.edge.ts';
import { AgentError, dispositionOf, type Failure } from '../base/errors.ts';
import { keepWarnings } from '../base/warnings.ts';
import { clockWarning } from '../connection/clock-skew.ts';
import { accessOf, keepConnections, knownConnection } from '../connection/connection-tokens.runner.ts';
import { keepLine, UNSAVED_LINE } from '../connection/line.runner.ts';
import { createLinkRunner, livenessOf } from '../connection/link.runner.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { bearsOn } from '../connection/settings-bearing.ts';
import {
	NOTHING_SUPERVISED,
	type Registration,
	type SupervisorEffect,
	type SupervisorEvent,
	supervise,
} from '../connection/supervisor.ts';
import { createEventsFeed } from '../events/feed.runner.ts';
import { keepNotification } from '../events/notifications.ts';
import { followFleet } from '../fleet/follow-plan.runner.ts';
import { chooseDeviceIdentity } from '../identity/choose.runner.ts';
import { acceptedIdentity, type CompleteIdentity, toReport } from '../identity/identity.ts';
import { createPairing, untilSettled } from '../pairing/pairing.runner.ts';
import type { AgentMessage, Frame } from '../protocol/channel.ts';
import type { IdentityReport, PairRequest, PairResult, Status } from '../protocol/local-api.ts';
import { EMPTY_STATE, MAX_CONNECTIONS, withLastSettings, withOnlyConnection } from '../state/device-state.ts';
import { keepPersistedState } from '../state/persisted-state.runner.ts';
import { trackConnectivity } from '../status/connectivity.runner.ts';
import { describeStatus } from '../status/status.ts';
import { assignWorkflows } from '../workflow/assignment.runner.ts';
import {
	type DesiredInputs,
	desiredRegistration,
	hasCredential,
	registrationFor,
	serviceOf,
} from '../workflow/desired-registration.ts';
import { keepLeases } from '../workflow/leases.runner.ts';
import type { Agent, AgentOptions } from './agent-types.ts';

export type { Agent, AgentOptions } from './agent-types.ts';

/** How long the end of the agent waits for the answer to a registration. */
const FINISH_WITHIN_MS = 2000;

export function startAgent(options: AgentOptions): Agent {
	const { clock, log, random, registerSecret, counters, supervise: decide = supervise } = options;
	const startedAtMs = clock.monotonicMs();
	const now = writeTimes(clock);
	const startedAt = now();
	let { runtime } = options;
	let supervision = NOTHING_SUPERVISED;
	let blocker: Failure | null = null;
	let stopped = false;
	/** Whether a Connection was saved that no link uses. */
	let hasSpare = false;
	let cancelRenewal = () => {};
	const statusListeners = new Set<() => void>();

	const warnings = keepWarnings(log, publish);
	const events = createEventsFeed(options.openEvents(warnings.set), counters);
	events.subscribe(publish);
	const device = keepPersistedState(options.device, options.store, clock, (unsaved) => warnings.set('state', unsaved));
	for (const { token } of device.state.connections) registerSecret(token);
	const identityParts = { facts: options.facts, device, newDeviceId: options.newDeviceId };
	let identity = chooseDeviceIdentity(identityParts, settings());
	const noteClock = (skewMs: number) => {
		counters.clockSkewMs = skewMs;
		warnings.set('clock', clockWarning(skewMs));
	};

	const connectivity = trackConnectivity({
		clock,
		log,
		events,
		silenceLimitMs: ({ registration }) => livenessOf(registration, settings().service).silenceLimitMs,
	});
	const line = keepLine(options.lineStore ?? UNSAVED_LINE, log);
	const leases = keepLeases({
		clock,
		maxDeferSeconds: () => settings().workflow.maxDeferSeconds,
		lookAgain: () => reconcile(),
	});
	const connections = keepConnections({ clock, device, registerSecret, credentials: () => runtime.credentials });
	const userAgent = `idv-agent/${options.version}`;
	const shared = { clock, log, device, warnings, runtime: () => runtime };
	const fleet = followFleet({
		...shared,
		random,
		userAgent,
		identity: () => identity,
		wish: () => desiredRegistration(context()).desired,
		waits: () => leases.waitsUntilMs !== null,
		lookAgain: () => reconcile(),
	});
	const plan = fleet.target;
	const workflow = assignWorkflows({ ...shared, plan });
	const runner = createLinkRunner({
		...shared,
		startedAtMs,
		userAgent,
		line,
		plan: fleet.heartbeat,
		openChannel: options.openChannel,
		report: {
			event(generation, event) {
				if (event.type === 'registerFailed' || event.type === 'channelEnded') counters.failedAttempts += 1;
				dispatch({ type: 'link', generation, event });
			},
			frame: onFrame,
			heartbeat: (generation, sentAt) => {
				if (supervision.current?.generation !== generation) return;
				counters.heartbeats += 1;
				connectivity.beat(sentAt);
				publish();
			},
			lateConnection: (registration, token) => {
				connections.keep(registration, token);
				hasSpare = true;
				startOverIfRefused();
			},
			lineEnded: (...end) => {
				if (supervision.current ?? supervision.next) connectivity.lineEnded(...end);
			},
			clockSkew: noteClock,
		},
	});
	const pairing = createPairing({
		...shared,
		store: options.store,
		events,
		plan,
		registerSecret,
		onClockSkew: noteClock,
		lookAgain: () => chooseDeviceIdentity(identityParts, settings(), null),
		registrationFor: (as, baseUrl, workflowId) => registrationFor(context(as), baseUrl, workflowId),
		toSaved: connections.toSaved,
	});

	function settings() {
		return runtime.resolved.settings;
	}

	function onStatus(listener: () => void): () => void {
		statusListeners.add(listener);
		return () => statusListeners.delete(listener);
	}

	function publish(): void {
		for (const listener of statusListeners) listener();
	}

	// ---- What is wanted ----

	/** What decides the wish, as it is now. */
	function context(as: CompleteIdentity = identity): DesiredInputs {
		const { resolved, credentials } = runtime;
		const { id, reusable, unreadable } = credentials;
		const facts = { id, isReusable: reusable !== null, unreadable };
		return { resolved, state: device.state, identity: as, credentials: facts, plan: plan() };
	}

	/** @param usable the last so many of the saved Connections are still good for something. */
	function reconcile(usable = MAX_CONNECTIONS): void {
		if (stopped) return;
		const { desired: wish, blocker: found } = desiredRegistration(context());
		blocker = found;
		const desired = fleet.keepLastGood(leases.defer(wish, supervision), supervision);
		if (desired) connections.adopt(desired);
		const known = device.state.connections.slice(-usable).map((saved) => knownConnection(saved, clock));
		dispatch({ type: 'desiredChanged', desired, known, atMs: clock.monotonicMs() });
	}

	/** Settings, state or machine may have changed: who the device is, what the plan says to it, and so what is wanted. */
	function reevaluate(): void {
		identity = chooseDeviceIdentity(identityParts, settings());
		fleet.reevaluate();
		reconcile();
	}

	/** Whatever settings were good enough to be used are kept, for the day when a push breaks them. */
	function keepSettings(): void {
		device.keep((state) => withLastSettings(state, runtime.resolved.documents));
	}

	// ---- What happens ----

	function dispatch(event: SupervisorEvent): void {
		if (stopped && event.type !== 'stopRequested') return;
		const before = supervision;
		step(event);
		connectivity.follow(before, supervision);
		fleet.follow(supervision);
		publish();
		startOverIfRefused();
	}

	function step(event: SupervisorEvent): void {
		const { supervision: after, effects } = decide(supervision, event, random);
		supervision = after;
		for (const effect of effects) perform(effect);
	}

	/** A registration that nobody waits for any more may have ended the Connection in use: then its own is what is left. */
	function startOverIfRefused(): void {
		const state = supervision.current?.state;
		if (!hasSpare || stopped || !state || !('untilMs' in state)) return;
		const { code } = state.failure;
		if (code !== 'connection-replaced' && dispositionOf(code) !== 'reregister') return;
		hasSpare = false;
		step({ type: 'desiredChanged', desired: null, known: [], atMs: clock.monotonicMs() });
		reconcile(1);
	}

	function perform(effect: SupervisorEffect): void {
		switch (effect.type) {
			case 'link':
				if (effect.effect.type === 'keepConnection')
					connections.keep(effect.registration, effect.effect.connection.token);
				else runner.perform(effect.generation, effect.registration, effect.effect);
				return;
			case 'linkEnded':
				runner.end(effect.generation);
				return;
			case 'linkPromoted': {
				const { token } = effect.connection;
				hasSpare = false;
				device.keep((state) => withOnlyConnection(state, token));
				return;
			}
			case 'renewAt': {
				cancelRenewal();
				const { generation } = effect;
				cancelRenewal = clock.schedule(effect.atMs - clock.monotonicMs(), () =>
					dispatch({ type: 'renewalDue', generation, atMs: clock.monotonicMs() }),
				);
			}
		}
	}

	function onFrame(generation: number, { request }: Registration, frame: Frame): void {
		// After an unpairing nothing of the old service is of interest any more.
		if (!supervision.current && !supervision.next) return;
		connectivity.heard(generation);
		const arrival = { workflowId: request.workflowId, at: now() };
		const message = keepNotification(events, frame, arrival, settings().service, log);
		if (message) actOn(message, generation);
	}

	function actOn(message: AgentMessage, generation: number): void {
		if (message.type === 'workflow.changed') {
			workflow.follow(message.workflowId);
			reconcile();
		} else dispatch({ type: 'link', generation, event: { type: 'connectionRevoked', atMs: clock.monotonicMs() } });
	}

	// ---- What is asked ----

	/** The sockets still answer while the agent stops: a code that is spent then would bring a Connection that nobody saves. */
	function ensureRunning(): void {
		if (stopped) throw new AgentError('agent-not-running', 'The agent is stopping.');
	}

	function ensureFree(): void {
		ensureRunning();
		if (pairing.underWay) throw new AgentError('pairing-under-way', 'A pairing is under way on this device.');
	}

	async function pair(asked: PairRequest): Promise<PairResult> {
		ensureRunning();
		const paired = await pairing.pair(asked, ({ desired, connection }) => {
			identity = chooseDeviceIdentity(identityParts, settings());
			fleet.reevaluate();
			blocker = null;
			dispatch({ type: 'paired', desired, connection, atMs: clock.monotonicMs() });
		});
		const generation = supervision.lastGeneration;
		await untilSettled(clock, onStatus, () => {
			const state = (supervision.next ?? supervision.current)?.state.name;
			return state !== 'registering' && state !== 'connecting';
		});
		const { current } = supervision;
		return {
			baseUrl: paired.baseUrl,
			deviceId: identity.deviceId.value,
			workflowId: paired.workflowId,
			sessionId: paired.sessionId,
			// A device that is only still online where it was has not moved yet.
			online: current?.state.name === 'online' && current.generation >= generation,
			sentence: status().sentence,
		};
	}

	async function unpair(): Promise<void> {
		ensureFree();
		const { generatedId, confirmedOrigins, lastSettings, plan: planned } = device.state;
		cancelRenewal();
		dispatch({ type: 'desiredChanged', desired: null, known: [], atMs: clock.monotonicMs() });
		runner.abandon();
		hasSpare = false;
		connectivity.forget();
		line.forget();
		try {
			await device.forget({ ...EMPTY_STATE, generatedId, confirmedOrigins, lastSettings, plan: planned });
			log.info('unpaired');
		} finally {
			reevaluate();
		}
	}

	async function acceptIdentity(): Promise<IdentityReport> {
		ensureFree();
		const found = chooseDeviceIdentity(identityParts, settings(), null);
		await device.record((state) => ({ ...state, identity: acceptedIdentity(state.identity, found, now()) }));
		reevaluate();
		return toReport(identity);
	}

	async function setWorkflow(workflowId: string): Promise<void> {
		ensureRunning();
		workflow.checkFree(workflowId);
		if (serviceOf(settings(), device.state) === null || !hasCredential(context()))
			throw new AgentError('unpaired', 'This device is not paired yet, so there is no workflow to change.');
		await workflow.set(workflowId);
		reconcile();
	}

	function applyRuntime(changed: Runtime): void {
		const bears = bearsOn(settings(), changed.resolved.settings);
		runtime = changed;
		warnings.set('workflow', null);
		keepSettings();
		reevaluate();
		dispatch({ type: 'settingsChanged', bears, atMs: clock.monotonicMs() });
	}

	function status(): Status {
		const { deviceId, serial, macAddress, cloned } = identity;
		return describeStatus({
			...connectivity.facts,
			line: line.facts(clock.monotonicMs()),
			supervision,
			device: device.state,
			workflow: workflow.chosen(),
			plan: fleet.report(),
			identity: { deviceId: deviceId.value, serial: serial.value, macAddress: macAddress.value },
			deviceType: settings().deviceType,
			baseUrl: supervision.current?.registration.baseUrl ?? serviceOf(settings(), device.state),
			newestEventId: events.newest(),
			agentVersion: options.version,
			startedAt,
			blocker,
			waitsUntilMs: leases.waitsUntilMs,
			warnings: [...warnings.list(), ...(cloned ? [] : identity.warnings)],
			nowMs: clock.monotonicMs(),
			wallMs: clock.wallMs(),
		});
	}

	keepSettings();
	fleet.reevaluate();
	reconcile();
	return {
		events,
		leases,
		access: () => accessOf(supervision),
		status,
		onStatus,
		identity: () => toReport(identity),
		acceptIdentity,
		inspectPairing: pairing.inspect,
		pair,
		isPairing: () => pairing.underWay !== null,
		unpair,
		setWorkflow,
		reconnect() {
			ensureRunning();
			fleet.retry();
			dispatch({ type: 'retryRequested', atMs: clock.monotonicMs() });
		},
		applyRuntime,
		warn: warnings.set,
		async stop() {
			stopped = true;
			leases.stop();
			fleet.stop();
			cancelRenewal();
			dispatch({ type: 'stopRequested', atMs: clock.monotonicMs() });
			const cancel = clock.schedule(FINISH_WITHIN_MS, runner.abandon);
			await Promise.all([runner.drained(), pairing.underWay]);
			cancel();
			device.close();
		},
	};
}
