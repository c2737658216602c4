/** The events of 0.1.0, taken over at every start: ids, positions, duplicates, kills between any two steps, and the way back and forth. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Entry } from '../../src/events/event.ts';
import { createEventStore, type EventStoreOptions } from '../../src/events/store.edge.ts';
import { findUnusableOldEvents } from '../../src/events/takeover.edge.ts';
import { EIO } from '../base/lossy-files.ts';
import { readAll } from '../harness/read-all.ts';

const AT = '2026-11-21T05:00:00.000Z';
const NOW = Date.parse('2026-11-21T06:00:00.000Z');
const SECRET = 'passport-L01X00T47';

let directory: string;
let run = 0;
beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'takeover-'));
	return () => fs.rmSync(directory, { recursive: true, force: true });
});

/** What 0.1.0 does with its file: makes it, adds events, moves positions, deletes what all have. */
function oldVersion(act: (database: DatabaseSync) => void): void {
	const database = new DatabaseSync(path.join(directory, 'events.db'));
	database.exec(`PRAGMA journal_mode = WAL;
		CREATE TABLE IF NOT EXISTS epoch (first INTEGER PRIMARY KEY, epoch TEXT NOT NULL) STRICT;
		CREATE TABLE IF NOT EXISTS consumer (name TEXT PRIMARY KEY, position INTEGER NOT NULL, seen_ms INTEGER NOT NULL) STRICT;
		CREATE TABLE IF NOT EXISTS event (
			number INTEGER PRIMARY KEY, epoch TEXT NOT NULL, service_id TEXT, kept_ms INTEGER NOT NULL, size INTEGER NOT NULL,
			at TEXT, type TEXT, kind TEXT, workflow_id TEXT, format TEXT, content TEXT
		) STRICT; PRAGMA user_version = 1;`);
	act(database);
	database.close();
}

const addOld = (database: DatabaseSync, epoch: string, ...contents: string[]) => {
	const last = Number(database.prepare('SELECT max(number) AS last FROM event').get()?.['last'] ?? 0);
	database.prepare('INSERT INTO epoch VALUES (?, ?)').run(last + 1, epoch);
	const add = database.prepare("INSERT INTO event VALUES (?, ?, ?, ?, 1, ?, 'notification', 'k', 'w', 'json', ?)");
	for (const [index, content] of contents.entries())
		add.run(last + 1 + index, epoch, `s-${content}`, NOW - 1000, AT, JSON.stringify(content));
};
const deleteOld = (database: DatabaseSync, upTo: number) =>
	database
		.prepare(
			'UPDATE event SET size = 0, at = NULL, type = NULL, kind = NULL, workflow_id = NULL, format = NULL, content = NULL WHERE number <= ?',
		)
		.run(upTo);

function open(options: Partial<EventStoreOptions> = {}) {
	run += 1;
	const notices: string[] = [];
	const store = createEventStore({
		...{ directory, epoch: `run${run}`, wallMs: () => NOW },
		bounds: { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: 86_400_000 },
		onNotice: (topic, notice) => notices.push(`${topic}: ${notice?.message}`),
		...options,
	});
	onTestFinished(() => store.close());
	return Object.assign(store, { notices });
}

/** What it has once everything is taken over. */
async function started(options: Partial<EventStoreOptions> = {}) {
	const store = open(options);
	store.newest();
	await store.settled();
	return store;
}

const append = async (store: ReturnType<typeof open>, content: string) => {
	const own = { at: AT, type: 'notification', kind: 'k', workflowId: 'w', format: 'json' } as const;
	const entry = store.append({ ...own, content: JSON.stringify(content), serviceId: `s-${content}` });
	await store.settled();
	return entry?.id ?? null;
};
const contents = (entries: readonly Entry[]) =>
	entries.map(({ type, content }) => (type === 'gap' ? 'gap' : JSON.parse(content)));
const ids = (entries: readonly Entry[]) => entries.map(({ id }) => id);
const rows = () => {
	const database = new DatabaseSync(path.join(directory, 'events.db'));
	const found = database.prepare('SELECT number, epoch, at FROM event ORDER BY number').all();
	database.close();
	return found.map((row) => ({ ...row }));
};

