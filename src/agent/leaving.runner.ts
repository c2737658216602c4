/**
 * Leaving a service takes along all that came from it: its events, older copies of its Connection, its confirmed origin and an
 * answer set aside. Notices a move when the new service is online; what that one has sent meanwhile stays.
 */
import { toFailure } from '../base/errors.ts';
import { allBut } from '../events/erasure.ts';
import type { Pairing } from '../pairing/pairing.runner.ts';
import { type DeviceState, holdsOthers, withOnlyService } from '../state/device-state.ts';
import type { Base } from './base.runner.ts';

export type Leaving = ReturnType<typeof createLeaving>;

export function createLeaving({
	events,
	stateWriter,
	log,
	warnings,
	dropKept,
}: Pick<Base, 'events' | 'stateWriter' | 'log' | 'warnings'> & { readonly dropKept: Pairing['dropKept'] }) {
	/** Events of the service that the device is moving to, by its base URL. */
	const arrived = new Map<string, Set<string>>();
	let done = Promise.resolve();

	async function leave(state: DeviceState, ids: ReadonlySet<string> | null, more: () => Promise<void>): Promise<void> {
		const erase = async () => void (ids && events.erase(allBut(ids)));
		// One that fails does not keep the others from being done.
		const steps = await Promise.allSettled([erase(), stateWriter.forget(state), more()]);
		const failed = steps.find((step) => step.status === 'rejected');
		if (failed) throw failed.reason;
	}

	return {
		/** Runs what appends events of this service, and remembers which they are. */
		receive<Result>(baseUrl: string, append: () => Result): Result {
			const before = events.appendedId;
			const result = append();
			const { appendedId } = events;
			if (appendedId === null || appendedId === before) return result;
			const ids = arrived.get(baseUrl) ?? new Set();
			arrived.set(baseUrl, ids.add(appendedId));
			return result;
		},
		/** From now on the device belongs to this service alone. */
		belongTo(baseUrl: string): void {
			const { state } = stateWriter;
			const ids = arrived.get(baseUrl) ?? new Set();
			arrived.clear();
			if (!holdsOthers(state, baseUrl)) return;
			const hasMoved = state.connections.some((saved) => saved.baseUrl !== baseUrl);
			const keepsEvents = !hasMoved || state.pairing?.keepsEvents === true;
			if (hasMoved) log.info('left the service of before', { host: new URL(baseUrl).host });
			done = leave(withOnlyService(state, baseUrl), keepsEvents ? null : ids, async () => {}).then(
				() => warnings.set('leaving', null),
				(error) => warnings.set('leaving', toFailure(error)),
			);
		},
		/** Resolves when what was left is gone. */
		get done() {
			return done;
		},
		/** @throws AgentError `state-unwritable` when something of the service may be left. */
		unpair: (forgotten: DeviceState, keepEvents: boolean) => leave(forgotten, keepEvents ? null : new Set(), dropKept),
	};
}
