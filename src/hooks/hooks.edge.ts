/** Runs the commands that a site has set for events. Never through a shell, never with the agent's own environment, never twice. */
import type { ChildProcess } from 'node:child_process';
import { errnoOf } from '../base/files.edge.ts';
import { cleanText } from '../protocol/problem.ts';
import type { HelperAnswer } from './messages.ts';

const HOOK_LIMITS = {
	atOnce: 4,
	/** Commands that wait for their turn; further ones are dropped and reported. */
	queued: 64,
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

export interface HookCall {
	/** Its name in the settings; the command sees it as `IDV_AGENT_HOOK`. */
	readonly hook: string;
	/** The program and its arguments, each as it is. */
	readonly argv: readonly string[];
	/** Becomes one line of JSON on standard input. */
	readonly input: unknown;
	/** Socket of the helper unit, which runs the command that its own settings name, in place of `argv`. */
	readonly socket?: string | undefined;
}

export interface HookReport extends HelperAnswer {
	readonly hook: string;
	/** Since it was started; 0 if it was not. */
	readonly ms: number;
}

export type Hooks = ReturnType<typeof createHooks>;

export function createHooks(options: {
	readonly report: (report: HookReport) => void;
	/** The agent's own. */
	readonly env: Readonly<Record<string, string | undefined>>;
	readonly limits?: Partial<HookLimits>;
}) {
	const limits = { ...HOOK_LIMITS, ...options.limits };
	const env = hookEnvironment(options.env);
	/** Ends one command each. */
	const running = new Set<() => void>();
	const queue: HookCall[] = [];
	let closed = false;
	let whenIdle = () => {};

	function next(): void {
		while (running.size < limits.atOnce) {
			const call = queue.shift();
			if (!call) break;
			const end = start(call, env, limits, (report) => {
				running.delete(end);
				options.report(report);
				next();
			});
			running.add(end);
		}
		if (running.size === 0) whenIdle();
	}

	const drop = ({ hook }: HookCall) => options.report({ hook, outcome: { kind: 'dropped' }, ms: 0, stderr: '' });

	return {
		/** Runs the command as soon as there is room, in the order of the calls. Never throws. */
		run(call: HookCall): void {
			if (closed || queue.length >= limits.queued) drop(call);
			else queue.push(call);
			next();
		},
		/** Drops what waits, ends what runs, and resolves when all has been reported. */
		async close(): Promise<void> {
			closed = true;
			for (const call of queue.splice(0)) drop(call);
			for (const end of running) end();
			if (running.size > 0)
				await new Promise<void>((resolve) => {
					whenIdle = resolve;
				});
		},
	};
}

/** Starts a command, or has the helper start it. @returns a function that asks it to end, and ends it soon after. */
function start(
	{ hook, argv, input, socket }: HookCall,
	env: Record<string, string>,
	limits: HookLimits,
	done: (report: HookReport) => void,
): () => void {
	const startedAt = performance.now();
	if (socket !== undefined) {
		// Loaded by the first hook that needs it.
		const handed = import('./hand-over.edge.ts').then(({ handOver }) =>
			handOver({ socket, hook, input }, limits.timeoutMs, (answer) =>
				done({ hook, ...answer, ms: Math.round(performance.now() - startedAt) }),
			),
		);
		return () => void handed.then((end) => end());
	}
	let stderr = '';
	let timedOut = false;
	let killTimer: NodeJS.Timeout | undefined;
	let child: ChildProcess;

	const finish = (outcome: HookReport['outcome']) => {
		clearTimeout(limit);
		clearTimeout(killTimer);
		const ms = outcome.kind === 'notStarted' ? 0 : Math.round(performance.now() - startedAt);
		done({ hook, outcome, ms, stderr: cleanText(stderr, limits.stderrLength) });
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
		// Loaded by the first hook: most devices have none.
		const { spawn } = process.getBuiltinModule('node:child_process');
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
		return () => {};
	}
	let isOver = false;
	const over = (outcome: HookReport['outcome']) => {
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
	return end;
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
