/** An inventory as people have them: CSV with a head, or JSON lines. What is wrong is named with its line. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { onOneLine } from '../base/printed.ts';
import type { InventoryDevice } from '../fleet/preview.ts';
import {
	deviceIdSchema,
	deviceTypeSchema,
	macAddressSchema,
	serialSchema,
	workflowIdSchema,
} from '../protocol/device-connection.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { nearestName } from '../settings/nearest-name.ts';
import { plainIssue } from '../settings/plain-issue.ts';
import { labelSchema } from '../settings/value-schemas.ts';
import { readBounded } from './fleet-store.runner.ts';

const MAX_INVENTORY_BYTES = 256 * 1024 * 1024;
/** Of a table that people have. */
const MAX_COLUMNS = 500;
/** Rows in which the head is looked for. */
const MAX_ABOVE = 20;
/** Of a device, as in fleet.labels. */
const MAX_LABELS = 32;
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
		(value) => {
			const all = typeof value === 'string' ? value.split(/[\s;|,]+/, MAX_LABELS + 2).filter(Boolean) : (value ?? []);
			return Array.isArray(all) ? all.slice(0, MAX_LABELS + 1) : all;
		},
		z.array(labelSchema).max(MAX_LABELS, `are more than ${MAX_LABELS}`),
	),
	workflowId: emptyAsNull(workflowIdSchema),
	version: emptyAsNull(z.string('must be a text').regex(/^\d\S{0,255}$/, 'must be a version such as 0.3.0')),
});
const COLUMNS = Object.keys(rowSchema.shape);

/** Looked for at each byte if they are not given. */
const LINE_ENDS = ['\r\n', '\n', '\r'];

const MADE_A_NUMBER = /^\d(?:[.,]\d+)?E\+\d+$/;
const A_FAULT = /^#(?:N\/A|NV|REF!|BEZUG!|VALUE!|WERT!|NAME\?|DIV\/0!|NULL!|NUM!)$/;

/** A sum below a table, its head once more, or a formula. */
const LEFT_BEHIND =
	/^(?:(?:sub|grand )?(?:total|sum|summe|gesamt|anzahl|count)\b[\s:=]*[\d.,]*|device[\s_.-]?id|=.*)$/i;

/** By another separator than the head has. */
const SEPARATED = /[,;|]/;

interface Row {
	/** Such as `line 3`; of a list, `item 3`. */
	readonly place: string;
	readonly fields: unknown;
}

interface Cells {
	readonly place: string;
	readonly cells: readonly string[];
}

