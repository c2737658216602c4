/** The answer to a reader who names an id, whatever holds the events: a piece that advances, one gap where some are gone, known ids. Pure. */
import { type Entry, type Epoch, numberOf, sizeOf } from './event.ts';
import type { Place, Reading } from './event-store-types.ts';

/** In bytes, as `sizeOf` counts: with the event that reaches it, a reading ends. */
const PIECE = 256 * 1024;

/** A store as it is at this moment. */
export interface Shelf {
	/** Every kept event lies in one of its own epoch here. */
	readonly epochs: readonly Epoch[];
	/** The epoch of this run. */
	readonly running: string;
	/** The newest number that is stored, deleted or not; 0 before the first. */
	readonly last: number;
	/** Number of the oldest kept event; `null` without any. */
	readonly oldest: number | null;
	/** Up to this number all that read have acknowledged: a new reader misses nothing there. */
	readonly done: number;
	/** The kept events after a number, oldest first; read as far as the caller iterates. */
	entries(after: number): Iterable<Entry>;
	/** Not earlier than the receipt of any event before the end, ISO 8601. */
	newestAt(): string;
}

export function readAfter(shelf: Shelf, since: string | null, limit?: number, size?: number): Reading {
	const { epochs, running, last, oldest, done } = shelf;
	const number = since === null ? null : numberOf(since, epochs, last, running);
	const known = since === null ? done : number;
	const isMissed = known === null || known + 1 < (oldest ?? last + 1);
	const entries = oldest === null ? [] : pieceOf(shelf.entries(Math.max(number ?? 0, oldest - 1)), limit, size);
	return { entries, missed: isMissed ? placeBefore(entries[0], shelf) : null };
}

/** The first entries, at most `limit`, up to the one that makes them a whole piece. Iterates no further. */
export function pieceOf(entries: Iterable<Entry>, limit = Number.POSITIVE_INFINITY, size = PIECE): readonly Entry[] {
	const piece: Entry[] = [];
	let read = 0;
	for (const entry of entries) {
		piece.push(entry);
		read += sizeOf(entry);
		if (read >= size || piece.length >= limit) break;
	}
	return piece;
}

/** A leading zero tells its id from that of the event before, which this reader or another one may have read. */
function placeBefore(entry: Entry | undefined, { epochs, running, last, newestAt }: Shelf): Place {
	const number = entry ? entry.number - 1 : last;
	const epoch = entry ? entry.id.slice(0, entry.id.lastIndexOf('-')) : (epochs.at(-1)?.epoch ?? running);
	return { id: `${epoch}-0${number}`, number, at: entry?.at ?? newestAt() };
}
