/** The order in which simulated devices are asked to move: rings that only grow, each spread evenly over its time. */
import type { Clock } from '../base/clock.edge.ts';

export interface Ring {
	/** Up to this share of all devices, in percent. */
	readonly percent: number;
	/** Number of its first device, from 0. */
	readonly from: number;
	/** Number of the first device of the next ring. */
	readonly to: number;
}

/** Adds 100 % where it is missing, leaves out rings without a device. @param percents rising, above 0, at most 100. */
export function splitIntoRings(percents: readonly number[], devices: number): readonly Ring[] {
	const rings: Ring[] = [];
	for (const percent of [...percents, 100]) {
		const from = rings.at(-1)?.to ?? 0;
		const to = Math.min(devices, Math.ceil((devices * percent) / 100));
		if (to > from) rings.push({ percent, from, to });
	}
	return rings;
}

export type RolloutRun = ReturnType<typeof runRollout>;

/** Calls `visit` for the devices of one ring after the other, evenly over `ringMs` each; after a stall it catches up. */
export function runRollout(
	clock: Pick<Clock, 'monotonicMs' | 'schedule'>,
	{ rings, ringMs }: { readonly rings: readonly Ring[]; readonly ringMs: number },
	visit: (number: number) => void,
	onRing: (ring: Ring, index: number) => void = () => {},
) {
	const { promise: done, resolve } = Promise.withResolvers<void>();
	const startedAtMs = clock.monotonicMs();
	let index = 0;
	let next = 0;
	let cancelTimer = () => {};

	const step = () => {
		for (;;) {
			const ring = rings[index];
			if (!ring) return resolve();
			const dueMs = (index + (next - ring.from) / (ring.to - ring.from)) * ringMs;
			const waitMs = startedAtMs + dueMs - clock.monotonicMs();
			if (waitMs > 0) {
				cancelTimer = clock.schedule(waitMs, step);
				return;
			}
			if (next === ring.from) onRing(ring, index);
			visit(next);
			next += 1;
			if (next === ring.to) index += 1;
		}
	};
	step();
	return {
		/** Resolves after the last device, or when it was cancelled. */
		done,
		cancel(): void {
			cancelTimer();
			resolve();
		},
	};
}
