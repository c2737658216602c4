import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** Needs Debian's socat (serial-line.ts says so), for pseudo-terminals in place of serial scanners. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/scanning/devices/**/*.test.ts'],
		pool: 'forks',
		testTimeout: 60_000,
		hookTimeout: 20_000,
	},
});
