/**
 * The running agent, put together from its parts: state and identity, what is desired, the links, pairing, commands. Says
 * which part hears of what; decides nothing that a pure file could decide, and touches nothing that an edge could touch.
 */
import { randomUUID } from 'node:crypto';
import { asError, type Failure } from '../base/errors.ts';
import { accessOf, keepConnections } from '../connection/connection-tokens.runner.ts';
import { keepLine, UNSAVED_LINE } from '../connection/line.runner.ts';
import { livenessOf } from '../connection/liveness.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { bearsOn } from '../connection/settings-bearing.ts';
import { supervise } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import { fetchPlan } from '../fleet/fetch-plan.edge.ts';
import { followFleet } from '../fleet/follow-plan.runner.ts';
import { describePlanTrust, heartbeatExtras, planHeartbeat, reportPlan } from '../fleet/plan-report.ts';
import { toReport } from '../identity/identity.ts';
import { createPairing, type Paired, type PairingOutcome, untilSettled } from '../pairing/pairing.runner.ts';
import { isRefusal, namesTenant, type Standing, standingOf } from '../pairing/rescue.ts';
import type { BroughtBy } from '../pairing/rules.ts';
import type {
	IdentityReport,
	PairPreview,
	PairRequest,
	PairResult,
	PlanReport,
	Status,
} from '../protocol/local-api.ts';
import { trackConnectivity } from '../status/connectivity.runner.ts';
import { ownTexts } from '../status/own-texts.ts';
import { describeStatus, stateOf } from '../status/status.ts';
import { createHandOver, NO_UPDATES } from '../updates/hand-over.runner.ts';
import { missingFor } from '../updates/package.ts';
import { assignWorkflows } from '../workflow/assignment.runner.ts';
import { registrationFor, serviceOf } from '../workflow/desired-registration.ts';
import { keepLeases, UNSAVED_LEASES, type WorkflowLeases } from '../workflow/leases.runner.ts';
import { chosenCadence, chosenWorkflow } from '../workflow/precedence.ts';
import { type AgentOptions, type Base, openBase } from './base.runner.ts';
import { createCommands, type HasEnds, type WorkflowWait } from './commands.runner.ts';
import { createLeaving } from './leaving.runner.ts';
import { superviseLinks } from './links.runner.ts';
import { receiveMessages } from './messages.runner.ts';
import { keepReconciled } from './reconcile.runner.ts';

/** How long the end of the agent waits for the answer to a registration. */
const FINISH_WITHIN_MS = 2000;

export interface Agent extends HasEnds, Pick<ReturnType<typeof createCommands>, 'reconnectsAsked'> {
	readonly events: EventsFeed;
	/** The leases that make a workflow change wait. */
	readonly leases: Pick<WorkflowLeases, 'hold' | 'release' | 'releaseOthers' | 'list'>;
	/** The service and the Connection in use; a secret, for forwarding only. `null` while there is none. */
	access(): { readonly baseUrl: string; readonly token: string } | null;
	/** The device's own hosts, ids and paths, which its log shows. */
	ownTexts(): string[];
	status(): Status;
	/** The `state` of the status, for those who are called back at every heartbeat and need no more. */
	state(): Status['state'];
	/** Which codes it takes without `replace`. */
	standing(): Standing;
	isAttested(): boolean;
	/** Calls back after every change of the status until the returned function is called. */
	onStatus(listener: () => void): () => void;
	identity(): IdentityReport;
	/** Accepts the machine as it is now as the device that was paired, after a repair; registers again if that shows. */
	acceptIdentity(): Promise<IdentityReport>;
	/** What a code would do. Redeems nothing, touches no network. */
	inspectPairing(asked: PairRequest, by?: BroughtBy): PairPreview;
	/**
	 * Redeems a code. Resolves when the device is online, or after 10 s with what the status says then; callers that bring the
	 * same code meanwhile have the same answer. Like everything that moves the device it throws `agent-not-running` once the
	 * agent stops: then no code is used up.
	 */
	pair(asked: PairRequest, by?: BroughtBy): Promise<PairResult>;
	/** Calls back with the outcome of every pairing until the returned function is called. */
	onPairing(listener: (outcome: PairingOutcome) => void): () => void;
	/** Whether a code is being redeemed: its answer comes once. */
	isPairing(): boolean;
	readonly plan: {
		/** The fleet plan and what it is trusted by. */
		report(): PlanReport;
		/** Forgets which plans were seen, and fetches the published one. */
		forget(): Promise<void>;
	};
	/** Forgets the pairing, its secrets and, unless they are to be kept, its events. */
	unpair(options?: { readonly keepEvents?: boolean }): Promise<void>;
	/** Erases the events of a session, or from before a time in milliseconds since 1970. Resolves with how many. */
	eraseEvents(asked: { readonly session: string } | { readonly beforeMs: number }): Promise<number>;
	/** Assigns a workflow; refused when the settings name one. With `wait` it rejects, and nothing of it stays, unless it goes live. */
	setWorkflow(workflowId: string, wait?: WorkflowWait): Promise<void>;
	/** Tries again now, without the rest of the wait. */
	reconnect(): void;
	/** Applies changed settings; links that no longer fit are replaced make before break. @param tried its way out is tried beside. */
	applyRuntime(runtime: Runtime, tried?: Runtime | null): void;
	readonly ways: Base['ways'];
	/** Shows a warning in the status until it is withdrawn with `null`. */
	warn(topic: string, warning: Failure | null): void;
	/** Closes the channels with 1001, waits for a code that is being redeemed, and stops everything. */
	stop(): Promise<void>;
}

