/**
 * An append-only log of numbered records in a directory: what is kept is whole, and what is missing or unreadable is told at its place.
 *
 * The log is a row of files (segments), each `NAME-SEQUENCE-SALT.log`. Records are appended to the newest; the oldest are unlinked whole, and
 * nothing is ever moved. A segment begins with the owner's head: what a start needs to know of records that are gone. It is durable,
 * and its name as well, before an older segment goes. A group of records takes one write and one flush, in libuv's pool. A flush that has failed is
 * never repeated on the same open file: the group goes to a new segment, and if that fails as well, it stays in memory, with a warning.
 * docs/log.md says what each cut and each damage leaves.
 */
import nodeFs from 'node:fs';
import path from 'node:path';
import { idleClock } from './clock.edge.ts';
import { isDiskFull } from './files.edge.ts';
import type { Segment } from './log-segment.edge.ts';
import { createSegments, foundIn } from './log-segments.edge.ts';
import { HEADER_BYTES, NO_TAG, tagOfHead } from './record-format.ts';
import type { Found, RecordLog, RecordLogOptions, Waiting } from './record-log-types.ts';

export type { Found, RecordLog, RecordLogOptions };

/** Where the newest numbers cannot be known, numbers go on so far behind the known ones. */
const JUMP = 2 ** 32;
const [MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES] = [32 * 1024, 4 * 1024 * 1024];
/** Records that wait for the disk, in bytes: beyond it the disk counts as failing until they are stored. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

export function openRecordLog(options: RecordLogOptions): RecordLog {
	const { directory, name, access = 'disk', files = nodeFs, recoverEveryMs = 30_000, mark = null } = options;
	const { wallMs, schedule, soon } = { ...idleClock, ...options };
	const segmentBytes = () => Math.min(MAX_SEGMENT_BYTES, Math.max(MIN_SEGMENT_BYTES, options.maxBytes() >> 3));
	const disk = createSegments(directory, name, access === 'disk' ? 'write' : 'read', files, mark);
	const { list: segments, unreadable } = disk;
	/** The one that records are appended to. */
	let current: Segment | null = null;
	/** `isNameFlushed`: the name of the segment that this process has found is durable. */
	let [isLoaded, isClosed, isStoring, isNameFlushed] = [false, false, false, false];
	/** Records and notes that are not on the disk, in order. */
	let waiting: Waiting[] = [];
	/** Of these: bytes, and records that are not erased. */
	let [waitingBytes, waitingKept] = [0, 0];
	/** The newest number that was given, the newest that is stored, and the newest up to which all are erased. */
	let [given, stored, erasedUpTo] = [0, 0, 0];
	let [asked, done, failing] = [0, 0, null as unknown];
	let waiters: { readonly asked: number; readonly resolve: () => void }[] = [];
	/** Works on the disk follow each other. */
	let work: Promise<unknown> = Promise.resolve();
	let [cancelSoon, cancelRetry] = [null as (() => void) | null, () => {}];

	/** @throws the system's error when the directory cannot be read. */
	function load(): void {
		disk.read();
		isLoaded = true;
		const newest = segments.at(-1);
		const isHidden = unreadable.some(({ sequence }) => sequence > (newest?.sequence ?? 0));
		// The head of a new one tells later starts what is lost.
		if (newest?.isWritable && !isHidden && !disk.state.isPartial && newest.readAt(0)?.payload) current = newest;
		stored = Math.max(stored, disk.newest());
		given = Math.max(given, stored + (isHidden ? JUMP : 0));
		options.onFound?.(disk.state.payloads);
		if (access !== 'memory') return;
		for (const found of after(0))
			if ('payload' in found)
				keep({ kind: 'record', tag: disk.segmentOf(found.number)?.tagOf(found.number) ?? NO_TAG, ...found });
		disk.removeAll();
	}

	const sizeOf = ({ payload }: Waiting) => HEADER_BYTES + (payload?.length ?? 0);

	function keep(record: Waiting): void {
		waiting.push(record);
		waitingBytes += sizeOf(record);
		waitingKept += Number(record.kind === 'record');
		asked += 1;
	}

	function later(): void {
		if (failing === null && waitingBytes > MAX_WAITING_BYTES && access === 'disk')
			fail(new Error('it cannot keep up with what arrives'));
		cancelSoon ??= soon(store);
	}

	/** Stores what waits, one group after another. */
	function store(): void {
		cancelSoon?.();
		cancelSoon = null;
		if (failing !== null || access !== 'disk') stayInMemory();
		else if (!isStoring && waiting.length > 0) {
			isStoring = true;
			inTurn(storeWaiting).catch(() => {});
		}
	}

	/** @throws what keeps it from the disk. */
	async function storeWaiting(): Promise<void> {
		isStoring = true;
		try {
			if (!isLoaded) load();
			do {
				const group = nextGroup();
				// The second try goes to a new segment.
				await write(group).catch(() => write(group));
				removeFirst(group.length);
				if (waiting.length === 0 && failing !== null) {
					failing = null;
					options.onFailing?.(null);
				}
				handOn(group.at(-1)?.number ?? stored);
			} while (waiting.length > 0);
		} catch (error) {
			isStoring = false;
			fail(error);
			throw error;
		}
		isStoring = false;
	}

	function inTurn<Result>(run: () => Promise<Result>): Promise<Result> {
		const result = work.then(run);
		work = result.catch(() => {});
		return result;
	}

	function nextGroup(): Waiting[] {
		let bytes = 0;
		const end = waiting.findIndex((record) => {
			bytes += sizeOf(record);
			return bytes > segmentBytes();
		});
		return waiting.slice(0, end === -1 ? waiting.length : Math.max(1, end));
	}

	/** One write and one flush; for a new segment also one of its name. */
	async function write(group: readonly Waiting[]): Promise<void> {
		const bytes = group.reduce((sum, record) => sum + sizeOf(record), 0);
		// One that has a head only takes a record of any length.
		const isFull = current && current.end + bytes > segmentBytes() && !(current.isEmpty && current.notes.length === 0);
		const before = disk.newest();
		const next = group.find(({ kind }) => kind === 'record')?.number ?? given + 1;
		const isNew = !current || !segments.includes(current) || current.isUnlinked || isFull === true || next > before + 1;
		const into = isNew || !current ? disk.make() : current;
		try {
			const { format, descriptor, end } = into;
			const head = { kind: 'head', number: before, timeMs: wallMs(), tag: tagOfHead(next, mark) } as const;
			const records = isNew ? [{ ...head, payload: options.head() }, ...group] : group;
			const chunk = new Uint8Array(records.reduce((sum, record) => sum + sizeOf(record), 0));
			let at = 0;
			const places = records.map((record) => {
				const place = { record, at: end + at, length: record.payload?.length ?? 0, isErased: record.payload === null };
				format.write(chunk, at, { ...record, isErased: place.isErased }, record.payload ?? new Uint8Array(0));
				at += sizeOf(record);
				return place;
			});
			if (into.bytes > end) files.ftruncateSync(descriptor, end);
			await disk.writeAll(descriptor, chunk, end);
			const isLasting = isNew || group.some(({ kind }) => kind === 'record');
			if (isLasting) await disk.flush(descriptor);
			if (isNew || (isLasting && !isNameFlushed)) await disk.flushNames();
			isNameFlushed ||= isLasting;
			into.end = into.bytes = end + chunk.length;
			if (isNew) into.head = { before, next, mark };
			for (const { record, ...place } of places) {
				if (record.kind === 'note') into.notes.push(place.at);
				if (record.kind !== 'record') continue;
				into.add(record.number, place.at, { ...place, timeMs: record.timeMs });
				if (record.payload === null) into.erase(record.number, { tag: record.tag });
			}
		} catch (error) {
			abandon(into, isNew, isDiskFull(error));
			throw error;
		}
		if (isNew) segments.push(into);
		current = into;
		if (isNew || disk.bytes() > options.maxBytes()) await unlinkOldest(new Set());
	}

	/** What a failed flush has left is unknown: nothing is flushed through this open file again. @param cuts takes away what was written and did not fit. */
	function abandon(segment: Segment, isNew = false, cuts = false): void {
		if (segment === current) current = null;
		try {
			if (!isNew) segment.reopen();
			else files.closeSync(segment.descriptor);
			if (isNew) files.unlinkSync(segment.name);
			else if (cuts && segment.isWritable) files.ftruncateSync(segment.descriptor, segment.end);
		} catch {
			// The next start passes over it.
		}
	}

	function fail(error: unknown): void {
		failing = error;
		// The head of the next segment has what notes say.
		if (!isStoring) waiting = waiting.filter(({ kind }) => kind !== 'note');
		waitingBytes = waiting.reduce((sum, record) => sum + sizeOf(record), 0);
		options.onFailing?.(error);
		cancelRetry();
		if (!isClosed) cancelRetry = schedule(recoverEveryMs, () => void recover());
		stayInMemory();
	}

	async function recover(): Promise<boolean> {
		await log.settled();
		disk.makeRoom(failing);
		if (failing !== null && !isClosed) await inTurn(storeWaiting).catch(() => {});
		return failing === null && !isClosed && access === 'disk';
	}

	/** Without a disk, what waits is all there is: it is handed on, and bounded. */
	function stayInMemory(): void {
		for (const record of waiting) {
			if (waitingBytes <= options.maxBytes() || record.number === given) break;
			forget(record);
		}
		if (!isStoring) {
			// The next segment begins behind what is erased before all else; where older ones are kept, the newest of it is their gap.
			const kept = waiting.findIndex(({ payload }) => payload !== null);
			const erased = kept === -1 ? waiting.length : kept;
			removeFirst(erased - Number((waiting[erased - 1]?.number ?? 0) > log.first()));
		}
		handOn(given);
	}

	function removeFirst(count: number): void {
		for (const record of waiting.splice(0, count)) {
			waitingBytes -= sizeOf(record);
			waitingKept -= Number(record.kind === 'record' && record.payload !== null);
		}
	}

	function forget(record: Waiting, tagLeft?: Waiting['tag']): void {
		if (!record.payload) return;
		record.tag = tagLeft ?? options.tagUnstored?.(record.tag) ?? record.tag;
		waitingBytes -= record.payload.length;
		waitingKept -= Number(record.kind === 'record');
		record.payload = null;
	}

	function handOn(upTo: number): void {
		const isMore = upTo > stored;
		stored = Math.max(stored, upTo);
		done = failing !== null || access !== 'disk' ? asked : asked - waiting.length;
		for (const waiter of waiters) if (waiter.asked <= done) waiter.resolve();
		waiters = waiters.filter((waiter) => waiter.asked > done);
		if (isMore) options.onStored?.();
	}

	/** Those of these, and those beyond the bound; never the newest. */
	async function unlinkOldest(empty: ReadonlySet<Segment>): Promise<void> {
		const before = segments.length;
		for (let oldest = segments[0]; oldest && current && oldest !== current; oldest = segments[0]) {
			const room = Math.max(0, segmentBytes() - current.end);
			const isFitting = disk.bytes() + room <= options.maxBytes();
			// A record that is larger than the bound stays until the next one, also when a segment of notes has begun.
			const isNewest = segments.length === 2 && oldest.kept > 0 && oldest.last >= disk.newest();
			if (!empty.has(oldest) && (isFitting || isNewest)) break;
			if (disk.cutTails()) continue;
			for (const { file, sequence } of unreadable)
				if (sequence < oldest.sequence) disk.unlink(path.join(directory, file));
			if (!disk.removeOldest()) break;
		}
		if (segments.length < before) await disk.flushNames();
	}

	async function cleanUp(): Promise<void> {
		if (access !== 'disk') return;
		if (failing === null && waiting.length > 0) await storeWaiting();
		// What is erased from here on may depend on notes that come later.
		let isErased = true;
		const empty = new Set(segments.filter(({ kept }) => kept === 0));
		const doomed = disk.doomed();
		try {
			// Notes are durable before the files go that they are about.
			if (current && empty.has(segments[0] ?? current) && segments[0] !== current) await disk.flush(current.descriptor);
			if (failing === null) await unlinkOldest(empty);
			for (const { segment, numbers, holes } of doomed) {
				if (numbers.length + holes.length === 0 || !segments.includes(segment)) continue;
				if (!segment.isWritable) abandon(segment);
				isErased &&= segment.isWritable;
				if (!segment.isWritable) continue;
				for (const pieces of segment.erasing(numbers, holes)) {
					for (const { at, bytes } of pieces) await disk.writeAll(segment.descriptor, bytes, at);
					await disk.flush(segment.descriptor);
				}
				segment.cleaned(numbers);
			}
		} catch (error) {
			for (const segment of segments) abandon(segment);
			throw error;
		}
		// On a full disk contents are erased in their place too; what else waits is not stored.
		if (!isErased || failing !== null) throw failing ?? new Error('a file with erased contents cannot be written');
	}

	function* after(number: number): Iterable<Found> {
		yield* disk.after(number, log.first());
		yield* foundIn(inMemory(Math.max(number, disk.newest()) + 1), log.first());
	}
	/** The stored ones in memory, from a number on, also erased ones. */
	function* inMemory(from = 0): Iterable<Waiting> {
		let [low, high] = [0, waiting.length];
		while (low < high) {
			const middle = (low + high) >> 1;
			[low, high] = (waiting[middle]?.number ?? 0) < from ? [middle + 1, high] : [low, middle];
		}
		for (; low < waiting.length && (waiting[low]?.number ?? 0) <= stored; low += 1) {
			const record = waiting[low];
			if (record?.kind === 'record') yield record;
		}
	}

	/** In the index: what is not erased. */
	function* indexed(): Iterable<{ readonly number: number; readonly timeMs: number | null }> {
		for (const { segment, from, to } of disk.ranges())
			for (let number = Math.max(from, erasedUpTo + 1); number <= to; number += 1)
				if (segment.has(number) !== 'erased') yield { number, timeMs: segment.timeOf(number) };
		for (const record of inMemory()) if (record.payload) yield record;
	}

	const waitingAt = (number: number) => waiting.find((each) => each.kind === 'record' && each.number === number);
	const log: RecordLog = {
		first: () => indexed()[Symbol.iterator]().next().value?.number ?? stored + 1,
		next: () => given + 1,
		beginAt(number) {
			if (given === 0) given = stored = number - 1;
		},
		*kept() {
			for (const { number, timeMs } of indexed()) if (timeMs !== null) yield { number, timeMs };
		},
		last: () => stored,
		count() {
			// Those that are not stored yet are the newest.
			const newest = waiting.slice(1 + waiting.findLastIndex(({ number }) => number <= stored));
			const unstored = newest.filter(({ kind }) => kind === 'record').length;
			return disk.ranges().reduce((sum, { segment }) => sum + segment.kept, waitingKept - unstored);
		},
		bytes: () => disk.bytes() + waitingBytes,
		damages: disk.damages,
		lacksNotes: () => disk.state.isPartial,
		append(payload, timeMs, tag = NO_TAG) {
			given += 1;
			keep({ kind: 'record', number: given, timeMs, tag, payload });
			later();
			return given;
		},
		note(payload) {
			if ((failing !== null && !isStoring) || access !== 'disk') asked += 1;
			else keep({ kind: 'note', number: given, timeMs: wallMs(), tag: NO_TAG, payload });
			later();
		},
		settled: () => (asked === done ? Promise.resolve() : new Promise((resolve) => waiters.push({ asked, resolve }))),
		after,
		rest: (number, left, most) =>
			disk.segmentOf(number)?.rest(number, left, most) ?? waitingAt(number)?.payload?.subarray(-left).subarray(0, most),
		timeOf: (number) => waitingAt(number)?.timeMs ?? disk.segmentOf(number)?.timeOf(number) ?? null,
		unstored: () => waiting.filter(({ kind }) => kind === 'record'),
		tags(limit) {
			const found = log.unstored().slice(-limit).reverse();
			for (const { segment, from, to } of disk.ranges().reverse())
				for (let number = to; number >= from && found.length < limit; number -= 1)
					found.push({ number, tag: segment.tagOf(number) ?? NO_TAG });
			return found.reverse();
		},
		doneUpTo: () => Math.max(0, ...segments.map((segment) => segment.doneUpTo)),
		erase(which, because) {
			const isMeant = typeof which === 'number' ? (number: number) => number <= Math.min(which, stored) : undefined;
			const numbers = new Set(typeof which === 'number' ? [] : which);
			const [isDone, tag] = [because === 'done', because === 'room' || isMeant ? undefined : NO_TAG];
			for (const { segment, from, to } of disk.ranges()) {
				if (isMeant)
					for (let n = Math.max(from, erasedUpTo + 1); n <= to && isMeant(n); n += 1) segment.erase(n, { isDone });
				for (const number of numbers) if (number >= from && number <= to) segment.erase(number, { tag });
			}
			for (const record of waiting) {
				if (isMeant && !isMeant(record.number)) break;
				if (record.kind === 'record' && (isMeant || numbers.has(record.number)))
					forget(record, isDone ? record.tag : tag);
			}
			if (typeof which === 'number') erasedUpTo = Math.max(erasedUpTo, Math.min(which, stored));
		},
		giveUp: disk.giveUp,
		clean: () => log.settled().then(() => inTurn(cleanUp)),
		recover,
		async close() {
			if (isClosed) return;
			store();
			await recover();
			isClosed = true;
			cancelRetry();
			await work;
			for (const { descriptor } of segments.splice(0)) files.closeSync(descriptor);
		},
	};
	try {
		load();
	} catch (error) {
		// Its records may be readable later, and then come before all that is appended until then.
		given = Math.max(JUMP, Math.floor(wallMs()));
		fail(error);
	}
	return log;
}
