/**
 * Where a pairing code comes from on a command line: a hidden prompt, standard input or a picture. Never an argument:
 * arguments are seen by every user of the machine and kept in shell histories.
 */
import { AgentError } from '../core/errors.ts';
import { MAX_CODE_LENGTH } from '../protocol/pairing-code.ts';

export interface CodeSource {
	/** `-` for standard input. */
	readonly from?: string | undefined;
	readonly image?: string | undefined;
}

export async function readCode({ from, image }: CodeSource): Promise<string> {
	if (from !== undefined && from !== '-')
		throw new AgentError('usage', 'A code is never given as an argument: other users could read it there.', {
			remedy: 'Type it at the prompt, or pipe it in with "pair -". Take this one as seen by others.',
		});
	if (from === '-' && image !== undefined)
		throw new AgentError('usage', 'Both standard input and a picture were named.', { remedy: 'Use one of them.' });
	if (image !== undefined) {
		const { readSingleCode } = await import('../edges/picture-reader.ts');
		return readSingleCode(image);
	}
	if (from === '-') return readStandardInput();
	if (process.stdin.isTTY) return promptHidden('Scan or type the pairing code (it stays hidden), then Enter: ');
	throw new AgentError('usage', 'There is no terminal to type the code at.', {
		remedy: 'Pipe the code in with "pair -", or name a picture with --image.',
	});
}

async function readStandardInput(): Promise<string> {
	const chunks: Buffer[] = [];
	let length = 0;
	for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
		chunks.push(chunk);
		length += chunk.length;
		// Enough to know that it is too long; the rest is nobody's business.
		if (length > 8 * MAX_CODE_LENGTH) break;
	}
	return Buffer.concat(chunks)
		.toString('utf8')
		.slice(0, MAX_CODE_LENGTH + 1);
}

/** Reads one line from the terminal without showing it. */
function promptHidden(question: string): Promise<string> {
	const { stdin, stderr } = process;
	stderr.write(question);
	stdin.setRawMode(true);
	stdin.setEncoding('utf8');
	return new Promise((resolve, reject) => {
		let typed = '';
		const finish = (outcome: () => void) => {
			stdin.off('data', onData);
			stdin.setRawMode(false);
			stdin.pause();
			stderr.write('\n');
			outcome();
		};
		const onData = (chunk: string) => {
			for (const key of chunk) {
				if (key === '\r' || key === '\n') {
					finish(() => resolve(typed));
					return;
				}
				if (key === '\u0003' || key === '\u0004') {
					finish(() =>
						reject(
							new AgentError('usage', 'Cancelled; nothing was sent.', {
								remedy: 'Start again when the code is at hand.',
							}),
						),
					);
					return;
				}
				if (key === '\u007f' || key === '\b') typed = typed.slice(0, -1);
				else if (typed.length <= MAX_CODE_LENGTH) typed += key;
			}
		};
		stdin.on('data', onData);
		stdin.resume();
	});
}

/** Asks a question that is answered by y or n; no terminal is a no. */
export async function confirm(question: string): Promise<boolean> {
	if (!process.stdin.isTTY) return false;
	const { createInterface } = await import('node:readline/promises');
	const terminal = createInterface({ input: process.stdin, output: process.stderr });
	try {
		return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim());
	} finally {
		terminal.close();
	}
}
