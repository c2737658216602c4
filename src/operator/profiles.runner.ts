/** `idv profile`: names for services and their credentials, so that the other commands need neither flag nor variable. */
import { AgentError } from '../base/errors.ts';
import type { Shell } from '../cli/output.runner.ts';
import { promptHidden } from '../cli/prompts.runner.ts';
import { formatAuthorization, MAX_CREDENTIAL_LENGTH } from '../protocol/authorization.ts';
import {
	checkProfileName,
	chooseProfile,
	readProfileSecret,
	readProfiles,
	removeProfile,
	saveProfile,
} from './profile-store.runner.ts';
import { checkUrl, parseCredential, readGivenCredential, type TargetFlags } from './service-target.runner.ts';

export async function addProfile(shell: Shell, flags: TargetFlags & { readonly replace?: boolean }, name: string) {
	checkProfileName(name);
	const url = checkUrl(flags.url ?? shell.env['IDV_URL'], flags.url === undefined ? 'IDV_URL' : '--url');
	const given = await readGivenCredential(shell, flags);
	const authorization = given?.authorization ?? parseCredential(await askForCredential(shell), 'The given text');
	await saveProfile(shell.env, { name, url }, formatAuthorization(authorization), flags.replace ?? false);
	const { current } = await readProfiles(shell.env);
	const { scheme } = authorization;
	const line = `Profile ${name} added: ${scheme} for ${url}${current === name ? ', in use' : ''}.`;
	shell.answer({ name, url, scheme, current: current === name }, line);
}

const QUESTION = 'Credential with its scheme, such as ApiKey … (it stays hidden): ';

async function askForCredential(shell: Shell): Promise<string> {
	if (shell.caller.stdin.isTTY) return promptHidden(shell, QUESTION, 2 * MAX_CREDENTIAL_LENGTH);
	throw new AgentError('usage', 'There is no credential.', {
		remedy: 'Give --authorization-file FILE (- for standard input), or set IDV_AUTHORIZATION.',
	});
}

export async function showProfiles(shell: Shell, _flags: unknown): Promise<void> {
	const { current, profiles } = await readProfiles(shell.env);
	const rows = await Promise.all(
		Object.entries(profiles).map(async ([name, { url }]) => {
			// The scheme alone: it is not a secret.
			const secret = await readProfileSecret(shell.env, name).catch(() => '');
			return { name, url, scheme: /^[A-Za-z]+(?=\s)/.exec(secret)?.[0] ?? null, current: name === current };
		}),
	);
	if (shell.isJson) return shell.json({ current, profiles: rows });
	if (rows.length === 0) return shell.line('No profiles. Add one: idv profile add NAME --url https://…');
	shell.table(
		rows.map((row) => [row.current ? '*' : ' ', row.name, row.url, row.scheme ?? 'its credential cannot be read']),
	);
}

export async function useProfile(shell: Shell, _flags: unknown, name: string): Promise<void> {
	const { url } = await chooseProfile(shell.env, name);
	shell.answer({ current: name, url }, `Profile ${name} is in use: ${url}.`);
}

export async function forgetProfile(shell: Shell, _flags: unknown, name: string): Promise<void> {
	await removeProfile(shell.env, name);
	shell.answer({ removed: name }, `Profile ${name} and its credential are removed.`);
}
