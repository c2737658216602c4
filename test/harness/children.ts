/** Processes that tests start. */
import { spawnSync } from 'node:child_process';

/** A run that is interrupted leaves no process behind: the kernel ends a command whose test runner is gone. */
export function diesWithTheRun(program: string, args: readonly string[]): string[] {
	return hasSetpriv ? ['setpriv', '--pdeathsig', 'KILL', '--', program, ...args] : [program, ...args];
}
const hasSetpriv = spawnSync('setpriv', ['--version']).status === 0;
