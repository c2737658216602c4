/**
 * Before all suites: the commands as they ship, built once for each state of the sources. `bin/` with the bundle beside it stands in
 * `node_modules/.cache`, and `IDV_TEST_BIN` names it for every worker.
 */
import { cp, mkdir, readdir, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { bundle } from '../../scripts/bundle.ts';
import { builtOnce } from './built-once.ts';

const ROOT = resolve(import.meta.dirname, '../..');

export async function setup(): Promise<void> {
	process.env['IDV_TEST_BIN'] = join(await builtOnce('commands', '{src,bin,scripts}/**/*.*', build), 'bin');
}

async function build(directory: string): Promise<void> {
	const packages = join(directory, 'node_modules');
	await mkdir(packages);
	const entries = { 'idv-agent': 'src/cli/idv-agent.ts', idv: 'src/operator/idv.ts' };
	await bundle({ root: ROOT, entries, outDir: join(directory, 'dist') });
	await cp(join(ROOT, 'bin'), join(directory, 'bin'), { recursive: true });
	await cp(join(ROOT, 'package.json'), join(directory, 'package.json'));
	// The Node that the packages bring, for a machine whose own is older.
	for (const name of (await readdir(join(ROOT, 'node_modules'))).filter((one) => /^node-\w+-\w+$/.test(one)))
		await symlink(join(ROOT, 'node_modules', name), join(packages, name));
}
