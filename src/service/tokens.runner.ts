/**
 * API keys and Short Tokens: made, found, expired, spent once. Keeps the fingerprint of a secret, never the secret.
 * Source: service-interface, API key, Authentication, Endpoints 1 and 3; form `tr-` and 28 characters
 * from the field; the workflow in a pairing code: assumed (code-workflow).
 */
import { createHash, randomInt, timingSafeEqual } from 'node:crypto';
import type { ApiKey } from '../protocol/api-key.ts';
import { createExpiringMap } from './expiring-map.ts';
import type { InitialApiKey } from './options.runner.ts';
import { ProblemResponse, serviceFull } from './problems.ts';

/** How long a dead secret is remembered, so that a refusal can say why. */
const REMEMBER_DEAD_MS = 3_600_000;
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

/** Random letters and digits, each equally likely. */
export function randomText(length: number): string {
	return Array.from({ length }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');
}

/** The rights behind a credential, and until when; `all` is every permission of the account. */
export interface Grant {
	readonly permissions: 'all' | readonly string[];
	/** Milliseconds since 1970; `null` for a credential without an end. */
	readonly expiresAtMs: number | null;
}

const digest = (text: string) => createHash('sha256').update(text).digest();

/** Compares two secrets in a time that does not depend on where they differ. */
export function isSameSecret(a: string, b: string): boolean {
	return timingSafeEqual(digest(a), digest(b));
}

/** What a lookup table may hold; it also takes the timing out of the lookup. */
const fingerprint = (secret: string) => digest(secret).toString('hex');

export type ApiKeys = ReturnType<typeof createApiKeys>;

export function createApiKeys(limit: number, now: () => number) {
	const grants = createExpiringMap<Grant>(limit, now);
	return {
		/** @throws ProblemResponse 503 `service-full`. */
		create(
			{ name, permissions, token = `ak-${randomText(40)}` }: Omit<InitialApiKey, 'ttl'>,
			expiresAtMs: number | null,
		): ApiKey {
			const held = [...new Set(permissions)];
			const forgetAtMs = expiresAtMs === null ? Number.POSITIVE_INFINITY : expiresAtMs + REMEMBER_DEAD_MS;
			if (!grants.add(fingerprint(token), { permissions: held, expiresAtMs }, forgetAtMs))
				throw serviceFull('API keys');
			const expiry = expiresAtMs === null ? {} : { expiresAt: new Date(expiresAtMs).toISOString() };
			return { id: `key-${randomText(12)}`, token, name, permissions: held, ...expiry };
		},
		/** @throws ProblemResponse 401 `credential-unknown` or `api-key-expired`. */
		find(token: string): Grant {
			const grant = grants.get(fingerprint(token));
			if (!grant)
				throw new ProblemResponse('credential-unknown', 'This service has not issued this API key, or long ago.');
			if (grant.expiresAtMs === null || grant.expiresAtMs > now()) return grant;
			const expiredAt = new Date(grant.expiresAtMs).toISOString();
			throw new ProblemResponse('api-key-expired', `This API key expired at ${expiredAt}.`);
		},
	};
}

export interface ShortToken {
	/** The workflows it may register for; `null` for any. */
	readonly workflowIds: readonly string[] | null;
	/** The session that it continues, for one from a hand-off. */
	readonly sessionId: string | null;
	readonly expiresAtMs: number;
	/** What its issuer held: an API key made with it gets no more. */
	readonly issuerGrant: Grant;
}

export type ShortTokens = ReturnType<typeof createShortTokens>;

export function createShortTokens(limit: number, now: () => number) {
	const issued = createExpiringMap<{ readonly shortToken: ShortToken; spent: boolean }>(limit, now);

	/** @throws ProblemResponse 401 `token-unknown`, `token-spent` or `token-expired`. */
	function findLive(token: string) {
		const entry = issued.get(fingerprint(token));
		if (!entry)
			throw new ProblemResponse('token-unknown', 'This service has not issued this Short Token, or long ago.');
		if (entry.spent) throw new ProblemResponse('token-spent', 'This Short Token was used before; it works only once.');
		const { expiresAtMs } = entry.shortToken;
		if (expiresAtMs > now()) return entry;
		const expiredAt = new Date(expiresAtMs).toISOString();
		throw new ProblemResponse('token-expired', `This Short Token expired at ${expiredAt}.`);
	}

	return {
		/** @throws ProblemResponse 503 `service-full`. */
		issue(shortToken: ShortToken): string {
			const token = `tr-${randomText(28)}`;
			const forgetAtMs = shortToken.expiresAtMs + REMEMBER_DEAD_MS;
			if (!issued.add(fingerprint(token), { shortToken, spent: false }, forgetAtMs)) throw serviceFull('Short Tokens');
			return token;
		},
		/** Looks without spending. */
		find: (token: string): ShortToken => findLive(token).shortToken,
		/** Of any number of callers, one returns. */
		spend(token: string): void {
			findLive(token).spent = true;
		},
	};
}
