/** Loaded before the worker when DISK_PLANT names a bug: rewrites one line of the product as it is loaded. The suite has to find each. */
import { registerHooks } from 'node:module';

export const PLANTS = {
	'the reader skips the checksum of payloads': {
		file: 'src/base/record-format.ts',
		from: 'const isWhole = payload.length === length && ',
		to: 'const isWhole = payload.length === length || ',
	},
	'a file that was cut counts as whole': {
		file: 'src/base/log-segments.edge.ts',
		from: 'if (earlier && missing >= next) lost =',
		to: 'if (!earlier && missing >= next) lost =',
	},
	'a consumer whose note is lost is forgotten': {
		file: 'src/events/store.edge.ts',
		from: 'done: lacksConsumer() ? 0 : done',
		to: 'done',
	},
} as const;

/** Absent in the process of the suite itself. */
const plant = PLANTS[process.env['DISK_PLANT'] as keyof typeof PLANTS];
if (plant)
	registerHooks({
		load(url, context, nextLoad) {
			const loaded = nextLoad(url, context);
			if (!url.endsWith(plant.file)) return loaded;
			const source = String(loaded.source);
			if (!source.includes(plant.from)) throw new Error(`${plant.file} has changed: mend this plant.`);
			return { ...loaded, source: source.replace(plant.from, plant.to) };
		},
	});
