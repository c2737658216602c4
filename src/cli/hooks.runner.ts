/** `idv-agent hooks`: follows the agent and runs the site's commands, until no hook is set or a signal comes. */
import { createLog } from '../base/log.edge.ts';
import { followHooks } from '../hooks/hooks.runner.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { type AskFlags, sourcesOf } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';

export async function runHooks(shell: Shell, flags: AskFlags): Promise<void> {
	const sources = sourcesOf(shell, flags);
	const log = createLog();
	let last: LoadedSettings | null = null;
	const settings = async () => {
		// As the agent does: what is broken gives way to what was there before.
		last = await loadSettings(sources, last && { loaded: last });
		const [problem] = last.problems;
		if (problem) log.warn(problem.message);
		return last.settings.hooks;
	};
	const { promise: over, resolve: end } = Promise.withResolvers<void>();
	for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => end());
	// The daemon that has started this one is gone.
	process.once('disconnect', () => end());
	const hooks = followHooks({ runDir: sources.paths.runDir, log, settings, env: shell.env, onNone: end });
	await over;
	await hooks.close();
	process.exit(0);
}
