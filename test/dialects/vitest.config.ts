import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../harness/patience.ts';

/** Ten requests a minute: a probe waits for most of its time. `DIALECTS_SEED` repeats a run, `DIALECTS_COUNT` says how many services; `npm run test:dialects -- …` takes vitest's flags. */
process.env['DIALECTS_SEED'] ??= String(Math.floor(Math.random() * 2 ** 31));
process.env['DIALECTS_COUNT'] ??= '50';
console.log(`DIALECTS_SEED=${process.env['DIALECTS_SEED']} DIALECTS_COUNT=${process.env['DIALECTS_COUNT']}`);

export default defineConfig({
	test: {
		...PATIENCE,
		include: ['test/dialects/**/*.test.ts'],
		pool: 'forks',
		maxConcurrency: 8,
		maxWorkers: 4,
		testTimeout: 300_000,
		hookTimeout: 60_000,
	},
});
