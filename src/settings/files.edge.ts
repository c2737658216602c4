/**
 * The settings files and the files that hold one credential: reading them, and noticing when settings change.
 * Never merges or checks a setting (`settings/resolve.ts` does), never writes, never quotes what stands in a file.
 */
import { existsSync, type FSWatcher, readdirSync, watch } from 'node:fs';
import path from 'node:path';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { errnoOf, type FileFault, inWords, readText } from '../base/files.edge.ts';
import { findJsonPlaces, lineAndColumn, readJsonObject } from '../base/json-text.ts';
import { MAX_CREDENTIAL_LENGTH } from '../protocol/authorization.ts';
import type { ValuePlace } from './resolve.ts';

export const MAX_SETTINGS_BYTES = 1024 * 1024;
/** How long the files must be left alone before a change is reported, and how long it is put off at most. */
const QUIET_MS = 200;
const MAX_WAIT_MS = 2000;

export interface SettingsPlaces {
	readonly configFile: string;
	/** Holds further settings in `*.json`. Default: `conf.d` beside the config file. */
	readonly confDirectory?: string;
	/** A config file that is not there is a problem, since it was named. Default `false`. */
	readonly mustExist?: boolean;
}

export interface SettingsFiles {
	/** One for each file that could be read, lowest first: the config file, then `conf.d` in the byte order of the names. */
	readonly layers: readonly { readonly source: string; readonly document: Readonly<Record<string, unknown>> }[];
	/** By the source of a layer: where in the text a value stands. The text is looked through when a place is asked for. */
	readonly places: ReadonlyMap<string, ValuePlace>;
	/** `settings-unreadable` or `settings-invalid`, naming file, line and column; one for each file that has no layer. */
	readonly problems: readonly Failure[];
}

/** Reads the config file and `conf.d`. Never throws: what cannot be used is in `problems`. A missing `conf.d` is none. */
export async function readSettingsLayers(places: SettingsPlaces): Promise<SettingsFiles> {
	const layers: SettingsFiles['layers'][number][] = [];
	const problems: Failure[] = [];
	const valuePlaces = new Map<string, ValuePlace>();
	const confDirectory = confDirectoryOf(places);
	let names: string[] = [];
	try {
		names = readdirSync(confDirectory);
	} catch (error) {
		const message = `The directory ${confDirectory} cannot be read: ${inWords(error)}.`;
		if (errnoOf(error) !== 'ENOENT') problems.push(failure('settings-unreadable', message));
	}
	// Hidden files are what editors keep beside the real ones.
	const ours = names.filter((name) => name.endsWith('.json') && !name.startsWith('.'));
	ours.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
	const files = [places.configFile, ...ours.map((name) => path.join(confDirectory, name))];
	for (const [at, source] of files.entries()) {
		try {
			const text = await readNamed(source, MAX_SETTINGS_BYTES, 'settings');
			const read = readJsonObject(text, 'settings');
			if ('fault' in read) throw new AgentError('settings-invalid', `${source}: ${read.fault}`);
			layers.push({ source, document: read.document });
			valuePlaces.set(source, (keys) => lineAndColumn(text, findJsonPlaces(text).offsetOf(keys)));
		} catch (error) {
			if (!(error instanceof AgentError)) throw error;
			const isMissing = errnoOf(error.cause) === 'ENOENT';
			// One of `conf.d` may be taken away between the look into the directory and the look into the file.
			if (!isMissing || (at === 0 && places.mustExist)) problems.push(error.failure);
		}
	}
	return { layers, places: valuePlaces, problems };
}

/**
 * Reads a credential from a file of one line.
 * @returns the line without white space around it, 1 to 8,192 characters.
 * @throws AgentError `credential-unreadable`, never with the content in it.
 */
export async function readSecretFile(file: string): Promise<string> {
	const text = (await readCredential(file)).trim();
	const faults = [
		text === '' && 'is empty',
		/[\r\n]/.test(text) && 'has more than one line',
		text.length > MAX_CREDENTIAL_LENGTH && `has more than ${MAX_CREDENTIAL_LENGTH} characters`,
		/\p{Cc}/u.test(text) && 'has control characters',
	];
	const fault = faults.find((words) => words !== false);
	if (fault)
		throw new AgentError('credential-unreadable', `The credential file ${file} ${fault}.`, { params: { path: file } });
	return text;
}

/** Beside the credentials of the unit: the names of those that this machine cannot decrypt, one on each line. */
const UNDECRYPTABLE = 'idv-agent.undecryptable';

async function readCredential(file: string): Promise<string> {
	try {
		return await readNamed(file, 2 * MAX_CREDENTIAL_LENGTH, 'credential');
	} catch (cause) {
		const beside = path.join(path.dirname(file), UNDECRYPTABLE);
		const names = (await readText(beside, MAX_CREDENTIAL_LENGTH).catch(() => '')).split('\n');
		const name = path.basename(file);
		if (!names.includes(name)) throw cause;
		const message = `The credential ${name} cannot be decrypted on this machine: it was encrypted by another machine, or the TPM or the host key has changed since.`;
		const remedy = `Encrypt it again here: systemd-creds encrypt --name=${name} - /etc/credstore.encrypted/${name}.`;
		throw new AgentError('credential-unreadable', message, { cause, remedy, params: { path: file } });
	}
}

