/**
 * The agent's questions to the file system, once for all: a bounded read, a durable write, the words for an error of the
 * system, users and groups by name, the bound on the path of a socket. Never puts what stands in a file into a message.
 *
 * Everything but a flush is synchronous inside: the files are small and local, Node's promises of files cost 6 ms when they are
 * first used, and each call a way to another thread and back (docs/measurements.md). A flush may take a second, and is not.
 */
import { randomUUID } from 'node:crypto';
import fs, { constants, type Stats } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { AgentError, type ErrorCode } from './errors.ts';

/** Of one read, in bytes. */
const CHUNK = 65_536;
/** Longest path that fits a socket address on Linux, in bytes. */
const MAX_SOCKET_PATH = 107;

export type FileFault = 'too-large' | 'not-regular' | 'not-utf8';

/** Why a file is not taken although it could be read. */
const unusable = (code: FileFault, message: string) => Object.assign(new Error(message), { code });

function refuseOthers(stat: Stats): void {
	const words = `it is not a regular file${stat.isDirectory() ? ', but a directory' : ''}`;
	if (!stat.isFile()) throw unusable('not-regular', words);
}

export interface ReadOptions {
	/** A link in the place of the file is an error (`ELOOP`). Default `false`. */
	readonly refuseLink?: boolean;
	/** Looks at the open file before a byte of it is read. An error from here ends the read. */
	readonly inspect?: (stat: Stats, descriptor: number) => void | Promise<void>;
}

/** Never more than `maxBytes`, and never waits for a pipe's writer. @throws for `inWords`, or a {@link FileFault}. */
export async function readBytes(file: string, maxBytes: number, options: ReadOptions = {}): Promise<Buffer> {
	const flags = constants.O_RDONLY | constants.O_NONBLOCK | (options.refuseLink ? constants.O_NOFOLLOW : 0);
	const descriptor = fs.openSync(file, flags);
	try {
		const stat = fs.fstatSync(descriptor);
		refuseOthers(stat);
		await options.inspect?.(stat, descriptor);
		return readOpen(descriptor, stat.size, maxBytes);
	} finally {
		fs.closeSync(descriptor);
	}
}

function readOpen(descriptor: number, bytes: number, maxBytes: number): Buffer {
	const chunks: Buffer[] = [];
	const tooLarge = () => unusable('too-large', `it is larger than ${maxBytes} bytes`);
	// Where a file of nothing but holes is named, none of it is read.
	if (bytes > Math.max(maxBytes, CHUNK)) throw tooLarge();
	// The size that the system names is not to be relied on: /proc says 0, /sys a page, and a file may grow.
	for (let size = bytes || CHUNK, left = maxBytes + 1; ; size = CHUNK) {
		const buffer = Buffer.allocUnsafe(Math.min(left, size + 1));
		let length = 0;
		for (let bytesRead = -1; length < buffer.length && bytesRead !== 0; length += bytesRead)
			bytesRead = fs.readSync(descriptor, buffer, length, buffer.length - length, null);
		chunks.push(buffer.subarray(0, length));
		left -= length;
		if (left === 0) throw tooLarge();
		if (length < buffer.length) return Buffer.concat(chunks);
	}
}

/** As `readText`, for what has to be there before anything goes on. */
export function readTextNow(file: string, maxBytes: number): string {
	const descriptor = fs.openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
	try {
		const stat = fs.fstatSync(descriptor);
		refuseOthers(stat);
		return readOpen(descriptor, stat.size, maxBytes).toString('utf8');
	} finally {
		fs.closeSync(descriptor);
	}
}

/** As `readBytes`, for UTF-8; without a byte order mark. */
export async function readText(file: string, maxBytes: number, options: ReadOptions = {}): Promise<string> {
	const bytes = await readBytes(file, maxBytes, options);
	try {
		return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
	} catch {
		throw unusable('not-utf8', 'it is not UTF-8');
	}
}

export interface WriteOptions {
	/** Permission bits, whatever the umask. Default `0o600`. */
	readonly mode?: number;
	/** The owner of the file. Default: the user of this process. */
	readonly owner?: { readonly uid: number; readonly gid: number } | undefined;
	/** Where the new content is written first, in the same directory; what is there is removed. Default: a name of its own. */
	readonly temporary?: string;
	/** Runs when the new content is whole on the disk, and before it takes the place of the old. */
	readonly beforeRename?: () => Promise<void>;
}

