/** The promises of an append-only log (`record-log.edge.ts`), and its options. Types only. */
import type { Clock } from './clock.edge.ts';
import type { FileCalls } from './log-segment.edge.ts';
import type { Header } from './record-format.ts';

/** What of the clock is omitted is the machine's. */
export interface RecordLogOptions extends Partial<Pick<Clock, 'wallMs' | 'schedule' | 'soon'>> {
	/** Exists, belongs to this user alone, and one process appends at a time. Others may read beside it. */
	readonly directory: string;
	/** The beginning of the names of its files: letters. */
	readonly name: string;
	/** Bytes on the disk, at most; looked at each time. The oldest segments go first, the newest never. */
	readonly maxBytes: () => number;
	/** What a start needs to know of all records so far: asked for at the beginning of each segment. */
	readonly head: () => Uint8Array;
	/** 32 hexadecimal digits in each file: one that has others there is another owner's, and is not read. Default `null`: no such look. */
	readonly mark?: string | null;
	/** `memory`: nothing is written, and what is found on the disk is taken into memory and deleted. `read`: only reads. Default `disk`. */
	readonly access?: 'disk' | 'memory' | 'read';
	/** Called once, when the directory was read: the newest whole head and the notes after it, oldest first; nothing of a new log. */
	readonly onFound?: (state: Iterable<Uint8Array>) => void;
	/** Called after each group: its records survive a power cut, or are in memory while the disk fails. It must not throw. */
	readonly onStored?: () => void;
	/** Called with what keeps records from the disk (they are in memory only), and with `null` when all are on the disk again. */
	readonly onFailing?: (error: unknown) => void;
	/**
	 * Called with the tag of a record that makes room, or is erased up to its number and not as done with, before it was on the disk: the tag
	 * that it leaves in its place. By default its own.
	 */
	readonly tagUnstored?: (tag: Uint8Array) => Uint8Array;
	/** How often a failing disk is tried again, in milliseconds. Default 30,000. */
	readonly recoverEveryMs?: number;
	readonly files?: FileCalls;
}

/** A record; or, in the place of records that are missing or unreadable, the numbers from which to which. */
export type Found =
	| { readonly number: number; readonly timeMs: number; readonly payload: Uint8Array }
	| { readonly number: number; readonly lostFrom: number };

export interface RecordLog {
	/** The number of the oldest record that is not erased; `last + 1` without any. */
	first(): number;
	/** The newest number that is stored; 0 before the first. */
	last(): number;
	/** Records that are stored and not erased. */
	count(): number;
	/** On the disk, and of records that are in memory only. */
	bytes(): number;
	/**
	 * Files with damage, as they were opened, each with what is wrong (for `inWords`). @param reads those as well in which a record cannot be
	 * read, which else is told only where it is missing.
	 */
	damages(reads?: boolean): readonly { readonly file: string; readonly error: unknown }[];
	/** Whether notes for this start, or the head that they add to, may be lost. */
	lacksNotes(): boolean;
	/**
	 * Numbers a record and stores it with the others of this turn. @param timeMs any time that the owner wants to know without the payload.
	 * @param tag up to 24 bytes that outlive an erasure.
	 */
	append(payload: Uint8Array, timeMs: number, tag?: Uint8Array): number;
	/** Adds to what the next start finds. Once stored it survives the end of the process, and a power cut with the next record. */
	note(payload: Uint8Array): void;
	/** Resolves when everything so far is stored: on the disk, or in memory while the disk fails. */
	settled(): Promise<void>;
	/** The stored records after a number, oldest first, and what is lost at its place; passes over what is erased. */
	after(number: number): Iterable<Found>;
	/**
	 * Bytes of a record of which `left` are left, at most so many; none where it is erased or cannot be read. They are not compared with its
	 * checksum: {@link after} has done so.
	 */
	rest(number: number, left: number, most: number): Uint8Array | null | undefined;
	/** The number that the next record will have. */
	next(): number;
	/** In an empty log: the first record will have this number, as if those before it had been erased. */
	beginAt(number: number): void;
	/** The stored records that are not erased, oldest first, without their payloads: not all of them may be readable. */
	kept(): Iterable<{ readonly number: number; readonly timeMs: number }>;
	/** Of a stored record, also of an erased one; `null` for every other number. */
	timeOf(number: number): number | null;
	/** The tags of the newest records that are known, also of erased ones, oldest first. */
	tags(limit: number): { readonly number: number; readonly tag: Uint8Array }[];
	/** The records that are not on the disk, oldest first, also erased ones. */
	unstored(): readonly Pick<Waiting, 'number' | 'tag'>[];
	/**
	 * From now on the records up to a number, or these, read as erased; {@link clean} erases them on the disk. Tags of a list go as well.
	 * @param because `done`: all that they were for have them, which {@link doneUpTo} says to the next start. `room`: tags stay, and where older
	 * records are kept, those that have one read as lost, also after the next start.
	 */
	erase(which: number | Iterable<number>, because?: 'done' | 'room'): void;
	/**
	 * From now on what cannot be read is lost, also where it could be read later, and {@link clean} writes over it. Files under the log's names that
	 * are not its own go. Rejects with the system's error where one stays.
	 * @param keepsTags as with `room`: it reads as lost. Otherwise it was never there. @returns whether anything is to be written over.
	 */
	giveUp(keepsTags: boolean): Promise<boolean>;
	/** The newest record that was erased because it was done with; 0 without any. */
	doneUpTo(): number;
	/**
	 * Unlinks the oldest segments in which nothing is kept, and writes over what was erased in the others. @throws what keeps it from the disk;
	 * the log goes on with a new segment.
	 */
	clean(): Promise<void>;
	/** Tries a failing disk now. `true` when everything is on the disk. */
	recover(): Promise<boolean>;
	/** Stores what waits, and closes the files. Nothing can be appended afterwards. */
	close(): Promise<void>;
}

/** A record or a note that is not on the disk. */
export interface Waiting extends Pick<Header, 'kind' | 'number' | 'timeMs'> {
	tag: Header['tag'];
	/** `null` once it is erased. */
	payload: Uint8Array | null;
}
