/**
 * The running agent: hands events to the supervisor, has its effects performed, keeps the device's state, and answers
 * what the local interface asks. Decides nothing that `core/` could decide; touches nothing that an edge could touch.
 */

import {
	type DeviceState,
	EMPTY_STATE,
	type SavedConnection,
	withConnection,
	withOnlyConnection,
} from '../core/device-state.ts';
import { AgentError, type Failure, failure } from '../core/errors.ts';
import { type CompleteIdentity, chooseIdentity, type IdentityFacts, pinIdentity, toReport } from '../core/identity.ts';
import type { Connection } from '../core/link.ts';
import { decidePairing, type PairingContext, type PairingPlan } from '../core/pairing-rules.ts';
import { describeStatus, plainDuration } from '../core/status.ts';
import {
	type KnownConnection,
	NOTHING_SUPERVISED,
	type Registration,
	type SupervisorEffect,
	type SupervisorEvent,
	supervise,
	type Wanted,
} from '../core/supervisor.ts';
import {
	chosenWorkflow,
	fixedWorkflow,
	hasCredential,
	registrationFor,
	serviceOf,
	type WantingContext,
	wantedRegistration,
} from '../core/wanting.ts';
import { describeSource } from '../core/workflow.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../edges/channel.ts';
import type { Log } from '../edges/log.ts';
import type { Network } from '../edges/network.ts';
import type { ServiceClient } from '../edges/service-client.ts';
import type { StateStore } from '../edges/state-store.ts';
import type { Frame } from '../protocol/channel.ts';
import { readAgentMessage, readNotification } from '../protocol/channel.ts';
import type { IdentityReport, PairPreview, PairRequest, PairResult, Status } from '../protocol/local-api.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import type { Clock } from './clock.ts';
import type { Credentials } from './credentials.ts';
import { keepDeviceRecord } from './device-record.ts';
import { createEventsFeed, type EventsFeed, newEpoch } from './events-feed.ts';
import { createLinkRunner } from './link-runner.ts';
import type { LoadedSettings } from './load-settings.ts';
import { spendPairingCode } from './pairing.ts';

/** What the settings amount to: read at the start and again whenever they change. */
export interface Environment {
	readonly resolved: LoadedSettings;
	readonly credentials: Credentials;
	readonly network: Network;
	readonly client: ServiceClient;
}

export interface AgentOptions {
	readonly clock: Clock;
	readonly chance: () => number;
	readonly version: string;
	readonly environment: Environment;
	readonly store: StateStore;
	readonly device: DeviceState;
	readonly facts: IdentityFacts;
	/** A new id for a device that has nothing of its own to be known by. */
	readonly newDeviceId: () => string;
	readonly openChannel: (options: ChannelOptions, listener: (event: ChannelEvent) => void) => Channel;
	readonly log: Log;
	/** Told every secret that the agent comes to hold, so that it is never printed. */
	readonly keepSecret: (secret: string) => void;
}

export interface Agent {
	readonly events: EventsFeed;
	status(): Status;
	/** Calls back after every change of the status until the returned function is called. */
	onStatus(listener: () => void): () => void;
	identity(): IdentityReport;
	/** What a code would do. Spends nothing, touches no network. */
	inspectPairing(asked: PairRequest): PairPreview;
	/** Spends a code. Resolves when the device is online, or after 10 s with what the status says then. */
	pair(asked: PairRequest): Promise<PairResult>;
	/** Forgets the pairing and its secrets. */
	unpair(): Promise<void>;
	/** Assigns a workflow; refused when the settings name one. */
	setWorkflow(workflowId: string): Promise<void>;
	/** Tries again now, whatever it was waiting for. */
	reconnect(): void;
	/** Takes changed settings into use; links that no longer fit are replaced make before break. */
	applyEnvironment(environment: Environment): void;
	/** Shows a warning in the status until it is withdrawn with `null`. */
	warn(topic: string, warning: Failure | null): void;
	/** Closes the channels with 1001 and stops everything. */
	stop(): Promise<void>;
}

/** A clock that is further off than this deserves a warning: tokens and certificates are judged by it. */
const NOTABLE_SKEW_MS = 5 * 60_000;
/** How long `pair` waits for the device to come online before it answers. */
const PAIR_WAIT_MS = 10_000;

