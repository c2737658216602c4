/**
 * The running agent, put together from its parts: state and identity, what is desired, the links, pairing, commands. Says
 * which part hears of what; decides nothing that a pure file could decide, and touches nothing that an edge could touch.
 */

import { isoNow } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import { keepWarnings } from '../base/warnings.ts';
import { clockWarning } from '../connection/clock-skew.ts';
import { accessOf, keepConnections } from '../connection/connection-tokens.runner.ts';
import { livenessOf } from '../connection/link.runner.ts';
import { supervise } from '../connection/supervisor.ts';
import { createEventsFeed } from '../events/feed.runner.ts';
import { type Fleet, followFleet } from '../fleet/follow-plan.runner.ts';
import { planHeartbeat, reportPlan } from '../fleet/plan-report.ts';
import { toReport } from '../identity/identity.ts';
import { createPairing, type Paired, untilSettled } from '../pairing/pairing.runner.ts';
import { isRefusal, standingOf } from '../pairing/rescue.ts';
import type { Status } from '../protocol/local-api.ts';
import { withLastSettings } from '../state/device-state.ts';
import { keepPersistedState } from '../state/persisted-state.runner.ts';
import { type Connectivity, trackConnectivity } from '../status/connectivity.runner.ts';
import { describeStatus } from '../status/status.ts';
import { assignWorkflows, type WorkflowAssignment } from '../workflow/assignment.runner.ts';
import { registrationFor, serviceOf } from '../workflow/desired-registration.ts';
import { keepLeases } from '../workflow/leases.runner.ts';
import { chosenCadence, chosenWorkflow } from '../workflow/precedence.ts';
import type { Agent, AgentOptions } from './agent-types.ts';
import { createCommands } from './commands.runner.ts';
import { keepIdentity } from './current-identity.runner.ts';
import { type Links, superviseLinks } from './links.runner.ts';
import { receiveMessages } from './messages.runner.ts';
import { keepReconciled, type Reconciler } from './reconcile.runner.ts';

export type { Agent, AgentOptions } from './agent-types.ts';

/** How long the end of the agent waits for the answer to a registration. */
const FINISH_WITHIN_MS = 2000;

export function startAgent(options: AgentOptions): Agent {
	const base = openBase(options);
	const device = assemble(options, base);
	base.keepSettings();
	device.reevaluate();
	return offer(base, device);
}

type Base = ReturnType<typeof openBase>;
type Device = ReturnType<typeof assemble>;

/** What every part needs: time, settings, state, identity, events, warnings, and the listeners of the status. */
function openBase(options: AgentOptions) {
	const { clock, log, random, registerSecret, counters } = options;
	let { runtime } = options;
	let stopped = false;
	const statusListeners = new Set<() => void>();
	const publish = () => {
		for (const listener of statusListeners) listener();
	};
	const warnings = keepWarnings(log, publish);
	const events = createEventsFeed(options.openEvents(warnings.set), counters);
	events.subscribe(publish);
	const stateWriter = keepPersistedState(options.state, options.store, clock, (unsaved) =>
		warnings.set('state', unsaved),
	);
	for (const { token } of stateWriter.state.connections) registerSecret(token);
	const settings = () => runtime.resolved.settings;
	const { facts, newDeviceId } = options;
	const identity = keepIdentity({ facts, device: stateWriter, newDeviceId, settings });
	return {
		clock,
		log,
		random,
		registerSecret,
		warnings,
		events,
		stateWriter,
		identity,
		settings,
		publish,
		userAgent: `idv-agent/${options.version}`,
		startedAtMs: clock.monotonicMs(),
		runtime: () => runtime,
		onStatus(listener: () => void): () => void {
			statusListeners.add(listener);
			return () => statusListeners.delete(listener);
		},
		onClockSkew(skewMs: number) {
			counters.clockSkewMs = skewMs;
			warnings.set('clock', clockWarning(skewMs));
		},
		use(changed: AgentOptions['runtime']) {
			runtime = changed;
		},
		/** Settings that were good enough to be used are kept, for the day when a push breaks them. */
		keepSettings: () => stateWriter.keep((state) => withLastSettings(state, runtime.resolved.documents)),
		/** The sockets still answer while the agent stops: the Connection that a code brings then would not be saved. */
		ensureRunning() {
			if (stopped) throw new AgentError('agent-not-running', 'The agent is stopping.');
		},
		stopRunning() {
			stopped = true;
		},
	};
}

