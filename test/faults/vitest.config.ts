import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';
import { refusedHere } from './debian.ts';

const isShort = process.env['FAULTS'] === 'short';
/** CI may run in a container that may do less than a machine: there the short form is left out, and says so. */
const refused = isShort ? refusedHere() : null;
if (refused !== null) console.warn(`The fault suite is skipped: this machine does not permit ${refused}.`);

/**
 * Needs root and Debian's packages (debian.ts says which). One file after the other, since they share two cores.
 * `FAULTS=short` leaves out what takes longer than CI has, and lets files wait side by side.
 */
export default defineConfig({
	test: {
		...PATIENCE,
		include: refused === null ? ['test/faults/**/*.test.ts'] : [],
		passWithNoTests: refused !== null,
		globalSetup: refused === null ? ['test/faults/debian.ts'] : [],
		pool: 'forks',
		fileParallelism: isShort,
		maxWorkers: isShort ? 3 : 1,
		maxConcurrency: 8,
		testTimeout: 180_000,
		hookTimeout: 60_000,
	},
});
