/**
 * `npm run suite -- bench:backoff`: thousands of the product's own links (`src/connection/link.ts`, `backoff.ts`) in simulated time, an
 * outage of the service, and how long until 99 % are back; the product's waits beside those of other clients. No sockets: what
 * takes an hour runs in seconds, and the same seed gives the same figures. `fleet-storm.ts` does it with real sockets.
 *
 * `npm run suite -- bench:backoff --devices 10000 --outage-seconds 60 --limit 500 --horizon-seconds 1800 --seed 1`
 */
import { parseArgs } from 'node:util';
import { type ErrorCode, failure } from '../../src/base/errors.ts';
import { type LinkEvent, type LinkState, startLink, transition } from '../../src/connection/link.ts';
import { POLICIES, type RetryPolicy } from './retry-policies.ts';

const { values } = parseArgs({
	options: {
		devices: { type: 'string', default: '10000' },
		'outage-seconds': { type: 'string', default: '60' },
		limit: { type: 'string', default: '500' },
		'horizon-seconds': { type: 'string', default: '1800' },
		seed: { type: 'string', default: '1' },
	},
});
const devices = Number(values.devices);
const outageMs = Number(values['outage-seconds']) * 1000;
const limit = Number(values.limit);
const horizonMs = Number(values['horizon-seconds']) * 1000;
/** An answer takes this long to arrive. */
const LATENCY_MS = 50;
/** What has an answer beyond its capacity: a quick 503, or nothing until the client's deadline. */
type Overload = 'refuses' | 'is silent';
/** Handshakes that wait: one second of them before a 503, a listen queue of Linux before silence. */
const QUEUE = { refuses: limit, 'is silent': 4096 };
/** The part of a handshake that a 503 costs the service. */
const COST_OF_REFUSAL = 0.1;

console.log(`${devices} devices, an outage of ${outageMs / 1000} s, then ${limit} handshakes a second.`);
console.log(`At best ${devices / limit} s. "never" is longer than ${horizonMs / 1000 - outageMs / 1000} s.\n`);
for (const overload of ['refuses', 'is silent'] as const) {
	console.log(`A service that ${overload} when it has too much to do:`);
	console.log('policy                   99 % back, s   peak handshakes/s   handshakes a device');
	for (const policy of POLICIES) console.log(storm(policy, overload));
	console.log();
}

function storm(policy: RetryPolicy, overload: Overload): string {
	const random = randomFrom(Number(values.seed));
	/** What happens in each millisecond. */
	const agenda: (() => void)[][] = [];
	let nowMs = 0;
	const at = (delayMs: number, run: () => void) => {
		const ms = Math.ceil(nowMs + delayMs);
		const due = agenda[ms];
		if (due) due.push(run);
		else agenda[ms] = [run];
	};
	const begunIn: number[] = [];
	let begun = 0;
	let online = 0;
	let backAtMs: number | null = null;
	let freeAtMs = outageMs;

	const states: LinkState[] = [];
	const failures: number[] = [];
	const tell = (device: number, event: LinkEvent) => {
		const before = states[device] as LinkState;
		const { state, effects } = transition(before, event, random);
		states[device] = state;
		online += Number(state.name === 'online') - Number(before.name === 'online');
		if (state.name === 'online') failures[device] = 0;
		backAtMs = online < 0.99 * devices ? null : (backAtMs ?? nowMs);
		for (const effect of effects)
			if (effect.type === 'wait') {
				failures[device] = (failures[device] ?? 0) + 1;
				const delayMs = policy.seconds ? 1000 * policy.seconds(failures[device], random) : effect.delayMs;
				at(delayMs, () => tell(device, { type: 'timerFired', attempt: effect.attempt, atMs: nowMs }));
			} else if (effect.type === 'openChannel') open(device, effect.attempt, effect.handshakeMs);
	};
	const end = (device: number, attempt: number, code: ErrorCode, timedOut = false) =>
		tell(device, {
			type: 'channelEnded',
			attempt,
			failure: failure(code, 'simulated'),
			timedOut,
			closeCode: null,
			atMs: nowMs,
		});
	const open = (device: number, attempt: number, deadlineMs: number) => {
		begun += 1;
		const second = Math.floor(nowMs / 1000);
		begunIn[second] = (begunIn[second] ?? 0) + 1;
		if (nowMs < outageMs) return at(LATENCY_MS, () => end(device, attempt, 'service-unreachable'));
		freeAtMs = Math.max(freeAtMs, nowMs);
		const waiting = ((freeAtMs - nowMs) * limit) / 1000;
		const isTooMuch = waiting >= QUEUE[overload];
		if (isTooMuch && overload === 'refuses') {
			freeAtMs += (COST_OF_REFUSAL * 1000) / limit;
			return at(LATENCY_MS, () => end(device, attempt, 'service-overloaded'));
		}
		if (!isTooMuch) freeAtMs += 1000 / limit;
		const answerMs = isTooMuch ? Number.POSITIVE_INFINITY : freeAtMs - nowMs + LATENCY_MS;
		if (answerMs > deadlineMs) return at(deadlineMs, () => end(device, attempt, 'handshake-timeout', true));
		at(answerMs, () => tell(device, { type: 'channelConfirmed', attempt, atMs: nowMs }));
	};

	for (let device = 0; device < devices; device += 1) {
		// Connected for an hour: what failed before no longer matters.
		const connection = { token: 'simulated', obtainedAtMs: -3_600_000, lifeMs: null };
		const connecting = startLink([{ kind: 'reusable' }], connection, -3_600_000).state;
		const { attempt } = connecting;
		states.push(transition(connecting, { type: 'channelConfirmed', attempt, atMs: -3_600_000 }, random).state);
		online += 1;
		at(200 * random(), () => end(device, attempt, 'connection-lost'));
	}
	for (; nowMs < horizonMs; nowMs += 1) {
		for (const run of agenda[nowMs] ?? []) run();
		delete agenda[nowMs];
		if (online === devices && nowMs > outageMs) break;
	}
	const seconds = backAtMs === null ? 'never' : ((backAtMs - outageMs) / 1000).toFixed(1);
	const peak = begunIn.slice(Math.floor(outageMs / 1000)).reduce((most, count) => Math.max(most, count ?? 0), 0);
	const each = (begun / devices).toFixed(1);
	return `${policy.name.padEnd(23)}  ${seconds.padStart(12)}   ${String(peak).padStart(17)}   ${each.padStart(19)}`;
}

/** Mulberry32: uniform in [0, 1), the same for the same seed. */
function randomFrom(seed: number): () => number {
	let state = seed;
	return () => {
		state = (state + 0x6d2b79f5) | 0;
		let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
		mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
	};
}
