/**
 * Which credential may do what, as a table, and the check of a presented credential against it. Spends nothing. The
 * handlers decide the rest, where the body is known: a Short Token is spent, a Connection is for one device, a key gives only
 * its own permissions.
 */
import { AUTHORIZATION_SCHEMES, type AuthorizationScheme } from '../protocol/authorization.ts';
import type { ConnectionClaims, ConnectionTokens } from './connection-tokens.runner.ts';
import type { DeviceRegistry } from './device-registry.ts';
import type { Presented } from './http-call.runner.ts';
import type { BasicUser, ServiceSettings } from './options.runner.ts';
import { ProblemResponse } from './problems.ts';
import { type ApiKeys, type Grant, isSameSecret, type ShortToken, type ShortTokens } from './tokens.runner.ts';

/** Source: service-interface, Authentication: a user "gets all permissions of the account". */
export const ACCOUNT_GRANT: Grant = { permissions: 'all', expiresAtMs: null };

/** `yes`, `no`, or only with this permission. */
type Rule = 'yes' | 'no' | `${string}:${string}`;
type Row = Readonly<Record<AuthorizationScheme, Rule>>;
/** The endpoints that require a credential. */
type GuardedEndpoint = keyof ReturnType<typeof accessTable>;

/** Source: service-interface for `deeplink:write` (Endpoints 5); the rest: assumed (permissions). */
function accessTable({ shortTokenKeys, acceptConnectionForRegistration }: ServiceSettings) {
	const operator: Row = {
		Basic: 'yes',
		Bearer: 'yes',
		Token: 'no',
		Connection: 'no',
		ApiKey: 'ephemeral_device:write',
	};
	return {
		pairingCode: operator,
		deviceConnection: {
			...operator,
			Token: 'yes',
			Connection: acceptConnectionForRegistration ? 'device_connection:renew' : 'no',
		},
		apiKeys: { ...operator, Token: shortTokenKeys ? 'yes' : 'no', ApiKey: 'yes' },
		sessionStart: { Basic: 'no', Bearer: 'no', Token: 'no', Connection: 'no', ApiKey: 'deeplink:write' },
		channel: { Basic: 'no', Bearer: 'no', Token: 'no', Connection: 'device_channel:read', ApiKey: 'no' },
		devices: operator,
		/** An example of what kiosk software asks its service for through the agent. */
		session: { ...operator, Connection: 'yes', ApiKey: 'deeplink:write' },
		/** This one, `devices` and `session` are this service's own, not the interface's. */
		embedded: { Basic: 'yes', Bearer: 'yes', Token: 'no', Connection: 'no', ApiKey: 'no' },
	} satisfies Record<string, Row>;
}

/** @throws ProblemResponse 403 naming what is missing. */
export function checkPermissions(grant: Grant, desired: readonly string[]): void {
	const held = grant.permissions;
	if (held === 'all') return;
	const missing = desired.filter((permission) => !held.includes(permission));
	if (missing.length > 0)
		throw new ProblemResponse('permission-missing', `The credential does not hold ${missing.join(', ')}.`);
}

/** The `WWW-Authenticate` value: every scheme that can succeed here. */
function challengeOf(row: Row): string {
	return AUTHORIZATION_SCHEMES.filter((scheme) => row[scheme] !== 'no')
		.map((scheme) => `${scheme} realm="embedded service"`)
		.join(', ');
}

/** The holder of a checked credential. `grant` is the most that it may pass on. */
export type Principal =
	| { readonly scheme: 'Basic' | 'Bearer' | 'ApiKey'; readonly grant: Grant }
	| { readonly scheme: 'Token'; readonly grant: Grant; readonly token: string; readonly shortToken: ShortToken }
	| { readonly scheme: 'Connection'; readonly grant: Grant; readonly claims: ConnectionClaims };

export interface CredentialSources {
	readonly settings: ServiceSettings;
	readonly users: readonly BasicUser[];
	readonly bearerToken: string;
	readonly apiKeys: ApiKeys;
	readonly shortTokens: ShortTokens;
	readonly connectionTokens: ConnectionTokens;
	readonly registry: DeviceRegistry;
}

/** @throws ProblemResponse 401 with `WWW-Authenticate`, or the dialect's other status for it; 403. */
export async function authenticate(
	sources: CredentialSources,
	presented: Presented,
	endpoint: GuardedEndpoint,
): Promise<Principal> {
	const row: Row = accessTable(sources.settings)[endpoint];
	try {
		const principal = await identify(sources, presented);
		const rule = row[principal.scheme];
		if (rule === 'no')
			throw new ProblemResponse('scheme-not-allowed', `A credential of type ${principal.scheme} may not do this.`);
		if (rule !== 'yes') checkPermissions(principal.grant, [rule]);
		return principal;
	} catch (error) {
		if (!(error instanceof ProblemResponse) || error.problem.status !== 401) throw error;
		const { refusalStatus, channelRefusalStatus } = sources.settings.dialect;
		const status = endpoint === 'channel' ? channelRefusalStatus : refusalStatus;
		const headers = status === 401 ? { 'www-authenticate': challengeOf(row) } : {};
		throw new ProblemResponse(error.problem.code, error.message, { headers, status });
	}
}

async function identify(sources: CredentialSources, authorization: Presented): Promise<Principal> {
	if (authorization === 'none') throw new ProblemResponse('credential-missing', 'This endpoint requires a credential.');
	if (authorization === 'malformed')
		throw new ProblemResponse(
			'credential-malformed',
			'The credential is not one "<scheme> <credential>" of a known scheme.',
		);
	switch (authorization.scheme) {
		case 'Basic': {
			// Every user is compared in full, so that the time tells nothing.
			const known = sources.users.filter((user) => {
				const isSameName = isSameSecret(user.username, authorization.username);
				return isSameSecret(user.password, authorization.password) && isSameName;
			});
			if (known.length === 0)
				throw new ProblemResponse('credential-unknown', 'The user name or the password is wrong.');
			return { scheme: 'Basic', grant: ACCOUNT_GRANT };
		}
		case 'Bearer':
			if (!isSameSecret(sources.bearerToken, authorization.credential))
				throw new ProblemResponse('credential-unknown', 'The access token is not known.');
			return { scheme: 'Bearer', grant: ACCOUNT_GRANT };
		case 'ApiKey':
			return { scheme: 'ApiKey', grant: sources.apiKeys.find(authorization.credential) };
		case 'Token': {
			const shortToken = sources.shortTokens.find(authorization.credential);
			return { scheme: 'Token', grant: shortToken.issuerGrant, token: authorization.credential, shortToken };
		}
		case 'Connection': {
			const claims = await sources.connectionTokens.verify(authorization.credential);
			if (sources.registry.isRevoked(claims.jti))
				throw new ProblemResponse('connection-revoked', 'This Connection was revoked.');
			return {
				scheme: 'Connection',
				grant: { permissions: claims.permissions, expiresAtMs: claims.exp * 1000 },
				claims,
			};
		}
	}
}
