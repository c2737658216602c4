/** Typed input: a line that stays hidden, a yes or no; or standard input in its place. Keeps none of it. */
import { readBounded } from '../base/bodies.edge.ts';
import { AgentError } from '../base/errors.ts';
import type { Shell } from './output.runner.ts';

/** All of standard input, cut where it is longer than anything that could be meant. @param maxLength in characters. */
export async function readStandardInput(shell: Shell, maxLength: number): Promise<string> {
	// Enough to know that it is too long; the rest is not read.
	const { bytes, cut } = await readBounded(shell.caller.stdin as AsyncIterable<Buffer>, 8 * maxLength);
	if (cut instanceof Error) throw cut;
	return bytes.toString('utf8').slice(0, maxLength + 1);
}

const ENTER = ['\r', '\n'];
const CTRL_C = '\u0003';
const CANCEL = [CTRL_C, '\u0004'];
const BACKSPACE = ['\u007f', '\b'];
const CLEAR_LINE = '\u0015';

/** One line from the terminal without showing it. @throws AgentError `usage` after Ctrl-C and Ctrl-D. */
export function promptHidden(shell: Shell, question: string, maxLength: number): Promise<string> {
	const { stdin, stderr } = shell.caller;
	// Hidden before it is asked for: a scanner may be quicker than the next line.
	stdin.setRawMode(true);
	stderr.write(question);
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
				if (ENTER.includes(key)) return finish(() => resolve(typed));
				if (CANCEL.includes(key)) return finish(() => reject(cancelled()));
				if (BACKSPACE.includes(key)) typed = typed.slice(0, -1);
				else if (key === CLEAR_LINE) typed = '';
				else if (typed.length <= maxLength) typed += key;
			}
		};
		stdin.on('data', onData);
		stdin.resume();
	});
}

/** Keeps the keys of a scanner off the screen, and from the shell, which would run and keep them, while something is under way. @param onCancel said after Ctrl-C. */
export async function withoutInput<Result>(shell: Shell, work: Promise<Result>, onCancel: string): Promise<Result> {
	const { stdin } = shell.caller;
	if (!stdin.isTTY) return work;
	const onData = (chunk: Buffer | string) => {
		if (!String(chunk).includes(CTRL_C)) return;
		stdin.setRawMode(false);
		shell.caller.stderr.write(`^C\n${onCancel}\n`);
		process.kill(process.pid, 'SIGINT');
	};
	stdin.setRawMode(true);
	stdin.on('data', onData).resume();
	return work.finally(() => {
		stdin.off('data', onData).pause();
		stdin.setRawMode(false);
	});
}

function cancelled(): AgentError {
	return new AgentError('usage', 'Cancelled; nothing was sent.', { remedy: 'Start again whenever you are ready.' });
}

/** A question that is answered by y or n. No terminal, or its end, is a no. */
export async function confirm(shell: Shell, question: string): Promise<boolean> {
	const answer = await ask(shell, `${question} [y/n] `, (line) => /^(y|yes|n|no)$/i.exec(line)?.[1] ?? null);
	return answer?.toLowerCase().startsWith('y') ?? false;
}

/** Asks until `read` makes something of a line. `null` without a terminal, and at its end. */
export async function ask(shell: Shell, question: string, read: (line: string) => string | null) {
	if (!shell.caller.stdin.isTTY) return null;
	const { createInterface } = await import('node:readline');
	const terminal = createInterface({ input: shell.caller.stdin, output: shell.caller.stderr, prompt: question });
	terminal.prompt();
	try {
		// An empty line decides nothing: scanners send a second line end after the code.
		for await (const line of terminal) {
			const answer = read(line.trim());
			if (answer !== null) return answer;
			terminal.prompt();
		}
		return null;
	} finally {
		terminal.close();
	}
}
