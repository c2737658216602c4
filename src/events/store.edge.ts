/**
 * The durable inbox: events in an SQLite file until every named consumer has acknowledged them or they are too old or too many; in
 * memory while the disk cannot take them. Never reads a content, never hands an event on before it is flushed, writes nothing at rest.
 * Ids are `epoch-number`, with a new epoch for each run: a disk that loses what it has confirmed cannot bring back an id that was seen.
 * Deleted contents are overwritten or cut off the files within `cleanAfterMs`; blocks that a flash disk has put aside are out of reach.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { idleClock } from '../base/clock.edge.ts';
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';
import { AgentError } from '../base/errors.ts';
import { createConsumers } from './consumers.ts';
import {
	attempt,
	damagedNotice,
	dropQuarantined,
	EVENTS_FILE,
	isDamage,
	quarantineTable,
	unerased,
	unwritableNotice,
} from './damaged-events.edge.ts';
import { keyOf, rememberMessages } from './duplicates.ts';
import { type Entry, idOf, numberOf, sizeOf } from './event.ts';
import type { DurableEventStore, EventStoreOptions } from './event-store-types.ts';
import { type EventTable, IN_MEMORY, moveToMemory, openEventTable } from './event-table.edge.ts';
import { createFlushing, type Flushes } from './flushing.edge.ts';
import { decideTransaction, type Extent, type KeptEvent, type StoredEvent } from './transaction.ts';

export type { Consumer, DurableEventStore, EventStore, EventStoreOptions } from './event-store-types.ts';

/** Events that are remembered for telling duplicates, deleted ones included. */
const REMEMBERED_EVENTS = 1024;
/** Events that wait for the disk at most, as `maxBytes` counts: beyond it the agent waits with them, and so does the service. */
const MAX_PENDING_BYTES = 4 * 1024 * 1024;
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
	/** Whether what the table has to tell duplicates is read. A start does without. */
	let isLoaded = false;
	let eventTable: EventTable | null = null;
	let [isAbsent, closed] = [false, false];
	/** What is stored. */
	let extent: Extent = { epochs: [], last: 0, first: 0, count: 0, bytes: 0, oldestMs: null };
	/** Numbers below this belong to events of earlier runs that this one could not read. */
	let base = 0;
	const [storing, settling] = [createFlushing(), createFlushing()];
	/** Also while a group that has failed is tried again. */
	let isStoring = false;
	let pending: StoredEvent[] = [];
	let pendingBytes = 0;
	/** The newest number that was given. */
	let given = 0;
	let cancelFlush: (() => void) | null = null;
	/** Requests to store something so far; those of them that are in a group, and those that are stored. */
	let [asked, grouped, stored] = [0, 0, 0];
	const waiting: { readonly asked: number; readonly resolve: () => void }[] = [];
	let cancelWake = () => {};
	/** Monotonic. */
	let wakeAtMs = Number.POSITIVE_INFINITY;
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
			fallBack(null, error);
		}
		return eventTable;
	}

	/** From here on events are on this shelf. Pending ones have their numbers already. */
	function adopt(opened: EventTable): void {
		try {
			const now = wallMs();
			// They would be too old at once, or never.
			if (now > EARLIEST_CLOCK_MS) opened.correctAges(EARLIEST_CLOCK_MS, now);
			const { consumers: positions, ...held } = opened.summary();
			const last = Math.max(extent.last, held.last);
			extent = { ...held, last, first: held.first ?? last + 1, oldestMs: null };
			isLoaded = false;
			consumers.load(positions, last);
		} catch (error) {
			attempt(() => opened.close());
			throw error;
		}
		eventTable = opened;
		plan();
	}

	// ---- When the disk fails, and when it is well again ----

	function fallBack(failed: EventTable | null, error: unknown): void {
		// What is under way ends first. It fails as well, and may have seen to it.
		settling.finish();
		storing.finish();
		if (eventTable !== failed) return;
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
		const isRescued = failed !== null && attempt(() => memory.takeOver(failed, 0));
		attempt(() => failed?.close());
		// Events that cannot be read now may be readable later, and then precede those that arrive meanwhile.
		if (failed === null && existsSync(file))
			extent = { ...extent, last: Math.max(extent.last, 2 ** 40 + Math.max(0, Math.floor(wallMs()))) };
		base = isRescued ? 0 : extent.last + 1;
		triedAtMs = monotonicMs();
		adopt(memory);
		onNotice('events', unwritableNotice(directory, error));
	}

	function recover(): boolean {
		if (closed || !eventTable || eventTable.onDisk) return !closed;
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

	/** Stores at the end of this turn, or when what is under way has ended. */
	function soon(): void {
		asked += 1;
		if (pendingBytes >= MAX_PENDING_BYTES) finish();
		else cancelFlush ??= afterInput(begin);
	}

	function begin(): void {
		cancelFlush?.();
		cancelFlush = null;
		if (isStoring) return;
		const on = grouped < asked ? ready(true) : eventTable;
		if (on && !settling.isBusy && (isCleanDue() || on.isSettleDue(grouped === asked))) settle(on);
		if (isStoring || eventTable?.isCommitting) return;
		if (grouped < asked) storeGroup();
		else plan();
	}

	/** Stores everything on this thread. */
	function finish(): void {
		begin();
		settling.finish();
		storing.finish();
		settling.finish();
	}

	/** Hands on what waits, once it is stored. */
	function storeGroup(): void {
		const [batch, upTo] = [pending, asked];
		[pending, pendingBytes, grouped, isStoring] = [[], 0, upTo, true];
		const tryToStore = (tries: number, on = ready(true)) =>
			storing.start(store(on, batch), (error) => {
				if (error !== null) {
					// A damaged file is followed by a new one, that one by memory.
					if (tries > 2) throw error;
					fallBack(on, error);
					return tryToStore(tries + 1);
				}
				[stored, isStoring] = [upTo, false];
				while (waiting[0] && waiting[0].asked <= stored) waiting.shift()?.resolve();
				const entries = batch.map(({ entry }) => entry as Entry);
				if (batch.length > 0) for (const listener of listeners) listener(entries);
				begin();
			});
		tryToStore(1);
	}

	/** One transaction: the events, the consumers' positions, and what may go now. */
	function* store(on: EventTable | null, batch: readonly StoredEvent[]): Flushes {
		if (!on) return;
		const nowMs = wallMs();
		const stepMs = Math.round(nowMs - monotonicMs() - clockOffsetMs);
		if (Math.abs(stepMs) >= CLOCK_STEP_MS) {
			// When the clock was set meanwhile, events are as old as before.
			on.shiftAges(stepMs);
			extent = { ...extent, oldestMs: null };
			clockOffsetMs += stepMs;
		}
		const { changed } = consumers;
		const next = decideTransaction(extent, {
			...{ kept: on.kept(extent.first - 1), batch, epoch, bounds, remembered: REMEMBERED_EVENTS, nowMs },
			...{ positions: changed ? consumers.positions : null, acknowledged: consumers.acknowledgedByAll() },
		});
		consumers.changed = false;
		try {
			yield* on.store(next.changes);
		} catch (error) {
			consumers.changed ||= changed;
			throw error;
		}
		if (next.extent.first > extent.first) uncleanSinceMs ??= monotonicMs();
		({ extent } = next);
	}

	const isCleanDue = () => uncleanSinceMs !== null && monotonicMs() - uncleanSinceMs >= cleanAfterMs();

	/** Brings everything into the database, and what was deleted off the disk if that is due. */
	function settle(on: EventTable): void {
		const cleans = isCleanDue();
		if (cleans) uncleanSinceMs = null;
		settling.start(on.settle(cleans), (error) => {
			if (error !== null) fallBack(on, error);
			begin();
		});
	}

	// ---- What is due later ----

	/** One timer for the next thing that is due; none while nothing is. It may be early: events make room for newer ones all the time. */
	function plan(): void {
		if (closed || !eventTable) return;
		const now = monotonicMs();
		const due = [Number.POSITIVE_INFINITY];
		// What is under way looks again at its end.
		if (uncleanSinceMs !== null && !settling.isBusy) due.push(uncleanSinceMs + cleanAfterMs());
		if (!eventTable.onDisk && durable) due.push(triedAtMs + recoverEveryMs);
		// A disk that fails here will fail again where it is seen to.
		attempt(() => {
			const oldestMs = extent.oldestMs ?? (eventTable && oldestAfter(eventTable, extent.first - 1))?.keptMs;
			if (oldestMs !== undefined && extent.count > 0) due.push(now + oldestMs + bounds.maxAgeMs - wallMs());
		});
		const dueMs = Math.min(...due);
		if (dueMs >= wakeAtMs && dueMs !== Number.POSITIVE_INFINITY) return;
		cancelWake();
		wakeAtMs = dueMs;
		if (dueMs !== Number.POSITIVE_INFINITY) cancelWake = schedule(Math.max(1, dueMs - now), wake);
	}

	function wake(): void {
		wakeAtMs = Number.POSITIVE_INFINITY;
		if (durable && eventTable && !eventTable.onDisk && monotonicMs() - triedAtMs >= recoverEveryMs) recover();
		// Some may be too old by now.
		asked += 1;
		begin();
	}

	// ---- Reading ----

	function read<Result>(look: (on: EventTable) => Result, nothing: Result): Result {
		const open = ready(false);
		if (!open) return nothing;
		try {
			return look(open);
		} catch (error) {
			fallBack(open, error);
			return eventTable ? look(eventTable) : nothing;
		}
	}

	return {
		append(incoming, overlaps) {
			if (closed) throw new AgentError('internal', 'The event store is closed.');
			ready(true);
			const key = keyOf(incoming);
			if (key !== null && !isLoaded) {
				duplicates.load(read((on) => on.messages(), []));
				isLoaded = true;
			}
			if (!duplicates.isNew(key, overlaps)) return null;
			given = Math.max(given, extent.last) + 1;
			const entry: Entry = { ...incoming, number: given, id: `${epoch}-${given}` };
			const size = sizeOf(entry);
			pending.push({ number: given, size, keptMs: 0, epoch, key, entry });
			pendingBytes += size;
			soon();
			return entry;
		},
		after: (since, limit) =>
			read<{ entries: readonly Entry[]; missed: boolean }>(
				(on) => {
					const number = since === null ? null : numberOf(since, extent.epochs, extent.last, epoch);
					const oldest = oldestAfter(on, extent.first - 1)?.number ?? extent.last + 1;
					const missed = since !== null && (number === null || number + 1 < oldest);
					return { entries: on.page(Math.max(number ?? 0, extent.first - 1), limit), missed };
				},
				{ entries: [], missed: since !== null },
			),
		newest: () => read(() => idOf(extent.last, extent.epochs), null),
		newestAt: () => read((on) => on.newestAt(), null),
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		settled: () => (asked === stored ? Promise.resolve() : new Promise((resolve) => waiting.push({ asked, resolve }))),
		join(consumer) {
			ready(true);
			consumers.join(consumer);
			if (consumers.changed) soon();
		},
		acknowledge(consumer, id) {
			ready(true);
			const number = numberOf(id, extent.epochs, extent.last, epoch);
			// A consumer made by a mistake would keep contents without a reader.
			if (number === null) return false;
			consumers.join(consumer);
			consumers.advance(consumer, number);
			if (consumers.changed) soon();
			return true;
		},
		positionOf: (consumer) => read(() => idOf(consumers.positions.get(consumer)?.number ?? 0, extent.epochs), null),
		consumers: () =>
			read(
				() =>
					Array.from(consumers.positions, ([name, { number, seenMs }]) => {
						return { name, position: idOf(number, extent.epochs), seenMs };
					}),
				[],
			),
		forget(consumer) {
			if (!read(() => consumers.forget(consumer), false)) return false;
			soon();
			finish();
			// The next start brings the tail's consumers back, and takes none away by it.
			uncleanSinceMs = Number.NEGATIVE_INFINITY;
			finish();
			return true;
		},
		recover,
		erase(matches) {
			finish();
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
			return read(() => extent.count, 0);
		},
		get bytes() {
			return read(() => extent.bytes, 0);
		},
		close() {
			if (closed) return;
			if (eventTable && !eventTable.onDisk) recover();
			finish();
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
