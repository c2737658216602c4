/**
 * The events that 0.1.0 keeps in `events.db`: read at a start, and deleted there once they are in the log. A row without content stays, behind
 * all that its readers have: should 0.1.0 come back, they get a gap, and its events are taken over in their turn at the next start of this version.
 */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { SQLOutputValue } from 'node:sqlite';
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';
import { errnoOf, isDiskFull } from '../base/files.edge.ts';
import type { RecordLog } from '../base/record-log.edge.ts';
import { parseJson } from '../protocol/json.ts';
import type { Consumers } from './consumers.ts';
import { anyOf, keyOf, type MessageKey } from './duplicates.ts';
import { type Epoch, gapEvent, type Incoming, idOf } from './event.ts';
import { encodeEvent, encodeState, encodeTag, type Position, type Taken } from './stored-event.ts';

const FILE = 'events.db';
/** SQLite would open these beside it. */
const BESIDE = ['', '-wal', '-shm', '-journal'];
/** Not on a disk, where the contents would stay. */
const IN_MEMORY = '/dev/shm';
/** A damaged file holds contents too: it stays for a person to look at, for as long as an event. */
const ASIDE = /^events\.db\.corrupt-(.+?)(-wal|-shm|-journal)?$/;
/** With a time that is a date, whatever the disk has made of it. */
const ROWS = `SELECT number, epoch, service_id, max(0, min(kept_ms, 8640000000000000)) AS kept_ms,
	at, type, kind, workflow_id, format, content FROM event ORDER BY number`;
const SERVICE_ID_END = '\u001f';
const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;

interface OldEvents {
	/** Not taken over yet, oldest first; `null` for one that was deleted. */
	readonly events: readonly { readonly number: number; readonly keptMs: number; readonly incoming: Incoming | null }[];
	/** Of deleted ones too. */
	readonly keys: readonly MessageKey[];
	readonly epochs: readonly Epoch[];
	readonly consumers: readonly (Position & { readonly name: string })[];
	/** When the newest event was received, also if it is deleted. */
	readonly newestAt: string | null;
	/** The row that stays. */
	readonly marker: { readonly number: number; readonly epoch: string };
}

/** In the place of an event that 0.1.0 had deleted. */
const NO_EVENT: Incoming = {
	...{ at: '', type: 'notification', kind: '', workflowId: null, format: 'json', content: '', serviceId: null },
};

export interface TakeoverParts {
	readonly directory: string;
	readonly durable: boolean;
	readonly wallMs: () => number;
	readonly maxAgeMs: number;
	readonly consumers: Consumers;
	/** The id of the next event in the log. */
	nextId(): string;
	addKeys(keys: readonly MessageKey[]): void;
	/** @returns all that are known then. */
	addEpochs(epochs: readonly Epoch[]): readonly Epoch[];
	onTaken(taken: Taken): void;
	/** Told when the newest one was received. */
	onNewest(at: string): void;
	/** Told why the file cannot be used. */
	onUnusable(file: string, error: unknown): void;
}

/**
 * Appends the events that are not in the log yet, and deletes them in the file when they are durable. A kill may come between any two steps: the next
 * start knows by their count which are here already. @returns when it is done. Never rejects.
 */
export async function takeOver(log: RecordLog, before: Taken | undefined, parts: TakeoverParts): Promise<void> {
	const { directory, durable, wallMs } = parts;
	try {
		dropSetAside(directory, (at) => !durable || wallMs() - (Date.parse(at) || 0) > parts.maxAgeMs);
		const seen = lookAtOldEvents(directory);
		if (seen === null) removeEmpty(directory);
		if (seen === null || seen === before?.seen) return;
		const old = readOldEvents(directory, before);
		append(log, before, old, parts);
		// Everything so far was in one turn: nothing can have come between.
		await log.settled();
		if (!durable) return removeOldEvents(directory);
		// What is in memory only stays in the file as well.
		if (!(await log.recover())) return;
		clearOldEvents(directory, old.marker, wallMs());
		const taken = { ...old.marker, from: null, seen: lookAtOldEvents(directory) ?? undefined };
		parts.onTaken(taken);
		log.note(encodeState({ taken }));
	} catch (error) {
		let file = path.join(directory, FILE);
		try {
			if (isDamage(error) && !durable) return removeOldEvents(directory);
			if (isDamage(error)) file = setOldEventsAside(directory, new Date(wallMs()).toISOString());
		} catch {
			// It stays where it is.
		}
		parts.onUnusable(file, error);
	}
}