export function startAgent(options: AgentOptions): Agent {
	const { clock, log, chance } = options;
	const startedAtMs = clock.monotonicMs();
	const startedAt = new Date(clock.wallMs()).toISOString();
	let { environment } = options;
	let supervision = NOTHING_SUPERVISED;
	let obstacle: Failure | null = null;
	let hasBeenOnline = false;
	let offlineSinceMs: number | null = null;
	let reconnects = 0;
	let lastHeartbeatAt: string | null = null;
	let lastFrameAt: string | null = null;
	let pairingUnderWay = false;
	let stopped = false;
	let cancelRenewal = () => {};
	const warnings = new Map<string, Failure>();
	const statusListeners = new Set<() => void>();

	const settings = () => environment.resolved.settings;
	const now = () => new Date(clock.wallMs()).toISOString();
	const events = createEventsFeed(newEpoch(clock.wallMs(), chance), settings().events);
	const device = keepDeviceRecord(options.device, options.store, clock, (unsaved) => warn('state', unsaved));
	for (const { token } of options.device.connections) options.keepSecret(token);
	let identity = chooseNow();

	const runner = createLinkRunner({
		clock,
		startedAtMs,
		userAgent: `idv-agent/${options.version}`,
		environment: () => ({
			settings: settings(),
			network: environment.network,
			client: environment.client,
			reusable: environment.credentials.reusable,
		}),
		openChannel: options.openChannel,
		report: {
			event: (generation, event) => dispatch({ type: 'link', generation, event }),
			frame: onFrame,
			heartbeat: (generation, sentAt) => {
				if (supervision.current?.generation !== generation) return;
				lastHeartbeatAt = sentAt;
				publish();
			},
			clockSkew: noteClock,
		},
	});

	/** The identity by what is known now; a device with nothing of its own gets an id once, and keeps it. */
	function chooseNow(pinned = device.state.identity): CompleteIdentity {
		const { deviceId, serial, macAddress } = settings();
		const configured = {
			deviceId: deviceId ?? undefined,
			serial: serial ?? undefined,
			macAddress: macAddress ?? undefined,
		};
		const choice = chooseIdentity(options.facts, configured, pinned, device.state.generatedId);
		if (!choice.needsGeneratedId) return choice;
		const generatedId = options.newDeviceId();
		device.keep((state) => ({ ...state, generatedId }));
		return chooseNow(pinned);
	}

	/** What decides the wish, as it is now. */
	function context(as: CompleteIdentity = identity): WantingContext {
		const { resolved, credentials } = environment;
		const facts = { id: credentials.id, isReusable: credentials.reusable !== null };
		return { resolved, state: device.state, identity: as, credentials: facts };
	}

	const configured = () => fixedWorkflow(environment.resolved);
	const workflow = () => chosenWorkflow(environment.resolved, device.state);

	/** An operator's Connection is for the registration that is wanted when it is first seen; later ones are our own. */
	function adoptProvisioned(wanted: Wanted): void {
		const { provisioned, id } = environment.credentials;
		if (provisioned === null || device.state.connections.some(({ credentialId }) => credentialId === id)) return;
		const saved = savedConnection(wanted, provisioned);
		device.keep((state) => withConnection(state, saved));
	}

	function savedConnection({ baseUrl, request, credentialId }: Registration, token: string): SavedConnection {
		options.keepSecret(token);
		return { baseUrl, request, credentialId, token, obtainedAt: now() };
	}

	/** Whatever settings were good enough to be used are kept, for the day when a push breaks them. */
	function keepSettings(): void {
		const lastSettings = [...environment.resolved.documents];
		const unchanged = JSON.stringify(lastSettings) === JSON.stringify(device.state.lastSettings);
		if (!unchanged) device.keep((state) => ({ ...state, lastSettings }));
	}

	function pursue(): void {
		const { wanted, obstacle: found } = wantedRegistration(context());
		obstacle = found;
		if (wanted) adoptProvisioned(wanted);
		const known = device.state.connections.map((saved) => asKnown(saved, clock));
		dispatch({ type: 'wantedChanged', wanted, known, atMs: clock.monotonicMs() });
	}

	function dispatch(event: SupervisorEvent): void {
		if (stopped && event.type !== 'stopRequested') return;
		const wasOnline = supervision.current?.state.name === 'online';
		const step = supervise(supervision, event, chance);
		supervision = step.supervision;
		for (const effect of step.effects) perform(effect);
		const isOnline = supervision.current?.state.name === 'online';
		if (wasOnline && !isOnline && !stopped) wentOffline();
		publish();
	}

	function perform(effect: SupervisorEffect): void {
		switch (effect.type) {
			case 'link':
				if (effect.effect.type === 'keepConnection') {
					const saved = savedConnection(effect.registration, effect.effect.connection.token);
					device.keep((state) => withConnection(state, saved));
				} else {
					log.debug(effect.effect.type, { generation: effect.generation, ...loggable(effect.effect) });
					runner.perform(effect.generation, effect.registration, effect.effect);
				}
				return;
			case 'linkEnded':
				runner.end(effect.generation);
				return;
			case 'linkPromoted':
				cameOnline(effect.connection);
				return;
			case 'renewAt': {
				cancelRenewal();
				const { generation } = effect;
				cancelRenewal = clock.schedule(effect.atMs - clock.monotonicMs(), () =>
					dispatch({ type: 'renewalDue', generation, atMs: clock.monotonicMs() }),
				);
			}
		}
	}

	function cameOnline(connection: Connection): void {
		device.keep((state) => withOnlyConnection(state, connection.token));
		const link = supervision.current;
		const fields = {
			workflowId: link?.registration.request.workflowId,
			host: link && new URL(link.registration.baseUrl).host,
		};
		const away = offlineSinceMs === null ? null : clock.monotonicMs() - offlineSinceMs;
		if (hasBeenOnline && away === null)
			log.info('moved over without being offline', { generation: link?.generation, ...fields });
		else {
			// What the service sent meanwhile may be lost for good; the application has to know.
			appendGap(lastFrameAt, now());
			if (hasBeenOnline) reconnects += 1;
			log.info(hasBeenOnline ? `online again after ${plainDuration(away ?? 0)}` : 'online', fields);
		}
		hasBeenOnline = true;
		offlineSinceMs = null;
		lastFrameAt = now();
	}

	function wentOffline(): void {
		offlineSinceMs = clock.monotonicMs();
		const state = supervision.current?.state;
		const cause = state && 'failure' in state ? state.failure : null;
		if (supervision.current) log.warn(`offline: ${cause?.message ?? 'connecting again'}`, { code: cause?.code });
	}

	function appendGap(from: string | null, to: string): void {
		events.append({
			at: to,
			type: 'gap',
			kind: 'gap',
			workflowId: workflow()?.workflowId ?? null,
			format: 'json',
			content: JSON.stringify({ from, to }),
			serviceId: null,
		});
	}

	function onFrame(generation: number, frame: Frame): void {
		const { kindPointer, notificationIdPointer, actOnMessages } = settings().service;
		const link = [supervision.current, supervision.next].find((known) => known?.generation === generation);
		if (!link) return;
		lastFrameAt = now();
		const notification = readNotification(frame, {
			kindPointer: kindPointer ?? undefined,
			notificationIdPointer: notificationIdPointer ?? undefined,
		});
		const { workflowId } = link.registration.request;
		const entry = events.append({
			at: lastFrameAt,
			type: 'notification',
			kind: notification.kind,
			workflowId,
			format: notification.format,
			content: notification.content,
			serviceId: notification.serviceId,
		});
		log.debug(entry ? 'notification' : 'duplicate notification', { kind: notification.kind });
		publish();
		const message = actOnMessages ? readAgentMessage(notification) : null;
		if (message?.type === 'workflow.changed') onWorkflowChanged(message.workflowId);
		if (message?.type === 'connection.revoked') {
			log.warn('the service revoked the Connection of this device', { generation });
			dispatch({ type: 'link', generation, event: { type: 'connectionRevoked', atMs: clock.monotonicMs() } });
		}
	}

	function onWorkflowChanged(workflowId: string): void {
		const fixed = configured();
		if (fixed && fixed.workflowId !== workflowId) {
			const message = `The service asked for workflow ${workflowId}, but ${describeSource(fixed)} sets ${fixed.workflowId}.`;
			warn('workflow', failure('workflow-fixed', message));
			return;
		}
		if (workflow()?.workflowId === workflowId) return;
		log.info('the service changed the workflow', { workflowId });
		device.keep((state) => ({ ...state, assignedWorkflow: { workflowId, source: 'service message', at: now() } }));
		pursue();
	}

	function noteClock(skewMs: number): void {
		const off = Math.abs(skewMs);
		const direction = skewMs > 0 ? 'fast' : 'slow';
		warn(
			'clock',
			off < NOTABLE_SKEW_MS
				? null
				: failure('clock-wrong', `This device's clock is ${plainDuration(off)} ${direction}.`, {
						remedy: "Set this device's clock, or let it reach a time server.",
					}),
		);
	}

	function warn(topic: string, warning: Failure | null): void {
		if (warnings.get(topic)?.message === warning?.message) return;
		if (warning) {
			warnings.set(topic, warning);
			log.warn(warning.message, { code: warning.code });
		} else warnings.delete(topic);
		publish();
	}

	function publish(): void {
		for (const listener of statusListeners) listener();
	}

	function pairingContext(): PairingContext {
		// Settings alone are no pairing: a device that never had a Connection may be given its first.
		const belongsTo = device.state.pairing?.baseUrl ?? device.state.connections.at(-1)?.baseUrl ?? null;
		return { settings: settings(), configured: configured(), state: device.state, pairedWith: belongsTo };
	}

	async function pair(asked: PairRequest): Promise<PairResult> {
		if (pairingUnderWay) throw new AgentError('pairing-under-way', 'Another pairing is under way on this device.');
		const { plan, preview } = decidePairing({ ...asked, replace: asked.replace ?? false }, pairingContext());
		if (!plan) throw problemError(preview);
		pairingUnderWay = true;
		try {
			options.keepSecret(plan.token);
			await spend(plan);
		} finally {
			pairingUnderWay = false;
			publish();
		}
		await untilSettled();
		const { state, sentence } = status();
		return {
			baseUrl: plan.baseUrl,
			deviceId: identity.deviceId.value,
			workflowId: plan.workflowId,
			sessionId: plan.sessionId,
			online: state === 'online',
			sentence,
		};
	}

	async function spend(plan: PairingPlan): Promise<void> {
		// Pairing anew is the moment to look at the machine anew: a replaced board is this device's from here on.
		const fresh = chooseNow(null);
		const wanted = registrationFor(context(fresh), plan.baseUrl, plan.workflowId);
		const connection = await spendPairingCode(plan, {
			clock,
			client: environment.client,
			tokenPointer: settings().service.tokenPointer,
			request: wanted.request,
			probe: () => options.store.probe(),
			record: device.record,
			clockSkew: noteClock,
		});
		identity = fresh;
		obstacle = null;
		const saved = savedConnection(wanted, connection.token);
		const { confirmsOrigin, workflowId, sessionId } = plan;
		device.keep((state) =>
			withConnection(
				{
					...state,
					attempt: null,
					identity: pinIdentity(fresh, now()),
					pairing: { baseUrl: plan.baseUrl, sessionId, pairedAt: now() },
					assignedWorkflow: plan.assignsWorkflow
						? { workflowId, source: 'pairing', at: now() }
						: state.assignedWorkflow,
					confirmedOrigins: confirmsOrigin
						? [...state.confirmedOrigins, confirmsOrigin].slice(-16)
						: state.confirmedOrigins,
				},
				saved,
			),
		);
		// The code is spent: the device goes online with what it brought, whatever the disk says; the status tells.
		await options.store.save(device.state).catch(() => {});
		log.info('paired', { host: new URL(plan.baseUrl).host, workflowId, deviceId: fresh.deviceId.value });
		if (sessionId !== null) appendSession(sessionId, workflowId);
		dispatch({ type: 'paired', wanted, connection, atMs: clock.monotonicMs() });
	}

	function appendSession(sessionId: string, workflowId: string): void {
		events.append({
			at: now(),
			type: 'session',
			kind: 'session',
			workflowId,
			format: 'json',
			content: JSON.stringify({ sessionId, workflowId }),
			serviceId: null,
		});
	}

	/** Resolves when the newest link is online or has failed, at the latest after {@link PAIR_WAIT_MS}. */
	function untilSettled(): Promise<void> {
		return new Promise((resolve) => {
			const done = () => {
				cancel();
				statusListeners.delete(look);
				resolve();
			};
			const cancel = clock.schedule(PAIR_WAIT_MS, done);
			const look = () => {
				const state = (supervision.next ?? supervision.current)?.state.name;
				if (state !== 'registering' && state !== 'connecting') done();
			};
			statusListeners.add(look);
			look();
		});
	}

	async function unpair(): Promise<void> {
		const { generatedId, confirmedOrigins, lastSettings } = device.state;
		cancelRenewal();
		dispatch({ type: 'wantedChanged', wanted: null, known: [], atMs: clock.monotonicMs() });
		hasBeenOnline = false;
		offlineSinceMs = null;
		await device.forget({ ...EMPTY_STATE, generatedId, confirmedOrigins, lastSettings });
		identity = chooseNow();
		log.info('unpaired');
		pursue();
	}

	async function setWorkflow(workflowId: string): Promise<void> {
		const fixed = configured();
		if (fixed && fixed.workflowId !== workflowId)
			throw new AgentError('workflow-fixed', `${describeSource(fixed)} sets workflow ${fixed.workflowId}.`, {
				remedy: `Change it there; nothing else may override it.`,
			});
		if (serviceOf(settings(), device.state) === null || !hasCredential(context()))
			throw new AgentError('unpaired', 'This device is not paired yet, so there is no workflow to change.');
		if (!fixed && device.state.assignedWorkflow?.workflowId !== workflowId)
			await device.record((state) => ({
				...state,
				assignedWorkflow: { workflowId, source: 'workflow set', at: now() },
			}));
		log.info('workflow set', { workflowId });
		pursue();
	}

	function status(): Status {
		const parts = identity;
		return describeStatus({
			supervision,
			device: device.state,
			workflow: workflow(),
			identity: { deviceId: parts.deviceId.value, serial: parts.serial.value, macAddress: parts.macAddress.value },
			deviceType: settings().deviceType,
			baseUrl: supervision.current?.registration.baseUrl ?? serviceOf(settings(), device.state),
			offlineSinceMs,
			hasBeenOnline,
			reconnects,
			lastHeartbeatAt,
			newestEventId: events.newest(),
			agentVersion: options.version,
			startedAt,
			obstacle,
			warnings: [...warnings.values(), ...(identity.cloned ? [] : identity.warnings)],
			nowMs: clock.monotonicMs(),
			wallMs: clock.wallMs(),
		});
	}

	keepSettings();
	pursue();
	return {
		events,
		status,
		onStatus(listener) {
			statusListeners.add(listener);
			return () => statusListeners.delete(listener);
		},
		identity: () => toReport(identity),
		inspectPairing: (asked) => decidePairing({ ...asked, replace: asked.replace ?? false }, pairingContext()).preview,
		pair,
		unpair,
		setWorkflow,
		reconnect: () => dispatch({ type: 'retryRequested', atMs: clock.monotonicMs() }),
		applyEnvironment(changed) {
			environment = changed;
			warn('workflow', null);
			keepSettings();
			identity = chooseNow();
			pursue();
		},
		warn,
		async stop() {
			stopped = true;
			cancelRenewal();
			device.close();
			dispatch({ type: 'stopRequested', atMs: clock.monotonicMs() });
			await runner.drained();
		},
	};
}

