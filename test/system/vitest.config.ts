import { defineConfig } from 'vitest/config';

/** Needs root and Debian's packages (machine.ts says which); a file is one machine and one story. */
export default defineConfig({
	test: {
		include: ['test/system/**/*.test.ts'],
		pool: 'forks',
		// The packages are looked at while a device boots; within a file the tests are one story, in order.
		maxWorkers: 2,
		testTimeout: 60_000,
		hookTimeout: 180_000,
	},
});
