/** Before the suites that boot devices: what they begin with, built for all of their files and for the suite after them. */
import { join, resolve } from 'node:path';
import type { TestProject } from 'vitest/node';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { type Architecture, buildExecutable } from '../../scripts/executable.ts';
import { builtOnce } from '../harness/built-once.ts';
import { ensureTools, prepareTree } from './machine.ts';

export const ROOT = resolve(import.meta.dirname, '../..');
export const ARCHITECTURE: Architecture = process.arch === 'arm64' ? 'arm64' : 'x64';
/** The date of every file in a package. */
export const EPOCH = 1_780_000_000;
/** `IDV_TEST_SUITE`: of Debian. */
const SUITE = process.env['IDV_TEST_SUITE'] ?? 'bookworm';

export interface Built {
	readonly executable: string;
	/** The package `idv-agent` of version 0.2.0. */
	readonly real: string;
	/** Debian, as devices begin with it. */
	readonly tree: string;
}

declare module 'vitest' {
	interface ProvidedContext {
		built: Built;
	}
}

const executableIn = (directory: string) => join(directory, ARCHITECTURE, 'idv-agent/idv-agent');

/** The executable of a device and its package, put into a directory. */
export async function buildDevice(outDir: string): Promise<string> {
	const made = { root: ROOT, architecture: ARCHITECTURE, outDir };
	const executable = await buildExecutable(made);
	return buildDebianPackage({ ...made, executable, version: '0.2.0', epoch: EPOCH, compression: 'gzip' });
}

export async function devicesBuilt(): Promise<Built> {
	ensureTools();
	const directory = await builtOnce('device', '{src,bin,scripts,systemd,docs}/**/*', async (outDir) => {
		await buildDevice(outDir);
	});
	const architecture = ARCHITECTURE === 'arm64' ? 'arm64' : 'amd64';
	return {
		executable: executableIn(directory),
		real: join(directory, `idv-agent_0.2.0_${architecture}.deb`),
		tree: prepareTree(join(ROOT, 'build/trees'), SUITE, ['apt', 'gpgv', 'bash', 'iproute2']),
	};
}

export default async function setup(project: TestProject): Promise<void> {
	project.provide('built', await devicesBuilt());
}
