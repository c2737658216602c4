/** `npm run test:update -- --rounds N [--seed S]`: the update suite with so many rounds at a random step. */
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const { values } = parseArgs({ options: { rounds: { type: 'string' }, seed: { type: 'string' } } });
const env = {
	...process.env,
	...(values.rounds === undefined ? {} : { UPDATE_ROUNDS: values.rounds }),
	...(values.seed === undefined ? {} : { UPDATE_SEED: values.seed }),
};
const words = ['vitest', 'run', '--config', 'test/update/vitest.config.ts'];
process.exitCode = spawnSync('npx', words, { stdio: 'inherit', env }).status ?? 1;
