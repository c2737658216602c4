/** A file of an operator in place of what was there: the old one stays until the new one is whole. Words no error. */
import { randomUUID } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';

/** @param mode of the new file, such as 0o600; what was there keeps nothing of its own. @throws the system's error. */
export async function writeFileAtomic(path: string, content: string | Uint8Array, mode: number): Promise<void> {
	const aside = `${path}.${randomUUID()}`;
	try {
		await writeFile(aside, content, { mode, flag: 'wx', flush: true });
		await rename(aside, path);
	} catch (error) {
		await rm(aside, { force: true });
		throw error;
	}
}
