/**
 * Whether the tests notice a fault: `npm run mutate -- --changed` plants faults on the lines that differ from a commit,
 * `--seed S` a draw from every folder, `--named` those that once stayed unnoticed (named.ts). The checkout is never touched.
 */
import { parseArgs } from 'node:util';
import { FOLDERS } from './draw.ts';
import { tryNamed } from './named.ts';
import { plantChanged, plantDrawn } from './plant.ts';

const { values, positionals } = readFlags();
const whole = (name: 'seed' | 'count' | 'limit') => {
	const value = Number(values[name]);
	return Number.isInteger(value) && value >= 0 ? value : misused(`--${name} must be a whole number.`);
};
const unknown = positionals.filter((name) => !FOLDERS.includes(name));
const folders = positionals.length > 0 ? positionals : FOLDERS;
const [seed, count, limitSeconds] = [whole('seed'), whole('count'), whole('limit')];
if (values.named) process.exit(await tryNamed(positionals[0] ?? ''));
if (values.changed) process.exit(await plantChanged(values.since, { seed, limitSeconds }));
if (unknown.length > 0) misused(`There is no folder ${unknown.join(', ')}.`);
process.exit(await plantDrawn({ seed, count, folders, limitSeconds }));

function readFlags() {
	try {
		return parseArgs({
			allowPositionals: true,
			options: {
				changed: { type: 'boolean' },
				since: { type: 'string' },
				seed: { type: 'string', default: String(Math.floor(Date.now() / 86_400_000)) },
				count: { type: 'string', default: '10' },
				limit: { type: 'string', default: '86400' },
				named: { type: 'boolean' },
			},
		});
	} catch (error) {
		return misused((error as Error).message);
	}
}

function misused(why: string): never {
	process.stderr.write(`${why}
npm run mutate -- --changed [--since COMMIT]      faults on the lines that differ from a commit: HEAD, or if nothing is changed the one of 12 hours before
npm run mutate -- --seed S [--count N] [FOLDER …] N faults in each folder, drawn by the seed: ${FOLDERS.join(', ')}
npm run mutate -- --named [PART]                  faults that once stayed unnoticed, or those whose name has PART
--limit SECONDS bounds all of it. It ends with 0 when enough was noticed, with 1 when not or when the time was over before the first, with 64 when it was not understood.
`);
	process.exit(64);
}
