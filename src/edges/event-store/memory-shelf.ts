/**
 * The events in memory, in the place of the file: while the disk cannot take them, or where a site wants none on it.
 * Keeps the same rows as `shelf.ts`; decides as little. Nothing here throws, so nothing has to be undone.
 */
import type { Entry } from '../../core/inbox.ts';
import type { Epoch } from './ids.ts';
import type { Position, Row, Shelf } from './shelf.ts';

interface Kept {
	readonly number: number;
	readonly epoch: string;
	readonly serviceId: string | null;
	readonly size: number;
	keptMs: number;
	/** `null` once it is deleted: then only its number and the service's id are left for a while. */
	entry: Entry | null;
}

export function openMemoryShelf(): Shelf {
	let epochs: readonly Epoch[] = [];
	let consumers: ReadonlyMap<string, Position> = new Map();
	/** In order; everything before `start` is gone. */
	let events: Kept[] = [];
	let start = 0;

	/** Index of the first one with a greater number. */
	function indexAfter(number: number): number {
		let [low, high] = [start, events.length];
		while (low < high) {
			const middle = (low + high) >> 1;
			if ((events[middle]?.number ?? 0) <= number) low = middle + 1;
			else high = middle;
		}
		return low;
	}

	function* keptAfter(number: number): Iterable<Kept & { entry: Entry }> {
		for (let index = indexAfter(number); index < events.length; index += 1) {
			const event = events[index];
			if (event?.entry) yield event as Kept & { entry: Entry };
		}
	}

	const shelf: Shelf = {
		onDisk: false,
		summary() {
			const kept = [...keptAfter(-1)];
			return {
				last: events.at(-1)?.number ?? 0,
				first: kept[0]?.number ?? null,
				count: kept.length,
				bytes: kept.reduce((sum, { size }) => sum + size, 0),
				epochs,
				consumers,
				serviceIds: events.slice(start).flatMap(({ serviceId }) => serviceId ?? []),
			};
		},
		newestAt() {
			const newest = events.at(-1);
			return newest ? (newest.entry?.at ?? new Date(newest.keptMs).toISOString()) : null;
		},
		page(after, limit) {
			const found: Entry[] = [];
			for (const { entry } of keptAfter(after)) {
				if (found.length >= limit) break;
				found.push(entry);
			}
			return found;
		},
		kept: keptAfter,
		transaction: (write) => write(),
		add(entry, keptMs, size) {
			const { id, number, serviceId } = entry;
			events.push({ number, epoch: id.slice(0, id.lastIndexOf('-')), serviceId, size, keptMs, entry });
		},
		setEpochs(all) {
			epochs = all;
		},
		setConsumers(all) {
			consumers = new Map(all);
		},
		remove(first, upTo, forgotten) {
			for (let index = indexAfter(first - 1); index < events.length; index += 1) {
				const event = events[index];
				if (!event || event.number > upTo) break;
				if (event.entry) event.keptMs = Date.parse(event.entry.at);
				event.entry = null;
			}
			start = indexAfter(Math.min(upTo, forgotten));
			// Not at every step: what is left has to be copied.
			if (start > 1024 && start > events.length / 2) {
				events = events.slice(start);
				start = 0;
			}
		},
		shiftAges(byMs) {
			for (const event of keptAfter(-1)) event.keptMs += byMs;
		},
		correctAges(earliestMs, nowMs) {
			for (const event of keptAfter(-1)) if (event.keptMs < earliestMs || event.keptMs > nowMs) event.keptMs = nowMs;
		},
		clean() {},
		takeOver(other, keepBefore) {
			events = [...events.slice(start, indexAfter(keepBefore - 1)), ...other.rows('event').map(toKept)];
			start = 0;
			events.sort((one, next) => one.number - next.number);
			const taken = other.rows('epoch') as unknown as Epoch[];
			epochs = [...epochs.filter(({ first }) => first < keepBefore), ...taken].sort((a, b) => a.first - b.first);
			consumers = new Map([...consumers, ...other.rows('consumer').map(toPosition)]);
		},
		rows(table) {
			if (table === 'epoch') return epochs.map(({ first, epoch }) => ({ first, epoch }));
			if (table === 'consumer')
				return Array.from(consumers, ([name, { number, seenMs }]) => ({ name, position: number, seen_ms: seenMs }));
			return events.slice(start).map(toRow);
		},
		close() {
			events = [];
			start = 0;
		},
	};
	return shelf;
}

function toPosition({ name, position, seen_ms }: Row): [string, Position] {
	return [String(name), { number: Number(position), seenMs: Number(seen_ms) }];
}

/** In the order of the columns. */
function toRow({ number, epoch, serviceId, keptMs, size, entry }: Kept): Row {
	return {
		...{ number, epoch, service_id: serviceId, kept_ms: keptMs, size: entry ? size : 0 },
		...{ at: entry?.at ?? null, type: entry?.type ?? null, kind: entry?.kind ?? null },
		...{ workflow_id: entry?.workflowId ?? null, format: entry?.format ?? null, content: entry?.content ?? null },
	};
}

function toKept(row: Row): Kept {
	const { number, epoch, service_id: serviceId, kept_ms, size, at, type, kind, workflow_id, format, content } = row;
	const facts = { number, serviceId, at, type, kind, workflowId: workflow_id, format, content };
	return {
		...{ number: Number(number), epoch: String(epoch), serviceId: serviceId as string | null },
		...{ keptMs: Number(kept_ms), size: Number(size) },
		entry: at === null ? null : ({ ...facts, id: `${epoch}-${number}` } as unknown as Entry),
	};
}
