import { defineConfig } from 'vitest/config';

const isShort = process.env['FAULTS'] === 'short';

/**
 * Needs root and Debian's packages (debian.ts says which). One file after the other, since they share two cores.
 * `FAULTS=short` leaves out what takes longer than CI has, and lets files wait side by side.
 */
export default defineConfig({
	test: {
		include: ['test/faults/**/*.test.ts'],
		globalSetup: ['test/faults/debian.ts'],
		pool: 'forks',
		fileParallelism: isShort,
		maxWorkers: isShort ? 3 : 1,
		maxConcurrency: 8,
		testTimeout: 180_000,
		hookTimeout: 60_000,
	},
});
