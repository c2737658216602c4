/**
 * One file of a log: opened by reading its headers, read record by record with both checksums verified each time, erased in place. It passes
 * over damage, up to the next header. Keeps 16 bytes in memory for each record.
 */
import nodeFs from 'node:fs';
import path from 'node:path';
import { errnoOf } from './files.edge.ts';
import {
	HEADER_BYTES,
	type Header,
	markByHead,
	nextByHead,
	recordFormat,
	type SegmentName,
	TAG_BYTES,
} from './record-format.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR } = nodeFs.constants;

/** The calls that a log makes. A test may hand in others. */
export type FileCalls = Pick<
	typeof nodeFs,
	| ('closeSync' | 'fdatasync' | 'fstatSync' | 'fsync' | 'ftruncateSync')
	| ('openSync' | 'readdirSync' | 'readSync' | 'unlinkSync' | 'write')
>;

/** No segment is larger, in bytes: a file that is was not made by a log, and is read up to here. */
const MAX_SEGMENT_BYTES = 64 * 1024 * 1024;
const WINDOW = 65_536;
/** Of a disk: one that cannot be read costs what is in it. */
const SECTOR = 4096;
/** In the index: where no record begins, and what the length of an erased one is marked with. */
const NOWHERE = 0xffffffff;
const ERASED = 0x80000000;

/** In the place of one that cannot be read: what no owner takes for its own, and not none. */
const LOST_TAG = Uint8Array.from({ length: TAG_BYTES }, (_, index) => Number(index === TAG_BYTES - 1));

export interface Piece {
	readonly at: number;
	readonly bytes: Uint8Array;
}

export interface Hole {
	readonly at: number;
	readonly length: number;
}

export type Segment = ReturnType<typeof openSegment>;

