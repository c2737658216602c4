/** An event as a record of the log: its parts, its tag, and the state that heads and notes carry. Pure. */
import type { Found, RecordLog } from '../base/record-log-types.ts';
import type { Shift } from './ages.ts';
import { KEY_BYTES, type MessageKey, readKey, type rememberMessages, writeKey } from './duplicates.ts';
import type { Entry, Epoch } from './event.ts';

export interface Position {
	/** Number of the last acknowledged event; 0 before the first. */
	readonly number: number;
	readonly seenMs: number;
}

/** What a start needs to know; a note has what has changed. */
export interface StoredState {
	readonly epochs?: readonly Epoch[];
	/** `null`: forgotten. */
	readonly consumers?: Readonly<Record<string, Position | null>>;
	readonly shifts?: readonly Shift[];
	/** How far the clock was ahead of the right time in the run that wrote this; `null`: not known. */
	readonly skewMs?: number | null;
	/** Up to here events are deleted. */
	readonly gone?: number;
	/** Up to here all consumers have acknowledged. */
	readonly done?: number;
	/** When notes were lost, perhaps with a consumer, and the newest number then. */
	readonly lost?: Shift | undefined;
	/** Of the newest messages up to a number; those of later ones are in their tags. */
	readonly keys?: { readonly upTo: number; readonly known: readonly MessageKey[] };
	/** A head says everything. */
	readonly isWhole?: true;
	/** How far the events of 0.1.0 are taken over. */
	readonly taken?: Taken;
}

export interface Taken {
	/** Of the row that stays in `events.db`. */
	readonly number: number;
	readonly epoch: string;
	/** The newest number here when the taking over began; `null` when it is done. */
	readonly from: number | null;
	/** What the file looked like when nothing was left to take over. */
	readonly seen?: string | undefined;
}

/** The parts of an event, then its content as it is. The epoch is there as well: an id never depends on another record. */
export function encodeEvent(entry: Entry): Uint8Array {
	const { id, at, type, kind, workflowId, format, content, serviceId } = entry;
	const epoch = id.slice(0, id.lastIndexOf('-'));
	return new TextEncoder().encode(
		`${JSON.stringify([epoch, at, type, kind, workflowId, format, serviceId])}\n${content}`,
	);
}

export function decodeEvent(number: number, payload: Uint8Array): Entry & { readonly epoch: string } {
	const end = payload.indexOf(0x0a);
	// A mark at the beginning is a part of the content.
	const text = new TextDecoder('utf-8', { ignoreBOM: true });
	const [epoch, at, type, kind, workflowId, format, serviceId] = JSON.parse(text.decode(payload.subarray(0, end)));
	const content = text.decode(payload.subarray(end + 1));
	return { id: `${epoch}-${number}`, number, epoch, at, type, kind, workflowId, format, content, serviceId };
}

export function* decodeEvents(records: Iterable<Found>): Iterable<Entry> {
	for (const each of records) if ('payload' in each) yield decodeEvent(each.number, each.payload);
}

/** Outlives the contents: when the event was received, and what tells its duplicates. */
export function encodeTag(at: string, key: MessageKey | null): Uint8Array {
	const tag = new DataView(new ArrayBuffer(8 + KEY_BYTES));
	tag.setFloat64(0, Date.parse(at));
	writeKey(key, tag, 8);
	return new Uint8Array(tag.buffer);
}

export function decodeTag(tag: Uint8Array): { readonly atMs: number; readonly key: MessageKey | null } {
	const view = new DataView(tag.buffer, tag.byteOffset, tag.byteLength);
	return { atMs: view.getFloat64(0), key: readKey(view, 8) };
}

/** The tag that an event leaves which was never on the disk. A service that waits for acknowledgements gives it again, as a new event. */
export function tagOfUnknown(
	tag: Uint8Array,
	duplicates: Pick<ReturnType<typeof rememberMessages>, 'forget'>,
): Uint8Array {
	duplicates.forget(decodeTag(tag).key);
	return tag.slice().fill(0, 8);
}

/** The number of the event that a message is a duplicate of; 0 where that is on the disk, or was done with. */
export function numberOfUnstored(
	key: MessageKey | null,
	unstored: ReturnType<RecordLog['unstored']>,
	overlaps = false,
) {
	const isSame = ([id, kind, content]: MessageKey | [] = []) =>
		id === key?.[0] && kind === key?.[1] && (overlaps || content === key?.[2]);
	return unstored.findLast(({ tag }) => isSame(decodeTag(tag).key ?? []))?.number ?? 0;
}

/** What a start needs to know of the newest messages: those that are not on the disk have their keys in their tags. */
export function keysOf(
	newest: readonly MessageKey[],
	unstored: ReturnType<RecordLog['unstored']>,
	given: number,
	most: number,
): NonNullable<StoredState['keys']> {
	const own = new Set(unstored.map(({ tag }) => decodeTag(tag).key?.join()));
	const known = newest.filter((key) => !own.has(key.join()));
	return { upTo: (unstored[0]?.number ?? given + 1) - 1, known: known.slice(-most) };
}

/** When the newest record was received; of one that was cut off at the very end the time is lost as well: the newest one that has one counts. @param beforeMs none that is as new. */
export function newestTime(
	log: Pick<RecordLog, 'tags' | 'timeOf'>,
	limit: number,
	beforeMs = Number.POSITIVE_INFINITY,
): string | null {
	for (const count of [1, limit])
		for (const { number, tag } of log.tags(count).reverse()) {
			const ms = decodeTag(tag).atMs || log.timeOf(number);
			if (ms !== null && ms < beforeMs) return new Date(ms).toISOString();
		}
	return null;
}

export const encodeState = (state: StoredState): Uint8Array => new TextEncoder().encode(JSON.stringify(state));

/** The state after heads and notes, oldest first. */
export function foldStates(payloads: Iterable<Uint8Array>): StoredState & Required<Pick<StoredState, 'epochs'>> {
	let found: ReturnType<typeof foldStates> = { epochs: [] };
	for (const payload of payloads) {
		const next: StoredState = JSON.parse(new TextDecoder().decode(payload));
		if (next.isWhole) found = { epochs: [], ...next };
		else found = { ...found, ...next, consumers: { ...found.consumers, ...newerOf(next.consumers, found.consumers) } };
	}
	return found;
}

/** A note may have waited while a head was written that knows more. */
function newerOf(
	told: StoredState['consumers'] = {},
	known: StoredState['consumers'] = {},
): StoredState['consumers'] & {} {
	return Object.fromEntries(
		Object.entries(told).filter(([name, position]) => !position || position.number >= (known[name]?.number ?? 0)),
	);
}
