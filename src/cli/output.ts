/**
 * How the commands speak: lines for people, JSON for programs, one line for each refusal, and the right exit status.
 */
import { AgentError, exitStatusOf, type Failure, toFailure } from '../core/errors.ts';

export interface OutputFlags {
	readonly json?: boolean | undefined;
}

export function printLine(text = ''): void {
	process.stdout.write(`${text}\n`);
}

export function printJson(value: unknown): void {
	printLine(JSON.stringify(value, null, process.stdout.isTTY ? 2 : undefined));
}

/** Columns as wide as they have to be, two spaces between them. */
export function printTable(rows: readonly (readonly string[])[]): void {
	const columns = Math.max(0, ...rows.map((row) => row.length));
	const widths = Array.from({ length: columns }, (_, column) =>
		Math.max(0, ...rows.map((row) => row[column]?.length ?? 0)),
	);
	for (const row of rows)
		printLine(
			row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join('  '),
		);
}

/** Runs a command; whatever it throws becomes one line (or one JSON document) and the exit status of its kind. */
export async function runCommand(flags: OutputFlags, command: () => Promise<void>): Promise<void> {
	try {
		await command();
	} catch (error) {
		reportFailure(toFailure(error), flags);
		if (!(error instanceof AgentError) && process.env['IDV_AGENT_DEBUG']) console.error(error);
	}
}

/** Says what went wrong and what to do, and sets the exit status. */
export function reportFailure({ code, message, remedy }: Failure, flags: OutputFlags): void {
	process.exitCode = exitStatusOf(code);
	if (flags.json) printJson({ error: { code, message, remedy } });
	else process.stderr.write(`${message} ${remedy} (${code})\n`);
}
