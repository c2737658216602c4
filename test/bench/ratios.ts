/**
 * What a benchmark says at its end: one line of JSON with the figures of each program and how many times the first one's they
 * are, and a warning when the machine was too busy for them to mean anything.
 */
import { loadavg } from 'node:os';
import { median, type Result } from './measure.ts';

/** Beyond this spread of F1's own figures, ratios say more about the machine than about programs. */
const MAX_SPREAD = 0.15;

/** Half of the distance between the quartiles over the median: how far a typical round is from the middle one. */
export function spreadOf(values: readonly number[]): number {
	const sorted = values.toSorted((one, other) => one - other);
	const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)] ?? Number.NaN;
	return (at(0.75) - at(0.25)) / 2 / median(values);
}

/** Collects the tables of one run. */
export function collectRatios() {
	const tables: Record<string, object> = {};
	const spreads: number[] = [];
	return {
		/** @param results F1, or what else stands for the floor, first. */
		add(what: string, results: readonly Result[]): void {
			const [first, ...others] = results;
			if (!first) return;
			for (const name of Object.keys(first.figures)) {
				const values = first.samples.map((sample) => sample[name] ?? Number.NaN).filter(Number.isFinite);
				if (values.length > 2) spreads.push(spreadOf(values));
			}
			const rounded = (value: number) => Number(value.toPrecision(3));
			tables[what] = Object.fromEntries(
				others.map(({ name, figures }) => {
					const own = Object.entries(figures).map(([figure, value]) => {
						const floor = first.figures[figure];
						return [
							figure,
							{ value: rounded(value), ...(floor && { floor: rounded(floor), ratio: rounded(value / floor) }) },
						];
					});
					return [name, Object.fromEntries(own)];
				}),
			);
		},
		/** The warning, if there is reason for one, and with `asJson` the line. @param more fields of the line. */
		print(asJson: boolean, more: object = {}): void {
			const spread = Math.max(0, ...spreads);
			const load = loadavg()[0] ?? 0;
			const isNoisy = spread > MAX_SPREAD;
			if (isNoisy)
				process.stderr.write(
					`\nWarning: F1's own figures spread by ${Math.round(spread * 100)} % (load ${load.toFixed(1)}): this machine is too busy, and the ratios above are worth nothing.\n`,
				);
			const told = {
				ratios: tables,
				spreadOfFloor: Number(spread.toFixed(3)),
				load: Number(load.toFixed(2)),
				isNoisy,
				...more,
			};
			if (asJson) process.stdout.write(`${JSON.stringify(told)}\n`);
		},
	};
}
