/**
 * The device's durable state in memory, and its way to the disk: every change is kept here at once and saved in order.
 * Never loses a change because a disk is full: what could not be saved is tried again, and the status says so meanwhile.
 */

import type { Clock } from '../base/clock.edge.ts';
import { type Failure, toFailure } from '../base/errors.ts';
import type { DeviceState } from './device-state.ts';
import type { StateStore } from './store.edge.ts';

export interface PersistedState {
	readonly state: DeviceState;
	/** Changes the state for what has happened anyway; saving goes on in the background until it succeeds. */
	keep(change: (state: DeviceState) => DeviceState): void;
	/** Changes the state for what is only meant to happen if it can be saved. Rejects, and takes it back, if it cannot. */
	record(change: (state: DeviceState) => DeviceState): Promise<void>;
	/**
	 * Replaces the state and makes sure that no copy on disk still holds what was in it. Rejects if that fails now; it goes
	 * on in the background until it succeeds.
	 */
	forget(state: DeviceState): Promise<void>;
	/** Stops trying again. */
	close(): void;
}

const RETRY_AFTER_MS = 60_000;

/** @param onSaved told the failure when saving fails, and `null` when the disk is up to date again. */
export function keepPersistedState(
	initial: DeviceState,
	store: Pick<StateStore, 'save' | 'saveAndForget'>,
	clock: Clock,
	onSaved: (failure: Failure | null) => void,
): PersistedState {
	/** Whether an older copy on the disk holds what must be forgotten. */
	let mustForget = false;
	let closed = false;
	let cancelRetry = () => {};

	async function write(): Promise<void> {
		const forgets = mustForget;
		await (forgets ? store.saveAndForget(record.state) : store.save(record.state));
		if (forgets) mustForget = false;
		cancelRetry();
		onSaved(null);
	}

	function tryAgain(error: unknown): void {
		onSaved(toFailure(error));
		cancelRetry();
		if (!closed) cancelRetry = clock.schedule(RETRY_AFTER_MS, () => void write().catch(tryAgain));
	}

	const record: { -readonly [Name in keyof PersistedState]: PersistedState[Name] } = {
		state: initial,
		keep(change) {
			const changed = change(record.state);
			if (changed === record.state) return;
			record.state = changed;
			void write().catch(tryAgain);
		},
		async record(change) {
			const before = record.state;
			const changed = change(before);
			record.state = changed;
			try {
				await write();
			} catch (error) {
				if (record.state === changed) record.state = before;
				throw error;
			}
		},
		async forget(next) {
			record.state = next;
			mustForget = true;
			try {
				await write();
			} catch (error) {
				tryAgain(error);
				throw error;
			}
		},
		close() {
			closed = true;
			cancelRetry();
		},
	};
	return record;
}
