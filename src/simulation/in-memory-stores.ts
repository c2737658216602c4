/**
 * What a device keeps on its disk, kept in memory for a simulated one: it lives as long as the process. Same promises as
 * the edges that it stands in for; opens no file and sets no timer.
 */

import { createInbox, type Entry, type Incoming } from '../events/event.ts';
import type { EventStore } from '../events/store.edge.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import type { StateStore } from '../state/store.edge.ts';

/** One for all devices: each agent has its own state in hand, and nobody reads it back. */
export const NULL_STATE_STORE: StateStore = {
	load: async () => ({ state: EMPTY_STATE, notices: [] }),
	save: async () => {},
	saveAndForget: async () => {},
	probe: async () => {},
	close: async () => {},
};

/** Nobody acknowledges the events of a simulated device: a few show that they arrive. */
const BOUNDS = { maxCount: 8, maxBytes: 64 * 1024 };

/** @param epoch as for a real store. */
export function keepEventsInMemory(epoch: string): EventStore {
	const inbox = createInbox(epoch, BOUNDS);
	const listeners = new Set<(entries: readonly Entry[]) => void>();
	const store: { -readonly [Name in keyof EventStore]: EventStore[Name] } = {
		count: 0,
		bytes: 0,
		append(incoming: Incoming) {
			const entry = inbox.append(incoming);
			store.count = inbox.count;
			store.bytes = inbox.bytes;
			if (entry) for (const listener of listeners) listener([entry]);
			return entry;
		},
		after: inbox.after,
		newest: inbox.newest,
		newestAt: () => inbox.after(null, BOUNDS.maxCount).entries.at(-1)?.at ?? null,
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		settled: () => Promise.resolve(),
		join() {},
		acknowledge: () => false,
		positionOf: () => null,
		consumers: () => [],
		forget: () => false,
		recover: () => true,
		close() {},
	};
	return store;
}
