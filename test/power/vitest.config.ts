import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';
import { refusedHere } from './lossy-disk.ts';

const refused = await refusedHere();
if (refused !== null) console.warn(`test:power is not permitted here: this machine has no ${refused}.`);

/** Started by run.ts, which knows the flags. Each file has a disk of its own. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: refused === null ? ['test/power/**/*.test.ts'] : [],
		passWithNoTests: refused !== null,
		globalSetup: refused === null ? ['test/power/setup.ts'] : [],
		pool: 'forks',
		maxWorkers: 2,
		testTimeout: 180_000,
		hookTimeout: 60_000,
	},
});
