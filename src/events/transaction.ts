/** Decides what one transaction of the event store does: the new events, the consumers' positions, and which events go. Pure. */
import { type Entry, type Epoch, withEpoch } from './event.ts';
import type { EventStoreOptions } from './event-store-types.ts';

/** A step of a transaction, by its name and what it is about. */
export type Change =
	| readonly ['add', StoredEvent]
	| readonly ['setEpochs', readonly Epoch[]]
	| readonly ['setConsumers', readonly (readonly [string, Position])[]]
	/** Events from `first`, the oldest kept one, up to `upTo` are deleted; those after `forgotten` leave what tells their duplicates. */
	| readonly ['remove', first: number, upTo: number, forgotten: number];

export interface Position {
	/** Number of the last acknowledged event; 0 before the first. */
	readonly number: number;
	readonly seenMs: number;
}

export interface KeptEvent {
	readonly number: number;
	/** As `sizeOf` counts; 0 once it is deleted. */
	readonly size: number;
	/** Since when it is kept; once it is deleted, when it was received. Milliseconds since 1970. */
	readonly keptMs: number;
}

/** An event, or what a deleted one has left. */
export interface StoredEvent extends KeptEvent {
	readonly epoch: string;
	/** Tells its duplicates; `null` for one that has no id of the service. */
	readonly key: string | null;
	/** `null` once it is deleted. */
	readonly entry: Entry | null;
}

export interface Extent {
	readonly epochs: readonly Epoch[];
	/** The newest number that is stored, and the oldest that can be. */
	readonly last: number;
	readonly first: number;
	/** Of the events that are kept, as `sizeOf` counts. */
	readonly count: number;
	readonly bytes: number;
	/** Since when the oldest one is kept; `null` where that is not known, or there is none. */
	readonly oldestMs: number | null;
}

/** @param now.kept the table's, oldest first. @param now.positions if they have changed. @param now.acknowledged by all; -1 without consumers.
 * @param now.remembered how many of the newest events leave what tells their duplicates. */
export function decideTransaction(
	extent: Extent,
	now: {
		readonly kept: Iterable<KeptEvent>;
		readonly batch: readonly StoredEvent[];
		readonly positions: ReadonlyMap<string, Position> | null;
		readonly acknowledged: number;
		readonly epoch: string;
		readonly bounds: EventStoreOptions['bounds'];
		readonly remembered: number;
		readonly nowMs: number;
	},
): { readonly changes: readonly Change[]; readonly extent: Extent } {
	const { kept, batch, positions, acknowledged, epoch, bounds, remembered, nowMs } = now;
	const added = batch.filter(({ number }) => number > extent.last).map((event) => ({ ...event, keptMs: nowMs }));
	const last = added.at(-1)?.number ?? extent.last;
	const epochs = added[0] ? withEpoch(extent.epochs, epoch, added[0].number) : extent.epochs;
	let count = extent.count + added.length;
	let bytes = added.reduce((sum, { size }) => sum + size, extent.bytes);
	let upTo = extent.first - 1;
	let { oldestMs } = extent;
	// The newest is never too many.
	const stays = (number: number, keptMs: number) =>
		number > acknowledged &&
		keptMs + bounds.maxAgeMs > nowMs &&
		(count <= 1 || (count <= bounds.maxCount && bytes <= bounds.maxBytes));
	if (oldestMs === null || !stays(extent.first, oldestMs)) {
		oldestMs = null;
		for (const event of keptAnd(kept, added)) {
			if (stays(event.number, event.keptMs)) {
				oldestMs = event.keptMs;
				break;
			}
			upTo = event.number;
			count -= 1;
			bytes -= event.size;
		}
	}
	const changes: Change[] = [];
	if (epochs !== extent.epochs) changes.push(['setEpochs', epochs]);
	for (const event of added) changes.push(['add', event]);
	if (positions) changes.push(['setConsumers', [...positions]]);
	if (upTo >= extent.first) changes.push(['remove', extent.first, upTo, last - remembered]);
	return { changes, extent: { epochs, last, first: Math.max(extent.first, upTo + 1), count, bytes, oldestMs } };
}

function* keptAnd(kept: Iterable<KeptEvent>, added: readonly KeptEvent[]): Iterable<KeptEvent> {
	yield* kept;
	yield* added;
}
