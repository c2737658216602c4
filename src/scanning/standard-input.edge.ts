/** Standard input, read as a scanner's characters: for `idv-agent scanner test -`. Ends with its input. */
import { failure } from '../base/errors.ts';
import type { OpenScanner, ScannerListener } from './scanner-types.ts';

export function openStandardInput(
	listener: ScannerListener,
	input: NodeJS.ReadableStream = process.stdin,
): OpenScanner {
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
