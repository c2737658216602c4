/** Knows messages that were received before by id, kind and content; by id and kind while two channels overlap. Pure. Source: assumed (notification-id). */
import type { Incoming } from './event.ts';

type Message = Pick<Incoming, 'serviceId' | 'kind' | 'content'>;

/** A message as it was stored. An older agent has stored the id alone, and what is deleted has no kind and no content. */
export interface StoredMessage {
	readonly key: string;
	readonly kind: string | null;
	readonly content: string | null;
}

/** Between the parts of a key; no id of a service has it. */
export const KEY_SEPARATOR = '\u001f';

/** The part of a message that is stored to know it again: its id, and hashes of kind and content. `null` without an id. */
export function keyOf({ serviceId, kind, content }: Message): string | null {
	return serviceId === null ? null : `${serviceId}${KEY_SEPARATOR}${hash(kind)}${KEY_SEPARATOR}${hash(content)}`;
}

/** Stands for every message of an id. An older agent has left no more of one that is deleted. */
const ANY = '*';
const END = ';';

/** @param max so many of the newest messages are remembered at least, and twice as many at most. */
export function rememberMessages(max: number) {
	// By id, what tells its messages apart. The older ones go as a whole: to drop the oldest of one map costs more than all else here.
	let [newer, older, count] = [new Map<string, string>(), new Map<string, string>(), 0];
	const remember = (id: string, told: string) => {
		if (count >= max) [older, newer, count] = [newer, new Map(), 0];
		newer.set(id, `${newer.get(id) ?? ''}${told}${END}`);
		count += 1;
	};
	const clear = () => {
		[newer, older, count] = [new Map(), new Map(), 0];
	};
	return {
		/** Whether the message with this key is new; from now on it is known. One without a key is always new. */
		isNew(key: string | null, overlaps = false): boolean {
			if (key === null) return true;
			const [id, told] = partsOf(key);
			const known = `${newer.get(id) ?? ''}${older.get(id) ?? ''}`;
			if (known !== '' && [ANY, told + END, ...(overlaps ? [kindOf(told)] : [])].some((each) => known.includes(each)))
				return false;
			remember(id, told);
			return true;
		},
		/** Takes over what was stored, oldest first. */
		load(stored: readonly StoredMessage[]): void {
			// Those that are known already are newer, and may not be stored yet.
			const since = [...older, ...newer];
			clear();
			for (const { key, kind, content } of stored) {
				const isOld = kind !== null && content !== null && !key.includes(KEY_SEPARATOR);
				remember(...partsOf(isOld ? (keyOf({ serviceId: key, kind, content }) ?? key) : key));
			}
			for (const [id, told] of since) for (const each of told.split(END).slice(0, -1)) remember(id, each);
		},
		clear,
	};
}

const kindOf = (told: string) => told.slice(0, told.lastIndexOf(KEY_SEPARATOR) + 1);

/** The id, and what tells its messages apart. */
function partsOf(key: string): [id: string, told: string] {
	const end = key.lastIndexOf(KEY_SEPARATOR, key.lastIndexOf(KEY_SEPARATOR) - 1);
	return end === -1 ? [key, ANY] : [key.slice(0, end), key.slice(end)];
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