const REMEDIES: Readonly<Record<FileFault, string>> = {
	'not-regular': 'Put a text file in its place.',
	'not-utf8': 'Save it again as UTF-8.',
	'too-large': 'Make it shorter.',
};

async function readNamed(file: string, maxBytes: number, what: 'settings' | 'credential'): Promise<string> {
	try {
		return await readText(file, maxBytes);
	} catch (cause) {
		const remedy = Object.hasOwn(REMEDIES, errnoOf(cause)) ? REMEDIES[errnoOf(cause) as FileFault] : undefined;
		const message = `The ${what} file ${file} cannot be read: ${inWords(cause)}.`;
		throw new AgentError(`${what}-unreadable`, message, { cause, params: { path: file }, ...(remedy && { remedy }) });
	}
}

export type SettingsWatch = ReturnType<typeof watchSettings>;

/**
 * Calls back once after the settings files may have changed: 200 ms after the last change, 2 s after the first at most.
 * Directories are watched rather than files, and the parents of directories, so that files and directories may be
 * replaced, vanish and appear later; where a link leads to is not watched. Nothing is polled. Ends with `close`; does not
 * keep the process alive.
 */
export function watchSettings(places: SettingsPlaces, onChange: () => void) {
	const confDirectory = path.resolve(confDirectoryOf(places));
	const configFile = path.resolve(places.configFile);
	let named: readonly string[] = [];
	let watchers: FSWatcher[] = [];
	let timer: NodeJS.Timeout | null = null;
	let firstChangeMs = 0;
	let notice: Failure | null = null;

	let closed = false;
	const changed = () => {
		const nowMs = performance.now();
		if (timer) clearTimeout(timer);
		else firstChangeMs = nowMs;
		timer = setTimeout(report, Math.max(0, Math.min(QUIET_MS, firstChangeMs + MAX_WAIT_MS - nowMs))).unref();
	};
	const report = () => {
		timer = null;
		// Again each time: a directory may be another one under the same name. Before the report, so that nothing is missed.
		watchAll();
		onChange();
	};
	const watchAll = () => {
		if (closed) return;
		for (const watcher of watchers) watcher.close();
		watchers = [];
		notice = null;
		for (const [directory, isOurs] of plan(configFile, confDirectory, named)) {
			try {
				const watcher = watch(directory, { persistent: false }, (_event, name) => {
					// Systems that don't say the name, and mounted configurations that swap a link called `..data`.
					if (name === null || name.startsWith('..') || isOurs(name)) changed();
				});
				watcher.on('error', changed);
				watchers.push(watcher);
			} catch (error) {
				// What is not there is watched for in its parent; other directories may be closed to this user.
				const isParent = directory !== path.dirname(configFile) && directory !== confDirectory;
				if (['ENOENT', 'ENOTDIR', isParent ? 'EACCES' : ''].includes(errnoOf(error))) continue;
				const reason =
					errnoOf(error) === 'ENOSPC' ? 'the system has no watches left (fs.inotify.max_user_watches)' : inWords(error);
				notice ??= failure('settings-unreadable', `Changes in ${directory} will not be noticed: ${reason}.`, {
					remedy: 'Restart the agent, or send it SIGHUP, after a change of its settings.',
				});
			}
		}
	};
	watchAll();
	return {
		/** Set when changes can't be noticed, for want of watches or of permission: a restart or SIGHUP is needed then. */
		get notice() {
			return notice;
		},
		/** From now on also these files, in place of the ones named before: what settings name, such as a credential. */
		follow(files: readonly string[]): void {
			const next = [...new Set(files.map((file) => path.resolve(file)))].toSorted();
			if (next.join('\0') === named.join('\0')) return;
			named = next;
			watchAll();
		},
		close(): void {
			closed = true;
			if (timer) clearTimeout(timer);
			for (const watcher of watchers) watcher.close();
			watchers = [];
		},
	};
}

/** The directories to watch, each with the names in it that matter. */
function plan(
	configFile: string,
	confDirectory: string,
	named: readonly string[],
): Map<string, (name: string) => boolean> {
	const watched = new Map<string, (name: string) => boolean>();
	const add = (directory: string, isOurs: (name: string) => boolean) => {
		const before = watched.get(directory);
		watched.set(directory, before ? (name) => before(name) || isOurs(name) : isOurs);
	};
	add(path.dirname(configFile), (name) => name === path.basename(configFile));
	add(confDirectory, (name) => name.endsWith('.json'));
	for (const file of named) add(path.dirname(file), (name) => name === path.basename(file));
	for (const directory of [path.dirname(configFile), confDirectory, ...named.map((file) => path.dirname(file))]) {
		// The parent of what is there, for the day on which it is replaced; and of everything that is not there yet.
		for (let child = directory; path.dirname(child) !== child; child = path.dirname(child)) {
			const ours = path.basename(child);
			add(path.dirname(child), (name) => name === ours);
			if (existsSync(child)) break;
		}
	}
	return watched;
}

function confDirectoryOf(places: SettingsPlaces): string {
	return places.confDirectory ?? path.join(path.dirname(places.configFile), 'conf.d');
}
