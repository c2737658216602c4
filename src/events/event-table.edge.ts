/** The events in one SQLite database, and what came since in memory and the tail. Every function may throw SQLite's errors. The order of
 * the flushes: docs/decisions/0048-flushes-beside-the-main-thread.md. */
import { closeSync, fstatSync, openSync, rmSync } from 'node:fs';
import type { SQLInputValue, StatementSync } from 'node:sqlite';
import { isDamage, NewerVersionError } from './damaged-events.edge.ts';
import { KEY_SEPARATOR, type StoredMessage } from './duplicates.ts';
import type { Erasure, Stored } from './erasure.ts';
import { type Entry, type Epoch, MAX_EPOCHS } from './event.ts';
import { COLUMNS, INSERT, type Line, lineOf, SCHEMA, SCHEMA_VERSION, SERVICE_ID } from './event-columns.ts';
import { openEventTail, tailsOf } from './event-tail.edge.ts';
import { type Flushes, flushNames, runNow } from './flushing.edge.ts';
import { createRecentEvents } from './recent-events.ts';
import type { Change, KeptEvent, Position } from './transaction.ts';

/** In the place of a file: the same tables in memory, gone with the process. */
export const IN_MEMORY = ':memory:';

/** So much waits in the tail at most, in bytes, and so much while nothing else is to be stored: a long flush of the log holds those of the tail up. */
const MAX_TAIL_BYTES = 1024 * 1024;
const IDLE_TAIL_BYTES = 64 * 1024;
/** The database's log grows to this, in bytes, before it is moved into the database. */
const MAX_LOG_BYTES = 8 * 1024 * 1024;
/** Numbers of deleted events go so many at a time: each time is a page. */
const FORGET_AT_ONCE = 64;

export type EventTable = ReturnType<typeof openEventTable>;
export type Row = Record<string, SQLInputValue>;

