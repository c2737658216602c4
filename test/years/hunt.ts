/** Plants one bug after the other and lives until it is found. */
import { spawnSync } from 'node:child_process';
import { PLANTS } from './planted.ts';

/** Seeds that are lived with each bug, at most. */
const SEEDS = 12;
const YEARS = '0.03';

/** @param names which; none for all. @returns whether each was found. */
export function huntPlants(names: readonly string[], print: (line: string) => void): boolean {
	const chosen = PLANTS.filter(({ name }) => names.length === 0 || names.includes(name));
	let found = 0;
	for (const { name, catches, seed = 17, years = YEARS } of chosen) {
		const beganMs = performance.now();
		const caught = hunt(name, seed, years, catches);
		const took = ((performance.now() - beganMs) / 1000).toFixed(1);
		if (caught) found += 1;
		print(`${caught ? 'found ' : 'MISSED'}  ${name}  ${caught ?? ''}  ${took} s`);
	}
	print(`${found} of ${chosen.length} planted bugs were found`);
	return found === chosen.length;
}

/** The seed and the invariants that caught it; `null` if none did. */
function hunt(plant: string, first: number, years: string, catches: string | undefined): string | null {
	const run = new URL('./run.ts', import.meta.url).pathname;
	const lives = ['--json', '--seed', `${first}`, '--lives', `${SEEDS}`, '--until', catches ?? 'any', '--years', years];
	const args = ['--no-warnings', run, ...lives, '--plant', plant];
	const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
	if (stdout === '') throw new Error(`${plant}: ${stderr}`);
	const last = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '{}') as Lived;
	const names = [...new Set(last.violations.map(({ name }) => name))];
	const isCaught = catches === undefined ? names.length > 0 : names.includes(catches);
	return isCaught ? `seed ${last.seed}: ${names.join(', ')}` : null;
}

interface Lived {
	readonly seed: number;
	readonly violations: readonly { readonly name: string }[];
}
