/**
 * Which messages were received before. The service's id alone does not say so: two messages are the same only if id, kind and
 * content are; while two channels overlap, id and kind, because each channel may word the message in its own way. Pure.
 * Source: assumed (notification-id).
 */
import type { Incoming } from './event.ts';

type Message = Pick<Incoming, 'serviceId' | 'kind' | 'content'>;

/** Tells the messages of one id apart: hashes of 53 bits. */
export interface Fingerprint {
	readonly kind: number;
	readonly content: number;
}

/** A message as it was stored. An older agent has stored the id alone, and what is deleted has no kind and no content. */
export interface StoredMessage {
	readonly key: string;
	readonly kind: string | null;
	readonly content: string | null;
}

export interface Duplicates {
	/** Whether the message is new; from now on it is known. One without an id is always new. */
	isNew(serviceId: string | null, fingerprint: Fingerprint | null, overlaps?: boolean): boolean;
	/** Takes over what was stored, oldest first. */
	load(stored: readonly StoredMessage[]): void;
	/** Forgets all of them. */
	clear(): void;
}

/** Between the parts of a key; no id of a service has it. */
export const KEY_SEPARATOR = '\u001f';

/** `null` for a message without an id. */
export function fingerprintOf({ serviceId, kind, content }: Message): Fingerprint | null {
	return serviceId === null ? null : { kind: hash(kind), content: hash(content) };
}

/** What is stored of a message to know it again: its id and the hashes. `null` without an id. */
export function keyOf(serviceId: string | null, fingerprint: Fingerprint | null): string | null {
	if (serviceId === null || fingerprint === null) return serviceId;
	return `${serviceId}${KEY_SEPARATOR}${fingerprint.kind}${KEY_SEPARATOR}${fingerprint.content}`;
}

/** @param max so many of the newest messages are remembered at least, and twice as many at most. */
export function rememberMessages(max: number): Duplicates {
	// Two maps, of which the older one goes as a whole: to drop the oldest entry of one costs more than all else here.
	let newer = new Map<string, (Fingerprint | null)[]>();
	let older: typeof newer = new Map();
	let count = 0;
	const remember = (serviceId: string, fingerprint: Fingerprint | null) => {
		if (count >= max) [older, newer, count] = [newer, new Map(), 0];
		count += 1;
		const known = newer.get(serviceId);
		if (known) known.push(fingerprint);
		else newer.set(serviceId, [fingerprint]);
	};
	return {
		isNew(serviceId, fingerprint, overlaps = false) {
			if (serviceId === null) return true;
			// The id alone is what an older agent has left of a message that is deleted.
			const isSame = (known: Fingerprint | null) =>
				known === null ||
				fingerprint === null ||
				(known.kind === fingerprint.kind && (overlaps || known.content === fingerprint.content));
			const isKnown = newer.get(serviceId)?.some(isSame) || older.get(serviceId)?.some(isSame) || false;
			if (!isKnown) remember(serviceId, fingerprint);
			return !isKnown;
		},
		load(stored) {
			for (const { key, kind, content } of stored) {
				const [serviceId = '', ...hashes] = key.split(KEY_SEPARATOR);
				const [kindHash = Number.NaN, contentHash = Number.NaN] = hashes.map(Number);
				if (hashes.length > 0) remember(serviceId, { kind: kindHash, content: contentHash });
				else
					remember(serviceId, kind === null || content === null ? null : fingerprintOf({ serviceId, kind, content }));
			}
		},
		clear() {
			newer.clear();
			older.clear();
		},
	};
}

/** Not for secrets. Source: cyrb53, public domain. */
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
