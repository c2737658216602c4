/**
 * `npm run suite -- bench:rate-limit`: kiosks behind one address that all have to register again, at a service that takes ten
 * registrations a minute from one address. The product's own decisions on a virtual clock.
 *
 * `npm run suite -- bench:rate-limit --kiosks 40,100 --seeds 10`
 */
import { parseArgs } from 'node:util';
import { AWAY_SECONDS, LIMITERS, quantile, rateLimited } from '../connection/virtual-fleet.ts';

const { values } = parseArgs({
	options: { kiosks: { type: 'string', default: '10,40,100' }, seeds: { type: 'string', default: '10' } },
});
const seeds = Array.from({ length: Number(values.seeds) }, (_, index) => index + 1);

console.log(`Seconds until all are back; ${seeds.length} seeds. The sliding limit counts what it refuses.\n`);
console.log('kiosks  limit                 best possible  median  worst  registrations a device');
for (const kiosks of values.kiosks.split(',').map(Number))
	for (const kind of LIMITERS) {
		const runs = seeds.map((seed) => rateLimited(kiosks, kind, seed));
		const times = runs.map(({ backAt }) => quantile(backAt, 1) - AWAY_SECONDS).sort((one, other) => one - other);
		const each = runs.reduce((sum, { registrations }) => sum + registrations, 0) / runs.length / kiosks;
		const best = (Math.ceil(kiosks / 10) - 1) * 60;
		const [median, worst] = [quantile(times, 0.5), quantile(times, 1)].map((time) => time.toFixed(0));
		console.log(
			`${String(kiosks).padStart(6)}  ${kind.padEnd(20)}  ${String(best).padStart(13)}  ${median?.padStart(6)}  ${worst?.padStart(5)}  ${each.toFixed(1).padStart(22)}`,
		);
	}
