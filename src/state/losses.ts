/** Failures of a state file that is damaged, removed or not to be touched. Pure. */
import { AgentError, type Failure, failure } from '../base/errors.ts';
import type { Copy } from './copies.ts';

/** Neither copy is whole. @param isAside whether what was there is kept beside it. */
export function lost(file: string, how: string, isAside: boolean): Failure {
	const message = `The state file ${file} ${how} and there is no whole copy of it: this device starts unpaired.`;
	const remedy = isAside ? {} : { remedy: 'Pair again unless the agent is online.' };
	return failure('state-corrupt', message, { ...remedy, params: { path: file, wholeCopies: 0 } });
}

export const healed = (file: string, told: string, isStranger: boolean) =>
	failure('state-corrupt', `The state file ${file} ${told}; the other copy is used.`, {
		remedy: isStranger
			? 'Check that the device has the service and workflow that it should have: one of its two state files was put there. The one that is not used is kept beside it.'
			: 'Nothing of the state is lost: the agent writes it again. If it happens again, replace the disk or SD card of this device.',
		params: { path: file, wholeCopies: 1 },
	});

export function refusal(file: string, copy: Extract<Copy, { kind: 'unreadable' }>): AgentError {
	if (!copy.newerVersion)
		return new AgentError('state-unreadable', `The state file ${file} cannot be read: ${copy.reason}.`);
	return new AgentError('state-unreadable', `The state file ${file} was written by a newer version of the agent.`, {
		remedy: 'Install that version again, or move the file away and pair this device again; nothing was changed.',
	});
}
