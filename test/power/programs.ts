/** The agent as it is shipped, and the same with one fault planted in its sources: each a bundle in a directory of its own. */
import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { build } from 'esbuild';
import { bundle } from '../../scripts/bundle.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const INBOX = 'test/power/inbox.ts';

/** What the suite must notice: file, text of it, and what stands there instead. */
export const PLANTED = {
	'the state file is not flushed': [
		['src/base/files.edge.ts', 'await flush(descriptor);\n\t\tconst { size }', 'const { size }'],
	],
	'the directory of the state is not flushed': [
		[
			'src/state/store.edge.ts',
			'for (const name of TEMPORARIES) takePlace(name);\n\t\t\tawait files.syncDirectory(stateDir);',
			'for (const name of TEMPORARIES) takePlace(name);',
		],
	],
	'the newest events are not flushed': [
		['src/base/record-log.edge.ts', 'if (isLasting) await disk.flush(descriptor);', ''],
	],
	'the name of a new file is not flushed': [
		['src/base/record-log.edge.ts', 'if (isNew || (isLasting && !isNameFlushed)) await disk.flushNames();', ''],
	],
	'wipe leaves the tail': [
		['src/provisioning/files.edge.ts', 'Buffer.alloc(Math.max(size, bytes.length)', 'Buffer.alloc(bytes.length'],
	],
} as const satisfies Record<string, readonly (readonly [file: string, from: string, to: string])[]>;
export type Planted = keyof typeof PLANTED;

/**
 * The agent, and beside it `inbox.mjs`, its event store alone. Returns the path of the agent.
 * @throws Error when a text to be replaced is no longer there.
 */
export async function buildAgent(directory: string, planted: Planted | null): Promise<string> {
	const outDir = join(directory, planted?.replaceAll(/\W+/g, '-') ?? 'sound');
	if (planted === null) return buildFrom(ROOT, outDir);
	const root = `${outDir}-sources`;
	for (const path of ['src', 'package.json', INBOX, 'test/fixtures/random-numbers.ts'])
		cpSync(join(ROOT, path), join(root, path), { recursive: true });
	symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
	for (const [file, from, to] of PLANTED[planted]) {
		const text = readFileSync(join(root, file), 'utf8');
		if (!text.includes(from)) throw new Error(`${file} has changed: plant "${planted}" elsewhere.`);
		writeFileSync(join(root, file), text.replace(from, to));
	}
	const program = await buildFrom(root, outDir);
	rmSync(root, { recursive: true });
	return program;
}

async function buildFrom(root: string, outDir: string): Promise<string> {
	await bundle({ root, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir });
	const outfile = join(outDir, 'inbox.mjs');
	await build({ entryPoints: [join(root, INBOX)], outfile, bundle: true, platform: 'node', format: 'esm' });
	return join(outDir, 'idv-agent.cjs');
}
