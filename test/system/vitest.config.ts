import { defineConfig } from 'vitest/config';

/** Needs root and Debian's packages (machine.ts says which); one machine, one story, in order. */
export default defineConfig({
	test: {
		include: ['test/system/**/*.test.ts'],
		pool: 'forks',
		// Beside the packages, a device did not see a credential that came (2 of 3).
		fileParallelism: false,
		testTimeout: 60_000,
		hookTimeout: 180_000,
	},
});
