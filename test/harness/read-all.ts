/** All that is kept after an id, read piece by piece as every reader has to. */
import type { Entry } from '../../src/events/event.ts';
import type { EventStore } from '../../src/events/event-store-types.ts';

export function readAll({ after }: Pick<EventStore, 'after'>, since: string | null = null) {
	const entries: Entry[] = [];
	const { missed } = after(since, 1);
	for (let last = since; ; last = entries.at(-1)?.id ?? null) {
		const piece = after(last).entries;
		entries.push(...piece);
		if (piece.length === 0) return { entries: entries as readonly Entry[], missed: missed !== null };
	}
}
