/** The meaning of consecutive scans: a scanner that still sees a code says nothing new, and a scan confirms nothing. */
import type { ErrorCode, Failure } from '../base/errors.ts';

/** A code must have been away for so long before it counts again, in milliseconds; scanners repeat in 0.5 to 0.8 s. */
export const AWAY_MS = 1000;

/** A scan at a moment of monotonic time. */
export interface SeenScan {
	/** The text that was read: perhaps a secret. */
	readonly text: string;
	readonly atMs: number;
}

/** Whether a scanner still reads the code of before: this is not a new scan. */
export function isStillSeen(last: SeenScan | null, text: string, nowMs: number): boolean {
	return last?.text === text && nowMs - last.atMs < AWAY_MS;
}

/** A refusal that was reported. */
export interface ToldRefusal {
	readonly code: ErrorCode;
	readonly atMs: number;
}

/** Least interval between reports of texts that are not pairing codes, in milliseconds: some devices send unasked. */
export const TELL_EVERY_MS = 3000;

/** Whether the site hears of this refusal: of every one that concerns a pairing code, and of others now and then. */
export function isWorthTelling(told: ToldRefusal | null, { code }: Failure, nowMs: number): boolean {
	return code !== 'not-a-pairing-code' || told?.code !== code || nowMs - told.atMs >= TELL_EVERY_MS;
}
