import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../../harness/patience.ts';

/** Needs promtool (package prometheus) and trixie's VictoriaMetrics, which `.ci/victoria-metrics DIRECTORY` fetches. */
export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/telemetry/store/**/*.test.ts'],
		pool: 'forks',
		fileParallelism: false,
		testTimeout: 120_000,
		hookTimeout: 60_000,
	},
});
