/** Built once for the whole suite: the program, the real package, and the system that devices begin with. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { TestProject } from 'vitest/node';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { buildExecutable } from '../../scripts/executable.ts';
import { buildUpdatesPackage } from '../../scripts/updates-package.ts';
import { ensureTools, prepareTree } from '../system/machine.ts';

export interface Site {
	/** Of this run; is removed at its end. */
	readonly directory: string;
	/** Where machines keep their disks. */
	readonly machines: string;
	/** The base system. */
	readonly tree: string;
	readonly executable: string;
	/** The package of version 0.2.0. */
	readonly real: string;
	/** idv-agent-updates, of the same version. */
	readonly updates: string;
}

declare module 'vitest' {
	interface ProvidedContext {
		site: Site;
	}
}

export default async function build(project: TestProject): Promise<() => void> {
	ensureTools();
	const root = resolve(import.meta.dirname, '../..');
	const out = join(root, 'build');
	mkdirSync(out, { recursive: true });
	const directory = mkdtempSync(join(out, 'update-'));
	const architecture = process.arch === 'arm64' ? 'arm64' : 'x64';
	const executable = await buildExecutable({ root, architecture, outDir: join(out, 'system') });
	const made = { root, executable, architecture, epoch: 1_780_000_000, compression: 'gzip' } as const;
	const real = await buildDebianPackage({ ...made, version: '0.2.0', outDir: directory });
	const updates = await buildUpdatesPackage({ ...made, version: '0.2.0', outDir: directory });
	const suite = process.env['IDV_TEST_SUITE'] ?? 'bookworm';
	const tree = prepareTree(join(out, 'trees'), suite, ['apt', 'gpgv', 'bash', 'iproute2']);
	project.provide('site', { directory, machines: join(out, 'machines'), tree, executable, real, updates });
	return () => rmSync(directory, { recursive: true, force: true });
}
