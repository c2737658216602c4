/**
 * The events in one SQLite database, and in the tail beside it what the database has not committed yet: while applications
 * acknowledge at once, no content comes into the database at all. Owns the tables and how each thing is read and written; decides nothing about when, what is kept, and what to do when it fails. Every function may throw SQLite's errors.
 */
import { closeSync, openSync, rmSync } from 'node:fs';
import type { SQLInputValue, StatementSync } from 'node:sqlite';
import { isDamage, NewerVersionError } from './damaged-events.edge.ts';
import { KEY_SEPARATOR, keyOf, type StoredMessage } from './duplicates.ts';
import type { Erasure, Stored } from './erasure.ts';
import type { Entry, Epoch } from './event.ts';
import { type Change, type EventTail, openEventTail, tailOf } from './event-tail.edge.ts';

/** In the place of a file: the same tables in memory, gone with the process. */
export const IN_MEMORY = ':memory:';

/** So much waits in the tail at most, in bytes. */
const MAX_TAIL_BYTES = 256 * 1024;
/** Numbers of deleted events go so many at a time: each time is a page. */
const FORGET_AT_ONCE = 64;

const SCHEMA_VERSION = 1;
// A deleted event keeps its row for a while, with nothing in it but its number and what is needed to know
// it again: the service's id, and short hashes of kind and content.
const SCHEMA = `
	CREATE TABLE IF NOT EXISTS epoch (first INTEGER PRIMARY KEY, epoch TEXT NOT NULL) STRICT;
	CREATE TABLE IF NOT EXISTS consumer (name TEXT PRIMARY KEY, position INTEGER NOT NULL, seen_ms INTEGER NOT NULL) STRICT;
	CREATE TABLE IF NOT EXISTS event (
		number INTEGER PRIMARY KEY, epoch TEXT NOT NULL, service_id TEXT, kept_ms INTEGER NOT NULL, size INTEGER NOT NULL,
		at TEXT, type TEXT, kind TEXT, workflow_id TEXT, format TEXT, content TEXT
	) STRICT;
	PRAGMA user_version = ${SCHEMA_VERSION};`;
const COLUMNS = {
	epoch: ['first', 'epoch'],
	consumer: ['name', 'position', 'seen_ms'],
	event: 'number epoch service_id kept_ms size at type kind workflow_id format content'.split(' '),
} as const;

export interface Position {
	/** Number of the last acknowledged event; 0 before the first. */
	readonly number: number;
	readonly seenMs: number;
}

export interface KeptEvent {
	readonly number: number;
	readonly size: number;
	readonly keptMs: number;
}

export type EventTable = ReturnType<typeof openEventTable>;
export type Row = Record<string, SQLInputValue>;

