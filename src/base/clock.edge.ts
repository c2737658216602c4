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
	/**
	 * Calls back once after the delay, never before; the returned function cancels. A delay of 5 s or more may be up to a second
	 * longer: what is due in the same second shares one wakeup. Delays beyond a timer's range are cut to it.
	 */
	schedule(delayMs: number, callback: () => void): () => void;
	/** Calls back once what has already arrived at the sockets was handled; the returned function cancels. */
	soon(callback: () => void): () => void;
}

/** Longer delays than this fire at once in Node. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** From this delay on a timer waits for the end of the second in which it is due. */
const SHARED_FROM_MS = 5000;
/** What is due in the same second shares a wakeup. */
export const SHARED_MS = 1000;
/** Node's timers are set from the time at which its loop woke up, and so may fire some milliseconds early. */
const EARLY_MS = 5;

interface Wakeup {
	readonly timer: NodeJS.Timeout;
	/** Each with whether it keeps the process alive. */
	readonly waiting: Map<() => void, boolean>;
}

/** By the second at whose end they are. */
const wakeups = new Map<number, Wakeup>();

function schedule(delayMs: number, callback: () => void, keepsAlive: boolean): () => void {
	const boundedMs = Math.min(Math.max(0, Math.ceil(delayMs)), MAX_TIMER_MS - 2 * SHARED_MS);
	if (boundedMs >= SHARED_FROM_MS) return shareWakeup(boundedMs, () => callback(), keepsAlive);
	const timer = setTimeout(callback, boundedMs);
	if (!keepsAlive) timer.unref();
	return () => clearTimeout(timer);
}

/** @param callback a function of its own, by which it is cancelled. */
function shareWakeup(delayMs: number, callback: () => void, keepsAlive: boolean): () => void {
	const nowMs = performance.now();
	const second = Math.ceil((nowMs + delayMs) / SHARED_MS);
	const fire = () => {
		wakeups.delete(second);
		for (const due of [...wakeup.waiting.keys()]) if (wakeup.waiting.delete(due)) due();
	};
	const wakeup = wakeups.get(second) ?? {
		timer: setTimeout(fire, second * SHARED_MS - nowMs + EARLY_MS),
		waiting: new Map<() => void, boolean>(),
	};
	const settle = () => {
		if ([...wakeup.waiting.values()].includes(true)) wakeup.timer.ref();
		else wakeup.timer.unref();
	};
	wakeups.set(second, wakeup);
	wakeup.waiting.set(callback, keepsAlive);
	settle();
	return () => {
		if (!wakeup.waiting.delete(callback)) return;
		if (wakeup.waiting.size > 0) return settle();
		clearTimeout(wakeup.timer);
		wakeups.delete(second);
	};
}

/** The machine's own time. Its timers keep the process alive: a daemon that waits has not ended. */
export const systemClock: Clock = {
	monotonicMs: () => performance.now(),
	wallMs: () => Date.now(),
	// The time since the boot goes on while the machine is suspended; monotonic time and every timer stand still.
	sleptMs: () => uptime() * 1000 - performance.now(),
	schedule: (delayMs, callback) => schedule(delayMs, callback, true),
	soon(callback) {
		const immediate = setImmediate(callback);
		return () => clearImmediate(immediate);
	},
};

/** The same, for what must not keep the process alive: its timers let it end. */
export const idleClock: Clock = {
	...systemClock,
	schedule: (delayMs, callback) => schedule(delayMs, callback, false),
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
