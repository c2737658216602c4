/** Puts the running agent together on a device, and closes what it has opened in the opposite order. Handles no signals, prints nothing. */

import { randomUUID } from 'node:crypto';
import { type Agent, startAgent } from '../agent/agent.runner.ts';
import { openAudit } from '../audit/audit.runner.ts';
import { sendToJournal } from '../audit/journal.edge.ts';
import { openChecked } from '../base/checked.edge.ts';
import { type Clock, systemClock } from '../base/clock.edge.ts';
import { createClosers } from '../base/closers.ts';
import { type Counters, createCounters } from '../base/counters.ts';
import { toFailure } from '../base/errors.ts';
import { capacityOf } from '../base/files.edge.ts';
import { createLog, type LogDestination, openLogDestination } from '../base/log.edge.ts';
import { openShaper } from '../base/shapes.edge.ts';
import { openChannel } from '../connection/channel.edge.ts';
import { lineFile } from '../connection/line-file.edge.ts';
import { type OpenRuntime, openFirstRuntime, type Runtime, type RuntimeParts } from '../connection/runtime.runner.ts';
import { fittingBytes } from '../events/disk-budget.ts';
import { newEpoch } from '../events/feed.runner.ts';
import { createEventStore } from '../events/store.edge.ts';
import { chooseIdentity, keptId } from '../identity/identity.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { createForwarder } from '../local-api/forwarder.edge.ts';
import { keepHookCalls } from '../local-api/hook-calls.runner.ts';
import { createLocalPorts } from '../local-api/ports.runner.ts';
import { localRoutes } from '../local-api/routes.runner.ts';
import { type LocalServerOptions, openLocalServer } from '../local-api/server/local-server.edge.ts';
import { openAnswerFile } from '../pairing/kept-answer.edge.ts';
import { pairRequestSchema } from '../protocol/local-api.ts';
import { findScanners, watchScanners } from '../scanning/devices.edge.ts';
import { openScanner } from '../scanning/open.edge.ts';
import { listenForScans } from '../scanning/scanning.runner.ts';
import { lookAtSettings } from '../settings/files.edge.ts';
import { bearGone } from '../settings/gone-files.ts';
import { firstSettings, type LoadedSettings, loadSettings, type SettingsSources } from '../settings/load.runner.ts';
import type { Settings } from '../settings/table.ts';
import { type DeviceState, deviceStateSchema } from '../state/device-state.ts';
import { openStateStore } from '../state/store.edge.ts';
import { keepHistory, readHistory } from '../status/history.runner.ts';
import { ownTexts, textsOfFiles } from '../status/own-texts.ts';
import { rememberLog } from '../status/recent-log.ts';
import { leaseFile } from '../workflow/lease-file.edge.ts';
import { followSettings } from './follow-settings.runner.ts';
import type { HooksProgram } from './hooks-program.edge.ts';
import { machineFigures } from './machine-figures.runner.ts';
import { keepTaken } from './taken-settings.runner.ts';
import { keepTelemetry } from './telemetry.runner.ts';
import { handOverPlan, readUpdates } from './updates.runner.ts';
import { warnOfSettings } from './warnings.runner.ts';

export interface DaemonOptions extends SettingsSources {
	/** Local sockets that systemd has opened; the others are opened here. */
	readonly listen?: LocalServerOptions['listen'];
	readonly version: string;
	readonly clock?: Clock;
	readonly random?: () => number;
	/** Where log lines go; default standard output. */
	readonly logTo?: LogDestination;
	/** Root of the file system that is asked for the device's identity; default `/`. */
	readonly machineRoot?: string;
	/** Runs the commands of hooks beside this program, where systemd does not. */
	readonly hooksProgram?: HooksProgram | null;
	/** Opens the channel; default over the network. */
	readonly openChannel?: typeof openChannel;
}

export type Daemon = Awaited<ReturnType<typeof startDaemon>>;

