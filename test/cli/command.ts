/**
 * Runs commands in directories of their own: in this process, from their entrance on, or as the program that ships, by its file
 * in `bin/`. A process costs as much as twenty tests, so it is for what only a process shows: signals, a terminal, what goes on,
 * and each command once (`processes.test.ts`).
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { afterAll, onTestFinished } from 'vitest';
import { runAgentCommand } from '../../src/cli/commands.ts';
import type { Caller } from '../../src/cli/output.runner.ts';
import { runOperatorCommand } from '../../src/operator/commands.runner.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import { diesWithTheRun } from '../harness/children.ts';
import { createHastyClock } from '../harness/hasty-clock.ts';

const GROUP = String(process.getgid?.() ?? 0);
const DEADLINE_MS = 45_000;

/** The commands as they ship, if this run has built them; else the checkout's. */
export const BIN = process.env['IDV_TEST_BIN'] ?? resolve(import.meta.dirname, '../../bin');

export interface Outcome {
	/** Exit status, or the signal's name. */
	readonly status: number | string | null;
	readonly stdout: string;
	readonly stderr: string;
}

/** A device's directories; removed when the test ends. */
export interface Home {
	readonly directory: string;
	readonly stateDir: string;
	readonly configFile: string;
	/** Variables with which a command finds this device and no other. */
	readonly env: Readonly<Record<string, string>>;
	writeSettings(document: unknown): Promise<void>;
	/** Runs `idv-agent` to its end. */
	agent(args: readonly string[], more?: CommandOptions): Promise<Outcome>;
	/** Starts `idv-agent run` and waits until it has started; ends with the test. */
	run(...args: readonly string[]): Promise<RunningCommand>;
	/** `status --json`. */
	status(): Promise<Status>;
}

export interface CommandOptions {
	/** Standard input; left out, it is closed. */
	readonly input?: string;
	readonly env?: Readonly<Record<string, string>>;
}

/** A command that goes on. */
export interface RunningCommand {
	readonly pid: number;
	/** The first line of stdout, past or to come, that matches. */
	untilLine(pattern: RegExp): Promise<string>;
	/** How it ended, when it has. */
	readonly ended: Promise<Outcome>;
	/** Sends the signal and resolves with how it ended. */
	end(signal?: NodeJS.Signals): Promise<Outcome>;
}

/** Has something done at the end, the latest first: of a test by default. */
export type AtTheEnd = (act: () => void | Promise<void>) => void;

/** The end of a group of tests that share something: call it within `describe`. */
export function atTheEndOfAll(): AtTheEnd {
	const acts: (() => void | Promise<void>)[] = [];
	afterAll(async () => {
		for (const act of acts.reverse()) await act();
	});
	return (act) => void acts.push(act);
}

export async function givenHome(settings?: unknown, atTheEnd: AtTheEnd = onTestFinished): Promise<Home> {
	const directory = await mkdtemp(join(tmpdir(), 'idv-cli-'));
	atTheEnd(() => rm(directory, { recursive: true, force: true }));
	const stateDir = join(directory, 'state');
	const configFile = join(directory, 'config.json');
	const env = {
		IDV_AGENT_STATE_DIR: stateDir,
		IDV_AGENT_RUN_DIR: join(directory, 'run'),
		IDV_AGENT_CONFIG: configFile,
		IDV_AGENT_LOCAL_AGENT_GROUP: GROUP,
		IDV_AGENT_LOCAL_ADMIN_GROUP: GROUP,
		IDV_AGENT_DEVICE_ID: 'KIOSK-7',
	};
	const home: Home = {
		directory,
		stateDir,
		configFile,
		env,
		writeSettings: (document) =>
			writeFile(configFile, typeof document === 'string' ? document : JSON.stringify(document)),
		agent: (args, { input, env: more } = {}) => finish('idv-agent', args, { ...env, ...more }, input),
		async run(...args) {
			const running = follow('idv-agent', ['run', ...args], env, atTheEnd);
			await running.untilLine(/"msg":"started"/);
			return running;
		},
		status: async () => JSON.parse((await home.agent(['status', '--json'])).stdout),
	};
	await home.writeSettings(settings ?? {});
	return home;
}

