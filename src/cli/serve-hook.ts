/** `idv-agent hook-helper`: runs one hook for the agent. `idv-agent-hooks@.service` starts it with a connection as its standard input. */
import { fstatSync } from 'node:fs';
import { Socket } from 'node:net';
import { AgentError } from '../base/errors.ts';
import { serveHook } from '../hooks/serve.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import type { AskFlags } from './local-agent.ts';
import type { Shell } from './output.ts';

export async function helpWithHook(shell: Shell, flags: AskFlags): Promise<void> {
	if (!fstatSync(0).isSocket())
		throw new AgentError('usage', 'Standard input is not a socket: systemd starts this command, for a hook.', {
			remedy: 'Link hook-helper.conf of /usr/lib/idv-agent/drop-ins, and set hooks.* in the settings.',
		});
	await serveHook({ stream: new Socket({ fd: 0 }), paths: choosePaths(flags, shell.env), env: shell.env });
}
