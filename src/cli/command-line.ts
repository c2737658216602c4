/**
 * The shared parsing of command lines of `idv-agent` and `idv`: help that teaches, usage errors on one line, values
 * that are checked. Knows no command of either.
 */
import { Command, CommanderError, Help, type Option } from 'commander';
import { AgentError, EXIT, failure, toFailure } from '../base/errors.ts';
import { nearestName } from '../settings/resolve.ts';
import { type OutputFlags, printText, reportFailure, runCommand } from './output.ts';
import { VERSION } from './version.ts';

/** A program whose commands say nothing of their own about mistakes: {@link runProgram} does. */
export function createProgram(name: string, description: string): Command {
	return new Command(name)
		.description(description)
		.version(VERSION, '-V, --version', 'show the version')
		.helpOption('-h, --help', 'show this help')
		.helpCommand('help [command]', 'show the help of a command')
		.exitOverride()
		.configureOutput({ writeOut: printText, outputError: () => {} })
		.configureHelp({ visibleOptions });
}

/** One list: a command's own options, then what every command takes. */
function visibleOptions(this: Help, command: Command): Option[] {
	const own = Help.prototype.visibleOptions.call(this, command);
	if (!command.parent) return own;
	const common = rootOf(command).options.filter((option) => option.attributeName() !== 'version');
	return [...own, ...common];
}

function rootOf(command: Command): Command {
	return command.parent ? rootOf(command.parent) : command;
}

/** Lines of a command and what it is for, under its help. */
export function withExamples(
	command: Command,
	...examples: readonly (readonly [line: string, about: string])[]
): Command {
	const width = Math.max(...examples.map(([line]) => line.length));
	const lines = examples.map(([line, about]) => `  ${line.padEnd(width)}  ${about}`.trimEnd());
	return command.addHelpText('after', `\nExamples:\n${lines.join('\n')}`);
}

/** Has a command run with its flags and the common ones, then its arguments; what it throws is reported. */
export function onCommand<Flags extends OutputFlags>(
	command: Command,
	run: (flags: Flags, ...given: string[]) => Promise<void>,
): Command {
	return command.action((...all: unknown[]) => {
		const given = all.slice(0, -2) as string[];
		const flags = (all.at(-1) as Command).optsWithGlobals<Flags>();
		const settled = { ...flags, json: flags.json ?? isJsonSet(command) };
		return runCommand(settled, () => run(settled, ...given));
	});
}

/** `IDV_AGENT_JSON=1` and `IDV_JSON=1` are the same as the flag. */
function isJsonSet(command: Command): boolean {
	const name = `${rootOf(command).name().toUpperCase().replace('-', '_')}_JSON`;
	return /^(1|true|yes)$/i.test(process.env[name] ?? '');
}

/** Parses the arguments of this process and runs what they ask for. */
export async function runProgram(program: Command): Promise<void> {
	const words = process.argv.slice(2);
	const json = words.includes('--json') || isJsonSet(program);
	try {
		refuseUnknownHelp(program, words);
		await program.parseAsync();
	} catch (error) {
		if (!(error instanceof CommanderError)) return reportFailure(toFailure(error), { json });
		// Help and version have been shown.
		if (error.exitCode === 0) return;
		process.exitCode = EXIT.usage;
		if (error.code === 'commander.help') return;
		const help = `See "${[program.name(), ...namedIn(program, words), '--help'].join(' ')}".`;
		const { message, suggestion } = plainWords(error);
		reportFailure(failure('usage', message, { remedy: suggestion ? `${suggestion} ${help}` : help }), { json });
	}
}

/** commander shows the whole help for a command that is not there, without a word about it. @throws AgentError `usage`. */
function refuseUnknownHelp(program: Command, words: readonly string[]): void {
	let command = program;
	for (const [at, word] of words.entries()) {
		const asked = words[at + 1];
		if (
			word === 'help' &&
			asked !== undefined &&
			!asked.startsWith('-') &&
			!command.commands.some((known) => known.name() === asked)
		) {
			const nearest = nearestName(
				asked,
				command.commands.map((known) => known.name()),
			);
			const help = `See "${[program.name(), ...namedIn(program, words.slice(0, at)), '--help'].join(' ')}".`;
			throw new AgentError('usage', `Unknown command ${JSON.stringify(asked.slice(0, 40))}.`, {
				remedy: nearest ? `Did you mean ${nearest}? ${help}` : help,
			});
		}
		const next = command.commands.find((known) => known.name() === word);
		if (!next) return;
		command = next;
	}
}

/** The words that name a command. */
function namedIn(program: Command, words: readonly string[]): string[] {
	const named: string[] = [];
	let command = program;
	for (const word of words) {
		const next = command.commands.find((known) => known.name() === word);
		if (next) {
			named.push(word);
			command = next;
		}
	}
	return named;
}

/** commander's own message without the typed words: a code may be among them. */
function plainWords(error: CommanderError): { message: string; suggestion: string } {
	const [first = '', hint = ''] = error.message.replace(/^error: /, '').split('\n');
	const message =
		error.code === 'commander.excessArguments'
			? first.replace(/ but got \d+:.*$/s, '')
			: error.code === 'commander.unknownOption'
				? first.replace(/=.*'$/s, "'").replace(/ '(?!-[a-z]'$|--[a-z-]{1,40}'$).*$/is, '')
				: first;
	const suggestion = /^\((.*)\)$/.exec(hint)?.[1] ?? '';
	return { message: `${message.charAt(0).toUpperCase()}${message.slice(1).replace(/\.$/, '')}.`, suggestion };
}

/** For flags that may be repeated. */
export function collect(value: string, before: readonly string[] = []): string[] {
	return [...before, value];
}

/** For flags that take a whole number. @throws AgentError `usage` naming the flag and the range. */
export function wholeNumber(flag: string, min: number, max: number): (text: string) => number {
	return (text) => {
		const value = Number(text);
		if (/^\d+$/.test(text) && value >= min && value <= max) return value;
		throw new AgentError('usage', `${flag} must be a whole number from ${min} to ${max}.`, {
			remedy: 'Correct the number.',
		});
	};
}
