import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** `npm run suite -- codes`: needs Debian's qrencode, zbar-tools, imagemagick and librsvg2-bin. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/scanning/codes/**/*.test.ts'],
		pool: 'forks',
		testTimeout: 30_000,
		hookTimeout: 30_000,
	},
});
