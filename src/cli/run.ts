/** `idv-agent run`: the daemon in the foreground, with its signals. systemd starts exactly this. */

import { startDaemon } from '../agent/daemon.ts';
import { choosePaths, type PathFlags } from '../agent/paths.ts';
import { AgentError } from '../core/errors.ts';
import { VERSION } from './version.ts';

export interface RunFlags extends PathFlags {
	readonly set?: readonly string[] | undefined;
}

/** Longest orderly end; whatever is not closed by then is cut off. */
const STOP_WITHIN_MS = 2500;

export async function run(flags: RunFlags): Promise<void> {
	const daemon = await startDaemon({
		version: VERSION,
		paths: choosePaths(flags, process.env),
		environment: process.env,
		sets: flags.set ?? [],
	});
	daemon.log.info('started', { version: VERSION, pid: process.pid });
	process.on('SIGHUP', () => void daemon.reload());
	let stopping = false;
	const stop = (signal: NodeJS.Signals) => {
		// A terminal and a launcher may both pass the same signal on.
		if (stopping) return;
		stopping = true;
		daemon.log.info('stopping', { signal });
		setTimeout(() => process.exit(0), STOP_WITHIN_MS).unref();
		void daemon.stop().finally(() => process.exit(0));
	};
	process.on('SIGTERM', stop);
	process.on('SIGINT', stop);
	process.on('uncaughtException', (error) => {
		daemon.log.error(
			`fault in the agent: ${error instanceof AgentError ? error.code : (error.stack ?? error.message)}`,
		);
		process.exit(70);
	});
}
