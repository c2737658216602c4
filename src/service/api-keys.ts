/** API keys: created, found, expired. Source: service-interface, API key and Endpoints 3. Keeps no key's token. */
import type { ApiKey } from '../protocol/api-key.ts';
import type { Grant } from './access.ts';
import { createExpiringMap } from './expiring-map.ts';
import { Refusal, serviceFull } from './problems.ts';
import { fingerprint, randomText } from './secrets.ts';

const REMEMBER_DEAD_MS = 3_600_000;

export interface NewApiKey {
	readonly name: string;
	readonly permissions: readonly string[];
	/** Milliseconds since 1970; `null`: never. */
	readonly expiresAtMs: number | null;
	/** Default: generated. */
	readonly token?: string | undefined;
}

export interface ApiKeys {
	/** @throws Refusal 503 `service-full`. */
	create(key: NewApiKey): ApiKey;
	/** @throws Refusal 401 `credential-unknown` or `api-key-expired`. */
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
			if (!grant) throw new Refusal('credential-unknown', 'This service has not issued this API key, or long ago.');
			if (grant.expiresAtMs !== null && grant.expiresAtMs <= now()) {
				throw new Refusal('api-key-expired', `This API key expired at ${new Date(grant.expiresAtMs).toISOString()}.`);
			}
			return grant;
		},
	};
}
