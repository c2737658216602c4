/** Knows messages that were received before by id, kind and content; by id and kind while two channels overlap. Pure. Source: assumed (notification-id). */
import type { Incoming } from './event.ts';

/** Hashes of the id, the kind and the content of a message. Without the last two it stands for every message of the id. */
export type MessageKey = readonly [id: number, kind?: number, content?: number];

/** The key of a message; `null` without an id. */
export function keyOf({
	serviceId,
	kind,
	content,
}: Pick<Incoming, 'serviceId' | 'kind' | 'content'>): MessageKey | null {
	return serviceId === null ? null : [hash(serviceId), hash(kind) >>> 0, hash(content) >>> 0];
}

/** Every message of an id: an older agent has left no more of one that is deleted. */
export const anyOf = (serviceId: string): MessageKey => [hash(serviceId)];

/** Bytes of a key in the tag of a record. */
export const KEY_BYTES = 16;

export function writeKey(key: MessageKey | null, into: DataView, at = 0): void {
	const [id, kind = 0, content = 0] = key ?? [-1];
	// No message has the number 0: it was counted up.
	into.setFloat64(at, id + 1);
	into.setUint32(at + 8, kind);
	into.setUint32(at + 12, content);
}

export function readKey(from: DataView, at = 0): MessageKey | null {
	const id = from.getFloat64(at);
	return id === 0 ? null : [id - 1, from.getUint32(at + 8), from.getUint32(at + 12)];
}

/** @param max so many of the newest messages are remembered at least, and twice as many at most. */
export function rememberMessages(max: number) {
	// By id. The older ones go as a whole: to drop the oldest of one map costs more than all else here.
	let [newer, older, count] = [new Map<number, MessageKey[]>(), new Map<number, MessageKey[]>(), 0];
	const remember = (key: MessageKey) => {
		if (count >= max) [older, newer, count] = [newer, new Map(), 0];
		const known = newer.get(key[0]);
		if (known) known.push(key);
		else newer.set(key[0], [key]);
		count += 1;
	};
	const clear = () => {
		[newer, older, count] = [new Map(), new Map(), 0];
	};
	const all = () => [...older.values(), ...newer.values()].flat();
	return {
		/** Whether the message with this key is new; from now on it is known. One without a key is always new. */
		isNew(key: MessageKey | null, overlaps = false): boolean {
			if (key === null) return true;
			const [id, kind, content] = key;
			const isSame = (known: MessageKey) =>
				known[1] === undefined || (known[1] === kind && (overlaps || known[2] === content));
			if (newer.get(id)?.some(isSame) || older.get(id)?.some(isSame)) return false;
			remember(key);
			return true;
		},
		/** It is new again. */
		forget(key: MessageKey | null): void {
			if (key === null) return;
			for (const known of [newer, older]) {
				const [id, kind, content] = key;
				const all = known.get(id) ?? [];
				const left = all.filter((each) => each[1] !== kind || each[2] !== content);
				if (left.length > 0) known.set(id, left);
				else known.delete(id);
				if (known === newer) count -= all.length - left.length;
			}
		},
		/** Takes over what was stored, oldest first. */
		load(stored: readonly MessageKey[]): void {
			// Those that are known already are newer, and may not be stored yet.
			const since = all();
			clear();
			for (const key of [...stored, ...since]) remember(key);
		},
		/** The newest ones, oldest first. */
		newest: () => all().slice(-max),
		/** From now on only these are known, oldest first. */
		replace(known: readonly MessageKey[]): void {
			clear();
			for (const key of known) remember(key);
		},
	};
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
