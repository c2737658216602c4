/** What a shell reads as completions, made of the words of `--help`. */
import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import type { CommandHelp } from '../../scripts/command-tree.ts';
import { writeBashCompletion, writeZshCompletion } from '../../scripts/completions.ts';

const NONE = { usage: '', arguments: [], options: [], commands: [], notes: [] };
const PROGRAM: CommandHelp = {
	...{ ...NONE, name: 'idv-agent', about: 'An agent.' },
	commands: [{ ...NONE, name: 'idv-agent erase', about: "Erase a person's events: $HOME, `id`." }],
};

// No shell but bash is on every machine; these parts of zsh it reads as well.
test.each([
	['bash', writeBashCompletion],
	['zsh', writeZshCompletion],
])('an apostrophe in a help text leaves the completion for %s whole', (_shell, write) => {
	const { status, stderr } = spawnSync('bash', ['-n'], { input: write(PROGRAM), encoding: 'utf8' });
	expect([status, stderr]).toEqual([0, '']);
});
