import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openTree, packTree } from '../../scripts/debian-tree.ts';
import { assembleRelease } from '../../scripts/release.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const EPOCH = 1_780_000_000;
const hasDpkgDeb = spawnSync('dpkg-deb', ['--version']).status === 0;

function givenPackages(version: string) {
	const directory = mkdtempSync(join(tmpdir(), 'release-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	const packages = ['amd64', 'arm64'].map((architecture) => {
		const tree = join(directory, architecture, 'DEBIAN');
		mkdirSync(tree, { recursive: true });
		writeFileSync(
			join(tree, 'control'),
			`Package: idv-agent\nVersion: ${version}\nArchitecture: ${architecture}\nMaintainer: a <a@example.invalid>\nDescription: a package\n of two lines\n`,
		);
		const file = join(directory, `idv-agent_${version}_${architecture}.deb`);
		execFileSync('dpkg-deb', ['--root-owner-group', '--build', join(directory, architecture), file], {
			env: { ...process.env, SOURCE_DATE_EPOCH: String(EPOCH) },
			stdio: 'ignore',
		});
		return file;
	});
	return { packages, outDir: join(directory, 'release') };
}

const filesOf = (directory: string) =>
	Object.fromEntries(readdirSync(directory).map((name) => [name, readFileSync(join(directory, name), 'latin1')]));

test.skipIf(!hasDpkgDeb)('a release is whole, checks out, and is the same each time (needs dpkg-deb)', async () => {
	const { packages, outDir } = givenPackages('0.1.0');
	const parts = { root: ROOT, version: '0.1.0', packages, epoch: EPOCH, outDir };
	const names = await assembleRelease(parts);
	expect(names.toSorted()).toEqual([
		'NOTES.md',
		'Packages',
		'Release',
		'SHA256SUMS',
		'idv-agent_0.1.0.cdx.json',
		'idv-agent_0.1.0_amd64.deb',
		'idv-agent_0.1.0_arm64.deb',
	]);
	execFileSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: outDir, stdio: 'ignore' });
	const first = filesOf(outDir);
	expect(first['Release']).toContain('Date: Thu, 28 May 2026 20:26:40 UTC\n');
	expect(first['NOTES.md']).toMatch(/^## 0\.1\.0 /);
	expect(first['NOTES.md']?.match(/^## /gm)).toHaveLength(1);
	expect(first['Packages']?.match(/^Filename: .*$/gm)).toEqual([
		'Filename: ./idv-agent_0.1.0_amd64.deb',
		'Filename: ./idv-agent_0.1.0_arm64.deb',
	]);
	writeFileSync(join(outDir, 'of-the-time-before'), '');
	await assembleRelease({ ...parts, packages: packages.toReversed() });
	expect(filesOf(outDir)).toEqual(first);
});

test.skipIf(!hasDpkgDeb)('a package says in kilobytes what it takes (needs dpkg-deb)', async () => {
	const directory = mkdtempSync(join(tmpdir(), 'tree-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	const { tree, put } = await openTree(ROOT, join(directory, 'tree'));
	await put('usr/lib/large', Buffer.alloc(5 * 1024 + 1));
	const control = (kilobytes: number) =>
		`Package: idv-agent\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nInstalled-Size: ${kilobytes}\nDescription: none\n`;
	const file = await packTree(tree, { control, file: join(directory, 'a.deb'), epoch: EPOCH, compression: 'gzip' });
	expect(execFileSync('dpkg-deb', ['--field', file, 'Installed-Size'], { encoding: 'utf8' })).toBe('6\n');
});

test.skipIf(!hasDpkgDeb)(
	'packages of another version, and a version without notes, are no release (needs dpkg-deb)',
	async () => {
		const { packages, outDir } = givenPackages('0.1.1');
		const parts = { root: ROOT, packages, epoch: EPOCH, outDir };
		await expect(assembleRelease({ ...parts, version: '0.1.0' })).rejects.toThrow('has version 0.1.1, not 0.1.0');
		await expect(assembleRelease({ ...parts, version: '0.1.1' })).rejects.toThrow('no section "## 0.1.1"');
	},
);
