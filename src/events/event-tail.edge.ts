/**
 * The newest changes of the events, in a file beside the database: appended and flushed at once, so that an event is safe after
 * one flush, and gone again when the database has them. Decides nothing about events; a line is what a transaction has done.
 */
import { closeSync, fdatasyncSync, fsyncSync, ftruncateSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/** A call of the table, by its name and what it was given. */
export type Change = readonly [name: string, ...given: unknown[]];

export interface EventTail {
	/** Bytes in it now. */
	readonly bytes: number;
	/** Adds what one transaction has done. @param flushes whether it has to survive a power cut from now on. */
	append(changes: readonly Change[], flushes: boolean): void;
	/** The changes since it was empty, as far as they are whole. */
	read(): Change[][];
	/** The database has it all. */
	empty(): void;
	/** Removes the file. */
	remove(): void;
	close(): void;
}

/** The name of the file, from that of the database. */
export const tailOf = (databaseFile: string) => `${databaseFile}-tail`;

/** Makes no file before the first change. Every function may throw the system's errors. */
export function openEventTail(file: string): EventTail {
	const { crc32 } = process.getBuiltinModule('node:zlib');
	let open: number | null = null;
	let bytes = 0;

	const read = (): Change[][] => {
		let text: string;
		try {
			text = readFileSync(file, 'utf8');
		} catch (error) {
			if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
			throw error;
		}
		const found: Change[][] = [];
		for (const line of text.split('\n')) {
			const [sum = '', ...rest] = line.split(' ');
			const changes = rest.join(' ');
			// Cut off on the way to the disk: nothing after it was ever promised.
			if (line === '' || sum !== crc32(changes).toString(16)) break;
			found.push(JSON.parse(changes));
		}
		return found;
	};

	function opened(): number {
		if (open !== null) return open;
		open = openSync(file, 'a', 0o600);
		ftruncateSync(open);
		const directory = openSync(dirname(file), 'r');
		try {
			fsyncSync(directory);
		} finally {
			closeSync(directory);
		}
		return open;
	}

	const close = () => {
		if (open !== null) closeSync(open);
		open = null;
	};
	return {
		get bytes() {
			return bytes;
		},
		append(changes, flushes) {
			const text = JSON.stringify(changes);
			const line = Buffer.from(`${crc32(text).toString(16)} ${text}\n`);
			const into = opened();
			try {
				for (let written = 0; written < line.length; ) written += writeSync(into, line, written);
				if (flushes) fdatasyncSync(into);
				bytes += line.length;
			} catch (error) {
				ftruncateSync(into, bytes);
				throw error;
			}
		},
		read,
		empty() {
			if (open !== null && bytes > 0) ftruncateSync(open);
			bytes = 0;
		},
		remove() {
			close();
			rmSync(file, { force: true });
		},
		close,
	};
}
