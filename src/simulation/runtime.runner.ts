/** The parts that simulated devices share, opened once for all. Never reads a file of a device installed here. */
import { AgentError } from '../base/errors.ts';
import { type OpenRuntime, openRuntime } from '../connection/runtime.runner.ts';
import { resolveWith, type SettingsSources } from '../settings/load.runner.ts';

/** Settings that would make all devices the same, or prevent a move. */
const OF_ONE_DEVICE = ['deviceId', 'serial', 'macAddress', 'workflowId'] as const;

/** @param sets any setting but those that tell devices apart. @throws AgentError `settings-invalid` and the like. */
export async function openSimulatedRuntime({
	version,
	sets,
	env,
}: Pick<SettingsSources, 'sets' | 'env'> & { readonly version: string }): Promise<OpenRuntime> {
	const resolved = resolveWith([], { env: {}, sets });
	const [problem] = resolved.problems;
	if (problem) throw new AgentError(problem.code, problem.message, { remedy: 'Correct the flag.' });
	for (const path of OF_ONE_DEVICE)
		if (resolved.settings[path] !== null)
			throw new AgentError('settings-invalid', `--set ${path} would be the same for all simulated devices.`, {
				remedy: 'Leave it out: --prefix names the devices, --workflow names their first workflow.',
			});
	return openRuntime(resolved, { userAgent: `idv-agent/${version}`, env });
}
