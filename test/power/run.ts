/**
 * `npm run test:power -- --cuts N [--seed S] [--only K]`: the real agent under N power cuts. A run prints its seed; each
 * failure prints the command that makes its cut again. Ends with 0 when nothing was lost, or when this machine does not
 * permit the suite, which it says in one line.
 */
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
	options: { cuts: { type: 'string', default: '60' }, seed: { type: 'string' }, only: { type: 'string' } },
});
const seed = values.seed ?? String(Math.floor(Math.random() * 1e6));
for (const [name, value] of Object.entries({ cuts: values.cuts, seed, only: values.only ?? '0' }))
	if (!/^\d{1,9}$/.test(value)) {
		process.stderr.write(`--${name} must be a whole number, not ${value}.\n`);
		process.exit(64);
	}
process.stdout.write(
	values.only === undefined
		? `${values.cuts} power cuts, seed ${seed}. The same again: npm run test:power -- --cuts ${values.cuts} --seed ${seed}\n`
		: `Cut ${values.only} of seed ${seed}.\n`,
);
const { status } = spawnSync('npx', ['vitest', 'run', '--config', 'test/power/vitest.config.ts'], {
	stdio: 'inherit',
	env: {
		...process.env,
		POWER_CUTS: values.cuts,
		POWER_SEED: seed,
		...(values.only !== undefined && { POWER_ONLY: values.only }),
	},
});
process.exitCode = status ?? 70;