test('they are there under their ids, with positions and what tells duplicates; no content stays in the file [F516]', async () => {
	oldVersion((database) => {
		addOld(database, 'old1', 'a', 'b', SECRET);
		addOld(database, 'old2', 'd');
		database.exec("INSERT INTO consumer VALUES ('kiosk', 2, 1), ('printer', 1, 1)");
		deleteOld(database, 1);
	});
	let store = await started();
	for (let round = 0; round < 2; round += 1) {
		expect(ids(readAll(store).entries)).toEqual(['old1-2', 'old1-3', 'old2-4']);
		expect([store.positionOf('kiosk'), store.positionOf('printer')]).toEqual(['old1-2', 'old1-1']);
		expect(store.newestAt()).toBe(AT);
		expect([await append(store, 'a'), await append(store, 'b'), await append(store, 'd')]).toEqual([null, null, null]);
		expect(readAll(store, 'old1-3')).toMatchObject({ missed: false, entries: [{ id: 'old2-4' }] });
		await store.close();
		expect(rows()).toEqual([{ number: 5, epoch: 'old2', at: null }]);
		for (const name of fs.readdirSync(directory))
			expect(name.endsWith('.log') || !fs.readFileSync(path.join(directory, name)).includes(SECRET), name).toBe(true);
		store = await started();
	}
	expect(await append(store, 'new')).toMatch(/^run\d+-5$/);
	expect(store.notices).toEqual([]);
});

test('a file in which everything is acknowledged leaves its number, its positions and its time', async () => {
	oldVersion((database) => {
		addOld(database, 'old1', 'a', 'b');
		database.exec("INSERT INTO consumer VALUES ('kiosk', 2, 1)");
		deleteOld(database, 2);
	});
	let store = await started();
	await store.close();
	store = await started();
	expect([readAll(store).entries, store.positionOf('kiosk')]).toEqual([[], 'old1-2']);
	expect(await append(store, 'a')).toBeNull();
	expect(await append(store, 'c')).toMatch(/-3$/);
	expect(readAll(store, 'old1-2')).toMatchObject({ missed: false, entries: [{}] });
});

test('0.1.0 that comes back says what it has not; what it gets then is taken over in its turn, behind what is here [F517]', async () => {
	oldVersion((database) => addOld(database, 'old1', 'a', 'b'));
	let store = await started();
	store.join('kiosk');
	const id = await append(store, 'c');
	await store.close();
	oldVersion((database) => {
		// Its readers are at most at 2 by its own count: what they ask for begins behind the row that stays.
		expect(database.prepare('SELECT max(number) AS last FROM event').get()).toEqual({ last: 3 });
		addOld(database, 'back', 'x', 'y');
	});
	store = await started();
	expect(contents(readAll(store).entries)).toEqual(['a', 'b', 'c', 'x', 'y']);
	expect(ids(readAll(store).entries).slice(0, 3)).toEqual(['old1-1', 'old1-2', id]);
	const numbers = readAll(store).entries.map(({ number }) => number);
	expect(numbers).toEqual([1, 2, 3, 4, 5]);
	await store.close();
	expect(rows()).toMatchObject([{ number: 6, at: null }]);
	expect(contents(readAll(await started()).entries)).toEqual(['a', 'b', 'c', 'x', 'y']);
});

test('an application that had read everything here goes on after what it has acknowledged to 0.1.0 meanwhile', async () => {
	oldVersion((database) => addOld(database, 'old1', 'a', 'b'));
	let store = await started();
	store.join('kiosk');
	store.acknowledge('kiosk', (await append(store, 'c')) ?? '');
	await store.close();
	oldVersion((database) => {
		addOld(database, 'back', 'x', 'y');
		database.exec("INSERT OR REPLACE INTO consumer VALUES ('kiosk', 5, 1)");
	});
	store = await started();
	expect(store.positionOf('kiosk')).toMatch(/-5$/);
});

