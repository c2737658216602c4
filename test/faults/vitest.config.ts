import { defineConfig } from 'vitest/config';

/**
 * Needs root and Debian's packages (debian.ts says which). One file after the other: they share two cores, and some
 * cut lines or fill disks. `FAULTS=short` leaves out what takes longer than CI has.
 */
export default defineConfig({
	test: {
		include: ['test/faults/**/*.test.ts'],
		globalSetup: ['test/faults/debian.ts'],
		pool: 'forks',
		fileParallelism: false,
		maxConcurrency: 8,
		testTimeout: 180_000,
		hookTimeout: 60_000,
	},
});
