/**
 * The agent's log: pino's JSON lines on standard output, readable text on a terminal, priorities for the journal.
 * Every final line is scrubbed of secrets; only fields of the list get into it. Never throws and never blocks the agent.
 */
import { writeSync } from 'node:fs';
import { pino } from 'pino';
import { type SecretRegistry, scrub } from '../core/scrub.ts';

/** What may stand in a line beside its message. Anything else is dropped: an object may hold anything. */
export interface LogFields {
	readonly attempt?: number | undefined;
	readonly code?: string | undefined;
	readonly count?: number | undefined;
	readonly delayMs?: number | undefined;
	readonly deviceId?: string | null | undefined;
	readonly generation?: number | undefined;
	readonly host?: string | null | undefined;
	readonly kind?: string | undefined;
	readonly path?: string | undefined;
	readonly pid?: number | undefined;
	readonly signal?: string | undefined;
	readonly status?: number | undefined;
	readonly version?: string | undefined;
	readonly workflowId?: string | null | undefined;
}

const FIELDS: readonly (keyof LogFields)[] = [
	'attempt',
	'code',
	'count',
	'delayMs',
	'deviceId',
	'generation',
	'host',
	'kind',
	'path',
	'pid',
	'signal',
	'status',
	'version',
	'workflowId',
];

export interface Log {
	debug(message: string, fields?: LogFields): void;
	info(message: string, fields?: LogFields): void;
	warn(message: string, fields?: LogFields): void;
	error(message: string, fields?: LogFields): void;
	setLevel(level: LogLevel): void;
}

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** Takes one finished line with its line end. */
export interface LogDestination {
	write(line: string): void;
}

export interface LogOptions {
	readonly level: LogLevel;
	readonly secrets: SecretRegistry;
	/** Default: standard output; JSON lines, or text if that is a terminal. */
	readonly destination?: LogDestination;
	/** Readable text instead of JSON. Default: whether standard output is a terminal. */
	readonly readable?: boolean;
	/** `<N>` in front of each line, for the journal. Default: whether systemd says that it reads standard output. */
	readonly priorities?: boolean;
}

/** Syslog's numbers for pino's. */
const PRIORITIES: Readonly<Record<string, number>> = { debug: 7, info: 6, warn: 4, error: 3 };
/** A line that is longer is cut: nobody reads it, and a disk has to hold it. */
const MAX_LINE = 4096;

export function createLog(options: LogOptions): Log {
	const {
		secrets,
		destination = standardOutput,
		readable = options.destination === undefined && process.stdout.isTTY === true,
		priorities = options.destination === undefined && process.env['JOURNAL_STREAM'] !== undefined,
	} = options;
	const sink = {
		write(json: string) {
			const line = readable ? toText(json) : json.trimEnd();
			const clean = scrub(line.length > MAX_LINE ? `${line.slice(0, MAX_LINE)}…` : line, secrets);
			const priority = priorities ? `<${PRIORITIES[levelOf(json)] ?? 6}>` : '';
			destination.write(`${priority}${clean}\n`);
		},
	};
	const logger = pino(
		{
			level: options.level,
			base: null,
			timestamp: pino.stdTimeFunctions.isoTime,
			formatters: { level: (label) => ({ level: label }) },
		},
		sink,
	);
	const at = (level: LogLevel) => (message: string, fields?: LogFields) => logger[level](allowed(fields), message);
	return {
		debug: at('debug'),
		info: at('info'),
		warn: at('warn'),
		error: at('error'),
		setLevel(level) {
			logger.level = level;
		},
	};
}

/** Only fields of the list, only scalars, nothing that is not there. */
function allowed(fields: LogFields | undefined): Record<string, string | number> {
	const kept: Record<string, string | number> = {};
	for (const name of FIELDS) {
		const value = fields?.[name];
		if (typeof value === 'string') kept[name] = value.slice(0, 256);
		else if (typeof value === 'number') kept[name] = value;
	}
	return kept;
}

/** `03:04:05 warn  offline: … code=connection-lost`: for a person at a terminal. */
function toText(json: string): string {
	const { level, time, msg, ...fields } = JSON.parse(json) as Record<string, unknown>;
	const rest = Object.entries(fields).map(([name, value]) => `${name}=${String(value)}`);
	return [String(time).slice(11, 19), String(level).padEnd(5), String(msg), ...rest].join(' ');
}

function levelOf(json: string): string {
	return /^\{"level":"(\w+)"/.exec(json)?.[1] ?? 'info';
}

/** Writes at once: a line that explains a crash must not wait in a buffer. A reader that is gone is no reason to end. */
const standardOutput: LogDestination = {
	write(line) {
		try {
			writeSync(1, line);
		} catch {
			// Closed, or a full pipe that nobody empties: the device's work goes on.
		}
	},
};
