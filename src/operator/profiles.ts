/** `idv profile`: names for services and their credentials, so that the other commands need neither flag nor variable. */
import { AgentError } from '../base/errors.ts';
import { type OutputFlags, printAnswer, printJson, printLine, printTable } from '../cli/output.ts';
import { promptHidden, readStandardInput } from '../cli/prompts.ts';
import { formatAuthorization, MAX_CREDENTIAL_LENGTH } from '../protocol/authorization.ts';
import { readSecretFile } from '../settings/files.edge.ts';
import {
	checkProfileName,
	chooseProfile,
	readProfileSecret,
	readProfiles,
	removeProfile,
	saveProfile,
} from './profile-store.ts';
import { checkUrl, parseCredential, type TargetFlags } from './service-target.ts';

export async function addProfile(flags: TargetFlags & { readonly replace?: boolean }, name: string): Promise<void> {
	checkProfileName(name);
	const url = checkUrl(flags.url ?? process.env['IDV_URL'], flags.url === undefined ? 'IDV_URL' : '--url');
	const authorization = parseCredential(await readCredential(flags), 'The given text');
	await saveProfile({ name, url }, formatAuthorization(authorization), flags.replace ?? false);
	const { current } = await readProfiles();
	const { scheme } = authorization;
	const line = `Profile ${name} added: ${scheme} for ${url}${current === name ? ', in use' : ''}.`;
	printAnswer(flags, { name, url, scheme, current: current === name }, line);
}

/** A file, standard input, the variable, or a person. */
async function readCredential({ authorizationFile: file }: TargetFlags): Promise<string> {
	if (file === '-') return readStandardInput(2 * MAX_CREDENTIAL_LENGTH);
	if (file !== undefined) return readSecretFile(file);
	const text = process.env['IDV_AUTHORIZATION'];
	if (text) return text;
	if (process.stdin.isTTY)
		return promptHidden('Credential with its scheme, such as ApiKey … (it stays hidden): ', 2 * MAX_CREDENTIAL_LENGTH);
	throw new AgentError('usage', 'There is no credential.', {
		remedy: 'Give --authorization-file FILE (- for standard input), or set IDV_AUTHORIZATION.',
	});
}

export async function showProfiles(flags: OutputFlags): Promise<void> {
	const { current, profiles } = await readProfiles();
	const rows = await Promise.all(
		Object.entries(profiles).map(async ([name, { url }]) => {
			// The scheme alone: it is not a secret.
			const secret = await readProfileSecret(name).catch(() => '');
			return { name, url, scheme: /^[A-Za-z]+(?=\s)/.exec(secret)?.[0] ?? null, current: name === current };
		}),
	);
	if (flags.json) return printJson({ current, profiles: rows });
	if (rows.length === 0) return printLine('No profiles. Add one: idv profile add NAME --url https://…');
	printTable(
		rows.map((row) => [row.current ? '*' : ' ', row.name, row.url, row.scheme ?? 'its credential cannot be read']),
	);
}

export async function useProfile(flags: OutputFlags, name: string): Promise<void> {
	const { url } = await chooseProfile(name);
	printAnswer(flags, { current: name, url }, `Profile ${name} is in use: ${url}.`);
}

export async function forgetProfile(flags: OutputFlags, name: string): Promise<void> {
	await removeProfile(name);
	printAnswer(flags, { removed: name }, `Profile ${name} and its credential are removed.`);
}