/**
 * Replaces a file so that a power cut leaves the old content or the new, and resolves when the new would survive one.
 * @throws the system's error, for `inWords`; the old content is in place unless the rename had happened already.
 */
export async function writeDurably(
	file: string,
	content: string | Uint8Array,
	{ mode = 0o600, owner, temporary = `${file}.${randomUUID()}`, beforeRename }: WriteOptions = {},
): Promise<void> {
	try {
		await writeWhole(temporary, content, mode, owner);
		await beforeRename?.();
		fs.renameSync(temporary, file);
		await syncDirectory(path.dirname(file));
	} catch (error) {
		await remove(temporary).catch(() => undefined);
		throw error;
	}
}

/** A new file, proved to be whole on the disk; what was there is removed. The directory is not flushed. */
export async function writeWhole(
	file: string,
	content: string | Uint8Array,
	mode = 0o600,
	owner?: WriteOptions['owner'],
): Promise<void> {
	const bytes = Buffer.from(content);
	await remove(file);
	const descriptor = fs.openSync(file, 'wx', 0o600);
	try {
		fs.writeFileSync(descriptor, bytes);
		if (owner) fs.fchownSync(descriptor, owner.uid, owner.gid);
		if (mode !== 0o600) fs.fchmodSync(descriptor, mode);
		await flush(descriptor);
		const { size } = fs.fstatSync(descriptor);
		if (size !== bytes.length) throw new Error(`only ${size} of ${bytes.length} bytes were stored`);
	} finally {
		fs.closeSync(descriptor);
	}
}

/** Puts other content into a file that is there, in the room that it has, durably. A failure leaves it damaged. */
export async function overwrite(file: string, content: string): Promise<void> {
	const descriptor = fs.openSync(file, 'r+');
	try {
		fs.writeFileSync(descriptor, content);
		fs.ftruncateSync(descriptor, Buffer.byteLength(content));
		await flush(descriptor);
	} finally {
		fs.closeSync(descriptor);
	}
}

const flush = (descriptor: number) =>
	new Promise<void>((resolve, reject) => fs.fsync(descriptor, (error) => (error ? reject(error) : resolve())));

/** Makes what was written to a file survive a power cut. */
export async function syncFile(file: string): Promise<void> {
	const descriptor = fs.openSync(file, 'r+');
	try {
		await flush(descriptor);
	} finally {
		fs.closeSync(descriptor);
	}
}

/** Makes names that were added to, changed in or removed from a directory survive a power cut. */
export async function syncDirectory(directory: string): Promise<void> {
	const descriptor = fs.openSync(directory, 'r');
	try {
		await flush(descriptor);
	} catch (error) {
		// Some file systems have no flush of a directory.
		if (!['EINVAL', 'ENOTSUP', 'EPERM'].includes(errnoOf(error))) throw error;
	} finally {
		fs.closeSync(descriptor);
	}
}

/**
 * Makes a directory with those above it. Node's own `recursive` goes round for ever where the system says ENOENT under a parent that
 * is there: in /proc, or in a mount whose source was deleted.
 * @throws the system's error, for `inWords`.
 */
export function makeDirectory(directory: string, mode: number): void {
	const isDirectory = (at: string) => fs.statSync(at, { throwIfNoEntry: false })?.isDirectory() === true;
	try {
		fs.mkdirSync(directory, { mode });
	} catch (error) {
		if (isDirectory(directory)) return;
		const above = path.dirname(directory);
		if (errnoOf(error) !== 'ENOENT' || isDirectory(above)) throw error;
		makeDirectory(above, mode);
		makeDirectory(directory, mode);
	}
}

/** A new one for the time of a command. @throws AgentError `state-unwritable`. */
export function makeTemporaryDirectory(prefix: string): string {
	try {
		return fs.mkdtempSync(path.join(os.tmpdir(), prefix));
	} catch (cause) {
		const message = `No temporary directory can be made in ${os.tmpdir()}: ${inWords(cause)}.`;
		const remedy = 'Set TMPDIR to a directory that this user may write to, with free space.';
		throw new AgentError('state-unwritable', message, { remedy, cause });
	}
}

