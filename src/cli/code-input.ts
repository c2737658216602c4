/**
 * Where a pairing code comes from on a command line: a hidden prompt, standard input or a picture. Never an argument:
 * arguments are seen by every user of the machine and kept in shell histories.
 */
import { AgentError } from '../base/errors.ts';
import { MAX_CODE_LENGTH } from '../protocol/pairing-code.ts';
import { promptHidden, readStandardInput } from './prompts.ts';

export interface CodeSource {
	/** The arguments: `-` for standard input, or none. */
	readonly from: readonly string[];
	readonly image?: string | undefined;
}

/** Refuses what cannot be a source before a code is asked for. @throws AgentError `usage`. */
export function checkCodeSource({ from, image }: CodeSource): void {
	if (from.some((word) => word !== '-'))
		throw new AgentError('usage', 'A code is never given as an argument: other users can read it there.', {
			remedy: 'Type it at the prompt, or pipe it in with "idv-agent pair -". Ask for a new code: this one was seen.',
		});
	if (from.length > 0 && image !== undefined)
		throw new AgentError('usage', 'Both standard input and a picture were named.', { remedy: 'Use one of them.' });
	if (from.length === 0 && image === undefined && !process.stdin.isTTY)
		throw new AgentError('usage', 'There is no terminal to type the code at.', {
			remedy: 'Pipe the code in with "idv-agent pair -", or name a picture with --image.',
		});
}

/** @throws AgentError `usage`, or what {@link readSingleCode} throws. */
export async function readCode(source: CodeSource): Promise<string> {
	checkCodeSource(source);
	if (source.image !== undefined) {
		const { readSingleCode } = await import('../scanning/picture-reader.edge.ts');
		return readSingleCode(source.image);
	}
	return source.from.length > 0
		? readStandardInput(MAX_CODE_LENGTH)
		: promptHidden('Scan or type the pairing code (it stays hidden), then Enter: ', MAX_CODE_LENGTH);
}