/** @param warn told of ids that are perhaps one device, or none. @throws AgentError `inventory-invalid`, a line for each of the first problems. */
export async function readInventory(file: string, warn?: (said: string) => void): Promise<InventoryDevice[]> {
	const problems: string[] = [];
	const note: NoteProblem = (place, fault) => {
		problems.push(onOneLine(`${file}: ${place}: ${fault}${fault.endsWith('?') ? '' : '.'}`));
		if (problems.length === MAX_PROBLEMS) throw new AgentError('inventory-invalid', problems.join('\n'));
	};
	const text = decode(await readBounded(file, MAX_INVENTORY_BYTES, 'inventory-invalid', 'inventory'), file);
	const devices: InventoryDevice[] = [];
	const known = new Map<string, { readonly place: string; readonly said: string }>();
	const isCsv = !/^\s*[{[]/.test(text);
	const take = ({ place, fields }: Row) => {
		const read = rowSchema.safeParse(fields);
		if (!read.success) {
			const [issue] = read.error.issues;
			return note(place, `${issue?.path.join('/') || 'the line'} ${plainIssue(issue)}`);
		}
		const said = JSON.stringify(read.data);
		const before = known.get(read.data.deviceId);
		// Who copies a row twice says nothing new.
		if (before?.said === said) return;
		if (before) note(place, `deviceId is there already, on ${before.place}, and says something else there`);
		const { deviceId, serial } = read.data;
		for (const [column, value] of Object.entries({ deviceId, serial })) {
			if (MADE_A_NUMBER.test(value ?? ''))
				note(place, `${column} ${value}: a spreadsheet has made a number of it; format the column as text`);
		}
		for (const [column, value] of Object.entries(read.data))
			if (A_FAULT.test(String(value)))
				note(place, `${column} ${value}: a spreadsheet shows this where a cell has no value`);
		const mistaken = isCsv ? null : mistakenName(Object.keys(fields as object));
		if (mistaken) note(place, mistaken);
		known.set(read.data.deviceId, { place, said });
		devices.push(read.data);
	};
	const cut = isCsv && (await readCsv(text, file, note, take));
	if (!isCsv) for (const row of jsonLines(text, note)) take(row);
	if (known.size + problems.length === 0) note('line 1', 'no device follows');
	if (problems.length > 0) throw new AgentError('inventory-invalid', problems.join('\n'));
	const odd = [...known].filter(([deviceId]) => LEFT_BEHIND.test(deviceId) || (isCsv && SEPARATED.test(deviceId)));
	for (const [deviceId, { place }] of odd.slice(0, MAX_PROBLEMS)) {
		const why = LEFT_BEHIND.test(deviceId) ? 'has a spreadsheet left that behind' : 'has that line another separator';
		warn?.(`${file}: ${place}: ${deviceId} counts as a device: ${why}?`);
	}
	if (cut)
		warn?.(`${file}: ${cut}: it has fewer fields than the others, and no line end follows: was the file cut off?`);
	for (const said of warn ? sharedNumbers(devices, (id) => known.get(id)?.place ?? '') : []) warn?.(`${file}: ${said}`);
	const [alike] = alikeIds(known.keys());
	if (alike) warn?.(`${file}: ${alike}, and are two devices: is one of them a slip?`);
	return devices;
}

/** Serial numbers and MAC addresses that several devices have, whatever their capitals and spaces: what a rule or an application means by one is not one device. */
function sharedNumbers(devices: readonly InventoryDevice[], placeOf: (deviceId: string) => string): string[] {
	const columns = { 'serial number': 'serial', 'MAC address': 'macAddress' } as const;
	return Object.entries(columns).flatMap(([name, column]) => {
		const numbered = devices.filter((device) => device[column] !== null);
		const groups = Map.groupBy(numbered, (device) => device[column]?.trim().toLowerCase());
		const shared = [...groups.values()].filter((those) => those.length > 1).slice(0, MAX_PROBLEMS);
		return shared.map((those) => {
			const [one, other] = those.map((device) => ({ ...device, place: placeOf(device.deviceId) }));
			const more = those.length > 2 ? `, and ${those.length - 2} more` : '';
			return onOneLine(
				`${one?.place} and ${other?.place}: ${one?.deviceId} and ${other?.deviceId}${more} have the ${name} ${one?.[column]}: is one of them a slip?`,
			);
		});
	});
}

/** Ids that a person takes for one, in words. @param isAsked whether one is compared with those before it. */
export function alikeIds(ids: Iterable<string>, isAsked: (id: string) => boolean = () => true): string[] {
	const seen = new Map<string, string>();
	const found: string[] = [];
	for (const id of ids) {
		// A spreadsheet removes the zeros before a number, or keeps them by an apostrophe.
		const key = id
			.replace(/^'/, '')
			.replace(/^0+(?=\d+$)/, '')
			.normalize()
			.toLowerCase();
		const before = seen.get(key);
		if (before === undefined) seen.set(key, id);
		else if (isAsked(id)) {
			found.push(`${before} and ${id} differ in ${differenceOf(before, id)} only`);
		}
	}
	return found;
}

function differenceOf(one: string, other: string): string {
	if (one.toLowerCase() === other.toLowerCase()) return 'capitals';
	if (one.normalize() === other.normalize()) return 'an accent as written';
	const [number, same] = [one, other].map((id) => id.replace(/^'/, ''));
	return number !== same && /^\d+$/.test(number ?? '') ? 'zeros at the beginning' : 'an apostrophe';
}

/** The file itself, or the files of a directory by name. */
export async function listFiles(path: string): Promise<string[]> {
	const found = await stat(path).catch(() => null);
	if (!found?.isDirectory()) return [path];
	const entries = await readdir(path, { withFileTypes: true });
	const files = entries.filter((entry) => entry.isFile() && !entry.name.startsWith('.'));
	return files.map(({ name }) => join(path, name)).sort();
}

/** Each line's document, read when it is asked for, for files of other shapes as well; nothing of an empty file. @param fault told what is wrong with another line. */
export async function readJsonLines(file: string, fault: (said: string) => void): Promise<Iterable<Row>> {
	const bytes = await readBounded(file, MAX_INVENTORY_BYTES, 'inventory-invalid', 'report');
	const isEmpty = bytes.every((byte) => byte <= 0x20);
	const text = isEmpty ? '' : decode(bytes, file);
	return jsonLines(text, (place, what) => fault(`${file}: ${place}: ${what}.`));
}

/** By the mark of its bytes, or by the first character, which is ASCII in a table and in JSON. */
function encodingOf([first, second]: Uint8Array): 'utf-16le' | 'utf-16be' | 'utf-8' {
	if ((first === 0xff && second === 0xfe) || (first !== 0 && second === 0)) return 'utf-16le';
	return (first === 0xfe && second === 0xff) || (first === 0 && second !== 0) ? 'utf-16be' : 'utf-8';
}

/** A file with nothing in it is an export that failed, not a fleet without devices. */
function decode(bytes: Uint8Array, file: string): string {
	let text: string;
	try {
		text = new TextDecoder(encodingOf(bytes), { fatal: true }).decode(bytes);
	} catch {
		throw new AgentError('inventory-invalid', `${file} is not UTF-8.`, { remedy: 'Save it as UTF-8.' });
	}
	if (text.trim() !== '') return text.replace(/^\ufeff/, '');
	throw new AgentError('inventory-invalid', `${file}: line 1: the file is empty.`, {
		remedy: 'Write one device on each line, and look at what should have made the file.',
	});
}

type NoteProblem = (place: string, what: string) => void;

/** One object on each line; or a whole document, indented or a list, as other programs write it. */
function* jsonLines(text: string, note: NoteProblem): Generator<Row> {
	if (/^\s*(?:\[|\{\s*\n)/.test(text)) {
		const document = parseJson(text);
		const all: unknown[] = Array.isArray(document) ? document : [document];
		for (const [index, fields] of all.entries()) {
			const place = Array.isArray(document) ? `item ${index + 1}` : 'line 1';
			if (isObject(fields)) yield { place, fields };
			else
				note(
					place,
					'this is neither JSON with an object for each device nor one JSON object on each line (jq -c writes the latter)',
				);
		}
		return;
	}
	// Millions of tiny lines may stand in it: a caller that has seen enough of them stops here.
	for (let line = 1, from = 0, end = 0; from < text.length; line += 1, from = end + 1) {
		end = text.indexOf('\n', from);
		if (end < 0) end = text.length;
		const content = text.slice(from, end);
		if (content.trim() === '') continue;
		const fields = parseJson(content);
		if (isObject(fields)) yield { place: `line ${line}`, fields };
		else {
			const isJson = fields !== undefined;
			note(
				`line ${line}`,
				isJson ? 'each line must be one JSON object' : 'this is not one whole JSON object on one line',
			);
		}
	}
}

/** @param take told of each row below the head as it is read: all rows at once would fill the memory. @returns the place of a last row that seems to be cut off. */
async function readCsv(
	text: string,
	file: string,
	note: NoteProblem,
	take: (row: Row) => void,
): Promise<string | null> {
	const { parse, CsvError } = await import('csv-parse/sync');
	// Excel's own first line.
	const [hint = '', given] = /^sep=(.)\r?\n/i.exec(text) ?? [];
	const body = text.slice(hint.length);
	let names: readonly string[] | null = null;
	let above: Cells[] = [];
	const skipped = hint === '' ? 0 : 1;
	let last = skipped;
	let [width, least] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
	const takeCells = ({ place, cells }: Cells, columns: readonly string[]) => {
		// A spreadsheet leaves out empty cells at the end of a row, or writes more of them, and whole rows of them.
		if (cells.every((cell) => cell === '')) return;
		if (cells.slice(columns.length).some((cell) => cell !== ''))
			note(place, FAULTS['CSV_RECORD_INCONSISTENT_COLUMNS'] ?? '');
		take({ place, fields: Object.fromEntries(columns.map((name, index) => [name, cells[index] ?? ''])) });
	};
	const takeHead = (at: number) => {
		const [head, ...rest] = above.slice(at);
		above = [];
		names = checkHead(head?.cells ?? [], `${file}: ${head?.place ?? 'line 1'}`);
		for (const row of rest) takeCells(row, names);
	};
	try {
		parse(body, {
			delimiter: given ?? delimiterOf(body),
			record_delimiter: LINE_ENDS,
			trim: true,
			skip_empty_lines: true,
			relax_column_count: true,
			on_record: (record: string[], { lines }) => {
				last = lines + skipped;
				least = Math.min(least, width);
				width = record.length;
				const row = { place: `line ${last}`, cells: record.map((cell) => cell.trim()) };
				if (names) takeCells(row, names);
				// A spreadsheet has a title above its table, and empty rows below that.
				else if (row.cells.some((cell) => plain(cell) === 'deviceid')) takeHead(above.push(row) - 1);
				else if (above.push(row) === MAX_ABOVE) takeHead(0);
				return null;
			},
		});
		if (!names) takeHead(0);
	} catch (error) {
		if (!(error instanceof CsvError)) throw error;
		// Quotes that do not end are noticed at the end of the file.
		note(`line ${last + 1}`, FAULTS[error.code] ?? `this is not CSV (${error.code})`);
	}
	return width < least && !/[\r\n]$/.test(text) ? `line ${last}` : null;
}

const FAULTS: Readonly<Record<string, string>> = {
	CSV_RECORD_INCONSISTENT_COLUMNS: 'there are more fields than the head has columns',
	CSV_QUOTE_NOT_CLOSED: 'a field in quotes does not end',
	CSV_INVALID_CLOSING_QUOTE: 'after a field in quotes a comma must follow',
	INVALID_OPENING_QUOTE: 'a quote stands inside a field that does not begin with one',
};

/** Spreadsheets write a semicolon or a tab in many countries. */
function delimiterOf(text: string): string {
	const lines = text.trimStart().split(/\r?\n|\r/, MAX_ABOVE);
	const head = lines.find((line) => plain(line).includes('deviceid')) ?? lines[0] ?? '';
	const bare = head.replaceAll(/"[^"]*"/g, '');
	const often = [',', ';', '\t'].map((character) => ({ character, count: bare.split(character).length }));
	return often.reduce((most, one) => (one.count > most.count ? one : most)).character;
}

const plain = (name: string) => name.toLowerCase().replaceAll(/[\s_.-]/g, '');

/** The names of the columns as we know them: capitals, spaces and underscores do not matter. */
function checkHead(names: readonly string[], place: string): string[] {
	const refuse = (fault: string): never => {
		throw new AgentError('inventory-invalid', onOneLine(`${place}: ${fault}`), {
			remedy: `The first line names the columns: ${COLUMNS.join(',')}.`,
		});
	};
	if (names.length > MAX_COLUMNS) refuse(`there are more than ${MAX_COLUMNS} columns.`);
	const known = names.map((name) => COLUMNS.find((column) => plain(column) === plain(name)) ?? name);
	if (!known.includes('deviceId')) {
		const near = names.find((name) => meantBy(name, ['deviceId']) !== null);
		refuse(`there is no column deviceId${near === undefined ? '' : `; is ${near} meant?`}`);
	}
	const twice = known.find((name, index) => COLUMNS.includes(name) && known.indexOf(name) !== index);
	if (twice !== undefined) refuse(`there are two columns ${twice}.`);
	const mistaken = mistakenName(known);
	if (mistaken) refuse(mistaken);
	return known;
}

/** Other names that people give to our columns. */
const OTHER_NAMES: Readonly<Record<string, RegExp>> = {
	deviceId: /^(id|device|kiosk|kioskid)$/,
	serial: /^(serial.*|sn)$/,
	macAddress: /^mac(addr.*)?$/,
	deviceType: /^(type|kind)$/,
	labels: /^(label.*|tags?)$/,
	workflowId: /^workflow.*$/,
	version: /^(agent)?version$/,
};

/** Which of the columns a name may stand for; `null` for one of another meaning. */
function meantBy(name: string, columns: readonly string[]): string | null {
	return columns.find((column) => OTHER_NAMES[column]?.test(plain(name))) ?? nearestName(name, columns);
}

/** A column that would be passed over although it is nearly one of ours, as a sentence without its end; `null` for none. */
function mistakenName(names: readonly string[]): string | null {
	const missing = COLUMNS.filter((column) => !names.includes(column));
	for (const name of names) {
		const meant = COLUMNS.includes(name) ? null : meantBy(name, missing);
		if (meant !== null) return `${JSON.stringify(name.slice(0, 64))} is not known here; did you mean ${meant}?`;
	}
	return null;
}
