/**
 * An agent as a process of its own, which can be run in another network, with another clock or on a broken disk.
 * Knows nothing of any fault; what it starts ends with the test.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createLocalClient, type LocalClient } from '../../src/client/local-client.edge.ts';
import { type EventPage, LOCAL_ROUTES, type LocalEvent, type Status } from '../../src/protocol/local-api.ts';

const PROGRAM = resolve(import.meta.dirname, '../../src/cli/idv-agent.ts');
const GROUP = String(process.getgid?.() ?? 0);
/** Longest wait for what ought to happen, in milliseconds: two cores are shared with much else. */
const DEADLINE_MS = 120_000;
/** Some hundred starts of the same sources: what is compiled once is kept. */
const COMPILED = join(tmpdir(), 'idv-fault-compile-cache');

export type AtTheEnd = (act: () => void | Promise<void>) => void;

export interface DeviceOptions {
	/** Contents of `config.json`, without the groups. */
	readonly settings?: object;
	/** What stands before the program: `['ip', 'netns', 'exec', …]`. */
	readonly prefix?: readonly string[];
	readonly environment?: Readonly<Record<string, string>>;
	/** Default: a directory of its own below the temporary ones. */
	readonly stateDir?: string;
	/** Default: the sources. */
	readonly program?: string;
	/** Has things undone: the end of the test. */
	readonly atTheEnd: AtTheEnd;
}

export interface DeviceProcess {
	readonly directory: string;
	readonly stateDir: string;
	readonly client: LocalClient;
	/** Of the newest start, from the moment of the call. */
	readonly pid: number;
	/** Settles when the newest start has ended, however. */
	gone(): Promise<unknown>;
	/** Everything it has printed so far, of every start. */
	output(): string;
	writeSettings(settings: object): Promise<void>;
	/** Writes a file with a secret; returns its path. */
	secretFile(name: string, text: string): Promise<string>;
	/** Starts it and resolves when its sockets answer. */
	start(more?: Pick<DeviceOptions, 'environment'>): Promise<void>;
	/** Ends it; resolves when it is gone, with its exit status or the signal. */
	end(signal?: NodeJS.Signals): Promise<number | string | null>;
	/** Rejects when it ends by itself before. */
	untilStatus(fits: (status: Status) => boolean, what: string): Promise<Status>;
	untilState(state: Status['state']): Promise<Status>;
	/** Offline, connecting or blocked for this reason. */
	untilProblem(code: string): Promise<Status>;
	pair(code: string): Promise<unknown>;
	events(): Promise<readonly LocalEvent[]>;
	/** The first event, kept or to come, that fits. */
	untilEvent(fits: (event: LocalEvent) => boolean): Promise<LocalEvent>;
	/** Tries again now, as a technician would. */
	reconnect(): Promise<unknown>;
	state(triesLeft?: number): Promise<string>;
}

