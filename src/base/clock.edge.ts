/**
 * Time as the agent sees it. The only place in `agent/` that reads a clock or sets a timer, so that tests can step it.
 */
import { uptime } from 'node:os';

export interface Clock {
	/** Milliseconds that never go back and do not jump when the clock is set. */
	monotonicMs(): number;
	/** Milliseconds since 1970 by the device's clock, right or wrong. */
	wallMs(): number;
	/** How long the machine has slept in all, in milliseconds, reckoned from any moment: only the growth means something. */
	sleptMs(): number;
	/** Calls back once after the delay; the returned function cancels. Delays beyond a timer's range are cut to it. */
	schedule(delayMs: number, callback: () => void): () => void;
	/** Calls back once what has already arrived at the sockets was handled; the returned function cancels. */
	soon(callback: () => void): () => void;
}

/** Longer delays than this fire at once in Node. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The machine's own time. Its timers keep the process alive: a daemon that waits has not ended. */
export const systemClock: Clock = {
	monotonicMs: () => performance.now(),
	wallMs: () => Date.now(),
	// The time since the boot goes on while the machine is suspended; monotonic time and every timer stand still.
	sleptMs: () => uptime() * 1000 - performance.now(),
	schedule(delayMs, callback) {
		const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), MAX_TIMER_MS));
		return () => clearTimeout(timer);
	},
	soon(callback) {
		const immediate = setImmediate(callback);
		return () => clearImmediate(immediate);
	},
};

/** The same, for what must not keep the process alive: its timers let it end. */
export const idleClock: Clock = {
	...systemClock,
	schedule(delayMs, callback) {
		const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), MAX_TIMER_MS)).unref();
		return () => clearTimeout(timer);
	},
};

/** Writes the wall clock's time as ISO 8601; a burst of events within one millisecond has it written once. */
export function writeTimes(clock: Pick<Clock, 'wallMs'>): () => string {
	let written = { ms: Number.NaN, text: '' };
	return () => {
		const ms = clock.wallMs();
		if (ms !== written.ms) written = { ms, text: new Date(ms).toISOString() };
		return written.text;
	};
}

/** The device's clock as ISO 8601. */
export function isoNow(clock: Pick<Clock, 'wallMs'>): string {
	return new Date(clock.wallMs()).toISOString();
}

/** A moment of monotonic time, past or to come, by the device's clock as it is now; ISO 8601. */
export function isoAt(clock: Pick<Clock, 'wallMs' | 'monotonicMs'>, ms: number): string {
	return new Date(clock.wallMs() + ms - clock.monotonicMs()).toISOString();
}
