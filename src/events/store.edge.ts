/**
 * The durable inbox: events in an SQLite file, in order, until every named consumer has acknowledged them or they are too
 * old or too many. Falls back to memory while the disk cannot take them, and says so. Never reads a content, never hands
 * an event on before it is stored, writes nothing while nothing happens.
 *
 * Ids are `epoch-number`: numbers go on over restarts, the epoch is new for each run that appends. So even a disk that
 * loses what it has confirmed cannot bring back an id that an application has seen.
 *
 * In the directory: `events.db`, `events.db-wal` and `events.db-tail` beside it, and `events.db.corrupt-<time>` for damaged ones. What is
 * deleted is overwritten in the first and cut off the others within `cleanAfterMs`; blocks that a file system or a flash
 * disk has put aside meanwhile are out of reach.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { idleClock } from '../base/clock.edge.ts';
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';
import { AgentError } from '../base/errors.ts';
import { createConsumers } from './consumers.ts';
import {
	damagedNotice,
	dropQuarantined,
	EVENTS_FILE,
	isDamage,
	quarantineTable,
	unerased,
	unwritableNotice,
} from './damaged-events.edge.ts';
import { rememberMessages } from './duplicates.ts';
import { type Entry, type Epoch, idOf, numberOf, sizeOf, withEpoch } from './event.ts';
import type { DurableEventStore, EventStoreOptions } from './event-store-types.ts';
import { type EventTable, IN_MEMORY, type KeptEvent, moveToMemory, openEventTable } from './event-table.edge.ts';

export type { Consumer, DurableEventStore, EventStore, EventStoreOptions } from './event-store-types.ts';

/** Events that are remembered for telling duplicates, deleted ones included. */
const REMEMBERED_EVENTS = 1024;
/** So many events, or characters, do not wait for the end of the turn. */
const MAX_PENDING = 1024;
const MAX_PENDING_BYTES = 256 * 1024;
/** A smaller step of the clock, as against the time that passed, does not matter for the age of events. */
const CLOCK_STEP_MS = 60_000;

