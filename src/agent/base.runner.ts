/** The common ground of the agent's parts: time, settings, state, identity, events, warnings, listeners. */
import { type Audit, NO_AUDIT } from '../audit/audit.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import { AgentError, type Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { keepWarnings } from '../base/warnings.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../connection/channel.edge.ts';
import { tellEnds } from '../connection/credential-ends.ts';
import { keepDeviceTime } from '../connection/device-time.runner.ts';
import { triedSettings, withLastGood } from '../connection/last-good.ts';
import type { LineStore } from '../connection/line-rhythm.ts';
import { withWorked } from '../connection/refused-credential.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { Registration, supervise } from '../connection/supervisor.ts';
import { lastOnline } from '../connection/way.ts';
import { createEventsFeed } from '../events/feed.runner.ts';
import type { EventStore } from '../events/store.edge.ts';
import type { fetchPlan } from '../fleet/fetch-plan.edge.ts';
import { keepIdentity } from '../identity/current-identity.runner.ts';
import type { IdentityFacts } from '../identity/identity.ts';
import type { AnswerFile } from '../pairing/kept-answer.edge.ts';
import { parseAuthorization } from '../protocol/authorization.ts';
import { isEncryptedAtRest, isPin } from '../settings/value-schemas.ts';
import { keepDates } from '../state/dates.runner.ts';
import { type DeviceState, withLastPiece, withLastSettings, withLastWay, withoutTrial } from '../state/device-state.ts';
import { keepPersistedState } from '../state/persisted-state.runner.ts';
import type { StateStore } from '../state/store.edge.ts';
import type { Updates } from '../updates/hand-over.runner.ts';
import type { LeaseStore } from '../workflow/leases.ts';

export interface AgentOptions {
	readonly clock: Clock;
	readonly random: () => number;
	readonly version: string;
	readonly runtime: Runtime;
	/** Of settings whose way out is tried beside the runtime's; left out, there are none. */
	readonly tried?: Runtime | null;
	/** The settings that were last good before this start. */
	readonly lastGood?: Runtime['resolved'] | null;
	/** Called with a runtime that is not used any more. */
	readonly release?: (runtime: Runtime) => void;
	readonly store: StateStore;
	readonly state: DeviceState;
	/** Whether the disk took nothing of it at the start. Default `false`. */
	readonly isUnwritable?: boolean;
	readonly answerFile: AnswerFile;
	readonly facts: IdentityFacts;
	/** A new id for a device that has nothing of its own to be known by. */
	readonly newDeviceId: () => string;
	/** An id for an attempt to redeem a code; default a random UUID. */
	readonly newAttemptId?: () => string;
	readonly counters: Counters;
	/** Opens the kept events. @param warn shows a warning on a topic until it is withdrawn with `null`. */
	readonly openEvents: (warn: (topic: string, warning: Failure | null) => void) => EventStore;
	/** Where what is learned of the line outlives a restart; left out, it does not. */
	readonly lineStore?: LineStore;
	/** Leases that outlive the process. Default: none do. */
	readonly leaseStore?: LeaseStore;
	readonly openChannel: (options: ChannelOptions, listener: (event: ChannelEvent) => void) => Channel;
	/** Fetches the fleet plan; default over the network. */
	readonly fetchPlan?: typeof fetchPlan;
	/** Update settings that root owns, and the place for a plan that orders an update; without it this agent is not updated. */
	readonly updates?: Updates;
	/** The policy for links; default the product's own. A benchmark measures others beside it. */
	readonly supervise?: typeof supervise;
	readonly log: Log;
	/** Default: nothing is recorded. */
	readonly audit?: Pick<Audit, 'record'>;
	/** Called with every secret that the agent comes to hold, so that it is never printed. */
}

export type Base = ReturnType<typeof openBase>;

/** During a burst of events, the status (which has the newest one's id) is published at most this often. */
const SHOW_EVENTS_MS = 100;

