/**
 * A file system that keeps in memory what was written and loses, when the power is cut, what was not flushed: contents
 * without `sync` of the file, names without `sync` of the directory. SQLite's own commits are taken as durable: a database is
 * a real one in memory that outlives the process. Each call takes a little virtual time.
 */

import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Chance } from './chance.ts';
import type { Machine } from './time.ts';

export interface FileNode {
	bytes: Buffer;
	flushed: Buffer;
	mode: number;
	database: DatabaseSync | null;
	/** Written and not flushed when a flush failed: the system takes it as flushed, and no later flush writes it. */
	dropped?: readonly [from: number, to: number];
}

/** What a change of names replaced, oldest first. */
type NameChange = readonly (readonly [path: string, before: FileNode | undefined])[];

export type Disk = ReturnType<typeof createDisk>;

/** Calls that fail (`sector`: of reads those of one place), flushes that are slow, and flushes that do nothing. */
export type DiskFault = 'reads' | 'sector' | 'writes' | 'flushes' | 'slow' | 'lies';
const SECTOR = 4096;

const fault = (code: string, path: string) => Object.assign(new Error(`${code}: ${path}`), { code });

export function createDisk(chance: Chance) {
	const files = new Map<string, FileNode>();
	const directories = new Set<string>(['/']);
	/** Changes of names that no flush of the directory has made durable. */
	const unflushed = new Map<string, NameChange[]>();
	const disk = {
		isFull: false,
		/** In bytes, for the contents of all files. */
		capacity: Number.POSITIVE_INFINITY,
		/** What it does wrong for a while. */
		fault: null as DiskFault | null,
		/** Which one cannot be read while `sector` is the fault. */
		badSector: 0,
		/** Writes and changes of names, since the beginning. */
		writes: 0,
		machine: null as Machine | null,
		/** Which process holds the lock of the state. */
		lockedBy: null as Machine | null,
		files,
		directories,
		find(path: string): FileNode {
			const node = files.get(path);
			if (!node) throw fault('ENOENT', path);
			return node;
		},
		names: (directory: string) => [...files.keys()].filter((path) => dirname(path) === directory).sort(),
		mayGrow(path: string) {
			if (disk.isFull) throw fault('ENOSPC', path);
		},
		/** Sets names in one step that is either seen whole or not at all after a power cut. */
		rename(changes: readonly (readonly [path: string, after: FileNode | undefined])[]) {
			const directory = dirname(changes[0]?.[0] ?? '/');
			if (!directories.has(directory)) throw fault('ENOENT', directory);
			disk.writes += 1;
			const before: NameChange = changes.map(([path]) => [path, files.get(path)]);
			unflushed.set(directory, [...(unflushed.get(directory) ?? []), before]);
			for (const [path, after] of changes)
				if (after) files.set(path, after);
				else files.delete(path);
		},
		create(path: string, mode = 0o600): FileNode {
			disk.mayGrow(path);
			const node: FileNode = { bytes: Buffer.alloc(0), flushed: Buffer.alloc(0), mode, database: null };
			disk.rename([[path, node]]);
			return node;
		},
		used: () => [...files.values()].reduce((sum, { bytes }) => sum + bytes.length, 0),
		/** @returns how many bytes there was room for, at least one of some. */
		write(path: string, node: FileNode, whole: Buffer, at: number): number {
			disk.check('writes', path);
			const growth = at + whole.length - node.bytes.length;
			if (growth > 0) disk.mayGrow(path);
			const bytes = whole.subarray(0, whole.length - Math.max(0, growth - Math.max(0, disk.capacity - disk.used())));
			if (bytes.length === 0 && whole.length > 0) throw fault('ENOSPC', path);
			disk.writes += 1;
			const end = Math.max(node.bytes.length, at + bytes.length);
			const grown = Buffer.alloc(end);
			node.bytes.copy(grown);
			bytes.copy(grown, at);
			node.bytes = grown;
			return bytes.length;
		},
		writeAll(path: string, node: FileNode, bytes: Buffer) {
			if (disk.write(path, node, bytes, 0) < bytes.length) throw fault('ENOSPC', path);
		},
		/** A copy of the agent's own files. @returns what puts that in its place. */
		image(): () => void {
			const isOwn = (path: string) => path.startsWith('/var/');
			const copy = [...files].filter(([path]) => isOwn(path)).map(([path, node]) => [path, { ...node }] as const);
			return () => {
				for (const path of [...files.keys()].filter(isOwn)) files.delete(path);
				unflushed.clear();
				for (const [path, node] of copy) files.set(path, node);
			};
		},
		/** @throws while the disk has this fault. */
		check(fails: DiskFault, path: string) {
			if (disk.fault === fails && path.startsWith('/var/')) throw fault('EIO', path);
		},
		/** How many of so many bytes can be read. @throws when none can. */
		readable(path: string, at: number, length: number): number {
			disk.check('reads', path);
			const from = disk.badSector * SECTOR;
			if (disk.fault !== 'sector' || at >= from + SECTOR) return length;
			if (at >= from) disk.check('sector', path);
			return Math.min(length, from - at);
		},
		flushFile(node: FileNode) {
			if (disk.fault === 'lies') return;
			if (disk.fault === 'flushes') {
				node.dropped = [commonLength(node.bytes, node.flushed), node.bytes.length];
				throw fault('EIO', 'a flush');
			}
			const { bytes, dropped } = node;
			const before = node.flushed;
			node.flushed = bytes;
			if (!dropped || bytes.length < dropped[1]) return;
			node.flushed = Buffer.from(bytes);
			node.flushed.fill(0, ...dropped);
			before.copy(node.flushed, dropped[0], dropped[0], dropped[1]);
		},
		flushDirectory(path: string) {
			disk.check('flushes', `${path}/`);
			if (disk.fault !== 'lies') unflushed.delete(path);
		},
		/** What a disk that lied holds some time later. */
		settle() {
			disk.fault = null;
			disk.capacity = Number.POSITIVE_INFINITY;
			unflushed.clear();
			for (const node of files.values()) if (!node.dropped) node.flushed = node.bytes;
		},
		/** Other bytes in the place of some that were flushed long ago, which no call has written. */
		rot(path: string) {
			const node = disk.find(path);
			const rotten = Buffer.from(node.bytes);
			const at = chance.whole(0, Math.max(0, rotten.length - 1));
			if (chance.is(0.3)) rotten.fill(0, at, Math.min(rotten.length, at + 512));
			else if (rotten.length > 0) rotten[at] = (rotten[at] ?? 0) ^ (1 << chance.whole(0, 7));
			node.bytes = node.flushed = rotten;
		},
		remove(path: string) {
			disk.find(path);
			disk.rename([[path, undefined]]);
		},
		/** What is left of it when the power is cut now. */
		cutPower() {
			for (const changes of unflushed.values()) {
				// What was journalled in time stays, in order.
				const kept = chance.whole(0, changes.length);
				for (const change of changes.slice(kept).reverse())
					for (const [path, before] of change)
						if (before) files.set(path, before);
						else files.delete(path);
			}
			unflushed.clear();
			for (const node of files.values()) {
				if (node.bytes === node.flushed) continue;
				// What was flushed is lost only where something else was written over it, or where the file was cut.
				const safe = commonLength(node.bytes, node.flushed);
				const under = (from: number) =>
					node.bytes.length < node.flushed.length ? Buffer.alloc(0) : node.flushed.subarray(from);
				const left = chance.pick('nothing', 'zeros', 'part', 'all');
				if (left === 'nothing') node.bytes = node.flushed;
				if (left === 'zeros')
					node.bytes = Buffer.concat([node.bytes.subarray(0, safe), under(safe)], node.bytes.length);
				if (left === 'part') {
					const end = chance.whole(safe, node.bytes.length);
					node.bytes = Buffer.concat([node.bytes.subarray(0, end), under(end)]);
				}
				node.flushed = node.bytes;
			}
		},
		/** Runs one call after a little while on the machine that made it. */
		step<Result>(run: () => Result, ms = 1): Promise<Result> {
			return new Promise((resolve, reject) => {
				disk.machine?.input(ms, () => {
					try {
						resolve(run());
					} catch (error) {
						reject(error);
					}
				});
			});
		},
		flushMs: () => chance.whole(2, 30) * (disk.fault === 'slow' ? 500 : 1),
	};
	return disk;
}

