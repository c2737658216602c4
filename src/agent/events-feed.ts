/**
 * The inbox with people listening: appends what arrives, hands it on, writes events the way applications read them.
 * Contents are passed on as they came: parsed by nobody here, so that a strange message can hurt nobody here.
 */
import { createInbox, type Entry, type Incoming } from '../core/inbox.ts';

export interface EventsFeed {
	/** Keeps the event and tells the listeners; a duplicate changes nothing. */
	append(incoming: Incoming): Entry | null;
	/**
	 * The events after `since`, oldest first, at most `limit`. Where older ones are gone, a gap stands before them, with an
	 * id by which the reader resumes as with any other.
	 */
	after(since: string | null, limit: number): { entries: readonly Entry[]; missed: boolean };
	newest(): string | null;
	/** Calls back for each new event until the returned function is called. */
	subscribe(listener: (entry: Entry) => void): () => void;
}

export function createEventsFeed(epoch: string, bounds: { maxCount: number; maxBytes: number }): EventsFeed {
	const inbox = createInbox(epoch, bounds);
	const listeners = new Set<(entry: Entry) => void>();
	return {
		append(incoming) {
			const entry = inbox.append(incoming);
			if (entry) for (const listener of listeners) listener(entry);
			return entry;
		},
		after(since, limit) {
			const { entries, missed } = inbox.after(since, limit);
			const [oldest] = entries;
			// After a start of the agent a gap of its own is the first event.
			if (!missed || !oldest || oldest.type === 'gap') return { entries, missed };
			return { entries: [gapBefore(oldest, epoch), ...entries.slice(0, limit - 1)], missed };
		},
		newest: inbox.newest,
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
	};
}

/** Stands for what had to make room: from a time that nobody knows to the oldest event that is left. */
function gapBefore({ at, number, workflowId }: Entry, epoch: string): Entry {
	const content = JSON.stringify({ from: null, to: at });
	return {
		id: `${epoch}-${number - 1}`,
		number: number - 1,
		at,
		type: 'gap',
		kind: 'gap',
		workflowId,
		format: 'json',
		content,
		serviceId: null,
	};
}

/** One event as the JSON text of `eventSchema`, on one line. */
export function formatEvent(entry: Entry): string {
	const { id, at, type, kind, workflowId, format, content } = entry;
	const head = JSON.stringify({ id, at, type, kind, workflowId, format });
	// Raw line ends in JSON can only stand between its parts.
	const data = format === 'json' ? content.replaceAll(/[\r\n]+/g, ' ') : JSON.stringify(content);
	return `${head.slice(0, -1)},"data":${data}}`;
}

/** Letters and digits that differ from every earlier start of this device, even with a clock that stands still. */
export function newEpoch(wallMs: number, chance: () => number): string {
	const random = Math.floor(chance() * 36 ** 6);
	return `${Math.floor(wallMs / 1000).toString(36)}${random.toString(36).padStart(6, '0')}`;
}
