/** Why a scanner cannot be read, in words that a technician can act on. */
import { AgentError, type Failure, failure } from '../base/errors.ts';

/** Why a device could not be opened. */
export function refusedOpen(path: string, error: unknown): AgentError {
	const reason = error instanceof Error ? error.message : String(error);
	const code = (error as NodeJS.ErrnoException | null)?.code ?? '';
	if (/EACCES|EPERM|permission denied|not permitted/i.test(`${code} ${reason}`))
		return new AgentError('scanner-denied', `The agent may not read ${path}.`, { cause: error });
	if (/EBUSY|cannot lock|resource.*(busy|unavailable)/i.test(`${code} ${reason}`))
		return new AgentError('scanner-failed', `${path} is in use by another program.`, {
			remedy: 'End the other program (ModemManager, for one), or name another device in scanner.device.',
			cause: error,
		});
	if (/ENOENT|ENODEV|ENXIO|no such/i.test(`${code} ${reason}`))
		return new AgentError('scanner-failed', `${path} is not there any more.`, { cause: error });
	return new AgentError('scanner-failed', `${path} can't be opened (${code || reason.slice(0, 100)}).`, {
		cause: error,
	});
}

/** The device disappeared. */
export function scannerGone(path: string): Failure {
	return failure('scanner-failed', `The scanner at ${path} was unplugged.`);
}
