/**
 * The stores of a simulated device: in memory where a real one has its disk, lost with the process. Opens no file and sets no
 * timer. Not SQLite's memory: that costs 95 KiB for each device with an event, the list here 2 KiB. The event store of a
 * real device is tested against the list.
 */
import type { AgentOptions } from '../agent/base.runner.ts';
import type { Log } from '../base/log.edge.ts';
import { keyOf, rememberMessages } from '../events/duplicates.ts';
import { type Entry, sizeOf } from '../events/event.ts';
import type { EventStore } from '../events/event-store-types.ts';
import { readAfter } from '../events/reading.ts';
import type { AnswerFile } from '../pairing/kept-answer.edge.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import type { StateStore } from '../state/store.edge.ts';

/** One for all devices: each agent holds its own state, and nothing reads it back. */
const store: StateStore = {
	logMark: '',
	load: async () => ({ state: EMPTY_STATE, notices: [] }),
	save: async () => {},
	isGone: () => false,
	probe: async () => {},
	close: async () => {},
};

/** A simulated device pairs with no code. */
const answerFile: AnswerFile = { found: null, notice: null, save: async () => {}, remove: async () => {} };
/** A simulated machine has nothing by which it could be known: it gets an id. */
const facts: AgentOptions['facts'] = { serials: [], interfaces: [], machineIdHash: null, unreadable: [] };
const log: Log = { debug() {}, info() {}, warn() {}, error() {}, setLevel() {} };

/** In place of a disk, a machine and a journal. */
export const NO_MACHINE = { store, answerFile, facts, log };

/** Nothing acknowledges the events of a simulated device: a few show that they arrive. */
const FEW = { maxCount: 8, maxBytes: 64 * 1024 };
/** How many messages are remembered for telling duplicates. */
const REMEMBERED_IDS = 1024;

/**
 * An empty list of events: numbered, bounded, without duplicates.
 * @param epoch as for a real store.
 * @param bounds at most so many events and bytes; the oldest go first, the newest always stays.
 */
export function createEventBuffer(epoch: string, bounds: { maxCount: number; maxBytes: number } = FEW): EventStore {
	const entries: Entry[] = [];
	const duplicates = rememberMessages(REMEMBERED_IDS);
	const listeners = new Set<(entries: readonly Entry[]) => void>();
	let lastNumber = 0;

	const buffer: { -readonly [Name in keyof EventStore]: EventStore[Name] } = {
		// A simulated device has no applications that read.
		join() {},
		acknowledge: () => false,
		positionOf: () => null,
		consumers: () => [],
		forget: () => false,
		lookAtClock() {},
		bytes: 0,
		count: 0,
		append(incoming, overlaps) {
			if (!duplicates.isNew(keyOf(incoming), overlaps)) return null;
			lastNumber += 1;
			const entry: Entry = { ...incoming, number: lastNumber, id: `${epoch}-${lastNumber}` };
			entries.push(entry);
			buffer.bytes += sizeOf(entry);
			while (entries.length > 1 && (entries.length > bounds.maxCount || buffer.bytes > bounds.maxBytes)) {
				const oldest = entries.shift();
				if (oldest) buffer.bytes -= sizeOf(oldest);
			}
			buffer.count = entries.length;
			for (const listener of listeners) listener([entry]);
			return entry;
		},
		after(since, limit, size) {
			const [oldest] = entries;
			const shelf = {
				...{ epochs: [{ first: 1, epoch }], running: epoch, last: lastNumber, oldest: oldest?.number ?? null, done: 0 },
				entries: (number: number) => entries.slice(number + 1 - (oldest?.number ?? 0)),
				newestAt: () => entries.at(-1)?.at ?? new Date(0).toISOString(),
			};
			return readAfter(shelf, since, limit, size);
		},
		rest(number, left, most) {
			const bytes = new TextEncoder().encode(entries.find((entry) => entry.number === number)?.content);
			return bytes.length < left ? null : bytes.subarray(bytes.length - left).subarray(0, most);
		},
		newest: () => entries.at(-1)?.id ?? null,
		newestAt: () => entries.at(-1)?.at ?? null,
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		settled: () => Promise.resolve(),
		safe: () => Promise.resolve(),
		// A simulated device leaves with its process.
		erase: async () => 0,
		async close() {},
	};
	return buffer;
}
