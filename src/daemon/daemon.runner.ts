/** Puts the running agent together on a device, and closes what it has opened in the opposite order. Handles no signals, prints nothing. */

import { randomUUID } from 'node:crypto';
import { startAgent } from '../agent/agent.runner.ts';
import { openAudit } from '../audit/audit.runner.ts';
import { sendToJournal } from '../audit/journal.edge.ts';
import { openChecked } from '../base/checked.edge.ts';
import { type Clock, systemClock } from '../base/clock.edge.ts';
import { createCounters } from '../base/counters.ts';
import { type Failure, failure, toFailure } from '../base/errors.ts';
import { capacityOf } from '../base/files.edge.ts';
import { createLog, type LogDestination, openLogDestination } from '../base/log.edge.ts';
import { joinSentences } from '../base/sentences.ts';
import { openShaper } from '../base/shapes.edge.ts';
import { openChannel } from '../connection/channel.edge.ts';
import { lineFile } from '../connection/line-file.edge.ts';
import { type OpenRuntime, openFirstRuntime, type Runtime, type RuntimeParts } from '../connection/runtime.runner.ts';
import { fittingBytes, tooSmall } from '../events/disk-budget.ts';
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
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import { lookAtSettings } from '../settings/files.edge.ts';
import { bearGone } from '../settings/gone-files.ts';
import { firstSettings, type LoadedSettings, loadSettings, type SettingsSources } from '../settings/load.runner.ts';
import { type Settings, valueAt } from '../settings/table.ts';
import { type DeviceState, deviceStateSchema } from '../state/device-state.ts';
import { openStateStore } from '../state/store.edge.ts';
import { keepHistory, readHistory } from '../status/history.runner.ts';
import { ownTexts, textsOfFiles } from '../status/own-texts.ts';
import { rememberLog } from '../status/recent-log.ts';
import type { Telemetry } from '../telemetry/telemetry.runner.ts';
import { leaseFile } from '../workflow/lease-file.edge.ts';
import { followSettings } from './follow-settings.runner.ts';
import type { HooksProgram } from './hooks-program.edge.ts';
import { machineFigures } from './machine-figures.runner.ts';
import { keepTaken, START_ONLY } from './taken-settings.runner.ts';
import { handOverPlan, readUpdates } from './updates.runner.ts';

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
	const closers: (() => unknown)[] = [];
	/** A closer that fails does not keep the others from running: the lock of the state is the last of them. */
	const close = async () => {
		const faults: unknown[] = [];
		for (const closer of closers.splice(0).reverse())
			try {
				await closer();
			} catch (error) {
				faults.push(error);
			}
		if (faults.length > 0) throw faults[0];
	};
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
		closers.push(() => store.close());
		const isOwn = async (state: DeviceState) =>
			!chooseIdentity(await looking, {}, state.identity, keptId(state)).cloned;
		const { state, notices } = await store.load({ isOwn });
		const updates = readUpdates(root);
		const answerFile = await openAnswerFile(paths.stateDir);

		const parts: RuntimeParts = { userAgent: `idv-agent/${version}`, env: options.env, wallMs: clock.wallMs };
		let again = () => {};
		const gone = bearGone(paths.configFile, clock, () => again());
		closers.push(gone.close);
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
		closers.push(() => Promise.all([...open].map((one) => one.close())));

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
		closers.push(() => audit.close());
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
				const { durable } = atStart.events;
				counters.eventsDurable = durable;
				const eventStore = createEventStore({
					...{ directory: paths.stateDir, mark: logMark },
					epoch: newEpoch(clock.wallMs(), random),
					bounds: eventBounds(settings, capacityBytes),
					durable,
					believesClock: false,
					get cleanAfterMs() {
						return settings().events.cleanAfterSeconds * 1000;
					},
					onNotice(topic, notice) {
						if (topic === 'events') counters.eventsDurable = durable && notice === null;
						warn(topic, notice);
					},
					wallMs: clock.wallMs,
					monotonicMs: clock.monotonicMs,
				});
				closers.push(() => eventStore.close());
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
		closers.push(() => agent.stop());
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
		closers.push(() => scanning.close());
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
		closers.push(agent.onStatus(taken.look));
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
		closers.push(() => server.close());
		await handleArrived();
		// The next save that works withdraws it.
		for (const notice of [
			...notices,
			...(answerFile.notice ? [answerFile.notice] : []),
			...server.notices.filter(({ params }) => !isNotMissed(params?.['group'], first.runtime.resolved, options.env)),
		])
			agent.warn(notice.code === 'state-unwritable' ? 'state' : notice.message, notice);
		const following = followSettings({
			...{ agent, gone, log, sources, runtimeParts: parts, first },
			opened(runtime, changed) {
				open.add(runtime);
				pushed = changed;
			},
			async onTaken(changed) {
				taken.look();
				agent.warn('settings-at-start', warnOfStartOnly(atStart, changed.settings));
				await warnOfFiles();
				warnOfDisk();
				await ports.apply(changed.settings);
				await applyTelemetry();
				hooks.reevaluate();
				options.hooksProgram?.follow(hooks.isAnySet());
			},
		});
		again = () => void following.reload(false);
		/** For this release such a file is still used; pairing refuses. */
		const warnOfFiles = async () => {
			// The applications file is not used at all then, and has a warning of its own.
			const { applicationsFile } = settings().local.http;
			const exposed = await findExposedFiles(agent.ways.wanted().resolved, paths);
			const [one, ...others] = exposed.filter(({ params }) => params?.['path'] !== applicationsFile);
			agent.warn(
				'files',
				one ? { ...one, message: joinSentences(one.message, ...others.map(({ message }) => message)) } : null,
			);
		};
		const warnOfDisk = () => agent.warn('disk', tooSmall(paths.stateDir, settings(), capacityBytes));
		await warnOfFiles();
		warnOfDisk();
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
		closers.push(() => ports.close());
		let telemetry: Telemetry | null = null;
		const applyTelemetry = async () => {
			if (settings().telemetry.otlpUrl === null) {
				telemetry?.close();
				telemetry = null;
			} else if (telemetry) telemetry.reevaluate();
			else {
				// Only on a device that sends metrics.
				const { startTelemetry } = await import('../telemetry/telemetry.runner.ts');
				telemetry = startTelemetry({
					...{ agent, counters, clock, random, log, machine },
					userAgent: parts.userAgent,
					settings: () => settings().telemetry,
					network: () => runtime().network,
				});
			}
		};
		await applyTelemetry();
		closers.push(() => telemetry?.close());
		options.hooksProgram?.follow(hooks.isAnySet());

		// A device that waits for its code has time to load what a pairing needs, and all others never load it.
		if (agent.state() === 'unpaired')
			setImmediate(() => {
				for (const schema of [pairRequestSchema, deviceStateSchema]) schema.safeParse(null);
			}).unref();

		let stopping: Promise<void> | null = null;
		// Together: applications that still wait for an answer and a service that says goodbye take their time.
		closers.push(() => Promise.all([agent.stop(), server.close(), ports.close()]));
		closers.push(() => scanning.close());
		closers.push(() => hooks.close());
		// First of all: what it has started it can report.
		closers.push(() => options.hooksProgram?.end());
		closers.push(following.close);
		// The last one to begin, and the first to end: that the agent ends is a line of its own.
		const history = keepHistory({ stateDir: paths.stateDir, logMark, version, clock, agent, audit });
		history.look();
		const unsubscribe = agent.onStatus(history.look);
		closers.push(() => history.close());
		closers.push(unsubscribe);
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
				stopping ??= close();
				return stopping;
			},
		};
	} catch (error) {
		await close().catch(() => {});
		throw error;
	}
}

