import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';

/** Updates by a real apt, dpkg and systemd: `npm run test:update`. */
export default defineConfig({
	test: {
		...PATIENCE,
		reporters: ['verbose'],
		include: ['test/update/**/*.test.ts'],
		globalSetup: 'test/update/site.ts',
		pool: 'forks',
		/** A file has a device of its own, and waits for its judge most of the time. */
		maxWorkers: 5,
		/** Devices at a time. */
		maxConcurrency: Number(process.env['UPDATE_LANES'] ?? 3),
		testTimeout: 600_000,
		hookTimeout: 900_000,
	},
});
