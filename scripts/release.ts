/**
 * Puts a release together in `build/release`: the packages for both architectures and for npm, the list of all that is shipped, the index
 * of an apt repository, notes and checksums. `npm run release` runs this (`-- x64` for one architecture only); it publishes and signs
 * nothing. Same input, same bytes.
 */
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { buildNpmPackages } from './npm-packages.ts';
import { writeSbom } from './sbom.ts';

const run = promisify(execFile);

export interface ReleaseParts {
	/** Directory with `package.json` and `CHANGELOG.md`. */
	readonly root: string;
	readonly version: string;
	/** The Debian packages; each must be of this version. */
	readonly packages: readonly string[];
	/** What npm installs. Default: none. */
	readonly npmPackages?: readonly string[];
	/** Seconds since 1970 that the index is dated with. */
	readonly epoch: number;
	/** Is emptied first. */
	readonly outDir: string;
}

/**
 * @returns the files of the release, by name.
 * @throws Error for a package of another version, and when `CHANGELOG.md` has nothing about this one.
 */
export async function assembleRelease(parts: ReleaseParts): Promise<string[]> {
	const { root, version, packages, npmPackages = [], epoch, outDir } = parts;
	const notes = notesOf(await readFile(join(root, 'CHANGELOG.md'), 'utf8'), version);
	await rm(outDir, { recursive: true, force: true });
	await mkdir(outDir, { recursive: true });
	const stanzas: string[] = [];
	for (const file of packages.toSorted()) {
		const { stdout } = await run('dpkg-deb', ['--field', file]);
		const found = /^Version: (.*)$/m.exec(stdout)?.[1];
		if (found !== version) throw new Error(`${file} has version ${found}, not ${version}.`);
		const bytes = await readFile(file);
		stanzas.push(
			`${stdout.trimEnd()}\nFilename: ./${basename(file)}\nSize: ${bytes.length}\nSHA256: ${sha256(bytes)}\n`,
		);
		await copyFile(file, join(outDir, basename(file)));
	}
	for (const file of npmPackages) await copyFile(file, join(outDir, basename(file)));
	const index = stanzas.join('\n');
	const date = new Date(epoch * 1000).toUTCString().replace('GMT', 'UTC');
	await writeFile(join(outDir, 'Packages'), index);
	// As apt wants it: a site signs this file with its own key.
	await writeFile(
		join(outDir, 'Release'),
		`Date: ${date}\nSHA256:\n ${sha256(index)} ${Buffer.byteLength(index)} Packages\n`,
	);
	await writeFile(join(outDir, `idv-agent_${version}.cdx.json`), await writeSbom(root));
	await writeFile(join(outDir, 'NOTES.md'), notes);
	const names = (await readdir(outDir)).toSorted();
	const sums = names.map(async (name) => `${sha256(await readFile(join(outDir, name)))}  ${name}\n`);
	await writeFile(join(outDir, 'SHA256SUMS'), (await Promise.all(sums)).join(''));
	return [...names, 'SHA256SUMS'];
}

const sha256 = (content: string | Uint8Array) => createHash('sha256').update(content).digest('hex');

/** The section of one version. */
function notesOf(changelog: string, version: string): string {
	const sections = changelog.split(/^(?=## )/m);
	const section = sections.find((text) => text.startsWith(`## ${version} `) || text.startsWith(`## ${version}\n`));
	if (section === undefined) throw new Error(`CHANGELOG.md has no section "## ${version}".`);
	return `${section.trimEnd()}\n`;
}

async function main(): Promise<void> {
	const root = resolve(import.meta.dirname, '..');
	const build = join(root, 'build');
	const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
	const epoch =
		process.env['SOURCE_DATE_EPOCH'] ?? (await run('git', ['log', '-1', '--format=%ct'], { cwd: root })).stdout.trim();
	const env = { ...process.env, SOURCE_DATE_EPOCH: epoch };
	const built = async () =>
		(await readdir(build).catch(() => [])).filter((name) => name.endsWith('.deb')).map((name) => join(build, name));
	for (const old of await built()) await rm(old);
	const architectures = process.argv.slice(2);
	const words = [join(root, 'scripts/debian-package.ts'), ...architectures];
	execFileSync(process.execPath, words, { cwd: root, env, stdio: 'inherit' });
	const outDir = join(build, 'release');
	const npmPackages = await buildNpmPackages();
	const parts = { root, version, packages: await built(), npmPackages, epoch: Number(epoch), outDir };
	const names = await assembleRelease(parts);
	process.stdout.write(names.map((name) => `${relative(root, join(outDir, name))}\n`).join(''));
	if ((await readFile(join(outDir, 'NOTES.md'), 'utf8')).includes('(not released)'))
		process.stdout.write(`Nothing was published; CHANGELOG.md gives ${version} no date yet.\n`);
}

if (import.meta.main) void main();
