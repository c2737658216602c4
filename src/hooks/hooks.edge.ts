/** Runs the commands that a site has set for events. Never through a shell, never with the agent's own environment, never twice. */
import { type ChildProcess, spawn } from 'node:child_process';
import { errnoOf } from '../base/files.edge.ts';
import { cleanText } from '../protocol/problem.ts';

const HOOK_LIMITS = {
	atOnce: 4,
	timeoutMs: 30_000,
	/** Between asking it to end and ending it, in milliseconds. */
	graceMs: 2000,
	/** Of its standard error, in characters. */
	stderrLength: 500,
} as const;
export type HookLimits = { readonly [Name in keyof typeof HOOK_LIMITS]: number };

/** Variables that a command may see of the agent's. No secret, no credential directory, no NOTIFY_SOCKET. */
const PASSED_ON = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'TMPDIR'];
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export interface HookRun {
	/** Its name in the settings; the command sees it as `IDV_AGENT_HOOK`. */
	readonly hook: string;
	/** The program and its arguments, each as it is. */
	readonly argv: readonly string[];
	/** Becomes one line of JSON on standard input. */
	readonly input: unknown;
}

/** How a command ended; `killed` by a signal that was not ours. */
export type HookOutcome =
	| { readonly kind: 'exited'; readonly exitStatus: number }
	| { readonly kind: 'killed'; readonly signal: string }
	| { readonly kind: 'timedOut' }
	| { readonly kind: 'notStarted'; readonly reason: string };

/** @param ms since it was started; 0 if it was not. @param stderr its beginning on one line. It may hold anything: scrub it. */
type ReportEnd = (hook: string, outcome: HookOutcome, ms: number, stderr: string) => void;

export type Hooks = ReturnType<typeof createHooks>;

export function createHooks(options: {
	readonly report: ReportEnd;
	/** This program's own. */
	readonly env: Readonly<Record<string, string | undefined>>;
	readonly limits?: Partial<HookLimits>;
}) {
	const limits = { ...HOOK_LIMITS, ...options.limits };
	const env = hookEnvironment(options.env);
	/** Ends one command each. */
	const running = new Set<() => void>();
	/** Each begins one that waits for its turn, in the order of the calls. */
	const queue: (() => void)[] = [];
	let closed = false;
	let whenIdle = () => {};

	function begin(run: HookRun): 'started' | 'notStarted' {
		const { end, started } = start(run, env, limits, (...told) => {
			running.delete(end);
			options.report(...told);
			queue.shift()?.();
			if (running.size === 0) whenIdle();
		});
		running.add(end);
		return started ? 'started' : 'notStarted';
	}

	return {
		/** Runs the command as soon as there is room. Resolves when it was started or cannot be; `null` when all is closed before. Never throws. */
		async run(call: HookRun): Promise<'started' | 'notStarted' | null> {
			if (!closed && running.size >= limits.atOnce) await new Promise<void>((resolve) => queue.push(resolve));
			return closed ? null : begin(call);
		},
		/** Leaves what waits, ends what runs, and resolves when all of that has been reported. */
		async close(): Promise<void> {
			closed = true;
			for (const resolve of queue.splice(0)) resolve();
			for (const end of running) end();
			if (running.size > 0)
				await new Promise<void>((resolve) => {
					whenIdle = resolve;
				});
		},
	};
}

/** Starts a command. `end` asks it to end, and ends it soon after; `done` is called once, and later. */
function start(
	{ hook, argv, input }: HookRun,
	env: Record<string, string>,
	limits: HookLimits,
	done: ReportEnd,
): { readonly started: boolean; readonly end: () => void } {
	const startedAt = performance.now();
	let stderr = '';
	let timedOut = false;
	let killTimer: NodeJS.Timeout | undefined;
	let child: ChildProcess;

	const finish = (outcome: HookOutcome) => {
		clearTimeout(limit);
		clearTimeout(killTimer);
		const ms = outcome.kind === 'notStarted' ? 0 : Math.round(performance.now() - startedAt);
		done(hook, outcome, ms, cleanText(stderr, limits.stderrLength));
	};
	const end = () => {
		if (killTimer) return;
		signalGroup(child, 'SIGTERM');
		killTimer = setTimeout(() => signalGroup(child, 'SIGKILL'), limits.graceMs);
	};
	const limit = setTimeout(() => {
		timedOut = true;
		end();
	}, limits.timeoutMs);

	try {
		const [program = '', ...parameters] = argv;
		// A process group of its own: what it starts ends with it.
		child = spawn(program, parameters, {
			cwd: '/',
			env: { ...env, IDV_AGENT_HOOK: hook },
			stdio: ['pipe', 'ignore', 'pipe'],
			detached: true,
			shell: false,
		});
	} catch (error) {
		// As later, so that the caller has its handle before the report.
		queueMicrotask(() => finish({ kind: 'notStarted', reason: errnoOf(error) || String(error) }));
		return { started: false, end: () => {} };
	}
	let isOver = false;
	const over = (outcome: HookOutcome) => {
		if (isOver) return;
		isOver = true;
		// Processes that it left behind may hold the pipe open.
		child.stderr?.destroy();
		child.stdin?.destroy();
		finish(outcome);
	};
	child.once('error', (error) => {
		if (child.pid === undefined) over({ kind: 'notStarted', reason: errnoOf(error) || String(error) });
	});
	child.once('exit', (exitStatus, signal) => {
		// Text that was written just before is still in the pipe.
		const report = () => {
			if (timedOut) over({ kind: 'timedOut' });
			else if (exitStatus !== null) over({ kind: 'exited', exitStatus });
			else over({ kind: 'killed', signal: signal ?? 'unknown' });
		};
		signalGroup(child, 'SIGKILL');
		child.once('close', report);
		// Whatever has left the group may hold the pipe open for ever.
		clearTimeout(killTimer);
		killTimer = setTimeout(report, limits.graceMs);
	});
	child.stderr?.setEncoding('utf8').on('data', (text: string) => {
		if (stderr.length < limits.stderrLength * 4) stderr += text;
	});
	child.stderr?.on('error', () => {});
	// A command that does not read its input is welcome.
	child.stdin?.on('error', () => {});
	child.stdin?.end(`${JSON.stringify(input)}\n`);
	return { started: child.pid !== undefined, end };
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
	try {
		if (pid !== undefined) process.kill(-pid, signal);
	} catch {
		// It is over.
	}
}

function hookEnvironment(own: Readonly<Record<string, string | undefined>>): Record<string, string> {
	const passed: Record<string, string> = { PATH: DEFAULT_PATH };
	for (const name of PASSED_ON) if (own[name]) passed[name] = own[name];
	return passed;
}
