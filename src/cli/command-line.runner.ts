/** The shared parsing of command lines of `idv-agent` and `idv`: help that teaches, usage errors on one line. */
import { Command, CommanderError, Help, type Option } from 'commander';
import { AgentError, EXIT, failure, toFailure } from '../base/errors.ts';
import { nearestName } from '../settings/resolve.ts';
import type { Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

/** Its caller, its flags with the common ones, then its arguments. */
type Run = (shell: Shell, flags: never, ...given: never[]) => Promise<void>;

/** Commands by their names: each function makes its own, from what it is for. */
export type Subcommands = Readonly<Record<string, (command: (about: string) => LazyCommand) => LazyCommand>>;

/** A command with examples under its help, whose code is loaded when it is called. */
export class LazyCommand extends Command {
	readonly shell: Shell;

	constructor(shell: Shell, name = '') {
		super(name);
		this.shell = shell;
	}

	override createCommand(name?: string): LazyCommand {
		return new LazyCommand(this.shell, name);
	}

	/** commander takes the last value of a flag that stands twice, and a person may mean both. A unit that appends one starts its device as before. */
	override addOption(option: Option): this {
		super.addOption(option);
		const takesOne = (option.required || option.optional) && !option.variadic && option.parseArg !== collect;
		if (!takesOne) return this;
		let isGiven = false;
		return this.on(`option:${option.name()}`, () => {
			if (isGiven && this.name() !== 'run')
				throw new AgentError('usage', `${option.long} is given twice, and takes one value.`, {
					remedy: 'Give it only once, with the right value.',
				});
			isGiven = true;
		});
	}

	subcommands(table: Subcommands): this {
		for (const [name, make] of Object.entries(table)) make((about) => this.command(name).description(about));
		return this;
	}

	number(flags: string, about: string, [min, max]: readonly [min: number, max: number], fallback?: number): this {
		return this.option(flags, about, wholeNumber(flags.split(' ', 1).join(), min, max), fallback);
	}

	/** A flag that takes a time: whole seconds, or with a unit as in 90s, 15m, 12h, 30d or 4w. */
	duration(flags: string, about: string, [min, max]: readonly [min: number, max: number]): this {
		return this.option(flags, about, seconds(flags.split(' ', 1).join(), min, max));
	}

	/** Options that several commands share. */
	with(add: (command: this) => unknown): this {
		add(this);
		return this;
	}

	/** @param lines command lines, each with what it is for. */
	examples(lines: Readonly<Record<string, string>>): this {
		const width = Math.max(...Object.keys(lines).map((line) => line.length));
		const rows = Object.entries(lines).map(([line, about]) => `  ${line.padEnd(width)}  ${about}`.trimEnd());
		return this.addHelpText('after', `\nExamples:\n${rows.join('\n')}`);
	}

	/** What the loaded function throws is reported. */
	runs(load: () => Promise<Run>): this {
		return this.action((...all: unknown[]) => {
			const { json = isJsonSet(this), ...flags } = this.optsWithGlobals<{ json?: boolean }>();
			this.shell.isJson = json;
			return this.shell.run(async () => {
				const run = (await load()) as (shell: Shell, flags: object, ...given: unknown[]) => Promise<void>;
				await run(this.shell, flags, ...all.slice(0, -2));
			});
		});
	}
}

export const EXIT_STATUSES = `
Exit status: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 internal fault, 74 I/O,
  75 try again, 77 refused, 78 settings.`;

/** A program whose commands say nothing of their own about mistakes: {@link runProgram} does. */
export function createProgram(shell: Shell, name: string, description: string): LazyCommand {
	const { stdout } = shell.caller;
	const columns = () => (stdout.isTTY && stdout.columns) || Number(shell.env['COLUMNS']) || 0;
	return new LazyCommand(shell, name)
		.description(description)
		.version(VERSION, '-V, --version', 'show the version')
		.helpOption('-h, --help', 'show this help')
		.helpCommand('help [command]', 'show the help of a command')
		.exitOverride()
		.configureOutput({
			getOutHelpWidth: () => columns() || 80,
			writeOut: (text) => shell.text(folded(text, columns() || Number.POSITIVE_INFINITY)),
			writeErr: (text) => shell.caller.stderr.write(text),
			outputError: () => {},
		})
		.configureHelp({ visibleOptions, minWidthToWrap: 20 });
}

/** Longer lines go on in the next one, four further in: at the gap between two columns if there is one, else at a space. */
function folded(text: string, width: number): string {
	const fold = (line: string): string => {
		if (line.length <= width) return line;
		const indent = /^ */.exec(line)?.[0].length ?? 0;
		const gap = line.search(/(?<=\S) {2,}(?=\S)/);
		const at = gap > indent && gap <= width ? gap : line.lastIndexOf(' ', width);
		if (at <= indent) return line;
		return `${line.slice(0, at).trimEnd()}\n${fold(' '.repeat(indent + 4) + line.slice(at).trimStart())}`;
	};
	return text.split('\n').map(fold).join('\n');
}

/** The program `idv-agent`, or the part of it that is a program of its own: what all of its commands take. */
export function createAgentProgram(shell: Shell, name: string): LazyCommand {
	return createProgram(
		shell,
		name,
		'Keeps this device registered with the identity verification service and passes session notifications on.',
	)
		.option('--config <file>', 'settings file (IDV_AGENT_CONFIG; default /etc/idv-agent/config.json)')
		.option('--state-dir <dir>', "directory of the agent's state (IDV_AGENT_STATE_DIR; default /var/lib/idv-agent)")
		.option('--run-dir <dir>', 'directory of its sockets (IDV_AGENT_RUN_DIR; default /run/idv-agent)')
		.option('--json', 'answer in JSON (IDV_AGENT_JSON=1)');
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

/** `IDV_AGENT_JSON=1` and `IDV_JSON=1` are the same as the flag. */
function isJsonSet(command: LazyCommand): boolean {
	const name = rootOf(command).name() === 'idv' ? 'IDV_JSON' : 'IDV_AGENT_JSON';
	return /^(1|true|yes)$/i.test(command.shell.env[name] ?? '');
}

/** Parses the words of the caller and runs what they ask for. */
export async function runProgram(program: LazyCommand): Promise<void> {
	const { shell } = program;
	const words = shell.caller.argv.slice(2);
	shell.isJson = words.includes('--json') || isJsonSet(program);
	try {
		refuseUnknownHelp(program, words);
		await program.parseAsync(words, { from: 'user' });
	} catch (error) {
		if (!(error instanceof CommanderError)) return shell.fail(toFailure(error));
		// Help and version have been shown.
		if (error.exitCode === 0) return;
		shell.caller.exitCode = EXIT.usage;
		if (error.code === 'commander.help') return;
		const { message, suggestion } = plainWords(error, program, words);
		shell.fail(failure('usage', message, { remedy: suggestion + seeHelp(program, words) }));
	}
}

/** commander shows a whole help for a command that is not there, without a word about it. @throws AgentError `usage`. */
function refuseUnknownHelp(program: Command, words: readonly string[]): void {
	const flag = words.findIndex((word) => word.startsWith('-'));
	const typed = words.slice(0, flag === -1 ? words.length : flag);
	const at = typed.indexOf('help');
	const wantsHelp = at !== -1 || words.some((word) => word === '--help' || word === '-h');
	if (!wantsHelp) return;
	let command = program;
	for (const [index, word] of typed.filter((_, place) => place !== at).entries()) {
		const next = commandOf(command, word);
		if (!next && command.commands.length === 0) {
			// Behind --help these are the arguments of a command; behind help nothing but commands can be meant.
			if (at === -1 || index < at) return;
		}
		if (!next) {
			const names = command.commands.map((known) => known.name());
			const nearest = meantBy(word, command) ?? nearestName(word, names);
			throw new AgentError('usage', `Unknown command ${JSON.stringify(word.slice(0, 40))}.`, {
				remedy: (nearest ? `Did you mean ${nearest}? ` : '') + seeHelp(program, typed),
			});
		}
		command = next;
	}
}

function commandOf(parent: Command, word: string): Command | undefined {
	return parent.commands.find((known) => known.name() === word);
}

function seeHelp(program: Command, words: readonly string[]): string {
	const named = [program.name()];
	let command = program;
	for (const word of words) {
		const next = commandOf(command, word);
		if (next) named.push(word);
		command = next ?? command;
	}
	return `See "${named.join(' ')} --help".`;
}

/** Words that people try, and the command that does what they look for. */
const MEANT: Readonly<Record<string, string>> = {
	...{ log: 'history', logs: 'history', bundle: 'support-bundle', support: 'support-bundle' },
	...{ info: 'status', health: 'status', retry: 'reconnect', reset: 'unpair', forget: 'unpair' },
	...{ journal: 'history', code: 'pair', token: 'pair', qr: 'pair', qrcode: 'pair' },
	...{ scan: 'pair', register: 'pair', login: 'pair', settings: 'config', set: 'show', get: 'show', list: 'show' },
	...{ check: 'doctor', test: 'doctor', diag: 'doctor', diagnose: 'doctor' },
	...{ diagnosis: 'doctor', diagnostics: 'doctor' },
};

/** Of idv-agent: what systemd does with its unit, and the program itself does not. */
const UNIT_VERBS: readonly string[] = ['start', 'stop', 'restart', 'reload', 'enable', 'disable'];

/** Of idv, which pairs nothing itself. */
const MEANT_OF_OPERATORS: typeof MEANT = {
	...{ pair: 'qrcode', scan: 'qrcode', register: 'qrcode', code: 'qrcode', qr: 'qrcode', token: 'qrcode' },
	...{ settings: 'profile', login: 'profile' },
};

/** Commands that are tried with either program, and that only the other one has. */
const OF_OTHER: Readonly<Record<string, { readonly program: string; readonly names: readonly string[] }>> = {
	idv: {
		program: 'idv-agent',
		names: [
			...['status', 'doctor', 'history', 'events', 'support-bundle', 'unpair', 'reconnect', 'identity'],
			...['scanner', 'plan', 'run', 'update'],
		],
	},
	'idv-agent': { program: 'idv', names: ['probe', 'fleet', 'device', 'session', 'apikey', 'profile', 'whoami'] },
};

function meantBy(word: string, parent: Command): string | null {
	const typed = word.toLowerCase();
	const own = parent.name() === 'idv' ? { ...MEANT, ...MEANT_OF_OPERATORS } : MEANT;
	// A slip in such a word as well; a word behind a command may be a name.
	// A slip in a short one is another word: "setup" is not "stop".
	const verbs = UNIT_VERBS.filter((verb) => parent.name() === 'idv-agent' && (verb.length > 4 || verb === typed));
	const names = [...parent.commands.map((known) => known.name()), ...Object.keys(own), ...verbs, 'version'];
	const near = (parent.parent ? null : nearestName(typed, names)) ?? '';
	if (verbs.includes(near)) return `systemctl ${near} idv-agent`;
	if (near === 'version' && !commandOf(parent, near)) return `${parent.name()} --version`;
	const meant = [typed, ...[typed, near].map((name) => (Object.hasOwn(own, name) ? own[name] : name))].find(
		(name) => name !== undefined && commandOf(parent, name),
	);
	if (meant === undefined || OF_OTHER[parent.name()]?.names.includes(typed)) return meantOfOther(typed, parent.name());
	return parent.parent ? `${parent.name()} ${meant}` : meant;
}

function meantOfOther(typed: string, program: string): string | null {
	const other = OF_OTHER[program];
	if (typed === other?.program) return typed;
	const near = other && nearestName(typed, [...other.names, ...(program === 'idv' ? Object.keys(MEANT) : [])]);
	const name = near && (MEANT[near] ?? near);
	return name && other.names.includes(name) ? `${other.program} ${name}` : null;
}

/** commander's own message without the typed words: a code may be among them. */
function plainWords(
	error: CommanderError,
	program: Command,
	words: readonly string[],
): { message: string; suggestion: string } {
	const [first = '', hint = ''] = error.message.replace(/^error: /, '').split('\n');
	const message =
		error.code === 'commander.excessArguments'
			? first.replace(/ but got \d+:.*$/s, '')
			: error.code === 'commander.unknownOption'
				? first.replace(/=.*'$/s, "'").replace(/ '(?!-(?:[a-z]|help)'$|--[a-z-]{1,40}'$).*$/is, '')
				: first;
	const unknown = /^unknown command '([^']+)'$/.exec(first)?.[1];
	const parent = words.reduce((command, word) => commandOf(command, word) ?? command, program);
	// The id of a workflow without its verb.
	const verb = parent.name() === 'workflow' && hint === '' ? 'workflow set' : null;
	const meant = unknown === undefined ? null : (meantBy(unknown, parent) ?? verb);
	const suggestion = meant ? `Did you mean ${meant}? ` : hint.replace(/^\((.*)\)$/, '$1 ');
	return { message: `${message.charAt(0).toUpperCase()}${message.slice(1).replace(/\.$/, '')}.`, suggestion };
}

/** For flags that may be repeated. */
export function collect(value: string, before: readonly string[] = []): string[] {
	return [...before, value];
}

const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };

