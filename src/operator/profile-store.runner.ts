/** The operator's profiles: names of services, kept by `conf`, and the credential of each in a file of its own. */
import { rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { inWords, makeDirectory, writeDurably } from '../base/files.edge.ts';
import { readSecretFile } from '../settings/files.edge.ts';
import { didYouMean } from '../settings/nearest-name.ts';
import { runAlone } from './run-alone.runner.ts';

export interface Profile {
	readonly name: string;
	/** Base URL in its normal form. */
	readonly url: string;
}

const documentSchema = z.object({
	/** The one that is used when none is named. */
	current: z.string().nullable().default(null),
	profiles: z.record(z.string(), z.object({ url: z.string() })).default({}),
});
type Document = z.infer<typeof documentSchema>;
type Environment = Readonly<Record<string, string | undefined>>;

/** Letters, digits, `.`, `_` and `-`; begins with a letter or digit; at most 64. @throws AgentError `usage`. */
export function checkProfileName(name: string): string {
	if (/^[a-z0-9][\w.-]{0,63}$/i.test(name)) return name;
	throw new AgentError('usage', 'Not a valid profile name.', {
		remedy: 'Use letters, digits, ".", "_" and "-", at most 64, beginning with a letter or digit.',
	});
}

export async function readProfiles(env: Environment): Promise<Document> {
	return (await openStore(env)).document;
}

/** A profile by its name; without a name the current one, or `null` if there is none. @throws AgentError `usage`. */
export async function findProfile(env: Environment, name: string | undefined): Promise<Profile | null> {
	const document = await readProfiles(env);
	const chosen = name ?? document.current;
	return chosen === null ? null : pick(document, chosen);
}

/** The first profile becomes the current one. @throws AgentError `usage` for one that exists, unless it may be replaced. */
export async function saveProfile(
	env: Environment,
	{ name, url }: Profile,
	secret: string,
	replace: boolean,
): Promise<void> {
	await change(env, async (document, directory) => {
		if (Object.hasOwn(document.profiles, name) && !replace)
			throw new AgentError('usage', `There is a profile ${name} already.`, {
				remedy: 'Choose another name, or use --replace.',
			});
		await writeSecret(secretFile(directory, name), secret);
		return { current: document.current ?? name, profiles: { ...document.profiles, [name]: { url } } };
	});
}

/** @throws AgentError `usage`. */
export async function chooseProfile(env: Environment, name: string): Promise<Profile> {
	const isThere = (document: Document) => pick(document, name).name;
	return pick(await change(env, async (document) => ({ ...document, current: isThere(document) })), name);
}

/** Forgets the profile and its credential. @throws AgentError `usage`. */
export async function removeProfile(env: Environment, name: string): Promise<void> {
	await change(env, async (document, directory) => {
		pick(document, name);
		const { [name]: _removed, ...profiles } = document.profiles;
		await rm(secretFile(directory, name), { force: true });
		return { current: document.current === name ? null : document.current, profiles };
	});
}

/** Two commands at once change one after the other what is there then. */
async function change(
	env: Environment,
	by: (document: Document, directory: string) => Promise<Document>,
): Promise<Document> {
	const { path, directory } = await openStore(env);
	makeDirectory(directory, 0o700);
	return runAlone(path, async () => {
		const { document, write } = await openStore(env);
		const changed = await by(document, directory);
		write(changed);
		return changed;
	});
}

/** @throws AgentError `credential-unreadable`. */
export async function readProfileSecret(env: Environment, name: string): Promise<string> {
	const { directory } = await openStore(env);
	return readSecretFile(secretFile(directory, name));
}

/** With the directory in which `conf` keeps its file. */
async function openStore(env: Environment) {
	const { default: Conf } = await import('conf');
	try {
		const { XDG_CONFIG_HOME: directory } = env;
		const place = directory ? { cwd: join(directory, 'idv') } : {};
		// Otherwise `conf` makes it, also where it only reads, and may go round for ever.
		makeDirectory(place.cwd ?? homedir(), 0o755);
		const conf = new Conf<Document>({ projectName: 'idv', projectSuffix: '', configName: 'profiles', ...place });
		const write = (document: Document) => {
			conf.store = document;
		};
		return { document: documentSchema.parse(conf.store), path: conf.path, directory: dirname(conf.path), write };
	} catch (error) {
		const code = (error as NodeJS.ErrnoException).code;
		throw new AgentError('settings-unreadable', `The profiles cannot be read${code ? ` (${code})` : ''}.`, {
			remedy:
				'Make profiles.json of ~/.config/idv (or idv in XDG_CONFIG_HOME) readable, or remove it and add them again.',
			cause: error,
		});
	}
}

function secretFile(directory: string, name: string): string {
	return join(directory, 'secrets', name);
}

async function writeSecret(file: string, secret: string): Promise<void> {
	try {
		makeDirectory(dirname(file), 0o700);
		await writeDurably(file, `${secret}\n`);
	} catch (error) {
		const message = `The credential cannot be written to ${dirname(file)}: ${inWords(error)}.`;
		const remedy = 'Make the directory writable for this user, with free space.';
		throw new AgentError('state-unwritable', message, { remedy, cause: error });
	}
}

function pick({ profiles }: Document, name: string): Profile {
	const found = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
	if (found) return { name, url: found.url };
	const names = Object.keys(profiles);
	throw new AgentError('usage', `There is no profile ${name}${didYouMean(name, names)}`, {
		remedy: names.length > 0 ? `There are: ${names.join(', ')}.` : 'Add one: idv profile add.',
	});
}