export function openBase(options: AgentOptions) {
	const { clock, log, random, counters } = options;
	const jumpListeners = new Set<() => void>();
	let { runtime, tried = null, lastGood = null } = options;
	/** Names the credential that the device came online with. */
	let credential = '';
	let stopped = false;
	const statusListeners = new Set<() => void>();
	const endsTold = new Set<string>();
	/** They come without an event: they are looked at whenever the status is. */
	const ends = () => tellEnds((tried ?? runtime).ends ?? [], time.nowMs());
	const publish = () => {
		for (const { code, message, params } of ends()) {
			// Its coming end and its end are two lines, and so is the end of the next one.
			const name = JSON.stringify([
				code,
				params?.['path'] ?? params?.['file'],
				params?.['at'],
				message.includes('has ended'),
			]);
			if (!endsTold.has(name)) log.warn(message, { code, params });
			endsTold.add(name);
		}
		for (const listener of statusListeners) listener();
	};
	const savedListeners = new Set<() => void>();
	const onSaved = (unsaved: Failure | null) => {
		warnings.set('state', unsaved);
		if (unsaved === null) for (const listener of savedListeners) listener();
	};
	const stateWriter = keepPersistedState(options.state, options.store, clock, onSaved, options.isUnwritable);
	const dates = keepDates(clock, stateWriter);
	const kept = keepWarnings(log, publish, dates);
	const list = () => [...kept.list(), ...ends()];
	const warnings = { ...kept, list };
	const events = createEventsFeed(options.openEvents(warnings.set), counters);
	let shownAtMs = Number.NEGATIVE_INFINITY;
	let cancelShow: (() => void) | null = null;
	const show = () => {
		cancelShow = null;
		shownAtMs = clock.monotonicMs();
		publish();
	};
	events.subscribe(() => {
		if (cancelShow || stopped) return;
		const waitMs = shownAtMs + SHOW_EVENTS_MS - clock.monotonicMs();
		if (waitMs <= 0) show();
		else cancelShow = clock.schedule(waitMs, show);
	});
	// Its caller waited until it was live, and has not heard that it was.
	stateWriter.keep((state) => withoutTrial(state, state.assignedWorkflow, false));
	const startedWallMs = clock.wallMs();
	const settings = () => runtime.resolved.settings;
	const time = keepDeviceTime({
		clock,
		stateWriter,
		onWarning(warning, skewMs) {
			counters.clockSkewMs = skewMs;
			warnings.set('clock', warning);
		},
		onProven: events.lookAtClock,
		onJump() {
			events.lookAtClock(null);
			for (const listener of jumpListeners) listener();
		},
	});
	const { facts, newDeviceId } = options;
	const identity = keepIdentity({ facts, device: stateWriter, newDeviceId, settings });
	const { audit = NO_AUDIT } = options;
	/** @param beside its way out is tried while the other stays in force. */
	const use = (changed: Runtime, beside: Runtime | null = null) => {
		const left = new Set([runtime, tried]);
		[runtime, tried] = [changed, beside];
		for (const one of left) if (one && one !== changed && one !== beside) options.release?.(one);
	};
	/** The newest settings, with what was in force in place of what is only tried. */
	const inForce = () => {
		const wanted = tried ?? runtime;
		lastGood = withLastGood(wanted.resolved, triedSettings(wanted, runtime, stateWriter.state), lastGood);
		return lastGood;
	};
	/** The last that could be used of files and ports of settings that links do not need, by setting. */
	const pieces = {
		of: (setting: string): string | undefined => stateWriter.state.lastPieces[setting],
		keep: (setting: string, text: string | null) => stateWriter.keep((state) => withLastPiece(state, setting, text)),
	};
	const shared = {
		audit,
		clock,
		dates,
		time,
		log,
		random,
		warnings,
		events,
		stateWriter,
		identity,
		settings,
		publish,
	};
	return {
		...shared,
		userAgent: `idv-agent/${options.version}`,
		agentVersion: options.version,
		startedAt: () => new Date(startedWallMs + time.correctedMs).toISOString(),
		/** Calls back whenever the disk has taken the state. */
		onStateSaved: (listener: () => void) => void savedListeners.add(listener),
		/** Calls back when the clock was set: what was decided by it is decided again. */
		onClockJump: (listener: () => void) => void jumpListeners.add(listener),
		startedAtMs: clock.monotonicMs(),
		/** What is in force. @param way by which a link goes: that of the settings that are tried has theirs. */
		runtime: (way?: string): Runtime => (tried && way !== undefined && tried.way?.id === way ? tried : runtime),
		ways: {
			/** In force. */
			runtime: (): Runtime => runtime,
			/** Of settings whose way out is tried beside that, if there are any. */
			tried: () => tried,
			/** Of the newest settings. */
			wanted: (): Runtime => tried ?? runtime,
			/** What stays of the newest settings when their source is bad or vanishes. */
			lastGood: inForce,
			pieces,
			/** Another is tried beside it. */
			last: () => lastOnline(stateWriter.state),
			/** Whether the device came online with the credential of the settings, and it was not refused beside another one. */
			hasCredential: () =>
				credential === runtime.credentials.id && stateWriter.state.refusedCredential?.id !== credential,
		},
		onStatus(listener: () => void): () => void {
			statusListeners.add(listener);
			return () => statusListeners.delete(listener);
		},
		use,
		/** Settings that were good enough to be used are kept, for the day when a push breaks them; what is only tried, once it has worked. */
		keepSettings() {
			dates.save();
			const good = inForce();
			if (good.holdsTogether) stateWriter.keep((state) => withLastSettings(state, good));
			const { pin, resolved } = tried ?? runtime;
			// Any other text stands for one that could not be read.
			const { pinFile } = resolved.settings.page;
			if (pin === null || isPin(pin)) pieces.keep('page.pinFile', isEncryptedAtRest(pinFile) ? null : pin);
		},
		/** The device is online by this way and with this credential: other settings are tried beside them from now on. */
		cameOnlineBy(registration: Registration): void {
			const { way, credentialId } = registration;
			credential = credentialId;
			if (tried && tried.way?.id === way) use(tried);
			stateWriter.keep((state) => withWorked(state, runtime.credentials, settings(), registration));
			const { way: inForce } = runtime;
			if (tried === null || way === inForce?.id) stateWriter.keep((state) => withLastWay(state, inForce));
		},
		/** Where no way has worked there is none to try another one beside. */
		tryOnlyBeside(): void {
			if (tried && !stateWriter.state.lastWay) use(tried);
		},
		/** The credential from before, as it is sent. */
		earlier: () => parseAuthorization(stateWriter.state.workedCredential?.sent),
		isStopping: () => stopped,
		/** The sockets still answer while the agent stops: the Connection that a code brings then would not be saved. */
		ensureRunning() {
			if (stopped) throw new AgentError('agent-not-running', 'The agent is stopping.');
		},
		stopRunning() {
			stopped = true;
			cancelShow?.();
		},
	};
}
