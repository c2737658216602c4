/**
 * The caller of a command, and how it is answered: lines for people, JSON for programs, one line for each failure, and the
 * right exit status. Answers go to standard output, errors to standard error; with `--json` a failure is the answer,
 * unless it ends a stream. Whatever a text quotes, nothing in it steers a terminal.
 */
import { type Clock, systemClock } from '../base/clock.edge.ts';
import { plainDuration } from '../base/durations.ts';
import { AgentError, EXIT, exitStatusOf, type Failure, failure, toFailure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import { inPlainJson, inPlainLines, onOneLine } from '../base/printed.ts';
import { type Course, joinSentences, sentenceOf } from '../base/sentences.ts';

/** The process of a command, or what stands for one. */
export type Caller = Pick<NodeJS.Process, 'argv' | 'env' | 'stdin' | 'stdout' | 'stderr' | 'exitCode'>;

/** Narrower than this a column is not folded: the lines would be no easier to read. */
const MIN_COLUMN = 30;

/** Handed to every command by the file that a program starts with: nothing else reads or writes what is the caller's. */
export class Shell {
	readonly caller: Caller;
	readonly env: Caller['env'];
	/** Whether a program reads the answer: `--json`, or the variable for it. */
	isJson: boolean;
	/** Whether documents were written that go on as they come: a failure is none of them. */
	isStream = false;
	/** What a command waits by. */
	readonly clock: Clock;
	#readerIsWatched = false;
	#goesOn = false;
	#lost = '';

	constructor(caller: Caller, isJson = false, clock: Clock = systemClock) {
		this.caller = caller;
		this.clock = clock;
		this.env = caller.env;
		this.isJson = isJson;
	}

	line(text = ''): void {
		this.text(`${text}\n`);
	}

	/** With the line ends it has. */
	text(text: string): void {
		this.drawn(this.isJson ? inPlainJson(text) : inPlainLines(text));
	}

	/** As it is: for what steers the terminal itself, and quotes no one. */
	drawn(text: string): void {
		this.#watchReader();
		this.caller.stdout.write(text);
	}

	/** From now on what is done is done also where no one reads on. */
	goOnUnread(): void {
		this.#goesOn = true;
	}

	/** What else is said where the answer cannot be written: it holds what nothing gives again. */
	sayIfLost(sentence: string): void {
		this.#lost = sentence;
	}

	/** `idv-agent events | head` ends here without a stack trace, as the head of a pipe should, and on a full disk with a sentence. */
	#watchReader(): void {
		if (this.#readerIsWatched) return;
		this.#readerIsWatched = true;
		this.caller.stdout.on('error', (error: NodeJS.ErrnoException) => {
			if (error.code !== 'EPIPE' || this.#lost) {
				this.caller.exitCode = EXIT.io;
				this.#error(joinSentences(`The output cannot be written: ${inWords(error)}.`, this.#lost));
			}
			if (!this.#goesOn) process.exit();
		});
	}

	/** One document: on one line for a program, indented for a person. */
	json(value: unknown): void {
		this.drawn(`${inPlainJson(JSON.stringify(value, null, this.caller.stdout.isTTY ? 2 : undefined))}\n`);
	}

	/** For what is said beside an answer that a program reads. */
	onStderr(): Shell {
		const { argv, env, stdin, stderr } = this.caller;
		return new Shell(
			{ argv, env, stdin, stdout: stderr as unknown as Caller['stdout'], stderr, exitCode: undefined },
			false,
			this.clock,
		);
	}

	/** A document for a program, a line for a person. */
	answer(document: unknown, line: string): void {
		if (this.isJson) this.json(document);
		else this.line(line);
	}

	/** Columns as wide as they have to be, two spaces between them; on a terminal the last one is folded at its edge. */
	table(cells: readonly (readonly string[])[]): void {
		const rows = cells.map((row) => row.map(onOneLine));
		const columns = Math.max(0, ...rows.map((row) => row.length));
		const widths = Array.from({ length: columns }, (_, column) =>
			Math.max(0, ...rows.map((row) => row[column]?.length ?? 0)),
		);
		for (const row of rows) {
			const before = row.slice(0, -1).map((cell, column) => `${cell.padEnd(widths[column] ?? 0)}  `);
			this.folded(before.join(''), row.at(-1) ?? '');
		}
	}

	/** Text after a head; on a terminal its further lines begin under the first. A word is never broken. */
	folded(head: string, text: string): void {
		const width = this.caller.stdout.isTTY ? this.caller.stdout.columns - head.length : 0;
		const lines = width >= MIN_COLUMN ? fold(text, width) : [text];
		for (const [row, line] of lines.entries())
			this.line(`${row === 0 ? head : ' '.repeat(head.length)}${line}`.trimEnd());
	}

	/** Runs a command; an error that it throws becomes one line (or one JSON document) and the exit status of its kind. */
	async run(command: () => Promise<void>): Promise<void> {
		try {
			await command();
		} catch (error) {
			this.fail(toFailure(error));
			if (!(error instanceof AgentError) && this.env['IDV_AGENT_DEBUG']) console.error(error);
		}
	}

	/** Says what went wrong and what to do, and sets the exit status. @param beside what programs get besides the error. */
	fail(told: Failure, beside: object = {}, course: Course = 'over'): void {
		const { code, message, remedy, params } = told;
		this.caller.exitCode = exitStatusOf(code, params);
		if (this.isJson && !this.isStream) this.json({ error: { code, message, remedy, params }, ...beside });
		else this.#error(`${sentenceOf(told, course)} [${code}]`);
	}

	/** Several things that are wrong at once: a line for each, except in JSON. Sets the exit status of the first. */
	failures(failures: readonly Failure[]): void {
		const [first] = failures;
		if (first) this.caller.exitCode = exitStatusOf(first.code);
		if (this.isJson) return;
		// A remedy of the catalogue would be the same in each line; one that was written for this failure is a command.
		for (const { code, message, remedy } of failures)
			this.#error(`${joinSentences(message, remedy === failure(code, '').remedy ? '' : remedy)} [${code}]`);
	}

	#error(text: string): void {
		for (const line of inPlainLines(text).split('\n')) this.caller.stderr.write(`Error: ${line}\n`);
	}

	/** Something that is probably not meant, but keeps nothing from being done. */
	warn(text: string): void {
		this.caller.stderr.write(`Warning: ${inPlainLines(text)}\n`);
	}
}

function fold(text: string, width: number): string[] {
	const lines: string[] = [];
	let line = '';
	for (const word of text.split(' ')) {
		if (line !== '' && line.length + 1 + word.length > width) {
			lines.push(line);
			line = word;
		} else line = line === '' ? word : `${line} ${word}`;
	}
	return [...lines, line];
}

/** The time on this machine's clock, with the date where it is not today. */
export function localTime(iso: string): string {
	const at = new Date(iso);
	const time = at.toTimeString().slice(0, 8);
	return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString('sv')} ${time}`;
}

/** `12:34:56 (in 5 min)`; a text that is not a time stays as it is. */
export function untilTime(iso: string): string {
	const leftMs = Date.parse(iso) - Date.now();
	if (Number.isNaN(leftMs)) return iso;
	return `${localTime(iso)} (${leftMs > 0 ? `in ${plainDuration(leftMs)}` : `${plainDuration(-leftMs)} ago`})`;
}

/** `1 device`, `2 devices`. */
export function counted(count: number, word: string): string {
	return `${count} ${word}${count === 1 ? '' : 's'}`;
}
