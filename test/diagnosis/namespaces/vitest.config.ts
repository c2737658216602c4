import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** Many real processes, waits and small file systems: apart, so that `npm test` stays quick. Needs npm only; more as root. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/diagnosis/namespaces/**/*.test.ts'],
		pool: 'forks',
		testTimeout: 60_000,
		hookTimeout: 60_000,
	},
});