/** When this resolves the sockets answer; the service need not have been reached yet.
 * @throws AgentError `settings-invalid` or `settings-unreadable` when there never were valid settings; `state-in-use`, `state-unreadable`, `state-unwritable`, `socket-failed`. */
export async function startDaemon(options: DaemonOptions) {
	const { clock = systemClock, random = Math.random, machineRoot: root = '/', version, paths } = options;
	// The lock of the state is the last of them.
	const closers = createClosers();
	// The machine is read while the settings are; a failure matters only when its facts are needed.
	const looking = readIdentityFacts({
		root,
		...(paths.credentialsDirectory ? { credentialsDirectory: paths.credentialsDirectory } : {}),
	});
	looking.catch(() => {});
	try {
		const checked = openChecked(paths.stateDir);
		const sources = { ...options, checked, seen: lookAtSettings(paths) };
		const loaded = await loadSettings(sources);
		const store = await openStateStore(paths.stateDir, { checked });
		closers.add(() => store.close());
		const isOwn = async (state: DeviceState) =>
			!chooseIdentity(await looking, {}, state.identity, keptId(state)).cloned;
		const { state, notices } = await store.load({ isOwn });
		const updates = readUpdates(root);
		const answerFile = await openAnswerFile(paths.stateDir);

		const parts: RuntimeParts = { userAgent: `idv-agent/${version}`, env: options.env, wallMs: clock.wallMs };
		let again = () => {};
		const gone = bearGone(paths.configFile, clock, () => again());
		closers.add(gone.close);
		const first = await openFirstRuntime(
			(before) => firstSettings(loaded, sources, before, gone),
			state,
			sources,
			parts,
		);
		/** All that are open: in force, tried, and those whose last requests are under way. */
		const open = new Set([first.runtime, ...(first.tried ? [first.tried] : [])]);
		const retire = (left: OpenRuntime) => void left.retire().finally(() => open.delete(left));
		let runtime: () => Runtime = () => first.runtime;
		const settings = () => runtime().resolved.settings;
		closers.add(() => Promise.all([...open].map((one) => one.close())));

		const atStart = settings();
		const { log: logSettings, local } = atStart;
		const places = Object.values(paths).filter((place) => typeof place === 'string');
		let own = () => [...places, ...ownTexts(settings(), state)];
		const shaper = openShaper(() => own());
		const recentLog = rememberLog(options.logTo ?? openLogDestination());
		const log = createLog({ level: logSettings.level, shaper, destination: recentLog.destination });
		const facts = await looking;
		const { logMark } = store;
		const audit = await openAudit({
			...{ stateDir: paths.stateDir, logMark },
			version,
			clock,
			shaper,
			takenBack: updates.records().outcomes.takenBack.map((one) => one.version),
			journal: recentLog.destination.form === 'journal' ? sendToJournal : async () => {},
			onSaved: (problem) => agent.warn('audit', problem),
		});
		closers.add(() => audit.close());
		const counters = createCounters();
		const capacityBytes = capacityOf(paths.stateDir);
		const agent = startAgent({
			clock,
			random,
			version,
			runtime: first.runtime,
			tried: first.tried,
			lastGood: first.last,
			release: (left) => retire(left as OpenRuntime),
			...{ store, state, isUnwritable: notices.some(({ code }) => code === 'state-unwritable') },
			answerFile,
			facts,
			newDeviceId: randomUUID,
			counters,
			openEvents(warn) {
				const eventStore = openEvents({
					...{ settings, counters, clock, random, capacityBytes, warn },
					durable: atStart.events.durable,
					directory: paths.stateDir,
					mark: logMark,
				});
				closers.add(() => eventStore.close());
				return eventStore;
			},
			updates: {
				...updates,
				write: (envelope) => handOverPlan(envelope, { stateDir: paths.stateDir, audit, log }),
			},
			audit,
			lineStore: lineFile(paths.stateDir, checked),
			leaseStore: leaseFile(paths.runDir),
			openChannel: options.openChannel ?? openChannel,
			log,
		});
		({ runtime } = agent.ways);
		let [scannerPath, pushed] = ['', loaded];
		own = () => [...places, ...agent.ownTexts(), ...textsOfFiles(pushed), scannerPath];
		closers.add(() => agent.stop());
		agent.events.onErase(recentLog.forget);
		const epoch = newEpoch(clock.wallMs(), random);
		const hooks = keepHookCalls({ agent, log, counters, epoch, settings: () => settings().hooks });
		const scanning = listenForScans({
			agent,
			refused: hooks.refused,
			unconfirmed: hooks.unconfirmed,
			settings: () => settings().scanner,
			find: (device) => findScanners({ root, device }),
			watch: (device, onChange) => watchScanners({ root, device }, onChange),
			open(device, ...more) {
				scannerPath = device.path;
				return openScanner(device, ...more);
			},
			clock,
			log,
		});
		closers.add(() => scanning.close());
		const onFault = (error: unknown) => log.error(`fault in the local interface: ${toFailure(error).message}`);
		const forward = createForwarder({
			network: {
				ask: (asked) => runtime().network.ask(asked),
				proxyName: (url) => runtime().network.proxyName(url),
			},
			target: agent.access,
			allow: () => settings().forward.allow,
			headers: () => settings().forward.headers,
			serviceHeaders: (baseUrl) => runtime().headersFor(baseUrl),
			secretValues: () => runtime().secretValues ?? [],
			registrationPath: () => settings().service.registrationPath,
			limits: () => ({ maxBytes: settings().forward.maxBytes, idleMs: settings().forward.idleSeconds * 1000 }),
		});
		const machine = machineFigures(paths.stateDir, root, clock, async () => {
			const { devices } = await scanning.report();
			return settings().scanner.kind === 'off' ? null : devices.some(({ chosen }) => chosen);
		});
		const taken = keepTaken({ agent, clock, log, audit, atStart, env: options.env, load: () => loadSettings(sources) });
		closers.add(agent.onStatus(taken.look));
		const ofRoutes = {
			audit,
			clock,
			counters,
			forward,
			hooks,
			recentLog,
			scanners: scanning.report,
			settings: taken.report,
			machine,
		};
		const routes = localRoutes(agent, ofRoutes);
		// The request for the channel is on its way while the sockets are opened, and its answer is taken as soon as they are.
		await handleArrived();
		const server = await openLocalServer({
			runDir: paths.runDir,
			routes,
			...(options.listen ? { listen: options.listen } : {}),
			groups: { agent: local.agentGroup, admin: local.adminGroup },
			onFault,
		});
		closers.add(() => server.close());
		await handleArrived();
		// The next save that works withdraws it.
		for (const notice of [
			...notices,
			...(answerFile.notice ? [answerFile.notice] : []),
			...server.notices.filter(({ params }) => !isNotMissed(params?.['group'], first.runtime.resolved, options.env)),
		])
			agent.warn(notice.code === 'state-unwritable' ? 'state' : notice.message, notice);
		const watched = { agent, atStart, paths, capacityBytes };
		const following = followSettings({
			...{ agent, gone, log, sources, runtimeParts: parts, first },
			opened(runtime, changed) {
				open.add(runtime);
				pushed = changed;
			},
			async onTaken(changed) {
				taken.look();
				await warnOfSettings(changed.settings, watched);
				await ports.apply(changed.settings);
				await telemetry.apply();
				hooks.reevaluate();
				options.hooksProgram?.follow(hooks.isAnySet());
			},
		});
		again = () => void following.reload(false);
		await warnOfSettings(atStart, watched);
		const ports = createLocalPorts({
			routes,
			runDir: paths.runDir,
			// Only on a device that has a page.
			openPage: async (port) =>
				(await import('../page/page.runner.ts')).openPage({
					...{ port, agent, clock, scanning, audit, counters, settings },
					pin: () => runtime().pin,
					history: () => readHistory(paths.stateDir, logMark).documents,
					kiosk: { runDir: paths.runDir, group: local.agentGroup },
					onWrongPins: hooks.refused,
					onFault,
				}),
			...{ warn: agent.warn, pieces: agent.ways.pieces, leases: agent.leases, clock },
			log,
			onFault,
		});
		closers.add(() => ports.close());
		const telemetry = keepTelemetry({
			...{ agent, counters, clock, random, log, machine },
			userAgent: parts.userAgent,
			settings: () => settings().telemetry,
			network: () => runtime().network,
		});
		await telemetry.apply();
		closers.add(telemetry.close);
		options.hooksProgram?.follow(hooks.isAnySet());

		// A device that waits for its code has time to load what a pairing needs, and all others never load it.
		if (agent.state() === 'unpaired')
			setImmediate(() => {
				for (const schema of [pairRequestSchema, deviceStateSchema]) schema.safeParse(null);
			}).unref();

		let stopping: Promise<void> | null = null;
		// Together: applications that still wait for an answer and a service that says goodbye take their time.
		closers.add(() => Promise.all([agent.stop(), server.close(), ports.close()]));
		closers.add(() => scanning.close());
		closers.add(() => hooks.close());
		// First of all: what it has started it can report.
		closers.add(() => options.hooksProgram?.end());
		closers.add(following.close);
		// The last one to begin, and the first to end: that the agent ends is a line of its own.
		const history = keepHistory({ stateDir: paths.stateDir, logMark, version, clock, agent, audit });
		history.look();
		const unsubscribe = agent.onStatus(history.look);
		closers.add(() => history.close());
		closers.add(unsubscribe);
		// The page begins with what the history has, of which this start is a part.
		await ports.apply(settings());
		await handleArrived();
		following.begin();
		return {
			agent,
			log,
			addresses: ports.addresses,
			/** Reads the settings again, because a person asks for it. What is not valid becomes a warning. */
			reload: () => following.reload(),
			/** Ends within 3 s, unless a one-time code is being redeemed: its answer is waited for. May be called twice. */
			stop(): Promise<void> {
				stopping ??= closers.close();
				return stopping;
			},
		};
	} catch (error) {
		await closers.close().catch(() => {});
		throw error;
	}
}

