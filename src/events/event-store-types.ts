/** The promises of the event store, and its options. Types only. */
import type { Clock } from '../base/clock.edge.ts';
import type { Failure } from '../base/errors.ts';
import type { Erasure } from './erasure.ts';
import type { Entry, Incoming } from './event.ts';

/** What of the clock is left out is the machine's. */
export interface EventStoreOptions extends Partial<Clock> {
	/** Exists, belongs to the agent alone, and one process uses it at a time. */
	readonly directory: string;
	/** Of the logs of this device. */
	readonly mark?: string | null;
	/** Unlike every earlier one of this device; 1 to 32 letters and digits. */
	readonly epoch: string;
	/** Looked at each time. The oldest go first; the newest can only be too old. `maxBytes` counts bytes on the disk. */
	readonly bounds: { readonly maxCount: number; readonly maxBytes: number; readonly maxAgeMs: number };
	/** `false`: in memory only; what a run before has left on the disk is taken over and deleted. Default `true`. */
	readonly durable?: boolean;
	/** `events`: kept in memory only (`state-unwritable`), `null` when back on the disk. `events-damaged`: `state-corrupt`. */
	readonly onNotice?: (topic: 'events' | 'events-damaged', notice: Failure | null) => void;
	/** Looked at each time: how long after a deletion its traces are cut off the files, in milliseconds. Default 30,000. */
	readonly cleanAfterMs?: number;
	/** Whether the clock is right as far as anyone knows; `false` where `lookAtClock` is told so later. Default `true`. */
	readonly believesClock?: boolean;
	/** How often a failing disk is tried again, in milliseconds. Default 30,000. */
	readonly recoverEveryMs?: number;
}

export interface Consumer {
	readonly name: string;
	/** The last acknowledged event's id; `null` before the first. */
	readonly position: string | null;
	/** When it last joined or acknowledged, in milliseconds since 1970. */
	readonly seenMs: number;
}

export interface Reading {
	readonly entries: readonly Entry[];
	/** The place before these entries, or the end, if events after `since` are gone or `since` is not known; else `null`. */
	readonly missed: Place | null;
}

/** Just before an event, or at the end. */
export interface Place {
	/** Of no event, and yet known as a `since`: the number has a leading zero. */
	readonly id: string;
	readonly number: number;
	/** ISO 8601: what was missed was received earlier. */
	readonly at: string;
}

export interface EventWriter {
	/** Numbers an event and stores it at the end of this turn; `null` for a duplicate of one that was received before (see `duplicates.ts`). */
	append(incoming: Incoming, overlaps?: boolean): Entry | null;
	/**
	 * Stored events after `since` (`null`: from the oldest kept one), oldest first: at most `limit`, and up to the one with which they have `size` (`pieceOf`).
	 * An empty answer is the end. Every id in it can be named as `since`, also by a later run, while that event is kept.
	 */
	after(since: string | null, limit?: number, size?: number): Reading;
	/** At most so many bytes of the content of a stored event, of which `left` are left, in UTF-8; `null` where it is gone. */
	rest(number: number, left: number, most: number): Uint8Array | null;
	/** The newest stored event's id, or `null`. */
	newest(): string | null;
	/** When that one was received, ISO 8601; also known if it is acknowledged and deleted. @param beforeMs the newest that came before that moment. */
	newestAt(beforeMs?: number): string | null;
	/** Calls back with events that were stored together, in order, until the returned function is called. It must not throw. */
	subscribe(listener: (entries: readonly Entry[]) => void): () => void;
	/** Resolves when everything asked for so far is stored. */
	settled(): Promise<void>;
	/**
	 * Resolves when no power cut can lose the event that was appended last, or that this was a duplicate of: it is on the disk, or every
	 * application has acknowledged it.
	 */
	safe(): Promise<void>;
	/** Nothing of these events is in a file when it resolves. @returns how many. Rejects with AgentError `state-unwritable` when traces may be left. */
	erase(matches: Erasure): Promise<number>;
	/** The clock may have been set. @param skewMs how far it is ahead of the right time; `null` where that was not told. */
	lookAtClock(skewMs: number | null): void;
	readonly count: number;
	readonly bytes: number;
	/** Stores what is pending and closes the file. Nothing can be appended afterwards. */
	close(): Promise<void>;
}

/** Also named consumers, and how far each has read. */
export interface EventStore extends EventWriter {
	/** From now on events are kept for it; a new one `atEnd` has nothing to read yet, unless it may have been known before. @throws AgentError `body-invalid` for a name that is not 1 to 64 of `A-Z a-z 0-9 . _ -`, or one too many. */
	join(consumer: string, atEnd?: boolean): void;
	/** A position never goes back. @returns `false` for an id of no event that was stored here. @throws AgentError as `join`. */
	acknowledge(consumer: string, id: string): boolean;
	/** Where to resume: the last acknowledged id; `null` before the first and for an unknown consumer. */
	positionOf(consumer: string): string | null;
	consumers(): readonly Consumer[];
	/** Nothing is kept for it any more; `false` if it was not known. */
	forget(consumer: string): boolean;
}

export interface DurableEventStore extends EventStore {
	/** Tries the disk now if events are in memory only. `true` when they are on the disk. */
	recover(): Promise<boolean>;
}
