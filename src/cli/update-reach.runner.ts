/** `idv-agent update reach`: whether this version could be online now. Registers and saves nothing. */
import { AgentError, asError } from '../base/errors.ts';
import { openRuntime } from '../connection/runtime.runner.ts';
import { becomeServiceUser, findInspectionTarget } from '../diagnosis/inspection-target.runner.ts';
import { tryChannel } from '../diagnosis/probe-channel.runner.ts';
import { loadSettings } from '../settings/load.runner.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { serviceOf } from '../workflow/desired-registration.ts';
import type { Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

/**
 * By a channel of its own where a Connection is saved: the judge of an update asks the version before, as the service's user.
 * @throws AgentError `unpaired`, or why no channel was opened, or none that answers.
 */
export async function reachService(shell: Shell): Promise<void> {
	const inspected = await findInspectionTarget({}, shell.env);
	becomeServiceUser(inspected);
	const loaded = await loadSettings(inspected);
	const { state } = await lookAtState(inspected.paths.stateDir);
	const baseUrl = serviceOf(loaded.settings, state) ?? state.connections.at(-1)?.baseUrl;
	if (baseUrl === undefined) throw new AgentError('unpaired', 'There is no service to reach.');
	const userAgent = `idv-agent/${VERSION}`;
	const runtime = await openRuntime(loaded, { userAgent, env: {} });
	try {
		const { handshake, answered, close } = await tryChannel(runtime, state, userAgent);
		const found = handshake.status === 'failed' ? handshake : await answered;
		await close();
		if (found.status === 'failed') throw new AgentError(found.code, found.message, found);
		// Without a Connection there is no channel to open: any answer of the host has to do.
		const failure = handshake.status === 'skipped' ? (await runtime.client.preflight(baseUrl)).failure : null;
		if (failure) throw asError(failure);
	} finally {
		await runtime.close();
	}
	shell.answer({ reached: true }, 'The service is reached.');
}
