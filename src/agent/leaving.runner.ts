/**
 * Leaving a service takes along all that came from it: its events, older copies of its Connection, its confirmed origin and an
 * answer set aside. Notices a move when the new service is online; what that one has sent meanwhile stays.
 */
import { AgentError, toFailure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { allBut, before } from '../events/erasure.ts';
import type { Pairing } from '../pairing/pairing.runner.ts';
import { type DeviceState, holdsOthers, withOnlyService } from '../state/device-state.ts';
import type { Base } from './base.runner.ts';

export type Leaving = ReturnType<typeof createLeaving>;

const STILL_HELD = 'Make room on the disk and leave the agent running: it tries again every minute.';
/** One that fails does not keep the others from being done. */
const failuresOf = (steps: readonly PromiseSettledResult<unknown>[]) =>
	steps.flatMap((step) => (step.status === 'rejected' ? [toFailure(step.reason)] : []));
const TRY_AGAIN_MS = 60_000;

export function createLeaving({
	clock,
	events,
	stateWriter,
	log,
	warnings,
	dropKept,
}: Pick<Base, 'clock' | 'events' | 'stateWriter' | 'log' | 'warnings'> & { readonly dropKept: Pairing['dropKept'] }) {
	/** Events of the service that the device is moving to, by its base URL. */
	const arrived = new Map<string, Set<string>>();
	let done = Promise.resolve();
	let cancelErasing = () => {};

	/** Erases the events that the state marks: tried again until the disk takes it, also after a restart. */
	async function eraseDue(erase = (beforeMs: number) => events.erase(before(beforeMs))): Promise<void> {
		const { eraseBefore } = stateWriter.state;
		if (eraseBefore === null) return;
		cancelErasing();
		const later = () => {
			cancelErasing = clock.schedule(TRY_AGAIN_MS, () => void eraseDue().catch(() => {}));
		};
		try {
			await erase(eraseBefore);
		} catch (error) {
			later();
			throw error;
		}
		const isStill = (state: DeviceState) => state.eraseBefore === eraseBefore;
		await stateWriter.record((state) => (isStill(state) ? { ...state, eraseBefore: null } : state)).catch(later);
	}

	const allOthers = (ids: ReadonlySet<string>) => () => events.erase(allBut(ids));
	void eraseDue().catch(() => {});

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
		/** From now on the device belongs to this service alone, and to the one that it is on its way to. @param wanted its base URL. */
		belongTo(baseUrl: string, wanted = baseUrl): void {
			const { state } = stateWriter;
			const { connections } = state;
			// A newer one of another service is of an address that was only tried.
			const isHere = connections.findIndex((saved) => saved.baseUrl === baseUrl);
			const older = isHere === -1 ? connections : connections.slice(0, isHere);
			const hasMoved = older.some((saved) => saved.baseUrl !== baseUrl);
			// The Connection there may be all that a code has brought.
			if (!hasMoved && wanted !== baseUrl && connections.some((saved) => saved.baseUrl === wanted)) return;
			const ids = arrived.get(baseUrl) ?? new Set();
			arrived.clear();
			if (!holdsOthers(state, baseUrl)) return;
			const keepsEvents = !hasMoved || state.pairing?.keepsEvents === true;
			if (hasMoved) log.info('left the service of before', { host: new URL(baseUrl).host });
			// At once: what arrives from here on stays.
			const eraseBefore = keepsEvents ? null : clock.wallMs() + 1;
			const forgotten = stateWriter.forget({ ...withOnlyService(state, baseUrl), eraseBefore });
			const steps = [eraseDue(allOthers(ids)), forgotten];
			done = Promise.allSettled(steps).then((ended) => warnings.set('leaving', failuresOf(ended)[0] ?? null));
		},
		/** Resolves when what was left is gone. */
		get done() {
			return done;
		},
		/** @throws AgentError `state-unwritable` when something of the service may be left. */
		async unpair(forgotten: DeviceState, keepEvents: boolean): Promise<void> {
			const eraseBefore = keepEvents ? null : clock.wallMs() + 1;
			// The state first: on a full disk the others would take its room.
			const saved = await Promise.allSettled([stateWriter.forget({ ...forgotten, eraseBefore })]);
			const others = await Promise.allSettled([eraseDue(allOthers(new Set())), dropKept()]);
			const [failed] = failuresOf([...saved, ...others]);
			if (!failed) return;
			const { message, params } = failed;
			const said = joinSentences('This device is unpaired, but the disk still holds data of the service', message);
			const remedy =
				failuresOf(saved).length === 0
					? STILL_HELD
					: joinSentences(STILL_HELD, 'Until then a restart brings the pairing back.');
			throw new AgentError('state-unwritable', said, { remedy, ...(params && { params }) });
		},
		close(): void {
			cancelErasing();
		},
	};
}