/** The parts of the device and what each tells the others. */
function assemble(options: AgentOptions, base: Base) {
	const { clock, stateWriter, identity, settings, runtime, publish, onClockSkew } = base;
	const { counters } = options;
	/** In a row, since the device was online last. */
	let refusals = 0;
	const requestReconcile = () => reconciler.reconcile();
	const silenceLimitMs: Parameters<typeof trackConnectivity>[0]['silenceLimitMs'] = ({ registration }) =>
		livenessOf(registration, settings().service).silenceLimitMs;
	const connectivity = trackConnectivity({ ...base, silenceLimitMs });
	const leases = keepLeases({ clock, requestReconcile });
	const connections = keepConnections({ ...base, credentials: () => runtime().credentials });
	const fleet = followFleet({
		...base,
		identity: () => identity.now,
		fallback() {
			const { resolved } = runtime();
			const workflow = chosenWorkflow(resolved, stateWriter.state, null);
			return { workflowId: workflow?.workflowId ?? null, heartbeatCadence: chosenCadence(resolved, null) };
		},
		isOffline: () => links.supervision.current !== null && links.supervision.current.state.name !== 'online',
		requestReconcile,
	});
	const plan = fleet.target;
	const workflow = assignWorkflows({ ...base, plan });
	const links = superviseLinks({
		...base,
		decide: options.supervise ?? supervise,
		connections,
		plan: () => planHeartbeat(fleet.record(), reconciler.progress.attempt),
		openChannel: options.openChannel,
		report: {
			frame: receiveMessages({
				...base,
				connectivity,
				workflow,
				supervision: () => links.supervision,
				dispatch: (event) => links.dispatch(event),
				requestReconcile,
			}),
			heartbeat(_, sentAt) {
				counters.heartbeats += 1;
				connectivity.beat(sentAt);
				publish();
			},
			clockSkew: onClockSkew,
		},
		onFailedAttempt({ code }) {
			counters.failedAttempts += 1;
			if (isRefusal(code)) refusals += 1;
		},
		onStep(before, after) {
			connectivity.follow(before, after);
			if (after.current?.state.name === 'online') refusals = 0;
		},
		onChange() {
			reconciler.follow();
			publish();
		},
	});
	const reconciler = keepReconciled({ ...base, connections, leases, fleet, links, identity: () => identity.now });

	function reevaluate(): void {
		identity.choose();
		fleet.reevaluate();
		reconciler.reconcile();
	}

	const pairing = createPairing({
		...base,
		store: options.store,
		plan,
		standing: () => standing(),
		readIdentity: identity.ofMachine,
		registrationFor: (as, baseUrl, workflowId) => registrationFor(reconciler.inputs(as), baseUrl, workflowId),
		toSaved: connections.toSaved,
		goOnline: (paired) => goOnline(base, { fleet, links, status }, paired),
	});
	const startedAt = isoNow(clock);
	const status = () =>
		statusOf(base, { links, reconciler, connectivity, fleet, workflow, startedAt, agentVersion: options.version });
	const standing = () => standingOf(status(), refusals);
	const commands = createCommands({ ...base, fleet, workflow, pairing, connectivity, links, reconciler, reevaluate });
	return { leases, fleet, links, reconciler, pairing, commands, reevaluate, status, standing };
}

/** Follows a pairing until the device is online, or has failed to be. */
async function goOnline(
	{ clock, identity, onStatus }: Base,
	{ fleet, links, status }: Pick<Device, 'fleet' | 'links' | 'status'>,
	{ desired, connection }: Paired,
) {
	identity.choose();
	fleet.reevaluate();
	links.dispatch({ type: 'paired', desired, connection, atMs: clock.monotonicMs() });
	const generation = links.supervision.lastGeneration;
	await untilSettled(clock, onStatus, () => {
		const state = (links.supervision.next ?? links.supervision.current)?.state.name;
		return state !== 'registering' && state !== 'connecting';
	});
	const { current } = links.supervision;
	return {
		deviceId: identity.now.deviceId.value,
		// A device that is still online where it was has not moved yet.
		online: current?.state.name === 'online' && current.generation >= generation,
		sentence: status().sentence,
	};
}

interface StatusParts {
	readonly links: Links;
	readonly reconciler: Reconciler;
	readonly connectivity: Connectivity;
	readonly fleet: Fleet;
	readonly workflow: WorkflowAssignment;
	/** ISO 8601. */
	readonly startedAt: string;
	readonly agentVersion: string;
}

function statusOf(base: Base, { links, reconciler, connectivity, fleet, workflow, ...started }: StatusParts): Status {
	const { clock, stateWriter, settings } = base;
	const { deviceId, serial, macAddress, cloned, warnings } = base.identity.now;
	const { supervision } = links;
	const { attempt, change } = reconciler.progress;
	const moment = { nowMs: clock.monotonicMs(), wallMs: clock.wallMs() };
	return describeStatus({
		...connectivity.facts,
		...moment,
		...started,
		supervision,
		device: stateWriter.state,
		workflow: workflow.chosen(),
		plan: reportPlan(fleet.record(), attempt, { ...moment, checkedAt: fleet.checkedAt }),
		identity: { deviceId: deviceId.value, serial: serial.value, macAddress: macAddress.value },
		deviceType: settings().deviceType,
		baseUrl: supervision.current?.registration.baseUrl ?? serviceOf(settings(), stateWriter.state),
		newestEventId: base.events.newest(),
		blocker: reconciler.blocker,
		waitsUntilMs: change?.untilMs ?? null,
		warnings: [...base.warnings.list(), ...(cloned ? [] : warnings)],
	});
}

/** What the agent offers to local programs. */
function offer(base: Base, device: Device): Agent {
	const { leases, fleet, links, reconciler, pairing, commands, reevaluate, status, standing } = device;
	const { clock, warnings, stateWriter } = base;
	const { retrySlowLinks, ...asked } = commands;
	return {
		...asked,
		events: base.events,
		leases,
		access: () => accessOf(links.supervision),
		status,
		standing,
		onStatus: base.onStatus,
		identity: () => toReport(base.identity.now),
		inspectPairing: pairing.inspect,
		pair: pairing.pair,
		onPairing: pairing.onOutcome,
		isPairing: () => pairing.underWay !== null,
		applyRuntime(changed) {
			base.use(changed);
			warnings.set('workflow', null);
			base.keepSettings();
			reevaluate();
			retrySlowLinks();
		},
		warn: warnings.set,
		async stop() {
			base.stopRunning();
			reconciler.stop();
			fleet.stop();
			const stopping = links.stop();
			const cancel = clock.schedule(FINISH_WITHIN_MS, links.abandon);
			await Promise.all([stopping, pairing.underWay]);
			cancel();
			stateWriter.close();
		},
	};
}
