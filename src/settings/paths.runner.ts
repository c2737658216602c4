/** Where the agent's files are, by flag, variable, systemd or default. Touches none of them. */
import { dirname, join, resolve } from 'node:path';

export interface AgentPaths {
	readonly configFile: string;
	/** Whether a person named the file: then it has to exist. */
	readonly configFileIsExplicit: boolean;
	readonly confDirectory: string;
	/** The agent's own directory: 0700. */
	readonly stateDir: string;
	readonly runDir: string;
	/** Where systemd puts credentials, if it runs the agent. */
	readonly credentialsDirectory: string | null;
}

export interface PathFlags {
	readonly config?: string | undefined;
	readonly stateDir?: string | undefined;
	readonly runDir?: string | undefined;
}

/** Flags before `IDV_AGENT_…` variables before what systemd says before the defaults. */
export function choosePaths(flags: PathFlags, env: Readonly<Record<string, string | undefined>>): AgentPaths {
	const named = flags.config ?? env['IDV_AGENT_CONFIG'];
	const configFile = resolve(named ?? '/etc/idv-agent/config.json');
	// systemd may name several directories; the first is the unit's own.
	const first = (list: string | undefined) => list?.split(':')[0] || undefined;
	const stateDir = flags.stateDir ?? env['IDV_AGENT_STATE_DIR'] ?? first(env['STATE_DIRECTORY']);
	const runDir = flags.runDir ?? env['IDV_AGENT_RUN_DIR'] ?? first(env['RUNTIME_DIRECTORY']);
	return {
		configFile,
		configFileIsExplicit: named !== undefined,
		confDirectory: join(dirname(configFile), 'conf.d'),
		stateDir: resolve(stateDir ?? '/var/lib/idv-agent'),
		runDir: resolve(runDir ?? '/run/idv-agent'),
		credentialsDirectory: env['CREDENTIALS_DIRECTORY'] ?? null,
	};
}
