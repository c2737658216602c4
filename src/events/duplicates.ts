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
	// Keys by id, in two maps of which the older one goes as a whole: to drop the oldest of one costs more than all else here.
	let newer = new Map<string, string[]>();
	let older: typeof newer = new Map();
	let count = 0;
	const remember = (key: string) => {
		if (count >= max) [older, newer, count] = [newer, new Map(), 0];
		count += 1;
		const known = newer.get(idOf(key));
		if (known) known.push(key);
		else newer.set(idOf(key), [key]);
	};
	return {
		isNew(key, overlaps = false) {
			if (key === null) return true;
			const id = idOf(key);
			// The id alone is what an older agent has left of a message that is deleted.
			const isSame = (known: string) =>
				known === key || known === id || (overlaps && withoutContent(known) === withoutContent(key));
			const isKnown = newer.get(id)?.some(isSame) || older.get(id)?.some(isSame) || false;
			if (!isKnown) remember(key);
			return !isKnown;
		},
		load(stored) {
			for (const { key, kind, content } of stored) {
				const isOld = kind !== null && content !== null && !key.includes(KEY_SEPARATOR);
				remember(isOld ? (keyOf({ serviceId: key, kind, content }) ?? key) : key);
			}
		},
		clear() {
			newer.clear();
			older.clear();
		},
	};
}

function idOf(key: string): string {
	const end = key.indexOf(KEY_SEPARATOR);
	return end === -1 ? key : key.slice(0, end);
}

const withoutContent = (key: string) => key.slice(0, key.lastIndexOf(KEY_SEPARATOR));

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
