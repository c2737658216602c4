/** Since when events are kept, whatever happened to the clock meanwhile. Pure; times are handed in. */
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';

/** The clock was set: events up to a number are older by so much than their times say. */
export interface Shift {
	readonly upTo: number;
	readonly ms: number;
}

/** A smaller step of the clock, as against the time that passed, does not matter. */
const CLOCK_STEP_MS = 60_000;

/** @param offsetMs of the wall clock to the monotonic one, now. */
export function keepAges(offsetMs: number) {
	let shifts: readonly Shift[] = [];
	/** Events of earlier runs: up to which number, when this run found them, and how often the clock had been set by then. */
	let found = { upTo: 0, atMs: 0, shifts: 0 };
	const shiftOf = (number: number, from: number, to?: number) =>
		shifts.slice(from, to).reduce((sum, { upTo, ms }) => sum + (number <= upTo ? ms : 0), 0);
	return {
		/** The steps that matter to events from a number on. */
		shifts: (first: number) => shifts.filter(({ upTo }) => upTo >= first),
		load(stored: readonly Shift[], upTo: number, atMs: number): void {
			shifts = [...stored, ...shifts];
			found = { upTo, atMs, shifts: stored.length };
		},
		/** Notices that the clock was set, after the event with a number. @returns whether it was. */
		look(nowOffsetMs: number, upTo: number): boolean {
			const ms = Math.round(nowOffsetMs - offsetMs);
			if (Math.abs(ms) < CLOCK_STEP_MS) return false;
			offsetMs += ms;
			shifts = [...shifts, { upTo, ms }];
			return true;
		},
		/** By the clock as it is now. An event of a clock that was never set, or from the future, counts from when it was found. */
		keptSince(number: number, timeMs: number): number {
			const since = timeMs + shiftOf(number, 0, found.shifts);
			const isWrong = number <= found.upTo && (since < EARLIEST_CLOCK_MS || since > found.atMs);
			return (isWrong && found.atMs > EARLIEST_CLOCK_MS ? found.atMs : since) + shiftOf(number, found.shifts);
		},
	};
}
