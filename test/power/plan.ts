/** Which cuts a run makes: everything about one follows from the seed of the run and the number of the cut. */
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { MODELS, type Model } from './lossy-disk.ts';

/** Shares of the cuts, each scenario as often as it is named. */
const SCENARIOS = [
	...(['pairing', 'moves', 'notifications', 'provisioning', 'pairing', 'ext4', 'moves', 'notifications'] as const),
	...(['provisioning', 'pairing', 'moves', 'package', 'ext4', 'notifications', 'moves', 'pairing'] as const),
	...(['medium', 'notifications', 'provisioning', 'moves', 'events', 'events'] as const),
];
export type Scenario = (typeof SCENARIOS)[number];

export interface Cut {
	readonly number: number;
	readonly model: Model;
	/** Chooses what of the unflushed survives. */
	readonly seed: number;
	/** The chance of everything else. */
	readonly random: () => number;
	/** For the title of its test: what replays it. */
	readonly replay: string;
}

export const COUNT = Number(process.env['POWER_CUTS'] ?? 60);
export const SEED = Number(process.env['POWER_SEED'] ?? 1);
const ONLY = process.env['POWER_ONLY'];

/** The cuts of this run that are of one scenario. */
export function cutsOf(scenario: Scenario): Cut[] {
	const numbers = ONLY === undefined ? Array.from({ length: COUNT }, (_, number) => number) : [Number(ONLY)];
	return numbers.filter((number) => SCENARIOS[number % SCENARIOS.length] === scenario).map((number) => cutOf(number));
}

export function cutOf(number: number, seed = SEED): Cut {
	const random = randomNumbers(seed * 7919 + number);
	const model = MODELS[Math.floor(random() * MODELS.length)] ?? 'none';
	const replay = `npm run test:power -- --seed ${seed} --only ${number}`;
	return { number, model, seed: Math.floor(random() * 2 ** 31), random, replay };
}
