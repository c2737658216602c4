/**
 * The device's durable state in memory, and its way to the disk: every change is kept here at once and saved in order.
 * Never loses a change because a disk is full: what could not be saved is tried again, and the status says so meanwhile.
 */
import type { Clock } from '../base/clock.edge.ts';
import { type Failure, toFailure } from '../base/errors.ts';
import type { DeviceState } from './device-state.ts';
import type { StateStore } from './store.edge.ts';

export type PersistedState = ReturnType<typeof keepPersistedState>;

const RETRY_AFTER_MS = 60_000;
/** Changes that may wait are saved so often, at most. */
const PACE_MS = 1000;

/**
 * @param onSaved told the failure when saving fails, and `null` when the disk is up to date again.
 * @param isUnwritable whether the disk took nothing at the start: it is tried again, also when nothing changes.
 */
export function keepPersistedState(
	initial: DeviceState,
	store: Pick<StateStore, 'save'> & Partial<Pick<StateStore, 'isGone'>>,
	clock: Clock,
	onSaved: (failure: Failure | null) => void,
	isUnwritable = false,
) {
	let state = initial;
	/** Whether an older copy on the disk holds what must be forgotten. */
	let mustForget = false;
	let closed = false;
	let isSaving = false;
	let isBehind = false;
	let cancelRetry = () => {};
	let stamp = (changed: DeviceState) => changed;
	/** Monotonic: when the next change that may wait is saved at the earliest. */
	let pacedUntilMs = Number.NEGATIVE_INFINITY;
	let cancelPaced: (() => void) | null = null;

	async function write(): Promise<void> {
		cancelPaced?.();
		cancelPaced = null;
		const forgets = mustForget;
		await store.save(state, { forgetsOlder: forgets });
		if (forgets) mustForget = false;
		cancelRetry();
		onSaved(null);
	}

	function tryAgain(error: unknown): void {
		onSaved(toFailure(error));
		retryLater();
	}

	function retryLater(): void {
		cancelRetry();
		if (!closed) cancelRetry = clock.schedule(RETRY_AFTER_MS, () => void write().catch(tryAgain));
	}
	if (isUnwritable) retryLater();

	/** In the background: what changes while one is under way is saved together after it. */
	function save(): void {
		isBehind = isSaving && !closed;
		if (isBehind) return;
		isSaving = true;
		const over = () => {
			isSaving = false;
			if (isBehind) save();
		};
		void write().catch(tryAgain).finally(over);
	}

	function savePaced(): void {
		pacedUntilMs = clock.monotonicMs() + PACE_MS;
		save();
	}

	return {
		get state() {
			return state;
		},
		/** Changes the state for what has happened anyway; saving goes on in the background until it succeeds. */
		keep(change: (state: DeviceState) => DeviceState): void {
			const changed = change(state);
			if (changed === state) return;
			state = stamp(changed);
			save();
		},
		/** As `keep`, for what another may change at any pace: the newest is saved at the latest a second after the one before. */
		keepPaced(change: (state: DeviceState) => DeviceState): void {
			state = stamp(change(state));
			const waitMs = pacedUntilMs - clock.monotonicMs();
			if (waitMs > 0 && !closed) cancelPaced ??= clock.schedule(waitMs, savePaced);
			else savePaced();
		},
		/** What goes along with every other change. */
		stampWith(how: (state: DeviceState) => DeviceState): void {
			stamp = how;
		},
		/** Changes the state for what is only meant to happen if it can be saved. Rejects, and takes it back, if it cannot. */
		async record(change: (state: DeviceState) => DeviceState): Promise<void> {
			const before = state;
			const asked = change(before);
			const changed = asked === before ? before : stamp(asked);
			state = changed;
			try {
				await write();
			} catch (error) {
				if (state === changed) state = before;
				throw error;
			}
		},
		/** Replaces the state and makes sure that no copy on disk still holds what was in it; goes on after a failure. */
		async forget(next: DeviceState): Promise<void> {
			state = stamp(next);
			mustForget = true;
			try {
				await write();
			} catch (error) {
				tryAgain(error);
				throw error;
			}
		},
		close(): void {
			closed = true;
			cancelRetry();
			if (cancelPaced || isBehind || store.isGone?.()) save();
		},
	};
}
