import { defineConfig } from 'vitest/config';

/** Thousands of devices: minutes rather than seconds, and nothing beside it. Needs nothing but npm. */
export default defineConfig({
	test: {
		include: ['test/fleet/scale/**/*.test.ts'],
		pool: 'forks',
		fileParallelism: false,
		testTimeout: 180_000,
		hookTimeout: 60_000,
	},
});