test('a file that 0.1.0 had to begin again is taken over from its beginning', async () => {
	oldVersion((database) => addOld(database, 'old1', 'a', 'b'));
	await (await started()).close();
	fs.rmSync(path.join(directory, 'events.db'));
	oldVersion((database) => addOld(database, 'again', 'x'));
	expect(contents(readAll(await started()).entries)).toEqual(['a', 'b', 'x']);
});

test('events whose epoch an earlier version has forgotten are known by their ids [F462]', async () => {
	oldVersion((database) => {
		addOld(database, 'old1', 'a', 'b');
		addOld(database, 'old2', 'c');
		database.exec('DELETE FROM epoch WHERE first = 1');
	});
	const store = await started();
	expect(ids(readAll(store).entries)).toEqual(['old1-1', 'old1-2', 'old2-3']);
	expect(readAll(store, 'old1-1')).toMatchObject({ missed: false, entries: [{ id: 'old1-2' }, { id: 'old2-3' }] });
});

describe('killed', () => {
	test('between any two steps, the next start has each event once [F518]', async () => {
		oldVersion((database) => addOld(database, 'old1', ...Array.from({ length: 30 }, (_, index) => `${index}`)));
		const before = fs.mkdtempSync(path.join(os.tmpdir(), 'takeover-'));
		onTestFinished(() => fs.rmSync(before, { recursive: true, force: true }));
		fs.cpSync(directory, before, { recursive: true });
		for (let step = 0; step < 12; step += 1) {
			fs.rmSync(directory, { recursive: true });
			fs.cpSync(before, directory, { recursive: true });
			// Each call that changes the disk, up to one at which the process is gone: the rest of a write is not there.
			let left = step;
			const { write } = fs;
			const spies = [
				vi.spyOn(fs, 'write').mockImplementation(((...given: unknown[]) => {
					const done = given.at(-1) as (error: Error | null, length: number) => void;
					left -= 1;
					if (left >= 0) return (write as (...all: unknown[]) => void)(...given);
					const bytes = (given[1] as Uint8Array).subarray(0, step * 300);
					fs.writeSync(given[0] as number, bytes, 0, bytes.length, given[4] as number);
					done(EIO, 0);
				}) as never),
			];
			const store = await started({ recoverEveryMs: 1e9 });
			for (const spy of spies) spy.mockRestore();
			const copy = `${directory}-killed`;
			onTestFinished(() => fs.rmSync(copy, { recursive: true, force: true }));
			fs.cpSync(directory, copy, { recursive: true });
			await store.close();
			const next = await started({ directory: copy });
			const found = readAll(next).entries;
			expect(contents(found), `killed at step ${step}`).toEqual(Array.from({ length: 30 }, (_, index) => `${index}`));
			expect(ids(found).at(-1)).toBe('old1-30');
			await next.close();
			fs.rmSync(copy, { recursive: true });
		}
	});

	test('after the events are in the log and before they are deleted in the file, the next start has each event once', async () => {
		oldVersion((database) => addOld(database, 'old1', 'a', 'b'));
		const database = fs.readFileSync(path.join(directory, 'events.db'));
		await (await started()).close();
		fs.writeFileSync(path.join(directory, 'events.db'), database);
		const store = await started();
		expect(ids(readAll(store).entries)).toEqual(['old1-1', 'old1-2']);
		await store.close();
		expect(rows()).toMatchObject([{ number: 3, at: null }]);
	});
});

