import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { defineConfig } from 'vitest/config';

/** One level below test/ is `npm test`; a folder further down has a configuration and a script of its own. */
const FILES = globSync('test/*/*.test.ts', { cwd: import.meta.dirname }).filter(
	(file) => !/^test\/(?:system|faults|crash|dialects|power|update|vm)\//.test(file),
);
/** Suites that touch nothing of the machine: no module of Node, no agent, no service. They may share a process. */
const isPure = (file: string) =>
	!/from '(?:node:|ws|undici|.*\/(?:harness|fixture|command|device|[\w-]+\.(?:edge|runner))\b)/.test(
		readFileSync(resolve(import.meta.dirname, file), 'utf8'),
	);

/**
 * Two cores are what CI and a small laptop have: forks keep real sockets and real processes of one file out of the way of the
 * next. Limits are for a machine that is busy with something else; a test that hangs is still found.
 */
export default defineConfig({
	resolve: {
		alias: [{ find: /^fast-check$/, replacement: resolve(import.meta.dirname, 'test/harness/bounded-properties.ts') }],
	},
	test: {
		globalSetup: 'test/harness/built-commands.ts',
		pool: 'forks',
		// Left to itself it takes one worker on two cores; most of the time these tests wait for other processes.
		maxWorkers: 3,
		projects: [
			{
				extends: true,
				test: { name: 'pure', include: FILES.filter(isPure), isolate: false, testTimeout: 60_000 },
			},
			{
				extends: true,
				test: {
					name: 'machine',
					include: FILES.filter((file) => !isPure(file)),
					testTimeout: 90_000,
					hookTimeout: 90_000,
				},
			},
		],
	},
});