function append(log: RecordLog, before: Taken | undefined, old: OldEvents, parts: TakeoverParts): void {
	const { events, epochs, marker } = old;
	const now = parts.wallMs();
	const first = events[0]?.number ?? marker.number;
	if (log.next() === 1) log.beginAt(first);
	const from = before?.from ?? log.next() - 1;
	const keepsNumbers = first === from + 1;
	parts.onTaken({ ...marker, from });
	parts.addKeys(old.keys);
	if (old.newestAt !== null) parts.onNewest(old.newestAt);
	log.note(encodeState({ taken: { ...marker, from }, epochs: parts.addEpochs(keepsNumbers ? epochs : []) }));
	for (const { number, keptMs, incoming } of events.slice(log.next() - 1 - from)) {
		const id = (keepsNumbers && idOf(number, epochs)) || parts.nextId();
		const entry = { ...(incoming ?? NO_EVENT), number: log.next(), id };
		const isWrong = keptMs < EARLIEST_CLOCK_MS || keptMs > now;
		const given = log.append(
			encodeEvent(entry),
			isWrong ? now : keptMs,
			encodeTag(entry.at, incoming && keyOf(incoming)),
		);
		if (!incoming) log.erase([given]);
	}
	for (const { name, number, seenMs } of old.consumers) {
		const at = events.findLastIndex((event) => event.number <= number);
		const reached = keepsNumbers ? Math.min(number, log.next() - 1) : at === -1 ? 0 : from + 1 + at;
		const known = parts.consumers.positions.get(name);
		if (!known) parts.consumers.load({ [name]: { number: reached, seenMs } }, log.next() - 1);
		// One that has not read everything here would pass over the rest.
		else if (known.number >= from) parts.consumers.advance(name, reached);
	}
	const taken = { ...marker, from: null };
	parts.onTaken(taken);
	log.note(encodeState({ taken, consumers: Object.fromEntries(parts.consumers.positions) }));
}

/**
 * A fingerprint by which a start knows that nothing has changed; `null` where there is no event. @throws an error with the code `not-regular`, or
 * `not-whole`: SQLite would delete what it had in the file beside it.
 */
function lookAtOldEvents(directory: string): string | null {
	const stats = BESIDE.map((suffix) => fs.lstatSync(path.join(directory, FILE + suffix), { throwIfNoEntry: false }));
	if (stats.some((stat) => stat && !stat.isFile()))
		throw Object.assign(new Error('it is not a regular file'), { code: 'not-regular' });
	const [size, log, , journal] = stats.map((stat) => stat?.size ?? 0);
	if (size) return stats.map((stat) => (stat ? `${stat.ino} ${stat.mtimeMs} ${stat.size}` : '')).join(';');
	if (log || journal)
		throw Object.assign(new Error('it is missing or empty, and only what was written beside it is left'), {
			code: 'not-whole',
		});
	return null;
}

/** Says of the file what the next start would, and only looks at it; `null` where it can be taken over. */
export function findUnusableOldEvents(directory: string): { readonly file: string; readonly error: unknown } | null {
	let copy: string | null = null;
	try {
		if (lookAtOldEvents(directory) === null) return null;
		// SQLite writes beside the file that it reads.
		copy = fs.mkdtempSync(path.join(fs.existsSync(IN_MEMORY) ? IN_MEMORY : os.tmpdir(), 'idv-agent-'));
		for (const name of BESIDE.map((suffix) => FILE + suffix))
			if (fs.existsSync(path.join(directory, name))) fs.copyFileSync(path.join(directory, name), path.join(copy, name));
		readOldEvents(copy, undefined);
		return null;
	} catch (error) {
		// Without room for a copy nothing is known.
		return isDiskFull(error) ? null : { file: path.join(directory, FILE), error };
	} finally {
		if (copy !== null) fs.rmSync(copy, { recursive: true, force: true });
	}
}

/** @param taken what a start before has taken over. @throws SQLite's errors; see {@link isDamage}. */
function readOldEvents(directory: string, taken: Taken | undefined): OldEvents {
	return withDatabase(directory, (database) => {
		const all = (sql: string) => database.prepare(sql).all() as Record<string, SQLOutputValue>[];
		const rows = all(ROWS);
		const newest = rows.at(-1) ?? {};
		const last = Number(newest['number'] ?? 0);
		// The newest row that was taken over is there, or the one that was put behind it.
		const isContinued = rows.some(({ number, epoch }) => {
			return taken && taken.epoch === epoch && (number === taken.number || number === taken.number - 1);
		});
		const isNew = ({ number }: Record<string, SQLOutputValue>) => !isContinued || Number(number) > (taken?.number ?? 0);
		const kept = rows.filter((row) => row['at'] !== null && isNew(row));
		const first = Number(kept[0]?.['number'] ?? 0);
		const events = rows.filter((row) => isNew(row) && Number(row['number']) >= first && kept.length > 0);
		return {
			events: events.map((row) => ({
				number: Number(row['number']),
				keptMs: Number(row['kept_ms']),
				incoming: row['at'] === null ? null : wholeOf(row),
			})),
			keys: rows.map(keyOfRow).filter((key) => key !== null),
			epochs: [
				...(all('SELECT first, epoch FROM epoch ORDER BY first') as unknown as Epoch[]),
				...rows
					.filter(({ epoch }, at) => epoch !== rows[at - 1]?.['epoch'])
					.map(({ number, epoch }) => ({ first: Number(number), epoch: String(epoch) })),
			]
				.filter(({ epoch }, at, found) => found.findIndex((each) => each.epoch === epoch) === at)
				.sort((one, other) => one.first - other.first),
			consumers: all(
				'SELECT name, position AS number, seen_ms AS seenMs FROM consumer',
			) as unknown as OldEvents['consumers'],
			newestAt: events.length === 0 ? null : newest['at'] === null ? keptAt(newest) : wholeOf(newest).at,
			marker: {
				number: isContinued && last === taken?.number ? last : last + 1,
				epoch: String(rows.at(-1)?.['epoch'] ?? ''),
			},
		};
	});
}

