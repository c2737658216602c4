/**
 * The durable inbox: events in a log (`base/record-log.edge.ts`) until every named consumer has acknowledged them or they are too old or too many;
 * in memory while the disk cannot take them. Never hands an event on before it is flushed, and writes nothing at rest. Ids are
 * `epoch-number`, with a new epoch for each run: a disk that loses what it has confirmed cannot bring back an id that was seen. An event
 * that is missing or unreadable is a gap at its place. Deleted contents are overwritten or cut off the files within `cleanAfterMs`.
 */
import { idleClock } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import { inWords, isDiskFull } from '../base/files.edge.ts';
import { openRecordLog, type RecordLog } from '../base/record-log.edge.ts';
import { keepAges } from './ages.ts';
import { planCleaning } from './cleaning.ts';
import { createConsumers } from './consumers.ts';
import { damagedEvents, unerasableEvents, unwritableEvents } from './damage.ts';
import { keyOf, rememberMessages } from './duplicates.ts';
import { DELETED_BEFORE, planErasure } from './erasure.ts';
import { type Entry, type Epoch, gapOf, idOf, neededEpochs, numberOf, withEpoch, withEpochOf } from './event.ts';
import type { DurableEventStore, EventStoreOptions } from './event-store-types.ts';
import { readAfter } from './reading.ts';
import { planSafety } from './safety.ts';
import { keepShares } from './shares.ts';
import * as stored from './stored-event.ts';
import { dropSetAside, takeOver } from './takeover.edge.ts';

export type { Consumer, DurableEventStore, EventStore, EventStoreOptions } from './event-store-types.ts';

/** Events that are remembered for telling duplicates, deleted ones included. */
const REMEMBERED_EVENTS = 1024;

