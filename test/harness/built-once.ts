/** What suites share of what is built: made once for each state of the sources, and kept in `node_modules/.cache`. */
import { existsSync, globSync, statSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { commitOf } from '../../scripts/bundle.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const CACHE = join(ROOT, 'node_modules/.cache/idv-agent');

/**
 * @param kind its folder.
 * @param sources a pattern: whatever is newer builds it again; so do other packages.
 * @param build gets an empty directory, which has another name when it is done.
 * @returns the directory.
 */
export async function builtOnce(
	kind: string,
	sources: string,
	build: (directory: string) => Promise<void>,
): Promise<string> {
	const found = [...globSync(sources, { cwd: ROOT }), 'package.json', 'package-lock.json'];
	const newestMs = Math.max(...found.map((file) => statSync(join(ROOT, file)).mtimeMs));
	const folder = join(CACHE, kind);
	const built = join(folder, `${Math.floor(newestMs)}-${found.length}-${commitOf(ROOT)}`);
	if (existsSync(built)) return built;
	// Another run may still use the one before.
	const older = (await readdir(folder).catch(() => [])).toSorted().slice(0, -1);
	for (const name of older) await rm(join(folder, name), { recursive: true, force: true });
	const making = `${built}.${process.pid}`;
	await mkdir(making, { recursive: true });
	await build(making);
	// Another run may have made the same meanwhile.
	await rename(making, built).catch((error: unknown) => {
		if (!existsSync(built)) throw error;
	});
	return built;
}
