/** The newest changes of the events, in two files beside the database: flushed before an event is handed on. A line is one transaction. */
import { closeSync, constants, ftruncateSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import type { Line } from './event-columns.ts';
import { type Flushes, flushNames } from './flushing.edge.ts';

const { O_CREAT, O_RDWR } = constants;

export const tailsOf = (databaseFile: string) => [`${databaseFile}-tail`, `${databaseFile}-tail2`];

/** Makes no file before the first change. Every function may throw the system's errors. */
export function openEventTail(databaseFile: string) {
	const { crc32 } = process.getBuiltinModule('node:zlib');
	const files = tailsOf(databaseFile).map((file) => ({ file, open: null as number | null, bytes: 0 }));
	let [active, other] = files as [(typeof files)[0], (typeof files)[0]];
	/** In each line: tells which file is the older one. */
	let turns = 0;

	function* linesOf({ file }: { readonly file: string }): Iterable<readonly [turn: number, ...Line]> {
		let text: string;
		try {
			text = readFileSync(file, 'utf8');
		} catch (error) {
			if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
			throw error;
		}
		let turn: number | null = null;
		for (const line of text.split('\n')) {
			const [sum = '', ...rest] = line.split(' ');
			const content = rest.join(' ');
			// Cut off on the way to the disk: nothing after it was ever promised.
			if (line === '' || sum !== crc32(content).toString(16)) return;
			const read = JSON.parse(content);
			const found = typeof read[0] === 'number' ? read : [0, ...read];
			turn ??= found[0];
			// What is left of an earlier turn: the database has it.
			if (found[0] !== turn) return;
			yield found;
		}
	}

	function close(): void {
		for (const each of files) {
			if (each.open !== null) closeSync(each.open);
			each.open = null;
		}
	}
	return {
		/** Bytes that came since the last turn. */
		get bytes() {
			return active.bytes;
		},
		/** Adds what one transaction will do. @param flushes whether it has to survive a power cut from then on. */
		*append(changes: Line, flushes: boolean): Flushes {
			const to = active;
			const text = JSON.stringify([turns, ...changes]);
			const line = Buffer.from(`${crc32(text).toString(16)} ${text}\n`);
			const isNew = to.open === null;
			const into = to.open ?? openSync(to.file, O_RDWR | O_CREAT, 0o600);
			to.open = into;
			try {
				if (isNew) ftruncateSync(into);
				if (isNew) yield* flushNames(to.file);
				for (let written = 0; written < line.length; )
					written += writeSync(into, line, written, line.length - written, to.bytes + written);
				if (flushes) yield into;
				to.bytes += line.length;
			} catch (error) {
				ftruncateSync(into, to.bytes);
				throw error;
			}
		},
		/** The changes since it was empty, as far as they are whole. */
		read(): Line[] {
			const lines = files.flatMap((each) => [...linesOf(each)]);
			return lines.sort(([one], [another]) => one - another).map(([, ...changes]) => changes);
		},
		/** Lines go to the other file from now on, over those of its turn before. @param cleans whether these are cut off. */
		turn(cleans: boolean): void {
			[active, other] = [other, active];
			turns += 1;
			if (cleans && active.open !== null) ftruncateSync(active.open);
		},
		/** The database has everything from before the turn. @param cleans whether its contents are cut off, which is slow while others are flushed. */
		empty(cleans: boolean): void {
			if (other.open !== null && cleans) ftruncateSync(other.open);
			else if (other.open !== null && other.bytes > 0) writeSync(other.open, '\n', 0);
			other.bytes = 0;
		},
		remove(): void {
			close();
			for (const each of files) {
				rmSync(each.file, { force: true });
				each.bytes = 0;
			}
		},
		close,
	};
}
