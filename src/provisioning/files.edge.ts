/** The files of a provisioning. Wipes the secret where it was brought, and never puts a content into a message. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import fs from 'node:fs/promises';
import path from 'node:path';
import { AgentError } from '../base/errors.ts';
import { exposureOf, findExposure } from '../base/file-trust.edge.ts';
import * as files from '../base/files.edge.ts';

/** How many files a device remembers to have taken; the oldest is forgotten first. */
const MAX_TAKEN = 16;

/** The files that were taken, so that the same file again changes nothing. Holds salted hashes only. */
export interface ProvisionRecord {
	readonly schemaVersion: 1;
	readonly taken: readonly Readonly<Record<'salt' | 'hash' | 'from' | 'at', string>>[];
}

/** Faults of what was brought, and not of this device: `FileFault`. */
const INVALID: readonly string[] = ['too-large', 'not-regular', 'not-utf8'] satisfies files.FileFault[];

const NO_RECORD: ProvisionRecord = { schemaVersion: 1, taken: [] };

/** Source: Linux, uapi/linux/magic.h. FAT and exFAT know no owners: all files are of who has mounted them, in the mode of the mount. */
const WITHOUT_OWNERS = new Set([0x4d44, 0x2011bab0]);

/**
 * By the rule of the settings: root's or this user's, and not to be changed by others, nor replaced. A medium that root has mounted counts as
 * root's, whatever the mode of the mount.
 * @throws AgentError `file-exposed`
 */
async function inspect(file: string, stat: Stats, descriptor: number): Promise<void> {
	const { type } = await fs.statfs(`/proc/self/fd/${descriptor}`).catch(() => ({ type: 0 }));
	if (WITHOUT_OWNERS.has(type) && stat.uid === 0) return;
	const exposure = exposureOf(file, stat, { secret: false }) ?? (await findExposure(file, { secret: false }));
	if (exposure)
		throw new AgentError('file-exposed', `${file} is not taken, because ${exposure.reason}.`, {
			// It may hold a key in plain text.
			remedy: exposure.remedy.replace('0644', '0600'),
		});
}

/** `null` when nothing is there. @throws AgentError `provision-invalid` for all but a text file of that size, `file-exposed` for one of others. */
export async function readProvisionFile(file: string, maxBytes: number): Promise<string | null> {
	try {
		return await files.readText(file, maxBytes, {
			refuseLink: true,
			inspect: (stat, descriptor) => inspect(file, stat, descriptor),
		});
	} catch (cause) {
		if (cause instanceof AgentError) throw cause;
		const code = files.errnoOf(cause);
		if (['ENOENT', 'ENOTDIR'].includes(code)) return null;
		const message = `${file} cannot be read: ${files.inWords(cause)}.`;
		throw new AgentError(INVALID.includes(code) ? 'provision-invalid' : 'provision-failed', message, { cause });
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
		const handle = await fs.open(file, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK);
		try {
			const stat = await handle.stat();
			if (!stat.isFile()) throw new Error('it is not a regular file');
			const { size } = stat;
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
		await files.syncDirectory(path.dirname(file));
	} catch (error) {
		throw new AgentError('provision-failed', `The secret in ${file} could not be wiped: ${files.inWords(error)}.`, {
			remedy: 'Remove the file, or wipe the medium, by hand.',
			cause: error,
		});
	}
}

/** Leaves the old file or the new one after a power cut. @param owner default: the user of this process. */
export async function writeDurably(
	file: string,
	content: string | Uint8Array,
	mode: number,
	owner?: { readonly uid: number; readonly gid: number },
): Promise<void> {
	try {
		files.makeDirectory(path.dirname(file), 0o755);
		// Always under the same name, so that what a crash has left goes with the next write.
		await files.writeDurably(file, content, { mode, owner, temporary: `${file}.new` });
	} catch (error) {
		throw new AgentError('provision-failed', `${file} cannot be written: ${files.inWords(error)}.`, { cause: error });
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
