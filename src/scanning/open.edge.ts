/** Opens a scanner of either kind. */
import type { ScannerFacts } from './choose-scanner.ts';
import { openKeyboardScanner } from './keyboard.edge.ts';
import type { OpenScanner, ScannerListener } from './scanner-types.ts';
import { openSerialScanner, type SerialOptions } from './serial.edge.ts';

/** @throws AgentError `scanner-failed` or `scanner-denied`. */
export function openScanner(
	{ kind, path }: Pick<ScannerFacts, 'kind' | 'path'>,
	options: SerialOptions,
	listener: ScannerListener,
): Promise<OpenScanner> {
	return kind === 'serial' ? openSerialScanner(path, options, listener) : openKeyboardScanner(path, listener);
}
