/** The parts that every Debian package of this project has: a tree of files, documents, checksums, and dpkg-deb with the same bytes for the same input. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { shippedPackages } from './sbom.ts';

const run = promisify(execFile);

export const MAINTAINER = 'idv-agent authors <idv-agent@example.invalid>';

export type Tree = Awaited<ReturnType<typeof openTree>>;

/** An empty directory for the files of a package. @param root of the project. */
export async function openTree(root: string, tree: string) {
	await rm(tree, { recursive: true, force: true });
	const put = async (path: string, content: string | Uint8Array, mode = 0o644) => {
		const file = join(tree, path);
		await mkdir(dirname(file), { recursive: true });
		await writeFile(file, content);
		await chmod(file, mode);
	};
	const copy = async (from: string, to: string, mode = 0o644) => put(to, await readFile(join(root, from)), mode);
	return { tree, put, copy };
}

/** What each package says of itself. */
export async function putDocuments(
	{ put }: Tree,
	{ root, name, version, epoch }: { root: string; name: string; version: string; epoch: number },
): Promise<void> {
	const docs = `usr/share/doc/${name}`;
	await put(`${docs}/changelog.gz`, gzip(debianChangelog(name, version, epoch)));
	await put(`${docs}/NEWS.gz`, gzip(await readFile(join(root, 'CHANGELOG.md'), 'utf8')));
	await put(`${docs}/copyright`, COPYRIGHT);
	await put(`${docs}/package-licenses.txt.gz`, gzip(await packageLicenses(root)));
	await put(`usr/share/lintian/overrides/${name}`, `${name}: embedded-library *\n`);
}

export interface Packing {
	/** The control file, for what is installed in kilobytes. */
	readonly control: (kilobytes: number) => string;
	/** Where the package is put. */
	readonly file: string;
	/** Seconds since 1970 that every file of the package is dated with. */
	readonly epoch: number;
	readonly compression: 'xz' | 'gzip';
}

/** Makes a package of a tree, which is removed. @returns its path. */
export async function packTree(tree: string, { control, file, epoch, compression }: Packing): Promise<string> {
	const files = (await listFiles(tree)).filter((path) => !path.startsWith('DEBIAN/'));
	await mkdir(join(tree, 'DEBIAN'), { recursive: true });
	await writeFile(join(tree, 'DEBIAN/md5sums'), await checksums(tree, files));
	const bytes = (await Promise.all(files.map((path) => stat(join(tree, path))))).reduce(
		(sum, { size }) => sum + size,
		0,
	);
	await writeFile(join(tree, 'DEBIAN/control'), control(Math.ceil(bytes / 1024)));
	await run('chmod', ['--recursive', 'u=rwX,go=rX', tree]);
	// More threads than one would cut the archive where this machine's cores say.
	const how = [
		'--root-owner-group',
		'--uniform-compression',
		`-Z${compression}`,
		compression === 'xz' ? '-z9' : '-z1',
		'--threads-max=1',
	];
	// Of a build that is interrupted nothing has the name of a package.
	const unfinished = `${file}.new`;
	await run('dpkg-deb', [...how, '--build', tree, unfinished], {
		env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) },
	});
	await rename(unfinished, file);
	await rm(tree, { recursive: true });
	return file;
}

async function listFiles(tree: string): Promise<string[]> {
	const entries = await readdir(tree, { recursive: true, withFileTypes: true });
	return entries
		.filter((entry) => entry.isFile())
		.map((entry) => relative(tree, join(entry.parentPath, entry.name)))
		.toSorted();
}

async function checksums(tree: string, files: readonly string[]): Promise<string> {
	const lines = files.map(async (path) => {
		const hash = createHash('md5').update(await readFile(join(tree, path)));
		return `${hash.digest('hex')}  ${path}\n`;
	});
	return (await Promise.all(lines)).join('');
}

function debianChangelog(name: string, version: string, epoch: number): string {
	const date = new Date(epoch * 1000).toUTCString().replace('GMT', '+0000');
	return `${name} (${version}) stable; urgency=medium

  * NEWS.gz beside this file lists the changes.

 -- ${MAINTAINER}  ${date}
`;
}

const COPYRIGHT = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: idv-agent
Comment: An executable contains Node.js and packages, a program packages; their
 licenses are in node-license.txt.gz and package-licenses.txt.gz beside this
 file.

Files: *
Copyright: 2026 the idv-agent authors
License: Expat
 Permission is hereby granted, free of charge, to any person obtaining a copy
 of this software and associated documentation files (the "Software"), to deal
 in the Software without restriction, including without limitation the rights
 to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 copies of the Software, and to permit persons to whom the Software is
 furnished to do so, subject to the following conditions:
 .
 The above copyright notice and this permission notice shall be included in all
 copies or substantial portions of the Software.
 .
 THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 SOFTWARE.
`;

/** The licenses of the packages that are bundled, each once. */
async function packageLicenses(root: string): Promise<string> {
	const texts = await Promise.all(
		[...(await shippedPackages(root))].map(async ([place, { name, version, license: id }]) => {
			const directory = join(root, place);
			const license = (await readdir(directory)).find((file) => /^(licen[sc]e|copying)/i.test(file));
			return `${name} ${version} (${id})\n\n${license ? await readFile(join(directory, license), 'utf8') : 'See its package.json.'}`;
		}),
	);
	return texts.join(`\n${'-'.repeat(80)}\n`);
}

export function gzip(text: string): Uint8Array {
	return gzipSync(text, { level: 9 });
}
