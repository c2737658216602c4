/**
 * The type of an event, and the smallest list of them: numbered, bounded, in memory. Simulated devices have it, and the event store of
 * a real one (`events/store.edge.ts`) is tested against it. Owns ids, order, duplicates and bounds; knows no consumers and no disk.
 */

/** An event before it has a number. */
export interface Incoming {
	/** ISO 8601, by the device's clock. */
	readonly at: string;
	readonly type: 'notification' | 'session' | 'gap';
	readonly kind: string;
	readonly workflowId: string | null;
	readonly format: 'json' | 'text' | 'binary';
	/** JSON text as received, plain text, or base64. */
	readonly content: string;
	/** The service's own id, by which a duplicate is known. */
	readonly serviceId: string | null;
}

export interface Entry extends Incoming {
	/** `epoch-number`; never used twice. */
	readonly id: string;
	readonly number: number;
}

export interface Inbox {
	/** Numbers and keeps an event; `null` for a duplicate of one that was received before. */
	append(incoming: Incoming): Entry | null;
	/**
	 * The events after `since`, oldest first, at most `limit`; from the oldest kept one when `since` is `null`.
	 * `missed` says that events between `since` and the first one here are gone.
	 */
	after(since: string | null, limit: number): { entries: readonly Entry[]; missed: boolean };
	/** The newest event's id, or `null`. */
	newest(): string | null;
	readonly bytes: number;
	readonly count: number;
}

/** How many of the service's ids are remembered for telling duplicates. */
const REMEMBERED_IDS = 1024;

/**
 * An empty inbox.
 * @param epoch unlike every earlier one of this device; 1 to 32 letters and digits.
 * @param bounds at most so many events and bytes; the oldest go first, the newest always stays.
 */
export function createInbox(epoch: string, bounds: { maxCount: number; maxBytes: number }): Inbox {
	const entries: Entry[] = [];
	const seen = new Set<string>();
	let lastNumber = 0;

	const numberOf = (id: string): number | null => {
		const [itsEpoch, number] = splitId(id);
		return itsEpoch === epoch ? number : null;
	};

	const inbox: { -readonly [Name in keyof Inbox]: Inbox[Name] } = {
		bytes: 0,
		count: 0,
		append(incoming) {
			if (incoming.serviceId !== null) {
				if (seen.has(incoming.serviceId)) return null;
				seen.add(incoming.serviceId);
				if (seen.size > REMEMBERED_IDS) for (const oldest of seen.values().take(1)) seen.delete(oldest);
			}
			lastNumber += 1;
			const entry: Entry = { ...incoming, number: lastNumber, id: `${epoch}-${lastNumber}` };
			entries.push(entry);
			inbox.bytes += sizeOf(entry);
			while (entries.length > 1 && (entries.length > bounds.maxCount || inbox.bytes > bounds.maxBytes)) {
				const oldest = entries.shift();
				if (oldest) inbox.bytes -= sizeOf(oldest);
			}
			inbox.count = entries.length;
			return entry;
		},
		after(since, limit) {
			const first = entries[0]?.number ?? lastNumber + 1;
			const known = since === null ? null : numberOf(since);
			// An id of an earlier epoch, or of no epoch of ours: everything kept is new to its owner.
			const from = known === null || known > lastNumber ? first : Math.max(first, known + 1);
			const missed = since !== null && (known === null || known > lastNumber || known + 1 < first);
			return { entries: entries.slice(from - first, from - first + limit), missed };
		},
		newest: () => entries.at(-1)?.id ?? null,
	};
	return inbox;
}

/** Whether a text can be an event id. */
export function isEventId(text: string): boolean {
	return splitId(text)[1] !== null;
}

function splitId(id: string): [string, number | null] {
	const match = /^([A-Za-z0-9]{1,32})-(\d{1,15})$/.exec(id);
	return match ? [match[1] ?? '', Number(match[2])] : ['', null];
}

/** The size of an event against `maxBytes`: its characters, and a constant for the rest. */
export function sizeOf(entry: Entry): number {
	return entry.content.length + entry.kind.length + 128;
}