export function startAgent(options: AgentOptions): Agent {
	const base = openBase(options);
	const device = assemble(options, base);
	base.keepSettings();
	device.reevaluate();
	void device.pairing.finishKept();
	return offer(base, device);
}

type Device = ReturnType<typeof assemble>;

/** The parts of the device and what each tells the others. */
function assemble(options: AgentOptions, base: Base) {
	const { clock, time, stateWriter, identity, settings, runtime, publish } = base;
	const { counters } = options;
	/** Consecutive refusals since the device was last online. */
	let refusals = 0;
	const requestReconcile = () => reconciler.reconcile();
	const connectivity = trackConnectivity({
		...base,
		silenceLimitMs: ({ registration }) => livenessOf(registration, settings().service).silenceLimitMs,
	});
	const line = keepLine(options.lineStore ?? UNSAVED_LINE, base.log);
	const leases = keepLeases({ clock, requestReconcile, store: options.leaseStore ?? UNSAVED_LEASES });
	const connections = keepConnections({ ...base, credentials: () => runtime().credentials });
	const fleet = followFleet({
		...base,
		clock: { wallMs: time.nowMs, schedule: (delayMs, callback) => clock.schedule(delayMs, callback) },
		onLook() {
			time.look();
			reconciler.follow();
		},
		fetchPlan: options.fetchPlan ?? fetchPlan,
		fallback() {
			const { resolved } = runtime();
			const workflow = chosenWorkflow(resolved, stateWriter.state, null);
			return { workflowId: workflow?.workflowId ?? null, heartbeatCadence: chosenCadence(resolved, null) };
		},
		needsBytes: () => options.updates !== undefined && (settings().update.enabled || options.updates.isInstalled()),
		// Unsigned, it says nothing about what runs here.
		onPlan: (plan, envelope) => settings().fleet.publicKeys.length > 0 && handOver.received(plan, envelope),
		isOffline: () => links.supervision.current !== null && links.supervision.current.state.name !== 'online',
		requestReconcile,
	});
	const handOver = createHandOver({
		clock: { ...clock, wallMs: time.nowMs },
		settings,
		device: fleet.device,
		version: base.agentVersion,
		isHeld: () => leases.list().leases.length > 0,
		...(options.updates ?? NO_UPDATES),
	});
	const workflow = assignWorkflows({ ...base, plan: fleet.target });
	const links = superviseLinks({
		...base,
		decide: options.supervise ?? supervise,
		connections,
		line,
		plan() {
			const { heartbeatFields } = settings().service;
			const said = planHeartbeat(fleet.record(), reconciler.progress.attempt);
			return heartbeatFields.length === 0 ? said : { ...said, ...heartbeatExtras(heartbeatFields, status()) };
		},
		openChannel: options.openChannel,
		report: {
			frame: receiveMessages({
				...base,
				connectivity,
				leaving: { receive: (baseUrl, append) => leaving.receive(baseUrl, append) },
				workflow,
				supervision: () => links.supervision,
				dispatch: (event) => links.dispatch(event),
				requestReconcile,
			}),
			heartbeat(_, sentAt) {
				counters.heartbeats += 1;
				connectivity.beat(sentAt);
				time.look();
				publish();
			},
			answered: (_, at) => connectivity.answered(at),
			lineEnded: connectivity.lineEnded,
			serviceTime: time.heard,
		},
		onPromoted(registration) {
			pairing.cameOnline();
			const { baseUrl, request } = registration;
			// The one that the device was online with last, also before this start.
			const [before] = stateWriter.state.connections;
			if (before && (before.baseUrl !== baseUrl || before.request.workflowId !== request.workflowId)) {
				const entrance = workflow.chosen()?.source ?? 'agent';
				const [from, to] = [before, { baseUrl, request }].map(
					(one) => `${new URL(one.baseUrl).host} ${one.request.workflowId}`,
				);
				base.audit.record({ action: 'moved', entrance, result: 'ok', ...(from && { from }), ...(to && { to }) });
			}
			leaving.belongTo(baseUrl, links.supervision.desired?.baseUrl);
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
	const reconciler = keepReconciled({ ...base, connections, leases, fleet, links });

	function reevaluate(): void {
		identity.choose();
		fleet.reevaluate();
		handOver.reevaluate();
		base.warnings.set('update', handOver.warning);
		base.warnings.set('updates-missing', missingFor(runtime().resolved, options.updates?.isInstalled() ?? true));
		reconciler.reconcile();
	}

	const pairing = createPairing({
		...base,
		store: options.store,
		answerFile: options.answerFile,
		receive: (baseUrl, append) => leaving.receive(baseUrl, append),
		newAttemptId: options.newAttemptId ?? randomUUID,
		plan: fleet.target,
		addressInForce: () => reconciler.addressInForce(),
		standing: () => standing(),
		status: () => status(),
		registrationFor: (as, baseUrl, workflowId) => registrationFor(reconciler.inputs(as), baseUrl, workflowId),
		toSaved: connections.toSaved,
		goOnline: (paired) => goOnline(base, { fleet, links, leaving, reconciler, status }, paired),
	});
	base.onClockJump(() => {
		reconciler.follow();
		publish();
	});
	pairing.onOutcome(() => publish());
	const leaving = createLeaving({ ...base, dropKept: pairing.dropKept });
	const status = (): Status => {
		time.look();
		return statusOf(base, { links, line, reconciler, connectivity, fleet, workflow, pairing }, handOver.report);
	};
	const state = () => {
		const { supervision } = links;
		return stateOf({ ...connectivity.facts, supervision, blocker: reconciler.blocker, device: stateWriter.state });
	};
	// Asked at every heartbeat, for which no status is made.
	const standing = () => (state() === 'online' ? 'paired' : standingOf(status(), refusals));
	const commands = createCommands({
		...base,
		fleet,
		workflow,
		pairing,
		leaving,
		connectivity,
		line,
		links,
		reconciler,
		reevaluate,
		status,
	});
	return {
		connectivity,
		line,
		leases,
		fleet,
		handOver,
		workflow,
		links,
		leaving,
		reconciler,
		pairing,
		commands,
		reevaluate,
		status,
		state,
		standing,
	};
}

/** Follows a pairing until the device is online, or has failed to be. @throws AgentError where a refusal has brought the Connection, and its channel is refused. */
async function goOnline(
	{ clock, identity, isStopping, onStatus }: Base,
	{ fleet, links, leaving, reconciler, status }: Pick<Device, 'fleet' | 'links' | 'leaving' | 'reconciler' | 'status'>,
	{ desired, connection, connection: { said } }: Paired,
) {
	identity.choose();
	fleet.reevaluate();
	// A service that the device does not reach can send nothing more.
	if (links.supervision.current?.state.name !== 'online') leaving.belongTo(desired.baseUrl);
	// A move of the plan that had failed would hold the device where it was, with a Connection that is worth nothing.
	reconciler.forgive();
	const generation = links.supervision.lastGeneration + 1;
	links.dispatch({ type: 'paired', desired, connection, atMs: clock.monotonicMs() });
	await untilSettled(clock, onStatus, () => !links.isConnecting(generation));
	await leaving.done;
	const { current } = links.supervision;
	if (said && status().problem?.message === said.message) throw asError(said);
	return {
		deviceId: identity.now.deviceId.value,
		// A device that is still online where it was has not moved yet.
		online: current?.state.name === 'online' && current.generation >= generation,
		sentence: isStopping() ? 'The agent is stopping: the device goes online when it starts again.' : status().sentence,
	};
}

type StatusParts = Pick<Device, 'links' | 'line' | 'reconciler' | 'connectivity' | 'fleet' | 'workflow' | 'pairing'>;

function statusOf(
	base: Base,
	{ links, line, reconciler, connectivity, fleet, workflow, pairing }: StatusParts,
	updates: Status['updates'],
): Status {
	const { clock, stateWriter, settings, agentVersion } = base;
	const { deviceId, serial, macAddress, cloned, warnings } = base.identity.now;
	const { supervision } = links;
	const { attempt, change } = reconciler.progress;
	const moment = { nowMs: clock.monotonicMs(), wallMs: clock.wallMs() };
	return describeStatus({
		...connectivity.facts,
		...moment,
		startedAt: base.startedAt(),
		agentVersion,
		line: line.facts(moment.nowMs),
		supervision,
		device: pairing.told(stateWriter.state),
		workflow: workflow.chosen(),
		plan: reportPlan(fleet.record(), attempt, { ...moment, wallMs: base.time.nowMs() }, fleet),
		updates,
		identity: { deviceId: deviceId.value, serial: serial.value, macAddress: macAddress.value },
		deviceType: settings().deviceType,
		labels: settings().fleet.labels,
		forward: settings().forward,
		baseUrl: supervision.current?.registration.baseUrl ?? serviceOf(settings(), stateWriter.state),
		newestEventId: base.events.newest(),
		blocker: reconciler.blocker,
		waitsUntilMs: change?.untilMs ?? null,
		warnings: [...base.warnings.list(), ...(cloned ? [] : warnings)],
	});
}

function offer(base: Base, device: Device): Agent {
	const { leases, fleet, handOver, links, reconciler, pairing, commands, reevaluate, status, state, standing } = device;
	const { clock, warnings, stateWriter } = base;
	const { tryChangedSettings, ...asked } = commands;
	return {
		...asked,
		events: base.events,
		leases,
		access: () => accessOf(links.supervision),
		ownTexts: () => ownTexts(base.settings(), stateWriter.state, [base.agentVersion, ...base.identity.ids()]),
		status,
		state,
		standing,
		isAttested: () => namesTenant(stateWriter.state.connections.at(-1)?.token ?? ''),
		onStatus: base.onStatus,
		identity: () => toReport(base.identity.now),
		inspectPairing: pairing.inspect,
		pair: pairing.pair,
		onPairing: pairing.onOutcome,
		plan: {
			report() {
				const host = URL.parse(base.settings().fleet.planUrl ?? '')?.host ?? null;
				const at = { host, checkedAt: fleet.checkedAt, wallMs: clock.wallMs() };
				return describePlanTrust(fleet.record(), fleet.trust(), at);
			},
			forget() {
				base.ensureRunning();
				return fleet.forget();
			},
		},
		isPairing: () => pairing.underWay !== null,
		ways: base.ways,
		applyRuntime(changed, tried = null) {
			const before = base.settings();
			base.use(changed, tried);
			warnings.set('workflow', null);
			base.keepSettings();
			reevaluate();
			tryChangedSettings(bearsOn(before, (tried ?? changed).resolved.settings));
			if (before.service.connectionLifeSeconds !== base.settings().service.connectionLifeSeconds) links.lifeChanged();
			void pairing.finishKept();
		},
		warn: warnings.set,
		async stop() {
			base.stopRunning();
			for (const part of [reconciler, fleet, handOver, base.time]) part.stop();
			const cancel = clock.schedule(FINISH_WITHIN_MS, links.abandon);
			const [wasSettled] = await Promise.all([links.stop(), pairing.underWay]);
			cancel();
			if (wasSettled) device.connectivity.stopped();
			for (const part of [pairing, device.leaving, stateWriter]) part.close();
		},
	};
}
