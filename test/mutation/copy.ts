/** A copy of the sources and tests in which faults are planted: the checkout itself is never touched. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

export const ROOT = resolve(import.meta.dirname, '../..');
const PARTS = 'src test systemd scripts bin docs package.json vitest.config.ts tsconfig.json README.md CHANGELOG.md';
/** Of one run of tests; a fault that makes them hang is noticed. */
const LIMIT_MS = 600_000;

export function withCopy<Result>(act: (directory: string) => Result): Result {
	const directory = mkdtempSync(join(tmpdir(), 'idv-mutants-'));
	try {
		for (const path of PARTS.split(' ')) cpSync(join(ROOT, path), join(directory, path), { recursive: true });
		symlinkSync(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
		return act(directory);
	} finally {
		rmSync(directory, { recursive: true, force: true });
	}
}

/** Whether all of these tests pass in the copy. */
export function passes(directory: string, tests: readonly string[]): boolean {
	const args = [
		'vitest',
		'run',
		'--bail=1',
		'--maxWorkers=1',
		'--reporter=dot',
		'--retry=1',
		'--testTimeout=25000',
		...tests,
	];
	return (
		spawnSync('npx', args, { cwd: directory, timeout: LIMIT_MS, killSignal: 'SIGKILL', stdio: 'ignore' }).status === 0
	);
}
