/** The stored events as applications get them, with gaps for those that made room. Contents are passed on without parsing them. */
import type { Counters } from '../base/counters.ts';
import type { Erasure } from './erasure.ts';
import { type Entry, gapEvent, type Incoming } from './event.ts';
import type { EventStore, Place, Reading } from './event-store-types.ts';

export type EventsFeed = ReturnType<typeof createEventsFeed>;

/** Gaps that are held back, at most; the store itself keeps no more for long. */
const MAX_HELD_GAPS = 64;

export function createEventsFeed(
	store: EventStore,
	counters: Pick<Counters, 'notifications' | 'duplicates' | 'gaps' | 'ignored'>,
) {
	/** While there are no events and no readers, an outage is not worth a file. A restart's own gap covers them. */
	let held: Incoming[] = [];
	let appendedId: string | null = null;
	const erasing = new Set<(matches: Erasure) => void>();
	const isUnused = () => store.newest() === null && store.consumers().length === 0;
	const release = () => {
		for (const gap of held.splice(0)) store.append(gap);
	};

	return {
		/** Keeps the event and tells the listeners once it is stored. `false` for a duplicate (see `duplicates.ts`), which changes nothing. */
		append(incoming: Incoming, overlaps?: boolean): boolean {
			if (incoming.type === 'gap') counters.gaps += 1;
			if (incoming.type === 'gap' && isUnused()) {
				held = [...held.slice(1 - MAX_HELD_GAPS), incoming];
				return true;
			}
			release();
			const entry = store.append(incoming, overlaps);
			const isNew = entry !== null;
			if (entry) appendedId = entry.id;
			if (!isNew) counters.duplicates += 1;
			else if (incoming.type === 'notification') counters.notifications += 1;
			return isNew;
		},
		/** Counts a message that the settings leave out, and keeps nothing of it. */
		ignored(): void {
			counters.ignored += 1;
		},
		/** As `EventStore.after`; where events are gone, one gap is first, with an id by which the reader resumes: the next answer has none. */
		after(since: string | null, limit = Number.POSITIVE_INFINITY, size?: number): Reading {
			release();
			const { entries, missed } = store.after(since, limit, size);
			const [oldest] = entries;
			// A gap that begins at no known time says it already; one of a later time does not.
			if (!missed || (oldest?.type === 'gap' && JSON.parse(oldest.content).from === null)) return { entries, missed };
			return { entries: [gapAt(missed, oldest?.workflowId ?? null), ...entries.slice(0, limit - 1)], missed };
		},
		/** The id of the event that was appended last, which may not be stored yet. */
		get appendedId() {
			return appendedId;
		},
		/** Erases events here and wherever else they are remembered. @throws as {@link EventStore.erase}, when all of them did. */
		erase(matches: Erasure): Promise<number> {
			for (const listener of erasing) listener(matches);
			return store.erase(matches);
		},
		/** Calls back before each erasure, for what is remembered of events elsewhere. */
		onErase(listener: (matches: Erasure) => void): () => void {
			erasing.add(listener);
			return () => erasing.delete(listener);
		},
		rest: store.rest,
		newest: store.newest,
		newestAt: store.newestAt,
		subscribe: store.subscribe,
		settled(): Promise<void> {
			release();
			return store.settled();
		},
		safe(): Promise<void> {
			release();
			return store.safe();
		},
		join: store.join,
		acknowledge: store.acknowledge,
		positionOf: store.positionOf,
		forget: store.forget,
		lookAtClock: store.lookAtClock,
		get count(): number {
			return store.count;
		},
		get bytes(): number {
			return store.bytes;
		},
	};
}

/** From an unknown time to the oldest event that is left. */
const gapAt = ({ id, number, at }: Place, workflowId: string | null): Entry => ({
	...gapEvent(null, at, { at, workflowId }),
	...{ id, number },
});

/** One event as the JSON text of `eventSchema`, on one line. */
export const formatEvent = (entry: Entry): string =>
	`${formatHead(entry)}${formatPart(entry, entry.content)}${formatEnd(entry)}`;

/** What is before the content. */
export function formatHead({ id, at, type, kind, workflowId, format }: Entry): string {
	// Only two of them come from outside.
	const named = `"kind":${JSON.stringify(kind)},"workflowId":${JSON.stringify(workflowId)}`;
	return `{"id":"${id}","at":"${at}","type":"${type}",${named},"format":"${format}","data":${format === 'json' ? '' : '"'}`;
}

/** A part of the content, or all of it. */
export const formatPart = ({ format }: Entry, content: string): string =>
	// Raw line ends in JSON can only stand between its parts.
	format === 'json' ? content.replaceAll(/[\r\n]+/g, ' ') : JSON.stringify(content).slice(1, -1);

export const formatEnd = ({ format }: Entry): string => (format === 'json' ? '}' : '"}');

/** Letters and digits that differ from every earlier start of this device, even with a clock that does not move. */
export function newEpoch(wallMs: number, random: () => number): string {
	const suffix = Math.floor(random() * 36 ** 6);
	return `${Math.floor(wallMs / 1000).toString(36)}${suffix.toString(36).padStart(6, '0')}`;
}
