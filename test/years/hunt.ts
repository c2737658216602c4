/** Plants one bug after the other and lives until it is found. */
import { spawnSync } from 'node:child_process';
import { PLANTS, type Plant } from './planted.ts';

/** Seeds that are lived with each bug, at most. */
const SEEDS = 12;
const FIRST_SEED = 17;
const YEARS = '0.06';
const DAY = 86_400_000;

/** Prints a table. @param names which; none for all. @returns whether each was found. */
export function huntPlants(names: readonly string[], print: (line: string) => void): boolean {
	const chosen = PLANTS.filter(({ name }) => names.length === 0 || names.includes(name));
	let found = 0;
	print('| planted | found by | seeds | device-days |');
	print('|---|---|---|---|');
	for (const plant of chosen) {
		const lives = livesWith(plant);
		const last = lives.at(-1);
		const [first] = last?.violations.filter((violation) => isSought(plant, violation)) ?? [];
		if (first) found += 1;
		const seeds = `${lives[0]?.seed}${lives.length > 1 ? ` to ${last?.seed}` : ''}`;
		const before = lives.slice(0, -1).reduce((sum, { livedMs }) => sum + livedMs, 0);
		const days = (before + (first?.atMs ?? last?.livedMs ?? 0)) / DAY;
		print(`| ${plant.name} | ${first?.name ?? '**missed**'} | ${seeds} | ${days.toFixed(1)} |`);
	}
	print(`${found} of ${chosen.length} planted bugs were found`);
	return found === chosen.length;
}

interface Lived {
	readonly seed: number;
	readonly livedMs: number;
	readonly violations: readonly { readonly name: string; readonly atMs: number }[];
}

const isSought = ({ catches }: Plant, { name }: { readonly name: string }) => catches === undefined || catches === name;

/** The last is the one in which it was found, if it was. */
function livesWith({ name, catches = 'any', seed = FIRST_SEED, years = YEARS }: Plant): Lived[] {
	const run = new URL('./run.ts', import.meta.url).pathname;
	const lives = ['--json', '--seed', `${seed}`, '--lives', `${SEEDS}`, '--until', catches, '--years', years];
	const args = [...process.execArgv, run, ...lives, '--plant', name];
	const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
	if (stdout === '') throw new Error(`${name}: ${stderr}`);
	return stdout
		.trimEnd()
		.split('\n')
		.map((line) => JSON.parse(line) as Lived);
}
