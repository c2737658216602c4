/** Writes a manual page from the commands of a program. Decides nothing about them. */
import type { CommandHelp, HelpItem } from './command-tree.ts';

export interface ManualParts {
	readonly version: string;
	/** Date of the page, `2026-11-21`. */
	readonly date: string;
	/** Further sections by their titles, in plain text: a line that begins with a space is set as it stands. */
	readonly sections: ReadonlyMap<string, readonly string[]>;
}

/** A page for section 1, in roff's man macros. */
export function writeManualPage(program: CommandHelp, { version, date, sections }: ManualParts): string {
	const name = program.name;
	const common = new Set(program.options.map(({ term }) => term));
	return [
		`.TH ${name.toUpperCase()} 1 ${date} "${name} ${version}" "User Commands"`,
		'.SH NAME',
		`${text(name)} \\- ${text(lowerFirst(program.about.replace(/\.$/, '')))}`,
		'.SH SYNOPSIS',
		`.B ${text(name)}`,
		text(program.usage),
		...(program.options.length > 0 ? ['.SH OPTIONS', ...program.options.flatMap(item)] : []),
		...(program.commands.length > 0
			? ['.SH COMMANDS', ...program.commands.flatMap((one) => describe(one, common))]
			: []),
		...[...sections].flatMap(([title, lines]) => [`.SH ${title}`, ...plain(lines)]),
		...(program.notes.length > 0 ? ['.SH NOTES', ...plain(program.notes)] : []),
		'',
	].join('\n');
}

/** A command with everything under it; options that every command has are left to the program's own list. */
function describe(command: CommandHelp, common: ReadonlySet<string>): string[] {
	const options = command.options.filter(({ term }) => !common.has(term));
	return [
		...(command.commands.length > 0 && options.length === 0 ? [] : heading(command)),
		...[...command.arguments, ...options].flatMap((one) => ['.RS', ...item(one), '.RE']),
		...command.commands.flatMap((one) => describe(one, common)),
	];
}

function heading({ name, usage, about }: CommandHelp): string[] {
	return ['.TP', `.B ${text(`${name} ${usage}`.trim())}`, text(about)];
}

function item({ term, about }: HelpItem): string[] {
	return ['.TP', `.B ${text(term)}`, text(about || ' ')];
}

function plain(lines: readonly string[]): string[] {
	return lines.flatMap((line) =>
		line.startsWith(' ') ? ['.nf', text(line), '.fi'] : line === '' ? ['.PP'] : [text(line)],
	);
}

/** roff reads a backslash, a leading dot and a leading quote as its own, and a bare minus as a hyphen. */
function text(line: string): string {
	return line
		.replaceAll('\\', '\\e')
		.replaceAll('-', '\\-')
		.replace(/^([.'])/, '\\&$1');
}

function lowerFirst(sentence: string): string {
	return sentence.charAt(0).toLowerCase() + sentence.slice(1);
}
