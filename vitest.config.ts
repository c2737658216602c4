import { defineConfig } from 'vitest/config';

/**
 * Two cores are what CI and a small laptop have: forks keep real sockets and real processes of one file out of the way
 * of the next, and the unit suites stay quick. Suites that need Debian's packages have configurations of their own.
 */
export default defineConfig({
	test: {
		// One level below test/ is `npm test`; a folder further down has a configuration and a script of its own.
		include: ['test/*/*.test.ts'],
		exclude: ['test/{system,faults,crash,dialects,power,vm}/**'],
		pool: 'forks',
		// Left to itself it takes one worker on two cores; most of the time these tests wait for other processes.
		maxWorkers: 3,
		testTimeout: 20_000,
		hookTimeout: 20_000,
	},
});
