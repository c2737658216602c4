/**
 * The files of a provisioning: the one that was brought, what is made of it, and the record of what was taken. Wipes the
 * secret where it was brought. Decides nothing, and never puts what stands in a file into a message.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { constants } from 'node:fs';
import fs from 'node:fs/promises';
import path from 'node:path';
import { AgentError } from '../base/errors.ts';

/** How many files a device remembers to have taken; the oldest is forgotten first. */
const MAX_TAKEN = 16;

/** What was taken, so that the same file again changes nothing. Holds salted hashes only. */
export interface ProvisionRecord {
	readonly schemaVersion: 1;
	readonly taken: readonly {
		readonly salt: string;
		readonly hash: string;
		readonly from: string;
		readonly at: string;
	}[];
}

const NO_RECORD: ProvisionRecord = { schemaVersion: 1, taken: [] };

/**
 * Reads what was brought.
 * @returns `null` when nothing is there.
 * @throws AgentError `provision-invalid` for what is no text file of that size, `provision-failed` when it cannot be read.
 */
export async function readProvisionFile(file: string, maxBytes: number): Promise<string | null> {
	try {
		const handle = await fs.open(file, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
		try {
			const stat = await handle.stat();
			if (!stat.isFile()) throw new AgentError('provision-invalid', `${file} is not a regular file.`);
			if (stat.size > maxBytes) throw new AgentError('provision-invalid', `${file} is larger than ${maxBytes} bytes.`);
			return new TextDecoder('utf-8', { fatal: true }).decode(await handle.readFile());
		} finally {
			await handle.close();
		}
	} catch (error) {
		if (error instanceof AgentError) throw error;
		if (['ENOENT', 'ENOTDIR'].includes(codeOf(error))) return null;
		if (codeOf(error) === 'ERR_ENCODING_INVALID_ENCODED_DATA')
			throw new AgentError('provision-invalid', `${file} is not UTF-8.`);
		throw new AgentError('provision-failed', `${file} cannot be read: ${codeOf(error)}.`, { cause: error });
	}
}

/**
 * Takes the secret off the medium: writes what is left over the very bytes of the file, flushes, cuts the rest off, and
 * calls the file `….used`. What a controller of flash memory keeps in pages that it has replaced is beyond any program.
 * @param left what may stay in the file.
 * @throws AgentError `provision-failed`: the secret is still there.
 */
export async function wipe(file: string, left: string): Promise<void> {
	try {
		const handle = await fs.open(file, constants.O_RDWR | constants.O_NOFOLLOW);
		try {
			const { size } = await handle.stat();
			const bytes = Buffer.from(left);
			const covering = Buffer.alloc(Math.max(size, bytes.length), ' ');
			bytes.copy(covering);
			for (let at = 0; at < covering.length; )
				at += (await handle.write(covering, at, covering.length - at, at)).bytesWritten;
			await handle.sync();
			await handle.truncate(bytes.length);
			await handle.sync();
		} finally {
			await handle.close();
		}
		await fs.rename(file, `${file}.used`);
		await flushDirectory(path.dirname(file));
	} catch (error) {
		throw new AgentError('provision-failed', `The secret in ${file} could not be wiped: ${codeOf(error)}.`, {
			remedy: 'Remove the file, or wipe the medium, by hand.',
			cause: error,
		});
	}
}

/**
 * Writes a file so that a power cut leaves the old one or the new one.
 * @param owner who it shall belong to; left out, whoever writes it.
 * @throws AgentError `provision-failed`.
 */
export async function writeDurably(
	file: string,
	content: string | Uint8Array,
	mode: number,
	owner?: { readonly uid: number; readonly gid: number },
): Promise<void> {
	const fresh = `${file}.new`;
	try {
		await fs.mkdir(path.dirname(file), { recursive: true, mode: 0o755 });
		await fs.rm(fresh, { force: true });
		const handle = await fs.open(fresh, 'wx', 0o600);
		try {
			await handle.writeFile(content);
			if (owner) await handle.chown(owner.uid, owner.gid);
			await handle.chmod(mode);
			await handle.sync();
		} finally {
			await handle.close();
		}
		await fs.rename(fresh, file);
		await flushDirectory(path.dirname(file));
	} catch (error) {
		throw new AgentError('provision-failed', `${file} cannot be written: ${codeOf(error)}.`, { cause: error });
	}
}

export async function readRecord(file: string): Promise<ProvisionRecord> {
	try {
		const record = JSON.parse(await fs.readFile(file, 'utf8')) as ProvisionRecord;
		return record.schemaVersion === 1 && Array.isArray(record.taken) ? record : NO_RECORD;
	} catch {
		// Without a record the file counts as one that was never seen: on a paired device it is refused.
		return NO_RECORD;
	}
}

export function wasTaken({ taken }: ProvisionRecord, text: string): boolean {
	return taken.some(({ salt, hash }) => {
		const [found, known] = [Buffer.from(hashOf(text, salt)), Buffer.from(hash)];
		return found.length === known.length && timingSafeEqual(found, known);
	});
}

export function withTaken(record: ProvisionRecord, text: string, from: string, at: string): ProvisionRecord {
	const salt = randomBytes(16).toString('hex');
	return { schemaVersion: 1, taken: [...record.taken, { salt, hash: hashOf(text, salt), from, at }].slice(-MAX_TAKEN) };
}

function hashOf(text: string, salt: string): string {
	return createHash('sha256').update(salt).update(text).digest('hex');
}

async function flushDirectory(directory: string): Promise<void> {
	const handle = await fs.open(directory);
	try {
		await handle.sync();
	} catch (error) {
		// Not every file system can flush a directory.
		if (codeOf(error) !== 'EINVAL') throw error;
	} finally {
		await handle.close();
	}
}

function codeOf(error: unknown): string {
	const code = (error as { code?: unknown } | null | undefined)?.code;
	return typeof code === 'string' ? code : 'for an unknown reason';
}
