/**
 * The newest changes of the events, in two files beside the database: appended and flushed before an event is handed on, so that it
 * is safe after one flush, and gone again when the database has them durably. One file takes what comes while the other one is
 * brought into the database. Decides nothing about events; a line is one transaction.
 */
import { closeSync, ftruncateSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { fingerprintOf } from './duplicates.ts';
import type { Entry } from './event.ts';
import { type Flushes, flushNames } from './flushing.edge.ts';
import { asStored, type Change } from './transaction.ts';

export interface EventTail {
	/** Bytes that came since the last turn. */
	readonly bytes: number;
	/** Adds what one transaction will do. @param flushes whether it has to survive a power cut from then on. */
	append(changes: readonly Change[], flushes: boolean): Flushes;
	/** The changes since it was empty, as far as they are whole. */
	read(): Change[][];
	/** What comes from now on goes to the other file. */
	turn(): void;
	/** The database has everything from before the turn. */
	empty(): void;
	/** Removes the files. */
	remove(): void;
	close(): void;
}

/** The names of the files, from that of the database. */
export const tailsOf = (databaseFile: string) => ['-tail', '-tail2'].map((suffix) => `${databaseFile}${suffix}`);

/** Makes no file before the first change. Every function may throw the system's errors. */
export function openEventTail(databaseFile: string): EventTail {
	const { crc32 } = process.getBuiltinModule('node:zlib');
	const files = tailsOf(databaseFile).map((file) => ({ file, open: null as number | null, bytes: 0 }));
	type TailFile = (typeof files)[number];
	let [active, other] = files as [TailFile, TailFile];
	/** Counts the turns: tells which file is the older one. */
	let turns = 0;

	/** Each line with the turn in which it was written. */
	function* linesOf(file: string): Iterable<[turn: number, Change[]]> {
		let text: string;
		try {
			text = readFileSync(file, 'utf8');
		} catch (error) {
			if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
			throw error;
		}
		for (const line of text.split('\n')) {
			const [sum = '', ...rest] = line.split(' ');
			const content = rest.join(' ');
			// Cut off on the way to the disk: nothing after it was ever promised.
			if (line === '' || sum !== crc32(content).toString(16)) return;
			const [turn, ...changes] = JSON.parse(content) as [number, ...unknown[][]];
			yield [turn, changes.map(fromJson)];
		}
	}

	const close = () => {
		for (const each of files) {
			if (each.open !== null) closeSync(each.open);
			each.open = null;
		}
	};
	return {
		get bytes() {
			return active.bytes;
		},
		*append(changes, flushes) {
			const to = active;
			const text = Buffer.from(JSON.stringify([turns, ...changes.map(toJson)]));
			const line = Buffer.concat([Buffer.from(`${crc32(text).toString(16)} `), text, Buffer.from('\n')]);
			const isNew = to.open === null;
			const into = to.open ?? openSync(to.file, 'a', 0o600);
			to.open = into;
			try {
				if (isNew) ftruncateSync(into);
				if (isNew) yield* flushNames(to.file);
				for (let written = 0; written < line.length; ) written += writeSync(into, line, written);
				if (flushes) yield into;
				to.bytes += line.length;
			} catch (error) {
				ftruncateSync(into, to.bytes);
				throw error;
			}
		},
		read() {
			const lines = files.flatMap(({ file }) => [...linesOf(file)]);
			return lines.sort(([one], [another]) => one - another).map(([, changes]) => changes);
		},
		turn() {
			[active, other] = [other, active];
			turns += 1;
		},
		empty() {
			if (other.open !== null && other.bytes > 0) ftruncateSync(other.open);
			other.bytes = 0;
		},
		remove() {
			close();
			for (const each of files) {
				rmSync(each.file, { force: true });
				each.bytes = 0;
			}
		},
		close,
	};
}

/** Of an event only what it cannot be made from. */
function toJson(change: Change): readonly unknown[] {
	return change[0] === 'add' ? ['add', change[1].epoch, change[1].keptMs, change[1].entry] : change;
}

function fromJson([name, ...given]: readonly unknown[]): Change {
	if (name !== 'add') return [name, given[0]] as Change;
	const [epoch, keptMs, entry] = given as [string, number, Entry];
	return ['add', asStored(entry, epoch, fingerprintOf(entry), keptMs)];
}