/** Leaves the marker alone in it, durably, and no content. @throws SQLite's errors. */
function clearOldEvents(directory: string, { number, epoch }: OldEvents['marker'], nowMs: number): void {
	withDatabase(directory, (database) => {
		database.exec(
			'PRAGMA secure_delete = ON; PRAGMA synchronous = FULL; PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE',
		);
		database.prepare('DELETE FROM event WHERE number <= ?').run(number);
		if (epoch !== '')
			database
				.prepare('INSERT INTO event (number, epoch, kept_ms, size) VALUES (?, ?, ?, 0)')
				.run(number, epoch, Math.round(nowMs));
		database.exec('COMMIT');
	});
}

function removeOldEvents(directory: string): void {
	for (const suffix of BESIDE) fs.rmSync(path.join(directory, FILE + suffix), { force: true });
}

/** Of an empty file, and of what SQLite keeps beside one. */
function removeEmpty(directory: string): void {
	try {
		removeOldEvents(directory);
	} catch {
		// It harms nothing.
	}
}

/** Whether the file itself is of no use, so that trying again would not help. */
function isDamage(error: unknown): boolean {
	if (errnoOf(error) === 'not-whole') return true;
	const status = Number((error as { errcode?: unknown }).errcode) & 0xff;
	const isForeign = error instanceof Error && /no such (table|column)|has no column/.test(error.message);
	return status === SQLITE_CORRUPT || status === SQLITE_NOTADB || isForeign;
}

/** @returns where the damaged file is now. */
function setOldEventsAside(directory: string, at: string): string {
	const aside = path.join(directory, `${FILE}.corrupt-${at}`);
	for (const suffix of BESIDE.toReversed())
		try {
			fs.renameSync(path.join(directory, FILE + suffix), aside + suffix);
		} catch (error) {
			if (errnoOf(error) !== 'ENOENT') throw error;
		}
	return aside;
}

/** Deletes the files set aside of which `isOld` says so by the time in their names. */
export function dropSetAside(directory: string, isOld: (at: string) => boolean): void {
	for (const name of fs.readdirSync(directory)) {
		const at = ASIDE.exec(name)?.[1];
		if (at !== undefined && isOld(at)) fs.rmSync(path.join(directory, name), { force: true });
	}
}

function withDatabase<Result>(
	directory: string,
	run: (database: import('node:sqlite').DatabaseSync) => Result,
): Result {
	const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
	const database = new DatabaseSync(path.join(directory, FILE));
	try {
		database.exec('PRAGMA locking_mode = EXCLUSIVE');
		return run(database);
	} finally {
		database.close();
	}
}

function incomingOf(row: Record<string, SQLOutputValue>): Incoming {
	const { at, type, kind, workflow_id: workflowId, format, content, service_id: service } = row;
	const serviceId = typeof service === 'string' ? (service.split(SERVICE_ID_END)[0] ?? null) : null;
	return { at, type, kind, workflowId, format, content, serviceId } as unknown as Incoming;
}

/** A row that the disk has altered is a gap at its place: no reader would get past an event without its kind. */
function wholeOf(row: Record<string, SQLOutputValue>): Incoming {
	const incoming = incomingOf(row);
	const { at, type, kind, workflowId, format, content } = incoming;
	const isWhole =
		Number.isFinite(Date.parse(at)) &&
		['notification', 'session', 'gap'].includes(type) &&
		['json', 'text', 'binary'].includes(format) &&
		[kind, content, workflowId ?? ''].every((each) => typeof each === 'string') &&
		(format !== 'json' || parseJson(content) !== undefined);
	if (isWhole) return incoming;
	const to = keptAt(row);
	return gapEvent(null, to, { at: to, workflowId: null });
}

const keptAt = (row: Record<string, SQLOutputValue>) => new Date(Number(row['kept_ms'])).toISOString();

function keyOfRow(row: Record<string, SQLOutputValue>): MessageKey | null {
	const { serviceId, kind, content } = incomingOf(row);
	if (serviceId === null) return null;
	return kind === null || content === null ? anyOf(serviceId) : keyOf({ serviceId, kind, content });
}
