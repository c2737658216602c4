/** The embedded service's options, with the assumption that each default stands for. */
import { networkInterfaces } from 'node:os';
import type { Transcript } from '../base/transcript.ts';
import { isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { type Dialect, type DialectOptions, parseDialect } from './dialect.ts';

/** Which channels: all that satisfy every given field. */
export interface ChannelFilter {
	readonly deviceId?: string | undefined;
	readonly workflowId?: string | undefined;
}

export interface BasicUser {
	readonly username: string;
	readonly password: string;
}

/** A key that exists from the start. */
export interface InitialApiKey {
	readonly name: string;
	readonly permissions: readonly string[];
	/** Default: generated. */
	readonly token?: string | undefined;
	/** Seconds; left out, it never expires. */
	readonly ttl?: number | undefined;
}

/** The options that have a default of their own. */
const DEFAULTS = {
	/** Address to listen on. Anything but this machine itself needs `allowNonLoopback`. */
	host: '127.0.0.1',
	/** 0 to 65,535; 0 takes a free one. */
	port: 0,
	/** A trial service must not stand open to a network by accident. */
	allowNonLoopback: false,
	/** Path prefix of every endpoint, such as `/idv`. */
	basePath: '',
	/** Keys beside the one in `credentials.apiKey`. */
	apiKeys: [] as readonly InitialApiKey[],
	/** Source: assumed (short-token-life). */
	shortTokenTtlSeconds: 300,
	/** Source: assumed (connection-life). */
	connectionTtlSeconds: 86_400,
	/** Whether a live Connection may register again for its own device: assumed (re-registration). */
	acceptConnectionForRegistration: true,
	/** Revokes the device's older Connections and closes their channels with 4409: assumed (connection-life). */
	endOldChannelOnRegistration: false,
	/**
	 * A device has one channel at a time: a second one is refused with 409, until so many seconds after the first was lost without a
	 * goodbye. `null`: as many as it opens.
	 */
	oneChannelHeldSeconds: null as number | null,
	/** Whether a device may register with no credential at all: assumed (registering-credentials). */
	selfRegistration: false,
	/**
	 * Whether a Short Token may create one API key, with no more than its issuer held, as in the published example. Another
	 * sentence of the interface says "only for the initial device connection".
	 */
	shortTokenKeys: true,
	/** Milliseconds since 1970. After a jump of a stepped clock call `clockMoved()`. */
	now: () => Date.now(),
	/** Devices remembered. Twice as many channels may be open. */
	maxDevices: 20_000,
	/** Short Tokens remembered, spent and freshly expired ones included. */
	maxShortTokens: 20_000,
	maxApiKeys: 1000,
	/** Newest entries kept in `requests`. */
	maxLoggedRequests: 1000,
	/** Bytes that may wait for one channel before it is cut. */
	maxBufferedBytes: 16 * 1024 * 1024,
};

interface OtherOptions {
	/** Takes down what is said on the wire; default: nothing does. */
	readonly transcript?: Transcript | undefined;
	/** Base URL for links; default where it listens. Required behind a proxy. */
	readonly publicUrl?: string | undefined;
	/** PEM texts; default plain HTTP. */
	readonly tls?: { readonly key: string; readonly cert: string } | undefined;
	/** Default: one user `operator` with a generated password. */
	readonly basicUsers?: readonly BasicUser[] | undefined;
	/** The one access token that is accepted; default generated. */
	readonly bearerToken?: string | undefined;
	/** The key with every known permission that stands in `credentials.apiKey`; default: generated. */
	readonly trialApiKey?: string | undefined;
	/** HMAC key that signs Connections, at least 32 bytes; default random. Services that share it accept each other's. */
	readonly signingKey?: Uint8Array | undefined;
	/** Workflows that exist; default: every id does. Others are refused with 404 `workflow-unknown`. */
	readonly workflows?: readonly string[] | undefined;
}

export type ServiceOptions = OtherOptions & {
	readonly [Name in keyof typeof DEFAULTS]?: (typeof DEFAULTS)[Name] | undefined;
} & {
	/** How this service differs from what the product assumes; default: not at all. */
	readonly dialect?: DialectOptions | undefined;
};

export type ServiceSettings = Readonly<typeof DEFAULTS> & OtherOptions & { readonly dialect: Dialect };

/** @throws Error for an address that is not this machine without `allowNonLoopback`, and values that cannot work. */
export function resolveOptions(options: ServiceOptions): ServiceSettings {
	const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
	const settings: ServiceSettings = { ...DEFAULTS, ...given, dialect: parseDialect(options.dialect) };
	const basePath = settings.basePath.replace(/\/+$/, '');
	if (basePath !== '' && !basePath.startsWith('/')) throw new Error('basePath must begin with a slash.');
	if (!isLoopback(urlOf(settings.host, 0, false)) && !settings.allowNonLoopback)
		throw new Error(`The embedded service does not listen on ${settings.host}: it is for trials on this machine.`);
	if (settings.signingKey && settings.signingKey.length < 32)
		throw new Error('signingKey must have at least 32 bytes.');
	if (settings.publicUrl !== undefined && normalizeBaseUrl(settings.publicUrl) === null)
		throw new Error('publicUrl must be an http or https address without user, query or fragment.');
	for (const name of ['shortTokenTtlSeconds', 'connectionTtlSeconds'] as const)
		if (!(settings[name] >= 1)) throw new Error(`${name} must be at least 1 second.`);
	const { workflowNames } = settings.dialect;
	const workflows = settings.workflows ?? (workflowNames ? Object.keys(workflowNames) : undefined);
	return { ...settings, basePath, workflows };
}

/** The URL of a host as it is given to `listen`: an IPv6 address gets its brackets. */
export function urlOf(host: string, port: number, secure: boolean): string {
	return `${secure ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Addresses that mean every interface of this machine, and none that another machine could use. */
export const isWildcard = (host: string) => host === '0.0.0.0' || host === '::';

/** A host by which others can reach it: for a wildcard the first address of an interface, IPv4 before IPv6. */
export function reachableHost(host: string): string {
	if (!isWildcard(host)) return host;
	const addresses = Object.values(networkInterfaces())
		.flatMap((list) => list ?? [])
		.filter(({ internal, scopeid = 0 }) => !internal && scopeid === 0);
	const [first] = addresses.sort((a, b) => a.family.localeCompare(b.family));
	return first?.address ?? '127.0.0.1';
}
