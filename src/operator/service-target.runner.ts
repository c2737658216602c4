/** Which service an operator's command goes to, and with which credential: flags, `IDV_…` variables, then a profile. */
import { stat } from 'node:fs/promises';
import { AgentError } from '../base/errors.ts';
import { permissionsOf } from '../base/unix.edge.ts';
import type { Shell } from '../cli/output.runner.ts';
import { readStandardInput } from '../cli/prompts.runner.ts';
import { type Authorization, MAX_CREDENTIAL_LENGTH, parseAuthorization } from '../protocol/authorization.ts';
import { isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { readSecretFile } from '../settings/files.edge.ts';
import { findProfile, type Profile, readProfileSecret } from './profile-store.runner.ts';

export interface TargetFlags {
	readonly url?: string | undefined;
	/** A file with `<scheme> <credential>`; `-` for standard input. */
	readonly authorizationFile?: string | undefined;
	readonly profile?: string | undefined;
	/** PEM file with certificate authorities to trust besides the usual ones. */
	readonly caFile?: string | undefined;
}

export interface Target {
	/** In its normal form. */
	readonly baseUrl: string;
	readonly authorization: Authorization;
	/** Where the credential came from, for a person. */
	readonly credentialFrom: string;
	readonly caFile: string | undefined;
	/** May name a proxy. */
	readonly env: Environment;
}

type Environment = Readonly<Record<string, string | undefined>>;

type FoundCredential = Pick<Target, 'authorization' | 'credentialFrom'>;

/** @throws AgentError `usage`, `insecure-origin` or `credential-unreadable`. */
export async function resolveTarget(shell: Shell, flags: TargetFlags): Promise<Target> {
	const { env } = shell;
	const url = flags.url ?? env['IDV_URL'];
	const given = await readGivenCredential(shell, flags);
	const isComplete = url !== undefined && given !== null;
	const named = flags.profile ?? env['IDV_PROFILE'];
	const profile = isComplete && named === undefined ? null : await findProfile(env, named);
	const baseUrl = checkUrl(url ?? profile?.url, flags.url === undefined ? 'IDV_URL' : '--url');
	const found = given ?? (await readOwnCredential(shell, profile, baseUrl));
	return { baseUrl, ...found, caFile: flags.caFile ?? env['IDV_CA_FILE'], env };
}

/** @throws AgentError `usage` or `insecure-origin`. */
export function checkUrl(text: string | undefined, where: string): string {
	if (text === undefined)
		throw new AgentError('usage', 'No service is named.', {
			remedy:
				'Give --url, set IDV_URL, or make a profile (idv profile add) or choose one (idv profile use; idv profile list).',
		});
	const baseUrl = normalizeBaseUrl(text);
	if (baseUrl === null)
		throw new AgentError('usage', `${where} is not the address of a service.`, {
			remedy: 'Write it as https://id.example.com, without user, query or fragment.',
		});
	if (baseUrl.startsWith('http:') && !isLoopback(baseUrl))
		throw new AgentError('insecure-origin', `${new URL(baseUrl).origin} would get the credential without encryption.`, {
			remedy: 'Use https; plain http is only for this machine itself.',
		});
	return baseUrl;
}

/** A file that the user of a command names: the agent's user has nothing to do with it. */
export async function readFileOfUser(file: string, what: string, remedy: string): Promise<string> {
	return readSecretFile(file, what).catch((cause: unknown) => {
		throw cause instanceof AgentError ? new AgentError(cause.code, cause.message, { remedy, cause }) : cause;
	});
}

/** From a file, standard input or the variable; `null` where none of them is named. @throws AgentError `credential-unreadable`. */
export async function readGivenCredential(shell: Shell, flags: TargetFlags): Promise<FoundCredential | null> {
	const { authorizationFile: file } = flags;
	if (file === '-') {
		const text = await readStandardInput(shell, 2 * MAX_CREDENTIAL_LENGTH);
		return { authorization: parseCredential(text, 'Standard input'), credentialFrom: 'standard input' };
	}
	if (file !== undefined) {
		const remedy = 'Name a file that is there and that this user may read, with one credential in it.';
		const text = await readFileOfUser(file, 'credential', remedy);
		const authorization = parseCredential(text, file);
		warnIfOpen(shell, file, await stat(file));
		return { authorization, credentialFrom: file };
	}
	const text = shell.env['IDV_AUTHORIZATION'];
	if (text === undefined || text === '') return null;
	return { authorization: parseCredential(text, 'IDV_AUTHORIZATION'), credentialFrom: 'IDV_AUTHORIZATION' };
}

async function readOwnCredential(shell: Shell, profile: Profile | null, baseUrl: string): Promise<FoundCredential> {
	if (profile === null)
		throw new AgentError('usage', 'There is no credential.', {
			remedy: 'Set IDV_AUTHORIZATION, give --authorization-file FILE (- for standard input), or make a profile.',
		});
	if (new URL(profile.url).origin !== new URL(baseUrl).origin)
		throw new AgentError(
			'usage',
			`The credential of profile ${profile.name} is for ${new URL(profile.url).origin}, not for ${new URL(baseUrl).origin}.`,
			{ remedy: 'Give another credential with --authorization-file, or leave the address out.' },
		);
	const text = await readProfileSecret(shell.env, profile.name);
	return { authorization: parseCredential(text, `Profile ${profile.name}`), credentialFrom: `profile ${profile.name}` };
}

/** `<scheme> <credential>`, or `Basic user:password` as people write it. @throws AgentError `credential-unreadable`. */
export function parseCredential(text: string, where: string): Authorization {
	const [, username, password] = /^\s*basic\s+([^\s:]+):(\S+)\s*$/i.exec(text) ?? [];
	if (username !== undefined && password !== undefined) return { scheme: 'Basic', username, password };
	const authorization = parseAuthorization(text);
	if (authorization) return authorization;
	throw new AgentError('credential-unreadable', `${where} does not hold one credential with its scheme.`, {
		remedy: 'Write it as in the Authorization header: "ApiKey …", "Bearer …", "Basic user:password".',
	});
}

/** A secret should be only its owner's to read. */
export function warnIfOpen(shell: Shell, file: string, stat: { readonly mode: number }): void {
	if ((permissionsOf(stat) & 0o077) !== 0) shell.warn(`Other users may read ${file}. Close it: chmod 600 ${file}`);
}
