/** Words for versions that did not work here: for the status, a warning, and `update show`. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import type { Status } from '../protocol/local-api.ts';
import type { Fault } from './judge.ts';
import type { Outcomes, TakenBack } from './record.ts';

export const reportTakenBack = ({ takenBack }: Outcomes): NonNullable<Status['updates']>['takenBack'] =>
	takenBack.map(({ version, at, fault }) => ({ version, at, fault }));

/** The version that was taken back last, while the device has no newer one that works; `null` for none. */
function lastTakenBack({ takenBack, kept }: Outcomes): TakenBack | null {
	const last = takenBack.at(-1);
	return last && (kept === null || kept === last.by) ? last : null;
}

const FAULT_WORDS: Readonly<Record<Fault, string>> = {
	crashes: 'it died three times',
	reboots: 'the device was started three times without it coming online',
	'not-ready': 'it did not answer',
	'not-online': 'it did not come or stay online, although the version before was',
	'no-heartbeat': 'it sent no heartbeat, or had no answer to a ping',
	unfinished: 'a script of its package failed',
	interrupted: 'its files did not come in full',
	'service-away': 'the service was away',
};

/** Why a version was taken back, as the end of a sentence. */
export const inWords = (fault: string): string => (FAULT_WORDS as Readonly<Record<string, string>>)[fault] ?? fault;

/** What took the place of a version: another build of it has the same name. */
export const successor = (version: string, by: string): string => (by === version ? 'The build from before' : by);

/** The warning in the status; `null` for none. */
export function warningOf(outcomes: Outcomes): Failure | null {
	const last = lastTakenBack(outcomes);
	if (!last) return null;
	const { version, by, at, fault } = last;
	const message = `Version ${version} was taken back on ${at}: ${inWords(fault)}. ${successor(version, by)} took its place.`;
	return failure('update-taken-back', message, { params: { version, fault } });
}