export async function givenDevice(options: DeviceOptions): Promise<DeviceProcess> {
	const { atTheEnd } = options;
	const directory = await mkdtemp(join(tmpdir(), 'idv-fault-'));
	atTheEnd(() => rm(directory, { recursive: true, force: true }));
	const stateDir = options.stateDir ?? join(directory, 'state');
	const configFile = join(directory, 'config.json');
	const runDir = join(directory, 'run');
	await mkdir(runDir);
	const client = createLocalClient({ runDir });
	let child: ChildProcess | null = null;
	let gone: Promise<unknown> = Promise.resolve();
	let printed = '';
	let listeners: (() => void)[] = [];

	const device: DeviceProcess = {
		directory,
		stateDir,
		client,
		get pid() {
			return child?.pid ?? 0;
		},
		gone: () => gone,
		output: () => printed,
		writeSettings: (settings) =>
			writeFile(
				configFile,
				JSON.stringify({ log: { level: 'debug' }, local: { agentGroup: GROUP, adminGroup: GROUP }, ...settings }),
			),
		async secretFile(name, text) {
			const path = join(directory, name);
			await writeFile(path, `${text}\n`, { mode: 0o600 });
			return path;
		},
		async start(more = {}) {
			const [command = '', ...args] = [
				...(options.prefix ?? []),
				process.execPath,
				options.program ?? PROGRAM,
				'run',
				'--config',
				configFile,
				'--state-dir',
				stateDir,
				'--run-dir',
				runDir,
			];
			const { PATH = '', HOME = '' } = process.env;
			const env = { PATH, HOME, NODE_COMPILE_CACHE: COMPILED, ...options.environment, ...more.environment };
			const started = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
			child = started;
			gone = once(started, 'close');
			for (const stream of [started.stdout, started.stderr])
				stream?.setEncoding('utf8').on('data', (text: string) => {
					printed += text;
					for (const look of listeners) look();
				});
			const from = printed.length;
			await untilPrinted(/"msg":"started"/, from);
		},
		async end(signal = 'SIGTERM') {
			child?.kill(signal);
			await gone;
			return child?.exitCode ?? child?.signalCode ?? null;
		},
		async untilStatus(fits, what) {
			const stop = new AbortController();
			const timeout = AbortSignal.timeout(DEADLINE_MS);
			let last: unknown = null;
			let found: Status | null = null;
			const ended = gone.then(() => stop.abort());
			await client
				.events(LOCAL_ROUTES.status, { signal: AbortSignal.any([stop.signal, timeout]) }, ({ data }) => {
					const status = JSON.parse(data) as Status;
					last = status;
					if (!fits(status)) return;
					found = status;
					stop.abort();
				})
				.catch((error) => {
					last = error;
				});
			if (found) return found;
			void ended;
			throw new Error(`No ${what} within ${DEADLINE_MS} ms. Now: ${JSON.stringify(last)}\n${printed.slice(-4000)}`);
		},
		untilState: (state) => device.untilStatus((status) => status.state === state, `state ${state}`),
		untilProblem: (code) => device.untilStatus(({ problem }) => problem?.code === code, `problem ${code}`),
		pair: (code) => {
			const body = { code, trustOrigin: URL.parse(code)?.origin };
			return client.request('admin', 'POST', LOCAL_ROUTES.pair, body, { deadlineMs: 60_000 });
		},
		events: async () =>
			((await client.request('agent', 'GET', `${LOCAL_ROUTES.events}?limit=1000`)) as EventPage).events,
		async untilEvent(fits) {
			const stop = new AbortController();
			const timeout = AbortSignal.timeout(DEADLINE_MS);
			let found: LocalEvent | null = null;
			await client.events(LOCAL_ROUTES.events, { signal: AbortSignal.any([stop.signal, timeout]) }, ({ data }) => {
				const event = JSON.parse(data) as LocalEvent;
				if (found || !fits(event)) return;
				found = event;
				stop.abort();
			});
			if (found) return found;
			throw new Error(`No such event within ${DEADLINE_MS} ms: ${JSON.stringify(await device.events())}`);
		},
		reconnect: () => client.request('admin', 'POST', LOCAL_ROUTES.reconnect),
		/** A disk in user space neither opens nor looks at a file that is replaced meanwhile: then it is read again. */
		async state(triesLeft = 20): Promise<string> {
			return readFile(join(stateDir, 'state.json'), 'utf8').catch((error) =>
				error.code === 'ENOENT' && triesLeft > 0 ? this.state(triesLeft - 1) : Promise.reject(error),
			);
		},
	};

	function untilPrinted(pattern: RegExp, from: number): Promise<void> {
		return new Promise((resolve, reject) => {
			const settle = (act: () => void) => {
				clearTimeout(deadline);
				listeners = listeners.filter((one) => one !== look);
				act();
			};
			const look = () => {
				if (pattern.test(printed.slice(from))) settle(resolve);
			};
			const fail = () => settle(() => reject(new Error(`The agent did not start:\n${printed.slice(from)}`)));
			const deadline = setTimeout(fail, DEADLINE_MS);
			listeners.push(look);
			void gone.then(fail);
			look();
		});
	}

	atTheEnd(async () => {
		child?.kill('SIGCONT');
		child?.kill('SIGKILL');
		await gone;
	});
	await device.writeSettings(options.settings ?? {});
	return device;
}
