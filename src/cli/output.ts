/**
 * How the commands speak: lines for people, JSON for programs, one line for each failure, and the right exit status.
 * Answers go to standard output, errors to standard error; with `--json` a failure is the answer.
 */
import { plainDuration } from '../base/durations.ts';
import { AgentError, exitStatusOf, type Failure, failure, toFailure } from '../base/errors.ts';
import { type Course, joinSentences, sentenceOf } from '../base/sentences.ts';

export interface OutputFlags {
	readonly json?: boolean | undefined;
}

let readerIsWatched = false;

export function printLine(text = ''): void {
	printText(`${text}\n`);
}

/** As it is, with the line ends it has. */
export function printText(text: string): void {
	watchReader();
	process.stdout.write(text);
}

/** `idv-agent events | head` ends here without a stack trace, as the head of a pipe should. */
function watchReader(): void {
	if (readerIsWatched) return;
	readerIsWatched = true;
	process.stdout.on('error', (error: NodeJS.ErrnoException) => {
		if (error.code === 'EPIPE') process.exit();
		throw error;
	});
}

/** One document: on one line for a program, indented for a person. */
export function printJson(value: unknown): void {
	printLine(JSON.stringify(value, null, process.stdout.isTTY ? 2 : undefined));
}

/** A document for a program, a line for a person. */
export function printAnswer(flags: OutputFlags, document: unknown, line: string): void {
	if (flags.json) printJson(document);
	else printLine(line);
}

/** Text of devices and services on one line: what would steer the terminal becomes a space. */
export function onOneLine(text: string): string {
	return text.replaceAll(/[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]+/gu, ' ');
}

/** Columns as wide as they have to be, two spaces between them; on a terminal the last one is folded at its edge. */
export function printTable(cells: readonly (readonly string[])[]): void {
	const rows = cells.map((row) => row.map(onOneLine));
	const columns = Math.max(0, ...rows.map((row) => row.length));
	const widths = Array.from({ length: columns }, (_, column) =>
		Math.max(0, ...rows.map((row) => row[column]?.length ?? 0)),
	);
	for (const row of rows) {
		const before = row.slice(0, -1).map((cell, column) => `${cell.padEnd(widths[column] ?? 0)}  `);
		printFolded(before.join(''), row.at(-1) ?? '');
	}
}

/** Narrower than this a column is not folded: the lines would be no easier to read. */
const MIN_COLUMN = 30;

/** Text after a head; on a terminal its further lines begin under the first. A word is never broken. */
export function printFolded(head: string, text: string): void {
	const width = process.stdout.isTTY ? process.stdout.columns - head.length : 0;
	const lines = width >= MIN_COLUMN ? fold(text, width) : [text];
	for (const [row, line] of lines.entries())
		printLine(`${row === 0 ? head : ' '.repeat(head.length)}${line}`.trimEnd());
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

/** Runs a command; an error that it throws becomes one line (or one JSON document) and the exit status of its kind. */
export async function runCommand(flags: OutputFlags, command: () => Promise<void>): Promise<void> {
	try {
		await command();
	} catch (error) {
		reportFailure(toFailure(error), flags);
		if (!(error instanceof AgentError) && process.env['IDV_AGENT_DEBUG']) console.error(error);
	}
}

/** Says what went wrong and what to do, and sets the exit status. @param beside what programs get besides the error. */
export function reportFailure(told: Failure, flags: OutputFlags, beside: object = {}, course: Course = 'over'): void {
	const { code, message, remedy, params } = told;
	process.exitCode = exitStatusOf(code);
	if (flags.json) printJson({ error: { code, message, remedy, params }, ...beside });
	else printError(`${sentenceOf(told, course)} [${code}]`);
}

/** Several things that are wrong at once: a line for each, except in JSON. Sets the exit status of the first. */
export function reportFailures(failures: readonly Failure[], flags: OutputFlags): void {
	const [first] = failures;
	if (first) process.exitCode = exitStatusOf(first.code);
	if (flags.json) return;
	// A remedy of the catalogue would be the same in each line; one that was written for this failure is a command.
	for (const { code, message, remedy } of failures)
		printError(`${joinSentences(message, remedy === failure(code, '').remedy ? '' : remedy)} [${code}]`);
}

function printError(text: string): void {
	for (const line of text.split('\n')) process.stderr.write(`Error: ${line}\n`);
}

/** Something that is probably not meant, but keeps nothing from being done. */
export function printWarning(text: string): void {
	process.stderr.write(`Warning: ${text}\n`);
}
