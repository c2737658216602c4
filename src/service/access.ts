/**
 * Who may do what: the table of service-interface as data. What a row cannot say (a Short Token is spent, a Connection is for one device,
 * a key gives only what it holds) is decided where the body is known, in the handlers.
 */
import { AUTHORIZATION_SCHEMES, type AuthorizationScheme } from '../protocol/authorization.ts';
import { Refusal } from './problems.ts';

/** What a credential stands for, and until when; `all` is every permission of the account. */
export interface Grant {
	readonly permissions: 'all' | readonly string[];
	/** Milliseconds since 1970; `null` for a credential without an end. */
	readonly expiresAtMs: number | null;
}

/** Source: service-interface, Authentication: a user "gets all permissions of the account". */
export const ACCOUNT_GRANT: Grant = { permissions: 'all', expiresAtMs: null };

/** What a Connection may do. Names are assumed: none are published. */
export const CONNECTION_PERMISSIONS = ['device_channel:read', 'device_connection:renew'] as const;

/** `yes`, `no`, or only with this permission. */
type Rule = 'yes' | 'no' | `${string}:${string}`;
type Row = Readonly<Record<AuthorizationScheme, Rule>>;

/** The endpoints that ask for a credential. The last two are this service's own, not the interface's. */
export type GuardedEndpoint =
	| 'pairingCode'
	| 'deviceConnection'
	| 'apiKeys'
	| 'sessionStart'
	| 'channel'
	| 'devices'
	| 'embedded';

export type AccessTable = Readonly<Record<GuardedEndpoint, Row>>;

/** Source: service-interface for `deeplink:write` (Endpoints 5); the rest is assumed (service-interface, Who may do what). */
export function accessTable(settings: {
	readonly shortTokenMayCreateKeys: boolean;
	readonly acceptConnectionForRegistration: boolean;
}): AccessTable {
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
			Connection: settings.acceptConnectionForRegistration ? 'device_connection:renew' : 'no',
		},
		apiKeys: { ...operator, Token: settings.shortTokenMayCreateKeys ? 'yes' : 'no', ApiKey: 'yes' },
		sessionStart: { Basic: 'no', Bearer: 'no', Token: 'no', Connection: 'no', ApiKey: 'deeplink:write' },
		channel: { Basic: 'no', Bearer: 'no', Token: 'no', Connection: 'device_channel:read', ApiKey: 'no' },
		devices: operator,
		embedded: { Basic: 'yes', Bearer: 'yes', Token: 'no', Connection: 'no', ApiKey: 'no' },
	};
}

/** @throws Refusal 403 when a valid credential is not allowed here. */
export function checkAccess(row: Row, scheme: AuthorizationScheme, grant: Grant): void {
	const rule = row[scheme];
	if (rule === 'no') {
		throw new Refusal('scheme-not-allowed', `A credential of type ${scheme} may not do this.`);
	}
	if (rule !== 'yes') checkPermissions(grant, [rule]);
}

/** @throws Refusal 403 naming what is missing. */
export function checkPermissions(grant: Grant, desired: readonly string[]): void {
	const held = grant.permissions;
	if (held === 'all') return;
	const missing = desired.filter((permission) => !held.includes(permission));
	if (missing.length > 0) {
		throw new Refusal('permission-missing', `The credential does not hold ${missing.join(', ')}.`);
	}
}

/** The `WWW-Authenticate` value: every scheme that can succeed here. */
export function challengeOf(row: Row): string {
	return AUTHORIZATION_SCHEMES.filter((scheme) => row[scheme] !== 'no')
		.map((scheme) => `${scheme} realm="embedded service"`)
		.join(', ');
}