/** @throws AgentError `usage` naming the flag, the form and the range. */
function seconds(flag: string, min: number, max: number): (text: string) => number {
	return (text) => {
		const [, count = '', unit = 's'] = /^(\d+)([smhdw])?$/.exec(text) ?? [];
		const value = Number(count) * (UNITS[unit] ?? 1);
		if (count !== '' && value >= min && value <= max) return value;
		throw new AgentError('usage', `${flag} must be a time such as 30d, 12h or 3600 (seconds), at most ${max} s.`, {
			remedy: 'Correct the time; the units are s, m, h, d and w.',
		});
	};
}

/** The flag of every command that reads settings. */
export const SET = ['--set <path=value>', 'a setting, such as heartbeatCadence=10 (repeatable)', collect] as const;

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

/** For `--rings`: `1,10,50`, rising. @throws AgentError `usage`. */
export function shares(text: string): number[] {
	const percents = text.split(',').map((part) => Number(/^\s*(\d+(?:\.\d+)?)\s*%?\s*$/.exec(part)?.[1] ?? Number.NaN));
	if (percents.every((percent, index) => percent > (percents[index - 1] ?? 0) && percent <= 100)) return percents;
	throw new AgentError('usage', '--rings must be rising shares in percent, above 0 and at most 100.', {
		remedy: 'Write them as 1,10,50,100.',
	});
}

/** `2%` or `0.02`, as a share from 0 to 1. @throws AgentError `usage`. */
export function share(text: string): number {
	const [, number, sign] = /^(\d+(?:\.\d+)?)\s*(%?)$/.exec(text.trim()) ?? [];
	// As it is written: 2.9 divided by 100 is a little less than 29 of 1,000.
	const value = Number(`${number}${sign ? 'e-2' : ''}`);
	if (value >= 0 && value <= 1) return value;
	throw new AgentError('usage', 'A share must be written as 2% (0% to 100%).', { remedy: 'Correct the share.' });
}
