import { defineConfig } from 'vitest/config';

/** What needs Debian's chromium: `npx vitest run --config test/system/browser.config.ts`. */
export default defineConfig({
	test: {
		include: ['test/system/**/*.browser.ts'],
		pool: 'forks',
		testTimeout: 60_000,
		hookTimeout: 60_000,
	},
});
