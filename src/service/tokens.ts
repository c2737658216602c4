/**
 * API keys and Short Tokens: made, found, expired, spent once; and the links that carry a Short Token. Keeps the
 * fingerprint of a secret, never the secret.
 * Source: service-interface, API key, Authentication, Endpoints 1 and 3, Handoff URL record; form `tr-` and 28 characters
 * from the field; the workflow in a pairing code: assumed (code-workflow).
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { ApiKey } from '../protocol/api-key.ts';
import { DEEP_LINK_PATH, endpointUrl } from '../protocol/endpoints.ts';
import { createExpiringMap } from './expiring-map.ts';
import { ProblemResponse, serviceFull } from './problems.ts';

/** How long a dead secret is remembered, so that a refusal can say why. */
const REMEMBER_DEAD_MS = 3_600_000;
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

/** Random letters and digits, each equally likely. */
export function randomText(length: number): string {
	let text = '';
	while (text.length < length) {
		for (const byte of randomBytes(length)) {
			// 248 is the largest multiple of 62 in a byte: more would favour the first letters.
			if (byte < 248 && text.length < length) text += ALPHABET[byte % 62];
		}
	}
	return text;
}

/** What a credential stands for, and until when; `all` is every permission of the account. */
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

export interface NewApiKey {
	readonly name: string;
	readonly permissions: readonly string[];
	/** Milliseconds since 1970; `null`: never. */
	readonly expiresAtMs: number | null;
	/** Default: generated. */
	readonly token?: string | undefined;
}

export interface ApiKeys {
	/** @throws ProblemResponse 503 `service-full`. */
	create(key: NewApiKey): ApiKey;
	/** @throws ProblemResponse 401 `credential-unknown` or `api-key-expired`. */
	find(token: string): Grant;
}

export function createApiKeys(limit: number, now: () => number): ApiKeys {
	const grants = createExpiringMap<Grant>(limit, now);
	return {
		create({ name, permissions, expiresAtMs, token = `ak-${randomText(40)}` }) {
			const held = [...new Set(permissions)];
			const forgetAtMs = expiresAtMs === null ? Number.POSITIVE_INFINITY : expiresAtMs + REMEMBER_DEAD_MS;
			if (!grants.add(fingerprint(token), { permissions: held, expiresAtMs }, forgetAtMs))
				throw serviceFull('API keys');
			const expiry = expiresAtMs === null ? {} : { expiresAt: new Date(expiresAtMs).toISOString() };
			return { id: `key-${randomText(12)}`, token, name, permissions: held, ...expiry };
		},
		find(token) {
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

export interface ShortTokens {
	/** @throws ProblemResponse 503 `service-full`. */
	issue(shortToken: ShortToken): string;
	/** Looks without spending. @throws ProblemResponse 401 `token-unknown`, `token-spent` or `token-expired`. */
	find(token: string): ShortToken;
	/** Spends it: of any number of callers, one returns. @throws ProblemResponse as {@link find} does. */
	spend(token: string): void;
}

export function createShortTokens(limit: number, now: () => number): ShortTokens {
	const issued = createExpiringMap<{ readonly shortToken: ShortToken; spent: boolean }>(limit, now);

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

export interface DeepLink {
	readonly url: string;
	readonly token: string;
	/** ISO 8601. */
	readonly createdAt: string;
	/** ISO 8601. */
	readonly expiresAt: string;
}

/**
 * The link around a Short Token. A hand-off names its session, a pairing code its workflow.
 * @param workflowId the one to be named; `null` for none.
 */
export function buildDeepLink(
	baseUrl: string,
	nowMs: number,
	token: string,
	{ sessionId, expiresAtMs }: Pick<ShortToken, 'sessionId' | 'expiresAtMs'>,
	workflowId: string | null,
): DeepLink {
	// URLSearchParams would write the space as `+`; the published form has `%20`.
	const parts = [`authorization=Token%20${token}`];
	if (sessionId !== null) parts.push(`sessionId=${sessionId}`);
	else if (workflowId !== null) parts.push(`workflowId=${encodeURIComponent(workflowId)}`);
	return {
		url: `${endpointUrl(baseUrl, DEEP_LINK_PATH).href}?${parts.join('&')}`,
		token,
		createdAt: new Date(nowMs).toISOString(),
		expiresAt: new Date(expiresAtMs).toISOString(),
	};
}
