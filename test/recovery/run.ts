/**
 * `npm run suite -- recovery`: after every cause the device is back within the limit that its class has, whatever credential it has and
 * whatever it was doing. The product's own decisions on virtual time, then the same over real sockets (`test/agent/surprises.test.ts`).
 *
 * `npm run suite -- recovery --json --seed 1 --lives 20 --devices 10000 --no-sockets`. Ends with 1 where a limit was exceeded.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { failure } from '../../src/base/errors.ts';
import { ANSWERS, quantile, surprised } from '../connection/virtual-fleet.ts';
import { CAUSES, type Cause, type CauseClass, FROM_DOCUMENTS } from './causes.ts';
import { CREDENTIALS, live, PHASES } from './lives.ts';

const { values } = parseArgs({
	options: {
		json: { type: 'boolean', default: false },
		seed: { type: 'string', default: '1' },
		lives: { type: 'string', default: '20' },
		devices: { type: 'string', default: '10000' },
		sockets: { type: 'boolean', default: true },
	},
	allowNegative: true,
});
const LENGTHS = [20, 120, 1200] as const;

/** Seconds within which a device is back; written before anything was measured. */
export function limitOf(cause: Pick<Cause, 'class' | 'retryAfterSeconds'>, seconds: number): number {
	const asked = 2 * (cause.retryAfterSeconds ?? 0);
	const limits: Record<CauseClass, number> = {
		outage: seconds <= 900 ? 60 : 300,
		refusal: Math.max(130, Math.min(1800, seconds)),
		overload: Math.max(60, Math.min(1800, seconds)),
		first: Math.max(60, Math.min(600, seconds)),
	};
	return Math.max(limits[cause.class], asked);
}

interface Row {
	readonly cause: string;
	readonly class: CauseClass;
	readonly seconds: number;
	readonly limit: number;
	readonly median: number;
	readonly worst: number;
	readonly worstSettled: number;
	readonly attempts: number;
	readonly exceeded: readonly string[];
}

function measure(name: string, cause: Cause, seconds: number): Row {
	const limit = limitOf(cause, seconds);
	const backs = CREDENTIALS.flatMap((credential) =>
		PHASES.filter((phase) => phase === 'starting' || !cause.isFirst).flatMap((phase) =>
			Array.from({ length: Number(values.lives) }, (_, index) => {
				const seed = Number(values.seed) * 1000 + index;
				return { credential, phase, seed, ...live({ cause, credential, phase, seconds, seed }) };
			}),
		),
	);
	const online = backs.map((back) => back.online).sort((one, other) => one - other);
	const settled = Math.max(...backs.map((back) => back.settled));
	const exceeded = backs.filter((back) => back.online > limit);
	return {
		cause: name,
		class: cause.class,
		seconds,
		limit,
		median: quantile(online, 0.5),
		worst: quantile(online, 1),
		worstSettled: settled,
		attempts: backs.reduce((sum, { attempts }) => sum + attempts, 0) / backs.length,
		exceeded: [...new Set(exceeded.map(({ credential, phase }) => `${credential}, ${phase}`))],
	};
}

const rows = Object.entries({ ...CAUSES, ...FROM_DOCUMENTS }).flatMap(([name, cause]) =>
	LENGTHS.map((seconds) => measure(name, cause, seconds)),
);
const fleets = [
	'service-unreachable',
	'bad-response',
	'channel-rejected',
	'certificate-untrusted',
	'handshake-timeout',
].map((code) => {
	const answer =
		code === 'service-unreachable' ? ANSWERS.unreachable : failure(code as 'bad-response', 'Something else.');
	const devices = Number(values.devices);
	const { backAt, peakFrom, handshakes, registrations } = surprised({
		devices,
		seed: 7,
		hasKey: true,
		answer,
		seconds: 60,
	});
	const requests = (handshakes + registrations) / devices;
	return { code, back99: quantile(backAt, 0.99) - 60, back: quantile(backAt, 1) - 60, peak: peakFrom(60), requests };
});
const outages = rows.filter((row) => row.class === 'outage');
const overall = LENGTHS.map((seconds) => {
	const of = outages.filter((row) => row.seconds === seconds);
	const medians = of.map(({ median }) => median).sort((one, other) => one - other);
	return { seconds, median: quantile(medians, 0.5), worst: Math.max(...of.map(({ worst }) => worst)) };
});
const exceeded = rows.filter((row) => row.exceeded.length > 0);

if (values.json) console.log(JSON.stringify({ rows, overall, fleets }, null, '\t'));
else print();
process.exitCode = exceeded.length > 0 ? 1 : 0;

if (values.sockets) {
	const vitest = join(import.meta.dirname, '../../node_modules/.bin/vitest');
	const { status } = spawnSync(vitest, ['run', 'test/agent/surprises.test.ts'], { stdio: ['ignore', 2, 2] });
	if (status !== 0) process.exitCode = 1;
}

function print(): void {
	const cell = (value: number) => value.toFixed(0).padStart(6);
	const lives = CREDENTIALS.length * PHASES.length * Number(values.lives);
	const causes = `${Object.keys(CAUSES).length} causes and ${Object.keys(FROM_DOCUMENTS).length} from manuals`;
	console.log(`${causes}, ${lives} lives a row; seconds from the end of the cause until the device is online.\n`);
	console.log(
		`${'cause'.padEnd(54)} class     ${LENGTHS.map((seconds) => `${seconds} s: median worst limit`.padStart(30)).join('')}`,
	);
	for (const name of new Set(rows.map(({ cause }) => cause))) {
		const of = rows.filter(({ cause }) => cause === name);
		const cells = of.map((row) =>
			`${cell(row.median)}${cell(row.worst)}${cell(row.limit)}${row.exceeded.length > 0 ? ' !' : '  '}`.padStart(30),
		);
		console.log(`${name.padEnd(54)} ${(of[0]?.class ?? '').padEnd(9)} ${cells.join('')}`);
	}
	console.log('');
	for (const { seconds, median, worst } of overall)
		console.log(`outages of ${seconds} s: median ${median.toFixed(0)} s, worst ${worst.toFixed(0)} s`);
	console.log(
		`\n${values.devices} devices at once, a minute long: 99 % back, all back, peak requests a second afterwards, requests a device`,
	);
	for (const { code, back99, back, peak, requests } of fleets)
		console.log(`${code.padEnd(24)}${cell(back99)}${cell(back)}${cell(peak)}${requests.toFixed(1).padStart(8)}`);
	for (const row of exceeded)
		console.log(
			`exceeded: ${row.cause} for ${row.seconds} s: ${row.worst.toFixed(0)} s, limit ${row.limit} s (${row.exceeded.join('; ')})`,
		);
}
