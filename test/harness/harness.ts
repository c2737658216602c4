/**
 * The real daemon in a directory of its own, against the embedded service over real sockets, with a clock that a test
 * steps. Fails the test when a timer, a socket, a server or an open file is left behind.
 */
import { existsSync, readFileSync, watch } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished } from 'vitest';
import type { Agent } from '../../src/agent/agent.runner.ts';
import { createLog } from '../../src/base/log.edge.ts';
import { createLocalClient, type LocalClient } from '../../src/client/local-client.edge.ts';
import { openChannel } from '../../src/connection/channel.edge.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.runner.ts';
import type { Entry } from '../../src/events/event.ts';
import { followHooks } from '../../src/hooks/hooks.runner.ts';
import type { PairRequest, Status } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { loadSettings } from '../../src/settings/load.runner.ts';
import type { AgentPaths } from '../../src/settings/paths.runner.ts';
import type { DeviceState } from '../../src/state/device-state.ts';
import { plantTree, type Tree } from '../fixtures/machines.ts';
import { readAll } from './read-all.ts';
import { watchRealTimers } from './real-timers.ts';
import { createSteppedClock, type SteppedClock } from './stepped-clock.ts';
import { setTimeOfTest } from './test-time.ts';

/** Longest wait for something that ought to happen, in real milliseconds. */
const DEADLINE_MS = 45_000;
/** Between two looks at what is still open, in milliseconds. */
const LOOK_AGAIN_MS = 5;
const GROUP = String(process.getgid?.() ?? 0);

/** Started by {@link givenAgent} and not yet stopped. */
let agentsRunning = 0;

/** The device of most tests: known by its serial number. */
export const DEVICE_ID = 'KIOSK-0001';
const MACHINE: Tree = { 'sys/class/dmi/id/product_serial': `${DEVICE_ID}\n` };

export interface AgentSetup {
	/** Contents of `config.json`; left out, there is no such file. With `hooks` in it, what runs them is there as well. */
	readonly settings?: object | undefined;
	/** `path=value`, as with `--set`. */
	readonly sets?: readonly string[];
	readonly env?: Readonly<Record<string, string>>;
	/** Uniform in [0, 1); default one half. */
	readonly random?: () => number;
	/** Default: a machine with nothing but a serial number. */
	readonly machine?: Tree;
	readonly clock?: SteppedClock;
	/** Default: the sockets belong to the group of this process. */
	readonly groups?: 'settings';
	/** When a channel counts that must prove itself by its age, in real time; default 20. */
	readonly countsAfterMs?: number | 'own';
	/** The directory of an earlier agent, to start where it ended. */
	readonly home?: Home;
}

/** One line of the log as it was written. */
export interface LogLine {
	readonly level: string;
	readonly msg: string;
	readonly [field: string]: unknown;
}

/** A directory with everything that outlives an agent. Removed when the test ends. */
export interface Home {
	readonly directory: string;
	readonly paths: AgentPaths;
	/** Writes a file with a secret in it; returns its path. */
	secretFile(name: string, text: string): Promise<string>;
	/** Nobody notices: `config.json` is a link, and where it leads to is not watched. `reload` has the agent read it, once. */
	writeSettings(document: unknown): Promise<void>;
	/** The names of the files in the state directory that hold the text. */
	filesWith(text: string): Promise<string[]>;
	/** The state on the disk, now or as soon as it fits: what happens by itself is saved in the background. */
	untilSaved(fits?: (state: DeviceState) => boolean): Promise<DeviceState>;
	/** The Connection token on the disk, as soon as there is one. */
	savedToken(): Promise<string>;
}

export interface RunningAgent {
	readonly daemon: Daemon;
	readonly agent: Agent;
	readonly clock: SteppedClock;
	readonly home: Home;
	readonly client: LocalClient;
	readonly log: readonly LogLine[];
	/** The log as text, every line. */
	readonly logText: () => string;
	/** Every status since the start, each different from the one before. */
	readonly statuses: readonly Status[];
	/** The first status, now or later, that fits. */
	untilStatus(fits: (status: Status) => boolean, what?: string): Promise<Status>;
	untilState(state: Status['state']): Promise<Status>;
	/** Online with this workflow. */
	untilLive(workflowId: string): Promise<Status>;
	/** The first event, kept or later, that fits. */
	untilEvent(fits: (entry: Entry) => boolean): Promise<Entry>;
	/** The first line of the log, written or to come, that fits. */
	untilLogged(fits: (line: LogLine) => boolean): Promise<LogLine>;
	/** Resolves when so many timers of the clock are set. */
	untilTimers(count: number): Promise<true>;
	/** Waits until the channel waits for its next attempt, and lets that time pass. */
	passWait(): Promise<void>;
	/** Everything that has happened so far. */
	events(): Promise<readonly Entry[]>;
	/** Pairs with a code of the service, confirmed by a person. */
	pair(code: string, more?: Partial<PairRequest>): ReturnType<Agent['pair']>;
	/** Stops the daemon and looks whether it has left something behind. May be called twice. */
	stop(): Promise<void>;
}

