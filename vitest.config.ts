import { globSync } from 'node:fs';
import { resolve } from 'node:path';
import { defineConfig } from 'vitest/config';
import { PATIENCE } from './test/harness/patience.ts';
import { Skips } from './test/harness/skips.ts';

/** One level below test/ is `npm test`; a folder further down has a configuration and a script of its own. */
const FILES = globSync('test/*/*.test.ts', { cwd: import.meta.dirname }).filter(
	(file) => !/^test\/(?:system|faults|crash|dialects|power|update|vm)\//.test(file),
);
/**
 * Two cores are what CI and a small laptop have. Files share processes, which saves a third of the work: the harness fails a
 * test that leaves a socket, a timer or an open file behind, so the next file finds nothing of it. Limits are for a machine that is busy with something else; a test that hangs is still found.
 */
export default defineConfig({
	resolve: {
		alias: [{ find: /^fast-check$/, replacement: resolve(import.meta.dirname, 'test/harness/bounded-properties.ts') }],
	},
	test: {
		reporters: ['default', new Skips()],
		globalSetup: 'test/harness/built-commands.ts',
		pool: 'forks',
		isolate: false,
		// Left to itself it takes one worker on two cores; most of the time these tests wait: of 2,100 s only 490 are CPU time.
		maxWorkers: 10,
		include: FILES,
		testTimeout: 90_000,
		hookTimeout: 90_000,
		...PATIENCE,
	},
});
