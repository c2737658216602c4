/** The consumers of events: names, the position that each has acknowledged, and how many there may be. No I/O. */
import { AgentError } from '../base/errors.ts';
import { applicationIn, HOOKS_CONSUMER, MAX_APPLICATIONS, OWN_NAME } from '../protocol/local-api.ts';
import type { Position } from './stored-event.ts';

/** Named consumers of all callers on shared sockets, at most. A new one takes the place of one that has been silent for the whole retention time. */
export const MAX_CONSUMERS = 128;
/** Of them for one application of the applications file. */
const MAX_OWN_CONSUMERS = 6;
/** Of all applications of the file, kept for them. */
const OF_APPLICATIONS = MAX_APPLICATIONS * MAX_OWN_CONSUMERS;

export type Consumers = ReturnType<typeof createConsumers>;

/** @param silentMs a consumer that has been silent for so long may be replaced: nothing is kept for it any more. */
export function createConsumers(wallMs: () => number, silentMs: () => number) {
	const positions = new Map<string, Position>();
	const changed = new Set<string>();

	function makeRoom(name: string): void {
		const own = applicationIn(name);
		const beside = [...positions].filter(([other]) => (applicationIn(other) === '') === (own === ''));
		// One application never takes the names of the others.
		const mine = beside.filter(([other]) => other.startsWith(own));
		if (own !== '' && mine.length >= MAX_OWN_CONSUMERS)
			throw tooMany(`This application has ${MAX_OWN_CONSUMERS} consumers already.`);
		const most = own === '' ? MAX_CONSUMERS : OF_APPLICATIONS;
		if (beside.length < most) return;
		const [silent] = beside.sort(([, a], [, b]) => a.seenMs - b.seenMs);
		if (!silent || wallMs() - silent[1].seenMs < silentMs()) throw tooMany(`There are ${most} consumers already.`);
		consumers.forget(silent[0]);
	}

	const consumers = {
		positions: positions as ReadonlyMap<string, Position>,
		/** What is worth storing of the changes since the last call; `null` for one that is forgotten. */
		takeChanges(): Record<string, Position | null> {
			const taken = Object.fromEntries(Array.from(changed, (name) => [name, positions.get(name) ?? null]));
			changed.clear();
			return taken;
		},
		/** Takes up what was stored; those that are known or forgotten already stay so. No position is beyond `last`, and all have acknowledged `done`. */
		load(stored: Readonly<Record<string, Position | null>>, last: number, done = 0): void {
			for (const [name, found] of Object.entries(stored))
				if (found && !positions.has(name) && !changed.has(name))
					positions.set(name, {
						number: Math.min(found.number === 0 ? 0 : Math.max(found.number, done), last),
						seenMs: found.seenMs,
					});
		},
		/** @param number where a new one begins. @throws AgentError `body-invalid` for a bad name, and when there are too many. */
		join(name: string, number = 0): void {
			if (!OWN_NAME.test(name))
				throw new AgentError('body-invalid', 'The name of a consumer is not valid.', {
					remedy: 'Use 1 to 64 letters, digits, dots, hyphens and underscores.',
				});
			const known = positions.get(name);
			if (!known) makeRoom(name);
			positions.set(name, { number, ...known, seenMs: wallMs() });
			if (!known) changed.add(name);
		},
		/** Moves a known one on, never back. */
		advance(name: string, number: number): void {
			const known = positions.get(name);
			// A repeated acknowledgement is not worth a write.
			if (!known || number <= known.number) return;
			positions.set(name, { number, seenMs: wallMs() });
			changed.add(name);
		},
		/** `false` if it was not known. */
		forget(name: string): boolean {
			const isKnown = positions.delete(name);
			if (isKnown) changed.add(name);
			return isKnown;
		},
		/** The number up to which every consumer has acknowledged; -1 without one, for readers that acknowledge nothing: hooks take nothing from them. */
		acknowledgedByAll: () =>
			positions.size === (positions.has(HOOKS_CONSUMER) ? 1 : 0)
				? -1
				: Math.min(...Array.from(positions.values(), ({ number }) => number)),
	};
	return consumers;
}

const tooMany = (message: string) =>
	new AgentError('body-invalid', message, {
		remedy:
			'Use one name for each application, always the same, and forget names that are out of use: POST /v1/events/forget.',
	});
