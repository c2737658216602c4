/** The credentials that settings name: read from their files, named by a hash. The state keeps the one that has worked last. */
import { createHash } from 'node:crypto';
import { AgentError, type Failure, toFailure } from '../base/errors.ts';
import { type Authorization, formatAuthorization, isCredential } from '../protocol/authorization.ts';
import { readTokenTimes } from '../protocol/token-life.ts';
import type { Settings } from './table.ts';

export interface Credentials {
	/** An API key or Basic credential, which may register any number of times. */
	readonly reusable: Authorization | null;
	/** A Connection token that an operator made for this device. */
	readonly provisioned: string | null;
	/** Names whichever of them there is without saying anything of it; empty when there is none. */
	readonly id: string;
	/** When it begins and ends, milliseconds since 1970, where it says so. */
	readonly beginsAtMs?: number | undefined;
	readonly endsAtMs?: number | undefined;
	/** Why the one that the settings name is not among them. */
	readonly unreadable?: Failure;
}

export const NO_CREDENTIALS: Credentials = { reusable: null, provisioned: null, id: '' };

/** For a file that cannot be read: the message then begins with the setting that names it. */
export const naming =
	(setting: string) =>
	(cause: unknown): never => {
		const { message, ...failed } = toFailure(cause);
		throw new AgentError(failed.code, `${setting}: ${message.replace(/^The /, 'the ')}`, { ...failed, cause });
	};

/** @param readSecret returns the one line of a file; throws `credential-unreadable`. */
export async function readCredentials(
	settings: Settings['credential'],
	readSecret: (path: string) => Promise<string>,
): Promise<Credentials> {
	const { apiKeyFile, basicFile, connectionFile, selfRegistration } = settings;
	const read = async (path: string, setting: string, scheme: string): Promise<string> => {
		const secret = await readSecret(path).catch(naming(setting));
		return secret.replace(new RegExp(`^${scheme}\\s+`, 'i'), '');
	};
	const unreadable = (path: string, setting: string, what: string) =>
		new AgentError('credential-unreadable', `${setting}: ${path} does not hold ${what}.`, { params: { path } });
	const token = async (path: string, setting: string, scheme: string): Promise<string> => {
		const secret = await read(path, setting, scheme);
		if (isCredential(secret)) return secret;
		throw unreadable(path, setting, 'one credential on one line');
	};
	if (apiKeyFile !== null) {
		const credential = await token(apiKeyFile, 'credential.apiKeyFile', 'ApiKey');
		const { notBeforeSeconds, expiresAtSeconds } = readTokenTimes(credential);
		const [beginsAtMs, endsAtMs] = [notBeforeSeconds, expiresAtSeconds].map((at) => at && at * 1000);
		return { ...reusable({ scheme: 'ApiKey', credential }), beginsAtMs, endsAtMs };
	}
	if (basicFile !== null) {
		const pair = await read(basicFile, 'credential.basicFile', 'Basic');
		const colon = pair.indexOf(':');
		if (colon < 1) throw unreadable(basicFile, 'credential.basicFile', 'username:password');
		return reusable({ scheme: 'Basic', username: pair.slice(0, colon), password: pair.slice(colon + 1) });
	}
	if (connectionFile !== null) {
		const provisioned = await token(connectionFile, 'credential.connectionFile', 'Connection');
		return { reusable: null, provisioned, id: idOf(`Connection ${provisioned}`) };
	}
	return selfRegistration ? { ...NO_CREDENTIALS, id: 'self' } : NO_CREDENTIALS;
}

function reusable(authorization: Authorization): Credentials {
	return { reusable: authorization, provisioned: null, id: idOf(formatAuthorization(authorization)) };
}

function idOf(credential: string): string {
	return createHash('sha256').update(credential).digest('hex').slice(0, 16);
}
