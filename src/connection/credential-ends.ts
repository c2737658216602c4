/** When the credential and the client certificate of the settings begin and end: told before it is too late. Pure. */
import { type Failure, failure } from '../base/errors.ts';

export interface CredentialEnd {
	/** `The client certificate`. */
	readonly what: string;
	readonly path: string;
	/** Milliseconds since 1970; left out where it does not say so. */
	readonly fromMs?: number | undefined;
	readonly atMs?: number | undefined;
}

const DAY_MS = 86_400_000;
/** So long before its end it is told. */
const BEFORE_MS = 30 * DAY_MS;

/** One warning for each that is not valid yet, ends within 30 days or has ended. */
export function tellEnds(ends: readonly CredentialEnd[], nowMs: number): Failure[] {
	return ends.flatMap(({ what, path, fromMs = nowMs, atMs = Number.POSITIVE_INFINITY }) => {
		if (fromMs > nowMs) {
			const [from, now] = [fromMs, nowMs].map((ms) => new Date(ms).toISOString());
			const message = `${what} in ${path} is not valid before ${from}, and the clock of this device shows ${now}.`;
			const remedy = 'Set the clock if it is wrong (timedatectl); otherwise put one that is valid now into the file.';
			return [failure('settings-invalid', message, { remedy, params: { file: path, from: `${from}` } })];
		}
		if (atMs - nowMs > BEFORE_MS) return [];
		const at = new Date(atMs).toISOString();
		const days = Math.floor((atMs - nowMs) / DAY_MS);
		const words = atMs <= nowMs ? `has ended at ${at}` : `ends at ${at}`;
		return [failure('credential-ending', `${what} in ${path} ${words}.`, { params: { path, at, days } })];
	});
}
