/** What an agent that was killed has left on the disk, read without touching it. */
import fs from 'node:fs';
import { createSegments } from '../../src/base/log-segments.edge.ts';
import { keyOf } from '../../src/events/duplicates.ts';
import { idOf } from '../../src/events/event.ts';
import { decodeEvent, decodeTag, foldStates } from '../../src/events/stored-event.ts';

export interface StoredEvent {
	readonly id: string;
	readonly number: number;
	/** Also of an event that was acknowledged and whose content is gone. */
	readonly serviceId: string | null;
	readonly hasContent: boolean;
}

/** Of an erased event only hashes are left: the ids that `createSender` gives, by theirs. */
const idByHash = new Map<number, string>();
const hashOf = (serviceId: string) => keyOf({ serviceId, kind: '', content: '' })?.[0] ?? 0;

/** In order; none when nothing was ever stored. Files in which nothing is kept any more are gone. */
export function readInboxFile(stateDir: string): StoredEvent[] {
	for (let count = idByHash.size; count <= 20_000; count += 1) idByHash.set(hashOf(`n-${count}`), `n-${count}`);
	// Killed before it had made its directory.
	if (!fs.existsSync(stateDir)) return [];
	const segments = createSegments(stateDir, 'events', 'read', fs, null);
	segments.read();
	const { epochs } = foldStates(segments.state.payloads);
	const found: StoredEvent[] = [];
	for (const { segment, from, to } of segments.ranges())
		for (let number = from; number <= to; number += 1) {
			const tag = segment.tagOf(number);
			if (tag === null) continue;
			const isKept = segment.has(number) === 'kept';
			const payload = isKept ? segment.read(number) : null;
			// A header that came as far as the disk, without what belongs to it.
			if (isKept && payload === null) continue;
			const id = payload ? decodeEvent(number, payload).id : (idOf(number, epochs) ?? '');
			const { key } = decodeTag(tag);
			const serviceId = key === null ? null : (idByHash.get(key[0]) ?? String(key[0]));
			found.push({ id, number, serviceId, hasContent: payload !== null });
		}
	for (const { descriptor } of segments.list) fs.closeSync(descriptor);
	return found;
}