/** Opens or makes the file, readable for its owner only; or, for {@link IN_MEMORY}, tables in memory. */
export function openEventTable(file: string) {
	const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
	const onDisk = file !== IN_MEMORY;
	// SQLite would let the whole group read a file that it makes; the log beside it gets the same permissions.
	const main = onDisk ? openSync(file, 'a', 0o600) : -1;
	let log = -1;
	const closeFiles = () => {
		for (const open of [main, log]) if (open !== -1) closeSync(open);
	};
	const database = attempted(() => new DatabaseSync(file), closeFiles);
	const close = () => {
		try {
			// SQLite moves its log into the database when it closes: with flushes of its own.
			database.exec('PRAGMA synchronous = FULL');
		} finally {
			database.close();
			// Not before: with the first descriptor that a process closes it loses SQLite's locks.
			closeFiles();
		}
	};
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
	attempted(() => {
		// Exclusive: one process uses it, and then the log needs no shared memory file.
		database.exec('PRAGMA locking_mode = EXCLUSIVE');
		database.exec(
			'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -1024; PRAGMA cache_spill = OFF',
		);
		database.exec('PRAGMA wal_autocheckpoint = 0');
		const version = Number(run('PRAGMA user_version').all()[0]?.['user_version']);
		// A newer version adds columns and tables; what it needs is left as it is.
		if (version > SCHEMA_VERSION && !hasOurColumns()) throw new NewerVersionError();
		if (version < SCHEMA_VERSION) database.exec(SCHEMA);
		prepared.clear();
		// From here on `settle` flushes, which would be SQLite's on this thread.
		database.exec('PRAGMA synchronous = OFF');
		if (onDisk) log = openSync(`${file}-wal`, 'a', 0o600);
	}, close);

	const tail = onDisk ? openEventTail(file) : null;
	const recent = createRecentEvents();
	/** The newest number in the database. */
	let newest = 0;
	/** Events in the database became older by this, which it does not know yet. */
	let shiftedByMs = 0;
	/** Whether the database, or its log, may hold contents. */
	let holdsContents = true;
	/** Whether a power cut leaves the log that this process has found, under its name; and what was committed since. */
	let isLogFlushed = !onDisk;
	let isCommitFlushed = true;
	let isCommitting = false;

	function* flushLogFound(): Flushes {
		yield log;
		yield* flushNames(file);
		isLogFlushed = true;
	}

	/** All or nothing; the next flush of the log makes it durable. */
	const transaction = (write: () => void): void => {
		if (!isLogFlushed) runNow(flushLogFound());
		database.exec('BEGIN IMMEDIATE');
		try {
			write();
			database.exec('COMMIT');
		} catch (error) {
			if (database.isTransaction) database.exec('ROLLBACK');
			throw error;
		}
		isCommitFlushed = !onDisk;
		newest = newestNumber();
	};

	/** Brings everything so far into the database, durably. @param cleans also what was deleted off its log. @param moves also events that are kept. */
	function* settle(cleans = false, moves = onDisk): Flushes {
		isCommitting = true;
		try {
			const changes = recent.changes(moves);
			const isChanged = changes.length > 0 || shiftedByMs !== 0;
			if (isChanged && !isLogFlushed) yield* flushLogFound();
			if (isChanged)
				transaction(() => {
					if (shiftedByMs !== 0) run('UPDATE event SET kept_ms = kept_ms + ? WHERE at IS NOT NULL', shiftedByMs).done();
					changes.map(lineOf).forEach(perform);
				});
			holdsContents ||= changes.some(([name, added]) => name === 'add' && added.entry !== null);
			recent.clear(moves);
			shiftedByMs = 0;
			tail?.turn(cleans);
		} finally {
			isCommitting = false;
		}
		if (!isCommitFlushed) yield log;
		isCommitFlushed = true;
		tail?.empty(cleans);
		const isLong = onDisk && fstatSync(log).size > MAX_LOG_BYTES;
		if (!onDisk || !(isLong || (cleans && holdsContents))) return;
		// The log is whole on the disk before a page of the database is written, the database before the log is cut, and the cut
		// before the log begins again: a page of an old log would come back over a newer one.
		database.exec('PRAGMA wal_checkpoint(PASSIVE)');
		yield main;
		database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
		yield log;
		holdsContents = run('SELECT 1 FROM event WHERE at IS NOT NULL LIMIT 1').all().length > 0;
	}

	const newestNumber = () => Number(run('SELECT max(number) AS last FROM event').all()[0]?.['last'] ?? 0);

	const positions = () =>
		new Map(
			run('SELECT name, position AS number, seen_ms AS seenMs FROM consumer')
				.all()
				.map(({ name, ...position }) => [String(name), position as unknown as Position]),
		);

	function perform([name, ...given]: Line[number]): void {
		if (name === 'add') run(INSERT.event, ...(given as SQLInputValue[])).done();
		else if (name === 'setEpochs') setEpochs(given[0] as Epoch[]);
		else if (name === 'setConsumers') setConsumers(new Map(given[0] as [string, Position][]));
		else if (name === 'remove') remove(...(given as [number, number, number]));
	}

	/** Does again what a process had in the tail when it ended. Some of it may be in the database already. */
	const replay = (lines: readonly Line[]) => {
		const last = newestNumber();
		for (const change of lines.flat()) {
			const [name, given] = change;
			if (name === 'setConsumers') {
				const known = positions();
				const newer = (given as [string, Position][]).filter(
					([is, { number }]) => number >= (known.get(is)?.number ?? 0),
				);
				setConsumers(new Map([...known, ...newer]));
			} else if (name !== 'add' || (given as number) > last) perform(change);
		}
	};

	function setEpochs(epochs: readonly Epoch[]): void {
		for (const { first, epoch } of epochs) run(INSERT.epoch, first, epoch).done();
		run(
			'DELETE FROM epoch WHERE first NOT IN (SELECT first FROM epoch ORDER BY first DESC LIMIT ?)',
			MAX_EPOCHS,
		).done();
	}

	function setConsumers(consumers: ReadonlyMap<string, Position>): void {
		for (const name of positions().keys())
			if (!consumers.has(name)) run('DELETE FROM consumer WHERE name = ?', name).done();
		// Not by a replacement: a name that stays costs no page of the index.
		const save =
			'INSERT INTO consumer (name, position, seen_ms) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET position = ?2, seen_ms = ?3';
		for (const [name, { number, seenMs }] of consumers) run(save, name, number, seenMs).done();
	}

	/** Deletes events up to a number, of which those after `forgotten` leave their number and service id. `first` is the oldest kept one. */
	function remove(first: number, upTo: number, forgotten: number): void {
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

	attempted(() => {
		const lines = tail?.read() ?? [];
		newest = newestNumber();
		if (lines.length > 0) {
			transaction(() => replay(lines));
			runNow(settle());
		}
		tail?.remove();
	}, close);
	return {
		onDisk,
		/** Whether it is time to settle: the next start would have much to do again, or the tail does not know of something. @param isIdle whether nothing waits to be stored. */
		isSettleDue(isIdle: boolean): boolean {
			return (onDisk && shiftedByMs !== 0) || (tail?.bytes ?? 0) > (isIdle ? IDLE_TAIL_BYTES : MAX_TAIL_BYTES);
		},
		/** Whether a settling has begun and has not committed yet. Nothing may be stored meanwhile. */
		get isCommitting() {
			return isCommitting;
		},
		/** All or nothing. At its end an event in it would survive a power cut, the rest the end of the process. */
		*store(changes: readonly Change[]): Flushes {
			if (changes.length === 0) return;
			const flushes = changes.some(([name]) => name === 'add');
			if (tail) yield* tail.append(changes.map(lineOf), flushes);
			changes.forEach(recent.perform);
		},
		settle,
		summary() {
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
				epochs: run('SELECT first, epoch FROM epoch ORDER BY first').all() as unknown as Epoch[],
				consumers: positions(),
			};
		},
		/** Of kept and deleted events, oldest first. The content is needed only where an older agent has stored the id alone. */
		messages: () =>
			run(
				`SELECT service_id AS key, kind, iif(instr(service_id, '${KEY_SEPARATOR}'), NULL, content) AS content
				FROM event WHERE service_id IS NOT NULL ORDER BY number`,
			).all() as unknown as StoredMessage[],
		/** When the newest event was received, ISO 8601, also if it is deleted; `null` before the first. */
		newestAt(): string | null {
			const found = recent.newest;
			if (found) return found.entry?.at ?? new Date(found.keptMs).toISOString();
			const [stored] = run('SELECT at, kept_ms AS keptMs FROM event ORDER BY number DESC LIMIT 1').all();
			if (!stored) return null;
			return (stored['at'] as string | null) ?? new Date(Number(stored['keptMs'])).toISOString();
		},
		/** Events after a number, oldest first; not one before the oldest kept one. */
		page(after: number, limit: number): readonly Entry[] {
			if (after >= newest) return recent.page(after, limit);
			const stored = run(
				`SELECT epoch || '-' || number AS id, number, at, type, kind, workflow_id AS workflowId, format, content, ${SERVICE_ID} AS serviceId
				FROM event WHERE number > ? AND at IS NOT NULL ORDER BY number LIMIT ?`,
				...[after, limit],
			).all();
			return [...(stored as unknown as Entry[]), ...recent.page(after, limit - stored.length)];
		},
		/** The kept events after a number, oldest first; read as far as the caller iterates. */
		*kept(after: number): Iterable<KeptEvent> {
			if (after < newest)
				yield* run(
					'SELECT number, size, kept_ms + ? AS keptMs FROM event WHERE number > ? AND at IS NOT NULL ORDER BY number',
					...[shiftedByMs, after],
				).each() as unknown as Iterable<KeptEvent>;
			yield* recent.after(after);
		},
		/** Deletes events and what deleted ones have left, in the database, its log and the tail; no number is given twice. @returns how many were kept. */
		erase(matches: Erasure): number {
			runNow(settle(false, true));
			const going: Row[] = [];
			const rows = run(
				`SELECT epoch || '-' || number AS id, number, at, kind, format, content, kept_ms AS keptMs, ${SERVICE_ID} AS serviceId FROM event`,
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
			holdsContents = true;
			runNow(settle(true));
			tail?.remove();
			return going.filter(({ at }) => at !== null).length;
		},
		shiftAges(byMs: number): void {
			recent.shiftAges(byMs);
			shiftedByMs += byMs;
		},
		/** Events of a clock that was never set, or from the future, are taken as kept now. */
		correctAges(earliestMs: number, nowMs: number): void {
			const wrong = 'WHERE at IS NOT NULL AND (kept_ms < ?1 OR kept_ms > ?2)';
			if (run(`SELECT 1 FROM event ${wrong} LIMIT 1`, earliestMs, nowMs).all().length === 0) return;
			transaction(() => run(`UPDATE event SET kept_ms = ?2 ${wrong}`, earliestMs, nowMs).done());
		},
		/** Takes everything over from another one; of its own only events with smaller numbers than `keepBefore` stay. */
		takeOver(other: { rows(table: keyof typeof COLUMNS): Row[]; changes(): Change[] }, keepBefore: number): void {
			transaction(() => {
				run('DELETE FROM event WHERE number >= ?', keepBefore).done();
				run('DELETE FROM epoch WHERE first >= ?', keepBefore).done();
				for (const table of ['epoch', 'consumer', 'event'] as const)
					for (const row of other.rows(table)) run(INSERT[table], ...Object.values(row)).done();
				other.changes().map(lineOf).forEach(perform);
			});
			runNow(settle());
		},
		/** What the database does not have yet. */
		changes: recent.changes,
		rows(table: keyof typeof COLUMNS): Row[] {
			const keptMs = `kept_ms + iif(at IS NULL, 0, ${shiftedByMs})`;
			return run(`SELECT ${COLUMNS[table].join(', ').replace('kept_ms', keptMs)} FROM ${table}`).all();
		},
		close() {
			try {
				runNow(settle());
				tail?.remove();
			} finally {
				tail?.close();
				close();
			}
		},
	};
}

/** Memory with what the file held; the file is deleted, a damaged one unread. @throws whatever keeps it from being deleted. */
export function moveToMemory(file: string): EventTable {
	const memory = openEventTable(IN_MEMORY);
	try {
		const disk = openEventTable(file);
		try {
			memory.takeOver(disk, 0);
			disk.takeOver(openEventTable(IN_MEMORY), 0);
			runNow(disk.settle(true));
		} finally {
			disk.close();
		}
	} catch (error) {
		if (!isDamage(error)) throw error;
	}
	for (const each of [file, `${file}-wal`, ...tailsOf(file)]) rmSync(each, { force: true });
	return memory;
}

function attempted<Result>(begin: () => Result, undo: () => void): Result {
	try {
		return begin();
	} catch (error) {
		undo();
		throw error;
	}
}
