/**
 * An inventory of devices as people have them: CSV with a head, or JSON lines. Whatever is wrong with a line is named with the
 * line; columns and fields that are not known are passed over.
 */
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import type { InventoryDevice } from '../fleet/preview.ts';
import {
	deviceIdSchema,
	deviceTypeSchema,
	macAddressSchema,
	serialSchema,
	workflowIdSchema,
} from '../protocol/device-connection.ts';
import { nearestName } from '../settings/resolve.ts';
import { labelSchema } from '../settings/table.ts';
import { readBounded } from './fleet-files.ts';

const MAX_INVENTORY_BYTES = 256 * 1024 * 1024;
/** Lines that are named at once. */
const MAX_PROBLEMS = 20;

const emptyAsNull = <Value>(schema: z.ZodType<Value>) =>
	z.preprocess((value) => (value === '' || value === undefined ? null : value), schema.nullable());
const rowSchema = z.object({
	deviceId: deviceIdSchema,
	serial: emptyAsNull(serialSchema),
	macAddress: emptyAsNull(macAddressSchema),
	deviceType: emptyAsNull(deviceTypeSchema),
	labels: z.preprocess(
		(value) => (typeof value === 'string' ? value.split(/[\s;|,]+/).filter(Boolean) : (value ?? [])),
		z.array(labelSchema),
	),
	workflowId: emptyAsNull(workflowIdSchema),
});
const COLUMNS = Object.keys(rowSchema.shape);

interface Row {
	readonly line: number;
	readonly fields: unknown;
}

/** @throws AgentError `inventory-invalid`, a line for each of the first problems. */
export function readInventory(file: string): Promise<InventoryDevice[]> {
	return readNoting(file, 'inventory', async (text, note) => {
		const devices: InventoryDevice[] = [];
		const lines = new Map<string, number>();
		for (const { line, fields } of /^\s*\{/.test(text) ? jsonLines(text, note) : await csvRows(text, file, note)) {
			const read = rowSchema.safeParse(fields);
			if (!read.success) {
				const [issue] = read.error.issues;
				note(line, `${issue?.path.join('/') || 'the line'} ${inWords(issue)}`);
				continue;
			}
			const before = lines.get(read.data.deviceId);
			if (before !== undefined) note(line, `deviceId is there already, on line ${before}`);
			lines.set(read.data.deviceId, line);
			devices.push(read.data);
		}
		return devices;
	});
}

/** Each line's document, for files of other shapes as well. @throws AgentError `inventory-invalid`. */
export function readJsonLines(file: string): Promise<Row[]> {
	return readNoting(file, 'report', jsonLines);
}

async function readNoting<Result>(
	file: string,
	what: string,
	read: (text: string, note: NoteProblem) => Result | Promise<Result>,
): Promise<Result> {
	const text = decode(await readBounded(file, MAX_INVENTORY_BYTES, 'inventory-invalid', what), file);
	const problems: string[] = [];
	const result = await read(text, (line, fault) => {
		if (problems.length < MAX_PROBLEMS) problems.push(`${file}: line ${line}: ${fault}.`);
	});
	if (problems.length > 0) throw new AgentError('inventory-invalid', problems.join('\n'));
	return result;
}

/** A file with nothing in it is an export that failed, not a fleet without devices. */
function decode(bytes: Uint8Array, file: string): string {
	let text: string;
	try {
		text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
	} catch {
		throw new AgentError('inventory-invalid', `${file} is not UTF-8.`, { remedy: 'Save it as UTF-8.' });
	}
	if (text.trim() !== '') return text;
	throw new AgentError('inventory-invalid', `${file}: line 1: the file is empty.`, {
		remedy: 'Write one device on each line, and look at what should have made the file.',
	});
}

type NoteProblem = (line: number, what: string) => void;

function jsonLines(text: string, note: NoteProblem): Row[] {
	return text.split('\n').flatMap((content, index): Row[] => {
		if (content.trim() === '') return [];
		try {
			const fields: unknown = JSON.parse(content);
			if (typeof fields === 'object' && fields !== null && !Array.isArray(fields)) return [{ line: index + 1, fields }];
			note(index + 1, 'each line must be one JSON object');
		} catch {
			note(index + 1, 'this is not one whole JSON object on one line');
		}
		return [];
	});
}

async function csvRows(text: string, file: string, note: NoteProblem): Promise<Row[]> {
	const { parse, CsvError } = await import('csv-parse/sync');
	try {
		const rows = parse(text, {
			bom: true,
			trim: true,
			skip_empty_lines: true,
			info: true,
			columns: (names: string[]) => checkHead(names, file),
		}) as unknown as { record: Record<string, string>; info: { lines: number } }[];
		return rows.map(({ record, info }) => ({ line: info.lines, fields: record }));
	} catch (error) {
		if (!(error instanceof CsvError)) throw error;
		const line = Number((error as { lines?: unknown }).lines ?? 1);
		note(line, FAULTS[error.code] ?? `this is not CSV (${error.code})`);
		return [];
	}
}

const FAULTS: Readonly<Record<string, string>> = {
	CSV_RECORD_INCONSISTENT_COLUMNS: 'there are more or fewer fields than the head has columns',
	CSV_INCONSISTENT_RECORD_LENGTH: 'there are more or fewer fields than the head has columns',
	CSV_QUOTE_NOT_CLOSED: 'a field in quotes does not end',
	CSV_INVALID_CLOSING_QUOTE: 'after a field in quotes a comma must follow',
	INVALID_OPENING_QUOTE: 'a quote stands inside a field that does not begin with one',
};

/** The names of the columns as we know them: capitals, spaces and underscores do not matter. */
function checkHead(names: readonly string[], file: string): string[] {
	const plain = (name: string) => name.toLowerCase().replaceAll(/[\s_-]/g, '');
	const known = names.map((name) => COLUMNS.find((column) => plain(column) === plain(name)) ?? name);
	if (known.includes('deviceId')) return known;
	const near = names.find((name) => nearestName(name, ['deviceId']) !== null);
	const hint = near === undefined ? '' : `; is ${near} meant?`;
	throw new AgentError('inventory-invalid', `${file}: line 1: there is no column deviceId${hint}`, {
		remedy: `The first line names the columns: ${COLUMNS.join(',')}.`,
	});
}

function inWords(issue: z.core.$ZodIssue | undefined): string {
	if (!issue) return 'is not valid';
	if (!/^[A-Z]/.test(issue.message)) return issue.message;
	return issue.code === 'invalid_type' ? `must be a ${issue.expected === 'array' ? 'list' : 'text'}` : 'is not valid';
}