describe('a file that cannot be used', () => {
	test.each([
		['is no database', 'x'.repeat(20_000)],
		['is of another program', null],
	])('because it %s is set aside and named, and the agent continues', async (_what, content) => {
		if (content === null) {
			const database = new DatabaseSync(path.join(directory, 'events.db'));
			database.exec('CREATE TABLE other (x)');
			database.close();
		} else fs.writeFileSync(path.join(directory, 'events.db'), content);
		const store = await started();
		expect(store.notices).toMatchObject([expect.stringContaining('events-damaged: Stored events are damaged in')]);
		expect(fs.readdirSync(directory).filter((name) => name.startsWith('events.db.corrupt-'))).toHaveLength(1);
		expect(await append(store, 'a')).toMatch(/-1$/);
	});

	test.each([
		['kind', null],
		['type', 'notif\u0001cation'],
		['at', '2026-11-2\u0001T05'],
		['format', 'jsoo'],
		['content', '"a'],
		['content', null],
		['kept_ms', 2 ** 62],
	])(
		'in one row, whose %s is %s, costs that row: a gap is in its place, and what follows it is read [F1063]',
		async (column, value) => {
			oldVersion((database) => {
				addOld(database, 'old1', 'a', 'b', 'c');
				database.prepare(`UPDATE event SET ${column} = ? WHERE number = 2`).run(value);
			});
			const store = await started();
			expect(contents(readAll(store).entries)).toEqual(['a', column === 'kept_ms' ? 'b' : 'gap', 'c']);
			expect(await append(store, 'd')).toMatch(/-4$/);
		},
	);

	test.each([
		['that is empty', { 'events.db': '' }],
		['of which only a mark of its use is left', { 'events.db-shm': 'x', 'events.db-wal': '' }],
	])('and %s goes without a word, as it has no event [F851]', async (_what, files) => {
		for (const [name, content] of Object.entries(files)) fs.writeFileSync(path.join(directory, name), content);
		expect(findUnusableOldEvents(directory)).toBeNull();
		const store = await started();
		expect(store.notices).toEqual([]);
		expect(fs.readdirSync(directory)).toEqual([]);
	});

	test.each(['events.db-wal', 'events.db-journal'])(
		'because only %s is left is set aside, named, and goes with its contents as old events do [F852]',
		async (name) => {
			fs.writeFileSync(path.join(directory, name), SECRET);
			expect(findUnusableOldEvents(directory)).toMatchObject({ file: path.join(directory, 'events.db') });
			const store = await started();
			expect(store.notices).toMatchObject([expect.stringContaining('only what was written beside it is left')]);
			await store.close();
			expect((await started()).notices).toEqual([]);
			const filesLeft = () => fs.readdirSync(directory).filter((each) => each.startsWith('events.db'));
			expect(filesLeft()).toEqual([expect.stringMatching(/^events\.db\.corrupt-/)]);
			await started({ wallMs: () => NOW + 2 * 86_400_000 });
			expect(filesLeft()).toEqual([]);
		},
	);

	test.each(['a directory', 'a pipe', 'a link'])('because it is %s stays where it is and is named', async (what) => {
		const file = path.join(directory, 'events.db');
		const { execFileSync } = await import('node:child_process');
		if (what === 'a directory') fs.mkdirSync(file);
		else if (what === 'a pipe') execFileSync('mkfifo', [file]);
		else fs.symlinkSync('/etc/hostname', file);
		const store = await started();
		expect(store.notices).toMatchObject([expect.stringContaining(`${file}: it is not a regular file`)]);
		expect(await append(store, 'a')).toMatch(/-1$/);
	});

	test('and one that can leave no copy of them behind a look at them [F1993]', () => {
		const copies = vi.spyOn(fs, 'mkdtempSync');
		onTestFinished(() => copies.mockRestore());
		oldVersion((database) => addOld(database, 'old1', SECRET));
		expect(findUnusableOldEvents(directory)).toBeNull();
		fs.writeFileSync(path.join(directory, 'events.db'), 'x'.repeat(20_000));
		expect(findUnusableOldEvents(directory)).not.toBeNull();
		expect(copies.mock.results.map(({ value }) => fs.existsSync(value))).toEqual([false, false]);
	});

	test('is deleted, with files set aside, where events are kept in memory only', async () => {
		oldVersion((database) => addOld(database, 'old1', SECRET));
		fs.writeFileSync(path.join(directory, 'events.db.corrupt-2026-11-20T00:00:00.000Z'), SECRET);
		const store = await started({ durable: false });
		expect(contents(readAll(store).entries)).toEqual([SECRET]);
		await store.close();
		expect(fs.readdirSync(directory)).toEqual([]);
	});
});
