/**
 * Mutation testing of decisions by their own tests: `npm run mutate -- link redact`, without names all of them (20 min and
 * more); with `--seed` a sample over runners and
 * edges as well (sample.ts), with `--named` those that once stayed unnoticed (named.ts). Stryker comes into a directory of its own, since two hundred packages for a seldom look are no dependency, and
 * since it wants an older TypeScript to read a tsconfig, which is left out here.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { tryNamed } from './named.ts';
import { AREA_NAMES, sampleMutants } from './sample.ts';

const { values, positionals: named } = readFlags();
if (values.named) process.exit(await tryNamed(named[0] ?? ''));
if (values.seed !== undefined) {
	const [seed, count] = [Number(values.seed), Number(values.count)];
	if (!Number.isInteger(seed) || !Number.isInteger(count)) misused('--seed and --count must be whole numbers.');
	process.exit(await sampleMutants({ seed, count, names: named }));
}

function readFlags() {
	try {
		return parseArgs({
			allowPositionals: true,
			options: { seed: { type: 'string' }, count: { type: 'string', default: '10' }, named: { type: 'boolean' } },
		});
	} catch (error) {
		return misused((error as Error).message);
	}
}

function misused(why: string): never {
	process.stderr.write(`${why}
npm run mutate -- --seed S [--count N] [AREA …]   N faults for each area, drawn by the seed: ${AREA_NAMES}
npm run mutate -- --named [PART]                  faults that once stayed unnoticed, or those whose name has PART
npm run mutate -- [DECISION …]                    all faults of decisions, by Stryker
It ends with 0 when enough was noticed, with 1 when not, with 64 when it was not understood.
`);
	process.exit(64);
}

const ROOT = resolve(import.meta.dirname, '../..');
const STRYKER = '10.1.1';

const { dependencies, devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const testOf = (path: string) => path.replace(/^src/, 'test').replace(/\.ts$/, '.test.ts');
const directory = mkdtempSync(join(tmpdir(), 'mutation-'));
const run = (program: string, ...args: string[]) => {
	const { status } = spawnSync(program, args, { cwd: directory, stdio: 'inherit' });
	if (status !== 0) process.exitCode = 1;
	return status === 0;
};

try {
	for (const path of ['src', 'test']) cpSync(join(ROOT, path), join(directory, path), { recursive: true });
	const write = (name: string, text: string) => writeFileSync(join(directory, name), text);
	write('package.json', JSON.stringify({ private: true, type: 'module' }));
	// The test of a decision bears its name, in the folder of its capability; the rest would only take time.
	const decisions = globSync('src/*/*.ts', { cwd: ROOT })
		.filter(
			(path) => !/\.(?:edge|runner)\.ts$/.test(path) && (named.length === 0 || named.includes(basename(path, '.ts'))),
		)
		.filter((path) => existsSync(join(ROOT, testOf(path))));
	const include = JSON.stringify(decisions.map(testOf));
	write('vitest.config.ts', `export default { test: { include: ${include}, pool: 'forks' } };`);
	const settings = {
		testRunner: 'vitest',
		plugins: ['@stryker-mutator/vitest-runner'],
		vitest: { configFile: 'vitest.config.ts', related: true },
		coverageAnalysis: 'perTest',
		ignoreStatic: true,
		concurrency: 1,
		timeoutMS: 20_000,
		mutate: decisions,
		reporters: ['clear-text'],
		clearTextReporter: { reportTests: false, logTests: false },
	};
	write('stryker.conf.json', JSON.stringify(settings));
	const packages = [
		`@stryker-mutator/core@${STRYKER}`,
		`@stryker-mutator/vitest-runner@${STRYKER}`,
		`vitest@${devDependencies.vitest}`,
		`fast-check@${devDependencies['fast-check']}`,
		`zod@${dependencies.zod}`,
	];
	if (run('npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', ...packages))
		run('npx', 'stryker', 'run', 'stryker.conf.json');
} finally {
	rmSync(directory, { recursive: true });
}
