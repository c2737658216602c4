import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';

/** What needs Debian's chromium: `npx vitest run --config test/system/browser.config.ts`. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/system/**/*.browser.ts'],
		pool: 'forks',
		// On two cores it takes one of its own accord; the pages of one file wait while those of another are drawn.
		maxWorkers: 2,
		testTimeout: 60_000,
		hookTimeout: 60_000,
	},
});