export async function remove(file: string): Promise<void> {
	try {
		fs.unlinkSync(file);
	} catch (error) {
		if (errnoOf(error) !== 'ENOENT') throw error;
	}
}

/** The path, if it fits a socket address. @throws AgentError `socket-failed`. */
export function checkSocketPath(socketPath: string): string {
	const length = Buffer.byteLength(socketPath);
	if (length <= MAX_SOCKET_PATH) return socketPath;
	throw new AgentError(
		'socket-failed',
		`The path of a socket may have ${MAX_SOCKET_PATH} bytes; ${socketPath} has ${length}.`,
		{ remedy: 'Choose a run directory with a shorter path.' },
	);
}

const ERRNO_WORDS: Record<string, string> = {
	EACCES: 'this user may not',
	EDQUOT: 'the disk quota is used up',
	EEXIST: 'there is a file in its place',
	EFBIG: 'the file would be larger than this process may write',
	EIO: 'the disk reports an error',
	EISDIR: 'there is a directory in its place',
	ELOOP: 'it is a link that is not followed, or that leads to itself',
	EMFILE: 'too many files are open',
	ENFILE: 'too many files are open',
	ENOENT: 'it is not there',
	ENOSPC: 'the disk is full',
	ENOTDIR: 'a part of its path is not a directory',
	EPERM: 'this user may not',
	EPIPE: 'its reader is gone',
	EROFS: 'the file system is read-only',
};

/** The reason of an error of the file system, for the end of a sentence: `it is not there (ENOENT)`. */
export function inWords(error: unknown): string {
	const code = errnoOf(error);
	const words = ERRNO_WORDS[code];
	return words ? `${words} (${code})` : error instanceof Error ? error.message : String(error);
}

const REMEDIES: Readonly<Record<FileFault, string>> = {
	'not-regular': 'Put a text file in its place, or name one.',
	'not-utf8': 'Save it again as UTF-8.',
	'too-large': 'Make it shorter.',
};

/** Why a file cannot be read, in words for the person who can mend it. @param what is in it, as the beginning of a sentence. */
export function unreadable(
	code: ErrorCode,
	what: string,
	file: string,
	cause: unknown,
	otherwise?: string,
): AgentError {
	const remedy = Object.hasOwn(REMEDIES, errnoOf(cause)) ? REMEDIES[errnoOf(cause) as FileFault] : otherwise;
	const message = `${what} ${file} cannot be read: ${inWords(cause)}.`;
	const more = { cause, params: { path: file }, ...(remedy && { remedy }), ...roomRemedy(cause) };
	return new AgentError(isOutOfRoom(cause) ? 'memory-low' : code, message, more);
}

/** All that the file system of a directory can hold, in bytes, without what is reserved for root; `null` when it does not say. */
export function capacityOf(directory: string): number | null {
	try {
		const { blocks, bfree, bavail, bsize } = fs.statfsSync(directory);
		return blocks > 0 ? (blocks - bfree + bavail) * bsize : null;
	} catch {
		return null;
	}
}

/** As a part of a failure: the remedy of its own where it is a limit of open files. */
export function roomRemedy(error: unknown): { readonly remedy?: string } {
	const code = errnoOf(error);
	if (code === 'EMFILE') return { remedy: 'Let this process open more files: LimitNOFILE of its unit, or ulimit -n.' };
	return code === 'ENFILE' ? { remedy: 'Let this machine open more files: sysctl fs.file-max.' } : {};
}

/** Whether the system has no room to open any file: that says nothing of this one, and passes. */
export const isOutOfRoom = (error: unknown): boolean => ['EMFILE', 'ENFILE', 'ENOMEM'].includes(errnoOf(error));

/** Whether a disk has no room left for this user. */
export const isDiskFull = (error: unknown): boolean => ['ENOSPC', 'EDQUOT'].includes(errnoOf(error));

/** The code of an error of the system, such as `ENOENT`; empty when it has none. */
export function errnoOf(error: unknown): string {
	const code = (error as { code?: unknown } | null | undefined)?.code;
	return typeof code === 'string' ? code : '';
}
