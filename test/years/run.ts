/**
 * `npm run test:years`: lives one simulated life after the other and judges them. Prints for each failure its seed, the
 * fewest faults that show it, and the command that lives it again.
 *
 *   --minutes M    so long, with seeds that count up (default 1)
 *   --seed S       the first seed (default: by the time); without --minutes only this one
 *   --years Y      length of one life (default 0.1)
 *   --from S       leave out all before the first time of trouble after so many seconds
 *   --faults 1,5   only these faults of the schedule
 *   --trace        print everything that is seen
 *   --plant NAME   with a planted bug (`--planted` runs all of them, `--planted NAME,…` these)
 *   --lives N      so many lives, whatever the time
 *   --until NAME   until this invariant does not hold
 *   --json         one line of JSON for each life
 */
import { parseArgs } from 'node:util';
import { huntPlants } from './hunt.ts';
import type { LifeOptions, LifeResult } from './life.ts';
import { PLANTS } from './planted.ts';
import { replaceMachine } from './register.ts';
import { shrink } from './shrink.ts';

const { values: flags } = parseArgs({
	options: {
		minutes: { type: 'string' },
		seed: { type: 'string' },
		years: { type: 'string', default: '0.1' },
		faults: { type: 'string' },
		from: { type: 'string', default: '0' },
		trace: { type: 'boolean', default: false },
		plant: { type: 'string' },
		planted: { type: 'boolean', default: false },
		only: { type: 'string' },
		'no-shrink': { type: 'boolean', default: false },
		json: { type: 'boolean', default: false },
		until: { type: 'string' },
		lives: { type: 'string' },
	},
});

const MINUTE = 60_000;
const realNow = performance.now.bind(performance);
const firstSeed = flags.seed === undefined ? Math.floor(Date.now() / 1000) % 1_000_000_000 : Number(flags.seed);
const print = (line: string) => void process.stdout.write(`${line}\n`);

if (flags.planted) {
	process.exitCode = huntPlants(flags.only?.split(',') ?? [], print) ? 0 : 1;
} else {
	const plant = flags.plant === undefined ? null : PLANTS.find(({ name }) => name === flags.plant);
	if (plant === undefined) throw new Error(`no plant is called ${flags.plant}`);
	replaceMachine(plant);
	const { live, YEAR } = await import('./life.ts');
	// Loaded by the agent with the first plan: later it would take real time.
	await import('../../src/fleet/verify-plan.runner.ts');
	// Promises settle between the events of a life only if it is not itself within one.
	setImmediate(() => {
		process.exitCode = run(live, YEAR) ? 0 : 1;
		process.exit();
	});
}

function run(live: (options: LifeOptions) => LifeResult, yearMs: number): boolean {
	const lengthMs = Number(flags.years) * yearMs;
	const most = Number(flags.lives ?? 1);
	const isOne = flags.minutes === undefined && flags.lives === undefined && flags.seed !== undefined;
	const limitMs = isOne || flags.lives !== undefined ? 0 : Number(flags.minutes ?? 1) * MINUTE;
	const only = flags.faults?.split(',').filter(Boolean).map(Number);
	const beganMs = realNow();
	let livedMs = 0;
	let lives = 0;
	let faults = 0;
	let quickMs = 0;
	let cpuMs = 0;
	if (!flags.json) print(`seed ${firstSeed}, lives of ${flags.years} years`);
	for (let seed = firstSeed; lives === 0 || lives < most || realNow() - beganMs < limitMs; seed += 1) {
		const cpuBefore = process.cpuUsage();
		const fromMs = Number(flags.from) * 1000;
		const result = live({ seed, lengthMs, fromMs, only, until: flags.until, trace: flags.trace ? print : undefined });
		const { user, system } = process.cpuUsage(cpuBefore);
		cpuMs += (user + system) / 1000;
		lives += 1;
		livedMs += result.livedMs;
		faults += result.schedule.length;
		if (result.traits.cadenceSeconds <= 60) quickMs += result.livedMs;
		if (flags.json) {
			const { digest, violations, livedMs: lastedMs } = result;
			print(JSON.stringify({ seed, digest, violations, livedMs: lastedMs }));
		}
		if (result.violations.length > 0 && !flags.json && flags.until === undefined) report(result, live, yearMs);
		const { until } = flags;
		if (result.violations.some(({ name }) => until === undefined || until === 'any' || name === until)) return false;
		if (isOne) break;
	}
	const years = livedMs / yearMs;
	const share = Math.round((quickMs / livedMs) * 100);
	const pace = (years / (cpuMs / MINUTE)).toFixed(1);
	if (!flags.json)
		print(
			`${years.toFixed(2)} device-years in ${lives} lives with ${faults} faults, ${share} % at a cadence of at most 60 s: every invariant held; ${pace} device-years a CPU-minute`,
		);
	return true;
}

function report(result: LifeResult, live: (options: LifeOptions) => LifeResult, yearMs: number) {
	const { seed, violations, traits, schedule } = result;
	print(`seed ${seed} fails (${traits.credential}, cadence ${traits.cadenceSeconds} s, ${schedule.length} faults):`);
	for (const { name, detail, atMs } of violations)
		print(`  ${name} at ${(atMs / 1000).toFixed(3)} s: ${detail.slice(0, 400)}`);
	const [first] = violations;
	if (!first) return;
	const command = 'npm run test:years --';
	const plant = flags.plant === undefined ? '' : ` --plant ${flags.plant}`;
	const left = `${flags.from === '0' ? '' : ` --from ${flags.from}`}${flags.faults === undefined ? '' : ` --faults ${flags.faults}`}`;
	if (flags['no-shrink'] || left !== '')
		return print(`again: ${command} --seed ${seed} --years ${flags.years}${left}${plant}`);
	const found = shrink(live, result, first.name, () => realNow(), 50_000);
	print(`${found.faults.length} of its faults are enough (${found.lives} lives, ${found.seconds.toFixed(0)} s):`);
	for (const { number, kind, atMs, endMs } of found.faults)
		print(`  ${number} ${kind} at ${(atMs / 1000).toFixed(1)} s for ${((endMs - atMs) / 1000).toFixed(1)} s`);
	const from = found.fromMs === 0 ? '' : ` --from ${found.fromMs / 1000}`;
	const years = (found.lengthMs / yearMs).toFixed(6);
	const numbers = found.faults.map(({ number }) => number).join(',');
	print(`again: ${command} --seed ${seed} --years ${years}${from} --faults ${numbers === '' ? ',' : numbers}${plant}`);
}
