/** The leases that applications hold; `desired-registration.ts` decides what waits for them. */
import { type Clock, isoAt } from '../base/clock.edge.ts';
import { applicationIn, type LeaseReport } from '../protocol/local-api.ts';
import {
	currentLeases,
	holdLease,
	type KeptLeases,
	type LeaseStore,
	leftOf,
	NO_LEASES,
	releaseLease,
	shifted,
} from './leases.ts';

export type WorkflowLeases = ReturnType<typeof keepLeases>;

/** Forgets them with the process. */
export const UNSAVED_LEASES: LeaseStore = { load: () => null, save: () => {} };

/** @param requestReconcile called after every change. */
export function keepLeases(parts: { clock: Clock; requestReconcile: () => void; store: LeaseStore }) {
	const { clock, requestReconcile, store } = parts;
	/** Since the boot of the machine monotonic time has stood still while it slept, and began with this process. */
	const sinceBootMs = () => clock.sleptMs();
	const saved = store.load() ?? { leases: NO_LEASES, waiting: null };
	let { leases: held, waiting } = leftOf(shifted(saved, -sinceBootMs()), clock.monotonicMs());
	const save = () => store.save(shifted({ leases: held, waiting }, sinceBootMs()));
	return {
		/** The workflow change that waits for them, also since before this start. */
		get waiting() {
			return waiting;
		},
		/** Remembers what waits. */
		waits(change: KeptLeases['waiting']) {
			const isKnown = change?.workflowId === waiting?.workflowId && change?.sinceMs === waiting?.sinceMs;
			waiting = change && { workflowId: change.workflowId, sinceMs: change.sinceMs };
			if (!isKnown && held.length > 0) save();
		},
		/** May hold some that have run out. */
		get held() {
			return held;
		},
		hold(name: string, seconds: number, work?: string) {
			held = holdLease(held, name, seconds, clock.monotonicMs(), work);
			save();
			requestReconcile();
		},
		release(name: string, work?: string) {
			held = releaseLease(held, name, work);
			save();
			requestReconcile();
		},
		/** Of applications that are in the file no more: none of them can release its own. @param known their names, each with a colon. */
		releaseOthers(known: readonly string[]) {
			const kept = held.filter(({ name }) => ['', ...known].includes(applicationIn(name)));
			if (kept.length === held.length) return;
			held = kept;
			save();
			requestReconcile();
		},
		/** By name: a lease is held from its first work to the end of its last. */
		list(): LeaseReport {
			const named = Map.groupBy(currentLeases(held, clock.monotonicMs()), ({ name }) => name);
			return {
				leases: [...named].map(([name, all]) => ({
					name,
					since: isoAt(clock, Math.min(...all.map(({ sinceMs }) => sinceMs))),
					until: isoAt(clock, Math.max(...all.map(({ untilMs }) => untilMs))),
				})),
			};
		},
	};
}