/** Opens or makes the file, readable for its owner only; or, for {@link IN_MEMORY}, tables in memory. */
export function openEventTable(file: string) {
	const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
	const onDisk = file !== IN_MEMORY;
	// SQLite would let the whole group read a file that it makes; the log beside it gets the same permissions.
	if (onDisk) closeSync(openSync(file, 'a', 0o600));
	const database = new DatabaseSync(file);
	const prepared = new Map<string, StatementSync>();
	const run = (sql: string, ...values: SQLInputValue[]) => {
		const statement = prepared.get(sql) ?? database.prepare(sql);
		prepared.set(sql, statement);
		return {
			all: () => statement.all(...values) as Row[],
			each: () => statement.iterate(...values) as Iterable<Row>,
			done: () => void statement.run(...values),
		};
	};
	const hasOurColumns = () =>
		Object.entries(COLUMNS).every(([table, columns]) => {
			const found = run(`SELECT name FROM pragma_table_info('${table}')`).all();
			return columns.every((column) => found.some(({ name }) => name === column));
		});
	try {
		// Exclusive: one process uses it, and then the log needs no shared memory file.
		database.exec('PRAGMA locking_mode = EXCLUSIVE');
		database.exec(
			'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -1024; PRAGMA cache_spill = OFF',
		);
		// Moving the log into the file holds everything up: half as often as by default, at 8 MiB.
		database.exec('PRAGMA wal_autocheckpoint = 2000');
		const version = Number(run('PRAGMA user_version').all()[0]?.['user_version']);
		// A newer version adds columns and tables; what it needs is left as it is.
		if (version > SCHEMA_VERSION && !hasOurColumns()) throw new NewerVersionError();
		if (version < SCHEMA_VERSION) database.exec(SCHEMA);
		prepared.clear();
	} catch (error) {
		database.close();
		throw error;
	}

	const tail: EventTail | null = onDisk ? openEventTail(tailOf(file)) : null;
	/** What the transaction that is under way has done so far. */
	let changes: Change[] = [];
	/** Whether the database, or its log, may hold contents. */
	let holdsContents = true;

	/** All or nothing. When it returns, an event in it is durable; the rest is safe from the end of the process. */
	const transaction = <Result>(write: () => Result): Result => {
		changes = [];
		// One transaction of the database stays open until `settle`: until then the tail has what it did.
		if (!database.isTransaction) database.exec('BEGIN IMMEDIATE');
		database.exec('SAVEPOINT step');
		let result: Result;
		try {
			result = write();
			if (changes.length > 0)
				tail?.append(
					changes,
					changes.some(([name]) => name === 'add'),
				);
			database.exec('RELEASE step');
		} catch (error) {
			if (database.isTransaction) database.exec('ROLLBACK TO step; RELEASE step');
			throw error;
		}
		if (!tail || tail.bytes > MAX_TAIL_BYTES) settle();
		return result;
	};

	/** Everything so far is in the database, durably, and the tail is empty. */
	const settle = () => {
		if (database.isTransaction) {
			holdsContents ||= run('SELECT 1 FROM event WHERE at IS NOT NULL LIMIT 1').all().length > 0;
			database.exec('COMMIT');
		}
		tail?.empty();
	};

	const positions = () =>
		new Map(
			run('SELECT name, position AS number, seen_ms AS seenMs FROM consumer')
				.all()
				.map(({ name, ...position }) => [String(name), position as unknown as Position]),
		);

	/** Does again what a process had in the tail when it ended. Some of it may be in the database already. */
	const replay = (lines: readonly Change[][]) => {
		const { last } = totals();
		for (const [name, ...given] of lines.flat()) {
			if (name === 'add' && (given[0] as number) > last) run(insertInto('event'), ...(given as SQLInputValue[])).done();
			else if (name === 'setEpochs') setEpochs(given[0] as Epoch[]);
			else if (name === 'setConsumers') {
				const known = positions();
				const newer = (given[0] as [string, Position][]).filter(
					([is, { number }]) => number >= (known.get(is)?.number ?? 0),
				);
				setConsumers(new Map([...known, ...newer]));
			} else if (name === 'remove') remove(...(given as [number, number, number]));
		}
	};

	const totals = () => {
		const [found] = run(
			'SELECT max(number) AS last, min(iif(at IS NULL, NULL, number)) AS first, count(at) AS count, total(size) AS bytes FROM event',
		).all();
		return {
			/** The newest number that was ever given; 0 before the first. */
			last: Number(found?.['last'] ?? 0),
			/** The oldest kept event's number. */
			first: (found?.['first'] as number | null | undefined) ?? null,
			/** Of the events that are kept, as `bytes`. */
			count: Number(found?.['count'] ?? 0),
			bytes: Number(found?.['bytes'] ?? 0),
		};
	};

	function setEpochs(epochs: readonly Epoch[]): void {
		changes.push(['setEpochs', epochs]);
		run('DELETE FROM epoch').done();
		for (const { first, epoch } of epochs) run(insertInto('epoch'), first, epoch).done();
	}

	function setConsumers(consumers: ReadonlyMap<string, Position>): void {
		changes.push(['setConsumers', [...consumers]]);
		for (const name of positions().keys())
			if (!consumers.has(name)) run('DELETE FROM consumer WHERE name = ?', name).done();
		// Not by a replacement: a name that stays costs no page of the index.
		const save =
			'INSERT INTO consumer (name, position, seen_ms) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET position = ?2, seen_ms = ?3';
		for (const [name, { number, seenMs }] of consumers) run(save, name, number, seenMs).done();
	}

	/** Deletes events up to a number, of which those after `forgotten` leave their number and service id. `first` is the oldest kept one. */
	function remove(first: number, upTo: number, forgotten: number): void {
		changes.push(['remove', first, upTo, forgotten]);
		const gone = Math.floor(Math.min(upTo, forgotten) / FORGET_AT_ONCE) * FORGET_AT_ONCE;
		run('DELETE FROM event WHERE number <= ?', gone).done();
		// The time of receipt does not count as contents: the gap of the next start begins there.
		run(
			`UPDATE event SET kept_ms = coalesce(CAST(round(unixepoch(at, 'subsec') * 1000) AS INTEGER), kept_ms), size = 0, at = NULL, type = NULL, kind = NULL, workflow_id = NULL, format = NULL, content = NULL
			WHERE number BETWEEN ? AND ? AND at IS NOT NULL`,
			Math.max(first, gone + 1),
			upTo,
		).done();
	}

	try {
		const lines = tail?.read() ?? [];
		if (lines.length > 0) {
			database.exec('BEGIN IMMEDIATE');
			replay(lines);
			settle();
		}
		tail?.remove();
	} catch (error) {
		database.close();
		throw error;
	}
	return {
		onDisk,
		transaction,
		settle,
		summary() {
			// The content is needed only where an older agent has stored the id alone.
			const messages = run(
				`SELECT service_id AS key, kind, iif(instr(service_id, '${KEY_SEPARATOR}'), NULL, content) AS content
				FROM event WHERE service_id IS NOT NULL ORDER BY number`,
			).all();
			return {
				...totals(),
				epochs: run('SELECT first, epoch FROM epoch ORDER BY first').all() as unknown as Epoch[],
				consumers: positions(),
				/** Of kept and deleted events, oldest first. */
				messages: messages as unknown as StoredMessage[],
			};
		},
		/** When the newest event was received, ISO 8601, also if it is deleted; `null` before the first. */
		newestAt(): string | null {
			const [newest] = run('SELECT at, kept_ms AS keptMs FROM event ORDER BY number DESC LIMIT 1').all();
			if (!newest) return null;
			return (newest['at'] as string | null) ?? new Date(Number(newest['keptMs'])).toISOString();
		},
		/** Events after a number, oldest first. */
		page: (after: number, limit: number) =>
			run(
				`SELECT epoch || '-' || number AS id, number, at, type, kind, workflow_id AS workflowId, format, content,
					iif(instr(service_id, '${KEY_SEPARATOR}'), substr(service_id, 1, instr(service_id, '${KEY_SEPARATOR}') - 1), service_id) AS serviceId
				FROM event WHERE number > ? AND at IS NOT NULL ORDER BY number LIMIT ?`,
				after,
				limit,
			).all() as unknown as Entry[],
		/** The kept events after a number, oldest first; read as far as the caller iterates. */
		kept: (after: number) =>
			run(
				'SELECT number, size, kept_ms AS keptMs FROM event WHERE number > ? AND at IS NOT NULL ORDER BY number',
				after,
			).each() as unknown as Iterable<KeptEvent>,
		add(entry: Entry, keptMs: number, size: number): void {
			const { id, number, at, type, kind, workflowId, format, content } = entry;
			const epoch = id.slice(0, id.lastIndexOf('-'));
			const values = [number, epoch, keyOf(entry), keptMs, size, at, type, kind, workflowId, format, content];
			changes.push(['add', ...values]);
			run(insertInto('event'), ...values).done();
		},
		setEpochs,
		setConsumers,
		remove,
		/**
		 * Deletes events and all that deleted ones have left of the same, so that nothing of them is in the database, its log or
		 * the tail. The newest leaves its bare number: no number is given twice.
		 * @returns how many of them were still kept.
		 */
		erase(matches: Erasure): number {
			const going: Row[] = [];
			const rows = run(
				`SELECT epoch || '-' || number AS id, number, at, kind, format, content, kept_ms AS keptMs,
					iif(instr(service_id, '${KEY_SEPARATOR}'), substr(service_id, 1, instr(service_id, '${KEY_SEPARATOR}') - 1), service_id) AS serviceId
				FROM event`,
			).each();
			for (const row of rows) {
				const { number = 0, at = null } = row;
				if (matches(row as unknown as Stored)) going.push({ number, at });
			}
			transaction(() => {
				for (const { number = 0 } of going)
					run(
						'UPDATE event SET service_id = NULL, size = 0, at = NULL, type = NULL, kind = NULL, workflow_id = NULL, format = NULL, content = NULL WHERE number = ?',
						number,
					).done();
				run(
					'DELETE FROM event WHERE at IS NULL AND service_id IS NULL AND number < (SELECT max(number) FROM event)',
				).done();
			});
			settle();
			tail?.remove();
			database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
			return going.filter(({ at }) => at !== null).length;
		},
		/** Makes all kept events older or younger. */
		shiftAges: (byMs: number) => run('UPDATE event SET kept_ms = kept_ms + ? WHERE at IS NOT NULL', byMs).done(),
		/** Events of a clock that was never set, or from the future, are taken as kept now. */
		correctAges: (earliestMs: number, nowMs: number) =>
			run(
				'UPDATE event SET kept_ms = ?2 WHERE at IS NOT NULL AND (kept_ms < ?1 OR kept_ms > ?2)',
				earliestMs,
				nowMs,
			).done(),
		/** Leaves nothing of deleted events, neither in the tail nor in the database's log. */
		clean() {
			settle();
			if (!holdsContents) return;
			database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
			holdsContents = totals().count > 0;
		},
		/** Takes everything over from another one; of its own only events with smaller numbers than `keepBefore` stay. */
		takeOver(other: { rows(table: keyof typeof COLUMNS): Row[] }, keepBefore: number): void {
			transaction(() => {
				run('DELETE FROM event WHERE number >= ?', keepBefore).done();
				run('DELETE FROM epoch WHERE first >= ?', keepBefore).done();
				for (const table of ['epoch', 'consumer', 'event'] as const)
					for (const row of other.rows(table)) run(insertInto(table), ...Object.values(row)).done();
			});
			settle();
		},
		/** Every row of a table. */
		rows: (table: keyof typeof COLUMNS): Row[] => run(`SELECT ${COLUMNS[table].join(', ')} FROM ${table}`).all(),
		/** What the tail has of a database that has lost it. */
		replayFrom(other: { readonly lines: () => Change[][] }): void {
			replay(other.lines());
		},
		lines: () => tail?.read() ?? [],
		close() {
			try {
				settle();
				tail?.remove();
			} finally {
				tail?.close();
				database.close();
			}
		},
	};
}

/**
 * Memory with what the file held; the file is emptied and deleted. A damaged one is only deleted.
 * @throws whatever keeps the file from being deleted.
 */
export function moveToMemory(file: string): EventTable {
	const memory = openEventTable(IN_MEMORY);
	try {
		const disk = openEventTable(file);
		try {
			memory.takeOver(disk, 0);
			disk.takeOver(openEventTable(IN_MEMORY), 0);
			disk.clean();
		} finally {
			disk.close();
		}
	} catch (error) {
		if (!isDamage(error)) throw error;
	}
	for (const log of ['', '-wal', '-tail']) rmSync(`${file}${log}`, { force: true });
	return memory;
}

function insertInto(table: keyof typeof COLUMNS): string {
	return `INSERT OR REPLACE INTO ${table} (${COLUMNS[table].join(', ')}) VALUES (${COLUMNS[table].map(() => '?').join(', ')})`;
}
