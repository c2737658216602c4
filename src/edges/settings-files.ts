/**
 * The files in which settings and credentials stand: read with limits, watched without polling. Knows nothing of what a
 * setting means, and never puts the contents of a file into a message.
 */
import { type FSWatcher, watch } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AgentError, type ErrorCode, type Failure, failure } from '../core/errors.ts';

/** Largest settings file, in bytes. */
export const MAX_SETTINGS_BYTES = 1024 * 1024;
/** Largest credential file, in bytes. */
const MAX_SECRET_BYTES = 8192;
/** An editor writes a file in several steps: only the last of them is looked at. */
const SETTLE_MS = 200;

export interface SettingsFiles {
	readonly configFile: string;
	/** Its `*.json` are read after the file, in the order of their names' bytes. */
	readonly confDirectory: string;
}

export interface SettingsDocuments {
	/** Lowest first. `document` is an object. */
	readonly layers: readonly { readonly source: string; readonly document: Record<string, unknown> }[];
	/** `settings-unreadable` and `settings-invalid`, each naming its file. */
	readonly problems: readonly Failure[];
}

/** Reads all of them. A file that is not there is an empty one, unless `mustExist` says that somebody named it. */
export async function readSettingsLayers(
	files: SettingsFiles & { readonly mustExist?: boolean },
): Promise<SettingsDocuments> {
	const layers: { source: string; document: Record<string, unknown> }[] = [];
	const problems: Failure[] = [];
	const take = async (path: string, mustExist: boolean) => {
		try {
			const text = await readText(path, MAX_SETTINGS_BYTES, 'settings-unreadable');
			if (text !== null) layers.push({ source: path, document: parseDocument(path, text) });
			else if (mustExist) problems.push(failure('settings-unreadable', `${path}: there is no such file.`));
		} catch (error) {
			if (!(error instanceof AgentError)) throw error;
			problems.push(error.failure);
		}
	};
	await take(files.configFile, files.mustExist ?? false);
	try {
		const names = (await readdir(files.confDirectory)).filter(
			(name) => name.endsWith('.json') && !name.startsWith('.'),
		);
		for (const name of names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))))
			await take(join(files.confDirectory, name), true);
	} catch (error) {
		if (codeOf(error) !== 'ENOENT')
			problems.push(failure('settings-unreadable', `${files.confDirectory}: ${plainReason(error)}.`));
	}
	return { layers, problems };
}

/**
 * Calls back when one of the files may have changed, by the kernel's word and not by looking again and again. Directories
 * are watched rather than files, so that a file which is replaced or appears later is noticed as well.
 */
export function watchSettings(files: SettingsFiles, onChange: () => void): { close(): void } {
	const directory = dirname(files.configFile);
	let timer: NodeJS.Timeout | undefined;
	let inner: FSWatcher | null = null;
	let closed = false;
	const changed = () => {
		clearTimeout(timer);
		timer = setTimeout(onChange, SETTLE_MS).unref();
	};
	const follow = (path: string, onName: (name: string | null) => void): FSWatcher | null => {
		try {
			const watcher = watch(path, { persistent: false }, (_, name) => onName(name));
			// A directory that goes away is noticed by the watch on its parent.
			watcher.on('error', () => watcher.close());
			return watcher;
		} catch {
			return null;
		}
	};
	const followInner = () => {
		inner?.close();
		inner = closed
			? null
			: follow(files.confDirectory, (name) => (name === null || name.endsWith('.json')) && changed());
	};
	// The directory of the settings itself may be made later, by a package or a person.
	const above = dirname(directory);
	let outer = follow(directory, onOuter);
	const top = outer
		? null
		: follow(above, () => {
				if (outer || closed) return;
				outer = follow(directory, onOuter);
				if (!outer) return;
				followInner();
				changed();
			});
	function onOuter(name: string | null): void {
		const path = name === null ? null : join(directory, name);
		if (path === null || path === files.confDirectory) followInner();
		if (path === null || path === files.configFile || path === files.confDirectory) changed();
	}
	followInner();
	return {
		close() {
			closed = true;
			clearTimeout(timer);
			for (const watcher of [outer, inner, top]) watcher?.close();
		},
	};
}

/**
 * The one line of a credential file, without white space around it.
 * @throws AgentError `credential-unreadable`, without a word of what is in the file.
 */
export async function readSecretFile(path: string): Promise<string> {
	const text = await readText(path, MAX_SECRET_BYTES, 'credential-unreadable');
	if (text === null) throw new AgentError('credential-unreadable', `${path}: there is no such file.`);
	const secret = text.trim();
	if (secret === '') throw new AgentError('credential-unreadable', `${path} is empty.`);
	if (/[\r\n]/.test(secret)) throw new AgentError('credential-unreadable', `${path} has more than one line.`);
	return secret;
}

/** The text of a file; `null` when there is none. */
async function readText(path: string, maxBytes: number, code: ErrorCode): Promise<string | null> {
	try {
		await using file = await open(path, 'r');
		const buffer = Buffer.alloc(maxBytes + 1);
		let length = 0;
		for (;;) {
			const { bytesRead } = await file.read(buffer, length, buffer.length - length);
			length += bytesRead;
			if (bytesRead === 0 || length > maxBytes) break;
		}
		if (length > maxBytes) throw new AgentError(code, `${path} is larger than ${maxBytes} bytes.`);
		return new TextDecoder('utf-8', { fatal: true }).decode(buffer.subarray(0, length));
	} catch (error) {
		if (error instanceof AgentError) throw error;
		if (codeOf(error) === 'ENOENT') return null;
		throw new AgentError(code, `${path}: ${plainReason(error)}.`, { cause: error });
	}
}

function parseDocument(path: string, text: string): Record<string, unknown> {
	let document: unknown;
	try {
		document = JSON.parse(text);
	} catch (error) {
		throw new AgentError('settings-invalid', `${path}: ${whereInText(text, error)}`);
	}
	if (typeof document !== 'object' || document === null || Array.isArray(document))
		throw new AgentError('settings-invalid', `${path}: the settings must be an object: { … }.`);
	return document as Record<string, unknown>;
}

/** The place of a mistake as an editor counts it. */
function whereInText(text: string, error: unknown): string {
	if (text.trim() === '') return 'the file is empty; an empty object is {}.';
	const said = error instanceof Error ? error.message : '';
	const position = Number(/position (\d+)/.exec(said)?.[1] ?? text.length);
	const before = text.slice(0, position).split('\n');
	return `line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}: this is not JSON.`;
}

function plainReason(error: unknown): string {
	switch (codeOf(error)) {
		case 'EACCES':
		case 'EPERM':
			return 'this user may not read it';
		case 'EISDIR':
			return 'it is a directory';
		case 'ERR_ENCODING_INVALID_ENCODED_DATA':
			return 'it is not UTF-8 text';
		default:
			return `it cannot be read (${codeOf(error) ?? 'unknown reason'})`;
	}
}

function codeOf(error: unknown): string | undefined {
	return (error as { code?: string } | null)?.code;
}
