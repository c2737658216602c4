/** `npm run test:update -- --rounds N [--real M] [--seed S]`: the update suite with so many rounds at a random step, the last M of them with the real package. */
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
	options: { rounds: { type: 'string' }, real: { type: 'string' }, seed: { type: 'string' } },
});
const env = {
	...process.env,
	...(values.rounds === undefined ? {} : { UPDATE_ROUNDS: values.rounds }),
	...(values.real === undefined ? {} : { UPDATE_REAL: values.real }),
	...(values.seed === undefined ? {} : { UPDATE_SEED: values.seed }),
};
const words = ['vitest', 'run', '--config', 'test/update/vitest.config.ts'];
process.exitCode = spawnSync('npx', words, { stdio: 'inherit', env }).status ?? 1;