/** Everything here is read synchronously: until its end, no connection would get on, and a start took 5 to 20 ms more. */
const handleArrived = () => new Promise((done) => setImmediate(done));

/** The store of events, within the bounds of the settings that are in force at each access. */
function openEvents(parts: {
	readonly settings: () => Settings;
	readonly durable: boolean;
	readonly directory: string;
	readonly mark: string | null;
	readonly capacityBytes: number | null;
	readonly counters: Counters;
	readonly clock: Clock;
	readonly random: () => number;
	readonly warn: Agent['warn'];
}) {
	const { settings, durable, directory, mark, counters, clock, random } = parts;
	counters.eventsDurable = durable;
	return createEventStore({
		...{ directory, mark, durable },
		epoch: newEpoch(clock.wallMs(), random),
		bounds: {
			get maxCount() {
				return settings().events.maxCount;
			},
			get maxBytes() {
				return fittingBytes(settings(), parts.capacityBytes);
			},
			get maxAgeMs() {
				return settings().events.maxAgeSeconds * 1000;
			},
		},
		believesClock: false,
		get cleanAfterMs() {
			return settings().events.cleanAfterSeconds * 1000;
		},
		onNotice(topic, notice) {
			if (topic === 'events') counters.eventsDurable = durable && notice === null;
			parts.warn(topic, notice);
		},
		wallMs: clock.wallMs,
		monotonicMs: clock.monotonicMs,
	});
}

/** A group that no setting names, on a machine whose agent systemd does not start: no user is waiting to be let in. */
function isNotMissed(group: unknown, { origins }: LoadedSettings, env: NodeJS.ProcessEnv): boolean {
	if (group === undefined || env['NOTIFY_SOCKET'] || env['INVOCATION_ID']) return false;
	const isDefault = (path: string) => (origins.get(path)?.source ?? 'default') === 'default';
	return isDefault('local.agentGroup') && isDefault('local.adminGroup');
}
