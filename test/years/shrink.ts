/** Leaves out faults of a failing life as long as it still fails in the same way. */
import { cyclesOf, type Fault } from './faults.ts';
import type { LifeOptions, LifeResult } from './life.ts';

export interface Shrunk {
	readonly faults: readonly Fault[];
	readonly fromMs: number;
	readonly lengthMs: number;
	readonly lives: number;
	readonly seconds: number;
}

const HOUR = 3_600_000;

/** @param name of the invariant. @param now real milliseconds. @param limitMs after which it ends with what it has. */
export function shrink(
	live: (options: LifeOptions) => LifeResult,
	{ seed, schedule, violations, livedMs }: LifeResult,
	name: string,
	now: () => number,
	limitMs: number,
): Shrunk {
	const beganMs = now();
	const violatedMs = violations.find((violation) => violation.name === name)?.atMs ?? livedMs;
	const cycles = cyclesOf(seed, livedMs + 100 * HOUR);
	const at = cycles.findIndex(({ judgedMs }) => judgedMs >= violatedMs - 10_000);
	const last = cycles[at];
	// A little longer than up to the end of the rest in which it shows.
	const lengthMs = (last?.judgedMs ?? violatedMs) + HOUR / 60;
	let lives = 0;
	let fromMs = 0;
	const fails = (faults: readonly Fault[]) => {
		lives += 1;
		const only = faults.map(({ number }) => number);
		return live({ seed, lengthMs, fromMs, only, until: name }).violations.some((violation) => violation.name === name);
	};
	const isTime = () => now() - beganMs < limitMs;
	let faults = schedule.filter(({ atMs }) => atMs <= violatedMs);
	// What happened long before seldom matters: a life that begins with the last times of trouble is a short one.
	const fitting = [0, 1, 3].find((back) => {
		fromMs = Math.max(0, (cycles[at - back]?.fromMs ?? 0) - HOUR);
		return fromMs > 0 && fails(faults);
	});
	if (fitting === undefined) fromMs = 0;
	faults = faults.filter(({ atMs }) => atMs >= fromMs);
	if (fails([])) faults = [];
	const recent = faults.filter(({ atMs }) => atMs >= (last?.fromMs ?? 0));
	if (recent.length < faults.length && fails(recent)) faults = recent;
	for (let parts = 2; faults.length > 1 && isTime(); ) {
		const size = Math.ceil(faults.length / parts);
		let isSmaller = false;
		for (let from = 0; from < faults.length && isTime(); from += size) {
			const left = [...faults.slice(0, from), ...faults.slice(from + size)];
			if (left.length === faults.length || !fails(left)) continue;
			faults = left;
			isSmaller = true;
			from -= size;
		}
		if (!isSmaller && size === 1) break;
		parts = isSmaller ? Math.max(2, parts - 1) : Math.min(faults.length, parts * 2);
	}
	if (faults.length === 1 && fails([])) faults = [];
	return { faults, fromMs, lengthMs, lives, seconds: (now() - beganMs) / 1000 };
}
