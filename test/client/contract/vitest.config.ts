import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** `npm run test:clients`: packages of its own come from the lock file beside it, so it needs the registry once. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/client/contract/*.test.ts'],
		globalSetup: 'test/client/contract/packages.ts',
		pool: 'forks',
		testTimeout: 60_000,
		hookTimeout: 60_000,
	},
});
