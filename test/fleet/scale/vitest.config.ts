import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** Thousands of devices: minutes rather than seconds, and nothing beside it. Needs nothing but npm. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/fleet/scale/**/*.test.ts'],
		pool: 'forks',
		fileParallelism: false,
		testTimeout: 180_000,
		hookTimeout: 60_000,
	},
});
