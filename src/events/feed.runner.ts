/**
 * The stored events as applications get them: a gap takes the place of events that had to make room, and a gap that no
 * application could have noticed yet is not written. Contents are passed on without parsing them, so that a strange
 * message does no harm here.
 */

import type { Counters } from '../base/counters.ts';
import type { Entry, Incoming } from './event.ts';
import type { EventStore } from './store.edge.ts';

export interface EventsFeed
	extends Pick<
		EventStore,
		'newest' | 'subscribe' | 'settled' | 'join' | 'acknowledge' | 'positionOf' | 'forget' | 'count' | 'bytes'
	> {
	/** Keeps the event and tells the listeners once it is stored. `false` for a duplicate (see `duplicates.ts`), which changes nothing. */
	append(incoming: Incoming, overlaps?: boolean): boolean;
	/** Counts a message that is no notification by the settings, and keeps nothing of it. */
	ignored(): void;
	/**
	 * The events after `since`, oldest first, at most `limit`. Where older ones are gone, a gap stands before them, with an
	 * id by which the reader resumes as with any other.
	 */
	after(since: string | null, limit: number): { entries: readonly Entry[]; missed: boolean };
	/** When the newest stored event was received, ISO 8601; `null` if there is none any more. */
	newestAt(): string | null;
}

/** Gaps that are held back, at most; the store itself keeps no more for long. */
const MAX_HELD_GAPS = 64;

export function createEventsFeed(
	store: EventStore,
	counters: Pick<Counters, 'notifications' | 'duplicates' | 'gaps' | 'ignored'>,
): EventsFeed {
	/** While there are no events and no readers, an outage is not worth a file. A restart's own gap covers them. */
	let held: Incoming[] = [];
	const isUnused = () => store.newest() === null && store.consumers().length === 0;
	const release = () => {
		for (const gap of held.splice(0)) store.append(gap);
	};

	return {
		append(incoming, overlaps) {
			if (incoming.type === 'gap') counters.gaps += 1;
			if (incoming.type === 'gap' && isUnused()) {
				held = [...held.slice(1 - MAX_HELD_GAPS), incoming];
				return true;
			}
			release();
			const isNew = store.append(incoming, overlaps) !== null;
			if (!isNew) counters.duplicates += 1;
			else if (incoming.type === 'notification') counters.notifications += 1;
			return isNew;
		},
		ignored() {
			counters.ignored += 1;
		},
		after(since, limit) {
			release();
			const { entries, missed } = store.after(since, limit);
			const [oldest] = entries;
			// After a start of the agent a gap of its own is the first event.
			if (!missed || !oldest || oldest.type === 'gap') return { entries, missed };
			return { entries: [gapBefore(oldest), ...entries.slice(0, limit - 1)], missed };
		},
		newest: store.newest,
		newestAt: store.newestAt,
		subscribe: store.subscribe,
		settled() {
			release();
			return store.settled();
		},
		join: store.join,
		acknowledge: store.acknowledge,
		positionOf: store.positionOf,
		forget: store.forget,
		get count() {
			return store.count;
		},
		get bytes() {
			return store.bytes;
		},
	};
}

/** Stands for what had to make room: from an unknown time to the oldest event that is left. */
function gapBefore({ id, at, number, workflowId }: Entry): Entry {
	const content = JSON.stringify({ from: null, to: at });
	return {
		id: `${id.slice(0, id.lastIndexOf('-'))}-${number - 1}`,
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
	// Only two of them come from outside.
	const named = `"kind":${JSON.stringify(kind)},"workflowId":${JSON.stringify(workflowId)}`;
	const head = `{"id":"${id}","at":"${at}","type":"${type}",${named},"format":"${format}"`;
	// Raw line ends in JSON can only stand between its parts.
	const data = format === 'json' ? content.replaceAll(/[\r\n]+/g, ' ') : JSON.stringify(content);
	return `${head},"data":${data}}`;
}

/** Letters and digits that differ from every earlier start of this device, even with a clock that does not move. */
export function newEpoch(wallMs: number, random: () => number): string {
	const suffix = Math.floor(random() * 36 ** 6);
	return `${Math.floor(wallMs / 1000).toString(36)}${suffix.toString(36).padStart(6, '0')}`;
}
