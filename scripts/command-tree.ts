/**
 * The commands of a program, read from its own `--help`: the source of man pages and completions, so that neither can
 * say anything else than the program does. Knows commander's layout and nothing of the commands.
 */

export interface HelpItem {
	/** As it stands in the help: `--image <file>`, `pair [options] [source]`. */
	readonly term: string;
	readonly about: string;
}

export interface CommandHelp {
	/** `idv-agent workflow set`. */
	readonly name: string;
	/** The rest of the usage line after the name. */
	readonly usage: string;
	readonly about: string;
	readonly arguments: readonly HelpItem[];
	readonly options: readonly HelpItem[];
	readonly commands: readonly CommandHelp[];
	/** Everything that follows the lists, such as examples. */
	readonly notes: readonly string[];
}

/** Asks for the help of a command: `['workflow', 'set']`. */
export type AskHelp = (path: readonly string[]) => Promise<string>;

/** Reads the help of a program and of all commands under it. */
export async function readCommandTree(name: string, ask: AskHelp, path: readonly string[] = []): Promise<CommandHelp> {
	const { sections, usage, about, notes } = readHelp(await ask(path));
	const commands: CommandHelp[] = [];
	for (const { term } of sections.get('Commands') ?? []) {
		const [word = ''] = term.split(' ');
		if (word !== 'help') commands.push(await readCommandTree(name, ask, [...path, word.split('|')[0] ?? word]));
	}
	return {
		name: [name, ...path].join(' '),
		usage: usage
			.split(' ')
			.slice(path.length + 1)
			.join(' '),
		about,
		arguments: sections.get('Arguments') ?? [],
		options: sections.get('Options') ?? [],
		commands,
		notes,
	};
}

const LISTS = ['Arguments', 'Options', 'Commands'];

function readHelp(text: string): {
	usage: string;
	about: string;
	sections: ReadonlyMap<string, readonly HelpItem[]>;
	notes: string[];
} {
	const sections = new Map<string, { term: string; about: string }[]>();
	const about: string[] = [];
	const notes: string[] = [];
	let usage = '';
	let place: 'about' | 'notes' | { term: string; about: string }[] = 'about';
	for (const line of text.trimEnd().split('\n')) {
		const title = /^(\w+):$/.exec(line)?.[1];
		if (line.startsWith('Usage: ')) usage = line.slice('Usage: '.length);
		else if (title !== undefined && LISTS.includes(title)) {
			place = [];
			sections.set(title, place);
		} else if (place === 'about') about.push(line.trim());
		else if (place === 'notes') notes.push(line);
		else if (/^ {2}\S/.test(line)) place.push(readItem(line));
		else if (/^ {3,}\S/.test(line) && place.length > 0) {
			const last = place.at(-1);
			if (last) last.about = `${last.about} ${line.trim()}`.trim();
		} else if (line !== '') {
			place = 'notes';
			notes.push(line);
		}
	}
	return { usage, about: about.filter(Boolean).join(' '), sections, notes };
}

function readItem(line: string): { term: string; about: string } {
	const [term = '', ...about] = line.trim().split(/ {2,}/);
	return { term, about: about.join(' ') };
}

/** `-h, --help` → `['-h', '--help']`; whether a value follows. */
export function readFlags(term: string): { names: string[]; takesValue: boolean } {
	const names = term.split(/[ ,]+/).filter((word) => word.startsWith('-'));
	return { names, takesValue: /[<[]/.test(term) };
}
