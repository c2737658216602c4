import { defineConfig } from 'vitest/config';

/** Updates by a real apt, dpkg and systemd: `npm run test:update`. */
export default defineConfig({
	test: {
		reporters: ['verbose'],
		include: ['test/update/**/*.test.ts'],
		pool: 'forks',
		testTimeout: 600_000,
		hookTimeout: 900_000,
	},
});
