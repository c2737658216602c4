import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';

/** Kills the real agent again and again: `npm run test:crash`, or `CRASH_ROUNDS=5 npm run test:crash` for a short form. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/crash/**/*.crash.ts'],
		pool: 'forks',
		testTimeout: 600_000,
		hookTimeout: 60_000,
	},
});
