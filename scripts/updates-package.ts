/**
 * Makes the Debian package idv-agent-updates: root's program, which the Node of idv-agent runs, its units and its documents. It is the same
 * for every architecture. `npm run build:deb` runs this; a device never does.
 */
import { mkdir, readFile, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { bundle } from './bundle.ts';
import { gzip, MAINTAINER, openTree, packTree, putDocuments } from './debian-tree.ts';
import { wrapped } from './launcher.ts';

const NAME = 'idv-agent-updates';

export interface UpdatesPackageOptions {
	readonly root: string;
	readonly version: string;
	/** Seconds since 1970 that every file of the package is dated with. */
	readonly epoch: number;
	/** Where the package is put. */
	readonly outDir: string;
	/** Default `xz`. */
	readonly compression?: 'xz' | 'gzip';
}

/** Builds `<outDir>/idv-agent-updates_<version>_all.deb` and returns its path. */
export async function buildUpdatesPackage(options: UpdatesPackageOptions): Promise<string> {
	const { root, version, epoch, outDir, compression = 'xz' } = options;
	const opened = await openTree(root, join(outDir, `deb-${NAME}`));
	const { tree, put, copy } = opened;
	const bundled = join(outDir, `bundle-${NAME}`);
	const entries = { [NAME]: 'src/cli/update-root.ts' };
	await bundle({ root, entries, outDir: bundled, singleFile: true, readsOnly: true });
	await put(`usr/lib/${NAME}/${NAME}.cjs`, wrapped(await readFile(join(bundled, `${NAME}.cjs`), 'latin1')));
	await rm(bundled, { recursive: true });
	await symlink('../idv-agent/idv-agent', join(tree, 'usr/lib', NAME, NAME));
	const units = 'usr/lib/systemd/system';
	for (const unit of ['idv-agent-update.path', 'idv-agent-update.service', 'idv-agent-finish.service'])
		await copy(`systemd/updates/${unit}`, `${units}/${unit}`);
	// By a link of the package's own: it has to be there when no script of the package has run to its end.
	await mkdir(join(tree, units, 'multi-user.target.wants'));
	await symlink('../idv-agent-finish.service', join(tree, units, 'multi-user.target.wants/idv-agent-finish.service'));
	await putDocuments(opened, { root, name: NAME, version, epoch });
	for (const page of ['updates.md', 'update-judge.md'])
		await put(`usr/share/doc/${NAME}/${page}.gz`, gzip(await readFile(join(root, 'docs', page), 'utf8')));
	for (const script of ['postinst', 'prerm', 'postrm'])
		await copy(`scripts/debian/updates/${script}`, `DEBIAN/${script}`, 0o755);
	const file = join(outDir, `${NAME}_${version}_all.deb`);
	return packTree(tree, { control: (kilobytes) => control(version, kilobytes), file, epoch, compression });
}

/**
 * Any idv-agent that runs this program and knows where it is: 0.2.0 and newer. Without an upper bound, apt takes either package alone to
 * another version; an idv-agent that this program can no longer serve is to break it (`Breaks: idv-agent-updates (<< …)`).
 */
export const NEEDED = 'idv-agent (>= 0.2.0~)';

function control(version: string, kilobytes: number): string {
	return `Package: ${NAME}
Version: ${version}
Section: net
Priority: optional
Architecture: all
Maintainer: ${MAINTAINER}
Installed-Size: ${kilobytes}
Depends: ${NEEDED}, apt, systemd (>= 252)
Description: judge and fleet updates for idv-agent
 Keeps the version of idv-agent that works before another one is installed,
 judges the new one on the device, and takes it back when it does not work.
 Where the settings allow it, a signed fleet plan says which version that is.
 .
 Its program runs as root. A device whose versions are chosen and tried in
 another way does not need it.
`;
}
