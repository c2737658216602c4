/**
 * The newest changes of the events, in a file beside the database: appended and flushed before the database has them, so that an
 * event is safe after one flush, and gone again when it has them durably. Decides nothing about events; a line is one transaction.
 */
import { closeSync, ftruncateSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { type Flushes, flushNames } from './flushing.edge.ts';
import type { Change } from './transaction.ts';

export interface EventTail {
	/** Bytes in it now. */
	readonly bytes: number;
	/** Adds what one transaction will do. @param flushes whether it has to survive a power cut from then on. */
	append(changes: readonly Change[], flushes: boolean): Flushes;
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

	const close = () => {
		if (open !== null) closeSync(open);
		open = null;
	};
	return {
		get bytes() {
			return bytes;
		},
		*append(changes, flushes) {
			const text = JSON.stringify(changes);
			const line = Buffer.from(`${crc32(text).toString(16)} ${text}\n`);
			const isNew = open === null;
			const into = open ?? openSync(file, 'a', 0o600);
			open = into;
			try {
				if (isNew) ftruncateSync(into);
				if (isNew) yield* flushNames(file);
				for (let written = 0; written < line.length; ) written += writeSync(into, line, written);
				if (flushes) yield into;
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
