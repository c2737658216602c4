/**
 * Virtual time: what happens in the world, in true milliseconds, and what happens on the device, in its own monotonic ones.
 * A device that is frozen (stalled or asleep) does nothing until it thaws; then late timers come before input, input before
 * what waits for input. After each event all promises that can settle have settled.
 */
import type { Clock } from '../../src/base/clock.edge.ts';

interface Due {
	readonly atMs: number;
	readonly rank: number;
	readonly order: number;
	run: (() => void) | null;
}

const isBefore = (a: Due, b: Due) =>
	a.atMs < b.atMs || (a.atMs === b.atMs && (a.rank < b.rank || (a.rank === b.rank && a.order < b.order)));

/** A heap of what is due; what was cancelled lies there until its time has come. */
function createQueue() {
	const heap: Due[] = [];
	let order = 0;
	let cancelled = 0;
	function sink(at: number, item: Due): void {
		let hole = at;
		for (;;) {
			let child = 2 * hole + 1;
			if (child >= heap.length) break;
			if (child + 1 < heap.length && isBefore(heap[child + 1] as Due, heap[child] as Due)) child += 1;
			if (!isBefore(heap[child] as Due, item)) break;
			heap[hole] = heap[child] as Due;
			hole = child;
		}
		heap[hole] = item;
	}
	function pop(): Due | undefined {
		const first = heap[0];
		const last = heap.pop();
		if (last && heap.length > 0) sink(0, last);
		return first;
	}
	/** Leaves out what was cancelled, once that is most of it. */
	function compact(): void {
		const kept = heap.filter(({ run }) => run !== null).sort((a, b) => (isBefore(a, b) ? -1 : 1));
		heap.splice(0, heap.length, ...kept);
		cancelled = 0;
	}
	return {
		push(atMs: number, rank: number, run: () => void): () => void {
			order += 1;
			const item: Due = { atMs, rank, order, run };
			let hole = heap.length;
			heap.push(item);
			while (hole > 0) {
				const parent = (hole - 1) >> 1;
				if (!isBefore(item, heap[parent] as Due)) break;
				heap[hole] = heap[parent] as Due;
				hole = parent;
			}
			heap[hole] = item;
			return () => {
				if (item.run === null) return;
				item.run = null;
				cancelled += 1;
				if (cancelled > 256 && cancelled * 2 > heap.length) compact();
			};
		},
		/** When the next is due; `Infinity` for none. */
		next(): number {
			while (heap[0]?.run === null) {
				pop();
				cancelled -= 1;
			}
			return heap[0]?.atMs ?? Number.POSITIVE_INFINITY;
		},
		take(): (() => void) | null {
			const item = pop();
			const run = item?.run ?? null;
			if (item) item.run = null;
			return run;
		},
		/** How many are due some time, of one rank. */
		count: (rank: number) => heap.filter((item) => item.run !== null && item.rank === rank).length,
	};
}

const RANK = { timer: 0, input: 1, soon: 2 } as const;
/** More events than this within a minute are a loop that never rests. */
const MAX_A_MINUTE = 50_000;
const MINUTE = 60_000;

export type Time = ReturnType<typeof createTime>;
export type Machine = ReturnType<Time['boot']>;

/** Runs nextTick callbacks and settles promises: what Node does after each callback. */
const settle = (process as unknown as { _tickCallback(): void })._tickCallback.bind(process);

/** @param startMs true milliseconds since 1970. @param onError what was thrown by an event. @param fromMs where time begins. */
export function createTime(startMs: number, onError: (error: unknown) => void, fromMs = 0) {
	let nowMs = fromMs;
	let skewMs = 0;
	let machine: Machine | null = null;
	let events = 0;
	let minute = { endsMs: fromMs + MINUTE, events: 0 };
	const world = createQueue();

	function perform(run: (() => void) | null): void {
		if (!run) return;
		events += 1;
		try {
			run();
		} catch (error) {
			onError(error);
		}
		settle();
	}

	function runUntil(untilMs: number): void {
		for (;;) {
			const worldMs = world.next();
			const deviceMs = machine?.dueMs() ?? Number.POSITIVE_INFINITY;
			const atMs = Math.min(worldMs, deviceMs);
			if (atMs > untilMs) break;
			nowMs = Math.max(nowMs, atMs);
			if (nowMs > minute.endsMs) minute = { endsMs: nowMs + MINUTE, events: 0 };
			minute.events += 1;
			if (minute.events > MAX_A_MINUTE) throw new Error(`a loop that never rests at ${nowMs} ms`);
			perform(worldMs <= deviceMs ? world.take() : (machine?.take() ?? null));
		}
		nowMs = Math.max(nowMs, untilMs);
	}

	return {
		/** Since the simulation began. */
		get nowMs() {
			return nowMs;
		},
		/** What a right clock shows. */
		trueMs: () => startMs + nowMs,
		/** What the device's clock shows. */
		wallMs: () => startMs + nowMs + skewMs,
		/** How far the device's clock is ahead. */
		get skewMs() {
			return skewMs;
		},
		setSkew(ms: number) {
			skewMs = Math.round(ms);
		},
		get events() {
			return events;
		},
		get machine() {
			return machine;
		},
		/** In true time, whatever the device does. */
		after: (delayMs: number, run: () => void) => world.push(nowMs + Math.max(0, delayMs), 0, run),
		runUntil,
		/** Settles what a call from outside has begun. */
		settle: () => perform(() => {}),
		/** A machine that starts now; the one before is gone with all its timers. */
		boot() {
			const queue = createQueue();
			/** True time minus monotonic time. */
			let offsetMs = nowMs - 1000;
			let sleptMs = 0;
			let frozenUntilMs = 0;
			const monotonicMs = () => nowMs - offsetMs;
			const clock: Clock = {
				monotonicMs,
				wallMs: () => startMs + nowMs + skewMs,
				sleptMs: () => sleptMs,
				schedule(delayMs, run) {
					if (Number.isNaN(delayMs)) throw new Error('a timer without a time');
					const waitMs = Math.min(Math.max(0, Math.ceil(delayMs)), 2 ** 31 - 1);
					return queue.push(monotonicMs() + Math.max(1, waitMs), RANK.timer, run);
				},
				soon: (run) => queue.push(monotonicMs(), RANK.soon, run),
			};
			const booted = {
				clock,
				dueMs: () => Math.max(queue.next() + offsetMs, frozenUntilMs),
				take: queue.take,
				/** Something reaches the device, after a while. */
				input(delayMs: number, run: () => void): () => void {
					const atMs = Math.max(nowMs + delayMs, frozenUntilMs) - offsetMs;
					return queue.push(atMs, RANK.input, run);
				},
				timers: () => queue.count(RANK.timer),
				get isOn() {
					return machine === booted;
				},
				get isFrozen() {
					return frozenUntilMs > nowMs;
				},
				/** The process gets no time; its clocks go on. */
				stall(ms: number) {
					frozenUntilMs = Math.max(frozenUntilMs, nowMs + ms);
				},
				/** The machine sleeps: monotonic time stands still. */
				suspend(ms: number) {
					frozenUntilMs = nowMs + ms;
					offsetMs += ms;
					sleptMs += ms;
				},
				/** Nothing of it runs any more. */
				halt() {
					if (machine === booted) machine = null;
				},
			};
			machine = booted;
			return booted;
		},
	};
}
