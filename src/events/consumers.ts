/** The consumers of events: names, the position that each has acknowledged, and how many there may be. No I/O. */
import { AgentError } from '../base/errors.ts';
import { OWN_NAME } from '../protocol/local-api.ts';
import type { Position } from './transaction.ts';

/** Named consumers, at most. A new one takes the place of one that has been silent for the whole retention time. */
export const MAX_CONSUMERS = 128;
/** Of them for one application of the applications file. */
const MAX_OWN_CONSUMERS = 6;

/** @param silentMs a consumer that has been silent for so long may be replaced: nothing is kept for it any more. */
export function createConsumers(wallMs: () => number, silentMs: () => number) {
	const positions = new Map<string, Position>();
	const gone = new Set<string>();

	function makeRoom(): void {
		if (positions.size < MAX_CONSUMERS) return;
		const [silent] = [...positions].sort(([, a], [, b]) => a.seenMs - b.seenMs);
		if (!silent || wallMs() - silent[1].seenMs < silentMs())
			throw new AgentError('body-invalid', `There are ${MAX_CONSUMERS} consumers already.`, {
				remedy:
					'Use one name for each application, always the same, and forget names that are out of use: POST /v1/events/forget.',
			});
		positions.delete(silent[0]);
	}

	/** One application never takes the names of the others. */
	function checkShare(name: string): void {
		const own = name.slice(0, name.indexOf(':') + 1);
		if (own === '' || [...positions.keys()].filter((other) => other.startsWith(own)).length < MAX_OWN_CONSUMERS) return;
		throw new AgentError('body-invalid', `This application has ${MAX_OWN_CONSUMERS} consumers already.`, {
			remedy: 'Always use the same names, and forget those that are out of use: POST /v1/events/forget.',
		});
	}

	const consumers = {
		positions: positions as ReadonlyMap<string, Position>,
		/** Set by every change that is worth storing; reset after it is stored. */
		changed: false,
		/** Takes up what was stored; those who are known already stay where they are. No position is beyond `last`. */
		load(stored: ReadonlyMap<string, Position>, last: number): void {
			// A consumer that is not stored yet has to be.
			consumers.changed ||= [...positions.keys()].some((name) => !stored.has(name));
			for (const [name, { number, seenMs }] of stored)
				if (!positions.has(name) && !gone.has(name)) positions.set(name, { number: Math.min(number, last), seenMs });
		},
		/** @throws AgentError `body-invalid` for a bad name, and when there are too many. */
		join(name: string): void {
			if (!OWN_NAME.test(name))
				throw new AgentError('body-invalid', 'The name of a consumer is not valid.', {
					remedy: 'Use 1 to 64 letters, digits, dots, hyphens and underscores.',
				});
			const known = positions.get(name);
			if (!known) checkShare(name);
			if (!known) makeRoom();
			gone.delete(name);
			positions.set(name, { number: 0, ...known, seenMs: wallMs() });
			if (!known) consumers.changed = true;
		},
		/** Moves a known one on, never back. */
		advance(name: string, number: number): void {
			const known = positions.get(name);
			// A repeated acknowledgement is not worth a write.
			if (!known || number <= known.number) return;
			positions.set(name, { number, seenMs: wallMs() });
			consumers.changed = true;
		},
		/** `false` if it was not known. */
		forget(name: string): boolean {
			const isKnown = positions.delete(name);
			if (!consumers.changed) gone.clear();
			gone.add(name);
			consumers.changed ||= isKnown;
			return isKnown;
		},
		/** The number up to which every consumer has acknowledged; -1 without consumers. */
		acknowledgedByAll: () =>
			positions.size === 0 ? -1 : Math.min(...Array.from(positions.values(), ({ number }) => number)),
	};
	return consumers;
}
