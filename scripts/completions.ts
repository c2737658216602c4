/** Writes shell completions from the commands of a program: its words, their flags, files where a flag takes one. */
import { type CommandHelp, readFlags } from './command-tree.ts';

interface Words {
	/** `workflow set`; empty for the program itself. */
	readonly path: string;
	readonly commands: readonly CommandHelp[];
	readonly flags: readonly string[];
}

function listWords(program: CommandHelp): Words[] {
	const own = program.options.flatMap(({ term }) => readFlags(term).names.filter((name) => name.startsWith('--')));
	const path = program.name.split(' ').slice(1).join(' ');
	return [{ path, commands: program.commands, flags: own }, ...program.commands.flatMap(listWords)];
}

const lastWord = ({ name }: CommandHelp) => name.split(' ').at(-1) ?? '';

/** The names of profiles, one on each line, for a program that has any. */
const PROFILES = `idv profile list --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d'"' -f4`;
const hasProfiles = ({ options }: CommandHelp) => options.some(({ term }) => term.startsWith('--profile '));

export function writeBashCompletion(program: CommandHelp): string {
	const name = program.name;
	const cases = listWords(program).map(({ path, commands, flags }) => {
		const words = [...commands.map(lastWord), ...flags].join(' ');
		return `\t'${path}') words='${words}' ;;`;
	});
	return `# bash completion for ${name}
_${identifier(name)}() {
	local current=\${COMP_WORDS[COMP_CWORD]} path= words= word
	for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case " ${allPaths(program)} " in *"|\${path:+$path }$word|"*) path="\${path:+$path }$word" ;; esac
	done
	case $path in
${cases.join('\n')}
	esac${hasProfiles(program) ? `\n${BASH_PROFILES}` : ''}
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
	[ \${#COMPREPLY[@]} -gt 0 ] || [[ $current == -* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _${identifier(name)} ${name}
`;
}

const BASH_PROFILES = `	case \${COMP_WORDS[COMP_CWORD-1]}:$path in
	--profile:*) words=$(${PROFILES}) ;;
	*:profile\\ use|*:profile\\ remove) words="$words $(${PROFILES})" ;;
	esac`;
const ZSH_PROFILES = `if [[ $words[CURRENT-1] == --profile || $path_ == (profile use|profile remove) && $PREFIX != -* ]]; then
	compadd -- \${(f)"$(${PROFILES})"}
	return
fi
`;

export function writeZshCompletion(program: CommandHelp): string {
	const name = program.name;
	const cases = listWords(program).map(({ path, commands, flags }) => {
		const described = commands.map((command) => quote(`${lastWord(command)}:${command.about.replaceAll(':', '\\:')}`));
		const lines = described.length > 0 ? [`commands=(${described.join(' ')})`] : [];
		return `\t'${path}') ${[...lines, `flags=(${flags.map(quote).join(' ')})`].join('; ')} ;;`;
	});
	return `#compdef ${name}
local path_= word
local -a commands flags
for word in "\${(@)words[2,CURRENT-1]}"; do
	case " ${allPaths(program)} " in *"|\${path_:+$path_ }$word|"*) path_="\${path_:+$path_ }$word" ;; esac
done
case $path_ in
${cases.join('\n')}
esac
${hasProfiles(program) ? ZSH_PROFILES : ''}if [[ $PREFIX == -* ]]; then
	compadd -a flags
elif (( $#commands )); then
	_describe command commands
else
	_files
fi
`;
}

export function writeFishCompletion(program: CommandHelp): string {
	const name = program.name;
	const all = listWords(program);
	const lines = all.flatMap(({ path, commands }) => {
		const here = path === '' ? '__fish_use_subcommand' : seen(path, commands.map(lastWord));
		return commands.map(
			(command) => `complete -c ${name} -f -n '${here}' -a ${lastWord(command)} -d ${quote(command.about)}`,
		);
	});
	const flags = (command: CommandHelp): string[] => [
		...command.options.flatMap(({ term, about }) => {
			const { names, takesValue } = readFlags(term);
			const long = names.find((flag) => flag.startsWith('--'))?.slice(2);
			const path = command.name.split(' ').slice(1).join(' ');
			const here = path === '' ? '__fish_use_subcommand' : seen(path, []);
			return long ? [`complete -c ${name} -n '${here}' -l ${long}${takesValue ? ' -r' : ''} -d ${quote(about)}`] : [];
		}),
		...command.commands.flatMap(flags),
	];
	const profiles = [
		`complete -c ${name} -l profile -xa ${quote(`(${PROFILES})`)}`,
		`complete -c ${name} -f -n '__fish_seen_subcommand_from profile; and __fish_seen_subcommand_from use remove' -a ${quote(`(${PROFILES})`)}`,
	];
	const written = [...lines, ...flags(program), ...(hasProfiles(program) ? profiles : [])];
	return `# fish completion for ${name}\n${written.join('\n')}\n`;
}

/** Whether all words of a path were typed, and none of those that may follow. */
function seen(path: string, not: readonly string[]): string {
	const words = path.split(' ').map((word) => `__fish_seen_subcommand_from ${word}`);
	return [...words, ...(not.length > 0 ? [`not __fish_seen_subcommand_from ${not.join(' ')}`] : [])].join('; and ');
}

function allPaths(program: CommandHelp): string {
	const paths = listWords(program).map(({ path }) => path);
	return `|${paths.filter(Boolean).join('|')}|`;
}

function quote(text: string): string {
	return `'${text.replaceAll("'", "'\\''")}'`;
}

function identifier(name: string): string {
	return name.replaceAll('-', '_');
}
