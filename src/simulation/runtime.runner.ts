/**
 * What simulated devices have in common: settings, network and credential, opened once for all of them. Reads no file of a
 * device that may be installed on this machine.
 */
import { AgentError } from '../base/errors.ts';
import { type OpenRuntime, openRuntime } from '../connection/runtime.runner.ts';
import { resolveWith } from '../settings/load.runner.ts';

export interface SimulatedRuntimeOptions {
	readonly version: string;
	/** `path=value`: any setting but those that tell one device from another. */
	readonly sets: readonly string[];
	/** The variables of the process, for proxies. */
	readonly env: Readonly<Record<string, string | undefined>>;
}

/** Would be the same for all devices, or keep them from being moved. */
const OF_ONE_DEVICE = ['deviceId', 'serial', 'macAddress', 'workflowId'] as const;

/** @throws AgentError `settings-invalid`, or `credential-unreadable` for a file that the settings name. */
export async function openSimulatedRuntime(options: SimulatedRuntimeOptions): Promise<OpenRuntime> {
	const resolved = resolveWith([], { env: {}, sets: options.sets });
	const [problem] = resolved.problems;
	if (problem) throw new AgentError(problem.code, problem.message, { remedy: 'Correct the flag.' });
	for (const path of OF_ONE_DEVICE)
		if (resolved.settings[path] !== null)
			throw new AgentError('settings-invalid', `--set ${path} would be the same for all simulated devices.`, {
				remedy: 'Leave it out: --prefix names the devices, --workflow says what they begin with.',
			});
	return openRuntime(resolved, {
		userAgent: `idv-agent/${options.version}`,
		env: options.env,
		// Nothing of a simulated device is logged: there is no line that a secret could stand in.
		registerSecret: () => {},
	});
}
