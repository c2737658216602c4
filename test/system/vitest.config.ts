import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';

/** Needs root and Debian's packages (machine.ts says which); one machine, one story, in order. */
export default defineConfig({
	test: {
		...PATIENCE,
		// So that what hangs has the names of the tests before it above it.
		reporters: ['verbose'],
		include: ['test/system/**/*.test.ts'],
		globalSetup: 'test/system/built.ts',
		pool: 'forks',
		// Beside the packages: one builds and reads files, the other waits for a machine that boots.
		maxWorkers: 2,
		testTimeout: 60_000,
		hookTimeout: 600_000,
	},
});