function warnOfStartOnly(atStart: Settings, now: Settings): Failure | null {
	const changed = START_ONLY.filter((path) => valueAt(atStart, path) !== valueAt(now, path));
	const message = `The change of ${changed.join(' and ')} takes effect at the next start of the agent.`;
	return changed.length === 0 ? null : failure('restart-needed', message);
}

/** Everything here is read synchronously: until its end, no connection would get on, and a start took 5 to 20 ms more. */
const handleArrived = () => new Promise((done) => setImmediate(done));

/** Reads the settings that are in force at each access. */
function eventBounds(settings: () => Settings, capacityBytes: number | null) {
	return {
		get maxCount() {
			return settings().events.maxCount;
		},
		get maxBytes() {
			return fittingBytes(settings(), capacityBytes);
		},
		get maxAgeMs() {
			return settings().events.maxAgeSeconds * 1000;
		},
	};
}

/** A group that no setting names, on a machine whose agent systemd does not start: no user is waiting to be let in. */
function isNotMissed(group: unknown, { origins }: LoadedSettings, env: NodeJS.ProcessEnv): boolean {
	if (group === undefined || env['NOTIFY_SOCKET'] || env['INVOCATION_ID']) return false;
	const isDefault = (path: string) => (origins.get(path)?.source ?? 'default') === 'default';
	return isDefault('local.agentGroup') && isDefault('local.adminGroup');
}
