/**
 * The operator's profiles: names of services, kept by `conf`; the credential of each in a file of its own that only this
 * user can read. Never keeps a secret beside the names.
 */
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { inWords, writeDurably } from '../base/files.edge.ts';
import { readSecretFile } from '../settings/files.edge.ts';
import { nearestName } from '../settings/resolve.ts';

export interface Profile {
	readonly name: string;
	/** Base URL in its normal form. */
	readonly url: string;
}

export interface Profiles {
	/** The one that is used when none is named. */
	readonly current: string | null;
	readonly profiles: readonly Profile[];
}

const documentSchema = z.object({
	current: z.string().nullable().default(null),
	profiles: z.record(z.string(), z.object({ url: z.string() })).default({}),
});
type Document = z.infer<typeof documentSchema>;

/** Letters, digits, `.`, `_` and `-`; begins with a letter or digit; at most 64. @throws AgentError `usage`. */
export function checkProfileName(name: string): string {
	if (/^[a-z0-9][\w.-]{0,63}$/i.test(name)) return name;
	throw new AgentError('usage', 'Not a valid profile name.', {
		remedy: 'Use letters, digits, ".", "_" and "-", at most 64, beginning with a letter or digit.',
	});
}

export async function listProfiles(): Promise<Profiles> {
	const { document } = await openStore();
	return asProfiles(document);
}

/** A profile by its name; without a name the current one, or `null` if there is none. @throws AgentError `usage`. */
export async function findProfile(name: string | undefined): Promise<Profile | null> {
	const { current, profiles } = await listProfiles();
	const chosen = name ?? current;
	if (chosen === null) return null;
	const found = profiles.find((profile) => profile.name === chosen);
	if (found) return found;
	throw unknownProfile(chosen, profiles);
}

/** The first profile becomes the current one. @throws AgentError `usage` for one that exists, unless it may be replaced. */
export async function saveProfile(profile: Profile, secret: string, replace: boolean): Promise<void> {
	const { document, write, directory } = await openStore();
	if (document.profiles[profile.name] && !replace)
		throw new AgentError('usage', `There is a profile ${profile.name} already.`, {
			remedy: 'Choose another name, or use --replace.',
		});
	await writeSecret(secretFile(directory, profile.name), secret);
	const profiles = { ...document.profiles, [profile.name]: { url: profile.url } };
	write({ current: document.current ?? profile.name, profiles });
}

/** @throws AgentError `usage`. */
export async function chooseProfile(name: string): Promise<Profile> {
	const { document, write } = await openStore();
	const { profiles } = asProfiles(document);
	const found = profiles.find((profile) => profile.name === name);
	if (!found) throw unknownProfile(name, profiles);
	write({ ...document, current: name });
	return found;
}

/** Forgets the profile and its credential. @throws AgentError `usage`. */
export async function removeProfile(name: string): Promise<void> {
	const { document, write, directory } = await openStore();
	const { [name]: removed, ...profiles } = document.profiles;
	if (!removed) throw unknownProfile(name, asProfiles(document).profiles);
	await rm(secretFile(directory, name), { force: true });
	write({ current: document.current === name ? null : document.current, profiles });
}

/** @throws AgentError `credential-unreadable`. */
export async function readProfileSecret(name: string): Promise<string> {
	const { directory } = await openStore();
	return readSecretFile(secretFile(directory, name));
}

interface Store {
	readonly document: Document;
	/** Where `conf` keeps its file. */
	readonly directory: string;
	write(document: Document): void;
}

async function openStore(): Promise<Store> {
	const { default: Conf } = await import('conf');
	try {
		const conf = new Conf<Document>({ projectName: 'idv', projectSuffix: '', configName: 'profiles' });
		const write = (document: Document) => {
			conf.store = document;
		};
		return { document: documentSchema.parse(conf.store), directory: dirname(conf.path), write };
	} catch (error) {
		const code = (error as NodeJS.ErrnoException).code;
		throw new AgentError('settings-unreadable', `The profiles cannot be read${code ? ` (${code})` : ''}.`, {
			remedy:
				'Make profiles.json of ~/.config/idv (or idv in XDG_CONFIG_HOME) readable, or remove it and add them again.',
			cause: error,
		});
	}
}

function asProfiles({ current, profiles }: Document): Profiles {
	return { current, profiles: Object.entries(profiles).map(([name, { url }]) => ({ name, url })) };
}

function secretFile(directory: string, name: string): string {
	return join(directory, 'secrets', name);
}

async function writeSecret(file: string, secret: string): Promise<void> {
	try {
		await mkdir(dirname(file), { recursive: true, mode: 0o700 });
		await writeDurably(file, `${secret}\n`);
	} catch (error) {
		throw new AgentError(
			'state-unwritable',
			`The credential cannot be written to ${dirname(file)}: ${inWords(error)}.`,
			{
				remedy: 'Make the directory writable for this user, with free space.',
				cause: error,
			},
		);
	}
}

function unknownProfile(name: string, profiles: readonly Profile[]): AgentError {
	const names = profiles.map((profile) => profile.name);
	const nearest = nearestName(name, names);
	return new AgentError('usage', `There is no profile ${name}${nearest ? `; did you mean ${nearest}?` : '.'}`, {
		remedy: names.length > 0 ? `There are: ${names.join(', ')}.` : 'Add one: idv profile add.',
	});
}
