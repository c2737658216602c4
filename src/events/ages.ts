/** Since when events are kept, whatever happened to the clock meanwhile, also while the agent did not run. Pure; the clock is handed in. */
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';

/** The clock was set: events up to a number are older by so much than their times say. */
export interface Shift {
	readonly upTo: number;
	readonly ms: number;
}

/** A smaller step of the clock, as against the time that passed, does not matter. */
const CLOCK_STEP_MS = 60_000;
/** So long a run waits for the service's time, or for the clock to be set, before it believes how old the clock makes what it has found. */
const BELIEVE_AFTER_MS = 10 * 60_000;

/** @param believes the clock from the start on: no one tells the right time. */
export function keepAges(clock: { wallMs(): number; monotonicMs(): number }, believes: boolean) {
	let offsetMs = clock.wallMs() - clock.monotonicMs();
	const believeAtMs = clock.monotonicMs() + BELIEVE_AFTER_MS;
	/** How far the clock was ahead when the run began; `null` while that is not known. */
	let aheadMs: number | null = believes ? 0 : null;
	/** Whether the service has told that, so that the next run may count on it. */
	let isTold = false;
	/** First those of earlier runs, as many as were stored. */
	let shifts: readonly Shift[] = [];
	/** Events of earlier runs: up to which number, when this run found them, and how often the clock had been set by then. */
	let found = { upTo: 0, atMs: 0, shifts: 0 };
	const shiftOf = (number: number, from: number, to?: number) =>
		shifts.slice(from, to).reduce((sum, { upTo, ms }) => sum + (number <= upTo ? ms : 0), 0);

	/**
	 * The clock went ahead while the agent did not run: to what it finds that is as if it had been set then. Of one that went back the events
	 * count from when they were found: by that a service whose own clock is wrong makes none older.
	 */
	function place(): boolean {
		if (aheadMs === null || aheadMs < CLOCK_STEP_MS || found.upTo === 0) return false;
		shifts = shifts.toSpliced(found.shifts, 0, { upTo: found.upTo, ms: aheadMs });
		found = { ...found, shifts: found.shifts + 1 };
		return true;
	}

	return {
		/** The steps that matter to events from a number on, and to an older one. */
		shifts: (first: number, older = first) => shifts.filter(({ upTo }) => upTo >= Math.min(first, older)),
		/** How far the clock is ahead of the right time by the service's word; `null` without one. */
		skewMs: () => (isTold ? shifts.slice(found.shifts).reduce((sum, { ms }) => sum + ms, aheadMs ?? 0) : null),
		/** @param skewMs how far the clock was ahead when the run before was last heard of: from here on what it stored has the right times. */
		load(stored: readonly Shift[], upTo: number, atMs: number, skewMs: number | null): void {
			const isOff = Math.abs(skewMs ?? 0) >= CLOCK_STEP_MS;
			const before = isOff ? [...stored, { upTo, ms: -Number(skewMs) }] : stored;
			shifts = [...before, ...shifts];
			found = { upTo, atMs, shifts: before.length };
			place();
		},
		/** Notices that the clock was set, after the event with a number. @returns whether it was. */
		look(upTo: number): boolean {
			const ms = Math.round(clock.wallMs() - clock.monotonicMs() - offsetMs);
			if (Math.abs(ms) < CLOCK_STEP_MS) return false;
			offsetMs += ms;
			shifts = [...shifts, { upTo, ms }];
			return true;
		},
		/** How far the clock is ahead of the right time, as the service says; only the first word counts. @returns whether it matters to an age, now or in a later run. */
		told(skewMs: number): boolean {
			if (aheadMs !== null) return false;
			isTold = true;
			aheadMs = skewMs - shifts.slice(found.shifts).reduce((sum, { ms }) => sum + ms, 0);
			return place() || Math.abs(skewMs) >= CLOCK_STEP_MS;
		},
		/** Nothing was told for long: the clock is right. */
		believe(): void {
			aheadMs ??= 0;
		},
		/** Monotonic: when the clock is to be believed. */
		believeAtMs: () => (aheadMs === null && found.upTo > 0 ? believeAtMs : Number.POSITIVE_INFINITY),
		/**
		 * By the clock as it is now. An event counts from when it was found if it is of a clock that was never set, from the future, or of an
		 * earlier run while it is not known whether this clock is right.
		 */
		keptSince(number: number, timeMs: number): number {
			const since = timeMs + shiftOf(number, 0, found.shifts);
			const isWrong = number <= found.upTo && (aheadMs === null || since < EARLIEST_CLOCK_MS || since > found.atMs);
			return (isWrong && found.atMs > EARLIEST_CLOCK_MS ? found.atMs : since) + shiftOf(number, found.shifts);
		},
	};
}
