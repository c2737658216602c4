/** Where the commands of `tools.ts` are: here, in the package `idv-tools`, or nowhere on this machine. */
import { existsSync } from 'node:fs';
import { AgentError } from '../base/errors.ts';
import type { Shell } from './output.runner.ts';

/** Built in by the bundler as `true` for the package of a device, which holds none of them. */
declare const IDV_AGENT_TOOLS_APART: boolean | undefined;

/** The purpose of each. */
export const TOOL_COMMANDS = {
	service: 'run an embedded service for trials: the whole published interface, in memory',
	simulate: 'run a load test: many devices in this process, against a service on this machine or one that you own',
	demo: 'show a whole story on this machine: a trial service, a pairing, a session, a workflow change',
} as const;

const TOOLS_PROGRAM = '/usr/lib/idv-tools/idv-tools';

const areApart = typeof IDV_AGENT_TOOLS_APART === 'boolean' && IDV_AGENT_TOOLS_APART;

/** Whether they can be run on this machine. */
export const hasTools = (): boolean => !areApart || existsSync(TOOLS_PROGRAM);

/** Whether words of a command line ask for one of them: `service …` or `help service`. */
export function asksForTool([first = '', second = '']: readonly string[]): boolean {
	return Object.hasOwn(TOOL_COMMANDS, first === 'help' ? second : first);
}

/** Becomes the program of `idv-tools`, with the same command line. @throws AgentError `tools-missing` without it. */
export function becomeTools(shell: Shell): void {
	if (!existsSync(TOOLS_PROGRAM))
		throw new AgentError('tools-missing', 'This command is in the package idv-tools, which is not installed here.');
	// The name stays: usage lines and examples say what was typed.
	process.execve?.(TOOLS_PROGRAM, [process.argv0, ...shell.caller.argv.slice(2)], shell.env);
}
