/**
 * The settings files and the files that hold one credential: reading them, and noticing when settings change.
 * Never merges or checks a setting (`settings/resolve.ts` does), never writes, never quotes what stands in a file.
 */
import { isUtf8 } from 'node:buffer';
import { lstatSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import path from 'node:path';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { errnoOf, inWords, isOutOfRoom, readText, roomRemedy, unreadable } from '../base/files.edge.ts';
import { findJsonPlaces, lineAndColumn, readJsonObject, shortened, withoutComments } from '../base/json-text.ts';
import { type Watched, watchDirectories } from '../base/watch.edge.ts';
import { MAX_CREDENTIAL_LENGTH } from '../protocol/authorization.ts';
import type { FileLayer } from './resolve.ts';
import { restrictionsUnder } from './restrictions.ts';

export const MAX_SETTINGS_BYTES = 256 * 1024;
/** How long the files must be left alone before a change is reported, and how long it is put off at most. */
const TIMES = { quietMs: 200, maxWaitMs: 2000 };
const SLOW_LOOK_MS = 60_000;
/** Paths that are watched for one file. */
const MAX_WAYS = 40;

export interface SettingsPlaces {
	readonly configFile: string;
	/** Holds further settings in `*.json`. Default: `conf.d` beside the config file. */
	readonly confDirectory?: string;
	/** A config file that is not there is a problem, since it was named. Default `false`. */
	readonly mustExist?: boolean;
	/** One of `conf.d` as it is to be, in place of what is there. Default: none. */
	readonly instead?: { readonly where: string; readonly document: Readonly<Record<string, unknown>> } | undefined;
}

export interface SettingsFiles {
	/** One for each file that could be read, lowest first: the config file, then `conf.d` in the byte order of the names. */
	readonly layers: readonly (FileLayer & { readonly document: Readonly<Record<string, unknown>> })[];
	/** `settings-unreadable` or `settings-invalid`, naming file, line and column; one for each file that has no layer. */
	readonly problems: readonly Failure[];
	/** The files and directories of `problems`. */
	readonly unread: readonly string[];
	/** `settings-invalid` for each name that a file has twice: the last one counts. */
	readonly notices: readonly Failure[];
}

/** Names that a person may take for those of settings. */
const OTHER_ENDING = /^[^.].*\.(?:json|jsonc|json5|conf|cfg)$/i;

/** Reads the config file and `conf.d`. Never throws: what cannot be used is in `problems`. A missing `conf.d` is none. */
export async function readSettingsLayers(places: SettingsPlaces): Promise<SettingsFiles> {
	const layers: SettingsFiles['layers'][number][] = [];
	const problems: Failure[] = [];
	const unread: string[] = [];
	const notices: Failure[] = [];
	const confDirectory = confDirectoryOf(places);
	let names: Buffer[] = [];
	try {
		names = readdirSync(confDirectory, 'buffer').sort(Buffer.compare);
	} catch (error) {
		const message = `The directory ${confDirectory} cannot be read: ${inWords(error)}.`;
		if (!isAbsent(confDirectory, error)) {
			problems.push(failure(isOutOfRoom(error) ? 'memory-low' : 'settings-unreadable', message, roomRemedy(error)));
			unread.push(confDirectory);
		}
	}
	// Hidden files are what editors keep beside the real ones.
	const isOurs = (name: string) => name.endsWith('.json') && !name.startsWith('.');
	// As text, a name that is not UTF-8 names another file.
	const ours = names
		.filter((name) => isUtf8(name))
		.map(String)
		.filter(isOurs);
	for (const name of names.map(String).filter((one) => OTHER_ENDING.test(one) && !ours.includes(one))) {
		const message = `${path.join(confDirectory, name)} is not read: only names in UTF-8 that end in .json are.`;
		notices.push(failure('settings-invalid', message, { remedy: 'Rename it, or take it away.' }));
	}
	const { instead } = places;
	if (instead) layers.push({ source: 'file', ...instead });
	const files = [places.configFile, ...ours.map((name) => path.join(confDirectory, name))];
	for (const [at, source] of files.entries()) {
		if (source === instead?.where) continue;
		try {
			const text = withoutComments(await readNamed(source, MAX_SETTINGS_BYTES, 'settings'));
			const read = readJsonObject(text, 'settings');
			if ('fault' in read) throw new AgentError('settings-invalid', `${source}: ${read.fault}`);
			// For editors: docs/settings.schema.json.
			const { $schema: _, ...document } = read.document;
			const found = findJsonPlaces(text);
			const twice = found.repeated.map((one) => ({ name: one.path.join('.'), offset: one.offset }));
			layers.push({
				source: 'file',
				where: source,
				document,
				lineAndColumn: (keys) => lineAndColumn(text, found.offsetOf(keys)),
				overridden: restrictionsUnder(twice.map(({ name }) => name)).filter((one) =>
					text.includes(`"${one.split('.').at(-1)}"`),
				),
			});
			for (const { name, offset } of twice) {
				const where = `${source}: ${lineAndColumn(text, offset)}`;
				notices.push(failure('settings-invalid', `${where}: ${shortened(name)} is there twice; the last one applies.`));
			}
		} catch (error) {
			if (!(error instanceof AgentError)) throw error;
			// One of `conf.d` may be taken away between the look into the directory and the look into the file.
			if (isAbsent(source, error.cause) && !(at === 0 && places.mustExist)) continue;
			problems.push(error.failure);
			unread.push(source);
		}
	}
	return { layers, problems, unread, notices };
}

/** Whether there is nothing of that name. A link that leads nowhere is something: what it shall lead to is on its way, or lost. */
function isAbsent(file: string, error: unknown): boolean {
	return errnoOf(error) === 'ENOENT' && lstatSync(file, { throwIfNoEntry: false }) === undefined;
}

/**
 * Reads a credential from a file of one line.
 * @returns the line without white space around it, 1 to 8,192 characters.
 * @throws AgentError `credential-unreadable`, never with the content in it.
 */
export async function readSecretFile(file: string, what = 'credential'): Promise<string> {
	const text = (await readCredential(file, what)).trim();
	const faults = [
		text === '' && 'is empty',
		/[\r\n]/.test(text) && 'has more than one line',
		text.length > MAX_CREDENTIAL_LENGTH && `has more than ${MAX_CREDENTIAL_LENGTH} characters`,
		/\p{Cc}/u.test(text) && 'has control characters',
	];
	const fault = faults.find((words) => words !== false);
	if (fault)
		throw new AgentError('credential-unreadable', `The ${what} file ${file} ${fault}.`, { params: { path: file } });
	return text;
}

/** Beside the credentials of the unit: the names of those that this machine cannot decrypt, one on each line. */
const UNDECRYPTABLE = 'idv-agent.undecryptable';

async function readCredential(file: string, what: string): Promise<string> {
	try {
		return await readNamed(file, 2 * MAX_CREDENTIAL_LENGTH, 'credential', what);
	} catch (cause) {
		const beside = path.join(path.dirname(file), UNDECRYPTABLE);
		const names = (await readText(beside, MAX_CREDENTIAL_LENGTH).catch(() => '')).split('\n').filter(Boolean);
		const name = path.basename(file);
		if (!names.includes(name)) throw cause;
		const message = `The credential ${name} cannot be decrypted on this machine: it was encrypted by another machine, or the TPM or the host key has changed since.`;
		const remedy = `Encrypt it again here: systemd-creds encrypt --name=${name} - /etc/credstore.encrypted/${name}.`;
		throw new AgentError('credential-unreadable', message, { cause, remedy, params: { path: file } });
	}
}

async function readNamed(
	file: string,
	maxBytes: number,
	kind: 'settings' | 'credential',
	what: string = kind,
): Promise<string> {
	try {
		return await readText(file, maxBytes);
	} catch (cause) {
		throw unreadable(`${kind}-unreadable`, `The ${what} file`, file, cause);
	}
}

export type SettingsWatch = ReturnType<typeof watchSettings>;

/**
 * Calls back once after the settings files, or files that settings name, may have changed: 200 ms after the last change, 2 s after
 * the first at most; within a minute where the system does not say so.
 */
export function watchSettings(places: SettingsPlaces, onChange: () => void) {
	const isIn = (file: string) => [path.dirname(file), (name: string) => name === path.basename(file)] as const;
	const confDirectory = path.resolve(confDirectoryOf(places));
	const inConf: Watched = [confDirectory, (name) => name.endsWith('.json') || OTHER_ENDING.test(name)];
	const all = () => [path.resolve(places.configFile), ...confFiles(confDirectory), ...named];
	let named: readonly string[] = [];
	const { again, close } = watchDirectories(
		() => [inConf, ...[...new Set([confDirectory, ...all()].flatMap(waysTo))].map(isIn)],
		TIMES,
		() => {
			seen = look();
			onChange();
		},
	);
	/** The files as they are now: mounts and network file systems change without a word. */
	const look = () => stampsOf(all());
	let seen = look();
	const slow = setInterval(() => {
		const before = seen;
		seen = look();
		if (seen !== before) onChange();
	}, SLOW_LOOK_MS).unref();
	return {
		/** From now on also these files, in place of the ones named before: what settings name, such as a credential. */
		follow(files: readonly string[]): void {
			const next = [...new Set(files.map((file) => path.resolve(file)))].toSorted();
			if (next.join('\0') === named.join('\0')) return;
			named = next;
			seen = look();
			again();
		},
		close(): void {
			clearInterval(slow);
			close();
		},
	};
}

function confFiles(directory: string): string[] {
	try {
		const names = readdirSync(directory).filter((name) => name.endsWith('.json'));
		return names.map((name) => path.join(directory, name));
	} catch {
		return [];
	}
}

/** The file, and where the links on the way to it lead, one after the other: each may be replaced. */
function waysTo(file: string): string[] {
	const found = new Set([file]);
	// Paths that are found are looked at, too.
	for (const one of found)
		for (let at = one; path.dirname(at) !== at && found.size < MAX_WAYS; at = path.dirname(at)) {
			try {
				const target = path.resolve(path.dirname(at), readlinkSync(at));
				found.add(at).add(target + one.slice(at.length));
			} catch {
				// It is not a link, or not there.
			}
		}
	return [...found];
}

/** The settings files as they are now, to see whether they are others than they were. */
export function lookAtSettings(places: SettingsPlaces): string {
	const confDirectory = confDirectoryOf(places);
	return stampsOf([confDirectory, places.configFile, ...confFiles(confDirectory)]);
}

/** The same of any files. */
export const stampsOf = (files: readonly string[]) => files.map(stampOf).join();

function stampOf(file: string): string {
	try {
		const { dev, ino, size, mtimeMs, ctimeMs } = statSync(file);
		return [file, dev, ino, size, mtimeMs, ctimeMs].join(' ');
	} catch (error) {
		return `${file} ${errnoOf(error)}`;
	}
}

function confDirectoryOf(places: SettingsPlaces): string {
	return places.confDirectory ?? path.join(path.dirname(places.configFile), 'conf.d');
}
