/** A finding of the doctor on the way to the service in the light of what the agent tells, or would tell. Pure. */
import { type ErrorCode, type Failure, retryClassOf } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { afterFailure, NO_FAILURES } from '../connection/backoff.ts';
import { asPassing } from '../connection/evidence.ts';
import type { Status } from '../protocol/local-api.ts';
import type { Finding } from './checks.ts';

/** After the line was made: the agent's channel goes the same way, which is slow. A line that cannot be made may be dead. */
const LATE: ReadonlySet<ErrorCode> = new Set(['handshake-timeout', 'request-timeout']);
const SLOW =
	'The agent is still online, by its earlier channel: the way to the service is slow or busy, or loses large packets. Look again in a minute; if it repeats, have the line measured.';
const STILL_OPEN = "The agent's channel from before is still open; within a minute it shows whether that one works.";

export function besideAgent(found: Finding, { state, problem }: Pick<Status, 'state' | 'problem'>): Finding {
	if (found.status !== 'failed') return found;
	// It knows whether the device was online lately, and who has to move first, therefore.
	if (problem?.code === found.code) return { ...found, remedy: problem?.remedy ?? found.remedy };
	if (state !== 'online') return found;
	if (found.code === 'connect-timeout' || found.params?.['reason'] === 'stalled')
		return { ...found, message: joinSentences(found.message, STILL_OPEN) };
	return LATE.has(found.code) ? { ...found, status: 'warning', remedy: SLOW } : found;
}

/** While no agent runs: as it would tell its first attempt. */
export function asFirstMet(met: Failure, wasOnline: boolean): Failure {
	const first = { retryClass: retryClassOf(met.code), atMs: 0, timedOut: false, serviceRestarts: false, wasOnline };
	return asPassing(
		met,
		afterFailure(NO_FAILURES, first, () => 0),
	);
}
