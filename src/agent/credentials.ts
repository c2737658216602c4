/**
 * The credentials that settings name: read from their files, named by a hash, never kept anywhere else.
 */
import { createHash } from 'node:crypto';
import { AgentError } from '../core/errors.ts';
import type { Settings } from '../core/settings.ts';
import { type Authorization, formatAuthorization, isCredential } from '../protocol/authorization.ts';

export interface Credentials {
	/** An API key or Basic credential, which may register any number of times. */
	readonly reusable: Authorization | null;
	/** A Connection token that an operator made for this device. */
	readonly provisioned: string | null;
	/** Names whichever of them there is without saying anything of it; empty when there is none. */
	readonly id: string;
}

export const NO_CREDENTIALS: Credentials = { reusable: null, provisioned: null, id: '' };

/**
 * Reads what the settings name.
 * @param readSecret returns the one line of a file; throws `credential-unreadable`.
 * @param keepSecret tells the log's scrubber what must never be printed.
 */
export async function readCredentials(
	settings: Settings['credential'],
	readSecret: (path: string) => Promise<string>,
	keepSecret: (secret: string) => void,
): Promise<Credentials> {
	const { apiKeyFile, basicFile, connectionFile, selfRegistration } = settings;
	const read = async (path: string, scheme: string): Promise<string> => {
		const secret = (await readSecret(path)).replace(new RegExp(`^${scheme}\\s+`, 'i'), '');
		keepSecret(secret);
		return secret;
	};
	const token = async (path: string, scheme: string): Promise<string> => {
		const secret = await read(path, scheme);
		if (isCredential(secret)) return secret;
		throw new AgentError('credential-unreadable', `${path} does not hold one credential on one line.`);
	};
	if (apiKeyFile !== null) return reusable({ scheme: 'ApiKey', credential: await token(apiKeyFile, 'ApiKey') });
	if (basicFile !== null) {
		const pair = await read(basicFile, 'Basic');
		const colon = pair.indexOf(':');
		if (colon < 1) throw new AgentError('credential-unreadable', `${basicFile} does not hold username:password.`);
		keepSecret(pair.slice(colon + 1));
		return reusable({ scheme: 'Basic', username: pair.slice(0, colon), password: pair.slice(colon + 1) });
	}
	if (connectionFile !== null) {
		const provisioned = await token(connectionFile, 'Connection');
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
