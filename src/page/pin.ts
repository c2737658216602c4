/**
 * The PIN of the page: whether pairing there needs one, and the pauses after wrong ones. They grow, end by time alone, and are
 * not made longer by tries that come meanwhile, so that the right PIN is never locked out for good. Pure; time is handed in.
 */
import { type Standing, takesRescue } from '../pairing/rescue.ts';
import { isPin } from '../settings/value-schemas.ts';

/** `setting`: the device has no PIN and knows no service, or not which customer's it is: a person here could be any person. */
export type PinNeed = 'nothing' | 'pin' | 'longerPin' | 'setting';

/**
 * @param knowsService whether `baseUrl` or `pairing.trustedOrigins` say where this device belongs.
 * @param isAttested whether its Connection names the customer of the service.
 */
export function pinNeed(pin: string | null, standing: Standing, knowsService: boolean, isAttested: boolean): PinNeed {
	if (pin !== null) return isPin(pin) ? 'pin' : 'longerPin';
	// A rescue cannot change the service, and the customer only where a Connection does not name it.
	return (takesRescue(standing, 'person') ? isAttested : knowsService) ? 'nothing' : 'setting';
}

export interface PinTries {
	readonly wrong: number;
	/** Monotonic. */
	readonly lastMs: number;
}

export const NO_TRIES: PinTries = { wrong: 0, lastMs: 0 };
/** So many slips cost nothing. */
export const FREE_TRIES = 3;
export const FIRST_PAUSE_MS = 5_000;
export const LONGEST_PAUSE_MS = 300_000;
/** After so long without a try the pauses begin again from the first. */
export const FORGOTTEN_AFTER_MS = 3_600_000;

/** How long no PIN is looked at any more, in milliseconds. */
export function pauseLeftMs({ wrong, lastMs }: PinTries, nowMs: number): number {
	if (wrong < FREE_TRIES) return 0;
	const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(wrong - FREE_TRIES, 20));
	return Math.max(0, lastMs + pauseMs - nowMs);
}

export function afterWrongPin({ wrong, lastMs }: PinTries, nowMs: number): PinTries {
	return { wrong: nowMs - lastMs > FORGOTTEN_AFTER_MS ? 1 : wrong + 1, lastMs: nowMs };
}
