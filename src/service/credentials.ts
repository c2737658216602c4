/**
 * Turns a presented credential into what it stands for, and checks it against the table. Owns the fixed users and the
 * access token; spends nothing.
 */
import type { Authorization } from '../protocol/authorization.ts';
import {
	ACCOUNT_GRANT,
	type AccessTable,
	challengeOf,
	checkAccess,
	type Grant,
	type GuardedEndpoint,
} from './access.ts';
import type { ApiKeys } from './api-keys.ts';
import type { ConnectionClaims, ConnectionTokens } from './connection-tokens.ts';
import type { DeviceRegistry } from './device-registry.ts';
import type { Presented } from './http-call.ts';
import type { BasicUser } from './options.ts';
import { Refusal } from './problems.ts';
import { isSameSecret } from './secrets.ts';
import type { ShortToken, ShortTokens } from './short-tokens.ts';

/** Who asks. `grant` is what it may pass on. */
export type Principal =
	| { readonly scheme: 'Basic' | 'Bearer' | 'ApiKey'; readonly grant: Grant }
	| { readonly scheme: 'Token'; readonly grant: Grant; readonly token: string; readonly shortToken: ShortToken }
	| { readonly scheme: 'Connection'; readonly grant: Grant; readonly claims: ConnectionClaims };

export interface CredentialSources {
	readonly users: readonly BasicUser[];
	readonly bearerToken: string;
	readonly apiKeys: ApiKeys;
	readonly shortTokens: ShortTokens;
	readonly connectionTokens: ConnectionTokens;
	readonly registry: DeviceRegistry;
	readonly table: AccessTable;
}

/** @throws Refusal 401 with `WWW-Authenticate`, or 403. */
export type Authenticate = (presented: Presented, endpoint: GuardedEndpoint) => Promise<Principal>;

export function createAuthenticate(sources: CredentialSources): Authenticate {
	return async (presented, endpoint) => {
		const row = sources.table[endpoint];
		try {
			if (presented.kind === 'none') throw new Refusal('credential-missing', 'This endpoint wants a credential.');
			if (presented.kind === 'malformed') {
				throw new Refusal(
					'credential-malformed',
					'The credential is not one "<scheme> <credential>" of a known scheme.',
				);
			}
			const principal = await identify(sources, presented.authorization);
			checkAccess(row, principal.scheme, principal.grant);
			return principal;
		} catch (error) {
			if (!(error instanceof Refusal) || error.problem.status !== 401) throw error;
			throw withChallenge(error, challengeOf(row));
		}
	};
}

/** The same refusal with the header that a 401 must have. */
function withChallenge(refusal: Refusal, challenge: string): Refusal {
	return new Refusal(refusal.problem.code, refusal.message, { headers: { 'www-authenticate': challenge } });
}

async function identify(sources: CredentialSources, authorization: Authorization): Promise<Principal> {
	switch (authorization.scheme) {
		case 'Basic': {
			// Every user is compared in full, so that the time tells nothing.
			const known = sources.users.filter((user) => {
				const [name, password] = [
					isSameSecret(user.username, authorization.username),
					isSameSecret(user.password, authorization.password),
				];
				return name && password;
			});
			if (known.length === 0) throw new Refusal('credential-unknown', 'The user name or the password is wrong.');
			return { scheme: 'Basic', grant: ACCOUNT_GRANT };
		}
		case 'Bearer':
			if (!isSameSecret(sources.bearerToken, authorization.credential)) {
				throw new Refusal('credential-unknown', 'The access token is not known.');
			}
			return { scheme: 'Bearer', grant: ACCOUNT_GRANT };
		case 'ApiKey':
			return { scheme: 'ApiKey', grant: sources.apiKeys.find(authorization.credential) };
		case 'Token': {
			const shortToken = sources.shortTokens.find(authorization.credential);
			return { scheme: 'Token', grant: shortToken.issuerGrant, token: authorization.credential, shortToken };
		}
		case 'Connection': {
			const claims = await sources.connectionTokens.verify(authorization.credential);
			if (sources.registry.isRevoked(claims.jti)) {
				throw new Refusal('connection-revoked', 'This Connection was revoked.');
			}
			return {
				scheme: 'Connection',
				grant: { permissions: claims.permissions, expiresAtMs: claims.exp * 1000 },
				claims,
			};
		}
	}
}