/** So many bytes are the same from the beginning. */
function commonLength(one: Buffer, other: Buffer): number {
	const length = Math.min(one.length, other.length);
	if (one.subarray(0, length).equals(other.subarray(0, length))) return length;
	let same = 0;
	while (one[same] === other[same]) same += 1;
	return same;
}

const SQLITE_BUSY = 5;
const SQLITE_FULL = 13;
const sqliteFault = (errcode: number, message: string) => Object.assign(new Error(message), { errcode });

/** In the place of `node:sqlite`'s: a database that belongs to the disk and not to the process. */
export function databaseOn(current: () => Disk | null) {
	return function openDatabase(path: string) {
		const disk = current();
		if (!disk || path === ':memory:') return new DatabaseSync(path);
		const node = disk.find(path);
		if (path.endsWith('/lock.db')) return openLock(disk);
		node.database ??= new DatabaseSync(':memory:');
		const { database } = node;
		const owner = disk.machine;
		// What a process that is gone had not committed is gone with it.
		if (database.isTransaction) database.exec('ROLLBACK');
		return {
			get isTransaction() {
				return database.isTransaction;
			},
			exec(sql: string) {
				if (disk.machine !== owner) throw new Error('a process that is gone used its database');
				const writes = sql === 'COMMIT' || sql.includes('CREATE TABLE');
				if (writes && disk.isFull) {
					if (database.isTransaction) database.exec('ROLLBACK');
					throw sqliteFault(SQLITE_FULL, 'database or disk is full');
				}
				if (writes || sql.includes('wal_checkpoint')) disk.writes += 1;
				database.exec(sql);
			},
			prepare: (sql: string) => database.prepare(sql),
			close() {},
		};
	};
}

function openLock(disk: Disk) {
	const owner = disk.machine;
	return {
		exec(sql: string) {
			if (!sql.startsWith('BEGIN')) return;
			if (disk.lockedBy?.isOn && disk.lockedBy !== owner) throw sqliteFault(SQLITE_BUSY, 'database is locked');
			disk.lockedBy = owner;
		},
		close() {
			if (disk.lockedBy === owner) disk.lockedBy = null;
		},
	};
}
