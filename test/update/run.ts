/**
 * `npm run test:update -- [--rounds N] [--real M] [--seed S] [--from DEB] [FILE]`: the update suite, or one of its files, with so many
 * rounds at a random step, the last M of them with the real package; `--from`: a package of 0.1.0, to be updated as well.
 */
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
	options: {
		rounds: { type: 'string' },
		real: { type: 'string' },
		seed: { type: 'string' },
		from: { type: 'string' },
	},
	allowPositionals: true,
});
const env = {
	...process.env,
	...(values.rounds === undefined ? {} : { UPDATE_ROUNDS: values.rounds }),
	...(values.real === undefined ? {} : { UPDATE_REAL: values.real }),
	...(values.seed === undefined ? {} : { UPDATE_SEED: values.seed }),
	...(values.from === undefined ? {} : { UPDATE_FROM: resolve(values.from) }),
};
const words = ['vitest', 'run', '--config', 'test/update/vitest.config.ts', ...positionals];
process.exitCode = spawnSync('npx', words, { stdio: 'inherit', env }).status ?? 1;
