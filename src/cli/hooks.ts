/** `idv-agent hooks`: follows the agent and runs the site's commands, until no hook is set or a signal comes. */
import { createLog } from '../base/log.edge.ts';
import { createSecretRegistry } from '../base/redact.ts';
import { followHooks } from '../hooks/hooks.runner.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import type { AskFlags } from './local-agent.ts';
import type { Shell } from './output.ts';

export async function runHooks(shell: Shell, flags: AskFlags): Promise<void> {
	const paths = choosePaths(flags, shell.env);
	const sources = { paths, env: shell.env, sets: flags.set ?? [] };
	const log = createLog({ secrets: createSecretRegistry() });
	let valid: LoadedSettings | null = null;
	const settings = async () => {
		const loaded = await loadSettings(sources);
		// As the agent does: broken settings change nothing.
		const [problem] = loaded.problems;
		if (problem) log.warn(problem.message);
		else valid = loaded;
		return (valid ?? loaded).settings.hooks;
	};
	const { promise: over, resolve: end } = Promise.withResolvers<void>();
	for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => end());
	// The daemon that has started this one is gone.
	process.once('disconnect', () => end());
	const hooks = followHooks({ runDir: paths.runDir, log, settings, env: shell.env, onNone: end });
	await over;
	await hooks.close();
	process.exit(0);
}
