/**
 * Before all suites: the commands as they ship, built once for each state of the sources. `bin/` with the bundle beside it stands in
 * `node_modules/.cache`, and `IDV_TEST_BIN` names it for every worker.
 */
import { existsSync, globSync, statSync } from 'node:fs';
import { cp, mkdir, readdir, rename, rm, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { bundle, commitOf } from '../../scripts/bundle.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const CACHE = join(ROOT, 'node_modules/.cache/idv-agent/built');

export async function setup(): Promise<void> {
	const sources = [...globSync('{src,bin,scripts}/**/*.*', { cwd: ROOT }), 'package.json', 'package-lock.json'];
	const newestMs = Math.max(...sources.map((file) => statSync(join(ROOT, file)).mtimeMs));
	const built = join(CACHE, `${Math.floor(newestMs)}-${sources.length}-${commitOf(ROOT)}`);
	if (!existsSync(built)) await build(built);
	process.env['IDV_TEST_BIN'] = join(built, 'bin');
}

async function build(built: string): Promise<void> {
	// Another run may still use the one before.
	const older = (await readdir(CACHE).catch(() => [])).toSorted().slice(0, -1);
	for (const name of older) await rm(join(CACHE, name), { recursive: true, force: true });
	const making = `${built}.${process.pid}`;
	const packages = join(making, 'node_modules');
	await mkdir(packages, { recursive: true });
	const entries = { 'idv-agent': 'src/cli/idv-agent.ts', idv: 'src/operator/idv.ts' };
	await bundle({ root: ROOT, entries, outDir: join(making, 'dist') });
	await cp(join(ROOT, 'bin'), join(making, 'bin'), { recursive: true });
	await cp(join(ROOT, 'package.json'), join(making, 'package.json'));
	// The Node that the packages bring, for a machine whose own is older.
	for (const name of (await readdir(join(ROOT, 'node_modules'))).filter((one) => /^node-\w+-\w+$/.test(one)))
		await symlink(join(ROOT, 'node_modules', name), join(packages, name));
	// Another run may have made the same meanwhile.
	await rename(making, built).catch((error: unknown) => {
		if (!existsSync(built)) throw error;
	});
}
