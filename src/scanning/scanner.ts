/** One scanner, of whatever kind: its interface to its listener, and why it cannot be read, in words for a technician. */
import { AgentError, type Failure, failure } from '../base/errors.ts';

export interface ScannerListener {
	/** The characters that the scanner sent, in order; `scanning/lines.ts` finds the end of a code. */
	characters(text: string): void;
	/** It is gone: pulled out, or it failed. Called at most once, and not after {@link OpenScanner.close}. */
	ended(reason: Failure): void;
}

export interface OpenScanner {
	/** Lets the device go for other programs. May be called at any time, and twice. */
	close(): Promise<void>;
}

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

export function scannerGone(path: string): Failure {
	return failure('scanner-failed', `The scanner at ${path} was unplugged.`);
}
