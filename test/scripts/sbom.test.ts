import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, readFileSync, symlinkSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { bundle, ENTRIES } from '../../scripts/bundle.ts';
import { checkNodeBinary, readNodeBinaries, writeSbom } from '../../scripts/sbom.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages;

/** Each list takes a build of all programs. */
const listed = writeSbom(ROOT);

async function givenFolder(): Promise<string> {
	const folder = await mkdtemp(join(tmpdir(), 'sbom-'));
	onTestFinished(() => rm(folder, { recursive: true, force: true }));
	return folder;
}

test('the list names every package that is shipped, Node, and the parts of Node, each once and the same each time', async () => {
	const text = await listed;
	expect(await writeSbom(ROOT)).toBe(text);
	const { bomFormat, specVersion, serialNumber, components, dependencies } = JSON.parse(text);
	expect({ bomFormat, specVersion }).toEqual({ bomFormat: 'CycloneDX', specVersion: '1.6' });
	expect(serialNumber).toMatch(/^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
	const refs = components.map((component: { 'bom-ref': string }) => component['bom-ref']);
	expect(new Set(refs).size).toBe(refs.length);
	for (const { ref, dependsOn } of dependencies)
		for (const name of dependsOn) expect(refs, `${ref} needs ${name}`).toContain(name);
	const names = components.map(({ name, version }: { name: string; version: string }) => `${name}@${version}`);
	const { dependencies: direct } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
	for (const [name, version] of Object.entries(direct)) expect(names).toContain(`${name}@${version}`);
	for (const part of ['openssl', 'v8', 'uv', 'zlib', 'llhttp', 'sqlite'])
		expect(components).toContainEqual(expect.objectContaining({ name: part, version: expect.stringMatching(/^\d/) }));
	expect(names).not.toContain(`vitest@${lock['node_modules/vitest'].version}`);
	for (const { hashes = [] } of components)
		for (const { alg, content } of hashes)
			expect(content).toMatch(alg === 'SHA-512' ? /^[0-9a-f]{128}$/ : /^[0-9a-f]{64}$/);
});

interface Listed {
	readonly 'bom-ref': string;
	readonly type: string;
	readonly name: string;
	readonly purl?: string;
	readonly licenses: readonly { readonly license?: { readonly id: string }; readonly expression?: string }[];
}
const packagesIn = (list: string): Listed[] =>
	JSON.parse(list).components.filter(({ type, purl }: Listed) => type === 'library' && purl?.startsWith('pkg:npm'));

test('the list names the packages of which something is in a program that is shipped, and no other [F886]', async () => {
	const held = new Set<string>();
	const agent = 'src/cli/idv-agent.ts';
	const shipped = [
		{ entries: ENTRIES },
		{ entries: { agent }, toolsApart: true },
		{ entries: { updates: 'src/cli/update-root.ts' }, singleFile: true },
	];
	for (const program of shipped)
		await bundle({ root: ROOT, outDir: join(await givenFolder(), 'out'), packages: held, ...program });
	const refs = packagesIn(await listed).map((component) => component['bom-ref']);
	const inPrograms = [...held].map((place) => {
		const name = place.split('node_modules/').at(-1) ?? '';
		return `pkg:npm/${name.replace('@', '%40')}@${lock[`node_modules/${place}`].version}`;
	});
	expect(refs.toSorted()).toEqual([...new Set(inPrograms)].toSorted());
	// They are installed, and each bundle leaves them out.
	for (const name of ['sonic-boom', 'thread-stream', 'node-gyp-build', 'bufferutil', 'type-fest'])
		expect(held).not.toContain(name);
	expect([...held]).toEqual(expect.arrayContaining(['zod', 'ws', 'uqr', '@serialport/bindings-cpp']));
}, 120_000);

test('each package that is shipped has a licence that permits it, by name and as a text', async () => {
	const permitted = /^(MIT|ISC|Apache-2\.0|BSD-[23]-Clause|MIT OR CC0-1\.0)$/;
	for (const { name, licenses } of packagesIn(await listed))
		for (const { license, expression } of licenses) expect(license?.id ?? expression, name).toMatch(permitted);
});

test('the Node that is shipped is the one that the repository names, and no other', async () => {
	const binaries = await readNodeBinaries(ROOT);
	for (const [architecture, binary] of Object.entries(binaries)) {
		expect(lock[`node_modules/${binary.package}`].version).toBe(binary.version);
		expect(binary.package).toBe(`node-linux-${architecture}`);
	}
	await checkNodeBinary(ROOT, process.arch, join(ROOT, 'node_modules', `node-linux-${process.arch}`, 'bin/node'));
	const other = join(await givenFolder(), 'node');
	await writeFile(other, 'not Node');
	const digest = createHash('sha256').update('not Node').digest('hex');
	await expect(checkNodeBinary(ROOT, 'x64', other)).rejects.toThrow(digest);
});

test('the script of every package that has one is refused at installation', async () => {
	const withScripts = Object.entries<{ hasInstallScript?: boolean }>(lock).filter(
		([, entry]) => entry.hasInstallScript,
	);
	const names = withScripts.map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
	const { allowScripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
	expect(allowScripts).toEqual(Object.fromEntries(names.map((name) => [name, false])));
});

test('the Node of the scripts is the one that came with npm ci, also where npm has removed its link', async () => {
	const folder = await givenFolder();
	const node = join(folder, 'node_modules', `node-linux-${process.arch}`, 'bin', 'node');
	await mkdir(dirname(node), { recursive: true });
	await mkdir(join(folder, 'node_modules/.bin'));
	await writeFile(node, '');
	for (const _ of ['without a link', 'with one']) {
		execFileSync(process.execPath, [join(ROOT, 'scripts/own-node.cjs')], { cwd: folder });
		expect(await realpath(join(folder, 'node_modules/.bin/node'))).toBe(await realpath(node));
	}
});

test('the programs are the same byte for byte when they are built in another folder', async () => {
	const hashes = async (root: string) => {
		const outDir = join(root, 'out');
		await bundle({ root, entries: { 'idv-agent': 'src/cli/idv-agent.ts', idv: 'src/operator/idv.ts' }, outDir });
		const names = (await readdir(outDir)).filter((name) => name.endsWith('.cjs')).toSorted();
		return Promise.all(
			names.map(
				async (name) =>
					`${name} ${createHash('sha256')
						.update(await readFile(join(outDir, name)))
						.digest('hex')}`,
			),
		);
	};
	const [one, two] = await Promise.all(
		['a', 'another/deeper'].map(async (name) => {
			const root = join(await givenFolder(), name);
			await mkdir(root, { recursive: true });
			for (const part of ['src', 'package.json', 'tsconfig.json'])
				cpSync(join(ROOT, part), join(root, part), { recursive: true });
			symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
			return hashes(root);
		}),
	);
	expect(one?.length).toBeGreaterThan(5);
	expect(two).toEqual(one);
}, 60_000);
