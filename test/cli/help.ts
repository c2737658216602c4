/** The commands of a program, as its own help tells of them. */
import { finish, type Outcome, type Program } from './command.ts';

export interface Help {
	/** `workflow set`. */
	readonly path: readonly string[];
	readonly outcome: Outcome;
	/** Commands under it. */
	readonly names: readonly string[];
}

/** The help of a command and of all commands under it. */
export async function readHelp(
	name: Program,
	path: readonly string[] = [],
	env: Readonly<Record<string, string>> = {},
): Promise<Help[]> {
	const outcome = await finish(name, [...path, '--help'], env);
	const list = outcome.stdout.split('\nCommands:\n')[1]?.split('\n\n')[0] ?? '';
	const names = [...list.matchAll(/^ {2}(\w[\w-]*)/gm)]
		.map((match) => match[1] ?? '')
		.filter((word) => word !== 'help');
	const below = await Promise.all(names.map((word) => readHelp(name, [...path, word], env)));
	return [{ path, outcome, names }, ...below.flat()];
}
