/** Time that moves only when a test says so. Sockets know nothing of it: they run in real time. */
import { type Clock, systemClock } from '../../src/base/clock.edge.ts';

export interface SteppedClock extends Clock {
	/** Lets time pass: everything that comes due on the way happens at its moment. */
	advance(ms: number): void;
	/** A process that stood still: everything that came due meanwhile happens at the end, late. */
	stall(ms: number): void;
	/** The machine was suspended: the wall clock goes on, every timer and monotonic time stand still. */
	sleep(ms: number): void;
	/** Sets the device's clock without time passing. */
	setWall(wallMs: number): void;
	/** What a clock says that is right, however the device's own is set: that of the service in the same test. */
	trueMs(): number;
	/** How many timers are set. */
	readonly pending: number;
	/** Calls back whenever a timer is set or taken away, until the returned function is called. */
	onTimers(listener: () => void): () => void;
}

interface Timer {
	readonly atMs: number;
	readonly callback: () => void;
}

export function createSteppedClock(wallMs = Date.now()): SteppedClock {
	let nowMs = 1_000_000;
	let sleptMs = 0;
	let wallAheadMs = wallMs - nowMs;
	let trueAheadMs = Date.now() - nowMs;
	const timers = new Set<Timer>();
	const listeners = new Set<() => void>();
	const tell = () => {
		for (const listener of [...listeners]) listener();
	};

	const nextDue = (untilMs: number): Timer | undefined =>
		[...timers].filter(({ atMs }) => atMs <= untilMs).sort((a, b) => a.atMs - b.atMs)[0];
	const fireUntil = (untilMs: number) => {
		for (let timer = nextDue(untilMs); timer; timer = nextDue(untilMs)) {
			timers.delete(timer);
			nowMs = Math.max(nowMs, timer.atMs);
			timer.callback();
		}
	};

	return {
		monotonicMs: () => nowMs,
		wallMs: () => nowMs + wallAheadMs,
		sleptMs: () => sleptMs,
		schedule(delayMs, callback) {
			const timer = { atMs: nowMs + Math.max(0, delayMs), callback };
			timers.add(timer);
			tell();
			return () => {
				if (timers.delete(timer)) tell();
			};
		},
		// Input comes over real sockets.
		soon: systemClock.soon,
		advance(ms) {
			const untilMs = nowMs + ms;
			fireUntil(untilMs);
			nowMs = untilMs;
		},
		stall(ms) {
			nowMs += ms;
			fireUntil(nowMs);
		},
		sleep(ms) {
			sleptMs += ms;
			wallAheadMs += ms;
			trueAheadMs += ms;
		},
		setWall(ms) {
			wallAheadMs = ms - nowMs;
		},
		trueMs: () => nowMs + trueAheadMs,
		get pending() {
			return timers.size;
		},
		onTimers(listener) {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
	};
}