/** @param access `make`: a new file. `read`: nothing will be written. @throws the system's error, or one with the code `not-regular`. */
export function openSegment(
	directory: string,
	{ file, sequence }: Pick<SegmentName, 'sequence'> & { readonly file: string },
	access: 'make' | 'write' | 'read',
	files: FileCalls,
) {
	const name = path.join(directory, file);
	const format = recordFormat(file, process.getBuiltinModule('node:zlib').crc32);
	/** Of the records `first` to `first + count - 1`: where they begin, their lengths, their times. */
	let [starts, lengths, times] = [new Uint32Array(0), new Uint32Array(0), new Float64Array(0)];
	let [first, count] = [0, 0];
	/** Of erased records, in the place of those in the file. */
	const tagsLeft = new Map<number, Uint8Array>();
	let erasedAsDone = 0;
	let [descriptor, isWritable] = open(access !== 'read', access === 'make');

	function open(writes: boolean, makes = false): [descriptor: number, isWritable: boolean] {
		try {
			const flags = (writes ? O_RDWR : O_RDONLY) | (makes ? O_CREAT | O_EXCL : 0);
			return [files.openSync(name, flags | O_NOFOLLOW | O_NONBLOCK, 0o600), writes];
		} catch (error) {
			if (!writes || makes || !['EACCES', 'EPERM', 'EROFS'].includes(errnoOf(error))) throw error;
			return open(false);
		}
	}

	const startOf = (number: number) => starts[number - first] ?? NOWHERE;
	const lengthOf = (number: number) => (lengths[number - first] ?? 0) % ERASED;
	const endOf = (number: number) => startOf(number) + HEADER_BYTES + lengthOf(number);

	const segment = {
		name,
		sequence,
		format,
		/** Where the next record goes; the file may be longer after a write that was cut off. */
		end: 0,
		/** On the disk. */
		bytes: 0,
		/** Whether something before its end could not be read when it was opened. */
		isDamaged: false,
		/** Records that are not erased. */
		kept: 0,
		/** By its head: the newest number before it, the first that it can hold, and whose it is. `null` without a whole head. */
		head: null as { readonly before: number; readonly next: number; readonly mark: string | null } | null,
		/** Where notes begin. */
		notes: [] as number[],
		/** The newest record that was erased because it was done with. */
		get doneUpTo() {
			return erasedAsDone;
		},
		/** Numbers whose contents are still in the file. */
		doomed: [] as number[],
		/** Whether everything in it but records is written over with the next erasure. */
		isGivenUp: false,
		get descriptor() {
			return descriptor;
		},
		/** Whether its name is gone: the next start would not find it. */
		get isUnlinked() {
			return files.fstatSync(descriptor).nlink === 0;
		},
		get isWritable() {
			return isWritable;
		},
		get first() {
			return first;
		},
		get last() {
			return first + count - 1;
		},
		get isEmpty() {
			return count === 0;
		},
		/** Takes a record into the index. */
		add(number: number, at: number, { length, timeMs, isErased }: Omit<Header, 'kind' | 'number' | 'tag'>): void {
			if (count === 0) first = segment.head?.next ?? number;
			const index = number - first;
			if (index < 0) return;
			// Its content is there twice: the first may have been erased since.
			if (startOf(number) !== NOWHERE) {
				segment.isDamaged = true;
				return;
			}
			if (index >= starts.length) {
				const room = Math.max(64, index + 1, Math.ceil(starts.length * 1.5));
				const grown = [new Uint32Array(room).fill(NOWHERE), new Uint32Array(room), new Float64Array(room)] as const;
				grown[0].set(starts);
				grown[1].set(lengths);
				grown[2].set(times);
				[starts, lengths, times] = grown;
			}
			count = Math.max(count, index + 1);
			[starts[index], lengths[index], times[index]] = [at, length + (isErased ? ERASED : 0), timeMs];
			if (!isErased && at !== NOWHERE) segment.kept += 1;
		},
		/** There was a record, which cannot be read. */
		addLost(number: number): void {
			segment.add(number, NOWHERE, { length: 0, timeMs: 0, isErased: false });
		},
		/** Of a number in the index. */
		has(number: number): 'kept' | 'erased' | 'lost' {
			if ((lengths[number - first] ?? 0) >= ERASED) return 'erased';
			return startOf(number) === NOWHERE ? 'lost' : 'kept';
		},
		/** Whether an erased record made room for others: it has its tag still. */
		madeRoom: (number: number): boolean => segment.tagOf(number)?.some(Boolean) ?? false,
		timeOf: (number: number): number | null => (startOf(number) === NOWHERE ? null : (times[number - first] ?? null)),
		tagOf: (number: number): Uint8Array | null =>
			tagsLeft.get(number) ?? segment.readAt(startOf(number), 0)?.header.tag ?? null,
		/** The payload of a record; `null` where it is not as it was written, or cannot be read. */
		read(number: number): Uint8Array | null {
			const found = segment.readAt(startOf(number), lengthOf(number));
			return found?.header.number === number && found.header.kind === 'record' ? found.payload : null;
		},
		/** Whether it was altered since it was written. The process that appends may erase it meanwhile. */
		isRotten(number: number): boolean {
			const found = segment.readAt(startOf(number), lengthOf(number));
			return segment.has(number) === 'kept' && !found?.header.isErased && segment.read(number) === null;
		},
		/** The bytes of a payload of which `left` are left, at most so many, as they are. */
		rest(number: number, left: number, most: number): Uint8Array | null {
			const bytes = Buffer.allocUnsafe(Math.min(left, most));
			const at = startOf(number) + HEADER_BYTES + lengthOf(number) - left;
			return segment.has(number) === 'kept' && readInto(bytes, at) === bytes.length ? bytes : null;
		},
		/** @param length of the payload, or 0 for the header alone; by default as the header says. */
		readAt(at: number, length?: number): { readonly header: Header; readonly payload: Uint8Array | null } | null {
			const bytes = Buffer.allocUnsafe(HEADER_BYTES + (length ?? 0));
			const header = at !== NOWHERE && readInto(bytes, at) === bytes.length ? format.headerAt(bytes, 0) : null;
			if (!header) return null;
			if (length === undefined) return segment.readAt(at, Math.min(header.length, MAX_SEGMENT_BYTES));
			return { header, payload: header.isErased ? null : format.payloadAt(bytes, 0, header) };
		},
		/** From now on it reads as erased. What is on the disk is seen to by {@link erasing}. @param tag in the place of its own. */
		erase(number: number, { tag, isDone = false }: { tag?: Uint8Array | undefined; isDone?: boolean } = {}): void {
			const is = segment.has(number);
			if (is === 'erased' || number < first || number > segment.last) return;
			lengths[number - first] = lengthOf(number) + ERASED;
			if (is === 'lost') return;
			segment.kept -= 1;
			segment.doomed.push(number);
			if (tag) tagsLeft.set(number, tag);
			if (isDone) erasedAsDone = Math.max(erasedAsDone, number);
		},
		/**
		 * First headers that declare these records erased, then, after a flush, zeros over their contents. Nothing but these records is written,
		 * those that follow each other at once. Of one that cannot be read, its length and time are known, and that it may have had a tag.
		 * @param holes zeros go there as well.
		 */
		erasing(numbers: readonly number[], holes: readonly Hole[]): readonly (readonly Piece[])[] {
			const rows: number[][] = [];
			for (const number of numbers.toSorted((one, other) => one - other)) {
				const row = rows.at(-1);
				if (row && endOf(row.at(-1) ?? 0) === startOf(number)) row.push(number);
				else rows.push([number]);
			}
			const [declaring, zeroing]: [Piece[], Piece[]] = [[], []];
			for (const row of rows) {
				const at = startOf(row[0] ?? 0);
				const zeros = Buffer.alloc(endOf(row.at(-1) ?? 0) - at);
				const declared = Buffer.from(zeros);
				readInto(declared, at);
				for (const number of row) {
					const tag = segment.tagOf(number) ?? LOST_TAG;
					const known = {
						number,
						timeMs: times[number - first] ?? 0,
						length: lengthOf(number),
						isErased: true,
					} as const;
					const header = { ...known, kind: 'record', tag, isDone: number <= erasedAsDone } as const;
					for (const bytes of [declared, zeros]) format.declareErased(bytes, startOf(number) - at, header);
				}
				declaring.push({ at, bytes: declared });
				zeroing.push({ at, bytes: zeros });
			}
			const none = Buffer.alloc(WINDOW);
			for (const { at, length } of holes)
				for (let done = 0; done < length; done += WINDOW)
					zeroing.push({ at: at + done, bytes: none.subarray(0, Math.min(WINDOW, length - done)) });
			return [declaring, zeroing];
		},
		/** Where neither its head, a note nor one of these records is: what is there cannot be read. */
		holesBeside(from: number, to: number): Hole[] {
			const places = [0, ...segment.notes].map((at) => ({ at, end: at + sizeAt(at) }));
			for (let number = from; number <= to; number += 1)
				if (startOf(number) !== NOWHERE) places.push({ at: startOf(number), end: endOf(number) });
			const holes: Hole[] = [];
			let done = 0;
			for (const { at, end } of [...places.sort((one, other) => one.at - other.at), { at: segment.bytes, end: 0 }]) {
				if (at > done) holes.push({ at: done, length: at - done });
				done = Math.max(done, end);
			}
			return holes;
		},
		/** Of these numbers nothing is left in the file. */
		cleaned(numbers: readonly number[]): void {
			segment.doomed = segment.doomed.slice(numbers.length);
			segment.isGivenUp = false;
		},
		/** Another open file in the place of one whose flush has failed, which at least can be read. */
		reopen(): void {
			const old = descriptor;
			isWritable = false;
			[descriptor, isWritable] = open(true);
			files.closeSync(old);
		},
	};

	/** Of a head or a note; 0 where it is damaged. */
	function sizeAt(at: number): number {
		const found = segment.readAt(at);
		return found?.payload ? HEADER_BYTES + found.header.length : 0;
	}

	/** @returns how many bytes could be read. */
	function readInto(bytes: Buffer, at: number, length = bytes.length): number {
		let done = 0;
		try {
			for (let read = -1; done < length && read !== 0; done += read)
				read = files.readSync(descriptor, bytes, done, length - done, at + done);
		} catch {
			// What was read so far counts.
		}
		return done;
	}

	/** Reads all headers; of small records their payloads pass by, and of large ones they do not. */
	function scan(to: number): void {
		const window = Buffer.allocUnsafe(WINDOW);
		let [from, length, at] = [0, 0, 0];
		while (at + HEADER_BYTES <= to) {
			if (at + HEADER_BYTES > from + length) [from, length] = [at, readInto(window, at, Math.min(WINDOW, to - at))];
			if (length < HEADER_BYTES) {
				// A sector that cannot be read, or a file that became shorter meanwhile.
				at += SECTOR - (at % SECTOR);
				continue;
			}
			const header = format.headerAt(window.subarray(0, length), at - from);
			const next = at + HEADER_BYTES + (header?.length ?? 0);
			if (header && next <= to) {
				segment.isDamaged ||= at > segment.end;
				take(header, at);
				segment.end = at = next;
				continue;
			}
			const marker = window.subarray(0, length).indexOf(format.marker, at - from + 1);
			// A marker may begin in the last bytes.
			at = marker === -1 ? Math.max(at + 1, from + length - format.marker.length + 1) : from + marker;
		}
	}

	function take(header: Header, at: number): void {
		if (header.kind === 'record') segment.add(header.number, at, header);
		if (header.isDone) erasedAsDone = Math.max(erasedAsDone, header.number);
		if (header.kind === 'note') segment.notes.push(at);
		else if (at === 0) segment.head = { before: header.number, next: nextByHead(header), mark: markByHead(header) };
		// A note names the newest number before it, which then cannot be read.
		const isAhead = header.kind === 'note' && header.number > segment.last && (count > 0 || segment.head !== null);
		if (isAhead) segment.addLost(header.number);
	}

	try {
		const stat = files.fstatSync(descriptor);
		if (!stat.isFile()) throw Object.assign(new Error('it is not a regular file'), { code: 'not-regular' });
		segment.bytes = stat.size;
		scan(Math.min(stat.size, MAX_SEGMENT_BYTES));
		// Only an empty file has lost nothing: the power was cut before its head was flushed.
		segment.isDamaged ||= stat.size > MAX_SEGMENT_BYTES || (stat.size > 0 && segment.head === null);
	} catch (error) {
		files.closeSync(descriptor);
		throw error;
	}
	return segment;
}
