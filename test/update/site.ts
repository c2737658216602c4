/** Built once for the whole suite: what devices begin with, and the package that updates them. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { buildUpdatesPackage } from '../../scripts/updates-package.ts';
import { type Built, devicesBuilt, EPOCH, ROOT } from '../system/built.ts';

export interface Site extends Built {
	/** Of this run; is removed at its end. */
	readonly directory: string;
	/** Where machines keep their disks. */
	readonly machines: string;
	/** idv-agent-updates, of the same version. */
	readonly updates: string;
}

declare module 'vitest' {
	interface ProvidedContext {
		site: Site;
	}
}

export default async function build(project: TestProject): Promise<() => void> {
	const out = join(ROOT, 'build');
	mkdirSync(out, { recursive: true });
	const directory = mkdtempSync(join(out, 'update-'));
	const updates = await buildUpdatesPackage({
		root: ROOT,
		version: '0.2.0',
		epoch: EPOCH,
		outDir: directory,
		compression: 'gzip',
	});
	project.provide('site', { ...(await devicesBuilt()), directory, machines: join(out, 'machines'), updates });
	return () => rmSync(directory, { recursive: true, force: true });
}
