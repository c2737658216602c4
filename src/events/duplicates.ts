/**
 * Which messages were received before. The service's id alone does not say so: two messages are the same only if id, kind and
 * content are; while two channels overlap, id and kind, because each channel may word the message in its own way. Pure.
 * Source: assumed (notification-id).
 */
import type { Incoming } from './event.ts';

type Message = Pick<Incoming, 'serviceId' | 'kind' | 'content'>;

/** A message as it was stored. An older agent has stored the id alone, and what is deleted has no kind and no content. */
export interface StoredMessage {
	readonly key: string;
	readonly kind: string | null;
	readonly content: string | null;
}

export interface Duplicates {
	/** Whether the message with this key is new; from now on it is known. One without a key is always new. */
	isNew(key: string | null, overlaps?: boolean): boolean;
	/** Takes over what was stored, oldest first. */
	load(stored: readonly StoredMessage[]): void;
	/** Forgets all of them. */
	clear(): void;
}

/** Between the parts of a key; no id of a service has it. */
export const KEY_SEPARATOR = '\u001f';

/** The part of a message that is stored to know it again: its id, and hashes of kind and content. `null` without an id. */
export function keyOf({ serviceId, kind, content }: Message): string | null {
	return serviceId === null ? null : `${serviceId}${KEY_SEPARATOR}${hash(kind)}${KEY_SEPARATOR}${hash(content)}`;
}

/** @param max so many of the newest messages are remembered at least, and twice as many at most. */
export function rememberMessages(max: number): Duplicates {
	// Keys, with and without the content. The older set goes as a whole: to drop the oldest of one costs more than all else here.
	let [newer, older] = [new Set<string>(), new Set<string>()];
	const isKnown = (text: string) => newer.has(text) || older.has(text);
	const remember = (key: string) => {
		if (newer.size >= 2 * max) [older, newer] = [newer, new Set()];
		newer.add(key).add(headOf(key));
	};
	return {
		isNew(key, overlaps = false) {
			if (key === null) return true;
			const head = headOf(key);
			// The id alone is what an older agent has left of a message that is deleted.
			const isNew = !isKnown(key) && !isKnown(headOf(head)) && !(overlaps && isKnown(head));
			if (isNew) remember(key);
			return isNew;
		},
		load(stored) {
			// Those that are known already are newer, and may not be stored yet.
			const since = [older, newer].flatMap((known) => [...known.values()].flat());
			for (const { key, kind, content } of stored) {
				const isOld = kind !== null && content !== null && !key.includes(KEY_SEPARATOR);
				remember(isOld ? (keyOf({ serviceId: key, kind, content }) ?? key) : key);
			}
			for (const key of since) remember(key);
		},
		clear() {
			newer.clear();
			older.clear();
		},
	};
}

/** All but the last part. */
function headOf(key: string): string {
	return key.slice(0, Math.max(0, key.lastIndexOf(KEY_SEPARATOR)));
}

/** Not for secrets: 53 bits that tell the messages of one id apart. Source: cyrb53, public domain. */
function hash(text: string): number {
	let high = 0xdeadbeef;
	let low = 0x41c6ce57;
	for (let index = 0; index < text.length; index += 1) {
		const code = text.charCodeAt(index);
		high = Math.imul(high ^ code, 2654435761);
		low = Math.imul(low ^ code, 1597334677);
	}
	high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
	low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
	return 4294967296 * (2097151 & low) + (high >>> 0);
}
