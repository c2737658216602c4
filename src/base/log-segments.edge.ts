/** The segments that a log has on the disk: found, made, flushed, unlinked, and which of them has which numbers. Decides nothing about when. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { errnoOf, isDiskFull } from './files.edge.ts';
import { type FileCalls, openSegment, type Segment } from './log-segment.edge.ts';
import { NO_TAG, parseSegmentName, segmentName } from './record-format.ts';
import type { Found, Waiting } from './record-log-types.ts';

export const EMPTY = 'it is empty: the power was cut when it was begun, or its records were removed';
/** Of what is behind the records of a file: more than a write that was cut off has to leave. */
const TAIL_BYTES = 4096;
const NOTHING_READABLE = 'nothing in it can be read';

const OF_ANOTHER = 'it is of another device or of an older installation';

/** Reads nothing yet. @param mark the owner's: a file with another one is not read. */
export function createSegments(
	directory: string,
	name: string,
	access: 'write' | 'read',
	files: FileCalls,
	mark: string | null,
) {
	/** By their sequence. */
	const list: Segment[] = [];
	/** Files that cannot be opened, or are none. */
	const unreadable: { readonly file: string; readonly sequence: number; readonly error: unknown }[] = [];

	const found = () =>
		files.readdirSync(directory).flatMap((file) => {
			const parsed = parseSegmentName(name, file);
			return parsed ? [{ ...parsed, file }] : [];
		});

	function newest(): number {
		const last = list.findLast(({ isEmpty, head }) => !isEmpty || head !== null);
		return last ? Math.max(last.isEmpty ? 0 : last.last, (last.head?.next ?? 1) - 1) : 0;
	}

	/** Heads and notes for a start, oldest first, and whether a part of them may be lost. */
	const state = { payloads: [] as Uint8Array[], isPartial: false };

	function readState(): void {
		const from = list.findLastIndex((segment) => segment.head !== null && segment.readAt(0)?.payload);
		// A file or a place that cannot be read may have had notes.
		state.isPartial = unreadable.some(({ sequence }) => sequence > (list[from]?.sequence ?? 0));
		for (const segment of list.slice(Math.max(0, from))) {
			state.isPartial ||= segment.isDamaged || segment.end < segment.bytes;
			for (const at of segment.head ? [0, ...segment.notes] : segment.notes) {
				const payload = segment.readAt(at)?.payload;
				if (payload) state.payloads.push(payload);
				// Without records and notes the power went while it was begun.
				else if (segment.isEmpty && segment.notes.length === 0) continue;
				else segment.isDamaged = true;
				// What a head says is in the head and the notes before it as well.
				state.isPartial ||= !payload && (at > 0 || from < 0);
			}
		}
	}

	/** The list, and the numbers on which each has the newest word. */
	function ranges(): { readonly segment: Segment; readonly from: number; readonly to: number }[] {
		let before = Number.POSITIVE_INFINITY;
		const found = list.toReversed().map((segment) => {
			const range = { segment, from: segment.first, to: segment.isEmpty ? -1 : Math.min(segment.last, before) };
			before = Math.min(before, (segment.head?.next ?? (segment.isEmpty ? before + 1 : segment.first)) - 1);
			return range;
		});
		return found.reverse().filter(({ from, to }) => to >= from);
	}

	const segmentOf = (number: number) =>
		ranges().find(({ from, to }) => number >= from && number <= to)?.segment ?? null;

	/** Whole records after a number, and what is lost at its place. @param oldest the first that is kept: from there on, what made room is lost. */
	function* after(number: number, oldest: number): Iterable<Found> {
		let next = number + 1;
		let lost = null as { readonly number: number; readonly lostFrom: number } | null;
		let earlier = null as Segment | null;
		for (const { segment, from, to } of ranges()) {
			const [low, high] = [earlier?.sequence ?? 0, segment.sequence];
			const isHidden = unreadable.some(({ sequence }) => sequence > low && sequence < high);
			// Numbers that were never given are not lost.
			const missing = isHidden || !segment.head ? from - 1 : Math.min(from - 1, segment.head.before);
			if (earlier && missing >= next) lost = { number: missing, lostFrom: lost?.lostFrom ?? next };
			for (next = Math.max(next, from); next <= to; next += 1) {
				const is = segment.has(next);
				const payload = is === 'kept' ? segment.read(next) : null;
				if (is === 'erased' && !(next > oldest && segment.madeRoom(next))) continue;
				// What is wrong with a content is only seen when it is read.
				segment.isDamaged ||= is === 'kept' && payload === null && segment.isRotten(next);
				if (payload === null) lost = { number: next, lostFrom: lost?.lostFrom ?? next };
				else {
					if (lost) yield lost;
					lost = null;
					yield { number: next, timeMs: segment.timeOf(next) ?? 0, payload };
				}
			}
			earlier = segment;
		}
		if (lost) yield lost;
	}

	/** The parts of each that are written over with the next erasure: records, and where that is given up, whatever cannot be read. */
	function doomed() {
		// Others may have put something behind the records of a file that nothing is appended to any more.
		for (const segment of list.slice(0, -1))
			if (segment.isGivenUp) segment.bytes = files.fstatSync(segment.descriptor).size;
		if (list.some(({ isGivenUp }) => isGivenUp)) cutTails();
		const kept = new Map(ranges().map(({ segment, from, to }) => [segment, { from, to }]));
		return list.map((segment) => {
			const { from, to } = kept.get(segment) ?? { from: 0, to: -1 };
			const holes = segment.isGivenUp ? segment.holesBeside(from, to) : [];
			return { segment, numbers: [...segment.doomed], holes };
		});
	}

	async function giveUp(keepsTags: boolean): Promise<boolean> {
		for (const { segment, from, to } of ranges())
			for (let number = from; number <= to; number += 1)
				if (segment.has(number) === 'kept' && !segment.read(number))
					segment.erase(number, { tag: keepsTags ? undefined : NO_TAG });
		for (const segment of list) segment.isGivenUp = true;
		await removeOthers();
		return doomed().some(({ numbers, holes }) => numbers.length + holes.length > 0);
	}

	/** Files that others have put under its names meanwhile, and those that could not be opened, cannot be searched: the next start would read them. */
	async function removeOthers(): Promise<void> {
		const own = list.filter(({ isUnlinked }) => !isUnlinked).map(({ name }) => name);
		const others = found().filter(({ file }) => !own.includes(path.join(directory, file)));
		for (const { file } of others)
			try {
				files.unlinkSync(path.join(directory, file));
			} catch (error) {
				// A directory is read by no start.
				if (!['ENOENT', 'EISDIR'].includes(errnoOf(error))) throw error;
			}
		if (others.length > 0) await flushNames();
	}

	async function writeAll(to: number, bytes: Uint8Array, at: number): Promise<void> {
		for (let written = 0; written < bytes.length; )
			written += await new Promise<number>((resolve, reject) =>
				files.write(to, bytes, written, bytes.length - written, at + written, (error, length) =>
					error ? reject(error) : resolve(length),
				),
			);
	}

	const flush = (to: number, call: 'fdatasync' | 'fsync' = 'fdatasync') =>
		new Promise<void>((resolve, reject) => files[call](to, (error) => (error ? reject(error) : resolve())));

	async function flushNames(): Promise<void> {
		const to = files.openSync(directory, 'r');
		try {
			await flush(to, 'fsync');
		} catch (error) {
			// Some file systems have no flush of a directory.
			if (!['EINVAL', 'ENOTSUP', 'EPERM'].includes(errnoOf(error))) throw error;
		} finally {
			files.closeSync(to);
		}
	}

	function bytes(): number {
		return list.reduce((sum, { bytes }) => sum + bytes, 0);
	}

	function unlink(file: string): boolean {
		try {
			files.unlinkSync(file);
			return true;
		} catch (error) {
			return errnoOf(error) === 'ENOENT';
		}
	}

	/** What was put behind the records of a file takes no room from them: so much is left as says that it is damaged. @returns whether that made room. */
	function cutTails(): boolean {
		const long = list.filter(({ isWritable, end, bytes }) => isWritable && bytes - end > TAIL_BYTES);
		try {
			for (const segment of long) {
				files.ftruncateSync(segment.descriptor, segment.end + TAIL_BYTES);
				segment.bytes = segment.end + TAIL_BYTES;
				segment.isDamaged = true;
			}
			return long.length > 0;
		} catch {
			return false;
		}
	}

	/** @returns whether it is gone. */
	function removeOldest(): boolean {
		const [oldest] = list;
		if (!oldest || !unlink(oldest.name)) return false;
		files.closeSync(oldest.descriptor);
		list.shift();
		return true;
	}

	/**
	 * On a full disk files go in which nothing is kept, before the disk knows that nothing is: what says so may take their very room. The one
	 * with the newest head goes only where nothing is kept at all. A power cut just then may cost a gap too many.
	 */
	function makeRoom(error: unknown): void {
		if (!isDiskFull(error)) return;
		const newest = list.findLast((segment) => segment.head !== null && segment.readAt(0)?.payload);
		const keepsNone = list.every(({ kept }) => kept === 0);
		for (let [oldest] = list; oldest && oldest.kept === 0 && (keepsNone || oldest !== newest); [oldest] = list) {
			if (!removeOldest()) return;
		}
	}

	function make(): Segment {
		const sequence = 1 + Math.max(0, ...[...list, ...unreadable].map((each) => each.sequence));
		const salt = randomBytes(8).toString('hex');
		return openSegment(directory, { sequence, file: segmentName(name, { sequence, salt }) }, 'make', files);
	}

	return {
		list,
		unreadable,
		newest,
		state,
		ranges,
		segmentOf,
		after,
		doomed,
		giveUp,
		writeAll,
		flush,
		flushNames,
		bytes,
		unlink,
		removeOldest,
		cutTails,
		make,
		makeRoom,
		/** @throws the system's error when the directory cannot be read. */
		read(): void {
			for (const each of found().sort((one, other) => one.sequence - other.sequence))
				try {
					const segment = openSegment(directory, each, access, files);
					const other = segment.head?.mark ?? mark;
					if (other === mark || mark === null) list.push(segment);
					else {
						files.closeSync(segment.descriptor);
						unreadable.push({ ...each, error: new Error(OF_ANOTHER) });
					}
				} catch (error) {
					unreadable.push({ ...each, error });
				}
			readState();
			const last = list.at(-1);
			// A write that was cut off, or damage: at least one record is not what it was.
			if (last && last.end < last.bytes) last.addLost(newest() + 1);
		},
		removeAll(): void {
			for (const { descriptor } of list.splice(0)) files.closeSync(descriptor);
			for (const { file } of found()) files.unlinkSync(path.join(directory, file));
		},
		/** @param reads whether each record is read as well. */
		damages(reads = false) {
			const rotten = new Set(
				reads
					? ranges()
							.filter(hasRotten)
							.map(({ segment }) => segment)
					: [],
			);
			const found = unreadable.map(({ file, error }) => ({ file: path.join(directory, file), error }));
			let newest = Number.POSITIVE_INFINITY;
			for (const [index, segment] of list.entries()) {
				const { name: file, isDamaged, end, bytes, head, sequence } = segment;
				const missing = path.join(directory, segmentName(name, { sequence: sequence - 1, salt: '*' }));
				// It knows of more records than those before it have.
				if (head && head.before > newest && !unreadable.some((each) => each.sequence === sequence - 1))
					found.push({
						file: list[index - 1]?.sequence === sequence - 1 ? (list[index - 1]?.name ?? '') : missing,
						error: new Error('records are missing'),
					});
				// Only a reader says so: the next start passes over what a power cut may have left.
				if (bytes === 0 && access === 'read') found.push({ file, error: new Error(EMPTY) });
				newest = Math.max(index === 0 ? 0 : newest, segment.isEmpty ? 0 : segment.last, (head?.next ?? 1) - 1);
				// After a write that did not fit, the same numbers are in the next one.
				const next = list[index + 1];
				if (isDamaged || rotten.has(segment) || (next && end < bytes && !(next.head && next.head.before <= newest)))
					found.push({ file, error: new Error(end === 0 ? NOTHING_READABLE : 'a part of it is damaged') });
			}
			return found;
		},
	};
}

function hasRotten({ segment, from, to }: { readonly segment: Segment; readonly from: number; readonly to: number }) {
	for (let number = from; number <= to; number += 1) if (segment.isRotten(number)) return true;
	return false;
}

/** Records that are not on the disk, and what is lost between them. @param oldest as for `after`. */
export function* foundIn(records: Iterable<Waiting>, oldest: number): Iterable<Found> {
	let lostFrom: number | null = null;
	for (const { number, timeMs, payload, tag } of records) {
		if (payload) {
			if (lostFrom !== null) yield { number: number - 1, lostFrom };
			lostFrom = null;
			yield { number, timeMs, payload };
		} else if (number > oldest && tag.some(Boolean)) lostFrom ??= number;
	}
}
