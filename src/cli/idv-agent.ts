/**
 * The entry of `idv-agent`. The daemon is started without the command line and its help: those are loaded for every other
 * command, and for a `run` with anything that is not plain. Imports nothing else: each part is a bundle of its own (0.5 MiB).
 */
import type { AskFlags } from './local-agent.runner.ts';

/** The value of each follows it, and how often it may stand there. */
const PLAIN_FLAGS = { '--config': 'config', '--state-dir': 'stateDir', '--run-dir': 'runDir' } as const;

/** The flags of `run`, plainly written; `null` for everything else, which the command line reads and explains. */
export function readPlainRun(words: readonly string[], env: NodeJS.ProcessEnv): AskFlags | null {
	if (words[0] !== 'run' || words.length % 2 === 0 || env['IDV_AGENT_JSON'] !== undefined) return null;
	const flags: Record<string, string> = {};
	const set: string[] = [];
	for (let at = 1; at < words.length; at += 2) {
		const [flag = '', value = ''] = words.slice(at, at + 2);
		if (value.startsWith('-')) return null;
		if (flag === '--set') set.push(value);
		else if (Object.hasOwn(PLAIN_FLAGS, flag)) flags[PLAIN_FLAGS[flag as keyof typeof PLAIN_FLAGS]] = value;
		else return null;
	}
	return { ...flags, set };
}

const flags = readPlainRun(process.argv.slice(2), process.env);
if (flags) void import('./run.ts').then(({ runReported }) => runReported(process, flags));
else void import('./commands.ts').then(({ runAgentCommand }) => runAgentCommand(process));
