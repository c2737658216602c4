/** Opens a scanner of either kind. */
import type { ScannerFacts } from '../../core/scanner-choice.ts';
import type { OpenScanner, ScannerListener } from './contract.ts';
import { openKeyboardScanner } from './keyboard.ts';
import { openSerialScanner, type SerialOptions } from './serial.ts';

/** @throws AgentError `scanner-failed` or `scanner-denied`. */
export function openScanner(
	{ kind, path }: Pick<ScannerFacts, 'kind' | 'path'>,
	options: SerialOptions,
	listener: ScannerListener,
): Promise<OpenScanner> {
	return kind === 'serial' ? openSerialScanner(path, options, listener) : openKeyboardScanner(path, listener);
}
