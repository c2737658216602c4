/**
 * A person at a real pseudo-terminal, by `script` of util-linux. The terminal echoes what is typed unless the command
 * switches that off, so what stays hidden is hidden by the command.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { BIN } from './command.ts';

/** Without it, tests at a terminal are skipped; Debian has it on every machine. */
export const hasTerminal = spawnSync('script', ['--version']).status === 0;

export interface Screen {
	readonly status: number | null;
	/** All that was on the screen. */
	readonly text: string;
}

/**
 * Runs a command at a terminal and answers each prompt as soon as its text is on the screen.
 * @param answers what to wait for, and what to type then.
 * @param columns how wide the terminal is; by default wider than any line, so that nothing is folded.
 */
export async function atTerminal(
	name: 'idv-agent' | 'idv',
	args: readonly string[],
	env: Readonly<Record<string, string>>,
	answers: readonly (readonly [prompt: string, typed: string])[] = [],
	columns = 400,
): Promise<Screen> {
	const command = [join(BIN, name), ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
	const { PATH = '', HOME = '' } = process.env;
	const child = spawn('script', ['-qec', `stty echo cols ${columns} && exec ${command}`, '/dev/null'], {
		env: { PATH, HOME, TERM: 'dumb', SHELL: '/bin/sh', ...env },
		stdio: ['pipe', 'pipe', 'inherit'],
	});
	let text = '';
	let from = 0;
	const waiting = [...answers];
	child.stdin.on('error', () => {});
	child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
		text += chunk;
		const [next] = waiting;
		const at = next ? text.indexOf(next[0], from) : -1;
		if (!next || at < 0) return;
		from = at + next[0].length;
		waiting.shift();
		child.stdin.write(next[1]);
	});
	const [status] = (await once(child, 'close')) as [number | null];
	return { status, text: text.replaceAll('\r\n', '\n') };
}