/** A saved Connection with its age by the clock now; a clock that runs backwards makes it no younger than new. */
function asKnown(saved: SavedConnection, clock: Clock): KnownConnection {
	const { baseUrl, request, credentialId, token } = saved;
	const life = readTokenLife(token);
	const lifeMs = life && life.issuedAtSeconds !== null ? (life.expiresAtSeconds - life.issuedAtSeconds) * 1000 : null;
	const ageMs = Math.max(0, clock.wallMs() - Date.parse(saved.obtainedAt));
	const connection = { token, obtainedAtMs: clock.monotonicMs() - Math.min(ageMs, lifeMs ?? 0), lifeMs };
	return { registration: { baseUrl, request, credentialId }, connection };
}

function problemError(preview: PairPreview): AgentError {
	const problem = preview.problem as Failure | null;
	return problem
		? new AgentError(problem.code, problem.message, { remedy: problem.remedy })
		: new AgentError('internal', 'The code was refused without a reason.');
}

/** The fields of an effect that may stand in a log. */
function loggable(effect: object): { attempt?: number; delayMs?: number } {
	const { attempt, delayMs } = effect as { attempt?: number; delayMs?: number };
	return { ...(attempt === undefined ? {} : { attempt }), ...(delayMs === undefined ? {} : { delayMs }) };
}
