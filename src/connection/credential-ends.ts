/** When the credential and the client certificate of the settings end: told before it is too late. Pure. */
import { type Failure, failure } from '../base/errors.ts';

export interface CredentialEnd {
	/** `The client certificate`. */
	readonly what: string;
	readonly path: string;
	/** Milliseconds since 1970. */
	readonly atMs: number;
}

const DAY_MS = 86_400_000;
/** So long before its end it is told. */
const BEFORE_MS = 30 * DAY_MS;

/** One warning for each that ends within 30 days or has ended. */
export function tellEnds(ends: readonly CredentialEnd[], nowMs: number): Failure[] {
	return ends.flatMap(({ what, path, atMs }) => {
		if (atMs - nowMs > BEFORE_MS) return [];
		const at = new Date(atMs).toISOString();
		const days = Math.floor((atMs - nowMs) / DAY_MS);
		const words = atMs <= nowMs ? `has ended at ${at}` : `ends at ${at}`;
		return [failure('credential-ending', `${what} in ${path} ${words}.`, { params: { path, at, days } })];
	});
}