export async function givenHome(): Promise<Home> {
	const directory = await mkdtemp(join(tmpdir(), 'agent-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const settingsDirectory = join(directory, 'etc');
	const stateDir = join(directory, 'state');
	await mkdir(join(settingsDirectory, 'conf.d'), { recursive: true });
	const configFile = join(settingsDirectory, 'config.json');
	const readState = (): DeviceState | null => {
		try {
			return JSON.parse(readFileSync(join(stateDir, 'state.json'), 'utf8'));
		} catch {
			return null;
		}
	};
	const untilSaved: Home['untilSaved'] = (fits = () => true) =>
		until(
			'saved state',
			(look) => {
				const watcher = watch(stateDir, look);
				return () => watcher.close();
			},
			() => {
				const state = readState();
				return state && fits(state) ? state : null;
			},
			() => JSON.stringify(readState()),
		);
	return {
		directory,
		paths: {
			configFile,
			configFileIsExplicit: false,
			confDirectory: join(settingsDirectory, 'conf.d'),
			stateDir,
			runDir: join(directory, 'run'),
			credentialsDirectory: null,
		},
		async secretFile(name, text) {
			const path = join(directory, name);
			await writeFile(path, `${text}\n`, { mode: 0o600 });
			return path;
		},
		async writeSettings(document) {
			if (!existsSync(configFile)) await symlink(join(directory, 'settings.json'), configFile);
			await writeFile(configFile, typeof document === 'string' ? document : JSON.stringify(document));
		},
		async filesWith(text) {
			// Whoever opens and closes the lock file gives the lock away; it is always empty.
			const names = (await readdir(stateDir)).filter((name) => name !== 'lock.db');
			const texts = await Promise.all(names.map((name) => readFile(join(stateDir, name), 'utf8').catch(() => '')));
			return names.filter((_, index) => texts[index]?.includes(text)).sort();
		},
		untilSaved,
		savedToken: async () => (await untilSaved(({ connections }) => connections.length > 0)).connections[0]?.token ?? '',
	};
}

/** A running agent that ends with the test. Rejects as `startDaemon` does. */
export async function givenAgent(setup: AgentSetup = {}): Promise<RunningAgent> {
	const before = await openResources();
	const realTimers = watchRealTimers();
	const home = setup.home ?? (await givenHome());
	const clock = setup.clock ?? createSteppedClock();
	setTimeOfTest(clock);
	onTestFinished(() => setTimeOfTest(null));
	if (setup.settings) await home.writeSettings(setup.settings);
	const machineRoot = await mkdtemp(join(home.directory, 'machine-'));
	await plantTree(machineRoot, setup.machine ?? MACHINE);

	const log: LogLine[] = [];
	const logListeners = new Set<() => void>();
	const write = (line: string) => {
		log.push(JSON.parse(line));
		for (const listener of logListeners) listener();
	};
	const daemon = await startDaemon({
		version: '0.0.0-test',
		paths: home.paths,
		env: setup.env ?? {},
		sets: [
			'log.level=debug',
			...(setup.groups === 'settings' ? [] : [`local.agentGroup=${GROUP}`, `local.adminGroup=${GROUP}`]),
			...(setup.sets ?? []),
		],
		clock,
		random: setup.random ?? (() => 0.5),
		machineRoot,
		logTo: { write },
		openChannel: (channel, listener) =>
			openChannel(
				{
					...channel,
					...(channel.provesByAge && setup.countsAfterMs !== 'own' && { proveAfterMs: setup.countsAfterMs ?? 20 }),
				},
				listener,
			),
	});
	const { agent } = daemon;
	const statuses: Status[] = [];
	const record = () => {
		const status = agent.status();
		if (JSON.stringify(status) !== JSON.stringify(statuses.at(-1))) statuses.push(status);
	};
	record();
	agent.onStatus(record);

	const hooks = setup.settings && 'hooks' in setup.settings ? runHooks(home, write) : null;
	let stopping: Promise<void> | null = null;
	const stop = () => {
		stopping ??= Promise.resolve(hooks?.close()).then(() => stopAndCheck(daemon, clock, home));
		return stopping;
	};
	agentsRunning += 1;
	onTestFinished(async () => {
		await stop();
		agentsRunning -= 1;
		// Those of another agent of the same test are its own.
		if (agentsRunning === 0) await untilNone(async () => realTimers(), 'real timers left behind');
		await expectNothingOpen(before);
	});

	const untilStatus: RunningAgent['untilStatus'] = (fits, what = 'status') =>
		until(
			what,
			(look) => agent.onStatus(look),
			() => {
				const status = agent.status();
				return fits(status) ? status : null;
			},
			() => `${JSON.stringify(agent.status(), null, 1)}\n${log.map((line) => JSON.stringify(line)).join('\n')}`,
		);

	const logText = () => log.map((line) => JSON.stringify(line)).join('\n');
	const kept = () => readAll(agent.events).entries;
	return {
		daemon,
		agent,
		clock,
		home,
		client: createLocalClient({ runDir: home.paths.runDir }),
		log,
		logText,
		statuses,
		untilStatus,
		untilState: (state) => untilStatus((status) => status.state === state, `state ${state}`),
		untilLive: (workflowId) => untilStatus(({ workflow }) => workflow.live === workflowId, `workflow ${workflowId}`),
		untilEvent: (fits) =>
			until(
				'event',
				(look) => agent.events.subscribe(look),
				() => kept().find(fits) ?? null,
				() => JSON.stringify(kept()),
			),
		untilLogged: (fits) =>
			until(
				'log line',
				(look) => {
					logListeners.add(look);
					return () => logListeners.delete(look);
				},
				() => log.find(fits) ?? null,
				logText,
			),
		untilTimers: (count) =>
			until(
				'timers',
				clock.onTimers,
				() => clock.pending === count || null,
				() => `${clock.pending} timers`,
			),
		async passWait() {
			const { channel } = await untilStatus((status) => status.channel.nextAttemptAt !== null, 'waiting');
			clock.advance(Math.max(0, Date.parse(channel.nextAttemptAt ?? '') - clock.wallMs()));
		},
		async events() {
			await agent.events.settled();
			return kept();
		},
		pair: (code, more = {}) => agent.pair({ code, trustOrigin: originOf(code), ...more }),
		stop,
	};
}

/** What `idv-agent hooks` does, in this process. Close it before its agent. */
export function runHooks({ paths }: Home, write: (line: string) => void) {
	return followHooks({
		runDir: paths.runDir,
		log: createLog({ destination: { write } }),
		settings: async () => (await loadSettings({ paths, env: {}, sets: [] })).settings.hooks,
		env: process.env,
		onNone: () => {},
	});
}

/** A paired agent that is online. */
export async function givenPairedAgent(
	service: EmbeddedService,
	{ workflowId = 'check-in', ...setup }: AgentSetup & { readonly workflowId?: string } = {},
): Promise<RunningAgent> {
	const running = await givenAgent(setup);
	await running.pair(service.createPairingCode(workflowId).url);
	await running.untilLive(workflowId);
	// The last that a pairing writes: that its Connection has worked.
	await running.home.untilSaved(({ connections }) => connections[0]?.worked === true);
	return running;
}

export interface Line {
	/** The service as it is reached through here. */
	readonly url: string;
	/** On connections that are made from now on, what the service says waits until the returned function is called. */
	holdAnswers(): () => void;
	/** Every byte that went to the service, as latin1. */
	heard(): string;
}

/** A line to the service that can hold back what the service says, and that hears what the device says. */
export async function givenLine(service: EmbeddedService): Promise<Line> {
	const heard: Buffer[] = [];
	let released: Promise<void> = Promise.resolve();
	const sockets = new Set<Socket>();
	const server = createServer((near) => {
		const far = connect(service.port, '127.0.0.1');
		const wait = released;
		for (const [from, to] of [
			[near, far],
			[far, near],
		] as const) {
			sockets.add(from);
			from.on('error', () => to.destroy());
			from.on('close', () => to.destroySoon());
		}
		near.on('data', (chunk: Buffer) => heard.push(chunk));
		near.pipe(far);
		void wait.then(() => far.pipe(near));
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(async () => {
		for (const socket of sockets) socket.destroy();
		await new Promise((resolve) => server.close(resolve));
	});
	return {
		url: service.url.replace(String(service.port), String((server.address() as AddressInfo).port)),
		heard: () => Buffer.concat(heard).toString('latin1'),
		holdAnswers() {
			const { promise, resolve } = Promise.withResolvers<void>();
			released = promise;
			return () => {
				released = Promise.resolve();
				resolve();
			};
		},
	};
}

/** What the service saw of the device: each time it was offline. Ask before causing it. */
export function watchOffline(service: EmbeddedService): readonly { readonly reason: string }[] {
	const seen: { reason: string }[] = [];
	onTestFinished(service.on('device-offline', ({ reason }) => void seen.push({ reason })));
	return seen;
}

/** The registrations that the service was asked for, by status. */
export function registrations(service: EmbeddedService): (number | null)[] {
	return service.requests.filter(({ path }) => path === '/api/device/connection').map(({ status }) => status);
}

function originOf(code: string): string | undefined {
	return URL.parse(code)?.origin;
}

/** Waits for events, never for time: `find` is asked now and whenever `subscribe` calls back. */
function until<Found>(
	what: string,
	subscribe: (look: () => void) => () => void,
	find: () => Found | null,
	describe: () => string,
): Promise<Found> {
	return new Promise((resolve, reject) => {
		const settle = (act: () => void) => {
			clearTimeout(deadline);
			unsubscribe();
			act();
		};
		const look = () => {
			const found = find();
			if (found !== null) settle(() => resolve(found));
		};
		const deadline = setTimeout(
			() => settle(() => reject(new Error(`No such ${what} within ${DEADLINE_MS} ms. Now: ${describe()}`))),
			DEADLINE_MS,
		);
		const unsubscribe = subscribe(look);
		look();
	});
}

async function stopAndCheck(daemon: Daemon, clock: SteppedClock, home: Home): Promise<void> {
	await daemon.stop();
	expect(clock.pending, 'timers left behind').toBe(0);
	const left = await readdir(home.paths.runDir);
	// A lease outlives the agent, and so does a page that is open.
	expect(
		left.filter((name) => name !== 'leases.json' && name !== 'page.html'),
		'sockets left behind',
	).toEqual([]);
	const known =
		/^(state\.json(\.bak|\.corrupt-.*)?|lock\.db|state\.id|(audit|events|history)-\d{8}-[0-9a-f]{16}\.log|update-plan\.json|unread-answer\.json)$/;
	const strange = (await readdir(home.paths.stateDir)).filter((name) => !known.test(name));
	expect(strange, 'files left behind').toEqual([]);
	await untilNone(() => openFilesBelow(home.directory), 'open files left behind');
}

/** The end of some things is seen a moment later, by another turn of this process or by the kernel, and nobody tells. */
async function untilNone(look: () => Promise<readonly string[]>, what: string): Promise<void> {
	const deadlineMs = performance.now() + DEADLINE_MS / 2;
	while ((await look()).length > 0 && performance.now() < deadlineMs) await pause(LOOK_AGAIN_MS);
	expect(await look(), what).toEqual([]);
}

/** What this process has open, by kind. */
async function openResources(): Promise<string[]> {
	const busy = process.getActiveResourcesInfo().filter((kind) => /Wrap$/.test(kind) && !/^(TTY|Process)/.test(kind));
	return [...busy, ...(await watches())];
}

/** Watches on files keep no process busy: only the system knows of them. */
async function watches(): Promise<string[]> {
	const open = await readdir('/proc/self/fdinfo').catch(() => []);
	const texts = await Promise.all(open.map((fd) => readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => '')));
	return texts.flatMap((text) => text.match(/^inotify /gm) ?? []);
}

async function expectNothingOpen(before: readonly string[]): Promise<void> {
	const left = async () => {
		const rest = [...before];
		return (await openResources()).filter((kind) => {
			const known = rest.indexOf(kind);
			if (known >= 0) rest.splice(known, 1);
			return known < 0;
		});
	};
	await untilNone(left, 'sockets, servers or watches left behind');
}

async function openFilesBelow(directory: string): Promise<string[]> {
	const open = await readdir('/proc/self/fd').catch(() => []);
	const targets = await Promise.all(open.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
	return targets.filter((target) => target.startsWith(`${directory}/`));
}
