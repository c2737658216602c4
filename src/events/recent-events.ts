/** The newest events, in order, in memory: what the tail has and the database not yet, or all of them without a disk. Pure. */
import type { Entry, Epoch } from './event.ts';
import type { Change, Position, StoredEvent } from './transaction.ts';

/** Rows of deleted events that are not needed any more go so many at a time. */
const FORGET_AT_ONCE = 1024;

export function createRecentEvents() {
	/** By number; the first so many of them are deleted. */
	let rows: StoredEvent[] = [];
	let deleted = 0;
	let epochs: readonly Epoch[] | null = null;
	let consumers: readonly (readonly [string, Position])[] | null = null;
	/** Of events here and of older ones. */
	let removal: Extract<Change, readonly ['remove', ...number[]]> | null = null;

	/** Index of the first kept event after a number. */
	function indexAfter(number: number): number {
		let [from, to] = [deleted, rows.length];
		while (from < to) {
			const middle = (from + to) >> 1;
			if ((rows[middle] as StoredEvent).number > number) to = middle;
			else from = middle + 1;
		}
		return from;
	}

	function remove(first: number, upTo: number, forgotten: number): void {
		removal = ['remove', removal?.[1] ?? first, upTo, forgotten];
		for (let row = rows[deleted]; row?.entry && row.number <= upTo; row = rows[deleted]) {
			const keptMs = Date.parse(row.entry.at) || row.keptMs;
			rows[deleted] = { ...row, size: 0, keptMs, entry: null };
			deleted += 1;
		}
		if (deleted < 2 * FORGET_AT_ONCE) return;
		const gone = rows.findIndex(({ number, entry }) => entry !== null || number > forgotten);
		rows = rows.slice(gone);
		deleted -= gone;
	}

	return {
		/** The newest one, deleted or not. */
		get newest(): StoredEvent | undefined {
			return rows.at(-1);
		},
		perform(change: Change): void {
			if (change[0] === 'add') rows.push(change[1]);
			else if (change[0] === 'setEpochs') [, epochs] = change;
			else if (change[0] === 'setConsumers') [, consumers] = change;
			else remove(change[1], change[2], change[3]);
		},
		/** The same in as few changes as possible. @param moves whether also events and what belongs to them, and not only what is deleted. */
		changes(moves = true): Change[] {
			const found: Change[] = removal ? [removal] : [];
			if (!moves) return found;
			if (epochs) found.push(['setEpochs', epochs]);
			if (consumers) found.push(['setConsumers', consumers]);
			const forgotten = removal?.[3] ?? 0;
			for (const row of rows) if (row.entry !== null || row.number > forgotten) found.push(['add', row]);
			return found;
		},
		/** The database has what `changes` gave. */
		clear(moves: boolean): void {
			removal = null;
			if (moves) [rows, deleted, epochs, consumers] = [[], 0, null, null];
		},
		/** The kept events after a number, oldest first. */
		*after(number: number): Iterable<StoredEvent> {
			for (let index = indexAfter(number); index < rows.length; index += 1) yield rows[index] as StoredEvent;
		},
		page(number: number, limit: number): Entry[] {
			const from = indexAfter(number);
			return rows.slice(from, from + limit).map(({ entry }) => entry as Entry);
		},
		shiftAges(byMs: number): void {
			rows = rows.map((row) => (row.entry === null ? row : { ...row, keptMs: row.keptMs + byMs }));
		},
	};
}
