/** `idv probe` against a service, and a device that knows nothing of the service but what the probe's file says. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Agent } from '../../src/agent/agent.runner.ts';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import type { Entry } from '../../src/events/event.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import { type AtTheEnd, finish, type Outcome } from '../cli/command.ts';
import { readAll } from '../harness/read-all.ts';

/** Longest wait for what ought to happen, in milliseconds: two cores are shared with much else. */
const DEADLINE_MS = 30_000;
const GROUP = String(process.getgid?.() ?? 0);
/** Fifty starts of the same sources: what is compiled once is kept. */
const COMPILED = join(tmpdir(), 'idv-dialects-compile-cache');

export interface Place {
	readonly directory: string;
	/** Where the probe is to write its file. */
	readonly settingsFile: string;
	/** A file with a secret; returns its path. */
	secretFile(name: string, text: string): Promise<string>;
	/** Runs `idv probe` to its end. */
	probe(args: readonly string[], env: Record<string, string>, input?: string): Promise<Outcome>;
	/** A device whose settings are that file, and what is given. */
	startDevice(settings: object): Promise<Device>;
}

export interface Device {
	readonly agent: Agent;
	untilStatus(fits: (status: Status) => boolean): Promise<Status>;
	untilEvent(fits: (entry: Entry) => boolean): Promise<Entry>;
	/** Kinds of the notifications so far. */
	kinds(): string[];
}

export async function givenPlace(atTheEnd: AtTheEnd): Promise<Place> {
	const directory = await mkdtemp(join(tmpdir(), 'idv-dialect-'));
	atTheEnd(() => rm(directory, { recursive: true, force: true }));
	const confDirectory = join(directory, 'conf.d');
	await mkdir(confDirectory);
	return {
		directory,
		settingsFile: join(confDirectory, 'service.json'),
		async secretFile(name, text) {
			const path = join(directory, name);
			await writeFile(path, `${text}\n`, { mode: 0o600 });
			return path;
		},
		probe: (args, env, input) =>
			finish('idv', ['probe', ...args], { XDG_CONFIG_HOME: directory, NODE_COMPILE_CACHE: COMPILED, ...env }, input),
		async startDevice(settings) {
			const configFile = join(directory, 'config.json');
			await writeFile(configFile, JSON.stringify(settings));
			const log: string[] = [];
			const daemon = await startDaemon({
				version: '0.0.0-test',
				paths: {
					configFile,
					configFileIsExplicit: false,
					confDirectory,
					stateDir: join(directory, 'state'),
					runDir: join(directory, 'run'),
					credentialsDirectory: null,
				},
				env: {},
				sets: [`local.agentGroup=${GROUP}`, `local.adminGroup=${GROUP}`],
				machineRoot: directory,
				logTo: { write: (line) => void log.push(line) },
			});
			atTheEnd(() => daemon.stop());
			const { agent } = daemon;
			const kept = () => readAll(agent.events).entries;
			const until = <Found>(subscribe: (look: () => void) => () => void, find: () => Found | null) =>
				new Promise<Found>((resolve, reject) => {
					const end = (act: () => void) => {
						clearTimeout(timer);
						unsubscribe();
						act();
					};
					const look = () => {
						const found = find();
						if (found !== null) end(() => resolve(found));
					};
					const timer = setTimeout(
						() => end(() => reject(new Error(`${JSON.stringify(agent.status())}\n${log.join('')}`))),
						DEADLINE_MS,
					);
					const unsubscribe = subscribe(look);
					look();
				});
			return {
				agent,
				untilStatus: (fits) =>
					until(
						(look) => agent.onStatus(look),
						() => (fits(agent.status()) ? agent.status() : null),
					),
				untilEvent: (fits) =>
					until(
						(look) => agent.events.subscribe(look),
						() => kept().find(fits) ?? null,
					),
				kinds: () => kept().flatMap(({ type, kind }) => (type === 'notification' ? [kind] : [])),
			};
		},
	};
}
