/** `idv-agent run`: the daemon in the foreground, with its signals. systemd starts exactly this and receives its status. */
import type { Agent } from '../agent/agent.runner.ts';
import { AgentError } from '../base/errors.ts';
import { type Daemon, type DaemonOptions, startDaemon } from '../daemon/daemon.runner.ts';
import { trimHeap } from '../daemon/heap.edge.ts';
import { hooksBeside } from '../daemon/hooks-program.edge.ts';
import { connectSystemd, findHandedOver } from '../daemon/systemd.edge.ts';
import type { Status } from '../protocol/local-api.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import type { AskFlags } from './local-agent.runner.ts';
import { type Caller, Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

/** Longest orderly end; whatever is not closed by then is cut off. */
const STOP_WITHIN_MS = 2500;

/** The answer to a one-time code comes once, so it is waited for a little longer; systemd waits 10 s (`TimeoutStopSec`). */
const STOP_PAIRING_WITHIN_MS = 9000;
/** How old the time in a sentence may be. */
const SENTENCE_EVERY_MS = 60_000;
/** The first heartbeat and the greeting of the service are over by then. */
const MEMORY_AFTER_MS = 2000;

/** Reports an error itself: what asks for it may be a bundle of its own, with another class of errors. */
export function runReported(caller: Caller, flags: AskFlags, isJson = false): Promise<void> {
	const shell = new Shell(caller, isJson);
	return shell.run(() => run(shell, flags));
}

async function run(shell: Shell, flags: AskFlags): Promise<void> {
	// Before libuv starts them: one thread for flushes, and two for names, of which it lets no more than half be looked up at once: a
	// name server that is silent about IPv6 must not keep the address of IPv4 away.
	process.env['UV_THREADPOOL_SIZE'] ??= '3';
	const starting = startDaemon({
		hooksProgram: process.env['NOTIFY_SOCKET'] ? null : hooksBeside(asArguments(flags)),
		version: VERSION,
		paths: choosePaths(flags, shell.env),
		env: shell.env,
		sets: flags.set ?? [],
		listen: handedSockets(),
	}).then((daemon) => {
		daemon.log.info('started', { version: VERSION, pid: process.pid });
		// Memory that only the start needed would stay resident for months.
		void statusWhen(daemon.agent, ({ state }) => state === 'online').then(() =>
			setTimeout(trimHeap, MEMORY_AFTER_MS).unref(),
		);
		return { daemon, systemd: reportTo(daemon) };
	});
	obeySignals(starting);
	const { daemon } = await starting;
	process.on('uncaughtException', (error) => {
		daemon.log.error(
			`fault in the agent: ${error instanceof AgentError ? error.code : (error.stack ?? error.message)}`,
		);
		process.exit(70);
	});
}

/** The same for the program beside it. */
function asArguments({ config, stateDir, runDir, set = [] }: AskFlags): string[] {
	const named = { '--config': config, '--state-dir': stateDir, '--run-dir': runDir };
	const flags = Object.entries(named).flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
	return [...flags, ...set.flatMap((one) => ['--set', one])];
}

interface Running {
	readonly daemon: Daemon;
	readonly systemd: { reload(): Promise<void>; stop(): void };
}

/** From the first moment: a signal that arrives during the start takes effect after it and interrupts nothing half-way. */
function obeySignals(starting: Promise<Running>): void {
	// A start that fails is reported elsewhere.
	const whenRunning = (act: (running: Running) => unknown) => void starting.then(act, () => {});
	let stopping = false;
	let isPairing = () => false;
	const cutOff = () => process.exit(0);
	const stop = (signal: NodeJS.Signals) => {
		// A terminal and a launcher may both pass the same signal on.
		if (stopping) return;
		stopping = true;
		setTimeout(() => {
			if (!isPairing()) cutOff();
			setTimeout(cutOff, STOP_PAIRING_WITHIN_MS - STOP_WITHIN_MS).unref();
		}, STOP_WITHIN_MS).unref();
		whenRunning(({ daemon, systemd }) => {
			daemon.log.info('stopping', { signal });
			isPairing = daemon.agent.isPairing;
			systemd.stop();
			void daemon.stop().finally(cutOff);
		});
	};
	process.on('SIGTERM', stop);
	process.on('SIGINT', stop);
	process.on('SIGHUP', () => whenRunning(({ systemd }) => systemd.reload()));
}

/** The sockets of `idv-agent.socket` and `idv-agent-admin.socket`; none when the agent was not started by systemd. */
function handedSockets(): NonNullable<DaemonOptions['listen']> {
	const [agent, admin] = [findHandedOver('agent'), findHandedOver('admin')];
	return { ...(agent === null ? {} : { agent: { fd: agent } }), ...(admin === null ? {} : { admin: { fd: admin } }) };
}

/** Tells systemd what there is to tell, if it listens: ready, each new sentence, reloads, the end. */
function reportTo({ agent, reload }: Daemon): Running['systemd'] {
	const systemd = connectSystemd();
	if (!systemd) return { reload, stop: () => {} };
	systemd.ready(agent.status().sentence);
	const forget = followSentence(agent, (sentence) => systemd.status(sentence));
	return {
		async reload() {
			systemd.reloading();
			await reload();
			systemd.ready(agent.status().sentence);
		},
		stop() {
			forget();
			systemd.stopping();
		},
	};
}

/** Says the sentence of each new status, and again every so often while it counts time. @returns what ends it. */
export function followSentence(
	agent: Pick<Agent, 'status' | 'onStatus'>,
	say: (sentence: string) => void,
	everyMs = SENTENCE_EVERY_MS,
): () => void {
	let timer: NodeJS.Timeout | undefined;
	const look = () => {
		const { state, sentence, workflow } = agent.status();
		say(sentence);
		const countsTime = state === 'offline' || state === 'blocked' || workflow.waitsUntil !== null;
		if (countsTime) timer ??= setInterval(look, everyMs).unref();
		else {
			clearInterval(timer);
			timer = undefined;
		}
	};
	const forget = agent.onStatus(look);
	return () => {
		forget();
		clearInterval(timer);
	};
}

/** The first status, now or later, that matches. */
export function statusWhen(agent: Pick<Agent, 'status' | 'onStatus'>, matches: (status: Status) => boolean) {
	return new Promise<Status>((done) => {
		const look = () => {
			const status = agent.status();
			if (!matches(status)) return;
			stop();
			done(status);
		};
		const stop = agent.onStatus(look);
		look();
	});
}