/** Opens nothing yet: the file is looked at when something is asked, and made with the first event. A bad disk never throws here. */
export function createEventStore(options: EventStoreOptions): DurableEventStore {
	const { directory, bounds, epoch, onNotice = () => {}, recoverEveryMs = 30_000 } = options;
	const { durable = true } = options;
	const cleanAfterMs = () => options.cleanAfterMs ?? 30_000;
	const { wallMs, monotonicMs, schedule, soon: afterInput } = { ...idleClock, ...options };
	const file = join(directory, EVENTS_FILE);
	const listeners = new Set<(entries: readonly Entry[]) => void>();
	const consumers = createConsumers(wallMs, () => bounds.maxAgeMs);
	const duplicates = rememberMessages(REMEMBERED_EVENTS);
	let eventTable: EventTable | null = null;
	let isAbsent = false;
	let closed = false;
	let epochs: readonly Epoch[] = [];
	/** The newest number that is stored, and the oldest that can be. */
	let last = 0;
	let first = 0;
	let count = 0;
	let bytes = 0;
	/** Numbers below this belong to events of earlier runs that this one could not read. */
	let base = 0;
	let pending: Entry[] = [];
	let pendingBytes = 0;
	let cancelFlush: (() => void) | null = null;
	let waiting: (() => void)[] = [];
	let cancelWake = () => {};
	let uncleanSinceMs: number | null = null;
	let triedAtMs = 0;
	let clockOffsetMs = wallMs() - monotonicMs();

	/** The open shelf; `null` if there is no file and none is to be made. */
	function ready(create: boolean): EventTable | null {
		if (eventTable || closed) return eventTable;
		isAbsent ||= !existsSync(file);
		if (isAbsent && !create) return null;
		try {
			dropQuarantined(directory, (suffix) => !durable || wallMs() - (Date.parse(suffix) || 0) > bounds.maxAgeMs);
			adopt(durable ? openEventTable(file) : existsSync(file) ? moveToMemory(file) : openEventTable(IN_MEMORY));
		} catch (error) {
			fallBack(error);
		}
		return eventTable;
	}

	/** From here on events are on this shelf. Pending ones have their numbers already. */
	function adopt(opened: EventTable): void {
		try {
			const now = wallMs();
			// They would be too old at once, or never.
			if (now > EARLIEST_CLOCK_MS) opened.correctAges(EARLIEST_CLOCK_MS, now);
			const summary = opened.summary();
			({ count, bytes, epochs } = summary);
			last = Math.max(last, summary.last);
			first = summary.first ?? last + 1;
			duplicates.load(summary.messages);
			consumers.load(summary.consumers, last);
		} catch (error) {
			attempt(() => opened.close());
			throw error;
		}
		eventTable = opened;
		plan();
	}

	// ---- When the disk fails, and when it is well again ----

	function fallBack(error: unknown): void {
		const failed = eventTable;
		eventTable = null;
		const memory = openEventTable(IN_MEMORY);
		if (isDamage(error)) {
			attempt(() => failed?.close());
			let asideAs: string | null = null;
			attempt(() => {
				asideAs = quarantineTable(directory, new Date(wallMs()).toISOString());
			});
			onNotice('events-damaged', damagedNotice(file, asideAs, error));
			if (attempt(() => adopt(openEventTable(file)))) {
				memory.close();
				return;
			}
		}
		const isRescued =
			failed !== null &&
			attempt(() => {
				memory.takeOver(failed, 0);
				memory.replayFrom(failed);
			});
		attempt(() => failed?.close());
		// Events that cannot be read now may be readable later, and then precede those that arrive meanwhile.
		if (failed === null && existsSync(file)) last = Math.max(last, 2 ** 40 + Math.max(0, Math.floor(wallMs())));
		base = isRescued ? 0 : last + 1;
		triedAtMs = monotonicMs();
		adopt(memory);
		onNotice('events', unwritableNotice(directory, error));
	}

	function recover(): boolean {
		if (closed || !eventTable) return !closed;
		if (eventTable.onDisk) return true;
		if (!durable) return false;
		const memory = eventTable;
		triedAtMs = monotonicMs();
		try {
			const disk = openEventTable(file);
			const isTaken = attempt(() => {
				disk.takeOver(memory, base);
				adopt(disk);
			});
			if (!isTaken) attempt(() => disk.close());
		} catch (error) {
			if (isDamage(error)) attempt(() => quarantineTable(directory, new Date(wallMs()).toISOString()));
		}
		if (eventTable === memory) return false;
		memory.close();
		base = 0;
		onNotice('events', null);
		return true;
	}

	// ---- Writing ----

	function soon(): void {
		if (pending.length >= MAX_PENDING || pendingBytes >= MAX_PENDING_BYTES) flush();
		else cancelFlush ??= afterInput(flush);
	}

	function flush(): void {
		cancelFlush?.();
		cancelFlush = null;
		const batch = pending;
		ready(true);
		for (let tries = 1; eventTable; tries += 1)
			try {
				store(eventTable, batch);
				break;
			} catch (error) {
				// A damaged file is followed by a new one, that one by memory.
				if (tries > 2) throw error;
				fallBack(error);
			}
		pending = [];
		pendingBytes = 0;
		const done = waiting;
		waiting = [];
		for (const resolve of done) resolve();
		if (batch.length > 0) for (const listener of listeners) listener(batch);
	}

	/** One transaction: the events, the consumers' positions, and what may go now. */
	function store(on: EventTable, batch: readonly Entry[]): void {
		const now = wallMs();
		const newest = batch.at(-1)?.number ?? last;
		const stepMs = Math.round(now - monotonicMs() - clockOffsetMs);
		const nextEpochs = batch[0] ? withEpoch(epochs, epoch, batch[0].number) : epochs;
		const { upTo, left } = on.transaction(() => {
			// When the clock was set meanwhile, events are as old as before.
			if (Math.abs(stepMs) >= CLOCK_STEP_MS) on.shiftAges(stepMs);
			if (nextEpochs !== epochs) on.setEpochs(nextEpochs);
			for (const entry of batch) on.add(entry, now, sizeOf(entry));
			if (consumers.changed) on.setConsumers(consumers.positions);
			const total = batch.reduce((sum, entry) => sum + sizeOf(entry), bytes);
			const going = findGoing(on, { count: count + batch.length, bytes: total }, now);
			if (going.upTo >= first) on.remove(first, going.upTo, newest - REMEMBERED_EVENTS);
			return going;
		});
		if (Math.abs(stepMs) >= CLOCK_STEP_MS) {
			clockOffsetMs += stepMs;
			// The tail does not know of shifted ages.
			on.settle();
		}
		consumers.changed = false;
		epochs = nextEpochs;
		last = newest;
		({ count, bytes } = left);
		if (upTo >= first) uncleanSinceMs ??= monotonicMs();
		first = Math.max(first, upTo + 1);
		plan();
	}

	/** Which events may go: acknowledged by all, too old, or too many. The newest is never too many. */
	function findGoing(on: EventTable, left: { count: number; bytes: number }, now: number) {
		const acknowledged = consumers.acknowledgedByAll();
		let upTo = first - 1;
		for (const event of on.kept(upTo)) {
			const isTooMany = left.count > 1 && (left.count > bounds.maxCount || left.bytes > bounds.maxBytes);
			const isDone = event.number <= acknowledged;
			if (!isTooMany && !isDone && event.keptMs + bounds.maxAgeMs > now) break;
			upTo = event.number;
			left.count -= 1;
			left.bytes -= event.size;
		}
		return { upTo, left };
	}

	// ---- What is due later ----

	/** One timer for the next thing that is due; none while nothing is. */
	function plan(): void {
		cancelWake();
		if (closed || !eventTable) return;
		const now = monotonicMs();
		const oldest = count > 0 ? oldestOn(eventTable) : null;
		const dueMs = Math.min(
			uncleanSinceMs === null ? Number.POSITIVE_INFINITY : uncleanSinceMs + cleanAfterMs() - now,
			eventTable.onDisk || !durable ? Number.POSITIVE_INFINITY : triedAtMs + recoverEveryMs - now,
			oldest ? oldest.keptMs + bounds.maxAgeMs - wallMs() : Number.POSITIVE_INFINITY,
		);
		if (dueMs !== Number.POSITIVE_INFINITY) cancelWake = schedule(Math.max(1, dueMs), wake);
	}

	/** A disk that fails here will fail again where it is seen to. */
	function oldestOn(on: EventTable): KeptEvent | null {
		try {
			return oldestAfter(on, first - 1);
		} catch {
			return null;
		}
	}

	function wake(): void {
		if (durable && eventTable && !eventTable.onDisk && monotonicMs() - triedAtMs >= recoverEveryMs) recover();
		flush();
		const isDue = uncleanSinceMs !== null && monotonicMs() - uncleanSinceMs >= cleanAfterMs();
		if (isDue && eventTable) {
			uncleanSinceMs = null;
			try {
				if (eventTable.onDisk) eventTable.clean();
			} catch (error) {
				fallBack(error);
			}
		}
		plan();
	}

	// ---- Reading ----

	function read<Result>(look: (on: EventTable) => Result, nothing: Result): Result {
		const open = ready(false);
		if (!open) return nothing;
		try {
			return look(open);
		} catch (error) {
			fallBack(error);
			return eventTable ? look(eventTable) : nothing;
		}
	}

	return {
		append(incoming, overlaps) {
			if (closed) throw new AgentError('internal', 'The event store is closed.');
			ready(true);
			if (!duplicates.isNew(incoming, overlaps)) return null;
			const number = (pending.at(-1)?.number ?? last) + 1;
			const entry: Entry = { ...incoming, number, id: `${epoch}-${number}` };
			pending.push(entry);
			pendingBytes += sizeOf(entry);
			soon();
			return entry;
		},
		after: (since, limit) =>
			read<{ entries: readonly Entry[]; missed: boolean }>(
				(on) => {
					const number = since === null ? null : numberOf(since, epochs, last);
					const oldest = oldestAfter(on, first - 1)?.number ?? last + 1;
					const missed = since !== null && (number === null || number + 1 < oldest);
					return { entries: on.page(Math.max(number ?? 0, first - 1), limit), missed };
				},
				{ entries: [], missed: since !== null },
			),
		newest: () => read(() => idOf(last, epochs), null),
		newestAt: () => read((on) => on.newestAt(), null),
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		settled: () => (cancelFlush ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve()),
		join(consumer) {
			ready(true);
			consumers.join(consumer);
			if (consumers.changed) soon();
		},
		acknowledge(consumer, id) {
			ready(true);
			const number = numberOf(id, epochs, last);
			// A consumer made by a mistake would keep contents without a reader.
			if (number === null) return false;
			consumers.join(consumer);
			consumers.advance(consumer, number);
			if (consumers.changed) soon();
			return true;
		},
		positionOf: (consumer) => read(() => idOf(consumers.positions.get(consumer)?.number ?? 0, epochs), null),
		consumers: () =>
			read(
				() =>
					Array.from(consumers.positions, ([name, { number, seenMs }]) => ({
						name,
						position: idOf(number, epochs),
						seenMs,
					})),
				[],
			),
		forget(consumer) {
			const isKnown = read(() => consumers.forget(consumer), false);
			if (isKnown) soon();
			return isKnown;
		},
		recover,
		erase(matches) {
			if (cancelFlush || pending.length > 0) flush();
			let erased = 0;
			try {
				dropQuarantined(directory, () => true);
				const open = ready(false);
				if (!open) return 0;
				erased = open.erase(matches);
				duplicates.clear();
				adopt(open);
			} catch (error) {
				throw unerased(directory, error);
			}
			uncleanSinceMs = null;
			if (durable && !eventTable?.onDisk && existsSync(file) && !recover()) throw unerased(directory);
			return erased;
		},
		get count() {
			return read(() => count, 0);
		},
		get bytes() {
			return read(() => bytes, 0);
		},
		close() {
			if (closed) return;
			if (eventTable && !eventTable.onDisk) recover();
			if (cancelFlush || pending.length > 0) flush();
			closed = true;
			cancelWake();
			attempt(() => eventTable?.close());
			eventTable = null;
		},
	};
}

function oldestAfter(on: EventTable, number: number): KeptEvent | null {
	for (const event of on.kept(number)) return event;
	return null;
}

function attempt(step: () => void): boolean {
	try {
		step();
		return true;
	} catch {
		return false;
	}
}
