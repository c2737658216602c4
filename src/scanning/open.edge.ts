/** Opens a scanner of either kind, or standard input in place of one. */
import { failure } from '../base/errors.ts';
import type { ScannerFacts } from './choose-scanner.ts';
import { openKeyboardScanner } from './keyboard.edge.ts';
import type { OpenScanner, ScannerListener } from './scanner.ts';
import { openSerialScanner, type SerialOptions } from './serial.edge.ts';

/** @throws AgentError `scanner-failed` or `scanner-denied`. */
export function openScanner(
	{ kind, path }: Pick<ScannerFacts, 'kind' | 'path'>,
	options: SerialOptions,
	listener: ScannerListener,
): Promise<OpenScanner> {
	return kind === 'serial' ? openSerialScanner(path, options, listener) : openKeyboardScanner(path, listener);
}

/** Standard input, read as a scanner's characters: for `idv-agent scanner test -`. Ends with its input. */
export function openStandardInput(listener: ScannerListener, input: NodeJS.ReadableStream): OpenScanner {
	const decoder = new TextDecoder();
	const onData = (bytes: Uint8Array | string) =>
		listener.characters(typeof bytes === 'string' ? bytes : decoder.decode(bytes, { stream: true }));
	const onEnd = () => {
		forget();
		listener.ended(failure('scanner-failed', 'Standard input has ended.', { remedy: 'Nothing to do.' }));
	};
	const forget = () => {
		input.off('data', onData);
		input.off('end', onEnd);
		input.pause();
	};
	input.on('data', onData);
	input.on('end', onEnd);
	return { close: async () => forget() };
}
