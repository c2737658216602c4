/** The events as they are stored: tables of the database, and lines of the tail. */
import { KEY_SEPARATOR } from './duplicates.ts';
import type { Change } from './transaction.ts';

/** The steps of a transaction, by their names and what the table gets; JSON. */
export type Line = readonly (readonly [name: string, ...given: unknown[]])[];

export const SCHEMA_VERSION = 1;
// A deleted event keeps its row for a while, with nothing in it but its number and what is needed to know
// it again: the service's id, and short hashes of kind and content.
export const SCHEMA = `
	CREATE TABLE IF NOT EXISTS epoch (first INTEGER PRIMARY KEY, epoch TEXT NOT NULL) STRICT;
	CREATE TABLE IF NOT EXISTS consumer (name TEXT PRIMARY KEY, position INTEGER NOT NULL, seen_ms INTEGER NOT NULL) STRICT;
	CREATE TABLE IF NOT EXISTS event (
		number INTEGER PRIMARY KEY, epoch TEXT NOT NULL, service_id TEXT, kept_ms INTEGER NOT NULL, size INTEGER NOT NULL,
		at TEXT, type TEXT, kind TEXT, workflow_id TEXT, format TEXT, content TEXT
	) STRICT;
	PRAGMA user_version = ${SCHEMA_VERSION};`;
export const COLUMNS = {
	epoch: ['first', 'epoch'],
	consumer: ['name', 'position', 'seen_ms'],
	event: 'number epoch service_id kept_ms size at type kind workflow_id format content'.split(' '),
} as const;
const insertInto = (table: keyof typeof COLUMNS) =>
	`INSERT OR REPLACE INTO ${table} (${COLUMNS[table].join(', ')}) VALUES (${COLUMNS[table].map(() => '?').join(', ')})`;
export const INSERT = { epoch: insertInto('epoch'), consumer: insertInto('consumer'), event: insertInto('event') };

/** The service's id of an event, without what is stored beside it to tell its duplicates. */
export const SERVICE_ID = `iif(instr(service_id, '${KEY_SEPARATOR}'), substr(service_id, 1, instr(service_id, '${KEY_SEPARATOR}') - 1), service_id)`;

/** An event by its columns. */
export function lineOf(change: Change): Line[number] {
	if (change[0] !== 'add') return change;
	const { number, epoch, key, keptMs, size, entry } = change[1];
	const { at = null, type = null, kind = null, workflowId = null, format = null, content = null } = entry ?? {};
	return ['add', number, epoch, key, keptMs, size, at, type, kind, workflowId, format, content];
}
