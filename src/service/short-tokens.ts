/**
 * Short Tokens: issued, found, spent once. Owns what each is good for; knows neither links nor pictures.
 * Source: service-interface, Authentication ("one-time, short-lived"); form `tr-` and 28 characters from the field.
 */
import type { Grant } from './access.ts';
import { createExpiringMap } from './expiring-map.ts';
import { Refusal, serviceFull } from './problems.ts';
import { fingerprint, randomText } from './secrets.ts';

/** How long a dead token is remembered, so that its holder is told why it is refused. */
const REMEMBER_DEAD_MS = 3_600_000;

export interface ShortToken {
	/** The workflows it may register for; `null` for any. */
	readonly workflowIds: readonly string[] | null;
	/** The session that it continues, for one from a hand-off. */
	readonly sessionId: string | null;
	readonly expiresAtMs: number;
	/** What its issuer held: an API key made with it gets no more. */
	readonly issuerGrant: Grant;
}

export interface ShortTokens {
	/** @throws Refusal 503 `service-full`. */
	issue(shortToken: ShortToken): string;
	/** Looks without spending. @throws Refusal 401 `token-unknown`, `token-spent` or `token-expired`. */
	find(token: string): ShortToken;
	/** Spends it: of any number of callers, one returns. @throws Refusal as {@link find} does. */
	spend(token: string): void;
}

export function createShortTokens(limit: number, now: () => number): ShortTokens {
	const issued = createExpiringMap<{ readonly shortToken: ShortToken; spent: boolean }>(limit, now);

	function findLive(token: string) {
		const entry = issued.get(fingerprint(token));
		if (!entry) throw new Refusal('token-unknown', 'This service has not issued this Short Token, or long ago.');
		if (entry.spent) throw new Refusal('token-spent', 'This Short Token was used before; it works only once.');
		const { expiresAtMs } = entry.shortToken;
		if (expiresAtMs <= now()) {
			throw new Refusal('token-expired', `This Short Token expired at ${new Date(expiresAtMs).toISOString()}.`);
		}
		return entry;
	}

	return {
		issue(shortToken) {
			const token = `tr-${randomText(28)}`;
			const forgetAtMs = shortToken.expiresAtMs + REMEMBER_DEAD_MS;
			if (!issued.add(fingerprint(token), { shortToken, spent: false }, forgetAtMs)) throw serviceFull('Short Tokens');
			return token;
		},
		find: (token) => findLive(token).shortToken,
		spend(token) {
			findLive(token).spent = true;
		},
	};
}