/** Opens nothing yet: the files are looked at when something is asked, and made with the first event. A bad disk never throws here. */
export function createEventStore(options: EventStoreOptions): DurableEventStore {
	const { directory, bounds, epoch, onNotice = () => {}, durable = true } = options;
	const { wallMs, monotonicMs, schedule } = { ...idleClock, ...options };
	const listeners = new Set<(entries: readonly Entry[]) => void>();
	const consumers = createConsumers(wallMs, () => bounds.maxAgeMs);
	const duplicates = rememberMessages(REMEMBERED_EVENTS);
	/** Whether the keys in the files are read. A start does without. */
	let areKeysLoaded = false;
	let keysFound: stored.StoredState['keys'];
	let [opened, closed] = [null as RecordLog | null, false];
	let epochs: readonly Epoch[] = [];
	const shares = keepShares((number) => stored.decodeEvents(opened?.after(number) ?? []));
	const ages = keepAges({ wallMs, monotonicMs }, options.believesClock ?? true);
	let taken: stored.Taken | undefined;
	let taking: Promise<void> = Promise.resolve();
	/** The newest number that was given, the one of the message that came last, and events that are not handed on. */
	let [given, came] = [0, 0];
	let pending: Entry[] = [];
	/** When the newest event was received that is known without a look at the files. */
	let newestHandedOn: string | null = null;
	/** Up to here events are deleted for every reader; and up to here because all consumers have acknowledged them. */
	let [gone, done] = [0, 0];
	let lost: stored.StoredState['lost'];
	const safety = planSafety(REMEMBERED_EVENTS);
	const cleaning = planCleaning(() => options.cleanAfterMs ?? 30_000);
	/** When the oldest event that is kept was stored. */
	let oldestMs: number | null = null;
	let damageTold: string | undefined;
	/** Whether an erasure is not on the disk yet. */
	let isErasing = false;
	let cancelWake = () => {};
	/** Monotonic. */
	let wakeAtMs = Number.POSITIVE_INFINITY;

	function ready(): RecordLog {
		if (opened) return opened;
		let state = null as stored.StoredState | null;
		const log = openRecordLog({
			...options,
			name: 'events',
			maxBytes: () => bounds.maxBytes,
			access: durable ? 'disk' : 'memory',
			head: () => stored.encodeState(wholeState()),
			onFound(payloads) {
				state = stored.foldStates(payloads);
				// A disk that could not be read at first has the older part.
				if (opened) takeUp(opened, state);
			},
			onStored: handOn,
			tagUnstored: (tag) => (durable ? stored.tagOfUnknown(tag, duplicates) : tag),
			onFailing(error) {
				onNotice('events', error === null ? null : unwritableEvents(directory, inWords(error)));
				safety.disk(error === null ? (opened?.kept() ?? []) : null);
				cleaning.disk(isDiskFull(error), monotonicMs());
				plan();
			},
		});
		opened = log;
		if (state) takeUp(log, state);
		return log;
	}

	function takeUp(log: RecordLog, state: stored.StoredState): void {
		const last = log.last();
		shares.forget();
		epochs = [...(state.epochs ?? []).filter(({ first }) => first <= last), ...epochs];
		ages.load(state.shifts ?? [], last, wallMs(), state.skewMs ?? null);
		({ taken } = state);
		given = Math.max(given, last);
		gone = Math.max(gone, state.gone ?? 0);
		done = Math.max(done, state.done ?? 0, log.doneUpTo());
		lost = log.lacksNotes() ? { upTo: last, ms: wallMs() } : state.lost;
		keysFound = state.keys;
		areKeysLoaded = false;
		consumers.load(state.consumers ?? {}, last, log.doneUpTo());
		noticeDamage(log.damages());
		taking = takeOver(log, taken, {
			...{ directory, durable, wallMs, maxAgeMs: bounds.maxAgeMs, consumers, nextId: () => nextId(log) },
			addKeys: (keys) => (keysFound = { upTo: 0, ...keysFound, known: [...keys, ...(keysFound?.known ?? [])] }),
			addEpochs: (theirs) => {
				const known = new Set(epochs.map((each) => each.epoch));
				epochs = [...theirs.filter((each) => !known.has(each.epoch)), ...epochs];
				return epochs;
			},
			onTaken: (now) => (taken = now),
			onNewest: (at) => (newestHandedOn ??= at),
			onUnusable: (file, error) => noticeDamage([{ file, error }, ...log.damages()]),
		}).finally(shares.forget);
		given = Math.max(given, log.next() - 1);
		trim(log);
	}

	function wholeState(): stored.StoredState {
		const { positions } = consumers;
		return {
			epochs: neededEpochs(
				epochs,
				opened?.first() ?? 0,
				Array.from(positions.values(), ({ number }) => number),
			),
			consumers: Object.fromEntries(positions),
			gone,
			done,
			...(lacksConsumer() && { lost }),
			...clockState(),
			...(taken && { taken }),
			keys: knownKeys(),
			isWhole: true,
		};
	}

	const clockState = () => ({ shifts: ages.shifts(opened?.first() ?? 0, lost?.upTo), skewMs: ages.skewMs() });

	/** Whether a consumer may be missing: to each that is not known, what was deleted is a gap. */
	const lacksConsumer = () => lost !== undefined && ages.keptSince(lost.upTo, lost.ms) + bounds.maxAgeMs > wallMs();

	/** The warning ends when the damaged files are gone. */
	function noticeDamage(damages: ReturnType<RecordLog['damages']>): void {
		const told = damagedEvents(damages.map(({ file, error }) => ({ file, fault: inWords(error) })));
		if (told?.message === damageTold) return;
		damageTold = told?.message;
		onNotice('events-damaged', told);
	}

	function* entriesAfter(log: RecordLog, number: number): Iterable<Entry> {
		for (const each of log.after(number)) {
			if ('lostFrom' in each) {
				noticeDamage(log.damages());
				const gap = gapOf(each.lostFrom, each.number, log.timeOf, wallMs());
				yield { ...gap, number: each.number, id: idOf(each.number, epochs) ?? `${epoch}-${each.number}` };
				continue;
			}
			const { epoch: own, ...entry } = stored.decodeEvent(each.number, each.payload);
			epochs = withEpochOf(epochs, own, entry.number);
			yield entry;
		}
	}

	function handOn(): void {
		const last = opened?.last() ?? 0;
		const entries = pending.filter(({ number }) => number <= last);
		pending = pending.filter(({ number }) => number > last);
		newestHandedOn = entries.at(-1)?.at ?? newestHandedOn;
		for (const { kind, number } of entries) shares.add(kind, number);
		if (opened) trim(opened);
		if (entries.length > 0) for (const listener of listeners) listener(entries);
	}

	/** Stores what has changed of the consumers. */
	function storeConsumers(log: RecordLog): void {
		const changes = consumers.takeChanges();
		if (Object.keys(changes).length > 0) log.note(stored.encodeState({ consumers: changes, gone, done }));
	}

	/** When the clock was set meanwhile, events are as old as before. @param skewMs how far it is ahead of the right time, where that was told. */
	function noticeClock(log: RecordLog, skewMs: number | null = null): void {
		const isChanged = [ages.look(given), skewMs !== null && ages.told(skewMs)].includes(true);
		if (isChanged && given > 0) log.note(stored.encodeState(clockState()));
	}

	/** Deletes events that all have acknowledged, that are too old or too many (see `shares.ts`); the newest can only be too old. */
	function trim(log: RecordLog): void {
		noticeClock(log);
		const now = wallMs();
		const acknowledged = consumers.acknowledgedByAll();
		done = Math.max(done, Math.min(acknowledged, log.last()));
		safety.acknowledged(done, log.kept);
		let over = log.count() - Math.max(1, bounds.maxCount);
		let upTo = Math.max(gone, Math.min(acknowledged, log.last()));
		oldestMs = null;
		for (const { number, timeMs } of log.kept()) {
			const since = ages.keptSince(number, timeMs);
			if (number > upTo && since + bounds.maxAgeMs > now) {
				oldestMs = since;
				break;
			}
			upTo = Math.max(upTo, number);
			over -= 1;
		}
		gone = Math.min(upTo, log.last());
		if (over > 0) log.erase(shares.take(over, gone), 'room');
		gone = over > 0 ? Math.max(gone, log.first() - 1) : gone;
		if (gone >= log.first() || over > 0) {
			log.erase(acknowledged, 'done');
			log.erase(gone);
			cleaning.add(monotonicMs());
		}
		plan();
	}

	/** One timer for the next thing that is due; none while nothing is. It may be early: events make room for newer ones all the time. */
	function plan(): void {
		if (closed) return;
		const now = monotonicMs();
		const cleanAtMs = durable ? cleaning.dueMs : Number.POSITIVE_INFINITY;
		const agedMs = oldestMs === null ? cleanAtMs : now + oldestMs + bounds.maxAgeMs - wallMs();
		const dueMs = Math.min(cleanAtMs, agedMs, ages.believeAtMs());
		if (dueMs === wakeAtMs) return;
		cancelWake();
		wakeAtMs = dueMs;
		if (dueMs !== Number.POSITIVE_INFINITY) cancelWake = schedule(Math.max(1, dueMs - now), wake);
	}

	function wake(): void {
		wakeAtMs = Number.POSITIVE_INFINITY;
		if (!opened || closed) return;
		const log = opened;
		if (monotonicMs() >= cleaning.dueMs) {
			cleaning.begin();
			log.clean().then(
				() => noticeDamage(log.damages()),
				() => {
					// Tried again as long as contents are on the disk.
					cleaning.again(monotonicMs());
					if (!closed) trim(log);
				},
			);
		}
		if (monotonicMs() >= ages.believeAtMs()) ages.believe();
		trim(log);
	}

	/** What a start knows of messages without a look at the newest events. A small log is not filled with it. */
	function knownKeys(): NonNullable<stored.StoredState['keys']> {
		loadKeys();
		return stored.keysOf(duplicates.newest(), opened?.unstored() ?? [], given, Math.ceil(bounds.maxBytes / 512));
	}

	function loadKeys(): void {
		if (areKeysLoaded || !opened) return;
		areKeysLoaded = true;
		const { upTo = 0, known = [] } = keysFound ?? {};
		const tags = opened.tags(REMEMBERED_EVENTS).filter(({ number }) => number > upTo);
		duplicates.load([...known, ...tags.map(({ tag }) => stored.decodeTag(tag).key).filter((key) => key !== null)]);
	}

	/** The first one of this run says so to the next start. */
	function nextId(log: RecordLog): string {
		if (epochs.at(-1)?.epoch !== epoch) {
			epochs = withEpoch(epochs, epoch, log.next());
			log.note(stored.encodeState({ epochs, ...clockState() }));
		}
		return `${epoch}-${log.next()}`;
	}

	function newestAt(beforeMs?: number): string | null {
		const log = ready();
		return (beforeMs === undefined && newestHandedOn) || stored.newestTime(log, REMEMBERED_EVENTS, beforeMs);
	}

	return {
		append(incoming, overlaps) {
			if (closed) throw new AgentError('internal', 'The event store is closed.');
			const log = ready();
			const key = keyOf(incoming);
			if (key !== null) loadKeys();
			if (!duplicates.isNew(key, overlaps)) {
				came = stored.numberOfUnstored(key, log.unstored(), overlaps);
				return null;
			}
			noticeClock(log);
			const number = log.next();
			const entry: Entry = { ...incoming, number, id: nextId(log) };
			// A disk that falls behind just now has it handed on at once.
			pending.push(entry);
			given = log.append(stored.encodeEvent(entry), wallMs(), stored.encodeTag(incoming.at, key));
			if (incoming.type === 'notification') came = given;
			return entry;
		},
		after(since, limit, size) {
			const log = ready();
			const first = log.first();
			const shelf = {
				...{ epochs, running: epoch, last: log.last(), oldest: first <= log.last() ? first : null },
				done: lacksConsumer() ? 0 : done,
				entries: (number: number) => entriesAfter(log, number),
				newestAt: () => newestAt() ?? new Date(wallMs()).toISOString(),
			};
			return readAfter(shelf, since, limit, size);
		},
		rest: (...part) => ready().rest(...part) ?? null,
		newest: () => idOf(ready().last(), epochs),
		newestAt,
		subscribe(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		settled: () => opened?.settled() ?? Promise.resolve(),
		safe: () => safety.until(came, given, opened?.settled()),
		join(consumer, atEnd = false) {
			const log = ready();
			consumers.join(consumer, atEnd && !lacksConsumer() ? log.last() : 0);
			storeConsumers(log);
		},
		acknowledge(consumer, id) {
			const log = ready();
			const number = numberOf(id, epochs, log.last(), epoch);
			// A consumer made by a mistake would keep contents without a reader.
			if (number === null) return false;
			consumers.join(consumer);
			consumers.advance(consumer, number);
			storeConsumers(log);
			trim(log);
			return true;
		},
		positionOf(consumer) {
			ready();
			return idOf(consumers.positions.get(consumer)?.number ?? 0, epochs);
		},
		consumers() {
			ready();
			return Array.from(consumers.positions, ([name, { number, seenMs }]) => {
				return { name, position: idOf(number, epochs), seenMs };
			});
		},
		forget(consumer) {
			const log = ready();
			if (!consumers.forget(consumer)) return false;
			storeConsumers(log);
			trim(log);
			return true;
		},
		recover: () => ready().recover(),
		lookAtClock(skewMs) {
			if (!opened || closed) return void (skewMs === null || ages.told(skewMs));
			noticeClock(opened, skewMs);
			trim(opened);
		},
		async erase(matches) {
			const log = ready();
			await taking;
			await log.settled();
			loadKeys();
			const { going, known } = planErasure(log.after(0), matches, duplicates.newest(), ages.keptSince);
			log.erase(going);
			isErasing ||= going.length > 0 || known.length < duplicates.newest().length;
			shares.forget();
			duplicates.replace(known);
			try {
				// An event that cannot be read may be meant.
				if (await log.giveUp(!matches(DELETED_BEFORE))) isErasing = true;
				dropSetAside(directory, () => true);
				// What is erased already may still be on the disk.
				if (!isErasing && !cleaning.isNeeded) return 0;
				log.note(stored.encodeState({ keys: knownKeys() }));
				if (durable) await log.recover().then(log.clean);
				isErasing = durable && closed;
				if (isErasing) throw new Error('the agent is ending');
			} catch (cause) {
				throw unerasableEvents(directory, inWords(cause), cause, going.length);
			}
			return going.length;
		},
		get count() {
			return ready().count();
		},
		get bytes() {
			return ready().bytes();
		},
		async close() {
			if (closed) return;
			if (opened) noticeClock(opened);
			closed = true;
			cancelWake();
			await taking;
			if (cleaning.isNeeded) await opened?.clean().catch(() => {});
			await opened?.close();
		},
	};
}