export type Program = 'idv-agent' | 'idv';
/** What an operator's command waits out is over at once. */
const ENTRANCES = {
	'idv-agent': runAgentCommand,
	idv: (caller: Caller) => runOperatorCommand(caller, createHastyClock()),
};

/** These go on, give up the rights of their process, or are started by systemd. */
export const ALWAYS_APART: readonly string[] = [
	'run',
	'demo',
	'doctor',
	'support-bundle',
	'hooks',
	'update',
	'code-cache',
];

/** Runs a command to its end, in this process where it can be. */
export async function finish(
	name: Program,
	args: readonly string[],
	env: Readonly<Record<string, string>>,
	input = '',
): Promise<Outcome> {
	if (!args.includes('--help') && args.some((word) => ALWAYS_APART.includes(word)))
		return finishApart(name, args, env, input);
	const written = { stdout: '', stderr: '' };
	const pipe = (name: keyof typeof written) => ({
		write: (text: string) => {
			written[name] += text;
			return true;
		},
		on: () => {},
	});
	const { PATH = '', HOME = '' } = process.env;
	const caller = {
		argv: [process.execPath, name, ...args],
		env: { PATH, HOME, ...env },
		stdin: Readable.from(input === '' ? [] : [Buffer.from(input)]),
		stdout: pipe('stdout'),
		stderr: pipe('stderr'),
		exitCode: 0,
	};
	await ENTRANCES[name](caller as unknown as Caller);
	return { status: caller.exitCode, ...written };
}

/** Runs a command of `bin/` to its end. */
export async function finishApart(
	name: Program,
	args: readonly string[],
	env: Readonly<Record<string, string>>,
	input = '',
): Promise<Outcome> {
	const child = start(name, args, env);
	const outcome = collect(child);
	child.stdin?.on('error', () => {});
	child.stdin?.end(input);
	return outcome;
}

/** Starts a command of `bin/` that goes on until it is told to end; it ends with the test at the latest. */
export function follow(
	name: Program,
	args: readonly string[],
	env: Readonly<Record<string, string>>,
	atTheEnd: AtTheEnd = onTestFinished,
	directory?: string,
): RunningCommand {
	const child = start(name, args, env, directory);
	const lines: string[] = [];
	const reader = createInterface({ input: child.stdout as NodeJS.ReadableStream });
	reader.on('line', (line) => lines.push(line));
	const outcome = collect(child);
	atTheEnd(async () => {
		child.kill('SIGKILL');
		await outcome;
	});
	return {
		pid: child.pid ?? 0,
		async untilLine(pattern) {
			const signal = AbortSignal.timeout(DEADLINE_MS);
			for (;;) {
				const found = lines.find((line) => pattern.test(line));
				if (found !== undefined) return found;
				const ended = outcome.then(({ stderr }) => {
					throw new Error(`ended before a line like ${pattern}: ${lines.join('\n')}\n${stderr}`);
				});
				await Promise.race([once(reader, 'line', { signal }), ended]);
			}
		},
		ended: outcome,
		async end(signal = 'SIGTERM') {
			child.kill(signal);
			return outcome;
		},
	};
}

function start(
	name: string,
	args: readonly string[],
	env: Readonly<Record<string, string>>,
	directory?: string,
): ChildProcess {
	const { PATH = '', HOME = '' } = process.env;
	const [program = '', ...words] = diesWithTheRun(join(BIN, name), args);
	return spawn(program, words, { env: { PATH, HOME, ...env }, stdio: 'pipe', cwd: directory });
}

async function collect(child: ChildProcess): Promise<Outcome> {
	let stdout = '';
	let stderr = '';
	child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
		stdout += chunk;
	});
	child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
		stderr += chunk;
	});
	const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
	return { status: code ?? signal, stdout, stderr };
}
