/**
 * The agent's log: one line for each event on standard output, as JSON, or as plain text on a terminal.
 * Passes on known fields only; of foreign words only the shape. Never throws, never waits for a reader that is slow or gone,
 * never lets a server's text break a line.
 */
import { fstatSync, writeSync } from 'node:fs';
import { pino } from 'pino';
import { cleanText } from '../protocol/problem.ts';
import type { Params } from './errors.ts';
import { openShaper } from './shapes.edge.ts';
import type { Shaper } from './shapes.ts';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** The fields that may stand in a line; every other one is dropped. None of them may hold a secret. */
// biome-ignore format: a list of words
const LOG_FIELDS = [
	'attempt', 'bytes', 'closeCode', 'code', 'count', 'delayMs', 'deviceId', 'exitStatus', 'generation',
	'revision', 'host', 'id', 'kind', 'ms', 'path', 'pid', 'remedy', 'serial', 'sessionId', 'signal', 'socket',
	'source', 'state', 'status', 'version', 'workflowId',
] as const;

/** Durations in milliseconds (`ms`, `delayMs`); `path` is a file or the path of a URL, without its query. */
export type LogFields = {
	readonly [Field in (typeof LOG_FIELDS)[number]]?: string | number | boolean | null | undefined;
} & {
	/** Of the failure that the message tells: they say what in it is our own, also to the next reader. */
	readonly params?: Params | undefined;
};

export interface Log extends Record<LogLevel, (message: string, fields?: LogFields) => void> {
	/** From now on less severe lines are dropped. */
	setLevel(level: LogLevel): void;
}

/** Where lines go. `write` gets one line with its line end, and must not throw. */
export interface LogDestination {
	/** `json`: as it is; `journal`: JSON after its priority, `<4>`; `terminal`: plain text. Default `json`. */
	readonly form?: 'json' | 'journal' | 'terminal';
	write(line: string): void;
}

/** Longest message and longest field, in characters. A stack has to fit into a message. */
const MAX_MESSAGE = 2000;
const MAX_FIELD = 300;
/** Kept for a reader that is slow, in bytes; lines beyond it are dropped. */
const MAX_UNSENT_BYTES = 64 * 1024;

/**
 * Creates a log.
 * @param options.level the least severe level that is written; default `info`.
 * @param options.shaper writes texts; default one that knows no host or id.
 * @param options.destination default: standard output, in the form that suits it.
 */
export function createLog(options: { level?: LogLevel; shaper?: Shaper; destination?: LogDestination } = {}): Log {
	const { level = 'info', shaper = openShaper(), destination = openLogDestination() } = options;
	const formed = { json: (line: string) => line, journal: forJournal, terminal: forTerminal }[
		destination.form ?? 'json'
	];
	const logger = pino(
		{
			level,
			base: null,
			timestamp: pino.stdTimeFunctions.isoTime,
			formatters: { level: (label) => ({ level: label }) },
		},
		{ write: (line) => destination.write(formed(line)) },
	);
	const at = (severity: LogLevel) => (message: string, fields?: LogFields) => {
		if (!logger.isLevelEnabled(severity)) return;
		const params = fields?.params ?? {};
		const picked = fields ? pick(fields) : {};
		const more = Object.entries(params).filter(([name, value]) => picked[name] !== value);
		const told = more.length > 0 && { params: Object.fromEntries(more) };
		const shown = shaper.document({ ...picked, ...told }) as Record<string, unknown>;
		for (const [name, text] of Object.entries(shown))
			if (typeof text === 'string') shown[name] = cleanText(text, MAX_FIELD);
		logger[severity](shown, cleanText(shaper.said(message, params), MAX_MESSAGE));
	};
	return {
		debug: at('debug'),
		info: at('info'),
		warn: at('warn'),
		error: at('error'),
		setLevel: (desired) => {
			logger.level = desired;
		},
	};
}

/**
 * An open file as a destination: plain text on a terminal, priorities in front for the system's journal, else JSON.
 * A reader that is gone or a full disk costs the lines, nothing else.
 * @param fd default standard output.
 * @param environment where systemd's `JOURNAL_STREAM` is looked up; default the process's own.
 */
export function openLogDestination(
	fd = 1,
	env: Readonly<Record<string, string | undefined>> = process.env,
): LogDestination {
	let unsent: Buffer = Buffer.alloc(0);
	const send = () => {
		try {
			while (unsent.length > 0) unsent = unsent.subarray(writeSync(fd, unsent));
		} catch (error) {
			// A pipe that is full just now takes the rest with a later line.
			if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') unsent = Buffer.alloc(0);
		}
	};
	return {
		form: isTerminal(fd) ? 'terminal' : isJournal(fd, env['JOURNAL_STREAM']) ? 'journal' : 'json',
		write(line) {
			send();
			if (unsent.length >= MAX_UNSENT_BYTES) return;
			unsent = Buffer.concat([unsent, Buffer.from(line)]);
			send();
		},
	};
}

/** Asks Node only about what may be one: its module for terminals is loaded for nothing else. */
function isTerminal(fd: number): boolean {
	try {
		return fstatSync(fd).isCharacterDevice() && process.getBuiltinModule('node:tty').isatty(fd);
	} catch {
		return false;
	}
}

/** `JOURNAL_STREAM` is inherited by children whose output goes elsewhere: it names the file that it is about. */
function isJournal(fd: number, stream: string | undefined): boolean {
	if (!stream) return false;
	try {
		const { dev, ino } = fstatSync(fd, { bigint: true });
		return stream === `${dev}:${ino}`;
	} catch {
		return false;
	}
}

function pick(fields: LogFields): Record<string, string | number | boolean | null> {
	const picked: Record<string, string | number | boolean | null> = {};
	for (const field of LOG_FIELDS) {
		// Callers may have more than the type says, such as an object from a foreign answer.
		const value: unknown = Object.hasOwn(fields, field) ? fields[field] : undefined;
		if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || value === null)
			picked[field] = value;
	}
	return picked;
}

/** Syslog priorities, as the journal reads them at the beginning of a line. */
const PRIORITY: Record<string, number> = { debug: 7, info: 6, warn: 4, error: 3 };

interface LogRecord {
	readonly level: string;
	readonly time: string;
	readonly msg: string;
	readonly [field: string]: unknown;
}

function forJournal(line: string): string {
	const { level } = JSON.parse(line) as LogRecord;
	return `<${PRIORITY[level] ?? 6}>${line}`;
}

function forTerminal(line: string): string {
	const { level, time, msg, ...fields } = JSON.parse(line) as LogRecord;
	const shown = Object.entries(fields).map(([name, value]) => {
		const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
		return `${name}=${/^[^\s"=]+$/.test(text) ? text : JSON.stringify(text)}`;
	});
	return `${[time, level.toUpperCase().padEnd(5), msg, ...shown].join(' ')}\n`;
}
