import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** Needs Debian's nginx (nginx.ts says so when it is missing): `npm run suite -- fleet-nginx`. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/fleet/nginx/**/*.test.ts'],
		pool: 'forks',
		testTimeout: 60_000,
		hookTimeout: 60_000,
	},
});
